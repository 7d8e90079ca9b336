package kraft

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kraftclient"
)

// metadata follows __cluster_metadata as an observer (KIP-595): replica id −1, so the quorum does not know of it. Everything that this package believes of the cluster comes from
// here: leaders, partition epochs, in-sync replicas, configs, who is registered. An answer to a request of ours says only whether it was accepted.
type metadata struct {
	client      *kraftclient.Client
	asker       *kraftclient.Client // for questions that must not stand behind the long poll
	controllers int
	onChange    func([]clustermetadata.Change) // called in order, without the lock, before waiters are woken
	onDead      func(error)                    // called once, without the lock

	newest gather[struct{}, int64] // the high watermark now

	mu      sync.Mutex
	image   *clustermetadata.Image
	at      int           // the controller that is followed, by its index
	epoch   int32         // of the quorum
	changed chan struct{} // closed and replaced at every change
	trouble error         // why nothing comes, nil if it does
	dead    error         // the image cannot be relied on any more
}

const (
	metadataTopic    = "__cluster_metadata"
	metadataMaxBytes = 8 << 20
	metadataWait     = 500 * time.Millisecond
)

// metadataTopicID is the id of __cluster_metadata (Kafka: Uuid.METADATA_TOPIC_ID).
var metadataTopicID = [16]byte{15: 1}

func newMetadata(client, asker *kraftclient.Client, controllers int, bound time.Duration, onChange func([]clustermetadata.Change)) *metadata {
	m := &metadata{client: client, asker: asker, controllers: controllers, onChange: onChange, image: clustermetadata.New(), changed: make(chan struct{})}
	m.newest = gather[struct{}, int64]{most: 1 << 20, bound: bound, send: m.askNewest}
	return m
}

// run follows the log until ctx ends or a record cannot be understood.
func (m *metadata) run(ctx context.Context) {
	at, epoch := 0, int32(0)
	for ctx.Err() == nil {
		next, err := m.fetch(ctx, at, &epoch)
		at = next
		m.mu.Lock()
		m.trouble, m.at, m.epoch = err, at, epoch
		dead := m.dead
		m.mu.Unlock()
		if dead != nil {
			m.wake()
			return
		}
		if err != nil && pause(ctx, 100) != nil {
			return
		}
	}
}

// request asks for what comes after the image.
func (m *metadata) request(epoch int32, wait time.Duration, most int32) *kmsg.FetchRequest {
	m.mu.Lock()
	offset, lastEpoch := m.image.Next(), m.image.LastEpoch()
	m.mu.Unlock()
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID = -1, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait/time.Millisecond), 1, most
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = metadataTopic, metadataTopicID
	p := kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch, p.PartitionMaxBytes = epoch, offset, lastEpoch, most
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// fetch asks controller at once, and says which one to ask next.
func (m *metadata) fetch(ctx context.Context, at int, epoch *int32) (int, error) {
	req := m.request(*epoch, metadataWait, metadataMaxBytes)
	other := (at + 1) % m.controllers
	bounded, stop := context.WithTimeout(ctx, 5*time.Second)
	resp, err := m.client.At(bounded, at, req)
	stop()
	if err != nil {
		return other, fmt.Errorf("following the cluster's metadata: %w", err)
	}
	r := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return other, fmt.Errorf("following the cluster's metadata: %w", err)
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return other, errors.New("following the cluster's metadata: the controller answered without the partition that was asked for")
	}
	a := &r.Topics[0].Partitions[0]
	switch a.ErrorCode {
	case 0:
	case kerr.FencedLeaderEpoch.Code, kerr.UnknownLeaderEpoch.Code:
		if a.CurrentLeader.LeaderEpoch != *epoch && a.CurrentLeader.LeaderEpoch >= 0 {
			*epoch = a.CurrentLeader.LeaderEpoch
			return at, nil
		}
		return other, kerr.ErrorForCode(a.ErrorCode)
	default:
		if a.CurrentLeader.LeaderEpoch > *epoch {
			*epoch = a.CurrentLeader.LeaderEpoch
		}
		return other, fmt.Errorf("following the cluster's metadata: %w", kerr.ErrorForCode(a.ErrorCode))
	}
	switch {
	case a.SnapshotID.EndOffset >= 0:
		return at, m.snapshot(ctx, at, *epoch, a.SnapshotID.EndOffset, a.SnapshotID.Epoch)
	case a.DivergingEpoch.EndOffset >= 0:
		// What was applied lay below the high watermark, so this cannot be: the cluster was restored from an older state.
		m.die(fmt.Errorf("the cluster's metadata log parts from what this process has applied: at %d, epoch %d; it was restored or replaced. Start this process anew", a.DivergingEpoch.EndOffset, a.DivergingEpoch.Epoch))
		return at, nil
	}
	if err := m.apply(clustermetadata.Whole(a.RecordBatches, a.HighWatermark)); err != nil {
		return other, err
	}
	return at, nil
}

