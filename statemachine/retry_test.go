package statemachine

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const middle = 0.5 // the jitter that changes nothing

func TestDecision9DelaysDoubleFromInitialToMax(t *testing.T) {
	var p RetryPolicy
	for n, want := range map[int16]time.Duration{
		1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 8: 128 * time.Second, 9: 256 * time.Second, 10: 300 * time.Second, 11: 300 * time.Second,
		1000: 300 * time.Second, math.MaxInt16: 300 * time.Second,
		0: time.Second, -1: time.Second, math.MinInt16: time.Second,
	} {
		if got := p.Delay(n, middle); got != want {
			t.Errorf("delay %d is %v, want %v", n, got, want)
		}
	}
	p = RetryPolicy{Initial: 100 * time.Millisecond, Max: 250 * time.Millisecond}
	for n, want := range map[int16]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 3: 250 * time.Millisecond, 4: 250 * time.Millisecond} {
		if got := p.Delay(n, middle); got != want {
			t.Errorf("delay %d is %v, want %v", n, got, want)
		}
	}
	p = RetryPolicy{Initial: time.Minute, Max: time.Second} // max below initial: max
	if got := p.Delay(1, middle); got != time.Second {
		t.Errorf("delay with max below initial is %v", got)
	}
	p = RetryPolicy{Initial: -1, Max: -1}
	if got := p.Delay(1, middle); got != time.Second {
		t.Errorf("delay of a negative policy is %v, want the default", got)
	}
}

func TestDecision9JitterIsAFifthEachWay(t *testing.T) {
	var p RetryPolicy
	if got := p.Delay(1, 0); got != 800*time.Millisecond {
		t.Errorf("smallest delay %v", got)
	}
	if got := p.Delay(1, 0.9999); got >= 1200*time.Millisecond || got < 1199*time.Millisecond {
		t.Errorf("delay with jitter 0.9999 is %v, want just below 1.2s", got)
	}
	if got := p.Delay(1000, 0.9999); got <= 300*time.Second || got >= 360*time.Second {
		t.Errorf("a late delay is %v: those that wait for the maximum do not spread", got)
	}
	for _, outside := range []float64{math.NaN(), -3, math.Inf(-1)} {
		if got := p.Delay(1, outside); got != 800*time.Millisecond {
			t.Errorf("delay with jitter %v is %v", outside, got)
		}
	}
	for _, outside := range []float64{1, 17, math.Inf(1)} {
		if got := p.Delay(1, outside); got > 1200*time.Millisecond {
			t.Errorf("delay with jitter %v is %v", outside, got)
		}
	}
}

func TestDelayNeverOverflowsAndNeverShrinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := RetryPolicy{
			Initial: time.Duration(rapid.Int64().Draw(t, "initial")),
			Max:     time.Duration(rapid.Int64().Draw(t, "max")),
		}
		n := rapid.Int16Range(1, math.MaxInt16-1).Draw(t, "n")
		low, high := p.Delay(n, 0), p.Delay(n+1, 0)
		if low < 0 || high < low {
			t.Fatalf("%+v: delay %d is %v, the next %v", p, n, low, high)
		}
		if j := p.Delay(n, rapid.Float64().Draw(t, "jitter")); j < low {
			t.Fatalf("%+v: delay %v below the smallest %v", p, j, low)
		}
	})
}

func TestDecision9AttemptsZeroIsUnlimited(t *testing.T) {
	for _, tt := range []struct {
		attempts int
		attempt  int16
		want     bool
	}{
		{0, 1, true}, {0, math.MaxInt16, true}, {-4, math.MaxInt16, true}, {0, NonRetryable, false}, {0, -2, false},
		{1, 1, true}, {1, 2, false}, {10, 10, true}, {10, 11, false}, {10, NonRetryable, false}, {math.MaxInt16, math.MaxInt16, true}, {40000, math.MaxInt16, true},
	} {
		if got := (RetryPolicy{Attempts: tt.attempts}).Retryable(tt.attempt); got != tt.want {
			t.Errorf("Attempts %d: Retryable(%d) = %v, want %v", tt.attempts, tt.attempt, got, tt.want)
		}
	}
}

func inState(s State) PartitionState {
	r := NewPartitionState()
	r.State = s
	r.LeaderEpoch, r.StateEpoch, r.Episode = 7, 9, 4
	return r
}

func failedFrom(s State) PartitionState { return Fail(inState(s), "source unreachable", false) }

func mustMove(t *testing.T, r PartitionState, to State) PartitionState {
	t.Helper()
	next, err := Move(r, to)
	if err != nil {
		t.Fatal(err)
	}
	if next.State != to {
		t.Fatalf("moved to %v, not %v", next.State, to)
	}
	return next
}

