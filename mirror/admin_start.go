package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// StartOptions belong to Start.
type StartOptions struct {
	// Consents allow dropping exactly these destination records (spec decision 7); FailbackPlan.Consents makes them. Each must belong to a topic of the request.
	Consents []Consent
	// Include and Exclude are regular expressions (RE2, the whole name) that join mirror.topics.include and mirror.topics.exclude, and leave the other list. Topics of the source
	// that Include finds are started now where the source can be asked, and at a later refresh otherwise. Topics of this mirror that Exclude finds are stopped.
	Include []string
	Exclude []string
	// AllTopics starts every topic of the source that is not excluded, internal ones never, and leaves the filters alone (spec decision 20). Where the source cannot be asked it is
	// every topic of the mirror. No topics and no patterns beside it.
	AllTopics bool
	DryRun    bool
	Intent    Intent
}

// Start wants the topics mirrored (KIP-1279, StartMirrorTopics; spec §1.6). A topic that does not exist at the destination is accepted and created by the Mirror.
// A topic that is being mirrored succeeds; new consents for it are recorded, which is how a refused start goes on. A topic that is stopped in another mirror is adopted.
// A named topic leaves mirror.topics.exclude, where that names it, and joins mirror.topics.include if that is not empty and does not match it: an empty list asks for no
// discovery, and stays empty. What is stored begins with the effective value, so the default exclude "__.*" is not lost (spec decision 13).
// For the whole request, in this order: InvalidRequest (nothing named), InvalidRegularExpression, UnknownClusterMirror, InconsistentTopicID (a consent for a topic id that none
// of the topics has: made for a topic that was deleted since), InvalidRequest (another consent that cannot be meant; the source is the destination; the intent; Exclude would
// stop a part of a topic set).
// Per topic: InvalidRequest (the name; it is internal, or excluded), TopicAlreadyInClusterMirror (another mirror has it and has not stopped it), MirrorTopicNotStopped (it is
// paused: Resume), InvalidClusterMirrorState (its last stop has not ended yet, or the destination could not look it up).
func (a *Admin) Start(ctx context.Context, topics []string, o StartOptions) (Result, error) {
	c, err := a.begin(ctx, verbStart, o.DryRun, o.Intent, topics, o.Consents, o.Include, o.Exclude, o.AllTopics)
	if err != nil {
		return c.nothing(err)
	}
	return c.startTopics(ctx, topics, o)
}

// startTopics is Start, and what Failback does with a plan. DryRun and Intent are the call's.
func (c *call) startTopics(ctx context.Context, topics []string, o StartOptions) (Result, error) {
	if err := c.checkRequest(topics, o.AllTopics, len(o.Include)+len(o.Exclude) > 0); err != nil {
		return c.nothing(err)
	}
	if err := c.checkPatterns(o.Include, o.Exclude); err != nil {
		return c.nothing(err)
	}
	if _, err := c.exists(&c.known); err != nil {
		return c.nothing(err)
	}
	found, err := c.discover(ctx, topics, o)
	if err != nil {
		return c.nothing(err)
	}
	names := append(slices.Clone(topics), found...)
	if c.failback == nil {
		c.failback = c.newFailback("")
	}
	facts, err := c.look(ctx, names)
	if err != nil {
		return c.nothing(err)
	}
	consents, err := c.sortConsents(names, o.Consents, facts)
	if err != nil {
		return c.nothing(err)
	}
	if err := c.askDestination(ctx); err != nil {
		return c.nothing(err)
	}
	return c.commit(ctx, func(s *ControlState, r *Result) (outcome, error) {
		var out outcome
		if err := c.notItself(r.Clusters); err != nil {
			return out, err
		}
		entry, err := c.exists(s)
		if err != nil {
			return out, err
		}
		filters, err := c.mergeFilters(entry.Settings, o.Include, o.Exclude)
		if err != nil {
			return out, err
		}
		before := s.Clone()
		opens, back := "", c.failback.clone()
		for i, topic := range names {
			changed, err := c.start(s, topic, i < len(topics), filters, facts[topic], consents[topic])
			r.Topics = append(r.Topics, TopicResult{Topic: topic, Err: err, Changed: changed})
			if err == nil && (c.verb == verbFailback || len(consents[topic]) > 0) {
				back.add(topic, consents[topic], facts[topic], c.cfg.Mirror)
			}
			was, _ := before.Topic(topic)
			if now, _ := s.Topic(topic); changed && now.AdoptedFrom != was.AdoptedFrom {
				opens = fmt.Sprintf("adopting %s from mirror %s", topic, now.AdoptedFrom)
			}
		}
		if len(back.Topics) > 0 {
			s.beginFailback(back)
		}
		out.notes = append(out.notes, cautionNotes(names)...)
		if len(o.Consents) > 0 {
			opens = "a start with consent to drop records"
			out.detail = consentWords(o.Consents)
		}
		if c.verb == verbFailback {
			opens = "a failback, which gives records up,"
		}
		if !o.AllTopics {
			var excluded []string
			if len(o.Exclude) > 0 {
				excluded = c.running(s, func(topic string) bool { return filters.excludes(topic, slices.Contains(filters.leave, topic)) != "" })
			}
			if err := c.stopExcluded(s, r, excluded); err != nil {
				return out, err
			}
			c.warnUnattended(r)
			if len(excluded) > 0 {
				opens = "a start that stops excluded topics, which opens them for clients,"
			}
			r.Settings, out.plan = filters.store(s, entry)
			out.changed, out.detail = len(r.Settings) > 0, strings.TrimSpace(out.detail+" "+changeWords(r.Settings))
		}
		if opens != "" {
			if err := c.strict(opens, r.Clusters); err != nil {
				return out, err
			}
		}
		note, err := c.wholeSets(&before, s, false)
		out.notes = append(out.notes, note...)
		return out, err
	})
}

