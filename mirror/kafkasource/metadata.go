package kafkasource

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// Cluster asks one broker for the cluster's id and brokers. Whatever id it answers is from then on the only cluster that other calls accept answers of.
func (s *Source) Cluster(ctx context.Context) (mirror.ClusterInfo, error) {
	const operation = "metadata"
	ctx, end, err := s.begin(ctx, operation)
	if err != nil {
		return mirror.ClusterInfo{}, err
	}
	defer end()
	resp, err := s.metadata(ctx, operation, []string{}, true)
	if err != nil {
		return mirror.ClusterInfo{}, err
	}
	info := mirror.ClusterInfo{ID: clusterID(resp)}
	for _, b := range resp.Brokers {
		info.Brokers = append(info.Brokers, mirror.Broker{ID: b.NodeID, Host: b.Host, Port: b.Port})
	}
	slices.SortFunc(info.Brokers, func(a, b mirror.Broker) int { return cmp.Compare(a.ID, b.ID) })
	return info, nil
}

// Topics looks topics up by name; no names: every topic that the user may describe. It never creates one.
func (s *Source) Topics(ctx context.Context, names ...string) ([]mirror.SourceTopic, error) {
	const operation = "metadata"
	ctx, end, err := s.begin(ctx, operation)
	if err != nil {
		return nil, err
	}
	defer end()
	if len(names) == 0 {
		names = nil
	}
	resp, err := s.metadata(ctx, operation, names, false)
	if err != nil {
		return nil, err
	}
	topics := make([]mirror.SourceTopic, 0, len(resp.Topics))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.ErrorCode == kerr.UnknownTopicOrPartition.Code || t.Topic == nil {
			continue
		}
		topic := mirror.SourceTopic{
			Topic: mirror.Topic{Name: *t.Topic, ID: t.TopicID, Partitions: int32(len(t.Partitions)), Internal: t.IsInternal},
			Err:   failed(operation, mirror.TopicPartition{Topic: *t.Topic}, t.ErrorCode),
		}
		for _, p := range t.Partitions {
			topic.Leaders = append(topic.Leaders, mirror.SourcePartition{
				Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
				Err: partitionFailed(operation, mirror.TopicPartition{Topic: *t.Topic, Partition: p.Partition}, p.ErrorCode),
			})
		}
		slices.SortFunc(topic.Leaders, func(a, b mirror.SourcePartition) int { return cmp.Compare(a.Partition, b.Partition) })
		topics = append(topics, topic)
	}
	slices.SortFunc(topics, func(a, b mirror.SourceTopic) int { return cmp.Compare(a.Name, b.Name) })
	return topics, nil
}

// partitionFailed is failed for a partition of a metadata answer, in which REPLICA_NOT_AVAILABLE says only that some follower is down.
func partitionFailed(operation string, tp mirror.TopicPartition, code int16) error {
	if code == kerr.ReplicaNotAvailable.Code {
		return nil
	}
	return failed(operation, tp, code)
}

// metadata sends one metadata request: nil names are all topics, no names are none. follow accepts another cluster than before.
func (s *Source) metadata(ctx context.Context, operation string, names []string, follow bool) (*kmsg.MetadataResponse, error) {
	if len(names) > 0 && !s.vetted.Load() {
		// Before version 4 a request that names a topic may create it. So names travel only once a broker proved to be newer (F-31).
		if _, err := s.metadata(ctx, operation, []string{}, follow); err != nil {
			return nil, err
		}
	}
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	if names != nil {
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(names))
		for _, name := range names {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, t)
		}
	}
	resp, err := s.askAny(ctx, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, s.failure(operation, mirror.TopicPartition{}, err)
	}
	if resp.Version < leastMetadata {
		return nil, tooOld(operation, "Metadata", resp.Version, leastMetadata)
	}
	if len(resp.Brokers) == 0 {
		return nil, &mirror.SourceError{Code: mirror.SourceUnreachable, Operation: operation, Err: errors.New("the broker answered that it knows no broker")}
	}
	s.vetted.Store(true)
	return resp, s.learn(operation, resp, follow)
}

// learn keeps what a metadata answer says of brokers and leaders, if it is our cluster's.
func (s *Source) learn(operation string, resp *kmsg.MetadataResponse, follow bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := clusterID(resp)
	if id != s.clusterID && s.clusterID != "" {
		if !follow {
			return clusterChanged(operation, s.clusterID, id)
		}
		clear(s.leaders)
	}
	s.clusterID = id
	clear(s.brokers)
	for _, b := range resp.Brokers {
		s.brokers[b.NodeID] = mirror.Broker{ID: b.NodeID, Host: b.Host, Port: b.Port}
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		for _, p := range t.Partitions {
			tp := mirror.TopicPartition{Topic: *t.Topic, Partition: p.Partition}
			if p.Leader < 0 || partitionFailed(operation, tp, p.ErrorCode) != nil {
				delete(s.leaders, tp)
			} else {
				s.leaders[tp] = leader{p.Leader, p.LeaderEpoch}
			}
		}
	}
	return nil
}

// learnBrokers keeps the addresses that came with a leader hint (KIP-951).
func (s *Source) learnBrokers(brokers []kmsg.FetchResponseBroker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range brokers {
		s.brokers[b.NodeID] = mirror.Broker{ID: b.NodeID, Host: b.Host, Port: b.Port}
	}
}

// forgetBroker drops an address that cannot be reached, so that the next look-up asks for it anew.
func (s *Source) forgetBroker(b mirror.Broker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.brokers[b.ID] == b {
		delete(s.brokers, b.ID)
	}
}

// forgetLeader drops who led a partition.
func (s *Source) forgetLeader(tp mirror.TopicPartition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leaders, tp)
}

func (s *Source) knownBroker(id int32) (b mirror.Broker, clusterID string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok = s.brokers[id]
	return b, s.clusterID, ok
}

func clusterID(resp *kmsg.MetadataResponse) string {
	if resp.ClusterID == nil {
		return ""
	}
	return *resp.ClusterID
}
