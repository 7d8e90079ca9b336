package kafkatest

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// On an ordinary topic the writer gets through to the leader in all six ways, and to nobody else.
func TestWriteAlwaysGetsThroughToTheLeaderOnly(t *testing.T) {
	c := Shared(t)
	const topic = "always"
	c.CreateTopic(Topic{Name: topic, Assignment: [][]int32{{2, 3}, {3, 2}}})
	further := c.ProxyTo(c.InternalAddress(2)).Address()
	w := c.WriteAlways(map[string][]int32{topic: {0, 1}}, further)
	w.WaitRounds(3)
	w.Stop()

	leads := map[string]int32{c.InternalAddress(2): 0, further: 0, c.InternalAddress(3): 1}
	found := map[Way]int{}
	written := map[int64]bool{}
	for partition := range int32(2) {
		for _, a := range w.FindIn(c.WaitSameSegments(topic, partition, 2, 3)) {
			if p, ok := leads[a.Address]; !ok || p != partition || a.Partition != partition || a.Topic != topic {
				t.Errorf("found in partition %d: %+v", partition, a)
			}
			found[a.Way]++
			written[a.Number] = true
		}
	}
	succeeded := map[Way]int{}
	var offsets []int64
	for _, s := range w.Successes() {
		if !written[s.Number] || s.Time.IsZero() {
			t.Errorf("a success that is not in the log, or not whole: %+v", s)
		}
		succeeded[s.Way]++
		if s.Partition == 0 {
			offsets = append(offsets, s.Offset)
		}
	}
	slices.Sort(offsets)
	if n := len(offsets); n == 0 || len(slices.Compact(offsets)) != n {
		t.Errorf("offsets are not unique: %v", offsets)
	}
	answers := w.Answers()
	if len(answers) != 4*6 {
		t.Errorf("%d ways, want 24", len(answers))
	}
	for way, got := range answers {
		refusal, acceptance := kerr.NotLeaderForPartition.Message, "appended"
		if way.Acks == 0 {
			refusal, acceptance = "closed", "sent"
		}
		_, leader := leads[way.Address]
		switch {
		case got[refusal] == 0, leader && got[acceptance] == 0, !leader && got[acceptance] > 0:
			t.Errorf("%+v got %v", way, got)
		case leader && found[way] == 0, !leader && found[way] > 0:
			t.Errorf("%+v: %d records in the logs", way, found[way])
		case (way.Acks != 0 && leader) != (succeeded[way] > 0), way.Acks == 0 && succeeded[way] > 0:
			t.Errorf("%+v: %d successes", way, succeeded[way])
		}
	}
}
