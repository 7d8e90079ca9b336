package topicreader

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

func transaction(t *testing.T, cl *kgo.Client, topic string, partition int32, values ...string) {
	t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, topic, partition, values...)
}

func end(t *testing.T, cl *kgo.Client, how kgo.TransactionEndTry) {
	t.Helper()
	if err := cl.EndTransaction(t.Context(), how); err != nil {
		t.Fatal(err)
	}
}

// Real Kafka: what a read shows beside transactions that are committed, aborted and open, and how long it waits.
func TestRealTransactions(t *testing.T) {
	c := kafkatest.Shared(t)
	c.CreateTopic(kafkatest.Topic{Name: "real-transactions", Partitions: 3, Replication: 3})
	const topic = "real-transactions"
	writer := func(id string) *kgo.Client {
		return client(t, c.Bootstrap(), kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	}
	one, two := writer(topic+"-1"), writer(topic+"-2")
	var n requests
	r := New(client(t, c.Bootstrap(), kgo.WithHooks(&n)), topic)

	transaction(t, one, topic, 0, "a", "b")
	produce(t, one, topic, 1, "c")
	end(t, one, kgo.TryCommit)
	same(t, "a commit that was answered", read(t, r), map[string]string{"real-transactions-0@0": "a", "real-transactions-0@1": "b", "real-transactions-1@0": "c"})

	transaction(t, one, topic, 0, "never")
	end(t, one, kgo.TryAbort)
	same(t, "an abort", read(t, r), map[string]string{})
	before := r.Total()
	if before != 3+2+2+0 {
		t.Errorf("positions %d, want behind the markers at 7", before)
	}
	n.since()
	read(t, r)
	t.Logf("idle read: %s", n.since())

	transaction(t, one, topic, 0, "open")
	transaction(t, two, topic, 0, "behind")
	end(t, two, kgo.TryCommit)
	ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
	defer cancel()
	n.since()
	var wait *WaitError
	err := r.ReadToEnd(ctx, func(k Record) { t.Errorf("%s was shown", k.Value) })
	if !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) || wait.Topic != topic || wait.Partition != 0 || wait.Next != 5 || wait.Stable != 5 || wait.End < 7 {
		t.Errorf("%v (%+v)", err, wait)
	}
	t.Logf("%v", err)
	if got := n.n["Fetch"]; got > 4 {
		t.Errorf("%d Fetch requests in 1.2 s of waiting", got)
	}

	done := waiting(t, r)
	time.AfterFunc(50*time.Millisecond, func() { one.EndTransaction(context.Background(), kgo.TryCommit) })
	same(t, "once it has ended", read(t, New(client(t, c.Bootstrap()), topic))["real-transactions-0@6"], "behind")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	same(t, "once it has ended", read(t, r), map[string]string{"real-transactions-0@5": "open", "real-transactions-0@6": "behind"})

	// A position behind an open transaction's record still sees its end.
	transaction(t, two, topic, 2, "late")
	watch := New(client(t, c.Bootstrap()), topic)
	if err := watch.SkipToEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	done = waiting(t, watch)
	end(t, two, kgo.TryCommit)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
