package logtrunc

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPackageIsPure: what the package may import leaves no room for a clock, I/O or a client; it has no goroutine because it needs none to sort.
func TestPackageIsPure(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) < 4 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); !slices.Contains([]string{"slices", "sort"}, path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}
