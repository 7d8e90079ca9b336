package chaos_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	long = flag.Duration("chaos.for", time.Minute, "how long there are faults")
	seed = flag.Uint64("chaos.seed", 0, "the order of faults (default: from the clock)")
	keep = flag.Bool("chaos.keep", false, "keep the run's folder")
	only = flag.String("chaos.only", "", "only faults whose kind contains this")
)

// bound is the longest that the test waits for any one thing. Nothing here is expected to take a tenth of it: it ends a run in which something is stuck, and must not end one whose
// machine is busy with other work. An order to the mirror's process ends earlier (testdata/mirrorprocess), so that the process says itself what it waited for.
const bound = 5 * time.Minute

// askBound is how long one question to the brokers may take before it is asked anew.
const askBound = 20 * time.Second

// A run with fewer faults or kinds of faults shows too little.
const (
	leastFaults = 12
	leastKinds  = 8
)

// slowFault is how long a slow fault may take.
const slowFault = 30 * time.Second

// TestChaos is told in the package's text.
func TestChaos(t *testing.T) {
	began := time.Now()
	number := cmp.Or(*seed, uint64(began.UnixNano()%1_000_000_000))
	t.Logf("seed: %d (go test ./internal/chaos -run '^TestChaos$' -chaos.for %v -chaos.seed %d)", number, *long, number)
	w := newWorld(t, number)
	w.inStep()
	t.Logf("%6.1f s  all is mirrored; %.1f s since the start", time.Since(w.load.began).Seconds(), time.Since(began).Seconds())

	chosen := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !strings.Contains(f.kind, *only) })
	kinds := map[string]int{}
	var queue []fault
	n := 0 // faults that were done
	for began := time.Now(); time.Since(began) < *long || *only == "" && (n < leastFaults || len(kinds) < leastKinds); n++ {
		if len(queue) == 0 {
			queue = slices.DeleteFunc(slices.Clone(chosen), func(f fault) bool { return f.over != nil && f.over(w) })
			if len(queue) == 0 {
				t.Fatalf("after %d faults none of those with %q in their kind can be done", n, *only)
			}
			w.rng.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
		}
		next := 0
		if *only == "" && *long-time.Since(began) < slowFault { // a short run would take longer than it is told to
			next = max(0, slices.IndexFunc(queue, func(f fault) bool { return !f.slow }))
		}
		f := queue[next]
		queue = slices.Delete(queue, next, next+1)
		shown := len(w.effects)
		f.do(w)
		if !slices.ContainsFunc(w.effects[shown:], func(e effect) bool { return e.kind == f.kind }) { // a mirror that was killed in its midst shows one of its own
			t.Fatalf("%s has shown no effect", f.kind)
		}
		kinds[f.kind]++
		w.inStep()
	}
	w.end()
	w.found = append(w.found, judge(w.evidence)...)
	for _, f := range w.found {
		t.Errorf("VIOLATION: %v", f)
	}
	if len(w.found) > 0 || *keep {
		w.keepEvidence()
	}
	if len(w.found) == 0 {
		spoilAll(t, w.evidence)
	}

	counts := map[string]int{}
	for _, e := range w.effects {
		counts[e.kind]++
	}
	records, size, losses, drops := int64(0), int64(0), 0, 0
	for _, p := range w.evidence.partitions {
		records += p.report.FinalOffset
		size += int64(len(p.disk.log))
	}
	for _, e := range w.evidence.events {
		switch e.Kind {
		case "RecordsLost":
			losses++
		case "RecordsDropped":
			drops++
		}
	}
	var table []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		table = append(table, fmt.Sprintf("%s %d", kind, counts[kind]))
	}
	l := w.load
	t.Logf("table: %s", strings.Join(table, ", "))
	t.Logf("table: seconds: %.0f, faults: %d, kinds: %d, records acknowledged: %d, megabytes acknowledged: %.1f, offsets copied: %d, megabytes in the copy: %.1f, transactions: %d, aborted: %d, "+
		"clients killed in a transaction: %d, polls: %d, mirror processes: %d, losses reported: %d, drops reported: %d, violations: %d", time.Since(began).Seconds(), len(w.effects), len(counts),
		l.acked.Load(), float64(l.bytes.Load())/1e6, records, float64(size)/1e6, l.transactions.Load(), l.aborted.Load(), l.left.Load(), l.polls.Load(), w.lives, losses, drops, len(w.found))
}
