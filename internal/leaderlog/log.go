package leaderlog

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/logtrunc"
)

// Back reads batches from followers' copies.
type Back interface {
	// ReadBack reads whole, checked batches of our log from one of holders: at most max bytes, but at least one batch; the first one contains from, or is the first after it. holders are
	// the followers whose copies reach beyond from, best first. Nothing, without an error, says that this copy has no batch from there on, and is believed: up to where all of holders
	// reach, there is none. The bytes are read-only for ever. It ends with ctx.
	ReadBack(ctx context.Context, from int64, max int, holders []int32) ([]byte, error)
}

// Options describe a Log.
type Options struct {
	Topic     string
	Partition int32
	Back      Back             // nil: what is not in memory cannot be read (ErrNoCopy)
	Memory    *Memory          // the budget of all partitions of the process; nil: one of this partition alone, of 64 MiB
	Now       func() time.Time // nil: time.Now
	// Raised is told that every copy begins above Start now, because brokers deleted what lies below, and that Start is there from now on. It is called with the log's lock held: it must not
	// block, and must not call the log. nil: nobody is told.
	Raised func(before, start int64)
}

// Found is what recovery found of a partition in the followers' copies.
type Found struct {
	Start int64
	// End is best where the last batch ends. A copy that was cut in a gap ends beyond that until its broker restarts; with such an end Replicated may stay below End until the next append.
	End    int64
	Epochs []logtrunc.Entry // leader epochs of the batches, with their first offsets
	// Ends is up to where each broker's copy is the log that was found. It only says where ReadBack may look before that broker has fetched; nil is fine.
	Ends map[int32]int64
	// Limits are the brokers of which it is not known that they followed a truncation, and where that ended: they have to come at or below it first, whatever their epochs say. For every
	// other broker that is End: what it may hold beyond need not be what is appended next.
	Limits map[int32]int64
}

// none is an offset beyond all.
const none = math.MaxInt64

// Log is one partition's log as its leader has it. Safe for concurrent use; Append, TruncateTo, ResetTo, RaiseStart and Begin are for one writer at a time.
type Log struct {
	topic     string
	partition int32
	back      Back
	memory    *Memory
	now       func() time.Time
	raised    func(before, start int64)

	mu          sync.Mutex
	held        bool // gate: followers are put off
	known       bool // Begin was called
	leading     bool
	closed      bool
	leaderEpoch int32 // -1 before Lead

	start, end int64
	tail       int64 // end of the last batch below end, as far as it is known: nothing lies between the two. Else end
	replicated int64
	epochs     *logtrunc.Cache
	window     window
	cuts       int   // truncations and resets so far
	lowestCut  int64 // lowest end that Begin or one of them left

	followers []*follower // in the order of SetFollowers
	found     Found
	want      int
	positions []int64 // scratch of advance

	changed     chan struct{} // closed by the next change; nil: nobody waits
	fence       chan struct{} // closed when the leadership under which an Append waits ends
	subscribers []*func()
}

// New returns a log that is held, whose content is unknown, and that nobody leads. It needs no closing unless it held batches.
func New(o Options) *Log {
	if o.Memory == nil {
		o.Memory = NewMemory(64 << 20)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Log{
		topic: o.Topic, partition: o.Partition, back: o.Back, memory: o.Memory, now: o.Now, raised: o.Raised,
		held: true, leaderEpoch: -1, epochs: logtrunc.NewCache(), lowestCut: none, fence: make(chan struct{}),
	}
}

// Begin says what the followers' copies hold. The log is still held until Release. What was in memory goes, positions are forgotten, Replicated starts at Start and rises with the followers'
// fetches. To be called again whenever another leader may have led in between.
func (l *Log) Begin(f Found) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.dropAll()
	l.known = true
	l.start, l.end, l.replicated = f.Start, max(f.Start, f.End), f.Start
	l.epochs = logtrunc.NewCache(f.Epochs...)
	l.window.low, l.tail = l.end, l.end
	l.cuts++
	l.lowestCut = l.end // nobody is known to hold what will be appended
	l.found = f
	for _, f := range l.followers {
		l.forget(f)
	}
	l.endWaits()
	l.notify()
}

// Hold shuts the gate: every request of a follower is answered with NOT_LEADER_OR_FOLLOWER.
func (l *Log) Hold() { l.gate(true) }

