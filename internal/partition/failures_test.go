package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// lie is a fault of failEach.
const lie = half

// lies answers an effect with what is not so, once: a leader epoch that was not raised though the call succeeded, a log that another process leads, a log that cannot be read back. false: there is no lie for this kind.
func (w *world) lies(e *Effect) bool {
	done := Event{Kind: Done, Token: e.Token, Log: w.log.view()}
	switch e.Kind {
	case RaiseEpoch:
	case AskOwner:
		done.Log.Owner = OwnerForeign
	case Rebuild:
		w.core.Step(w.now, Event{Kind: Replayed, Token: e.Token, Bytes: []byte{1, 2, 3}})
	default:
		return false
	}
	w.pending = w.pending[1:]
	w.step(done)
	return true
}

// failEach begins a world anew for every effect that follows, lets that effect fail, before or after it took effect, or answers it with a lie, or ends the process there, and lets the world come to rest:
// it ends as it does without a failure.
func failEach(t *testing.T, begin func(t *testing.T) *world, end func(w *world) string) {
	t.Helper()
	failEachOf(t, false, begin, end)
}

// failEachOf is failEach of a log that comes back from a restart closed, or as it was.
func failEachOf(t *testing.T, staysOpen bool, begin func(t *testing.T) *world, end func(w *world) string) {
	t.Helper()
	plain := begin(t)
	plain.rest(t)
	want := end(plain)
	// next answers what comes next; false: the world is at rest.
	next := func(w *world) bool {
		if len(w.pending) > 0 {
			w.answer(0, noFault)
			return true
		}
		return w.wake() || w.due()
	}
	restart := func(w *world) {
		owner := w.log.owner
		w.crash()
		if staysOpen {
			w.log.owner = owner
		}
	}
	failed := map[EffectKind]bool{}
	for _, crash := range []bool{false, true} {
		for _, f := range []fault{failBefore, failAfter, lie} {
			for k := 0; k < 200; k++ {
				w := begin(t)
				resting := false
				for range k {
					resting = resting || !next(w)
				}
				if resting {
					break
				}
				if len(w.pending) == 0 {
					continue
				}
				e := w.pending[0]
				switch {
				case f == lie && (crash || !w.lies(&e)):
					continue
				case f == lie:
				case crash && f == failAfter:
					w.perform(&e, noFault)
					restart(w)
				case crash:
					restart(w)
				case e.Kind == Persist && f == failAfter:
					continue // the shell finds out whether it was written
				default:
					failed[e.Kind] = true
					awaited := w.core.await == e.Token
					w.answer(0, f)
					switch e.Kind {
					case CheckSource, AskEpoch, AddFetcher, Continue: // a question to the source is answered, or it is not
						awaited = awaited && f == failBefore
					}
					if s := w.core.Status(); awaited && !w.core.held && !strings.Contains(s.Waiting+w.told(), errLost.Error()) {
						t.Fatalf("failure %d at %d %v is not told: %v, waiting %q\n%s", f, k, e.Kind, s.Record, s.Waiting, w.out.String())
					}
				}
				w.rest(t)
				if got := end(w); got != want {
					t.Fatalf("failure %d (crash %v) at %d %v ends with\n%s\nwant\n%s\n%s", f, crash, k, e.Kind, got, want, w.out.String())
				}
			}
		}
	}
	if len(failed) == 0 {
		t.Fatal("nothing failed")
	}
}

// told is what the record will say that is being written.
func (w *world) told() string {
	for _, e := range w.pending {
		if e.Kind == Persist {
			return e.Record.ErrorMessage
		}
	}
	return ""
}

// rest is settle; a fetch that waits gets what there is, and at last an empty reply, as a long poll that is over.
func (w *world) rest(t *testing.T) {
	t.Helper()
	w.settle(t)
	for w.wake() {
		w.settle(t)
	}
	if e := w.parked; e != nil {
		w.parked = nil
		w.step(Event{Kind: Fetched, Token: e.Token, Fetch: Fetch{Offset: e.Offset, LeaderEpoch: e.Epoch, HighWatermark: w.src.hw(), LogStart: w.src.start, LeaderID: -1, CurrentEpoch: -1}})
		w.settle(t)
	}
}

// copied is the end of a world that mirrors.
func copied(w *world) string {
	return fmt.Sprintf("%v, the source %v, %v, %v, error %q", &w.log.batchLog, &w.src.batchLog, w.stored.State, w.log.owner, w.stored.ErrorMessage)
}

