package memlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/producerstate"
)

// partitionLog is one partition: the log and who leads it.
type partitionLog struct {
	c     *Cluster
	tp    mirror.TopicPartition
	topic mirror.TopicID

	mu            sync.Mutex
	batches       []stored
	start, end    int64
	highWatermark int64
	leader        int32 // broker, −1: none
	leaderEpoch   int32
	owner         mirror.Ownership
	deleted       bool
	epochs        *logtrunc.Cache
	producers     *producerstate.Manager
	followers     []follower
	remote        remote
	watchers      map[chan struct{}]struct{} // capacity 1 each; told of every change; nil while nobody has watched
}

// stored is one batch: bytes [at, to) of what Append got. The bytes are never changed and never copied.
type stored struct {
	base, last   int64
	maxTimestamp int64
	chunk        []byte
	at, to       int
}

func (s *stored) bytes() []byte { return s.chunk[s.at:s.to:s.to] }

func newLog(c *Cluster, tp mirror.TopicPartition, t *topic, leader int32) *partitionLog {
	l := &partitionLog{
		c: c, tp: tp, topic: t.id, leader: leader, epochs: logtrunc.NewCache(), producers: producerstate.New(),
		followers: make([]follower, c.cfg.Replicas-1),
	}
	if t.local {
		l.owner = mirror.OwnerOpen
		l.epochs.Assign(0, 0)
	}
	return l
}

func (l *partitionLog) call(ctx context.Context, operation string, f func() error) error {
	return l.c.call(ctx, Call{Operation: "Log." + operation, Partition: l.tp}, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.deleted {
			return unknownTopic(l.tp.Topic)
		}
		return f()
	})
}

// errorf names the partition.
func (l *partitionLog) errorf(format string, args ...any) error {
	return fmt.Errorf("memlog: %s-%d: "+format, append([]any{l.tp.Topic, l.tp.Partition}, args...)...)
}

// watch has notify wake somebody. Under mu.
func (l *partitionLog) watch(wake chan struct{}) {
	if l.watchers == nil {
		l.watchers = map[chan struct{}]struct{}{}
	}
	l.watchers[wake] = struct{}{}
}

// notify wakes whoever waits for a change. Under mu.
func (l *partitionLog) notify() {
	for w := range l.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// Start is the log start offset.
func (l *partitionLog) Start() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start
}

// End is the log end offset.
func (l *partitionLog) End() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Replicated is the high watermark.
func (l *partitionLog) Replicated() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.highWatermark
}

// LeaderEpoch is the leader epoch.
func (l *partitionLog) LeaderEpoch() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaderEpoch
}

// ours refuses what only the mirror may do, while the log is somebody else's. Under mu.
func (l *partitionLog) ours(what string) error {
	if l.owner == mirror.OwnerOurs {
		return nil
	}
	return l.errorf("%s a log that is %s: %w", what, l.owner, mirror.ErrFenced)
}

// Append adds batches of the mirror.
func (l *partitionLog) Append(ctx context.Context, leaderEpoch int32, batches []byte) error {
	return l.call(ctx, "Append", func() error {
		if err := l.ours("append to"); err != nil {
			return err
		}
		if leaderEpoch != l.leaderEpoch {
			return l.errorf("append under leader epoch %d, the log's is %d: %w", leaderEpoch, l.leaderEpoch, mirror.ErrFenced)
		}
		return l.add(batches)
	})
}

// add checks and keeps batches, whoever wrote them. Nothing is kept of a chunk that breaks the order; where a transaction is broken, what stands before stays. Under mu.
func (l *partitionLog) add(chunk []byte) error {
	limit := int(l.c.maxBatch.Load())
	var some []stored
	var epochs []int32
	end, empty := l.end, l.start == l.end
	for at := 0; at < len(chunk); {
		h, n, err := batch.Next(chunk[at:])
		if err != nil {
			return l.errorf("append at %d: %w", end, err)
		}
		first := empty && at == 0 && h.BaseOffset <= l.start && h.LastOffset() >= l.start
		switch {
		case h.BaseOffset < end && !first:
			return l.errorf("append of batch %d–%d, the log's end is %d: %w", h.BaseOffset, h.LastOffset(), end, mirror.ErrOutOfOrder)
		case h.LeaderEpoch > l.leaderEpoch:
			return l.errorf("append of batch %d with leader epoch %d, the log's is %d: raise it first", h.BaseOffset, h.LeaderEpoch, l.leaderEpoch)
		case limit > 0 && n > limit:
			return l.errorf("append of batch %d with %d bytes, the limit is %d: %w", h.BaseOffset, n, limit, mirror.ErrBatchTooLarge)
		}
		some = append(some, stored{base: h.BaseOffset, last: h.LastOffset(), maxTimestamp: h.MaxTimestamp, chunk: chunk, at: at, to: at + n})
		epochs = append(epochs, h.LeaderEpoch)
		end = h.NextOffset()
		at += n
	}
	if len(some) == 0 {
		return l.errorf("append of nothing")
	}
	defer func() {
		l.replicate()
		l.notify()
	}()
	for i, s := range some {
		if !l.c.cfg.Discard {
			if err := l.producers.Observe(s.bytes()); err != nil {
				return l.errorf("append at %d: %w", l.end, err)
			}
			l.batches = append(l.batches, s)
		}
		l.epochs.Assign(epochs[i], s.base)
		l.end = s.last + 1
	}
	return nil
}

