package processes_test

import (
	"testing"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// TestATopicIsAdoptedByAnotherProcess: a topic is stopped in one mirror, and started in another one, which another process runs under another name. That one goes on in a
// new episode. The record of the first mirror belongs to the first process, which takes it out; its last mirror epoch stays.
func TestATopicIsAdoptedByAnotherProcess(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const one, other, topic = "adopted-one", "adopted-other", "adopted-orders"
		src := startSource(t, "primary", topic)
		src.produce(topic, 5)
		first, second := begin(t, p, "first"), begin(t, p, "second")
		records := look(t, p)
		control := mirror.NewControl(records)
		first.do(order{Do: "open", Mirror: one, Owner: "adopted-first", Seeds: src.seeds()})
		second.do(order{Do: "open", Mirror: other, Owner: "adopted-second", Seeds: src.seeds()})
		exists(t, control, one)
		exists(t, control, other)
		second.verb(one, "start", topic)
		first.untilEnd(topic, 5)
		second.verb(one, "stop", topic)
		first.untilState(topic, "STOPPED")
		src.produce(topic, 2)

		first.verb(other, "start", topic)
		second.untilEnd(topic, 7)
		entries := func() map[string]statemachine.Entry {
			t.Helper()
			found := map[string]statemachine.Entry{}
			if err := keyedlog.NewStateStore(records).Load(t.Context(), func(e statemachine.Entry) error {
				if e.Key.Mirror == one || e.Key.Mirror == other {
					found[e.Key.Mirror] = e
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return found
		}
		left := func(m string) func() (bool, string) {
			return func() (bool, string) {
				e := entries()[m]
				return e.State == statemachine.NewPartitionState() && e.LME != nil, print(e)
			}
		}
		eventually(t, "the first has taken its record out", left(one))
		if e := entries()[other]; e.Owner != "adopted-second" || e.State.State != statemachine.Mirroring || e.State.Episode != 2 {
			t.Errorf("the adopter's record: %+v", e)
		}
		if e := entries()[one]; e.LME.Offset != 5 || e.LME.Episode != 1 {
			t.Errorf("what the first had recorded: %+v", e.LME)
		}
	})
}
