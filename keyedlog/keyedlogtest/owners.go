package keyedlogtest

import (
	"errors"
	"sync"

	"github.com/clustermirror/clustermirror/keyedlog"
)

func writerOwnsTheKey(s *suite) {
	one, two := s.open(s.log, "one"), s.open(s.other(), "two")
	s.put(one.Update, s.set(0, "x"))
	s.expect(two, 0, "x", "one", one.Number())
	s.refuse(two.Update, keyedlog.ErrOwned, s.set(0, "y"))
	s.refuse(two.Update, keyedlog.ErrOwned, s.released(0, "y"))
	s.refuse(two.Update, keyedlog.ErrOwned, s.gone(0))
	s.refuse(byLog(s.log), keyedlog.ErrOwned, s.set(0, "y"))
	s.refuse(byLog(s.other()), keyedlog.ErrOwned, s.gone(0))
	next := s.open(s.other(), "one") // the name owns, not the session
	s.expect(s.log, 0, "x", "one", one.Number())
	s.put(next.Update, s.set(0, "z"))
	s.expect(two, 0, "z", "one", next.Number())
}

func ownershipIsAllOrNothing(s *suite) {
	one, two := s.open(s.log, "one"), s.open(s.other(), "two")
	s.put(one.Update, s.set(1, "x"))
	for _, w := range []writer{two.Update, byLog(s.log)} {
		s.refuse(w, keyedlog.ErrOwned, s.set(0, "y"), s.set(1, "y"))
		s.refuse(w, keyedlog.ErrOwned, s.set(1, "y"), s.set(2, "y"))
		s.refuse(w, keyedlog.ErrOwned, s.set(0, "y"), s.gone(1), s.set(2, "y"))
	}
	// what is only looked at may be anybody's
	err := two.Update(s.ctx, [][]byte{s.key(0), s.key(1)}, func(v keyedlog.View) ([]keyedlog.Change, error) {
		if r, ok := v.Get(s.key(1)); !ok || r.Writer != "one" {
			s.Errorf("a session decides on %s, which is another writer's", text(r))
		}
		return []keyedlog.Change{s.set(0, "y")}, nil
	})
	if err != nil {
		s.Errorf("Update that looks at another writer's key: %v", err)
	}
}

func openedOwnerGivesWay(s *suite) {
	other := s.other()
	one, two := s.open(s.log, "one"), s.open(other, "two")
	s.put(one.Update, s.set(0, "x"), s.set(1, "x"))
	again := s.open(other, "one")
	s.put(again.Update, s.set(1, "y")) // written since it was opened: its own
	s.refuse(two.Update, keyedlog.ErrOwned, s.set(0, "z"), s.set(1, "z"))
	s.refuse(byLog(s.log), keyedlog.ErrOwned, s.set(0, "z")) // a Log is no writer: nothing gives way to it
	s.put(two.Update, s.set(0, "z"))
	s.expect(s.log, 0, "z", "two", two.Number())
	s.refuse(again.Update, keyedlog.ErrOwned, s.set(0, "w"))
	s.open(s.log, "two")
	s.put(again.Update, s.set(0, "w"))
	s.expect(other, 0, "w", "one", again.Number())
}

func releasedKeysAreNobodys(s *suite) {
	one, two := s.open(s.log, "one"), s.open(s.other(), "two")
	s.put(one.Update, s.set(0, "x"), s.released(1, "x"))
	s.expect(two, 0, "x", "one", one.Number())
	s.expect(two, 1, "x", "", 0)
	s.put(one.Update, s.released(0, "y"))
	s.expect(s.log, 0, "y", "", 0)
	s.put(two.Update, s.released(0, "z"))
	s.put(byLog(s.log), s.set(0, "w"))
	s.put(two.Update, s.set(0, "v"))
	s.expect(one, 0, "v", "two", two.Number())
	s.refuse(one.Update, keyedlog.ErrOwned, s.set(0, "u"))
}

func updateOfTheLogOwnsNothing(s *suite) {
	one := s.open(s.log, "one")
	s.put(byLog(s.log), s.set(0, "x"), s.released(1, "x"))
	s.expect(one, 0, "x", "", 0)
	s.expect(one, 1, "x", "", 0)
	s.put(byLog(s.other()), s.set(0, "y"))
	s.put(one.Update, s.set(0, "z"))
	s.expect(s.other(), 0, "z", "one", one.Number())
	s.refuse(byLog(s.log), keyedlog.ErrOwned, s.set(0, "w"))
}

func tombstonesTakeOut(s *suite) {
	one, two := s.open(s.log, "one"), s.open(s.other(), "two")
	s.put(one.Update, s.set(0, "x"), s.set(1, "x"))
	s.put(one.Update, s.gone(0))
	s.absent(two, 0)
	s.absent(s.log, 0)
	s.expect(two, 1, "x", "one", one.Number())
	s.put(two.Update, s.set(0, "y")) // nobody owned it
	s.expect(s.log, 0, "y", "two", two.Number())
	s.put(byLog(s.log), s.set(2, "x"))
	s.put(byLog(s.other()), s.gone(2), s.set(3, "x"))
	s.absent(s.log, 2)
	s.put(byLog(s.log), s.gone(2), s.gone(4)) // what is not there may be taken out
	s.put(one.Update, s.gone(4), s.gone(1))
	s.absent(two, 1)
	s.absent(two, 4)
	s.put(byLog(s.log), s.set(1, "z"))
	s.expect(two, 1, "z", "", 0)
}

func racingWritersOwnOnce(s *suite) {
	names := []string{"one", "two", "three"}
	handles := []keyedlog.Log{s.log, s.other()}
	sessions := make([]keyedlog.Session, len(names))
	for i, name := range names {
		sessions[i] = s.open(handles[i%2], name)
	}
	for round := range s.rounds {
		errs := make([]error, len(names))
		var wait sync.WaitGroup
		for i, session := range sessions {
			wait.Go(func() { errs[i] = s.try(session.Update, s.set(round, names[i])) })
		}
		wait.Wait()
		won, owner := 0, -1
		for i, err := range errs {
			switch {
			case err == nil:
				won, owner = won+1, i
			case !errors.Is(err, keyedlog.ErrOwned):
				s.Fatalf("the loser's error is %v, want %v", err, keyedlog.ErrOwned)
			}
		}
		if won != 1 {
			s.Fatalf("%d of %d writers have got one key, want 1", won, len(names))
		}
		s.expect(s.log, round, names[owner], names[owner], sessions[owner].Number())
	}
}

func sessionsWriteNamedKeysOnly(s *suite) {
	one := s.open(s.log, "one")
	before := s.all(s.log)
	for _, keys := range [][][]byte{nil, {}, {s.key(0)}} {
		err := one.Update(s.ctx, keys, func(keyedlog.View) ([]keyedlog.Change, error) {
			return []keyedlog.Change{s.set(0, "x"), s.set(1, "x")}, nil
		})
		if err == nil {
			s.Errorf("a change of a key that was not named was accepted, of %d named", len(keys))
		}
	}
	s.same("after changes of keys that were not named", before, s.all(s.log))
	s.put(one.Update, s.set(0, "x"))
}
