package model

import "slices"

// StoredEnd: this last-mirror-epoch record is in the store: once per episode, while STOPPING, with the log's latest epoch and its replicated end.
func (w *World) StoredEnd(of Of, e End) {
	m, l, old := w.member(of), w.log(of.At), w.member(of).end
	if old != nil && *old == e {
		return
	}
	fills := old != nil && old.Episode == e.Episode && old.LME == e.LME && old.LMO < 0
	w.must(m.record.State == stopping && e.Episode == m.record.Episode && (m.ended() == nil || fills), "end once", "decision 5", "%v: %+v is recorded in state %d episode %d; recorded was %+v", of, e, m.record.State, m.record.Episode, old)
	carried := old != nil && m.ended() == nil && (l.theirs || !m.beyond) && old.LME == e.LME && old.LMO == e.LMO // the log still is as the stop before left it
	value := l.taken && e.LMO >= 0 && e.LMO <= max(l.own, l.start) && (latest(l.alive, e.LMO) == e.LME || latest(l.batches, e.LMO) == e.LME || e.LME < 0 && e.LMO <= l.start) || carried || !l.taken && (fills || e.LME == l.latest() || e.LME == latest(l.batches, never)) && (e.LMO < 0 || e.LMO == l.end && e.LMO == l.replicated) && (m.source.Cluster == "" || e.SourceCluster == m.source.Cluster || e.SourceCluster == "" && !m.beyond)
	w.must(value || m.ended() != nil && !fills, "end value", "spec §5, decision 5", "%v: recorded is %+v; latest epoch %d, end %d, replicated %d, source %v", of, e, l.latest(), l.end, l.replicated, m.source)
	claims := !carried && !m.beyond && !l.taken && slices.ContainsFunc(l.batches, func(v *version) bool { return v.who == Clients && v.Last < e.LMO && w.unknown(m, v) })
	w.must(!claims, "end value", "decision 7", "%v: recorded is %+v, and nothing was mirrored in this episode; below it clients wrote what the source does not have", of, e)
	w.must(l.taken || m.hole <= max(l.end, m.record.Hole[l.end]), "used offset", "decision 18", "%v: recorded is %+v, and not that the source is known to end at %d", of, e, m.hole)
	m.end, l.ended = &e, true
}

// Gate: clients can write the log from now on, or no more. A mirror opens it at a stop and closes it at a start.
func (w *World) Gate(at At, who Who, by string, open bool) {
	l, m := w.log(at), w.acting(at)
	if who == Mirror {
		m = w.owned(l, by, "turns the gate")
	}
	w.must(who != Mirror || !open || m.ended() == nil || l.epoch > m.end.LME, "early open", "invariant 5, spec §5", "%v is opened under epoch %d; recorded is %+v", at, l.epoch, m.end)
	if m != nil && open && !l.open && who == Cluster {
		l.taken, l.own, l.theirs = true, l.end, l.theirs || !m.beyond
	} else if m != nil && open != l.open && (open || who == Mirror) && !(open && l.theirs) { // what was theirs is given back (decision 7)
		s := m.when(map[bool]string{true: "open", false: "close"}[open])
		ended := m.record.State == stopped || m.record.State == stopping && m.ended() != nil // what was begun before must not come as late as this
		ok := open && (s == stopping || s == stopped || s == failed && m.record.Previous == stopping) || !open && !ended && (s == preparing || s == mirroring)
		if w.must(ok, "gate state", "spec §2, decision 4", "%v turns to open %v in state %d", at, open, s) && open {
			w.opens(m, l)
		} else if ok {
			w.closes(m, l)
		}
	}
	if m != nil && open && m.ended() != nil {
		m.opened = m.record.Episode
	}
	l.open, l.opened, l.theirs, l.taken = open, l.opened || open, l.theirs || open && !l.taken, l.taken && (open || who == Cluster)
}

// Knows: an open log's leader remembers these producers: none from before the last reset.
func (w *World) Knows(at At, producers []int64) {
	l := w.log(at)
	list := l.batches
	for i, v := range list {
		if v.Kind == Reset {
			list = l.batches[i+1:]
		}
	}
	for _, id := range producers {
		there := slices.ContainsFunc(list, func(v *version) bool { return v.ProducerID == id })
		w.must(there, "producers", "invariant 5, decision 6", "%v: producer %d is remembered from before the reset", at, id)
	}
}

// opens judges the moment in which a copy becomes a log that clients write. What was opened in this episode before is only opened again.
func (w *World) opens(m *member, l *log) {
	end := m.ended()
	if !w.must(end != nil && end.LMO >= 0 && l.epoch > end.LME, "early open", "invariant 4, spec §5", "%v is opened under epoch %d; recorded is %+v", m.of, l.epoch, m.end) {
		return
	}
	w.must(l.end >= end.LMO, "lost log", "decision 19", "%v is opened at end %d; recorded is %+v", m.of, l.end, m.end)
	if m.opened == m.record.Episode {
		return
	}
	m.opened = m.record.Episode
	id := int64(-1)
	for _, v := range l.batches {
		id = max(id, v.ProducerID)
	}
	reset := len(l.batches) > 0 && l.batches[len(l.batches)-1].Kind == Reset // its own, or the source's where nothing came after it
	w.must(reset && l.replicated == l.end, "early open", "invariant 4, spec §5", "%v is opened, the reset is its last batch: %v, replicated to %d of %d", m.of, reset, l.replicated, l.end)
	w.must(max(m.hole, m.record.Hole[l.end]) <= l.end || len(l.batches) == 1, "used offset", "decision 18", "%v is opened at %d; the source is known to end at %d", m.of, l.end, max(m.hole, m.record.Hole[l.end]))
	w.lastPlaces(m, l)
	w.must(len(transactions(l.batches)) == 0, "open transaction", "invariant 5", "%v is opened with transactions %v", m.of, transactions(l.batches))
	w.must(id <= w.settled[m.of.Cluster], "settled", "invariant 5, F-48", "%v is opened with producer %d; ids are settled to %d", m.of, id, w.settled[m.of.Cluster])
}

// closes: a start that lacks a consent does not touch the gate. What clients wrote after PREPARING was recorded is for the cut to judge.
func (w *World) closes(m *member, l *log) {
	w.must(!w.against(m), "opposite", "decision 14, spec §3", "%v is closed while the opposite mirror runs", m.of)
	prepared := min(m.prepared, m.closing)
	lacks := slices.ContainsFunc(l.batches[:below(l.batches, prepared)], func(v *version) bool { return v.born <= m.line && w.unknown(m, v) && !m.allows(v, l.start) })
	w.must(!lacks, "untouched gate", "decision 7", "%v is closed without a consent to drop all that clients wrote in [%d, %d); consents are %v", m.of, l.start, prepared, m.consents)
}

// unknown says that a mirror's source never had these records, as far as it can tell.
func (w *World) unknown(m *member, v *version) bool {
	return v.Kind == Data && v.who != Cluster && w.log(m.source).ever[v.Bytes] == nil && !w.hidden(m, w.log(m.source), v)
}

// GivenID: the cluster gave a client this producer id.
func (w *World) GivenID(cluster string, id int64) {
	highest, ok := w.settled[cluster]
	w.must(!ok || id > highest, "settled id", "F-48, invariant 5", "%v gives producer id %d; ids to %d were settled", cluster, id, highest)
}
