package model

// Rest: every fault has been healed, and nothing moves any more. Every partition must have come to where its wish is, or say why a person is needed.
func (w *World) Rest(of Of) {
	m, l := w.member(of), w.log(of.At)
	for _, what := range []string{"dropped", "lost", "hole"} {
		for _, g := range m.untold(what) {
			w.fault("told", "%v: [%d, %d) was not told as %s", of, g.from, g.to, what)
		}
	}
	clear(m.need)
	s := m.state()
	person := s == failed && m.record.Attempt == -1 && m.record.Message != ""
	want := map[Wish]int8{WantMirroring: mirroring, WantPaused: paused, WantStopped: stopped}[m.wish]
	switch {
	case s != want && !person:
		w.fault("rest state", "%v rests in state %d; wished is %d, the record %+v", of, s, m.wish, m.record)
	case s == stopped && !l.open:
		w.fault("rest state", "%v rests STOPPED and closed", of)
	case s == mirroring:
		w.restBytes(m, l, w.log(m.source))
		w.restGroups(m, l)
	}
}

// Stopped: faults were healed except that the source stays lost, a stop was wished, and bound has passed (invariant 8).
func (w *World) Stopped(of Of) {
	m, l := w.member(of), w.log(of.At)
	lost := m.state() == failed && m.record.Attempt == -1 && m.ended() != nil && l.end < m.end.LMO
	if !lost && (m.state() != stopped || !l.open) {
		w.fault("stop ends", "%v: state %d, open %v, after a stop had its time: %+v", of, m.state(), l.open, m.record)
	}
}

// restBytes compares a copy with its source: each batch of the copy is of the source's line, and nothing that the source shows is missing unless that was told.
func (w *World) restBytes(m *member, l, source *log) {
	if l.start < source.start && source.start <= l.end && m.floor == 0 && m.loss != "keep" {
		w.fault("rest start", "%v starts at %d; the source's log starts at %d", m.of, l.start, source.start)
	}
	for _, v := range l.batches {
		if has := source.find(v.Batch); v.who != Cluster && (has == nil || has.died != never) {
			w.fault("rest bytes", "%v holds [%d, %d], which the source does not", m.of, v.Base, v.Last)
			return
		}
	}
	i := 0
	for _, s := range source.batches {
		for i < len(l.batches) && l.batches[i].Last < s.Base {
			i++
		}
		there := i < len(l.batches) && l.batches[i].Base <= s.Last
		if !there && s.Base >= l.start && s.Last < source.replicated && !m.excused(s.Base, s.Last+1) {
			w.fault("rest bytes", "%v lacks [%d, %d], which the source has; it is [%d, %d)", m.of, s.Base, s.Last, l.start, l.end)
			return
		}
	}
}

// excused says whether records that are missing were told as lost or as a hole.
func (m *member) excused(from, to int64) bool {
	for _, what := range []string{"lost", "hole"} {
		for _, t := range m.told[what] {
			if t.from <= from && to <= t.to {
				return true
			}
		}
	}
	return false
}
