package main

import (
	"context"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/logtest"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

var orders0 = mirror.TopicPartition{Topic: "orders"}

// boundedIn is a bounded copy in a new cluster in memory.
func boundedIn(t testing.TB, share int64) (*memlog.Cluster, *bounded, mirror.Log) {
	t.Helper()
	c := memlog.New(memlog.Config{})
	if _, err := c.CreateTopic(t.Context(), mirror.TopicSpec{Name: orders0.Topic, Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	d := &bounded{Destination: c, share: share, logs: map[mirror.TopicPartition]*boundedLog{}}
	log, err := d.OpenLog(t.Context(), orders0)
	if err != nil {
		t.Fatal(err)
	}
	return c, d, log
}

// A log that is below its limit is a Log like any other.
func TestBoundedLogKeepsTheContract(t *testing.T) {
	logtest.Run(t, func(t testing.TB) logtest.Subject {
		c, d, log := boundedIn(t, 1<<40)
		return logtest.Subject{
			Log: log, Close: c.Close,
			RaiseLeaderEpoch: func(ctx context.Context, epoch int32) error {
				_, err := d.RaiseLeaderEpochs(ctx, map[mirror.TopicPartition]int32{orders0: epoch})
				return err
			},
		}
	})
}

// tenBatches are ten batches of one record each, of the same size.
func tenBatches(t *testing.T) (batches [][]byte, size int64) {
	t.Helper()
	c := memlog.New(memlog.Config{})
	defer c.Close()
	if _, err := c.CreateLocalTopic(memlog.LocalTopic{Name: orders0.Topic, Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := c.Produce(t.Context(), orders0.Topic, 0, memlog.Record{Value: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := c.RawLog(orders0.Topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range mirror.Batches(raw) {
		batches = append(batches, b)
	}
	return batches, int64(len(batches[0]))
}

func TestBoundedLogHoldsNoMoreThanItsShare(t *testing.T) {
	batches, size := tenBatches(t)
	_, d, log := boundedIn(t, 3*size)
	expect := func(what string, start, end, wantHeld, wantForgotten int64) {
		t.Helper()
		held, forgotten := d.kept()
		if log.Start() != start || log.End() != end || held != wantHeld*size || forgotten != wantForgotten*size {
			t.Errorf("%s: [%d,%d), %d bytes held and %d forgotten, want [%d,%d), %d and %d", what, log.Start(), log.End(), held, forgotten, start, end, wantHeld*size, wantForgotten*size)
		}
	}
	for _, b := range batches[:7] {
		if err := log.Append(t.Context(), log.LeaderEpoch(), b); err != nil {
			t.Fatal(err)
		}
	}
	expect("after seven batches", 4, 7, 3, 4)
	if _, err := log.TruncateTo(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	expect("after a cut", 4, 6, 2, 4)
	if err := log.RaiseStart(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	expect("after the source's start has moved", 5, 6, 1, 5)
	if err := log.ResetTo(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	expect("after a reset", 7, 7, 0, 5)
}

// A limit below one batch cannot be kept: the newest batch stays.
func TestOneBatchLargerThanTheShareStays(t *testing.T) {
	batches, size := tenBatches(t)
	_, d, log := boundedIn(t, 1)
	for _, b := range batches {
		if err := log.Append(t.Context(), log.LeaderEpoch(), b); err != nil {
			t.Fatal(err)
		}
	}
	if held, _ := d.kept(); held != size || log.Start() != 9 || log.End() != 10 {
		t.Errorf("[%d,%d) and %d bytes are held, want [9,10) and %d", log.Start(), log.End(), held, size)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"256MiB": 256 << 20, "1GiB": 1 << 30, "64KiB": 64 << 10, "100": 100, "0": 0, "-1MiB": 0, "9999999999GiB": 0, "MiB": 0, "1.5GiB": 0, "": 0} {
		var s size
		if err := s.Set(text); (err == nil) != (want > 0) || int64(s) != want {
			t.Errorf("%q is %d (%v), want %d", text, s, err, want)
		}
	}
}
