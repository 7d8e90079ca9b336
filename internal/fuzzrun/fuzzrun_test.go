package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// module writes a module with two targets: one holds, the other fails for what begins with "b".
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.26\n",
		"m.go":      "package m\n",
		"none/n.go": "package none\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\ntype s struct{}\n\nfunc (s) FuzzMethod(f *testing.F) {}\n\nfunc FuzzHolds(f *testing.F) {\n\tf.Add(\"a\")\n\tf.Fuzz(func(t *testing.T, s string) {})\n}\n\n" +
			"func FuzzFails(f *testing.F) {\n\tf.Add(\"a\")\n\tf.Fuzz(func(t *testing.T, s string) {\n\t\tif len(s) > 0 && s[0] != 'a' {\n\t\t\tt.Error(\"not an a\")\n\t\t}\n\t})\n}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTargetsAreFoundRunAndTold(t *testing.T) {
	dir := module(t)
	var list strings.Builder
	if err := show(t.Context(), &list, options{dir: dir}); err != nil || list.String() != "example.com/m FuzzFails\nexample.com/m FuzzHolds\n" {
		t.Fatalf("%v, %q", err, list.String())
	}
	var out strings.Builder
	if err := fuzz(t.Context(), &out, options{dir: dir, total: 6 * time.Second, parallel: 1}); err != errFailed {
		t.Errorf("%v\n%s", err, out.String())
	}
	said := regexp.MustCompile(`FuzzFails +[0-9]+ +[0-9]+ +FAILED\n.*FuzzHolds +[1-9][0-9]* +[0-9]+ +ok\nfuzz targets: 2 of 2, executions: [1-9][0-9]*, new inputs: [0-9]+, failures: 1\n$`)
	if !said.MatchString(out.String()) || !strings.Contains(out.String(), "not an a") {
		t.Errorf("it says\n%s", out.String())
	}
	if kept, err := filepath.Glob(filepath.Join(dir, "testdata", "fuzz", "FuzzFails", "*")); err != nil || len(kept) != 1 {
		t.Errorf("%v: %q was kept", err, kept)
	}
	if r, err := run(t.Context(), &out, dir, target{"example.com/m", "FuzzNotThere"}, time.Second, 1); err != nil || !r.failed {
		t.Errorf("a target that is not there: %+v, %v", r, err)
	}
	if err := fuzz(t.Context(), &out, options{dir: dir, match: regexp.MustCompile("nothing"), total: time.Second}); err == nil {
		t.Error("no target, and that is fine")
	}
	if err := fuzz(t.Context(), &out, options{dir: dir, total: time.Second, targets: 2}); err == nil || !strings.Contains(err.Error(), "-for") {
		t.Errorf("half a second for each: %v", err)
	}
}

func TestEveryTargetHasItsTurn(t *testing.T) {
	var all []target
	for i := range 11 {
		all = append(all, target{"p", fmt.Sprint(i)})
	}
	if got := choose(all, 0, 5); !slices.Equal(got, all) {
		t.Errorf("%v", got)
	}
	if got := choose(all, 20, 5); !slices.Equal(got, all) {
		t.Errorf("%v", got)
	}
	seen := map[target]int{}
	for day := 20000; day < 20011; day++ {
		for _, c := range choose(all, 3, day) {
			seen[c]++
		}
	}
	for _, c := range all {
		if seen[c] != 3 {
			t.Errorf("%v has had %d turns in 11 days", c, seen[c])
		}
	}
}

func TestProgressIsRead(t *testing.T) {
	said := "fuzz: elapsed: 0s, gathering baseline coverage: 0/9 completed\nfuzz: elapsed: 3s, execs: 325017 (108336/sec), new interesting: 11 (total: 202)\n" +
		"fuzz: elapsed: 6s, execs: 680218 (118402/sec), new interesting: 14 (total: 205)\nPASS\n"
	if got := read([]byte(said)); got != (result{executions: 680218, inputs: 14}) {
		t.Errorf("%+v", got)
	}
}
