package lives

import (
	"fmt"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// Same compares a partition of the mirror, on the disk of every broker of the destination, with the files on the disk of the source's leader, and with what a raw fetch of a consumer
// brings from there. end is where all must end. It returns the copy's bytes.
func (r *Running) Same(topic string, partition int32, end int64) []byte {
	r.t.Helper()
	r.InStep(topic, partition, end)
	return SameLogs(r.t, r.To.Cluster, r.From, topic, partition, end)
}

// SameLogs compares a partition on the disks of all brokers of one cluster with that of the leader in another one. Batches below the source's log start may still lie on a disk.
func SameLogs(t testing.TB, to, from *kafkatest.Cluster, topic string, partition int32, end int64) []byte {
	t.Helper()
	start := OffsetOf(t, from, Earliest, topic, partition)
	disk, err := Since(from.SegmentBytes(topic, partition, from.LeaderOf(topic, partition)), start)
	if err != nil {
		t.Fatalf("segments of %s-%d at the source: %v", topic, partition, err)
	}
	var copied []byte
	for _, id := range to.Brokers() {
		Eventually(t, fmt.Sprintf("%s-%d on broker %d is that of the source", topic, partition, id), func() (bool, string) {
			if copied, err = Since(to.SegmentBytes(topic, partition, id), start); err != nil {
				return false, err.Error()
			}
			d := Difference(copied, disk)
			return d == "", d
		})
	}
	if len(copied) == 0 {
		t.Fatalf("the copy of %s-%d holds nothing", topic, partition)
	}
	if d := Difference(copied, Fetch(t, from, topic, partition, start, end)); d != "" {
		t.Fatalf("%s-%d and a fetch from the source: %s", topic, partition, d)
	}
	return copied
}
