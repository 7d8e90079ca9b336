package memlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/clustermirror/clustermirror/mirror"
)

// TopicConfig is a copy of the settings that a topic has. It passes no hook.
func (c *Cluster) TopicConfig(topic string) (map[string]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[topic]
	if t == nil {
		return nil, unknownTopic(topic)
	}
	return maps.Clone(t.configs), nil
}

// SetTopicConfig sets one setting of a topic, as an operator of the cluster does. SetRefusedConfig holds for it too.
func (c *Cluster) SetTopicConfig(topic, name, value string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alter(topic, mirror.TopicConfigChange{Set: map[string]string{name: value}})
}

// DeleteTopicConfig takes one setting back to its default; one that is not set is fine.
func (c *Cluster) DeleteTopicConfig(topic, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alter(topic, mirror.TopicConfigChange{Delete: []string{name}})
}

// SetRefusedConfig refuses every creation and change that sets this setting, with these words: a setting that the cluster does not know, or a policy (F-65). No words: it is taken again.
func (c *Cluster) SetRefusedConfig(name, words string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if words == "" {
		delete(c.refused, name)
		return
	}
	c.refused[name] = words
}

// takes is the cluster's word on settings. Under mu.
func (c *Cluster) takes(topic string, configs map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		if words, refused := c.refused[name]; refused {
			return &mirror.RefusedError{Setting: true, Err: fmt.Errorf("memlog: topic %s: setting %s: INVALID_CONFIG: %s", topic, name, words)}
		}
	}
	return nil
}

// alter changes one topic whole or not at all. Under mu.
func (c *Cluster) alter(topic string, change mirror.TopicConfigChange) error {
	t := c.topics[topic]
	if t == nil {
		return unknownTopic(topic)
	}
	if err := c.takes(topic, change.Set); err != nil {
		return err
	}
	for _, name := range change.Delete {
		if _, twice := change.Set[name]; twice {
			return &mirror.RefusedError{Err: fmt.Errorf("memlog: topic %s: INVALID_REQUEST: setting %s is set and deleted in one change", topic, name)}
		}
	}
	if t.configs == nil {
		t.configs = map[string]string{}
	}
	maps.Copy(t.configs, change.Set)
	for _, name := range change.Delete {
		delete(t.configs, name)
	}
	return nil
}

// TopicConfigs reads the settings of topics.
func (c *Cluster) TopicConfigs(ctx context.Context, topics []string) (map[string]mirror.TopicConfigs, error) {
	return c.readConfigs(ctx, topics, func(t *topic) map[string]string { return t.configs })
}

// EffectiveConfigs reads settings of topics as they count, with those of SetDefaultConfig. To hooks it is Metadata.TopicConfigs too.
func (c *Cluster) EffectiveConfigs(ctx context.Context, topics []string, names ...string) (map[string]mirror.TopicConfigs, error) {
	return c.readConfigs(ctx, topics, func(t *topic) map[string]string {
		values := maps.Clone(c.defaults)
		maps.Copy(values, t.configs)
		maps.DeleteFunc(values, func(name, _ string) bool { return !slices.Contains(names, name) })
		return values
	})
}

// SetDefaultConfig sets what topics have that say nothing themselves, as the settings of brokers do.
func (c *Cluster) SetDefaultConfig(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.defaults[name] = value
}

// readConfigs reads what of says of each topic, under mu.
func (c *Cluster) readConfigs(ctx context.Context, topics []string, of func(*topic) map[string]string) (map[string]mirror.TopicConfigs, error) {
	found := make(map[string]mirror.TopicConfigs, len(topics))
	err := c.metadata(ctx, Call{Operation: "Metadata.TopicConfigs"}, "describe topic settings", func() error {
		for _, name := range topics {
			t := c.topics[name]
			switch {
			case c.lacks("DescribeConfigs", "Topic", name): // Kafka does not say then whether there is such a topic
				found[name] = mirror.TopicConfigs{Err: denied("DescribeConfigs", "Topic", name)}
			case t == nil:
			default:
				values := map[string]string{}
				maps.Copy(values, of(t))
				found[name] = mirror.TopicConfigs{Values: values}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// AlterTopicConfigs changes settings of topics, in order of name. An error of a hook is that of every topic.
func (c *Cluster) AlterTopicConfigs(ctx context.Context, changes map[string]mirror.TopicConfigChange) map[string]error {
	failed := map[string]error{}
	err := c.call(ctx, Call{Operation: "Destination.AlterTopicConfigs"}, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(changes)) {
			err := c.alterAllowed(name, changes[name])
			if err != nil {
				failed[name] = err
			}
		}
		return nil
	})
	if err != nil {
		for name := range changes {
			failed[name] = err
		}
	}
	return failed
}

func (c *Cluster) alterAllowed(topic string, change mirror.TopicConfigChange) error {
	if c.lacks("AlterConfigs", "Topic", topic) {
		return denied("AlterConfigs", "Topic", topic)
	}
	err := c.alter(topic, change)
	if errors.Is(err, mirror.ErrUnknownTopic) {
		err = &mirror.RefusedError{Err: err}
	}
	return err
}
