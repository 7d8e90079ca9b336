package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Reached is what Admin.Await waits for, of every partition of the topics.
type Reached uint8

// What is waited for. A recorded state outlives the process that recorded it, so only of STOPPED it is enough:
//
//   - ReachedStopped: the state store has every partition STOPPED. The log is open then, and stays open without a process.
//   - ReachedMirroring, ReachedPaused: the state store and the process that reported the partition last, since it began to run, both say so, and that process has reported again since the
//     wait began. MIRRORING is something that a process does; PAUSED is a place from which one goes on at once.
//   - ReachedNotFailed: the same with any state but FAILED and UNKNOWN, and no request to recover is left that the process has not taken up.
//
// The wait begins behind what was recorded, so a report that is made since it began is made by a process that lives behind it, whatever its clock says. What is so already takes a heartbeat to be
// believed, five seconds.
const (
	ReachedMirroring Reached = iota + 1 // MIRRORING
	ReachedStopped                      // STOPPED: open for clients
	ReachedPaused                       // PAUSED
	ReachedNotFailed                    // any state but FAILED: as after Recover
)

// String is the state, in capitals.
func (r Reached) String() string {
	switch r {
	case ReachedMirroring:
		return statemachine.Mirroring.String()
	case ReachedStopped:
		return statemachine.Stopped.String()
	case ReachedPaused:
		return statemachine.Paused.String()
	case ReachedNotFailed:
		return "not " + statemachine.Failed.String()
	}
	return fmt.Sprintf("REACHED_%d", uint8(r))
}

// wants says whether a topic of which that is wanted can get there.
func (r Reached) wants(want statemachine.Desired) bool {
	switch r {
	case ReachedMirroring:
		return want == statemachine.WantMirroring
	case ReachedStopped:
		return want == statemachine.WantStopped
	case ReachedPaused:
		return want == statemachine.WantPaused
	}
	return true
}

func (r Reached) by(state string) bool {
	if r == ReachedNotFailed {
		return state != statemachine.Failed.String() && state != statemachine.Unknown.String()
	}
	return state == r.String()
}

// AwaitOptions belong to Admin.Await.
type AwaitOptions struct {
	Topics []string // none: every topic of the mirror
	Until  Reached
}

// Unreached is a topic or a partition that is not where it was waited for.
type Unreached struct {
	Topic     string
	Partition int32  // -1: the topic as a whole
	State     string // "" of a topic as a whole
	Why       string // "" if nothing is said but the state
	Stuck     bool   // it does not get there by itself
}

// String is one line.
func (u Unreached) String() string {
	s := u.Topic
	if u.Partition >= 0 {
		s = fmt.Sprintf("%s-%d is %s", u.Topic, u.Partition, u.State)
	}
	if u.Why != "" {
		s += ": " + u.Why
	}
	return s
}

// NotReachedError is what Admin.Await has waited for in vain. What was recorded stays recorded.
type NotReachedError struct {
	Mirror string
	Until  Reached
	// Stuck: some of Topics do not get there by themselves, and a person has to act. False: ctx ended first, and errors.Is finds its error.
	Stuck   bool
	Topics  []Unreached // what is missing, by topic and partition
	Process string      // why no process can bring it about, "" if one is heard of
	Err     error       // the context's end, and what hindered the last look; nil if Stuck
}

func (e *NotReachedError) Error() string {
	var words []string
	if e.Process != "" {
		words = append(words, e.Process)
	}
	missing := e.Topics
	if e.Stuck {
		missing = slices.DeleteFunc(slices.Clone(missing), func(u Unreached) bool { return !u.Stuck })
	}
	const most = 5
	for _, u := range missing[:min(len(missing), most)] {
		words = append(words, OneLine(u.String()))
	}
	if more := len(missing) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	s := fmt.Sprintf("mirror %s: not %s yet: ", e.Mirror, e.Until)
	if e.Until == ReachedNotFailed {
		s = fmt.Sprintf("mirror %s: still %s: ", e.Mirror, statemachine.Failed)
	}
	if e.Stuck {
		s = fmt.Sprintf("mirror %s: waiting for %s is of no use, a person has to act: ", e.Mirror, e.Until)
	}
	s += strings.Join(words, "; ")
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *NotReachedError) Unwrap() error { return e.Err }

