package mirror_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// openTransaction is F-46's source: 0–4 of producer 7 in a transaction, 5 of nobody.
func openTransaction(m *pair) {
	m.a.load("t", 0, 0, 0, data(0, 0, 4, 5, &producer{id: 7, open: true}), data(0, 5, 5, 1, nil))
	m.start("t")
	m.inStepAndSame()
}

func TestF46OpenTransactionAtFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		openTransaction(m)
		expect(t, "last stable offset before", m.one("t", 0).LastStable, 0)
		m.a.SetUnreachable(true)
		report, err := m.Failover(t.Context(), mirror.FailoverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r := report.Partitions[0]
		expect(t, "aborts", r.Aborts, []mirror.AbortMarker{{ProducerID: 7, ProducerEpoch: 0, FirstOffset: 0, Offset: 6}})
		expect(t, "final offset, reset, first offset", []int64{r.FinalOffset, r.ResetAt, r.OpensAt}, []int64{6, 7, 8})
		p := m.one("t", 0)
		expect(t, "last stable offset and end", []int64{p.LastStable, p.End}, []int64{8, 8})
		expect(t, "read_committed", m.b.offsets("t", 0, 0, memlog.ReadCommitted), []int64{5})
		expect(t, "read_uncommitted", m.b.offsets("t", 0, 0, memlog.ReadUncommitted), []int64{0, 1, 2, 3, 4, 5})
		expectWords(t, report.String(), "ABORT at 6 for producer 7 epoch 0, open since 0", "1 of 1 partition open for clients")
	})
}

func TestF47AbortMeetsTheSourcesCommitAtFailback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		openTransaction(m)
		m.a.SetUnreachable(true)
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		m.b.produce("t", 0, "8", "9")
		// The old source comes back; its producer had committed.
		m.a.load("t", 0, 0, 0, data(0, 0, 4, 5, &producer{id: 7, open: true}), data(0, 5, 5, 1, nil), marker(0, 6, 7, 0, batch.ControlCommit))
		m.a.SetUnreachable(false)
		expect(t, "committed at the old source", m.a.offsets("t", 0, 0, memlog.ReadCommitted), []int64{0, 1, 2, 3, 4, 5})
		sink := &memorySink{}
		back := open(t, "back", m.b.Cluster, m.a, func(c *mirror.Config) { c.Sink = sink })
		defer back.close()
		plan, err := back.PlanFailback(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "disagreements", plan.Partitions[0].Disagreements, []mirror.Disagreement{{ProducerID: 7, ProducerEpoch: 0, CommitAt: 6}})
		expectWords(t, plan.String(), "producer 7 epoch 0: committed here at 6, aborted at the source", "common point 6")
		if report, err := back.ExecuteFailback(t.Context(), plan); err != nil {
			t.Fatalf("%v\n%s", err, report)
		}
		m.same(0)
		expect(t, "kept in the sink", sink.ranges, [][2]int64{{6, 7}})
		for _, s := range []*side{m.a, m.b} {
			expect(t, "committed", s.offsets("t", 0, 0, memlog.ReadCommitted), []int64{5, 8, 9})
		}
	})
}

func TestF48ProducerIDOfTwoProducers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		old := m.a.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 5}})
		for range 10 {
			if _, err := old.Produce(t.Context(), "t", 0, memlog.Record{Value: []byte("old")}); err != nil {
				t.Fatal(err)
			}
		}
		m.start("t")
		m.inStepAndSame()
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		// The destination hands out ids above the mirrored ones, and would take the same id as a new producer too.
		if id := m.b.NewProducer(memlog.ProducerOptions{}).ID().ID; id <= 5 {
			t.Errorf("the destination hands out id %d", id)
		}
		fresh := m.b.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 5}})
		for range 3 {
			if _, err := fresh.Produce(t.Context(), "t", 0, memlog.Record{Value: []byte("fresh")}); err != nil {
				t.Fatalf("the second producer with id 5: %v", err)
			}
		}
		if got := m.b.offsets("t", 0, 0, memlog.ReadCommitted); len(got) != 13 {
			t.Errorf("%d records", len(got))
		}
		// The check can say no: without the reset between them its first sequence is a duplicate.
		if _, err := m.a.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 5}}).Produce(t.Context(), "t", 0, memlog.Record{}); !errors.Is(err, memlog.ErrDuplicateSequence) {
			t.Errorf("at the source: %v", err)
		}
	})
}

