package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

func TestF84FailbackWithoutCopyingEverythingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.load("t", 0, 0, 5, records(5, 0, 1000))
		shared := records(5, 0, 900)
		// At the failover the copy had 0..899, because the source had died there.
		m.a.load("t", 0, 0, 5, shared)
		m.start("t")
		m.inStepAndSame()
		m.a.SetUnreachable(true)
		report, err := m.Failover(t.Context(), mirror.FailoverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "final offset", report.Partitions[0].FinalOffset, 900)
		if epoch := m.b.log("t", 0).LeaderEpoch(); epoch < 6 {
			t.Fatalf("leader epoch %d", epoch)
		}
		for range 50 {
			m.b.produce("t", 0, "written after the failover")
		}
		m.running.close()

		// The source returns after an unclean election: its own epoch 6 begins at 880.
		m.a.load("t", 0, 0, 6, records(5, 0, 880), records(6, 880, 951))
		m.a.SetUnreachable(false)
		before := m.a.raw("t", 0)
		sink := &memorySink{}
		back := open(t, "back", m.b.Cluster, m.a, func(c *mirror.Config) { c.Sink = sink })
		defer back.close()

		// A start without consent changes nothing, not even the gate.
		back.start("t")
		p := back.untilFailed("t", 0, "would drop", "[880, 951)", "consent")
		expect(t, "attempt", p.RetryAttempt, statemachine.NonRetryable)
		expect(t, "owner", p.Owner, mirror.OwnerOpen)
		if !bytes.Equal(before, m.a.raw("t", 0)) {
			t.Fatal("a start without consent has changed the log")
		}

		plan, err := back.PlanFailback(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		f := plan.Partitions[0]
		expect(t, "common point", f.CommonPoint, mirror.KnownNumber(880))
		expect(t, "last mirror offset", f.LMO, mirror.KnownNumber(900))
		expect(t, "given up", plan.Dropped, 71)
		expectWords(t, plan.String(), "common point 880; this cluster gives up 880..950", "offset 900")

		var lowest int64 = 1 << 60
		m.b.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
			for i := range reply {
				for info := range mirror.Batches(reply[i].Records) {
					lowest = min(lowest, info.Base)
				}
			}
			return reply
		}})
		done, err := back.ExecuteFailback(t.Context(), plan)
		if err != nil {
			t.Fatalf("%v\n%s", err, done)
		}
		m.same(0)
		expect(t, "lowest offset fetched", lowest, 880)
		expect(t, "dropped", []int64{done.Partitions[0].DroppedFrom, done.Partitions[0].DroppedTo}, []int64{880, 951})
		if !bytes.Equal(sink.bytes, records(6, 880, 951)) {
			t.Error("the sink does not hold what was dropped")
		}
		if !bytes.HasPrefix(m.a.raw("t", 0), records(5, 0, 880)) {
			t.Error("something below 880 has changed")
		}

		// A mirror that is in step is planned as what it is, also when it has copied on: nothing of that is given up.
		for range 20 {
			m.b.produce("t", 0, "written after the failback")
		}
		back.untilInStep()
		m.same(0)
		back.close()
		back = open(t, "back", m.b.Cluster, m.a, func(c *mirror.Config) { c.Sink = sink })
		defer back.close()
		back.start("t")
		back.untilInStep()
		if plan, err = back.PlanFailback(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		expect(t, "given up of a mirror in step", []any{plan.Dropped, plan.Severity, plan.Partitions[0].Outcome}, []any{int64(0), mirror.SeveritySafe, mirror.OutcomeGo})
		if plan.Partitions[0].From.String() != plan.Partitions[0].To.String() {
			t.Errorf("consent is asked for:\n%s", plan)
		}
	})
}

func TestFailbackOfATopicThatIsMissingHereIsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		b.local("new", 2)
		b.fill("new", 0, 3)
		back := open(t, "back", b.Cluster, a)
		defer back.close()
		plan, err := back.PlanFailback(t.Context(), "new", "nowhere")
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "outcomes", []mirror.Outcome{plan.Topics[0].Outcome, plan.Topics[1].Outcome}, []mirror.Outcome{mirror.OutcomeGo, mirror.OutcomeRefused})
		expectWords(t, plan.Topics[0].Reason, "does not exist here", "a start copies it")
		expectWords(t, plan.Topics[1].Reason, "the cluster that took over does not have this topic")
		if plan, err = back.PlanFailback(t.Context(), "new"); err != nil {
			t.Fatal(err)
		}
		expect(t, "severity", plan.Severity, mirror.SeveritySafe)
		report, err := back.ExecuteFailback(t.Context(), plan)
		if err != nil {
			t.Fatalf("%v\n%s", err, report)
		}
		expect(t, "partitions in the report", len(report.Partitions), 2)
		if !bytes.Equal(a.raw("new", 0), b.raw("new", 0)) {
			t.Error("the copy differs")
		}
	})
}

// TestPlanFailbackNamesWhatIsTriedAgain: a partition that has failed for a reason that passes hinders no plan. The plan says why it has failed, and the failback waits for it as long as its caller does.
func TestPlanFailbackNamesWhatIsTriedAgain(t *testing.T) {
	for at, words := range map[string]string{
		"Log.CloseForWrites": "the destination log cannot be closed for client writes: the disk is slow", // nothing is mirrored yet
		"Log.Append":         "the disk is slow",
	} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := failedOver(t)
				b.fill("t", 0, 3)
				back := openBack(t, a, b)
				defer back.close()
				hinder := func(hindered string) {
					a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
						if c.Operation == hindered && c.Partition.Topic == "t" {
							return errors.New("the disk is slow")
						}
						return nil
					}})
				}
				hinder(at)
				plan, err := back.PlanFailback(t.Context(), "t")
				if err != nil {
					t.Fatal(err)
				}
				expect(t, "given up", plan.Dropped, 1)
				report, err := back.ExecuteFailback(bounded(t, 10*time.Second), plan)
				if !errors.Is(err, mirror.ErrIncomplete) {
					t.Fatalf("%v\n%s", err, report)
				}
				failed := back.untilFailed("t", 0, words)
				plan, err = back.PlanFailback(t.Context(), "t")
				if err != nil || plan.Severity == mirror.SeverityRefused || failed.RetryAttempt < 1 {
					t.Fatalf("attempt %d: %v\n%s", failed.RetryAttempt, err, plan)
				}
				if at == "Log.Append" {
					expect(t, "given up when it was cut before", plan.Dropped, 0)
					expectWords(t, plan.String(), "t-0: FAILED: ", words, "it is tried again by itself (so far ", "a failback waits for that")
				}
				hinder("")
				if report, err := back.ExecuteFailback(bounded(t, 10*time.Minute), plan); err != nil {
					t.Fatalf("%v\n%s", err, report)
				}
				if !bytes.Equal(a.raw("t", 0), b.raw("t", 0)) {
					t.Error("the logs differ")
				}
			})
		})
	}
}
