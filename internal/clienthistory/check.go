package clienthistory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// fate is what became of a write as far as its client knows.
type fate uint8

const (
	open      fate = iota // in a transaction whose commit was never called
	doubtful              // not known
	committed             // acknowledged, and its transaction, if any, was committed
	aborted               // its transaction was not committed and never will be
	failed                // refused
)

// write is a Produce and what was found out about it.
type write struct {
	*Produce
	offset    int64 // acknowledged, or else where it was seen first; −1: none
	low, high int   // lines in which it may have been written
	fate      fate
	seen      bool
	found     int // number of the last log of Final in which it was found, from 1 on
}

// surely says whether the write is known to lie in the log of one line.
func (w *write) surely() bool { return w.low == w.high && (w.Outcome == OK || w.seen) }

// topicPartition is all that was noted of one partition.
type topicPartition struct {
	lines
	id      Partition
	writes  []*write
	placed  []*write // with an offset, by offset
	rejoins []Rejoin
	gone    []Gone
	aborted map[Transaction]int // named as aborted: the turn
}

type checker struct {
	partitions map[Partition]*topicPartition
	order      []*topicPartition
	writes     map[Record]*write
	ends       map[Transaction]*End
	elsewhere  map[*write][]int64 // offsets at which a write was seen beside its own
	anomalies  []Anomaly
}

// Check finds the anomalies of a history and the logs that it ended in. The order is the same for the same input. It needs about as much memory again as the history has.
func Check(h History, f Final) []Anomaly {
	c := &checker{partitions: map[Partition]*topicPartition{}, writes: make(map[Record]*write, len(h.Produces)), ends: make(map[Transaction]*End, len(h.Ends)), elsewhere: map[*write][]int64{}}
	c.collect(h)
	c.look(h, f)
	for _, p := range c.order {
		p.place()
		c.offsets(p)
	}
	c.polls(h)
	c.logs(f)
	for _, p := range c.order {
		c.unnamed(p)
	}
	rank := map[Kind]int{}
	for i, k := range []Kind{NeverWritten, InconsistentOffset, Duplicate, LostWrite, Unseen, AbortedRead, PrecommittedRead, TornTransaction, NonMonotonicPoll, PollSkip} {
		rank[k] = i
	}
	slices.SortStableFunc(c.anomalies, func(a, b Anomaly) int { return cmp.Compare(rank[a.Kind], rank[b.Kind]) })
	return c.anomalies
}

func (c *checker) found(kind Kind, p Partition, what string, about ...*write) {
	a := Anomaly{Kind: kind, Partition: p, What: what}
	for _, w := range about {
		a.Records, a.Offsets = append(a.Records, w.Record), append(a.Offsets, w.offset)
	}
	c.anomalies = append(c.anomalies, a)
}

func (c *checker) partition(id Partition) *topicPartition {
	p := c.partitions[id]
	if p == nil {
		p = &topicPartition{id: id, aborted: map[Transaction]int{}}
		c.partitions[id] = p
	}
	return p
}

// collect sorts a history by partitions.
func (c *checker) collect(h History) {
	for i := range h.Ends {
		c.ends[h.Ends[i].Transaction] = &h.Ends[i]
	}
	for _, t := range h.Turns {
		p := c.partition(t.Partition)
		p.turns = append(p.turns, t)
	}
	for _, r := range h.Rejoins {
		p := c.partition(r.Partition)
		p.rejoins = append(p.rejoins, r)
	}
	for _, g := range h.Gone {
		p := c.partition(g.Partition)
		p.gone = append(p.gone, g)
	}
	all := make([]write, len(h.Produces))
	for i := range h.Produces {
		w := &all[i]
		*w = write{Produce: &h.Produces[i], offset: -1}
		p := c.partition(w.Partition)
		if p.first == "" {
			p.first = w.Cluster
			if len(p.turns) > 0 {
				p.first = p.turns[0].From
			}
			if first, ok := h.First[p.id]; ok {
				p.first = first
			}
		}
		w.low, w.high = p.of(w.Cluster, w.Span)
		if w.Outcome == Unknown { // it may still happen
			_, w.high = p.of(w.Cluster, Span{w.Start, p.begin(p.current())})
			w.high = max(w.low, w.high)
		} else if w.Outcome == OK {
			w.offset = w.Offset
		}
		w.fate = c.fate(w.Produce)
		p.writes, c.writes[w.Record] = append(p.writes, w), w
	}
	byName := func(a, b *topicPartition) int {
		return cmp.Or(cmp.Compare(a.id.Topic, b.id.Topic), cmp.Compare(a.id.Partition, b.id.Partition))
	}
	c.order = slices.SortedFunc(maps.Values(c.partitions), byName)
}

