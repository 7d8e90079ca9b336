package simulator

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clienthistory"
	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/producerstate"
)

// history is what clients were told and what they saw, in the words of clienthistory, and beside it what a failover may cost them. It is judged when the run has come to its end.
//
// What is legal, because it was named:
//   - A failover (the copy is opened by its mirror) loses what the old cluster acknowledged from the last mirror offset on, and transactions that the stop said it aborted: torn by a forced failover, and reported.
//   - A copy that has not followed an unclean election of its source yet keeps the line that was lost there, so the lines part where the election parted them.
//   - A failback gives up what its mirror said it dropped of the cluster that follows again.
//   - An unclean election loses what its new leader did not have. Retention, DeleteRecords and compaction take what they take, in the cluster that is written also from everybody who copies it.
//   - A stop leaves groups behind their place at the source, and says so: those with members, and those that it did not have in its hands.
//
// A partition is judged no more when there is no line any more that both clusters have: its topic was deleted, the cluster that clients write begins to follow the one that they had left, or that one loses its end
// and goes on alone. It is judged again, as another partition, from the moment on in which a copy is in step with its source: with what the source has then. What leaders have that unclean elections deposed, and that go on
// answering, is a line that has ended in that moment.
type history struct {
	w            *world
	h            clienthistory.History
	moment       clienthistory.Moment
	partitions   []*judged
	records      map[uint64][]clienthistory.Seen // of a batch, by the fingerprint of its bytes
	transactions []clienthistory.Transaction     // of each record, by its number
	numbers      uint32                          // transactions so far
	rested       []clienthistory.Log             // copies that were at rest
	eras         int                             // how often a partition's history began anew
}

// judged is a partition of both clusters.
type judged struct {
	id      clienthistory.Partition
	writer  *cluster            // that clients write
	follows *cluster            // that copies it and has given up what it had of its own; nil: none
	wrote   [2]bool             // clusters that clients were sent to once
	cut     bool                // its mirror has cut the cluster that is to follow
	parted  int64               // from here on the copy may be of a line that an election ended, or has marks of the stop that makes it a line of its own
	turns   []int64             // where the lines part
	given   clienthistory.Range // what the mirror said that it dropped of the cluster that is to follow
	aborted []clienthistory.Transaction
	over    bool
}

func (h *history) init(w *world) {
	h.w, h.records, h.h.First = w, map[uint64][]clienthistory.Seen{}, map[clienthistory.Partition]string{}
	for p := range w.cfg.Partitions {
		k := &judged{id: clienthistory.Partition{Topic: w.mirrors[0].topic, Partition: p}, writer: w.clusters[0], wrote: [2]bool{true}, parted: math.MaxInt64}
		h.h.First[k.id] = k.writer.name
		h.partitions = append(h.partitions, k)
	}
}

func (h *history) now() clienthistory.Moment {
	h.moment++
	return h.moment
}

func (h *history) span() clienthistory.Span {
	h.moment += 2
	return clienthistory.Span{Start: h.moment - 1, End: h.moment}
}

// of is the partition that a log is of, nil when it is not judged.
func (h *history) of(l *partitionLog) *judged {
	if l.gone || int(l.at.Partition) >= len(h.partitions) || h.partitions[l.at.Partition].over {
		return nil
	}
	return h.partitions[l.at.Partition]
}

// unlike: a copy begins where its source does not, or an old leader has brought back what was lost. There is no line that all clients have seen.
func (h *history) unlike(l *partitionLog) {
	if k := h.of(l); k != nil {
		k.over = true
	}
}

// start is the highest start of a log and of the one at the other cluster.
func (w *world) start(l *partitionLog) int64 {
	start := l.start
	for _, c := range w.clusters {
		if o := c.log(l.at.Topic, l.at.Partition); o != nil {
			start = max(start, o.start)
		}
	}
	return start
}

// deleted: what comes under the name of this topic is another one.
func (h *history) deleted() {
	for _, k := range h.partitions {
		k.over = true
	}
}

// begin is the number of a new transaction.
func (h *history) begin() clienthistory.Transaction {
	h.numbers++
	return clienthistory.NewTransaction(1, h.numbers)
}

// produced notes the records of a batch that a client wrote at the end of a log.
func (h *history) produced(l *partitionLog, base int64, n int, t clienthistory.Transaction, accepted bool) {
	for range n {
		h.transactions = append(h.transactions, t)
	}
	if l.gone || int(l.at.Partition) >= len(h.partitions) {
		return
	}
	k := h.partitions[l.at.Partition] // also one that is judged no more: whoever begins anew has to know what is under way
	s, outcome := h.span(), clienthistory.OK
	if !accepted {
		outcome = clienthistory.Unknown
	}
	for i := range n {
		number := uint32(len(h.transactions) - n + i + 1)
		h.h.Produces = append(h.h.Produces, clienthistory.Produce{
			Span: s, Cluster: l.c.name, Partition: k.id, Record: clienthistory.NewRecord(1, number), Offset: base + int64(i), Transaction: t, Outcome: outcome,
		})
	}
}

