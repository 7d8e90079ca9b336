package mirror_test

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func TestWholeLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B", Replicas: 3})
		a.local("orders", 2)
		a.produce("orders", 0, "one", "two", "three")
		a.produce("orders", 1, "uno")

		there := open(t, "a-to-b", a.Cluster, b)
		defer there.close()
		there.start("orders")
		there.until("in step", func(s mirror.Status) bool { return each(s, inStep) })
		for p := range int32(2) {
			if !bytes.Equal(a.raw("orders", p), b.raw("orders", p)) {
				t.Fatalf("partition %d differs", p)
			}
		}
		if _, err := b.Produce(ctx, "orders", 0, memlog.Record{Value: []byte("too early")}); err == nil {
			t.Fatal("a client could write to the copy")
		}

		// The source dies with a transaction open and a tail that nobody copied.
		tx := a.NewProducer(memlog.ProducerOptions{})
		if err := tx.Begin(); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Produce(ctx, "orders", 0, memlog.Record{Value: []byte("in a transaction")}); err != nil {
			t.Fatal(err)
		}
		there.until("the transaction is copied", func(s mirror.Status) bool { return one(s, "orders", 0).End == 4 })
		a.SetUnreachable(true)
		a.produce("orders", 0, "never copied")

		report, err := there.Failover(ctx, mirror.FailoverOptions{})
		t.Log(report)
		if err != nil {
			t.Fatal(err)
		}
		if got := report.Partitions[0]; got.FinalOffset != 4 || len(got.Aborts) != 1 || got.Aborts[0].Offset != 4 || got.ResetAt != 5 || got.OpensAt != 6 {
			t.Fatalf("%+v", got)
		}
		b.produce("orders", 0, "new primary")

		// The old source comes back and becomes a mirror of the new primary.
		a.SetUnreachable(false)
		back := open(t, "b-to-a", b.Cluster, a)
		defer back.close()
		plan, err := back.PlanFailback(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		t.Log(plan)
		if plan.Dropped != 1 {
			t.Fatalf("plan drops %d", plan.Dropped)
		}
		done, err := back.ExecuteFailback(ctx, plan)
		t.Log(done)
		if err != nil {
			t.Fatal(err)
		}
		for p := range int32(2) {
			if !bytes.Equal(a.raw("orders", p), b.raw("orders", p)) {
				t.Fatalf("partition %d differs after failback", p)
			}
		}
	})
}
