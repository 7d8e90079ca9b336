package verify

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// learn looks at one side's records in [from, to) for explanations. Batches that cannot be read explain nothing.
func (r *run) learn(ctx context.Context, side int, from, to int64) error {
	s := r.stream(side, from, r.o.Chunk)
	for r.wait.n > 0 {
		f, err := r.peek(ctx, s, side, to)
		if err != nil {
			return err
		}
		if !f.here() {
			break
		}
		if c := r.decoder.one(&f, -1); c.difference == nil && !c.size {
			r.saw(&f, c.records)
		}
		s.pass(&f)
	}
	r.wait.upTo(to)
	return nil
}

// producerOf is the producer of the transaction that a data batch is in.
func producerOf(h *batch.Header) int64 {
	if h.Transactional() && !h.Control() {
		return h.ProducerID
	}
	return mirror.Unknown
}

// saw notes a batch's records, none of which anybody lacks.
func (r *run) saw(f *front, records []held) {
	producer := producerOf(&f.h)
	for _, h := range records {
		key := h.record.Key
		if f.h.Control() {
			key = nil
		}
		r.wait.seen(h.offset, key, producer)
	}
	r.sawMarker(f)
}

func (r *run) sawMarker(f *front) {
	if f.h.Control() && f.h.RecordCount > 0 {
		if c, err := batch.ReadControl(f.b, &f.h); err == nil && (c.Type == batch.ControlAbort || c.Type == batch.ControlCommit) {
			r.wait.ended(f.h.ProducerID, c.Type == batch.ControlCommit)
		}
	}
}

// settle looks behind To for what explains the records that still wait, up to the larger of the ends that the sides have now, and says of the rest what it is.
func (r *run) settle(ctx context.Context) error {
	if r.expect >= 0 && r.expect < r.rep.To {
		r.rep.Clean = r.rep.To // neither side has a record at the end
	}
	if r.wait.n > 0 {
		bounds, err := r.bounds(ctx)
		if err != nil {
			return err
		}
		if r.until < 0 {
			r.until = max(bounds[0].End, bounds[1].End, r.rep.To)
		}
		longer := 0
		if bounds[1].End > bounds[0].End {
			longer = 1
		}
		for r.wait.n > 0 {
			from := max(r.rep.To, r.wait.next, bounds[longer].Start)
			to := min(r.until, bounds[longer].End, from+max(1, r.step))
			if from >= to {
				break
			}
			if r.o.MaxBytes > 0 && r.used >= r.o.MaxBytes {
				return nil
			}
			before := r.used
			if err := r.learn(ctx, longer, from, to); err != nil {
				if errors.Is(err, mirror.ErrOffsetOutOfRange) || errors.Is(err, ErrRemote) {
					break // what may be there explains nothing, and excuses what is left
				}
				return err
			}
			if used := r.used - before; used*2 <= int64(r.o.Piece) {
				r.step = min(mostStep, 2*r.step)
			} else if used > 2*int64(r.o.Piece) {
				r.step = max(1, r.step/2)
			}
		}
		r.wait.upTo(r.until)
		if err := r.unexplained(ctx); err != nil {
			return err
		}
	}
	for side, c := range r.claims {
		if c.To < r.rep.To {
			r.shown(side, r.rep.To, mirror.Unknown) // there was nothing
		}
	}
	r.rep.Complete = true
	return nil
}

// unexplained are the records that wait when everything was looked at. A hole is only what nothing can excuse: above it, no offset is without a record on both sides.
func (r *run) unexplained(ctx context.Context) error {
	type left struct {
		absent
		excused bool
	}
	var all []left
	for k, list := range r.wait.keys {
		for _, a := range list {
			all = append(all, left{a, r.wait.gap > a.offset || r.wait.open(k, &a)})
		}
	}
	slices.SortFunc(all, func(a, b left) int { return cmp.Compare(a.offset, b.offset) })
	rep := r.rep // what was noted is kept only when all of it is
	rep.Holes, rep.Uncomparable = slices.Clone(rep.Holes), slices.Clone(rep.Uncomparable)
	looked, most := 0, 64+4*r.o.Findings
	for _, a := range all {
		if a.excused {
			rep.cannot(Compaction, a.lacks, a.offset, a.offset+1, r.o.Findings)
			continue
		}
		if looked++; looked > most { // more of them would not be listed, and each look is a read of both sides
			rep.MoreFindings++
			continue
		}
		if err := r.absentStill(ctx, &rep, a.lacks, a.offset); err != nil {
			return err
		}
	}
	rep.Read = r.rep.Read
	r.rep = rep
	clear(r.wait.keys)
	r.wait.n = 0
	return nil
}

// absentStill looks again whether one side has an offset and the other has not, and notes the hole.
func (r *run) absentStill(ctx context.Context, rep *Report, lacks int, offset int64) error {
	bounds, err := r.bounds(ctx)
	if err != nil {
		return err
	}
	for i, b := range bounds {
		switch {
		case offset < b.Start:
			rep.cannot(Retention, i, offset, offset+1, r.o.Findings)
			return nil
		case offset >= b.End:
			rep.cannot(Cut, i, offset, offset+1, r.o.Findings)
			return nil
		}
	}
	var has [2]bool
	for i := range has {
		f, err := r.peek(ctx, r.stream(i, offset, lookChunk), i, offset+1)
		if errors.Is(err, mirror.ErrOffsetOutOfRange) || errors.Is(err, ErrRemote) {
			rep.cannot(Changing, i, offset, offset+1, r.o.Findings)
			return nil
		}
		if err != nil {
			return err
		}
		if f.none || f.bad != nil || f.h.BaseOffset > offset {
			continue
		}
		c := r.decoder.one(&f, -1)
		has[i] = slices.ContainsFunc(c.records, func(h held) bool { return h.offset == offset })
	}
	switch {
	case has[1-lacks] && !has[lacks]:
		rep.hole(lacks, offset, offset+1, r.o.Findings)
	case has[lacks] == has[1-lacks]:
		rep.cannot(Changing, lacks, offset, offset+1, r.o.Findings)
	default:
		rep.cannot(Changing, 1-lacks, offset, offset+1, r.o.Findings)
	}
	return nil
}
