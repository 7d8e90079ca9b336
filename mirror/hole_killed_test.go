package mirror_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// TestDecision18AHoleIsKnownToTheNextProcess: a source whose tail was compacted away answers with nothing up to its high watermark, and is lost. The process that has seen that dies at any step of the failover:
// whoever carries it on goes behind the source's offsets, as the plan says, and so does the plan that a new process makes.
func TestDecision18AHoleIsKnownToTheNextProcess(t *testing.T) {
	deaths := 0
	for _, late := range []bool{false, true} {
		for at, reached := 0, true; reached; at++ {
			synctest.Test(t, func(t *testing.T) {
				s := &deathStory{t: t, a: newSide(t, memlog.Config{ClusterID: "A"}), b: newSide(t, memlog.Config{ClusterID: "B"})}
				s.a.local("t", 1)
				s.a.fill("t", 0, 10)
				s.a.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
					for i := range reply {
						if reply[i].Offset >= 6 {
							reply[i].Records = nil
						}
					}
					return reply
				}})
				s.k = newMortal(s.b)
				s.m = s.k.process("m", s.a.Cluster)
				defer func() { s.m.close() }()
				s.m.start("t")
				time.Sleep(time.Minute)
				s.a.SetUnreachable(true)
				time.Sleep(time.Minute)
				plan := mirror.PlanFailover(s.m.Snapshot(), mirror.FailoverOptions{})
				expect(t, "planned: opens at", plan.Partitions[0].OpensAt, mirror.KnownNumber(11))
				expect(t, "planned: the mirror's end", plan.Partitions[0].MirrorEnd, mirror.KnownNumber(6))
				s.k.dies(at, late)
				carry := func() (bool, error) {
					return s.k.carried(t, func(ctx context.Context) error { _, err := s.m.ExecuteFailover(ctx, plan); return err })
				}
				died, err := carry()
				if reached = died; died {
					deaths++
					s.m = s.k.lives(s.m, "m", s.a.Cluster)
					_, err = carry()
				}
				if err != nil {
					t.Fatalf("late %v, step %d: %v", late, at, err)
				}
				if end := s.b.log("t", 0).End(); end != 11 {
					t.Errorf("late %v, step %d of %q: opens at %d", late, at, s.k.steps, end)
				}
			})
		}
	}
	if deaths < 8 {
		t.Errorf("only %d deaths", deaths)
	}

	synctest.Test(t, func(t *testing.T) { // before anybody thinks of a failover
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 6)
		if err := a.LeaveHole("t", 0, 10); err != nil {
			t.Fatal(err)
		}
		m := follow(t, "m", a, b)
		m.start("t")
		m.untilInStep()
		m.close()
		a.SetUnreachable(true)
		m = follow(t, "m", a, b)
		defer m.close()
		time.Sleep(time.Minute)
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
		expect(t, "a new process plans: opens at", plan.Partitions[0].OpensAt, mirror.KnownNumber(11))
		if _, err := m.ExecuteFailover(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		expect(t, "opens at", b.log("t", 0).End(), 11)
	})
}
