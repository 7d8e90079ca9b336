package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// The names of the verbs in results and in the history.
const (
	verbCreate   = "create"
	verbDelete   = "delete"
	verbAlter    = "alter"
	verbStart    = "start"
	verbFailback = "failback"

	verbAbortFailback = "abort failback"
	verbStop          = "stop"
	verbPause         = "pause"
	verbResume        = "resume"
	verbRecover       = "recover"
	verbFollow        = "follow patterns" // what a running mirror does by itself
)

// StopOptions belong to Stop.
type StopOptions struct {
	// Patterns are regular expressions (RE2, the whole name) of topics that are stopped and never started again by discovery: they leave mirror.topics.include and join
	// mirror.topics.exclude.
	Patterns []string
	// AllTopics stops every topic of the mirror and leaves the filters alone (spec decision 20). No topics and no patterns beside it.
	AllTopics bool
	// Partial allows stopping a part of a topic set.
	Partial bool
	// Drain is how long a partition whose source still answers may go on copying before it is stopped, at most: it is stopped as soon as it has all that the source has. One whose source does not
	// answer, or that is not mirroring, is stopped at once. 0: all are, and the source is not touched. A stop that is repeated may make the time shorter, and never longer.
	Drain time.Duration
	// Torn is what to do about transactions that would be torn apart, as far as the processes of the mirror have reported them [TornAbort]. With TornRefuse the stop is refused too where
	// transactions are open and no process has looked: as long as the source answers none does, and Promote is the verb for that.
	Torn TornPolicy
	// MaxGiveUp is how many offsets TornCut may give up, of all partitions together; 0: no bound. Where it would be more the stop is as with TornAbort, and says so.
	MaxGiveUp int64
	// CutReaders: TornCut also gives up what readers of the copies may have seen, which are in the result. Without it a stop is refused that is known to (ErrCutExposed), and one that turns out to is as with
	// TornAbort, and says so.
	CutReaders bool
	DryRun     bool
	Intent     Intent

	plan *cutBounds // of the plan that is carried out: what TornCut is to keep within besides; nil: there is none

	promotes *promotes // nil: it is the stop of no promotion
}

// PauseOptions belong to Pause.
type PauseOptions struct {
	// AllTopics pauses every topic of the mirror that is not stopped. No topics beside it.
	AllTopics bool
	DryRun    bool
	Intent    Intent
}

// ResumeOptions belong to Resume.
type ResumeOptions struct {
	// AllTopics resumes every topic of the mirror that is paused. No topics beside it.
	AllTopics bool
	DryRun    bool
	Intent    Intent
}

// RecoverOptions belong to Recover.
type RecoverOptions struct {
	// AllTopics is every topic of the mirror. No topics beside it.
	AllTopics bool
	DryRun    bool
	Intent    Intent
}

