package storetest

import (
	"sync"
	"sync/atomic"

	sm "github.com/clustermirror/clustermirror/statemachine"
)

func crashKeepsWhatWasWritten(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	s.stopped(one, key(0))
	s.stopped(one, key(1))
	s.stopped(one, key(2))
	s.accept(one, del(key(1), false))
	s.accept(one, del(key(2), true))
	s.accept(two, set(key(3), sm.Preparing))
	s.accept(two, sm.Write{Key: key(4), LeaderEpoch: -1, LME: lastMirror(8)})
	before := s.storeEntries()
	s.crashed()
	s.same("after a crash", before, s.storeEntries())
	one = s.open("node-1")
	s.same("after a crash and Open", before, s.entries(one))
	s.refuse(one, expecting(set(key(0), sm.Preparing), 0), sm.ErrStateEpoch)
	s.refuse(one, under(set(key(0), sm.Preparing), 4), sm.ErrFenced)
	if got := s.accept(one, under(expecting(set(key(0), sm.Preparing), 3), 5)); got != 4 {
		s.Errorf("state epoch %d, want 4: it counts on over a crash", got)
	}
	s.crashed()
	if e := s.entry(s.store, key(0)); e.State.StateEpoch != 4 {
		s.Errorf("after a second crash state epoch %d, want 4", e.State.StateEpoch)
	}
}

func crashKeepsOwners(s *suite) {
	s.accept(s.open("node-1"), set(key(0), sm.Preparing))
	s.crashed()
	two := s.open("node-2")
	s.refuse(two, set(key(0), sm.Mirroring), sm.ErrNotOwner)
	s.refuse(two, from(set(key(0), sm.Mirroring), "node-1"), sm.ErrNotOwner) // the other process may have crashed, or not
	s.open("node-1")
	s.accept(two, from(set(key(0), sm.Mirroring), "node-1"))
	s.crashed()
	if e := s.entry(s.store, key(0)); e.Owner != "node-2" {
		s.Errorf("owner after a takeover and a crash is %q, want node-2", e.Owner)
	}
	s.refuse(s.open("node-1"), set(key(0), sm.Pausing), sm.ErrNotOwner)
	s.accept(s.open("node-2"), set(key(0), sm.Pausing))
}

func crashFencesThePast(s *suite) {
	old := s.open("node-1")
	s.accept(old, set(key(0), sm.Preparing))
	s.crashed()
	next := s.open("node-1")
	before := s.storeEntries()
	if _, err := old.Write(s.ctx, []sm.Write{set(key(0), sm.Mirroring)}); err == nil {
		s.Error("a session from before the crash wrote after its owner was opened again")
	}
	s.same("after a write from before the crash", before, s.storeEntries())
	s.accept(next, expecting(set(key(0), sm.Mirroring), 1))
}

func crashInTheMiddleIsAllOrNothing(s *suite) {
	var reported int32
	for round := range int32(6) {
		session := s.open("node-1")
		var written atomic.Int32
		written.Store(reported)
		reached := make(chan struct{})
		var wait sync.WaitGroup
		wait.Go(func() {
			var once sync.Once
			defer once.Do(func() { close(reached) })
			for n := range int32(200) {
				if n == round {
					once.Do(func() { close(reached) })
				}
				results, err := session.Write(s.ctx, batch())
				if err != nil {
					return
				}
				if len(results) == batchKeys && results[0].Err == nil {
					written.Store(results[0].StateEpoch)
				}
			}
		})
		<-reached
		s.crashed()
		s.open("node-1") // ends what the old process still tries
		wait.Wait()
		reported = written.Load()
		s.whole(s.storeEntries(), reported)
	}
}
