package kafkatest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// SegmentBytes is the content of a replica's .log files in order, as they lie on the broker's disk: whole record batches, control batches included.
// A broker that is running may be appending: wait for the end first (WaitSameSegments does).
func (c *Cluster) SegmentBytes(topic string, partition, broker int32) []byte {
	c.t.Helper()
	b, err := segmentBytes(filepath.Join(c.DataDir(broker), fmt.Sprintf("%s-%d", topic, partition)))
	if err != nil {
		c.t.Fatalf("kafkatest: segments of %s-%d on broker %d: %v", topic, partition, broker, err)
	}
	return b
}

func segmentBytes(dir string) ([]byte, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files) // names are base offsets with twenty digits
	var all []byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		all = append(all, b...)
	}
	return all, nil
}

// WaitSameSegments waits until the replicas on all the given brokers have the same bytes on disk, and at least one byte, and returns them.
func (c *Cluster) WaitSameSegments(topic string, partition int32, brokers ...int32) []byte {
	c.t.Helper()
	ctx, cancel := c.limit()
	defer cancel()
	var first []byte
	err := poll(ctx, fmt.Sprintf("equal segments of %s-%d on brokers %v", topic, partition, brokers), func(context.Context) (bool, error) {
		for i, b := range brokers {
			got, err := segmentBytes(filepath.Join(c.DataDir(b), fmt.Sprintf("%s-%d", topic, partition)))
			if err != nil {
				return false, err
			}
			if i == 0 {
				first = got
			}
			if len(got) == 0 || !bytes.Equal(got, first) {
				return false, fmt.Errorf("broker %d has %d bytes, broker %d has %d bytes", brokers[0], len(first), b, len(got))
			}
		}
		return true, nil
	})
	if err != nil {
		c.t.Fatalf("%v", err)
	}
	return first
}
