package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Changes are the texts that stand in for files while the go command compiles, by path inside the module, with slashes. A file that is not there is added.
type Changes map[string]string

// Patched applies patches to the files of the module whose root folder is given, one after the other. Nothing is written.
func Patched(root string, patches ...*Patch) (Changes, error) {
	c := Changes{}
	for _, p := range patches {
		text, there := c[p.File]
		if !there {
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p.File)))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.Name, err)
			}
			text = string(b)
		}
		changed, err := p.Apply(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		c[p.File] = changed
	}
	return c, nil
}

// Builder runs the go command in the module whose root folder it names.
type Builder struct{ Root string }

// Flag writes changes into dir, which must stay as long as the go command runs, and returns the flag that makes it use them.
func (b Builder) Flag(dir string, c Changes) (string, error) {
	replace := map[string]string{}
	for i, file := range slices.Sorted(maps.Keys(c)) {
		copied := filepath.Join(dir, fmt.Sprintf("%d-%s", i, filepath.Base(file)))
		if err := os.WriteFile(copied, []byte(c[file]), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(b.Root, filepath.FromSlash(file))] = copied
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return "-overlay=" + path, os.WriteFile(path, list, 0o644)
}

// Test compiles the test binary of a package ("./internal/batch") with changes into dir, and returns its path. It is to be run in the package's folder.
func (b Builder) Test(ctx context.Context, dir, pkg string, c Changes) (binary string, err error) {
	return b.build(ctx, dir, pkg, c, "test", "-c", "-vet=off")
}

// Main compiles a command of the module ("./internal/casecheck") with changes into dir, and returns the binary's path.
func (b Builder) Main(ctx context.Context, dir, pkg string, c Changes) (binary string, err error) {
	return b.build(ctx, dir, pkg, c, "build", "-ldflags=-s -w") // nobody looks into it with a debugger
}

func (b Builder) build(ctx context.Context, dir, pkg string, c Changes, args ...string) (binary string, err error) {
	flag, err := b.Flag(dir, c)
	if err != nil {
		return "", err
	}
	binary = filepath.Join(dir, filepath.Base(pkg)+".binary")
	cmd := exec.CommandContext(ctx, "go", append(args, flag, "-o", binary, pkg)...)
	cmd.Dir = b.Root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", &BuildError{Package: pkg, Output: strings.TrimSpace(out.String()), Err: errors.Join(err, context.Cause(ctx))}
	}
	return binary, nil
}

// BuildError says that a package does not compile with the changes, or that there was no time for it.
type BuildError struct {
	Package string
	Output  string // the go command's
	Err     error
}

func (e *BuildError) Error() string {
	return fmt.Sprintf("%s does not compile with the changes: %v\n%s", e.Package, e.Err, e.Output)
}

func (e *BuildError) Unwrap() error { return e.Err }
