package kraft

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// TestRememberedIsSharedByPeers: two processes change what is remembered of one topic, of different partitions: neither takes the other's away, and each sees the other's.
func TestRememberedIsSharedByPeers(t *testing.T) {
	log := keyedlog.NewMemory()
	a, b := newRemembered(log, time.Second), newRemembered(log.Again(), time.Second)
	id := mirror.TopicID{1}
	ctx := t.Context()
	cut := func(partition int32) func(*memory) {
		return func(m *memory) {
			if m.Unconfirmed == nil {
				m.Unconfirmed = map[int32]map[int32]int64{}
			}
			m.Unconfirmed[partition] = map[int32]int64{1: 10}
		}
	}
	if err := a.change(ctx, "orders", id, cut(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.of(ctx, "orders", id); err != nil { // has a cache now
		t.Fatal(err)
	}
	if err := a.change(ctx, "orders", id, cut(1)); err != nil {
		t.Fatal(err)
	}
	if err := b.change(ctx, "orders", id, cut(2)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*remembered{a, b, newRemembered(log.Again(), time.Second)} {
		m, err := r.of(ctx, "orders", id)
		if err != nil || len(m.Unconfirmed) != 3 {
			t.Errorf("%v is remembered, %v", m.Unconfirmed, err)
		}
	}
	if m, err := a.of(ctx, "orders", mirror.TopicID{2}); err != nil || !m.empty() {
		t.Errorf("a topic that was made again has %v, %v", m, err)
	}
	if err := a.change(ctx, "orders", id, func(m *memory) { m.Unconfirmed = nil }); err != nil {
		t.Fatal(err)
	}
	if err := log.Read(ctx, func(v keyedlog.View) error {
		if _, ok := v.Get(rememberedKey("orders")); ok {
			t.Error("nothing is remembered, and the record is there")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestRememberedRefusesANewerRecord: what cannot be read is not written over.
func TestRememberedRefusesANewerRecord(t *testing.T) {
	log := keyedlog.NewMemory()
	ctx := t.Context()
	if err := log.Update(ctx, func(keyedlog.View) ([]keyedlog.Change, error) {
		return []keyedlog.Change{{Key: rememberedKey("orders"), Value: []byte(`{"version":2}`)}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	r := newRemembered(log, time.Second)
	if _, err := r.all(ctx); err == nil {
		t.Error("a newer record was read")
	}
	if err := r.change(ctx, "orders", mirror.TopicID{1}, func(*memory) {}); err == nil {
		t.Error("a newer record was written over")
	}
}

// TestGatherSendsTogether: what is asked while a request is under way goes together in the next one, each question gets its own answer, and a question whose context ends goes.
func TestGatherSendsTogether(t *testing.T) {
	first, release := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var sizes []int
	g := gather[int, int]{most: 100, bound: time.Minute, send: func(_ context.Context, qs []int) ([]int, error) {
		mu.Lock()
		sizes = append(sizes, len(qs))
		n := len(sizes)
		mu.Unlock()
		if n == 1 {
			close(first)
			<-release
		}
		out := make([]int, len(qs))
		for i, q := range qs {
			out[i] = 2 * q
			if q == 7 {
				return nil, errors.New("seven")
			}
		}
		return out, nil
	}}
	var wg sync.WaitGroup
	ask := func(q, want int) {
		wg.Go(func() {
			if a, err := g.do(t.Context(), q); err != nil || a != want {
				t.Errorf("%d was answered with %d, %v", q, a, err)
			}
		})
	}
	ask(1, 2)
	<-first
	ended, stop := context.WithCancel(t.Context())
	stop()
	if _, err := g.do(ended, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("a question whose context has ended: %v", err)
	}
	for q := 10; q < 60; q++ {
		ask(q, 2*q)
	}
	for { // until all of them wait
		g.mu.Lock()
		waiting := len(g.queue)
		g.mu.Unlock()
		if waiting >= 50 {
			break
		}
	}
	close(release)
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(sizes) != 2 {
		t.Errorf("%d requests for what one could ask: %v", len(sizes), sizes)
	}
}
