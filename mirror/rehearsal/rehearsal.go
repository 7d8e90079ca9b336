package rehearsal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Step is one of the steps of a rehearsal, in the words of a report.
type Step string

// The steps, in their order.
const (
	Plan         Step = "plan"
	Failover     Step = "failover"
	Write        Step = "write"
	PlanFailback Step = "plan failback"
	Failback     Step = "failback"
)

// Steps are all of them, in order.
func Steps() []Step { return []Step{Plan, Failover, Write, PlanFailback, Failback} }

// Options are what a rehearsal needs. Zero values are the defaults in brackets.
type Options struct {
	// Mirror runs in this process and has the canary.
	Mirror *mirror.Mirror
	// Topic is the canary: a topic that is there for rehearsals, and that no application uses.
	Topic string
	// Write writes one record to a partition of the copy, as a client of the destination cluster does, and returns when it is acknowledged. It is called once for each partition.
	Write func(ctx context.Context, topic string, partition int32) error
	// Bound is the longest time of a step [1 min].
	Bound time.Duration
	// MostGivenUp is how many offsets the failback may drop, all partitions together [10,000]. The old copy is given up whole (see the package's comment), and a canary is small.
	MostGivenUp int64
}

func (o *Options) check() error {
	if o.Mirror == nil || o.Topic == "" || o.Write == nil {
		return errors.New("rehearsal: Options.Mirror, Topic and Write have to be set")
	}
	return nil
}

// StepTime is how long a step took.
type StepTime struct {
	Step Step
	Took time.Duration
}

// Report is what a rehearsal came to.
type Report struct {
	Mirror, Topic string
	Began         time.Time
	Steps         []StepTime    // that were begun; the last one may have failed
	Writable      time.Duration // from the call of the failover until a record was acknowledged in each partition; 0: none was
	GivenUp       int64         // offsets that the failback dropped
	Failover      mirror.FailoverReport
	Failback      mirror.FailbackReport
	Failed        Step   // "" if all is well
	Err           error  // why
	Left          string // how a failed rehearsal left the canary, "" if it was not touched, or is in step
}

// Good says that everything was done, and the canary is in step.
func (r *Report) Good() bool { return r.Err == nil }

// Ended is when its last step did.
func (r *Report) Ended() time.Time {
	t := r.Began
	for _, s := range r.Steps {
		t = t.Add(s.Took)
	}
	return t
}

// String is the report for a person, one line for each step.
func (r *Report) String() string {
	var b strings.Builder
	verdict := "GOOD"
	if !r.Good() {
		verdict = "FAILED at " + string(r.Failed)
	}
	fmt.Fprintf(&b, "REHEARSAL  mirror %s  topic %s  %s  %s\n", r.Mirror, r.Topic, r.Began.UTC().Format("2006-01-02 15:04:05 UTC"), verdict)
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "%-14s %s\n", s.Step, s.Took.Round(time.Millisecond))
	}
	if r.Writable > 0 {
		fmt.Fprintf(&b, "writable after %s\n", r.Writable.Round(time.Millisecond))
	}
	if r.GivenUp > 0 {
		fmt.Fprintf(&b, "given up       %d offsets, the whole old copy\n", r.GivenUp)
	}
	if r.Err != nil {
		fmt.Fprintf(&b, "%s\n", mirror.OneLine(r.Err.Error()))
	}
	if r.Left != "" {
		fmt.Fprintf(&b, "left           %s\n", r.Left)
	}
	return b.String()
}

// ErrNotReady: the canary is not a topic that is mirrored and in step, so nothing was done.
var ErrNotReady = errors.New("rehearsal: the canary is not in step")

// ErrDisaster: another topic was stopped while the rehearsal ran. The canary stays stopped, as the others are.
var ErrDisaster = errors.New("rehearsal: another topic of the mirror was stopped meanwhile, the canary is left as it is")

// ErrUsed: the copy of the canary has more than the rehearsal wrote. The canary stays stopped, and nothing was dropped.
var ErrUsed = errors.New("rehearsal: somebody else has written to the canary")

// Rehearse fails the canary over and back, once. The report is whole also with an error, which is its Err. It ends at the latest after Bound for each step; when ctx ends before, the canary is left as it is.
// Of one mirror and canary one rehearsal may run at a time.
func Rehearse(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Bound == 0 {
		o.Bound = time.Minute
	}
	s := o.Mirror.Status()
	x := &run{Options: o, r: &Report{Mirror: s.Mirror, Topic: o.Topic, Began: time.Now()}, stopped: stopped(&s)}
	for _, step := range []struct {
		name Step
		do   func(context.Context) error
	}{{Plan, x.plan}, {Failover, x.failover}, {Write, x.write}, {PlanFailback, x.planFailback}, {Failback, x.failback}} {
		began := time.Now()
		ctx, stop := context.WithTimeout(ctx, o.Bound)
		err := step.do(ctx)
		stop()
		x.r.Steps = append(x.r.Steps, StepTime{step.name, time.Since(began)})
		if err == nil {
			continue
		}
		err = fmt.Errorf("rehearsal of mirror %s with topic %s: %s: %w", s.Mirror, o.Topic, step.name, err)
		if x.r.Err = errors.Join(x.r.Err, err); x.r.Failed == "" {
			x.r.Failed = step.name
		}
		if step.name != Write { // a canary that could not be written to can be brought back all the same
			break
		}
	}
	if len(x.r.Steps) > 1 {
		x.r.Left = x.left()
	}
	return x.r, x.r.Err
}

