package kraft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// us is the process of these tests.
const us = 9999

// other is another mirror process.
const other = 9998

// fake is a cluster of stock brokers 1, 2 and 3 as far as this package's requests see it: metadata records, and what a controller makes of requests. Copies are empty. What real Kafka does is
// shown by the tests with real Kafka; this is for moments that those cannot hold still.
type fake struct {
	t *testing.T
	// before is asked before each request takes effect, after it when it has: an error is the answer.
	before, after func(ctx context.Context, req kmsg.Request) error
	instead       func(req kmsg.Request) kmsg.Response // answers without effect; nil: what a cluster answers
	keepsOut      bool                                 // leaders take nobody into the in-sync replicas

	mu     sync.Mutex
	log    []byte
	next   int64
	topics map[string]mirror.TopicID
	parts  map[mirror.TopicPartition]*clustermetadata.Partition
	sent   map[int16]int // requests by key
	// epochOf is the broker epoch of the next broker that registers, 0 for 7.
	epochOf int64
	stale   bool // broker epochs are old
}

// startFake makes a fake cluster and a Destination that takes itself for joined to it.
func startFake(t *testing.T, change ...func(*Config)) (*fake, *Destination) {
	t.Helper()
	f := newFake(t)
	return f, f.process(change...)
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, topics: map[string]mirror.TopicID{}, parts: map[mirror.TopicPartition]*clustermetadata.Partition{}, sent: map[int16]int{}}
	for id := int32(1); id <= 3; id++ {
		f.broker(id)
	}
	f.broker(us)
	f.broker(other)
	return f
}

