package keyedlogtest

import (
	"errors"
	"strconv"
	"sync"

	"github.com/clustermirror/clustermirror/keyedlog"
)

func openRefusesNoName(s *suite) {
	if _, err := s.log.Open(s.ctx, ""); err == nil {
		s.Error(`Open("") succeeded; "" is the writer of what nobody owns`)
	}
}

func openFencesEarlierSessions(s *suite) {
	other := s.other()
	first := s.open(s.log, "one")
	s.put(first.Update, s.set(0, "first"))
	s.holds(first)
	second := s.open(other, "one")
	s.fenced(first, 0)
	s.fenced(first, 1) // also a key that nobody has
	s.put(second.Update, s.set(0, "second"))
	third := s.open(s.log, "one")
	s.fenced(first, 0)
	s.fenced(second, 0)
	s.holds(third)
	s.put(third.Update, s.set(0, "third"))
	s.expect(other, 0, "third", "one", third.Number())
}

func openFencesWhileDeciding(s *suite) {
	other := s.other()
	old := s.open(s.log, "one")
	var next keyedlog.Session
	_, inside, otherErr, err := s.interrupt(old.Update, [][]byte{s.key(0)}, counted(s.key(0), 1), func() (err error) {
		next, err = other.Open(s.ctx, "one")
		return err
	})
	if otherErr != nil {
		s.Fatalf("Open while an earlier session decides: %v", otherErr)
	}
	switch {
	case inside:
		if !errors.Is(err, keyedlog.ErrFenced) {
			s.Errorf("a session that was fenced while it decided: error %v, want %v", err, keyedlog.ErrFenced)
		}
		s.absent(other, 0)
	case err != nil:
		s.Errorf("Update before its writer was opened again: %v", err)
	default:
		s.expect(other, 0, "1", "", 0)
	}
	s.holds(next)
}

// When Open returns, the past is over, and all of it is seen.
func openEndsARunningWriter(s *suite) {
	other := s.other()
	old := s.open(s.log, "one")
	reported, unknown := 0, 0
	begun := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		var once sync.Once
		defer once.Do(func() { close(begun) })
		for s.ctx.Err() == nil {
			err := old.Update(s.ctx, [][]byte{s.key(0)}, counted(s.key(0), 1))
			switch {
			case err == nil:
				reported++
			case errors.Is(err, keyedlog.ErrOutcomeUnknown):
				unknown++
			default:
				if !errors.Is(err, keyedlog.ErrFenced) {
					s.Errorf("a session that was fenced while it wrote: error %v, want %v", err, keyedlog.ErrFenced)
				}
				return
			}
			if reported == 2 {
				once.Do(func() { close(begun) })
			}
		}
	})
	<-begun
	next := s.open(other, "one")
	var seen int
	s.read(next, func(v keyedlog.View) error { seen = number(v, s.key(0)); return nil })
	wait.Wait()
	var after int
	s.read(s.log, func(v keyedlog.View) error { after = number(v, s.key(0)); return nil })
	if after != seen {
		s.Errorf("a session that was fenced before Open returned has written: %d, and then %d", seen, after)
	}
	if after < reported || after > reported+unknown {
		s.Errorf("%d were written, but %d reported as written and %d as unknown", after, reported, unknown)
	}
}

func openLeavesOtherWritersAlone(s *suite) {
	other := s.other()
	one, two := s.open(s.log, "one"), s.open(s.log, "two")
	s.put(one.Update, s.set(1, "x"))
	s.open(other, "two")
	s.put(one.Update, s.set(1, "y"))
	s.holds(one)
	s.fenced(two, 2)
}

func openSeesWhatWasWritten(s *suite) {
	other := s.other()
	for round := range s.rounds {
		from, to := s.log, other
		if round%2 == 1 {
			from, to = to, from
		}
		old := s.open(from, "one")
		value := strconv.Itoa(round)
		s.put(old.Update, s.set(0, value))
		next := s.open(to, "one")
		s.expect(next, 0, value, "one", old.Number())
		err := next.Update(s.ctx, [][]byte{s.key(0)}, func(v keyedlog.View) ([]keyedlog.Change, error) {
			if r, ok := v.Get(s.key(0)); !ok || string(r.Value) != value || r.Writer != "one" || r.Session != old.Number() {
				s.Errorf("the next session decides on %s, want %q of the session before, %d", text(r), value, old.Number())
			}
			return nil, nil
		})
		if err != nil {
			s.Fatalf("Update: %v", err)
		}
	}
}

func numbersGrow(s *suite) {
	other := s.other()
	var last int64
	for i, l := range []keyedlog.Log{s.log, other, other, s.log} {
		session := s.open(l, "one")
		n := session.Number()
		if n <= last || session.Number() != n {
			s.Errorf("session %d has number %d, the one before %d", i, n, last)
		}
		last = n
		for _, r := range []reader{s.log, other, session} {
			s.read(r, func(v keyedlog.View) error {
				if got := v.Session("one"); got != n {
					s.Errorf("View.Session is %d after session %d was opened", got, n)
				}
				if got := v.Session("two"); got != 0 {
					s.Errorf("View.Session is %d for a writer that was never opened, want 0", got)
				}
				return nil
			})
		}
	}
	err := s.log.Update(s.ctx, func(v keyedlog.View) ([]keyedlog.Change, error) {
		if got := v.Session("one"); got != last {
			s.Errorf("Log.Update: View.Session is %d, want %d", got, last)
		}
		return nil, nil
	})
	if err != nil {
		s.Errorf("Update: %v", err)
	}
}

