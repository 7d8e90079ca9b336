package partition

import (
	"fmt"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// stoppable is a world in MIRRORING with two open transactions, one of them of a producer that had one decided before.
func stoppable(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	w.src.view.LeaderEpoch = 5
	for _, b := range [][]byte{
		data(0, 4, 5, 5, 7, 0, 0, true, "a"), marker(5, 5, true, 7, 0), data(6, 9, 5, 4, 9, 0, 0, true, "b"), data(10, 14, 5, 5, -1, 0, 0, false, "c"),
		data(15, 19, 5, 5, 7, 0, 5, true, "d"),
	} {
		w.src.add(toBatches(b)[0])
	}
	w.load()
	w.wish(statemachine.WantMirroring)
	w.run(200, nil)
	if w.log.end != 20 || w.stored.State != statemachine.Mirroring {
		t.Fatalf("not mirrored:\n%s", w.out.String())
	}
	return w
}

// eachLog plays with each kind of log: one that is always read whole, and ones that say what need not be read.
func eachLog(t *testing.T, play func(t *testing.T, like func(*world) *world)) {
	for _, kind := range []struct {
		name     string
		recovers bool
		lower    func(Recovered) Recovered
		piece    int
	}{
		{"read whole", false, nil, 0},
		{"read whole in pieces", false, nil, 1},
		{"recovers", true, nil, 0},
		{"recovers in pieces", true, nil, 1},
		{"recovers little", true, func(k Recovered) Recovered { k.From = min(k.From, 7); return k }, 2}, // inside a batch
		{"recovers nothing", true, func(Recovered) Recovered { return Recovered{From: 0, HighestProducerID: -1} }, 0},
		{"is wrong", true, func(k Recovered) Recovered { k.From = 1000; return k }, 0},
	} {
		t.Run(kind.name, func(t *testing.T) {
			play(t, func(w *world) *world {
				w.log.recovers, w.log.lower, w.log.piece, w.core.cfg.Recovers = kind.recovers, kind.lower, kind.piece, kind.recovers
				return w
			})
		})
	}
}

// settle answers everything and lets waits pass until the partition has come to rest.
func (w *world) settle(t *testing.T) {
	t.Helper()
	for range 60 {
		w.run(500, nil)
		if len(w.pending) > 0 {
			t.Fatalf("no end:\n%s", w.out.String())
		}
		if !w.due() {
			return
		}
	}
	t.Fatalf("no rest:\n%s", w.out.String())
}

// noSource fails the test when a stop asks the source for anything (decision 4).
func (w *world) noSource(t *testing.T) {
	w.onEffect = func(e *Effect) {
		switch e.Kind {
		case CheckSource, AskEpoch, AddFetcher, Continue:
			t.Fatalf("%v during a stop\n%s", e.Kind, w.out.String())
		}
	}
}

// TestSpec5CrashAfterEachStoppingStep crashes the process at every effect of STOPPING, before and after it took effect, and before its answer was seen. The next run
// reaches the same log to the byte: the same LME and LMO, one ABORT for each open transaction, one reset.
func TestSpec5CrashAfterEachStoppingStep(t *testing.T) { eachLog(t, spec5CrashAfterEachStoppingStep) }

func spec5CrashAfterEachStoppingStep(t *testing.T, like func(*world) *world) {
	plain := like(stoppable(t))
	plain.src.down = true
	plain.wish(statemachine.WantStopped)
	plain.noSource(t)
	plain.settle(t)
	want := fmt.Sprintf("%v %+v %v", &plain.log.batchLog, *plain.lme, plain.log.owner)
	if plain.stored.State != statemachine.Stopped || plain.log.owner != OwnerOpen {
		t.Fatalf("not stopped:\n%s", plain.out.String())
	}
	if got := plain.log.producers().InFlight(); len(got) > 0 {
		t.Fatalf("still open: %v", got)
	}
	const wantLog = "[0, 23) 0-4/e5/P7.0T 5-5/e5/COMMIT:P7.0 6-9/e5/P9.0T 10-14/e5 15-19/e5/P7.0T 20-20/e7/ABORT:P9.0 21-21/e7/ABORT:P7.0 22-22/e7/RESET"
	if got := plain.log.batchLog.String(); got != wantLog {
		t.Fatalf("log\n%s, want\n%s", got, wantLog)
	}

	steps := 0
	for _, done := range []bool{false, true} {
		for k := 0; ; k++ {
			w := like(stoppable(t))
			w.src.down = true
			w.wish(statemachine.WantStopped)
			w.noSource(t)
			for range k {
				if len(w.pending) > 0 {
					w.answer(0, noFault)
				}
			}
			if len(w.pending) == 0 {
				if k == 0 {
					t.Fatal("nothing to stop")
				}
				break
			}
			steps++
			at := w.pending[0].Kind
			if done {
				e := w.pending[0]
				w.perform(&e, noFault)
			}
			w.crash()
			w.settle(t)
			if got := fmt.Sprintf("%v %+v %v", &w.log.batchLog, *w.lme, w.log.owner); got != want || w.stored.State != statemachine.Stopped {
				t.Fatalf("crash at %d %v (done %v) ends in %v with\n%s\nwant\n%s\n%s", k, at, done, w.stored.State, got, want, w.out.String())
			}
		}
	}
	if steps < 20 {
		t.Fatalf("only %d steps", steps)
	}
}

// TestSpec5FailureAtEachStoppingStep lets every effect of STOPPING fail once: before it took effect, after, and, for an append, half way.
func TestSpec5FailureAtEachStoppingStep(t *testing.T) { eachLog(t, spec5FailureAtEachStoppingStep) }

func spec5FailureAtEachStoppingStep(t *testing.T, like func(*world) *world) {
	plain := like(stoppable(t))
	plain.wish(statemachine.WantStopped)
	plain.settle(t)
	want := fmt.Sprintf("%v %+v %v", &plain.log.batchLog, *plain.lme, plain.log.owner)
	for _, f := range []fault{failBefore, failAfter, half} {
		for k := 0; ; k++ {
			w := like(stoppable(t))
			w.src.down = true
			w.wish(statemachine.WantStopped)
			w.noSource(t)
			for range k {
				if len(w.pending) > 0 {
					w.answer(0, noFault)
				}
			}
			if len(w.pending) == 0 {
				break
			}
			at := w.pending[0].Kind
			if at == Persist && f != failBefore {
				continue // the shell finds out whether it was written
			}
			w.answer(0, f)
			w.settle(t)
			if got := fmt.Sprintf("%v %+v %v", &w.log.batchLog, *w.lme, w.log.owner); got != want || w.stored.State != statemachine.Stopped {
				t.Fatalf("failure %d at %d %v ends in %v with\n%s\nwant\n%s\n%s", f, k, at, w.stored.State, got, want, w.out.String())
			}
		}
	}
}

// failback is a world whose log was stopped at 20 (LME 5), written by clients in epoch 9 up to 30, and whose source parted from it at 15 in its epoch 6.
func failback(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	w.log.leaderEpoch = 9
	for _, b := range [][]byte{
		data(0, 9, 5, 10, -1, 0, 0, false, "a"), data(10, 14, 5, 5, -1, 0, 0, false, "a"), data(15, 19, 5, 5, -1, 0, 0, false, "a"), data(20, 29, 9, 10, -1, 0, 0, false, "client"),
	} {
		w.log.add(toBatches(b)[0])
	}
	w.log.settle()
	w.log.owner = OwnerOpen
	for _, b := range [][]byte{
		data(0, 9, 5, 10, -1, 0, 0, false, "a"), data(10, 14, 5, 5, -1, 0, 0, false, "a"), data(15, 24, 6, 10, -1, 0, 0, false, "other"), data(25, 39, 12, 15, -1, 0, 0, false, "other"),
	} {
		w.src.add(toBatches(b)[0])
	}
	w.src.view.LeaderEpoch, w.src.view.LME, w.src.view.LMO = 12, 6, 22
	w.stored = statemachine.PartitionState{State: statemachine.Stopped, StateEpoch: 7, Episode: 1, LeaderEpoch: 9, PreviousState: statemachine.Unknown}
	w.lme = &statemachine.LastMirrorEpoch{Epoch: 5, Offset: 20, SourceClusterID: "A", Episode: 1, SourceTopicID: sourceTopic}
	w.consent = []Consent{{TopicID: testTopic, From: 15, To: 30, Episode: 2}}
	w.load()
	return w
}

// TestSpec3CrashAfterEachPreparingStep crashes the process at every effect of a failback's PREPARING up to the first copied batch; each run ends with the source's log.
func TestSpec3CrashAfterEachPreparingStep(t *testing.T) { eachLog(t, spec3CrashAfterEachPreparingStep) }

func spec3CrashAfterEachPreparingStep(t *testing.T, like func(*world) *world) {
	steps := 0
	for _, done := range []bool{false, true} {
		for k := 0; ; k++ {
			w := like(failback(t))
			w.wish(statemachine.WantMirroring)
			for range k {
				if len(w.pending) > 0 {
					w.answer(0, noFault)
				}
			}
			if len(w.pending) == 0 {
				break
			}
			steps++
			at := w.pending[0].Kind
			if done {
				e := w.pending[0]
				w.perform(&e, noFault)
			}
			w.crash()
			w.settle(t)
			if w.log.batchLog.String() != w.src.batchLog.String() || w.stored.State != statemachine.Mirroring {
				t.Fatalf("crash at %d %v (done %v) ends in %v with\n%v, the source has\n%v\n%s", k, at, done, w.stored.State, &w.log.batchLog, &w.src.batchLog, w.out.String())
			}
			if w.log.leaderEpoch < 12 || w.log.owner != OwnerOurs {
				t.Fatalf("crash at %d %v (done %v): epoch %d, %v", k, at, done, w.log.leaderEpoch, w.log.owner)
			}
		}
	}
	if steps < 20 {
		t.Fatalf("only %d steps", steps)
	}
}

// TestSpec3FailureAtEachPreparingStep lets each of these effects fail once.
func TestSpec3FailureAtEachPreparingStep(t *testing.T) { eachLog(t, spec3FailureAtEachPreparingStep) }

func spec3FailureAtEachPreparingStep(t *testing.T, like func(*world) *world) {
	for _, f := range []fault{failBefore, failAfter} {
		for k := 0; ; k++ {
			w := like(failback(t))
			w.wish(statemachine.WantMirroring)
			for range k {
				if len(w.pending) > 0 {
					w.answer(0, noFault)
				}
			}
			if len(w.pending) == 0 {
				break
			}
			at := w.pending[0].Kind
			if at == Persist && f != failBefore || at == CheckSource || at == AskEpoch {
				continue
			}
			w.answer(0, f)
			w.settle(t)
			if w.log.batchLog.String() != w.src.batchLog.String() || w.stored.State != statemachine.Mirroring {
				t.Fatalf("failure %d at %d %v ends in %v with\n%v, the source has\n%v\n%s", f, k, at, w.stored.State, &w.log.batchLog, &w.src.batchLog, w.out.String())
			}
		}
	}
}

// TestInvariant8StopFromEveryPlace stops at every effect from the first start on, with a source that answers nothing any more: it always ends in STOPPED.
func TestInvariant8StopFromEveryPlace(t *testing.T) { eachLog(t, invariant8StopFromEveryPlace) }

func invariant8StopFromEveryPlace(t *testing.T, like func(*world) *world) {
	for _, answerFirst := range []bool{true, false} {
		for k := 0; k < 60; k++ {
			for _, start := range []func(*testing.T) *world{stoppable0, failback} {
				w := like(start(t))
				w.wish(statemachine.WantMirroring)
				for range k {
					if len(w.pending) > 0 {
						w.answer(0, noFault)
					}
				}
				w.src.down = true
				stopping := false
				w.onEffect = func(e *Effect) {
					switch e.Kind {
					case Persist:
						stopping = stopping || e.Record.State == statemachine.Stopping
					case CheckSource, AskEpoch, AddFetcher, Continue:
						if stopping {
							t.Fatalf("%v during a stop at %d\n%s", e.Kind, k, w.out.String())
						}
					}
				}
				w.wish(statemachine.WantStopped)
				if !answerFirst { // what asks the source never comes back
					keep := w.pending[:0]
					for _, e := range w.pending {
						if e.Kind != CheckSource && e.Kind != AskEpoch && e.Kind != AddFetcher && e.Kind != Continue {
							keep = append(keep, e)
						}
					}
					w.pending = keep
				}
				w.settle(t)
				if w.stored.State != statemachine.Stopped || w.log.owner != OwnerOpen {
					t.Fatalf("stop at %d ends in %v, log %v\n%s", k, w.stored.State, w.log.owner, w.out.String())
				}
			}
		}
	}
}

func stoppable0(t *testing.T) *world {
	w := stoppable(t)
	v := newWorld()
	v.src = w.src
	v.load()
	return v
}
