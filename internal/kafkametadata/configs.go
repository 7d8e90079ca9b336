package kafkametadata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// Requests of one call. An answer about 1,000 topics is some megabytes; a controller refuses a whole request whose changes are more than 10,000 records (Kafka:
// QuorumController.MAX_RECORDS_PER_USER_OP), and each changed setting is one.
const (
	mostRead    = 1000
	mostAltered = 500
	mostChanges = 5000
)

var errNoSource = errors.New("the broker does not say where a setting comes from: it is older than Kafka 1.1")

// dynamicTopicConfig is the source of what is set on the topic itself (KIP-226, Kafka: DescribeConfigsResponse.ConfigSource).
const dynamicTopicConfig = kmsg.ConfigSourceDynamicTopicConfig

// TopicConfigs is mirror.TopicConfigReader. Settings whose value the broker does not tell, because it takes them for secret, are absent. A topic whose settings the user may not read, and
// one of a request that no broker answered, has an Err; the error is for a call that no broker answered at all. The user needs DescribeConfigs on the topics.
func (c *Client) TopicConfigs(ctx context.Context, topics []string) (map[string]mirror.TopicConfigs, error) {
	return c.configs(ctx, topics, nil, func(source kmsg.ConfigSource) bool { return source == dynamicTopicConfig })
}

// EffectiveConfigs is mirror.EffectiveConfigReader, with what TopicConfigs says: a broker answers a topic's settings with its own defaults and the cluster's.
func (c *Client) EffectiveConfigs(ctx context.Context, topics []string, names ...string) (map[string]mirror.TopicConfigs, error) {
	return c.configs(ctx, topics, names, func(kmsg.ConfigSource) bool { return true })
}

// configs reads settings of topics, all of them where no names are given, that come from where counts says.
func (c *Client) configs(ctx context.Context, topics, names []string, counts func(kmsg.ConfigSource) bool) (map[string]mirror.TopicConfigs, error) {
	found := make(map[string]mirror.TopicConfigs, len(topics))
	if len(topics) == 0 {
		return found, nil
	}
	brokers, err := c.anyBroker(ctx)
	if err != nil {
		return nil, err
	}
	answered := false
	chunks := slices.Collect(slices.Chunk(slices.Compact(slices.Sorted(slices.Values(topics))), mostRead))
	// Where a call's time is not enough for all of them, it is not always the same ones that go without.
	rand.Shuffle(len(chunks), func(i, j int) { chunks[i], chunks[j] = chunks[j], chunks[i] })
	for _, some := range chunks {
		resp, rerr := askAny[*kmsg.DescribeConfigsResponse](ctx, brokers, func() kmsg.Request { return describeTopics(some, names) })
		if rerr == nil && resp.Version < 1 {
			rerr = errNoSource
		}
		for _, topic := range some {
			found[topic] = mirror.TopicConfigs{Err: cmp.Or(rerr, errLeftOut)}
		}
		if rerr != nil {
			err = rerr
			continue
		}
		answered = true
		for i := range resp.Resources {
			r := &resp.Resources[i]
			if _, asked := found[r.ResourceName]; !asked || r.ResourceType != kmsg.ConfigResourceTypeTopic {
				continue
			}
			if r.ErrorCode == kerr.UnknownTopicOrPartition.Code {
				delete(found, r.ResourceName)
				continue
			}
			found[r.ResourceName] = topicConfigs(r, counts)
		}
	}
	if !answered {
		return nil, err
	}
	return found, nil
}

func describeTopics(topics, names []string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, topic := range topics {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, names
		req.Resources = append(req.Resources, r)
	}
	return req
}

func topicConfigs(r *kmsg.DescribeConfigsResponseResource, counts func(kmsg.ConfigSource) bool) mirror.TopicConfigs {
	if err := refusal(r.ErrorCode, r.ErrorMessage); err != nil {
		return mirror.TopicConfigs{Err: err}
	}
	values := map[string]string{}
	for _, entry := range r.Configs {
		if counts(entry.Source) && entry.Value != nil {
			values[entry.Name] = *entry.Value
		}
	}
	return mirror.TopicConfigs{Values: values}
}

// AlterTopicConfigs is mirror.TopicConfigWriter, by IncrementalAlterConfigs (KIP-339). A topic whose request no broker answered has an error, and it is not known whether it was changed.
// The user needs AlterConfigs on the topics.
func (c *Client) AlterTopicConfigs(ctx context.Context, changes map[string]mirror.TopicConfigChange) map[string]error {
	failed := map[string]error{}
	var brokers *anyBroker
	var err error
	for some := range together(changes) {
		if brokers == nil && err == nil {
			brokers, err = c.anyBroker(ctx)
		}
		var resp *kmsg.IncrementalAlterConfigsResponse
		rerr := err
		if rerr == nil {
			resp, rerr = askAny[*kmsg.IncrementalAlterConfigsResponse](ctx, brokers, func() kmsg.Request { return alterTopics(some, changes) })
		}
		for _, topic := range some {
			failed[topic] = fmt.Errorf("changing settings of topic %s: %w", topic, cmp.Or(rerr, errLeftOut))
		}
		if rerr != nil {
			continue
		}
		for _, r := range resp.Resources {
			switch err := refusal(r.ErrorCode, r.ErrorMessage); {
			case err == nil:
				delete(failed, r.ResourceName)
			case failed[r.ResourceName] != nil:
				failed[r.ResourceName] = brokers.refused(r.ErrorCode, fmt.Errorf("changing settings of topic %s: %w", r.ResourceName, err))
			}
		}
	}
	return failed
}

// together are the topics of each request, sorted; those that are not changed are left out.
func together(changes map[string]mirror.TopicConfigChange) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		var some []string
		entries := 0
		for _, topic := range slices.Sorted(maps.Keys(changes)) {
			n := len(changes[topic].Set) + len(changes[topic].Delete)
			if n == 0 {
				continue
			}
			if len(some) == mostAltered || len(some) > 0 && entries+n > mostChanges {
				if !yield(some) {
					return
				}
				some, entries = nil, 0
			}
			some, entries = append(some, topic), entries+n
		}
		if len(some) > 0 {
			yield(some)
		}
	}
}

func alterTopics(topics []string, changes map[string]mirror.TopicConfigChange) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, topic := range topics {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		change := changes[topic]
		for _, name := range slices.Sorted(maps.Keys(change.Set)) {
			entry := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			entry.Name, entry.Op, entry.Value = name, kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr(change.Set[name])
			r.Configs = append(r.Configs, entry)
		}
		for _, name := range change.Delete {
			entry := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			entry.Name, entry.Op = name, kmsg.IncrementalAlterConfigOpDelete
			r.Configs = append(r.Configs, entry)
		}
		req.Resources = append(req.Resources, r)
	}
	return req
}
