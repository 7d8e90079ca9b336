package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/overlay"
)

const bug = `bug: no limit
why: spec §1
--- a/p/p.go
+++ b/p/p.go
@@ -2,3 +2,3 @@
 
-func Limit(n int) int { return min(n, 40) }
+func Limit(n int) int { return n }
`

// The command breaks its rule at a seed whose two last digits are above 40 if there is no limit; without a bug there is one.
const command = `package main

import (
	"flag"
	"fmt"
	"os"

	"example.org/m/p"
)

func main() {
	from := flag.Int("from", 1, "")
	seeds := flag.Int("seeds", 1, "")
	flag.Bool("stop", false, "")
	flag.Parse()
	for seed := *from; seed < *from+*seeds; seed++ {
		if n := p.Limit(seed % 100); n < 0 {
			panic("below nothing")
		} else if n > 40 {
			fmt.Printf("seed %d step 3: the limit (spec §1, decision 2): it is %d\n", seed, n)
			os.Exit(1)
		}
	}
	fmt.Println("simulated hours: 1, faults: 2, violations: 0")
}
`

func TestSeeded(t *testing.T) {
	for _, c := range []struct {
		name, patch string
		seeds       int
		ok          bool
		says        []string
	}{
		{"a bug that is found", bug, 50, true, []string{"limit                    41     41         the limit (spec §1, decision 2)", "(the code as it is)", "bugs: 1, found: 1, ranges: 2, seeds in each: 50"}},
		{"a bug that needs more seeds", bug, 40, false, []string{"NOT AS IT SHOULD BE", "found: 0"}},
		{"a bug that is none", strings.Replace(bug, "+func Limit(n int) int { return n }", "+func Limit(n int) int { return min(40, n) }", 1), 50, false, []string{"NOT AS IT SHOULD BE"}},
		{"a crash", strings.Replace(bug, "return n }", "return -n }", 1), 50, true, []string{"panic"}},
		{"a patch that no longer applies", strings.Replace(bug, "min(n, 40)", "min(n, 41)", 1), 50, false, []string{"no longer applies to p/p.go"}},
		{"a patch that does not compile", strings.Replace(bug, "return n }", "return x }", 1), 50, false, []string{"undefined: x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range map[string]string{
				"go.mod":                "module example.org/m\n\ngo 1.26.0\n",
				"p/p.go":                "package p\n\nfunc Limit(n int) int { return min(n, 40) }\n",
				"simulate/main.go":      command,
				"testdata/limit.patch":  c.patch,
				"testdata/others.patch": bug,
			} {
				path := filepath.Join(root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			h := overlay.Hunt{Builder: overlay.Builder{Root: root}, Command: "./simulate", From: []uint64{1, 1001}, Seeds: c.seeds}
			var out strings.Builder
			ok, err := run(t.Context(), &out, h, nil, filepath.Join(root, "testdata"), "limit", false)
			if err != nil || ok != c.ok {
				t.Errorf("ok %v, %v; want %v\n%s", ok, err, c.ok, out.String())
			}
			for _, says := range c.says {
				if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(says), " ")) {
					t.Errorf("want %q in\n%s", says, out.String())
				}
			}
		})
	}
}

func TestCodeThatIsRedAsItIsIsReported(t *testing.T) {
	var out strings.Builder
	base := overlay.Found{Answers: []overlay.Answer{{}, {Seeds: 7, Rule: "the limit", Source: "spec §1", Line: "seed 1007"}}}
	if harmless(&out, base, 2, false) || !strings.Contains(out.String(), "NOT AS IT SHOULD BE the limit (spec §1)") {
		t.Errorf("got %s", out.String())
	}
}