func TestF50FirstBatchDoesNotStartAtSequence0(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.load("t", 0, 100, 0, data(0, 100, 104, 5, &producer{id: 7, sequence: 57}), data(0, 105, 109, 5, &producer{id: 7, sequence: 62}))
		m.start("t")
		m.inStepAndSame()
		expect(t, "start and end", []int64{m.one("t", 0).Start, m.one("t", 0).End}, []int64{100, 110})
	})
}

func TestF52NewerTransactionsBumpTheEpochInTheMarker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		one := [][]byte{data(0, 0, 4, 5, &producer{id: 7, epoch: 3, open: true}), marker(0, 5, 7, 4, batch.ControlCommit)}
		two := append(one, data(0, 6, 9, 4, &producer{id: 7, epoch: 4, open: true}))
		three := append(two, marker(0, 10, 7, 5, batch.ControlAbort))
		m.a.load("t", 0, 0, 0, two...)
		m.start("t")
		m.inStepAndSame()
		p := m.one("t", 0)
		expect(t, "last stable offset", p.LastStable, 6)
		expect(t, "in flight", p.InFlight, []mirror.Transaction{{ProducerID: 7, ProducerEpoch: 4, FirstOffset: 6, LastOffset: 9}})
		m.a.load("t", 0, 0, 0, three...)
		m.untilOne("the second marker", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 11 && inStep(p) })
		p = m.one("t", 0)
		expect(t, "last stable offset", p.LastStable, 11)
		expect(t, "in flight", len(p.InFlight), 0)
		expect(t, "read_committed", m.b.offsets("t", 0, 0, memlog.ReadCommitted), []int64{0, 1, 2, 3, 4})
	})
}

func TestF54StableEndAndHighWatermarkAreBothShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.block("t", 0, 200)
		tx := m.a.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 9}})
		if err := errors.Join(tx.Begin(), second(tx.Produce(t.Context(), "t", 0, memlog.Record{Value: []byte("open")}))); err != nil {
			t.Fatal(err)
		}
		m.a.block("t", 0, 1462)
		m.start("t")
		m.inStepAndSame()
		p := m.one("t", 0)
		expect(t, "last stable offset, end, source end, lag", []int64{p.LastStable, p.End, p.SourceEnd, p.LagOffsets}, []int64{200, 1663, 1663, 0})
		expect(t, "in flight", p.InFlight, []mirror.Transaction{{ProducerID: 9, FirstOffset: 200, LastOffset: 200}})
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
		expectWords(t, plan.String(), "read_committed readers stand at 200, held by producer 9", "SAFE", "ABORT for producer 9")
		time.Sleep(time.Minute)
		expect(t, "lag in time", m.one("t", 0).LagTime, 0)
		expect(t, "state", m.one("t", 0).State, statemachine.Mirroring)
	})
}

// Whoever plans a failover sees where readers stand as far as replicas are now, not as far as they were when the log was looked at last.
func TestF54LastStableIsThatOfWhatReplicasHoldNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B", Replicas: 2})
		a.local("t", 1)
		a.block("t", 0, 200)
		tx := a.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 9}})
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.RefreshInterval = time.Hour })
		defer m.close()
		m.start("t")
		m.untilInStep()
		if err := b.HoldReplica("t", 0, 1); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(tx.Begin(), second(tx.Produce(t.Context(), "t", 0, memlog.Record{Value: []byte("open")}))); err != nil {
			t.Fatal(err)
		}
		a.block("t", 0, 100)
		p := m.untilOne("copied", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 301 })
		expect(t, "replicated, last stable offset", []int64{p.Replicated, p.LastStable}, []int64{200, 200})
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.untilOne("copied", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 302 })
		if err := b.ReleaseReplica("t", 0, 1); err != nil {
			t.Fatal(err)
		}
		p = m.one("t", 0)
		expect(t, "replicated, last stable offset", []int64{p.Replicated, p.LastStable}, []int64{302, 302})
	})
}
