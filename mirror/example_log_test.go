package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/logtest"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// sliceLog is a Log of one's own: a slice of batches. It has no replicas, so all of it is replicated at once.
type sliceLog struct {
	mu         sync.Mutex
	batches    [][]byte
	start, end int64
	epoch      int32
	owner      mirror.Ownership
}

func base(b []byte) (info mirror.BatchInfo) {
	for i := range mirror.Batches(b) {
		return i
	}
	return info
}

func (l *sliceLog) get(f func()) { l.mu.Lock(); f(); l.mu.Unlock() }

func (l *sliceLog) Start() (o int64)       { l.get(func() { o = l.start }); return o }
func (l *sliceLog) End() (o int64)         { l.get(func() { o = l.end }); return o }
func (l *sliceLog) Replicated() int64      { return l.End() }
func (l *sliceLog) LeaderEpoch() (e int32) { l.get(func() { e = l.epoch }); return e }

func (l *sliceLog) Append(_ context.Context, epoch int32, batches []byte) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != l.epoch || l.owner != mirror.OwnerOurs {
		return mirror.ErrFenced
	}
	for info, b := range mirror.Batches(batches) {
		if first := l.start == l.end && info.Last >= l.start; info.Base < l.end && !first {
			return mirror.ErrOutOfOrder
		}
		l.batches, l.end = append(l.batches, b), info.Next()
	}
	return nil
}

func (l *sliceLog) Read(_ context.Context, from int64, limit int) (out []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from < l.start || from > l.end {
		return nil, mirror.ErrOffsetOutOfRange
	}
	for _, b := range l.batches {
		if base(b).Last < from {
			continue
		}
		if len(out) > 0 && len(out)+len(b) > limit {
			break
		}
		out = append(out, b...)
	}
	return out, nil
}

func (l *sliceLog) TruncateTo(_ context.Context, offset int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != mirror.OwnerOurs {
		return 0, mirror.ErrFenced
	}
	if offset <= l.start {
		l.batches, l.start, l.end = nil, offset, offset
	}
	for n, b := range l.batches {
		if info := base(b); info.Last >= offset {
			l.batches, l.end = l.batches[:n:n], max(l.start, min(offset, info.Base))
			break
		}
	}
	l.end = min(l.end, offset)
	return l.end, nil
}

// change does what only the mirror may do.
func (l *sliceLog) change(f func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != mirror.OwnerOurs {
		return mirror.ErrFenced
	}
	f()
	return nil
}

func (l *sliceLog) ResetTo(_ context.Context, start int64) error {
	return l.change(func() { l.batches, l.start, l.end = nil, start, start })
}

func (l *sliceLog) RaiseStart(_ context.Context, start int64) error {
	return l.change(func() {
		l.start = max(l.start, min(start, l.end))
		for len(l.batches) > 0 && base(l.batches[0]).Last < l.start {
			l.batches = l.batches[1:]
		}
	})
}

func (l *sliceLog) AwaitTruncated(context.Context) error { return nil }

func (l *sliceLog) AwaitReplicated(ctx context.Context, offset int64) error {
	for l.End() < offset {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func (l *sliceLog) own(o mirror.Ownership) error {
	l.get(func() { l.owner = o })
	return nil
}
func (l *sliceLog) Open(context.Context) error           { return l.own(mirror.OwnerOpen) }
func (l *sliceLog) CloseForWrites(context.Context) error { return l.own(mirror.OwnerOurs) }
func (l *sliceLog) Owner(context.Context) (o mirror.Ownership, e int32, _ error) {
	l.get(func() { o, e = l.owner, l.epoch })
	return o, e, nil
}

// sliceCluster is the Destination that goes with it. It has one topic of one partition.
type sliceCluster struct {
	log   sliceLog
	topic *mirror.Topic
}

func (*sliceCluster) ClusterID(context.Context) (string, error) { return "slices", nil }

func (c *sliceCluster) Topic(_ context.Context, name string) (mirror.Topic, error) {
	if c.topic == nil || c.topic.Name != name {
		return mirror.Topic{}, mirror.ErrUnknownTopic
	}
	return *c.topic, nil
}

func (c *sliceCluster) CreateTopic(_ context.Context, s mirror.TopicSpec) (mirror.Topic, error) {
	if c.topic != nil || s.Partitions != 1 {
		return mirror.Topic{}, errors.New("one topic of one partition is all that there is room for")
	}
	c.topic = &mirror.Topic{Name: s.Name, ID: mirror.TopicID{1}, Partitions: 1}
	return *c.topic, nil
}

func (c *sliceCluster) GrowTopic(context.Context, string, int32) (mirror.Topic, error) {
	return mirror.Topic{}, errors.New("no more partitions")
}

func (c *sliceCluster) OpenLog(context.Context, mirror.TopicPartition) (mirror.Log, error) {
	return &c.log, nil
}

func (c *sliceCluster) RaiseLeaderEpochs(_ context.Context, atLeast map[mirror.TopicPartition]int32) (map[mirror.TopicPartition]int32, error) {
	raised := map[mirror.TopicPartition]int32{}
	for tp, e := range atLeast {
		c.log.get(func() { c.log.epoch = max(c.log.epoch, e); raised[tp] = c.log.epoch })
	}
	return raised, nil
}

func (*sliceCluster) Close() error { return nil }

// A Log is where the copy lives. This one is a slice of batches in memory; logtest checks yours.
func ExampleLog() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	east, copies := threeRecords(ctx), &sliceCluster{}
	m, err := mirror.Open(ctx, mirror.Config{Name: "east-to-slices", Source: east, Destination: copies, Store: memlog.New(memlog.Config{}).StateStore(), Sink: mirror.Discard})
	check(err)
	defer m.Close()
	_, err = m.Admin().Start(ctx, []string{"orders"}, mirror.StartOptions{})
	check(err)
	inStepWith(ctx, m, "orders", 3)
	_, err = m.Failover(ctx, mirror.FailoverOptions{})
	check(err)
	for _, b := range copies.log.batches {
		fmt.Println(base(b).Base, mirror.Kind(b))
	}
	// Output:
	// 0 data
	// 1 data
	// 2 data
	// 3 MIRROR_PID_RESET
}

func TestTheLogOfTheExampleKeepsTheContract(t *testing.T) {
	logtest.Run(t, func(testing.TB) logtest.Subject { return logtest.Subject{Log: &sliceLog{}} })
}
