package clientlistener

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Kafka's error codes.
const (
	codeOffsetOutOfRange       = 1
	codeLeaderNotAvailable     = 5
	codeNotLeaderOrFollower    = 6
	codeReplicaNotAvailable    = 9
	codeUnsupportedVersion     = 35
	codePolicyViolation        = 44
	codeStorageError           = 56
	codeFetchSessionIDNotFound = 70
	codeFencedLeaderEpoch      = 74
	codeUnknownLeaderEpoch     = 75
	codeOffsetNotAvailable     = 78
)

// readOnly is what producers are told.
const readOnly = "this partition is a mirror of another cluster's, and read-only here until its mirror is stopped"

// answer is the frame for the client, out of the body of the broker's answer, and how long it is held.
func (c *connection) answer(p pending, body []byte) (frame []byte, hold time.Duration, err error) {
	version := p.version
	if p.key == keyApiVersions && len(body) >= 2 && binary.BigEndian.Uint16(body) == codeUnsupportedVersion {
		version = 0 // KIP-511
	}
	resp := p.kind.request(version).ResponseKind()
	resp.SetVersion(version)
	body, ok := answerBody(p.key, resp.IsFlexible(), body)
	if !ok {
		return nil, 0, errCutOff
	}
	if err := decode(resp, body); err != nil {
		return nil, 0, err
	}
	c.topics = c.server.config.Topics()
	defer func() { c.topics = nil }()
	switch resp := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		versions(resp)
	case *kmsg.ProduceResponse:
		c.produced(resp)
	case *kmsg.FetchResponse:
		err = c.understand(p, func(req kmsg.Request) { hold = c.fetched(req.(*kmsg.FetchRequest), resp) })
	case *kmsg.ListOffsetsResponse:
		var ask []lookUp
		if err = c.understand(p, func(req kmsg.Request) { ask = c.listed(req.(*kmsg.ListOffsetsRequest), resp) }); err == nil {
			c.lookUp(ask)
		}
	case *kmsg.OffsetForLeaderEpochResponse:
		err = c.understand(p, func(req kmsg.Request) { c.ended(req.(*kmsg.OffsetForLeaderEpochRequest), resp) })
	case *kmsg.DeleteRecordsResponse:
		c.deleted(resp)
	case *kmsg.DescribeLogDirsResponse:
		resp.Dirs = nil // this process has no folders; the broker's are its own
	default:
		err = fmt.Errorf("%T is not answered", resp)
	}
	if err != nil {
		return nil, 0, err
	}
	return encodeAnswer(p.key, p.correlation, resp), hold, nil
}

// find finds a partition that is led here, by the name or id that a version has.
func (c *connection) find(topic string, id [16]byte, partition int32) (Partition, bool) {
	if topic != "" {
		return c.topics.ByName(topic, partition)
	}
	return c.topics.ByID(statemachine.TopicID(id), partition)
}

// produced replaces what the broker says of partitions that it does not lead and we do. It has looked at the client's rights by then. NOT_LEADER_OR_FOLLOWER would have producers try
// again until delivery.timeout.ms; POLICY_VIOLATION ends a send at once.
func (c *connection) produced(resp *kmsg.ProduceResponse) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if p.ErrorCode != codeNotLeaderOrFollower {
				continue
			}
			if _, ours := c.find(t.Topic, t.TopicID, p.Partition); !ours {
				continue
			}
			was := *p
			*p = kmsg.NewProduceResponseTopicPartition()
			message := readOnly
			p.Partition, p.ErrorCode, p.ErrorMessage, p.BaseOffset, p.LogStartOffset = was.Partition, codePolicyViolation, &message, -1, -1
		}
	}
}

// deleted is the same for DeleteRecords.
func (c *connection) deleted(resp *kmsg.DeleteRecordsResponse) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if _, ours := c.find(t.Topic, [16]byte{}, p.Partition); ours && p.ErrorCode == codeNotLeaderOrFollower {
				p.ErrorCode, p.LowWatermark = codePolicyViolation, -1
			}
		}
	}
}

// sentTo is a partition as a Fetch names it.
type sentTo struct {
	topic     string
	id        [16]byte
	partition int32
}

