package model

import "slices"

// moves are the legal ones, X to X and anything to FAILED apart (spec §2; from UNKNOWN to STOPPING: decision 4; from FAILED to PAUSING: decision 10).
var moves = map[int8][]int8{
	preparing: {unknown, stopped, failed},
	fencing:   {mirroring},
	mirroring: {preparing, fencing, paused, failed},
	pausing:   {mirroring, failed},
	paused:    {pausing},
	stopping:  {unknown, preparing, fencing, mirroring, pausing, paused, failed},
	stopped:   {stopping},
}

// Wished: what an operator wants from now on.
func (w *World) Wished(of Of, wish Wish) {
	m := w.member(of)
	m.wish, m.person = wish, true
	m.stop = m.stop && m.state() == stopping || wish == WantStopped
}

// Stored: this state record was written.
func (w *World) Stored(of Of, r Record) {
	m := w.member(of)
	old := m.record
	if old == nil {
		old = &Record{State: unknown, Previous: unknown}
	}
	w.moved(m, *old, r)
	w.episode(m, *old, r)
	w.failure(m, *old, r)
	l := w.log(of.At)
	if r.State == preparing && old.State != preparing {
		m.prepared = l.end
	}
	m.record = &r
	switch r.State {
	case stopped:
		w.stands(m, l)
		m.stop = false
	case mirroring:
		m.consents = nil // decision 7: used up
		if old.State != mirroring && w.against(m) {
			w.fault("opposite", "%v mirrors while the opposite mirror runs", of)
		}
		if l.open {
			w.fault("gate state", "%v mirrors into an open log", of)
		}
	}
}

// Removed: there is no state record any more. Its end stays (decision 8).
func (w *World) Removed(of Of) { w.member(of).record = nil }

func (w *World) moved(m *member, old, r Record) {
	if r.State != old.State && r.State != failed && !slices.Contains(moves[r.State], old.State) {
		w.fault("move", "%v went from state %d to %d", m.of, old.State, r.State)
	}
	if r.StateEpoch != old.StateEpoch+1 {
		w.fault("state epoch", "%v: state epoch went from %d to %d", m.of, old.StateEpoch, r.StateEpoch)
	}
	if r.State == stopping && old.State != stopping && !m.stop {
		w.fault("wish", "%v stops; wished is %d", m.of, m.wish)
	}
}

func (w *World) episode(m *member, old, r Record) {
	begins := r.State == preparing && (old.State == unknown || old.State == stopped)
	may := begins || r.State == preparing && old.State == failed && (old.Previous == unknown || old.Previous == stopped)
	switch {
	case r.Episode != old.Episode && !(may && r.Episode == old.Episode+1) && !(old.State == unknown && begins), begins && r.Episode <= old.Episode:
		w.fault("episode", "%v: episode %d follows %d, state %d follows %d", m.of, r.Episode, old.Episode, r.State, old.State)
	case r.State == preparing && m.end != nil && r.Episode <= m.end.Episode:
		w.fault("episode", "%v prepares in episode %d; an end of episode %d is recorded", m.of, r.Episode, m.end.Episode)
	}
}

func (w *World) failure(m *member, old, r Record) {
	switch {
	case r.State == failed && (r.Attempt == 0 || r.Message == ""):
		w.fault("failure", "%v: FAILED with attempt %d and message %q", m.of, r.Attempt, r.Message)
	case r.State == failed && old.State != failed && r.Previous != old.State, r.State == failed && old.State == failed && r.Previous != old.Previous:
		w.fault("failure", "%v: FAILED says it was %d; it was %d (before that %d)", m.of, r.Previous, old.State, old.Previous)
	case r.State != failed && old.State == failed && old.Attempt == -1 && !m.person:
		w.fault("failure", "%v left FAILED for %d by itself: %s", m.of, r.State, old.Message)
	}
	if r.State == failed && old.State != failed {
		m.person = false
	}
}

// Asked: the mirror's process called the source about this partition (fetch, ends, epochs).
func (w *World) Asked(of Of, call string) {
	m := w.member(of)
	s := m.state()
	if s == stopping || s == stopped && m.wish == WantStopped {
		w.fault("asks", "%v: %s in state %d", of, call, s)
	}
	if call == "fetch" && s != mirroring && s != pausing && s != stopping {
		w.fault("fetches", "%v: %s in state %d", of, call, s)
	}
}