// Stop wants the topics writable at the destination (KIP-1279, StopMirrorTopics; spec §1.7 and decision 4). It is accepted from every state of a member, failed and
// unknown ones included, and depends on no state: this is the verb of a night without a source. It needs nobody but the Control; a destination is asked for topics that are in
// no mirror, and for its cluster id where no process has reported that. A topic that is already stopped succeeds.
// For the whole request: InvalidRequest (nothing named; the intent; part of a topic set), InvalidRegularExpression, UnknownClusterMirror (with patterns or AllTopics).
// With TornRefuse: InvalidClusterMirrorState (errors.Is finds ErrTornTransactions), in a dry run too. With TornCut: the same code (ErrCutExposed).
// Per topic: UnknownTopicOrPartition (in no mirror, and the destination does not have it), UnknownClusterMirror, TopicNotInClusterMirror.
func (a *Admin) Stop(ctx context.Context, topics []string, o StopOptions) (Result, error) {
	verb, words := verbStop, "a stop, which opens topics for clients,"
	if o.promotes != nil {
		verb, words = verbPromote, "a promotion, which opens topics for clients,"
	}
	request := []any{topics, o.Patterns, o.AllTopics, o.Partial}
	if o.Drain != 0 {
		request = append(request, o.Drain)
	}
	if o.Torn.stored() != "" {
		request = append(request, o.Torn)
	}
	if o.Torn == TornCut {
		request = append(request, o.MaxGiveUp, o.CutReaders)
	}
	c, err := a.begin(ctx, verb, o.DryRun, o.Intent, request...)
	if err != nil {
		return c.nothing(err)
	}
	if o.Drain < 0 {
		return c.nothing(a.refuse(InvalidRequest, "", "a drain of %v is none; 0 stops at once", o.Drain))
	}
	if !o.Torn.known() {
		return c.nothing(a.refuse(InvalidRequest, "", "there is no policy %q for torn transactions; it is %s, %s or %s", o.Torn, TornAbort, TornRefuse, TornCut))
	}
	if o.MaxGiveUp < 0 {
		return c.nothing(a.refuse(InvalidRequest, "", "%d offsets to give up at most are no number of offsets; 0 is no bound", o.MaxGiveUp))
	}
	if err := c.checkRequest(topics, o.AllTopics, len(o.Patterns) > 0); err != nil {
		return c.nothing(err)
	}
	if err := c.checkPatterns(nil, o.Patterns); err != nil {
		return c.nothing(err)
	}
	missing, err := c.lookStrangers(ctx, topics)
	if err != nil {
		return c.nothing(err)
	}
	if err := c.askDestination(ctx); err != nil {
		return c.nothing(err)
	}
	unopened, episodes := c.unopened(ctx), c.episodes(ctx)
	var drainUntil time.Time
	if o.Drain > 0 {
		drainUntil = c.begun.Add(o.Drain).Round(0).UTC()
	}
	var cut CutWish
	if o.Torn == TornCut {
		cut = CutWish{Asked: c.begun.Round(0).UTC(), MaxGiveUp: o.MaxGiveUp, Readers: o.CutReaders}
	}
	return c.commit(ctx, func(s *ControlState, r *Result) (outcome, error) {
		var out outcome
		asks := *c
		if o.promotes != nil { // it asks at its beginning, when nothing has changed
			asks.dryRun = !o.promotes.confirm
		}
		if err := asks.strict(words, r.Clusters); err != nil {
			return out, err
		}
		names := topics
		if o.AllTopics || len(o.Patterns) > 0 {
			entry, err := c.exists(s)
			if err != nil {
				return out, err
			}
			if o.AllTopics {
				names = c.members(s, nil)
			} else {
				filters, err := c.mergeFilters(entry.Settings, nil, o.Patterns)
				if err != nil {
					return out, err
				}
				chosen, err := NewFilter(o.Patterns, nil)
				if err != nil {
					return out, c.badSetting(err, InvalidRequest)
				}
				names = append(slices.Clone(names), slices.DeleteFunc(c.members(s, func(want statemachine.Desired) bool { return want != statemachine.WantStopped }),
					func(topic string) bool { return !chosen.Includes(topic) || slices.Contains(topics, topic) })...)
				r.Settings, out.plan = filters.store(s, entry)
				out.changed, out.detail = len(r.Settings) > 0, changeWords(r.Settings)
			}
		}
		if o.Drain > 0 {
			out.detail = strings.TrimSpace(out.detail + fmt.Sprintf(" drain %v", o.Drain))
			out.notes = append(out.notes, fmt.Sprintf("for %v at most, partitions whose source answers are mirrored on until they have all that it has; the others are stopped at once", o.Drain))
		}
		before := s.Clone()
		for _, topic := range names {
			changed, err := c.stop(s, topic, drainUntil, cut.planned(topic, o.plan), missing[topic])
			if err != nil && o.promotes != nil {
				return out, err // all or nothing: what is left out would be written to behind the fence
			}
			x := TopicResult{Topic: topic, Err: err, Changed: changed, Opens: err == nil}
			if err == nil && !changed {
				if _, err := c.reported(topic); err != nil {
					x.Unfinished = "not known to be open"
				} else if unopened[topic] {
					x.Unfinished = "not open yet"
				}
			}
			r.Topics = append(r.Topics, x)
		}
		if o.promotes != nil && o.promotes.record != nil {
			if err := s.stopPromoted(*o.promotes.record, c.begun); err != nil {
				return out, err
			}
		}
		c.warnUnattended(r)
		if o.promotes == nil {
			out.notes = append(out.notes, c.opensHalfway(&before, r)...)
		}
		out.notes = append(out.notes, c.openTransactions(r)...)
		torn := c.torn(r)
		r.TornTransactions = torn.Transactions
		out.notes = append(out.notes, torn.lines(c.begun)...)
		switch o.Torn {
		case TornRefuse:
			if err := torn.refusal(c.cfg.Mirror); err != nil {
				return out, err
			}
		case TornCut:
			if begins, note := c.cutBegins(&before, r); !begins {
				out.notes = append(out.notes, note)
				break
			}
			r.Cut = torn.Cut.within(o.MaxGiveUp)
			out.notes = append(out.notes, cutNotes(r.Cut)...)
			if err := r.Cut.refusal(c.cfg.Mirror, o.CutReaders || o.plan != nil); err != nil {
				return out, err
			}
		}
		out.notes = append(out.notes, c.unlookedGroups(&before, r, episodes)...)
		out.notes = append(out.notes, c.denials(s, r)...)
		if len(names) == 0 {
			out.notes = append(out.notes, "no topic of this mirror is to be stopped")
		}
		note, err := c.wholeSets(&before, s, o.Partial)
		out.plan = append(out.plan, note...) // which sets are torn is what Partial consents to
		out.notes = append(out.notes, note...)
		return out, err
	})
}

