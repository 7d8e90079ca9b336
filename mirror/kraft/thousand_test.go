//go:build long

package kraft_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

const (
	wideTopics     = 10
	widePartitions = 100 // of each topic
	wideAll        = wideTopics * widePartitions
	// wideRequests is how many requests of a kind that changes the cluster one step may send for all partitions.
	wideRequests = wideAll / 100
)

// TestRealKafkaThousandPartitions creates 1,000 partitions, has them copied, leaves them idle, hands them over, takes them over, loses the process and hands them over again. It prints the
// parts of the time and the requests of each, and fails only on how many requests that change the cluster a step needs.
func TestRealKafkaThousandPartitions(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 2, Config: map[string]string{"log.cleaner.enable": "false", "log.segment.bytes": "1048576"}})
	w := &wide{t: t, c: c, listener: &countingListener{Listener: freeListener(t)}}
	cfg := config(t, c)
	cfg.Listener = w.listener
	cfg.Intercept(w.count)
	w.step("join", func() { w.j = joinWith(t, c, cfg) })
	w.step("creation", func() {
		w.each(wideTopics, func(ctx context.Context, i int) error {
			_, err := w.j.CreateTopic(ctx, mirror.TopicSpec{Name: wideName(i * widePartitions).Topic, Partitions: widePartitions})
			return err
		})
	})
	w.openLogs()
	expected := make([][]byte, wideAll)
	w.step("replication of one batch each", func() {
		w.each(wideAll, func(ctx context.Context, i int) error {
			l := w.logs[i]
			expected[i] = data(0, l.LeaderEpoch(), 5, fmt.Sprint("wide", i))
			if err := l.Append(ctx, l.LeaderEpoch(), expected[i]); err != nil {
				return err
			}
			return l.AwaitReplicated(ctx, l.End())
		})
	})
	for i := range wideAll {
		if got := c.WaitSameSegments(wideName(i).Topic, wideName(i).Partition, c.Brokers()...); !bytes.Equal(got, expected[i]) {
			t.Fatalf("the followers hold %d bytes of %v, %d were appended", len(got), wideName(i), len(expected[i]))
		}
	}
	w.idle()
	open := func(ctx context.Context, i int) error { return w.logs[i].Open(ctx) }
	w.step("hand-over", func() { w.each(wideAll, open) })
	w.owned(mirror.OwnerOpen)
	w.step("take-over", func() {
		w.each(wideAll, func(ctx context.Context, i int) error { return w.logs[i].CloseForWrites(ctx) })
	})
	w.owned(mirror.OwnerOurs)
	w.j.Close()
	same, err := net.Listen("tcp", w.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	w.listener = &countingListener{Listener: same}
	cfg.Listener = w.listener
	w.step("re-join, until it serves", func() { w.j = joinWith(t, c, cfg) })
	w.openLogs()
	w.step("re-join, from there until it can be stopped", func() {
		w.each(wideAll, func(ctx context.Context, i int) error {
			if l := w.logs[i]; l.End() != 5 {
				return fmt.Errorf("%v ends at %d", wideName(i), l.End())
			}
			return w.logs[i].AwaitReplicated(ctx, 5)
		})
	})
	w.step("hand-over after the re-join", func() { w.each(wideAll, open) })
	w.owned(mirror.OwnerOpen)
	w.step("leaving", func() {
		if err := w.j.Leave(bound(t)); err != nil {
			t.Fatalf("leave: %v", err)
		}
	})
}

// wide is one process with many partitions.
type wide struct {
	t        *testing.T
	c        *kafkatest.Cluster
	j        *joined
	logs     []mirror.Log
	listener *countingListener

	mu   sync.Mutex
	sent map[string]int
}

func wideName(i int) mirror.TopicPartition {
	return mirror.TopicPartition{Topic: fmt.Sprintf("wide-%d", i/widePartitions), Partition: int32(i % widePartitions)}
}

func (w *wide) count(_ context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error) {
	w.mu.Lock()
	w.sent[kmsg.NameForKey(req.Key())]++
	w.mu.Unlock()
	return send()
}