// Release opens the gate. Before Begin and Lead followers are put off all the same.
func (l *Log) Release() { l.gate(false) }

func (l *Log) gate(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != held {
		l.held = held
		l.notify()
	}
}

// Held says that the gate is shut.
func (l *Log) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// Lead says that we lead under this leader epoch. It only grows: a lower one than ours is taken for ours.
func (l *Log) Lead(leaderEpoch int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.leading && leaderEpoch <= l.leaderEpoch {
		return
	}
	l.leading = true
	if leaderEpoch > l.leaderEpoch {
		l.leaderEpoch = leaderEpoch
		l.endWaits()
	}
	l.notify()
}

// Resign says that we lead no more: followers' requests answer NOT_LEADER_OR_FOLLOWER, whatever changes the log is fenced, waits end with ErrFenced. What is in memory stays there, for a Lead
// that follows when only the leader epoch moved; Close or Begin free it.
func (l *Log) Resign() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading {
		l.leading = false
		l.endWaits()
		l.notify()
	}
}

// Close frees the memory and ends every wait with ErrClosed. Nothing works afterwards. Idempotent.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed, l.leading = true, false
		l.dropAll()
		l.endWaits()
		l.notify()
	}
}

// Start is the log start offset.
func (l *Log) Start() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start
}

// End is where the next batch goes.
func (l *Log) End() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Replicated is the offset below which the batches survive the loss of this process. Start ≤ Replicated ≤ End.
func (l *Log) Replicated() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replicated
}

// LeaderEpoch is the leader epoch of the last Lead, -1 before.
func (l *Log) LeaderEpoch() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaderEpoch
}

// Epochs is a copy of the leader epochs of the batches, with their first offsets.
func (l *Log) Epochs() []logtrunc.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epochs.Entries()
}

// AwaitReplicated waits until Replicated ≥ offset. When ctx ends first, errors.Is finds the context's error.
func (l *Log) AwaitReplicated(ctx context.Context, offset int64) error {
	return l.await(ctx, "wait for replication", offset, func() bool { return l.replicated >= offset })
}

// AwaitTruncated waits until every live follower has followed the last TruncateTo, ResetTo or Begin: it fetched at or below the end that was left, and its log agreed with ours there.
// With no live follower it returns at once. When ctx ends first, errors.Is finds the context's error.
func (l *Log) AwaitTruncated(ctx context.Context) error {
	return l.await(ctx, "wait for truncation", l.End(), func() bool {
		for _, f := range l.followers {
			if f.live && !f.truncated {
				return false
			}
		}
		return true
	})
}

// AwaitFollowers waits until ok says yes to the followers' positions, for a hand-over. ok is called under the log's lock: it must be quick and must not call the log.
func (l *Log) AwaitFollowers(ctx context.Context, ok func(end int64, followers []Follower) bool) error {
	return l.await(ctx, "wait for followers", l.End(), func() bool { return ok(l.end, l.report()) })
}

// await waits until ok, which is called under mu.
func (l *Log) await(ctx context.Context, operation string, offset int64, ok func() bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if err := l.ours(operation, offset); err != nil {
			return err
		}
		if ok() {
			return nil
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		l.mu.Lock()
		if err != nil {
			return l.fail(operation, offset, err, "the log is [%d, %d], replicated to %d", l.start, l.end, l.replicated)
		}
	}
}

// ours refuses what only the leader may do. Under mu.
func (l *Log) ours(operation string, offset int64) error {
	switch {
	case l.closed:
		return l.fail(operation, offset, ErrClosed, "")
	case !l.leading:
		return l.fail(operation, offset, ErrFenced, "not led by this process")
	case !l.known:
		return l.fail(operation, offset, ErrUnknown, "recovery is still under way")
	}
	return nil
}

// told ends the waits of whoever is inside this package. Under mu.
func (l *Log) told() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// notify tells everybody of a change that may change a Fetch's answer. Under mu.
func (l *Log) notify() {
	l.told()
	for _, wake := range l.subscribers {
		(*wake)()
	}
}

// endWaits ends the waits of appends. Under mu.
func (l *Log) endWaits() {
	close(l.fence)
	l.fence = make(chan struct{})
}
