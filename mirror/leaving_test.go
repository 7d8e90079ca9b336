package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// The adopter may not take out the states of another owner. That one does it itself, but not before the adopter has states of its own.
func TestDecision21ATopicAdoptedByAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := mirror.NewMemoryControl()
		owned := func(owner string) func(*mirror.Config) {
			return func(c *mirror.Config) { c.Control, c.Owner = control, owner }
		}
		m := newPair(t, 1, owned("one"))
		defer m.running.close()
		m.a.fill("t", 0, 5)
		m.start("t")
		m.inStepAndSame()
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		entries := func() map[string]statemachine.Entry {
			found := map[string]statemachine.Entry{}
			if err := m.b.StateStore().Load(t.Context(), func(e statemachine.Entry) error {
				found[e.Key.Mirror] = e
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return found
		}
		stopped := entries()["m"]
		if err := control.Update(t.Context(), func(s *mirror.ControlState) error {
			s.Set(mirror.TopicWish{Topic: "t", MirrorName: "m2", AdoptedFrom: "m"})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // nobody runs m2 yet
		if now := entries()["m"]; now.State != stopped.State {
			t.Errorf("the adopter has nothing yet, and the state it begins from is %+v", now.State)
		}
		m2 := open(t, "m2", m.a.Cluster, m.b, owned("two"))
		defer m2.close()
		p := m2.untilFailed("t", 0, "would drop")
		if _, err := m2.Admin().Start(t.Context(), []string{"t"}, mirror.StartOptions{Consents: []mirror.Consent{*p.NeedsConsent}}); err != nil {
			t.Fatal(err)
		}
		m2.untilInStep()
		time.Sleep(time.Minute)
		now := entries()
		expect(t, "state of the old mirror's record", now["m"].State, statemachine.NewPartitionState())
		if now["m"].LME == nil || *now["m"].LME != *stopped.LME {
			t.Errorf("the old mirror's last mirror epoch was %+v and is %+v", stopped.LME, now["m"].LME)
		}
		expect(t, "state of the new mirror's record", now["m2"].State.State, statemachine.Mirroring)
		expect(t, "its episode", now["m2"].State.Episode, stopped.State.Episode+1)
	})
}
