package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/mirror/reconcile"
	"github.com/clustermirror/clustermirror/mirror/verify"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Real producers with transactions, and a failover in the middle of three: what the source's coordinators write afterwards is in the list, and nothing else.
func TestRealKafkaAFailoverInTheMiddleOfTransactionsIsReconciled(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{})
	c.CreateTopic(kafkatest.Topic{Name: tp.Topic})
	committing, aborting, open := lives.Client(c, kgo.TransactionalID("commits")), lives.Client(c, kgo.TransactionalID("aborts")), lives.Client(c, kgo.TransactionalID("stays open"))
	plain := lives.Client(c)
	lives.Transaction(t, c, committing, kgo.TryCommit, tp.Topic, 0, "earlier") // 0, its COMMIT 1
	ids := map[int64]string{}
	for name, cl := range map[string]*kgo.Client{"commits": committing, "aborts": aborting, "stays open": open} {
		lives.Begin(t, cl)
		lives.Produce(t, cl, tp.Topic, 0, "begun")
		id, _, err := cl.ProducerID(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = name
	}
	lives.Produce(t, plain, tp.Topic, 0, "plain")
	const lmo = 6

	source, err := kafkasource.New(kafkasource.Config{Seeds: c.Bootstrap(), Bound: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	west := memlog.New(memlog.Config{ClusterID: "west"})
	defer west.Close()
	m, err := mirror.Open(t.Context(), mirror.Config{Name: "dr", Source: source, Destination: west, Store: west.StateStore(), Sink: mirror.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Admin().Start(t.Context(), []string{tp.Topic}, mirror.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	lives.Eventually(t, "the copy is in step", func() (bool, string) {
		s := m.Status()
		return len(s.Topics) == 1 && len(s.Topics[0].Partitions) == 1 && s.Topics[0].Partitions[0].State == statemachine.Mirroring && s.Topics[0].Partitions[0].Replicated == lmo, fmt.Sprintf("%+v", s.Topics)
	})
	report, err := m.Failover(t.Context(), mirror.FailoverOptions{})
	if err != nil || report.Partitions[0].FinalOffset != lmo {
		t.Fatalf("%v\n%s", err, report)
	}
	lives.Produce(t, committing, tp.Topic, 0, "and more") // 6
	lives.Finish(t, c, committing, kgo.TryCommit, tp.Topic, 0)
	lives.Finish(t, c, aborting, kgo.TryAbort, tp.Topic, 0)
	lives.Transaction(t, c, committing, kgo.TryCommit, tp.Topic, 0, "a later one", "of the same producer")
	lives.Produce(t, plain, tp.Topic, 0, "late")

	there := verify.SourceSide(source, tp, verify.SourceOptions{})
	defer there.Close()
	log, err := west.OpenLog(t.Context(), tp)
	if err != nil {
		t.Fatal(err)
	}
	list, err := reconcile.Partition(t.Context(), there, verify.LogSide(tp, log), reconcile.Position{LME: report.Partitions[0].LME, LMO: lmo}, reconcile.Options{
		EndOfEpoch: func(ctx context.Context, epoch int32) (mirror.EpochEnd, error) {
			return source.EndOffsetForEpoch(ctx, tp, mirror.Unknown, epoch)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", &reconcile.Report{Mirror: "dr", Taken: time.Now(), Partitions: []reconcile.PartitionReport{list}})
	var got []string
	for _, x := range list.Transactions {
		if x.First < 2 || x.First != x.Last || x.Abort < lmo {
			t.Errorf("%+v", x)
		}
		got = append(got, fmt.Sprintf("%s: %s at %d, +%d", ids[x.ProducerID], x.Source, x.Marker, x.More))
	}
	slices.Sort(got)
	want := []string{"aborts: aborted at 8, +0", "commits: committed at 7, +1", "stays open: open at -1, +0"}
	if !slices.Equal(got, want) || list.Records != (reconcile.Counts{NoTransaction: 1, Committed: 3}) || !list.Done || !list.Compared || len(list.Gaps) != 0 {
		t.Errorf("%q\n%+v", got, list)
	}
}