const (
	// lookInterval is how often Await looks whether the desired state or a report has changed: reports wake nobody.
	lookInterval = time.Second
	// describeInterval is how often it looks at everything though neither has: states may move while reports cannot be written, and silence is an age.
	describeInterval = 5 * time.Second
	// stuckAfter is how long a partition has to be FAILED for good, while a process is heard of, before that is believed: what was asked for just now may not have reached it.
	stuckAfter = 10 * time.Second
)

// Await waits until every partition of the topics has reached what is asked for (Reached has the rules), and returns the description that says so. It follows the desired state and the reports,
// and asks the destination only what Describe does. progress, if not nil, is called on the caller's goroutine with the first description and with each that says something else than the one before,
// ages aside; not before it is known whether a process runs the mirror, which takes seven seconds where clocks differ or none does.
// It ends early when that cannot come about by itself: a partition is FAILED for good (a consent is needed, or something has to be mended) though a process had ten seconds to act on
// what is wanted, or something else is wanted of the topic. Errors: InvalidRequest (Until; no topic is in the mirror), UnknownClusterMirror, TopicNotInClusterMirror; *NotReachedError; the Control's.
// The description is the last one also beside an error.
func (a *Admin) Await(ctx context.Context, o AwaitOptions, progress func(Description)) (Description, error) {
	if o.Until < ReachedMirroring || o.Until > ReachedNotFailed {
		return Description{}, a.refuse(InvalidRequest, "", "there is no %s to wait for", o.Until)
	}
	w := waiting{Admin: a, o: o, began: a.now(), stuck: map[TopicPartition]stuckSince{}}
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		changed := a.cfg.Control.Changed()
		done, err := w.look(ctx, progress)
		if done {
			return w.last, err
		}
		select {
		case <-ctx.Done():
			e := w.missing(ctx.Err(), false)
			if err != nil && !errors.Is(err, ctx.Err()) {
				e.Err = fmt.Errorf("%w; at last it could not be seen how the mirror is: %w", ctx.Err(), err)
			}
			return w.last, e
		case <-changed:
		case <-tick.C:
		}
	}
}

// waiting is one Await.
type waiting struct {
	*Admin
	o     AwaitOptions
	began time.Time

	version int64
	reports Reports
	looked  time.Time
	last    Description
	wishes  ControlState
	told    []string
	stuck   map[TopicPartition]stuckSince
}

// stuckSince is since when a partition is FAILED for good, and what its process had said last then.
type stuckSince struct{ since, heard time.Time }

// look describes the mirror where something may be new. done: the wait is over.
func (w *waiting) look(ctx context.Context, progress func(Description)) (done bool, err error) {
	s, err := w.cfg.Control.Read(ctx)
	reports := Reports{}
	if err == nil {
		if reports, _, err = w.hear(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, keyedlog.ErrClosed) {
			err = nil // Describe says that they cannot be read
		}
	}
	if err != nil {
		return errors.Is(err, ErrNewerRecord) || errors.Is(err, keyedlog.ErrDenied) || errors.Is(err, keyedlog.ErrClosed), err
	}
	now := w.now()
	if s.Version == w.version && now.Sub(w.looked) < describeInterval && reflect.DeepEqual(reports, w.reports) {
		return false, nil
	}
	d, err := w.describe(ctx, false)
	if err != nil {
		return errorCode(err) != OK, err
	}
	w.version, w.reports, w.looked, w.last, w.wishes = s.Version, reports, now, d, s
	if words := d.words(); !d.unwatched && progress != nil && !slices.Equal(words, w.told) {
		w.told = words
		progress(d)
	}
	topics, err := w.topics()
	if err != nil {
		return true, err
	}
	stuck, there := false, true
	for _, u := range w.unreached(topics) {
		there, stuck = false, stuck || u.Stuck
	}
	if stuck {
		return true, w.missing(nil, true)
	}
	return there, nil
}

// topics are those that are waited for. Errors: one is not in the mirror; there is none.
func (w *waiting) topics() (topics []DescribedTopic, err error) {
	if len(w.o.Topics) == 0 {
		if len(w.last.Topics) == 0 {
			return nil, w.refuse(InvalidRequest, "", "no topic is in this mirror, so there is nothing to wait for")
		}
		return w.last.Topics, nil
	}
	for _, name := range w.o.Topics {
		i := slices.IndexFunc(w.last.Topics, func(t DescribedTopic) bool { return t.Topic == name })
		if i < 0 {
			return nil, w.refuse(TopicNotInClusterMirror, name, "the topic is not in this mirror, so nothing comes about")
		}
		topics = append(topics, w.last.Topics[i])
	}
	return topics, nil
}

