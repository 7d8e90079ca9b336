package model

import "slices"

// moves are the legal ones, X to X and anything to FAILED apart (spec §2; from UNKNOWN to STOPPING: decision 4; from FAILED to PAUSING: decision 10).
var moves = map[int8][]int8{
	preparing: {unknown, stopped, failed}, fencing: {mirroring, failed}, mirroring: {preparing, fencing, paused, failed}, pausing: {mirroring, failed}, paused: {pausing, failed},
	stopping: {unknown, preparing, fencing, mirroring, pausing, paused, failed}, stopped: {stopping},
}

// Stored: this state record was written. Moves are legal, state epochs follow one another, nothing stops that nobody wished to stop. The episode is one more when PREPARING is entered from UNKNOWN or STOPPED
// (or from a failure of these), the same otherwise, and above that of every recorded end.
func (w *World) Stored(of Of, r Record) {
	m, l := w.member(of), w.log(of.At)
	old := m.record
	m.person = m.person || m.acted
	w.must(r.State == old.State || r.State == failed || slices.Contains(moves[r.State], old.State), "move", "spec §2", "%v went from state %d to %d", of, old.State, r.State)
	w.must(r.StateEpoch == old.StateEpoch+1, "state epoch", "spec §2", "%v: state epoch went from %d to %d", of, old.StateEpoch, r.StateEpoch)
	w.must(r.State != stopping || old.State == stopping || m.stop || m.wish == WantStopped, "wish", "design.md, Verbs", "%v stops; wished is %d", of, m.wish)
	fresh := old.State == unknown || old.State == stopped
	begins := r.State == preparing && (fresh || old.State == failed && (old.Previous == unknown || old.Previous == stopped))
	next := r.Episode == old.Episode+1 || m.end != nil && r.Episode == m.end.Episode+1 || old.State == unknown && r.Episode > 0
	ok := (r.Episode == old.Episode && !(begins && fresh) || begins && next) && (r.State != preparing || m.end == nil || r.Episode > m.end.Episode)
	w.must(ok, "episode", "decision 2, decision 5", "%v: episode %d follows %d, state %d follows %d; recorded is %+v", of, r.Episode, old.Episode, r.State, old.State, m.end)
	w.must(r.State != mirroring || r.Hole[l.end] <= max(l.end, m.hole, m.shown, old.Hole[l.end]), "used offset", "F-05, decision 18", "%v: it is recorded that the source uses offsets up to %d, which nothing has proved", of, r.Hole[l.end])
	w.failure(m, l, old, r)
	m.record, m.lost = r, false
	m.beyond = m.beyond && r.State != preparing && r.State != stopped || r.State == mirroring
	m.stop = m.stop && (m.wish == WantStopped || r.State != mirroring || m.late) // a write that was under way when the wish changed may still be done, and is no answer to what was wished since it began
	switch {
	case r.State == stopped:
		m.stop, l.stopped = m.stop && m.wish == WantStopped, l.stopped || r.Episode > 0 // it may have been wished anew, and not have been heard yet
		defer func() { l.taken, l.theirs = false, l.theirs || l.open }()
		untouched := l.theirs && m.opened != r.Episode && m.ended() == nil // a start that ended before it had the log
		w.must(l.open && (untouched || m.ended() != nil && m.end.LMO >= 0), "closed STOPPED", "decision 4, spec §5", "%v is STOPPED; open is %v, recorded %+v", of, l.open, m.end)
	case r.State == stopping && old.State != stopping:
		m.safe = l.replicated
	case r.State == preparing && old.State != preparing:
		m.prepared, m.line, l.theirs = l.end, l.line, l.theirs || l.taken && l.open // a start takes what it finds open for the clients'
	case r.State == mirroring:
		if l.theirs = false; old.State == preparing {
			m.consents = slices.DeleteFunc(m.consents, func(c consent) bool { return c.episode <= r.Episode }) // decision 7: used up
		}
		w.must(old.State == mirroring || !w.against(m), "opposite", "decision 14, spec §3", "%v mirrors while the opposite mirror runs", of)
		w.must(!l.open || l.taken, "gate state", "spec §2, decision 4", "%v mirrors into an open log", of)
		w.must(!l.behind || old.State != preparing, "replica wait", "decision 22, spec §3", "%v mirrors, and not every replica has followed the last cut", of)
	}
}

// Halted: a process gave this partition up because somebody else has taken it.
func (w *World) Halted(of Of, by string) {
	w.must(w.member(of).process != by || w.log(of.At).epoch < w.log(of.At).top, "halt", "invariant 9, spec §2", "%v: process %s stops, and nobody has taken over from it", of, by)
}

// failure: FAILED says why and what was before; one with attempt −1 is ended by a person.
func (w *World) failure(m *member, l *log, old, r Record) {
	w.must(r.State != mirroring || old.State != mirroring || old.Attempt == 0 || r.Attempt != 0 || m.fetched, "failure", "spec §2, F-72", "%v: attempt %d is forgotten before anything was fetched", m.of, old.Attempt)
	w.must(r.State == failed || old.State != failed || old.Attempt != -1 || m.person || m.stop && r.State == stopping, "failure", "spec §2", "%v left FAILED for %d by itself: %s", m.of, r.State, old.Message)
	if r.State == failed {
		before := old.State
		if before == failed {
			before = old.Previous
		} else {
			m.person, m.acted = m.acted, false
		}
		m.fetched = false
		w.must(r.Attempt == -1 || !m.lost, "failure", "decision 16", "%v fails over a loss under the policy fail, and is tried again: %s", m.of, r.Message)
		w.must(r.Attempt != -1 || old.State == failed || before != stopping && before != stopped || l.taken || m.end != nil && l.end < m.end.LMO, "stop ends", "decision 4, decision 19", "%v: a stop waits for a person: %s", m.of, r.Message)
		w.must(r.Attempt != 0 && r.Message != "" && r.Previous == before, "failure", "spec §2", "%v: FAILED with attempt %d, message %q, previous %d; it was %d", m.of, r.Attempt, r.Message, r.Previous, before)
	}
}

// Asked: the mirror's process called the source about this partition (fetch, ends, epochs): never at a stop, and fetches in MIRRORING only.
func (w *World) Asked(of Of, call string) {
	m := w.member(of)
	if call == "fetch" {
		m.served = nil
	}
	s := m.record.State
	stops := s == stopping && (call != "fetch" || m.ended() != nil) || s == stopped && m.wish == WantStopped // a fetch may be under way when a stop begins
	w.must(!stops, "asks", "decision 4, spec §5", "%v: %s in state %d", of, call, s)
	w.must(stops || s == stopping || call != "fetch" || s == mirroring || s == pausing || s == failed && (m.record.Previous == mirroring || m.record.Previous == stopping && m.ended() == nil), "fetches", "spec §2", "%v: %s in state %d", of, call, s)
}
