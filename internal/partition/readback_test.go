package partition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestALogThatCannotBeReadBackFails: what was read is damaged, or no longer fits together, though the call succeeded. The partition fails, for it to be tried again, and says from where to where; nothing is written
// to the log before it has been read whole.
func TestALogThatCannotBeReadBackFails(t *testing.T) {
	first := data(0, 4, 5, 5, 7, 0, 0, true, "a")
	for _, c := range []struct {
		name string
		read [][]byte
		from int64 // where reading stopped
	}{
		{"no batch", [][]byte{{1, 2, 3}}, 0},
		{"a good batch, then none", [][]byte{first, {1, 2, 3}}, 5},
		{"a good batch and none in one piece", [][]byte{append(append([]byte(nil), first...), 1, 2, 3)}, 5},
		{"what comes after the error counts no more", [][]byte{first, {1, 2, 3}, marker(5, 5, true, 7, 0)}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := stoppable(t)
			log := w.log.String()
			w.crash()
			for len(w.pending) > 0 && w.pending[0].Kind != Rebuild {
				w.answer(0, noFault)
			}
			if len(w.pending) == 0 {
				t.Fatalf("nothing is read back:\n%s", w.out.String())
			}
			e := w.pending[0]
			w.pending = w.pending[1:]
			w.onEffect = func(e *Effect) {
				if touchesLog(e.Kind) {
					t.Errorf("%v before the log was read", e.Kind)
				}
			}
			for _, b := range c.read {
				w.core.Step(w.now, Event{Kind: Replayed, Token: e.Token, Bytes: b})
			}
			w.step(Event{Kind: Done, Token: e.Token, Log: w.log.view()})
			w.run(200, nil)
			if says := fmt.Sprintf("cannot be read back from %d to 20", c.from); w.stored.State != statemachine.Failed || w.stored.RetryAttempt != 1 || !strings.Contains(w.stored.ErrorMessage, says) {
				t.Errorf("%v, attempt %d: %s\n%s", w.stored.State, w.stored.RetryAttempt, w.stored.ErrorMessage, w.out.String())
			}
			w.onEffect = nil
			w.settle(t)
			if w.stored.State != statemachine.Mirroring || w.log.String() != log {
				t.Errorf("%v, the log is %s, was %s\n%s", w.stored.State, w.log.String(), log, w.out.String())
			}
		})
	}
}
