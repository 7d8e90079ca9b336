package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
	"github.com/clustermirror/clustermirror/statemachine"
)

// settingSync gives topics at the destination the settings that they have at the source (spec §6, F-63): incrementally, and only those that it set itself ever go back.
type settingSync struct {
	m *Mirror

	// Of the one look at a time.
	refused map[string]refusedSettings // by topic
	unsaved map[string]unsavedSettings // by topic
}

// refusedSettings are those of one topic that the destination did not take when they were tried one by one.
type refusedSettings struct {
	change TopicConfigChange
	words  string
	looks  int // since then
}

// unsavedSettings are what should be remembered of one topic, and could not be written over what is.
type unsavedSettings struct {
	stored, now map[string]metadatasync.Setting
}

// settingLook is how many CallBounds a look takes at most: it asks both sides, and changes topics a few times.
const settingLook = 4

// everySetting is a name that no setting has: who excludes it excludes all of them.
const everySetting = "every.setting"

// topics are those that are mirrored here now, with their ids at the source.
func (y *settingSync) topics() map[string]TopicID {
	ids := map[string]TopicID{}
	for tp, p := range y.m.syncing.groups.followed() {
		ids[tp.Topic] = p.topicID
	}
	return ids
}

func (y *settingSync) look(ctx context.Context) (left found, err error) {
	left = found{}
	excluded, err := y.m.settingsNow().PropertyExcluded()
	if err != nil {
		return left, err
	}
	topics := y.topics()
	if len(topics) == 0 {
		return left, nil
	}
	if excluded(everySetting) { // each is nobody's business any more
		if err := y.forgetAll(ctx); err != nil {
			return left, fmt.Errorf("forgetting topic settings: %w", err)
		}
		return left, notFollowed(propertiesExcludeSetting + " excludes all of them")
	}
	reader, writer, err := abilities[TopicConfigReader, TopicConfigWriter](ctx, y.m, "topic settings")
	if err != nil {
		return left, err
	}
	remembering := ctx // also when the time for the rest is over
	ctx, stop := context.WithTimeout(ctx, settingLook*y.m.cfg.CallBound)
	defer stop()
	names := slices.Sorted(maps.Keys(topics))
	ask := func(r TopicConfigReader) func(context.Context) (map[string]TopicConfigs, error) {
		return func(ctx context.Context) (map[string]TopicConfigs, error) { return r.TopicConfigs(ctx, names) }
	}
	source, err := bounded(ctx, y.m, ask(reader))
	if err != nil {
		return left, unsupported(fmt.Errorf("reading topic settings at the source: %w", err), "topic settings")
	}
	same, err := y.m.desk.confirm(ctx, topics)
	if err != nil {
		return left, err
	}
	here, err := bounded(ctx, y.m, ask(writer))
	if err != nil {
		return left, fmt.Errorf("reading topic settings at the destination: %w", err)
	}
	state, err := bounded(ctx, y.m, y.m.cfg.Control.Read)
	if err != nil {
		return left, fmt.Errorf("reading what is remembered of topic settings: %w", err)
	}
	stored, unread := y.remembered(&state, left)
	decisions := map[string]metadatasync.SettingsDecision{} // of topics that are to be changed
	memories := map[string]map[string]metadatasync.Setting{}
	for _, name := range names {
		from, there := source[name]
		to, hereToo := here[name]
		switch {
		case !same[name] || !there || !hereToo || unread[name]:
			continue // the next refresh says what is the matter with it
		case from.Err != nil || to.Err != nil:
			left["topic "+name] = "its settings cannot be read: " + errors.Join(from.Err, to.Err).Error()
			continue
		}
		memory := stored[name]
		if u, ok := y.unsaved[name]; ok && sameSettings(u.stored, memory) {
			memory = u.now
		}
		d := metadatasync.Settings(metadatasync.SettingsLook{Source: from.Values, Destination: to.Values, Memory: memory, Excluded: excluded})
		if _, err := encodeSettings(y.m.cfg.Name, name, d.Memory); err != nil {
			left["topic "+name] = "its settings cannot be remembered, so none is set: " + err.Error()
			continue
		}
		if !sameSettings(d.Memory, stored[name]) {
			memories[name] = d.Memory
		} else {
			delete(y.unsaved, name)
		}
		if d.Changes() {
			decisions[name] = d
		}
	}
	if err := y.remember(remembering, &state, memories); err != nil {
		return left, fmt.Errorf("remembering which topic settings are to be set; none is set: %w", err)
	}
	for name := range memories {
		delete(y.unsaved, name)
	}
	outcomes, err := y.alter(ctx, writer, topics, decisions, left)
	if over := y.m.lease.over(); over != nil {
		return left, over
	}
	clear(memories)
	for name, d := range decisions {
		if after := d.After(func(setting string) metadatasync.Outcome { return outcomes[name][setting] }); !sameSettings(after, d.Memory) {
			memories[name] = after
		}
	}
	if unsaved := y.remember(remembering, nil, memories); unsaved != nil {
		for name, after := range memories {
			if y.unsaved == nil {
				y.unsaved = map[string]unsavedSettings{}
			}
			y.unsaved[name] = unsavedSettings{decisions[name].Memory, after}
		}
		err = errors.Join(err, fmt.Errorf("remembering which topic settings were set: %w", unsaved))
	}
	return left, err
}

