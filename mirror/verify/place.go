package verify

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// verdict says what differs where both sides show these batches, the first ones of the range that ends at hi; nil: nothing.
func (r *run) verdict(ctx context.Context, f *[2]front, hi int64) (*mirror.Difference, error) {
	at := r.rep.At
	for i := range f {
		if f[i].order {
			return &mirror.Difference{Kind: DifferenceOrder, Offset: at, Other: f[i].h.BaseOffset, Last: mirror.Unknown, Detail: fmt.Sprintf("log %s: %v", names[i], f[i].bad)}, nil
		}
	}
	d := compareFronts(f[0].b, f[1].b, at, hi)
	for i := range f {
		if base := f[i].h.BaseOffset; d != nil && f[i].bad != nil && base >= at && base < d.Offset {
			d = garbage(&f[i], i, f[i].bad) // the other side has nothing there
			d.Last = mirror.Unknown
		}
	}
	lacks := 0
	switch {
	case d == nil:
		return nil, nil
	case d.Kind == mirror.DifferenceMissingB:
		lacks = 1
	case d.Kind != mirror.DifferenceMissingA:
		return d, nil
	}
	return r.misplaced(ctx, f, lacks, d)
}

// misplaced looks whether the side that lacks a batch shows another one instead that cannot be where it is.
func (r *run) misplaced(ctx context.Context, f *[2]front, lacks int, d *mirror.Difference) (*mirror.Difference, error) {
	has, other := &f[1-lacks], &f[lacks]
	wrong := &mirror.Difference{Kind: DifferenceOrder, Offset: has.h.BaseOffset, Other: other.h.BaseOffset, Last: has.h.LastOffset()}
	switch {
	case other.none || other.bad != nil:
		return d, nil
	case other.h.BaseOffset <= has.h.LastOffset():
		wrong.Kind, wrong.Field = mirror.DifferenceBytes, "base offset"
		wrong.Detail = fmt.Sprintf("log %s has a batch of offsets %d to %d", names[lacks], other.h.BaseOffset, other.h.LastOffset())
	case other.high:
		wrong.Detail = fmt.Sprintf("log %s goes on with a batch of offsets %d to %d, and then with lower ones", names[lacks], other.h.BaseOffset, other.h.LastOffset())
	case other.beyond:
		b, err := r.sides[lacks].Bounds(ctx)
		if err != nil {
			return nil, &sideError{lacks, err}
		}
		if other.h.BaseOffset < max(b.End, b.Shown) {
			return d, nil
		}
		wrong.Detail = fmt.Sprintf("log %s goes on with a batch of offsets %d to %d, and ends at %d", names[lacks], other.h.BaseOffset, other.h.LastOffset(), b.End)
	default:
		return d, nil
	}
	for i := range f {
		if err := batch.Check(f[i].b, &f[i].h); err != nil {
			return garbage(&f[i], i, err), nil
		}
	}
	if !r.o.Compacted {
		return wrong, nil
	}
	// The batches from here to where the other one belongs may have been taken.
	at, err := r.belongs(ctx, 1-lacks, other)
	switch {
	case err != nil:
		return nil, err
	case at == other.h.BaseOffset && other.high:
		return d, nil // it is the one behind it that is wrong
	case at >= 0:
		wrong.Offset, wrong.Last = at, mirror.Unknown
	}
	return wrong, nil
}

// belongs looks on one side for the batch that the other side shows at a place that may be wrong.
func (r *run) belongs(ctx context.Context, has int, misplaced *front) (int64, error) {
	s := r.stream(has, r.rep.At, r.o.Chunk)
	records := r.decoder.one(misplaced, -1).records
	for seen := 0; seen < defaultPiece; {
		f, err := r.peek(ctx, s, has, r.rep.To)
		if err != nil {
			return mirror.Unknown, err
		}
		if !f.here() {
			break
		}
		same := bytes.Equal(f.b[8:], misplaced.b[8:])
		if !same && lasting(&f.h, &misplaced.h) == "" && (f.h.ProducerID < 0 || f.h.BaseSequence == misplaced.h.BaseSequence) {
			same = f.h.ProducerID >= 0 && (f.h.BaseSequence >= 0 || f.h.Control())
			for _, x := range r.decoder.one(&f, -1).records {
				same = same || slices.ContainsFunc(records, func(y held) bool {
					return x.record.OffsetDelta == y.record.OffsetDelta && recordDifference(&f.h, x.record, &misplaced.h, y.record) == ""
				})
			}
		}
		if same {
			return f.h.BaseOffset, nil
		}
		seen += len(f.b)
		s.pass(&f)
	}
	return mirror.Unknown, nil
}

// changed looks again at the place where two streams that began at from differ: a log may have been shortened, cut or mended since, and a read may have been damaged on its way.
func (r *run) changed(ctx context.Context, from int64, s *[2]*stream, f *[2]front, hi int64) (bool, error) {
	bounds, err := r.bounds(ctx)
	if err != nil {
		return false, err
	}
	if r.trim(bounds) {
		return true, nil
	}
	for i := range f {
		again := r.stream(i, from, s[i].chunk)
		next, err := r.peek(ctx, again, i, hi)
		for err == nil && next.here() && again.at < s[i].at {
			again.pass(&next)
			next, err = r.peek(ctx, again, i, hi)
		}
		if err != nil {
			return false, err
		}
		if next.none != f[i].none || (next.bad == nil) != (f[i].bad == nil) {
			return true, nil
		}
		n := min(len(next.b), len(f[i].b)) // of what cannot be read, a read may bring more or less
		if next.bad == nil && len(next.b) != len(f[i].b) || !bytes.Equal(next.b[:n], f[i].b[:n]) {
			return true, nil
		}
	}
	return false, nil
}
