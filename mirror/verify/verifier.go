package verify

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// Verifier is a mirror.Verifier: what a failback compares at its end, and what a mirror compares while it runs. The zero value has the defaults.
type Verifier struct {
	Options Options       // of each partition; From, To, Compacted, MaxBytes and Resume are not used. BytesPerSecond is for all of them together
	Source  SourceOptions // how the source is read
}

var _ mirror.ContinuousVerifier = Verifier{}

// Verify compares copies with the source, one behind the other.
func (v Verifier) Verify(ctx context.Context, source mirror.Source, copies []mirror.CopyToVerify) []mirror.Verified {
	pairs := make([]Pair, len(copies))
	for i, c := range copies {
		a, b := v.sides(source, c)
		pairs[i] = Pair{A: a, B: b, From: c.From, To: c.To, Compacted: c.Compacted}
	}
	return Pairs(ctx, pairs, v.Options)
}

func (v Verifier) sides(source mirror.Source, c mirror.CopyToVerify) (a, b Side) {
	o := v.Source
	o.TopicID = c.SourceTopicID
	return SourceSide(source, c.TopicPartition, o), LogSide(c.TopicPartition, c.Log)
}

// VerifyContinuously goes over the copies with a Runner.
func (v Verifier) VerifyContinuously(ctx context.Context, source mirror.Source, o mirror.ContinuousVerification) {
	options := v.Options.withDefaults()
	options.limit, options.BytesPerSecond = nil, o.BytesPerSecond
	runner := newRunner(RunnerOptions{
		Targets: func(ctx context.Context) (targets []Target, err error) {
			copies, err := o.Copies(ctx)
			for _, c := range copies {
				a, b := v.sides(source, c)
				targets = append(targets, Target{A: a, B: b, Compacted: c.Compacted})
			}
			return targets, err
		},
		Report: func(Round) {}, Options: options, Every: o.Interval, Turn: max(0, turnSeconds*o.BytesPerSecond), Await: o.Await, Settle: o.Settle,
		Looked: func(r Report, began time.Time, err error) {
			x := Verified(&r, err)
			x.Began, x.Took = began, options.Clock.Now().Sub(began)
			o.Looked(x, err == nil && (r.Complete || r.Mismatch != nil))
		},
	})
	_ = runner.Run(ctx)
}

// turnSeconds is for how long a copy is read at the whole rate before the next one has its turn.
const turnSeconds = 60

// Pair is a range of one partition that Pairs compares.
type Pair struct {
	A, B      Side  // the source, and the copy. A side that is an io.Closer is closed when it was compared
	From, To  int64 // [From, To); To mirror.Unknown: up to the smaller end
	Compacted bool  // see Options
}

// Pairs compares each range, one behind the other, under one limit of bytes a second, and has an entry for each. It returns when ctx ends.
func Pairs(ctx context.Context, pairs []Pair, o Options) []mirror.Verified {
	o = o.withDefaults()
	o.MaxBytes, o.Resume = 0, nil
	all := make([]mirror.Verified, len(pairs))
	for i, p := range pairs {
		all[i] = p.verify(ctx, o)
		(&Target{A: p.A, B: p.B}).close()
	}
	return all
}

func (p Pair) verify(ctx context.Context, o Options) mirror.Verified {
	tp := p.A.Partition()
	if ctx.Err() != nil {
		return mirror.NotCompared(tp, outOfTime)
	}
	began := o.Clock.Now()
	if p.To != mirror.Unknown && p.From >= p.To {
		return mirror.Verified{Topic: tp.Topic, Partition: tp.Partition, Verdict: mirror.VerifiedIdentical, From: p.From, To: p.From, SourceEnd: mirror.Unknown, CopyEnd: mirror.Unknown, FirstWrong: mirror.Unknown, Began: began}
	}
	o.From, o.To, o.Compacted = p.From, max(0, p.To), p.Compacted
	rep, err := Verify(ctx, p.A, p.B, o)
	v := Verified(&rep, err)
	v.Began, v.Took = began, o.Clock.Now().Sub(began)
	return v
}

const outOfTime = "the time for it was over"

// Verified is a report for whoever reads those of many partitions. err is what Verify returned beside it.
func Verified(r *Report, err error) mirror.Verified {
	v := mirror.Verified{
		Topic: r.Partition.Topic, Partition: r.Partition.Partition, From: r.From, To: r.To, SourceEnd: r.A.End, CopyEnd: r.B.End,
		Bytewise: mirror.VerifiedAmount(r.Bytewise), Recordwise: mirror.VerifiedAmount(r.Recordwise), Compacted: r.Compacted, Read: r.Read, FirstWrong: r.FirstWrong(),
		Uncomparable: r.Uncompared,
	}
	if err != nil && r.A == (Bounds{}) {
		v.SourceEnd, v.CopyEnd = mirror.Unknown, mirror.Unknown // it did not even begin
	}
	if r.Mismatch != nil {
		v.Findings = append(v.Findings, describe(r.Mismatch))
	}
	for _, h := range r.Holes {
		v.Findings = append(v.Findings, h.String())
	}
	for _, u := range r.Uncomparable {
		v.Findings = append(v.Findings, u.String())
	}
	if r.MoreFindings > 0 {
		v.Findings = append(v.Findings, "and more of the same, not listed")
	}
	if !r.Complete {
		v.Unread = r.To - r.At
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		v.Reason = outOfTime
	case err != nil:
		v.Reason = err.Error()
	case r.Mismatch != nil && v.Unread > 0:
		v.Reason = "nothing behind the difference was looked at"
	}
	switch {
	case r.Mismatch != nil:
		v.Verdict = mirror.VerifiedDifferent
	case len(r.Holes) > 0:
		v.Verdict = mirror.VerifiedHole
	case r.Complete && nothing(r, r.A, r.B):
		v.Verdict, v.Reason = mirror.VerifiedNothing, "the copy has nothing of it yet"
	case r.Complete && r.MoreFindings == 0 && !slices.ContainsFunc(r.Uncomparable, func(u Uncomparable) bool { return u.Reason != Retention || u.In != names[0] }):
		v.Verdict = mirror.VerifiedIdentical // what the source has deleted it does not have
	case r.Bytewise.Batches+r.Recordwise.Batches+r.Compacted == 0:
		v.Verdict = mirror.VerifiedNothing
	default:
		v.Verdict = mirror.VerifiedPartly
	}
	return v
}
