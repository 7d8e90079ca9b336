package model

// Rest: every fault has been healed, and nothing moves any more. Every partition must have come to where its wish is, or say why a person is needed.
func (w *World) Rest(of Of) {
	m, l := w.member(of), w.log(of.At)
	for _, what := range []string{"dropped", "lost", "hole"} {
		for _, n := range m.need[what] { // who waits for a person, or for the other mirror, has not looked at the log again
			w.must(m.record.State == failed && m.record.Attempt == -1 || m.record.State != mirroring && w.standoff(m), "told", "invariant 6, decisions 15, 16", "%v: [%d, %d) was not told as %s", of, n.from, n.to, what)
		}
	}
	s, source := m.record.State, w.log(m.source)
	// A closed source answers nothing of an epoch above all that is left of it: it waits for its own operator, and the copy for a proof (decision 15).
	answers := source.open || source.latest() >= l.latest()
	person := l.taken && s == failed || s == failed && m.record.Attempt == -1 || m.record.Attempt > 0 && (s == failed || s == preparing) && (w.standoff(m) || !source.there || !answers || source.across(l.end)) || m.wish == WantPaused && (s == unknown || s == stopped) // nothing runs that could be paused
	want := map[Wish]int8{WantMirroring: mirroring, WantPaused: paused, WantStopped: stopped}[m.wish]
	w.must(person || s == want && (s != stopped || l.open), "rest state", "invariant 7", "%v rests in state %d, open %v; wished is %d, the record %+v", of, s, l.open, m.wish, m.record)
	w.must(s != failed || m.record.Attempt != -1 || m.record.Previous != preparing || !m.record.FoundOpen || l.open || m.end != nil && l.end < m.end.LMO, "given back", "decision 7", "%v: a start was refused, and clients do not have their log back: %s", m.of, m.record.Message)
	if s == mirroring && !l.taken && answers { // it notices when it has something to append
		w.restBytes(m, l, source)
		w.restGroups(m, l)
	}
}

// Shows: the status of a partition that copies and knows its log says that readers of committed records come to stable, replicas have everything below replicated, and, if caught is not −1, that the copy
// holds what the source has below it.
func (w *World) Shows(of Of, stable, replicated, caught int64) {
	l := w.log(of.At)
	least, most := replicated, replicated
	for _, list := range [][]*version{l.alive, l.batches} { // a process that has read the log anew does not know what retention took
		if open := transactions(list[:below(list, replicated)]); len(open) > 0 {
			least, most = min(least, max(open[0].Base, l.start)), max(open[0].Base, l.start)
		} else {
			most = replicated
		}
	}
	w.must(least <= stable && stable <= most, "stable", "F-46, F-54", "%v: readers of committed records come to %d, and should to %d up to %d", of, stable, least, most)
	w.must(l.replicated >= min(caught, l.end), "caught up", "F-73, design.md, Log", "%v is said to be caught up with %d; the log ends at %d, replicated is %d", of, caught, l.end, l.replicated)
}

// Stopped: faults were healed except that the source stays lost, a stop was wished, and bound has passed.
func (w *World) Stopped(of Of) {
	m, l := w.member(of), w.log(of.At)
	lost := m.record.State == failed && m.record.Attempt == -1 && (m.record.Previous == stopping || m.record.Previous == stopped) // decision 19
	w.must(lost || m.record.State == stopped && l.open, "stop ends", "invariant 8", "%v: open %v after a stop had its time: %+v", of, l.open, m.record)
}

// standoff says that an operator wants the opposite mirror too: each backs off before the other until one is stopped (decision 14).
func (w *World) standoff(m *member) bool {
	return w.opposite(m, func(o *member) bool {
		return o.wish != WantStopped || o.record.State != unknown && o.record.State != stopped
	})
}

// across says that an offset lies inside the batch that holds the log's start: a copy that ends there can neither take that batch nor be shown where the logs part (decision 15).
func (l *log) across(offset int64) bool {
	return len(l.batches) > 0 && l.batches[0].Base < l.start && l.batches[0].Base < offset && offset <= l.batches[0].Last
}

// restBytes: each batch of a copy at rest is of the source's line, nothing that the source shows is missing unless that was told, and the source's start is followed.
func (w *World) restBytes(m *member, l, source *log) {
	w.must(l.start >= source.start || source.start > l.end || m.floor > 0 || m.loss == "keep", "rest start", "decision 16", "%v starts at %d; the source's log starts at %d", m.of, l.start, source.start)
	for _, v := range l.batches {
		has := source.ever[v.Bytes]
		w.must(v.who == Cluster || v.Last < source.start || has != nil && has.died == never, "rest bytes", "invariants 1, 7", "%v holds [%d, %d], which the source does not", m.of, v.Base, v.Last)
	}
	i := 0
	for _, s := range source.batches {
		for i < len(l.alive) && l.alive[i].Last < s.Base {
			i++
		}
		there := i < len(l.alive) && l.alive[i].Base <= s.Last || s.Base < l.start || s.Last >= source.replicated // compaction may have taken it here
		w.must(there || len(m.untold(gap{s.Base, s.Last + 1}, "lost", "hole")) == 0, "rest bytes", "invariants 1, 7", "%v lacks [%d, %d], which the source has; it is [%d, %d)", m.of, s.Base, s.Last, l.start, l.end)
	}
}
