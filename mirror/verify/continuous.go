package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// Target is one partition that a Runner verifies.
type Target struct {
	A, B      Side
	Compacted bool // see Options
}

// RunnerOptions are a Runner's. Zero values are the defaults in brackets.
type RunnerOptions struct {
	// Targets lists the partitions, at the beginning of each round; a partition keeps its place while it is listed. Sides are used until the round ends. Required.
	Targets func(ctx context.Context) ([]Target, error)
	// Report gets what each round found, and must not block: the next round waits for it. Required.
	Report func(Round)
	// Options are each partition's: From, To, Compacted, MaxBytes and Resume are not used. BytesPerSecond is for all partitions together.
	Options Options
	Turn    int64         // bytes that each partition is given in a round, about [64 MiB]
	Every   time.Duration // a pass over a partition begins so long after the one before began, at the earliest [1 h]
	Pause   time.Duration // between rounds, and before a list of targets that failed is asked for again [1 s]
	Listed  int           // reports, errors each, that a round lists [16]
	// Looked is told what each turn of a partition came to, when its pass began, and Verify's error. May be nil.
	Looked func(r Report, began time.Time, err error)
	// Await is called before a turn and before each read of it, and returns when the partition may be read. With an error the turn ends, and the next one goes on from there [at once].
	Await func(ctx context.Context, tp mirror.TopicPartition) error
	// Settle is called when a mismatch or a hole was seen for the first time, and may wait until both sides are at rest. Then the place is compared again; only if it is not the same then either, or at the
	// end of another pass, it is a finding. With an error, or where it was the same, the pass begins anew [what is seen is a finding].
	Settle func(ctx context.Context, tp mirror.TopicPartition) error
	// Places are where an earlier Runner stood (Runner.Places).
	Places map[mirror.TopicPartition]*Resume
}

// Round is what a Runner did from one call of Targets to the next. Each partition had one turn at most: one that is large takes several rounds for a pass.
type Round struct {
	Number       int
	Began, Ended time.Time
	Partitions   int      // listed
	Looked       int      // that had a turn
	Completed    int      // whose pass ended
	Equal        int      // of these, that Report.Equal says of
	Wrong        int      // with a mismatch or a hole, in a pass that ended or in one that goes on
	Read         int64    // bytes
	Found        []Report // of partitions with a mismatch, a hole or a range that cannot be compared, the wrong ones first; RunnerOptions.Listed at most
	MoreFound    int      // that are not listed
	Failed       []error  // partitions, or Targets, that could not be asked or read; the same bound
	MoreFailed   int
}

func (r Round) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "round %d: %d of %d partitions looked at, %d bytes, %d passes ended, %d of them equal, %d partitions wrong", r.Number, r.Looked, r.Partitions, r.Read, r.Completed, r.Equal, r.Wrong)
	for i := range r.Found {
		fmt.Fprintf(&s, "\n  %s", &r.Found[i])
	}
	for _, err := range r.Failed {
		fmt.Fprintf(&s, "\n  error: %v", err)
	}
	if r.MoreFound+r.MoreFailed > 0 {
		fmt.Fprintf(&s, "\n  %d more", r.MoreFound+r.MoreFailed)
	}
	return s.String()
}

// Runner verifies many partitions, for ever. Make one with NewRunner.
type Runner struct {
	o      RunnerOptions
	places map[mirror.TopicPartition]*place
}

// place is where a partition's pass is.
type place struct {
	resume  *Resume // nil: between passes
	began   time.Time
	passes  int   // that began
	found   int64 // what Report.lastWrong was of the last finding; mirror.Unknown: none
	doubted int64 // what it was where it could not be confirmed; mirror.Unknown: none
}

// NewRunner returns a runner that does nothing before Run. An error says what of the options is missing.
func NewRunner(o RunnerOptions) (*Runner, error) {
	if o.Targets == nil || o.Report == nil {
		return nil, errors.New("verify: RunnerOptions.Targets and Report are needed")
	}
	return newRunner(o), nil
}

func newRunner(o RunnerOptions) *Runner {
	o.Turn = cmp.Or(max(0, o.Turn), 64<<20)
	o.Every = cmp.Or(max(0, o.Every), time.Hour)
	o.Pause = cmp.Or(max(0, o.Pause), time.Second)
	o.Listed = cmp.Or(max(0, o.Listed), 16)
	o.Options = o.Options.withDefaults()
	o.Options.From, o.Options.To, o.Options.MaxBytes, o.Options.Resume = 0, 0, o.Turn, nil
	r := &Runner{o: o, places: map[mirror.TopicPartition]*place{}}
	for tp, resume := range o.Places {
		if resume != nil {
			r.places[tp] = &place{resume: resume, began: o.Options.Clock.Now(), passes: 1, found: mirror.Unknown, doubted: mirror.Unknown}
		}
	}
	return r
}

// Places are where the passes stand that have begun and not ended, for a Runner of a later process. Not while Run runs.
func (r *Runner) Places() map[mirror.TopicPartition]*Resume {
	all := map[mirror.TopicPartition]*Resume{}
	for tp, p := range r.places {
		if p.resume != nil {
			all[tp] = p.resume
		}
	}
	return all
}

