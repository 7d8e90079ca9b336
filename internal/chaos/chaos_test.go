package chaos_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/clienthistory"
)

var (
	long   = flag.Duration("chaos.for", time.Minute, "how long there are faults")
	seed   = flag.Uint64("chaos.seed", 0, "the order of faults (default: from the clock)")
	keep   = flag.Bool("chaos.keep", false, "keep the run's folder")
	only   = flag.String("chaos.only", "", "only faults whose kind contains this")
	spoils = flag.Bool("chaos.spoil", true, "spoil the evidence at the end, and demand that it is seen")
)

// bound is the longest that the test waits for any one thing. Nothing here is expected to take that long.
const bound = 90 * time.Second

// A run with fewer faults or kinds of faults shows too little.
const (
	leastFaults = 12
	leastKinds  = 8
)

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
	n := 0
	for began := time.Now(); time.Since(began) < *long || *only == "" && (n < leastFaults || len(kinds) < leastKinds); n++ {
		if len(queue) == 0 {
			queue = slices.Clone(chosen)
			w.rng.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
		}
		f := queue[0]
		queue = queue[1:]
		shown := len(w.effects)
		f.do(w)
		if len(w.effects) == shown {
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
	if len(w.found) == 0 && *spoils {
		spoilAll(t, w)
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

// spoil is one way to spoil evidence, and what has to be said of it then.
type spoil struct {
	name string
	kind string // of one finding at least
	do   func(p *partitionEvidence, e *evidence) bool
}

var spoilers = []spoil{
	{"one byte of the copy", "bytes", func(p *partitionEvidence, _ *evidence) bool {
		i := len(p.copy) / 3
		raw := slices.Clone(p.copy[i].raw)
		raw[len(raw)-3] ^= 1
		p.copy[i].raw = raw
		return true
	}},
	{"one batch of the copy is missing", "missing", func(p *partitionEvidence, _ *evidence) bool {
		p.copy = slices.Delete(p.copy, len(p.copy)/3, len(p.copy)/3+1)
		return true
	}},
	{"the last batch in front of the markers is missing", "missing", func(p *partitionEvidence, _ *evidence) bool {
		n := len(before(p.copy, p.report.FinalOffset))
		p.copy = slices.Delete(p.copy, n-1, n)
		return true
	}},
	{"a batch twice", "order", func(p *partitionEvidence, _ *evidence) bool {
		p.copy = slices.Insert(p.copy, len(p.copy)/3, p.copy[len(p.copy)/3])
		return true
	}},
	{"a batch of another log", "extra", func(p *partitionEvidence, _ *evidence) bool {
		p.source = slices.Delete(p.source, len(p.source)/3, len(p.source)/3+1)
		return true
	}},
	{"no reset", "markers", func(p *partitionEvidence, _ *evidence) bool {
		i := slices.IndexFunc(p.copy, func(b piece) bool { return b.control == markerReset })
		p.copy = slices.Delete(p.copy, i, i+1)
		return true
	}},
	{"a transaction without its ABORT", "open", func(p *partitionEvidence, _ *evidence) bool {
		n := len(before(p.copy, p.report.FinalOffset))
		if p.copy[n].control != markerAbort {
			return false
		}
		p.copy = slices.Delete(p.copy, n, n+1)
		return true
	}},
	{"a loss that nothing explains", "unexplained", func(_ *partitionEvidence, e *evidence) bool {
		e.events = append(e.events, told{Kind: "RecordsLost", Topic: plain, From: 3, To: 5, Text: "lost"})
		return true
	}},
	{"the gate is closed", "gate", func(p *partitionEvidence, _ *evidence) bool {
		p.disk.Open = false
		return true
	}},
	{"an acknowledged record that is nowhere", string(clienthistory.LostWrite), func(p *partitionEvidence, e *evidence) bool {
		e.history.Produces = append(slices.Clone(e.history.Produces), clienthistory.Produce{Span: clienthistory.Span{Start: 1, End: 2}, Cluster: source, Partition: p.at,
			Record: clienthistory.NewRecord(8888, 1), Offset: p.report.FinalOffset - 1, Outcome: clienthistory.OK})
		return true
	}},
	{"a record at another offset than it was acknowledged with", string(clienthistory.InconsistentOffset), func(p *partitionEvidence, e *evidence) bool {
		e.history.Produces = slices.Clone(e.history.Produces)
		for i := range e.history.Produces {
			if x := &e.history.Produces[i]; x.Partition == p.at && x.Outcome == clienthistory.OK && x.Transaction == 0 && x.Offset+1 < p.report.FinalOffset && x.Offset >= p.disk.Start {
				x.Offset++
				return true
			}
		}
		return false
	}},
	{"a reader goes back", string(clienthistory.NonMonotonicPoll), func(p *partitionEvidence, e *evidence) bool {
		for _, x := range e.history.Polls {
			if x.Partition == p.at && len(x.Records) > 0 {
				at := slices.IndexFunc(e.history.Polls, func(y clienthistory.Poll) bool { return y.Consumer == x.Consumer && y.Partition == x.Partition })
				again := e.history.Polls[at]
				e.history.Polls = slices.Insert(slices.Clone(e.history.Polls), at+1, again)
				return true
			}
		}
		return false
	}},
	{"an aborted record is read", string(clienthistory.AbortedRead), func(p *partitionEvidence, e *evidence) bool {
		for _, end := range e.history.Ends {
			if end.Commit || end.Outcome != clienthistory.OK {
				continue
			}
			for _, x := range e.history.Produces {
				if x.Transaction == end.Transaction && x.Partition == p.at && x.Outcome == clienthistory.OK {
					e.history.Polls = append(slices.Clone(e.history.Polls), clienthistory.Poll{Span: clienthistory.Span{Start: end.Span.End, End: end.Span.End + 1}, Consumer: "spoiler", Cluster: source,
						Partition: p.at, Committed: true, Records: []clienthistory.Seen{{Offset: x.Offset, Record: x.Record}}})
					return true
				}
			}
		}
		return false
	}},
}

// spoilAll spoils the evidence in each way, in some partition where that can be done, and demands that it is named.
func spoilAll(t *testing.T, w *world) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	named := 0
	for _, s := range spoilers {
		done := false
		for _, i := range rng.Perm(len(w.evidence.partitions)) {
			e := w.evidence
			e.partitions = slices.Clone(e.partitions)
			p := &e.partitions[i]
			p.copy, p.source = slices.Clone(p.copy), slices.Clone(p.source)
			if len(p.copy) < 10 || !s.do(p, &e) {
				continue
			}
			done = true
			found := judge(e)
			if !slices.ContainsFunc(found, func(f finding) bool { return f.kind == s.kind }) {
				t.Errorf("spoilt: %s in %v: not named as %q; found %v", s.name, p.at, s.kind, found)
			} else {
				named++
			}
			break
		}
		if !done {
			t.Errorf("spoilt: %s: no partition where that can be done", s.name)
		}
	}
	t.Logf("%d ways to spoil the evidence are named", named)
}