func racingOpensLeaveOne(s *suite) {
	handles := []keyedlog.Log{s.log, s.other()}
	sessions := make([]keyedlog.Session, 2*s.writers)
	errs := make([]error, len(sessions))
	var wait sync.WaitGroup
	for i := range sessions {
		wait.Go(func() { sessions[i], errs[i] = handles[i%2].Open(s.ctx, "one") })
	}
	wait.Wait()
	live := 0
	numbers := map[int64]bool{}
	for i, session := range sessions {
		if errs[i] != nil {
			if !errors.Is(errs[i], keyedlog.ErrFenced) { // an Open that lost the race may say so
				s.Fatalf("Open: %v", errs[i])
			}
			continue
		}
		if numbers[session.Number()] {
			s.Errorf("two sessions of one writer have the number %d", session.Number())
		}
		numbers[session.Number()] = true
		err := s.try(session.Update, s.set(i, "x"))
		switch {
		case err == nil:
			live++
		case !errors.Is(err, keyedlog.ErrFenced):
			s.Errorf("Update of a fenced session: error %v, want %v", err, keyedlog.ErrFenced)
		}
	}
	if live != 1 {
		s.Errorf("after %d Opens of one name at once %d sessions can write, want 1", len(sessions), live)
	}
	if n := len(s.all(s.log)); n != live {
		s.Errorf("%d keys written by %d sessions that could write", n, live)
	}
}

// ended demands that a session says that it was closed, and that nothing is written.
func (s *suite) ended(session keyedlog.Session, look reader) {
	s.Helper()
	before := s.all(look)
	if err := s.try(session.Update, s.set(0, "of a closed session")); !errors.Is(err, keyedlog.ErrClosed) {
		s.Errorf("Update of a closed session: error %v, want %v", err, keyedlog.ErrClosed)
	}
	if err := session.Check(s.ctx); !errors.Is(err, keyedlog.ErrClosed) {
		s.Errorf("Check of a closed session: error %v, want %v", err, keyedlog.ErrClosed)
	}
	if err := session.Read(s.ctx, func(keyedlog.View) error { return nil }); !errors.Is(err, keyedlog.ErrClosed) {
		s.Errorf("Read of a closed session: error %v, want %v", err, keyedlog.ErrClosed)
	}
	s.same("after Close", before, s.all(look))
}

func closeEndsTheSessionOnly(s *suite) {
	session, two := s.open(s.log, "one"), s.open(s.log, "two")
	s.put(session.Update, s.set(0, "x"))
	if err := session.Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
	s.ended(session, s.log)
	s.expect(s.log, 0, "x", "one", session.Number())
	s.refuse(two.Update, keyedlog.ErrOwned, s.set(0, "y")) // what it wrote is its writer's
	s.holds(two)
	old, next := s.open(s.log, "one"), s.open(s.other(), "one")
	if err := old.Close(); err != nil {
		s.Errorf("Close of a fenced session: %v", err)
	}
	s.holds(next)
	s.put(next.Update, s.set(0, "z"))
}

func closeOfTheLogEndsItsSessions(s *suite) {
	session := s.open(s.log, "one")
	s.put(session.Update, s.set(0, "x"))
	var look reader
	if s.again != nil {
		look = s.again()
	}
	if err := s.log.Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
	if look != nil {
		s.ended(session, look)
		s.expect(look, 0, "x", "one", session.Number())
	}
	if err := session.Check(s.ctx); !errors.Is(err, keyedlog.ErrClosed) {
		s.Errorf("Check of a session of a closed log: error %v, want %v", err, keyedlog.ErrClosed)
	}
	if _, err := s.log.Open(s.ctx, "two"); !errors.Is(err, keyedlog.ErrClosed) {
		s.Errorf("Open of a closed log: error %v, want %v", err, keyedlog.ErrClosed)
	}
	if err := s.try(byLog(s.log), s.set(1, "x")); !errors.Is(err, keyedlog.ErrClosed) {
		s.Errorf("Update of a closed log: error %v, want %v", err, keyedlog.ErrClosed)
	}
	if err := s.log.Read(s.ctx, func(keyedlog.View) error { return nil }); !errors.Is(err, keyedlog.ErrClosed) {
		s.Errorf("Read of a closed log: error %v, want %v", err, keyedlog.ErrClosed)
	}
	if look != nil {
		s.absent(look, 1)
	}
}

func closeLeavesOtherHandlesAlone(s *suite) {
	other := s.again()
	session := s.open(other, "two")
	s.put(byLog(s.log), s.set(0, "x"))
	if err := s.log.Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
	s.expect(other, 0, "x", "", 0)
	s.holds(session)
	s.put(session.Update, s.set(1, "y"))
	s.put(byLog(other), s.set(0, "z"))
	third := s.again()
	s.expect(third, 0, "z", "", 0)
	s.expect(third, 1, "y", "two", session.Number())
}
