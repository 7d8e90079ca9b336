package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	stop := flag.Bool("stop", false, "")
	flag.Parse()
	code := 0
	for seed := *from; seed < *from+*seeds && (code == 0 || !*stop); seed++ {
		if n := p.Limit(seed % 100); n < -40 {
			panic("far below nothing")
		} else if n < 0 {
			fmt.Printf("seed %d step 3: the simulator is wrong: a limit (spec §1): below nothing\n", seed)
			code = 1
		} else if n > 40 {
			fmt.Printf("seed %d step 3: the limit (spec §1, decision 2): it is %d\n", seed, n)
			code = 1
		}
	}
	fmt.Println("simulated hours: 1, faults: 2, violations: 0")
	os.Exit(code)
}
`

const limit = "package p\n\nfunc Limit(n int) int { return min(n, 40) }\n"

// module writes a module with the command, the code p, and patches by path, and returns a hunt in two ranges of 50 seeds, from 1 and 1001.
func module(t *testing.T, p string, patches map[string]string) overlay.Hunt {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{"go.mod": "module example.org/m\n\ngo 1.26.0\n", "p/p.go": p, "simulate/main.go": command}
	maps.Copy(files, patches)
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return overlay.Hunt{Builder: overlay.Builder{Root: root}, Command: "./simulate", From: []uint64{1, 1001}, Seeds: 50}
}

// says runs the hunt over the bugs whose name has "limit" in it, and looks for words in what it prints. Spaces do not count.
func says(t *testing.T, h overlay.Hunt, ok bool, words ...string) {
	t.Helper()
	var out strings.Builder
	got, err := run(t.Context(), &out, h, h.Root, "limit", false)
	if err != nil || got != ok {
		t.Errorf("ok %v, %v; want %v\n%s", got, err, ok, out.String())
	}
	for _, w := range words {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(w), " ")) {
			t.Errorf("want %q in\n%s", w, out.String())
		}
	}
}

func TestSeeded(t *testing.T) {
	for _, c := range []struct {
		name, patch string
		seeds       int
		ok          bool
		says        []string
	}{
		{"a bug that is found", bug, 50, true, []string{"limit                    41     41         the limit (spec §1, decision 2)", "(the code as it is) - - nothing, as it should be", "bugs: 1, found: 1, ranges: 2, seeds in each: 50"}},
		{"a bug that needs more seeds", bug, 40, false, []string{"limit - - NOT AS IT SHOULD BE", "range 1: found: 0 of 1", "found: 0"}},
		{"a bug that is none", strings.Replace(bug, "+func Limit(n int) int { return n }", "+func Limit(n int) int { return min(40, n) }", 1), 50, false, []string{"NOT AS IT SHOULD BE"}},
		{"a crash", strings.Replace(bug, "return n }", "return -100 * n }", 1), 50, false, []string{"limit ? ? NOT AS IT SHOULD BE panic", "found: 0"}},
		{"a simulator that is wrong", strings.Replace(bug, "return n }", "return 30 - n }", 1), 50, false, []string{"limit ? ? NOT AS IT SHOULD BE the simulator is wrong", "found: 0"}},
		{"a patch that no longer applies", strings.Replace(bug, "min(n, 40)", "min(n, 41)", 1), 50, false, []string{"no longer applies to p/p.go", "found: 0"}},
		{"a patch that does not compile", strings.Replace(bug, "return n }", "return x }", 1), 50, false, []string{"undefined: x", "found: 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := module(t, limit, map[string]string{"bugs/limit.patch": c.patch, "bugs/others.patch": bug})
			h.Seeds = c.seeds
			says(t, h, c.ok, c.says...)
		})
	}
}

// Where the code as it is has a violation nothing counts, and all of its seeds are shown.
func TestCodeThatIsRedAsItIsIsReported(t *testing.T) {
	red := strings.NewReplacer("func Limit", "func Other", "package p", "package p\n\nfunc Limit(n int) int { return n }").Replace(limit)
	patch := strings.ReplaceAll(bug, "Limit", "Other")
	says(t, module(t, red, map[string]string{"bugs/limit.patch": patch}), false, "(the code as it is) 41 41 NOT AS IT SHOULD BE the limit (spec §1, decision 2) seed 41 step 3", "seed 1049 step 3",
		"range 2: found: 0 of 1; nothing counts here, because of (the code as it is): seeds that go wrong: 10, the first: seed 1041 step 3", "bugs: 1, found: 0")
}

// Nothing counts as found in a range while the code as it is, or a control, has a violation in it, at whatever seed.
func TestWhatIsNotTheBugsDoesNotCount(t *testing.T) {
	found := overlay.Answer{Seeds: 4, Rule: "the limit", Source: "spec §1", Line: "seed 1004"}
	other := overlay.Answer{Seeds: 7, Rule: "the end", Source: "spec §2", Line: "seed 1007"}
	wrong := overlay.Answer{Rule: "the simulator is wrong", Line: "seed 1003"}
	answers := func(a ...overlay.Answer) overlay.Found {
		return overlay.Found{Patch: &overlay.Patch{Name: "x.patch"}, Answers: a}
	}
	green := answers(overlay.Answer{}, overlay.Answer{})
	for _, c := range []struct {
		bases   []overlay.Found
		patched overlay.Found
		in      []int // found in each range
	}{
		{[]overlay.Found{green, green}, answers(found, found), []int{1, 1}},
		{[]overlay.Found{green, green}, answers(found, overlay.Answer{}), []int{1, 0}},
		{[]overlay.Found{green, green}, answers(wrong, found), []int{0, 1}},
		{[]overlay.Found{answers(overlay.Answer{}, other), green}, answers(found, found), []int{1, 0}},
		{[]overlay.Found{green, answers(other, overlay.Answer{})}, answers(found, found), []int{0, 1}},
		{[]overlay.Found{answers(wrong, overlay.Answer{}), green}, answers(found, found), []int{0, 1}},
		{[]overlay.Found{{Err: errors.New("does not compile")}, green}, answers(found, found), []int{0, 0}},
		{nil, answers(found, found), []int{0, 0}},
	} {
		var out strings.Builder
		tab := table{out: &out, h: overlay.Hunt{From: []uint64{1, 1001}, Seeds: 10}, bases: c.bases, in: make([]int, 2)}
		ok := tab.bug(c.patched)
		tab.foot()
		if want := c.in[0]+c.in[1] == 2; ok != want || !slices.Equal(tab.in, c.in) || strings.Contains(out.String(), "NOT AS IT SHOULD BE") == want {
			t.Errorf("%+v: %v, %v\n%s", c, ok, tab.in, out.String())
		}
		if strings.Contains(out.String(), "nothing counts here") != slices.ContainsFunc(c.bases, func(f overlay.Found) bool { return !f.None() }) {
			t.Errorf("what counts is not said:\n%s", out.String())
		}
	}
}

// The real patches fit the code, and the real control, which only lets retries wait by other random numbers, is found in no range.
func TestPatchesApply(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"bugs", "controls"} {
		patches, err := overlay.Read(filepath.Join("../testdata", folder))
		if err != nil || len(patches) == 0 {
			t.Fatal(patches, err)
		}
		for _, p := range patches {
			if _, err := overlay.Patched(root, p); err != nil {
				t.Errorf("%s: %v", folder, err)
			}
		}
	}
}

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
	for _, f := range h.Run(t.Context(), true, append([]*overlay.Patch{nil}, controls...), nil) {
		if !f.None() {
			t.Errorf("%+v", f)
		}
	}
}

func TestAControlThatIsFoundSpoilsTheTable(t *testing.T) {
	says(t, module(t, limit, map[string]string{"bugs/limit.patch": bug, "controls/limit.patch": bug}), false, "found: 0", "because of limit: seeds that go wrong: 10, the first: seed 41 step 3", "seed 1050 step 3")
}

// A hunt that is ended early has found nothing, and says so.
func TestAnEndedHuntIsNoResult(t *testing.T) {
	h := module(t, limit, map[string]string{"bugs/limit.patch": bug})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	ok, err := run(ctx, &out, h, h.Root, "", false)
	if !errors.Is(err, context.Canceled) || ok || strings.Contains(out.String(), "found: 1") {
		t.Errorf("ok %v, %v\n%s", ok, err, out.String())
	}
	if (overlay.Found{}).None() {
		t.Error("what was never played is judged")
	}
}

func TestPatchesWithoutAReasonAreRefused(t *testing.T) {
	h := module(t, limit, map[string]string{"bugs/limit.patch": strings.Replace(bug, "why: spec §1\n", "", 1)})
	if _, err := run(t.Context(), &strings.Builder{}, h, h.Root, "", false); err == nil || !strings.Contains(err.Error(), "why:") {
		t.Errorf("got %v", err)
	}
	if _, err := run(t.Context(), &strings.Builder{}, h, h.Root, "other", false); err == nil {
		t.Error("no patch at all is accepted")
	}
}
