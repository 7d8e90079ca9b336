package keyedlogtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// suite is one rule's run.
type suite struct {
	testing.TB
	ctx                      context.Context
	log                      keyedlog.Log
	again                    func() keyedlog.Log
	crash                    func() (keyedlog.Log, error)
	key                      func(int) []byte
	writers, rounds, records int
	interference             time.Duration
}

// plainKey has a record type that nobody uses, bytes that text has not, and no length that the others have.
func plainKey(n int) []byte {
	return append([]byte{0, 100, byte(n), byte(n >> 8)}, bytes.Repeat([]byte{byte(255 - n)}, n%3)...)
}

// decision is what Update calls.
type decision = func(keyedlog.View) ([]keyedlog.Change, error)

// writer is Log.Update or Session.Update.
type writer func(ctx context.Context, keys [][]byte, decide decision) error

func byLog(l keyedlog.Log) writer {
	return func(ctx context.Context, _ [][]byte, decide decision) error { return l.Update(ctx, decide) }
}

// reader is a Log or a Session.
type reader interface {
	Read(ctx context.Context, read func(keyedlog.View) error) error
}

// other is a second handle if there is one.
func (s *suite) other() keyedlog.Log {
	if s.again == nil {
		return s.log
	}
	return s.again()
}

func (s *suite) open(l keyedlog.Log, name string) keyedlog.Session {
	s.Helper()
	session, err := l.Open(s.ctx, name)
	if err != nil {
		s.Fatalf("Open(%q): %v", name, err)
	}
	return session
}

// crashed ends the process; s.log is then the next one's.
func (s *suite) crashed() {
	s.Helper()
	log, err := s.crash()
	if err != nil {
		s.Fatalf("the log does not come back after a crash: %v", err)
	}
	s.log = log
}

func (s *suite) set(n int, value string) keyedlog.Change {
	return keyedlog.Change{Key: s.key(n), Value: []byte(value)}
}

func (s *suite) released(n int, value string) keyedlog.Change {
	return keyedlog.Change{Key: s.key(n), Value: []byte(value), Release: true}
}

func (s *suite) gone(n int) keyedlog.Change { return keyedlog.Change{Key: s.key(n)} }

// try writes changes.
func (s *suite) try(w writer, changes ...keyedlog.Change) error {
	keys := [][]byte{}
	for _, c := range changes {
		keys = append(keys, c.Key)
	}
	return w(s.ctx, keys, func(keyedlog.View) ([]keyedlog.Change, error) { return changes, nil })
}

func (s *suite) put(w writer, changes ...keyedlog.Change) {
	s.Helper()
	if err := s.try(w, changes...); err != nil {
		s.Fatalf("Update that nothing forbids: %v", err)
	}
}

// refuse demands that changes are refused with that error, and that nothing is written.
func (s *suite) refuse(w writer, want error, changes ...keyedlog.Change) {
	s.Helper()
	before := s.all(s.log)
	if err := s.try(w, changes...); !errors.Is(err, want) {
		s.Errorf("Update: error %v, want %v", err, want)
	}
	s.same("after an Update that is to be refused with: "+want.Error(), before, s.all(s.log))
}

// fenced demands that a session can do nothing any more.
func (s *suite) fenced(session keyedlog.Session, n int) {
	s.Helper()
	s.refuse(session.Update, keyedlog.ErrFenced, s.set(n, "of a fenced session"))
	s.refuse(session.Update, keyedlog.ErrFenced, s.gone(n))
	s.refuse(session.Update, keyedlog.ErrFenced) // without a change, too
	if err := session.Check(s.ctx); !errors.Is(err, keyedlog.ErrFenced) {
		s.Errorf("Check of a fenced session: %v, want %v", err, keyedlog.ErrFenced)
	}
}

// holds demands that a session is the newest of its name.
func (s *suite) holds(session keyedlog.Session) {
	s.Helper()
	if err := session.Check(s.ctx); err != nil {
		s.Errorf("Check of the newest session: %v", err)
	}
}

func (s *suite) read(r reader, f func(keyedlog.View) error) {
	s.Helper()
	if err := r.Read(s.ctx, f); err != nil {
		s.Fatalf("Read: %v", err)
	}
}

func copied(r keyedlog.Record) keyedlog.Record {
	r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	return r
}

