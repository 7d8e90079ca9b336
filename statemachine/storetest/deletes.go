package storetest

import (
	sm "github.com/clustermirror/clustermirror/statemachine"
)

// stopped writes a key that was mirrored and stopped, with an LME, under leader epoch 5.
func (s *suite) stopped(session sm.Session, k sm.Key) {
	s.Helper()
	s.accept(session, under(set(k, sm.Preparing), 5))
	w := under(set(k, sm.Stopping), 5)
	w.LME = lastMirror(3)
	s.accept(session, w)
	s.accept(session, under(set(k, sm.Stopped), 5))
}

func deleteForgetsAllButLME(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	s.stopped(one, key(0))
	s.stopped(one, key(1))
	if got := s.accept(one, expecting(del(key(0), false), 3)); got != 0 {
		s.Errorf("state epoch %d after Delete, want 0", got)
	}
	kept := sm.NewEntry(key(0))
	kept.LME = lastMirror(3)
	s.expect(one, kept)
	// owner, state epoch and leader epoch are those of a key never written
	if got := s.accept(two, under(expecting(set(key(0), sm.Preparing), 0), 0)); got != 1 {
		s.Errorf("state epoch %d after the first write behind a Delete, want 1", got)
	}
	want := *state(sm.Preparing)
	want.StateEpoch, want.LeaderEpoch = 1, 0
	s.expect(two, sm.Entry{Key: key(0), Owner: "node-2", State: want, LME: lastMirror(3)})
	if e := s.entry(one, key(1)); e.State.StateEpoch != 3 {
		s.Errorf("Delete of one key changed another: %+v", e)
	}
}

func purgeForgetsAll(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	s.stopped(one, key(0))
	s.accept(one, del(key(0), true))
	if n := len(s.entries(one)); n != 0 {
		s.Errorf("%d keys after the only one was purged", n)
	}
	if n := len(s.storeEntries()); n != 0 {
		s.Errorf("%d keys in the store after the only one was purged", n)
	}
	s.accept(two, expecting(set(key(0), sm.Preparing), 0))
	// Delete first, purge later: the LME alone can still be purged
	s.stopped(one, key(1))
	s.accept(one, del(key(1), false))
	s.accept(one, del(key(1), true))
	s.expect(one, sm.NewEntry(key(1)))
}

func deleteOfNothingSucceeds(s *suite) {
	session := s.open("node-1")
	for _, purge := range []bool{false, true, false} {
		if got := s.accept(session, expecting(del(key(0), purge), 0)); got != 0 {
			s.Errorf("state epoch %d after a Delete of nothing, want 0", got)
		}
	}
	if n := len(s.entries(session)); n != 0 {
		s.Errorf("%d keys after a Delete of nothing", n)
	}
	s.accept(s.open("node-2"), set(key(0), sm.Preparing)) // and nobody owns it
}

func deleteIsChecked(s *suite) {
	session := s.open("node-1")
	s.accept(session, under(set(key(0), sm.Preparing), 5))
	s.refuse(session, expecting(del(key(0), false), 7), sm.ErrStateEpoch)
	s.refuse(session, under(del(key(0), false), 4), sm.ErrFenced)
	s.accept(session, under(expecting(del(key(0), false), 1), 5)) // from every state
}
