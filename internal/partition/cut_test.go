package partition

import (
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/statemachine"
)

// cutWorld is a copy of a source that has gone: a transaction's data and its COMMIT at 6, behind which another one is committed, and one is open.
func cutWorld(recovers bool) *world {
	w := newWorld()
	w.log.recovers, w.asksCut, w.cutAt = recovers, true, 6
	p := func(base, last int64, id int64) []byte {
		spec := batch.DataSpec{BaseOffset: base, LeaderEpoch: 3, LastOffsetDelta: int32(last - base), ProducerID: id, ProducerEpoch: 1, Transactional: id >= 0}
		for i := range last - base + 1 {
			spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(i)})
		}
		return batch.AppendData(nil, spec)
	}
	end := func(at, id int64, kind batch.ControlType) []byte {
		return batch.AppendControl(nil, batch.ControlSpec{BaseOffset: at, LeaderEpoch: 3, ProducerID: id, ProducerEpoch: 2, BaseSequence: -1, Transactional: true, Key: []byte{0, 0, 0, byte(kind)}, Value: make([]byte, 6)})
	}
	for _, b := range [][]byte{p(0, 4, 7), p(5, 5, -1), end(6, 7, batch.ControlCommit), p(7, 8, 8), end(9, 8, batch.ControlAbort), p(10, 11, 9)} {
		for _, m := range toBatches(b) {
			w.src.add(m)
		}
	}
	w.src.view.LeaderEpoch = 3
	w.load()
	w.wish(statemachine.WantMirroring)
	w.run(300, nil)
	w.src.down = true
	return w
}

// cutDone is the copy behind a stop with a consistent cut: the transaction whose COMMIT was cut away is aborted in its place, nothing of what lay behind is there, and all offsets have a new leader epoch.
func cutDone(t *testing.T, what string, w *world) {
	t.Helper()
	if w.stored.State != statemachine.Stopped || w.log.owner != OwnerOpen {
		t.Fatalf("%s: %v, %v\n%s", what, w.stored.State, w.log.owner, w.out.String())
	}
	if w.lme == nil || w.lme.Offset != 6 || w.lme.Epoch != 3 {
		t.Errorf("%s: LME %+v", what, w.lme)
	}
	var kinds []string
	for i := range w.log.batches {
		m := &w.log.batches[i]
		if m.h.BaseOffset < 6 {
			continue
		}
		kinds = append(kinds, strings.SplitN(describeBatch(m), "/", 3)[2])
		if m.h.LeaderEpoch <= 5 { // the copy's own, under which it was copied
			t.Errorf("%s: %s, in an epoch that what was cut may have", what, describeBatch(m))
		}
	}
	if got := strings.Join(kinds, " "); got != "ABORT:P7.1 RESET" {
		t.Errorf("%s: behind the cut lie %q\n%s", what, got, w.out.String())
	}
}

// TestAConsistentCutComesBeforeTheEndIsRecorded: and tells what it drops.
func TestAConsistentCutComesBeforeTheEndIsRecorded(t *testing.T) {
	w := cutWorld(false)
	w.out.Reset()
	w.wish(statemachine.WantStopped)
	w.run(300, nil)
	cutDone(t, "without a crash", w)
	order := -1
	for _, line := range []string{"AwaitReplicated 12", "AskCut", "last mirror offset 6", "Truncate 6", "dropped [6, 12)", "RaiseEpoch", "ABORT:P7.1", "RESET", "ClampGroups 6", "OpenLog"} {
		at := strings.Index(w.out.String(), line)
		if at < order || at < 0 {
			t.Errorf("%q is missing or comes too early in\n%s", line, w.out.String())
		}
		order = max(order, at)
	}
	if strings.Count(w.out.String(), "Truncate") != 1 || strings.Count(w.out.String(), "AskCut") != 1 {
		t.Error(w.out.String())
	}
}

// TestNoCutWhereNoneIsToBeMade: a stop that does not ask knows nothing of it, and one that asks and gets none goes on as ever.
func TestNoCutWhereNoneIsToBeMade(t *testing.T) {
	var said [2]string
	for i, asks := range []bool{false, true} {
		w := cutWorld(false)
		w.asksCut, w.cutAt = asks, -1
		w.out.Reset()
		w.wish(statemachine.WantStopped)
		w.run(300, nil)
		if w.lme.Offset != 12 || w.stored.State != statemachine.Stopped {
			t.Errorf("asks %v: %+v, %v", asks, w.lme, w.stored.State)
		}
		said[i] = strings.Replace(w.out.String(), "  AskCut\n", "", 1)
		if asks == (said[i] == w.out.String()) {
			t.Errorf("asks %v:\n%s", asks, w.out.String())
		}
	}
	if said[0] != said[1] {
		t.Errorf("%s\n%s", said[0], said[1])
	}
}

// TestAConsistentCutAfterACrashAtEachStep: what was recorded is taken up again, and an answer that is lost changes nothing.
func TestAConsistentCutAfterACrashAtEachStep(t *testing.T) {
	for _, recovers := range []bool{false, true} {
		for n := range 60 {
			for _, f := range []fault{noFault, failBefore, failAfter} {
				w := cutWorld(recovers)
				w.wish(statemachine.WantStopped)
				for range n {
					if len(w.pending) == 0 {
						break
					}
					w.answer(0, noFault)
				}
				if len(w.pending) == 0 {
					if n < 10 {
						t.Fatal("it ends early")
					}
					break
				}
				what := describeEffect(&w.pending[0])
				if f == noFault {
					w.crash()
				} else {
					w.answer(0, f)
				}
				for range 20 {
					w.run(300, nil)
					if w.stored.State == statemachine.Stopped && len(w.pending) == 0 || !w.due() {
						break
					}
				}
				cutDone(t, what, w)
			}
		}
	}
}

// TestAConsistentCutThatIsRecordedNeedsNoWish: the process ends at each step, and the next one is asked for a stop without a cut. What is recorded is made, with marks that share no epoch with what was cut.
func TestAConsistentCutThatIsRecordedNeedsNoWish(t *testing.T) {
	recorded := 0
	for _, recovers := range []bool{false, true} {
		for n := range 60 {
			w := cutWorld(recovers)
			w.wish(statemachine.WantStopped)
			for i := 0; i < n && len(w.pending) > 0; i++ {
				w.answer(0, noFault)
			}
			if len(w.pending) == 0 {
				break
			}
			what := describeEffect(&w.pending[0])
			cut := w.lme != nil
			w.asksCut = false
			w.crash()
			w.run(300, nil)
			if cut {
				recorded++
				cutDone(t, what, w)
			} else if w.stored.State != statemachine.Stopped || w.lme.Offset != 12 || w.lme.Cut {
				t.Errorf("%s: %v, %+v", what, w.stored.State, w.lme)
			}
		}
	}
	if recorded < 10 {
		t.Errorf("the cut was recorded in %d of the runs", recorded)
	}
}
