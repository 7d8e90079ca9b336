package clienthistory

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// whole is a transaction at the end: what of it is there, and what is missing without a name.
type whole struct{ there, missing []*write }

// logs judges the logs at the end.
func (c *checker) logs(f Final) {
	transactions := map[Transaction]*whole{} // of the logs that clients write
	var alone []func()                       // what is said of a missing write when its transaction is not torn
	for i := range f.Logs {
		l, number := &f.Logs[i], i+1
		p := c.partition(l.Partition)
		line := p.held(l.Cluster, p.rejoins)
		last := int64(-1)
		for _, s := range l.Records {
			w := c.writes[s.Record]
			if w == nil || w.Partition != l.Partition {
				continue
			}
			w.found = number
			c.stays(p, w, line, l.Cluster)
			if s.Offset <= last {
				c.found(InconsistentOffset, p.id, fmt.Sprintf("the log of %s has %d after %d", l.Cluster, s.Offset, last), w)
			}
			last = s.Offset
		}
		written := l.Cluster == p.writer(p.current())
		for _, w := range p.writes {
			part := c.part(transactions, w, written)
			if w.found == number {
				part.there = append(part.there, w)
				continue
			}
			due := w.Outcome == OK && w.high <= line && p.survives(w.offset, w.low, line) && (w.fate == committed || w.fate == doubtful)
			if !due || p.excused(w, l.Cluster, line, math.MaxInt64) {
				continue
			}
			part.missing = append(part.missing, w)
			if w.fate == committed {
				alone = append(alone, func() { c.missing(p, w, l, part) })
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(transactions)) {
		if t := transactions[n]; len(t.there) > 0 && len(t.missing) > 0 {
			slices.SortStableFunc(t.missing, func(a, b *write) int { return cmp.Compare(a.offset, b.offset) })
			c.found(TornTransaction, t.missing[0].Partition, fmt.Sprintf("of transaction %v these are missing, and %d others are there", n, len(t.there)), t.missing...)
		}
	}
	for _, say := range alone {
		say()
	}
}

// part is what is noted of a write's transaction, or of the write alone.
func (c *checker) part(transactions map[Transaction]*whole, w *write, written bool) *whole {
	if w.Transaction == 0 || !written {
		return &whole{}
	}
	if transactions[w.Transaction] == nil {
		transactions[w.Transaction] = &whole{}
	}
	return transactions[w.Transaction]
}

// missing says that a write is not in a log, unless its whole transaction was said to be torn.
func (c *checker) missing(p *topicPartition, w *write, l *Log, part *whole) {
	switch {
	case len(part.there) > 0:
	case w.offset >= l.End:
		c.found(Unseen, p.id, fmt.Sprintf("acknowledged by %s; readers of %s end at %d", w.Cluster, l.Cluster, l.End), w)
	default:
		c.found(LostWrite, p.id, fmt.Sprintf("acknowledged by %s and not in the log of %s, which was read to %d", w.Cluster, l.Cluster, l.End), w)
	}
}

// stays judges what a reader of a log sees at the end.
func (c *checker) stays(p *topicPartition, w *write, line int, cluster string) {
	turn, named := p.aborted[w.Transaction]
	switch {
	case w.fate == failed:
		c.found(AbortedRead, p.id, "the log of "+cluster+" has a write that failed", w)
	case w.Transaction == 0:
	case w.fate == aborted, named && turn < line:
		c.found(AbortedRead, p.id, fmt.Sprintf("the log of %s shows a record of the aborted transaction %v", cluster, w.Transaction), w)
	case w.fate == open:
		c.found(PrecommittedRead, p.id, fmt.Sprintf("the log of %s shows a record of transaction %v, whose commit was never called", cluster, w.Transaction), w)
	}
}

// unnamed finds acknowledged writes that a turn took away and that nobody named.
func (c *checker) unnamed(p *topicPartition) {
	for _, w := range p.writes {
		if w.fate != committed || p.survives(w.offset, w.high, p.current()) {
			continue
		}
		t := p.killer(w.offset, w.high)
		if p.named(w, t) || p.excused(w, w.Cluster, p.current(), math.MaxInt64) {
			continue
		}
		c.found(LostWrite, p.id, fmt.Sprintf("acknowledged by %s, taken away by the turn to %s at %d, and not named as lost (%v)", w.Cluster, t.To, t.Offset, t.Lost), w)
	}
}

// named says whether the turn that took a write away, or the failback of its cluster, named it. A write that was acknowledged by a cluster after it was turned away from is still in that cluster's
// own line as long as the cluster has not rejoined.
func (p *topicPartition) named(w *write, t *Turn) bool {
	if t.Lost.holds(w.offset) && w.Start <= t.At { // it was in the log of t.From until then, whoever acknowledged it
		return true
	}
	stranded := w.End >= t.At && w.Cluster != t.To
	for _, r := range p.rejoins {
		if r.Cluster == w.Cluster && r.At >= w.Start {
			if r.GivenUp.holds(w.offset) {
				return true
			}
			stranded = false
		}
	}
	for _, later := range p.turns {
		stranded = stranded && !(later.To == w.Cluster && later.At > w.End)
	}
	return stranded
}
