package model

// StoredEnd: this last-mirror-epoch record was written.
func (w *World) StoredEnd(of Of, e End) {
	m, l := w.member(of), w.log(of.At)
	old := m.end
	again := old != nil && old.Episode == e.Episode
	switch {
	case m.state() != stopping || e.Episode != m.record.Episode:
		w.fault("end once", "%v: an end of episode %d is recorded in state %d", of, e.Episode, m.state())
	case again && (old.LME != e.LME || old.LMO != e.LMO && old.LMO >= 0):
		w.fault("end once", "%v: recorded was LME %d LMO %d, now %d %d in the same episode %d", of, old.LME, old.LMO, e.LME, e.LMO, e.Episode)
	case !again && e.LME != l.latest(), e.LMO >= 0 && !(again && old.LMO >= 0) && (e.LMO != l.end || l.replicated != l.end), m.source.Cluster != "" && e.SourceCluster != m.source.Cluster:
		w.fault("end value", "%v: recorded is %+v; latest epoch %d, end %d, replicated %d, source %s", of, e, l.latest(), l.end, l.replicated, m.source.Cluster)
	}
	m.end = &e
}

// Gate: clients can write the log from now on, or no more.
func (w *World) Gate(at At, who Who, by string, open bool) {
	l := w.log(at)
	m := w.acting(at)
	if who == Mirror {
		m = w.owned(l, by, "turns the gate")
	}
	switch {
	case m == nil || open == l.open:
	case open && m.state() != stopping && m.state() != stopped:
		w.fault("gate state", "%v is opened in state %d", at, m.state())
	case open:
		w.opens(m, l)
		m.opened = m.record.Episode
	case who == Mirror && m.state() != preparing && m.state() != mirroring:
		w.fault("gate state", "%v is closed in state %d", at, m.state())
	case who == Mirror:
		w.closes(m, l)
	}
	l.open, l.opened = open, l.opened || open
}

// opens judges the moment in which a copy becomes a log that clients write (invariants 4 and 5). What was opened in this episode before is only opened again.
func (w *World) opens(m *member, l *log) {
	end := m.ended()
	if end == nil || end.LMO < 0 || l.epoch <= end.LME {
		w.fault("early open", "%v is opened under epoch %d; recorded is %+v", m.of, l.epoch, m.end)
		return
	}
	if m.opened == m.record.Episode {
		return
	}
	if n := l.resets(end.LMO); n != 1 || l.replicated != l.end {
		w.fault("early open", "%v is opened with %d resets, replicated to %d of %d", m.of, n, l.replicated, l.end)
	}
	if open := l.transactions(); len(open) > 0 {
		w.fault("open transaction", "%v is opened with transactions %v", m.of, open)
	}
	if id := l.producer(); id > w.settled[m.of.Cluster] {
		w.fault("settled", "%v is opened with producer %d; ids are settled to %d", m.of, id, w.settled[m.of.Cluster])
	}
}

// producer is the highest producer id in a log.
func (l *log) producer() (id int64) {
	for _, v := range l.batches {
		id = max(id, v.ProducerID)
	}
	return id
}

// closes judges a start that closes an open log: what needs a consent has one before the gate is touched (decision 7). What clients wrote since the start was recorded is for the cut to judge.
func (w *World) closes(m *member, l *log) {
	if w.against(m) {
		w.fault("opposite", "%v is closed while the opposite mirror runs", m.of)
	}
	for _, v := range l.batches {
		has := w.log(m.source).find(v.Batch)
		if v.Kind == Data && v.Last < m.prepared && (has == nil || has.died != never) && !m.allows(v.Base, v.Last+1) {
			w.fault("untouched gate", "%v is closed without a consent to drop [%d, %d]; consents are %v", m.of, v.Base, v.Last, m.consents)
			return
		}
	}
}

// stands judges STOPPED: open, ended, nothing of the mirror's lost (decisions 4 and 19).
func (w *World) stands(m *member, l *log) {
	if !l.open || m.ended() == nil || m.ended().LMO < 0 {
		w.fault("closed STOPPED", "%v is STOPPED; open is %v, recorded %+v", m.of, l.open, m.end)
	} else if l.end < m.end.LMO {
		w.fault("lost log", "%v is STOPPED with end %d; LMO is %d", m.of, l.end, m.end.LMO)
	}
}

// GivenID: the cluster gave a client this producer id.
func (w *World) GivenID(cluster string, id int64) {
	if highest, ok := w.settled[cluster]; ok && id <= highest {
		w.fault("settled id", "%s gives producer id %d; ids to %d were settled", cluster, id, highest)
	}
}

// Settled: the cluster gives no producer id at or below highest any more.
func (w *World) Settled(cluster string, highest int64) {
	w.settled[cluster] = max(w.settled[cluster], highest)
}
