package partition

import (
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestStopOfALogThatWasTaken lets another broker take the log before each effect of a life, with all of it or with what was replicated, and clients write there, with a leader
// epoch that no mirrored batch has. Then the topic is stopped, by the same process or by another one, with a dead source. Nothing is written or cut in the clients' log, no record
// of theirs counts as mirrored, every mirrored producer id is settled, and what stays open is told.
func TestStopOfALogThatWasTaken(t *testing.T) {
	recorded, exact, lost, told := 0, 0, 0, 0
	for _, lag := range []bool{false, true} {
		for _, restart := range []bool{false, true} {
			for k := 0; ; k++ {
				w := newWorld()
				w.src.view.LeaderEpoch = 5
				w.src.add(toBatches(data(0, 4, 5, 5, 7, 0, 0, true, ""))[0])
				w.src.add(toBatches(data(5, 9, 5, 5, 8, 0, 0, false, ""))[0])
				w.load()
				w.wish(statemachine.WantMirroring)
				n, was := 0, ""
				marks := false
				var at EffectKind
				var mirrored batchLog
				settled := int64(-1)
				w.onEffect = func(e *Effect) {
					if e.Kind == SettleProducerIDs {
						settled = e.Offset
					}
				}
				step := func() bool {
					if len(w.pending) == 0 {
						return w.wake()
					}
					if n == k {
						at = w.pending[0].Kind
						marks = strings.Contains(w.log.batchLog.String(), "RESET")
						if w.log.lag {
							w.log.cutTo(w.log.replicated)
							w.log.lag = false
							lost++
						}
						mirrored = batchLog{}
						for _, m := range w.log.batches {
							if m.h.LeaderEpoch <= 5 { // not our own marks
								mirrored.add(m)
							}
						}
						w.log.owner, w.log.leaderEpoch = OwnerOpen, w.log.leaderEpoch+100
						for range 2 {
							w.log.add(toBatches(data(w.log.end, w.log.end+4, w.log.leaderEpoch, 5, 3, 0, 0, false, "client"))[0])
						}
						w.log.settle()
						was = w.log.batchLog.String()
					}
					n++
					w.answer(0, noFault)
					return true
				}
				for step() {
				}
				w.log.lag = lag && n <= k
				w.src.add(toBatches(data(10, 14, 5, 5, 9, 0, 0, false, ""))[0])
				for step() {
				}
				w.src.down = true
				if restart && was != "" {
					w.core = nil
					w.want, w.wished = statemachine.WantStopped, true
					w.load()
				} else {
					w.wish(statemachine.WantStopped)
				}
				for range 20 {
					for step() {
					}
					if !w.due() {
						break
					}
				}
				if was == "" && (len(w.pending) == 0 || n > 100) {
					break
				}
				if at == Rebuild || marks && lag { // a log that is read as ours is the one that we had, and marks that are confirmed are not lost
					continue
				}
				fail := func(why string) {
					t.Helper()
					t.Fatalf("taken at %d %v, lag %v, restart %v: %s: %+v, LME %+v, settled above %d, log %v, mirrored %v\n%s", k, at, lag, restart, why, w.stored, w.lme, settled, &w.log.batchLog, &mirrored, w.out.String())
				}
				if w.stored.State != statemachine.Stopped || w.log.owner != OwnerOpen || w.log.batchLog.String() != was {
					fail("not stopped, or the clients' log was touched")
				}
				if w.lme == nil {
					if len(mirrored.batches) > 0 {
						fail("it is not recorded where the mirror ended")
					}
					continue
				}
				recorded++
				if !strings.Contains(was, "RESET") {
					if end := mirrored.end; w.lme.Offset > end || !lag && !restart && w.lme.Offset != end {
						fail("the mirror did not end there")
					}
					if w.lme.Offset == mirrored.end {
						exact++
					}
					if w.lme.Epoch > 5 {
						fail("no mirrored batch has that epoch")
					}
				}
				highest := int64(-1)
				for i := range mirrored.batches {
					highest = max(highest, mirrored.batches[i].h.ProducerID)
				}
				if settled < highest {
					fail("a mirrored producer id can be given out again")
				}
				if len(w.log.producers().InFlight()) > 0 {
					told++
					if !strings.Contains(w.stored.ErrorMessage, "producer 7 epoch 0 since 0") {
						fail("it is not told what stays open")
					}
				}
			}
		}
	}
	if recorded < 20 || exact < 20 || lost < 5 || told < 10 {
		t.Fatalf("recorded %d times, %d times exactly, cut %d times, told of an open transaction %d times", recorded, exact, lost, told)
	}
}
