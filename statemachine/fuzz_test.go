package statemachine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/twmb/franz-go/pkg/kbin"
)

// readable demands of an error that it is a *RecordError with a place inside the record.
func readable(t *testing.T, b []byte, err error) {
	t.Helper()
	var bad *RecordError
	if !errors.As(err, &bad) || bad.Offset < 0 || bad.Offset > len(b) {
		t.Fatalf("error %T %v", err, err)
	}
}

// tag is a tagged field as franz-go's reader finds it.
type tag struct {
	number uint32
	value  []byte
}

// kbinTags reads the tagged fields at the end of a record with franz-go's reader. ok is false where it cannot, where bytes follow, and where tags do not rise, which it lets pass.
func kbinTags(r *kbin.Reader) (tags []tag, ok bool) {
	last := int64(-1)
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		number := r.Uvarint()
		tags = append(tags, tag{number, r.Span(int(r.Uvarint()))})
		if int64(number) <= last {
			return nil, false
		}
		last = int64(number)
	}
	return tags, r.Ok() && len(r.Src) == 0
}

// kbinString reads a compact string that is a whole tagged field; ok is false where it is none, or null.
func kbinString(value []byte) (s string, ok bool) {
	r := kbin.Reader{Src: value}
	p := r.CompactNullableString()
	if p == nil || !r.Ok() || len(r.Src) > 0 {
		return "", false
	}
	return strings.ToValidUTF8(*p, "\uFFFD"), true
}

// withUnknownTag adds a tagged field of a number that no version of ours has to a record of which body is all in front of its tags.
func withUnknownTag(record []byte, body int, value []byte) []byte {
	b := bytes.Clone(record)
	b[body]++ // fewer than 127
	b = append(b, 0xc8, 0x01)
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

// FuzzDecodeKey: a key is refused by name, or is read as franz-go's reader reads it, and written again as the same bytes.
func FuzzDecodeKey(f *testing.F) {
	f.Add(AppendKey(nil, LastMirrorEpochsType, Key{Mirror: "my-mirror", TopicID: goldenTopicID(), Partition: 3}))
	f.Add([]byte{0, 1, 255, 255})
	f.Add(AppendKey(nil, PartitionStateType, Key{Mirror: strings.Repeat("m", math.MaxInt16)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var typ RecordType
		var k Key
		var err error
		fuzzbound.Run(t, len(b), func() { typ, k, err = DecodeKey(b) })
		r := kbin.Reader{Src: b}
		theirType, theirs := RecordType(r.Int16()), Key{Mirror: r.String(), TopicID: r.Uuid(), Partition: r.Int32()}
		fine := r.Ok() && len(r.Src) == 0 && (theirType == LastMirrorEpochsType || theirType == PartitionStateType) && utf8.ValidString(theirs.Mirror)
		if err != nil {
			if readable(t, b, err); fine {
				t.Fatalf("%v, and franz-go reads %d %v", err, theirType, theirs)
			}
			return
		}
		if !fine || typ != theirType || k != theirs {
			t.Fatalf("%x reads as %d %v, franz-go reads %d %v (%v)", b, typ, k, theirType, theirs, fine)
		}
		if again := AppendKey(nil, typ, k); !bytes.Equal(again, b) {
			t.Fatalf("%x reads as %v, which is %x", b, k, again)
		}
	})
}

// FuzzDecodePartitionState: a state is refused by name, or is what franz-go's reader reads; it comes back equal from what is written of it, with a newer version's tag too.
func FuzzDecodePartitionState(f *testing.F) {
	f.Add(unhex(f, "00000200000004000000020000001000"))
	f.Add(unhex(f, "0000 02 00000004 00000002 00 0000 10 03 00 04 00000003 06 02 abcd 8001 00"))
	f.Add(unhex(f, "0000 07 00000004 00000002 ffffffff0f 61"))
	full := PartitionState{Mirroring, 4, 2, "why\xff", 3, Failed, 3, "cluster", goldenTopicID(), true, true, true, true, 6, 1 << 40}
	f.Add(AppendPartitionState(nil, full))
	full.ErrorMessage = strings.Repeat("\xff", 70000)
	f.Add(AppendPartitionState(nil, full))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s PartitionState
		var err error
		fuzzbound.Run(t, len(b), func() { s, err = DecodePartitionState(b) })
		theirs, fine := kbinState(b)
		if err != nil {
			if readable(t, b, err); fine {
				t.Fatalf("%v, and franz-go reads %+v", err, theirs)
			}
			return
		}
		if !fine || s != theirs {
			t.Fatalf("%+v, franz-go reads %+v (%v)", s, theirs, fine)
		}
		again := AppendPartitionState(nil, s)
		if back, err := DecodePartitionState(again); back != s || err != nil {
			t.Fatalf("%+v comes back as %+v, %v", s, back, err)
		}
		bare := s
		bare.Episode, bare.SourceClusterID, bare.SourceTopicID, bare.FoundOpen, bare.WasOpen, bare.Mirrored, bare.AwaitsCut, bare.HoleFrom, bare.HoleTo = 0, "", TopicID{}, false, false, false, false, 0, 0
		newer := withUnknownTag(again, len(AppendPartitionState(nil, bare))-1, b[:min(len(b), 200)])
		if back, err := DecodePartitionState(newer); back != s || err != nil {
			t.Fatalf("%+v with a newer version's tag comes back as %+v, %v", s, back, err)
		}
	})
}

