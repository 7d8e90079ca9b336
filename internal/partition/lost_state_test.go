package partition

import (
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestDecision4ACopyWhoseStateWasLostIsStoppedAsACopy: the state records are gone and the source is too. Nobody found the log open, so it is the mirror's: a stop records where it ended,
// aborts what is open, and resets, as ever. It is not taken for its clients' own.
func TestDecision4ACopyWhoseStateWasLostIsStoppedAsACopy(t *testing.T) {
	w := stoppable(t)
	w.stored, w.lme, w.src.down = statemachine.NewPartitionState(), nil, true
	w.crash() // with the wish to mirror
	w.run(50, nil)
	w.wish(statemachine.WantStopped)
	w.settle(t)
	if w.stored.State != statemachine.Stopped || w.log.owner != OwnerOpen || w.lme == nil || w.lme.Offset != 20 || len(w.log.producers().InFlight()) > 0 {
		t.Fatalf("%v, %v, ended at %+v, %v", w.stored, w.log.owner, w.lme, &w.log.batchLog)
	}
}
