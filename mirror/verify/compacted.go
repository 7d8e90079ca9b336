package verify

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/recordreader"
	"github.com/clustermirror/clustermirror/mirror"
)

// records compares [At, hi) of logs that may be compacted, batch by batch and record by record. At moves with what was compared.
func (r *run) records(ctx context.Context, hi int64) error {
	for tries := 0; ; {
		from := r.rep.At
		s := [2]*stream{r.stream(0, from, r.o.Chunk), r.stream(1, from, r.o.Chunk)}
		d, f, err := r.merge(ctx, &s, hi)
		if err != nil {
			return err
		}
		if d == nil {
			r.rep.At = max(r.rep.At, hi)
			return nil
		}
		changed, err := r.changed(ctx, from, &s, f, hi)
		if err != nil {
			return err
		}
		if !changed {
			r.mismatch(d)
			return nil
		}
		if r.rep.At >= hi || r.rep.To < hi {
			return nil
		}
		if tries++; tries >= looks {
			r.skip(Changing, 0, hi)
			return nil
		}
	}
}

// merge walks both sides until they differ or both are through; f is what they show then.
func (r *run) merge(ctx context.Context, s *[2]*stream, hi int64) (*mirror.Difference, *[2]front, error) {
	for {
		f, err := r.fronts(ctx, s, hi)
		if err != nil {
			return nil, nil, err
		}
		for i := range f {
			if f[i].bad != nil && !f[i].order && f[i].h.BaseOffset >= hi {
				f[i].bad, f[i].beyond = nil, true // it is a later piece's
				continue
			}
			if !f[i].none && f[i].bad == nil {
				r.shown(i, f[i].h.BaseOffset, f[i].h.LastOffset())
			}
		}
		bad := -1
		for i := range f {
			// What cannot be read waits until the other side is there too.
			if o := &f[1-i]; f[i].bad != nil && !f[i].order && o.here() && o.h.LastOffset() < f[i].h.BaseOffset && f[i].h.BaseOffset < r.rep.To {
				bad = i
			}
		}
		if bad < 0 && (f[0].bad != nil || f[1].bad != nil) {
			d, err := r.verdict(ctx, f, hi)
			if err == nil && d == nil && r.rep.At < hi {
				err = fmt.Errorf("verify: %s-%d at %d: %w", r.rep.Partition.Topic, r.rep.Partition.Partition, r.rep.At, errNoProgress)
			}
			return d, f, err
		}
		if !f[0].here() && !f[1].here() {
			for i := range f {
				if f[i].beyond && f[i].h.BaseOffset >= hi {
					r.claims[i] = Claim{From: s[i].at, To: f[i].h.BaseOffset, Last: f[i].h.LastOffset()}
				}
			}
			return nil, nil, nil
		}
		if f[0].here() && f[1].here() && f[0].h.BaseOffset == f[1].h.BaseOffset {
			c := r.decoder.pair(&f[0], &f[1], r.wait.n > 0)
			if c.difference != nil {
				return c.difference, f, nil
			}
			if err := r.paired(ctx, f, &c); err != nil {
				return nil, nil, err
			}
			s[0].pass(&f[0])
			s[1].pass(&f[1])
			continue
		}
		has := 0
		if !f[0].here() || f[1].here() && f[1].h.BaseOffset < f[0].h.BaseOffset {
			has = 1
		}
		d, err := r.only(ctx, f, has, hi)
		if d != nil || err != nil {
			return d, f, err
		}
		s[has].pass(&f[has])
	}
}

// Claim is of a side that showed no batch in [From, To), and then one of the offsets To to Last. The next piece asks for an offset behind From.
type Claim struct{ From, To, Last int64 }

// shown holds the next batch that a side shows against its claim. What is another one may be a leader's that cleaned less, or more; or a batch says of itself that it is another one.
func (r *run) shown(side int, base, last int64) {
	c := r.claims[side]
	if c == (Claim{}) || base < c.From {
		return
	}
	r.claims[side] = Claim{}
	if base != c.To || last >= 0 && last != c.Last {
		r.rep.cannot(Changing, side, c.From, min(r.rep.To, max(base, c.To)+1), r.o.Findings)
		r.dirty(r.rep.At)
	}
}

