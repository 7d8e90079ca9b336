package partition

import (
	"errors"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestF77AFetchThatIsRefused: what becomes of each error that a reply may be. None of them touches the log.
func TestF77AFetchThatIsRefused(t *testing.T) {
	words := errors.New("says the broker")
	for _, c := range []struct {
		name   string
		fetch  Fetch
		failed string // what the failure says; "": it is none
		moved  bool   // a leader is told
		waits  bool   // the same is fetched again, later
	}{
		{"denied", Fetch{Code: FetchDenied}, "the source denies reading: says the broker; grant the mirror's principal READ", false, false},
		{"refused", Fetch{Code: FetchRefused}, "the source does not let the mirror in: says the broker", false, false},
		{"unsupported", Fetch{Code: FetchUnsupported}, "compression not served at this version: says the broker", false, false},
		{"the leader has moved", Fetch{Code: FetchNotLeader, LeaderID: 0, CurrentEpoch: 6}, "", true, false},
		{"the leader has moved, as fenced", Fetch{Code: FetchFencedEpoch, LeaderID: 2, CurrentEpoch: 6}, "", true, false},
		{"another leader of the same epoch", Fetch{Code: FetchNotLeader, LeaderID: 2, CurrentEpoch: 5}, "", false, false},
		{"nobody knows the leader", Fetch{Code: FetchNotLeader, LeaderID: -1, CurrentEpoch: 6}, "", false, false},
		{"something else", Fetch{Code: FetchRetry}, "", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := stoppable(t)
			log := w.log.String()
			e := w.parked
			w.parked = nil
			var later bool
			w.onEffect = func(e *Effect) {
				if e.Kind == Continue && e.Bound > 0 {
					later = true
				}
				if e.Kind == Truncate || e.Kind == Reset || e.Kind == Append {
					t.Errorf("%v after a reply that is an error", e.Kind)
				}
			}
			w.notes = nil
			c.fetch.Err = words
			if c.moved {
				w.src.view.LeaderID, w.src.view.LeaderEpoch = c.fetch.LeaderID, c.fetch.CurrentEpoch
			}
			w.step(Event{Kind: Fetched, Token: e.Token, Fetch: c.fetch})
			var moved []Note
			for _, n := range w.notes {
				if n.Kind == LeaderMoved {
					moved = append(moved, n)
				}
			}
			if (len(moved) == 1) != c.moved || c.moved && (moved[0].LeaderID != c.fetch.LeaderID || moved[0].Epoch != c.fetch.CurrentEpoch) {
				t.Errorf("leaders that are told: %v\n%s", moved, w.out.String())
			}
			if later != c.waits {
				t.Errorf("fetched again later: %v\n%s", later, w.out.String())
			}
			for len(w.pending) > 0 && w.pending[0].Kind == Persist {
				w.answer(0, noFault)
			}
			if c.failed != "" && (w.stored.State != statemachine.Failed || w.stored.RetryAttempt != 1 || !strings.Contains(w.stored.ErrorMessage, c.failed)) || c.failed == "" && w.stored.State != statemachine.Mirroring {
				t.Errorf("%v, attempt %d: %s\n%s", w.stored.State, w.stored.RetryAttempt, w.stored.ErrorMessage, w.out.String())
			}
			w.settle(t)
			if w.stored.State != statemachine.Mirroring || w.log.String() != log {
				t.Errorf("%v, the log is %s, was %s\n%s", w.stored.State, w.log.String(), log, w.out.String())
			}
		})
	}
}
