package kafkatest

import (
	"bytes"
	"testing"
)

func TestOneBrokerProduceAndReadSegment(t *testing.T) {
	c := Start(t, Options{})
	c.CreateTopic(Topic{Name: "one"})
	if last := c.Produce("one", 0, "first value", "second value"); last != 1 {
		t.Fatalf("last offset %d, want 1", last)
	}
	got := c.SegmentBytes("one", 0, 1)
	for _, want := range []string{"first value", "second value"} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("segment of %d bytes does not contain %q", len(got), want)
		}
	}
}