// paired notes two batches that begin at the same offset and do not differ.
func (r *run) paired(ctx context.Context, f *[2]front, c *compared) error {
	h := &f[0].h
	r.alone.clear()
	switch {
	case c.equal:
		if r.expect >= 0 && h.BaseOffset > r.expect {
			r.rep.Clean = max(r.rep.Clean, h.BaseOffset)
		}
		r.expect = h.NextOffset()
		if !full(h) {
			r.rep.Clean = max(r.rep.Clean, r.expect)
		}
		r.saw(&f[0], c.records)
		r.rep.Bytewise.add(1, int64(h.RecordCount), int64(len(f[0].b)))
	case c.size:
		r.rep.cannot(Size, 0, max(r.floor, h.BaseOffset), h.NextOffset(), r.o.Findings)
		r.dirty(h.NextOffset())
	default:
		if err := r.note(ctx, f, c.records); err != nil {
			return err
		}
		same := int64(0)
		for _, rec := range c.records {
			if rec.lacks < 0 {
				same++
			}
		}
		r.rep.Recordwise.add(1, same, int64(len(f[0].b)))
		r.dirty(h.NextOffset())
	}
	r.rep.At = max(r.rep.At, h.NextOffset())
	return nil
}

// only notes a batch that one side has: all of its records must be explained.
func (r *run) only(ctx context.Context, f *[2]front, has int, hi int64) (*mirror.Difference, error) {
	x := &f[has]
	kind := mirror.DifferenceMissingB
	if has == 1 {
		kind = mirror.DifferenceMissingA
	}
	missing := &mirror.Difference{Kind: kind, Offset: x.h.BaseOffset, Last: x.h.LastOffset()}
	if !f[1-has].none {
		if d := compareFronts(f[0].b, f[1].b, r.rep.At, hi); d != nil && d.Kind == mirror.DifferenceShifted {
			return d, nil
		}
		if d, err := r.misplaced(ctx, f, 1-has, missing); err != nil || d != missing {
			return d, err
		}
	}
	c := r.decoder.one(x, 1-has)
	if c.difference != nil {
		return c.difference, nil
	}
	if other, certain, found := r.alone.add(has, &x.h, c.records); found {
		if certain {
			return &mirror.Difference{Kind: mirror.DifferenceShifted, Offset: min(other, x.h.BaseOffset), Other: max(other, x.h.BaseOffset), Last: mirror.Unknown,
				Detail: "the producer's sequence is the same"}, nil
		}
		r.rep.cannot(Ambiguous, has, x.h.BaseOffset, x.h.NextOffset(), r.o.Findings)
	}
	if c.size {
		r.rep.cannot(Size, has, max(r.floor, x.h.BaseOffset), x.h.NextOffset(), r.o.Findings)
	} else {
		var as [2]front
		as[has] = *x
		if err := r.note(ctx, &as, c.records); err != nil {
			return nil, err
		}
	}
	r.rep.At = max(r.rep.At, x.h.NextOffset())
	r.dirty(x.h.NextOffset())
	return nil, nil
}

// note looks at the records of a batch as both sides have it, or one of them. A record that one side lacks is explained, or waits.
func (r *run) note(ctx context.Context, f *[2]front, records []held) error {
	for _, rec := range records {
		of := &f[0]
		if rec.lacks == 0 {
			of = &f[1]
		}
		h := &of.h
		// A range that was skipped may end inside the batch.
		counts := rec.lacks >= 0 && rec.offset >= r.floor
		if h.Control() {
			r.wait.seen(rec.offset, nil, mirror.Unknown)
			if counts {
				if err := r.lostControl(ctx, of, rec); err != nil {
					return err
				}
			}
			r.sawMarker(of)
			continue
		}
		key, producer := rec.record.Key, producerOf(h)
		r.wait.seen(rec.offset, key, producer)
		switch {
		case !counts:
		case key == nil, rec.record.Value == nil:
			// The cleaner takes what has no key at once, and a tombstone when its time is over.
			r.rep.Compacted++
		case !r.wait.lack(rec.offset, key, producer, rec.lacks):
			r.rep.cannot(Memory, rec.lacks, rec.offset, rec.offset+1, r.o.Findings)
		}
	}
	return nil
}