// step runs one part, prints what it took, and checks how many requests it sent.
func (w *wide) step(what string, f func()) {
	w.t.Helper()
	w.mu.Lock()
	w.sent = map[string]int{}
	w.mu.Unlock()
	began, cpu := time.Now(), ownTime(w.t)
	f()
	took := time.Since(began)
	w.mu.Lock()
	sent := maps.Clone(w.sent)
	w.mu.Unlock()
	w.t.Logf("%s: %v, %v of this process's time; requests %v", what, took.Round(time.Millisecond), (ownTime(w.t) - cpu).Round(time.Millisecond), sent)
	// They come with time, not with partitions.
	beats := int(took / kraft.DefaultHeartbeatInterval)
	for _, kind := range slices.Sorted(maps.Keys(sent)) {
		switch kind {
		case "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "Metadata", "ApiVersions", "DescribeConfigs", "FetchSnapshot":
		case "BrokerHeartbeat":
			// A fenced process beats faster until it is let in.
			if n := sent[kind]; n > wideRequests+2*beats+20 {
				w.t.Errorf("%s: %d heartbeats in %v", what, n, took)
			}
		default:
			if n := sent[kind]; n > wideRequests {
				w.t.Errorf("%s: %d requests %s for %d partitions, at most %d are needed", what, n, kind, wideAll, wideRequests)
			}
		}
	}
}

// each calls f for all at once.
func (w *wide) each(n int, f func(ctx context.Context, i int) error) {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.t.Context(), 90*time.Second)
	defer stop()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(ctx, i) })
	}
	all.Wait()
	if errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(errs) > 0 {
		w.t.Fatalf("%d of %d failed: %v", len(errs), n, errors.Join(errs[:min(3, len(errs))]...))
	}
}

func (w *wide) openLogs() {
	w.t.Helper()
	w.logs = make([]mirror.Log, wideAll)
	w.each(wideAll, func(ctx context.Context, i int) (err error) {
		w.logs[i], err = w.j.OpenLog(ctx, wideName(i))
		return err
	})
}

func (w *wide) owned(want mirror.Ownership) {
	w.t.Helper()
	w.each(wideAll, func(ctx context.Context, i int) error {
		owner, _, err := w.logs[i].Owner(ctx)
		if err == nil && (owner != want || w.logs[i].End() != 5) {
			err = fmt.Errorf("%v: owner %v, end %d", wideName(i), owner, w.logs[i].End())
		}
		return err
	})
}

// idle prints what partitions cost that nothing happens to, and checks that followers need not name them in each fetch (KIP-227).
func (w *wide) idle() {
	w.t.Helper()
	// Everything is quiet when followers have been told everything: the next fetches are empty ones.
	eventually(w.t, "quiet followers", func() bool {
		n, b := w.listener.requests.Load(), w.listener.bytes.Load()
		return n > 0 && eventuallyMore(w.t, w.listener, n) && w.listener.bytes.Load()-b < 1000
	})
	before, cpu, began := w.listener.requests.Load(), ownTime(w.t), time.Now()
	bytesBefore, told := w.listener.bytes.Load(), w.listener.sent.Load()
	const some = 20
	eventually(w.t, "some fetches", func() bool { return w.listener.requests.Load() >= before+some })
	n, took, used := w.listener.requests.Load()-before, time.Since(began), ownTime(w.t)-cpu
	received, sent := w.listener.bytes.Load()-bytesBefore, w.listener.sent.Load()-told
	w.t.Logf("idle: %d partitions cost %.1f requests of %d followers a second, %.0f bytes in and %.0f out each, and %.2f %% of a core", wideAll, float64(n)/took.Seconds(), len(w.c.Brokers()),
		float64(received)/float64(n), float64(sent)/float64(n), 100*used.Seconds()/took.Seconds())
	if each := received / n; each > 500 {
		w.t.Errorf("an idle fetch has %d bytes: followers name partitions although nothing happens", each)
	}
}

func eventuallyMore(t *testing.T, l *countingListener, than int64) bool {
	eventually(t, "two more requests", func() bool { return l.requests.Load() >= than+2 })
	return true
}

// ownTime is what this process has used so far, user and system.
func ownTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// countingListener counts the requests that come to it and their bytes, and the bytes of answers.
type countingListener struct {
	net.Listener
	requests, bytes, sent atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &requestCounting{Conn: c, l: l}, nil
}

// requestCounting follows the lengths in front of requests. It is read by one goroutine.
type requestCounting struct {
	net.Conn
	l      *countingListener
	length []byte // of the next request, as far as it came
	rest   int    // of the request that is coming
}

func (c *requestCounting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.l.bytes.Add(int64(n))
	for b := b[:n]; len(b) > 0; {
		if c.rest > 0 {
			skip := min(c.rest, len(b))
			c.rest, b = c.rest-skip, b[skip:]
			continue
		}
		c.length, b = append(c.length, b[0]), b[1:]
		if len(c.length) == 4 {
			c.rest, c.length = int(binary.BigEndian.Uint32(c.length)), nil
			c.l.requests.Add(1)
		}
	}
	return n, err
}

func (c *requestCounting) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.l.sent.Add(int64(n))
	return n, err
}
