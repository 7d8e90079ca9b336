package mirror_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// slowSetUp is a destination of t, whose two partitions are set up one behind the other: t-0 is served already while t-1 is held up.
type slowSetUp struct {
	t     *testing.T
	a, b  *side
	there chan struct{} // closed when t-1 is held up
	goOn  chan struct{} // to be closed
	armed atomic.Bool
}

func newSlowSetUp(t *testing.T) *slowSetUp {
	s := &slowSetUp{t: t, a: newSide(t, memlog.Config{ClusterID: "A"}), b: newSide(t, memlog.Config{ClusterID: "B"}), there: make(chan struct{}), goOn: make(chan struct{})}
	s.a.local("t", 2)
	s.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
		if c.Operation == "Log.Owner" && c.Partition == (mirror.TopicPartition{Topic: "t", Partition: 1}) && s.armed.CompareAndSwap(true, false) {
			close(s.there)
			<-s.goOn
		}
		return nil
	}})
	return s
}

// while does something while t-1 is held up, and lets it go when all that runs has heard of it.
func (s *slowSetUp) while(do func()) {
	s.t.Helper()
	select {
	case <-s.there:
	case <-time.After(time.Hour): // virtual
		s.t.Fatal("t-1 is not set up")
	}
	do()
	synctest.Wait()
	close(s.goOn)
}

// TestDecision4AStopWhileATopicIsSetUpIsNotOvertakenByTheStart: what was wanted first is not told last, or the partition follows that until its process is started again.
func TestDecision4AStopWhileATopicIsSetUpIsNotOvertakenByTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowSetUp(t)
		m := open(t, "m", s.a.Cluster, s.b, shared)
		defer m.close()
		s.armed.Store(true)
		m.start("t")
		s.while(func() {
			if _, err := m.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
				t.Fatal(err)
			}
		})
		m.until("stopped", func(s mirror.Status) bool {
			return each(s, func(p mirror.PartitionStatus) bool {
				return p.State == statemachine.Stopped && p.Owner == mirror.OwnerOpen
			})
		})
	})
}

// TestDecision4AResumeWhileATopicIsSetUpIsNotOvertakenByThePause: the same behind a restart, the other way round.
func TestDecision4AResumeWhileATopicIsSetUpIsNotOvertakenByThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowSetUp(t)
		m := open(t, "m", s.a.Cluster, s.b, shared)
		m.start("t")
		m.untilInStep()
		m.pause("t")
		m.close()
		s.armed.Store(true)
		m = open(t, "m", s.a.Cluster, s.b, shared)
		defer m.close()
		s.while(func() { m.resume("t") })
		m.untilInStep()
	})
}

// TestDecision7ConsentWhileATopicIsSetUpIsAnAnswer: a failure that waits for a person is recorded, and the answer to it comes while its partition is set up behind a restart.
func TestDecision7ConsentWhileATopicIsSetUpIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowSetUp(t)
		s.b.local("t", 2)
		s.b.fill("t", 1, 3)
		m := open(t, "m", s.a.Cluster, s.b, shared)
		m.start("t")
		needs := m.untilOne("waits for consent", "t", 1, func(p mirror.PartitionStatus) bool { return p.NeedsConsent != nil }).NeedsConsent
		m.close()
		s.armed.Store(true)
		m = open(t, "m", s.a.Cluster, s.b, shared)
		defer m.close()
		s.while(func() {
			if _, err := m.Admin().Start(t.Context(), []string{"t"}, mirror.StartOptions{Consents: []mirror.Consent{*needs}}); err != nil {
				t.Fatal(err)
			}
		})
		m.untilInStep()
	})
}