// TestSpec2FailureAtEachMirroringStep lets every effect of MIRRORING fail once, in each of the situations in which it has something to do besides copying.
func TestSpec2FailureAtEachMirroringStep(t *testing.T) {
	changed := func(w *world) { w.step(Event{Kind: SourceChanged, Source: w.src.look()}) }
	batch := func(w *world, base, last int64, epoch int32, salt string) {
		w.src.add(toBatches(data(base, last, epoch, int(last-base+1), -1, 0, 0, false, salt))[0])
	}
	for _, c := range []struct {
		name  string
		loss  LossPolicy
		begin func(w *world)
		ends  string // in the log that is copied
	}{
		{"the source lost its tail in an unclean election (F-35)", LossRestart, func(w *world) {
			w.src.cutTo(10)
			w.src.view.LeaderEpoch = 7
			batch(w, 10, 24, 7, "other")
			changed(w)
		}, "10-24/e7"},
		{"records were deleted before they were copied (F-19), restart", LossRestart, func(w *world) {
			w.src.cutTo(20)
			batch(w, 20, 29, 5, "x")
			batch(w, 30, 39, 5, "x")
			w.src.raiseStart(30)
			changed(w)
		}, "[30, 40)"},
		{"records were deleted before they were copied (F-19), keep", LossKeep, func(w *world) {
			batch(w, 20, 29, 5, "x")
			batch(w, 30, 39, 5, "x")
			w.src.raiseStart(30)
			changed(w)
		}, "30-39"},
		{"the source's log start moved inside the copy (F-21)", LossRestart, func(w *world) {
			w.src.raiseStart(6)
			changed(w)
		}, "[6, 20)"},
		{"the source's log start moved inside the copy while no process ran (F-21)", LossRestart, func(w *world) {
			w.src.raiseStart(6)
			w.crash()
		}, "[6, 20)"},
		{"a batch of a newer epoch", LossRestart, func(w *world) {
			w.src.view.LeaderEpoch = 30
			batch(w, 20, 24, 30, "new")
			changed(w)
		}, "20-24/e30"},
		{"a resume after a pause", LossRestart, func(w *world) {
			w.wish(statemachine.WantPaused)
			w.settle(t)
			if w.stored.State != statemachine.Paused {
				t.Fatalf("not paused:\n%s", w.out.String())
			}
			w.src.raiseStart(6)
			batch(w, 20, 24, 5, "new")
			w.wish(statemachine.WantMirroring)
		}, "20-24/e5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			failEach(t, func(t *testing.T) *world {
				w := newWorld()
				w.cfg.Loss = c.loss
				w.src.view.LeaderEpoch = 5
				for _, b := range [][]byte{data(0, 9, 5, 10, -1, 0, 0, false, "a"), data(10, 19, 5, 10, -1, 0, 0, false, "a")} {
					w.src.add(toBatches(b)[0])
				}
				w.load()
				w.wish(statemachine.WantMirroring)
				w.settle(t)
				if w.log.end != 20 {
					t.Fatalf("not mirrored:\n%s", w.out.String())
				}
				c.begin(w)
				return w
			}, func(w *world) string {
				if !strings.Contains(w.log.batchLog.String(), c.ends) || w.stored.State != statemachine.Mirroring {
					t.Fatalf("the log is %v, want %s in it; %v\n%s", &w.log.batchLog, c.ends, w.stored.State, w.out.String())
				}
				return copied(w)
			})
		})
	}
}

// TestF23FailureWhileAnEmptyCopyStartsAnew: a copy without records lies above a source that came back from an unclean election with less.
func TestF23FailureWhileAnEmptyCopyStartsAnew(t *testing.T) {
	failEach(t, func(*testing.T) *world {
		w := newWorld()
		w.src.view.LeaderEpoch = 5
		w.src.add(toBatches(data(0, 9, 5, 10, -1, 0, 0, false, "a"))[0])
		w.log.start, w.log.end, w.log.replicated, w.log.leaderEpoch = 50, 50, 50, 3
		w.stored = statemachine.PartitionState{State: statemachine.Mirroring, StateEpoch: 7, Episode: 1, PreviousState: statemachine.Unknown, SourceClusterID: "A", SourceTopicID: sourceTopic}
		w.want, w.wished = statemachine.WantMirroring, true
		w.load()
		return w
	}, func(w *world) string {
		if w.log.batchLog.String() != w.src.batchLog.String() {
			t.Fatalf("the log is %v\n%s", &w.log.batchLog, w.out.String())
		}
		return copied(w)
	})
}

// TestDecision4FailureWhileAStoppedLogIsOpened: a STOPPED log came back closed, under a leader epoch that is not above the last mirror epoch.
func TestDecision4FailureWhileAStoppedLogIsOpened(t *testing.T) {
	failEach(t, func(t *testing.T) *world {
		w := stoppable(t)
		w.wish(statemachine.WantStopped)
		w.settle(t)
		w.log.leaderEpoch = 5
		w.crash()
		return w
	}, func(w *world) string {
		if w.log.owner != OwnerOpen || w.log.leaderEpoch <= w.lme.Epoch || w.stored.State != statemachine.Stopped {
			t.Fatalf("%v under epoch %d, LME %d, %v\n%s", w.log.owner, w.log.leaderEpoch, w.lme.Epoch, w.stored.State, w.out.String())
		}
		return fmt.Sprintf("%v %+v", &w.log.batchLog, *w.lme)
	})
}

// TestDecision4FailureWhileARefusedStartIsStopped: a start of a log that clients write was refused; the stop hands it back with the earlier stop's record.
func TestDecision4FailureWhileARefusedStartIsStopped(t *testing.T) {
	failEach(t, func(t *testing.T) *world {
		w := failback(t)
		w.consent = nil
		w.wish(statemachine.WantMirroring)
		w.settle(t)
		if w.stored.State != statemachine.Failed {
			t.Fatalf("not refused:\n%s", w.out.String())
		}
		w.log.owner = OwnerOurs // it came back closed
		w.wish(statemachine.WantStopped)
		return w
	}, func(w *world) string {
		if w.log.owner != OwnerOpen || w.stored.State != statemachine.Stopped {
			t.Fatalf("%v, %v\n%s", w.log.owner, w.stored.State, w.out.String())
		}
		return fmt.Sprintf("%v LMO %d", &w.log.batchLog, w.lme.Offset)
	})
}

