package topicreader

import (
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

func TestStateLayout(t *testing.T) {
	key, value := StateLayoutRecord(2)
	var l StateLayout
	expect := func(what string, has, want int32, bad bool) {
		t.Helper()
		if got, err := l.Partitions(has); got != want || (err != nil) != bad {
			t.Errorf("%s: %d partitions count of %d, %v", what, got, has, err)
		}
	}
	expect("no record", 5, 5, false)
	if l.Known() || l.Take(Record{Key: []byte{0, 1}}) || l.Take(Record{Key: append(key, 0), Value: value}) {
		t.Error("another record says the layout")
	}
	if !l.Take(Record{Key: key, Value: value, Partition: 1}) || l.Known() {
		t.Error("a record of another partition counts")
	}
	if !l.Take(Record{Key: key, Value: value}) || !l.Known() {
		t.Error("the record does not count")
	}
	expect("partitions were added", 5, 2, false)
	expect("the topic is not there", 0, 2, false)
	expect("fewer", 1, 0, true)
	for _, bad := range [][]byte{{}, {1}, {2, 0, 0, 0, 2}, {1, 0, 0, 0, 0}, {1, 255, 255, 255, 255}, append(value, 0)} {
		l.Take(Record{Key: key, Value: bad})
		expect("cannot be read", 5, 0, true)
	}
	l.Take(Record{Key: key})
	expect("taken back", 5, 5, false)
}

func TestStateCountsInItsOwnPartitionOnly(t *testing.T) {
	k := statemachine.Key{Mirror: "m", TopicID: statemachine.TopicID{1}, Partition: 3}
	for _, recordType := range []statemachine.RecordType{statemachine.LastMirrorEpochsType, statemachine.PartitionStateType} {
		for p := range int32(5) {
			r := Record{Key: statemachine.AppendKey(nil, recordType, k), Partition: p}
			if got := CountsInState(r, 5); got != (p == statemachine.StatePartition(k, 5)) {
				t.Errorf("type %d in partition %d counts: %v", recordType, p, got)
			}
		}
	}
	if !CountsInState(Record{Key: []byte{0, 2, 0}, Partition: 4}, 5) {
		t.Error("a key that cannot be read has a partition")
	}
}
