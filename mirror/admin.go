package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/statemachine"
)

// StateReader is the part of a statemachine.StateStore that Admin needs: every StateStore has it.
type StateReader interface {
	Load(ctx context.Context, each func(statemachine.Entry) error) error
}

// Admin has the verbs of one mirror. A verb checks, then records what is wanted in the Control; success means recorded. A Mirror, in this process or another one,
// follows. Nothing here calls a source, so every verb works while the source is dead. Safe for concurrent use.
//
// Every verb takes topic names and returns one result for each of them, in the order of the request; what is refused is refused alone. A name given twice is
// handled twice, and the second time changes nothing. The error is nil only if every topic succeeded: it is the first topic's error, or that of the
// whole request, and then nothing was recorded and there are no results.
type Admin struct {
	mirror      string
	control     Control
	states      StateReader
	destination Destination
}

// NewAdmin returns the verbs of the mirror of that name. states and destination are read only. Errors: *Error with InvalidRequest for a name that
// statemachine.CheckMirrorName refuses.
func NewAdmin(mirror string, control Control, states StateReader, destination Destination) (*Admin, error) {
	if err := statemachine.CheckMirrorName(mirror); err != nil {
		return nil, &Error{Code: InvalidRequest, Mirror: mirror, Partition: -1, Message: "not a mirror name", Err: err}
	}
	if control == nil || states == nil || destination == nil {
		return nil, &Error{Code: InvalidRequest, Mirror: mirror, Partition: -1, Message: "an Admin needs a Control, a StateReader and a Destination"}
	}
	return &Admin{mirror: mirror, control: control, states: states, destination: destination}, nil
}

// StartOptions belong to Start.
type StartOptions struct {
	// Consents allow dropping exactly these destination records (spec decision 7); FailbackPlan.Consents makes them. Each must belong to a topic of the request.
	Consents []Consent
	// DryRun does all that Start does, except that nothing is recorded.
	DryRun bool
}

// StopOptions belong to Stop, PauseOptions to Pause, ResumeOptions to Resume. DryRun records nothing.
type StopOptions struct{ DryRun bool }

// PauseOptions: see StopOptions.
type PauseOptions struct{ DryRun bool }

// ResumeOptions: see StopOptions.
type ResumeOptions struct{ DryRun bool }

// Start wants the topics mirrored (KIP-1279, StartMirrorTopics; spec §1.6). A topic that does not exist at the destination is accepted and created by the Mirror.
// A topic that is being mirrored succeeds; new consents for it are recorded, which is how a refused start goes on. A topic that is stopped in another mirror is adopted.
// Per topic: InvalidRequest (name, or a name of the default exclude "__.*"), TopicAlreadyInClusterMirror (another mirror has it and has not stopped it),
// MirrorTopicNotStopped (it is paused: Resume), InvalidClusterMirrorState (its last stop has not ended yet).
// For the whole request: InconsistentTopicID (a consent for a topic id that none of the topics has: made for a topic that was deleted since), InvalidRequest.
func (a *Admin) Start(ctx context.Context, topics []string, o StartOptions) ([]TopicResult, error) {
	if err := a.checkRequest(topics); err != nil {
		return nil, err
	}
	facts, err := a.look(ctx, topics)
	if err != nil {
		return nil, err
	}
	consents, err := a.sortConsents(topics, o.Consents, facts)
	if err != nil {
		return nil, err
	}
	return a.apply(ctx, topics, o.DryRun, func(s *ControlState, topic string) (bool, error) {
		return a.start(s, topic, facts[topic], consents[topic])
	})
}