// cutBegins says that a stop begins which a cut belongs to. If none does, the note says what becomes of those that are recorded: they end as they were asked for.
func (c *call) cutBegins(before *ControlState, r *Result) (begins bool, note string) {
	with, without := 0, 0
	for _, t := range r.Topics {
		wish, known := before.Topic(t.Topic)
		switch {
		case t.Err != nil:
		case !known || !stopped(wish.MirrorName):
			return true, ""
		case wish.Cut.Asked.IsZero():
			without++
		default:
			with++
		}
	}
	if with+without == 0 {
		return false, "CONSISTENT CUT: none, as no topic is stopped"
	}
	return false, fmt.Sprintf("CONSISTENT CUT: none by this, as every topic's stop is recorded already, and ends as it was asked for: %d with a cut, %d without", with, without)
}

// cutNotes say what a consistent cut would give up, as the process that has the copies has reported it.
func cutNotes(cut *ConsistentCut) []string {
	if cut == nil {
		return []string{"CONSISTENT CUT: not known what it gives up, as no process has reported a torn transaction: it is found when all partitions are ready for it, and an event and the logs tell what it was"}
	}
	return append([]string{"CONSISTENT CUT, as reported for all topics of the mirror together: " + cut.words()}, cut.lines(20)...)
}

// planned is the cut of one topic within what a plan has said.
func (w CutWish) planned(topic string, plan *cutBounds) CutWish {
	if w.Asked.IsZero() || plan == nil {
		return w
	}
	w.ClockSkew, w.Floors = plan.skew, plan.floors[topic]
	return w
}

// openTransactions say what a stop aborts, as far as it was reported, one line for each of a few partitions.
func (c *call) openTransactions(r *Result) (lines []string) {
	const most = 20
	more := 0
	for i := range c.reports.Partitions {
		p := &c.reports.Partitions[i]
		if p.Mirror != c.cfg.Mirror || p.OpenTransactions == 0 || p.State == statemachine.Stopped ||
			!slices.ContainsFunc(r.Topics, func(t TopicResult) bool { return t.Topic == p.Topic && t.Changed }) {
			continue
		}
		if len(lines) == most {
			more++
			continue
		}
		lines = append(lines, fmt.Sprintf("%s-%d: %s will be aborted, from offset %d (as reported %s)", p.Topic, p.Partition,
			plural(p.OpenTransactions, "open transaction", "open transactions"), p.OpenFrom, age(max(0, c.begun.Sub(p.At)))))
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and transactions of %d more partitions will be aborted", more))
	}
	return lines
}

