package clienthistory

import (
	"cmp"
	"fmt"
	"slices"
)

type reader struct {
	consumer  string
	partition Partition
}

// position is where a consumer is in a partition.
type position struct {
	next  int64 // −1: anywhere
	since Moment
	seeks []*Seek // that have not been looked at, by start
}

type groupPartition struct {
	group     string
	partition Partition
}

// polls judges what consumers were given, in the order in which they were.
func (c *checker) polls(h History) {
	at := map[reader]*position{}
	where := func(r reader) *position {
		if at[r] == nil {
			at[r] = &position{next: -1}
		}
		return at[r]
	}
	commits := map[groupPartition][]*Commit{}
	for i := range h.Commits {
		g := groupPartition{h.Commits[i].Group, h.Commits[i].Partition}
		commits[g] = append(commits[g], &h.Commits[i])
	}
	for i := range h.Seeks {
		s := &h.Seeks[i]
		p := where(reader{s.Consumer, s.Partition})
		p.seeks = append(p.seeks, s)
		if s.Group != "" && s.Offset >= 0 {
			c.resumes(c.partition(s.Partition), s, commits[groupPartition{s.Group, s.Partition}])
		}
	}
	for _, p := range at {
		slices.SortStableFunc(p.seeks, func(a, b *Seek) int { return cmp.Compare(a.Start, b.Start) })
	}
	for i := range h.Polls {
		poll := &h.Polls[i]
		p, here := c.partition(poll.Partition), where(reader{poll.Consumer, poll.Partition})
		for len(here.seeks) > 0 && here.seeks[0].Start <= poll.End {
			s := here.seeks[0]
			here.seeks, here.next, here.since = here.seeks[1:], s.Offset, s.Start
		}
		c.given(p, poll, here)
		here.since = poll.Start
	}
}

// given judges one poll.
func (c *checker) given(p *topicPartition, poll *Poll, here *position) {
	for _, t := range p.turns { // a turn takes consumers back to where the lines part
		if here.next > t.Offset && here.since <= t.At && t.At <= poll.End {
			here.next = t.Offset
		}
	}
	for _, s := range poll.Records {
		w := c.writes[s.Record]
		if w == nil || w.Partition != poll.Partition {
			continue
		}
		c.visible(p, w, poll)
		if here.next >= 0 && s.Offset < here.next {
			c.found(NonMonotonicPoll, p.id, fmt.Sprintf("consumer %s of %s was given %d after %d", poll.Consumer, poll.Cluster, s.Offset, here.next-1), w)
		} else if here.next >= 0 && s.Offset > here.next && w.surely() && w.offset == s.Offset {
			c.skipped(p, here.next, s.Offset, w.low, poll.Span, poll.Committed, poll.Cluster, fmt.Sprintf("consumer %s of %s was given %d after %d", poll.Consumer, poll.Cluster, s.Offset, here.next-1))
		}
		here.next = s.Offset + 1
	}
}

// visible judges whether a consumer may see a write at all.
func (c *checker) visible(p *topicPartition, w *write, poll *Poll) {
	switch {
	case w.fate == failed:
		c.found(AbortedRead, p.id, fmt.Sprintf("consumer %s of %s was given a write that failed", poll.Consumer, poll.Cluster), w)
	case !poll.Committed || w.Transaction == 0:
	case w.fate == aborted:
		c.found(AbortedRead, p.id, fmt.Sprintf("consumer %s of %s was given a record of the aborted transaction %v", poll.Consumer, poll.Cluster, w.Transaction), w)
	case w.fate == open || c.ends[w.Transaction].Start > poll.End:
		c.found(PrecommittedRead, p.id, fmt.Sprintf("consumer %s of %s was given a record of transaction %v before its commit was called", poll.Consumer, poll.Cluster, w.Transaction), w)
	}
}

// skipped finds the writes that lie in [from, to) of every log of a line, and so had to be given to whoever came from from to to.
func (c *checker) skipped(p *topicPartition, from, to int64, line int, s Span, readCommitted bool, cluster, what string) {
	var over []*write
	for _, w := range p.between(from, to) {
		there := w.surely() && (w.fate == committed || w.fate == aborted && !readCommitted) && w.low <= line && p.survives(w.offset, w.low, line)
		if there && !p.excused(w, cluster, max(line, p.at(s.End)), s.End) {
			over = append(over, w)
		}
	}
	if len(over) > 0 {
		c.found(PollSkip, p.id, what, over...)
	}
}

// resumes judges where a group's member starts: not beyond what the group has committed in this line.
func (c *checker) resumes(p *topicPartition, s *Seek, commits []*Commit) {
	line := p.at(s.Start)
	if line != p.at(s.End) || p.writer(line) != s.Cluster {
		return // in the middle of a turn, or a copy
	}
	progress := int64(-1)
	for _, k := range commits {
		if k.Start > s.End || k.Outcome == Failed {
			continue
		}
		offset := k.Offset
		low, high := p.of(k.Cluster, k.Span)
		for i := high; i < line; i++ {
			offset = min(offset, p.turns[i].Offset)
		}
		if low <= line {
			progress = max(progress, offset)
		}
	}
	if progress >= 0 && s.Offset > progress {
		what := fmt.Sprintf("group %s resumes at %d of %s; it has committed %d there", s.Group, s.Offset, s.Cluster, progress)
		c.skipped(p, progress, s.Offset, line, s.Span, true, s.Cluster, what)
	}
}
