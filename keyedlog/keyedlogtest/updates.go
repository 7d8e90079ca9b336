package keyedlogtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/clustermirror/clustermirror/keyedlog"
)

func emptyIsNotNil(s *suite) {
	one := s.open(s.log, "one")
	s.put(one.Update, s.set(0, ""))
	s.put(byLog(s.log), s.set(1, ""), s.set(2, "x"))
	s.put(byLog(s.log), s.set(2, ""))
	for _, r := range []reader{s.log, s.other(), one} {
		s.expect(r, 0, "", "one", one.Number())
		s.expect(r, 1, "", "", 0)
		s.expect(r, 2, "", "", 0)
		if n := len(s.all(r)); n != 3 {
			s.Errorf("Each shows %d keys with empty values, want 3", n)
		}
	}
}

func valuesComeBack(s *suite) {
	other := s.other()
	one := s.open(s.log, "one")
	every := make([]byte, 1<<16)
	for i := range every {
		every[i] = byte(i ^ i>>8)
	}
	long := keyedlog.Change{Key: s.key(0), Value: every}
	s.put(one.Update, long, s.set(1, "\x00"), s.set(2, "Quelle weg: „orders-0“ 日本 🚢"))
	s.put(one.Update, s.set(1, "\xff\xfe"))
	for _, r := range []reader{s.log, other, one} {
		s.expect(r, 0, string(every), "one", one.Number())
		s.expect(r, 1, "\xff\xfe", "one", one.Number())
		s.expect(r, 2, "Quelle weg: „orders-0“ 日本 🚢", "one", one.Number())
	}
}

func errorWritesNothing(s *suite) {
	one := s.open(s.log, "one")
	s.put(one.Update, s.set(0, "x"))
	before := s.all(s.log)
	no := errors.New("no")
	for _, w := range []writer{one.Update, byLog(s.log)} {
		err := w(s.ctx, [][]byte{s.key(0), s.key(1)}, func(keyedlog.View) ([]keyedlog.Change, error) {
			return []keyedlog.Change{s.set(1, "y")}, no
		})
		if err != no {
			s.Errorf("Update: error %v, want decide's as it is", err)
		}
	}
	s.same("after decisions that failed", before, s.all(s.log))
	s.put(one.Update, s.set(0, "y")) // and the session lives on
}

func noChangesWriteNothing(s *suite) {
	one := s.open(s.log, "one")
	s.put(one.Update, s.set(0, "x"))
	before := s.all(s.log)
	for _, w := range []writer{one.Update, byLog(s.log)} {
		for _, changes := range [][]keyedlog.Change{nil, {}} {
			calls := 0
			err := w(s.ctx, [][]byte{s.key(0), s.key(1)}, func(v keyedlog.View) ([]keyedlog.Change, error) {
				calls++
				if r, ok := v.Get(s.key(0)); !ok || string(r.Value) != "x" {
					s.Errorf("decide sees %s", text(r))
				}
				return changes, nil
			})
			if err != nil || calls == 0 {
				s.Errorf("Update without changes: error %v, decided %d times", err, calls)
			}
		}
	}
	s.put(one.Update) // not even a key
	s.same("after decisions to change nothing", before, s.all(s.log))
	s.refuse(s.open(s.log, "two").Update, keyedlog.ErrOwned, s.set(0, "y"))
}

func slicesAreNotKept(s *suite) {
	other := s.other()
	one := s.open(s.log, "one")
	for i, w := range []writer{one.Update, byLog(s.log)} {
		key, name, value := s.key(i), s.key(i), []byte("value")
		changes := []keyedlog.Change{{Key: key, Value: value, Release: true}}
		if err := w(s.ctx, [][]byte{name}, func(keyedlog.View) ([]keyedlog.Change, error) { return changes, nil }); err != nil {
			s.Fatalf("Update: %v", err)
		}
		clear(key)
		clear(name)
		clear(value)
		clear(changes)
	}
	for i := range 2 {
		for _, r := range []reader{s.log, other, one} {
			s.expect(r, i, "value", "", 0)
		}
	}
	prefix := bytes.Clone(s.key(0))
	n := 0
	s.read(s.log, func(v keyedlog.View) error {
		return v.Each(prefix, func(keyedlog.Record) error { n++; return nil })
	})
	if n != 1 {
		s.Errorf("Each shows %d keys, want 1", n)
	}
}