// torn are the transactions that a stop of what changes would tear apart, as the processes reported them.
func (c *call) torn(r *Result) (t TornTransactions) {
	stops := map[string]bool{}
	for _, x := range r.Topics {
		stops[x.Topic] = x.Err == nil && x.Changed
	}
	looked := map[string]bool{}
	for _, n := range c.reports.Nodes {
		if n.Mirror != c.cfg.Mirror || n.Torn == nil {
			continue
		}
		looked[n.Owner] = true
		some := n.Torn.within(func(tp TopicPartition) bool { return stops[tp.Topic] })
		if t.Looked.IsZero() || some.Looked.Before(t.Looked) {
			t.Looked = some.Looked
		}
		t.Transactions, t.Unlooked = append(t.Transactions, some.Transactions...), append(t.Unlooked, some.Unlooked...)
		t.Cut = n.Torn.Cut
		if len(looked) > 1 {
			t.Cut = &ConsistentCut{Why: "several processes have the mirror's partitions, and none can cut those of another"}
		}
		t.More, t.MoreUnlooked, t.Error = t.More+some.More, t.MoreUnlooked+some.MoreUnlooked, cmp.Or(t.Error, some.Error)
	}
	for _, p := range c.reports.Partitions {
		if p.Mirror == c.cfg.Mirror && p.OpenTransactions > 0 && p.State != statemachine.Stopped && stops[p.Topic] && !looked[p.Owner] {
			t.Error = cmp.Or(t.Error, fmt.Sprintf("%s-%d has open transactions, and its process has not looked: it does while the source does not answer", p.Topic, p.Partition))
		}
	}
	if len(t.Transactions) == 0 && t.Error == "" && !slices.ContainsFunc(c.reports.Partitions, func(p PartitionReport) bool {
		return p.Mirror == c.cfg.Mirror && p.OpenTransactions > 0 && p.State != statemachine.Stopped && stops[p.Topic]
	}) {
		return TornTransactions{} // nothing is open in what is stopped
	}
	return t
}

// episodes are those that the state store has of this mirror's partitions. Only where groups were looked at the store is asked, and nothing waits for it: without it what is known of groups is
// taken to be of now.
func (c *call) episodes(ctx context.Context) map[statemachine.Key]int32 {
	all := map[statemachine.Key]int32{}
	if len(c.known.groupEpisodes(c.cfg.Mirror)) == 0 {
		return all
	}
	bounded, stop := context.WithTimeout(ctx, askBound)
	defer stop()
	_ = c.cfg.States.Load(bounded, func(e statemachine.Entry) error {
		if e.Key.Mirror == c.cfg.Mirror {
			all[e.Key] = e.State.Episode
		}
		return nil
	})
	return all
}

// unlookedGroups says that groups of what is stopped were never looked at, so that nobody knows where they go on.
func (c *call) unlookedGroups(before *ControlState, r *Result, episodes map[statemachine.Key]int32) []string {
	if entry, _ := before.Mirror(c.cfg.Mirror); entry.followsNoGroup() {
		return nil
	}
	off, stops := map[string]bool{}, map[string]bool{}
	for _, n := range c.reports.Nodes {
		off[n.Owner] = off[n.Owner] || n.Mirror == c.cfg.Mirror && n.Groups != nil && n.Groups.Off != ""
	}
	for _, t := range r.Topics {
		stops[t.Topic] = t.Err == nil && t.Changed
	}
	looked, named := before.groupEpisodes(c.cfg.Mirror), map[TopicPartition]bool{}
	groups, _ := GroupStatuses(*before, c.cfg.Mirror) // of one that cannot be read nothing is known
	for _, g := range groups {
		for _, p := range g.Partitions {
			named[p.TopicPartition] = true
		}
	}
	var unlooked []string
	all := 0
	for _, p := range c.reports.Partitions {
		if p.Mirror != c.cfg.Mirror || p.State == statemachine.Stopped || !stops[p.Topic] {
			continue
		}
		all++
		var in *int32
		if episode, known := episodes[statemachine.Key{Mirror: p.Mirror, TopicID: p.TopicID, Partition: p.Partition}]; known {
			in = &episode
		}
		if !off[p.Owner] && !named[TopicPartition{p.Topic, p.Partition}] && !looked[p.Topic].overIn(p.Partition, in) {
			unlooked = append(unlooked, fmt.Sprintf("%s-%d", p.Topic, p.Partition))
		}
	}
	if len(unlooked) == 0 {
		return nil
	}
	return []string{"GROUPS: " + unlookedWords(unlooked, len(unlooked) == all)}
}