// remembered are what is remembered of each topic. One whose record cannot be read is left alone.
func (y *settingSync) remembered(s *ControlState, left found) (all map[string]map[string]metadatasync.Setting, unread map[string]bool) {
	all, unread = map[string]map[string]metadatasync.Setting{}, map[string]bool{}
	for _, p := range s.provenanceOfKind(y.m.cfg.Name, settingProvenance) {
		m, err := decodeSettings(p)
		if err != nil {
			left["topic "+p.Name], unread[p.Name] = "what is remembered of its settings cannot be read, so they are left as they are: "+err.Error(), true
			continue
		}
		all[p.Name] = m
	}
	return all, unread
}

// leftBehind are the records of topics that this mirror does not follow any more, or of all. One that cannot be read stays.
func (y *settingSync) leftBehind(s *ControlState, all bool) (gone []Provenance) {
	for _, p := range s.provenanceOfKind(y.m.cfg.Name, settingProvenance) {
		if of, want := s.wanted(p.Name); !all && of == y.m.cfg.Name && want != statemachine.WantStopped {
			continue
		}
		if _, err := decodeSettings(p); err == nil {
			gone = append(gone, p)
		}
	}
	return gone
}

// forgetAll takes out what is remembered of every topic.
func (y *settingSync) forgetAll(ctx context.Context) error {
	y.m.following.mu.Lock()
	none := len(y.leftBehind(&y.m.following.state, true)) == 0
	y.m.following.mu.Unlock()
	if none {
		return nil
	}
	return y.m.syncing.remember.do(ctx, func(s *ControlState) {
		for _, p := range y.leftBehind(s, true) {
			s.removeProvenance(p)
		}
	})
}

// remember puts what is remembered of topics into the Control, in one step with what is left behind in seen; where there is neither, there is no step. seen may be nil.
func (y *settingSync) remember(ctx context.Context, seen *ControlState, memories map[string]map[string]metadatasync.Setting) error {
	if len(memories) == 0 && (seen == nil || len(y.leftBehind(seen, false)) == 0) {
		return nil
	}
	var entries []Provenance
	for topic, settings := range memories {
		p, err := encodeSettings(y.m.cfg.Name, topic, settings)
		if err != nil {
			return err
		}
		entries = append(entries, p)
	}
	return y.m.syncing.remember.do(ctx, func(s *ControlState) {
		for _, p := range y.leftBehind(s, false) {
			s.removeProvenance(p)
		}
		for _, p := range entries {
			if p.Value == "" {
				s.removeProvenance(p)
			} else {
				s.setProvenance(p)
			}
		}
	})
}