// pair is two ways to write, who might be two processes.
type pair struct {
	name     string
	one, two writer
}

func (s *suite) pairs() []pair {
	other := s.other()
	one, two := s.open(s.log, "one"), s.open(other, "two")
	return []pair{
		{"two updates of the log", byLog(s.log), byLog(other)},
		{"a session behind an update of the log", one.Update, byLog(other)},
		{"an update of the log behind a session", byLog(s.log), two.Update},
		{"two sessions", one.Update, two.Update},
		{"one session twice", one.Update, one.Update},
	}
}

// Two that change one key at once: whoever decided on what the other one has changed since decides anew.
func interferenceBeginsAnew(s *suite) {
	for n, p := range s.pairs() {
		keys := [][]byte{s.key(n)}
		calls, inside, otherErr, err := s.interrupt(p.one, keys, counted(keys[0], 1), func() error { return p.two(s.ctx, keys, counted(keys[0], 10)) })
		if err != nil || otherErr != nil {
			s.Errorf("%s: %v; %v", p.name, err, otherErr)
			continue
		}
		if inside && calls < 2 {
			s.Errorf("%s: decided once, although the key was changed meanwhile", p.name)
		}
		s.expect(s.log, n, "11", "", 0)
	}
}

// Who is always too late gives up with the context, and has written nothing.
func interferenceEndsWithTheContext(s *suite) {
	for n, p := range s.pairs() {
		keys := [][]byte{s.key(n)}
		ctx, cancel := context.WithCancel(s.ctx)
		calls, late := 0, 0
		finish := func() error { return nil }
		err := p.one(ctx, keys, func(keyedlog.View) ([]keyedlog.Change, error) {
			calls++
			if calls <= 3 && late == calls-1 {
				var inside bool
				if inside, finish = s.meanwhile(func() error { return p.two(s.ctx, keys, counted(keys[0], 1)) }); inside {
					late++
				}
			}
			if late == 3 {
				cancel()
			}
			return []keyedlog.Change{s.released(n, "1000")}, nil
		})
		cancel()
		if otherErr := finish(); otherErr != nil {
			s.Errorf("%s: the one that came in between: %v", p.name, otherErr)
			continue
		}
		if late == 3 {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, keyedlog.ErrOutcomeUnknown) {
				s.Errorf("%s: too late three times, and then cancelled: error %v, want %v", p.name, err, context.Canceled)
			}
			s.expect(s.log, n, "3", "", 0)
		} else if err != nil {
			s.Errorf("%s: %v", p.name, err)
		}
	}
}

// Each looks at the key that the other one changes. In either order one of them sees the other.
func decisionsAreSerial(s *suite) {
	next := func(from, to []byte) decision {
		return func(v keyedlog.View) ([]keyedlog.Change, error) {
			return []keyedlog.Change{{Key: to, Value: []byte(strconv.Itoa(number(v, from) + 1)), Release: true}}, nil
		}
	}
	for n, p := range s.pairs() {
		a, b := s.key(2*n), s.key(2*n+1)
		keys := [][]byte{a, b}
		_, _, otherErr, err := s.interrupt(p.one, keys, next(a, b), func() error { return p.two(s.ctx, keys, next(b, a)) })
		if err != nil || otherErr != nil {
			s.Errorf("%s: %v; %v", p.name, err, otherErr)
			continue
		}
		s.read(s.log, func(v keyedlog.View) error {
			if x, y := number(v, a), number(v, b); x+y != 3 {
				s.Errorf("%s: the keys hold %d and %d, which no order makes; want 1 and 2, or 2 and 1", p.name, x, y)
			}
			return nil
		})
	}
}

