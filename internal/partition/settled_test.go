package partition

import (
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestDoubtfulStateWriteIsSettledByWhatLiesInTheStore: only the state epoch and the leader epoch may differ from what was to be written.
func TestDoubtfulStateWriteIsSettledByWhatLiesInTheStore(t *testing.T) {
	wanted := statemachine.NewPartitionState()
	wanted.State, wanted.Episode, wanted.StateEpoch, wanted.LeaderEpoch = statemachine.Stopped, 3, 7, 4
	lme := statemachine.LastMirrorEpoch{Epoch: 5, Offset: 90, SourceClusterID: "a", Episode: 3}
	for _, c := range []struct {
		name    string
		lme     bool // an LME is to be written
		change  func(*statemachine.Entry)
		settled bool
	}{
		{"as wanted", true, func(*statemachine.Entry) {}, true},
		{"no LME was to be written", false, func(e *statemachine.Entry) { e.LME = nil }, true},
		{"no LME was to be written, and one is there", false, func(*statemachine.Entry) {}, true},
		{"the store has a higher leader epoch", true, func(e *statemachine.Entry) { e.State.LeaderEpoch = 9 }, true},
		{"another state", true, func(e *statemachine.Entry) { e.State.State = statemachine.Mirroring }, false},
		{"another episode", true, func(e *statemachine.Entry) { e.State.Episode++ }, false},
		{"another retry", true, func(e *statemachine.Entry) { e.State.RetryAttempt++ }, false},
		{"another word", true, func(e *statemachine.Entry) { e.State.ErrorMessage = "broken" }, false},
		{"the LME is missing", true, func(e *statemachine.Entry) { e.LME = nil }, false},
		{"another LME", true, func(e *statemachine.Entry) { other := lme; other.Offset++; e.LME = &other }, false},
		{"nothing there", true, func(e *statemachine.Entry) { *e = statemachine.Entry{} }, false},
	} {
		e := Effect{Kind: Persist, Record: wanted, ExpectedStateEpoch: 7}
		if c.lme {
			e.LME = &lme
		}
		stored := statemachine.Entry{State: wanted, LME: &lme}
		stored.State.StateEpoch = 8
		c.change(&stored)
		epoch, ours := Settled(e, stored)
		if ours != c.settled || ours && epoch != 8 || !ours && epoch != 0 {
			t.Errorf("%s: state epoch %d, ours %v", c.name, epoch, ours)
		}
	}
}
