package replicareader

import (
	"context"
	"fmt"
	"slices"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/logtrunc"
)

// probeBytes is how much one look at a copy asks for: some small batches, or the one batch that a broker gives at least.
const probeBytes = 4096

// Epochs finds the leader epochs of a broker's copy in [start, end), as Ends told them, without reading the whole of it: the entries that a logtrunc.Cache has after Assign
// of every batch header there. The first batch counts with its base offset, which may lie below start. No batch: nothing.
//
// It bisects, as the epochs of batches rise along a log: O(epochs · log(end-start)) small reads, one after the other; two for a log with one epoch. Each costs at least one
// batch, however large it is. The copy may grow meanwhile. If it was cut, or its epochs fall somewhere, and a look noticed it: *Error with Changed. Errors otherwise: those of
// Read.
func (r *Reader) Epochs(ctx context.Context, broker int32, t Target, start, end int64) ([]logtrunc.Entry, error) {
	b := bisection{look: func(at int64) ([]batch.Header, error) {
		raw, err := r.Read(ctx, broker, t, at, probeBytes)
		if err != nil {
			return nil, err
		}
		var headers []batch.Header
		for h := range batch.All(raw) {
			if h.BaseOffset < end {
				headers = append(headers, h)
			}
		}
		return headers, nil
	}}
	if start >= end {
		return nil, nil
	}
	headers, err := b.look(start)
	if err != nil || len(headers) == 0 {
		return nil, err
	}
	if err := b.all(headers, end); err != nil {
		if b.changed {
			return nil, &Error{Broker: broker, Target: t, Reason: Changed, Err: err}
		}
		return nil, err
	}
	return b.cache.Entries(), nil
}

// bisection finds the places in a log at which the epoch changes.
type bisection struct {
	// look returns the headers of consecutive batches: the first one that ends at or above an offset, and as many of those that follow as are cheap; none if there is no batch.
	look    func(at int64) ([]batch.Header, error)
	cache   logtrunc.Cache
	changed bool
}

// all notes the epochs of everything from the first batch of low to end. It looks at the end first, so that a log with one epoch costs two looks.
func (b *bisection) all(low []batch.Header, end int64) error {
	b.note(low[0])
	if low[len(low)-1].NextOffset() >= end {
		return b.between(low, end, nil)
	}
	last, err := b.look(end - 1)
	if err != nil {
		return err
	}
	if len(last) == 0 {
		return b.between(low, end-1, nil) // a hole at the end
	}
	return b.between(low, end-1, &last[0])
}

func (b *bisection) note(h batch.Header) { b.cache.Assign(h.LeaderEpoch, h.BaseOffset) }

// between notes all changes behind the first batch of low, up to and with high: the first batch that ends at or above highAt (nil: there is none). low's batches are
// consecutive.
func (b *bisection) between(low []batch.Header, highAt int64, high *batch.Header) error {
	for {
		h := low[len(low)-1]
		for i := 1; i < len(low); i++ {
			if low[i].LeaderEpoch < low[i-1].LeaderEpoch {
				return b.fell(low[i-1], low[i])
			}
			if low[i].LeaderEpoch > low[i-1].LeaderEpoch {
				b.note(low[i])
			}
		}
		if high != nil && high.LeaderEpoch < h.LeaderEpoch {
			return b.fell(h, *high)
		}
		if high != nil && high.LeaderEpoch == h.LeaderEpoch {
			return nil // and so has all that lies between
		}
		if h.NextOffset() >= highAt {
			if high != nil {
				b.note(*high)
			}
			return nil
		}
		middle := h.NextOffset() + (highAt-h.NextOffset())/2
		found, err := b.look(middle)
		if high != nil && len(found) > 0 && found[0].BaseOffset < high.BaseOffset {
			found = slices.DeleteFunc(found, func(f batch.Header) bool { return f.BaseOffset >= high.BaseOffset })
		}
		switch {
		case err != nil:
			return err
		case len(found) == 0 && high != nil:
			b.changed = true
			return fmt.Errorf("nothing at or behind offset %d, where a batch was at %d before", middle, high.BaseOffset)
		case len(found) == 0:
			highAt = middle
		case high != nil && found[0].BaseOffset >= high.BaseOffset:
			highAt = middle
		case found[0].LeaderEpoch == h.LeaderEpoch:
			low = found
		default:
			if err := b.between(low[len(low)-1:], middle, &found[0]); err != nil {
				return err
			}
			low = found
		}
	}
}

func (b *bisection) fell(before, after batch.Header) error {
	b.changed = true
	return fmt.Errorf("the leader epoch falls from %d at offset %d to %d at offset %d", before.LeaderEpoch, before.BaseOffset, after.LeaderEpoch, after.BaseOffset)
}
