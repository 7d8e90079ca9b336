package mirror_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// TestSpec1LifeOfAMirrorByVerbsForAllTopics: from the first start to the deletion, by the verbs of the running mirror, none of which names a topic.
func TestSpec1LifeOfAMirrorByVerbsForAllTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		for _, topic := range []string{"clicks", "orders"} {
			a.local(topic, 2)
			a.fill(topic, 0, 3)
		}
		a.local("__inner", 1)
		m := open(t, "m", a.Cluster, b)
		defer m.close()
		admin := m.Admin()
		all := func(state statemachine.State) {
			t.Helper()
			m.until(state.String(), func(s mirror.Status) bool {
				return len(s.Topics) == 2 && each(s, func(p mirror.PartitionStatus) bool { return p.State == state })
			})
		}
		r, err := admin.Start(t.Context(), nil, mirror.StartOptions{AllTopics: true})
		if err != nil || len(r.Topics) != 2 {
			t.Fatalf("%v\n%s", err, r)
		}
		m.untilInStep()
		expect(t, "clusters", r.Clusters, mirror.Clusters{SourceID: "A", DestinationID: "B"})
		if _, err := admin.Delete(t.Context(), mirror.DeleteOptions{}); !errors.Is(err, &mirror.Error{Code: mirror.InvalidClusterMirrorState}) {
			t.Fatalf("a mirror that mirrors was deleted: %v", err)
		}
		if _, err := admin.Pause(t.Context(), nil, mirror.PauseOptions{AllTopics: true}); err != nil {
			t.Fatal(err)
		}
		all(statemachine.Paused)
		if _, err := admin.Resume(t.Context(), nil, mirror.ResumeOptions{AllTopics: true}); err != nil {
			t.Fatal(err)
		}
		all(statemachine.Mirroring)
		a.SetUnreachable(true)
		if _, err := admin.Stop(t.Context(), nil, mirror.StopOptions{AllTopics: true}); err != nil {
			t.Fatal(err)
		}
		all(statemachine.Stopped)
		if _, err := admin.Delete(t.Context(), mirror.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		m.until("gone", func(s mirror.Status) bool { return len(s.Topics) == 0 })
		if _, err := admin.Start(t.Context(), []string{"orders"}, mirror.StartOptions{}); !errors.Is(err, &mirror.Error{Code: mirror.UnknownClusterMirror}) {
			t.Fatalf("a deleted mirror was started: %v", err)
		}
		var verbs []string
		history, err := admin.History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range history {
			verbs = append(verbs, h.Verb)
		}
		expect(t, "history", verbs, []string{"start", "pause", "resume", "stop", "delete"})
	})
}
