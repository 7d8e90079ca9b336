package replicaserver

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/clustermirror/clustermirror/statemachine"
)

// fakeLog is a partition of one-record batches: enough of Kafka's rules for a follower to be led by it. Its batches are real only where a follower of these tests looks: base offset, length, leader epoch, last offset delta.
type fakeLog struct {
	mu       sync.Mutex
	batches  []fakeBatch
	start    int64
	high     int64
	epoch    int32
	code     int16
	cold     int64 // batches below are not in memory
	wakes    map[int]func()
	nextWake int
	asked    []FetchQuery
	readBack func(ctx context.Context) error // called before each reading back
	backs    int
}

type fakeBatch struct {
	offset int64
	epoch  int32
	bytes  []byte
}

func newFakeLog() *fakeLog { return &fakeLog{wakes: map[int]func(){}} }

func makeBatch(offset int64, epoch int32, size int) []byte {
	b := make([]byte, max(size, 61))
	binary.BigEndian.PutUint64(b, uint64(offset))
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[12:], uint32(epoch))
	b[16] = 2
	for i := 61; i < len(b); i++ {
		b[i] = byte(int(offset)*7 + i)
	}
	return b
}

func (l *fakeLog) end() int64 { return l.start + int64(len(l.batches)) }

// change does f and wakes those who subscribed, with the lock held, as the contract allows.
func (l *fakeLog) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	for _, w := range l.wakes {
		w()
	}
}

// append appends a batch under the leader's epoch.
func (l *fakeLog) append(size int) {
	l.change(func() {
		l.batches = append(l.batches, fakeBatch{l.end(), l.epoch, makeBatch(l.end(), l.epoch, size)})
		l.high = l.end()
	})
}

// truncate cuts the log to the offset and begins a new leader epoch.
func (l *fakeLog) truncate(to int64) {
	l.change(func() {
		for len(l.batches) > 0 && l.batches[len(l.batches)-1].offset >= to {
			l.batches = l.batches[:len(l.batches)-1]
		}
		l.epoch++
		l.high = l.end()
	})
}

// raise raises the log's start.
func (l *fakeLog) raise(to int64) {
	l.change(func() {
		l.start = max(l.start, min(to, l.end()))
		for len(l.batches) > 0 && l.batches[0].offset < l.start {
			l.batches = l.batches[1:]
		}
		l.high = max(l.high, l.start)
	})
}

// endOf is Kafka's rule: the largest epoch that is not above, and where it ends.
func (l *fakeLog) endOf(epoch int32) (int32, int64) {
	found, end := int32(-1), l.start
	if epoch >= l.epoch {
		return l.epoch, l.end()
	}
	for _, b := range l.batches {
		if b.epoch > epoch {
			break
		}
		found, end = b.epoch, b.offset+1
	}
	return found, end
}

func (l *fakeLog) Fetch(q FetchQuery) FetchAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, q)
	if len(l.asked) > 1000 {
		l.asked = l.asked[500:]
	}
	a := FetchAnswer{Code: l.code, LeaderEpoch: l.epoch, HighWatermark: l.high, LastStableOffset: -1, LogStart: l.start}
	switch {
	case a.Code != 0:
	case q.LeaderEpoch >= 0 && q.LeaderEpoch < l.epoch:
		a.Code = codeFencedLeaderEpoch
	case q.LeaderEpoch > l.epoch:
		a.Code = codeUnknownLeaderEpoch
	}
	if a.Code != 0 {
		return a
	}
	if q.LastFetchedEpoch >= 0 {
		if e, end := l.endOf(q.LastFetchedEpoch); e < q.LastFetchedEpoch || end < q.Offset {
			a.Diverging, a.DivergingEpoch, a.DivergingEnd = true, e, end
			return a
		}
	}
	if q.Offset < l.start || q.Offset > l.end() {
		a.Code = 1
		return a
	}
	for _, b := range l.batches {
		if b.offset < q.Offset {
			continue
		}
		if b.offset < l.cold {
			a.Back = true
			return a
		}
		if a.Size > 0 && a.Size+len(b.bytes) > q.MaxBytes {
			break
		}
		a.Batches, a.Size = append(a.Batches, b.bytes), a.Size+len(b.bytes)
	}
	return a
}

func (l *fakeLog) ReadBack(ctx context.Context, from int64, max int) ([]byte, error) {
	l.mu.Lock()
	wait := l.readBack
	l.backs++
	l.mu.Unlock()
	if wait != nil {
		if err := wait(ctx); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []byte
	for _, b := range l.batches {
		if b.offset < from {
			continue
		}
		if len(out) > 0 && len(out)+len(b.bytes) > max {
			break
		}
		out = append(out, b.bytes...)
	}
	return out, nil
}

func (l *fakeLog) Offsets(leaderEpoch int32) OffsetsAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := OffsetsAnswer{Code: l.code, Start: l.start, End: l.end(), HighWatermark: l.high, StartEpoch: -1, EndEpoch: -1}
	if leaderEpoch >= 0 && leaderEpoch < l.epoch {
		a.Code = codeFencedLeaderEpoch
	}
	if n := len(l.batches); n > 0 {
		a.StartEpoch, a.EndEpoch = l.batches[0].epoch, l.batches[n-1].epoch
	}
	return a
}

func (l *fakeLog) EndOffsetFor(leaderEpoch, epoch int32) (int32, int64, int16) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if leaderEpoch >= 0 && leaderEpoch < l.epoch {
		return -1, -1, codeFencedLeaderEpoch
	}
	e, end := l.endOf(epoch)
	return e, end, l.code
}

func (l *fakeLog) Subscribe(wake func()) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nextWake
	l.nextWake++
	l.wakes[n] = wake
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.wakes, n)
	}
}

// subscribers is how many have subscribed.
func (l *fakeLog) subscribers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.wakes)
}

// lastAsked is what the partition was last asked, and how often it was.
func (l *fakeLog) lastAsked() (q FetchQuery, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n = len(l.asked); n > 0 {
		q = l.asked[n-1]
	}
	return q, n
}

// fakeTopics are topics with the name of their id's first byte, such as "t7".
type fakeTopics struct {
	mu    sync.Mutex
	logs  map[partitionKey]*fakeLog
	names map[string]statemachine.TopicID
}

func newFakeTopics() *fakeTopics {
	return &fakeTopics{logs: map[partitionKey]*fakeLog{}, names: map[string]statemachine.TopicID{}}
}

func (t *fakeTopics) add(name string, id statemachine.TopicID, partition int32) *fakeLog {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := newFakeLog()
	t.logs[partitionKey{id, partition}] = l
	t.names[name] = id
	return l
}

func (t *fakeTopics) remove(id statemachine.TopicID, partition int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.logs, partitionKey{id, partition})
}

func (t *fakeTopics) ByID(topic statemachine.TopicID, partition int32) (Partition, int16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.logs[partitionKey{topic, partition}]; l != nil {
		return l, 0
	}
	return nil, codeUnknownTopicID
}

func (t *fakeTopics) ByName(topic string, partition int32) (Partition, int16) {
	t.mu.Lock()
	id, ok := t.names[topic]
	t.mu.Unlock()
	if !ok {
		return nil, codeUnknownTopicOrPartition
	}
	p, _ := t.ByID(id, partition)
	if p == nil {
		return nil, codeNotLeader
	}
	return p, 0
}