// Nothing counts as found while the code as it is, or a control, has a violation in one of the ranges, at whatever seed.
func TestWhatIsNotTheBugsDoesNotCount(t *testing.T) {
	found := overlay.Answer{Seeds: 4, Rule: "the limit", Source: "spec §1", Line: "seed 1004"}
	other := overlay.Answer{Seeds: 7, Rule: "the end", Source: "spec §2", Line: "seed 1007"}
	for _, c := range []struct {
		base, patched [2]overlay.Answer
		ok            bool
	}{
		{[2]overlay.Answer{}, [2]overlay.Answer{found, found}, true},
		{[2]overlay.Answer{}, [2]overlay.Answer{found, {}}, false},
		{[2]overlay.Answer{{}, other}, [2]overlay.Answer{found, found}, false},
		{[2]overlay.Answer{other, {}}, [2]overlay.Answer{found, found}, false},
	} {
		var out strings.Builder
		f := overlay.Found{Patch: &overlay.Patch{Name: "x.patch"}, Answers: c.patched[:]}
		if got := row(&out, f, overlay.Found{Answers: c.base[:]}, 2, false); got != c.ok || strings.Contains(out.String(), "NOT AS IT SHOULD BE") == c.ok {
			t.Errorf("%+v: %v\n%s", c, got, out.String())
		}
	}
	if (overlay.Found{Answers: []overlay.Answer{found}}).Besides(overlay.Found{}) {
		t.Error("it counts although the code as it is was not played")
	}
}

// The real control, which only lets retries wait by other random numbers, is found in no range; when it is, the bugs do not count.
func TestAControlIsFoundInNoRange(t *testing.T) {
	controls, err := overlay.Read("../testdata/controls")
	if err != nil || len(controls) == 0 {
		t.Fatal(controls, err)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	h := overlay.Hunt{Builder: overlay.Builder{Root: root}, Command: "./internal/simulator/simulate", From: []uint64{1, 100_001, 200_001}, Seeds: 200}
	for _, f := range h.Run(t.Context(), append([]*overlay.Patch{nil}, controls...), nil) {
		var out strings.Builder
		if !harmless(&out, f, len(h.From), true) {
			t.Error(out.String())
		}
	}
}

func TestAControlThatIsFoundSpoilsTheTable(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26.0\n", "p/p.go": "package p\n\nfunc Limit(n int) int { return min(n, 40) }\n", "simulate/main.go": command, "testdata/limit.patch": bug, "controls/limit.patch": bug,
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	controls, err := overlay.Read(filepath.Join(root, "controls"))
	if err != nil {
		t.Fatal(err)
	}
	h := overlay.Hunt{Builder: overlay.Builder{Root: root}, Command: "./simulate", From: []uint64{1}, Seeds: 50}
	var out strings.Builder
	if ok, err := run(t.Context(), &out, h, controls, filepath.Join(root, "testdata"), "", false); ok || err != nil || !strings.Contains(out.String(), "found: 0") {
		t.Errorf("ok %v, %v\n%s", ok, err, out.String())
	}
}

// A hunt that is ended early has found nothing, and says so.
func TestAnEndedHuntIsNoResult(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.patch"), []byte(bug), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	ok, err := run(ctx, &out, overlay.Hunt{Builder: overlay.Builder{Root: dir}, From: []uint64{1}, Seeds: 1}, nil, dir, "", false)
	if !errors.Is(err, context.Canceled) || ok || strings.Contains(out.String(), "found: 1") {
		t.Errorf("ok %v, %v\n%s", ok, err, out.String())
	}
	if f := (overlay.Found{}); f.All() || f.None() {
		t.Error("what was never played is judged")
	}
}

func TestPatchesWithoutAReasonAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.patch"), []byte(strings.Replace(bug, "why: spec §1\n", "", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t.Context(), &strings.Builder{}, overlay.Hunt{}, nil, dir, "", false); err == nil || !strings.Contains(err.Error(), "why:") {
		t.Errorf("got %v", err)
	}
	if _, err := run(t.Context(), &strings.Builder{}, overlay.Hunt{}, nil, dir, "other", false); err == nil {
		t.Error("no patch at all is accepted")
	}
}