// consentWords are consents for the history, where an entry is one record: the ranges of the first hundred, the number of the others.
func consentWords(consents []Consent) string {
	const most = 100
	var words strings.Builder
	words.WriteString("consents:")
	for _, x := range consents[:min(len(consents), most)] {
		fmt.Fprintf(&words, " %s-%d [%d,%d)", x.TopicID, x.Partition, x.From, x.To)
	}
	if len(consents) > most {
		fmt.Fprintf(&words, " and %d more", len(consents)-most)
	}
	return words.String()
}

// start decides for one topic. A named one may leave and join the filters.
func (c *call) start(s *ControlState, topic string, named bool, filters *topicFilters, f facts, consents []Consent) (bool, error) {
	if err := checkTopicName(topic); err != nil {
		return false, c.refuse(InvalidRequest, topic, "%v", err)
	}
	if internalTopic(topic) || f.topic.Internal {
		return false, c.refuse(InvalidRequest, topic, "internal topics are excluded (__.*): what is in them belongs to its own cluster")
	}
	if pattern := filters.excludes(topic, named); pattern != "" {
		return false, c.refuse(InvalidRequest, topic, "the topic is excluded: %s has %q; take that out first (AlterConfig)", topicsExcludeSetting, pattern)
	}
	if f.err != nil && f.missing() == nil {
		return false, c.failed(InvalidClusterMirrorState, topic, f.err, "the destination could not look the topic up; try again when it answers")
	}
	changed, err := c.wantMirrored(s, topic, f, consents)
	if err == nil && named {
		filters.take(topic)
	}
	return changed, err
}

func (c *call) wantMirrored(s *ControlState, topic string, f facts, consents []Consent) (bool, error) {
	wish, known := s.Topic(topic)
	next := TopicWish{Topic: topic, MirrorName: statemachine.MirrorNameValue(c.cfg.Mirror, statemachine.WantMirroring), Consents: consents}
	if known {
		owner, want, err := wish.Wish()
		if err != nil {
			return false, c.failed(InvalidConfig, topic, err, "the recorded desired state cannot be read")
		}
		switch {
		case owner != c.cfg.Mirror && want != statemachine.WantStopped:
			return false, c.refuse(TopicAlreadyInClusterMirror, topic, "mirror %q has this topic and has not stopped it; stop it there first", owner)
		case owner == c.cfg.Mirror && (want == statemachine.WantMirroring || want == statemachine.WantPaused && c.verb == verbFailback):
			next.AdoptedFrom, next.Recover = wish.AdoptedFrom, wish.Recover
			next.Consents = mergeConsents(wish.Consents, consents)
			if want == statemachine.WantMirroring && slices.Equal(next.Consents, wish.Consents) {
				return false, nil
			}
			s.Set(next)
			return true, nil
		case owner == c.cfg.Mirror && want != statemachine.WantStopped:
			return false, c.refuse(MirrorTopicNotStopped, topic, "the topic is paused; Resume goes on from where it is")
		}
		for _, p := range f.states {
			if p.mirror == owner && p.state.State != statemachine.Stopped && p.state.State != statemachine.Unknown {
				return false, c.refuse(InvalidClusterMirrorState, topic, "partition %d is %s in mirror %q: its stop has not ended%s; wait for STOPPED, then start again",
					p.partition, p.state.State, owner, because(p.state.ErrorMessage))
			}
		}
		if owner != c.cfg.Mirror {
			next.AdoptedFrom = owner
		} else {
			next.AdoptedFrom = wish.AdoptedFrom
		}
	}
	s.leaveFailback(topic)
	s.Set(next)
	return true, nil
}

