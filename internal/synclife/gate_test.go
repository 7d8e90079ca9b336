package synclife_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// gated is a source whose records can be held back, while all else that is asked of it is answered: the copy is behind.
type gated struct {
	*kafkasource.Source

	mu   sync.Mutex
	open chan struct{} // closed while records go through
}

func newGated(t *testing.T, c *kafkatest.Cluster, more ...kgo.Opt) *gated {
	t.Helper()
	s, err := kafkasource.New(kafkasource.Config{Seeds: c.Bootstrap(), Bound: 3 * time.Second, ClientOptions: more})
	if err != nil {
		t.Fatal(err)
	}
	g := &gated{Source: s, open: make(chan struct{})}
	close(g.open)
	return g
}

// hold lets no record through that was not delivered before.
func (g *gated) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gated) letGo() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

func (g *gated) gate() chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// OpenFetcher opens a fetcher behind the gate.
func (g *gated) OpenFetcher(ctx context.Context, broker int32, options mirror.FetchOptions) (mirror.Fetcher, error) {
	f, err := g.Source.OpenFetcher(ctx, broker, options)
	if err != nil {
		return nil, err
	}
	return &gatedFetcher{f, g}, nil
}

type gatedFetcher struct {
	mirror.Fetcher
	g *gated
}

// Fetch is held on its way back.
func (f *gatedFetcher) Fetch(ctx context.Context) ([]mirror.FetchedPartition, error) {
	got, err := f.Fetcher.Fetch(ctx)
	select {
	case <-f.g.gate():
		return got, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// watched is a destination whose group writes are seen before they are made.
type watched struct {
	*kraft.Destination
	before func(group mirror.Group)
}

// WriteGroupOffsets tells of the write, then makes it.
func (w *watched) WriteGroupOffsets(ctx context.Context, group mirror.Group, offsets map[mirror.TopicPartition]mirror.GroupOffset) (map[mirror.TopicPartition]error, error) {
	w.before(group)
	return w.Destination.WriteGroupOffsets(ctx, group, offsets)
}
