package partition

import (
	"errors"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestSpec5TheMarksOfAnEmptiedLogAreAboveItsEarlierEpochs stops a failback behind the cut that emptied the log, before anything is copied. The source has the records that were cut, and a last mirror
// epoch that covers them: marks in one of those epochs would be taken for a part of them by the next start.
func TestSpec5TheMarksOfAnEmptiedLogAreAboveItsEarlierEpochs(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld()
		w.log.leaderEpoch = 3
		w.log.add(toBatches(data(0, 9, 3, 10, -1, 0, 0, false, "client"))[0])
		w.log.settle()
		w.log.owner = OwnerOpen
		for _, b := range [][]byte{data(0, 4, 3, 5, -1, 0, 0, false, "other"), data(5, 9, 4, 5, -1, 0, 0, false, "other")} {
			w.src.add(toBatches(b)[0])
		}
		w.src.view.LeaderEpoch = 5
		w.consent = []Consent{{TopicID: testTopic, From: 0, To: 10, Episode: 1}}
		w.load()
		w.wish(statemachine.WantMirroring)
		w.run(50, map[EffectKind]bool{AwaitTruncated: true})
		if w.log.end != 0 || w.stored.State != statemachine.Preparing {
			t.Fatalf("not emptied:\n%s", w.out.String())
		}
		w.src.down = true
		w.wish(statemachine.WantStopped)
		if restart {
			w.run(2, nil)
			w.crash()
		}
		w.settle(t)
		if w.stored.State != statemachine.Stopped || len(w.log.batches) != 1 || w.log.batches[0].h.LeaderEpoch <= 3 {
			t.Fatalf("%v, log %v\n%s", w.stored.State, &w.log.batchLog, w.out.String())
		}
		w.src.down, w.src.view.LME, w.src.view.LMO = false, 3, 5
		w.consent = []Consent{{TopicID: testTopic, From: 0, To: 1, Episode: 2}}
		w.wish(statemachine.WantMirroring)
		w.settle(t)
		if w.stored.State != statemachine.Mirroring || w.log.batchLog.String() != w.src.batchLog.String() {
			t.Fatalf("%v (%s), log %v, the source has %v\n%s", w.stored.State, w.stored.ErrorMessage, &w.log.batchLog, &w.src.batchLog, w.out.String())
		}
	}
}

// TestDecision7AStartThatMayNotChangeTheLogSaysWhy: no replica was asked, so none is to be brought back; and nothing was cut, so it is tried again.
func TestDecision7AStartThatMayNotChangeTheLogSaysWhy(t *testing.T) {
	w := newWorld()
	b := data(0, 4, 3, 5, -1, 0, 0, false, "both")
	w.log.leaderEpoch, w.src.view.LeaderEpoch = 3, 3
	w.log.add(toBatches(b)[0])
	w.log.settle()
	w.src.add(toBatches(b)[0])
	w.src.view.LME, w.src.view.LMO = 3, 5
	w.load()
	w.wish(statemachine.WantMirroring)
	w.run(50, map[EffectKind]bool{AwaitTruncated: true})
	if len(w.pending) != 1 || w.pending[0].Kind != AwaitTruncated {
		t.Fatalf("not in front of it:\n%s", w.out.String())
	}
	e := w.pending[0]
	w.pending = nil
	w.step(Event{Kind: Done, Token: e.Token, Log: w.log.view(), Err: errors.New("it is given up"), Refused: true})
	w.run(50, map[EffectKind]bool{Continue: true})
	if got := w.stored.ErrorMessage; w.stored.State != statemachine.Failed || !strings.HasSuffix(got, "may not be written: it is given up") {
		t.Fatalf("%v: %s\n%s", w.stored.State, got, w.out.String())
	}
	w.due()
	w.settle(t)
	if w.stored.State != statemachine.Mirroring {
		t.Fatalf("%v: %s\n%s", w.stored.State, w.stored.ErrorMessage, w.out.String())
	}
}