// discover asks the source for the topics that AllTopics and Include mean, by name, without those of the request.
func (c *call) discover(ctx context.Context, topics []string, o StartOptions) ([]string, error) {
	if !o.AllTopics && len(o.Include) == 0 {
		return nil, c.lookForMisspelt(ctx, topics)
	}
	var there []SourceTopic
	canAsk, err := c.askSource(ctx, func(ctx context.Context, source Source) (err error) {
		there, err = source.Topics(ctx)
		return err
	})
	if ctx.Err() != nil {
		return nil, fmt.Errorf("mirror %s: asking the source for its topics, nothing has changed: %w", c.cfg.Mirror, ctx.Err())
	}
	why := "no source can be asked here"
	if canAsk && err != nil {
		why = "the source does not answer: " + err.Error()
	}
	filters, wrong := c.mergeFilters(c.settings, o.Include, o.Exclude)
	if wrong != nil {
		return nil, wrong
	}
	var names, excluded []string
	switch {
	case o.AllTopics && (!canAsk || err != nil):
		c.notes = append(c.notes, why+"; all topics are those that are in this mirror")
		for _, name := range c.members(&c.known, nil) {
			if filters.filter.Excludes(name) {
				excluded = append(excluded, name)
			} else {
				names = append(names, name)
			}
		}
	case !canAsk || err != nil:
		c.notes = append(c.notes, why+"; topics that the patterns find are started at a later refresh")
	default:
		c.noteAbsent(topics, there)
		for _, t := range there {
			_, member := c.known.Topic(t.Name)
			switch {
			case t.Internal || internalTopic(t.Name):
			case filters.filter.Excludes(t.Name):
				if o.AllTopics {
					excluded = append(excluded, t.Name)
				}
			case o.AllTopics, !member && filters.filter.Includes(t.Name):
				names = append(names, t.Name)
			}
		}
		if len(names) == 0 {
			c.notes = append(c.notes, "the source has no topic that is to be started now")
		}
	}
	slices.Sort(names)
	slices.Sort(excluded)
	if len(excluded) > 0 {
		c.notes = append(c.notes, "left out because "+topicsExcludeSetting+" has them: "+few(excluded))
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(topics, name) }), nil
}

// lookForMisspelt asks the source whether it has the topics that are named. One that does not answer stops nobody. A mirror that runs in this process finds out by itself, and a plan of a failback was made with its answers.
func (c *call) lookForMisspelt(ctx context.Context, topics []string) error {
	if c.embedded || c.verb == verbFailback || len(topics) == 0 || slices.ContainsFunc(topics, func(name string) bool { return checkTopicName(name) != nil }) {
		return nil
	}
	_, err := c.askSource(ctx, func(ctx context.Context, source Source) error {
		there, err := source.Topics(ctx, topics...)
		if err == nil {
			c.noteAbsent(topics, there)
		}
		return err
	})
	if ctx.Err() != nil {
		return fmt.Errorf("mirror %s: asking the source for its topics, nothing has changed: %w", c.cfg.Mirror, ctx.Err())
	}
	if err != nil {
		c.notes = append(c.notes, "whether the source has the topics was not seen: "+err.Error())
	}
	return nil
}

