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

// forced carries a plan out.
func (r *running) forced(plan mirror.FailoverPlan) (mirror.FailoverReport, error) {
	ctx, stop := context.WithTimeout(r.t.Context(), 20*time.Second) // virtual
	defer stop()
	return r.ExecuteFailover(ctx, plan)
}

// expectRefused checks one refusal: an error that a program knows by its code, and a person by what it says.
func expectRefused(t *testing.T, report mirror.FailoverReport, whole, err error, code mirror.Code, words ...string) {
	t.Helper()
	if !errors.Is(whole, mirror.ErrIncomplete) || !errors.Is(err, &mirror.Error{Code: code}) {
		t.Fatalf("%v; %v\n%s", whole, err, report)
	}
	expectWords(t, err.Error(), words...)
	expectWords(t, report.String(), words...)
}

// TestAcceptance4_6AForcedFailoverRefusesForAnotherLiveOwner: it opens nothing that somebody else has, names who that is and what to do; everything else is opened, and the same again ends it.
func TestAcceptance4_6AForcedFailoverRefusesForAnotherLiveOwner(t *testing.T) {
	t.Run("another process leads the log", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 2)
			m.a.fill("t", 0, 3)
			m.a.fill("t", 1, 3)
			m.start("t")
			m.inStepAndSame()
			plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
			m.a.SetUnreachable(true)
			if err := m.b.SetForeign("t", 0, true); err != nil {
				t.Fatal(err)
			}
			before := string(m.b.raw("t", 0))
			r, err := m.forced(plan)
			expectRefused(t, r, err, r.Partitions[0].Err, mirror.InvalidClusterMirrorState, "t-0", "another process leads the destination log; stop it, or wait until it has gone")
			expect(t, "log of the other", string(m.b.raw("t", 0)), before)
			again := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
			expect(t, "planned", again.Partitions[0].Outcome, mirror.OutcomeRefused)
			expectWords(t, again.String(), "t-0: another process has this log under leader epoch 2; run the failover there, or end that process first")
			m.b.produce("t", 1, "what nobody else has is open")
			if err := m.b.SetForeign("t", 0, false); err != nil {
				t.Fatal(err)
			}
			if r, err := m.forced(plan); err != nil {
				t.Fatalf("the other one has gone: %v\n%s", err, r)
			}
			m.b.produce("t", 0, "a client")
		})
	})
	t.Run("another owner has the partitions", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b, _ := three(t)
			one := follow(t, "m", a, b, owner("pod-1"))
			defer one.close()
			one.start("t")
			one.untilInStep()
			two := follow(t, "m", a, b, owner("pod-2"))
			defer two.close()
			two.until("refused", func(mirror.Status) bool { return two.trouble("t") != "" })
			a.SetUnreachable(true)
			plan := mirror.PlanFailover(two.Snapshot(), mirror.FailoverOptions{})
			expect(t, "planned", plan.Severity, mirror.SeverityRefused)
			r, err := two.forced(plan)
			words := []string{`partition 0 belongs to owner "pod-1"`, `run it as "pod-1" to take that process's place, or name "pod-1" in Config.TakeFrom if that one is gone for good`}
			expectWords(t, plan.String(), words...)
			expectRefused(t, r, err, r.Topics[0].Err, mirror.UnknownTopicOrPartition, words...)
			one.untilOne("opened by its owner", "t", 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
		})
	})
	t.Run("another process has the owner's name", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b, _ := three(t)
			one := follow(t, "m", a, b)
			defer one.close()
			one.start("t")
			one.untilInStep()
			plan := mirror.PlanFailover(one.Snapshot(), mirror.FailoverOptions{})
			two := follow(t, "m", a, b)
			defer two.close()
			two.untilInStep()
			a.SetUnreachable(true)
			r, err := one.forced(plan)
			expectRefused(t, r, err, r.Partitions[0].Err, mirror.InvalidClusterMirrorState, "not served by this process any more", `"m" was opened again elsewhere`,
				"the stop is recorded, and the process that has the partition now carries it out: look there")
			two.untilOne("opened by the one that has it", "t", 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
		})
	})
}

// TestAcceptance4_6AForcedFailoverRefusesForAnUnsafeDestination: what would have clients write over records, or a stock broker take the log, is not opened, and said with what to do. The rest is opened.
func TestAcceptance4_6AForcedFailoverRefusesForAnUnsafeDestination(t *testing.T) {
	t.Run("it has lost its tail", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			control := mirror.NewMemoryControl()
			m := newPair(t, 2, func(c *mirror.Config) { c.Control = control })
			m.a.fill("t", 0, 10)
			m.a.fill("t", 1, 10)
			m.start("t")
			m.inStepAndSame()
			m.a.SetUnreachable(true)
			if r, err := m.forced(mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})); err != nil {
				t.Fatalf("%v\n%s", err, r)
			}
			m.running.close()
			m.b.load("t", 0, 0, 5, records(0, 0, 6))
			if err := m.b.SetForeign("t", 0, false); err != nil { // whoever brought it back, it is closed
				t.Fatal(err)
			}
			again := open(t, "m", m.a.Cluster, m.b, func(c *mirror.Config) { c.Control = control })
			defer again.close()
			again.untilFailed("t", 0, "destination log lost")
			r, err := again.forced(mirror.PlanFailover(again.Snapshot(), mirror.FailoverOptions{}))
			expectRefused(t, r, err, r.Partitions[0].Err, mirror.InvalidClusterMirrorState, "t-0", "destination log lost: it ends at 6, but the mirror had ended at 10",
				"It is not opened. Restore the log, or delete the topic and mirror it again")
			if _, err := m.b.Produce(t.Context(), "t", 0, memlog.Record{Value: []byte("no")}); err == nil {
				t.Error("a client writes over records")
			}
			m.b.produce("t", 1, "a client")
		})
	})
	t.Run("it appends nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const unsafe = "unsafe: topic t no longer says unclean.leader.election.enable=false for itself; until then nothing is appended"
			m := newPair(t, 2)
			m.a.fill("t", 0, 3)
			m.a.fill("t", 1, 3)
			m.start("t")
			m.inStepAndSame()
			m.a.SetUnreachable(true)
			m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
				if c.Operation == "Log.Append" && c.Partition.Partition == 0 {
					return errors.New(unsafe)
				}
				return nil
			}})
			plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
			r, err := m.forced(plan)
			expectRefused(t, r, err, r.Partitions[0].Err, mirror.InvalidClusterMirrorState, "t-0", "stopping", unsafe, "the stop is tried again from its first step")
			if _, err := m.b.Produce(t.Context(), "t", 0, memlog.Record{Value: []byte("no")}); err == nil {
				t.Error("a client writes to a log that is not safe")
			}
			m.b.produce("t", 1, "a client")
			m.b.SetHooks(memlog.Hooks{})
			if r, err := m.forced(plan); err != nil {
				t.Fatalf("it is safe again: %v\n%s", err, r)
			}
			m.b.produce("t", 0, "a client")
		})
	})
}
