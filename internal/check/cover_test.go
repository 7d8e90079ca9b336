package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCover(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module example.org/m\n\ngo 1.26.0\n",
		"a/a.go":      "package a\n\nfunc F(n int) int {\n\tif n > 0 {\n\t\treturn 1\n\t}\n\treturn 0\n}\n",
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc Test(t *testing.T) {\n\tif F(1) != 1 {\n\t\tt.Error()\n\t}\n}\n",
		"b/b.go":      "package b\n\nfunc F() int { return 1 }\n",
		"c/c.go":      "package c\n",
		"c/c_test.go": "package c\n\nimport \"testing\"\n\nfunc Test(t *testing.T) { t.Error(\"red\") }\n",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		pkg   string
		least float64
		green bool
		says  string
	}{
		{"a", 60, true, "66.7 %\n"},
		{"a", 70, false, "66.7 %  below 70 %"},
		{"b", 10, false, "b                              0.0 %"},
	} {
		var out strings.Builder
		green, err := cover(&out, root, "example.org/m", []string{c.pkg}, c.least)
		if err != nil || green != c.green || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: green %v, %v, want %v and %q\n%s", c.pkg, green, err, c.green, c.says, out.String())
		}
	}
	if _, err := cover(&strings.Builder{}, root, "example.org/m", []string{"a", "c"}, 10); err == nil || !strings.Contains(err.Error(), "red") {
		t.Errorf("a red test: %v", err)
	}
}
