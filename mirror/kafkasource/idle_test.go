package kafkasource

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// watched counts what a cluster is asked.
type watched struct {
	mu        sync.Mutex
	requests  map[string]int // by name
	partition []string       // requests that named a partition
}

func (w *watched) see(k kmsg.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := kmsg.NameForKey(k.Key())
	w.requests[name]++
	named := 0
	switch r := k.(type) {
	case *kmsg.FetchRequest:
		for _, t := range r.Topics {
			named += len(t.Partitions)
		}
		named += len(r.ForgottenTopics)
	case *kmsg.ListOffsetsRequest:
		named = len(r.Topics)
	case *kmsg.OffsetForLeaderEpochRequest:
		named = len(r.Topics)
	}
	if named > 0 {
		w.partition = append(w.partition, fmt.Sprintf("%s: %d", name, named))
	}
}

func (w *watched) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests, w.partition = map[string]int{}, nil
}

// of counts requests that refreshes make: all but the long polls of the fetcher.
func (w *watched) of(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests[name]
}

// A mirror of 5,000 partitions that has nothing to do asks its source no more than one of five.
func TestAnIdleRefreshNamesNoPartition(t *testing.T) {
	const topics, partitions, refreshes = 50, 100, 3
	var seeds []kfake.Opt
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("t%02d", i))
	}
	seeds = append(seeds, kfake.SeedTopics(partitions, names...))
	c := cluster(t, seeds...)
	w := &watched{}
	w.reset()
	c.Control(func(k kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		w.see(k)
		return nil, nil, false
	})
	src, err := New(Config{Seeds: c.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst := memlog.New(memlog.Config{ClusterID: "standby"})
	defer dst.Close()
	m, err := mirror.Open(t.Context(), mirror.Config{
		Name: "m", Source: src, Destination: dst, Store: dst.StateStore(), Control: dst.Control(), Sink: mirror.Discard, RefreshInterval: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Admin().Start(t.Context(), names, mirror.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	inStep := func() bool {
		n := 0
		for _, topic := range m.Status().Topics {
			for _, p := range topic.Partitions {
				if p.State == statemachine.Mirroring && p.LagOffsets == 0 {
					n++
				}
			}
		}
		return n == topics*partitions
	}
	poll(t, inStep)
	// The last partitions enter the fetch session with the next request; wait until one names none.
	poll(t, func() bool {
		w.reset()
		poll(t, func() bool { return w.of("Fetch") >= 2 })
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.partition) == 0
	})
	w.reset()
	poll(t, func() bool { return w.of("Metadata") > refreshes })
	w.mu.Lock()
	defer w.mu.Unlock()
	all := 0
	for name, n := range w.requests {
		if name != "Fetch" {
			all += n
		}
	}
	t.Logf("%d refreshes of %d partitions: %v", w.requests["Metadata"], topics*partitions, w.requests)
	if all > 20*refreshes || len(w.partition) > 0 {
		t.Errorf("%d requests besides fetches, these named partitions: %v", all, w.partition)
	}
}

// poll waits until ok says so, at most a minute.
func poll(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatal("a minute has passed")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
