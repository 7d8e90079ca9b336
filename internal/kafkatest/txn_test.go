package kafkatest

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/txnabort"
)

// batches cuts a replica's segments and checks every batch.
func batches(t *testing.T, segments []byte) (headers []batch.Header, raw [][]byte) {
	t.Helper()
	for rest := segments; len(rest) > 0; {
		h, n, err := batch.Next(rest)
		if err == nil {
			err = batch.Check(rest[:n], &h)
		}
		if err != nil {
			t.Fatalf("batch %d of a broker's segment: %v", len(raw), err)
		}
		headers, raw = append(headers, h), append(raw, rest[:n])
		rest = rest[n:]
	}
	return headers, raw
}

func transactionalClient(t *testing.T, c *Cluster, topic, id string) *kgo.Client {
	t.Helper()
	return c.Client(kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.TransactionTimeout(time.Minute))
}

func openTransaction(t *testing.T, ctx context.Context, cl *kgo.Client, values ...string) {
	t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if err := cl.ProduceSync(ctx, &kgo.Record{Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// abortByMarker aborts an open transaction of one partition as an operator would (WriteTxnMarkers to the leader), with the given coordinator epoch.
func abortByMarker(t *testing.T, ctx context.Context, c *Cluster, topic string, id int64, epoch int16, coordinatorEpoch int32) {
	t.Helper()
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch = id, epoch, coordinatorEpoch
	rt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	rt.Topic, rt.Partitions = topic, []int32{0}
	m.Topics = append(m.Topics, rt)
	req.Markers = append(req.Markers, m)
	raw, err := c.AdminClient().Broker(int(c.LeaderOf(topic, 0))).Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range raw.(*kmsg.WriteTxnMarkersResponse).Markers {
		for _, rt := range m.Topics {
			for _, p := range rt.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					t.Fatalf("write the marker: %v", err)
				}
			}
		}
	}
}

// The marker that txnabort builds is, byte for byte, the one that Kafka writes for the same transaction.
func TestKafkaWritesTheSameAbortMarker(t *testing.T) {
	c := Shared(t)
	topic := "same-abort-marker"
	c.CreateTopic(Topic{Name: topic, Assignment: [][]int32{{2, 3}}})
	ctx, cancel := c.limit()
	defer cancel()
	cl := transactionalClient(t, c, topic, topic)
	openTransaction(t, ctx, cl, "one", "two")
	id, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const coordinatorEpoch = 7
	abortByMarker(t, ctx, c, topic, id, epoch, coordinatorEpoch)

	headers, raw := batches(t, c.WaitSameSegments(topic, 0, 2, 3))
	last := headers[len(headers)-1]
	if !last.Control() || len(raw) != 3 {
		t.Fatalf("want two data batches and a marker, got %d batches, the last control: %v", len(raw), last.Control())
	}
	m := producerstate.New()
	if err := m.Observe(bytes.Join(raw[:2], nil)); err != nil {
		t.Fatal(err)
	}
	open := m.InFlight()
	if len(open) != 1 || open[0].ProducerID != id || open[0].FirstOffset != 0 {
		t.Fatalf("open before the marker: %+v, want one of producer %d from offset 0", open, id)
	}
	open[0].CoordinatorEpoch = coordinatorEpoch // the log does not say it before the marker
	want := raw[2]
	if got := txnabort.Abort(last.BaseOffset, last.LeaderEpoch, open[0], last.BaseTimestamp); !bytes.Equal(got, want) {
		t.Errorf("the markers differ\nours  %x\nKafka %x", got, want)
	}
	for name, other := range map[string][]byte{
		"coordinator epoch": txnabort.Abort(last.BaseOffset, last.LeaderEpoch, func() producerstate.Transaction { o := open[0]; o.CoordinatorEpoch++; return o }(), last.BaseTimestamp),
		"timestamp":         txnabort.Abort(last.BaseOffset, last.LeaderEpoch, open[0], last.BaseTimestamp+1),
		"offset":            txnabort.Abort(last.BaseOffset+1, last.LeaderEpoch, open[0], last.BaseTimestamp),
		"leader epoch":      txnabort.Abort(last.BaseOffset, last.LeaderEpoch+1, open[0], last.BaseTimestamp),
	} {
		if bytes.Equal(other, want) {
			t.Errorf("the comparison does not see another %s", name)
		}
	}
	if err := m.Observe(want); err != nil {
		t.Fatal(err)
	}
	if len(m.InFlight()) != 0 || len(m.Aborted(0, 3)) != 1 {
		t.Errorf("after Kafka's marker: open %+v, aborted %+v", m.InFlight(), m.Aborted(0, 3))
	}
}

// Transactions of a client that speaks transactions v2 (KIP-890: each end raises the producer epoch, the marker carries the raised one) leave nothing open.
func TestTransactionsV2LeaveNothingOpen(t *testing.T) {
	c := Shared(t)
	topic := "transactions-v2"
	c.CreateTopic(Topic{Name: topic, Assignment: [][]int32{{2, 3}}})
	ctx, cancel := c.limit()
	defer cancel()
	cl := transactionalClient(t, c, topic, topic)
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		openTransaction(t, ctx, cl, "a", "b")
		if err := cl.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	// The markers are written after EndTransaction was answered: the fourth data offset and both markers make the end 6.
	headers, raw := batches(t, c.waitEnd(ctx, topic, 2, 6))
	m := producerstate.New()
	raised := 0
	for i, b := range raw {
		h := headers[i]
		if h.Control() {
			open := m.InFlight()
			if len(open) != 1 || open[0].ProducerID != h.ProducerID {
				t.Fatalf("before the marker at %d: open %+v", h.BaseOffset, open)
			}
			if h.ProducerEpoch > open[0].ProducerEpoch {
				raised++
			}
		}
		if err := m.Observe(b); err != nil {
			t.Fatal(err)
		}
	}
	if raised != 2 {
		t.Errorf("%d of 2 markers carry a raised producer epoch: the client did not speak transactions v2", raised)
	}
	if open := m.InFlight(); len(open) != 0 {
		t.Errorf("open after the last marker: %+v", open)
	}
	if a := m.Aborted(0, 6); len(a) != 1 || a[0].FirstOffset != 3 || a[0].LastOffset != 5 {
		t.Errorf("aborted: %+v, want one from 3 to its marker at 5", a)
	}
	if got := m.LastStable(6); got != 6 {
		t.Errorf("last stable offset %d, want 6", got)
	}
}

// A producer that is killed between two markers leaves its transaction open, and only that one.
func TestOpenTransactionStaysOpen(t *testing.T) {
	c := Shared(t)
	topic := "stays-open"
	c.CreateTopic(Topic{Name: topic, Assignment: [][]int32{{2, 3}}})
	ctx, cancel := c.limit()
	defer cancel()
	done, left := transactionalClient(t, c, topic, topic+"-done"), transactionalClient(t, c, topic, topic+"-left")
	openTransaction(t, ctx, left, "left")
	openTransaction(t, ctx, done, "done")
	if err := done.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	_, raw := batches(t, c.waitEnd(ctx, topic, 2, 3))
	m := producerstate.New()
	if err := m.Observe(bytes.Join(raw, nil)); err != nil {
		t.Fatal(err)
	}
	if open := m.InFlight(); len(open) != 1 || open[0].FirstOffset != 0 || m.LastStable(3) != 0 {
		t.Errorf("open %+v, last stable offset %d; want the one from 0", open, m.LastStable(3))
	}
}

// waitEnd waits until a replica's segments reach the offset, and returns them.
func (c *Cluster) waitEnd(ctx context.Context, topic string, broker int32, end int64) []byte {
	c.t.Helper()
	var b []byte
	err := poll(ctx, "the end of the log", func(context.Context) (bool, error) {
		b = c.SegmentBytes(topic, 0, broker)
		next := int64(0)
		for h := range batch.All(b) {
			next = h.NextOffset()
		}
		return next >= end, nil
	})
	if err != nil {
		c.t.Fatalf("%v", err)
	}
	return b
}