// TestDefaults: what is not configured is what the manual says.
func TestDefaults(t *testing.T) {
	c := New(Config{}).cfg
	if c.FetchBackoff != time.Second || c.ReplicaWait != 10*time.Second || c.Refetches != 3 {
		t.Errorf("not configured: %v, %v, %d", c.FetchBackoff, c.ReplicaWait, c.Refetches)
	}
	c = New(Config{FetchBackoff: 1, ReplicaWait: 1, Refetches: 1}).cfg
	if c.FetchBackoff != 1 || c.ReplicaWait != 1 || c.Refetches != 1 {
		t.Errorf("configured: %v, %v, %d", c.FetchBackoff, c.ReplicaWait, c.Refetches)
	}
}

// TestNothingHappensBeforeLoadedAndAfterHalt: an event that comes too early asks for nothing, a second Loaded is none, and after Halt nothing is asked for ever (spec §1.5).
func TestNothingHappensBeforeLoadedAndAfterHalt(t *testing.T) {
	w := newWorld()
	w.core = New(w.cfg)
	for _, ev := range []Event{
		{Kind: Wish, Want: statemachine.WantMirroring}, {Kind: Done}, {Kind: SourceChanged, Source: w.src.look()}, {Kind: ReplicatedMoved, Log: w.log.view()}, {Kind: Recover}, {Kind: RetryDue}, {Kind: Fetched},
		{Kind: FailPartition, Err: errors.New("broken")}, {Kind: Persisted},
	} {
		if got := w.core.Step(w.now, ev); len(got) > 0 {
			t.Errorf("%v before Loaded: %v", ev.Kind, got)
		}
	}
	w.load()
	w.wish(statemachine.WantMirroring)
	w.run(3, nil)
	was := w.core.Status()
	if got := w.core.Step(w.now, Event{Kind: Loaded, Record: statemachine.NewPartitionState(), Log: LogView{End: 99}}); len(got) > 0 || w.core.Status().Log != was.Log || w.core.Status().Record != was.Record {
		t.Errorf("a second Loaded counts: %v, %v", got, w.core.Status())
	}
	w.fenced = true
	w.wish(statemachine.WantStopped)
	w.run(50, nil)
	if !w.halted {
		t.Fatalf("not halted:\n%s", w.out.String())
	}
	for _, ev := range []Event{{Kind: Wish, Want: statemachine.WantMirroring}, {Kind: Recover}, {Kind: SourceChanged, Source: w.src.look()}} {
		if got := w.core.Step(w.now, ev); len(got) > 0 {
			t.Errorf("%v after Halt: %v", ev.Kind, got)
		}
	}
}

// TestSpec1TheFirstWishAfterALoad says only what was wanted all along: of a FAILED partition it begins at once a stop that had failed, unless only a person ends the failure, and a start for which there is consent.
func TestSpec1TheFirstWishAfterALoad(t *testing.T) {
	consent := []Consent{{TopicID: testTopic, From: 0, To: 20, Episode: 1}}
	for _, c := range []struct {
		name     string
		previous statemachine.State
		attempt  int16
		want     statemachine.Desired
		consents []Consent
		to       statemachine.State // FAILED: it stays
	}{
		{"a stop that failed", statemachine.Stopping, 3, statemachine.WantStopped, nil, statemachine.Stopping},
		{"a stop that only a person goes on with", statemachine.Stopping, statemachine.NonRetryable, statemachine.WantStopped, nil, statemachine.Failed},
		{"a copy that failed", statemachine.Mirroring, 3, statemachine.WantMirroring, nil, statemachine.Failed},
		{"a copy that failed, to be stopped", statemachine.Mirroring, 3, statemachine.WantStopped, nil, statemachine.Stopping},
		{"a start that was refused", statemachine.Preparing, statemachine.NonRetryable, statemachine.WantMirroring, nil, statemachine.Failed},
		{"a start that was refused, with consent", statemachine.Preparing, statemachine.NonRetryable, statemachine.WantMirroring, consent, statemachine.Preparing},
		{"a start that was refused, with consent for another partition", statemachine.Preparing, statemachine.NonRetryable, statemachine.WantMirroring,
			[]Consent{{TopicID: testTopic, Partition: 9, From: 0, To: 20, Episode: 1}}, statemachine.Failed},
		{"a start that was refused, with consent for another topic", statemachine.Preparing, statemachine.NonRetryable, statemachine.WantMirroring,
			[]Consent{{TopicID: statemachine.TopicID{9}, From: 0, To: 20, Episode: 1}}, statemachine.Failed},
		{"a start that was refused, with consent for another episode", statemachine.Preparing, statemachine.NonRetryable, statemachine.WantMirroring,
			[]Consent{{TopicID: testTopic, From: 0, To: 20, Episode: 2}}, statemachine.Failed},
		{"a start that failed, with consent", statemachine.Preparing, 3, statemachine.WantMirroring, consent, statemachine.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.src.down = true
			w.stored = statemachine.PartitionState{State: statemachine.Failed, StateEpoch: 7, Episode: 1, PreviousState: c.previous, RetryAttempt: c.attempt, ErrorMessage: "broken"}
			w.load()
			w.consent = c.consents
			var to statemachine.State = statemachine.Failed
			var attempt int16
			w.onEffect = func(e *Effect) {
				if e.Kind == Persist && to == statemachine.Failed {
					to, attempt = e.Record.State, e.Record.RetryAttempt
				}
			}
			w.wish(c.want)
			if to != c.to {
				t.Errorf("%v, want %v", to, c.to)
			}
			if len(c.consents) > 0 && to == statemachine.Preparing && attempt != 0 {
				t.Errorf("a start with consent counts what failed before: attempt %d", attempt)
			}
		})
	}
}

