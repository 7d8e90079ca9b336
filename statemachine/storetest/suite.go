package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	sm "github.com/clustermirror/clustermirror/statemachine"
)

// suite is one rule's run.
type suite struct {
	testing.TB
	ctx   context.Context
	store sm.StateStore
	crash func() (sm.StateStore, error)
}

func (s *suite) open(owner string) sm.Session {
	s.Helper()
	session, err := s.store.Open(s.ctx, owner)
	if err != nil {
		s.Fatalf("Open(%q): %v", owner, err)
	}
	return session
}

// crashed ends the process; s.store is then the next one's.
func (s *suite) crashed() {
	s.Helper()
	store, err := s.crash()
	if err != nil {
		s.Fatalf("the store does not come back after a crash: %v", err)
	}
	s.store = store
}

// write writes a batch and fails when the batch as a whole is refused.
func (s *suite) write(session sm.Session, writes ...sm.Write) []sm.WriteResult {
	s.Helper()
	results, err := session.Write(s.ctx, writes)
	if err != nil {
		s.Fatalf("Write: %v", err)
	}
	if len(results) != len(writes) {
		s.Fatalf("Write of %d returned %d results", len(writes), len(results))
	}
	return results
}

// accept writes one write that must be accepted, and returns the state epoch.
func (s *suite) accept(session sm.Session, w sm.Write) int32 {
	s.Helper()
	r := s.write(session, w)[0]
	if r.Err != nil {
		s.Fatalf("write of %v refused: %v", w.Key, r.Err)
	}
	return r.StateEpoch
}

// refuse writes one write that must be refused with that error and must change nothing.
func (s *suite) refuse(session sm.Session, w sm.Write, want error) {
	s.Helper()
	before := s.entries(session)
	r := s.write(session, w)[0]
	if !errors.Is(r.Err, want) {
		s.Errorf("write of %v: error %v, want %v", w.Key, r.Err, want)
	}
	s.same("after a refused write", before, s.entries(session))
}

// fenced demands that the whole session is fenced and writes nothing.
func (s *suite) fenced(session sm.Session, w sm.Write) {
	s.Helper()
	before := s.storeEntries()
	if _, err := session.Write(s.ctx, []sm.Write{w}); !errors.Is(err, sm.ErrFenced) {
		s.Errorf("write of a session whose owner was opened again: error %v, want %v from Write itself", err, sm.ErrFenced)
	}
	s.same("after the write of a fenced session", before, s.storeEntries())
}

type loader interface {
	Load(ctx context.Context, each func(sm.Entry) error) error
}

// entries is everything a Load shows, in order of key. A key that comes twice, or with nothing kept, is an error.
func (s *suite) entries(l loader) []sm.Entry {
	s.Helper()
	var all []sm.Entry
	if err := l.Load(s.ctx, func(e sm.Entry) error { all = append(all, e); return nil }); err != nil {
		s.Fatalf("Load: %v", err)
	}
	slices.SortFunc(all, func(a, b sm.Entry) int { return a.Key.Compare(b.Key) })
	for i, e := range all {
		if i > 0 && all[i-1].Key == e.Key {
			s.Errorf("Load shows key %v twice", e.Key)
		}
		if e.Empty() {
			s.Errorf("Load shows key %v, of which nothing is kept", e.Key)
		}
	}
	return all
}

func (s *suite) storeEntries() []sm.Entry {
	s.Helper()
	return s.entries(s.store)
}

// entry is what a Load shows for a key; a new entry if nothing.
func (s *suite) entry(l loader, k sm.Key) sm.Entry {
	s.Helper()
	for _, e := range s.entries(l) {
		if e.Key == k {
			return e
		}
	}
	return sm.NewEntry(k)
}

// expect demands one key's entry, of the session and of the store.
func (s *suite) expect(session sm.Session, want sm.Entry) {
	s.Helper()
	s.same("Session.Load", []sm.Entry{want}, []sm.Entry{s.entry(session, want.Key)})
	s.same("StateStore.Load", []sm.Entry{want}, []sm.Entry{s.entry(s.store, want.Key)})
}

func (s *suite) same(when string, want, got []sm.Entry) {
	s.Helper()
	if len(want) != len(got) {
		s.Errorf("%s: %d keys, want %d", when, len(got), len(want))
		return
	}
	for i := range want {
		w, g := want[i], got[i]
		wl, gl := w.LME, g.LME
		w.LME, g.LME = nil, nil
		if w != g {
			s.Errorf("%s: entry\n %+v, want\n %+v", when, g, w)
		}
		switch {
		case wl == nil && gl == nil:
		case wl == nil || gl == nil || *wl != *gl:
			s.Errorf("%s: %v: LME %+v, want %+v", when, w.Key, gl, wl)
		}
	}
}

// key is the i-th key of the test's mirror.
func key(i int) sm.Key {
	return sm.Key{Mirror: "a.to-b", TopicID: sm.TopicID{1, 2, 3, byte(i >> 8)}, Partition: int32(i)}
}

// state is a record in that state.
func state(st sm.State) *sm.PartitionState {
	r := sm.NewPartitionState()
	r.State = st
	return &r
}

// set is a write of that state that checks nothing.
func set(k sm.Key, st sm.State) sm.Write {
	return sm.Write{Key: k, ExpectedStateEpoch: -1, LeaderEpoch: -1, State: state(st)}
}

// expecting is the same with an expected state epoch.
func expecting(w sm.Write, stateEpoch int32) sm.Write {
	w.ExpectedStateEpoch = stateEpoch
	return w
}

// under is the same with a leader epoch.
func under(w sm.Write, leaderEpoch int32) sm.Write {
	w.LeaderEpoch = leaderEpoch
	return w
}

// from is the same as a takeover.
func from(w sm.Write, owner string) sm.Write {
	w.TakeFrom = owner
	return w
}

// del is a write of the state's tombstone that checks nothing.
func del(k sm.Key, purge bool) sm.Write {
	return sm.Write{Key: k, ExpectedStateEpoch: -1, LeaderEpoch: -1, Delete: true, Purge: purge}
}

// lastMirror is some LME, of another episode for each epoch.
func lastMirror(epoch int32) *sm.LastMirrorEpoch {
	return &sm.LastMirrorEpoch{Epoch: epoch, Offset: 1 << 40, SourceClusterID: "source.cluster-1", Episode: epoch, SourceTopicID: sm.TopicID{9, 8, 7}}
}