// While somebody decides a session writes a key that it has, alone and beside one that it claims, and the session is opened again.
func ownKeysMayMoveMeanwhile(s *suite) {
	other := s.other()
	one := s.open(other, "one")
	const own, claimed, seen = 0, 1, 2
	look := func(v keyedlog.View) ([]keyedlog.Change, error) {
		return []keyedlog.Change{s.set(seen, strconv.Itoa(number(v, s.key(own))+100*int(v.Session("one"))))}, nil
	}
	first := int(one.Number())
	s.put(one.Update, s.set(own, "1"))
	for _, c := range []struct {
		what        string
		meanwhile   func() error
		then        string // what is in the session's key
		loose, want int    // what may have been seen, too, and what is
	}{
		{"a key that a session has was written", func() error { return s.try(one.Update, s.set(own, "2")) }, "2", 100*first + 1, 100*first + 2},
		{"a session claimed a key", func() error { return s.try(one.Update, s.set(own, "3"), s.released(claimed, "x")) }, "3", 0, 100*first + 3},
		{"a session was opened", func() error { _, err := other.Open(s.ctx, "one"); return err }, "3", 0, 100*(first+1) + 3},
	} {
		_, inside, otherErr, err := s.interrupt(byLog(s.log), nil, look, c.meanwhile)
		if err != nil || otherErr != nil {
			s.Fatalf("%s while a log decided: %v; %v", c.what, err, otherErr)
		}
		s.expect(s.log, own, c.then, "one", one.Number())
		s.read(other, func(v keyedlog.View) error {
			if got := number(v, s.key(seen)); inside && got != c.want && got != c.loose {
				s.Errorf("%s while a log decided: it decided on %d, want %d", c.what, got, c.want)
			}
			return nil
		})
	}
}

// A key that gets an owner while somebody else decides is the owner's.
func ownedMeanwhileIsRefused(s *suite) {
	other := s.other()
	one, two := s.open(s.log, "one"), s.open(other, "two")
	for n, w := range []writer{byLog(s.log), one.Update} {
		keys := [][]byte{s.key(n)}
		_, inside, otherErr, err := s.interrupt(w, keys, counted(keys[0], 1), func() error { return s.try(two.Update, s.set(n, "mine")) })
		if otherErr != nil {
			s.Fatalf("Update of a key that nobody owns: %v", otherErr)
		}
		switch {
		case inside && !errors.Is(err, keyedlog.ErrOwned):
			s.Errorf("a key that got an owner meanwhile: error %v, want %v", err, keyedlog.ErrOwned)
		case !inside && err != nil:
			s.Errorf("Update of a key that nobody owned yet: %v", err)
		}
		s.expect(s.log, n, "mine", "two", two.Number())
	}
}

// race lets each writer count a key up, several goroutines at once, and demands the exact sum.
func (s *suite) race(writers []writer) {
	s.Helper()
	type tally struct {
		reported, unknown int
		problem           error
	}
	tallies := make([]tally, len(writers)*s.writers)
	var wait sync.WaitGroup
	for i := range tallies {
		wait.Go(func() {
			t := &tallies[i]
			for range s.rounds {
				err := writers[i%len(writers)](s.ctx, [][]byte{s.key(0), s.key(1)}, func(v keyedlog.View) ([]keyedlog.Change, error) {
					a, _ := counted(s.key(0), 1)(v)
					b, _ := counted(s.key(1), -1)(v)
					return append(a, b...), nil
				})
				switch {
				case err == nil:
					t.reported++
				case errors.Is(err, keyedlog.ErrOutcomeUnknown):
					t.unknown++
				default:
					t.problem = err
					return
				}
			}
		})
	}
	wait.Wait()
	var sum tally
	for _, t := range tallies {
		if t.problem != nil {
			s.Fatalf("one of several that write at once: %v", t.problem)
		}
		sum.reported, sum.unknown = sum.reported+t.reported, sum.unknown+t.unknown
	}
	s.read(s.log, func(v keyedlog.View) error {
		n, m := number(v, s.key(0)), number(v, s.key(1))
		if n < sum.reported || n > sum.reported+sum.unknown || n != -m {
			s.Errorf("%d goroutines have counted to %d and %d; %d were reported as written, %d as unknown", len(tallies), n, m, sum.reported, sum.unknown)
		}
		return nil
	})
}

