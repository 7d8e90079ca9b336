package model

import (
	"cmp"
	"slices"
)

// Cut: the log now ends at end, and every batch that held an offset from end on is gone. For a cut by a mirror by is its process.
func (w *World) Cut(at At, who Who, by string, end int64) {
	l := w.log(at)
	if who == Mirror {
		m := w.owned(l, by, "cuts")
		w.mirrorCuts(m, l, end)
		kept := l.batches[:below(l.batches, end)]
		marked := len(kept) > 0 && kept[len(kept)-1].Kind == Reset // by the source's last batch; behind the marks of an earlier stop a cut leaves what still is theirs
		l.behind, l.theirs = true, l.theirs && (!l.ended || m.end != nil && (end > m.end.LMO || marked && end == m.end.LMO))
	} else {
		w.must(w.acting(at) == nil || l.opened || end >= l.replicated, "replicated", "design.md, Log", "%v loses what lies from %d on by itself; replicated was %d", at, end, l.replicated)
	}
	l.cut(end)
}

// mirrorCuts: a mirror cuts in PREPARING, in MIRRORING, and at a stop what is not replicated; nothing else, and nothing in secret. It never drops what the source has in
// the same bytes at the same place, where that can be known; what the source never had, and all of a log that was ever open, only within a consent of this episode.
func (w *World) mirrorCuts(m *member, l *log, end int64) {
	s := m.when("cut")
	w.must(s == preparing || s == mirroring || s == stopping, "cut state", "spec §2", "%v is cut at %d in state %d", m.of, end, s)
	w.must(s == stopping || !w.against(m), "opposite", "decision 14, spec §3", "%v is cut at %d while the opposite mirror runs", m.of, end)
	if s == mirroring {
		w.proved(m, l, end)
	}
	for _, v := range l.batches[below(l.batches, end):] {
		has, allowed := w.log(m.source).ever[v.Bytes], s == stopping || m.allows(v, l.start)
		w.must(s == stopping || has == nil || has.died != never || has.born > m.proof.line || allowed && !w.known(m, v), "cut common", "decision 15, spec §3", "%v drops [%d, %d], which the source has", m.of, v.Base, v.Last)
		w.must(v.Kind != Data || allowed || !l.stopped && has != nil, "consent", "decision 7, decision 15", "%v drops [%d, %d] in episode %d; the source had it: %v, the log was STOPPED once: %v, consents are %v", m.of, v.Base, v.Last, m.record.Episode, has != nil, l.stopped, m.consents)
		w.must(s != stopping || v.Last >= m.safe && m.ended() == nil, "stop cut", "invariant 6, spec §5", "%v: a stop drops [%d, %d]; replicated was %d, recorded %+v", m.of, v.Base, v.Last, m.safe, m.end)
		m.owes("dropped", v, l.start)
	}
	m.hole, m.shown = 0, 0
}

// known says whether the source knows that its own mirror from us had this batch. What was copied from the source since is not known to it.
func (w *World) known(m *member, v *version) bool {
	return slices.ContainsFunc(w.members, func(o *member) bool {
		return o.of.At == m.source && o.end != nil && o.end.LMO > v.Last && o.end.LME >= v.LeaderEpoch && o.end.SourceCluster == m.of.Cluster
	})
}

// hidden says that nobody can tell any more whether the source had this batch: its log starts behind it, and what it recorded for us says that it had all of that time.
func (w *World) hidden(m *member, source *log, v *version) bool {
	return v.Last < source.start && w.known(m, v)
}

// allows says whether one consent of this episode covers a batch of a log that starts there.
func (m *member) allows(v *version, start int64) bool {
	return slices.ContainsFunc(m.consents, func(c consent) bool {
		return c.episode == m.record.Episode && c.from <= max(v.Base, start) && v.Last < c.to
	})
}

// Restarted: the log is empty and its next offset is start.
func (w *World) Restarted(at At, who Who, by string, start int64) {
	l := w.log(at)
	if who == Mirror {
		w.mirrorRestarts(w.owned(l, by, "begins again"), l, start)
		l.theirs, l.behind = false, true
	}
	l.cut(-1)
	l.start, l.end, l.replicated, l.risen = start, start, start, max(l.risen, start)
	if m := w.acting(at); m != nil { // what was told of the records from before is about no others
		m.told = map[string][]gap{}
	}
}

