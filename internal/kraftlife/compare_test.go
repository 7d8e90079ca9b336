package kraftlife_test

import (
	"fmt"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// same compares a partition of the mirror, on the disk of every broker of the destination, with the files on the disk of the source's leader, and with what a raw fetch of a consumer
// brings from there. end is where all must end. It returns the copy's bytes.
func (r *running) same(topic string, partition int32, end int64) []byte {
	r.t.Helper()
	r.inStep(topic, partition, end)
	return sameLogs(r.t, r.to.c, r.from, topic, partition, end)
}

// sameLogs compares a partition on the disks of all brokers of one cluster with that of the leader in another one. Batches below the source's log start may still lie on a disk.
func sameLogs(t *testing.T, to, from *kafkatest.Cluster, topic string, partition int32, end int64) []byte {
	t.Helper()
	start := lives.OffsetOf(t, from, lives.Earliest, topic, partition)
	disk, err := lives.Since(from.SegmentBytes(topic, partition, from.LeaderOf(topic, partition)), start)
	if err != nil {
		t.Fatalf("segments of %s-%d at the source: %v", topic, partition, err)
	}
	var copied []byte
	for _, id := range to.Brokers() {
		lives.Eventually(t, fmt.Sprintf("%s-%d on broker %d is that of the source", topic, partition, id), func() (bool, string) {
			if copied, err = lives.Since(to.SegmentBytes(topic, partition, id), start); err != nil {
				return false, err.Error()
			}
			d := lives.Difference(copied, disk)
			return d == "", d
		})
	}
	if len(copied) == 0 {
		t.Fatalf("the copy of %s-%d holds nothing", topic, partition)
	}
	if d := lives.Difference(copied, lives.Fetch(t, from, topic, partition, start, end)); d != "" {
		t.Fatalf("%s-%d and a fetch from the source: %s", topic, partition, d)
	}
	return copied
}