func TestSpec2FailCountsAndKeepsThePreviousState(t *testing.T) {
	r := Fail(inState(Mirroring), "first", false)
	want := PartitionState{State: Failed, LeaderEpoch: 7, StateEpoch: 9, ErrorMessage: "first", RetryAttempt: 1, PreviousState: Mirroring, Episode: 4}
	if r != want {
		t.Errorf("first failure %+v, want %+v", r, want)
	}
	want.ErrorMessage, want.RetryAttempt = "second", 2
	if r = Fail(r, "second", false); r != want {
		t.Errorf("second failure %+v, want %+v", r, want)
	}
	want.ErrorMessage, want.RetryAttempt = "third", NonRetryable
	if r = Fail(r, "third", true); r != want {
		t.Errorf("non-retryable failure %+v, want %+v", r, want)
	}
	want.ErrorMessage = "fourth"
	if r = Fail(r, "fourth", false); r != want {
		t.Errorf("failure after a non-retryable one %+v, want %+v", r, want)
	}
}

func TestDecision9AttemptSaturates(t *testing.T) {
	r := failedFrom(Mirroring)
	r.RetryAttempt = math.MaxInt16 - 1
	for range 3 {
		if r = Fail(r, "again", false); r.RetryAttempt != math.MaxInt16 {
			t.Errorf("attempt %d, want 32767", r.RetryAttempt)
		}
	}
}

func TestSpec2RetryTarget(t *testing.T) {
	for previous, want := range map[State]State{
		Preparing: Preparing, EpochFencing: EpochFencing, Mirroring: Mirroring, Paused: Paused, Stopping: Stopping,
		Unknown:  Preparing,
		Pausing:  Pausing,  // decision 10
		Stopped:  Stopping, // FAILED → STOPPED is not legal
		Failed:   Preparing,
		State(9): Preparing,
	} {
		r := failedFrom(Mirroring)
		r.PreviousState = previous
		if got := RetryTarget(r); got != want {
			t.Errorf("retry of a failure in %v goes to %v, want %v", previous, got, want)
		}
		if !Legal(Failed, RetryTarget(r)) {
			t.Errorf("retry of a failure in %v is illegal", previous)
		}
	}
}

func TestMoveRefusesWhatLegalRefuses(t *testing.T) {
	for _, from := range allStates() {
		for _, to := range allStates() {
			r := inState(from)
			got, err := Move(r, to)
			if Legal(from, to) {
				if err != nil || got.State != to {
					t.Errorf("Move %v → %v: %v, %v", from, to, got.State, err)
				}
				continue
			}
			var illegal *IllegalMoveError
			if !errors.As(err, &illegal) || illegal.From != from || illegal.To != to || got != r {
				t.Errorf("Move %v → %v: %+v, %v", from, to, got, err)
			}
		}
	}
	_, err := Move(inState(Stopped), Mirroring)
	if err == nil || err.Error() != "statemachine: a partition may not go from STOPPED to MIRRORING; read its record again and decide anew" {
		t.Errorf("error text %q", err)
	}
}