// alter changes topics, those that are mirrored still when it comes to them, and says what became of each setting. Where a topic is refused for its settings they are tried one by one: one that the
// destination does not know must not hold the others up. Those that it did not take then are tried together at each look, and one by one at each tenth: their refusals cost calls.
func (y *settingSync) alter(ctx context.Context, writer TopicConfigWriter, topics map[string]TopicID, decisions map[string]metadatasync.SettingsDecision, left found) (outcomes map[string]map[string]metadatasync.Outcome, err error) {
	outcomes = map[string]map[string]metadatasync.Outcome{}
	changes := map[string]TopicConfigChange{}
	for topic, d := range decisions {
		changes[topic], outcomes[topic] = TopicConfigChange{Set: d.Set, Delete: d.Delete}, map[string]metadatasync.Outcome{}
		for _, name := range changes[topic].names() {
			outcomes[topic][name] = metadatasync.Refused // not tried
		}
	}
	alter := func(some map[string]TopicConfigChange) (failed map[string]error, err error) {
		if err := y.m.lease.hold(); err != nil {
			return nil, err
		}
		now := y.topics()
		maps.DeleteFunc(some, func(topic string, _ TopicConfigChange) bool {
			id, is := now[topic]
			return !is || id != topics[topic]
		})
		if len(some) == 0 {
			return nil, nil
		}
		failed, err = bounded(ctx, y.m, func(ctx context.Context) (map[string]error, error) {
			return writer.AlterTopicConfigs(ctx, maps.Clone(some)), nil
		})
		for topic, change := range some {
			for _, name := range change.names() {
				outcomes[topic][name] = outcomeOf(failed[topic])
			}
		}
		return failed, err
	}
	if len(changes) == 0 || ctx.Err() != nil {
		y.refused = nil
		return outcomes, ctx.Err()
	}
	failed, err := alter(changes)
	if err != nil {
		return outcomes, err
	}
	before := y.refused
	y.refused = map[string]refusedSettings{}
	apart := map[string][]TopicConfigChange{}
	rounds := 0
	for _, topic := range slices.Sorted(maps.Keys(changes)) {
		var no *RefusedError
		change := changes[topic]
		switch err := failed[topic]; {
		case err == nil:
			y.tell(topic, change)
		case !errors.As(err, &no) || !no.Setting || len(change.names()) == 1:
			left["topic "+topic] = cannotSet + err.Error()
		case before[topic].change.equal(change) && before[topic].looks < offRefreshes:
			r := before[topic]
			r.looks++
			left["topic "+topic], y.refused[topic] = r.words, r
		default:
			left["topic "+topic] = cannotSet + err.Error() // until they were tried
			apart[topic] = change.each()
			rounds = max(rounds, len(apart[topic]))
		}
	}
	return outcomes, y.alterApart(ctx, apart, rounds, alter, left)
}

// cannotSet is said before why a topic is left as it is.
const cannotSet = "its settings cannot be changed at the destination: "

// outcomeOf is what became of a change that gave err.
func outcomeOf(err error) metadatasync.Outcome {
	switch {
	case err == nil:
		return metadatasync.CarriedOut
	case errors.As(err, new(*RefusedError)):
		return metadatasync.Refused
	}
	return metadatasync.NotKnown
}

// alterApart changes settings of topics one by one: in each round one of every topic.
func (y *settingSync) alterApart(ctx context.Context, apart map[string][]TopicConfigChange, rounds int, alter func(map[string]TopicConfigChange) (map[string]error, error), left found) error {
	done, refused := map[string]TopicConfigChange{}, map[string]TopicConfigChange{}
	words := map[string][]string{}
	defer func() {
		for _, topic := range slices.Sorted(maps.Keys(done)) {
			y.tell(topic, done[topic])
		}
	}()
	for i := range rounds {
		if ctx.Err() != nil {
			return nil // the next look goes on
		}
		round := map[string]TopicConfigChange{}
		for topic, each := range apart {
			if i < len(each) {
				round[topic] = each[i]
			}
		}
		failed, err := alter(round)
		if err != nil {
			return err
		}
		for topic, one := range round {
			var no *RefusedError
			err := failed[topic]
			if err == nil {
				done[topic] = done[topic].and(one)
				continue
			}
			if errors.As(err, &no) && no.Setting {
				refused[topic] = refused[topic].and(one)
			}
			if !slices.Contains(words[topic], err.Error()) {
				words[topic] = append(words[topic], err.Error())
			}
		}
	}
	for topic := range apart {
		delete(left, "topic "+topic)
		if len(words[topic]) > 0 {
			left["topic "+topic] = cannotSet + few(words[topic])
			y.refused[topic] = refusedSettings{change: refused[topic], words: left["topic "+topic]}
		}
	}
	return nil
}

