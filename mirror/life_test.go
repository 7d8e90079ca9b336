package mirror_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// side is one cluster and, when it mirrors, its mirror with the events it told.
type side struct {
	*memlog.Cluster
	t *testing.T
}

func newSide(t *testing.T, cfg memlog.Config) *side {
	t.Helper()
	c := memlog.New(cfg)
	t.Cleanup(func() { c.Close() })
	return &side{c, t}
}

func (s *side) local(topic string, partitions int32) {
	s.t.Helper()
	if _, err := s.CreateLocalTopic(memlog.LocalTopic{Name: topic, Partitions: partitions}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) produce(topic string, partition int32, values ...string) {
	s.t.Helper()
	for _, v := range values {
		if _, err := s.Produce(s.t.Context(), topic, partition, memlog.Record{Value: []byte(v)}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *side) raw(topic string, partition int32) []byte {
	s.t.Helper()
	b, err := s.RawLog(topic, partition)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// running is a mirror under test with everything it told.
type running struct {
	*mirror.Mirror
	t      *testing.T
	events []mirror.Event
}

func open(t *testing.T, name string, src mirror.Source, dst *side, change ...func(*mirror.Config)) *running {
	t.Helper()
	r := &running{t: t}
	cfg := mirror.Config{Name: name, Source: src, Destination: dst.Cluster, Store: dst.StateStore(), Sink: mirror.Discard, Seed: 1,
		OnEvent: func(e mirror.Event) {
			r.events = append(r.events, e)
			t.Log(e)
		}}
	for _, f := range change {
		f(&cfg)
	}
	m, err := mirror.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Mirror = m
	return r
}

func (r *running) close() {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Error(err)
	}
}

func (r *running) start(topics ...string) {
	r.t.Helper()
	if _, err := r.Admin().Start(r.t.Context(), topics, mirror.StartOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// until waits for what is not a change of state too: it lets everything that can run do so, then some virtual time pass, and asks again.
func (r *running) until(what string, ok func(mirror.Status) bool) {
	r.t.Helper()
	for range 10_000 {
		synctest.Wait()
		if ok(r.Status()) {
			return
		}
		time.Sleep(50 * time.Millisecond) // virtual
	}
	r.t.Fatalf("never %s; status %s", what, show(r.Status()))
}

func show(s mirror.Status) string {
	var b bytes.Buffer
	for _, t := range s.Topics {
		fmt.Fprintf(&b, "\n%s %s err=%v", t.Topic, t.MirrorName, t.Err)
		for _, p := range t.Partitions {
			fmt.Fprintf(&b, "\n  %d %s %s end=%d source=%d lag=%d reason=%q attempt=%d owner=%s", p.Partition, p.State, p.Step, p.End, p.SourceEnd, p.LagOffsets, p.Reason, p.RetryAttempt, p.Owner)
		}
	}
	return b.String()
}

func each(s mirror.Status, ok func(mirror.PartitionStatus) bool) bool {
	n := 0
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			if !ok(p) {
				return false
			}
			n++
		}
	}
	return n > 0
}

func inStep(p mirror.PartitionStatus) bool {
	return p.State == statemachine.Mirroring && p.LagOffsets == 0
}

// one returns the status of one partition.
func one(s mirror.Status, topic string, partition int32) mirror.PartitionStatus {
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			if p.Topic == topic && p.Partition == partition {
				return p
			}
		}
	}
	return mirror.PartitionStatus{State: statemachine.Unknown}
}

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

var _ = context.Background