// Run goes through rounds until ctx ends, and returns its error. In a round each partition whose pass is under way or due has one turn, in the order of the list, so a large partition keeps no
// other one waiting for longer than its turn. A partition that fails has its next turn in the next round.
func (r *Runner) Run(ctx context.Context) error {
	for n := 1; ; n++ {
		round := Round{Number: n, Began: r.o.Options.Clock.Now()}
		err := r.round(ctx, &round)
		round.Ended = r.o.Options.Clock.Now()
		if round.Looked > 0 || len(round.Failed) > 0 {
			r.o.Report(round)
		} else {
			n-- // nothing was due
		}
		if err == nil {
			err = r.o.Options.Clock.Sleep(ctx, r.o.Pause)
		}
		if err != nil {
			return err
		}
	}
}

func (r *Runner) round(ctx context.Context, round *Round) error {
	targets, err := r.o.Targets(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.failed(round, err)
		return nil
	}
	round.Partitions = len(targets)
	listed := map[mirror.TopicPartition]bool{}
	for _, t := range targets {
		tp := t.A.Partition()
		if listed[tp] {
			continue
		}
		listed[tp] = true
		p := r.places[tp]
		now := r.o.Options.Clock.Now()
		if p == nil {
			p = &place{found: mirror.Unknown, doubted: mirror.Unknown}
			r.places[tp] = p
		}
		if p.resume == nil {
			if p.passes > 0 && now.Sub(p.began) < r.o.Every {
				continue
			}
			p.began, p.passes = now, p.passes+1
		}
		if err := r.turn(ctx, round, t, p); err != nil {
			return err
		}
	}
	for tp := range r.places {
		if !listed[tp] {
			delete(r.places, tp)
		}
	}
	return ctx.Err()
}

// turn verifies a part of a partition. Its error is the context's.
func (r *Runner) turn(ctx context.Context, round *Round, t Target, p *place) error {
	defer t.close()
	o := r.o.Options
	o.Compacted, o.Resume = t.Compacted, p.resume
	tp := t.A.Partition()
	if r.o.Await != nil {
		o.limit.await = func(ctx context.Context) error { return r.o.Await(ctx, tp) }
	}
	before, rep, err := int64(0), Report{Partition: tp}, o.limit.wait(ctx)
	if p.resume != nil {
		before, rep = p.resume.Report.Read, p.resume.Report
		rep.Resume = p.resume
	}
	if err == nil {
		rep, err = Verify(ctx, t.A, t.B, o)
	}
	round.Looked++
	round.Read += rep.Read - before
	if ctx.Err() != nil {
		p.resume = rep.Resume
		return ctx.Err()
	}
	if doubt := r.doubts(ctx, t, o, p, &rep); doubt != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.resume, p.passes = nil, 0 // what was seen counts for nothing
		rep, err = Report{Partition: tp, From: rep.From, To: rep.To, At: rep.From, A: rep.A, B: rep.B, Read: rep.Read}, doubt
	} else {
		p.resume = rep.Resume
		r.count(round, &rep)
	}
	if err != nil {
		if p.resume == nil {
			p.passes = 0 // it did not even begin, or begins anew: it is due
		}
		r.failed(round, err)
	}
	if r.o.Looked != nil {
		r.o.Looked(rep, p.began, err)
	}
	return nil
}

// count notes what a turn came to.
func (r *Runner) count(round *Round, rep *Report) {
	if rep.Complete || rep.Mismatch != nil {
		round.Completed++
	}
	if rep.Equal() {
		round.Equal++
	}
	if rep.Wrong() {
		round.Wrong++
	}
	if rep.Wrong() || len(rep.Uncomparable) > 0 {
		r.found(round, *rep)
	}
}

// doubts looks at a mismatch or a hole once more before it is told for the first time. Its error says why it is not told now.
func (r *Runner) doubts(ctx context.Context, t Target, o Options, p *place, rep *Report) error {
	first, to := rep.lastWrong()
	if first == mirror.Unknown {
		if rep.Complete {
			p.found, p.doubted = mirror.Unknown, mirror.Unknown
		}
		return nil
	}
	if r.o.Settle == nil || first == p.found || first == p.doubted {
		p.found, p.doubted = first, mirror.Unknown
		return nil
	}
	if err := r.o.Settle(ctx, rep.Partition); err != nil {
		return fmt.Errorf("it looked different at offset %d, and that could not be looked at again: %w", first, err)
	}
	o.From, o.To, o.Resume = first, to, nil
	again, err := Verify(ctx, t.A, t.B, o)
	rep.Read += again.Read
	switch {
	case again.Wrong():
		p.found, p.doubted = first, mirror.Unknown
		return nil
	case err != nil:
		return fmt.Errorf("it looked different at offset %d, and that could not be looked at again: %w", first, err)
	}
	p.doubted = first
	return fmt.Errorf("it looked different at offset %d, and did not when it was looked at again; it is compared anew", first)
}

// close ends the connections of sides that have some.
func (t *Target) close() {
	for _, side := range []Side{t.A, t.B} {
		if c, ok := side.(io.Closer); ok {
			_ = c.Close() // it was only read
		}
	}
}

func (r *Runner) found(round *Round, rep Report) {
	rep.Resume = nil
	if len(round.Found) < r.o.Listed {
		round.Found = append(round.Found, rep)
	} else {
		round.MoreFound++
		if i := len(round.Found) - 1; rep.Wrong() && !round.Found[i].Wrong() {
			round.Found[i] = rep
		}
	}
	slices.SortStableFunc(round.Found, func(a, b Report) int {
		switch {
		case a.Wrong() == b.Wrong():
			return 0
		case a.Wrong():
			return -1
		}
		return 1
	})
}

func (r *Runner) failed(round *Round, err error) {
	if len(round.Failed) < r.o.Listed {
		round.Failed = append(round.Failed, err)
	} else {
		round.MoreFailed++
	}
}