// lostControl judges a control record that one side lacks. The cleaner takes the marker of a transaction of which no batch is left, and no other control record (Kafka: CleanedTransactionMetadata).
func (r *run) lostControl(ctx context.Context, of *front, rec held) error {
	if c, err := batch.ReadControl(of.b, &of.h); err == nil && (c.Type == batch.ControlAbort || c.Type == batch.ControlCommit) {
		open, known, err := r.open(ctx, rec.lacks, of.h.ProducerID, of.h.BaseOffset)
		switch {
		case err != nil:
			return err
		case !known:
			r.rep.cannot(Compaction, rec.lacks, rec.offset, rec.offset+1, r.o.Findings)
			return nil
		case !open:
			r.rep.Compacted++
			return nil
		}
	}
	return r.absentStill(ctx, &r.rep, rec.lacks, rec.offset)
}

// openTransactions are the producers of a side that have a transaction open at an offset, as far as its batches show.
type openTransactions struct {
	begun   bool
	upTo    int64
	of      map[int64]bool
	unknown bool
}

// open says whether a producer has a batch on a side, below an offset and behind the last marker that it has there. It reads that side once from its start, as far as it is asked.
func (r *run) open(ctx context.Context, side int, producer, at int64) (open, known bool, err error) {
	o := &r.opened[side]
	b, err := r.sides[side].Bounds(ctx)
	if err != nil {
		return false, false, &sideError{side, err}
	}
	if !o.begun {
		*o = openTransactions{begun: true, upTo: b.Start, of: map[int64]bool{}}
	}
	// What was deleted meanwhile may be what opened a transaction; a batch of it that is still there is seen, and that counts.
	s := r.stream(side, max(o.upTo, b.Start), r.o.Chunk)
	for !o.unknown {
		f, err := r.peek(ctx, s, side, at)
		if err != nil {
			if errors.Is(err, mirror.ErrOffsetOutOfRange) || errors.Is(err, ErrRemote) {
				o.unknown = true
				break
			}
			return false, false, err
		}
		if f.bad != nil {
			o.unknown = true
			break
		}
		if !f.here() {
			break
		}
		switch {
		case f.h.Control():
			delete(o.of, f.h.ProducerID)
		case f.h.Transactional():
			o.of[f.h.ProducerID] = true
		}
		if len(o.of) > r.o.Waiting {
			o.unknown = true
		}
		s.pass(&f)
		o.upTo = s.at
	}
	return o.of[producer], !o.unknown, nil
}

// mostAlone bounds what is kept of batches that one side has alone.
const mostAlone = 4096

// alone are batches that one side has, and the other has not, since the last one that both have: the same records there and here at another offset are no work of the cleaner.
type alone struct {
	sequences, records [2]map[[16]byte]int64
}

func (a *alone) clear() { *a = alone{} }

// add keeps a batch and says whether the other side has it alone too, at which offset, and whether that is certain: a producer uses a sequence once.
func (a *alone) add(side int, h *batch.Header, records []held) (other int64, certain, found bool) {
	put := func(maps *[2]map[[16]byte]int64, key [16]byte) (int64, bool) {
		offset, there := maps[1-side][key]
		if maps[side] == nil {
			maps[side] = map[[16]byte]int64{}
		}
		if len(maps[side]) < mostAlone {
			maps[side][key] = h.BaseOffset
		}
		return offset, there
	}
	if h.ProducerID >= 0 && h.BaseSequence >= 0 {
		key := fingerprint(h.ProducerID, int64(h.ProducerEpoch), int64(h.BaseSequence), int64(h.LastOffsetDelta), int64(h.LeaderEpoch))
		if offset, there := put(&a.sequences, key); there {
			return offset, true, true
		}
		return 0, false, false
	}
	for _, r := range records {
		key := fingerprint(recordreader.Timestamp(h, r.record), int64(h.LeaderEpoch), h.ProducerID, int64(len(r.record.Key)), int64(len(r.record.Value)), r.record.Key, r.record.Value)
		if offset, there := put(&a.records, key); there && !found {
			other, found = offset, true
		}
	}
	return other, false, found
}

func fingerprint(parts ...any) [16]byte {
	sum := sha256.New()
	for _, p := range parts {
		switch p := p.(type) {
		case int64:
			sum.Write(binary.BigEndian.AppendUint64(nil, uint64(p)))
		case []byte:
			sum.Write(p)
		}
	}
	var all [sha256.Size]byte
	return [16]byte(sum.Sum(all[:0])[:16])
}