func racingUpdatesAllCount(s *suite) {
	s.race([]writer{byLog(s.log), byLog(s.other())})
}

func racingSessionsAllCount(s *suite) {
	s.race([]writer{s.open(s.log, "one").Update, s.open(s.other(), "two").Update})
}

func batchesAreWholeToReaders(s *suite) {
	other := s.other()
	one := s.open(s.log, "one")
	const keys = 6
	for _, w := range []writer{byLog(s.log), one.Update} {
		written := make(chan error, 1)
		go func() {
			for round := range s.rounds {
				var changes []keyedlog.Change
				for n := range keys {
					changes = append(changes, s.set(n, strconv.Itoa(round)))
				}
				if err := s.try(w, changes...); err != nil {
					written <- err
					return
				}
			}
			written <- nil
		}()
		for reading := true; reading; {
			select {
			case err := <-written:
				if err != nil {
					s.Fatalf("Update: %v", err)
				}
				reading = false
			default:
			}
			s.read(other, func(v keyedlog.View) error {
				first, there := v.Get(s.key(0))
				for n := 1; n < keys; n++ {
					r, ok := v.Get(s.key(n))
					if ok != there || !bytes.Equal(r.Value, first.Value) || r.Writer != first.Writer {
						s.Errorf("a reader sees a batch in part: %s, %s", text(first), text(r))
						return nil
					}
				}
				return nil
			})
		}
	}
}

func endedContextDoesNothing(s *suite) {
	one := s.open(s.log, "one")
	s.put(one.Update, s.set(0, "x"))
	before := s.all(s.log)
	cancelled, cancel := context.WithCancel(s.ctx)
	cancel()
	late, cancelLate := context.WithTimeout(s.ctx, 0)
	defer cancelLate()
	for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
		check := func(call string, err error) {
			s.Helper()
			if !errors.Is(err, want) {
				s.Errorf("%s with an ended context: error %v, want %v", call, err, want)
			}
		}
		decide := func(keyedlog.View) ([]keyedlog.Change, error) {
			return []keyedlog.Change{s.set(1, "y")}, nil
		}
		nothing := func(keyedlog.View) error { return nil }
		_, err := s.log.Open(ctx, "one")
		check("Open", err)
		check("Log.Update", s.log.Update(ctx, decide))
		check("Log.Read", s.log.Read(ctx, nothing))
		check("Session.Update", one.Update(ctx, [][]byte{s.key(1)}, decide))
		check("Session.Read", one.Read(ctx, nothing))
		check("Session.Check", one.Check(ctx))
	}
	s.same("after calls with an ended context", before, s.all(s.log))
	s.put(one.Update, s.set(0, "y")) // and the session still lives
}

func cancelledWhileDecidingIsAllOrNothing(s *suite) {
	for n, open := range []func() writer{
		func() writer { return byLog(s.log) },
		func() writer { return s.open(s.log, "one").Update },
	} {
		ctx, cancel := context.WithCancel(s.ctx)
		a, b := 2*n, 2*n+1
		err := open()(ctx, [][]byte{s.key(a), s.key(b)}, func(keyedlog.View) ([]keyedlog.Change, error) {
			cancel()
			return []keyedlog.Change{s.set(a, "x"), s.set(b, "x")}, nil
		})
		cancel()
		// a session that lost track may be unusable: what is there is judged by a new one's View
		next := s.open(s.other(), "one")
		s.read(next, func(v keyedlog.View) error {
			_, first := v.Get(s.key(a))
			_, second := v.Get(s.key(b))
			if first != second || err == nil && !first {
				s.Errorf("cancelled while it decided, Update returned %v; of two keys there are: %s", err, fmt.Sprint(first, second))
			}
			return nil
		})
	}
}
