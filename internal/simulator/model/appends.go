package model

import "slices"

// Appended: whole batches now lie at the log's end, in this order. by names the process or client. accepted says that the writer was told so (a client's acknowledgement).
func (w *World) Appended(at At, who Who, by string, batches []Batch, accepted bool) {
	l := w.log(at)
	for _, b := range batches {
		first := len(l.batches) == 0 && b.Last >= l.start // F-07: an empty log takes the batch that holds its start
		w.must(b.Last >= b.Base && (b.Base >= l.end || first), "order", "invariant 2", "%v: batch [%d, %d] is appended to a log that ends at %d", at, b.Base, b.Last, l.end)
		w.must(b.LeaderEpoch <= l.epoch && (b.LeaderEpoch >= l.latest() || len(l.batches) == 0), "epoch fence", "invariant 3", "%v: batch at %d has epoch %d; the log's is %d, its last record's %d", at, b.Base, b.LeaderEpoch, l.epoch, l.latest())
		if who == Mirror {
			w.mirrorWrites(w.owned(l, by, "appends"), l, w.log(w.acting(at).source), b)
		} else if m := w.acting(at); who == Clients {
			w.must(l.open, "closed gate", "invariant 4", "%v: client %s wrote [%d, %d] to a closed log", at, by, b.Base, b.Last)
			w.must(m == nil || m.record.State != stopped || m.ended() == nil || b.LeaderEpoch > m.end.LME, "above the end", "invariant 5", "%v: client %s wrote at %d under epoch %d, which LME is not below", at, by, b.Base, b.LeaderEpoch)
		}
		l.add(b, who)
	}
	l.theirs = l.theirs && who != Mirror
}

// mirrorWrites: what a mirror appends lay at this place of the source's log in these bytes, or is a marker of its own.
func (w *World) mirrorWrites(m *member, l, source *log, b Batch) {
	own := b.Kind == Abort || b.Kind == Reset
	if v := source.ever[b.Bytes]; v != nil && !(own && m.record.State == stopping && m.ended() != nil) {
		w.copied(m, l, source, v)
	} else if w.must(own, "log matching", "invariant 1", "%v: the source never had [%d, %d] in these bytes", l.at, b.Base, b.Last) {
		w.marked(m, l, b)
	}
}

// copied: a batch of the source is appended while MIRRORING (what is under way when that ends may land until LME is recorded), on top of the log that it lay on at the source.
func (w *World) copied(m *member, l, source *log, v *version) {
	s := m.when("append")
	w.must(s == mirroring && (m.record.State != stopping || m.ended() == nil), "copies", "spec §2, decision 5", "%v: a batch of the source is appended at %d in state %d", m.of, v.Base, s)
	w.must(!w.against(m), "opposite", "decision 14, spec §3", "%v copies at %d while the opposite mirror runs", m.of, v.Base)
	w.must(!l.behind, "replica wait", "decision 22, spec §3", "%v copies at %d, and not every replica has followed the last cut", m.of, v.Base)
	if n := len(l.batches); n > 0 && l.batches[n-1].who != Cluster && l.batches[n-1].Last >= source.start { // what the source has no more cannot be compared
		p := l.batches[n-1]
		below := source.ever[p.Bytes]
		w.must(below != nil && below.with(v), "log matching", "invariant 1", "%v: [%d, %d] is appended on [%d, %d], which the source did not have below it", m.of, v.Base, v.Last, p.Base, p.Last)
	}
	w.asked(m, l, source, v)
	w.overlooked(m, l, source, v)
	m.hole, m.shown = 0, 0
}

// overlooked: nothing that the source has is left out, and what it has no more is told as a hole.
func (w *World) overlooked(m *member, l, source *log, v *version) {
	for i := below(source.alive, l.end); v.died == never && i < len(source.alive) && source.alive[i].Base < v.Base; i++ { // an empty log may begin inside a batch (F-07)
		s := source.alive[i]
		w.must(s.Last >= v.Base || !slices.Contains(source.batches, s), "skipped", "invariant 1", "%v: [%d, %d] is appended at end %d; the source has [%d, %d]", m.of, v.Base, v.Last, l.end, s.Base, s.Last)
		if s.expired && len(l.ever) > 0 {
			m.owes("hole", s, l.end)
		}
	}
}

