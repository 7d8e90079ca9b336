package kafkasource

import (
	"context"

	"github.com/clustermirror/clustermirror/mirror"
)

var (
	_ mirror.TopicConfigReader     = (*Source)(nil)
	_ mirror.EffectiveConfigReader = (*Source)(nil)
)

const topicConfigsOperation = "topic settings"

// TopicConfigs reads the settings of topics. A topic's Err is a *mirror.SourceError, as the error is. The user needs DESCRIBE_CONFIGS on the topics.
func (s *Source) TopicConfigs(ctx context.Context, topics []string) (map[string]mirror.TopicConfigs, error) {
	return s.topicConfigs(ctx, func(ctx context.Context) (map[string]mirror.TopicConfigs, error) {
		return s.metadataClient.TopicConfigs(ctx, topics)
	})
}

// EffectiveConfigs reads settings of topics as they count, the brokers' defaults included. Errors and rights are those of TopicConfigs.
func (s *Source) EffectiveConfigs(ctx context.Context, topics []string, names ...string) (map[string]mirror.TopicConfigs, error) {
	return s.topicConfigs(ctx, func(ctx context.Context) (map[string]mirror.TopicConfigs, error) {
		return s.metadataClient.EffectiveConfigs(ctx, topics, names...)
	})
}

func (s *Source) topicConfigs(ctx context.Context, ask func(context.Context) (map[string]mirror.TopicConfigs, error)) (map[string]mirror.TopicConfigs, error) {
	ctx, end, err := s.begin(ctx, topicConfigsOperation)
	if err != nil {
		return nil, err
	}
	defer end()
	found, err := ask(ctx)
	if err != nil {
		return nil, s.failure(topicConfigsOperation, mirror.TopicPartition{}, err)
	}
	for topic, c := range found {
		if c.Err == nil {
			continue
		}
		e := s.failure(topicConfigsOperation, mirror.TopicPartition{Topic: topic}, c.Err)
		if e.Code == mirror.SourceDenied {
			e.Advice = "grant the mirror's user DESCRIBE_CONFIGS on topic " + topic + " at the source"
		}
		c.Err = e
		found[topic] = c
	}
	return found, nil
}