func (a *Admin) start(s *ControlState, topic string, f facts, consents []Consent) (bool, error) {
	if err := checkTopicName(topic); err != nil {
		return false, a.refuse(InvalidRequest, topic, "%v", err)
	}
	if strings.HasPrefix(topic, "__") || f.topic.Internal {
		return false, a.refuse(InvalidRequest, topic, "internal topics are excluded (__.*): what is in them belongs to its own cluster")
	}
	if f.err != nil && f.missing() == nil {
		return false, a.failed(InvalidClusterMirrorState, topic, f.err, "the destination could not look the topic up; try again when it answers")
	}
	wish, known := s.Topic(topic)
	next := TopicWish{Topic: topic, MirrorName: statemachine.MirrorNameValue(a.mirror, statemachine.WantMirroring), Consents: consents}
	if known {
		owner, want, err := wish.Wish()
		if err != nil {
			return false, a.failed(InvalidConfig, topic, err, "the recorded desired state cannot be read")
		}
		switch {
		case owner != a.mirror && want != statemachine.WantStopped:
			return false, a.refuse(TopicAlreadyInClusterMirror, topic, "mirror %q has this topic and has not stopped it; stop it there first", owner)
		case owner == a.mirror && want == statemachine.WantMirroring:
			next.AdoptedFrom = wish.AdoptedFrom
			next.Consents = mergeConsents(wish.Consents, consents)
			if slices.Equal(next.Consents, wish.Consents) {
				return false, nil
			}
			s.Set(next)
			return true, nil
		case owner == a.mirror && want != statemachine.WantStopped:
			return false, a.refuse(MirrorTopicNotStopped, topic, "the topic is paused; Resume goes on from where it is")
		}
		for _, p := range f.states {
			if p.mirror == owner && p.state.State != statemachine.Stopped && p.state.State != statemachine.Unknown {
				return false, a.refuse(InvalidClusterMirrorState, topic, "partition %d is %s in mirror %q: its stop has not ended%s; wait for STOPPED, then start again",
					p.partition, p.state.State, owner, because(p.state.ErrorMessage))
			}
		}
		if owner != a.mirror {
			next.AdoptedFrom = owner
		} else {
			next.AdoptedFrom = wish.AdoptedFrom
		}
	}
	s.Set(next)
	return true, nil
}

// Stop wants the topics writable at the destination (KIP-1279, StopMirrorTopics; spec §1.7 and decision 4). It is accepted from every state of a member, failed and
// unknown ones included, and looks at no state: this is the verb of a night without a source. A topic that is already stopped succeeds.
// Per topic: UnknownTopicOrPartition (in no mirror, and the destination does not have it), TopicNotInClusterMirror.
func (a *Admin) Stop(ctx context.Context, topics []string, o StopOptions) ([]TopicResult, error) {
	if err := a.checkRequest(topics); err != nil {
		return nil, err
	}
	missing, err := a.lookStrangers(ctx, topics)
	if err != nil {
		return nil, err
	}
	return a.apply(ctx, topics, o.DryRun, func(s *ControlState, topic string) (bool, error) {
		wish, want, err := a.member(s, topic, missing[topic])
		if err != nil || want == statemachine.WantStopped {
			return false, err
		}
		wish.MirrorName, wish.Consents = statemachine.MirrorNameValue(a.mirror, statemachine.WantStopped), nil
		s.Set(wish)
		return true, nil
	})
}

// Pause wants the topics not fetched, and not writable either (KIP-1279, PauseMirrorTopics; spec §1.8). A topic that is already paused succeeds.
// Per topic: UnknownTopicOrPartition, TopicNotInClusterMirror, MirrorTopicAlreadyStopped, InvalidClusterMirrorState (a partition is not MIRRORING).
func (a *Admin) Pause(ctx context.Context, topics []string, o PauseOptions) ([]TopicResult, error) {
	return a.holdOrGoOn(ctx, topics, o.DryRun, statemachine.WantPaused, func(topic string, want statemachine.Desired) error {
		if want == statemachine.WantStopped {
			return a.refuse(MirrorTopicAlreadyStopped, topic, "the topic is stopped: there is nothing to pause")
		}
		return nil
	}, statemachine.Mirroring)
}