// find is the index of the batch that contains offset, or of the first one after it. Under mu.
func (l *partitionLog) find(offset int64) int {
	return sort.Search(len(l.batches), func(i int) bool { return l.batches[i].last >= offset })
}

// Read returns whole batches. Where they were appended together they are returned without a copy.
func (l *partitionLog) Read(ctx context.Context, from int64, max int) (b []byte, err error) {
	err = l.call(ctx, "Read", func() error {
		if from < l.start || from > l.end {
			return l.errorf("read at %d, the log is [%d, %d]: %w", from, l.start, l.end, mirror.ErrOffsetOutOfRange)
		}
		if l.c.cfg.Discard && from < l.end {
			return l.errorf("read at %d: the bytes were discarded", from)
		}
		b = l.read(from, l.end, max, true)
		return nil
	})
	return b, err
}

// read returns the batches from the one that contains from on that end at or below limit, at most max bytes; with one, the first batch whatever its size. Under mu.
func (l *partitionLog) read(from, limit int64, max int, one bool) []byte {
	first := l.find(from)
	size, n, together := 0, 0, true
	for i := first; i < len(l.batches); i++ {
		s := &l.batches[i]
		if s.last >= limit || size+s.to-s.at > max && (n > 0 || !one) {
			break
		}
		if i > first {
			before := &l.batches[i-1]
			together = together && &before.chunk[0] == &s.chunk[0] && before.to == s.at
		}
		size += s.to - s.at
		n++
	}
	if n == 0 {
		return nil
	}
	if together {
		s := &l.batches[first]
		return s.chunk[s.at : s.at+size : s.at+size]
	}
	b := make([]byte, 0, size)
	for i := range l.batches[first : first+n] {
		b = append(b, l.batches[first+i].bytes()...)
	}
	return b
}

// TruncateTo cuts the log.
func (l *partitionLog) TruncateTo(ctx context.Context, offset int64) (end int64, err error) {
	err = l.call(ctx, "TruncateTo", func() error {
		if err := l.ours("truncation of"); err != nil {
			return err
		}
		if offset < 0 {
			return l.errorf("truncation to %d", offset)
		}
		if err := l.cut(offset); err != nil {
			return err
		}
		end = l.end
		return nil
	})
	return end, err
}

// cut drops what TruncateTo drops. Under mu.
func (l *partitionLog) cut(offset int64) error {
	if offset >= l.end {
		return nil
	}
	if err := l.cutsRemote(offset); err != nil {
		return err
	}
	if offset <= l.start {
		l.empty(offset)
		return nil
	}
	if l.c.cfg.Discard {
		return l.errorf("truncation to %d inside a log whose bytes were discarded", offset)
	}
	end := offset
	n := l.find(offset)
	if n < len(l.batches) {
		end = max(min(offset, l.batches[n].base), l.start)
	}
	clear(l.batches[n:])
	l.batches = l.batches[:n]
	l.end = end
	l.epochs.TruncateTo(end)
	known := l.producers.TruncateTo(end)
	for i := range l.batches {
		if s := &l.batches[i]; s.base >= known {
			if err := l.producers.Observe(s.bytes()); err != nil {
				return l.errorf("rebuilding producer state at %d: %w", s.base, err)
			}
		}
	}
	l.cutFollowers()
	l.notify()
	return nil
}

// empty drops everything. Under mu.
func (l *partitionLog) empty(start int64) {
	l.batches, l.start, l.end = nil, start, start
	l.epochs.Reset()
	l.producers.Reset(start)
	l.cutFollowers()
	l.notify()
}

// ResetTo drops everything.
func (l *partitionLog) ResetTo(ctx context.Context, start int64) error {
	return l.call(ctx, "ResetTo", func() error {
		if err := l.ours("reset of"); err != nil {
			return err
		}
		if start < 0 {
			return l.errorf("reset to %d", start)
		}
		if err := l.cutsRemote(-1); err != nil {
			return err
		}
		l.empty(start)
		return nil
	})
}

// RaiseStart moves the log start offset up. An open log's moves by Cluster.DeleteRecords and Cluster.Expire.
func (l *partitionLog) RaiseStart(ctx context.Context, start int64) error {
	return l.call(ctx, "RaiseStart", func() error {
		if err := l.ours("raising the start of"); err != nil {
			return err
		}
		l.raiseStart(start)
		return nil
	})
}