// process is another process of the cluster, or the same one again.
func (f *fake) process(change ...func(*Config)) *Destination {
	f.t.Helper()
	cfg := Config{NodeID: us, Controllers: []string{"127.0.0.1:1"}, Listen: "unused", Folder: "unused", Remember: keyedlog.NewMemory(), RequestTimeout: 2 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	cfg.Peers = without([]int32{us, other}, cfg.NodeID)
	cfg.intercept = f.answer
	cfg, err := cfg.withDefaults()
	if err != nil {
		f.t.Fatal(err)
	}
	d := newDestination(cfg)
	if err := d.connect(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { d.Close() })
	// Twice: with the second record what follows from everything before it is done too, as a process that has not registered does it.
	for range 2 {
		if err := d.meta.caughtUp(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
		f.set("no topic", minInSync, "")
	}
	d.membership.mu.Lock()
	d.membership.listener = "INTERNAL"
	d.membership.epoch, d.membership.alive, d.membership.wanted = 7, time.Now(), true
	d.membership.mu.Unlock()
	return d
}

// record appends one record of the metadata. Under mu, or before anybody asks.
func (f *fake) record(kind, version uint32, body []byte) {
	value := append(kbin.AppendUvarint(kbin.AppendUvarint(kbin.AppendUvarint(nil, 1), kind), version), body...)
	f.log = batch.AppendData(f.log, batch.DataSpec{BaseOffset: f.next, LeaderEpoch: 1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: []batch.Record{{Value: value}}})
	f.next++
}

func (f *fake) broker(id int32) {
	b := kbin.AppendInt8(kbin.AppendInt32(nil, id), 0)
	b = append(b, make([]byte, 16)...)
	b = kbin.AppendInt64(b, cmp.Or(f.epochOf, 7))
	b = kbin.AppendCompactString(kbin.AppendCompactArrayLen(b, 1), "INTERNAL")
	b = kbin.AppendCompactString(b, "127.0.0.1")
	b = append(kbin.AppendInt16(kbin.AppendInt16(b, int16(id)), 0), 0)
	b = append(kbin.AppendCompactArrayLen(b, 0), 0, 0, 0, 0) // no features, no rack, not fenced, not shutting down, no tags
	f.record(0, 4, b)
}

func (f *fake) setting(topic, key string, value *string) {
	b := kbin.AppendCompactString(kbin.AppendCompactString(kbin.AppendInt8(nil, int8(clustermetadata.TopicResource)), topic), key)
	f.record(4, 0, append(kbin.AppendCompactNullableString(b, value), 0))
}

func nodes(b []byte, ids []int32) []byte {
	b = kbin.AppendCompactArrayLen(b, len(ids))
	for _, id := range ids {
		b = kbin.AppendInt32(b, id)
	}
	return b
}

// show writes a partition as it is now.
func (f *fake) show(p *clustermetadata.Partition) {
	b := append(kbin.AppendInt32(nil, p.Partition), p.TopicID[:]...)
	for _, ids := range [][]int32{p.Replicas, p.ISR, p.Removing, p.Adding} {
		b = nodes(b, ids)
	}
	b = kbin.AppendInt32(kbin.AppendInt32(kbin.AppendInt32(b, p.Leader), p.LeaderEpoch), p.PartitionEpoch)
	b = kbin.AppendCompactArrayLen(b, 0)
	b = append(b, 2) // tagged fields
	for tag, ids := range [][]int32{1: p.ELR, 2: p.LastKnownELR} {
		if tag > 0 {
			value := nodes(nil, ids)
			b = append(kbin.AppendUvarint(append(b, byte(tag)), uint32(len(value))), value...)
		}
	}
	f.record(3, 2, b)
}

// topic makes a topic of these partitions, each by its replicas, which are in sync; the first leads.
func (f *fake) topic(name string, replicas ...[]int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.create(name, replicas)
}

func (f *fake) create(name string, replicas [][]int32) {
	id, ok := f.topics[name]
	if !ok {
		id = mirror.TopicID{15: byte(len(f.topics) + 1)}
		f.topics[name] = id
		f.record(2, 0, append(append(kbin.AppendCompactString(nil, name), id[:]...), 0))
	}
	for _, r := range replicas {
		n := int32(0)
		for f.parts[mirror.TopicPartition{Topic: name, Partition: n}] != nil {
			n++
		}
		p := &clustermetadata.Partition{TopicID: id, Topic: name, Partition: n, Replicas: slices.Clone(r), ISR: slices.Clone(r), Leader: r[0]}
		f.parts[mirror.TopicPartition{Topic: name, Partition: n}] = p
		f.show(p)
	}
}

// change changes a partition as somebody else might.
func (f *fake) change(topic string, how func(*clustermetadata.Partition)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alter(f.parts[mirror.TopicPartition{Topic: topic}], how)
}

func (f *fake) alter(p *clustermetadata.Partition, how func(*clustermetadata.Partition)) {
	leader := p.Leader
	how(p)
	if p.PartitionEpoch++; p.Leader != leader {
		p.LeaderEpoch++
	}
	f.show(p)
}

// set changes a topic's setting as somebody else might; "" takes it back.
func (f *fake) set(topic, key, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if value == "" {
		f.setting(topic, key, nil)
		return
	}
	f.setting(topic, key, &value)
}

// of is a topic's first partition.
func (f *fake) of(topic string) clustermetadata.Partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.parts[mirror.TopicPartition{Topic: topic}]
}

// hook changes before, after, instead and keepsOut.
func (f *fake) hook(how func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how()
}

// count is how many requests of a kind took effect.
func (f *fake) count(key kmsg.Key) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[key.Int16()]
}

func (f *fake) answer(ctx context.Context, req kmsg.Request, _ func() (kmsg.Response, error)) (kmsg.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fetch, following := req.(*kmsg.FetchRequest)
	if following = following && fetch.ReplicaID == -1 && len(fetch.Topics) == 1 && fetch.Topics[0].Topic == metadataTopic; following {
		return f.metadata(ctx, fetch), nil
	}
	f.mu.Lock()
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, req); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	f.sent[req.Key()]++
	var resp kmsg.Response
	if f.instead != nil {
		resp = f.instead(req)
	}
	if resp == nil {
		resp = f.effect(req)
	}
	f.mu.Unlock()
	if after != nil {
		if err := after(ctx, req); err != nil {
			return nil, err
		}
	}
	if resp == nil {
		return nil, fmt.Errorf("the fake cluster does not answer %s", kmsg.NameForKey(req.Key()))
	}
	return resp, nil
}

