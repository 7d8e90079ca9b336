package main

import (
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// produceRaw sends one ready-made batch again and again, several to a request, round robin over the partitions, and returns the bytes stored.
func produceRaw(t *program, c *kafkatest.Cluster, topic string, partitions int32, one []byte, bytes int64) int64 {
	cl := c.Client(kgo.MaxVersions(kversion.V3_0_0())) // produce by topic name
	var sent int64
	for sent < bytes {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = 1, int32((30 * time.Second).Milliseconds())
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = topic
		for p := range partitions {
			rp := kmsg.NewProduceRequestTopicPartition()
			rp.Partition, rp.Records = p, one
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		res, err := cl.Broker(1).Request(t.ctx, req)
		if err != nil {
			t.Fatalf("produce: %v", err)
		}
		for _, rt := range res.(*kmsg.ProduceResponse).Topics {
			for _, rp := range rt.Partitions {
				err := kerr.ErrorForCode(rp.ErrorCode)
				if err != nil && !kerr.IsRetriable(err) { // a new topic may not be led yet
					t.Fatalf("produce: %v", err)
				}
				if err == nil {
					sent += int64(len(one))
				}
			}
		}
	}
	return sent
}

// setCodec and setTimestamps change a batch whose fields they are, at the places that the format gives them (v2: attributes at 21, base and max timestamp at 27), and seal it.
func setCodec(b []byte, codec int8) {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12)) // the length: of what comes after it
	binary.BigEndian.PutUint16(b[21:], binary.BigEndian.Uint16(b[21:])&^7|uint16(codec))
	batch.Seal(b)
}

func setTimestamps(b []byte, at int64) {
	binary.BigEndian.PutUint64(b[27:], uint64(at))
	binary.BigEndian.PutUint64(b[35:], uint64(at))
	batch.Seal(b)
}
