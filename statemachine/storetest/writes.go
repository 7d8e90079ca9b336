package storetest

import (
	"errors"
	"sync"

	sm "github.com/clustermirror/clustermirror/statemachine"
)

func stateEpochCountsWrites(s *suite) {
	session := s.open("node-1")
	w := set(key(0), sm.Preparing)
	for want := int32(1); want <= 3; want++ {
		w.State.StateEpoch = 40 // ignored
		if got := s.accept(session, w); got != want {
			s.Errorf("state epoch %d after write %d", got, want)
		}
		if e := s.entry(session, key(0)); e.State.StateEpoch != want {
			s.Errorf("state epoch %d stored after write %d", e.State.StateEpoch, want)
		}
	}
	if got := s.accept(session, set(key(1), sm.Preparing)); got != 1 {
		s.Errorf("state epoch %d after the first write of another key, want 1", got)
	}
}

func expectedStateEpochMustMatch(s *suite) {
	session := s.open("node-1")
	for _, wrong := range []int32{1, 7} {
		s.refuse(session, expecting(set(key(0), sm.Preparing), wrong), sm.ErrStateEpoch)
	}
	s.accept(session, expecting(set(key(0), sm.Preparing), 0))
	for _, wrong := range []int32{0, 2, 7} {
		s.refuse(session, expecting(set(key(0), sm.Mirroring), wrong), sm.ErrStateEpoch)
	}
	s.accept(session, expecting(set(key(0), sm.Mirroring), 1))
	s.refuse(session, expecting(set(key(0), sm.Pausing), 1), sm.ErrStateEpoch)
	s.accept(session, expecting(set(key(0), sm.Pausing), -1))
}

func leaderEpochBelowHighestIsFenced(s *suite) {
	session := s.open("node-1")
	s.accept(session, under(set(key(0), sm.Preparing), 5))
	s.refuse(session, under(set(key(0), sm.Mirroring), 4), sm.ErrFenced)
	s.refuse(session, under(set(key(0), sm.Mirroring), 0), sm.ErrFenced)
	s.accept(session, under(set(key(0), sm.Mirroring), 5))
	s.accept(session, set(key(0), sm.Pausing)) // −1 does not check, and does not forget
	s.refuse(session, under(set(key(0), sm.Paused), 4), sm.ErrFenced)
	s.accept(session, under(set(key(0), sm.Paused), 9))
	s.refuse(session, under(set(key(0), sm.Mirroring), 8), sm.ErrFenced)
	if e := s.entry(session, key(0)); e.State.LeaderEpoch != 9 {
		s.Errorf("leader epoch %d stored, want the highest seen, 9", e.State.LeaderEpoch)
	}
	w := set(key(0), sm.Paused)
	w.State.LeaderEpoch = 12 // the record's own counts too
	s.accept(session, w)
	s.refuse(session, under(set(key(0), sm.Mirroring), 11), sm.ErrFenced)
	s.accept(session, under(set(key(1), sm.Preparing), 0)) // each key has its own
	if err := s.write(session, under(set(key(0), sm.Mirroring), 8), under(set(key(1), sm.Mirroring), 0))[1].Err; err != nil {
		s.Errorf("a fenced key fenced another key of the batch: %v", err)
	}
}

// states lists every state.
func states() []sm.State {
	return []sm.State{sm.Preparing, sm.EpochFencing, sm.Mirroring, sm.Pausing, sm.Paused, sm.Stopping, sm.Stopped, sm.Failed, sm.Unknown}
}

// path is a way of legal moves from UNKNOWN to a state.
func path(to sm.State) []sm.State {
	switch to {
	case sm.Unknown:
		return []sm.State{sm.Unknown}
	case sm.Mirroring:
		return []sm.State{sm.Preparing, sm.Mirroring}
	case sm.EpochFencing, sm.Pausing:
		return append(path(sm.Mirroring), to)
	case sm.Paused:
		return append(path(sm.Pausing), to)
	case sm.Stopped:
		return []sm.State{sm.Stopping, sm.Stopped}
	}
	return []sm.State{to}
}

