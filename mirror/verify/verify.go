package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/clustermirror/mirror"
)

const (
	defaultChunk    = 1 << 20
	defaultPiece    = 4 << 20
	defaultMaxBatch = 64 << 20
	defaultWaiting  = 1 << 17
	defaultFindings = 16
	firstStep       = 64      // offsets of the first piece; then as many as have about Options.Piece bytes
	mostStep        = 1 << 40 // offsets
	lookChunk       = 64 << 10
	looks           = 3 // at a place that is another one each time
)

// Options are what to compare, how, and at what cost. Zero values are the defaults in brackets.
type Options struct {
	From, To int64 // compare [From, To) only; To 0: up to the smaller end
	// Compacted says that cleanup.policy has compact in it on either side, or had it since the oldest record. Without it every offset that one side lacks is a hole.
	Compacted bool

	Piece          int     // about as many bytes are under one digest [4 MiB]
	Chunk          int     // bytes of one read [1 MiB]
	BytesPerSecond int64   // read or digested, on both sides together; 0: no limit
	MaxBytes       int64   // stop behind the piece in which so many were read, with a Resume; 0: go to the end
	MaxBatch       int     // bytes that the records of one batch may take when they are decompressed [64 MiB]
	Waiting        int     // records that may wait for the explanation of their lack [131072]
	Findings       int     // holes, and ranges that cannot be compared, that a report lists [16]
	Clock          Clock   // [the machine's]
	Resume         *Resume // of the report that an earlier call returned; From, To and Compacted are then its own

	limit *limiter // shared by the partitions of a Runner
}

func (o Options) withDefaults() Options {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&o.Piece, defaultPiece)
	set(&o.Chunk, defaultChunk)
	set(&o.MaxBatch, defaultMaxBatch)
	set(&o.Waiting, defaultWaiting)
	set(&o.Findings, defaultFindings)
	if o.Clock == nil {
		o.Clock = wallClock{}
	}
	if o.limit == nil {
		o.limit = &limiter{clock: o.Clock, rate: o.BytesPerSecond}
	}
	return o
}

// Resume is how the next call goes on where one ended. It is plain data; JSON keeps all of it. Its size is that of the records that wait: about 90 bytes of JSON each, Options.Waiting at most.
type Resume struct {
	Report      Report // so far
	Compacted   bool
	Step        int64    // offsets of the next piece
	Each        float64  // bytes an offset, in the last piece
	Expect      int64    // the offset behind the last batch that was equal
	Floor       int64    // what lies below was told as a range that cannot be compared
	Until       int64    // explanations are looked for up to here
	Claims      [2]Claim // of sides a and b
	Waiting     []Waiting
	Undecided   []Undecided
	WaitingGap  int64
	WaitingNext int64
	Blurred     bool
}

// run is one call of Verify.
type run struct {
	o       Options
	sides   [2]Side
	rep     Report
	step    int64
	expect  int64
	until   int64
	floor   int64   // what lies below was told as a whole
	used    int64   // bytes, in this call
	each    float64 // bytes an offset, in the last piece
	decoder *decoder
	wait    *waiting
	opened  [2]openTransactions
	alone   alone
	claims  [2]Claim
}

// sideError says which side could not be read.
type sideError struct {
	side int
	err  error
}

func (e *sideError) Error() string { return fmt.Sprintf("verify: side %s: %v", names[e.side], e.err) }
func (e *sideError) Unwrap() error { return e.err }

// Verify compares two sides of a partition, piece by piece, below the smaller of the ends that they have when it begins. Both logs may be written, cleaned, shortened and cut meanwhile.
//
// An error says that a side could not be asked or read, or that ctx ended (errors.Is tells which). The report then holds what was proved so far, and Report.Resume goes on from there.
// Verify waits for nothing but the sides and its own limit, and it changes nothing.
func Verify(ctx context.Context, a, b Side, o Options) (Report, error) {
	o = o.withDefaults()
	r := &run{o: o, sides: [2]Side{a, b}, decoder: newDecoder(o.MaxBatch), wait: newWaiting(o.Waiting), step: firstStep, expect: mirror.Unknown, until: mirror.Unknown}
	r.rep.Partition = a.Partition()
	if other := b.Partition(); other != r.rep.Partition {
		return r.rep, fmt.Errorf("verify: side a is %s-%d, side b is %s-%d: name the same partition on both sides", r.rep.Partition.Topic, r.rep.Partition.Partition, other.Topic, other.Partition)
	}
	if o.Resume == nil {
		if err := r.begin(ctx); err != nil {
			return r.rep, err
		}
	} else if err := r.resume(o.Resume); err != nil {
		return r.rep, err
	}
	err := r.all(ctx)
	r.rep.Compacted += r.wait.explained
	r.wait.explained = 0
	if r.rep.Mismatch == nil && !r.rep.Complete {
		next := &Resume{Report: r.rep, Compacted: r.o.Compacted, Step: r.step, Each: r.each, Expect: r.expect, Floor: r.floor, Until: r.until, Claims: r.claims}
		r.wait.save(next)
		r.rep.Resume = next
	}
	return r.rep, err
}

func (r *run) begin(ctx context.Context) error {
	bounds, err := r.bounds(ctx)
	if err != nil {
		return err
	}
	p := &r.rep
	p.A, p.B, p.Asked = bounds[0], bounds[1], max(0, r.o.To)
	start, end := [2]int64{}, [2]int64{}
	for i, b := range bounds {
		if start[i], end[i] = max(b.Start, r.o.From), b.End; r.o.To > 0 {
			end[i] = min(end[i], r.o.To)
		}
		start[i] = max(0, start[i])
		end[i] = max(start[i], end[i])
	}
	p.From = max(start[0], start[1])
	p.To = max(p.From, min(end[0], end[1]))
	p.At, p.Clean, r.floor = p.From, p.From, p.From
	later := 0
	if start[1] > start[0] {
		later = 1
	}
	p.cannot(Retention, later, start[1-later], min(p.From, end[1-later]), r.o.Findings)
	return nil
}