// Resume wants paused topics fetched again; they go on where they are, nothing is cut (KIP-1279, ResumeMirrorTopics; spec §1.9). A topic that is being mirrored succeeds.
// Per topic: UnknownTopicOrPartition, TopicNotInClusterMirror, MirrorTopicNotPaused (it is stopped: Start), InvalidClusterMirrorState (a partition is not PAUSED).
func (a *Admin) Resume(ctx context.Context, topics []string, o ResumeOptions) ([]TopicResult, error) {
	return a.holdOrGoOn(ctx, topics, o.DryRun, statemachine.WantMirroring, func(topic string, want statemachine.Desired) error {
		if want != statemachine.WantPaused {
			return a.refuse(MirrorTopicNotPaused, topic, "the topic is %s, not paused; Start begins it again", want)
		}
		return nil
	}, statemachine.Paused)
}

// holdOrGoOn is Pause and Resume: already so → success; otherwise allowed by the desired state, then by every partition's state.
func (a *Admin) holdOrGoOn(ctx context.Context, topics []string, dryRun bool, to statemachine.Desired, allowed func(string, statemachine.Desired) error, from statemachine.State) ([]TopicResult, error) {
	if err := a.checkRequest(topics); err != nil {
		return nil, err
	}
	facts, err := a.look(ctx, topics)
	if err != nil {
		return nil, err
	}
	return a.apply(ctx, topics, dryRun, func(s *ControlState, topic string) (bool, error) {
		f := facts[topic]
		wish, want, err := a.member(s, topic, f.missing())
		if err != nil || want == to {
			return false, err
		}
		if err := allowed(topic, want); err != nil {
			return false, err
		}
		if f.err != nil && f.missing() == nil {
			return false, a.failed(InvalidClusterMirrorState, topic, f.err, "the destination could not look the topic up; try again when it answers")
		}
		for partition := range f.topic.Partitions {
			p := f.state(a.mirror, partition)
			if p.State != from {
				return false, a.refuse(InvalidClusterMirrorState, topic, "partition %d is %s%s, and every partition has to be %s; Stop is accepted from every state",
					partition, p.State, because(p.ErrorMessage), from)
			}
		}
		wish.MirrorName = statemachine.MirrorNameValue(a.mirror, to)
		s.Set(wish)
		return true, nil
	})
}

// apply runs one decision per topic over the newest desired state and records all of them in one step.
func (a *Admin) apply(ctx context.Context, topics []string, dryRun bool, decide func(*ControlState, string) (bool, error)) ([]TopicResult, error) {
	var results []TopicResult
	change := func(s *ControlState) error {
		results = make([]TopicResult, 0, len(topics)) // a second call begins anew
		for _, topic := range topics {
			changed, err := decide(s, topic)
			results = append(results, TopicResult{Topic: topic, Err: err, Changed: changed && err == nil})
		}
		return nil
	}
	var err error
	if dryRun {
		var s ControlState
		if s, err = a.control.Read(ctx); err == nil {
			err = change(&s)
		}
	} else {
		err = a.control.Update(ctx, change)
	}
	if err != nil {
		return nil, fmt.Errorf("mirror %s: the desired state could not be recorded, nothing has changed: %w", a.mirror, err)
	}
	for _, r := range results {
		if r.Err != nil {
			return results, r.Err
		}
	}
	return results, nil
}

// member returns a topic's wish if it is in this mirror. missing is the destination's word that it does not have the topic, nil if it has it or was not asked.
func (a *Admin) member(s *ControlState, topic string, missing error) (TopicWish, statemachine.Desired, error) {
	wish, ok := s.Topic(topic)
	if !ok {
		if errors.Is(missing, ErrUnknownTopic) {
			return wish, 0, a.failed(UnknownTopicOrPartition, topic, missing, "no such topic at the destination, and none in this mirror; check the name")
		}
		return wish, 0, a.failed(TopicNotInClusterMirror, topic, missing, "the topic is in no mirror")
	}
	owner, want, err := wish.Wish()
	if err != nil {
		return wish, 0, a.failed(InvalidConfig, topic, err, "the recorded desired state cannot be read")
	}
	if owner != a.mirror {
		return wish, 0, a.refuse(TopicNotInClusterMirror, topic, "the topic is in mirror %q", owner)
	}
	return wish, want, nil
}

