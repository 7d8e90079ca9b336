package mirror_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

func TestSpec1_7HeldReplicaFailoverSaysWhatToDoAndCompletesWhenItIsBack(t *testing.T) {
	for name, help := range map[string]func(*side) error{
		"it follows again":                    func(b *side) error { return b.ReleaseReplica("t", 0, 1) },
		"it is taken out of the in-sync ones": func(b *side) error { return b.KillReplica("t", 0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B", Replicas: 3})
				a.local("t", 1)
				a.fill("t", 0, 10)
				m := open(t, "m", a.Cluster, b)
				defer m.close()
				m.start("t")
				m.untilInStep()
				if err := b.HoldReplica("t", 0, 1); err != nil {
					t.Fatal(err)
				}
				a.fill("t", 0, 10)
				time.Sleep(time.Second) // virtual
				a.SetUnreachable(true)
				ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
				defer stop()
				report, err := m.Failover(ctx, mirror.FailoverOptions{})
				if !errors.Is(err, mirror.ErrIncomplete) || !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("%v\n%s", err, report)
				}
				expectWords(t, report.String(), "NOT OPEN", "the replicas do not confirm the markers up to 11", "bring the replicas back, or take the ones that are gone out of the in-sync replicas")
				if err := help(b); err != nil {
					t.Fatal(err)
				}
				ctx, stop = context.WithTimeout(t.Context(), 10*time.Minute)
				defer stop()
				if report, err := m.Failover(ctx, mirror.FailoverOptions{}); err != nil {
					t.Fatalf("%v\n%s", err, report)
				}
				b.produce("t", 0, "a client's")
			})
		})
	}
}

func TestDecision19StoppedLogThatLostItsTailIsRefused(t *testing.T) {
	for _, end := range []int64{0, 5, 9} {
		synctest.Test(t, func(t *testing.T) {
			control := mirror.NewMemoryControl()
			m := newPair(t, 1, func(c *mirror.Config) { c.Control = control })
			m.a.fill("t", 0, 10)
			m.start("t")
			m.inStepAndSame()
			m.a.SetUnreachable(true)
			if report, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
				t.Fatalf("%v\n%s", err, report)
			}
			m.running.close()
			m.b.load("t", 0, 0, 5, records(0, 0, end))
			if err := m.b.SetForeign("t", 0, false); err != nil {
				t.Fatal(err)
			}
			again := open(t, "m", m.a.Cluster, m.b, func(c *mirror.Config) { c.Control = control })
			defer again.close()
			p := again.untilFailed("t", 0, "destination log lost", "the mirror had ended at 10", "Restore the log")
			expect(t, "attempt", p.RetryAttempt, statemachine.NonRetryable)
			time.Sleep(10 * time.Minute) // virtual
			if base, err := m.b.Produce(t.Context(), "t", 0, memlog.Record{Value: []byte("x")}); err == nil {
				t.Errorf("the log that ends at %d was opened: a client's record got offset %d again", end, base)
			}
		})
	}
}

func TestDecision21TwoMirrorsWithDifferentOwnersDoNotFillOneTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a1, a2, b := newSide(t, memlog.Config{ClusterID: "A1"}), newSide(t, memlog.Config{ClusterID: "A2"}), newSide(t, memlog.Config{ClusterID: "B"})
		a1.local("t", 1)
		a2.local("t", 1)
		a1.fill("t", 0, 5)
		first := open(t, "m1", a1.Cluster, b)
		defer first.close()
		first.start("t")
		first.untilInStep()
		second := open(t, "m2", a2.Cluster, b, func(c *mirror.Config) { c.Owner = "second" })
		defer second.close()
		second.start("t") // its Control does not know of the first
		for range 5 {
			a1.produce("t", 0, "from A1")
			time.Sleep(time.Second) // virtual
			a2.produce("t", 0, "from A2", "from A2")
			time.Sleep(time.Minute) // virtual
		}
		s := second.Status()
		if len(s.Topics) != 1 || len(s.Topics[0].Partitions) != 0 || !errors.Is(s.Topics[0].Err, &mirror.Error{Code: mirror.TopicAlreadyInClusterMirror}) {
			t.Fatalf("the second is not refused: %s", show(s))
		}
		expectWords(t, s.Topics[0].Err.Error(), "TOPIC_ALREADY_IN_CLUSTER_MIRROR", `mirror "m1" has partition 0 of it, MIRRORING`, "stop the topic there first")
		first.untilInStep()
		p := &pair{running: first, a: a1, b: b}
		p.same(0)
		expect(t, "fenced", first.Status().Fenced, nil)
		if report, err := first.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatalf("%v\n%s", err, report)
		}
	})
}

// An operator points a new mirror at a topic that a mirror of another cluster has filled: never a mixture, whatever the operator consents to.
func TestDecision7TopicFilledFromAnotherClusterIsDroppedWholeOrNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a1, a2, b := newSide(t, memlog.Config{ClusterID: "A1"}), newSide(t, memlog.Config{ClusterID: "A2"}), newSide(t, memlog.Config{ClusterID: "B"})
		a1.local("t", 1)
		a2.local("t", 1)
		a1.fill("t", 0, 5)
		a2.produce("t", 0, "1", "2", "3", "4", "5", "6", "7", "8")
		control := mirror.NewMemoryControl()
		first := open(t, "m1", a1.Cluster, b, func(c *mirror.Config) { c.Control = control })
		first.start("t")
		first.untilInStep()
		if report, err := first.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatalf("%v\n%s", err, report)
		}
		first.close()
		before := b.raw("t", 0)
		second := open(t, "m2", a2.Cluster, b, func(c *mirror.Config) { c.Control = control })
		defer second.close()
		second.start("t")
		p := second.untilFailed("t", 0, "starting would drop the destination's records [0, 6)", "Nothing was changed")
		expect(t, "log", string(b.raw("t", 0)), string(before))
		if p.NeedsConsent == nil {
			t.Fatal(show(second.Status()))
		}
		if _, err := second.Admin().Start(t.Context(), []string{"t"}, mirror.StartOptions{Consents: []mirror.Consent{*p.NeedsConsent}}); err != nil {
			t.Fatal(err)
		}
		second.untilInStep()
		(&pair{running: second, a: a2, b: b}).same(0)
	})
}