// denials say which rules refuse clients of the topics that a result opens.
func (c *call) denials(s *ControlState, r *Result) []string {
	var topics []string
	for _, t := range r.Topics {
		if t.Err == nil && t.Opens {
			topics = append(topics, t.Topic)
		}
	}
	return denialNotes(s.denials(c.cfg.Mirror, topics))
}

// unopened are the topics that are stopped and of which a process reported a partition that is not STOPPED, and the state store does not say better. Only where there is such a report
// the store is asked, and nothing waits for it: it is for people.
func (c *call) unopened(ctx context.Context) map[string]bool {
	late := map[string]bool{}
	var partitions []PartitionReport
	for _, p := range c.reports.Partitions {
		if w, ok := c.known.Topic(p.Topic); ok && p.Mirror == c.cfg.Mirror && p.State != statemachine.Stopped && stopped(w.MirrorName) {
			if t, err := c.reported(p.Topic); err == nil && t.ID == p.TopicID { // of a topic that was deleted since, the reports stay
				partitions = append(partitions, p)
			}
		}
	}
	if len(partitions) == 0 {
		return late
	}
	bounded, stop := context.WithTimeout(ctx, askBound)
	defer stop()
	done := map[statemachine.Key]bool{}
	_ = c.cfg.States.Load(bounded, func(e statemachine.Entry) error { // without it the reports are what is known
		if e.State.State == statemachine.Stopped {
			done[e.Key] = true
		}
		return nil
	})
	for _, p := range partitions {
		if !done[statemachine.Key{Mirror: p.Mirror, TopicID: p.TopicID, Partition: p.Partition}] {
			late[p.Topic] = true
		}
	}
	return late
}

func (c *call) stop(s *ControlState, topic string, drainUntil time.Time, cut CutWish, missing error) (bool, error) {
	wish, want, err := c.member(s, topic, missing)
	if err != nil || want == statemachine.WantStopped && !drainUntil.Before(wish.DrainUntil) {
		return false, err
	}
	if want != statemachine.WantStopped { // a stop that is under way is not cut otherwise than it was asked to be
		wish.Cut = cut
	}
	wish.DrainUntil = drainUntil
	wish.MirrorName = statemachine.MirrorNameValue(c.cfg.Mirror, statemachine.WantStopped) // its consents mean nothing from now on; to take them out needs more rights than a stop
	s.Set(wish)
	return true, nil
}

// Pause wants the topics not fetched, and not writable either (KIP-1279, PauseMirrorTopics; spec §1.8). A topic that is already paused succeeds.
// For the whole request: InvalidRequest (nothing named; the intent), UnknownClusterMirror (with AllTopics).
// Per topic: UnknownTopicOrPartition, UnknownClusterMirror, TopicNotInClusterMirror, MirrorTopicAlreadyStopped, InvalidClusterMirrorState (a partition is not MIRRORING).
func (a *Admin) Pause(ctx context.Context, topics []string, o PauseOptions) (Result, error) {
	c, err := a.begin(ctx, verbPause, o.DryRun, o.Intent, topics, o.AllTopics)
	if err != nil {
		return c.nothing(err)
	}
	return c.holdOrGoOn(ctx, topics, o.AllTopics, statemachine.WantPaused, statemachine.Mirroring, func(topic string, want statemachine.Desired) error {
		if want == statemachine.WantStopped {
			return c.refuse(MirrorTopicAlreadyStopped, topic, "the topic is stopped: there is nothing to pause")
		}
		return nil
	})
}