// ended notes that the coordinator has decided a transaction.
func (h *history) ended(t clienthistory.Transaction, commit bool) {
	h.h.Ends = append(h.h.Ends, clienthistory.End{Span: h.span(), Transaction: t, Commit: commit, Outcome: clienthistory.OK})
}

// in are the records of a batch.
func (h *history) in(b *held) []clienthistory.Seen {
	if seen, ok := h.records[b.m.Bytes]; ok {
		return seen
	}
	var seen []clienthistory.Seen
	list, err := batch.ReadRecords(b.bytes, &b.h)
	if err != nil {
		seen = []clienthistory.Seen{{Offset: b.h.BaseOffset}} // nobody wrote that
	}
	for _, r := range list {
		n, _ := strconv.ParseUint(string(r.Value), 10, 32)
		seen = append(seen, clienthistory.Seen{Offset: b.h.BaseOffset + int64(r.OffsetDelta), Record: clienthistory.NewRecord(1, uint32(n))})
	}
	h.records[b.m.Bytes] = seen
	return seen
}

// cut notes that a log lost its end.
func (h *history) cut(l *partitionLog, at, end int64, who model.Who) {
	k := h.of(l)
	switch {
	case k == nil:
	case l.c == k.writer && at < h.w.start(l): // what was taken out of copies is there again
		k.over = true
	case l.c == k.writer:
		for _, b := range l.from(at) { // whoever decided thinks that this is done, and goes on in a transaction that hangs
			k.over = k.over || b.m.Kind == model.Commit || b.m.Kind == model.Abort
		}
		h.turn(k, l.c, at, clienthistory.Range{From: at, To: end})
		k.parted = min(k.parted, at)
	case l.c == k.follows:
	case who == model.Cluster:
		k.over = true
	case who == model.Mirror:
		k.cut = true
	}
}

func (h *history) turn(k *judged, to *cluster, offset int64, lost clienthistory.Range) {
	h.h.Turns = append(h.h.Turns, clienthistory.Turn{At: h.now(), Partition: k.id, From: k.writer.name, To: to.name, Offset: offset, Lost: lost, Aborted: k.aborted})
	h.w.say("clients of %v go from %s to %s at %d; lost is %v, aborted %v", k.id, k.writer.name, to.name, offset, lost, k.aborted)
	k.writer, k.aborted = to, nil
	k.wrote[h.w.index(to)] = true
	k.turns = append(k.turns, offset)
}

// taken notes what retention, DeleteRecords or compaction takes out of a log.
func (h *history) taken(l *partitionLog, from, to int64, why string) {
	if k := h.of(l); k != nil {
		g := clienthistory.Gone{At: h.now(), Partition: k.id, Cluster: l.c.name, Range: clienthistory.Range{From: from, To: to}, Why: why}
		if l.c == k.writer {
			g.Cluster = ""
		}
		h.h.Gone = append(h.h.Gone, g)
	}
}

// lacks says that retention, DeleteRecords or compaction took something out of this part of a log alone: whoever reads over it there was not given what others are.
func (h *history) lacks(k *judged, l *partitionLog, from, to int64) bool {
	return slices.ContainsFunc(h.h.Gone, func(g clienthistory.Gone) bool {
		return g.Partition == k.id && g.Cluster == l.c.name && g.Range.From < to && from < g.Range.To
	})
}

// told notes what a mirror says of what it does.
func (h *history) told(r *runner, n *partition.Note) {
	k := h.of(r.l)
	if k == nil {
		return
	}
	switch n.Kind {
	case partition.MarkersWritten:
		for _, a := range n.Aborts {
			if list := r.l.from(a.Offset); len(list) > 0 && list[0].h.ProducerID == a.ProducerID {
				h.decidedBy(k, r.l, &list[0])
			}
		}
	case partition.RecordsLost: // the end of a transaction may lie in a hole that is kept: how it ends in the copy is nobody's word
		k.over = k.over || len(r.core.Status().InFlight) > 0
	case partition.RecordsDropped:
		h.dropped(r.l, n.Truncated.From, n.Truncated.To)
	}
}

