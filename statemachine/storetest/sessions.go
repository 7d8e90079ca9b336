package storetest

import (
	"errors"
	"sync"

	sm "github.com/clustermirror/clustermirror/statemachine"
)

func openRefusesNoName(s *suite) {
	if _, err := s.store.Open(s.ctx, ""); err == nil {
		s.Error(`Open("") succeeded; "" is the owner of what nobody owns`)
	}
}

func openFencesEarlierSessions(s *suite) {
	first := s.open("node-1")
	s.accept(first, set(key(0), sm.Preparing))
	second := s.open("node-1")
	s.fenced(first, set(key(0), sm.Mirroring))
	s.fenced(first, set(key(1), sm.Preparing)) // also a key that nobody has
	s.fenced(first, del(key(0), true))
	s.accept(second, set(key(0), sm.Mirroring))
	third := s.open("node-1")
	s.fenced(first, set(key(0), sm.Pausing))
	s.fenced(second, set(key(0), sm.Pausing))
	s.accept(third, set(key(0), sm.Pausing))
}

func openLeavesOtherOwnersAlone(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	s.accept(one, set(key(1), sm.Preparing))
	s.accept(two, set(key(2), sm.Preparing))
	s.open("node-2")
	s.accept(one, set(key(1), sm.Mirroring))
	s.fenced(two, set(key(2), sm.Mirroring))
}

func racingOpensLeaveOne(s *suite) {
	sessions := make([]sm.Session, 8)
	errs := make([]error, len(sessions))
	var wait sync.WaitGroup
	for i := range sessions {
		wait.Go(func() { sessions[i], errs[i] = s.store.Open(s.ctx, "node-1") })
	}
	wait.Wait()
	live := 0
	for i, session := range sessions {
		if errs[i] != nil {
			if !errors.Is(errs[i], sm.ErrFenced) { // an Open that lost the race may say so
				s.Fatalf("Open: %v", errs[i])
			}
			continue
		}
		_, err := session.Write(s.ctx, []sm.Write{set(key(i), sm.Preparing)})
		switch {
		case err == nil:
			live++
		case !errors.Is(err, sm.ErrFenced):
			s.Errorf("write of a fenced session: error %v, want %v", err, sm.ErrFenced)
		}
	}
	if live != 1 {
		s.Errorf("after %d Opens of one name at once %d sessions can write, want 1", len(sessions), live)
	}
	if n := len(s.storeEntries()); n != live {
		s.Errorf("%d keys written by %d sessions that could write", n, live)
	}
}

func closeEndsTheSessionOnly(s *suite) {
	session := s.open("node-1")
	s.accept(session, set(key(0), sm.Preparing))
	for range 2 {
		if err := session.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	}
	before := s.storeEntries()
	if _, err := session.Write(s.ctx, []sm.Write{set(key(0), sm.Mirroring)}); err == nil {
		s.Error("a closed session wrote")
	}
	s.same("after Close", before, s.storeEntries())
	old := s.open("node-1")
	next := s.open("node-1")
	if err := old.Close(); err != nil {
		s.Errorf("Close of a fenced session: %v", err)
	}
	s.accept(next, expecting(set(key(0), sm.Mirroring), 1))
}

func firstWriterOwnsTheKey(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	s.accept(one, set(key(0), sm.Preparing))
	s.refuse(two, set(key(0), sm.Mirroring), sm.ErrNotOwner)
	s.refuse(two, del(key(0), true), sm.ErrNotOwner)
	s.refuse(two, sm.Write{Key: key(0), ExpectedStateEpoch: -1, LeaderEpoch: -1, LME: lastMirror(7)}, sm.ErrNotOwner)
	s.accept(two, sm.Write{Key: key(1), LeaderEpoch: -1, LME: lastMirror(7)}) // an LME alone owns too
	s.refuse(one, set(key(1), sm.Stopping), sm.ErrNotOwner)
	if e := s.entry(one, key(0)); e.Owner != "node-1" {
		s.Errorf("owner of %v is %q, want node-1", e.Key, e.Owner)
	}
	if e := s.entry(one, key(1)); e.Owner != "node-2" {
		s.Errorf("owner of %v is %q, want node-2", e.Key, e.Owner)
	}
	s.accept(s.open("node-1"), set(key(0), sm.Mirroring)) // the name owns, not the session
}