// TestTunedCountsFromTheNextDecisionOn: with the policy altered from restart to fail, a loss that comes afterwards fails (decision 16).
func TestTunedCountsFromTheNextDecisionOn(t *testing.T) {
	for _, tuned := range []bool{false, true} {
		w := stoppable(t)
		if tuned {
			w.step(Event{Kind: Tuned, Policy: Policy{Loss: LossFail}})
		}
		w.src.add(toBatches(data(20, 39, 5, 20, -1, 0, 0, false, ""))[0])
		w.src.add(toBatches(data(40, 44, 5, 5, -1, 0, 0, false, ""))[0])
		w.src.raiseStart(40)
		w.step(Event{Kind: SourceChanged, Source: w.src.look()})
		w.run(100, nil)
		if failed := w.stored.State == statemachine.Failed; failed != tuned {
			t.Errorf("tuned %v: %v\n%s", tuned, w.stored.State, w.out.String())
		}
	}
}

// TestReplicatedMovedOfAnOpenLog takes the clients' log as it is said to be, and asks for it before the next start relies on it; of a log that is ours the end is known better here.
func TestReplicatedMovedOfAnOpenLog(t *testing.T) {
	w := stoppable(t)
	old := w.log.view()
	old.End, old.Replicated = 15, 15
	w.step(Event{Kind: ReplicatedMoved, Log: old})
	if s := w.core.Status(); s.Log != w.log.view() {
		t.Errorf("news that is older than the last answer: %+v", s.Log)
	}
	w.wish(statemachine.WantStopped)
	w.settle(t)
	w.log.add(toBatches(data(w.log.end, w.log.end+4, w.log.leaderEpoch, 5, -1, 0, 0, false, "client"))[0])
	w.log.settle()
	w.step(Event{Kind: ReplicatedMoved, Log: w.log.view()})
	if s := w.core.Status(); s.Log != w.log.view() || !w.core.dirty {
		t.Errorf("clients wrote: %+v, want %+v, to be asked again %v", s.Log, w.log.view(), w.core.dirty)
	}
}

// TestDecision4FailureWhileATakenLogIsStopped: another broker took the log while it was mirrored, under a leader epoch that is not above the last mirror epoch. Nothing is written there.
func TestDecision4FailureWhileATakenLogIsStopped(t *testing.T) {
	failEachOf(t, true, func(t *testing.T) *world {
		w := stoppable(t)
		w.log.owner, w.log.leaderEpoch = OwnerOpen, 5
		w.wish(statemachine.WantStopped)
		return w
	}, func(w *world) string {
		if w.log.owner != OwnerOpen || w.stored.State != statemachine.Stopped || w.log.end != 20 || w.lme.Offset != 20 || w.log.leaderEpoch <= w.lme.Epoch {
			t.Fatalf("%v, %v, log %v under epoch %d, %+v\n%s", w.log.owner, w.stored.State, &w.log.batchLog, w.log.leaderEpoch, w.lme, w.out.String())
		}
		return fmt.Sprintf("%v %+v", &w.log.batchLog, *w.lme)
	})
}

// TestDecision4FailureWhileAnOpenLogIsStopped: as above, of a log that was the clients' all the time, whose leader epoch came back from a restart too low.
func TestDecision4FailureWhileAnOpenLogIsStopped(t *testing.T) {
	failEach(t, func(t *testing.T) *world {
		w := failback(t)
		w.consent = nil
		w.wish(statemachine.WantMirroring)
		w.settle(t)
		w.log.leaderEpoch = 4
		w.wish(statemachine.WantStopped)
		return w
	}, func(w *world) string {
		if w.log.owner != OwnerOpen || w.stored.State != statemachine.Stopped || w.log.leaderEpoch <= w.lme.Epoch {
			t.Fatalf("%v, %v, epoch %d, LME %d\n%s", w.log.owner, w.stored.State, w.log.leaderEpoch, w.lme.Epoch, w.out.String())
		}
		return fmt.Sprintf("%v LMO %d", &w.log.batchLog, w.lme.Offset)
	})
}

