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

// halfDead is a source of which the copy is 100 records behind: those of partition 0 come one at a time, each of which takes the destination 200 ms, and partition 1 has lost its leader.
type halfDead struct {
	*pair
	dead atomic.Bool // nothing of the source answers any more
}

func newHalfDead(t *testing.T, change ...func(*mirror.Config)) *halfDead {
	a, b := newSide(t, memlog.Config{ClusterID: "A", Brokers: 2}), newSide(t, memlog.Config{ClusterID: "B"})
	a.local("t", 2)
	p := &halfDead{pair: &pair{a: a, b: b, running: open(t, "m", a.Cluster, b, append(change, oneBatch)...)}}
	t.Cleanup(func() { p.running.close() })
	p.a.fill("t", 0, 1)
	p.a.fill("t", 1, 1)
	p.start("t")
	p.inStepAndSame()
	p.b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
		if c.Operation == "Log.Append" && c.Partition.Partition == 0 {
			time.Sleep(200 * time.Millisecond)
		}
		return nil
	}})
	p.a.SetHooks(memlog.Hooks{
		Before: func(ctx context.Context, c memlog.Call) error {
			if p.dead.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		},
	})
	leader, err := p.a.Leader(t.Context(), mirror.TopicPartition{Topic: "t", Partition: 1})
	if err == nil {
		err = p.a.StopBroker(leader.Leader)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.a.fill("t", 0, 100)
	p.until("behind, and one without a leader", func(s mirror.Status) bool {
		return one(s, "t", 0).LagOffsets > 80 && !one(s, "t", 1).LagUnknown.IsZero()
	})
	return p
}

func oneBatch(c *mirror.Config) { c.Fetch.PartitionMaxBytes = 1 }

func TestAcceptance4_2DrainTakesWhatTheSourceStillGivesAndCutsTheRestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newHalfDead(t)
		began := time.Now()
		plan := mirror.PlanFailover(p.Snapshot(), mirror.FailoverOptions{Drain: time.Minute})
		expectWords(t, plan.String(), "DRAIN, at most 1m0s")
		report, err := p.ExecuteFailover(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("took %v, although all of the source was there after twenty seconds", took)
		}
		expect(t, "final offset of what answers", report.Partitions[0].FinalOffset, 101)
		missing, known := report.Partitions[0].Missing.Offsets.Value()
		expect(t, "missing of what answers", missing, 0)
		expect(t, "it is known", known, true)
		expect(t, "final offset of what does not", report.Partitions[1].FinalOffset, 1)
		for _, e := range eventsOf[mirror.StateChanged](p.running) {
			if e.Partition == 1 && e.To == statemachine.Stopped && e.Time.Sub(began) > time.Second {
				t.Errorf("the dead partition was stopped after %v", e.Time.Sub(began))
			}
		}
	})
}

func TestAcceptance4_2DrainEndsWhateverTheSourceDoes(t *testing.T) {
	for name, dead := range map[string]bool{"slow": false, "black hole": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newHalfDead(t)
				p.dead.Store(dead)
				began := time.Now()
				report, err := p.ExecuteFailover(t.Context(), mirror.PlanFailover(p.Snapshot(), mirror.FailoverOptions{Drain: 3 * time.Second}))
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 4*time.Second || took < 3*time.Second {
					t.Errorf("took %v of a drain of 3 s", took)
				}
				if end := report.Partitions[0].FinalOffset; end < 2 || end > 60 || !dead && end < 15 {
					t.Errorf("the copy of what answered ends at %d", end)
				}
			})
		})
	}
}

func TestAcceptance4_2DrainGoesOnInTheNextProcessAndEndsWhenAStopWithoutComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := mirror.NewMemoryControl()
		shared := func(c *mirror.Config) { c.Control = control }
		p := newHalfDead(t, shared)
		stop := func(drain time.Duration) {
			t.Helper()
			r, err := p.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{Drain: drain})
			if err != nil || r.Topics[0].Err != nil {
				t.Fatal(err, r)
			}
		}
		stop(time.Minute)
		stop(time.Hour) // never longer
		p.untilOne("stopped", "t", 1, func(x mirror.PartitionStatus) bool { return x.State == statemachine.Stopped })
		if x := p.one("t", 0); x.State != statemachine.Mirroring || x.End > 60 {
			t.Fatalf("%s, ends at %d", x.State, x.End)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		p.running = open(t, "m", p.a.Cluster, p.b, shared, oneBatch)
		p.untilOne("goes on", "t", 0, func(x mirror.PartitionStatus) bool { return x.State == statemachine.Mirroring && x.End > 61 })
		expect(t, "of what was stopped", p.one("t", 1).State, statemachine.Stopped)
		stop(0)
		began := time.Now()
		x := p.untilOne("stopped", "t", 0, func(x mirror.PartitionStatus) bool { return x.State == statemachine.Stopped })
		if time.Since(began) > time.Second || x.LME.Offset > 90 {
			t.Errorf("a stop without a drain took %v and ends at %d", time.Since(began), x.LME.Offset)
		}
	})
}
