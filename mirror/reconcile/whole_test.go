package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/dropped"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/mirror/reconcile"
	"github.com/clustermirror/clustermirror/mirror/verify"
	"github.com/clustermirror/clustermirror/statemachine"
)

var tp = mirror.TopicPartition{Topic: "orders"}

// produce writes one batch, of a transaction where there is a producer.
func produce(t *testing.T, c *memlog.Cluster, producer, sequence int64, values ...string) {
	t.Helper()
	spec := batch.DataSpec{ProducerID: producer, BaseSequence: int32(sequence), Transactional: producer >= 0, BaseTimestamp: time.Now().UnixMilli()}
	for i, v := range values {
		spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(i), Value: []byte(v)})
	}
	if _, err := c.ProduceBatch(t.Context(), tp.Topic, tp.Partition, batch.AppendData(nil, spec)); err != nil {
		t.Fatal(err)
	}
}

func finish(t *testing.T, c *memlog.Cluster, producer int64, commit bool) {
	t.Helper()
	if err := c.WriteMarker(t.Context(), tp.Topic, tp.Partition, memlog.ProducerID{ID: producer}, commit); err != nil {
		t.Fatal(err)
	}
}

func inStep(t *testing.T, m *mirror.Mirror, end int64) {
	t.Helper()
	for range 10_000 {
		for _, x := range m.Status().Topics {
			if len(x.Partitions) == 1 && x.Partitions[0].State == statemachine.Mirroring && x.Partitions[0].LagOffsets == 0 && x.Partitions[0].Replicated >= end {
				return
			}
		}
		time.Sleep(10 * time.Millisecond) // of the bubble's clock
	}
	t.Fatal("not in step")
}

// A failover in the middle of three transactions; the old source comes back, and ended one with a COMMIT, one with an ABORT, and one not at all. The list says exactly that, before anything is cut; then the
// failback drops what only the old source has, and all of it is read back, each record with what became of it.
func TestF46F47AFailoverInTheMiddleOfTransactionsIsReconciled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		east, west := memlog.New(memlog.Config{ClusterID: "east"}), memlog.New(memlog.Config{ClusterID: "west"})
		defer east.Close()
		defer west.Close()
		if _, err := east.CreateLocalTopic(memlog.LocalTopic{Name: tp.Topic}); err != nil {
			t.Fatal(err)
		}
		produce(t, east, 7, 0, "7 a", "7 b")
		produce(t, east, -1, 0, "plain")
		produce(t, east, 8, 0, "8 a")
		produce(t, east, 9, 0, "9 a")
		m, err := mirror.Open(t.Context(), mirror.Config{Name: "dr", Source: east, Destination: west, Store: west.StateStore(), Sink: mirror.Discard})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Admin().Start(t.Context(), []string{tp.Topic}, mirror.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		inStep(t, m, 5)
		east.SetUnreachable(true)
		report, err := m.Failover(t.Context(), mirror.FailoverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if got := report.Partitions[0].FinalOffset; got != 5 || len(report.Partitions[0].Aborts) != 3 {
			t.Fatalf("%s", report)
		}
		produce(t, west, -1, 0, "clients go on here")
		east.SetUnreachable(false)
		produce(t, east, 7, 2, "7 c")
		finish(t, east, 7, true)
		finish(t, east, 8, false)
		produce(t, east, 10, 0, "10 a", "10 b")
		finish(t, east, 10, true)
		produce(t, east, -1, 0, "late")
		produce(t, east, 11, 0, "11 a")

		source := verify.SourceSide(east, tp, verify.SourceOptions{})
		defer source.Close()
		log, err := west.OpenLog(t.Context(), tp)
		if err != nil {
			t.Fatal(err)
		}
		list, err := reconcile.Partition(t.Context(), source, verify.LogSide(tp, log), reconcile.Position{LME: report.Partitions[0].LME, LMO: report.Partitions[0].FinalOffset}, reconcile.Options{
			EndOfEpoch: func(ctx context.Context, epoch int32) (mirror.EpochEnd, error) {
				return east.EndOffsetForEpoch(ctx, tp, -1, epoch)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range list.Transactions {
			got = append(got, fmt.Sprintf("%d [%d,%d] +%d %s at %d", x.ProducerID, x.First, x.Last, x.More, x.Source, x.Marker))
		}
		want := []string{"7 [0,1] +1 committed at 6", "8 [3,3] +0 aborted at 7", "9 [4,4] +0 open at -1"}
		if !slices.Equal(got, want) || list.Records != (reconcile.Counts{NoTransaction: 1, Committed: 3, Open: 1}) || !list.Done || !list.Compared || len(list.Gaps) != 0 || list.Reset != 8 {
			t.Fatalf("%q\n%+v", got, list)
		}

		dir := t.TempDir()
		back, err := mirror.Open(t.Context(), mirror.Config{Name: "back", Source: west, Destination: east, Store: east.StateStore(), Sink: mirror.FileSink(dir)})
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		plan, err := back.PlanFailback(t.Context(), tp.Topic)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range plan.Partitions[0].Disagreements { // the plan sees every COMMIT of a transaction from below
			if i := slices.IndexFunc(list.Transactions, func(x reconcile.Transaction) bool { return x.Marker == d.CommitAt }); i < 0 && d.CommitAt != 6 {
				t.Errorf("the plan has %+v, which the list has not", d)
			}
		}
		if !slices.ContainsFunc(plan.Partitions[0].Disagreements, func(d mirror.Disagreement) bool { return d.ProducerID == 7 && !d.Possible }) {
			t.Errorf("the plan lacks the transaction that wrote on both sides of the last mirror offset: %+v", plan.Partitions[0].Disagreements)
		}
		if done, err := back.ExecuteFailback(t.Context(), plan); err != nil {
			t.Fatalf("%v\n%s", err, done)
		}
		folder, err := dropped.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for r, err := range folder.Records(t.Context(), dropped.Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Kind == "data" {
				got = append(got, fmt.Sprintf("%d %s %s", r.Offset, r.Value, r.Transaction.State))
			} else if r.Transaction.Below {
				got = append(got, fmt.Sprintf("%d %s of %d", r.Offset, r.Kind, r.ProducerID))
			}
		}
		want = []string{"5 7 c committed", "7 ABORT of 8", "8 10 a committed", "9 10 b committed", "11 late none", "12 11 a open"}
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		if !strings.Contains((&reconcile.Report{Partitions: []reconcile.PartitionReport{list}}).String(), "1 committed at the source and aborted here") {
			t.Error("the report does not say it")
		}
	})
}
