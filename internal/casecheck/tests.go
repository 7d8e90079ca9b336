package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/layout"
)

// caseTest is one test that carries a case's id.
type caseTest struct {
	id, pkg, name string
	level         string // pure, memlog, kfake or Kafka: the most real thing it runs on
}

var caseName = regexp.MustCompile(`^TestF(\d\d)(?:[^\d].*)?$`)

// findTests parses every _test.go file of the module.
func findTests(root string) ([]caseTest, error) {
	var found []caseTest
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || path != root && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		found = append(found, testsOf(filepath.ToSlash(rel), f)...)
		return nil
	})
	slices.SortFunc(found, func(a, b caseTest) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name))
	})
	return found, err
}

func testsOf(pkg string, f *ast.File) []caseTest {
	imports := map[string]bool{}
	for _, i := range f.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		imports[path[strings.LastIndexByte(path, '/')+1:]] = true
	}
	var found []caseTest
	for _, d := range f.Decls {
		fd, ok := d.(*ast.FuncDecl)
		if !ok || fd.Recv != nil {
			continue
		}
		m := caseName.FindStringSubmatch(fd.Name.Name)
		if m == nil {
			continue
		}
		found = append(found, caseTest{id: "F" + m[1], pkg: pkg, name: fd.Name.Name, level: level(pkg, imports)})
	}
	return found
}

func level(pkg string, imports map[string]bool) string {
	switch {
	case imports["kafkatest"] || pkg == "internal/kafkatest":
		return "Kafka"
	case imports["kfake"] || strings.HasPrefix(pkg, "mirror/kafkasource"):
		return "kfake"
	case imports["memlog"] || pkg == "mirror/memlog" || strings.HasPrefix(pkg, "mirror/mirrortest") || strings.HasPrefix(pkg, "examples/"):
		return "memlog"
	case slices.Contains(layout.Pure, pkg):
		return "pure"
	default:
		return "plain" // its own package only
	}
}