func (h *history) dropped(l *partitionLog, from, to int64) {
	k := h.of(l)
	switch {
	case k == nil || k.follows == l.c:
	case k.given.From == k.given.To:
		k.given = clienthistory.Range{From: from, To: to}
	default:
		k.given = clienthistory.Range{From: min(k.given.From, from), To: max(k.given.To, to)}
	}
}

// aborts notes the transaction that begins at an offset of a copy as aborted there.
func (h *history) aborts(k *judged, l *partitionLog, first int64) {
	list := l.from(first)
	if len(list) == 0 || list[0].h.Control() || list[0].h.BaseOffset > first {
		return
	}
	for _, s := range h.in(&list[0]) {
		if t := h.transactionOf(s.Record); t != 0 && !slices.Contains(k.aborted, t) {
			k.aborted = append(k.aborted, t)
		}
	}
}

func (h *history) transactionOf(r clienthistory.Record) clienthistory.Transaction {
	if n := int(uint32(r)); n > 0 && n <= len(h.transactions) {
		return h.transactions[n-1]
	}
	return 0
}

// mirrors notes that a copy is in step with the source's log, as far as it goes: it has given up what it had of its own. One that somebody has taken meanwhile is not: the mirror will notice.
func (h *history) mirrors(r *runner) {
	k := h.of(r.l)
	switch {
	case r.l.open:
	case k == nil && !r.l.gone && int(r.l.at.Partition) < len(h.partitions), k != nil && k.follows != r.l.c && k.writer != r.m.source:
		h.anew(r)
	case k == nil || k.follows == r.l.c:
	default:
		for _, p := range r.m.processes { // a process that was overtaken may have made the cut, and comes later to telling of it, or not at all: the sink has the records
			for _, o := range p.runners {
				for _, d := range o.unsaid {
					if o.l == r.l {
						h.dropped(r.l, d.from, d.to)
					}
				}
			}
		}
		h.w.say("%s follows %s in %v; given up is %v", r.l.c.name, k.writer.name, k.id, k.given)
		h.h.Rejoins = append(h.h.Rejoins, clienthistory.Rejoin{At: h.now(), Partition: k.id, Cluster: r.l.c.name, GivenUp: k.given})
		k.follows, k.given, k.cut, k.aborted = r.l.c, clienthistory.Range{}, false, nil
	}
}

// anew begins a history with what a source has.
func (h *history) anew(r *runner) {
	l := r.m.source.log(r.l.at.Topic, r.l.at.Partition)
	if l == nil || !l.open || r.l.open || !begins(l, r.l) { // a copy that may still have something else
		h.partitions[r.l.at.Partition].over = true
		return
	}
	h.eras++
	k := &judged{id: clienthistory.Partition{Topic: fmt.Sprintf("%s, era %d", l.at.Topic, h.eras), Partition: l.at.Partition}, writer: l.c, follows: r.l.c, wrote: [2]bool{true, true}, parted: math.MaxInt64}
	h.partitions[l.at.Partition], h.h.First[k.id] = k, l.c.name
	h.w.say("%v begins with %s, and %s follows", k.id, l.c.name, r.l.c.name)
	s := h.span()
	late, parted := s, h.deposed(k, l)
	if k.over {
		return
	}
	if parted < math.MaxInt64 {
		late = h.span()
	}
	final := h.final(l, k).Records
	seen := make(map[clienthistory.Seen]bool, len(final))
	for _, record := range final {
		seen[record] = true
	}
	has, open, committed := map[clienthistory.Record]bool{}, h.view(l).InFlight(), map[clienthistory.Transaction]bool{}
	for _, e := range h.h.Ends {
		committed[e.Transaction] = e.Commit
	}
	for i := range l.batches {
		b := &l.batches[i]
		if b.h.Control() {
			continue
		}
		for _, record := range h.in(b) {
			if t := h.transactionOf(record.Record); t != 0 { // its marker is lost, and the next one of its producer decides what hangs: as for cut. Or another's marker, in a log that somebody took, has decided it
				commit, ended := committed[t]
				k.over = k.over || !commit && seen[record] || ended && slices.ContainsFunc(open, func(t producerstate.Transaction) bool {
					return t.ProducerID == b.h.ProducerID && t.FirstOffset <= b.h.BaseOffset
				})
			}
			w := clienthistory.Produce{Span: s, Cluster: l.c.name, Partition: k.id, Record: record.Record, Offset: record.Offset, Transaction: h.transactionOf(record.Record), Outcome: clienthistory.OK}
			if record.Offset >= parted {
				w.Span = late
			}
			if record.Offset < l.start || b.next() > l.high || !seen[record] { // not to be seen, or nobody can tell yet
				w.Outcome = clienthistory.Unknown
			}
			h.h.Produces = append(h.h.Produces, w)
			has[record.Record] = true
		}
	}
	for _, w := range h.h.Produces { // what it has no more may still be under way
		if w.Partition.Partition == k.id.Partition && w.Partition != k.id && !has[w.Record] {
			has[w.Record] = true
			w.Span, w.Cluster, w.Partition, w.Outcome = s, l.c.name, k.id, clienthistory.Unknown
			h.h.Produces = append(h.h.Produces, w)
		}
	}
	for _, p := range h.w.groups.placed {
		if p.l == l || p.l == r.l && p.who == model.Mirror && p.at.Offset <= r.l.end { // the source had it there too, though somebody may have rewound it since
			h.h.Commits = append(h.h.Commits, clienthistory.Commit{Span: h.span(), Group: p.name, Cluster: l.c.name, Partition: k.id, Offset: p.at.Offset, Outcome: clienthistory.OK})
		}
	}
	for _, c := range h.w.clients.consumers {
		c.at[l.at.Partition] = place{}
	}
}

