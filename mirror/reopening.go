package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// reopening is the Source of a mirror whose connection is in its settings: it opens the source when it is first needed, and anew after a connection setting was altered. What is
// under way on the old one then ends with an error, as if the connection had broken, and everybody goes on with the new one (spec §1.5).
type reopening struct {
	mirror string
	open   func(ctx context.Context, settings Settings) (Source, error)
	turn   semaphore // one opens at a time

	mu       sync.Mutex
	settings Settings
	current  Source
	closed   bool
}

func newReopening(mirror string, open func(context.Context, Settings) (Source, error)) *reopening {
	return &reopening{mirror: mirror, open: open, turn: make(semaphore, 1)}
}

// use takes settings; those that do not differ in what a connection is made of change nothing.
func (r *reopening) use(settings Settings) (changed bool) {
	r.mu.Lock()
	had := r.settings
	r.settings = maps.Clone(settings)
	old := r.current
	changed = had != nil && ReconnectNeeded(had, settings)
	if changed {
		r.current = nil
	}
	r.mu.Unlock()
	if changed && old != nil {
		old.Close()
	}
	return changed
}

func (r *reopening) get(ctx context.Context) (Source, error) {
	if err := r.turn.acquire(ctx); err != nil {
		return nil, err
	}
	defer r.turn.release()
	r.mu.Lock()
	current, settings, closed := r.current, r.settings, r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return nil, ErrClosed
	case current != nil:
		return current, nil
	case settings == nil:
		return nil, &SourceError{Code: SourceUnreachable, Operation: "open", Err: fmt.Errorf("mirror %s has no settings: nobody has created it", r.mirror), Advice: "create the mirror"}
	}
	opened, err := r.open(ctx, maps.Clone(settings))
	if err != nil {
		var known *SourceError
		if errors.As(err, &known) {
			return nil, err
		}
		return nil, &SourceError{Code: SourceUnreachable, Operation: "open", Err: err, Advice: "correct the mirror's connection settings"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || ReconnectNeeded(settings, r.settings) {
		opened.Close()
		return nil, &SourceError{Code: SourceUnreachable, Operation: "open", Err: errors.New("the connection settings were altered just now")}
	}
	r.current = opened
	return opened, nil
}

func (r *reopening) Cluster(ctx context.Context) (ClusterInfo, error) {
	s, err := r.get(ctx)
	if err != nil {
		return ClusterInfo{}, err
	}
	return s.Cluster(ctx)
}

func (r *reopening) Topics(ctx context.Context, names ...string) ([]SourceTopic, error) {
	s, err := r.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.Topics(ctx, names...)
}

func (r *reopening) Offsets(ctx context.Context, partitions []TopicPartition) (map[TopicPartition]SourceOffsets, error) {
	s, err := r.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.Offsets(ctx, partitions)
}

func (r *reopening) OffsetsAt(ctx context.Context, at time.Time, partitions []TopicPartition) (map[TopicPartition]SourceOffsets, error) {
	s, err := r.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.OffsetsAt(ctx, at, partitions)
}

func (r *reopening) EndOffsetForEpoch(ctx context.Context, tp TopicPartition, leaderEpoch, epoch int32) (EpochEnd, error) {
	s, err := r.get(ctx)
	if err != nil {
		return EpochEnd{}, err
	}
	return s.EndOffsetForEpoch(ctx, tp, leaderEpoch, epoch)
}

func (r *reopening) OpenFetcher(ctx context.Context, broker int32, options FetchOptions) (Fetcher, error) {
	s, err := r.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.OpenFetcher(ctx, broker, options)
}

// reader is the source that is open, if it can be asked what it recorded.
func (r *reopening) reader(ctx context.Context) (LastMirrorEpochReader, error) {
	s, err := r.get(ctx)
	if err != nil {
		return nil, err
	}
	reader, ok := s.(LastMirrorEpochReader)
	if !ok {
		return nil, ErrUnsupported
	}
	return reader, nil
}

func (r *reopening) LastMirrorEpochs(ctx context.Context, sourceClusterID string, partitions []TopicPartition) (map[TopicPartition]statemachine.LastMirrorEpoch, error) {
	reader, err := r.reader(ctx)
	if err != nil {
		return nil, err
	}
	return reader.LastMirrorEpochs(ctx, sourceClusterID, partitions)
}

func (r *reopening) MirrorsOf(ctx context.Context, partitions []TopicPartition) ([]SourceMirror, error) {
	reader, err := r.reader(ctx)
	if err != nil {
		return nil, err
	}
	return reader.MirrorsOf(ctx, partitions)
}

func (r *reopening) LocalStarts(ctx context.Context, partitions []TopicPartition) (map[TopicPartition]int64, error) {
	s, err := r.get(ctx)
	if err != nil {
		return nil, err
	}
	reader, ok := s.(LocalStartReader)
	if !ok {
		return nil, ErrUnsupported
	}
	return reader.LocalStarts(ctx, partitions)
}

// Certificates are those of the source that is open; none is opened for them.
func (r *reopening) Certificates() []Certificate {
	r.mu.Lock()
	current := r.current
	r.mu.Unlock()
	if reader, ok := current.(CertificateReader); ok {
		return reader.Certificates()
	}
	return nil
}

func (r *reopening) Close() error {
	r.mu.Lock()
	old := r.current
	r.current, r.closed = nil, true
	r.mu.Unlock()
	if old == nil {
		return nil
	}
	return old.Close()
}