// TestSourceChangedInEachState: news of the source that nobody asked for end a copy only if they are for good; of another cluster they say nothing about the lag.
func TestSourceChangedInEachState(t *testing.T) {
	news := SourceView{ClusterID: "A", TopicID: sourceTopic, LeaderID: -1, LeaderEpoch: -1, LogStart: 0, HighWatermark: 90, LME: -1, LMO: -1}
	other := news
	other.ClusterID = "B"
	gone, refused := news, news
	gone.Permanent, refused.Permanent, refused.Refused = true, true, "the topic was deleted"
	for _, c := range []struct {
		name    string
		paused  bool
		view    SourceView
		err     error
		state   statemachine.State
		message string
		hw      int64
	}{
		{"ends", false, news, nil, statemachine.Mirroring, "", 90},
		{"no answer", false, news, errors.New("timeout"), statemachine.Mirroring, "", 20},
		{"gone for good", false, gone, nil, statemachine.Failed, "the source partition is gone for good", 20},
		{"gone for good, and why", false, gone, errors.New("deleted"), statemachine.Failed, "deleted", 20},
		{"refused for good", false, refused, errors.New("deleted"), statemachine.Failed, "the topic was deleted", 20},
		{"another cluster", false, other, nil, statemachine.Failed, "source cluster id A != B", 20},
		{"ends, while it is paused", true, news, nil, statemachine.Paused, "", 90},
		{"another cluster, while it is paused", true, other, nil, statemachine.Paused, "", 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := stoppable(t)
			if c.paused {
				w.wish(statemachine.WantPaused)
				w.run(100, nil)
			}
			w.step(Event{Kind: SourceChanged, Source: c.view, Err: c.err})
			w.run(100, nil)
			s := w.core.Status()
			if s.Record.State != c.state || s.Source.HighWatermark != c.hw || !strings.Contains(s.Record.ErrorMessage, c.message) || (s.Record.ErrorMessage == "") != (c.message == "") {
				t.Errorf("%v, high watermark %d, %q; want %v, %d, %q", s.Record.State, s.Source.HighWatermark, s.Record.ErrorMessage, c.state, c.hw, c.message)
			}
			if failed := c.state == statemachine.Failed; failed != (s.Record.RetryAttempt == statemachine.NonRetryable) {
				t.Errorf("attempt %d of %v", s.Record.RetryAttempt, s.Record.State)
			}
		})
	}
}

// TestFailPartitionInEachState: the shell's word fails what works, for good only where that is new; a stop does not fail over a source that is gone (decision 4).
func TestFailPartitionInEachState(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name    string
		stored  statemachine.PartitionState
		want    statemachine.Desired
		ev      Event
		state   statemachine.State
		attempt int16
		message string
	}{
		{"a copy", statemachine.PartitionState{State: statemachine.Mirroring}, statemachine.WantMirroring, Event{Err: broken}, statemachine.Failed, 1, "broken"},
		{"a copy, nobody knows why", statemachine.PartitionState{State: statemachine.Mirroring}, statemachine.WantMirroring, Event{}, statemachine.Failed, 1, "the partition does not work; it is tried again"},
		{"a copy, for good", statemachine.PartitionState{State: statemachine.Mirroring}, statemachine.WantMirroring, Event{Err: broken, NonRetryable: true}, statemachine.Failed, statemachine.NonRetryable, "broken"},
		{"a stop", statemachine.PartitionState{State: statemachine.Stopping}, statemachine.WantStopped, Event{Err: broken}, statemachine.Failed, 1, "broken"},
		{"a stop, the source is gone", statemachine.PartitionState{State: statemachine.Stopping}, statemachine.WantStopped, Event{Err: broken, NonRetryable: true, Source: SourceView{Permanent: true}}, statemachine.Stopping, 0, ""},
		{"a failed stop, the source is gone", statemachine.PartitionState{State: statemachine.Failed, PreviousState: statemachine.Stopping, RetryAttempt: 2, ErrorMessage: "before"}, statemachine.WantMirroring,
			Event{Err: broken, NonRetryable: true, Source: SourceView{Permanent: true}}, statemachine.Failed, 2, "before"},
		{"a failed copy, for good now", statemachine.PartitionState{State: statemachine.Failed, PreviousState: statemachine.Mirroring, RetryAttempt: 2, ErrorMessage: "before"}, statemachine.WantMirroring,
			Event{Err: broken, NonRetryable: true}, statemachine.Failed, statemachine.NonRetryable, "broken"},
		{"a failed copy", statemachine.PartitionState{State: statemachine.Failed, PreviousState: statemachine.Mirroring, RetryAttempt: 2, ErrorMessage: "before"}, statemachine.WantMirroring, Event{Err: broken}, statemachine.Failed, 2, "before"},
		{"a copy that failed for good", statemachine.PartitionState{State: statemachine.Failed, PreviousState: statemachine.Mirroring, RetryAttempt: statemachine.NonRetryable, ErrorMessage: "before"}, statemachine.WantMirroring,
			Event{Err: broken, NonRetryable: true}, statemachine.Failed, statemachine.NonRetryable, "before"},
		{"a paused copy", statemachine.PartitionState{State: statemachine.Paused}, statemachine.WantPaused, Event{Err: broken, NonRetryable: true}, statemachine.Paused, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.src.down = true
			w.stored = c.stored
			w.stored.StateEpoch, w.stored.Episode = 7, 1
			if w.stored.PreviousState == statemachine.Preparing {
				w.stored.PreviousState = statemachine.Unknown
			}
			w.load()
			w.wish(c.want)
			c.ev.Kind = FailPartition
			w.step(c.ev)
			for len(w.pending) > 0 && w.pending[len(w.pending)-1].Kind == Persist {
				w.answer(len(w.pending)-1, noFault)
			}
			r := w.core.Status().Record
			if r.State != c.state || r.RetryAttempt != c.attempt || r.ErrorMessage != c.message {
				t.Errorf("%v, attempt %d, %q; want %v, %d, %q\n%s", r.State, r.RetryAttempt, r.ErrorMessage, c.state, c.attempt, c.message, w.out.String())
			}
		})
	}
}