func (c *checker) fate(p *Produce) fate {
	if p.Outcome == Failed {
		return failed
	}
	if p.Transaction == 0 {
		if p.Outcome == OK {
			return committed
		}
		return doubtful
	}
	end := c.ends[p.Transaction]
	switch {
	case end == nil:
		return open
	case !end.Commit || end.Outcome == Failed:
		return aborted
	case end.Outcome == OK && p.Outcome == OK:
		return committed
	}
	return doubtful
}

// look notes where each write was seen.
func (c *checker) look(h History, f Final) {
	for i := range h.Polls {
		p := &h.Polls[i]
		for _, s := range p.Records {
			c.see(p.Partition, s, "consumer", p.Consumer, p.Cluster)
		}
	}
	for i := range f.Logs {
		l := &f.Logs[i]
		for _, s := range l.Records {
			c.see(l.Partition, s, "log", "at the end", l.Cluster)
		}
	}
}

func (c *checker) see(p Partition, s Seen, what, who, cluster string) {
	w := c.writes[s.Record]
	switch {
	case w == nil || w.Partition != p:
		c.anomalies = append(c.anomalies, Anomaly{NeverWritten, p, []int64{s.Offset}, []Record{s.Record}, fmt.Sprintf("%s %s of %s has a record that nobody wrote there", what, who, cluster)})
	case w.offset < 0 || w.offset == s.Offset:
		w.offset, w.seen = s.Offset, true
	case !slices.Contains(c.elsewhere[w], s.Offset):
		c.elsewhere[w] = append(c.elsewhere[w], s.Offset)
	}
}

// place sorts what is known to be, or to have been, in the logs by offset, and resolves the transactions that turns named by an offset.
func (p *topicPartition) place() {
	for _, w := range p.writes {
		if w.offset >= 0 {
			p.placed = append(p.placed, w)
		}
	}
	slices.SortStableFunc(p.placed, func(a, b *write) int { return cmp.Compare(a.offset, b.offset) })
	for i := range p.turns {
		t := &p.turns[i]
		for _, n := range t.Aborted {
			p.abort(n, i)
		}
		for _, offset := range t.AbortedAt {
			for _, w := range p.between(offset, offset+1) {
				if w.Transaction != 0 && w.low <= i {
					p.abort(w.Transaction, i)
				}
			}
		}
	}
}

// abort notes the first turn at which a transaction was aborted. A later one may name it again, when it takes the marker away too.
func (p *topicPartition) abort(t Transaction, turn int) {
	if _, ok := p.aborted[t]; !ok {
		p.aborted[t] = turn
	}
}

// between are the writes at the offsets from from on and below to.
func (p *topicPartition) between(from, to int64) []*write {
	less := func(w *write, offset int64) int { return cmp.Compare(w.offset, offset) }
	i, _ := slices.BinarySearchFunc(p.placed, from, less)
	j, _ := slices.BinarySearchFunc(p.placed[i:], to, less)
	return p.placed[i : i+j]
}

// offsets finds writes at two offsets, and offsets with two writes.
func (c *checker) offsets(p *topicPartition) {
	for i, w := range p.placed {
		if other := c.elsewhere[w]; len(other) > 0 {
			kind, what := InconsistentOffset, fmt.Sprintf("acknowledged at %d and seen at %v", w.offset, other)
			if w.seen {
				kind, what = Duplicate, fmt.Sprintf("seen at %d and at %v", w.offset, other)
			}
			c.found(kind, p.id, what, w)
		}
		for _, o := range p.placed[i+1:] {
			if o.offset != w.offset {
				break
			}
			if a, b := min(w.low, o.low), max(w.low, o.low); w.surely() && o.surely() && p.survives(w.offset, a, b) {
				c.found(InconsistentOffset, p.id, fmt.Sprintf("two writes at offset %d, of %s and %s", w.offset, w.Cluster, o.Cluster), w, o)
			}
		}
	}
}

// excused says whether a write may be missing in a log of a line at a cluster at a moment because of something that was named. What a failover aborts is hidden in the copy, by its markers, before
// clients are sent there.
func (p *topicPartition) excused(w *write, cluster string, line int, m Moment) bool {
	if turn, ok := p.aborted[w.Transaction]; ok && w.Transaction != 0 && (turn < line || turn == line && p.turns[turn].To == cluster && p.turns[turn].From != cluster) {
		return true
	}
	return slices.ContainsFunc(p.gone, func(g Gone) bool {
		return g.At <= m && g.Range.holds(w.offset) && (g.Cluster == "" || g.Cluster == cluster) && w.Start <= g.At
	})
}