func movesAreLegalOnly(s *suite) {
	session := s.open("node-1")
	var walk, moves []sm.Write
	type move struct {
		from, to sm.State
		writes   int32
	}
	var wanted []move
	for _, from := range states() {
		for _, to := range states() {
			k := key(len(wanted))
			for _, st := range path(from) {
				walk = append(walk, set(k, st))
			}
			moves = append(moves, set(k, to))
			wanted = append(wanted, move{from, to, int32(len(path(from)))})
		}
	}
	for i, r := range s.write(session, walk...) {
		if r.Err != nil {
			s.Fatalf("legal move to %v of %v: %v", walk[i].State.State, walk[i].Key, r.Err)
		}
	}
	results := s.write(session, moves...)
	entries := s.entries(session)
	if len(entries) != len(wanted) {
		s.Fatalf("%d keys after writing %d", len(entries), len(wanted))
	}
	for i, m := range wanted {
		e := s.find(entries, moves[i].Key)
		if sm.Legal(m.from, m.to) {
			if results[i].Err != nil || e.State.State != m.to || e.State.StateEpoch != m.writes+1 {
				s.Errorf("%v → %v: error %v, stored %v", m.from, m.to, results[i].Err, e.State.State)
			}
			continue
		}
		var illegal *sm.IllegalMoveError
		if !errors.As(results[i].Err, &illegal) || illegal.From != m.from || illegal.To != m.to {
			s.Errorf("%v → %v: error %v, want *IllegalMoveError with both states", m.from, m.to, results[i].Err)
		}
		if e.State.State != m.from || e.State.StateEpoch != m.writes {
			s.Errorf("%v → %v refused, but %v stored with state epoch %d", m.from, m.to, e.State.State, e.State.StateEpoch)
		}
	}
}

func (s *suite) find(entries []sm.Entry, k sm.Key) sm.Entry {
	for _, e := range entries {
		if e.Key == k {
			return e
		}
	}
	s.Fatalf("key %v is missing", k)
	return sm.Entry{}
}

// refuseMove demands that a move from a state is refused.
func (s *suite) refuseMove(session sm.Session, w sm.Write, from sm.State) {
	s.Helper()
	before := s.entries(session)
	err := s.write(session, w)[0].Err
	var illegal *sm.IllegalMoveError
	if !errors.As(err, &illegal) || illegal.From != from || illegal.To != w.State.State {
		s.Errorf("%v → %v of %v: error %v, want *IllegalMoveError", from, w.State.State, w.Key, err)
	}
	s.same("after an illegal move", before, s.entries(session))
}

func checksComeInOrder(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	s.accept(one, under(set(key(0), sm.Preparing), 5))
	illegal := set(key(0), sm.Stopped)
	s.refuseMove(one, under(expecting(illegal, 1), 5), sm.Preparing)
	s.refuse(one, under(expecting(illegal, 9), 5), sm.ErrStateEpoch)
	s.refuse(one, under(expecting(illegal, 9), 4), sm.ErrFenced)
	s.refuse(two, under(expecting(illegal, 9), 4), sm.ErrNotOwner)
	both := under(expecting(illegal, 9), 4)
	both.Delete = true
	s.refuse(two, both, sm.ErrContradiction)
}

func contradictionsAreRefused(s *suite) {
	session := s.open("node-1")
	s.accept(session, set(key(0), sm.Preparing))
	w := set(key(0), sm.Mirroring)
	w.Delete = true
	s.refuse(session, w, sm.ErrContradiction)
	w = del(key(0), true)
	w.LME = lastMirror(4)
	s.refuse(session, w, sm.ErrContradiction)
	w = del(key(0), true)
	w.Delete = false
	s.refuse(session, w, sm.ErrContradiction)
}

func emptyBatch(s *suite) {
	session := s.open("node-1")
	s.write(session)
	if n := len(s.entries(session)); n != 0 {
		s.Errorf("%d keys after an empty batch", n)
	}
}

func refusedAlone(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	s.accept(two, set(key(3), sm.Preparing))
	s.accept(one, under(set(key(4), sm.Preparing), 5))
	results := s.write(one,
		set(key(0), sm.Preparing),
		set(key(1), sm.Stopped), // illegal
		set(key(2), sm.Preparing),
		set(key(3), sm.Mirroring),           // not owner
		under(set(key(4), sm.Mirroring), 4), // fenced
		expecting(set(key(5), sm.Preparing), 8),
		set(key(6), sm.Stopping),
	)
	var illegal *sm.IllegalMoveError
	if !errors.As(results[1].Err, &illegal) {
		s.Errorf("result 1: %v, want *IllegalMoveError", results[1].Err)
	}
	for i, want := range map[int]error{0: nil, 2: nil, 3: sm.ErrNotOwner, 4: sm.ErrFenced, 5: sm.ErrStateEpoch, 6: nil} {
		if !errors.Is(results[i].Err, want) {
			s.Errorf("result %d: error %v, want %v", i, results[i].Err, want)
		}
	}
	for i, want := range []int32{1, 0, 1, 1, 1, 0, 1} {
		if got := s.entry(one, key(i)).State.StateEpoch; got != want {
			s.Errorf("key %d has state epoch %d, want %d", i, got, want)
		}
	}
	s.accept(one, set(key(0), sm.Mirroring)) // the session lives on
}

