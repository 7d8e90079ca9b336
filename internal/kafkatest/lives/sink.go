package lives

import (
	"context"
	"sync"

	"github.com/clustermirror/clustermirror/mirror"
)

// DroppedSink is a Sink that keeps what it is handed, by partition.
type DroppedSink struct {
	mu      sync.Mutex
	ranges  map[mirror.TopicPartition][2]int64
	batches map[mirror.TopicPartition][]byte
}

// Dropped keeps a range.
func (d *DroppedSink) Dropped(_ context.Context, tp mirror.TopicPartition, from, to int64, batches []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ranges == nil {
		d.ranges, d.batches = map[mirror.TopicPartition][2]int64{}, map[mirror.TopicPartition][]byte{}
	}
	d.ranges[tp] = [2]int64{from, to}
	d.batches[tp] = append(d.batches[tp], batches...)
	return nil
}

// Of is what was dropped of a partition.
func (d *DroppedSink) Of(topic string, partition int32) (from, to int64, batches []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tp := mirror.TopicPartition{Topic: topic, Partition: partition}
	return d.ranges[tp][0], d.ranges[tp][1], d.batches[tp]
}
