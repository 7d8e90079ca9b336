package main

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

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
