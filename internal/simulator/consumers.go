package simulator

import (
	"fmt"

	"github.com/clustermirror/clustermirror/internal/clienthistory"
	"github.com/clustermirror/clustermirror/internal/metadatasync"
	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/producerstate"
)

// consumer reads partitions, from whichever cluster it is sent to. Its name says how: U… reads uncommitted records, all others committed ones; g… comes as the only member of the group of that name, goes on where
// the group is, commits and leaves; all others keep where they are, also from one cluster to the other.
type consumer struct {
	name string
	at   []place // by partition
}

// place is where a consumer is in a partition.
type place struct {
	l        *partitionLog // that it read last
	next     int64
	epoch    int32 // leader epoch of what it read last, −1: nothing
	leads    int32 // leader epoch of the log then
	rewrites int
	turns    int  // that it was told of
	strays   bool // it has read since then what is not of the line that clients write
}

func (w *world) consumer(name string) *consumer {
	for _, c := range w.clients.consumers {
		if c.name == name {
			return c
		}
	}
	c := &consumer{name: name, at: make([]place, w.cfg.Partitions)}
	w.clients.consumers = append(w.clients.consumers, c)
	return c
}

func (c *consumer) committed() bool { return c.name[0] != 'U' }
func (c *consumer) group() bool     { return c.name[0] == 'g' }

// opPoll lets a consumer read so many batches.
func opPoll(w *world, l *partitionLog, o *words) {
	if name := o.set["by"]; name != "" && int(l.at.Partition) < int(w.cfg.Partitions) {
		w.poll(l, w.consumer(name), int(o.number("n", 100)))
	}
}

// poll reads.
func (w *world) poll(l *partitionLog, c *consumer, most int) {
	h := &w.history
	k := h.of(l)
	if k == nil || l.c.lost || l.leaderID() < 0 {
		return
	}
	at := &c.at[l.at.Partition]
	seek := func(group string, offset int64) {
		h.h.Seeks = append(h.h.Seeks, clienthistory.Seek{Span: h.span(), Consumer: c.name, Cluster: l.c.name, Partition: k.id, Group: group, Offset: offset})
	}
	back := func() { // auto.offset.reset=earliest
		at.next, at.epoch = l.start, -1
		seek("", -1)
	}
	group := ""
	switch {
	case c.group():
		at.l, at.next, at.epoch = nil, l.start, -1
		if p := w.groups.find(c.name, l); p != nil {
			at.next, at.epoch = p.at.Offset, p.at.LeaderEpoch
			if group = c.name; p.left || at.epoch < 0 { // it was told of, or its place cannot be compared with the log (F-42)
				group = ""
			}
		}
	case at.l == nil:
		back()
	}
	if !c.group() {
		for _, parted := range k.turns[at.turns:] { // whoever keeps offsets is told where to go on
			at.next = min(at.next, parted)
		}
	}
	if at.epoch >= 0 && (at.l != l || at.leads != l.epoch || at.rewrites != l.rewrites) { // KIP-320: has the log still what was read?
		if epoch, end := l.cache.EndOffsetFor(at.epoch, l.end); epoch < 0 || end < l.start {
			back()
		} else {
			at.next = min(at.next, end)
		}
	}
	if at.next > l.end {
		back()
	}
	if c.group() {
		seek(group, at.next)
		if group == "" {
			seek("", -1)
		}
	} else if at.strays || l.c != k.writer && at.l != nil && (at.l != l || at.rewrites != l.rewrites || at.turns != len(k.turns)) { // a copy, or a line that was left: what it lacks, or has more, it does not know itself
		seek("", -1)
	}
	at.l, at.leads, at.rewrites, at.turns, at.strays = l, l.epoch, l.rewrites, len(k.turns), l.c != k.writer && (l.c != k.follows || k.parted < l.end)
	from := at.next
	at.next = max(at.next, l.start)
	records := h.read(l, c.committed(), at, most)
	at.strays = at.strays || h.lacks(k, l, from, at.next)
	if w.stats.Reads += len(records); len(records) > 0 {
		h.h.Polls = append(h.h.Polls, clienthistory.Poll{Span: h.span(), Consumer: c.name, Cluster: l.c.name, Partition: k.id, Committed: c.committed(), Records: records})
		if w.record {
			w.say("consumer %s reads %v: %v", c.name, l.at, fmt.Sprint(records))
		}
	}
	if c.group() && l.open && !w.groups.isActive(l.c, c.name) {
		w.place(c.name, l, metadatasync.Offset{Offset: at.next, LeaderEpoch: max(at.epoch, metadatasync.None)}, model.Clients)
	}
}

// read gives what a fetch from a place on gives, and moves the place.
func (h *history) read(l *partitionLog, committed bool, at *place, most int) (records []clienthistory.Seen) {
	limit := l.high
	if committed && at.next < limit {
		limit = min(limit, h.view(l).LastStable(limit))
	}
	list := l.from(at.next)
	n := 0
	for n < len(list) && n != most && list[n].h.BaseOffset < limit {
		n++
	}
	if at.next >= limit || n == 0 {
		return nil
	}
	var aborted []producerstate.Aborted
	if committed {
		aborted = h.view(l).Aborted(at.next, list[n-1].next())
	}
	for i := range list[:n] {
		b := &list[i]
		hidden := b.h.Control()
		if b.h.Transactional() {
			for _, a := range aborted {
				hidden = hidden || a.ProducerID == b.h.ProducerID && a.FirstOffset <= b.h.BaseOffset && b.h.BaseOffset < a.LastOffset
			}
		}
		if !hidden {
			for _, s := range h.in(b) {
				if s.Offset >= at.next {
					records = append(records, s)
				}
			}
		}
		at.next, at.epoch = b.next(), b.h.LeaderEpoch
	}
	return records
}

// view is what a broker that leads a log knows of its transactions.
func (h *history) view(l *partitionLog) *producerstate.Manager {
	if l.producers == nil || l.known != l.rewrites || l.observed > len(l.batches) {
		l.producers, l.known, l.observed = producerstate.New(), l.rewrites, 0
	}
	for ; l.observed < len(l.batches); l.observed++ {
		if err := l.producers.Observe(l.batches[l.observed].bytes); err != nil {
			h.w.wrong(fmt.Errorf("%v: %w", l.at, err))
			break
		}
	}
	return l.producers
}

// readOn lets every consumer read all that clients' logs have.
func (w *world) readOn() {
	for _, c := range w.clients.consumers {
		for p := range c.at {
			if k := w.history.partitions[p]; !k.over {
				l, most, was := k.writer.log(w.mirrors[0].topic, int32(p)), -1, int64(-1)
				if c.name[0] == 'R' { // piece by piece
					most = 1
				}
				for l != nil && c.at[p].next != was {
					was = c.at[p].next
					w.poll(l, c, most)
				}
			}
		}
	}
}
