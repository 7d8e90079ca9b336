package leaderlog

import (
	"context"
	"math"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/logtrunc"
)

// Append adds one or more whole, checked batches, bytes verbatim, and takes the chunk over: nobody changes or reuses it from then on. A base offset above End leaves a gap. An empty log takes as
// its first batch the one that contains Start. After an error nothing of the chunk is there.
//
// Errors: ErrFenced for another leader epoch than ours, or when we do not lead; ErrUnknown before Begin; ErrOutOfOrder for a base offset below End; *EpochError for a batch with a leader epoch
// above ours; *PoisonError for a batch that followers cannot take; what batch.Next says of bytes that are no whole batches. While the shared memory is full and nothing may go, Append
// waits, until ctx ends or the leadership does.
func (l *Log) Append(ctx context.Context, leaderEpoch int32, batches []byte) error {
	if err := ctx.Err(); err != nil {
		return l.fail("append", l.End(), err, "")
	}
	c, epochs, err := l.parse(batches)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.fits(c, epochs, leaderEpoch); err != nil {
		return err
	}
	size := int64(len(batches))
	if !l.memory.take(size) {
		fence := l.fence
		l.mu.Unlock()
		ok, err := l.memory.reserve(ctx, l, size, fence)
		l.mu.Lock()
		if err != nil {
			return l.fail("append", l.end, err, "the memory of %d bytes is full of batches that the followers have not taken yet", l.memory.limit)
		}
		if !ok && !l.closed {
			return l.fail("append", l.end, ErrFenced, "the leadership under which it waited for memory ended")
		}
		if err := l.fits(c, epochs, leaderEpoch); err != nil {
			if ok {
				l.memory.give(size)
			}
			return err
		}
	}
	l.window.chunks = append(l.window.chunks, c)
	for _, e := range epochs {
		l.epochs.Assign(e.Epoch, e.Start)
	}
	l.end = c.end()
	l.tail = l.end
	l.notify()
	return nil
}

// parse reads the headers of what Append got: the batches, and where the leader epoch changes.
func (l *Log) parse(batches []byte) (*chunk, []logtrunc.Entry, error) {
	if len(batches) == 0 || len(batches) > math.MaxInt32 {
		return nil, nil, l.fail("append", -1, batch.ErrCut, "a chunk of %d bytes", len(batches))
	}
	c := &chunk{log: l, data: batches}
	c.marks = c.one[:0]
	// Counting first spares the growing slice: most chunks hold many batches.
	n := 0
	for at := 0; at < len(batches); n++ {
		h, size, err := batch.Next(batches[at:])
		if err != nil {
			return nil, nil, l.fail("append", h.BaseOffset, err, "at byte %d of %d", at, len(batches))
		}
		at += size
	}
	if n > len(c.one) {
		c.marks = make([]mark, 0, n)
	}
	epochs := make([]logtrunc.Entry, 0, 1)
	for at := 0; at < len(batches); {
		h, size, _ := batch.Next(batches[at:])
		if len(c.marks) > 0 {
			if before := c.marks[len(c.marks)-1].last; h.BaseOffset <= before {
				return nil, nil, l.fail("append", h.BaseOffset, ErrOutOfOrder, "in a chunk where the batch before ends at %d", before)
			}
		}
		if err := l.poison(batches[at:at+size], h); err != nil {
			return nil, nil, err
		}
		if len(epochs) == 0 || epochs[len(epochs)-1].Epoch != h.LeaderEpoch {
			epochs = append(epochs, logtrunc.Entry{Epoch: h.LeaderEpoch, Start: h.BaseOffset})
		}
		c.marks = append(c.marks, mark{base: h.BaseOffset, last: h.LastOffset(), at: uint32(at), to: uint32(at + size)})
		at += size
	}
	return c, epochs, nil
}

// maxOffset is above every offset of a log: behind its end there has to be room for a batch, whose offsets lie within 2^31 of its base.
const maxOffset = math.MaxInt64 - 1<<32

// poison finds what makes a stock follower give up: it parses every control batch with a producer id as a transaction's end (ProducerAppendInfo, EndTransactionMarker), and puts every batch's
// leader epoch into its cache, which takes none below 0 (LeaderEpochFileCache). A control batch that compaction emptied says nothing and is fine.
func (l *Log) poison(whole []byte, h batch.Header) error {
	if h.BaseOffset >= maxOffset || h.LastOffset() >= maxOffset {
		return &PoisonError{Topic: l.topic, Partition: l.partition, Offset: h.BaseOffset, ProducerID: h.ProducerID, Control: h.Control(), Reason: "its offsets leave no room below 2^63"}
	}
	if h.LeaderEpoch >= 0 && (!h.Control() || h.ProducerID < 0 || h.RecordCount == 0) {
		return nil
	}
	p := PoisonError{Topic: l.topic, Partition: l.partition, Offset: h.BaseOffset, ProducerID: h.ProducerID, Control: h.Control(), Reason: "it has no leader epoch"}
	if h.LeaderEpoch >= 0 {
		control, err := batch.ReadControl(whole, &h)
		switch {
		case err != nil:
			p.Reason = "a control batch that cannot be read: " + err.Error()
		case control.Type != batch.ControlAbort && control.Type != batch.ControlCommit:
			p.Reason = "a control batch with a producer id that is neither ABORT nor COMMIT"
		default:
			return nil
		}
		p.Type = control.Type
	}
	return &p
}

// fits checks what was read against the log as it is. Under mu.
func (l *Log) fits(c *chunk, epochs []logtrunc.Entry, leaderEpoch int32) error {
	first := &c.marks[0]
	if err := l.ours("append", first.base); err != nil {
		return err
	}
	if leaderEpoch != l.leaderEpoch {
		return l.fail("append", first.base, ErrFenced, "under leader epoch %d, the log's is %d", leaderEpoch, l.leaderEpoch)
	}
	if begins := l.start == l.end && first.last >= l.start; first.base < l.end && !begins {
		return l.fail("append", first.base, ErrOutOfOrder, "batch %d–%d, the log's end is %d", first.base, first.last, l.end)
	}
	for _, e := range epochs {
		if e.Epoch > l.leaderEpoch {
			return &EpochError{Topic: l.topic, Partition: l.partition, Offset: e.Start, Epoch: e.Epoch, Leader: l.leaderEpoch}
		}
	}
	return nil
}