type run struct {
	Options
	r            *Report
	stopped      []string // topics that were stopped when it began
	partitions   int32
	failoverPlan mirror.FailoverPlan
	failbackPlan mirror.FailbackPlan
	began        time.Time // of the failover
}

func stopped(s *mirror.Status) (topics []string) {
	for _, t := range s.Topics {
		if _, want, _ := statemachine.ParseMirrorNameValue(t.MirrorName); want == statemachine.WantStopped {
			topics = append(topics, t.Topic)
		}
	}
	return topics
}

// canary is the topic's status, and why it is not in step, "" if it is.
func (x *run) canary() (t *mirror.TopicStatus, why string) {
	s := x.Mirror.Status()
	i := slices.IndexFunc(s.Topics, func(t mirror.TopicStatus) bool { return t.Topic == x.Topic })
	if i < 0 {
		return nil, "it is no topic of this mirror: make it at the source, and start it"
	}
	t = &s.Topics[i]
	switch {
	case t.Err != nil:
		return t, t.Err.Error()
	case len(t.Partitions) == 0:
		return t, "it has no partitions here yet"
	}
	for _, p := range t.Partitions {
		switch {
		case p.Halted || p.State != statemachine.Mirroring || p.Want != statemachine.WantMirroring:
			return t, mirror.OneLine(fmt.Sprintf("partition %d is %s, wanted %s %s", p.Partition, p.State, p.Want, p.Reason))
		case p.LagOffsets != 0 || p.LagTime == mirror.Unknown || p.LagTime > x.Bound:
			return t, fmt.Sprintf("partition %d is behind the source, or it is not known how far: its copy ends at %d, the source at %s", p.Partition, p.End, mirror.KnownNumber(p.SourceEnd))
		}
	}
	return t, ""
}

func (x *run) left() string {
	t, why := x.canary()
	if why == "" {
		return ""
	}
	if t != nil && slices.ContainsFunc(t.Partitions, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped }) {
		why += "; it stays so until it is started again"
	}
	return why
}

func (x *run) plan(context.Context) error {
	t, why := x.canary()
	if why != "" {
		return fmt.Errorf("%w: %s", ErrNotReady, why)
	}
	x.partitions = int32(len(t.Partitions))
	x.failoverPlan = mirror.PlanFailover(x.Mirror.Snapshot(), mirror.FailoverOptions{Topics: []string{x.Topic}, Reason: "rehearsal"})
	if x.failoverPlan.Severity == mirror.SeverityRefused {
		return fmt.Errorf("the failover's plan is refused:\n%v", x.failoverPlan)
	}
	return nil
}

func (x *run) failover(ctx context.Context) (err error) {
	x.began = time.Now()
	x.r.Failover, err = x.Mirror.ExecuteFailover(ctx, x.failoverPlan)
	return err
}

func (x *run) write(ctx context.Context) error {
	for p := range x.partitions {
		if err := x.Write(ctx, x.Topic, p); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	x.r.Writable = time.Since(x.began)
	return nil
}

// undisturbed says that no other topic has been stopped since the rehearsal began.
func (x *run) undisturbed() error {
	s := x.Mirror.Status()
	for _, topic := range stopped(&s) {
		if topic != x.Topic && !slices.Contains(x.stopped, topic) {
			return fmt.Errorf("%w: topic %s", ErrDisaster, topic)
		}
	}
	return nil
}

func (x *run) planFailback(ctx context.Context) (err error) {
	if err = x.undisturbed(); err != nil {
		return err
	}
	if x.failbackPlan, err = x.Mirror.PlanFailback(ctx, x.Topic); err != nil {
		return err
	}
	if x.failbackPlan.Severity == mirror.SeverityRefused {
		return fmt.Errorf("the failback's plan is refused:\n%v", x.failbackPlan)
	}
	if most := cmp.Or(x.MostGivenUp, 10_000); x.failbackPlan.Dropped > most {
		return fmt.Errorf("the canary is too large: the failback would drop %d offsets, and Options.MostGivenUp is %d", x.failbackPlan.Dropped, most)
	}
	for _, p := range x.failbackPlan.Partitions {
		i := slices.IndexFunc(x.r.Failover.Partitions, func(f mirror.FailoverResult) bool { return f.Partition == p.Partition })
		if i < 0 || p.End > x.r.Failover.Partitions[i].OpensAt+1 {
			return fmt.Errorf("%w: partition %d ends at %d, and the rehearsal has written one record to it", ErrUsed, p.Partition, p.End)
		}
	}
	x.r.GivenUp = x.failbackPlan.Dropped
	return nil
}

func (x *run) failback(ctx context.Context) (err error) {
	if err = x.undisturbed(); err != nil {
		return err
	}
	x.failbackPlan.Reason = "rehearsal"
	x.r.Failback, err = x.Mirror.ExecuteFailback(ctx, x.failbackPlan)
	return err
}