func takeFromNeedsTheOldOwnerOpened(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	s.accept(one, set(key(0), sm.Preparing))
	s.refuse(two, from(set(key(0), sm.Mirroring), "node-1"), sm.ErrNotOwner)
	reopened := s.open("node-1")
	s.fenced(one, set(key(0), sm.Mirroring))
	s.refuse(two, set(key(0), sm.Mirroring), sm.ErrNotOwner) // opening alone takes nothing over
	s.refuseMove(two, from(set(key(0), sm.Stopped), "node-1"), sm.Preparing)
	s.accept(two, from(expecting(set(key(0), sm.Mirroring), 1), "node-1"))
	if e := s.entry(two, key(0)); e.Owner != "node-2" || e.State.StateEpoch != 2 {
		s.Errorf("after a takeover: %+v, want owner node-2 and state epoch 2", e)
	}
	s.refuse(reopened, set(key(0), sm.Pausing), sm.ErrNotOwner)
	s.accept(reopened, set(key(1), sm.Preparing))
	s.refuse(two, from(set(key(1), sm.Mirroring), "node-1"), sm.ErrNotOwner) // written since: open again
}

func takeFromNamesTheOwner(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	s.accept(one, set(key(0), sm.Preparing))
	s.open("node-1")
	s.open("node-3")
	s.refuse(two, from(set(key(0), sm.Mirroring), "node-3"), sm.ErrNotOwner)
	s.refuse(two, from(set(key(0), sm.Mirroring), "node-2"), sm.ErrNotOwner)
	s.accept(two, from(set(key(0), sm.Mirroring), "node-1"))
	s.accept(two, from(set(key(9), sm.Preparing), "node-1")) // nobody's key
}

func takeFromMayBeRepeated(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	s.accept(one, set(key(0), sm.Preparing))
	s.open("node-1")
	s.accept(two, from(set(key(0), sm.Preparing), "node-1"))
	s.accept(two, from(set(key(0), sm.Preparing), "node-1"))
	s.accept(two, set(key(0), sm.Mirroring))
}

func racingOwnersLeaveOne(s *suite) {
	owners := []string{"node-1", "node-2", "node-3", "node-4"}
	sessions := make([]sm.Session, len(owners))
	for i, owner := range owners {
		sessions[i] = s.open(owner)
	}
	for k := range 8 {
		results := make([][]sm.WriteResult, len(owners))
		errs := make([]error, len(owners))
		var wait sync.WaitGroup
		for i, session := range sessions {
			wait.Go(func() { results[i], errs[i] = session.Write(s.ctx, []sm.Write{set(key(k), sm.Preparing)}) })
		}
		wait.Wait()
		winner := ""
		for i, owner := range owners {
			switch {
			case errs[i] != nil || len(results[i]) != 1:
				s.Fatalf("Write: %d results, error %v", len(results[i]), errs[i])
			case results[i][0].Err == nil && winner == "":
				winner = owner
			case results[i][0].Err == nil:
				s.Errorf("%q and %q both wrote %v first", winner, owner, key(k))
			case !errors.Is(results[i][0].Err, sm.ErrNotOwner):
				s.Errorf("the loser's error is %v, want %v", results[i][0].Err, sm.ErrNotOwner)
			}
		}
		if e := s.entry(s.store, key(k)); e.Owner != winner {
			s.Errorf("%v belongs to %q, but %q was told so", key(k), e.Owner, winner)
		}
	}
}