// noteAbsent warns of topics that the source does not have. They are recorded all the same: it may get them.
func (c *call) noteAbsent(topics []string, there []SourceTopic) {
	for i, name := range topics {
		if !slices.Contains(topics[:i], name) && !slices.ContainsFunc(there, func(t SourceTopic) bool { return t.Name == name }) {
			c.warnings = append(c.warnings, fmt.Sprintf("the source has no topic %s: check the name; nothing is mirrored as long as it is not there", OneLine(name)))
		}
	}
}

// warnUnattended warns where topics are to be opened, or were to be and are not open yet, that no process is heard of which would open them.
func (c *call) warnUnattended(r *Result) {
	waits := slices.ContainsFunc(r.Topics, func(t TopicResult) bool { return t.Err == nil && t.Opens && (t.Changed || t.Unfinished != "") })
	if !waits || c.runs || c.deaf != nil {
		return
	}
	if nobody := c.presence(&c.reports, c.deaf, c.begun).sentence(); nobody != "" {
		r.Warnings = append(r.Warnings, nobody+": a stop is recorded, and nothing opens until one is started")
	}
}

// running are this mirror's topics of which ok says true, without those that are stopped.
func (c *call) running(s *ControlState, ok func(topic string) bool) []string {
	names := c.members(s, func(want statemachine.Desired) bool { return want != statemachine.WantStopped })
	return slices.DeleteFunc(names, func(topic string) bool { return !ok(topic) })
}

// stopExcluded stops topics of this mirror that a filter excludes now, in the write that changes the filter: each is in the result, so in its plan and in the history.
func (c *call) stopExcluded(s *ControlState, r *Result, topics []string) error {
	for _, topic := range topics {
		changed, err := c.stop(s, topic, time.Time{}, CutWish{}, nil)
		if err != nil {
			return err
		}
		r.Topics = append(r.Topics, TopicResult{Topic: topic, Changed: changed, Opens: true, excluded: true})
	}
	return nil
}

// notItself refuses a mirror from a cluster to itself (F-33, spec decision 14).
func (c *call) notItself(found Clusters) error {
	if found.SourceID == "" || found.SourceID != found.DestinationID {
		return nil
	}
	return c.refuse(InvalidRequest, "", "the source is the destination itself: cluster id %s on both sides; correct %s. Nothing has changed", found.SourceID, bootstrapSetting)
}

func internalTopic(name string) bool { return strings.HasPrefix(name, "__") }

// sortConsents gives each consent to its topic.
func (c *call) sortConsents(topics []string, consents []Consent, found map[string]facts) (map[string][]Consent, error) {
	by := make(map[string][]Consent)
	for _, x := range consents {
		name := ""
		for _, t := range topics {
			if f, ok := found[t]; ok && f.err == nil && f.topic.ID == x.TopicID {
				name = t
				break
			}
		}
		switch {
		case name == "":
			return nil, c.refuse(InconsistentTopicID, "", "consent to drop [%d,%d) of partition %d is for topic id %s, which no topic of this request has at the destination; "+
				"was it deleted and created again? Make a new plan. Nothing has changed", x.From, x.To, x.Partition, x.TopicID)
		case x.From < 0 || x.To <= x.From:
			return nil, c.refuse(InvalidRequest, name, "consent to drop [%d,%d) of partition %d is not a range", x.From, x.To, x.Partition)
		case x.Partition < 0 || x.Partition >= found[name].topic.Partitions:
			return nil, c.refuse(InvalidRequest, name, "consent to drop [%d,%d) is for partition %d; the topic has %d", x.From, x.To, x.Partition, found[name].topic.Partitions)
		}
		for _, other := range by[name] {
			if other.Partition == x.Partition && other != x {
				return nil, c.refuse(InvalidRequest, name, "two consents for partition %d, [%d,%d) and [%d,%d); one plan gives one", x.Partition, other.From, other.To, x.From, x.To)
			}
		}
		if !slices.Contains(by[name], x) {
			by[name] = append(by[name], x)
		}
	}
	return by, nil
}

// mergeConsents is old with the partitions named in fresh replaced, in order. It shares nothing with its arguments.
func mergeConsents(old, fresh []Consent) []Consent {
	var merged []Consent
	for _, c := range old {
		if !slices.ContainsFunc(fresh, func(f Consent) bool { return f.Partition == c.Partition }) {
			merged = append(merged, c)
		}
	}
	merged = append(merged, fresh...)
	slices.SortFunc(merged, compareConsents)
	return merged
}
