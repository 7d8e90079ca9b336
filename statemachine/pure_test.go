package statemachine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// impurities lists what a pure package must not hold: goroutines, channels, clocks, I/O, clients. memory.go may have a mutex and a context.
func impurities(fset *token.FileSet, file *ast.File, allowed ...string) []string {
	var found []string
	note := func(n ast.Node, what string) { found = append(found, fset.Position(n.Pos()).String()+": "+what) }
	pure := append([]string{"bytes", "cmp", "encoding/base64", "encoding/binary", "errors", "fmt", "math", "slices", "strconv", "strings", "time", "unicode/utf8"}, allowed...)
	for _, i := range file.Imports {
		if path, _ := strconv.Unquote(i.Path.Value); !slices.Contains(pure, path) {
			note(i, "imports "+path)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
			note(n, "goroutine or channel")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "After", "Sleep", "Since", "Until", "Tick", "NewTimer", "NewTicker", "AfterFunc"}, n.Sel.Name) {
				note(n, "clock")
			}
		}
		return true
	})
	return found
}

func TestPackageIsPure(t *testing.T) {
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files++
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		var allowed []string
		switch name {
		case "memory.go":
			allowed = []string{"context", "sync"}
		case "store.go":
			allowed = []string{"context"}
		}
		for _, found := range impurities(fset, file, allowed...) {
			t.Error(found)
		}
	}
	if files < 10 {
		t.Errorf("looked at %d files", files)
	}
}

func TestImpuritiesSaysNo(t *testing.T) {
	for _, body := range []string{`import "os"`, `import "net"`, `var x chan int`, `func f() { go f() }`, `func f() { time.Now() }`, `func f() { <-time.After(1) }`, `func f() { select {} }`} {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "x.go", "package x\n"+body, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(impurities(fset, file)) == 0 {
			t.Errorf("%s passes", body)
		}
	}
}
