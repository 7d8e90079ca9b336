package replicaserver

import "github.com/twmb/franz-go/pkg/kmsg"

// noMarkers answers a transaction coordinator that wants a marker written. A producer that names a mirrored partition in a transaction (AddPartitionsToTxn goes to the coordinator, which lets it) can write nothing there, so
// there is nothing to mark. As long as the leader does not answer so, or answers that it is not the leader, the coordinator asks again, and the producer's next transaction waits: until the topic is stopped.
// UNSUPPORTED_FOR_MESSAGE_FORMAT tells it that the partition took no part (Kafka: TransactionMarkerRequestCompletionHandler). What a log's own transactions are is the source's to say, and the stop's.
func (c *connection) noMarkers(req *kmsg.WriteTxnMarkersRequest) kmsg.Response {
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	resp.Version = req.Version
	allowed := c.server.config.Allowed(c.principal)
	for _, m := range req.Markers {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				rp.Partition, rp.ErrorCode = p, c.server.noMarker(t.Topic, p)
				if !allowed {
					rp.ErrorCode = codeClusterAuthorizationFailed
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			rm.Topics = append(rm.Topics, rt)
		}
		resp.Markers = append(resp.Markers, rm)
	}
	return resp
}

// noMarker is the code for one partition. While it is not known whether it is led here the coordinator is to ask again.
func (s *Server) noMarker(topic string, partition int32) int16 {
	p, code := s.topics.ByName(topic, partition)
	if p == nil {
		return orCode(code, codeUnknownTopicOrPartition)
	}
	if code := p.Offsets(-1).Code; code != 0 {
		return code
	}
	return codeUnsupportedForFormat
}
