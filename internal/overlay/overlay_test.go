package overlay

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const patch = `bug: adds instead of subtracting
why: spec §1
--- a/p/p.go
+++ b/p/p.go
@@ -3,3 +3,3 @@
 func Sub(a, b int) int {
-	return a - b
+	return a + b
 }
`

const code = `package p

func Sub(a, b int) int {
	return a - b
}
`

func read(t *testing.T, text string) *Patch {
	t.Helper()
	p, err := Parse("x.patch", text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestHeaderAndFile(t *testing.T) {
	p := read(t, patch)
	if p.File != "p/p.go" || p.Header["bug"] != "adds instead of subtracting" || p.Header["why"] != "spec §1" || len(p.Header) != 2 {
		t.Errorf("%+v", p)
	}
}

func TestTextsThatAreNoPatch(t *testing.T) {
	for name, text := range map[string]string{
		"no diff":       patch[:strings.Index(patch, "--- a/")],
		"no hunk":       patch[:strings.Index(patch, "@@")],
		"two files":     patch + strings.ReplaceAll(patch[strings.Index(patch, "--- a/"):], "p/p.go", "p/q.go"),
		"outside":       strings.ReplaceAll(patch, "b/p/p.go", "b/../p.go"),
		"a broken line": patch + "and so on\n",
	} {
		if p, err := Parse(name, text); err == nil {
			t.Errorf("%s: accepted as %+v", name, p)
		}
	}
}

func TestApply(t *testing.T) {
	got, err := read(t, patch).Apply(code)
	if want := strings.ReplaceAll(code, "a - b", "a + b"); err != nil || got != want {
		t.Errorf("%v:\n%s", err, got)
	}
	moved := "// Text that came later.\n\n" + code
	if got, err := read(t, patch).Apply(moved); err != nil || !strings.Contains(got, "a + b") {
		t.Errorf("code that moved: %v:\n%s", err, got)
	}
	if _, err := read(t, patch).Apply(strings.ReplaceAll(code, "a - b", "b - a")); err == nil || !strings.Contains(err.Error(), "no longer applies") {
		t.Errorf("other code: %v", err)
	}
	if _, err := read(t, strings.ReplaceAll(patch, "a + b", "a - b")).Apply(code); err == nil || !strings.Contains(err.Error(), "changes nothing") {
		t.Errorf("no change: %v", err)
	}
}

func TestApplyTakesTheNearestOfEqualPlaces(t *testing.T) {
	got, err := read(t, strings.ReplaceAll(patch, "@@ -3,3 +3,3 @@", "@@ -9,3 +9,3 @@")).Apply(code + "\n" + code[len("package p\n\n"):])
	if err != nil || strings.Index(got, "a + b") < strings.Index(got, "a - b") {
		t.Errorf("%v:\n%s", err, got)
	}
}

// module writes a module with a package, its test and a command.
func module(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":             "module example.org/m\n\ngo 1.26.0\n",
		"p/p.go":             code,
		"p/p_test.go":        "package p\n\nimport \"testing\"\n\nfunc TestSub(t *testing.T) {\n\tif Sub(3, 1) != 2 {\n\t\tt.Error(\"wrong\")\n\t}\n}\n",
		"main.go":            "package main\n\nimport \"example.org/m/p\"\n\nfunc main() { print(p.Sub(3, 1)) }\n",
		"bugs/b.patch":       patch,
		"bugs/a.patch":       strings.ReplaceAll(patch, "a + b", "b - a"),
		"bugs/notes.txt":     "not a patch",
		"broken/other.patch": "nothing",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestReadIsSortedAndNamesTheFileThatIsWrong(t *testing.T) {
	root := module(t)
	all, err := Read(filepath.Join(root, "bugs"))
	if err != nil || len(all) != 2 || all[0].Name != "a.patch" || all[1].Name != "b.patch" {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := Read(filepath.Join(root, "broken")); err == nil || !strings.Contains(err.Error(), "other.patch") {
		t.Errorf("got %v", err)
	}
	if all, err := Read(filepath.Join(root, "absent")); err != nil || all != nil {
		t.Errorf("%v, %v", all, err)
	}
}

func TestBuildWithChanges(t *testing.T) {
	root := module(t)
	b := Builder{Root: root}
	for _, c := range []struct {
		name    string
		patches []string
		prints  string
		green   bool
	}{
		{"as it is", nil, "2", true},
		{"one patch", []string{patch}, "4", false},
		{"a second on top of it", []string{patch, strings.NewReplacer("a - b", "a + b", "a + b", "a - b + 0").Replace(patch)}, "2", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var patches []*Patch
			for _, text := range c.patches {
				patches = append(patches, read(t, text))
			}
			changes, err := Patched(root, patches...)
			if err != nil {
				t.Fatal(err)
			}
			main, err := b.Main(t.Context(), t.TempDir(), ".", changes)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(main).CombinedOutput(); err != nil || string(out) != c.prints {
				t.Errorf("%v, %q, want %q", err, out, c.prints)
			}
			test, err := b.Test(t.Context(), t.TempDir(), "./p", changes)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(test).CombinedOutput(); (err == nil) != c.green {
				t.Errorf("%v, want green %v\n%s", err, c.green, out)
			}
		})
	}
	if text, err := os.ReadFile(filepath.Join(root, "p/p.go")); err != nil || string(text) != code {
		t.Errorf("the module's file was touched: %v\n%s", err, text)
	}
}

func TestChangesThatDoNotBuild(t *testing.T) {
	root := module(t)
	if _, err := Patched(root, read(t, strings.ReplaceAll(patch, "return a - b", "return b - a"))); err == nil || !strings.Contains(err.Error(), "x.patch") {
		t.Errorf("a patch that does not apply: %v", err)
	}
	if _, err := Patched(root, read(t, strings.ReplaceAll(patch, "p/p.go", "p/q.go"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	var build *BuildError
	if _, err := (Builder{root}).Main(t.Context(), t.TempDir(), ".", Changes{"p/p.go": "package p\n\nfunc Sub(a, b int) int { return c }\n"}); !errors.As(err, &build) || !strings.Contains(build.Output, "undefined: c") {
		t.Errorf("a change that does not compile: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Builder{root}).Main(ctx, t.TempDir(), ".", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("no time: %v", err)
	}
}