// deposed ends the lines of a source's leaders that were deposed by unclean elections and go on answering: a copy may begin with what they have. It returns the first offset at which one has something else.
func (h *history) deposed(k *judged, l *partitionLog) (parted int64) {
	lost := clienthistory.Range{From: math.MaxInt64}
	for i := range l.deposed {
		d := &l.deposed[i]
		n := len(d.batches)
		for n > 0 && d.batches[n-1].next() > l.start && !slices.ContainsFunc(l.from(d.batches[n-1].h.BaseOffset), func(b held) bool { return b.m.Bytes == d.batches[n-1].m.Bytes }) {
			n--
		}
		if n == len(d.batches) || h.w.now >= d.until {
			continue
		}
		lost.From, lost.To = min(lost.From, max(d.batches[n].h.BaseOffset, l.start)), max(lost.To, d.end)
		for _, b := range d.batches[n:] {
			k.over = k.over || b.m.Kind == model.Commit || b.m.Kind == model.Abort // as for cut
		}
	}
	if lost.From < math.MaxInt64 {
		h.turn(k, l.c, lost.From, lost)
		k.parted = lost.From
	}
	return lost.From
}

// opens notes that clients may write a log: where it is a copy that was followed until now, that is a failover.
func (h *history) opens(l *partitionLog, r *runner) {
	k := h.of(l)
	if n := len(l.batches); r != nil && n > 0 && l.batches[n-1].m.Kind == model.Reset { // nobody has written since
		for _, p := range h.w.groups.placed {
			p.left = p.left || p.l == l && p.at.Offset > l.end
		}
	}
	if k == nil || l.c == k.writer {
		return
	}
	if k.follows != l.c {
		if k.wrote[h.w.index(l.c)] || r == nil { // it goes on as the cluster that clients had left; or somebody has taken it
			k.over = k.cut || !k.wrote[h.w.index(l.c)]
			return
		}
		k.parted = 0 // a copy that never came to copying
	}
	k.follows = nil
	var lmo int64
	if r != nil && r.core.Status().LME != nil {
		lmo = r.core.Status().LME.Offset
	} else { // somebody has taken it: nobody says where it ended
		k.over = true
		return
	}
	source := r.m.source.log(l.at.Topic, l.at.Partition)
	at := lmo
	if k.parted < lmo {
		at = k.parted
		if source != nil {
			at = min(lmo, common(l, source, k.parted))
		}
	}
	h.turn(k, l.c, at, clienthistory.Above(at))
	k.parted, k.given = math.MaxInt64, clienthistory.Range{}
	for _, g := range h.h.Gone { // what it lacks alone nobody will get from it
		if g.Partition == k.id && g.Cluster == l.c.name {
			g.At, g.Cluster = h.now(), ""
			h.h.Gone = append(h.h.Gone, g)
		}
	}
	for _, p := range h.w.groups.placed {
		if p.l == l {
			theirs := h.w.groups.find(p.name, source)
			p.left = p.who != model.Mirror || !h.w.groups.settled(r, p.name) || p.at.Offset > at || theirs != nil && theirs.left ||
				theirs != nil && theirs.at.Offset != p.at.Offset && h.w.groups.isActive(l.c, p.name)
		}
	}
}

// marked notes that the copy ends its line here: its stop writes marks, and it is not open yet.
func (h *history) marked(l *partitionLog, at int64) {
	if k := h.of(l); k != nil && k.follows == l.c {
		k.parted = min(k.parted, at)
	}
}

