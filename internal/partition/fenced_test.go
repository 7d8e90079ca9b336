package partition

import (
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestLeaderEpochRaisedByOthers raises the destination's leader epoch, once or as often as it is tried, before each effect of a life is carried out, as one raise of another
// partition does that the same broker leads: the partition goes through no failure, tells of no trouble, and ends with the source's records and one set of marks.
func TestLeaderEpochRaisedByOthers(t *testing.T) {
	fenced := 0
	for _, times := range []int{1, maxFences} {
		for k := 0; ; k++ {
			w := newWorld()
			w.src.view.LeaderEpoch = 1
			w.src.add(toBatches(data(0, 4, 1, 5, 7, 0, 0, true, ""))[0])
			w.load()
			w.wish(statemachine.WantMirroring)
			n, left := 0, times
			play := func() {
				for len(w.pending) > 0 || w.wake() {
					if len(w.pending) == 0 {
						continue
					}
					at := w.pending[0].Kind
					if n == k || n > k && left > 0 && left < times && at == Append {
						w.log.leaderEpoch += 2
						left--
						if at == Append {
							fenced++
						}
					}
					n++
					w.answer(0, noFault)
				}
			}
			play()
			w.src.add(toBatches(data(5, 9, 1, 5, -1, 0, 0, false, ""))[0])
			play()
			copied := w.log.batchLog.String()
			w.src.down = true
			w.wish(statemachine.WantStopped)
			play()
			for _, note := range w.notes {
				if note.To == statemachine.Failed || note.Kind == Retrying || note.Kind == LogDoubted {
					t.Fatalf("raised %d times from effect %d on: %v\n%s", times, k, note, w.out.String())
				}
			}
			if w.stored.State != statemachine.Stopped || copied != w.src.batchLog.String() || w.lme == nil || w.lme.Offset != 10 || w.log.end != 12 || len(w.log.producers().InFlight()) > 0 {
				t.Fatalf("raised %d times from effect %d on: %+v, LME %+v, log %v\n%s", times, k, w.stored, w.lme, &w.log.batchLog, w.out.String())
			}
			if n <= k {
				break
			}
		}
	}
	if fenced < 10 {
		t.Fatalf("only %d appends were fenced", fenced)
	}
}

// TestLeaderEpochThatNeverRests: a leader epoch that rises before every append is not followed for ever, and one that is fenced by a log that says the same leader epoch is
// not tried again at once.
func TestLeaderEpochThatNeverRests(t *testing.T) {
	for _, rises := range []bool{true, false} {
		w := newWorld()
		w.src.add(toBatches(data(0, 4, 0, 5, -1, 0, 0, false, ""))[0])
		w.load()
		w.wish(statemachine.WantMirroring)
		appends := 0
		for w.stored.State != statemachine.Failed && appends < 100 && (len(w.pending) > 0 || w.wake()) {
			if len(w.pending) == 0 {
				continue
			}
			if w.pending[0].Kind != Append {
				w.answer(0, noFault)
				continue
			}
			appends++
			if rises {
				w.log.leaderEpoch++
				w.answer(0, noFault)
				continue
			}
			e := w.pending[0]
			w.pending = w.pending[1:]
			w.step(Event{Kind: Done, Token: e.Token, Log: w.log.view(), Err: errFenced, Fenced: true})
		}
		want := 1
		if rises {
			want = maxFences + 1
		}
		if w.stored.State != statemachine.Failed || w.stored.RetryAttempt != 1 || appends != want {
			t.Fatalf("rises %v: %v after %d appends, want %d\n%s", rises, w.stored.State, appends, want, w.out.String())
		}
	}
}

// TestLeaderEpochThatRisesJustNow: while the leader epoch rises the log may not say whose it is. That is waited for, a few times.
func TestLeaderEpochThatRisesJustNow(t *testing.T) {
	for _, silent := range []int{2, 100} {
		w := newWorld()
		w.src.add(toBatches(data(0, 4, 0, 5, -1, 0, 0, false, ""))[0])
		w.load()
		w.wish(statemachine.WantMirroring)
		asked := 0
		raised := false
		for range 200 {
			switch {
			case w.stored.State == statemachine.Failed:
			case len(w.pending) == 0:
				if !w.wake() {
					w.due()
				}
				continue
			case w.pending[0].Kind == Append && !raised:
				raised = true
				w.log.leaderEpoch += 2
				w.answer(0, noFault)
				continue
			case w.pending[0].Kind == AskOwner && raised && asked < silent:
				asked++
				w.answer(0, failBefore)
				continue
			default:
				w.answer(0, noFault)
				continue
			}
			break
		}
		switch failed := w.stored.State == statemachine.Failed; {
		case silent == 2 && (failed || w.log.end != 5), silent > 2 && (!failed || asked != maxFences):
			t.Fatalf("silent %d times: %v after %d questions, log %v\n%s", silent, w.stored.State, asked, &w.log.batchLog, w.out.String())
		}
	}
}
