package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// TestAnElectionIsNoFailure: a partition without a leader is waited for, its lag is unknown meanwhile, and it comes back by itself; its neighbour goes on.
func TestAnElectionIsNoFailure(t *testing.T) {
	for _, leaderless := range []time.Duration{4 * time.Second, 2 * time.Minute} {
		t.Run(leaderless.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newSide(t, memlog.Config{ClusterID: "A", Brokers: 2}), newSide(t, memlog.Config{ClusterID: "B"})
				a.local("orders", 2)
				a.produce("orders", 0, "one")
				a.produce("orders", 1, "one")
				m := open(t, "a-to-b", a.Cluster, b)
				defer m.close()
				m.start("orders")
				m.until("in step", func(s mirror.Status) bool { return each(s, inStep) })
				if err := a.StopBroker(2); err != nil {
					t.Fatal(err)
				}
				a.produce("orders", 0, "two")
				time.Sleep(leaderless) // virtual
				if p := one(m.Status(), "orders", 1); p.LagOffsets != mirror.Unknown {
					t.Errorf("lag %d without a leader", p.LagOffsets)
				}
				if p := one(m.Status(), "orders", 0); p.End != 2 || !inStep(p) {
					t.Errorf("the neighbour ends at %d", p.End)
				}
				if err := a.StartBroker(2); err != nil {
					t.Fatal(err)
				}
				a.produce("orders", 1, "two")
				m.until("in step again", func(s mirror.Status) bool {
					return each(s, func(p mirror.PartitionStatus) bool { return inStep(p) && p.End == 2 })
				})
				for _, e := range m.events {
					if s, ok := e.(mirror.StateChanged); ok && s.To == statemachine.Failed {
						t.Errorf("told as a failure: %v", e)
					}
				}
			})
		})
	}
}
