package realkafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// eventually asks until done, with short pauses: brokers have no way to call back.
func eventually(t *testing.T, what string, done func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(bound)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, now := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s; %s", bound, what, now)
		}
		<-tick.C
	}
}

// setup is what a mirror under test is made of.
type setup struct {
	mirror mirror.Config
	source kafkasource.Config
	memory memlog.Config
}

// running is a mirror from a real cluster into memory, with everything it told.
type running struct {
	*mirror.Mirror
	t    *testing.T
	c    *kafkatest.Cluster
	src  *kafkasource.Source
	dst  *memlog.Cluster
	link *link

	mu     sync.Mutex
	events []mirror.Event
}

// open starts a mirror of the cluster. It is closed when the test ends.
func open(t *testing.T, c *kafkatest.Cluster, change ...func(*setup)) *running {
	t.Helper()
	r := &running{t: t, c: c, link: newLink()}
	s := setup{
		mirror: mirror.Config{
			Name: "m", Sink: mirror.Discard, RefreshInterval: 500 * time.Millisecond, FetchBackoff: 100 * time.Millisecond, CallBound: 3 * time.Second,
			Fetch: mirror.FetchOptions{MaxWait: 100 * time.Millisecond}, Retry: mirror.RetryPolicy{Initial: 200 * time.Millisecond, Max: time.Second}, Seed: 1,
		},
		source: kafkasource.Config{Seeds: c.Bootstrap(), Bound: 3 * time.Second, ClientOptions: []kgo.Opt{kgo.Dialer(r.link.dial)}},
		memory: memlog.Config{ClusterID: "memory", Replicas: 3},
	}
	for _, f := range change {
		f(&s)
	}
	src, err := kafkasource.New(s.source)
	if err != nil {
		t.Fatal(err)
	}
	r.src, r.dst = src, memlog.New(s.memory)
	s.mirror.Source, s.mirror.Destination, s.mirror.Store = r.src, r.dst, r.dst.StateStore()
	s.mirror.OnEvent = func(e mirror.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	}
	if r.Mirror, err = mirror.Open(t.Context(), s.mirror); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	return r
}

func (r *running) end() {
	began := time.Now()
	if err := errors.Join(r.Close(), r.src.Close(), r.dst.Close()); err != nil {
		r.t.Errorf("closing: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		r.t.Errorf("closing took %v", took)
	}
	if r.t.Failed() {
		for _, e := range r.told() {
			r.t.Logf("%s %v", e.Where().Time.Format("05.000"), e)
		}
	}
}

func (r *running) told() []mirror.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]mirror.Event(nil), r.events...)
}

// told lists the events of one type, in order.
func told[E mirror.Event](r *running) []E {
	var some []E
	for _, e := range r.told() {
		if x, ok := e.(E); ok {
			some = append(some, x)
		}
	}
	return some
}

func (r *running) start(topics ...string) {
	r.t.Helper()
	if _, err := r.Admin().Start(r.t.Context(), topics, mirror.StartOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) pause(topic string) {
	r.t.Helper()
	if _, err := r.Admin().Pause(r.t.Context(), []string{topic}, mirror.PauseOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.until("paused", topic, 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Paused })
}

func (r *running) resume(topic string) {
	r.t.Helper()
	if _, err := r.Admin().Resume(r.t.Context(), []string{topic}, mirror.ResumeOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) failover() mirror.FailoverReport {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 15*time.Second)
	defer cancel()
	report, err := r.Failover(ctx, mirror.FailoverOptions{})
	r.t.Log(report)
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

// until waits for one partition.
func (r *running) until(what, topic string, partition int32, ok func(mirror.PartitionStatus) bool) mirror.PartitionStatus {
	r.t.Helper()
	var p mirror.PartitionStatus
	eventually(r.t, what, func() (bool, string) {
		s := r.Status()
		p = one(s, topic, partition)
		return ok(p), show(s)
	})
	return p
}

// inStep waits until the copy of a partition ends at end and nothing is missing.
func (r *running) inStep(topic string, partition int32, end int64) mirror.PartitionStatus {
	r.t.Helper()
	return r.until(fmt.Sprintf("%s-%d is copied up to %d", topic, partition, end), topic, partition, func(p mirror.PartitionStatus) bool {
		return p.State == statemachine.Mirroring && p.End == end && p.LagOffsets == 0 && p.SourceEnd == end
	})
}

func (r *running) untilFailed(topic string, words ...string) mirror.PartitionStatus {
	r.t.Helper()
	p := r.until("failed", topic, 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Failed })
	for _, w := range words {
		if !strings.Contains(p.Reason, w) {
			r.t.Errorf("the reason %q does not say %q", p.Reason, w)
		}
	}
	return p
}

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

func show(s mirror.Status) string {
	var b strings.Builder
	for _, t := range s.Topics {
		fmt.Fprintf(&b, "\n%s %s err=%v", t.Topic, t.MirrorName, t.Err)
		for _, p := range t.Partitions {
			fmt.Fprintf(&b, "\n  %d %s %s [%d,%d) replicated=%d epoch=%d source=[%d,%d) leader=%d epoch=%d lag=%d reason=%q attempt=%d owner=%s", p.Partition, p.State, p.Step,
				p.Start, p.End, p.Replicated, p.LeaderEpoch, p.SourceStart, p.SourceEnd, p.SourceLeader, p.SourceLeaderEpoch, p.LagOffsets, p.Reason, p.RetryAttempt, p.Owner)
		}
	}
	return b.String()
}

// link is the mirror's way to the source: it can be cut and mended.
type link struct {
	mu     sync.Mutex
	broken bool
	conns  map[net.Conn]bool
}

func newLink() *link { return &link{conns: map[net.Conn]bool{}} }

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		c.Close()
		return nil, errors.New("the link is cut")
	}
	l.conns[c] = true
	return c, nil
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for c := range l.conns {
		c.Close()
	}
	clear(l.conns)
}
