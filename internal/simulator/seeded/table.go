package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/overlay"
)

// table prints what was found, and counts it.
type table struct {
	out     io.Writer
	h       overlay.Hunt
	verbose bool
	bases   []overlay.Found // the code as it is, and the controls

	bugs, found int
	in          []int // found in each range
}

const named = 64 // columns of a name

func (t *table) head() {
	for i, from := range t.h.From {
		fmt.Fprintf(t.out, "range %d: seeds %d to %d\n", i+1, from, from+uint64(t.h.Seeds)-1)
	}
	fmt.Fprintf(t.out, "%-*s %-*s  %s\n", named, "bug", 7*len(t.h.From), "seeds needed", "found by")
}

// harmless prints what became of the code as it is, or of a control: nothing must be found.
func (t *table) harmless(f overlay.Found) bool {
	ok := f.None()
	t.row(f, ok, !ok || t.verbose)
	return ok
}

// bug prints what became of a bug, and says whether it was found in every range.
func (t *table) bug(f overlay.Found) bool {
	ok := true
	for i := range t.h.From {
		if f.Besides(i, t.bases...) {
			t.in[i]++
		} else {
			ok = false
		}
	}
	t.bugs++
	if ok {
		t.found++
	}
	t.row(f, ok, t.verbose)
	return ok
}

// foot says in which ranges nothing counts, and why, and the sums.
func (t *table) foot() {
	for i, n := range t.in {
		fmt.Fprintf(t.out, "range %d: found: %d of %d", i+1, n, t.bugs)
		for _, b := range t.bases {
			if b.Err != nil {
				fmt.Fprintf(t.out, "; nothing counts here, because %s was not played", name(b))
			} else if a := b.Answers[i]; a.Rule != "" {
				fmt.Fprintf(t.out, "; nothing counts here, because of %s: seeds that go wrong: %d, the first: %s", name(b), max(len(a.Lines), 1), a.Line)
			}
		}
		fmt.Fprintln(t.out)
	}
	fmt.Fprintf(t.out, "bugs: %d, found: %d, ranges: %d, seeds in each: %d\n", t.bugs, t.found, len(t.h.From), t.h.Seeds)
}

func name(f overlay.Found) string {
	if f.Patch == nil {
		return "(the code as it is)"
	}
	return strings.TrimSuffix(f.Patch.Name, ".patch")
}

func (t *table) row(f overlay.Found, ok, shown bool) {
	var needed, rules, lines []string
	for _, a := range f.Answers {
		says := "-"
		switch {
		case a.Seeds > 0:
			says = fmt.Sprint(a.Seeds)
		case a.Rule != "":
			says = "?"
		}
		needed = append(needed, fmt.Sprintf("%6s", says))
		rule := a.Rule
		if a.Source != "" {
			rule += " (" + a.Source + ")"
		}
		if rule != "" && !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
		lines = append(lines, a.Lines...)
	}
	verdict := strings.Join(rules, "; ")
	if f.Err != nil {
		verdict = f.Err.Error()
	}
	switch {
	case f.None() && ok:
		verdict = "nothing, as it should be"
	case !ok:
		verdict = strings.TrimSpace("NOT AS IT SHOULD BE " + verdict)
	}
	fmt.Fprintf(t.out, "%-*s %-*s  %s\n", named, name(f), 7*len(t.h.From), strings.Join(needed, " "), verdict)
	for _, l := range lines {
		if shown {
			fmt.Fprintln(t.out, "    "+l)
		}
	}
}
