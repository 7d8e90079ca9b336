package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/overlay"
)

const patch = `case: F05
run: go test ./p -run TestF05
why: adds instead of subtracting
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

const test = `package p

import "testing"

func TestF05Sub(t *testing.T) {
	if Sub(3, 1) != 2 {
		t.Error("wrong")
	}
}

func TestF06Other(t *testing.T) {
	if Sub(3, 1) != 2 {
		t.Error("wrong")
	}
}

func TestF051NoCase(t *testing.T) {}
`

// module writes a module with one package, one test of F05, and the given mutants.
func module(t *testing.T, mutants map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{"go.mod": "module example.org/m\n\ngo 1.26.0\n", "p/p.go": code, "p/p_test.go": test}
	for name, text := range mutants {
		files["testdata/mutants/"+name] = text
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCasecheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		ids    []string
		mutant string
		ok     bool
		says   string
	}{
		{"a red mutant", []string{"F05"}, patch, true, "killed"},
		{"a case without a test", []string{"F05", "F07"}, patch, false, "missing: F07 has no test"},
		{"a case without a mutant", []string{"F05", "F06"}, patch, false, "missing: F06 has no mutant"},
		{"a mutant that changes nothing that is tested", []string{"F05"}, strings.ReplaceAll(patch, "+\treturn a + b", "+\treturn a - b - 0"), false, "stays green"},
		{"a mutant that no longer applies", []string{"F05"}, strings.ReplaceAll(patch, "return a - b", "return b - a"), false, "no longer applies"},
		{"a mutant that does not compile", []string{"F05"}, strings.ReplaceAll(patch, "+\treturn a + b", "+\treturn a + c"), false, "undefined: c"},
		{"a mutant whose test does not exist", []string{"F05"}, strings.ReplaceAll(patch, "-run TestF05", "-run TestF09"), false, "does not exist"},
		{"a mutant that another case's test sees", []string{"F05"}, strings.ReplaceAll(patch, "-run TestF05", "-run TestF06"), false, "no test of F05 turned red"},
		{"a mutant that panics", []string{"F05"}, strings.ReplaceAll(patch, "+\treturn a + b", "+\tpanic(b)"), true, "killed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			ok, err := run(&out, module(t, map[string]string{"f05.patch": c.mutant}), c.ids, true, "")
			if err != nil || ok != c.ok || !strings.Contains(out.String(), c.says) {
				t.Errorf("ok %v, %v; want %v and %q in\n%s", ok, err, c.ok, c.says, out.String())
			}
		})
	}
}

func TestMutantsThatAreNone(t *testing.T) {
	for name, text := range map[string]string{
		"no case":    strings.ReplaceAll(patch, "case: F05\n", ""),
		"bad case":   strings.ReplaceAll(patch, "case: F05", "case: F5"),
		"no command": strings.ReplaceAll(patch, "run: go test ./p -run TestF05\n", ""),
		"no reason":  strings.ReplaceAll(patch, "why: adds instead of subtracting\n", ""),
		"no diff":    patch[:strings.Index(patch, "--- a/")],
		"a test":     strings.ReplaceAll(patch, "p/p.go", "p/p_test.go"),
		"rm":         strings.ReplaceAll(patch, "run: go test", "run: rm -r"),
	} {
		if m, err := parse(name, text); err == nil {
			t.Errorf("%s: accepted as %+v", name, m)
		}
	}
}

// parse reads one mutant.
func parse(name, text string) (*mutant, error) {
	p, err := overlay.Parse(name, text)
	if err != nil {
		return nil, err
	}
	return newMutant(p)
}

// The mutants of this tree apply to it, also where nobody has the time to run them.
func TestPatchesApply(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	patches, err := overlay.Read(filepath.Join(root, "testdata", "mutants"))
	if err != nil || len(patches) == 0 {
		t.Fatal(len(patches), err)
	}
	for _, p := range patches {
		if _, err := overlay.Patched(root, p); err != nil {
			t.Error(err)
		}
	}
}

// A test that hung is red, but for one that starts Kafka: it may have waited for the others on its machine.
func TestHungTests(t *testing.T) {
	const hung = "panic: test timed out after 2m0s\n\trunning tests:\n\t\tTestF05Sub (2m0s)\n"
	const failed = "--- FAIL: TestF05Sub (0.10s)\n"
	for _, c := range []struct {
		tests []caseTest
		out   string
		red   bool
	}{
		{[]caseTest{{id: "F05", pkg: "p", level: "pure"}}, hung, true},
		{[]caseTest{{id: "F05", pkg: "p", level: "pure"}, {id: "F05", pkg: "p", level: "Kafka"}}, hung, false},
		{[]caseTest{{id: "F05", pkg: "p", level: "Kafka"}}, failed, true},
		{[]caseTest{{id: "F05", pkg: "q", level: "Kafka"}, {id: "F06", pkg: "p", level: "Kafka"}}, hung, true},
	} {
		m, err := parse("x", patch)
		if err != nil {
			t.Fatal(err)
		}
		startKafka([]*mutant{m}, c.tests)
		if red, err := m.judge(errors.New("exit status 1"), c.out); (err == nil) != c.red || (red != "") != c.red {
			t.Errorf("%+v: %q, %v; want red %v for\n%s", c.tests, red, err, c.red, c.out)
		}
	}
}

func TestLevels(t *testing.T) {
	for pkg, want := range map[string]string{"internal/batch": "pure", "mirror/kafkasource": "kfake", "mirror/memlog": "memlog", "internal/kafkatest": "Kafka", "mirror": "plain"} {
		if got := level(pkg, nil); got != want {
			t.Errorf("%s: %s, want %s", pkg, got, want)
		}
	}
	if got := level("mirror", map[string]bool{"memlog": true, "kafkatest": true}); got != "Kafka" {
		t.Errorf("got %s, want Kafka", got)
	}
}
