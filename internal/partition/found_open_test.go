package partition

import (
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/txnabort"
)

// clientsLog is a world whose log is an ordinary topic's: clients write it, one has a transaction open, and no mirror was ever there. The source has other records, and
// dropping ours is consented to. told: the log's owner was known when the process began.
func clientsLog(told bool) *world {
	w := newWorld()
	w.log.leaderEpoch = 3
	for _, b := range [][]byte{data(0, 9, 3, 10, 77, 0, 0, true, "client"), data(10, 14, 3, 5, -1, 0, 0, false, "client")} {
		w.log.add(toBatches(b)[0])
	}
	w.log.settle()
	w.src.add(toBatches(data(0, 9, 5, 10, -1, 0, 0, false, "other"))[0])
	w.src.view.LeaderEpoch = 5
	w.consent = []Consent{{TopicID: testTopic, From: 0, To: 15, Episode: 1}}
	if told {
		w.log.owner = OwnerOpen
	}
	w.load()
	w.log.owner = OwnerOpen
	return w
}

// eachPreparingEffect starts that world anew for every effect of its start, gives the world with that effect pending, and says what it is.
func eachPreparingEffect(told bool, each func(w *world, k int, at EffectKind)) {
	for k := 0; ; k++ {
		w := clientsLog(told)
		w.wish(statemachine.WantMirroring)
		for range k {
			if len(w.pending) > 0 {
				w.answer(0, noFault)
			}
		}
		if len(w.pending) == 0 {
			return
		}
		each(w, k, w.pending[0].Kind)
	}
}

// TestFoundOpenStopLeavesTheLogAlone ends the start at each effect, by a restart, which brings the log back closed, or by a failure, and stops. As long as nothing has been
// cut, the log is given back as it was found: no LME, no ABORT, no reset, and it is open.
func TestFoundOpenStopLeavesTheLogAlone(t *testing.T) {
	before := clientsLog(true).log.batchLog.String()
	looked := 0
	for _, told := range []bool{true, false} {
		for _, f := range []fault{noFault, failBefore, failAfter} {
			for _, restart := range []bool{true, false} {
				eachPreparingEffect(told, func(w *world, k int, at EffectKind) {
					switch {
					case f == noFault && !restart, f == failAfter && at == Persist, at == AddFetcher, at == Continue, at == Append:
						return
					case f == noFault && k%2 == 1: // it took effect, and the answer was not seen
						e := w.pending[0]
						w.perform(&e, noFault)
					case f != noFault:
						w.answer(0, f)
						w.run(20, map[EffectKind]bool{CheckSource: true})
					}
					w.src.down = true
					clients := w.stored.FoundOpen
					if clients && w.log.batchLog.String() != before {
						t.Fatalf("cut at %d %v before it was recorded that the log no longer is the clients'\n%s", k, at, w.out.String())
					}
					quiet := clients
					w.onEffect = func(e *Effect) {
						switch e.Kind {
						case Append, Truncate, Reset, QuiesceGroups, ClampGroups, SettleProducerIDs:
							if quiet && w.stored.FoundOpen {
								t.Fatalf("%v in a log that is the clients', at %d %v\n%s", e.Kind, k, at, w.out.String())
							}
						}
					}
					w.want = statemachine.WantStopped
					if restart {
						w.crash()
					} else {
						w.wish(statemachine.WantStopped)
					}
					w.settle(t)
					if w.stored.State != statemachine.Stopped || w.log.owner != OwnerOpen {
						t.Fatalf("stopped at %d %v: %v, %v\n%s", k, at, w.stored.State, w.log.owner, w.out.String())
					}
					if clients && restart {
						looked++
						if got := w.log.batchLog.String(); got != before || w.lme != nil {
							t.Fatalf("stopped at %d %v: LME %+v, log\n%s, want\n%s\n%s", k, at, w.lme, got, before, w.out.String())
						}
					}
				})
			}
		}
	}
	if looked < 20 {
		t.Fatalf("looked only %d times", looked)
	}
}

// TestFoundOpenRefusalOpensAgain restarts at each effect of the start; the consent is withdrawn, so the next try is refused. It says that nothing was changed, and nothing is.
func TestFoundOpenRefusalOpensAgain(t *testing.T) {
	before := clientsLog(true).log.batchLog.String()
	looked, closed := 0, 0
	for _, told := range []bool{true, false} {
		for _, done := range []bool{false, true} {
			eachPreparingEffect(told, func(w *world, k int, at EffectKind) {
				if done {
					e := w.pending[0]
					w.perform(&e, noFault)
				}
				if !w.stored.FoundOpen {
					return
				}
				looked++
				w.consent = nil
				w.crash()
				if w.log.owner == OwnerOurs {
					closed++
				}
				w.settle(t)
				if w.stored.State != statemachine.Failed || w.stored.RetryAttempt != statemachine.NonRetryable || w.log.owner != OwnerOpen || w.log.batchLog.String() != before {
					t.Fatalf("refused at %d %v: %+v, log %v, %v\n%s", k, at, w.stored, &w.log.batchLog, w.log.owner, w.out.String())
				}
			})
		}
	}
	if looked < 10 || closed < 10 {
		t.Fatalf("looked only %d times, %d of them at a closed log", looked, closed)
	}
}

