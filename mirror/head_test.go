package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// What a process says of its mirror in one line is what a description from elsewhere says, at each turn of a life.
func TestHeadOfASnapshotIsThatOfADescription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		for _, topic := range []string{"billing-1", "billing-2", "orders"} {
			a.local(topic, 2)
			a.produce(topic, 0, "one")
		}
		m := open(t, "m", a.Cluster, b)
		defer m.close()
		alike := func(when, want string) {
			t.Helper()
			time.Sleep(20 * time.Second) // until it is reported
			d, err := m.Admin().Describe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if head := m.Snapshot().Head(); head != d.Head || head != want {
				t.Errorf("%s: %q, described as %q; want %q", when, head, d.Head, want)
			}
		}
		if _, err := m.Admin().AlterConfig(t.Context(), mirror.Settings{"mirror.topic.set.billing": "billing.*", "mirror.topic.set.orders": "orders"}, nil, mirror.AlterConfigOptions{}); err != nil {
			t.Fatal(err)
		}
		alike("nothing is wanted", "NO TOPICS")
		m.start("billing-1", "billing-2", "orders")
		m.untilInStep()
		alike("in step", "MIRRORING: 3 topics")
		if _, err := m.Admin().Pause(t.Context(), []string{"orders"}, mirror.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		alike("one is paused", "MIRRORING: 2 topics, 1 PAUSED")
		m.resume("orders")
		m.untilInStep()
		if _, err := a.RecreateTopic("orders", 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		alike("a topic was made again", "WANTED: 3 topics, 4 of 6 partitions mirrored; 2 of 6 partitions FAILED")
		a.SetUnreachable(true)
		time.Sleep(2 * time.Minute)
		alike("the source is gone", "WANTED: 3 topics, 4 of 6 partitions mirrored; 2 of 6 partitions FAILED; the source does not answer")
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{Topics: []string{"billing-1"}, Partial: true}); err != nil {
			t.Fatal(err)
		}
		alike("a part of a set is open", "PARTIALLY FAILED OVER: 1 of 2 topics of set billing (STOPPED billing-1; MIRRORING billing-2); 2 of 6 partitions FAILED; the source does not answer")
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		alike("failed over", "FAILED OVER: 3 topics")
	})
}