// Resume wants paused topics fetched again; they go on where they are, nothing is cut (KIP-1279, ResumeMirrorTopics; spec §1.9). A topic that is being mirrored succeeds.
// For the whole request: InvalidRequest (nothing named; the intent), UnknownClusterMirror (with AllTopics).
// Per topic: UnknownTopicOrPartition, UnknownClusterMirror, TopicNotInClusterMirror, MirrorTopicNotPaused (it is stopped: Start), InvalidClusterMirrorState (a partition is
// not PAUSED).
func (a *Admin) Resume(ctx context.Context, topics []string, o ResumeOptions) (Result, error) {
	c, err := a.begin(ctx, verbResume, o.DryRun, o.Intent, topics, o.AllTopics)
	if err != nil {
		return c.nothing(err)
	}
	return c.holdOrGoOn(ctx, topics, o.AllTopics, statemachine.WantMirroring, statemachine.Paused, func(topic string, want statemachine.Desired) error {
		if want != statemachine.WantPaused {
			return c.refuse(MirrorTopicNotPaused, topic, "the topic is %s, not paused; Start begins it again", want)
		}
		return nil
	})
}

// holdOrGoOn is Pause and Resume: already so → success; otherwise allowed by the desired state, then by every partition's state.
func (c *call) holdOrGoOn(ctx context.Context, topics []string, all bool, to statemachine.Desired, from statemachine.State, allowed func(string, statemachine.Desired) error) (Result, error) {
	if err := c.checkRequest(topics, all, false); err != nil {
		return c.nothing(err)
	}
	if all {
		if _, err := c.exists(&c.known); err != nil {
			return c.nothing(err)
		}
		topics = c.members(&c.known, func(want statemachine.Desired) bool { return want != to && allowed("", want) == nil })
	}
	facts, err := c.look(ctx, topics)
	if err != nil {
		return c.nothing(err)
	}
	if err := c.askDestination(ctx); err != nil {
		return c.nothing(err)
	}
	return c.commit(ctx, func(s *ControlState, r *Result) (outcome, error) {
		var out outcome
		for _, topic := range topics {
			changed, err := c.holdOrGoOnTopic(s, topic, facts[topic], to, from, allowed)
			r.Topics = append(r.Topics, TopicResult{Topic: topic, Err: err, Changed: changed})
		}
		if len(topics) == 0 {
			out.notes = append(out.notes, fmt.Sprintf("no topic of this mirror is to become %s", to))
		}
		return out, nil
	})
}

func (c *call) holdOrGoOnTopic(s *ControlState, topic string, f facts, to statemachine.Desired, from statemachine.State, allowed func(string, statemachine.Desired) error) (bool, error) {
	missing := f.missing()
	if c.cfg.Destination == nil || c.cfg.DestinationAssumed {
		missing = nil // that nobody has reported a topic does not say that it does not exist
	}
	wish, want, err := c.member(s, topic, missing)
	if err != nil || want == to {
		return false, err
	}
	if err := allowed(topic, want); err != nil {
		return false, err
	}
	if f.err != nil && f.missing() == nil {
		return false, c.failed(InvalidClusterMirrorState, topic, f.err, "the destination could not look the topic up; try again when it answers")
	}
	if f.topic.Partitions == 0 {
		return false, c.failed(InvalidClusterMirrorState, topic, f.err, fmt.Sprintf("no partition of it is known at the destination yet, and every partition has to be %s", from))
	}
	for partition := range f.topic.Partitions {
		p := f.state(c.cfg.Mirror, partition)
		if p.State != from {
			return false, c.refuse(InvalidClusterMirrorState, topic, "partition %d is %s%s, and every partition has to be %s; Stop is accepted from every state",
				partition, p.State, because(p.ErrorMessage), from)
		}
	}
	wish.MirrorName = statemachine.MirrorNameValue(c.cfg.Mirror, to)
	s.Set(wish)
	return true, nil
}

