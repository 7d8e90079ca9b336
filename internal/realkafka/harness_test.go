package realkafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

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
	link *lives.Link

	mu     sync.Mutex
	events []mirror.Event
}

// open starts a mirror of the cluster. It is closed when the test ends.
func open(t *testing.T, c *kafkatest.Cluster, change ...func(*setup)) *running {
	t.Helper()
	r := &running{t: t, c: c, link: lives.NewLink()}
	s := setup{
		mirror: mirror.Config{
			Name: "m", Sink: mirror.Discard, RefreshInterval: 500 * time.Millisecond, FetchBackoff: 100 * time.Millisecond, CallBound: 3 * time.Second,
			Fetch: mirror.FetchOptions{MaxWait: 100 * time.Millisecond}, Retry: mirror.RetryPolicy{Initial: 200 * time.Millisecond, Max: time.Second}, Seed: 1,
		},
		source: kafkasource.Config{Seeds: c.Bootstrap(), Bound: 3 * time.Second, ClientOptions: []kgo.Opt{kgo.Dialer(r.link.Dial)}},
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
	lives.Eventually(r.t, what, func() (bool, string) {
		s := r.Status()
		p = lives.One(s, topic, partition)
		return ok(p), lives.Show(s)
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