// decidedBy names the transaction that a marker ends.
func (h *history) decidedBy(k *judged, l *partitionLog, marker *held) {
	for i := len(l.batches) - 1; i >= 0; i-- {
		if b := &l.batches[i]; b.h.BaseOffset < marker.h.BaseOffset && b.h.ProducerID == marker.h.ProducerID {
			if b.h.Control() {
				return
			}
			h.aborts(k, l, b.h.BaseOffset)
		}
	}
}

// begins says that a copy has just what a log begins with.
func begins(l, follower *partitionLog) bool {
	n := 0
	for n < len(l.batches) && l.batches[n].next() <= follower.end {
		n++
	}
	return l.start == follower.start && n == len(follower.batches) && slices.EqualFunc(l.batches[:n], follower.batches, func(a, b held) bool { return a.m.Bytes == b.m.Bytes })
}

// common is the first offset from from on at which a copy has something else than its source.
func common(l, source *partitionLog, from int64) int64 {
	theirs, at := source.from(from), from
	for i, b := range l.from(from) {
		if i >= len(theirs) || theirs[i].m.Bytes != b.m.Bytes {
			return at
		}
		at = b.next()
	}
	return l.end
}

// rest notes what copies hold at rest.
func (h *history) rest(r *runner) {
	if k := h.of(r.l); k != nil && k.follows == r.l.c && k.writer == r.m.source && r.l.high == r.l.end {
		h.rested = append(h.rested, h.final(r.l, k))
	}
}

// final is a log as a new reader of committed records reads it after every transaction that is open was ended by its timeout.
func (h *history) final(l *partitionLog, k *judged) clienthistory.Log {
	out := clienthistory.Log{Cluster: l.c.name, Partition: k.id, End: l.high}
	v := h.view(l)
	aborted, open := v.Aborted(l.start, l.end), v.InFlight()
	for i := range l.batches {
		b := &l.batches[i]
		if b.h.Control() || b.h.BaseOffset >= l.high {
			continue
		}
		hidden := false
		if b.h.Transactional() {
			for _, a := range aborted {
				hidden = hidden || a.ProducerID == b.h.ProducerID && a.FirstOffset <= b.h.BaseOffset && b.h.BaseOffset < a.LastOffset
			}
			for _, t := range open {
				hidden = hidden || t.ProducerID == b.h.ProducerID && t.FirstOffset <= b.h.BaseOffset
			}
		}
		if !hidden {
			for _, s := range h.in(b) {
				if s.Offset >= l.start {
					out.Records = append(out.Records, s)
				}
			}
		}
	}
	return out
}

// judge judges all that was noted.
func (h *history) judge() {
	w := h.w
	over := func(p clienthistory.Partition) bool {
		k := h.partitions[p.Partition]
		return k.over || k.id != p
	}
	var f clienthistory.Final
	for _, k := range h.partitions {
		if k.over {
			continue
		}
		l := k.writer.log(w.mirrors[0].topic, k.id.Partition)
		if l == nil {
			k.over = true
			continue
		}
		f.Logs = append(f.Logs, h.final(l, k))
		for _, rested := range h.rested {
			if rested.Partition == k.id && rested.Cluster != k.writer.name {
				f.Logs = append(f.Logs, rested)
			}
		}
	}
	for _, k := range h.partitions {
		if k.over {
			w.stats.Unjudged++
		} else {
			w.stats.Judged++
		}
	}
	if len(f.Logs) == 0 {
		return
	}
	for _, p := range w.clients.producers { // decided, and some markers cannot be written: its log is closed
		for _, x := range p.wrote {
			for i := range h.h.Produces {
				if r := &h.h.Produces[i]; p.ended && r.Transaction == p.transaction && r.Partition.Partition == x.l.at.Partition {
					h.h.Gone = append(h.h.Gone, clienthistory.Gone{At: h.now(), Partition: r.Partition, Range: clienthistory.Range{From: r.Offset, To: r.Offset + 1}, Why: "not decided there"})
				}
			}
		}
	}
	h.h.Produces = slices.DeleteFunc(h.h.Produces, func(p clienthistory.Produce) bool { return over(p.Partition) })
	h.h.Polls = slices.DeleteFunc(h.h.Polls, func(p clienthistory.Poll) bool { return over(p.Partition) })
	h.h.Seeks = slices.DeleteFunc(h.h.Seeks, func(s clienthistory.Seek) bool { return over(s.Partition) })
	for _, a := range clienthistory.Check(h.h, f) {
		v := model.Violation{Rule: string(a.Kind), Source: "what clients saw", What: a.String()}
		w.say("VIOLATION %v", v)
		w.broken = append(w.broken, v)
	}
}
