package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// waitBound is how long --wait waits where --timeout does not say it, and stepBound how long a step takes at most beside a --wait that may take longer.
const (
	waitBound = 10 * time.Minute
	stepBound = 30 * time.Second
)

// endedError is a verb that did what was asked for, and whose exit status still says something.
type endedError struct {
	status int
	err    error // nil: nothing is to be said
}

func (e *endedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *endedError) Unwrap() error { return e.err }

// waitedJSON is what came of --wait.
type waitedJSON struct {
	For     string  // the state that was waited for
	Reached bool    // in time
	Stuck   bool    // it does not come by itself
	Seconds float64 // how long it took
	Missing []missingJSON
	began   time.Time
}

func (w *waitedJSON) ends(reached bool) {
	w.Reached, w.Seconds = reached, time.Since(w.began).Round(time.Millisecond).Seconds()
}

type missingJSON struct {
	Topic      string
	Partition  *int32 // null: the topic as a whole
	StateValue string
	Reason     string
}

// until is what a verb waits for, of every partition of its topics.
var until = map[string]mirror.Reached{
	"start": mirror.ReachedMirroring, "resume": mirror.ReachedMirroring, "failback": mirror.ReachedMirroring, "stop": mirror.ReachedStopped, "pause": mirror.ReachedPaused, "recover": mirror.ReachedNotFailed,
	"abort-failback": mirror.ReachedPaused, // or STOPPED, where nothing was cut
}

// await waits until what was recorded has come about, or bounded ends, which ctx is without the bound of the wait. Errors: an endedError.
func (p *program) await(ctx, bounded context.Context, a *mirror.Admin, r mirror.Result) error {
	var topics, opens []string
	for _, t := range r.Topics {
		if t.Err == nil && !slices.Contains(topics, t.Topic) {
			topics = append(topics, t.Topic)
			if t.Opens {
				opens = append(opens, t.Topic)
			}
		}
	}
	p.waited = &waitedJSON{Missing: []missingJSON{}, began: time.Now()}
	var err error
	switch {
	case p.verb == "create":
		p.waited.For = "a process that runs it"
		err = p.untilRun(bounded, a)
	case p.verb == "delete":
		p.waited.For = "states taken out"
		err = p.untilGone(bounded, a)
	case len(topics) == 0:
		p.waited.For = until[p.verb].String()
	case len(opens) > 0 && len(opens) < len(topics) && p.verb == "abort-failback": // two failbacks, one of which had not cut anything
		closed := slices.DeleteFunc(topics, func(topic string) bool { return slices.Contains(opens, topic) })
		if err = p.awaitTopics(bounded, a, opens, mirror.ReachedStopped); err == nil {
			err = p.awaitTopics(bounded, a, closed, mirror.ReachedPaused)
		}
	case len(opens) > 0 && p.verb == "abort-failback":
		err = p.awaitTopics(bounded, a, topics, mirror.ReachedStopped)
	default:
		err = p.awaitTopics(bounded, a, topics, until[p.verb])
	}
	p.waited.ends(err == nil)
	if err == nil {
		return nil
	}
	var missing *mirror.NotReachedError
	if errors.As(err, &missing) {
		p.waited.Stuck = missing.Stuck
		for _, u := range missing.Topics {
			m := missingJSON{Topic: u.Topic, StateValue: u.State, Reason: inOwnWords(mirror.OneLine(u.Why))}
			if u.Partition >= 0 {
				m.Partition = &u.Partition
			}
			p.waited.Missing = append(p.waited.Missing, m)
		}
		if missing.Stuck {
			return &endedError{1, fmt.Errorf("%w. What is recorded stays", err)}
		}
	}
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return p.notInTime(ctx, err, "--describe shows how it goes on")
	}
	return err
}

func (p *program) awaitTopics(ctx context.Context, a *mirror.Admin, topics []string, reached mirror.Reached) error {
	p.waited.For = reached.String()
	shown := progress{to: p.progressTo(), began: p.waited.began, topics: topics, last: map[string]string{}}
	_, err := a.Await(ctx, mirror.AwaitOptions{Topics: topics, Until: reached}, shown.show)
	return err
}

