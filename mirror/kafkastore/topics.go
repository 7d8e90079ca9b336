package kafkastore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/asking"
	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// The topics. Rights on them are what roles are made of, so each kind of record that another role may write has its own.
const (
	stateTopic   = "__mirror_state"
	controlTopic = "__mirror_control"
	stopTopic    = "__mirror_stop"
	pauseTopic   = "__mirror_pause"
	historyTopic = "__mirror_history"
	statusTopic  = "__mirror_status"
)

// Topics are all topics of a store.
func Topics() []string {
	return []string{stateTopic, controlTopic, stopTopic, pauseTopic, historyTopic, statusTopic}
}

// topics are Topics in this store's namespace.
func (s *Store) topics() []string {
	names := Topics()
	for i := range names {
		names[i] = s.cfg.namespace + names[i]
	}
	return names
}

// recordType is the number that a key begins with; false for a key that has none.
func recordType(key []byte) (int16, bool) {
	if len(key) < 2 {
		return 0, false
	}
	return int16(binary.BigEndian.Uint16(key)), true
}

func isState(key []byte) bool {
	t, ok := recordType(key)
	return ok && (t == int16(statemachine.LastMirrorEpochsType) || t == int16(statemachine.PartitionStateType))
}

// twin is the other one of the two records that a partition of a mirror has: its state's or its last mirror epoch's. nil for other keys.
func twin(key []byte) []byte {
	if !isState(key) {
		return nil
	}
	other := slices.Clone(key)
	other[1] = byte(statemachine.LastMirrorEpochsType) + byte(statemachine.PartitionStateType) - key[1]
	return other
}

// placeOf says where a key's records are. statePartitions is in how many partitions the keys of states lie.
func (s *Store) placeOf(key []byte, statePartitions int32) (place, error) {
	t, ok := recordType(key)
	switch {
	case ok && (t == sessionType || t == topicreader.StateLayoutType):
		return place{}, fmt.Errorf("kafkastore: keys of record type %d are the store's own; %x was asked for", t, key)
	case isState(key):
		_, k, err := statemachine.DecodeKey(key)
		if err != nil {
			return place{}, fmt.Errorf("kafkastore: key %x: %w", key, err)
		}
		return place{s.cfg.namespace + stateTopic, statemachine.StatePartition(k, statePartitions)}, nil
	}
	return place{s.topicOf(key), 0}, nil
}

// topicOf says in which topic a key's records are.
func (s *Store) topicOf(key []byte) string {
	t, ok := recordType(key)
	topic := controlTopic // also of types that nobody has named
	if ok && t == topicreader.StateLayoutType || isState(key) {
		topic = stateTopic
	} else if named := mirror.ControlTopic(t); ok && named != "" {
		topic = named
	}
	return s.cfg.namespace + topic
}

