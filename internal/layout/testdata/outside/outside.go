// Package outside implements a Log, a Source and a StateStore from outside the module: their signatures must need nothing that is internal.
package outside

import (
	"context"
	"errors"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

var errAbsent = errors.New("outside: not built")

// Log is a log that accepts nothing.
type Log struct{ end int64 }

var _ mirror.Log = (*Log)(nil)

func (l *Log) Start() int64       { return 0 }
func (l *Log) End() int64         { return l.end }
func (l *Log) Replicated() int64  { return l.end }
func (l *Log) LeaderEpoch() int32 { return 0 }

func (l *Log) Append(ctx context.Context, leaderEpoch int32, batches []byte) error {
	return errAbsent
}
func (l *Log) Read(ctx context.Context, from int64, max int) ([]byte, error)     { return nil, nil }
func (l *Log) TruncateTo(ctx context.Context, offset int64) (int64, error)       { return l.end, nil }
func (l *Log) ResetTo(ctx context.Context, start int64) error                    { return nil }
func (l *Log) RaiseStart(ctx context.Context, start int64) error                 { return nil }
func (l *Log) AwaitReplicated(ctx context.Context, offset int64) error           { return nil }
func (l *Log) AwaitTruncated(ctx context.Context) error                          { return nil }
func (l *Log) Open(ctx context.Context) error                                    { return nil }
func (l *Log) CloseForWrites(ctx context.Context) error                          { return nil }
func (l *Log) Owner(ctx context.Context) (o mirror.Ownership, e int32, er error) { return }

// Source is a cluster without topics.
type Source struct{}

var _ mirror.Source = Source{}

func (Source) Cluster(ctx context.Context) (mirror.ClusterInfo, error) {
	return mirror.ClusterInfo{ID: "outside", Brokers: []mirror.Broker{{ID: 1, Host: "localhost", Port: 9092}}}, nil
}
func (Source) Topics(ctx context.Context, names ...string) ([]mirror.SourceTopic, error) {
	return nil, nil
}
func (Source) Offsets(ctx context.Context, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	return nil, &mirror.SourceError{Code: mirror.SourceUnknownTopic, Operation: "offsets", Err: errAbsent}
}
func (Source) OffsetsAt(ctx context.Context, at time.Time, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	return nil, nil
}
func (Source) EndOffsetForEpoch(ctx context.Context, tp mirror.TopicPartition, leaderEpoch, epoch int32) (mirror.EpochEnd, error) {
	return mirror.EpochEnd{Epoch: -1, End: -1}, nil
}
func (Source) OpenFetcher(ctx context.Context, broker int32, options mirror.FetchOptions) (mirror.Fetcher, error) {
	return fetcher{}, nil
}
func (Source) Close() error { return nil }

type fetcher struct{}

func (fetcher) Want(position mirror.FetchPosition)                               {}
func (fetcher) Forget(tp mirror.TopicPartition)                                  {}
func (fetcher) Fetch(ctx context.Context) (p []mirror.FetchedPartition, e error) { return }
func (fetcher) Close() error                                                     { return nil }

// Store forgets everything.
type Store struct{}

var (
	_ statemachine.StateStore = Store{}
	_ statemachine.Session    = session{}
)

func (Store) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	return session{}, nil
}
func (Store) Load(ctx context.Context, each func(statemachine.Entry) error) error { return nil }
func (Store) Close() error                                                        { return nil }

type session struct{}

func (session) Write(ctx context.Context, writes []statemachine.Write) ([]statemachine.WriteResult, error) {
	results := make([]statemachine.WriteResult, len(writes))
	for i := range results {
		results[i].Err = statemachine.ErrFenced
	}
	return results, nil
}
func (session) Load(ctx context.Context, each func(statemachine.Entry) error) error { return nil }
func (session) Close() error                                                        { return nil }
