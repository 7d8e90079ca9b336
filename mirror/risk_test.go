package mirror_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// What a failover now would lose is known per partition and of all together, with its age; bytes by the mean size of what was copied. Nobody is asked for it.
func TestWhatIsAtRiskIsKnownInOffsetsBytesSecondsAndOpenTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B", Replicas: 3})
		a.local("t", 2)
		m := &pair{a: a, b: b, running: open(t, "m", a.Cluster, b)}
		defer m.running.close()
		m.a.fill("t", 0, 50)
		beginTransaction(t, m.a.Cluster, "t", 1, 7)
		m.start("t")
		m.untilInStep()
		risk := m.Status().AtRisk()
		expect(t, "in step", []int64{risk.Offsets, risk.Bytes, int64(risk.OpenTransactions), int64(risk.Partitions)}, []int64{0, 0, 1, 2})
		each := float64(len(m.a.raw("t", 0))) / 50
		if got := partitionOf(m.Status(), 0).OffsetBytes; got < 0.9*each || got > 1.1*each {
			t.Errorf("an offset has %.1f bytes, not about %.1f", got, each)
		}
		if err := b.HoldReplica("t", 0, 1); err != nil {
			t.Fatal(err)
		}
		m.a.fill("t", 0, 10)
		time.Sleep(3 * time.Second)
		risk = m.Status().AtRisk()
		expect(t, "behind", []int64{risk.Offsets, int64(risk.UnknownOffsets), int64(risk.UnknownBytes)}, []int64{10, 0, 0})
		if risk.Bytes < int64(9*each) || risk.Bytes > int64(11*each) || risk.Age < 2*time.Second || risk.Worst != (mirror.TopicPartition{Topic: "t"}) || time.Since(risk.Seen) > 2*time.Second {
			t.Errorf("%+v", risk)
		}
		if err := b.ReleaseReplica("t", 0, 1); err != nil {
			t.Fatal(err)
		}
		m.a.SetUnreachable(true)
		time.Sleep(10 * time.Second)
		risk = m.Status().AtRisk()
		expect(t, "unknown", []int{risk.UnknownOffsets, risk.UnknownBytes, risk.OpenTransactions}, []int{2, 2, 1})
		if risk.Age < 9*time.Second {
			t.Errorf("%+v", risk)
		}
	})
}

func partitionOf(s mirror.Status, partition int32) *mirror.PartitionStatus {
	return &s.Topics[0].Partitions[partition]
}

// How long a failover takes is unknown until one was measured; then it is in the status, in a description by any process, in the next plan, and outlives the process. Its steps are all of it.
func TestAFailoverIsPredictedFromThoseThatWereMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := mirror.NewMemoryControl()
		m := newPair(t, 1, func(c *mirror.Config) {
			c.Control = control
			c.Store = syncedStore{c.Store, 10 * time.Millisecond, func() {}}
		})
		m.a.fill("t", 0, 5)
		m.start("t")
		m.inStepAndSame()
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
		expectWords(t, plan.String(), "FAILOVER TIME: unknown, none was measured")
		expect(t, "predicted", plan.Predicted, nil)
		report, err := m.ExecuteFailover(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		var sum time.Duration
		for _, s := range report.Steps {
			sum += s.Took
		}
		expect(t, "sum of the steps", sum, report.Took)
		expectWords(t, report.String(), "STEPS of the partition that was open last: BEGIN 0.010 s", "RECORD_LME 0.010 s", "OPEN_LOG 0.010 s")
		measured := m.Status().Failovers
		expect(t, "measured", len(measured), 1)
		expect(t, "of partitions", measured[0].Partitions, 1)
		sum = 0
		for _, s := range measured[0].Steps {
			sum += s.Took
		}
		expect(t, "sum of the measured steps", sum, measured[0].Took)
		if sum < 30*time.Millisecond || sum > report.Took {
			t.Errorf("measured %s of %s", sum, report.Took)
		}

		// Another process of the mirror knows it.
		time.Sleep(10 * time.Second)
		m.running.close()
		next := open(t, "m", m.a.Cluster, m.b, func(c *mirror.Config) { c.Control, c.Owner = control, "another" })
		defer next.close()
		time.Sleep(10 * time.Second)
		expect(t, "measured by the one before", next.Status().Failovers, measured)
		d, err := next.Admin().Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "in a description", d.Prediction().Took, measured[0].Took)
		plan = mirror.PlanFailover(next.Snapshot(), mirror.FailoverOptions{})
		expectWords(t, plan.String(), "FAILOVER TIME: 0.03", "the longest that was measured (1 partition, 20s ago)", "OPEN_LOG 0.010 s", "RECORD_LME 0.010 s")
		b, err := plan.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var again mirror.FailoverPlan
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatal(err)
		}
		expect(t, "read again", again.Predicted, plan.Predicted)
	})
}

// A stop that an earlier process has begun is not measured: only the rest of it would be.
func TestTheRestOfAStopIsNoMeasuredFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := mirror.NewMemoryControl()
		shared := func(c *mirror.Config) { c.Control = control }
		m := newPair(t, 1, shared)
		m.a.fill("t", 0, 5)
		m.start("t")
		m.inStepAndSame()
		m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Log.Open" {
				return errors.New("not now")
			}
			return nil
		}})
		if _, err := m.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		expect(t, "measured", len(m.Status().Failovers), 0)
		m.running.close()
		m.b.SetHooks(memlog.Hooks{})
		next := open(t, "m", m.a.Cluster, m.b, shared)
		defer next.close()
		if report, err := next.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatalf("%v\n%s", err, report)
		}
		expect(t, "measured by the next process", len(next.Status().Failovers), 0)
	})
}
