package partition

import (
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestSpec2EachWriteHasTheNextStateEpoch: each state write expects the state epoch that was written last, and carries the next one.
func TestSpec2EachWriteHasTheNextStateEpoch(t *testing.T) {
	writes := 0
	watch := func(w *world) {
		last := w.stored.StateEpoch
		w.onEffect = func(e *Effect) {
			if e.Kind == Persist {
				if writes++; e.ExpectedStateEpoch != last || e.Record.StateEpoch != last+1 {
					t.Errorf("a write of %d expects %d; the last one was %d", e.Record.StateEpoch, e.ExpectedStateEpoch, last)
				}
				last = e.Record.StateEpoch
			}
		}
	}
	w := newWorld()
	watch(w)
	w.src.view.LeaderEpoch = 3
	w.src.add(toBatches(data(0, 9, 3, 10, -1, 0, 0, false, "a"))[0])
	w.load()
	for _, want := range []statemachine.Desired{statemachine.WantMirroring, statemachine.WantPaused, statemachine.WantMirroring, statemachine.WantStopped, statemachine.WantMirroring} {
		w.wish(want)
		w.settle(t)
	}
	w.crash()
	w.wish(statemachine.WantStopped)
	w.settle(t)
	if writes < 10 || w.stored.State != statemachine.Stopped {
		t.Errorf("%d writes, %v\n%s", writes, w.stored.State, w.out.String())
	}
}

// TestSpec2AStopForgetsWhatFailedBefore: a failure of something else says nothing about the stop that begins; a failure of the stop itself goes on counting.
func TestSpec2AStopForgetsWhatFailedBefore(t *testing.T) {
	for _, c := range []struct {
		state, previous statemachine.State
		attempt         int16 // with which STOPPING is written
		says            string
	}{
		{statemachine.Failed, statemachine.Mirroring, 0, ""}, {statemachine.Failed, statemachine.Preparing, 0, ""}, {statemachine.Failed, statemachine.Stopping, 3, "broken"},
		{statemachine.Mirroring, statemachine.Mirroring, 0, ""}, // tried again, and nothing was processed since
	} {
		w := stoppable(t)
		w.stored.State, w.stored.PreviousState, w.stored.RetryAttempt, w.stored.ErrorMessage = c.state, c.previous, 3, "broken"
		var stopping *statemachine.PartitionState
		w.onEffect = func(e *Effect) {
			if e.Kind == Persist && e.Record.State == statemachine.Stopping && stopping == nil {
				stopping = &e.Record
			}
		}
		w.want = statemachine.WantStopped // since before the restart
		w.crash()
		w.settle(t)
		if stopping == nil || stopping.RetryAttempt != c.attempt || stopping.ErrorMessage != c.says || w.stored.State != statemachine.Stopped || w.stored.RetryAttempt != 0 || w.stored.ErrorMessage != "" {
			t.Errorf("%v, failed in %v: STOPPING is %+v, in the end %+v\n%s", c.state, c.previous, stopping, w.stored, w.out.String())
		}
	}
}