func batchIsJudgedInOrder(s *suite) {
	session := s.open("node-1")
	results := s.write(session,
		expecting(set(key(0), sm.Preparing), 0),
		expecting(set(key(0), sm.Mirroring), 1),
		expecting(set(key(0), sm.Pausing), 1), // no more
		expecting(set(key(0), sm.Pausing), 2),
	)
	for i, want := range []int32{1, 2, -1, 3} {
		if results[i].StateEpoch != want || (results[i].Err == nil) != (want > 0) {
			s.Errorf("result %d: %+v, want state epoch %d", i, results[i], want)
		}
	}
	if e := s.entry(session, key(0)); e.State.State != sm.Pausing || e.State.StateEpoch != 3 {
		s.Errorf("stored %+v, want PAUSING with state epoch 3", e.State)
	}
}

func writeWithoutChangeChecksOnly(s *suite) {
	one, two := s.open("node-1"), s.open("node-2")
	nothing := sm.Write{Key: key(0), ExpectedStateEpoch: -1, LeaderEpoch: -1}
	if got := s.accept(two, nothing); got != 0 {
		s.Errorf("state epoch %d of a key without a record, want 0", got)
	}
	s.accept(one, set(key(0), sm.Preparing)) // the check claimed nothing
	before := s.entries(one)
	if got := s.accept(one, expecting(nothing, 1)); got != 1 {
		s.Errorf("state epoch %d, want 1", got)
	}
	s.same("after a write without a change", before, s.entries(one))
	s.refuse(one, expecting(nothing, 2), sm.ErrStateEpoch)
	s.refuse(two, nothing, sm.ErrNotOwner)
}

func racingWritersLeaveOne(s *suite) {
	session := s.open("node-1")
	const writers = 6
	for epoch := range int32(10) {
		results := make([][]sm.WriteResult, writers)
		errs := make([]error, writers)
		var wait sync.WaitGroup
		for i := range writers {
			wait.Go(func() {
				results[i], errs[i] = session.Write(s.ctx, []sm.Write{expecting(set(key(0), sm.Preparing), epoch)})
			})
		}
		wait.Wait()
		won := 0
		for i := range writers {
			switch {
			case errs[i] != nil || len(results[i]) != 1:
				s.Fatalf("Write: %d results, error %v", len(results[i]), errs[i])
			case results[i][0].Err == nil:
				won++
			case !errors.Is(results[i][0].Err, sm.ErrStateEpoch):
				s.Errorf("the loser's error is %v, want %v", results[i][0].Err, sm.ErrStateEpoch)
			}
		}
		if won != 1 {
			s.Errorf("%d of %d writers that expected state epoch %d were accepted, want 1", won, writers, epoch)
		}
	}
}

func everyFieldComesBack(s *suite) {
	session := s.open("node-1")
	r := sm.PartitionState{
		State: sm.Failed, LeaderEpoch: 12, ErrorMessage: "Quelle weg: „orders-0“\n\x00 日本 🚢", RetryAttempt: sm.NonRetryable, PreviousState: sm.Mirroring, Episode: 1<<31 - 1,
		SourceClusterID: "4L6g3nShT-eMCtK--X86sw", SourceTopicID: sm.TopicID{0: 1, 15: 255}, FoundOpen: true, HoleFrom: 1 << 40, HoleTo: 1<<62 + 1,
	}
	lme := &sm.LastMirrorEpoch{Epoch: 1<<31 - 1, Offset: 1<<62 + 1, SourceClusterID: "4L6g3nShT-eMCtK--X86sw", Episode: 6, SourceTopicID: sm.TopicID{0: 255, 15: 1}, Cut: true}
	names := []string{"a", "a.stopped-1", "b-1_2.c", "node"}
	for i, mirror := range names {
		k := sm.Key{Mirror: mirror, TopicID: sm.TopicID{15: byte(i)}, Partition: int32(1)<<30 + int32(i)}
		s.accept(session, sm.Write{Key: k, LeaderEpoch: 12, State: &r, LME: lme})
		want := r
		want.StateEpoch = 1
		s.expect(session, sm.Entry{Key: k, Owner: "node-1", State: want, LME: lme})
	}
	if n := len(s.entries(session)); n != len(names) {
		s.Errorf("%d keys, want %d", n, len(names))
	}
	unknown := &sm.LastMirrorEpoch{Epoch: -1, Offset: -1}
	s.accept(session, sm.Write{Key: key(0), LeaderEpoch: -1, State: state(sm.Stopping), LME: unknown})
	want := *state(sm.Stopping)
	want.StateEpoch = 1
	s.expect(session, sm.Entry{Key: key(0), Owner: "node-1", State: want, LME: unknown})
}