// Recover tries failed partitions of these topics again now, also those that are not retried by themselves: after a person has mended what the reason named (KIP-1279's
// Recover, spec §1.10). Partitions that have not failed are left alone, and nothing is dropped by it: what needs consent needs it afterwards too. What comes of it is seen in
// Status and Describe. A request that no process has answered yet may be repeated.
// For the whole request: InvalidRequest (nothing named; the intent), UnknownClusterMirror (with AllTopics).
// Per topic: UnknownTopicOrPartition, UnknownClusterMirror, TopicNotInClusterMirror.
func (a *Admin) Recover(ctx context.Context, topics []string, o RecoverOptions) (Result, error) {
	c, missing, err := a.beginNamed(ctx, verbRecover, o.DryRun, o.Intent, topics, o.AllTopics)
	if err != nil {
		return c.nothing(err)
	}
	if err := c.askDestination(ctx); err != nil {
		return c.nothing(err)
	}
	return c.commit(ctx, func(s *ControlState, r *Result) (outcome, error) {
		names := topics
		if o.AllTopics {
			if _, err := c.exists(s); err != nil {
				return outcome{}, err
			}
			names = c.members(s, nil)
		}
		for i, topic := range names {
			wish, _, err := c.member(s, topic, missing[topic])
			again := slices.Contains(names[:i], topic)
			if err == nil && !again {
				wish.Recover++
				s.Set(wish)
			}
			r.Topics = append(r.Topics, TopicResult{Topic: topic, Err: err, Changed: err == nil && !again})
		}
		return outcome{}, nil
	})
}

// beginNamed begins a verb that is for topics by name, or for all of them, and looks up those that this mirror does not know: missing has why. The call is there also beside an error.
func (a *Admin) beginNamed(ctx context.Context, verb string, dryRun bool, intent Intent, topics []string, all bool) (c *call, missing map[string]error, err error) {
	if c, err = a.begin(ctx, verb, dryRun, intent, topics, all); err != nil {
		return c, nil, err
	}
	if err = c.checkRequest(topics, all, false); err != nil {
		return c, nil, err
	}
	missing, err = c.lookStrangers(ctx, topics)
	return c, missing, err
}

// nothing is the result of a request that is refused as a whole.
func (c *call) nothing(err error) (Result, error) {
	return Result{Verb: c.verb, Mirror: c.cfg.Mirror, DryRun: c.dryRun}, err
}

func (c *call) checkRequest(topics []string, all, patterns bool) error {
	switch {
	case all && (len(topics) > 0 || patterns):
		return c.refuse(InvalidRequest, "", "all topics are asked for, and some are named: it is one or the other")
	case !all && len(topics) == 0 && !patterns:
		return c.refuse(InvalidRequest, "", "no topic is named")
	}
	return nil
}

// members are this mirror's topics by name, those of which ok says true; nil: all.
func (c *call) members(s *ControlState, ok func(statemachine.Desired) bool) []string {
	var names []string
	for _, w := range s.Topics {
		if mirror, want, err := w.Wish(); err == nil && mirror == c.cfg.Mirror && (ok == nil || ok(want)) {
			names = append(names, w.Topic)
		}
	}
	return names
}

// member returns a topic's wish if it is in this mirror. missing is the destination's word that it does not have the topic, nil if it has it or was not asked.
func (c *call) member(s *ControlState, topic string, missing error) (TopicWish, statemachine.Desired, error) {
	wish, ok := s.Topic(topic)
	if !ok && errors.Is(missing, ErrUnknownTopic) {
		return wish, 0, c.failed(UnknownTopicOrPartition, topic, missing, "no such topic at the destination, and none in this mirror; check the name")
	}
	if _, err := c.exists(s); err != nil {
		e := *err.(*Error)
		e.Topic = topic
		return wish, 0, &e
	}
	if !ok {
		return wish, 0, c.failed(TopicNotInClusterMirror, topic, missing, "the topic is in no mirror")
	}
	owner, want, err := wish.Wish()
	if err != nil {
		return wish, 0, c.failed(InvalidConfig, topic, err, "the recorded desired state cannot be read")
	}
	if owner != c.cfg.Mirror {
		return wish, 0, c.refuse(TopicNotInClusterMirror, topic, "the topic is in mirror %q", owner)
	}
	return wish, want, nil
}

// facts are what the destination, or else the reports, and the store say of one topic of a request.
type facts struct {
	topic  Topic
	err    error // of the look-up
	states []partitionFact
}

type partitionFact struct {
	mirror    string
	partition int32
	state     statemachine.PartitionState
}

func (f facts) missing() error {
	if errors.Is(f.err, ErrUnknownTopic) {
		return f.err
	}
	return nil
}

func (f facts) state(mirror string, partition int32) statemachine.PartitionState {
	for _, p := range f.states {
		if p.mirror == mirror && p.partition == partition {
			return p.state
		}
	}
	return statemachine.NewPartitionState()
}