// TestFoundOpenEndsWithTheMove: once the log is mirrored it is no longer the clients', whether or not anything had to be cut.
func TestFoundOpenEndsWithTheMove(t *testing.T) {
	for _, cut := range []bool{true, false} {
		w := clientsLog(true)
		if !cut {
			w.src.batchLog = batchLog{}
			for _, m := range w.log.batches {
				w.src.add(m)
			}
			w.src.view.LME, w.src.view.LMO = 3, 15
		}
		first := true
		w.onEffect = func(e *Effect) {
			if e.Kind == Persist && first && !e.Record.FoundOpen {
				t.Fatalf("PREPARING is written without it: %+v", e.Record)
			}
			first = first && e.Kind != Persist
		}
		w.wish(statemachine.WantMirroring)
		w.settle(t)
		if w.stored.State != statemachine.Mirroring || w.stored.FoundOpen || w.log.batchLog.String() != w.src.batchLog.String() {
			t.Fatalf("%+v, log %v\n%s", w.stored, &w.log.batchLog, w.out.String())
		}
		w.src.down = true
		w.wish(statemachine.WantStopped)
		w.settle(t)
		if w.lme == nil || w.lme.Offset != w.src.end || len(w.log.producers().InFlight()) > 0 {
			t.Fatalf("LME %+v\n%s", w.lme, w.out.String())
		}
	}
}

// TestFoundOpenStopBeforeTheCutClaimsNothing stops after it was recorded that the log is about to be cut, and before it is: by a restart, or while the cut fails. Nothing was mirrored, so no
// last mirror epoch is recorded: a mirror in the other direction would take what clients wrote here for what it has itself, where both wrote in one epoch.
func TestFoundOpenStopBeforeTheCutClaimsNothing(t *testing.T) {
	before := clientsLog(true).log.batchLog.String()
	looked := 0
	for _, restart := range []bool{true, false} {
		eachPreparingEffect(true, func(w *world, k int, at EffectKind) {
			if at != Truncate && at != Reset {
				return
			}
			looked++
			w.src.down = true
			w.want = statemachine.WantStopped
			if restart {
				w.crash()
			} else {
				w.answer(0, failBefore)
				w.wish(statemachine.WantStopped)
			}
			w.settle(t)
			if w.stored.State != statemachine.Stopped || w.log.owner != OwnerOpen || w.lme != nil || w.log.batchLog.String() != before {
				t.Errorf("stopped at %d %v: %v, %v, LME %+v, log\n%s, want\n%s\n%s", k, at, w.stored.State, w.log.owner, w.lme, &w.log.batchLog, before, w.out.String())
			}
		})
	}
	if looked < 2 {
		t.Fatalf("looked only %d times", looked)
	}
}

// TestStartOverAfterMirroringIsStoppedAsAMirror mirrors a log, recreates the source topic, and starts over with consent; the stop comes at each effect of that start, by a restart or not. What
// the log still holds was mirrored, so the stop ends a mirror: a last mirror epoch, aborts, a reset, settled producer ids. With an earlier stop, whose marks are in both logs, it is
// another episode's end that is recorded, and not the earlier one's once more.
func TestStartOverAfterMirroringIsStoppedAsAMirror(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		for _, restart := range []bool{false, true} {
			for k, more := 0, true; more; k++ {
				w := newWorld()
				w.src.view.LeaderEpoch = 5
				w.src.add(toBatches(data(0, 4, 5, 5, -1, 0, 0, false, "v"))[0])
				if earlier {
					w.src.add(toBatches(txnabort.PIDReset(5, 5, 1))[0])
					for _, m := range w.src.batches {
						w.log.add(m)
					}
					w.log.leaderEpoch, w.log.owner = 6, OwnerOpen
					w.log.settle()
					w.stored = statemachine.PartitionState{State: statemachine.Stopped, StateEpoch: 10, Episode: 1, LeaderEpoch: 6, PreviousState: statemachine.Unknown}
					w.lme = &statemachine.LastMirrorEpoch{Epoch: 5, Offset: 5, Episode: 1, SourceClusterID: "A", SourceTopicID: sourceTopic}
					w.src.view.LME, w.src.view.LMO = 5, 6
				}
				w.load()
				w.wish(statemachine.WantMirroring)
				w.settle(t)
				w.src.add(toBatches(data(w.src.end, w.src.end, 5, 1, 42, 0, 0, true, "open"))[0])
				w.run(300, nil)
				episode, end := w.stored.Episode, w.log.end
				if w.stored.State != statemachine.Mirroring || end != w.src.end {
					t.Fatalf("%+v, log %v\n%s", w.stored, &w.log.batchLog, w.out.String())
				}
				w.src.batchLog = batchLog{}
				w.src.view.TopicID, w.src.view.LME, w.src.view.LMO = statemachine.TopicID{0xb}, -1, -1
				w.src.add(toBatches(data(0, 0, 5, 1, -1, 0, 0, false, "new"))[0])
				w.step(Event{Kind: SourceChanged, Source: w.src.look()})
				w.run(300, nil)
				w.consent = []Consent{{TopicID: testTopic, From: 0, To: end, Episode: episode}}
				w.wish(statemachine.WantMirroring)
				for range k {
					if len(w.pending) > 0 {
						w.answer(0, noFault)
					}
				}
				more = w.stored.State != statemachine.Mirroring && len(w.pending) > 0
				w.src.down = true
				w.want = statemachine.WantStopped
				if restart {
					w.crash()
				} else {
					w.wish(statemachine.WantStopped)
				}
				w.settle(t)
				marked := len(w.log.batches) > 0 && txnabort.IsPIDReset(w.log.batches[len(w.log.batches)-1].bytes)
				if w.stored.State != statemachine.Stopped || w.log.owner != OwnerOpen || w.lme == nil || w.lme.Episode != episode || earlier && w.lme.Offset == 5 || !marked || len(w.log.producers().InFlight()) > 0 {
					t.Fatalf("effect %d, earlier stop %v, restart %v: %+v, LME %+v, log %v, %v\n%s", k, earlier, restart, w.stored, w.lme, &w.log.batchLog, w.log.owner, w.out.String())
				}
			}
		}
	}
}
