package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// AbortFailbackOptions belong to AbortFailback.
type AbortFailbackOptions struct {
	// AllTopics is every topic of the mirror that a failback is under way of. No topics beside it.
	AllTopics bool
	DryRun    bool
	Intent    Intent
}

// AbortFailback gives up failbacks that are under way, by the step that is recorded of each (Failback.Step):
//
//   - FailbackClosing: its topics are stopped, which opens their logs as they were found: no byte of them and none of their settings has changed, and none will. Nothing is in the sink.
//   - FailbackCopying: its topics are paused and stay closed for clients: they are a copy, and the cluster that took over is the only one that clients write. What of them was not cut yet is cut, as was
//     consented to, so that all of it is one. The result's notes name what was given up. A later Failback, or Resume, goes on from there and copies only what is missing.
//
// A failback is given up whole: the topics of one plan together. Where none is under way nothing changes, and that is no error, so it may be repeated. It calls no source, and no process has to run: one
// that comes later does what is recorded. Await waits: for ReachedStopped where TopicResult.Opens is set, else for ReachedPaused. The other cluster is not touched.
// For the whole request, in this order: InvalidRequest (nothing named; the intent; some topics of a failback are named and others are not), UnknownClusterMirror. Per topic: UnknownTopicOrPartition,
// UnknownClusterMirror, TopicNotInClusterMirror. A strict Admin needs a reason, and the plan of a dry run or the destination's cluster id, where something is opened.
func (a *Admin) AbortFailback(ctx context.Context, topics []string, o AbortFailbackOptions) (Result, error) {
	c, missing, err := a.beginNamed(ctx, verbAbortFailback, o.DryRun, o.Intent, topics, o.AllTopics)
	if err != nil {
		return c.nothing(err)
	}
	known := topics
	if o.AllTopics {
		known = c.members(&c.known, nil)
	}
	facts, err := c.look(ctx, known)
	if err != nil {
		return c.nothing(err)
	}
	if err := c.askDestination(ctx); err != nil {
		return c.nothing(err)
	}
	return c.commit(ctx, func(s *ControlState, r *Result) (outcome, error) {
		var out outcome
		if _, err := c.exists(s); err != nil && o.AllTopics {
			return out, err
		}
		under := s.underWay(c.cfg.Mirror, nil)
		names := topics
		if o.AllTopics {
			for _, f := range under {
				names = append(names, f.Topics...)
			}
			slices.Sort(names)
		}
		if len(names) == 0 {
			out.notes = append(out.notes, "no failback of this mirror is under way")
		}
		opens := false
		for _, topic := range names {
			x, err := c.abortFailback(s, topic, names, under, facts, missing[topic])
			if err != nil && x.Topic == "" {
				return out, err
			}
			r.Topics = append(r.Topics, x)
			opens = opens || x.Opens && x.Changed
		}
		for _, f := range under {
			if !slices.ContainsFunc(f.Topics, func(topic string) bool { return slices.Contains(names, topic) }) {
				continue
			}
			if !c.changed(&f, facts) {
				out.notes = append(out.notes, "nothing was cut and nothing was copied of "+few(f.Topics)+": opened as found, and nothing is in the sink. Clients can write there again, as before the failback: "+
					"see that they do not, or the next one has that to give up")
				out.detail = strings.TrimSpace(out.detail + " given back: " + few(f.Topics))
				continue
			}
			out.notes = append(out.notes, "logs of "+few(f.Topics)+" may have been cut or written, so they stay closed for clients, as a copy of the cluster that took over: a later failback goes on from there")
			out.notes = append(out.notes, f.droppedWords())
			out.detail = strings.TrimSpace(out.detail + " left as closed copies: " + few(f.Topics))
		}
		if opens {
			if err := c.strict("giving a failback up, which opens topics as they were found,", r.Clusters); err != nil {
				return out, err
			}
		}
		return out, nil
	})
}

