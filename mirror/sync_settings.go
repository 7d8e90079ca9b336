package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

// settingSync gives topics at the destination the settings that they have at the source (spec §6, F-63): incrementally, and only those that it set itself ever go back.
type settingSync struct {
	m *Mirror
}

// settingProvenance is the kind of Provenance for settings; its name is the topic.
const settingProvenance = "config"

// settingMemory is what is remembered of one topic's settings, as it is stored.
type settingMemory struct {
	Version  int                             `json:"v"`
	Settings map[string]metadatasync.Setting `json:"settings,omitempty"`
}

func decodeSettingMemory(p Provenance) (map[string]metadatasync.Setting, error) {
	var v settingMemory
	if err := decodeRemembered(p, &v); err != nil {
		return nil, err
	}
	return v.Settings, nil
}

// rememberSettings puts what is remembered of one topic into the state; nothing removes it.
func rememberSettings(s *ControlState, mirror, topic string, settings map[string]metadatasync.Setting) error {
	p := Provenance{Mirror: mirror, Kind: settingProvenance, Name: topic}
	if len(settings) == 0 {
		s.removeProvenance(p)
		return nil
	}
	p, err := encodeRemembered(p, settingMemory{groupMemoryVersion, settings})
	if err == nil {
		s.setProvenance(p)
	}
	return err
}

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
	topics := y.topics()
	if len(topics) == 0 {
		return left, nil
	}
	excluded, err := y.m.settingsNow().PropertyExcluded()
	if err == nil && excluded(everySetting) {
		err = notFollowed(propertiesExcludeSetting + " excludes all of them")
	}
	if err != nil {
		return left, err
	}
	reader, writer, err := abilities[TopicConfigReader, TopicConfigWriter](ctx, y.m, "topic settings")
	if err != nil {
		return left, err
	}
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
	memory := map[string]map[string]metadatasync.Setting{}
	for _, p := range state.provenanceOfKind(y.m.cfg.Name, settingProvenance) {
		m, err := decodeSettingMemory(p)
		if err != nil {
			return left, err
		}
		memory[p.Name] = m
	}
	decisions := map[string]metadatasync.SettingsDecision{}
	changes := map[string]TopicConfigChange{}
	for _, name := range names {
		from, there := source[name]
		to, hereToo := here[name]
		switch {
		case !same[name] || !there || !hereToo:
			continue // the next refresh says what is the matter with it
		case from.Err != nil || to.Err != nil:
			left["topic "+name] = "its settings cannot be read: " + errors.Join(from.Err, to.Err).Error()
			continue
		}
		d := metadatasync.Settings(metadatasync.SettingsLook{Source: from.Values, Destination: to.Values, Memory: memory[name], Excluded: excluded})
		if !maps.EqualFunc(d.Memory, memory[name], metadatasync.Setting.Equal) {
			decisions[name] = d
		}
		if d.Changes() {
			changes[name] = TopicConfigChange{Set: d.Set, Delete: d.Delete}
		}
	}
	if err := y.rememberAll(ctx, decisions); err != nil {
		return left, fmt.Errorf("remembering which topic settings are to be set; none is set: %w", err)
	}
	return left, y.alter(ctx, writer, changes, left)
}

func (y *settingSync) rememberAll(ctx context.Context, decisions map[string]metadatasync.SettingsDecision) error {
	if len(decisions) == 0 {
		return nil
	}
	var unstored error
	err := y.m.syncing.remember.do(ctx, func(s *ControlState) {
		unstored = nil
		for topic, d := range decisions {
			unstored = errors.Join(unstored, rememberSettings(s, y.m.cfg.Name, topic, d.Memory))
		}
	})
	return errors.Join(err, unstored)
}

// alter changes topics. Where one setting is refused the topic's others are set one by one: a setting that the destination does not know must not hold the rest up.
func (y *settingSync) alter(ctx context.Context, writer TopicConfigWriter, changes map[string]TopicConfigChange, left found) error {
	if len(changes) == 0 {
		return nil
	}
	alter := func(changes map[string]TopicConfigChange) (map[string]error, error) {
		if err := y.m.lease.hold(); err != nil {
			return nil, err
		}
		return bounded(ctx, y.m, func(ctx context.Context) (map[string]error, error) {
			return writer.AlterTopicConfigs(ctx, changes), nil
		})
	}
	refused, err := alter(changes)
	if err != nil {
		return err
	}
	for _, topic := range slices.Sorted(maps.Keys(changes)) {
		change := changes[topic]
		if refused[topic] == nil {
			y.tell(topic, change)
			continue
		}
		if len(change.Set)+len(change.Delete) == 1 {
			left["topic "+topic] = refused[topic].Error()
			continue
		}
		done := TopicConfigChange{Set: map[string]string{}}
		var words []string
		for _, one := range change.each() {
			again, err := alter(map[string]TopicConfigChange{topic: one})
			if err != nil {
				return err
			}
			if again[topic] != nil {
				words = append(words, again[topic].Error())
				continue
			}
			maps.Copy(done.Set, one.Set)
			done.Delete = append(done.Delete, one.Delete...)
		}
		if len(words) > 0 {
			left["topic "+topic] = strings.Join(words, "; ")
		}
		if len(done.Set)+len(done.Delete) > 0 {
			y.tell(topic, done)
		}
	}
	return nil
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
	var unstored error
	err = y.m.syncing.remember.do(ctx, func(s *ControlState) { unstored = rememberSettings(s, y.m.cfg.Name, topic, settings) })
	if err = errors.Join(err, unstored); err != nil {
		return nil, fmt.Errorf("remembering the settings with which topic %s is created: %w", topic, err)
	}
	return configs, nil
}
