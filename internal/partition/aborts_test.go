package partition

import (
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestF46WhateverBecomesOfAStopItsABORTsAreNamed: which transactions were aborted is told before the log is opened, also when the answer to their append was lost, only a part of them was written, or the process
// ended behind them. Of a log that is not read as far down it is not known where they began.
func TestF46WhateverBecomesOfAStopItsABORTsAreNamed(t *testing.T) {
	eachLog(t, func(t *testing.T, like func(*world) *world) {
		for _, f := range []fault{noFault, failBefore, half, failAfter} {
			for _, crash := range []bool{false, true} {
				w := like(stoppable(t))
				w.wish(statemachine.WantStopped)
				for len(w.pending) > 0 && w.pending[0].Kind != Append {
					w.answer(0, noFault)
				}
				if len(w.pending) == 0 {
					t.Fatalf("nothing is aborted:\n%s", w.out.String())
				}
				w.answer(0, f)
				if crash {
					w.crash()
				}
				w.settle(t)
				var told []int64
				for _, n := range w.notes {
					if n.Kind == MarkersWritten {
						for _, a := range n.Aborts {
							told = append(told, a.ProducerID)
							if began := map[int64]int64{9: 6, 7: 15}[a.ProducerID]; a.FirstOffset != began && (a.FirstOffset != -1 || f == noFault && !crash || !w.log.recovers) || a.ProducerEpoch != 0 {
								t.Errorf("fault %d, crash %v: %+v began at %d", f, crash, a, began)
							}
						}
					}
				}
				if !slices.Equal(told, []int64{9, 7}) || w.stored.State != statemachine.Stopped {
					t.Errorf("fault %d, crash %v: told are %v, %v\n%s", f, crash, told, w.stored.State, w.out.String())
				}
			}
		}
	})
}