// abortFailback decides for one topic. An error beside a result without a topic is the whole request's.
func (c *call) abortFailback(s *ControlState, topic string, names []string, under []Failback, facts map[string]facts, missing error) (TopicResult, error) {
	wish, want, err := c.member(s, topic, missing)
	if err != nil {
		return TopicResult{Topic: topic, Err: err}, err
	}
	i := slices.IndexFunc(under, func(f Failback) bool { return f.has(topic) })
	if i < 0 { // none is, or it was given up
		return TopicResult{Topic: topic, Opens: want == statemachine.WantStopped}, nil
	}
	f := &under[i]
	for _, other := range f.Topics {
		if !slices.Contains(names, other) {
			return TopicResult{}, c.refuse(InvalidRequest, other, "it is in the same failback as %s, which is given up whole: name it too. Nothing has changed", topic)
		}
	}
	if c.changed(f, facts) {
		if want != statemachine.WantMirroring {
			return TopicResult{Topic: topic}, nil
		}
		wish.MirrorName = statemachine.MirrorNameValue(c.cfg.Mirror, statemachine.WantPaused)
		s.Set(wish)
		s.passNoReturn(c.cfg.Mirror, topic, c.begun)
		return TopicResult{Topic: topic, Changed: true}, nil
	}
	changed, err := c.stop(s, topic, time.Time{}, CutWish{}, nil)
	s.leaveFailback(topic)
	return TopicResult{Topic: topic, Err: err, Changed: changed, Opens: err == nil}, err
}

// changed says that logs of a failback may have been cut or written. A topic that was mirrored before it was consented to has been, whatever the record says.
func (c *call) changed(f *Failback, facts map[string]facts) bool {
	return f.Step == FailbackCopying || slices.ContainsFunc(f.Topics, func(topic string) bool { return facts[topic].mirrored(c.cfg.Mirror) })
}

// mirrored says that some partition is, or was since it was started last.
func (f facts) mirrored(mirror string) bool {
	return slices.ContainsFunc(f.states, func(p partitionFact) bool {
		switch p.state.State {
		case statemachine.Unknown, statemachine.Stopped:
			return false
		case statemachine.Preparing, statemachine.Stopping:
			return p.mirror == mirror && p.state.Mirrored
		case statemachine.Failed:
			return p.mirror == mirror && (p.state.Mirrored || p.state.PreviousState != statemachine.Preparing)
		}
		return p.mirror == mirror
	})
}

// opensHalfway says that a stop opens topics of a failback that is under way, while clients write them at the cluster that took over.
func (c *call) opensHalfway(before *ControlState, r *Result) []string {
	var topics []string
	for _, f := range before.underWay(c.cfg.Mirror, nil) {
		for _, topic := range f.Topics {
			if slices.ContainsFunc(r.Topics, func(t TopicResult) bool { return t.Topic == topic && t.Err == nil && t.Changed }) {
				topics = append(topics, topic)
			}
		}
	}
	if len(topics) == 0 {
		return nil
	}
	return []string{"A FAILBACK IS UNDER WAY of " + few(topics) + ": this opens it here, and does not keep clients from writing at the source: fence them there first. To give the failback up and open nothing, abort it"}
}

// droppedWords say what a failback has given up.
func (f *Failback) droppedWords() string {
	if len(f.Dropped) == 0 {
		return "nothing was to be given up, so nothing is in the sink"
	}
	var ranges []string
	for _, r := range f.Dropped {
		ranges = append(ranges, r.String())
	}
	return fmt.Sprintf("given up here, by the plan: %s. What was cut of it is in the sink of the process that cut it, which a node keeps in its folder (dropped)", fewOf(ranges, len(ranges)+f.MoreDropped))
}

// newFailback begins one without topics.
func (c *call) newFailback(plan string) *Failback {
	return &Failback{Mirror: c.cfg.Mirror, Plan: plan, Step: FailbackClosing, Since: c.begun, Began: c.begun}
}

func (f *Failback) clone() Failback {
	d := *f
	d.Topics, d.Dropped = slices.Clone(f.Topics), slices.Clone(f.Dropped)
	return d
}

// add takes a topic in, with what may be given up of it.
func (f *Failback) add(topic string, consents []Consent, known facts, mirror string) {
	f.Topics = append(f.Topics, topic)
	for _, x := range consents {
		f.Dropped = append(f.Dropped, FailbackRange{topic, x.Partition, x.From, x.To})
	}
	if known.mirrored(mirror) {
		f.Step = FailbackCopying
	}
}