// create makes topics that are not there. One that another process has made meanwhile is fine.
func (s *Store) create(ctx context.Context, topics []string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 15_000
	partitions := make(map[string]int32)
	for _, name := range topics {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 1, s.cfg.ReplicationFactor
		if name == s.cfg.namespace+stateTopic {
			t.NumPartitions = s.cfg.StatePartitions
		}
		partitions[name] = t.NumPartitions
		for _, c := range [][2]string{
			{"cleanup.policy", "compact"},
			{"segment.bytes", "8388608"}, // what is in the newest segment is not compacted
			{"min.cleanable.dirty.ratio", "0.1"},
			{"min.compaction.lag.ms", "60000"}, // an update whose outcome is looked for is not compacted away meanwhile
			{"delete.retention.ms", fmt.Sprint(leastRetention.Milliseconds())},
			{"unclean.leader.election.enable", "false"},
			{"min.insync.replicas", fmt.Sprint(max(1, s.cfg.ReplicationFactor-1))},
		} {
			config := kmsg.NewCreateTopicsRequestTopicConfig()
			config.Name, config.Value = c[0], kmsg.StringPtr(c[1])
			t.Configs = append(t.Configs, config)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return requestFailed("CreateTopics", err)
	}
	for _, t := range resp.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		switch err {
		case nil, kerr.TopicAlreadyExists:
			continue
		case kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed:
			return &AccessError{Resource: "topic", Name: t.Topic, Right: "Create", Err: err}
		case kerr.InvalidReplicationFactor:
			return &TopicError{t.Topic, fmt.Errorf("%w: the cluster has not the %d brokers that its copies need; lower it, as by the line mirror.state.topic.replication.factor=1 (Config.ReplicationFactor), "+
				"knowing that the state of all mirrors lies there", err, s.cfg.ReplicationFactor)}
		case kerr.PolicyViolation, kerr.InvalidConfig, kerr.InvalidPartitions, kerr.InvalidRequest:
			message := ""
			if t.ErrorMessage != nil {
				message = ": " + *t.ErrorMessage
			}
			return &TopicError{t.Topic, fmt.Errorf("cannot be created: %w%s; create it by hand: kafka-topics.sh --bootstrap-server HOST:PORT --create --topic %s --partitions %d "+
				"--replication-factor %d --config cleanup.policy=compact --config delete.retention.ms=%d", err, message, t.Topic, partitions[t.Topic], s.cfg.ReplicationFactor,
				leastRetention.Milliseconds())}
		}
		return again("create topic %s: %w", t.Topic, err)
	}
	return nil
}

// errNotCompacted: a topic of that name keeps records for a time only.
var errNotCompacted = errors.New("its cleanup.policy is not compact alone, so the state of mirrors would be deleted after a while; " +
	"set it with: kafka-configs.sh --alter --entity-type topics --add-config cleanup.policy=compact, or remove the topic if it is somebody else's")

// errShortRetention: tombstones of the topic are forgotten so soon that a process which was away for a while would keep records that were taken out.
var errShortRetention = errors.New("its delete.retention.ms is below a day, so a process that was cut off for that long would not learn what was taken out; " +
	"set it with: kafka-configs.sh --alter --entity-type topics --add-config delete.retention.ms=86400000")

// errSmallMessages: not even what is written at once here would fit.
var errSmallMessages = fmt.Errorf("its max.message.bytes is below %d, which one batch may have; "+
	"set it with: kafka-configs.sh --alter --entity-type topics --add-config max.message.bytes=1048588", leastMessageBytes)

// leastMessageBytes is a batch and its header.
const leastMessageBytes = maxBatchBytes + 1<<10

// vet refuses topics that are not compacted, that forget tombstones too soon, or that take small batches only. Whoever may not describe their configuration
// goes without that check.
func (s *Store) vet(ctx context.Context, topics []string) error {
	resp, err := asking.Any[*kmsg.DescribeConfigsResponse](ctx, s.client, func() kmsg.Request {
		req := kmsg.NewPtrDescribeConfigsRequest()
		for _, name := range topics {
			r := kmsg.NewDescribeConfigsRequestResource()
			r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, name, []string{"cleanup.policy", "delete.retention.ms", "max.message.bytes"}
			req.Resources = append(req.Resources, r)
		}
		return req
	})
	if err != nil {
		return requestFailed("DescribeConfigs", err)
	}
	for _, r := range resp.Resources {
		switch err := kerr.ErrorForCode(r.ErrorCode); err {
		case nil:
		case kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed:
			continue
		default:
			return again("configuration of topic %s: %w", r.ResourceName, err)
		}
		for _, c := range r.Configs {
			if c.Name == "cleanup.policy" && (c.Value == nil || strings.TrimSpace(*c.Value) != "compact") {
				return &TopicError{r.ResourceName, errNotCompacted}
			}
			for name, least := range map[string]struct {
				value int64
				err   error
			}{"delete.retention.ms": {leastRetention.Milliseconds(), errShortRetention}, "max.message.bytes": {leastMessageBytes, errSmallMessages}} {
				if c.Name != name || c.Value == nil {
					continue
				}
				if n, err := strconv.ParseInt(*c.Value, 10, 64); err == nil && n < least.value {
					return &TopicError{r.ResourceName, least.err}
				}
			}
		}
	}
	return nil
}
