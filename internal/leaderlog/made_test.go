package leaderlog

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
)

// data is a batch of n records at base.
func data(base int64, n int, epoch int32, value string) []byte {
	records := make([]batch.Record, n)
	for i := range records {
		records[i] = batch.Record{OffsetDelta: int32(i), Value: []byte(value)}
	}
	return batch.AppendData(nil, batch.DataSpec{BaseOffset: base, LeaderEpoch: epoch, ProducerID: -1, Records: records})
}

// control is a control batch of one type.
func control(base int64, epoch int32, producer int64, kind int16, version int16) []byte {
	key := []byte{byte(version >> 8), byte(version), byte(kind >> 8), byte(kind)}
	return batch.AppendControl(nil, batch.ControlSpec{
		BaseOffset: base, LeaderEpoch: epoch, ProducerID: producer, BaseSequence: -1, Transactional: producer >= 0, Key: key, Value: []byte{0, 0, 0, 0, 0, 7},
	})
}

func chunkOf(batches ...[]byte) []byte { return bytes.Join(batches, nil) }

// spans names the batches in some bytes: "0-2@1 3-3@1".
func spans(b []byte) string {
	var s []string
	for h := range batch.All(b) {
		s = append(s, fmt.Sprintf("%d-%d@%d", h.BaseOffset, h.LastOffset(), h.LeaderEpoch))
	}
	return fmt.Sprint(s)
}

// copies is a Back over what the test says that followers hold.
type copies struct {
	held  map[int32][]byte
	err   error
	asked [][]int32
	froms []int64
}

func (c *copies) ReadBack(ctx context.Context, from int64, most int, holders []int32) ([]byte, error) {
	c.asked, c.froms = append(c.asked, holders), append(c.froms, from)
	if c.err != nil {
		return nil, c.err
	}
	return readCopy(c.held[holders[0]], from, most), nil
}

// readCopy reads a copy as Back has to.
func readCopy(held []byte, from int64, most int) []byte {
	first, at := 0, 0
	for h, whole := range batch.All(held) {
		switch {
		case h.LastOffset() < from:
			first += len(whole)
		case at+len(whole)-first > most && at > first:
			return held[first:at]
		}
		at += len(whole)
	}
	return held[first:at]
}

// led is a log that is led under an epoch, released, with followers 1, 2 and 3, all live.
func led(t testing.TB, o Options, epoch int32, f Found) *Log {
	t.Helper()
	o.Topic = "orders"
	l := New(o)
	l.SetFollowers([]int32{1, 2, 3}, []int32{1, 2, 3}, nil, 2)
	l.Begin(f)
	l.Lead(epoch)
	l.Release()
	t.Cleanup(l.Close)
	return l
}

func add(t testing.TB, l *Log, batches ...[]byte) {
	t.Helper()
	if err := l.Append(bounded(t), l.LeaderEpoch(), chunkOf(batches...)); err != nil {
		t.Fatal(err)
	}
}

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// query is a Fetch of broker at offset, whose last batch has that epoch.
func query(l *Log, broker int32, offset int64, lastEpoch int32) replicaserver.FetchQuery {
	q := replicaserver.FetchQuery{Broker: broker, BrokerEpoch: -1, LeaderEpoch: l.LeaderEpoch(), Offset: offset, LastFetchedEpoch: lastEpoch, MaxBytes: 1 << 20}
	if lastEpoch < 0 {
		q.LogStart = offset // empty
	}
	return q
}

// at has a follower fetch at offset and be accepted.
func at(t testing.TB, l *Log, broker int32, offset int64, lastEpoch int32) replicaserver.FetchAnswer {
	t.Helper()
	a := l.Fetch(query(l, broker, offset, lastEpoch))
	if a.Code != 0 || a.Diverging {
		t.Fatalf("fetch of broker %d at %d, epoch %d: %+v", broker, offset, lastEpoch, a)
	}
	return a
}

func positions(t testing.TB, l *Log, start, end, replicated int64) {
	t.Helper()
	if l.Start() != start || l.End() != end || l.Replicated() != replicated {
		t.Fatalf("the log is [%d, %d], replicated to %d; it should be [%d, %d], %d", l.Start(), l.End(), l.Replicated(), start, end, replicated)
	}
}

func told(a replicaserver.FetchAnswer) string {
	switch {
	case a.Code != 0:
		return fmt.Sprintf("code %d", a.Code)
	case a.Diverging:
		return fmt.Sprintf("diverging %d:%d", a.DivergingEpoch, a.DivergingEnd)
	case a.Back:
		return "back"
	}
	return spans(chunkOf(a.Batches...))
}