// all is every record, in the order of Each.
func (s *suite) all(r reader) []keyedlog.Record {
	s.Helper()
	var all []keyedlog.Record
	s.read(r, func(v keyedlog.View) error {
		all = nil
		return v.Each(nil, func(r keyedlog.Record) error { all = append(all, copied(r)); return nil })
	})
	return all
}

// record demands a key's record.
func (s *suite) record(r reader, n int) keyedlog.Record {
	s.Helper()
	var got keyedlog.Record
	s.read(r, func(v keyedlog.View) error {
		if record, ok := v.Get(s.key(n)); ok {
			got = copied(record)
		} else {
			s.Errorf("key %d is not there", n)
		}
		return nil
	})
	return got
}

// expect demands a key's value and owner.
func (s *suite) expect(r reader, n int, value, name string, session int64) {
	s.Helper()
	got := s.record(r, n)
	want := keyedlog.Record{Key: s.key(n), Value: []byte(value), Writer: name, Session: session}
	if !equal(got, want) {
		s.Errorf("key %d is %s, want %s", n, text(got), text(want))
	}
}

// absent demands that a key is not there.
func (s *suite) absent(r reader, n int) {
	s.Helper()
	s.read(r, func(v keyedlog.View) error {
		if got, ok := v.Get(s.key(n)); ok {
			s.Errorf("key %d is there: %s", n, text(got))
		}
		return v.Each(s.key(n), func(r keyedlog.Record) error {
			s.Errorf("Each shows key %d: %s", n, text(r))
			return nil
		})
	})
}

func (s *suite) version(r reader) (version int64) {
	s.Helper()
	s.read(r, func(v keyedlog.View) error { version = v.Version(); return nil })
	return version
}

func equal(a, b keyedlog.Record) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil) && a.Writer == b.Writer && a.Session == b.Session
}

func text(r keyedlog.Record) string {
	value := fmt.Sprintf("%.80q", r.Value)
	if r.Value == nil {
		value = "nil"
	}
	return fmt.Sprintf("%x = %s of %q, session %d", r.Key, value, r.Writer, r.Session)
}

func (s *suite) same(when string, want, got []keyedlog.Record) {
	s.Helper()
	if !slices.EqualFunc(want, got, equal) {
		s.Errorf("%s:\n%swant\n%s", when, lines(got), lines(want))
	}
}

func lines(records []keyedlog.Record) string {
	var b bytes.Buffer
	for _, r := range records {
		b.WriteString("  " + text(r) + "\n")
	}
	return b.String()
}

// number is the number that a key holds, 0 where it is not there.
func number(v keyedlog.View, key []byte) int {
	r, ok := v.Get(key)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(string(r.Value))
	if err != nil {
		return -1 << 30
	}
	return n
}

// counted is a decision that adds to a key's number, and leaves the key to nobody.
func counted(key []byte, by int) decision {
	return func(v keyedlog.View) ([]keyedlog.Change, error) {
		return []keyedlog.Change{{Key: key, Value: []byte(strconv.Itoa(number(v, key) + by)), Release: true}}, nil
	}
}

// meanwhile begins what somebody else does, and waits for it, but for no longer than a while. finish waits for its end and returns its error.
func (s *suite) meanwhile(other func() error) (inside bool, finish func() error) {
	done := make(chan error, 1)
	go func() { done <- other() }()
	bound := time.NewTimer(s.interference)
	defer bound.Stop()
	select {
	case err := <-done:
		return true, func() error { return err }
	case <-bound.C:
		return false, func() error { return <-done }
	}
}

// interrupt lets w decide, and somebody else write during the first decision. It returns how often was decided, whether other ended inside the first decision, and the errors
// of both. A log that lets nobody in while it decides is right as well; then other ends after it.
func (s *suite) interrupt(w writer, keys [][]byte, decide decision, other func() error) (calls int, inside bool, otherErr, err error) {
	var finish func() error
	err = w(s.ctx, keys, func(v keyedlog.View) ([]keyedlog.Change, error) {
		calls++
		if calls == 1 {
			inside, finish = s.meanwhile(other)
		}
		return decide(v)
	})
	if calls == 0 {
		s.Fatalf("decide was not called: %v", err)
	}
	return calls, inside, finish(), err
}
