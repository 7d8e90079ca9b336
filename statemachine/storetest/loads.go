package storetest

import (
	"context"
	"errors"
	"sync"

	sm "github.com/clustermirror/clustermirror/statemachine"
)

func loadShowsEveryKeyOnce(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	const keys = 300
	for at := 0; at < keys; at += 100 {
		var batch []sm.Write
		for i := range 100 {
			batch = append(batch, set(key(at+i), sm.Preparing))
		}
		session := one
		if at == 100 {
			session = two
		}
		s.write(session, batch...)
	}
	s.accept(one, set(key(0), sm.Mirroring))
	for _, l := range []loader{one, two, s.store} { // a session sees what others own
		entries := s.entries(l)
		if len(entries) != keys {
			s.Fatalf("Load shows %d keys of %d", len(entries), keys)
		}
		for i := range keys {
			want := "node-1"
			if i/100 == 1 {
				want = "node-2"
			}
			if e := s.find(entries, key(i)); e.Owner != want {
				s.Errorf("%v belongs to %q, want %q", e.Key, e.Owner, want)
			}
		}
		if e := s.find(entries, key(0)); e.State.State != sm.Mirroring {
			s.Errorf("Load shows %v, want the newest, MIRRORING", e.State.State)
		}
	}
}

func loadNeverShowsLessThanWritten(s *suite) {
	session := s.open("node-1")
	const writers, rounds = 4, 12
	problems := make(chan string, writers*rounds)
	var wait sync.WaitGroup
	for i := range writers {
		wait.Go(func() {
			for n := int32(1); n <= rounds; n++ {
				results, err := session.Write(s.ctx, []sm.Write{set(key(i), sm.Preparing)})
				if err != nil || len(results) != 1 || results[0].Err != nil || results[0].StateEpoch != n {
					problems <- "a write of a key that nobody else writes failed or was counted wrong"
					return
				}
				seen := int32(0)
				err = session.Load(s.ctx, func(e sm.Entry) error {
					if e.Key == key(i) {
						seen = e.State.StateEpoch
					}
					return nil
				})
				if err != nil || seen < n {
					problems <- "Load shows less than the session has written"
					return
				}
			}
		})
	}
	wait.Wait()
	close(problems)
	for p := range problems {
		s.Error(p)
	}
}

func loadEndsWithTheCallbacksError(s *suite) {
	session := s.open("node-1")
	s.write(session, set(key(0), sm.Preparing), set(key(1), sm.Preparing), set(key(2), sm.Preparing))
	enough := errors.New("enough")
	for _, l := range []loader{session, s.store} {
		calls := 0
		err := l.Load(s.ctx, func(sm.Entry) error {
			calls++
			if calls == 2 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || calls != 2 {
			s.Errorf("Load: error %v after %d calls, want the callback's error after 2", err, calls)
		}
	}
}

func cancelledContextDoesNothing(s *suite) {
	session := s.open("node-1")
	s.accept(session, set(key(0), sm.Preparing))
	before := s.storeEntries()
	cancelled, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := session.Write(cancelled, []sm.Write{set(key(0), sm.Mirroring), set(key(1), sm.Preparing)}); !errors.Is(err, context.Canceled) {
		s.Errorf("Write with a cancelled context: error %v, want %v", err, context.Canceled)
	}
	if _, err := s.store.Open(cancelled, "node-1"); !errors.Is(err, context.Canceled) {
		s.Errorf("Open with a cancelled context: error %v, want %v", err, context.Canceled)
	}
	for _, l := range []loader{session, s.store} {
		if err := l.Load(cancelled, func(sm.Entry) error { return nil }); !errors.Is(err, context.Canceled) {
			s.Errorf("Load with a cancelled context: error %v, want %v", err, context.Canceled)
		}
	}
	s.same("after calls with a cancelled context", before, s.storeEntries())
	s.accept(session, set(key(0), sm.Mirroring)) // and the session still lives
}

// batchKeys is the size of the batches whose atomicity is checked.
const batchKeys = 8

func batch() []sm.Write {
	writes := make([]sm.Write, batchKeys)
	for i := range writes {
		writes[i] = set(key(i), sm.Preparing)
	}
	return writes
}

// whole demands that the keys of batch have one state epoch, and at least that one.
func (s *suite) whole(entries []sm.Entry, atLeast int32) {
	s.Helper()
	if len(entries) == 0 && atLeast == 0 {
		return
	}
	if len(entries) != batchKeys {
		s.Errorf("%d keys of a batch of %d are there", len(entries), batchKeys)
		return
	}
	for _, e := range entries {
		if e.State.StateEpoch != entries[0].State.StateEpoch {
			s.Errorf("a batch is there in part: state epochs %d and %d", entries[0].State.StateEpoch, e.State.StateEpoch)
			return
		}
		if e.State.StateEpoch < atLeast {
			s.Errorf("%v has state epoch %d, but %d was reported as written", e.Key, e.State.StateEpoch, atLeast)
		}
	}
}

func cancelledInTheMiddleIsAllOrNothing(s *suite) {
	var reported int32
	for round := range 12 {
		session := s.open("node-1") // a session that lost track may be unusable: the next round has its own
		ctx, cancel := context.WithCancel(s.ctx)
		begun := make(chan struct{})
		var wait sync.WaitGroup
		wait.Go(func() {
			<-begun
			for range round * 40 { // somewhere into the Write, further each round
				_ = ctx.Err()
			}
			cancel()
		})
		close(begun)
		results, err := session.Write(ctx, batch())
		wait.Wait()
		if err == nil {
			for _, r := range results {
				if r.Err != nil {
					s.Fatalf("a write that nothing forbids was refused: %v", r.Err)
				}
				reported = r.StateEpoch
			}
		}
		s.whole(s.storeEntries(), reported)
	}
}
