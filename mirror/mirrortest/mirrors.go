package mirrortest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/statemachine"
)

// source is a cluster as a mirror reads it: by the Kafka protocol over the link. What mirrors into it recorded is asked for in memory, where a real one has it in its topic __mirror_state.
type source struct {
	*kafkasource.Source
	cluster *Cluster
	link    *Link
}

var _ mirror.LastMirrorEpochReader = (*source)(nil)

func (s *source) reach(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, callBound)
	defer stop()
	err := s.link.passes(ctx)
	if err == nil {
		err = s.cluster.alive()
	}
	if err != nil {
		return &mirror.SourceError{Code: mirror.SourceUnreachable, Operation: "describe mirrors", Err: err}
	}
	return nil
}

// LastMirrorEpochs has what a mirror into the cluster recorded when it was stopped.
func (s *source) LastMirrorEpochs(ctx context.Context, sourceClusterID string, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]statemachine.LastMirrorEpoch, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	return s.cluster.memory.LastMirrorEpochs(ctx, sourceClusterID, partitions)
}

// MirrorsOf has the mirrors into the cluster.
func (s *source) MirrorsOf(ctx context.Context, partitions []mirror.TopicPartition) ([]mirror.SourceMirror, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	return s.cluster.memory.MirrorsOf(ctx, partitions)
}

// The mirror's times: short, because everything is on one machine.
const (
	callBound     = 2 * time.Second // of one call
	fetchWait     = 20 * time.Millisecond
	refresh       = 30 * time.Millisecond // groups, settings and topics are looked at so often
	fetchBackoff  = 2 * time.Millisecond
	retryInitial  = 2 * time.Millisecond
	retryMax      = 50 * time.Millisecond
	replicaWait   = time.Second
	watchdogAfter = 10 * time.Second
)

// running is one mirror with what belongs to it.
type running struct {
	*mirror.Mirror
	source   *source
	from, to *Cluster
	sink     *sink
}

// run opens the mirror from one cluster into the other.
func run(ctx context.Context, name string, from, to *Cluster, link *Link, seed uint64, onEvent func(mirror.Event)) (*running, error) {
	client, err := kafkasource.New(kafkasource.Config{Seeds: from.Addresses(), ClientOptions: link.options(), Bound: callBound})
	if err != nil {
		return nil, err
	}
	r := &running{source: &source{client, from, link}, from: from, to: to, sink: &sink{}}
	r.Mirror, err = mirror.Open(ctx, mirror.Config{
		Name: name, Source: r.source, Destination: to.destination(), Store: &states{to.memory.StateStore(), to}, Control: to.memory.Control(), Sink: r.sink, SourceClusterID: from.id,
		Retry: mirror.RetryPolicy{Initial: retryInitial, Max: retryMax}, Fetch: mirror.FetchOptions{MaxWait: fetchWait},
		RefreshInterval: refresh, FetchBackoff: fetchBackoff, CallBound: callBound, ReplicaWait: replicaWait, WatchdogAfter: watchdogAfter, MaxBatch: mostBatchBytes, Seed: seed, OnEvent: onEvent,
	})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return r, nil
}

func (r *running) close() error {
	return errors.Join(r.Mirror.Close(), r.source.Close())
}

// states is where a mirror into a cluster keeps its states: in that cluster, which can be killed.
type states struct {
	statemachine.StateStore
	cluster *Cluster
}

func (s *states) Open(ctx context.Context, owner string) (session statemachine.Session, err error) {
	err = s.cluster.call(ctx, func(ctx context.Context) error {
		session, err = s.StateStore.Open(ctx, owner)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &stateSession{session, s.cluster}, nil
}

func (s *states) Load(ctx context.Context, each func(statemachine.Entry) error) error {
	return s.cluster.call(ctx, func(ctx context.Context) error { return s.StateStore.Load(ctx, each) })
}

type stateSession struct {
	statemachine.Session
	cluster *Cluster
}

func (s *stateSession) Write(ctx context.Context, writes []statemachine.Write) (results []statemachine.WriteResult, err error) {
	err = s.cluster.call(ctx, func(ctx context.Context) error {
		results, err = s.Session.Write(ctx, writes)
		return err
	})
	return results, err
}

func (s *stateSession) Load(ctx context.Context, each func(statemachine.Entry) error) error {
	return s.cluster.call(ctx, func(ctx context.Context) error { return s.Session.Load(ctx, each) })
}

// sink keeps what is given up.
type sink struct {
	mu   sync.Mutex
	kept []dropped
}

type dropped struct {
	mirror.TopicPartition
	from    int64
	batches []byte
}

// Dropped is called before anything is cut; the same range may come twice.
func (s *sink) Dropped(_ context.Context, tp mirror.TopicPartition, from, _ int64, batches []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = slices.DeleteFunc(s.kept, func(d dropped) bool { return d.TopicPartition == tp && d.from == from })
	s.kept = append(s.kept, dropped{tp, from, slices.Clone(batches)})
	return nil
}

// take returns what was given up since the last time, in order.
func (s *sink) take() []dropped {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.kept
	s.kept = nil
	slices.SortStableFunc(kept, func(a, b dropped) int { return byName(a.TopicPartition, b.TopicPartition) })
	return kept
}