// notInTime is what was waited for in vain, whose error ends with that of the context, and what to do next. It says how long was waited, unless ctx ended the wait.
func (p *program) notInTime(ctx context.Context, err error, next string) error {
	if ctx.Err() == nil {
		err = fmt.Errorf("%s: not in the %s of --timeout", strings.TrimSuffix(err.Error(), ": "+context.DeadlineExceeded.Error()), p.waits)
	}
	return &endedError{4, fmt.Errorf("%w. What is recorded stays; %s", err, next)}
}

func (p *program) progressTo() io.Writer {
	if p.json {
		return p.complaints
	}
	return p.out
}

// progress shows a line for each change of what is waited for.
type progress struct {
	to     io.Writer
	began  time.Time
	topics []string
	last   map[string]string // what was shown of each topic
}

// eachTopic is up to how many topics there is a line for each; of more there is one for all.
const eachTopic = 10

func (s *progress) show(d mirror.Description) {
	say := func(of, words string) {
		if words != s.last[of] {
			s.last[of] = words
			say(s.to, fmt.Sprintf("%6s  %s\n", time.Since(s.began).Round(time.Second), mirror.OneLine(strings.TrimPrefix(of+": "+words, ": "))))
		}
	}
	if !d.Alive {
		say("", before{true, d}.nobody())
	} else if s.last[""] != "" {
		say("", "a process runs this mirror")
	}
	var all []mirror.DescribedPartition
	for _, t := range d.Topics {
		if !slices.Contains(s.topics, t.Topic) {
			continue
		}
		all = append(all, t.Partitions...)
		if len(s.topics) <= eachTopic {
			words := inStates(t.Partitions)
			if why := troubleOf(d, t.Topic); len(t.Partitions) == 0 && why != "" {
				words = why
			}
			say(t.Topic, words)
		}
	}
	if len(s.topics) > eachTopic {
		say(fmt.Sprintf("%d topics", len(s.topics)), inStates(all))
	}
}

// troubleOf is why a process does not mirror a topic, "" if none says so.
func troubleOf(d mirror.Description, topic string) string {
	for _, n := range d.Nodes {
		for _, line := range n.Trouble {
			if why, ok := strings.CutPrefix(line, topic+": "); ok {
				return why
			}
		}
	}
	return ""
}

// inStates says how many partitions are in which state, and why one of them failed.
func inStates(partitions []mirror.DescribedPartition) string {
	if len(partitions) == 0 {
		return "no process has taken it up yet"
	}
	count, why := map[string]int{}, ""
	for _, p := range partitions {
		count[p.State]++
		if p.State == statemachine.Failed.String() && why == "" {
			why = p.Reason
		}
	}
	var words []string
	for _, state := range slices.Sorted(maps.Keys(count)) {
		word := state
		if len(partitions) > 1 {
			word = fmt.Sprintf("%d of %d %s", count[state], len(partitions), state)
		}
		if state == statemachine.Failed.String() && why != "" {
			word += " (" + why + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// untilRun waits until a process runs a mirror that was just created.
func (p *program) untilRun(ctx context.Context, a *mirror.Admin) error {
	to, began, last := p.progressTo(), time.Now(), ""
	_, err := a.AwaitRun(ctx, func(d mirror.Description) {
		now := before{true, d}.nobody()
		if d.Alive {
			now = "a process runs it: " + d.Nodes[slices.IndexFunc(d.Nodes, func(n mirror.DescribedNode) bool { return !n.Silent && !n.ClockAhead })].Owner
		}
		if now != last {
			last = now
			fmt.Fprintf(to, "%6s  %s\n", time.Since(began).Round(time.Second), mirror.OneLine(now))
		}
	})
	return err
}

// untilGone waits until the process that has them has taken out the states of a mirror that was deleted.
func (p *program) untilGone(ctx context.Context, a *mirror.Admin) error {
	to, began := p.progressTo(), time.Now()
	return a.AwaitDeleted(ctx, p.purge, func(left int) {
		fmt.Fprintf(to, "%6s  states that are still kept: %d\n", time.Since(began).Round(time.Second), left)
	})
}
