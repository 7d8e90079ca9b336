package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	resume *Resume // nil: between passes
	began  time.Time
	passes int // that began
}

// NewRunner returns a runner that does nothing before Run. An error says what of the options is missing.
func NewRunner(o RunnerOptions) (*Runner, error) {
	if o.Targets == nil || o.Report == nil {
		return nil, errors.New("verify: RunnerOptions.Targets and Report are needed")
	}
	o.Turn = cmp.Or(max(0, o.Turn), 64<<20)
	o.Every = cmp.Or(max(0, o.Every), time.Hour)
	o.Pause = cmp.Or(max(0, o.Pause), time.Second)
	o.Listed = cmp.Or(max(0, o.Listed), 16)
	o.Options = o.Options.withDefaults()
	o.Options.From, o.Options.To, o.Options.MaxBytes, o.Options.Resume = 0, 0, o.Turn, nil
	r := &Runner{o: o, places: map[mirror.TopicPartition]*place{}}
	for tp, resume := range o.Places {
		if resume != nil {
			r.places[tp] = &place{resume: resume, began: o.Options.Clock.Now(), passes: 1}
		}
	}
	return r, nil
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
			p = &place{}
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
	o := r.o.Options
	o.Compacted, o.Resume = t.Compacted, p.resume
	before := int64(0)
	if p.resume != nil {
		before = p.resume.Report.Read
	}
	rep, err := Verify(ctx, t.A, t.B, o)
	p.resume = rep.Resume
	round.Looked++
	round.Read += rep.Read - before
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
		r.found(round, rep)
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if p.resume == nil {
			p.passes = 0 // it did not even begin: it is due
		}
		r.failed(round, err)
	}
	return nil
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
