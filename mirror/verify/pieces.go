package verify

import (
	"bytes"
	"context"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// most bounds a digest, where a range that was chosen by its offsets has far more bytes than the ones before.
func (r *run) most() int64 { return 4 * int64(r.o.Piece) }

// digests are those of both sides for the same range: [lo, hi), or less of it. Sides whose batches do not let them agree on one differ, and so do their digests.
func (r *run) digests(ctx context.Context, lo, hi int64) (a, b Digest, err error) {
	const most = 8
	for range most {
		if a, err = r.digest(ctx, 0, lo, hi); err != nil {
			return a, b, err
		}
		if b, err = r.digest(ctx, 1, lo, a.To); err != nil || b.To == a.To {
			break
		}
		hi = b.To
	}
	return a, b, err
}

// piece compares the next piece, by digest first.
func (r *run) piece(ctx context.Context) error {
	lo := r.rep.At
	hi := min(r.rep.To, lo+min(r.step, r.rep.To-lo))
	a, b, err := r.digests(ctx, lo, hi)
	if err != nil {
		return err
	}
	asked := hi
	if hi = min(a.To, b.To); a.Over || b.Over {
		if hi == asked && hi < r.rep.To && a.Batches+b.Batches == 0 {
			r.step = min(mostStep, 2*(hi-lo)) // it is all inside of one batch
			return nil
		}
		if d, err := r.over(ctx, lo, hi); err != nil || d != nil {
			return err
		}
	}
	most := max(a.Bytes, b.Bytes, 1)
	r.each = float64(most) / float64(hi-lo)
	switch {
	case most*2 <= int64(r.o.Piece):
		r.step = min(mostStep, 2*r.step)
	case most > 2*int64(r.o.Piece):
		r.step = max(1, min(r.step, hi-lo)/2)
	}
	switch {
	case a.sameAs(&b):
		return r.same(ctx, &a)
	case r.o.Compacted:
		return r.records(ctx, hi)
	}
	return r.differing(ctx, hi, a.Batches, b.Batches)
}

// over looks at batches that begin at lo or below and reach over the end of the range: their last offset is not looked at otherwise. A mismatch is noted.
func (r *run) over(ctx context.Context, lo, hi int64) (*mirror.Difference, error) {
	s := [2]*stream{r.stream(0, lo, lookChunk), r.stream(1, lo, lookChunk)}
	f, err := r.fronts(ctx, &s, hi)
	if err != nil {
		return nil, err
	}
	for i := range f {
		if !f[i].beyond || f[i].h.BaseOffset > lo || bytes.Equal(f[0].b, f[1].b) {
			continue
		}
		if err := batch.Check(f[i].b, &f[i].h); err != nil {
			changed, again := r.changed(ctx, lo, &s, f, hi)
			if again != nil || changed {
				return nil, again
			}
			d := garbage(&f[i], i, err)
			if o := &f[1-i]; !o.none && o.bad == nil && o.h.BaseOffset == f[i].h.BaseOffset {
				d = bytesOf(&f[0], &f[1])
			}
			r.mismatch(d)
			return d, nil
		}
	}
	return nil, nil
}

// same notes a range that is equal on both sides. Where something waits for its explanation, the records of one side are looked at.
func (r *run) same(ctx context.Context, d *Digest) error {
	if r.wait.n > 0 {
		if err := r.learn(ctx, 1, r.rep.At, d.To); err != nil {
			return err
		}
	}
	if d.Batches > 0 {
		r.shown(0, d.First, mirror.Unknown)
		r.shown(1, d.First, mirror.Unknown)
		r.alone.clear()
		if r.expect >= 0 && d.First > r.expect || r.expect < 0 && d.First > d.From {
			r.rep.Clean = max(r.rep.Clean, d.First)
		}
		if d.Gap > d.First {
			r.rep.Clean = max(r.rep.Clean, d.Gap)
		}
		r.expect = d.Next
	}
	r.rep.Bytewise.add(d.Batches, d.Records, d.Bytes)
	r.rep.At = d.To
	return nil
}

// differing finds the first place in [At, hi) at which the sides differ, and says what is there. How many batches each side has there is known.
func (r *run) differing(ctx context.Context, hi, na, nb int64) error {
	for lo := r.rep.At; (na > 1 || nb > 1) && hi-lo > 1; {
		a, b, err := r.digests(ctx, lo, lo+(hi-lo)/2)
		if err != nil {
			return err
		}
		if !a.sameAs(&b) {
			hi, na, nb = min(a.To, b.To), a.Batches, b.Batches
			continue
		}
		if lo = a.To; a.Over {
			continue // the batch that reaches over the border comes with what is behind it
		}
		if err := r.same(ctx, &a); err != nil {
			return err
		}
		na, nb = na-a.Batches, nb-b.Batches
	}
	for range looks {
		from := r.rep.At
		s := [2]*stream{r.stream(0, from, lookChunk), r.stream(1, from, lookChunk)}
		d, f, err := r.walk(ctx, &s, hi)
		if err != nil || d == nil {
			return err // it is equal now
		}
		changed, err := r.changed(ctx, from, &s, f, hi)
		if err != nil {
			return err
		}
		switch {
		case !changed && (d.Kind == mirror.DifferenceMissingA || d.Kind == mirror.DifferenceMissingB):
			return r.hole(ctx, d, f)
		case !changed:
			r.mismatch(d)
			return nil
		case r.rep.At >= hi || r.rep.To < hi:
			return nil // a side was shortened
		}
	}
	r.skip(Changing, 0, hi)
	return nil
}

// mismatch ends the comparison.
func (r *run) mismatch(d *mirror.Difference) {
	r.rep.Mismatch, r.rep.At = d, max(r.rep.From, min(r.rep.At, d.Offset))
}

// walk goes through the batches of both sides until they differ; f is what they show then.
func (r *run) walk(ctx context.Context, s *[2]*stream, hi int64) (*mirror.Difference, *[2]front, error) {
	for {
		f, err := r.fronts(ctx, s, hi)
		if err != nil {
			return nil, nil, err
		}
		if d, err := r.verdict(ctx, f, hi); d != nil || err != nil {
			return d, f, err
		}
		if !f[0].here() || !f[1].here() {
			return nil, nil, nil
		}
		for i := range s {
			s[i].pass(&f[i])
		}
		h := &f[0].h
		if err := r.same(ctx, &Digest{From: r.rep.At, To: h.NextOffset(), Batches: 1, Bytes: int64(len(f[0].b)), Records: int64(h.RecordCount), First: h.BaseOffset, Next: h.NextOffset()}); err != nil {
			return nil, nil, err
		}
	}
}

// fronts looks at the next batch of each side.
func (r *run) fronts(ctx context.Context, s *[2]*stream, hi int64) (*[2]front, error) {
	var f [2]front
	for i := range f {
		var err error
		if f[i], err = s[i].peek(ctx, hi); err != nil {
			if ctx.Err() == nil {
				err = &sideError{i, err}
			}
			return nil, err
		}
	}
	return &f, nil
}

// hole notes what one side lacks: everything that the other has, up to the next batch of the side that lacks it.
func (r *run) hole(ctx context.Context, d *mirror.Difference, f *[2]front) error {
	lacks := 0
	if d.Kind == mirror.DifferenceMissingB {
		lacks = 1
	}
	to := r.rep.To
	if !f[lacks].none {
		to = min(to, f[lacks].h.BaseOffset)
	}
	s := r.stream(1-lacks, r.rep.At, r.o.Chunk)
	for {
		next, err := r.peek(ctx, s, 1-lacks, to)
		if err != nil {
			return err
		}
		if !next.here() {
			break
		}
		s.pass(&next)
		r.rep.hole(lacks, max(next.h.BaseOffset, r.floor), s.at, r.o.Findings)
		r.rep.At = s.at
		r.dirty(s.at)
	}
	r.rep.At = max(r.rep.At, to)
	r.dirty(r.rep.At)
	return nil
}
