package lives

import (
	"bytes"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// putAt is the time of the newest batch of Put. Segments roll by the times of records (segment.ms), so batches that must not share one are a second apart, however fast
// they are written. A client gives records up by their times, so they are not old.
var putAt time.Time

// Put writes one batch of records with these keys.
func Put(t kafkatest.T, cl *kgo.Client, topic string, keys ...string) {
	t.Helper()
	putAt = putAt.Add(time.Second)
	if early := time.Now().Add(-20 * time.Second); putAt.Before(early) {
		putAt = early
	}
	var records []*kgo.Record
	for _, k := range keys {
		records = append(records, &kgo.Record{Topic: topic, Key: []byte(k), Value: []byte("of " + k), Timestamp: putAt})
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("%v", err)
	}
}

// Cleaned waits until the cleaner has done its work on every replica: until the first segments hold what is, and all replicas hold the same, twice in a row.
func Cleaned(t kafkatest.T, c *kafkatest.Cluster, topic string, replicas []int32, is func([]batch.Header) bool) {
	t.Helper()
	var before []byte
	Eventually(t, topic+" is compacted everywhere", func() (bool, string) {
		var first []byte
		for i, b := range replicas {
			log := c.SegmentBytes(topic, 0, b)
			if _, err := pieces(log); err != nil {
				return false, err.Error() // a segment is being exchanged
			}
			if hs := Headers(log); !is(hs) {
				return false, fmt.Sprintf("broker %d: %+v", b, hs)
			}
			if i == 0 {
				first = log
			}
			if !bytes.Equal(first, log) {
				return false, "replicas differ"
			}
		}
		settled := bytes.Equal(first, before)
		before = bytes.Clone(first)
		return settled, "it was cleaned just now"
	})
}

// Compacted are the settings of a topic that is compacted at once.
var Compacted = map[string]string{
	"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0", "max.compaction.lag.ms": "100",
	"delete.retention.ms": "3600000", "file.delete.delay.ms": "0",
}