// marked: after LME and a higher epoch, one ABORT per open transaction in the order of first offsets, then exactly one reset, none at an offset that the source is known to have used.
func (w *World) marked(m *member, l *log, b Batch) {
	end, open := m.ended(), transactions(l.batches)
	if !w.must(m.record.State == stopping && end != nil && b.LeaderEpoch > end.LME, "early marker", "spec §5, decision 5", "%v: marker at %d under epoch %d in state %d; recorded is %+v", m.of, b.Base, b.LeaderEpoch, m.record.State, m.end) {
		return
	}
	w.must(b.Base == max(l.end, m.hole, m.record.Hole[l.end]) || b.Base == m.shown || len(l.batches) == 0, "used offset", "decision 18", "%v: own batch at %d; the log ends at %d, the source is known to end at %d", m.of, b.Base, l.end, max(m.hole, m.record.Hole[l.end]))
	reset := slices.ContainsFunc(l.batches[below(l.batches, end.LMO):], func(v *version) bool { return v.Kind == Reset })
	w.must(!reset && (b.Kind != Reset || len(open) == 0), "reset", "spec §5, decision 6", "%v: marker of kind %d at %d; a reset is there: %v, open are %v", m.of, b.Kind, b.Base, reset, open)
	is := func(t Batch) bool { return t.ProducerID == b.ProducerID && t.ProducerEpoch == b.ProducerEpoch }
	began := slices.DeleteFunc(transactions(l.alive), func(t Batch) bool { // a process that saw what retention has taken knows who began first
		return !slices.ContainsFunc(open, func(o Batch) bool { return o.ProducerID == t.ProducerID })
	})
	first := slices.IndexFunc(open, is)
	w.must(b.Kind == Reset || first == 0 || first > 0 && (open[0].Base < l.start || is(began[0])), "abort", "spec §5", "%v: ABORT at %d for producer %d epoch %d; open are %v", m.of, b.Base, b.ProducerID, b.ProducerEpoch, open)
}

// against says whether a mirror of the other direction is beyond its own check.
func (w *World) against(m *member) bool {
	running := []int8{mirroring, fencing, pausing, paused, stopping}
	return w.opposite(m, func(o *member) bool { return o.beyond && slices.Contains(running, o.record.State) })
}

// Began: the mirror's process begins a call on its destination: "append", "cut", "restart", "start", "epoch", "open", "close", "group NAME", or the write of a record, "record". What it does may come late, when the state is another one already;
// it is judged by the state in which it was begun. At a stop LME is recorded before a higher epoch is asked for.
func (w *World) Began(of Of, call string, offset int64) {
	m, l := w.member(of), w.log(of.At)
	m.began[call], m.room[call], m.late = m.record.State, gap{l.start, l.replicated}, m.late && call != "record"
	w.must(call != "append" || offset >= l.end || l.open || len(l.batches) == 0, "order", "invariant 2, F-38", "%v: batches from %d on are offered to a log that ends at %d", of, offset, l.end)
	w.must(call != "start" || offset <= l.replicated || l.taken, "start", "decision 11", "%v asks for a log start of %d; replicated is %d", of, offset, l.replicated)
	w.must(call != "start" || m.loss != "keep", "start", "decision 16", "%v follows the source's log start to %d; the policy is to keep", of, offset)
	if call == "close" {
		m.closing = m.prepared
	}
	for _, g := range w.groups {
		if g.at == of.At && call == "group "+g.name {
			g.free = g.who == Mirror || !g.theirs || g.passed // somebody may move it away and back until the call is done: nobody can tell
		}
	}
	w.must(call != "epoch" || m.record.State != stopping || m.ended() != nil || l.open || l.theirs, "raised epoch", "spec §5, decision 5", "%v asks for a higher leader epoch before LME is recorded", of)
}

// EpochRaised: the log's leader epoch is another one: an election, or a mirror's request, which once STOPPED goes no further than above LME.
func (w *World) EpochRaised(at At, who Who, by string, epoch int32) {
	l := w.log(at)
	w.must(epoch >= l.epoch || who == Cluster && !l.open, "epoch fence", "invariant 3", "%v: the leader epoch went from %d back to %d", at, l.epoch, epoch)
	if who == Mirror {
		m := w.owned(l, by, "raises the epoch")
		w.must(m.record.State != stopped || m.end != nil && (l.epoch <= m.end.LME || !l.open), "raised epoch", "decision 4, spec §5", "%v: the leader epoch is raised to %d although it is STOPPED; recorded is %+v", at, epoch, m.end)
	}
	l.epoch, l.top = epoch, max(l.top, epoch)
}
