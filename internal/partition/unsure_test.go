package partition

import (
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestInvariant6ACutWhoseAnswerWasLostIsTold: a cut that took effect though its answer was an error has dropped records, and these are told with their range when the log is seen
// again; one that did nothing is told once, when it is done.
func TestInvariant6ACutWhoseAnswerWasLostIsTold(t *testing.T) {
	for _, f := range []fault{failBefore, failAfter} {
		w := failback(t)
		w.wish(statemachine.WantMirroring)
		for len(w.pending) > 0 && w.pending[0].Kind != Truncate {
			w.answer(0, noFault)
		}
		if len(w.pending) == 0 {
			t.Fatalf("nothing is cut:\n%s", w.out.String())
		}
		w.answer(0, f)
		w.settle(t)
		var told []Truncation
		for _, n := range w.notes {
			if n.Kind == RecordsDropped {
				told = append(told, n.Truncated)
			}
		}
		if len(told) != 1 || told[0].From != 15 || told[0].To != 30 || told[0].Reason == "" {
			t.Errorf("failure %d: told are %v\n%s", f, told, w.out.String())
		}
	}
}

// TestInvariant6ACutInDoubtOfALogThatWasTakenIsTold: somebody takes the log before it is seen again, and clients write until it ends where it did. What it holds where it was to be cut says whether it was.
func TestInvariant6ACutInDoubtOfALogThatWasTakenIsTold(t *testing.T) {
	for f, told := range map[fault]bool{failBefore: false, failAfter: true} {
		w := failback(t)
		w.wish(statemachine.WantMirroring)
		for len(w.pending) > 0 && w.pending[0].Kind != Truncate {
			w.answer(0, noFault)
		}
		if len(w.pending) == 0 {
			t.Fatalf("nothing is cut:\n%s", w.out.String())
		}
		w.answer(0, f)
		w.log.owner, w.log.leaderEpoch = OwnerOpen, w.log.leaderEpoch+10
		if w.log.end < 30 {
			w.log.add(toBatches(data(w.log.end, 29, w.log.leaderEpoch, 5, -1, 0, -1, false, "client"))[0])
		}
		w.log.settle()
		w.wish(statemachine.WantStopped)
		w.settle(t)
		var got []Truncation
		for _, n := range w.notes {
			if n.Kind == RecordsDropped {
				got = append(got, n.Truncated)
			}
		}
		if w.stored.State != statemachine.Stopped || told != (len(got) == 1 && got[0].From == 15 && got[0].To == 30) || len(got) > 1 {
			t.Errorf("failure %d: %v, told are %v\n%s", f, w.stored.State, got, w.out.String())
		}
	}
}

// TestDecision16ALossIsToldWhateverBecomesOfTheReset: that records are gone at the source is so before the copy starts anew.
func TestDecision16ALossIsToldWhateverBecomesOfTheReset(t *testing.T) {
	for _, f := range []fault{failBefore, failAfter} {
		w := stoppable(t)
		w.src.batches, w.src.start, w.src.end = nil, 40, 40
		w.step(Event{Kind: SourceChanged, Source: w.src.look()})
		for len(w.pending) > 0 && w.pending[0].Kind != Reset {
			w.answer(0, noFault)
		}
		if len(w.pending) == 0 {
			t.Fatalf("nothing is reset:\n%s", w.out.String())
		}
		w.answer(0, f)
		w.crash()
		for _, n := range w.notes {
			if n.Kind == RecordsLost && n.RangeFrom == 20 && n.RangeTo == 40 {
				f = noFault
			}
		}
		if f != noFault {
			t.Errorf("failure %d: the loss was not told\n%s", f, w.out.String())
		}
	}
}
