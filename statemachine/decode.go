package statemachine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// ErrUnknownRecord: the key's record type is none that this version knows. Skip the record; a newer version of somebody wrote it.
var ErrUnknownRecord = errors.New("statemachine: unknown record type")

// RecordError is a record of __mirror_state that cannot be read.
type RecordError struct {
	Record string // "key", "MirrorPartitionState", "LastMirrorEpochs"
	Offset int    // the byte in the key or value at which reading failed
	Err    error  // what is wrong there
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("statemachine: %s unreadable at byte %d: %v", e.Record, e.Offset, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }

// What can be wrong with a record.
var (
	errCut       = errors.New("the bytes end too early")
	errTrailing  = errors.New("bytes follow behind the last field")
	errLength    = errors.New("a length is negative or longer than the bytes")
	errVarint    = errors.New("a variable-length number does not fit 32 bits")
	errTagOrder  = errors.New("tagged fields do not rise in number")
	errTagLength = errors.New("a tagged field has a wrong length")
	errUTF8      = errors.New("a name is not UTF-8")
	errNull      = errors.New("a string that must not be null is null")
)

// DecodeKey reads a key. Errors: *RecordError; a type that is not known is an error that errors.Is ErrUnknownRecord finds.
func DecodeKey(b []byte) (RecordType, Key, error) {
	r := &reader{record: "key", bytes: b}
	t := RecordType(r.int16())
	if r.err == nil && t != LastMirrorEpochsType && t != PartitionStateType {
		r.at = 0
		r.fail(fmt.Errorf("%w %d", ErrUnknownRecord, t))
	}
	var k Key
	length := r.int16()
	if length < 0 {
		r.fail(errLength)
	}
	name := r.take(int(length))
	if !utf8.Valid(name) {
		r.fail(errUTF8)
	}
	k.Mirror = string(name)
	copy(k.TopicID[:], r.take(len(k.TopicID)))
	k.Partition = r.int32()
	if err := r.end(); err != nil {
		return 0, Key{}, err
	}
	return t, k, nil
}

// DecodePartitionState skips unknown tags; a version above the known one is an error, and so is a number that is no state. Errors: *RecordError.
func DecodePartitionState(b []byte) (PartitionState, error) {
	r := &reader{record: "MirrorPartitionState", bytes: b}
	r.version()
	var s PartitionState
	s.State = r.state()
	s.LeaderEpoch = r.int32()
	s.StateEpoch = r.int32()
	s.ErrorMessage, _ = r.compactString()
	s.RetryAttempt = r.int16()
	s.PreviousState = r.state()
	r.tags(s.setTag)
	if err := r.end(); err != nil {
		return PartitionState{}, err
	}
	return s, nil
}

func (s *PartitionState) setTag(tag uint32, value []byte) error {
	switch tag {
	case tagStateEpisode:
		if len(value) != 4 {
			return errTagLength
		}
		s.Episode = int32(binary.BigEndian.Uint32(value))
	case tagStateSourceCluster:
		var err error
		s.SourceClusterID, err = tagString(value)
		return err
	case tagStateSourceTopic:
		if len(value) != len(s.SourceTopicID) {
			return errTagLength
		}
		s.SourceTopicID = TopicID(value)
	case tagStateFoundOpen:
		if len(value) != 1 {
			return errTagLength
		}
		s.FoundOpen = value[0] != 0
	case tagStateWasOpen:
		if len(value) != 1 {
			return errTagLength
		}
		s.WasOpen = value[0] != 0
	case tagStateMirrored:
		if len(value) != 1 {
			return errTagLength
		}
		s.Mirrored = value[0] != 0
	case tagStateAwaitsCut:
		if len(value) != 1 {
			return errTagLength
		}
		s.AwaitsCut = value[0] != 0
	case tagStateHole:
		if len(value) != 16 {
			return errTagLength
		}
		s.HoleFrom, s.HoleTo = int64(binary.BigEndian.Uint64(value)), int64(binary.BigEndian.Uint64(value[8:]))
	}
	return nil
}

// maxDraftOffset is the first offset whose high byte is not zero, see DecodeLastMirrorEpoch.
const maxDraftOffset = 1 << 56

// DecodeLastMirrorEpoch also reads the untagged page form and the later draft {epoch, offset}. Errors: *RecordError.
//
// The three forms have the same version, so the bytes behind the epoch decide:
//
//	page, untagged    00
//	page with tags    number of tags (not 0), tags
//	later draft       offset, 8 bytes, then a number of tags
//
// An offset from 0 up to 2^56 begins with 00 and is followed by more bytes, which the untagged form is not; the offset −1 begins with a number of tags that does not fit
// 32 bits; and a number of tags other than 0 begins with another byte than 00. So no bytes can be read in two ways. A draft's offset beyond 2^56 is refused.
func DecodeLastMirrorEpoch(b []byte) (LastMirrorEpoch, error) {
	r := &reader{record: "LastMirrorEpochs", bytes: b}
	r.version()
	e := LastMirrorEpoch{Offset: -1}
	e.Epoch = r.int32()
	own := !r.atDraftOffset()
	if !own {
		e.Offset = r.int64()
	}
	r.tags(func(tag uint32, value []byte) error {
		if !own {
			return nil
		}
		return e.setTag(tag, value)
	})
	if err := r.end(); err != nil {
		return LastMirrorEpoch{}, err
	}
	return e, nil
}

// atDraftOffset says whether what follows is the later draft's offset and not a number of tags.
func (r *reader) atDraftOffset() bool {
	if r.err != nil || r.rest() < 9 {
		return false
	}
	offset := int64(binary.BigEndian.Uint64(r.bytes[r.at:]))
	return -1 <= offset && offset < maxDraftOffset
}

func (e *LastMirrorEpoch) setTag(tag uint32, value []byte) error {
	switch tag {
	case tagLMEOffset:
		if len(value) != 8 {
			return errTagLength
		}
		e.Offset = int64(binary.BigEndian.Uint64(value))
	case tagLMESourceCluster:
		var err error
		e.SourceClusterID, err = tagString(value)
		return err
	case tagLMEEpisode:
		if len(value) != 4 {
			return errTagLength
		}
		e.Episode = int32(binary.BigEndian.Uint32(value))
	case tagLMESourceTopic:
		if len(value) != len(e.SourceTopicID) {
			return errTagLength
		}
		copy(e.SourceTopicID[:], value)
	case tagLMECut:
		if len(value) != 1 {
			return errTagLength
		}
		e.Cut = value[0] != 0
	}
	return nil
}

// tagString is a tagged field that holds one compact string and nothing else.
func tagString(value []byte) (string, error) {
	in := &reader{bytes: value}
	s, null := in.compactString()
	if in.err == nil && null {
		return "", errNull
	}
	if in.err != nil || in.rest() > 0 {
		return "", errTagLength
	}
	return s, nil
}

// reader reads fields in order. After the first failure everything reads as zero; end reports it.
type reader struct {
	record string
	bytes  []byte
	at     int
	err    *RecordError
}

func (r *reader) rest() int { return len(r.bytes) - r.at }

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = &RecordError{Record: r.record, Offset: r.at, Err: err}
	}
}

