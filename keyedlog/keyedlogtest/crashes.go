package keyedlogtest

import (
	"strconv"
	"sync"

	"github.com/clustermirror/clustermirror/keyedlog"
)

func crashKeepsWhatWasWritten(s *suite) {
	session := s.open(s.log, "one")
	s.put(session.Update, s.set(0, "x"), s.set(1, "x"), s.set(2, ""), s.released(3, "x"))
	s.put(byLog(s.log), s.set(4, "x"), s.set(5, "x"))
	s.put(session.Update, s.gone(1), s.set(0, "y"))
	s.put(byLog(s.log), s.gone(5))
	before, version := s.all(s.log), s.version(s.log)
	s.crashed()
	s.same("after a crash", before, s.all(s.log))
	if v := s.version(s.log); v < version {
		s.Errorf("version %d after a crash, was %d", v, version)
	}
	next := s.open(s.log, "one")
	s.same("after a crash and Open", before, s.all(next))
	s.put(next.Update, s.set(0, "z"))
	s.put(byLog(s.log), s.set(4, "z"))
	s.crashed()
	s.expect(s.log, 0, "z", "one", next.Number())
	s.expect(s.log, 4, "z", "", 0)
	s.absent(s.log, 1)
	if v := s.version(s.log); v <= version {
		s.Errorf("version %d after changes and a second crash, was %d", v, version)
	}
}

func crashKeepsOwnersAndNumbers(s *suite) {
	one := s.open(s.log, "one")
	s.put(one.Update, s.set(0, "x"))
	s.crashed()
	two := s.open(s.log, "two")
	s.read(two, func(v keyedlog.View) error {
		if got := v.Session("one"); got != one.Number() {
			s.Errorf("View.Session is %d after a crash, want %d", got, one.Number())
		}
		return nil
	})
	s.refuse(two.Update, keyedlog.ErrOwned, s.set(0, "y")) // the other process may have crashed, or not
	s.refuse(byLog(s.log), keyedlog.ErrOwned, s.set(0, "y"))
	next := s.open(s.log, "one")
	if next.Number() <= one.Number() {
		s.Errorf("number %d after a crash, was %d", next.Number(), one.Number())
	}
	s.put(two.Update, s.set(0, "y"))
	s.crashed()
	s.expect(s.log, 0, "y", "two", two.Number())
	s.refuse(s.open(s.log, "one").Update, keyedlog.ErrOwned, s.set(0, "z"))
	s.put(s.open(s.log, "two").Update, s.set(0, "z"))
}

func crashFencesThePast(s *suite) {
	old := s.open(s.log, "one")
	s.put(old.Update, s.set(0, "x"))
	s.crashed()
	next := s.open(s.log, "one")
	before := s.all(s.log)
	if err := s.try(old.Update, s.set(0, "y"), s.set(1, "y")); err == nil {
		s.Error("a session from before the crash wrote after its writer was opened again")
	}
	s.same("after an Update from before the crash", before, s.all(s.log))
	s.put(next.Update, s.set(0, "z"))
}

func crashInTheMiddleIsAllOrNothing(s *suite) {
	const keys = 6
	reported := 0
	for round := range s.rounds {
		session := s.open(s.log, "one")
		log := s.log
		begun := make(chan struct{})
		attempted := 0
		var wait sync.WaitGroup
		wait.Go(func() {
			var once sync.Once
			defer once.Do(func() { close(begun) })
			for n := 0; s.ctx.Err() == nil; n++ {
				if n == round {
					once.Do(func() { close(begun) })
				}
				var changes []keyedlog.Change
				for k := range keys {
					changes = append(changes, s.released(k, strconv.Itoa(reported+1)))
				}
				w := session.Update
				if round%2 == 1 {
					w = byLog(log)
					changes = append(changes, s.released(keys, strconv.Itoa(reported+1)))
				}
				attempted = reported + 1
				if err := s.try(w, changes...); err != nil {
					return
				}
				reported++
				if round%2 == 1 && n > round { // updates of the log are fenced by nobody
					return
				}
			}
		})
		<-begun
		s.crashed()
		s.open(s.log, "one") // ends what the old process still tries
		wait.Wait()
		s.put(byLog(s.log), s.set(keys+1, "x")) // an update of the log that is still on its way is before this one, or never
		s.read(s.log, func(v keyedlog.View) error {
			got := number(v, s.key(0))
			for k := range keys {
				if n := number(v, s.key(k)); n != got {
					s.Errorf("after a crash a batch is there in part: %d and %d", got, n)
				}
			}
			if got < reported || got > attempted {
				s.Errorf("after a crash batch %d is there, but %d was reported as written and %d tried", got, reported, attempted)
			}
			reported = max(reported, got)
			return nil
		})
	}
}
