package lives

import (
	"bytes"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
)

func TestDifferenceSaysNo(t *testing.T) {
	log := batch.AppendData(nil, batch.DataSpec{BaseOffset: 5, LeaderEpoch: 3, ProducerID: -1, Records: []batch.Record{{Value: []byte("one")}}})
	first := len(log)
	log = batch.AppendData(log, batch.DataSpec{BaseOffset: 6, LeaderEpoch: 3, ProducerID: -1, Records: []batch.Record{{Value: []byte("two")}}})
	if d := Difference(bytes.Clone(log), log); d != "" {
		t.Fatal(d)
	}
	for i := range log {
		other := bytes.Clone(log)
		other[i] ^= 1
		if Difference(other, log) == "" {
			t.Errorf("a flipped bit in byte %d is not seen", i)
		}
	}
	shifted := bytes.Clone(log)
	batch.SetBaseOffset(shifted[first:], 7)
	for name, other := range map[string][]byte{"a missing batch": log[:first], "a missing first batch": log[first:], "a cut batch": log[:first+30], "a shifted batch": shifted, "nothing": nil} {
		if Difference(other, log) == "" || Difference(log, other) == "" {
			t.Errorf("%s is not seen", name)
		}
	}
	for start, want := range map[int64]int{0: 0, 5: 0, 6: first, 7: len(log), 9: len(log)} {
		got, err := Since(log, start)
		if err != nil || len(got) != len(log)-want {
			t.Errorf("since %d: %d bytes, %v; want %d", start, len(got), err, len(log)-want)
		}
	}
	if _, err := Since(log[:first+30], 9); err == nil {
		t.Error("a cut batch is not an error")
	}
}