// probe asks the broker what a Fetch asks, so that it looks at the client's rights, but for an offset that no broker has: followers answer consumers from version 11 on (KIP-392), and no
// record is to pass through here. It has no session, and does not wait.
func probe(req *kmsg.FetchRequest) *kmsg.FetchRequest {
	q := *req
	q.ReplicaID, q.ReplicaState = -1, kmsg.NewFetchRequestReplicaState()
	q.ClusterID = nil
	q.MaxWaitMillis, q.MinBytes, q.MaxBytes = 0, 0, 1
	q.SessionID, q.SessionEpoch, q.ForgottenTopics = 0, -1, nil
	q.Topics = nil
	if inSession(req) {
		return &q
	}
	q.Topics = make([]kmsg.FetchRequestTopic, len(req.Topics))
	for i, t := range req.Topics {
		q.Topics[i] = t
		q.Topics[i].Partitions = make([]kmsg.FetchRequestTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			one := kmsg.NewFetchRequestTopicPartition()
			one.Partition, one.CurrentLeaderEpoch, one.FetchOffset, one.PartitionMaxBytes = p.Partition, p.CurrentLeaderEpoch, farOffset, 1
			q.Topics[i].Partitions[j] = one
		}
	}
	return &q
}

// inSession says that a Fetch goes on with a session: there are none here.
func inSession(req *kmsg.FetchRequest) bool { return req.SessionID != 0 || req.SessionEpoch > 0 }

// readable says of a broker's answer to a probe that the client may read the partition: what it found out after it had looked at the rights. Everything else is passed on.
func readable(code int16) bool {
	switch code {
	case 0, codeOffsetOutOfRange, codeNotLeaderOrFollower, codeReplicaNotAvailable, codeStorageError, codeFencedLeaderEpoch, codeUnknownLeaderEpoch, codeOffsetNotAvailable:
		return true
	}
	return false
}

// fetched makes the answer to a Fetch out of the answer to its probe, and says how long it is to be held.
func (c *connection) fetched(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) (hold time.Duration) {
	resp.SessionID = 0
	if resp.ErrorCode != 0 {
		return 0
	}
	if inSession(req) {
		resp.ErrorCode, resp.Topics = codeFetchSessionIDNotFound, nil
		return 0
	}
	asked := map[sentTo]*kmsg.FetchRequestTopicPartition{}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			asked[sentTo{t.Topic, t.TopicID, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	var set uint64 // of what the client may read, in any order
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			was := t.Partitions[j]
			p := &t.Partitions[j]
			*p = kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode, p.HighWatermark, p.RecordBatches = was.Partition, was.ErrorCode, -1, []byte{}
			at := sentTo{t.Topic, t.TopicID, p.Partition}
			q := asked[at]
			if !readable(was.ErrorCode) || q == nil {
				continue
			}
			set += maphash.Comparable(setSeed, askedAt{at, q.FetchOffset})
			ours, ok := c.find(t.Topic, t.TopicID, p.Partition)
			switch {
			case !ok:
				p.ErrorCode, p.CurrentLeader = codeNotLeaderOrFollower, was.CurrentLeader
				continue
			case req.Version < p11:
				p.ErrorCode = codeUnsupportedVersion
				continue
			}
			a := ours.Read(ReadQuestion{LeaderEpoch: q.CurrentLeaderEpoch, Offset: q.FetchOffset, Rack: req.Rack, Spread: c.spread + uint64(p.Partition)})
			p.ErrorCode, p.HighWatermark, p.LogStartOffset = a.Code, a.HighWatermark, a.LogStart
			if a.Code != 0 {
				continue
			}
			p.PreferredReadReplica = a.Replica
			if f := c.server.config.Observer.Redirected; f != nil {
				f(a.Replica)
			}
		}
	}
	if set != 0 && set == c.lastSet && time.Since(c.answeredAt) < againWithin {
		hold = time.Duration(req.MaxWaitMillis) * time.Millisecond
	}
	c.lastSet = set
	return hold
}

// askedAt is a partition, and the offset that is asked for: one that a consumer reads from elsewhere, or resets, is asked for at another one.
type askedAt struct {
	sentTo
	offset int64
}

var setSeed = maphash.MakeSeed()

// p11 is the first version of Fetch whose answer can name another replica (KIP-392).
const p11 = 11

// againWithin: a consumer that asks for the same so soon does not go where it was sent, or was sent nowhere.
const againWithin = time.Second

// hold waits as a Fetch waits that finds nothing: a consumer that asks without end costs no more than one that waits.
func (c *connection) hold(wait time.Duration) {
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(min(wait, c.server.config.MaxHold))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}