// TestSpec5FailureWhileTheEpochIsRaised: the stop itself has to raise the leader epoch above the last mirror epoch, because the log came back from a restart with a lower one.
func TestSpec5FailureWhileTheEpochIsRaised(t *testing.T) {
	failEach(t, func(t *testing.T) *world {
		w := stoppable(t)
		w.log.leaderEpoch = 5
		w.wish(statemachine.WantStopped)
		return w
	}, func(w *world) string {
		const log = "[0, 23) 0-4/e5/P7.0T 5-5/e5/COMMIT:P7.0 6-9/e5/P9.0T 10-14/e5 15-19/e5/P7.0T 20-20/e6/ABORT:P9.0 21-21/e6/ABORT:P7.0 22-22/e6/RESET"
		if w.log.owner != OwnerOpen || w.stored.State != statemachine.Stopped || w.log.batchLog.String() != log || w.lme.Offset != 20 {
			t.Fatalf("%v, %v, log %v, %+v\n%s", w.log.owner, w.stored.State, &w.log.batchLog, w.lme, w.out.String())
		}
		return fmt.Sprintf("%+v", *w.lme)
	})
}

// TestSpec5GroupsThatCannotBeQuiescedInTime: the offset sync ends within a bound, or the stop goes on without; any other error fails the stop, which is tried again.
func TestSpec5GroupsThatCannotBeQuiescedInTime(t *testing.T) {
	for _, late := range []bool{true, false} {
		w := stoppable(t)
		w.wish(statemachine.WantStopped)
		for w.pending[0].Kind != QuiesceGroups {
			w.answer(0, noFault)
		}
		e := w.pending[0]
		w.pending = w.pending[1:]
		err := errLost
		if late {
			err = fmt.Errorf("groups: %w", context.DeadlineExceeded)
		}
		w.notes = nil
		w.step(Event{Kind: Done, Token: e.Token, Err: err})
		w.settle(t)
		failed := slices.ContainsFunc(w.notes, func(n Note) bool { return n.Kind == StateChanged && n.To == statemachine.Failed })
		if failed == late || w.stored.State != statemachine.Stopped {
			t.Errorf("late %v: failed %v, %v\n%s", late, failed, w.stored.State, w.out.String())
		}
	}
}

// TestF10ABatchThatIsCutProvesNothing: no whole batch fits into the reply. That there is a piece of one shows that the source has something there: it is no hole (F-05), and is fetched again after a wait; one that
// is too large for the limit asked for is fetched again at once, and one that is too large for the destination fails (F-12).
func TestF10ABatchThatIsCutProvesNothing(t *testing.T) {
	for _, c := range []struct {
		name        string
		cut         int32
		records     int // bytes of the batch that came
		limit       int32
		state       statemachine.State
		wait        bool
		nothingLeft bool
	}{
		{"a piece", 0, 30, 0, statemachine.Mirroring, true, false},
		{"one byte", 0, 1, 0, statemachine.Mirroring, true, false},
		{"a piece of one that is larger than was asked for", 5000, 30, 0, statemachine.Mirroring, false, false},
		{"a piece of one that the destination takes", 5000, 30, 5000, statemachine.Mirroring, false, false},
		{"a piece of one that the destination does not take", 5001, 30, 5000, statemachine.Failed, false, false},
		{"nothing", 0, 0, 0, statemachine.Mirroring, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := stoppable(t)
			w.core.cfg.MaxBatch = c.limit
			e := w.parked
			w.parked = nil
			w.step(Event{Kind: Fetched, Token: e.Token, Fetch: Fetch{Offset: 20, LeaderEpoch: 5, HighWatermark: 30, LogStart: 0, LeaderID: -1, CurrentEpoch: -1, CutBatch: c.cut,
				Records: data(20, 29, 5, 10, -1, 0, 0, false, "x")[:c.records]}})
			if w.pending[0].Kind == CheckSource { // whether it reads from remote storage (F-86)
				w.src.end2 = 30
				w.answer(0, noFault)
			}
			if w.pending[0].Kind == Persist && w.pending[0].Record.HoleTo == 30 {
				w.answer(0, noFault)
			}
			last := w.pending[len(w.pending)-1]
			for _, p := range w.pending {
				if p.Kind == Continue {
					last = p
				}
			}
			if s := w.core.Status(); last.Record.State != c.state && s.Record.State != c.state || s.NothingLeft != c.nothingLeft {
				t.Errorf("%v, %v, nothing left: %v", last.Kind, s.Record.State, s.NothingLeft)
			}
			if c.state == statemachine.Mirroring && (last.Kind != Continue || last.Offset != 20 || (last.Bound > 0) != c.wait) {
				t.Errorf("next %v at %d after %v", last.Kind, last.Offset, last.Bound)
			}
		})
	}
}

// TestF33WhomTheLogWasCopiedFrom: a record without the source's cluster is followed by what the last stop recorded, unless this mirror has never run; a source that is another cluster is refused.
func TestF33WhomTheLogWasCopiedFrom(t *testing.T) {
	for _, c := range []struct {
		name   string
		state  statemachine.State
		record string
		lme    string
		failed bool
	}{
		{"of the record", statemachine.Mirroring, "B", "A", true},
		{"of the record, and it is", statemachine.Mirroring, "A", "B", false},
		{"of the last stop", statemachine.Mirroring, "", "B", true},
		{"of the last stop, and it is", statemachine.Mirroring, "", "A", false},
		{"of another mirror's stop", statemachine.Unknown, "", "B", false},
		{"nobody knows", statemachine.Mirroring, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.src.add(toBatches(data(0, 9, 0, 10, -1, 0, 0, false, "a"))[0])
			w.stored = statemachine.PartitionState{State: c.state, StateEpoch: 3, Episode: 2, SourceClusterID: c.record, PreviousState: statemachine.Unknown}
			w.lme = &statemachine.LastMirrorEpoch{Epoch: -1, Offset: 0, SourceClusterID: c.lme, Episode: 1}
			w.load()
			w.wish(statemachine.WantMirroring)
			w.run(100, nil)
			if failed := w.stored.State == statemachine.Failed; failed != c.failed || failed && !strings.Contains(w.stored.ErrorMessage, "source cluster id B != A") {
				t.Errorf("%v: %q\n%s", w.stored.State, w.stored.ErrorMessage, w.out.String())
			}
		})
	}
}

