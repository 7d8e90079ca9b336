package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// errNoProgress is a Side that breaks its contract in a way that would have no end.
var errNoProgress = errors.New("verify: a read brought nothing of what was asked for")

// front is the batch at which a stream stands.
type front struct {
	h      batch.Header
	b      []byte // the whole batch; all that is left of a read if bad
	none   bool   // nothing is there
	beyond bool   // it belongs to a later range
	bad    error  // it cannot be read, or lies where it cannot
	order  bool   // bad, because it begins below what comes before it
	high   bool   // the batch behind it begins below its end: one of the two does not belong there
}

// here says that there is a batch that can be read and belongs to the range.
func (f *front) here() bool { return !f.none && !f.beyond && f.bad == nil }

// leastRead is the least that is worth a read; where the range turns out to have more than was thought, each read may be twice as large as the one before.
const leastRead = 4 << 10

// stream walks a side's batches in order, in reads of about chunk bytes.
type stream struct {
	side   Side
	chunk  int
	charge func(context.Context, int) error // before a read with 0, and after it with its bytes
	each   float64                          // bytes that an offset of the range has, about; 0: not known
	at     int64                            // the next offset that is not passed
	buf    []byte
	inside bool // a batch was passed: the next one begins at at or above
	ended  bool
	reads  int
	fresh  bool // buf was read from at
}

// peek looks at the next batch. It belongs to the range that ends at to if its last offset is below to.
func (s *stream) peek(ctx context.Context, to int64) (front, error) {
	if len(s.buf) == 0 {
		if s.ended || s.at >= to {
			return front{none: true}, nil
		}
		if err := s.read(ctx, to); err != nil {
			return front{}, err
		}
	}
	h, n, err := batch.Next(s.buf)
	if err == nil && n == len(s.buf) && !s.fresh && h.BaseOffset >= s.at && s.at < to {
		// The last batch of a read is read again with what lies behind it, so that order is seen over the borders of reads, too.
		if err := s.read(ctx, to); err != nil {
			return front{}, err
		}
		h, n, err = batch.Next(s.buf)
	}
	if len(s.buf) == 0 {
		return front{none: true}, nil
	}
	if err != nil {
		if s.at >= to {
			return front{none: true}, nil
		}
		return front{h: h, b: s.buf, bad: err}, nil
	}
	f := front{h: h, b: s.buf[:n:n], beyond: h.LastOffset() >= to}
	if h.LastOffset() < s.at || s.inside && h.BaseOffset < s.at {
		f.bad, f.order = fmt.Errorf("a batch of offsets %d to %d comes where offset %d is next", h.BaseOffset, h.LastOffset(), s.at), true
	}
	next, _, err := batch.Next(s.buf[n:])
	f.high = (err == nil || err == batch.ErrCut && next.Magic == 2) && next.BaseOffset < h.NextOffset()
	return f, nil
}

// read reads from at on.
func (s *stream) read(ctx context.Context, to int64) error {
	if err := s.charge(ctx, 0); err != nil {
		return err
	}
	most := min(s.chunk, leastRead<<min(s.reads, 20))
	if s.each > 0 { // little of what belongs to the next range is read here
		most = max(most, min(s.chunk, int(min(1<<30, s.each*float64(to-s.at)*1.1))))
	}
	b, err := s.side.Read(ctx, s.at, most)
	if err != nil {
		return fmt.Errorf("reading %s-%d at offset %d: %w", s.side.Partition().Topic, s.side.Partition().Partition, s.at, err)
	}
	s.buf, s.fresh, s.ended, s.reads = b, true, len(b) == 0, s.reads+1
	return s.charge(ctx, len(b))
}

// pass goes behind the batch that peek showed.
func (s *stream) pass(f *front) {
	s.buf, s.at, s.inside, s.fresh = s.buf[len(f.b):], f.h.NextOffset(), true, false
}