// apply takes batches. Bytes that are damaged may be fetched again, from another controller; a record that cannot be understood ends it all.
func (m *metadata) apply(b []byte) error {
	m.mu.Lock()
	changes, err := m.image.Apply(b)
	m.mu.Unlock()
	m.tell(changes, len(b) > 0)
	if bad := (*clustermetadata.RecordError)(nil); errors.As(err, &bad) {
		m.die(fmt.Errorf("the cluster's metadata cannot be understood any more: %w", err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("following the cluster's metadata: %w", err)
	}
	return nil
}

func (m *metadata) tell(changes []clustermetadata.Change, news bool) {
	if len(changes) > 0 {
		m.onChange(changes)
	}
	if news {
		m.wake()
	}
}

func (m *metadata) wake() {
	m.mu.Lock()
	close(m.changed)
	m.changed = make(chan struct{})
	m.mu.Unlock()
}

// die ends it for good: who waits hears of it.
func (m *metadata) die(err error) {
	m.mu.Lock()
	first := m.dead == nil
	if first {
		m.dead = err
	}
	m.mu.Unlock()
	if first {
		m.wake()
		m.onDead(err)
	}
}

// snapshot replaces the image by a snapshot's (KIP-630).
func (m *metadata) snapshot(ctx context.Context, at int, epoch int32, end int64, endEpoch int32) error {
	var content []byte
	for {
		req := kmsg.NewPtrFetchSnapshotRequest()
		req.ReplicaID, req.MaxBytes = -1, metadataMaxBytes
		t := kmsg.NewFetchSnapshotRequestTopic()
		t.Topic = metadataTopic
		p := kmsg.NewFetchSnapshotRequestTopicPartition()
		p.CurrentLeaderEpoch, p.SnapshotID.EndOffset, p.SnapshotID.Epoch, p.Position = epoch, end, endEpoch, int64(len(content))
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		bounded, stop := context.WithTimeout(ctx, 10*time.Second)
		resp, err := m.client.At(bounded, at, req)
		stop()
		if err != nil {
			return fmt.Errorf("reading the snapshot of the cluster's metadata: %w", err)
		}
		r := resp.(*kmsg.FetchSnapshotResponse)
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return fmt.Errorf("reading the snapshot of the cluster's metadata: %w", err)
		}
		if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
			return errors.New("reading the snapshot of the cluster's metadata: the controller answered without it")
		}
		a := &r.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
			return fmt.Errorf("reading the snapshot of the cluster's metadata: %w", err)
		}
		if len(a.Bytes) == 0 && int64(len(content)) < a.Size {
			return errors.New("reading the snapshot of the cluster's metadata: the controller sent nothing")
		}
		content = append(content, a.Bytes...)
		if int64(len(content)) >= a.Size {
			break
		}
	}
	fresh := clustermetadata.New()
	if _, err := fresh.Apply(clustermetadata.Whole(content, math.MaxInt64)); err != nil {
		m.die(fmt.Errorf("the snapshot of the cluster's metadata cannot be understood: %w", err))
		return nil
	}
	m.mu.Lock()
	changes := m.image.Replace(fresh, end, endEpoch)
	m.mu.Unlock()
	m.tell(changes, true)
	return nil
}

// look calls f with the image. f must not keep it.
func (m *metadata) look(f func(*clustermetadata.Image)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.image)
}

// errMetadata: the metadata did not become as it was waited for.
type errMetadata struct {
	what    string
	trouble error
	cause   error
}

func (e *errMetadata) Error() string {
	if e.trouble != nil {
		return fmt.Sprintf("waiting for %s: %v (%v)", e.what, e.cause, e.trouble)
	}
	return fmt.Sprintf("waiting for %s: %v", e.what, e.cause)
}

func (e *errMetadata) Unwrap() error { return e.cause }

// wait returns when is says so of the image; what names the wish for the error.
func (m *metadata) wait(ctx context.Context, what string, is func(*clustermetadata.Image) bool) error {
	for {
		m.mu.Lock()
		ok, changed, trouble, dead := is(m.image), m.changed, m.trouble, m.dead
		m.mu.Unlock()
		if dead != nil {
			return dead
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return &errMetadata{what: what, trouble: trouble, cause: ctx.Err()}
		case <-changed:
		}
	}
}

// caughtUp waits until the image holds everything that was committed when the call began, as far as the active controller knows.
func (m *metadata) caughtUp(ctx context.Context) error {
	newest, err := m.newest.do(ctx, struct{}{})
	if err != nil {
		return fmt.Errorf("asking for the end of the cluster's metadata: %w", err)
	}
	return m.wait(ctx, "the cluster's metadata", func(im *clustermetadata.Image) bool { return im.Next() >= newest })
}

// askNewest asks the controller that is followed for its high watermark. While there is none, it asks again.
func (m *metadata) askNewest(ctx context.Context, qs []struct{}) ([]int64, error) {
	answer := func(high int64) []int64 {
		all := make([]int64, len(qs))
		for i := range all {
			all[i] = high
		}
		return all
	}
	for {
		m.mu.Lock()
		at, epoch, dead, trouble := m.at, m.epoch, m.dead, m.trouble
		m.mu.Unlock()
		if dead != nil {
			return nil, dead
		}
		bounded, stop := context.WithTimeout(ctx, 2*time.Second)
		resp, err := m.asker.At(bounded, at, m.request(epoch, 0, 1))
		stop()
		if err == nil {
			r := resp.(*kmsg.FetchResponse)
			err = kerr.ErrorForCode(r.ErrorCode)
			if err == nil && len(r.Topics) == 1 && len(r.Topics[0].Partitions) == 1 {
				a := &r.Topics[0].Partitions[0]
				if err = kerr.ErrorForCode(a.ErrorCode); err == nil && a.HighWatermark >= 0 {
					return answer(a.HighWatermark), nil
				}
			}
		}
		if perr := pause(ctx, 20); perr != nil {
			return nil, errors.Join(err, trouble, perr)
		}
	}
}