// TestF38AReplyForAnotherOffsetIsNotTaken: what it holds is not what follows our end, whatever its batches say.
func TestF38AReplyForAnotherOffsetIsNotTaken(t *testing.T) {
	for _, offset := range []int64{10, 20, 25} {
		w := stoppable(t)
		e := w.parked
		w.parked = nil
		w.step(Event{Kind: Fetched, Token: e.Token, Fetch: Fetch{Offset: offset, LeaderEpoch: 5, HighWatermark: 40, LogStart: 0, LeaderID: -1, CurrentEpoch: -1, Records: data(20, 29, 5, 10, -1, 0, 0, false, "x")}})
		next := w.pending[len(w.pending)-1]
		if offset == 20 && next.Kind != Append || offset != 20 && (next.Kind != Continue || next.Offset != 20 || next.Bound == 0) {
			t.Errorf("a reply for %d: %v at %d after %v", offset, next.Kind, next.Offset, next.Bound)
		}
	}
}

// TestDecision15TwoAnswersThatDifferCutNothing: the source is asked twice where the logs part, and again until two answers agree.
func TestDecision15TwoAnswersThatDifferCutNothing(t *testing.T) {
	w := stoppable(t)
	w.src.cutTo(10)
	w.src.view.LeaderEpoch = 7
	w.src.add(toBatches(data(10, 24, 7, 15, -1, 0, 0, false, "other"))[0])
	w.src.answers = map[int32][]logtrunc.Round{5: {{Epoch: 5, End: 6}, {Epoch: 5, End: 10}}}
	asked, cuts := 0, []int64{}
	w.onEffect = func(e *Effect) {
		switch e.Kind {
		case AskEpoch:
			asked++
		case Truncate:
			if cuts = append(cuts, e.Offset); asked < 4 {
				t.Errorf("cut to %d after %d answers", e.Offset, asked)
			}
		}
	}
	w.step(Event{Kind: SourceChanged, Source: w.src.look()})
	w.rest(t)
	if !slices.Equal(cuts, []int64{10}) || w.log.batchLog.String() != w.src.batchLog.String() {
		t.Errorf("cut to %v, the log is %v\n%s", cuts, &w.log.batchLog, w.out.String())
	}
}

// TestDecision7ConsentThatIsWithdrawnWhileTheLogIsClosed: nothing is cut, and clients get their log back.
func TestDecision7ConsentThatIsWithdrawnWhileTheLogIsClosed(t *testing.T) {
	w := failback(t)
	was := w.log.batchLog.String()
	w.wish(statemachine.WantMirroring)
	for w.pending[0].Kind != CloseForWrites {
		w.answer(0, noFault)
	}
	w.consent = nil
	w.wish(statemachine.WantMirroring)
	w.rest(t)
	if w.log.batchLog.String() != was || w.log.owner != OwnerOpen || w.stored.State != statemachine.Failed || w.core.Status().Needs == nil {
		t.Errorf("%v, %v, needs %v, log %v\n%s", w.stored.State, w.log.owner, w.core.Status().Needs, &w.log.batchLog, w.out.String())
	}
}

// TestF23AnEmptyCopyIsMovedOnlyWhenTheSourcesEndWasSeenTwice: the first look was at an old answer.
func TestF23AnEmptyCopyIsMovedOnlyWhenTheSourcesEndWasSeenTwice(t *testing.T) {
	for _, old := range []bool{true, false} {
		w := newWorld()
		w.src.add(toBatches(data(0, 9, 0, 10, -1, 0, 0, false, "a"))[0])
		w.log.start, w.log.end, w.log.replicated = 50, 50, 50
		w.stored = statemachine.PartitionState{State: statemachine.Mirroring, StateEpoch: 7, Episode: 1, PreviousState: statemachine.Unknown}
		w.want, w.wished = statemachine.WantMirroring, true
		looks, moved := 0, false
		w.onEffect = func(e *Effect) {
			if e.Kind == CheckSource {
				if looks++; looks == 2 && old {
					w.src.end2 = 60
				}
			}
			moved = moved || e.Kind == Reset
		}
		w.load()
		w.run(100, nil)
		if moved == old {
			t.Errorf("the first answer is old: %v; moved %v after %d looks\n%s", old, moved, looks, w.out.String())
		}
	}
}

// TestSpec2AStopBeginsWithoutWhatFailedBefore, unless it is a stop that failed and is tried again.
func TestSpec2AStopBeginsWithoutWhatFailedBefore(t *testing.T) {
	for previous, attempt := range map[statemachine.State]int16{statemachine.Mirroring: 0, statemachine.Preparing: 0, statemachine.Stopping: 5} {
		w := newWorld()
		w.stored = statemachine.PartitionState{State: statemachine.Failed, StateEpoch: 7, Episode: 1, PreviousState: previous, RetryAttempt: 5, ErrorMessage: "broken"}
		w.load()
		var first *statemachine.PartitionState
		w.onEffect = func(e *Effect) {
			if e.Kind == Persist && first == nil {
				r := e.Record
				first = &r
			}
		}
		w.wish(statemachine.WantStopped)
		if first == nil || first.State != statemachine.Stopping || first.RetryAttempt != attempt || (first.ErrorMessage == "") != (attempt == 0) {
			t.Errorf("failed in %v: %+v", previous, first)
		}
	}
}

