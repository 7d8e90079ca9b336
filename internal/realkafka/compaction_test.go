package realkafka_test

import (
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

func TestF02BatchEmptiedByRealCompaction(t *testing.T) {
	c := shared(t)
	topic := "f02-emptied"
	c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{1, 2, 3}}, Configs: lives.Compacted})
	first, second, last := lives.Client(c), lives.Client(c), lives.Client(c)
	lives.Put(t, first, topic, "a")                                      // 0
	lives.Put(t, second, topic, "b", "c", "d", "e")                      // 1..4: will be emptied, and kept for its producer's sequence
	lives.Put(t, first, topic, "f", "g", "h")                            // 5..7: g will be removed from the middle, and the batch re-written
	lives.Put(t, last, topic, "b", "c", "d", "e", "g", "z")              // 8..13
	lives.Put(t, lives.Client(c, lives.Plain...), topic, "active")       // 14
	lives.Put(t, lives.Client(c, lives.Plain...), topic, "still active") // 15: a segment of its own, so that 14's is not the active one
	emptied := func(hs []batch.Header) bool {
		for _, h := range hs {
			if h.BaseOffset == 1 {
				return h.RecordCount == 0 && h.LastOffset() == 4
			}
		}
		return false
	}
	lives.Cleaned(t, c, topic, []int32{1, 2, 3}, emptied)
	r := open(t, c)
	r.start(topic)
	copied := r.same(topic, 0, 16)
	hs := lives.Headers(copied)
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
	c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{2, 1, 3}}, Configs: lives.Compacted})
	cl := lives.Client(c, lives.Plain...)
	lives.Put(t, cl, topic, "a")                // 0
	lives.Put(t, cl, topic, "b", "c")           // 1..2: goes
	lives.Put(t, cl, topic, "b", "c", "d", "e") // 3..6: becomes d alone
	lives.Put(t, cl, topic, "b", "c", "e", "x") // 7..10
	lives.Put(t, cl, topic, "active")           // 11
	lives.Put(t, cl, topic, "still active")     // 12
	gap := func(hs []batch.Header) bool {
		return len(hs) > 2 && hs[0].NextOffset() == 1 && hs[1].BaseOffset == 3 && hs[1].RecordCount == 1
	}
	lives.Cleaned(t, c, topic, []int32{1, 2, 3}, gap)
	r := open(t, c)
	r.start(topic)
	if hs := lives.Headers(r.same(topic, 0, 13)); !gap(hs) {
		t.Errorf("%+v", hs)
	}
	if lost := told[recordsLost](r); len(lost) != 0 {
		t.Errorf("gaps of compaction are told as a loss: %v", lost)
	}
}
