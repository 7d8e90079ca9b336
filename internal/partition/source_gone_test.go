package partition

import (
	"errors"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestSpecDecision4AStopDoesNotFailOverItsSource: that the source's topic was deleted, or that its address leads elsewhere, is found by a look that may have begun before the stop was
// wished. The stop goes on, at whatever step the word comes, and also while it waits to be tried again.
func TestSpecDecision4AStopDoesNotFailOverItsSource(t *testing.T) {
	for k := 0; ; k++ {
		for _, failing := range []bool{false, true} {
			w := stoppable(t)
			w.wish(statemachine.WantStopped)
			for range k {
				if len(w.pending) > 0 {
					w.answer(0, noFault)
				}
			}
			if len(w.pending) == 0 {
				return
			}
			if failing && w.pending[0].Kind != Persist {
				w.answer(0, failBefore)
			}
			at := w.pending[0].Kind
			w.step(Event{Kind: FailPartition, NonRetryable: true, Source: SourceView{Permanent: true}, Err: errors.New("the source topic is deleted")})
			w.settle(t)
			if w.stored.State != statemachine.Stopped || w.log.owner != OwnerOpen {
				t.Fatalf("at %d %v (failing %v) the stop ends in %v: %s\n%s", k, at, failing, w.stored.State, w.stored.ErrorMessage, w.out.String())
			}
		}
	}
}