// TestDecision4WhatClientsWroteInATakenLogIsNotMirrored: another broker took the log, and clients write in it under a leader epoch that the mirror has had too. The mirror ended where it saw its log end.
func TestDecision4WhatClientsWroteInATakenLogIsNotMirrored(t *testing.T) {
	w := stoppable(t)
	w.log.add(toBatches(data(20, 24, 5, 5, -1, 0, 0, false, "client"))[0])
	w.log.settle()
	w.log.owner = OwnerOpen
	w.wish(statemachine.WantStopped)
	w.rest(t)
	if w.stored.State != statemachine.Stopped || w.lme == nil || w.lme.Offset != 20 || w.log.end != 25 {
		t.Errorf("%v, %+v, log %v\n%s", w.stored.State, w.lme, &w.log.batchLog, w.out.String())
	}
}

// TestSpec2WhatOnlyAPersonEnds: a source that does not answer is asked again, unless whoever asked it says that this cannot help.
func TestSpec2WhatOnlyAPersonEnds(t *testing.T) {
	for _, c := range []struct{ nonRetryable, permanent bool }{{false, false}, {true, false}, {false, true}} {
		w := newWorld()
		w.load()
		w.wish(statemachine.WantMirroring)
		w.answer(0, noFault)
		e := w.pending[0]
		w.pending = w.pending[1:]
		w.step(Event{Kind: SourceSeen, Token: e.Token, Err: errLost, NonRetryable: c.nonRetryable, Source: SourceView{Permanent: c.permanent}})
		w.answer(0, noFault)
		if s := w.core.Status(); e.Kind != CheckSource || s.Record.State != statemachine.Failed || (s.Record.RetryAttempt == statemachine.NonRetryable) != (c.nonRetryable || c.permanent) {
			t.Errorf("%+v: %v, attempt %d\n%s", c, s.Record.State, s.Record.RetryAttempt, w.out.String())
		}
	}
}

// TestF28ATopicThatWasRecreatedWhileNoRecordNamesIt: which topic was copied stands in what the last stop recorded, if that was out of the same cluster.
func TestF28ATopicThatWasRecreatedWhileNoRecordNamesIt(t *testing.T) {
	other := statemachine.TopicID{0xb}
	for _, c := range []struct {
		record, lme statemachine.TopicID
		cluster     string
		failed      bool
	}{
		{statemachine.TopicID{}, other, "A", true}, {statemachine.TopicID{}, other, "", true}, {statemachine.TopicID{}, sourceTopic, "A", false},
		{statemachine.TopicID{}, other, "C", false}, {sourceTopic, other, "A", false}, {other, sourceTopic, "A", true},
	} {
		w := newWorld()
		w.src.add(toBatches(data(0, 9, 0, 10, -1, 0, 0, false, "a"))[0])
		w.stored = statemachine.PartitionState{State: statemachine.Mirroring, StateEpoch: 3, Episode: 2, SourceClusterID: "A", SourceTopicID: c.record, PreviousState: statemachine.Unknown}
		w.lme = &statemachine.LastMirrorEpoch{Epoch: -1, Offset: 0, SourceClusterID: c.cluster, SourceTopicID: c.lme, Episode: 1}
		w.load()
		w.wish(statemachine.WantMirroring)
		w.run(100, nil)
		if failed := w.stored.State == statemachine.Failed; failed != c.failed || failed && !strings.Contains(w.stored.ErrorMessage, "deleted and created again") {
			t.Errorf("%+v: %v: %q", c, w.stored.State, w.stored.ErrorMessage)
		}
	}
}

// TestDecision15ASourceWithoutALeaderEpochProvesNothing: its answer may be from before the last election.
func TestDecision15ASourceWithoutALeaderEpochProvesNothing(t *testing.T) {
	w := newWorld()
	w.log.leaderEpoch = 5
	w.log.add(toBatches(data(0, 9, 3, 10, -1, 0, 0, false, "a"))[0])
	w.log.add(toBatches(data(10, 19, 5, 10, -1, 0, 0, false, "a"))[0])
	w.log.settle()
	w.src.add(toBatches(data(0, 9, 3, 10, -1, 0, 0, false, "a"))[0])
	w.src.view.LeaderEpoch = -1
	w.src.answers = map[int32][]logtrunc.Round{5: {{Epoch: 3, End: 10}, {Epoch: 3, End: 10}}, 3: {{Epoch: 3, End: 10}, {Epoch: 3, End: 10}}}
	w.stored = statemachine.PartitionState{State: statemachine.Mirroring, StateEpoch: 3, Episode: 1, PreviousState: statemachine.Unknown}
	w.load()
	w.wish(statemachine.WantMirroring)
	w.run(100, nil)
	if s := w.core.Status(); w.log.end != 20 || !strings.Contains(s.Waiting+s.Record.ErrorMessage, "does not tell its leader epoch") {
		t.Errorf("the log ends at %d, waiting %q, %q\n%s", w.log.end, s.Waiting, s.Record.ErrorMessage, w.out.String())
	}
}
