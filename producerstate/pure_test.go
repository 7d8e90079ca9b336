package producerstate

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

// allowedImports need no clock, no I/O and no goroutine.
var allowedImports = []string{
	"cmp", "encoding/binary", "errors", "fmt", "hash/crc32", "iter", "maps", "math", "slices",
	"github.com/clustermirror/clustermirror/internal/batch", "github.com/clustermirror/clustermirror/producerstate",
}

// impurities lists what a pure package must not hold: other imports, goroutines, channels, and package variables that something writes.
func impurities(fset *token.FileSet, files []*ast.File) []string {
	var found []string
	note := func(n ast.Node, what string) { found = append(found, fset.Position(n.Pos()).String()+": "+what) }
	globals := map[string]bool{}
	for _, file := range files {
		for _, i := range file.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); !slices.Contains(allowedImports, path) {
				note(i, "imports "+path)
			}
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
				for _, s := range g.Specs {
					for _, name := range s.(*ast.ValueSpec).Names {
						globals[name.Name] = true
					}
				}
			}
		}
	}
	written := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
				continue
			case *ast.SelectorExpr:
				e = x.X
				continue
			case *ast.StarExpr:
				e = x.X
				continue
			case *ast.Ident:
				if globals[x.Name] {
					note(x, "writes the package variable "+x.Name)
				}
			}
			return
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
				note(n, "goroutine or channel")
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, e := range n.Lhs {
						written(e)
					}
				}
			case *ast.IncDecStmt:
				written(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					written(n.X)
				}
			}
			return true
		})
	}
	return found
}

func TestPackagesArePure(t *testing.T) {
	for _, folder := range []string{".", "../internal/batch", "../txnabort"} {
		names, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(fset, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		if len(files) == 0 {
			t.Fatalf("no files in %s", folder)
		}
		for _, found := range impurities(fset, files) {
			t.Error(found)
		}
	}
}

func TestImpuritiesSaysNo(t *testing.T) {
	for _, body := range []string{
		`import "os"`, `import "time"`, `var c chan int`, `func f() { go f() }`, `func f() { select {} }`,
		`var n int; func f() { n = 1 }`, `var n int; func f() { n++ }`, `var m map[int]int; func f() { m[1] = 2 }`, `var n int; func f() *int { return &n }`,
	} {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "x.go", "package x\n"+body, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(impurities(fset, []*ast.File{file})) == 0 {
			t.Errorf("%s passes", body)
		}
	}
}
