package kafkatest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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

// MetadataLogBytes is the content of a node's copy of the metadata log (__cluster_metadata-0/*.log) in order, as it lies on its disk: record batches, from the log's first
// segment that is still there. Checkpoints are not part of it. A node that is running may be appending: the last batch may be cut.
func (c *Cluster) MetadataLogBytes(broker int32) []byte {
	c.t.Helper()
	return c.SegmentBytes("__cluster_metadata", 0, broker)
}

// replicaFolder matches what Kafka puts behind the name of a replica's folder that is on its way out or in: UnifiedLog renames it to name.<unique id>-delete, -stray or -future.
var replicaFolder = regexp.MustCompile(`^(\.[0-9a-f]{32}-(delete|stray|future))?$`)

// LogDirs lists the names of the folders that a broker has for the partition, sorted: "t-0" for a replica, "t-0.<unique id>-delete", "-stray" or "-future" for one that is on its way
// out or in. It is empty where no copy exists. Topic names above 200 bytes are not found once such a suffix is there: Kafka shortens them.
func (c *Cluster) LogDirs(topic string, partition, broker int32) []string {
	c.t.Helper()
	names, err := logDirs(c.DataDir(broker), topic, partition)
	if err != nil {
		c.t.Fatalf("kafkatest: log folders of %s-%d on broker %d: %v", topic, partition, broker, err)
	}
	return names
}

func logDirs(data, topic string, partition int32) ([]string, error) {
	entries, err := os.ReadDir(data)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), fmt.Sprintf("%s-%d", topic, partition))
		if ok && e.IsDir() && replicaFolder.MatchString(suffix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
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
