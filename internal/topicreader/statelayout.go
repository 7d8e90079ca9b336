package topicreader

import (
	"encoding/binary"
	"fmt"

	"github.com/clustermirror/clustermirror/statemachine"
)

// StateLayout is in how many partitions the keys of __mirror_state lie. It is kept in a record of its own in partition 0 of that topic, written with the first state, because
// Kafka lets anybody who may alter a topic give it more partitions: then a key would have another place, and what was written at the old one would be lost. Partitions that
// were added stay empty. The zero value knows of no such record. It belongs to one reading of the topic; take every record before asking.
type StateLayout struct {
	partitions int32 // 0: there is no record
	err        error // of the record, if it cannot be read
}

const (
	// StateLayoutType is the record type of the layout's key, which has nothing behind it.
	StateLayoutType = 63

	stateLayoutVersion = 1
)

// StateLayoutRecord is the record that says a topic's layout.
func StateLayoutRecord(partitions int32) (key, value []byte) {
	return binary.BigEndian.AppendUint16(nil, StateLayoutType), binary.BigEndian.AppendUint32([]byte{stateLayoutVersion}, uint32(partitions))
}

// Take looks at a record of the topic, in order, and says whether it was one of the layout's type. Only one in partition 0 counts. A tombstone takes the layout back.
func (l *StateLayout) Take(r Record) bool {
	if len(r.Key) != 2 || binary.BigEndian.Uint16(r.Key) != StateLayoutType {
		return false
	}
	switch {
	case r.Partition != 0:
	case r.Value == nil:
		*l = StateLayout{}
	default:
		*l = StateLayout{}
		n := int32(0)
		if len(r.Value) == 5 && r.Value[0] == stateLayoutVersion {
			n = int32(binary.BigEndian.Uint32(r.Value[1:]))
		}
		if n < 1 {
			l.err = fmt.Errorf("%s-%d: the record at offset %d, which says in how many partitions keys lie, is %x: a newer version of this program wrote it, or somebody else did; "+
				"run at least that version, or write a tombstone over it if the topic never got more partitions", r.Topic, r.Partition, r.Offset, r.Value)
		}
		l.partitions = n
	}
	return true
}

// Known says whether there is a record.
func (l StateLayout) Known() bool { return l.partitions > 0 || l.err != nil }

// Partitions is in how many partitions keys lie when the topic has that many.
func (l StateLayout) Partitions(has int32) (int32, error) {
	switch {
	case l.err != nil:
		return 0, l.err
	case l.partitions == 0:
		return has, nil
	case has > 0 && l.partitions > has:
		return 0, fmt.Errorf("its keys lie in %d partitions, but it has %d: somebody wrote a record that says so; write a tombstone over key %04x in partition 0", l.partitions, has, StateLayoutType)
	}
	return l.partitions, nil
}

// CountsInState says whether a record lies where its key belongs, if keys lie in that many partitions. One that lies elsewhere was written by somebody else, and neither
// counts nor takes back what does. Keys that are no state's or last mirror epoch's belong anywhere.
func CountsInState(r Record, partitions int32) bool {
	_, key, err := statemachine.DecodeKey(r.Key)
	return err != nil || partitions < 1 || statemachine.StatePartition(key, partitions) == r.Partition
}