// mirrorRestarts: a copy begins again where the source's log starts: an empty one, one that ends before, under this policy, or one that a consent covers.
func (w *World) mirrorRestarts(m *member, l *log, start int64) {
	source, s := w.log(m.source), m.record.State
	w.must(s == preparing || s == mirroring, "cut state", "spec §2", "%v begins again at %d in state %d", m.of, start, s)
	w.must(s != mirroring || start <= l.end || m.proof.starts[0] > l.end && m.proof.starts[1] > l.end, "seen twice", "F-26, decision 16", "%v begins again at %d, end %d; the source's log started at %v when it was looked at last", m.of, start, l.end, m.proof.starts)
	w.must(start <= source.risen || len(l.batches) == 0, "restart", "decision 16", "%v begins again at %d; the source starts at %d", m.of, start, source.start)
	for _, v := range l.batches {
		has := source.ever[v.Bytes]
		w.must(s != preparing || source.since+l.since > 0 || has == nil || has.died != never || has.born > m.proof.line || !w.known(m, v), "cut common", "decision 3, spec §3", "%v begins again and drops [%d, %d], which the source has, and knows that we have", m.of, v.Base, v.Last)
		free := m.allows(v, l.start) || v.Kind != Data
		w.must(free || start > l.end && m.loss == "restart", "restart", "decision 16", "%v begins again at %d and drops [%d, %d] at end %d, policy %q", m.of, start, v.Base, v.Last, l.end, m.loss)
		w.must(free || v.who == Cluster || has != nil || w.hidden(m, source, v), "consent", "decision 7, decision 15", "%v begins again and drops [%d, %d], which the source never had", m.of, v.Base, v.Last)
		m.owes("dropped", v, l.start)
	}
	m.hole, m.shown = 0, 0
	if s == mirroring && len(l.ever) > 0 && start > l.end { // a start copies what there is
		m.owes("lost", &version{Batch: Batch{Base: l.end, Last: start - 1}}, 0)
	}
}

// StartRaised: the log start moved up; the batch that holds it stays whole. A mirror raises it to the source's at most, and never above Replicated or the floor.
func (w *World) StartRaised(at At, who Who, by string, start int64) {
	l := w.log(at)
	if who == Mirror {
		m := w.owned(l, by, "raises the start")
		source := w.log(m.source).risen // an unclean election may have taken it back since
		w.must(start <= min(source, l.replicated) && (m.floor == 0 || start <= m.floor), "start", "decision 16, design.md", "%v: start raised to %d; the source's is %d, replicated %d, the floor %d", at, start, source, l.replicated, m.floor)
	}
	for _, v := range l.batches { // what compaction took before is nobody's loss
		v.expired = v.expired || v.Last < start
	}
	l.start, l.risen = max(l.start, start), max(l.risen, start)
	l.end, l.replicated = max(l.end, l.start), max(l.replicated, l.start)
	l.batches = slices.DeleteFunc(l.batches, func(v *version) bool { return v.Last < start })
}

// Compacted: these batches took the place of all that lay between the first and the last of them; offsets may be missing, none is new.
func (w *World) Compacted(at At, from, to int64, batches []Batch) {
	l := w.log(at)
	by := func(v *version, base int64) int { return cmp.Compare(v.Base, base) }
	l.batches = slices.DeleteFunc(l.batches, func(v *version) bool { return v.Last >= from && v.Base < to && !slices.Contains(batches, v.Batch) })
	for _, b := range batches {
		i, there := slices.BinarySearchFunc(l.batches, b.Base, by)
		if there {
			continue
		}
		v := &version{Batch: b, who: Cluster, born: l.line, died: never}
		l.batches, l.ever[b.Bytes] = slices.Insert(l.batches, i, v), v
		i, _ = slices.BinarySearchFunc(l.alive, b.Base+1, by)
		l.alive = slices.Insert(l.alive, i, v)
	}
}