// end is the first failure; bytes left over are one.
func (r *reader) end() error {
	if r.err == nil && r.rest() > 0 {
		r.fail(errTrailing)
	}
	if r.err != nil {
		return r.err
	}
	return nil
}

// take returns the next n bytes, which alias the input, or nil after a failure.
func (r *reader) take(n int) []byte {
	if r.err == nil && (n < 0 || n > r.rest()) {
		r.fail(errCut)
	}
	if r.err != nil {
		return nil
	}
	b := r.bytes[r.at : r.at+n]
	r.at += n
	return b
}

func (r *reader) int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *reader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) version() {
	if v := r.int16(); v != 0 && r.err == nil {
		r.at = 0
		r.fail(fmt.Errorf("version %d, this program reads only 0; update it", v))
	}
}

func (r *reader) state() State {
	s := State(r.int8())
	if r.err == nil && !s.known() {
		r.at--
		r.fail(fmt.Errorf("%d is no state", int8(s)))
	}
	return s
}

// uvarint reads Kafka's unsigned varint, which holds 32 bits.
func (r *reader) uvarint() uint32 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.bytes[r.at:min(len(r.bytes), r.at+binary.MaxVarintLen32)])
	switch {
	case n == 0 && r.rest() < binary.MaxVarintLen32:
		r.fail(errCut)
	case n <= 0 || v > math.MaxUint32:
		r.fail(errVarint)
	default:
		r.at += n
		return uint32(v)
	}
	return 0
}

// compactString reads a compact nullable string. Bytes that are not UTF-8 become U+FFFD: a message must not make a record unreadable.
func (r *reader) compactString() (s string, null bool) {
	n := r.uvarint()
	if n == 0 {
		return "", true
	}
	if int64(n-1) > int64(r.rest()) {
		r.fail(errLength)
	}
	if r.err != nil {
		return "", false
	}
	return strings.ToValidUTF8(string(r.take(int(n-1))), "\uFFFD"), false
}

// tags reads the tagged fields; each sees unknown ones too.
func (r *reader) tags(each func(tag uint32, value []byte) error) {
	count := r.uvarint()
	last := int64(-1)
	for i := uint32(0); i < count && r.err == nil; i++ {
		tag := r.uvarint()
		size := r.uvarint()
		if r.err == nil && int64(tag) <= last {
			r.fail(errTagOrder)
		}
		if int64(size) > int64(r.rest()) {
			r.fail(errCut)
		}
		value := r.take(int(size))
		if r.err != nil {
			return
		}
		last = int64(tag)
		if err := each(tag, value); err != nil {
			r.at -= len(value)
			r.fail(err)
		}
	}
}
