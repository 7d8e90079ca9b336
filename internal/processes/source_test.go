package processes_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
)

// source is a Kafka-protocol cluster in this process, which children reach over loopback.
type source struct {
	t      *testing.T
	fake   *kfake.Cluster
	client *kgo.Client
	denied atomic.Bool  // fetches are answered with TOPIC_AUTHORIZATION_FAILED
	served atomic.Int64 // fetches that were answered
	from   atomic.Int64 // offset of partition 0 that the next fetch asks for, noted once after it was set to -1
}

func startSource(t *testing.T, id string, topics ...string) *source {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(id), kfake.SeedTopics(1, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	s := &source{t: t, fake: fake}
	if s.client, err = kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.Close)
	fake.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		r := request.(*kmsg.FetchRequest)
		s.served.Add(1)
		for _, topic := range r.Topics {
			for _, p := range topic.Partitions {
				s.from.CompareAndSwap(-1, p.FetchOffset)
			}
		}
		if !s.denied.Load() {
			return nil, nil, false
		}
		reply := r.ResponseKind().(*kmsg.FetchResponse)
		for _, topic := range r.Topics {
			at := kmsg.NewFetchResponseTopic()
			at.Topic, at.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				no := kmsg.NewFetchResponseTopicPartition()
				no.Partition, no.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
				at.Partitions = append(at.Partitions, no)
			}
			reply.Topics = append(reply.Topics, at)
		}
		return reply, nil, true
	})
	return s
}

func (s *source) seeds() []string { return s.fake.ListenAddrs() }

// produce writes n records to partition 0 of a topic, a batch each.
func (s *source) produce(topic string, n int) {
	s.t.Helper()
	for i := range n {
		r := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%s %d", topic, i)}
		if err := s.client.ProduceSync(s.t.Context(), r).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// everything fetches all that partition 0 of a topic holds, raw.
func (s *source) everything(topic string) []byte {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), bound)
	defer stop()
	src, err := kafkasource.New(kafkasource.Config{Seeds: s.seeds()})
	if err != nil {
		s.t.Fatal(err)
	}
	defer src.Close()
	topics, err := src.Topics(ctx, topic)
	if err != nil || len(topics) != 1 {
		s.t.Fatalf("looking up %s: %v, %v", topic, topics, err)
	}
	tp := mirror.TopicPartition{Topic: topic}
	offsets, err := src.Offsets(ctx, []mirror.TopicPartition{tp})
	if err != nil {
		s.t.Fatal(err)
	}
	p := topics[0].Leaders[0]
	f, err := src.OpenFetcher(ctx, p.Leader, mirror.FetchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	var all []byte
	for next := int64(0); next < offsets[tp].HighWatermark; {
		f.Want(mirror.FetchPosition{TopicPartition: tp, TopicID: topics[0].ID, Offset: next, LeaderEpoch: p.LeaderEpoch, LastEpoch: mirror.Unknown})
		reply, err := f.Fetch(ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range reply {
			if r.Err != nil {
				s.t.Fatal(r.Err)
			}
			for info, raw := range mirror.Batches(r.Records) {
				all, next = append(all, raw...), info.Next()
			}
		}
	}
	return all
}

// id is a topic's id.
func (s *source) id(topic string) mirror.TopicID {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), bound)
	defer stop()
	req := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &topic
	req.Topics = append(req.Topics, asked)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil || len(resp.Topics) != 1 {
		s.t.Fatalf("looking up %s: %v", topic, err)
	}
	return resp.Topics[0].TopicID
}
