package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// target is one fuzz function.
type target struct {
	pkg  string // import path
	name string
}

func (t target) String() string { return t.pkg + " " + t.name }

// targets lists the fuzz functions of the module in dir, in order of package and name. go test says which they are; only packages in whose tests one is declared are asked,
// since each has to be linked for that.
func targets(ctx context.Context, dir string) ([]target, error) {
	packages, err := declaring(ctx, dir)
	if err != nil || len(packages) == 0 {
		return nil, err
	}
	out, err := command(ctx, dir, append([]string{"test", "-list", "^Fuzz", "-json"}, packages...)...)
	if err != nil {
		return nil, err
	}
	return listed(out)
}

// listed reads what go test -list -json prints: events, of which the outputs are names, a line each.
func listed(out []byte) ([]target, error) {
	var all []target
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var event struct{ Action, Package, Output string }
		if err := d.Decode(&event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go test -list -json: %w", err)
		}
		if name := strings.TrimSpace(event.Output); event.Action == "output" && strings.HasPrefix(name, "Fuzz") {
			all = append(all, target{event.Package, name})
		}
	}
	slices.SortFunc(all, func(a, b target) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

// declaring lists the packages in whose test files a fuzz function is declared.
func declaring(ctx context.Context, dir string) ([]string, error) {
	out, err := command(ctx, dir, "list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles", "./...")
	if err != nil {
		return nil, err
	}
	var packages []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			if bytes.Contains(text, []byte("\nfunc Fuzz")) {
				packages = append(packages, p.ImportPath)
				break
			}
		}
	}
}

func command(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s%s", args[0], err, stderr.Bytes(), out)
	}
	return out, nil
}

func matching(all []target, match *regexp.Regexp) []target {
	return slices.DeleteFunc(slices.Clone(all), func(t target) bool { return match != nil && !match.MatchString(t.String()) })
}

// choose takes n of all: on the next day the next n, so that all have had their turn after len(all)/n days. The order is what is listed, so each day has targets of
// neighbouring packages, which share what has to be compiled.
func choose(all []target, n, day int) []target {
	if n <= 0 || n >= len(all) {
		return all
	}
	chosen := make([]target, n)
	for i := range chosen {
		chosen[i] = all[(day*n+i)%len(all)]
	}
	return chosen
}