func (f *fake) metadata(ctx context.Context, req *kmsg.FetchRequest) kmsg.Response {
	from, deadline := req.Topics[0].Partitions[0].FetchOffset, time.Now().Add(time.Duration(req.MaxWaitMillis)*time.Millisecond)
	for {
		f.mu.Lock()
		log, next := f.log, f.next
		f.mu.Unlock()
		if from < next || !time.Now().Before(deadline) || pause(ctx, 1) != nil {
			resp := kmsg.NewPtrFetchResponse()
			t := kmsg.NewFetchResponseTopic()
			p := kmsg.NewFetchResponseTopicPartition()
			p.HighWatermark, p.SnapshotID.EndOffset, p.DivergingEpoch.EndOffset = next, -1, -1
			at := 0
			for h := range batch.All(log) {
				if h.BaseOffset < from {
					at += h.Size()
				}
			}
			p.RecordBatches = slices.Clone(log[at:])
			t.Partitions = append(t.Partitions, p)
			resp.Topics = append(resp.Topics, t)
			return resp
		}
	}
}

// effect is what a controller or a broker makes of a request. Under mu.
func (f *fake) effect(req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		var replicas [][]int32
		for _, a := range req.Topics[0].ReplicaAssignment {
			replicas = append(replicas, a.Replicas)
		}
		for _, c := range req.Topics[0].Configs {
			f.setting(req.Topics[0].Topic, c.Name, c.Value)
		}
		f.create(req.Topics[0].Topic, replicas)
		return kmsg.NewPtrCreateTopicsResponse()
	case *kmsg.CreatePartitionsRequest:
		var replicas [][]int32
		for _, a := range req.Topics[0].Assignment {
			replicas = append(replicas, a.Replicas)
		}
		f.create(req.Topics[0].Topic, replicas)
		return kmsg.NewPtrCreatePartitionsResponse()
	case *kmsg.IncrementalAlterConfigsRequest:
		if req.ValidateOnly {
			return kmsg.NewPtrIncrementalAlterConfigsResponse()
		}
		for _, r := range req.Resources {
			for _, c := range r.Configs {
				f.setting(r.ResourceName, c.Name, c.Value)
			}
		}
		return kmsg.NewPtrIncrementalAlterConfigsResponse()
	case *kmsg.AlterPartitionAssignmentsRequest:
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				f.alter(f.parts[mirror.TopicPartition{Topic: t.Topic, Partition: p.Partition}], func(now *clustermetadata.Partition) {
					base := slices.DeleteFunc(slices.Clone(now.Replicas), func(id int32) bool { return slices.Contains(now.Adding, id) })
					now.Replicas, now.Adding, now.Removing = base, nil, nil
					if p.Replicas == nil {
						return
					}
					now.Replicas = slices.Clone(p.Replicas)
					for _, id := range base {
						if !slices.Contains(p.Replicas, id) {
							now.Replicas, now.Removing = append(now.Replicas, id), append(now.Removing, id)
						}
					}
					now.Adding = slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool { return slices.Contains(base, id) })
					f.complete(now)
				})
			}
		}
		return kmsg.NewPtrAlterPartitionAssignmentsResponse()
	case *kmsg.AlterPartitionRequest:
		resp := kmsg.NewPtrAlterPartitionResponse()
		if f.stale {
			resp.ErrorCode = kerr.StaleBrokerEpoch.Code
			return resp
		}
		for _, t := range req.Topics {
			at := kmsg.NewAlterPartitionResponseTopic()
			at.TopidID = t.TopicID
			for _, p := range t.Partitions {
				ap := kmsg.NewAlterPartitionResponseTopicPartition()
				ap.Partition, ap.ErrorCode = p.Partition, kerr.InvalidUpdateVersion.Code
				for _, now := range f.parts {
					if now.TopicID == t.TopicID && now.Partition == p.Partition && now.PartitionEpoch == p.PartitionEpoch {
						ap.ErrorCode = 0
						f.alter(now, func(now *clustermetadata.Partition) {
							now.ISR = nil
							for _, m := range p.NewEpochISR {
								now.ISR = append(now.ISR, m.BrokerID)
							}
							f.complete(now)
						})
					}
				}
				at.Partitions = append(at.Partitions, ap)
			}
			resp.Topics = append(resp.Topics, at)
		}
		return resp
	case *kmsg.ElectLeadersRequest:
		for _, t := range req.Topics {
			for _, n := range t.Partitions {
				f.alter(f.parts[mirror.TopicPartition{Topic: t.Topic, Partition: n}], func(now *clustermetadata.Partition) {
					if slices.Contains(now.ISR, now.Replicas[0]) {
						now.Leader = now.Replicas[0]
					}
				})
			}
		}
		return kmsg.NewPtrElectLeadersResponse()
	case *kmsg.FetchRequest: // of a replica at the log end, which is taken in; or of a reader, who finds nothing
		resp := kmsg.NewPtrFetchResponse()
		for _, t := range req.Topics {
			at := kmsg.NewFetchResponseTopic()
			at.TopicID, at.Topic = t.TopicID, t.Topic
			for _, p := range t.Partitions {
				ap := kmsg.NewFetchResponseTopicPartition()
				ap.Partition, ap.LastStableOffset = p.Partition, 0
				at.Partitions = append(at.Partitions, ap)
				for _, now := range f.parts {
					if id := req.ReplicaState.ID; now.TopicID == t.TopicID && now.Partition == p.Partition && id >= 0 && !f.keepsOut && !slices.Contains(now.ISR, id) {
						f.alter(now, func(now *clustermetadata.Partition) {
							now.ISR = append(slices.Clone(now.ISR), id)
							f.complete(now)
						})
					}
				}
			}
			resp.Topics = append(resp.Topics, at)
		}
		return resp
	case *kmsg.ListOffsetsRequest:
		resp := kmsg.NewPtrListOffsetsResponse()
		for _, t := range req.Topics {
			at := kmsg.NewListOffsetsResponseTopic()
			at.Topic = t.Topic
			for _, p := range t.Partitions {
				ap := kmsg.NewListOffsetsResponseTopicPartition()
				ap.Partition, ap.Offset = p.Partition, 0
				at.Partitions = append(at.Partitions, ap)
			}
			resp.Topics = append(resp.Topics, at)
		}
		return resp
	case *kmsg.MetadataRequest:
		return kmsg.NewPtrMetadataResponse()
	case *kmsg.UnregisterBrokerRequest:
		return kmsg.NewPtrUnregisterBrokerResponse()
	case *kmsg.BrokerHeartbeatRequest:
		resp := kmsg.NewPtrBrokerHeartbeatResponse()
		resp.IsFenced = req.WantFence
		return resp
	}
	return nil
}

// complete ends a reassignment whose target is in sync.
func (f *fake) complete(p *clustermetadata.Partition) {
	want := target(*p)
	if len(p.Adding)+len(p.Removing) == 0 || beyond(want, p.ISR) > 0 {
		return
	}
	p.Replicas, p.Adding, p.Removing = want, nil, nil
	p.ISR = slices.DeleteFunc(slices.Clone(p.ISR), func(id int32) bool { return !slices.Contains(want, id) })
	if !slices.Contains(want, p.Leader) {
		p.Leader = want[0]
	}
}

var errLost = errors.New("dropped by the test")

func within(t *testing.T, d time.Duration) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx
}
