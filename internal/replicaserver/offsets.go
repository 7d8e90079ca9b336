package replicaserver

import "github.com/twmb/franz-go/pkg/kmsg"

// Timestamps of ListOffsets that followers ask for (Kafka: ListOffsetsRequest).
const (
	latestTimestamp        = -1
	earliestTimestamp      = -2
	earliestLocalTimestamp = -4 // KIP-405; all of a log is local here
)

// listOffsets answers where logs begin and end. Only brokers are answered.
func (c *connection) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, 0, len(req.Topics))
	// A coordinator of share groups asks as a consumer would where the log ends, to say how far a group is behind (Kafka: NetworkPartitionMetadataClient). That is no record, and brokers may know it.
	coordinator := req.ReplicaID == consumerReplica && c.server.config.Allowed(c.principal) && onlyLatest(req)
	refused := !coordinator && c.refusesReplica(req.ReplicaID)
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = p.Partition
			if refused {
				rp.ErrorCode = codeTopicAuthorizationFailed
			} else {
				rp.ErrorCode, rp.Offset, rp.LeaderEpoch = c.server.offsetAt(t.Topic, p.Partition, p.CurrentLeaderEpoch, p.Timestamp, coordinator)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// consumerReplica is the replica id of a request that no follower sends.
const consumerReplica = -1

// onlyLatest says that nothing is asked but where logs end.
func onlyLatest(req *kmsg.ListOffsetsRequest) bool {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if p.Timestamp != latestTimestamp {
				return false
			}
		}
	}
	return true
}

// offsetAt is the answer for one partition. visible: to somebody who sees no more than the high watermark.
func (s *Server) offsetAt(topic string, partition, leaderEpoch int32, timestamp int64, visible bool) (code int16, offset int64, epoch int32) {
	if timestamp != latestTimestamp && timestamp != earliestTimestamp && timestamp != earliestLocalTimestamp {
		return codeInvalidRequest, -1, -1
	}
	p, code := s.topics.ByName(topic, partition)
	if p == nil {
		return orCode(code, codeUnknownTopicOrPartition), -1, -1
	}
	a := p.Offsets(leaderEpoch)
	switch {
	case a.Code != 0:
		return a.Code, -1, -1
	case visible:
		return 0, a.HighWatermark, -1
	case timestamp == latestTimestamp:
		return 0, a.End, a.EndEpoch
	}
	return 0, a.Start, a.StartEpoch
}

// offsetForEpoch answers where leader epochs end. Only brokers are answered.
func (c *connection) offsetForEpoch(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, 0, len(req.Topics))
	refused := c.refusesReplica(req.ReplicaID)
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition = p.Partition
			if refused {
				rp.ErrorCode = codeTopicAuthorizationFailed
			} else if part, code := c.server.topics.ByName(t.Topic, p.Partition); part == nil {
				rp.ErrorCode = orCode(code, codeUnknownTopicOrPartition)
			} else {
				rp.LeaderEpoch, rp.EndOffset, rp.ErrorCode = part.EndOffsetFor(p.CurrentLeaderEpoch, p.LeaderEpoch)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// orCode is the code, or the other one if there is none: a partition that is not there is never answered without an error.
func orCode(code, other int16) int16 {
	if code == 0 {
		return other
	}
	return code
}

// noCoordinator answers that a coordinator is not available here now. A broker that has to find one for the state of share groups asks any node that is alive (Kafka: PersisterStateManager), also this one;
// it asks another one then. A closed connection, or no such kind of request, would be an error for the group's members.
func noCoordinator(req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.Version = req.Version
	for _, key := range req.CoordinatorKeys {
		k := kmsg.NewFindCoordinatorResponseCoordinator()
		k.Key, k.NodeID, k.Port, k.ErrorCode = key, -1, -1, codeCoordinatorNotAvailable
		resp.Coordinators = append(resp.Coordinators, k)
	}
	return resp
}
