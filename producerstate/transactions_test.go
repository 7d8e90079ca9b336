package producerstate

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// openList is what openTransactions must look like from outside, kept the simple way.
type openList []Transaction

func (l openList) index(first int64) int {
	return slices.IndexFunc(l, func(t Transaction) bool { return t.FirstOffset == first })
}

func (l openList) differs(o *openTransactions, end int64) string {
	oldest := end
	if len(l) > 0 {
		oldest = min(l[0].FirstOffset, end)
	}
	if got := o.oldest(end); got != oldest {
		return fmt.Sprintf("oldest %d, want %d", got, oldest)
	}
	if got := o.appendTo(nil); !slices.Equal(got, l) || o.count() != len(l) {
		return fmt.Sprintf("%d open: %+v, want %+v", o.count(), got, l)
	}
	for _, t := range l {
		if got := *o.at(t.FirstOffset); got != t {
			return fmt.Sprintf("at %d: %+v", t.FirstOffset, got)
		}
	}
	if o.ended > len(l) {
		return fmt.Sprintf("%d ended are kept beside %d open", o.ended, len(l))
	}
	return ""
}

func TestOpenTransactionsEndInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o, kept openTransactions
		var want, keptWant openList
		next := int64(0)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2, 3:
				begun := Transaction{ProducerID: next % 7, FirstOffset: next, LastOffset: next + rapid.Int64Range(0, 20).Draw(t, "length")}
				o.begin(begun)
				want = append(want, begun)
				next++
			case 4, 5, 6, 7:
				first := rapid.Int64Range(0, next).Draw(t, "end") // may have ended before, or never begun
				o.end(first)
				if i := want.index(first); i >= 0 {
					want = slices.Delete(want, i, i+1)
				}
			case 8:
				start := rapid.Int64Range(0, next).Draw(t, "start")
				o.forgetBelow(start)
				want = slices.DeleteFunc(want, func(t Transaction) bool { return t.LastOffset < start })
			case 9:
				if rapid.Bool().Draw(t, "back") {
					kept.copyTo(&o)
					want = slices.Clone(keptWant)
				} else {
					o.copyTo(&kept)
					keptWant = slices.Clone(want)
				}
			}
			if d := want.differs(&o, next+1); d != "" {
				t.Fatal(d)
			}
			if d := keptWant.differs(&kept, next+1); d != "" {
				t.Fatal("copy: " + d)
			}
		}
	})
}

func TestOpenListSaysNo(t *testing.T) {
	for what, o := range map[string]openTransactions{
		"one missing":  {},
		"another":      {list: []openTransaction{{Transaction: Transaction{FirstOffset: 2}}}},
		"later data":   {list: []openTransaction{{Transaction: Transaction{FirstOffset: 1, LastOffset: 9}}}},
		"ended":        {list: []openTransaction{{Transaction: Transaction{FirstOffset: 1}, ended: true}}, ended: 1},
		"wrong oldest": {list: []openTransaction{{Transaction: Transaction{FirstOffset: 0}, ended: true}, {Transaction: Transaction{FirstOffset: 1}}}, ended: 1},
		"too many ended": {list: []openTransaction{
			{Transaction: Transaction{FirstOffset: -1}, ended: true}, {Transaction: Transaction{FirstOffset: 0}, ended: true}, {Transaction: Transaction{FirstOffset: 1}},
		}, ended: 2, head: 2},
	} {
		if (openList{{FirstOffset: 1}}).differs(&o, 5) == "" {
			t.Errorf("%s passes", what)
		}
	}
}

// A stop ends every open transaction, from the oldest on. What that moves in memory grows with their number, not with its square.
func TestEndingAllMovesEachTransactionAFewTimes(t *testing.T) {
	const n = 10_000
	for order, nth := range map[string]func(i int64) int64{
		"oldest first": func(i int64) int64 { return i },
		"newest first": func(i int64) int64 { return n - 1 - i },
		"mixed":        func(i int64) int64 { return i * 7 % n },
	} {
		var o openTransactions
		for i := range int64(n) {
			o.begin(Transaction{ProducerID: i, FirstOffset: i})
		}
		passed := 0
		for i := range int64(n) {
			length, head := len(o.list), o.head
			o.end(nth(i))
			if len(o.list) != length {
				passed += length // the rest closed up
			} else {
				passed += o.head - head
			}
		}
		if o.count() != 0 || passed > 4*n {
			t.Errorf("%s: %d left, %d entries passed over to end %d", order, o.count(), passed, n)
		}
	}
}

// Restore points copy what is open: rarely enough that it costs each batch no more than a few entries. A reset leaves no producer, but as many transactions.
func TestPointsAreRareWithManyOrphans(t *testing.T) {
	const open, more = 3000, 9000
	m := New()
	m.pointEvery = 1
	l := history{}
	for i := range int64(open) {
		l = append(l, entry{kind: transactional, base: i, last: i, id: i})
	}
	l = append(l, entry{kind: reset, base: open, last: open, id: -1})
	if err := m.Observe(l.bytes()); err != nil {
		t.Fatal(err)
	}
	points := 0
	for i := range int64(more) {
		if err := m.Observe(entry{kind: data, base: open + 1 + i, last: open + 1 + i, id: -1}.bytes()); err != nil {
			t.Fatal(err)
		}
		if m.sincePoint == 0 {
			points++
		}
	}
	if points > more/open+1 {
		t.Errorf("%d points of %d transactions in %d batches", points, open, more)
	}
}

// One ABORT per open transaction, in the order of their first offsets: what a stop appends. The time per marker must not depend on how many are open.
func BenchmarkEndManyTransactions(b *testing.B) {
	for _, n := range []int64{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var begins, aborts history
			for i := range n {
				begins = append(begins, entry{kind: transactional, base: i, last: i, id: i})
				aborts = append(aborts, entry{kind: abort, base: n + i, last: n + i, id: i})
			}
			m := New()
			if err := m.Observe(begins.bytes()); err != nil {
				b.Fatal(err)
			}
			opened, markers := m.Snapshot(), aborts.bytes()
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				if err := m.Restore(opened); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := m.Observe(markers); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(int64(b.N)*n), "ns/marker")
		})
	}
}
