package realkafka_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// putAt is the time of the newest batch of put. Segments roll by the times of records (segment.ms), so batches that must not share one are a second apart, however fast
// they are written. A client gives records up by their times, so they are not old.
var putAt time.Time

func put(t *testing.T, cl *kgo.Client, topic string, keys ...string) {
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
		t.Fatal(err)
	}
}

// cleaned waits until the cleaner has done its work on every replica: until the first segments hold what is, and all replicas hold the same, twice in a row.
func cleaned(t *testing.T, c *kafkatest.Cluster, topic string, replicas []int32, is func([]batch.Header) bool) {
	t.Helper()
	var before []byte
	eventually(t, topic+" is compacted everywhere", func() (bool, string) {
		var first []byte
		for i, b := range replicas {
			log := c.SegmentBytes(topic, 0, b)
			if _, err := pieces(log); err != nil {
				return false, err.Error() // a segment is being exchanged
			}
			if hs := headers(log); !is(hs) {
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

var compacted = map[string]string{
	"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0", "max.compaction.lag.ms": "100",
	"delete.retention.ms": "3600000", "file.delete.delay.ms": "0",
}

func TestF02BatchEmptiedByRealCompaction(t *testing.T) {
	c := shared(t)
	topic := "f02-emptied"
	c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{1, 2, 3}}, Configs: compacted})
	first, second, last := client(c), client(c), client(c)
	put(t, first, topic, "a")                          // 0
	put(t, second, topic, "b", "c", "d", "e")          // 1..4: will be emptied, and kept for its producer's sequence
	put(t, first, topic, "f", "g", "h")                // 5..7: g will be removed from the middle, and the batch re-written
	put(t, last, topic, "b", "c", "d", "e", "g", "z")  // 8..13
	put(t, client(c, plain...), topic, "active")       // 14
	put(t, client(c, plain...), topic, "still active") // 15: a segment of its own, so that 14's is not the active one
	emptied := func(hs []batch.Header) bool {
		for _, h := range hs {
			if h.BaseOffset == 1 {
				return h.RecordCount == 0 && h.LastOffset() == 4
			}
		}
		return false
	}
	cleaned(t, c, topic, []int32{1, 2, 3}, emptied)
	r := open(t, c)
	r.start(topic)
	copied := r.same(topic, 0, 16)
	hs := headers(copied)
	if !emptied(hs) {
		t.Errorf("%+v", hs)
	}
	holes := 0
	for _, h := range hs {
		if h.RecordCount < h.LastOffsetDelta+1 {
			holes++
		}
	}
	if holes != 2 {
		t.Errorf("%d batches with holes, want the emptied one and the one that lost g: %+v", holes, hs)
	}
	sameProducers(t, c, topic, copied)
	if lost := told[recordsLost](r); len(lost) != 0 {
		t.Errorf("holes of compaction are told as a loss: %v", lost)
	}
}

// A whole batch that no producer needs any more is removed: the next one begins above the copy's end.
func TestSpec4GapsOfCompactionAreKept(t *testing.T) {
	c := shared(t)
	topic := "compaction-gaps"
	c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{2, 1, 3}}, Configs: compacted})
	cl := client(c, plain...)
	put(t, cl, topic, "a")                // 0
	put(t, cl, topic, "b", "c")           // 1..2: goes
	put(t, cl, topic, "b", "c", "d", "e") // 3..6: becomes d alone
	put(t, cl, topic, "b", "c", "e", "x") // 7..10
	put(t, cl, topic, "active")           // 11
	put(t, cl, topic, "still active")     // 12
	gap := func(hs []batch.Header) bool {
		return len(hs) > 2 && hs[0].NextOffset() == 1 && hs[1].BaseOffset == 3 && hs[1].RecordCount == 1
	}
	cleaned(t, c, topic, []int32{1, 2, 3}, gap)
	r := open(t, c)
	r.start(topic)
	if hs := headers(r.same(topic, 0, 13)); !gap(hs) {
		t.Errorf("%+v", hs)
	}
	if lost := told[recordsLost](r); len(lost) != 0 {
		t.Errorf("gaps of compaction are told as a loss: %v", lost)
	}
}
