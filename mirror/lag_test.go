package mirror_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func TestLagInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B", Replicas: 2})
		a.local("t", 1)
		m := open(t, "m", a.Cluster, b)
		defer m.close()
		m.start("t")
		m.untilInStep()
		a.fill("t", 0, 10)
		m.untilOne("ten", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 10 && inStep(p) })

		// An idle partition has no lag, and what is known of its source stays fresh, though nothing names it in a reply.
		for range 100 {
			time.Sleep(7 * time.Second)
			p := m.one("t", 0)
			if p.LagOffsets != 0 || p.LagTime != 0 || !p.LagUnknown.IsZero() || time.Since(p.SourceSeen) > 2*time.Second {
				t.Fatalf("idle: lag %d, %s, unknown since %v, source seen %s ago", p.LagOffsets, p.LagTime, p.LagUnknown, time.Since(p.SourceSeen))
			}
		}

		// A copy that replicas do not confirm is not held: lag grows on the mirror's own clock.
		if err := b.HoldReplica("t", 0, 1); err != nil {
			t.Fatal(err)
		}
		a.fill("t", 0, 5)
		behind := time.Now()
		time.Sleep(time.Minute)
		p := m.one("t", 0)
		if p.End != 15 || p.LagOffsets != 5 || p.LagTime < time.Minute || p.LagTime > time.Since(behind)+2*time.Second {
			t.Errorf("replica held for %s: end %d, lag %d, %s", time.Since(behind), p.End, p.LagOffsets, p.LagTime)
		}
		if err := b.ReleaseReplica("t", 0, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if p := m.one("t", 0); p.LagOffsets != 0 || p.LagTime != 0 {
			t.Errorf("replica released: lag %d, %s", p.LagOffsets, p.LagTime)
		}

		// Paused: nothing is measured, so there is no number; time grows.
		m.pause("t")
		time.Sleep(time.Minute)
		p = m.one("t", 0)
		if p.LagOffsets != mirror.Unknown || p.LagUnknown.IsZero() || p.LagTime < time.Minute {
			t.Errorf("paused: lag %d, %s, unknown since %v", p.LagOffsets, p.LagTime, p.LagUnknown)
		}
		m.resume("t")
		m.untilInStep()

		// A source that is gone: the same.
		a.SetUnreachable(true)
		time.Sleep(time.Minute)
		p = m.one("t", 0)
		if p.LagOffsets != mirror.Unknown || p.LagUnknown.IsZero() || p.LagTime < 58*time.Second {
			t.Errorf("source gone: lag %d, %s, unknown since %v", p.LagOffsets, p.LagTime, p.LagUnknown)
		}

		// After the failover lag has no meaning.
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		p = m.one("t", 0)
		if p.LagOffsets != mirror.Unknown || !p.LagUnknown.IsZero() || p.LagTime != mirror.Unknown {
			t.Errorf("after the failover: lag %d, %s, unknown since %v", p.LagOffsets, p.LagTime, p.LagUnknown)
		}
	})
}

func TestLagBeforeAnythingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 3)
		m.start("t")
		m.inStepAndSame()
		m.running.close()
		opened := time.Now()
		m.a.SetHooks(memlog.Hooks{Before: func(ctx context.Context, _ memlog.Call) error { <-ctx.Done(); return ctx.Err() }})
		again := open(t, "m", m.a.Cluster, m.b)
		defer again.close()
		again.start("t")
		time.Sleep(time.Minute)
		p := again.one("t", 0)
		if p.LagOffsets != mirror.Unknown || p.LagTime != mirror.Unknown || !p.LagUnknown.Equal(opened) || p.SourceEnd != mirror.Unknown {
			t.Errorf("lag %d, %s, unknown since %v, source end %d", p.LagOffsets, p.LagTime, p.LagUnknown, p.SourceEnd)
		}
		plan := mirror.PlanFailover(again.Snapshot(), mirror.FailoverOptions{})
		expect(t, "loss", plan.Loss.String(), "unknown")
	})
}