func kbinState(b []byte) (s PartitionState, fine bool) {
	r := kbin.Reader{Src: b}
	version := r.Int16()
	s = PartitionState{State: State(r.Int8()), LeaderEpoch: r.Int32(), StateEpoch: r.Int32()}
	if message := r.CompactNullableString(); message != nil {
		s.ErrorMessage = strings.ToValidUTF8(*message, "\uFFFD")
	}
	s.RetryAttempt, s.PreviousState = r.Int16(), State(r.Int8())
	tags, ok := kbinTags(&r)
	fine = ok && version == 0 && s.State.known() && s.PreviousState.known()
	for _, tag := range tags {
		v := kbin.Reader{Src: tag.value}
		switch tag.number {
		case tagStateEpisode:
			s.Episode = v.Int32()
			fine = fine && v.Ok() && len(v.Src) == 0
		case tagStateSourceCluster:
			s.SourceClusterID, ok = kbinString(tag.value)
			fine = fine && ok
		case tagStateSourceTopic:
			s.SourceTopicID = v.Uuid()
			fine = fine && v.Ok() && len(v.Src) == 0
		case tagStateFoundOpen:
			s.FoundOpen = v.Int8() != 0
			fine = fine && v.Ok() && len(v.Src) == 0
		case tagStateWasOpen:
			s.WasOpen = v.Int8() != 0
			fine = fine && v.Ok() && len(v.Src) == 0
		case tagStateMirrored:
			s.Mirrored = v.Int8() != 0
			fine = fine && v.Ok() && len(v.Src) == 0
		case tagStateAwaitsCut:
			s.AwaitsCut = v.Int8() != 0
			fine = fine && v.Ok() && len(v.Src) == 0
		case tagStateHole:
			s.HoleFrom, s.HoleTo = v.Int64(), v.Int64()
			fine = fine && v.Ok() && len(v.Src) == 0
		}
	}
	return s, fine
}

// FuzzDecodeLastMirrorEpoch: an end is refused by name, or, where it is of the page's form, is what franz-go's reader reads; it comes back equal from what is written of it,
// with a newer version's tag too.
func FuzzDecodeLastMirrorEpoch(f *testing.F) {
	f.Add(unhex(f, "00000000000300"))
	f.Add(unhex(f, "0000 00000003 0000000000000006 00"))
	f.Add(unhex(f, "000000000003 04 00 08 0000000000000006 01 04 04 616263 02 04 00000002 03 10 0102030405060708090a0b0c0d0e0f10"))
	f.Add(AppendLastMirrorEpoch(nil, LastMirrorEpoch{1, 1 << 55, strings.Repeat("c", 70000), 2, goldenTopicID(), true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e LastMirrorEpoch
		var err error
		fuzzbound.Run(t, len(b), func() { e, err = DecodeLastMirrorEpoch(b) })
		theirs, fine := kbinEnd(b)
		draft := len(b) >= 15 && int64(binary.BigEndian.Uint64(b[6:])) < maxDraftOffset && int64(binary.BigEndian.Uint64(b[6:])) >= -1
		if err != nil {
			if readable(t, b, err); fine && !draft {
				t.Fatalf("%v, and franz-go reads %+v", err, theirs)
			}
			return
		}
		if !draft && (!fine || e != theirs) {
			t.Fatalf("%+v, franz-go reads %+v (%v)", e, theirs, fine)
		}
		if draft && (e.Offset != int64(binary.BigEndian.Uint64(b[6:])) || e.Epoch != theirs.Epoch) {
			t.Fatalf("%+v of the draft's form %x", e, b)
		}
		again := AppendLastMirrorEpoch(nil, e)
		if back, err := DecodeLastMirrorEpoch(again); back != e || err != nil {
			t.Fatalf("%+v comes back as %+v, %v", e, back, err)
		}
		newer := withUnknownTag(again, 6, b[:min(len(b), 200)])
		if back, err := DecodeLastMirrorEpoch(newer); back != e || err != nil {
			t.Fatalf("%+v with a newer version's tag comes back as %+v, %v", e, back, err)
		}
	})
}

func kbinEnd(b []byte) (e LastMirrorEpoch, fine bool) {
	r := kbin.Reader{Src: b}
	version := r.Int16()
	e = LastMirrorEpoch{Epoch: r.Int32(), Offset: -1}
	tags, ok := kbinTags(&r)
	fine = ok && version == 0
	for _, tag := range tags {
		v := kbin.Reader{Src: tag.value}
		switch tag.number {
		case tagLMEOffset:
			e.Offset = v.Int64()
			fine = fine && v.Ok() && len(v.Src) == 0
		case tagLMESourceCluster:
			e.SourceClusterID, ok = kbinString(tag.value)
			fine = fine && ok
		case tagLMEEpisode:
			e.Episode = v.Int32()
			fine = fine && v.Ok() && len(v.Src) == 0
		case tagLMESourceTopic:
			e.SourceTopicID = v.Uuid()
			fine = fine && v.Ok() && len(v.Src) == 0
		case tagLMECut:
			e.Cut = v.Int8() != 0
			fine = fine && v.Ok() && len(v.Src) == 0
		}
	}
	return e, fine
}