func lmeAloneLeavesTheState(s *suite) {
	session := s.open("node-1")
	alone := sm.Write{Key: key(0), ExpectedStateEpoch: -1, LeaderEpoch: -1, LME: lastMirror(3)}
	if got := s.accept(session, alone); got != 0 {
		s.Errorf("state epoch %d after an LME on a key without a state, want 0", got)
	}
	s.expect(session, sm.Entry{Key: key(0), Owner: "node-1", State: sm.NewPartitionState(), LME: lastMirror(3)})
	s.accept(session, expecting(set(key(0), sm.Stopping), 0))
	alone.LME = lastMirror(4)
	if got := s.accept(session, expecting(alone, 1)); got != 1 {
		s.Errorf("state epoch %d after an LME alone, want 1", got)
	}
	s.refuse(session, expecting(alone, 2), sm.ErrStateEpoch)
	want := *state(sm.Stopping)
	want.StateEpoch = 1
	s.expect(session, sm.Entry{Key: key(0), Owner: "node-1", State: want, LME: lastMirror(4)})
	s.accept(session, set(key(0), sm.Stopped)) // and a state alone leaves the LME
	want.State, want.StateEpoch = sm.Stopped, 2
	s.expect(session, sm.Entry{Key: key(0), Owner: "node-1", State: want, LME: lastMirror(4)})
}

func lmeIsWrittenOncePerEpisode(s *suite) {
	session := s.open("node-1")
	w := set(key(0), sm.Stopping)
	w.LME = lastMirror(3)
	s.accept(session, w)
	s.accept(session, w) // the same once more
	for _, change := range []func(*sm.LastMirrorEpoch){
		func(e *sm.LastMirrorEpoch) { e.Epoch++ },
		func(e *sm.LastMirrorEpoch) { e.Offset-- },
		func(e *sm.LastMirrorEpoch) { e.SourceClusterID = "" },
		func(e *sm.LastMirrorEpoch) { e.SourceTopicID = sm.TopicID{} },
		func(e *sm.LastMirrorEpoch) { e.Cut = true },
	} {
		other := lastMirror(3)
		change(other)
		s.refuse(session, sm.Write{Key: key(0), ExpectedStateEpoch: -1, LeaderEpoch: -1, LME: other}, sm.ErrLMEWritten)
		beside := set(key(0), sm.Stopped) // neither is written
		beside.LME = other
		s.refuse(session, beside, sm.ErrLMEWritten)
		gone := del(key(0), false)
		gone.LME = other
		s.refuse(session, gone, sm.ErrLMEWritten)
	}
	illegal := set(key(0), sm.Mirroring) // legality comes first
	illegal.LME = lastMirror(3)
	illegal.LME.Offset--
	s.refuseMove(session, illegal, sm.Stopping)
	s.accept(session, del(key(0), false)) // the LME stays, and so does the rule
	again := sm.Write{Key: key(0), ExpectedStateEpoch: -1, LeaderEpoch: -1, LME: lastMirror(3)}
	s.accept(session, again)
	again.LME = lastMirror(3)
	again.LME.Offset = 7
	s.refuse(session, again, sm.ErrLMEWritten)
	again.LME.Episode = 4
	s.accept(session, again)
	s.accept(session, del(key(0), true))
	again.LME = lastMirror(4)
	s.accept(session, again)
	s.expect(session, sm.Entry{Key: key(0), Owner: "node-1", State: sm.NewPartitionState(), LME: lastMirror(4)})
}

func storeCopies(s *suite) {
	session := s.open("node-1")
	w := set(key(0), sm.Stopping)
	w.LME = lastMirror(3)
	s.accept(session, w)
	want := *state(sm.Stopping)
	want.StateEpoch = 1
	w.State.State, w.LME.Epoch = sm.Failed, 99
	s.expect(session, sm.Entry{Key: key(0), Owner: "node-1", State: want, LME: lastMirror(3)})
	for _, l := range []loader{session, s.store} {
		if lme := s.entry(l, key(0)).LME; lme != nil {
			lme.Epoch = 98
		}
	}
	s.expect(session, sm.Entry{Key: key(0), Owner: "node-1", State: want, LME: lastMirror(3)})
}
