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

// deafSink heeds no context while hold is not closed.
type deafSink struct {
	cutSink
	hold   chan struct{}
	called atomic.Int64
}

func (s *deafSink) Dropped(ctx context.Context, tp mirror.TopicPartition, from, to int64, b []byte) error {
	s.called.Add(1)
	<-s.hold
	return s.cutSink.Dropped(ctx, tp, from, to, b)
}

// TestASinkThatIsDeafHoldsNothingForLong: the partition whose records it was handed fails and says why, nothing of it is cut, others go on, a stop and a close return, and a sink that takes them in the end lets it go on.
func TestASinkThatIsDeafHoldsNothingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &deafSink{hold: make(chan struct{})}
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 2)
		a.fill("t", 0, 10)
		a.fill("t", 1, 3)
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Sink = sink })
		m.start("t")
		m.untilInStep()
		copied := b.raw("t", 0)
		if _, err := a.ElectUnclean("t", 0, 4); err != nil { // what the source has lost is to be dropped
			t.Fatal(err)
		}
		a.fill("t", 0, 1)
		m.untilFailed("t", 0, "sink", "nothing is cut", "has not returned when its context ended")
		if string(b.raw("t", 0)) != string(copied) {
			t.Error("the copy was cut although the sink did not take it")
		}
		a.fill("t", 1, 2)
		m.untilOne("the other one copies", "t", 1, func(p mirror.PartitionStatus) bool { return p.End == 5 })
		if sink.called.Load() == 0 {
			t.Error("the sink was not called")
		}
		close(sink.hold)
		m.untilOne("it goes on", "t", 0, func(p mirror.PartitionStatus) bool {
			return p.State == statemachine.Mirroring && p.End == 5
		})
		if string(a.raw("t", 0)) != string(b.raw("t", 0)) {
			t.Error("they differ")
		}
		m.close()
	})

	synctest.Test(t, func(t *testing.T) { // a stop and a close meanwhile
		sink := &deafSink{hold: make(chan struct{})}
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 10)
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Sink = sink })
		m.start("t")
		m.untilInStep()
		if _, err := a.ElectUnclean("t", 0, 4); err != nil {
			t.Fatal(err)
		}
		a.fill("t", 0, 1)
		m.until("the sink is called", func(mirror.Status) bool { return sink.called.Load() > 0 })
		asked := time.Now()
		if _, err := m.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		m.untilOne("stopped", "t", 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
		if took := time.Since(asked); took > time.Minute {
			t.Errorf("the stop took %v", took)
		}
		m.close()
		close(sink.hold)
	})
}
