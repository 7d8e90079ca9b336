package fence_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/fence"
)

// fakeCluster is one of brokers that a test runs itself, with a client.
func fakeCluster(t *testing.T, options ...kfake.Opt) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	fake, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return fake, client
}

// TestWhatIsMadeOfAClientTellsItsCluster: also with what it remembers.
func TestWhatIsMadeOfAClientTellsItsCluster(t *testing.T) {
	_, client := fakeCluster(t, kfake.ClusterID("PqwYhCxRbmzsVvnJykLxAa"))
	for _, of := range []any{fence.ACL(client), fence.Quota(client), fence.Transactions(client)} {
		if remembers, ok := of.(mirror.FenceMemory); ok {
			with, err := remembers.With("{}")
			if err != nil {
				t.Fatal(err)
			}
			of = with
		}
		if id, err := of.(mirror.FenceCluster).ClusterID(t.Context()); err != nil || id != "PqwYhCxRbmzsVvnJykLxAa" {
			t.Errorf("%v: %q, %v", of, id, err)
		}
	}
	if _, tells := any(fence.Hook{}).(mirror.FenceCluster); tells {
		t.Error("a hook knows no cluster")
	}
}

// TestAQuotaForbidsNothing: also with what it remembers.
func TestAQuotaForbidsNothing(t *testing.T) {
	_, client := fakeCluster(t)
	with, err := fence.Quota(client).(mirror.FenceMemory).With("{}")
	if err != nil {
		t.Fatal(err)
	}
	if slows, ok := with.(mirror.FenceSlows); !ok || !slows.OnlySlows() {
		t.Error("a quota is said to forbid writes")
	}
	if _, ok := fence.ACL(client).(mirror.FenceSlows); ok {
		t.Error("rules are said to forbid no write")
	}
}

// TestATransactionThatEndsMeanwhileIsLeftAlone: the leader says that one is open, and its coordinator, asked after that, that it has committed. It is aborted only if it is open still, from the same
// offset on: then no coordinator knows of it.
func TestATransactionThatEndsMeanwhileIsLeftAlone(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second int64 // where the producer's transaction begins, each time that its leader is asked; -1: none is open
		asked         int64 // where the copy has it
		aborts        int
	}{
		{"hanging", 7, 7, 7, 1},
		{"hanging, and its beginning is not known here", 7, 7, mirror.Unknown, 1},
		{"it has ended meanwhile", 7, -1, 7, 0},
		{"it has ended meanwhile, and the next one is open", 7, 9, 7, 0},
		{"it had ended before, and the next one is open", 9, 9, 7, 0},
	} {
		fake, client := fakeCluster(t, kfake.SeedTopics(1, "t"))
		looks, aborts := 0, 0
		fake.ControlKey(int16(kmsg.DescribeProducers), func(req kmsg.Request) (kmsg.Response, error, bool) {
			fake.KeepControl()
			start := c.first
			if looks++; looks > 1 {
				start = c.second
			}
			resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
			topic, partition, producer := kmsg.NewDescribeProducersResponseTopic(), kmsg.NewDescribeProducersResponseTopicPartition(), kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
			producer.ProducerID, producer.ProducerEpoch, producer.CoordinatorEpoch, producer.CurrentTxnStartOffset = 5, 2, 3, start
			partition.ActiveProducers = append(partition.ActiveProducers, producer)
			topic.Topic, topic.Partitions = "t", append(topic.Partitions, partition)
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		})
		fake.ControlKey(int16(kmsg.ListTransactions), func(req kmsg.Request) (kmsg.Response, error, bool) {
			fake.KeepControl()
			resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
			state := kmsg.NewListTransactionsResponseTransactionState()
			state.TransactionalID, state.ProducerID, state.TransactionState = "x", 5, "CompleteCommit"
			resp.TransactionStates = append(resp.TransactionStates, state)
			return resp, nil, true
		})
		fake.ControlKey(int16(kmsg.WriteTxnMarkers), func(req kmsg.Request) (kmsg.Response, error, bool) {
			fake.KeepControl()
			for _, m := range req.(*kmsg.WriteTxnMarkersRequest).Markers {
				if aborts++; m.Committed || m.ProducerID != 5 || m.ProducerEpoch != 2 || m.CoordinatorEpoch != 3 || fmt.Sprint(m.Topics) != "[{t [0] {map[]}}]" {
					t.Errorf("%s: marker %+v", c.name, m)
				}
			}
			return req.ResponseKind(), nil, true
		})
		open := mirror.OpenTransaction{TopicPartition: mirror.TopicPartition{Topic: "t"}, ProducerID: 5, ProducerEpoch: 2, FirstOffset: c.asked}
		if c.asked == mirror.Unknown {
			open.ProducerID = mirror.Unknown
		}
		if err := fence.Transactions(client).AbortTransactions(t.Context(), []mirror.OpenTransaction{open}); err != nil || aborts != c.aborts {
			t.Errorf("%s: %d aborts, %v", c.name, aborts, err)
		}
	}
}

// A hook that lacks a function is an error, not a panic in the middle of a promotion; and what could not be lowered is not raised.
func TestAHookNeedsBothFunctions(t *testing.T) {
	called := false
	f := func(context.Context, []string) error { called = true; return nil }
	for _, h := range []fence.Hook{{Name: "g"}, {Name: "g", RaiseF: f}, {Name: "g", LowerF: f}} {
		if err := h.Raise(t.Context(), []string{"t"}); err == nil || called {
			t.Errorf("raised: %v", err)
		}
	}
	if err := (fence.Hook{Name: "g"}).Lower(t.Context(), []string{"t"}); err == nil {
		t.Error("lowered by nothing")
	}
}