// unreached is what is missing. It notes since when partitions are FAILED for good.
func (w *waiting) unreached(topics []DescribedTopic) (all []Unreached) {
	for _, t := range topics {
		if !w.o.Until.wants(t.want) {
			all = append(all, Unreached{Topic: t.Topic, Partition: -1, Why: fmt.Sprintf("it is wanted %s", t.want), Stuck: true})
			continue
		}
		if len(t.Partitions) == 0 {
			all = append(all, Unreached{Topic: t.Topic, Partition: -1, Why: cmp.Or(w.last.trouble(t.Topic), "no process has taken it up yet")})
		}
		for _, p := range t.Partitions {
			tp := TopicPartition{t.Topic, p.Partition}
			if w.o.Until.by(p.State) {
				delete(w.stuck, tp)
				if why := w.unproved(t.Topic, &p); why != "" {
					all = append(all, Unreached{Topic: t.Topic, Partition: p.Partition, State: p.State, Why: why})
				}
				continue
			}
			u := Unreached{Topic: t.Topic, Partition: p.Partition, State: p.State, Why: p.Reason, Stuck: w.isStuck(tp, &p)}
			if p.RetryAttempt > 0 {
				u.Why = strings.TrimPrefix(fmt.Sprintf("%s; attempt %d has failed, it is tried again", u.Why, p.RetryAttempt), "; ")
			}
			all = append(all, u)
		}
	}
	return all
}

// unproved is why the state that a partition is shown in is not enough, "" if it is: the comment of Reached has the rules.
func (w *waiting) unproved(topic string, p *DescribedPartition) string {
	wish, _ := w.wishes.Topic(topic)
	switch {
	case !p.stored:
		return "that was only reported, and the state store does not have it"
	case w.o.Until == ReachedStopped:
		return ""
	case !w.pulses.since(p.Owner, w.began):
		return "that was recorded, and no process has said since the wait began that it still is so"
	case !w.o.Until.by(p.said):
		return "that was recorded, and the process that runs now has not said so yet"
	case w.o.Until == ReachedNotFailed && wish.Recover > 0:
		return "the request to recover is not taken up yet"
	}
	return ""
}

// isStuck says that a partition stays FAILED though its process was heard of for long enough after that was seen first, and nobody has asked to try again.
func (w *waiting) isStuck(tp TopicPartition, p *DescribedPartition) bool {
	wish, _ := w.wishes.Topic(tp.Topic)
	if p.State != statemachine.Failed.String() || p.RetryAttempt != statemachine.NonRetryable || wish.Recover > 0 {
		delete(w.stuck, tp)
		return false
	}
	heard := w.last.heard()
	first, seen := w.stuck[tp]
	if !seen {
		w.stuck[tp] = stuckSince{w.last.Taken, heard}
		return false
	}
	return w.last.Alive && heard.After(first.heard) && w.last.Taken.Sub(first.since) >= stuckAfter
}

func (w *waiting) missing(end error, stuck bool) *NotReachedError {
	e := &NotReachedError{Mirror: w.cfg.Mirror, Until: w.o.Until, Stuck: stuck, Err: end}
	if w.looked.IsZero() {
		return e
	}
	topics, _ := w.topics() // they were there at the last look
	e.Topics = w.unreached(topics)
	e.Process = w.last.unrun()
	return e
}

// heard is when a process that is not silent said something last; zero: none did.
func (d *Description) heard() (last time.Time) {
	for _, n := range d.Nodes {
		if !n.Silent && !n.ClockAhead && n.Seen.After(last) {
			last = n.Seen
		}
	}
	return last
}

// words are what a description says but for ages: two that have the same tell a person nothing new.
func (d *Description) words() (words []string) {
	say := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	for _, n := range d.Nodes {
		say("%s %s %d %v %v %q %q", n.Owner, n.Host, n.PID, n.Silent, n.ClockAhead, n.SourceError, n.Trouble)
	}
	for _, t := range d.Topics {
		say("%s %s", t.Topic, t.MirrorName)
		for _, p := range t.Partitions {
			say("%d %s %q %d %s %s %s %s %s %d %d", p.Partition, p.State, p.Reason, p.RetryAttempt, p.SourceEnd, p.DestinationEnd, p.Lag, p.LME, p.LMO, p.LostFrom, p.LostTo)
		}
	}
	return words
}
