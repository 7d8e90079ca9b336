package replicareader

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// byClient is a Requester over one client that knows all brokers.
type byClient struct{ cl *kgo.Client }

func (b byClient) Broker(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	return b.cl.Broker(int(id)).RetriableRequest(ctx, req)
}

// TestAgainstAnotherBrokerImplementation reads a leader and a follower of kfake, which was not written after this package's model.
func TestAgainstAnotherBrokerImplementation(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	admin := kadm.NewClient(cl)
	created, err := admin.CreateTopic(t.Context(), 2, 3, nil, "orders")
	if err != nil {
		t.Fatal(err)
	}
	o := Target{Topic: "orders", ID: [16]byte(created.ID), Partition: 1}
	const records = 40
	for i := range records {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Partition: 1, Value: fmt.Appendf(nil, "record %d", i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	described, err := admin.ListTopics(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	p := described["orders"].Partitions[1]
	if _, err := admin.DeleteRecords(t.Context(), kadm.Offsets{"orders": {1: {Topic: "orders", Partition: 1, At: 7}}}); err != nil {
		t.Fatal(err)
	}
	cluster.SetFollowers("orders", 1, p.Replicas)
	r := New(byClient{cl})
	for _, broker := range p.Replicas {
		all, err := r.Ends(t.Context(), broker, []Target{o, {Topic: "orders", ID: o.ID, Partition: 9}})
		if want := (Ends{Start: 7, End: records, LastStable: records}); err != nil || all[o] != want {
			t.Fatalf("broker %d (leader %d): %+v, %v", broker, p.Leader, all[o], err)
		}
		wantReason(t, all[Target{Topic: "orders", ID: o.ID, Partition: 9}].Err, UnknownTopic)
		at := int64(7)
		for at < records {
			raw, err := r.Read(t.Context(), broker, o, at, 300)
			if err != nil || len(raw) == 0 || len(raw) > 300 {
				t.Fatalf("broker %d at %d: %d bytes, %v", broker, at, len(raw), err)
			}
			for h := range batch.All(raw) {
				at = h.NextOffset()
			}
		}
		got, err := r.Epochs(t.Context(), broker, o, 7, records)
		if err != nil || len(got) != 1 || got[0].Start != 7 {
			t.Errorf("broker %d: %v, %v", broker, got, err)
		}
	}
	if all, err := r.Compare(t.Context(), o, p.Replicas...); err != nil || len(all) != 2 || !all[0].Equal() || !all[1].Equal() {
		t.Errorf("%v, %v", all, err)
	}
}
