package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	sm "github.com/clustermirror/clustermirror/statemachine"
)

// disk is what outlives a crash in these tests.
type disk struct {
	mu       sync.Mutex
	records  map[sm.Key]record
	openings map[string]int
	last     int
}

type record struct {
	entry   sm.Entry
	opening int
}

func newDisk() *disk {
	return &disk{records: map[sm.Key]record{}, openings: map[string]int{}}
}

// store is right when fault is "", and wrong in one way otherwise.
type store struct {
	*disk
	fault string
	died  chan struct{} // closed when the process crashes

	batches int           // of batchKeys writes that began, for "half a batch"
	torn    chan struct{} // closed when half of one is written
}

func newStore(d *disk, fault string) *store {
	return &store{disk: d, fault: fault, died: make(chan struct{}), torn: make(chan struct{})}
}

func (s *store) is(fault string) bool { return s.fault == fault }

func (s *store) Open(ctx context.Context, owner string) (sm.Session, error) {
	if err := ctx.Err(); err != nil && !s.is("open ignores the context") {
		return nil, err
	}
	if owner == "" && !s.is("open takes no name") {
		return nil, errors.New("no name")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.openings[owner] = s.last
	if s.is("open fences everybody") {
		for other := range s.openings {
			s.openings[other] = s.last
		}
	}
	return &session{store: s, owner: owner, opening: s.last}, nil
}

func (s *store) Load(ctx context.Context, each func(sm.Entry) error) error {
	s.mu.Lock()
	records := maps.Clone(s.records)
	s.mu.Unlock()
	if err := ctx.Err(); err != nil && !s.is("load ignores the context") {
		return err
	}
	for _, k := range slices.SortedFunc(maps.Keys(records), sm.Key.Compare) {
		e := records[k].entry
		if s.is("load forgets the owner") {
			e.Owner = ""
		}
		if e.LME != nil && !s.is("load shares memory") {
			lme := *e.LME
			e.LME = &lme
		}
		n := 1
		if s.is("load shows keys twice") {
			n = 2
		}
		for range n {
			if err := each(e); err != nil {
				if s.is("load swallows the callback's error") {
					return nil
				}
				return err
			}
		}
	}
	return nil
}

func (s *store) Close() error { return nil }

type session struct {
	*store
	owner   string
	opening int
	closed  bool
	behind  map[sm.Key]record // what a late Load shows
}

func (s *session) Load(ctx context.Context, each func(sm.Entry) error) error {
	if !s.is("load is one write behind") {
		return s.store.Load(ctx, each)
	}
	s.mu.Lock()
	now := s.records
	s.records = s.behind
	s.mu.Unlock()
	err := s.store.Load(ctx, each)
	s.mu.Lock()
	s.records = now
	s.mu.Unlock()
	return err
}

func (s *session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.is("close fences the next session") {
		s.openings[s.owner] = -1
	}
	return nil
}

func (s *session) Write(ctx context.Context, writes []sm.Write) ([]sm.WriteResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil && !s.is("write ignores the context") {
		return nil, err
	}
	if s.closed && !s.is("closed sessions write") {
		return nil, sm.ErrClosed
	}
	if s.openings[s.owner] != s.opening && !s.is("nobody is fenced") {
		if s.is("fenced by result") {
			results := make([]sm.WriteResult, len(writes))
			for i := range results {
				results[i].Err = sm.ErrFenced
			}
			return results, nil
		}
		return nil, sm.ErrFenced
	}
	after := maps.Clone(s.records)
	results := make([]sm.WriteResult, len(writes))
	refused := false
	if len(writes) == batchKeys {
		s.batches++
	}
	for i, w := range writes {
		from := after
		if s.is("batch is judged against what was before") {
			from = s.records
		}
		r, ok := from[w.Key]
		if !ok {
			r.entry = sm.NewEntry(w.Key)
		}
		before := r.entry
		r.entry, results[i] = s.apply(before, w, s.openings[before.Owner] > r.opening)
		refused = refused || results[i].Err != nil
		if results[i].Err == nil && (w.State != nil || w.LME != nil || w.Delete || s.is("a check claims the key")) {
			r.opening = s.opening
			after[w.Key] = r
		}
		if r.entry.Empty() {
			delete(after, w.Key)
		}
		if s.is("half a batch") && i == len(writes)/2 && s.batches == tornBatch {
			s.records = maps.Clone(after)
			close(s.torn)
			s.mu.Unlock()
			select { // the process dies here, or gives up
			case <-s.died:
			case <-ctx.Done():
			}
			s.mu.Lock()
			return nil, sm.ErrFenced
		}
	}
	if s.is("one refused refuses all") && refused {
		for i := range results {
			if results[i].Err == nil {
				results[i].Err = sm.ErrStateEpoch
			}
		}
		return results, nil
	}
	if s.is("results are in another order") {
		slices.Reverse(results)
	}
	s.behind = s.records
	s.records = after
	return results, nil
}

// apply is sm.Apply with the fault built in.
func (s *session) apply(before sm.Entry, w sm.Write, reopened bool) (sm.Entry, sm.WriteResult) {
	judged := before
	switch s.fault {
	case "state epoch is not checked":
		w.ExpectedStateEpoch = -1
	case "state epoch may be too high":
		if w.ExpectedStateEpoch > judged.State.StateEpoch {
			w.ExpectedStateEpoch = -1
		}
	case "leader epoch is not checked":
		w.LeaderEpoch = -1
	case "leader epoch is that of the last write":
		if w.State != nil {
			after, result := sm.Apply(judged, w, s.owner, reopened)
			if result.Err == nil {
				after.State.LeaderEpoch = w.LeaderEpoch
			}
			return after, result
		}
	case "moves are not checked":
		if w.State != nil && !sm.Legal(judged.State.State, w.State.State) {
			judged.State.State = w.State.State
		}
	case "illegal moves are dropped silently":
		after, result := sm.Apply(judged, w, s.owner, reopened)
		var illegal *sm.IllegalMoveError
		if errors.As(result.Err, &illegal) {
			return before, sm.WriteResult{StateEpoch: before.State.StateEpoch}
		}
		return after, result
	case "legality comes first":
		if w.State != nil && !sm.Legal(judged.State.State, w.State.State) {
			return before, sm.WriteResult{StateEpoch: -1, Err: &sm.IllegalMoveError{From: judged.State.State, To: w.State.State}}
		}
	case "state epoch comes before leader epoch":
		if w.ExpectedStateEpoch != -1 && w.ExpectedStateEpoch != judged.State.StateEpoch && judged.Owner == s.owner && !w.Delete {
			return before, sm.WriteResult{StateEpoch: -1, Err: sm.ErrStateEpoch}
		}
	case "anybody may write":
		judged.Owner = ""
	case "an LME alone owns nothing":
		after, result := sm.Apply(judged, w, s.owner, reopened)
		if w.State == nil {
			after.Owner = before.Owner
		}
		return after, result
	case "takeover without opening":
		reopened = true
	case "takeover from anybody":
		if w.TakeFrom != "" {
			w.TakeFrom = judged.Owner
		}
	case "takeover never":
		w.TakeFrom = ""
	case "takeover keeps the old owner":
		after, result := sm.Apply(judged, w, s.owner, reopened)
		if w.TakeFrom != "" && before.Owner != "" {
			after.Owner = before.Owner
		}
		return after, result
	case "contradictions are guessed":
		if w.Delete {
			w.State = nil
		}
		if w.LME != nil || !w.Delete {
			w.Purge = false
		}
	case "the writer's state epoch is taken":
		after, result := sm.Apply(judged, w, s.owner, reopened)
		if result.Err == nil && w.State != nil {
			after.State.StateEpoch = w.State.StateEpoch + 1
			result.StateEpoch = after.State.StateEpoch
		}
		return after, result
	case "an LME counts as a write of the state":
		after, result := sm.Apply(judged, w, s.owner, reopened)
		if result.Err == nil && w.LME != nil && w.State == nil {
			after.State.StateEpoch++
			result.StateEpoch++
		}
		return after, result
	case "delete drops the LME":
		w.Purge = w.Delete && w.LME == nil
	case "purge keeps the LME":
		w.Purge = false
	case "delete keeps epochs and owner":
		if w.Delete {
			after, result := sm.Apply(judged, w, s.owner, reopened)
			if result.Err == nil && before.State.StateEpoch > 0 {
				after.State.StateEpoch, after.State.LeaderEpoch, after.Owner = before.State.StateEpoch, before.State.LeaderEpoch, before.Owner
			}
			return after, result
		}
	case "delete is not checked":
		if w.Delete {
			w.ExpectedStateEpoch, w.LeaderEpoch = -1, -1
		}
	case "delete only from STOPPED":
		if w.Delete && judged.State.State != sm.Stopped && judged.State.State != sm.Unknown {
			return before, sm.WriteResult{StateEpoch: -1, Err: &sm.IllegalMoveError{From: judged.State.State, To: sm.Unknown}}
		}
	case "a check claims the key":
		after, result := sm.Apply(judged, w, s.owner, reopened)
		if result.Err == nil && !w.Delete {
			after.Owner = s.owner
			after.LME = cmpLME(after.LME)
		}
		return after, result
	case "write shares memory":
		after, result := sm.Apply(judged, w, s.owner, reopened)
		if result.Err == nil && w.LME != nil {
			after.LME = w.LME
		}
		return after, result
	case "an episode's LME is written over":
		judged.LME = nil
		after, result := sm.Apply(judged, w, s.owner, reopened)
		if result.Err == nil && w.LME == nil && !w.Purge {
			after.LME = before.LME
		}
		if result.Err != nil {
			after = before
		}
		return after, result
	case "an episode's LME is kept silently":
		if w.LME != nil && before.LME != nil && w.LME.Episode == before.LME.Episode {
			w.LME = before.LME
		}
	case "found open is lost":
		if w.State != nil {
			st := *w.State
			st.FoundOpen = false
			w.State = &st
		}
	case "episodes are lost":
		if w.State != nil {
			st := *w.State
			st.Episode = 0
			w.State = &st
		}
	}
	after, result := sm.Apply(judged, w, s.owner, reopened)
	if result.Err != nil {
		after = before
	}
	return after, result
}

// cmpLME makes an entry that is kept although nobody wrote to it.
func cmpLME(e *sm.LastMirrorEpoch) *sm.LastMirrorEpoch {
	if e == nil {
		return &sm.LastMirrorEpoch{Epoch: -1, Offset: -1}
	}
	return e
}

// tornBatch is the batch of a process that "half a batch" tears: one more than the kit waits for before a crash.
const tornBatch = 7

// crashed is the store of the next process. With "half a batch" it crashes inside the batch that tears, where the kit is writing some.
func (s *store) crashed() *store {
	s.mu.Lock()
	writing := s.batches > 0
	s.mu.Unlock()
	if s.is("half a batch") && writing {
		<-s.torn
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.died)
	switch s.fault {
	case "crash loses everything":
		return newStore(newDisk(), s.fault)
	case "crash loses the owners":
		for k, r := range s.records {
			r.entry.Owner = ""
			s.records[k] = r
		}
	case "crash loses the LMEs":
		for k, r := range s.records {
			r.entry.LME = nil
			s.records[k] = r
		}
	case "crash brings tombstones back to life":
		for _, i := range []int{1, 2} {
			if _, ok := s.records[key(i)]; !ok && len(s.records) > 2 {
				s.records[key(i)] = record{entry: sm.Entry{Key: key(i), Owner: "node-1", State: *state(sm.Stopped)}}
			}
		}
	case "the past writes on":
		// the next process has its own numbers, so that nobody is fenced across a crash
		return newStore(&disk{records: s.records, openings: maps.Clone(s.openings), last: s.last}, s.fault)
	}
	return newStore(s.disk, s.fault)
}

func factory(fault string) Factory {
	return func(testing.TB) Fixture {
		current := newStore(newDisk(), fault)
		return Fixture{Store: current, Crash: func() (sm.StateStore, error) {
			current = current.crashed()
			return current, nil
		}}
	}
}

// recorder stands for a test, so that failing can be seen.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	problems []string
}

