package statemachine

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// The numbers of our tagged fields (decision 2). A reader that knows only the KIP page's layout skips them.
const (
	tagStateEpisode       = 0 // of MirrorPartitionState
	tagStateSourceCluster = 1
	tagStateSourceTopic   = 2
	tagStateFoundOpen     = 3
	tagStateWasOpen       = 4
	tagStateMirrored      = 5
	tagStateAwaitsCut     = 6
	tagStateHole          = 7

	tagLMEOffset        = 0 // of LastMirrorEpochs
	tagLMESourceCluster = 1
	tagLMEEpisode       = 2
	tagLMESourceTopic   = 3
	tagLMECut           = 4
)

// AppendKey, AppendPartitionState and AppendLastMirrorEpoch write Kafka's bytes (spec §8) behind dst.
// The mirror's name is one that CheckMirrorName accepts; one longer than 32,767 bytes has no form and panics.
func AppendKey(dst []byte, t RecordType, k Key) []byte {
	if len(k.Mirror) > math.MaxInt16 {
		panic(fmt.Sprintf("statemachine: a mirror name of %d bytes has no record key; check names with CheckMirrorName", len(k.Mirror)))
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(t))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(k.Mirror)))
	dst = append(dst, k.Mirror...)
	dst = append(dst, k.TopicID[:]...)
	return binary.BigEndian.AppendUint32(dst, uint32(k.Partition))
}

// AppendPartitionState: see AppendKey. Tags with their default values are not written. An empty message is written as null; bytes of it that are not UTF-8 as U+FFFD.
func AppendPartitionState(dst []byte, s PartitionState) []byte {
	dst = append(dst, 0, 0, byte(s.State))
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.LeaderEpoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.StateEpoch))
	if s.ErrorMessage == "" {
		dst = append(dst, 0)
	} else {
		dst = appendCompactString(dst, s.ErrorMessage)
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(s.RetryAttempt))
	dst = append(dst, byte(s.PreviousState))
	var t taggedFields
	if s.Episode != 0 {
		t.add(tagStateEpisode, binary.BigEndian.AppendUint32(nil, uint32(s.Episode)))
	}
	if s.SourceClusterID != "" {
		t.add(tagStateSourceCluster, appendCompactString(nil, s.SourceClusterID))
	}
	if s.SourceTopicID != (TopicID{}) {
		t.add(tagStateSourceTopic, s.SourceTopicID[:])
	}
	if s.FoundOpen {
		t.add(tagStateFoundOpen, []byte{1})
	}
	if s.WasOpen {
		t.add(tagStateWasOpen, []byte{1})
	}
	if s.Mirrored {
		t.add(tagStateMirrored, []byte{1})
	}
	if s.AwaitsCut {
		t.add(tagStateAwaitsCut, []byte{1})
	}
	if s.HoleFrom != 0 || s.HoleTo != 0 {
		t.add(tagStateHole, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(s.HoleFrom)), uint64(s.HoleTo)))
	}
	return t.append(dst)
}

// taggedFields gathers the tagged fields of a record, to be added in rising order.
type taggedFields struct {
	count byte
	bytes []byte
}

func (t *taggedFields) add(tag byte, value []byte) {
	t.count++
	t.bytes = appendTag(t.bytes, tag, value)
}

func (t *taggedFields) append(dst []byte) []byte { return append(append(dst, t.count), t.bytes...) }

// AppendLastMirrorEpoch: see AppendKey. With all of Offset −1 and the rest empty it is the KIP page's form to the byte.
func AppendLastMirrorEpoch(dst []byte, e LastMirrorEpoch) []byte {
	dst = append(dst, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Epoch))
	var t taggedFields
	if e.Offset != -1 {
		t.add(tagLMEOffset, binary.BigEndian.AppendUint64(nil, uint64(e.Offset)))
	}
	if e.SourceClusterID != "" {
		t.add(tagLMESourceCluster, appendCompactString(nil, e.SourceClusterID))
	}
	if e.Episode != 0 {
		t.add(tagLMEEpisode, binary.BigEndian.AppendUint32(nil, uint32(e.Episode)))
	}
	if e.SourceTopicID != (TopicID{}) {
		t.add(tagLMESourceTopic, e.SourceTopicID[:])
	}
	if e.Cut {
		t.add(tagLMECut, []byte{1})
	}
	return t.append(dst)
}

// appendCompactString writes Kafka's compact string: length plus one as unsigned varint, then UTF-8.
func appendCompactString(dst []byte, s string) []byte {
	s = strings.ToValidUTF8(s, "\uFFFD")
	dst = binary.AppendUvarint(dst, uint64(len(s))+1)
	return append(dst, s...)
}

// appendTag writes one tagged field (KIP-482): number, size, value.
func appendTag(dst []byte, tag byte, value []byte) []byte {
	dst = append(dst, tag)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}
