package statemachine

import (
	"math"
	"slices"
	"testing"
)

func allStates() []State {
	return []State{Preparing, EpochFencing, Mirroring, Pausing, Paused, Stopping, Stopped, Failed, Unknown}
}

func TestDecision1StateIDsAndNames(t *testing.T) {
	for _, tt := range []struct {
		state State
		id    int8
		name  string
	}{
		{Preparing, 0, "PREPARING"}, {EpochFencing, 1, "EPOCH_FENCING"}, {Mirroring, 2, "MIRRORING"}, {Pausing, 3, "PAUSING"}, {Paused, 4, "PAUSED"},
		{Stopping, 5, "STOPPING"}, {Stopped, 6, "STOPPED"}, {Failed, 7, "FAILED"}, {Unknown, 16, "UNKNOWN"},
		{State(8), 8, "State(8)"}, {State(-1), -1, "State(-1)"},
	} {
		if int8(tt.state) != tt.id || tt.state.String() != tt.name {
			t.Errorf("state %d %q, want %d %q", int8(tt.state), tt.state, tt.id, tt.name)
		}
	}
}

func TestSpec2LegalMoves(t *testing.T) {
	// one row per state: where it may go. Staying is in every row, FAILED too.
	table := map[State][]State{
		Unknown:      {Unknown, Failed, Preparing, Stopping}, // STOPPING by decision 4
		Preparing:    {Preparing, Failed, Mirroring, Stopping},
		EpochFencing: {EpochFencing, Failed, Mirroring, Stopping},
		Mirroring:    {Mirroring, Failed, EpochFencing, Pausing, Stopping},
		Pausing:      {Pausing, Failed, Paused, Stopping},
		Paused:       {Paused, Failed, Mirroring, Stopping},
		Stopping:     {Stopping, Failed, Stopped},
		Stopped:      {Stopped, Failed, Preparing},
		Failed:       {Failed, Preparing, EpochFencing, Mirroring, Pausing, Paused, Stopping},
	}
	if len(table) != len(allStates()) {
		t.Fatalf("%d rows for %d states", len(table), len(allStates()))
	}
	for _, from := range allStates() {
		for _, to := range allStates() {
			if got, want := Legal(from, to), slices.Contains(table[from], to); got != want {
				t.Errorf("Legal(%v, %v) = %v, want %v", from, to, got, want)
			}
		}
	}
}

func TestNumbersThatAreNoStateAreNeverLegal(t *testing.T) {
	for i := math.MinInt8; i <= math.MaxInt8; i++ {
		s := State(i)
		if slices.Contains(allStates(), s) {
			continue
		}
		for _, other := range append(allStates(), s) {
			if Legal(s, other) || Legal(other, s) {
				t.Errorf("Legal accepts %v beside %v", s, other)
			}
		}
	}
}

func TestSpec2EveryStateOfAMemberReachesStoppedWithoutTheSource(t *testing.T) {
	for _, s := range allStates() {
		if s != Stopped && s != Stopping && !Legal(s, Stopping) {
			t.Errorf("%v cannot be stopped", s)
		}
	}
	if !Legal(Stopping, Stopped) {
		t.Error("STOPPING cannot end")
	}
}

func TestStepNamesAndOrder(t *testing.T) {
	preparing := []string{"CHECK_SOURCE", "ASK_OWNER", "FIND_DIVERGENCE", "COMPARE_CONSENT", "CLOSE_FOR_WRITES", "AWAIT_REPLICATED", "COMPUTE", "TRUNCATE", "AWAIT_TRUNCATED",
		"RAISE_EPOCH", "DONE", "PreparingStep(11)"}
	for i, want := range preparing {
		if got := PreparingStep(i).String(); got != want {
			t.Errorf("step %d of PREPARING is %q, want %q", i, got, want)
		}
	}
	stopping := []string{"ASK_OWNER", "REMOVE_FETCHER", "QUIESCE_GROUPS", "AWAIT_REPLICATED", "CONSISTENT_CUT", "RECORD_LME", "RAISE_EPOCH", "APPEND_ABORTS", "APPEND_RESET", "AWAIT_MARKERS",
		"SETTLE_PRODUCER_IDS", "CLAMP_GROUPS", "OPEN_LOG", "DONE", "StoppingStep(14)"}
	for i, want := range stopping {
		if got := StoppingStep(i).String(); got != want {
			t.Errorf("step %d of STOPPING is %q, want %q", i, got, want)
		}
	}
	if got := StoppingStep(-1).String(); got != "StoppingStep(-1)" {
		t.Errorf("step -1 is %q", got)
	}
	if PreparingDone != 10 || StoppingDone != 13 {
		t.Errorf("the last steps are %d and %d", PreparingDone, StoppingDone)
	}
}
