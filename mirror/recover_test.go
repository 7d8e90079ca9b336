package mirror_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// TestSpec1_10RecoverTriesAFailedPartitionAgain: a failure that waits for a person is tried again when the person says so, and fails again while the reason lasts.
func TestSpec1_10RecoverTriesAFailedPartitionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		id, err := a.CreateLocalTopic(memlog.LocalTopic{Name: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		a.produce("orders", 0, "one")
		m := open(t, "a-to-b", a.Cluster, b)
		defer m.close()
		m.start("orders")
		m.until("in step", func(s mirror.Status) bool { return each(s, inStep) })
		kept := a.raw("orders", 0)
		if err := a.DeleteTopic("orders"); err != nil {
			t.Fatal(err)
		}
		failed := func(s mirror.Status) bool {
			return each(s, func(p mirror.PartitionStatus) bool {
				return p.State == statemachine.Failed && p.RetryAttempt == statemachine.NonRetryable
			})
		}
		m.until("failed for good", failed)

		// While the reason lasts it ends where it was.
		result, err := m.Admin().Recover(t.Context(), []string{"orders", "unknown"}, mirror.RecoverOptions{})
		if len(result.Topics) != 2 || result.Topics[0].Err != nil || !errors.Is(err, &mirror.Error{Code: mirror.UnknownTopicOrPartition}) {
			t.Fatalf("%v, %v", result, err)
		}
		m.until("failed again", func(s mirror.Status) bool { return one(s, "orders", 0).State == statemachine.Failed })

		// A person restores the very topic: id and records.
		if _, err := a.CreateLocalTopic(memlog.LocalTopic{Name: "orders", ID: id.ID}); err != nil {
			t.Fatal(err)
		}
		if err := a.ImportLog("orders", 0, kept, 0, 0); err != nil {
			t.Fatal(err)
		}
		a.produce("orders", 0, "two")
		if _, err := m.Admin().Recover(t.Context(), []string{"orders"}, mirror.RecoverOptions{}); err != nil {
			t.Fatal(err)
		}
		m.until("in step again", func(s mirror.Status) bool { return each(s, inStep) && one(s, "orders", 0).End == 2 })
	})
}