// names are the settings that a change changes, in order.
func (c TopicConfigChange) names() []string {
	return append(slices.Sorted(maps.Keys(c.Set)), c.Delete...)
}

// each is the change in parts of one setting each, in order.
func (c TopicConfigChange) each() (all []TopicConfigChange) {
	for _, name := range slices.Sorted(maps.Keys(c.Set)) {
		all = append(all, TopicConfigChange{Set: map[string]string{name: c.Set[name]}})
	}
	for _, name := range c.Delete {
		all = append(all, TopicConfigChange{Delete: []string{name}})
	}
	return all
}

// and is both changes.
func (c TopicConfigChange) and(other TopicConfigChange) TopicConfigChange {
	both := TopicConfigChange{Set: map[string]string{}, Delete: append(slices.Clone(c.Delete), other.Delete...)}
	maps.Copy(both.Set, c.Set)
	maps.Copy(both.Set, other.Set)
	return both
}

func (c TopicConfigChange) equal(other TopicConfigChange) bool {
	return maps.Equal(c.Set, other.Set) && slices.Equal(c.Delete, other.Delete)
}

func (y *settingSync) tell(topic string, c TopicConfigChange) {
	y.m.emit(SettingsFollowed{EventMeta: y.m.meta(TopicPartition{Topic: topic, Partition: Unknown}), Set: c.Set, Deleted: c.Delete})
}

// forNew are the settings that a topic is created with (F-64), and remembered as the mirror's own before it exists. A topic whose settings cannot be read is not created: one that is compacted
// there and is not here would lose what it is for.
func (y *settingSync) forNew(ctx context.Context, topic string) (map[string]string, error) {
	excluded, err := y.m.settingsNow().PropertyExcluded()
	if err != nil || excluded(everySetting) {
		return nil, err
	}
	reader, err := sourceAbility[TopicConfigReader](ctx, y.m)
	if errors.Is(err, ErrUnsupported) {
		return nil, nil // a source that has none
	}
	var source map[string]TopicConfigs
	if err == nil {
		source, err = reader.TopicConfigs(ctx, []string{topic})
	}
	from, there := source[topic]
	switch {
	case errors.Is(err, ErrUnsupported):
		return nil, nil
	case err == nil && !there:
		err = ErrUnknownTopic
	case err == nil:
		err = from.Err
	}
	if err != nil {
		advice := ""
		var denied *SourceError
		if errors.As(err, &denied) && denied.Code == SourceDenied {
			advice = "; allow DescribeConfigs on it, or set " + propertiesExcludeSetting + "=.* to create topics with the destination's own settings"
		}
		return nil, fmt.Errorf("reading the settings of topic %s at the source, without which it is not created: %w%s", topic, err, advice)
	}
	configs := map[string]string{}
	settings := map[string]metadatasync.Setting{}
	for name, value := range from.Values {
		if !excluded(name) {
			configs[name], settings[name] = value, metadatasync.Setting{Set: value}
		}
	}
	if len(configs) == 0 {
		return nil, nil
	}
	if err := y.remember(ctx, nil, map[string]map[string]metadatasync.Setting{topic: settings}); err != nil {
		return nil, fmt.Errorf("remembering the settings with which topic %s is created: %w", topic, err)
	}
	return configs, nil
}
