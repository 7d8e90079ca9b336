package realkafka_test

import (
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
)

// same compares the copy of a partition with the leader's files on disk, and with what a consumer's raw fetch brings.
// end is where both must end. It returns the copy's bytes.
func (r *running) same(topic string, partition int32, end int64) []byte {
	r.t.Helper()
	r.inStep(topic, partition, end)
	copied, err := r.dst.RawLog(topic, partition)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(copied) == 0 {
		r.t.Fatalf("the copy of %s-%d holds nothing", topic, partition)
	}
	leader := r.c.LeaderOf(topic, partition)
	start := lives.OffsetOf(r.t, r.c, lives.Earliest, topic, partition)
	disk, err := lives.Since(r.c.SegmentBytes(topic, partition, leader), start)
	if err != nil {
		r.t.Fatalf("segments of %s-%d on broker %d: %v", topic, partition, leader, err)
	}
	if d := lives.Difference(copied, disk); d != "" {
		r.t.Fatalf("%s-%d and the files of broker %d: %s", topic, partition, leader, d)
	}
	fetched := lives.Fetch(r.t, r.c, topic, partition, start, end)
	if d := lives.Difference(copied, fetched); d != "" {
		r.t.Fatalf("%s-%d and a fetch from broker %d: %s", topic, partition, leader, d)
	}
	if p := lives.One(r.Status(), topic, partition); p.Start != start {
		r.t.Fatalf("the copy of %s-%d starts at %d, the source at %d", topic, partition, p.Start, start)
	}
	return copied
}

// sameFrom waits for the copy's log start too.
func (r *running) sameFrom(topic string, end, start int64) []byte {
	r.t.Helper()
	r.until("the log start is followed", topic, 0, func(p mirror.PartitionStatus) bool { return p.Start == start })
	return r.same(topic, 0, end)
}