func (a *Admin) refuse(code Code, topic, format string, args ...any) error {
	return &Error{Code: code, Mirror: a.mirror, Topic: topic, Partition: -1, Message: fmt.Sprintf(format, args...)}
}

func (a *Admin) failed(code Code, topic string, err error, message string) error {
	return &Error{Code: code, Mirror: a.mirror, Topic: topic, Partition: -1, Message: message, Err: err}
}

func (a *Admin) checkRequest(topics []string) error {
	if len(topics) == 0 {
		return a.refuse(InvalidRequest, "", "no topic is named")
	}
	return nil
}

// facts are what the destination and the store say of one topic of a request.
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
func (a *Admin) look(ctx context.Context, topics []string) (map[string]facts, error) {
	found := make(map[string]facts, len(topics))
	byID := make(map[TopicID]string, len(topics))
	for _, name := range topics {
		if _, ok := found[name]; ok || checkTopicName(name) != nil {
			continue
		}
		t, err := a.destination.Topic(ctx, name)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("mirror %s: looking up topic %q at the destination, nothing has changed: %w", a.mirror, name, ctx.Err())
		}
		found[name] = facts{topic: t, err: err}
		if err == nil {
			byID[t.ID] = name
		}
	}
	err := a.states.Load(ctx, func(e statemachine.Entry) error {
		if name, ok := byID[e.Key.TopicID]; ok {
			f := found[name]
			f.states = append(f.states, partitionFact{e.Key.Mirror, e.Key.Partition, e.State})
			found[name] = f
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("mirror %s: reading partition states, nothing has changed: %w", a.mirror, err)
	}
	return found, nil
}

// lookStrangers asks the destination only for topics that are not in this mirror: a Stop of members asks nobody.
func (a *Admin) lookStrangers(ctx context.Context, topics []string) (map[string]error, error) {
	s, err := a.control.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: reading the desired state, nothing has changed: %w", a.mirror, err)
	}
	missing := make(map[string]error)
	for _, name := range topics {
		if _, known := s.Topic(name); known {
			continue
		}
		if _, asked := missing[name]; !asked {
			_, missing[name] = a.destination.Topic(ctx, name)
		}
	}
	return missing, nil
}

// sortConsents gives each consent to its topic.
func (a *Admin) sortConsents(topics []string, consents []Consent, found map[string]facts) (map[string][]Consent, error) {
	by := make(map[string][]Consent)
	for _, c := range consents {
		name := ""
		for _, t := range topics {
			if f, ok := found[t]; ok && f.err == nil && f.topic.ID == c.TopicID {
				name = t
				break
			}
		}
		switch {
		case name == "":
			return nil, a.refuse(InconsistentTopicID, "", "consent to drop [%d,%d) of partition %d is for topic id %s, which no topic of this request has at the destination; "+
				"was it deleted and created again? Make a new plan. Nothing has changed", c.From, c.To, c.Partition, c.TopicID)
		case c.From < 0 || c.To <= c.From:
			return nil, a.refuse(InvalidRequest, name, "consent to drop [%d,%d) of partition %d is not a range", c.From, c.To, c.Partition)
		case c.Partition < 0 || c.Partition >= found[name].topic.Partitions:
			return nil, a.refuse(InvalidRequest, name, "consent to drop [%d,%d) is for partition %d; the topic has %d", c.From, c.To, c.Partition, found[name].topic.Partitions)
		}
		for _, other := range by[name] {
			if other.Partition == c.Partition && other != c {
				return nil, a.refuse(InvalidRequest, name, "two consents for partition %d, [%d,%d) and [%d,%d); one plan gives one", c.Partition, other.From, other.To, c.From, c.To)
			}
		}
		if !slices.Contains(by[name], c) {
			by[name] = append(by[name], c)
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

func because(message string) string {
	if message == "" {
		return ""
	}
	return " (" + message + ")"
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

// newAdmin returns the verbs over what a Config holds; the name was checked.
func newAdmin(c *Config) *Admin {
	return &Admin{mirror: c.Name, control: c.Control, states: c.Store, destination: c.Destination}
}