// look asks the destination for the topics and the store for their partitions, in every mirror.
func (c *call) look(ctx context.Context, topics []string) (map[string]facts, error) {
	found := make(map[string]facts, len(topics))
	byID := make(map[TopicID]string, len(topics))
	for _, name := range topics {
		if _, ok := found[name]; ok || checkTopicName(name) != nil {
			continue
		}
		t, err := c.topic(ctx, name)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("mirror %s: looking up topic %q at the destination, nothing has changed: %w", c.cfg.Mirror, name, ctx.Err())
		}
		found[name] = facts{topic: t, err: err}
		if err == nil {
			byID[t.ID] = name
		}
	}
	c.stored = nil
	err := c.cfg.States.Load(ctx, func(e statemachine.Entry) error {
		if e.Key.Mirror == c.cfg.Mirror {
			c.stored = append(c.stored, e)
		}
		if name, ok := byID[e.Key.TopicID]; ok {
			f := found[name]
			f.states = append(f.states, partitionFact{e.Key.Mirror, e.Key.Partition, e.State})
			found[name] = f
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("mirror %s: reading partition states, nothing has changed: %w", c.cfg.Mirror, err)
	}
	return found, nil
}

// topic looks one topic up at the destination. Where there is none to ask, and where one that is only assumed does not know it, the topic is what its newest report says.
func (c *call) topic(ctx context.Context, name string) (Topic, error) {
	if c.cfg.DestinationAssumed {
		if err := c.askDestination(ctx); err != nil { // whether it is the one
			return Topic{Name: name}, err
		}
	}
	if c.cfg.Destination == nil || c.elsewhere {
		return c.reported(name)
	}
	t, err := ask(ctx, c, func(ctx context.Context) (Topic, error) { return c.cfg.Destination.Topic(ctx, name) })
	if c.cfg.DestinationAssumed && err != nil {
		if reported, unreported := c.reported(name); unreported == nil {
			return reported, nil
		}
	}
	return t, err
}

// reported is the topic as its newest report says. That reports cannot be read does not say that nobody has the topic.
func (c *call) reported(name string) (Topic, error) {
	t := Topic{Name: name}
	if c.deaf != nil {
		return t, fmt.Errorf("reports cannot be read: %w", c.deaf)
	}
	var newest *PartitionReport
	for i, p := range c.reports.Partitions {
		if p.Topic == name && (newest == nil || p.At.After(newest.At)) {
			newest = &c.reports.Partitions[i]
		}
	}
	if newest == nil {
		return t, fmt.Errorf("no process has reported it: %w %q", ErrUnknownTopic, name)
	}
	t.ID = newest.TopicID
	for _, p := range c.reports.Partitions {
		if p.Topic == name && p.TopicID == t.ID {
			t.Partitions = max(t.Partitions, p.Partition+1)
		}
	}
	return t, nil
}

// lookStrangers asks the destination only for topics that are in no mirror: a verb about members asks nobody.
func (c *call) lookStrangers(ctx context.Context, topics []string) (map[string]error, error) {
	missing := make(map[string]error)
	for _, name := range topics {
		if _, known := c.known.Topic(name); known || c.cfg.Destination == nil {
			continue
		}
		if _, asked := missing[name]; asked {
			continue
		}
		if _, missing[name] = c.topic(ctx, name); c.elsewhere {
			delete(missing, name) // that nobody has reported a topic does not say that it does not exist
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("mirror %s: looking up topic %q at the destination, nothing has changed: %w", c.cfg.Mirror, name, ctx.Err())
		}
	}
	return missing, nil
}

// checkTopicName is Kafka's rule for topic names (org.apache.kafka.common.internals.Topic).
func checkTopicName(name string) error {
	switch {
	case name == "":
		return errors.New("a topic name must not be empty")
	case name == "." || name == "..":
		return fmt.Errorf("a topic cannot be named %q", name)
	case len(name) > 249:
		return fmt.Errorf("a topic name has at most 249 characters, this one %d", len(name))
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return fmt.Errorf("topic name %q has the character %q; ASCII letters, digits, '.', '_' and '-' are allowed", name, r)
		}
	}
	return nil
}
