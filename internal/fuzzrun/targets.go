package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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

// targets lists the fuzz functions of the module in dir, in order of package and name, as go test would with -list; that has to link every package's tests, which takes minutes.
// The files are those that go list names, so the same build constraints hold.
func targets(ctx context.Context, dir string) ([]target, error) {
	out, err := command(ctx, dir, "list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles", "./...")
	if err != nil {
		return nil, err
	}
	var all []target
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
			names, err := declared(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			for _, n := range names {
				all = append(all, target{p.ImportPath, n})
			}
		}
	}
	slices.SortFunc(all, func(a, b target) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

// declared lists the functions in a file of tests that go test takes for fuzz targets; it allows no other ones of such a name.
func declared(path string) (names []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(text, []byte("func Fuzz")) {
		return nil, err
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") {
			names = append(names, f.Name.Name)
		}
	}
	return names, nil
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