// raiseStart moves the log start offset up, whoever asks. Under mu.
func (l *partitionLog) raiseStart(start int64) {
	start = min(start, l.highWatermark)
	if start <= l.start {
		return
	}
	l.start = start
	n := l.find(start)
	clear(l.batches[:n])
	l.batches = l.batches[n:]
	l.epochs.RaiseStart(start)
	l.producers.RaiseStart(start)
	l.notify()
}

// Open lets clients write.
func (l *partitionLog) Open(ctx context.Context) error {
	return l.call(ctx, "Open", func() error {
		switch l.owner {
		case mirror.OwnerForeign:
			return l.errorf("open of a log of another process: %w", mirror.ErrFenced)
		case mirror.OwnerOurs:
			l.owner = mirror.OwnerOpen
			l.epochs.Assign(l.leaderEpoch, l.end)
			l.notify()
		}
		return nil
	})
}

// CloseForWrites shuts the gate. A client's write holds the log's lock, so none is under way afterwards.
func (l *partitionLog) CloseForWrites(ctx context.Context) error {
	return l.call(ctx, "CloseForWrites", func() error {
		if l.owner == mirror.OwnerForeign {
			return l.errorf("closing a log of another process: %w", mirror.ErrFenced)
		}
		l.owner = mirror.OwnerOurs
		l.epochs.TruncateTo(l.end) // as in a broker that begins to follow: an epoch that nothing was written in goes, or a batch of a lower one would begin that one anew
		l.notify()
		return nil
	})
}

// Owner says who may append.
func (l *partitionLog) Owner(ctx context.Context) (owner mirror.Ownership, epoch int32, err error) {
	err = l.call(ctx, "Owner", func() error {
		owner, epoch = l.owner, l.leaderEpoch
		return nil
	})
	return owner, epoch, err
}

// SettleProducerIDs raises the cluster's allocator of producer ids.
func (l *partitionLog) SettleProducerIDs(ctx context.Context, highest int64) error {
	return l.call(ctx, "SettleProducerIDs", func() error {
		l.c.mu.Lock()
		defer l.c.mu.Unlock()
		l.c.nextProducer = max(l.c.nextProducer, highest+1)
		return nil
	})
}

// await waits until ok, which is called under mu.
func (l *partitionLog) await(ctx context.Context, operation string, ok func() bool) error {
	return l.c.call(ctx, Call{Operation: "Log." + operation, Partition: l.tp}, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		var wake chan struct{}
		for !ok() {
			if l.deleted {
				return unknownTopic(l.tp.Topic)
			}
			if wake == nil {
				wake = make(chan struct{}, 1)
				l.watch(wake)
				defer delete(l.watchers, wake)
			}
			l.mu.Unlock()
			var err error
			select {
			case <-wake:
			case <-ctx.Done():
				err = ctx.Err()
			case <-l.c.done:
				err = ErrClosed
			}
			l.mu.Lock()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// SetForeign says that another process has a partition's log (true), or that it is the mirror's, closed (false).
func (c *Cluster) SetForeign(topic string, partition int32, foreign bool) error {
	l, err := c.log(mirror.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = mirror.OwnerOurs
	if foreign {
		l.owner = mirror.OwnerForeign
	}
	l.notify()
	return nil
}

// RawLog is a copy of everything a log holds: whole batches, in order.
func (c *Cluster) RawLog(topic string, partition int32) ([]byte, error) {
	l, err := c.log(mirror.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c.cfg.Discard {
		return nil, errors.New("memlog: the bytes were discarded")
	}
	var b []byte
	for i := range l.batches {
		b = append(b, l.batches[i].bytes()...)
	}
	return slices.Clip(b), nil
}

// ImportLog gives a partition of an existing topic another content: raw whole batches, from start on, under a leader epoch. Nothing is fenced and the gate stays as
// it is. Ownership of the bytes passes to the cluster. It is how a log from elsewhere is brought in: an old cluster's, or bytes made by hand.
func (c *Cluster) ImportLog(topic string, partition int32, batches []byte, start int64, leaderEpoch int32) error {
	l, err := c.log(mirror.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.empty(start)
	l.leaderEpoch = leaderEpoch
	if len(batches) > 0 {
		err = l.add(batches)
	}
	if l.owner == mirror.OwnerOpen {
		l.epochs.Assign(l.leaderEpoch, l.end)
	}
	return err
}

// LeaveHole moves a log's end up without a batch, as compaction does when it takes the last ones.
func (c *Cluster) LeaveHole(topic string, partition int32, end int64) error {
	l, err := c.log(mirror.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if end < l.end {
		return l.errorf("the end is %d already", l.end)
	}
	l.end = end
	l.replicate()
	l.notify()
	return nil
}