func (r *recorder) Helper() {}

func (r *recorder) Log(...any) {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failures runs the kit and returns the rules that failed, with what they said.
func failures(t *testing.T, f Factory) map[string][]string {
	failed := map[string][]string{}
	for _, rule := range rules() {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() { // Fatalf ends its goroutine
			defer close(done)
			rule.run(r, f)
		}()
		<-done
		if len(r.problems) > 0 {
			failed[rule.name] = r.problems
		}
	}
	return failed
}

func TestKitAcceptsARightStore(t *testing.T) {
	Run(t, factory(""))
}

func TestKitAcceptsMemoryStore(t *testing.T) {
	Run(t, func(testing.TB) Fixture { return Fixture{Store: new(sm.MemoryStore)} })
}

func TestKitAcceptsMemoryStoreBehindACrash(t *testing.T) {
	// a MemoryStore that its clients lose and find again keeps everything: the crash rules hold for it too
	Run(t, func(testing.TB) Fixture {
		store := new(sm.MemoryStore)
		return Fixture{Store: store, Crash: func() (sm.StateStore, error) { return store, nil }}
	})
}

func TestKitSaysNo(t *testing.T) {
	for fault, rule := range map[string]string{
		"open ignores the context":                "CancelledContextDoesNothing",
		"open takes no name":                      "OpenRefusesNoName",
		"open fences everybody":                   "OpenLeavesOtherOwnersAlone",
		"nobody is fenced":                        "OpenFencesEarlierSessions",
		"fenced by result":                        "OpenFencesEarlierSessions",
		"close fences the next session":           "CloseEndsTheSessionOnly",
		"closed sessions write":                   "CloseEndsTheSessionOnly",
		"state epoch is not checked":              "ExpectedStateEpochMustMatch",
		"state epoch may be too high":             "ExpectedStateEpochMustMatch",
		"the writer's state epoch is taken":       "StateEpochCountsWrites",
		"leader epoch is not checked":             "LeaderEpochBelowHighestIsFenced",
		"leader epoch is that of the last write":  "LeaderEpochBelowHighestIsFenced",
		"moves are not checked":                   "MovesAreLegalOnly",
		"illegal moves are dropped silently":      "MovesAreLegalOnly",
		"legality comes first":                    "ChecksComeInOrder",
		"state epoch comes before leader epoch":   "ChecksComeInOrder",
		"contradictions are guessed":              "ContradictionsAreRefused",
		"anybody may write":                       "FirstWriterOwnsTheKey",
		"an LME alone owns nothing":               "FirstWriterOwnsTheKey",
		"takeover without opening":                "TakeFromNeedsTheOldOwnerOpened",
		"takeover never":                          "TakeFromNeedsTheOldOwnerOpened",
		"takeover keeps the old owner":            "TakeFromNeedsTheOldOwnerOpened",
		"takeover from anybody":                   "TakeFromNamesTheOwner",
		"one refused refuses all":                 "RefusedAlone",
		"results are in another order":            "RefusedAlone",
		"batch is judged against what was before": "BatchIsJudgedInOrder",
		"half a batch":                            "CrashInTheMiddleIsAllOrNothing",
		"a check claims the key":                  "WriteWithoutChangeChecksOnly",
		"an LME counts as a write of the state":   "LMEAloneLeavesTheState",
		"episodes are lost":                       "EveryFieldComesBack",
		"found open is lost":                      "EveryFieldComesBack",
		"an episode's LME is written over":        "LMEIsWrittenOncePerEpisode",
		"an episode's LME is kept silently":       "LMEIsWrittenOncePerEpisode",
		"write shares memory":                     "StoreCopies",
		"load shares memory":                      "StoreCopies",
		"delete drops the LME":                    "DeleteForgetsAllButLME",
		"delete keeps epochs and owner":           "DeleteForgetsAllButLME",
		"purge keeps the LME":                     "PurgeForgetsAll",
		"delete is not checked":                   "DeleteIsChecked",
		"delete only from STOPPED":                "DeleteIsChecked",
		"load forgets the owner":                  "LoadShowsEveryKeyOnce",
		"load shows keys twice":                   "LoadShowsEveryKeyOnce",
		"load is one write behind":                "LoadNeverShowsLessThanWritten",
		"load swallows the callback's error":      "LoadEndsWithTheCallbacksError",
		"load ignores the context":                "CancelledContextDoesNothing",
		"write ignores the context":               "CancelledContextDoesNothing",
		"crash loses everything":                  "CrashKeepsWhatWasWritten",
		"crash loses the LMEs":                    "CrashKeepsWhatWasWritten",
		"crash brings tombstones back to life":    "CrashKeepsWhatWasWritten",
		"crash loses the owners":                  "CrashKeepsOwners",
		"the past writes on":                      "CrashFencesThePast",
	} {
		t.Run(strings.ReplaceAll(fault, " ", "_"), func(t *testing.T) {
			failed := failures(t, factory(fault))
			if len(failed[rule]) == 0 {
				t.Errorf("the rule %s passes a store with the fault %q; failed: %v", rule, fault, failed)
			}
		})
	}
	if failed := failures(t, factory("")); len(failed) > 0 {
		t.Errorf("rules that refuse a right store: %v", failed)
	}
}

func TestKitWithoutCrashHookRunsTheRest(t *testing.T) {
	ran := 0
	for _, r := range rules() {
		if r.crash {
			r.check = func(*suite) { t.Errorf("%s ran without a Crash hook", r.name) }
		} else {
			r.check = func(*suite) { ran++ }
		}
		r.run(t, func(testing.TB) Fixture { return Fixture{Store: new(sm.MemoryStore)} })
	}
	if ran < 30 {
		t.Errorf("%d rules ran", ran)
	}
}

func TestKitReportsAStoreThatDoesNotComeBack(t *testing.T) {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rule{crash: true, check: crashKeepsOwners}.run(r, func(testing.TB) Fixture {
			return Fixture{Store: new(sm.MemoryStore), Crash: func() (sm.StateStore, error) { return nil, errors.New("disk on fire") }}
		})
	}()
	<-done
	if len(r.problems) != 1 || !strings.Contains(r.problems[0], "disk on fire") {
		t.Errorf("problems: %q", r.problems)
	}
}