func TestSpec2MoveClearsTheFailure(t *testing.T) {
	failing := func(previous, now State) PartitionState { // retried from previous, not yet proved
		r := failedFrom(previous)
		r.RetryAttempt = 5
		if now != Failed {
			r.State = now
		}
		return r
	}
	for _, tt := range []struct {
		name  string
		r     PartitionState
		to    State
		clear bool
	}{
		{"STOPPED", failing(Stopping, Stopping), Stopped, true},
		{"PAUSED", failing(Pausing, Pausing), Paused, true},
		{"PAUSED from FAILED", failing(Paused, Failed), Paused, true},
		{"PREPARING anew", failing(Mirroring, Failed), Preparing, true},
		{"PREPARING as a retry", failing(Preparing, Failed), Preparing, false},
		{"PREPARING as a retry of UNKNOWN", failing(Unknown, Failed), Preparing, false},
		{"MIRRORING as a retry", failing(Mirroring, Failed), Mirroring, false},
		{"MIRRORING after the step that failed", failing(Preparing, Preparing), Mirroring, false},
		{"MIRRORING after EPOCH_FENCING", failing(EpochFencing, EpochFencing), Mirroring, false},
		{"EPOCH_FENCING as a retry", failing(EpochFencing, Failed), EpochFencing, false},
		{"STOPPING as a retry", failing(Stopping, Failed), Stopping, false},
		{"STOPPING as a retry of STOPPED", failing(Stopped, Failed), Stopping, false},
		{"STOPPING asked for while failed", failing(Mirroring, Failed), Stopping, true},
		{"STOPPING from MIRRORING", failing(Mirroring, Mirroring), Stopping, true},
		{"PAUSING from MIRRORING", failing(Mirroring, Mirroring), Pausing, true},
		{"EPOCH_FENCING from MIRRORING", failing(Mirroring, Mirroring), EpochFencing, true},
		{"staying", failing(Mirroring, Mirroring), Mirroring, false},
		{"staying in PREPARING", failing(Preparing, Preparing), Preparing, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := mustMove(t, tt.r, tt.to)
			want := tt.r
			want.State, want.Episode = tt.to, got.Episode // see TestDecision2EpisodeGrowsWithEachStart
			want.Mirrored = got.Mirrored                  // see TestMirroredLastsAsLongAsTheEpisode
			if tt.clear {
				want.ErrorMessage, want.RetryAttempt, want.PreviousState = "", 0, Unknown
			}
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
	for _, to := range []State{Preparing, Mirroring, Stopping, Pausing, Paused, EpochFencing} { // only a person leads out of a non-retryable failure
		r := failedFrom(to)
		r.RetryAttempt = NonRetryable
		if got := mustMove(t, r, to); got.RetryAttempt != 0 || got.ErrorMessage != "" || got.PreviousState != Unknown {
			t.Errorf("out of a non-retryable failure to %v: %+v", to, got)
		}
	}
}

func TestMoveToFailedIsFail(t *testing.T) {
	r := failedFrom(Mirroring)
	if got := mustMove(t, r, Failed); got != Fail(r, r.ErrorMessage, false) || got.RetryAttempt != 2 {
		t.Errorf("%+v", got)
	}
	if got := mustMove(t, inState(Paused), Failed); got.PreviousState != Paused || got.RetryAttempt != 1 {
		t.Errorf("%+v", got)
	}
}

func TestSpec2RepeatedFailuresGrowTheDelayAndAFetchEndsThem(t *testing.T) {
	r := inState(Preparing)
	for n := int16(1); n <= 4; n++ {
		if r = Fail(r, "source unreachable", false); r.RetryAttempt != n {
			t.Fatalf("attempt %d, want %d", r.RetryAttempt, n)
		}
		r = mustMove(t, r, RetryTarget(r))
	}
	r = mustMove(t, r, Mirroring)
	if r.RetryAttempt != 4 {
		t.Errorf("attempt %d before the first fetch, want 4", r.RetryAttempt)
	}
	r.Mirrored = false
	if r = ClearFailure(r); r != inState(Mirroring) {
		t.Errorf("after the first processed fetch %+v", r)
	}
	if failed := failedFrom(Mirroring); ClearFailure(failed) != failed {
		t.Error("ClearFailure hides a FAILED record's reason")
	}
}

func TestDecision2EpisodeGrowsWithEachStart(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    PartitionState
		to   State
		want int32
	}{
		{"from UNKNOWN", inState(Unknown), Preparing, 5},
		{"from STOPPED", inState(Stopped), Preparing, 5},
		{"staying", inState(Preparing), Preparing, 4},
		{"retry", failedFrom(Preparing), Preparing, 4},
		{"again after MIRRORING failed", failedFrom(Mirroring), Preparing, 4},
		{"from FAILED that was UNKNOWN", failedFrom(Unknown), Preparing, 5},
		{"from FAILED that was STOPPED", failedFrom(Stopped), Preparing, 5},
		{"from FAILED that was STOPPING", failedFrom(Stopping), Preparing, 5},
		{"stop", inState(Mirroring), Stopping, 4},
		{"stop without a record", inState(Unknown), Stopping, 4},
		{"resume", inState(Paused), Mirroring, 4},
	} {
		if got := mustMove(t, tt.r, tt.to); got.Episode != tt.want {
			t.Errorf("%s: episode %d, want %d", tt.name, got.Episode, tt.want)
		}
	}
	r := inState(Stopped)
	r.Episode = math.MaxInt32
	if got := mustMove(t, r, Preparing); got.Episode != math.MaxInt32 {
		t.Errorf("episode %d after the greatest", got.Episode)
	}
}

// TestFoundOpenStaysUntilTheLogIsCopiedTo: a log that clients wrote when the episode began stays theirs through every move but the ones to a state that copies.
func TestFoundOpenStaysUntilTheLogIsCopiedTo(t *testing.T) {
	for _, from := range allStates() {
		for _, to := range allStates() {
			if from == to || !Legal(from, to) {
				continue
			}
			got, err := Move(PartitionState{State: from, PreviousState: Unknown, FoundOpen: true}, to)
			want := to == Preparing || to == Stopping || to == Stopped || to == Failed
			if err != nil || got.FoundOpen != want {
				t.Errorf("%v → %v: found open %v, %v; want %v", from, to, got.FoundOpen, err, want)
			}
		}
	}
}

// TestMirroredLastsAsLongAsTheEpisode: that MIRRORING was reached is known through every later move of the episode, and not in the next one.
func TestMirroredLastsAsLongAsTheEpisode(t *testing.T) {
	r := inState(Unknown)
	for _, step := range []struct {
		to   State
		want bool
	}{{Preparing, false}, {Failed, false}, {Preparing, false}, {Mirroring, true}, {Failed, true}, {Preparing, true}, {Stopping, true}, {Stopped, true}, {Preparing, false}, {Stopping, false}} {
		r = mustMove(t, r, step.to)
		if r.Mirrored != step.want {
			t.Errorf("%v: mirrored %v in episode %d", step.to, r.Mirrored, r.Episode)
		}
	}
}