func (r *run) resume(from *Resume) error {
	if from.Report.Partition != r.rep.Partition {
		return fmt.Errorf("verify: the Resume is of %s-%d: give it the sides of that partition, or none", from.Report.Partition.Topic, from.Report.Partition.Partition)
	}
	r.rep = from.Report
	r.rep.Holes, r.rep.Uncomparable, r.rep.Resume = slices.Clone(r.rep.Holes), slices.Clone(r.rep.Uncomparable), nil
	r.o.Compacted, r.step, r.expect, r.floor, r.until = from.Compacted, max(1, from.Step), from.Expect, from.Floor, from.Until
	r.each, r.claims = from.Each, from.Claims
	for _, w := range r.wait.load(from) {
		r.rep.cannot(Memory, max(0, slices.Index(names[:], w.In)), w.Offset, w.Offset+1, r.o.Findings)
	}
	return nil
}

// bounds asks both sides.
func (r *run) bounds(ctx context.Context) (b [2]Bounds, err error) {
	for i, s := range r.sides {
		if b[i], err = s.Bounds(ctx); err != nil {
			return b, &sideError{i, fmt.Errorf("asking for the bounds of %s-%d: %w", r.rep.Partition.Topic, r.rep.Partition.Partition, err)}
		}
	}
	return b, nil
}

// spent is a stream's charge.
func (r *run) spent(ctx context.Context, n int) error {
	r.used, r.rep.Read = r.used+int64(n), r.rep.Read+int64(n)
	r.o.limit.charge(int64(n))
	return r.o.limit.wait(ctx)
}

func (r *run) stream(side int, at int64, chunk int) *stream {
	return &stream{side: r.sides[side], chunk: chunk, each: r.each, at: at, charge: r.spent}
}

// peek is a stream's, with the side in the error.
func (r *run) peek(ctx context.Context, s *stream, side int, to int64) (front, error) {
	f, err := s.peek(ctx, to)
	if err != nil && ctx.Err() == nil {
		err = &sideError{side, err}
	}
	return f, err
}

func (r *run) digest(ctx context.Context, side int, from, to int64) (d Digest, err error) {
	if near, ok := r.sides[side].(Digester); ok {
		if err = r.spent(ctx, 0); err == nil {
			if d, err = near.Digest(ctx, from, to, r.most()); err == nil {
				return d, r.spent(ctx, int(d.Bytes))
			}
		}
	} else {
		d, err = digestOf(ctx, r.stream(side, from, r.o.Chunk), to, r.most())
	}
	if err != nil && ctx.Err() == nil {
		err = &sideError{side, err}
	}
	return d, err
}

// all goes from where the report is to the end.
func (r *run) all(ctx context.Context) error {
	idle := 0
	for r.rep.At < r.rep.To && r.rep.Mismatch == nil {
		if r.o.MaxBytes > 0 && r.used >= r.o.MaxBytes {
			return nil
		}
		at, to, step := r.rep.At, r.rep.To, r.step
		if err := r.piece(ctx); err != nil {
			if err = r.moved(ctx, err); err != nil {
				return err
			}
		}
		if idle++; r.rep.At != at || r.rep.To != to || r.step > step {
			idle = 0
		}
		if idle >= looks { // digests that differ, and bytes that do not
			r.skip(Changing, 0, min(to, at+max(1, r.step)))
		}
	}
	if r.rep.Mismatch != nil {
		return nil
	}
	return r.settle(ctx)
}

// moved answers an error of a side that no longer has what was asked for: what is gone cannot be compared. Any other error comes back.
func (r *run) moved(ctx context.Context, err error) error {
	var of *sideError
	remote := errors.Is(err, ErrRemote)
	if !errors.As(err, &of) || !remote && !errors.Is(err, mirror.ErrOffsetOutOfRange) {
		return err
	}
	at, to := r.rep.At, r.rep.To
	bounds, asked := r.bounds(ctx)
	if asked != nil {
		return asked
	}
	r.trim(bounds)
	if b := bounds[of.side]; remote && b.Local > r.rep.At {
		r.skip(Remote, of.side, min(b.Local, r.rep.To))
	}
	if r.rep.At == at && r.rep.To == to && at < to {
		return err
	}
	return nil
}

// trim leaves out what a side no longer has.
func (r *run) trim(bounds [2]Bounds) (changed bool) {
	for i, b := range bounds {
		if b.Start > r.rep.At {
			r.skip(Retention, i, min(b.Start, r.rep.To))
			changed = true
		}
		if b.End < r.rep.To && r.rep.At < r.rep.To {
			end := max(b.End, r.rep.At)
			r.rep.cannot(Cut, i, end, r.rep.To, r.o.Findings)
			r.rep.To, changed = end, true
		}
	}
	return changed
}

// skip goes on at an offset; what lies before it cannot be compared.
func (r *run) skip(why Reason, side int, to int64) {
	r.rep.cannot(why, side, r.rep.At, to, r.o.Findings)
	r.rep.At = max(r.rep.At, to)
	r.floor, r.claims = r.rep.At, [2]Claim{}
	r.dirty(r.rep.At)
}

// dirty notes that below an offset not all is equal byte by byte.
func (r *run) dirty(below int64) { r.rep.Clean, r.expect = max(r.rep.Clean, below), below }
