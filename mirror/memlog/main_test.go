package memlog_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// TestMain fails when a goroutine of the package is left.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leftovers(); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left:\n"+left)
		code = 1
	}
	os.Exit(code)
}

// leftovers is the stacks of goroutines that run this module's code, the caller's aside, once those that are ending have ended.
func leftovers() string {
	var left []byte
	for range 200 {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left = nil
		for i, s := range bytes.Split(stacks, []byte("\n\n")) {
			if i > 0 && bytes.Contains(s, []byte("clustermirror/mirror/memlog")) {
				left = append(append(left, s...), '\n')
			}
		}
		if left == nil {
			return ""
		}
		runtime.Gosched()
	}
	return string(left)
}

func TestLeftoversSeesAGoroutine(t *testing.T) {
	c, _ := source(t, memlog.Config{Replicas: 2})
	if err := c.HoldReplica("orders", 0, 1); err != nil {
		t.Fatal(err)
	}
	produce(t, c, "a")
	log, err := c.OpenLog(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- log.AwaitReplicated(ctx, 1) }()
	if leftovers() == "" {
		t.Error("a goroutine that waits is not seen")
	}
	cancel()
	<-done
}

var orders = mirror.TopicPartition{Topic: "orders"}

// source is a cluster with the local topic orders, one partition.
func source(t testing.TB, cfg memlog.Config) (*memlog.Cluster, mirror.Topic) {
	t.Helper()
	c := memlog.New(cfg)
	topic, err := c.CreateLocalTopic(memlog.LocalTopic{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, topic
}

// destination is a cluster with the mirrored topic orders, and the log of its one partition.
func destination(t testing.TB, cfg memlog.Config) (*memlog.Cluster, mirror.Log) {
	t.Helper()
	c := memlog.New(cfg)
	if _, err := c.CreateTopic(t.Context(), mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	log, err := c.OpenLog(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, log
}

// produce writes one batch with these values to orders-0 and returns its base offset.
func produce(t testing.TB, c *memlog.Cluster, values ...string) int64 {
	t.Helper()
	base, err := c.Produce(t.Context(), "orders", 0, records(values...)...)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

func records(values ...string) []memlog.Record {
	var some []memlog.Record
	for _, v := range values {
		some = append(some, memlog.Record{Value: []byte(v)})
	}
	return some
}

// values consumes orders-0 from its log start, as offset=value.
func values(t testing.TB, c *memlog.Cluster, isolation memlog.Isolation) []string {
	t.Helper()
	offsets, err := c.Offsets(t.Context(), []mirror.TopicPartition{orders})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Consume(t.Context(), "orders", 0, offsets[orders].LogStart, isolation)
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, r := range got {
		s = append(s, fmt.Sprintf("%d=%s", r.Offset, r.Value))
	}
	return s
}

// copyLog appends everything of one cluster's orders-0 to another's log.
func copyLog(t testing.TB, from *memlog.Cluster, to mirror.Log) {
	t.Helper()
	b, err := from.RawLog("orders", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Append(t.Context(), to.LeaderEpoch(), b); err != nil {
		t.Fatal(err)
	}
}
