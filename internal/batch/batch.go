// Package batch reads and writes the bytes of Kafka record batches (message format v2).
//
// It is the one place in this module that parses batch bytes. It never decompresses. Reading allocates nothing.
// A batch's own header says where the next batch begins (base offset + last offset delta + 1); record counts never do.
package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
)

// HeaderSize is the number of bytes in front of a batch's records: from the base offset to the record count.
const HeaderSize = 61

// Where the fields of the header begin (Kafka: DefaultRecordBatch). Message formats v0 and v1 have base offset, length and magic at the same places.
const (
	atLength          = 8
	atLeaderEpoch     = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21 // the checksum covers everything from here on
	atLastOffsetDelta = 23
	atBaseTimestamp   = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atRecordCount     = 57

	beforeLength = 12 // bytes that the length field does not count
	maxLength    = math.MaxInt32 - beforeLength
)

// The attribute bits above the codec.
const (
	attributeLogAppendTime = 0x08
	attributeTransactional = 0x10
	attributeControl       = 0x20
	attributeDeleteHorizon = 0x40
	codecMask              = 0x07
)

// ErrCut says that the bytes end before the batch does. At the end of a fetch reply that is normal: a broker may cut the last batch.
var ErrCut = errors.New("batch: bytes end inside a batch")

// ErrCorrupt is what errors.Is finds in every *CorruptError.
var ErrCorrupt = errors.New("batch: corrupt batch")

// CorruptError is a whole batch whose contents cannot be right: checksum, lengths, or a header that contradicts its records.
type CorruptError struct {
	Offset int64  // base offset read from the header; -1 if even that could not be read
	Reason string // for a person; starts with a lower-case word
	CRC    bool   // the stored checksum is not the computed one (worth a refetch: damage in transit heals)
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt batch at %d: %s", e.Offset, e.Reason)
}
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// FormatError is a batch in message format v0 or v1 (or an unknown one). The rule of this module: such a batch is refused, nothing from it on is copied.
type FormatError struct {
	Offset int64
	Magic  int8
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("message format v%d at %d: only v2 batches can be mirrored", e.Magic, e.Offset)
}

// Compression codecs, the low three bits of the attributes.
const (
	CodecNone   = 0
	CodecGzip   = 1
	CodecSnappy = 2
	CodecLZ4    = 3
	CodecZstd   = 4
)

// Header is the fixed part of a batch, as read from its bytes. Timestamps are milliseconds since the Unix epoch.
type Header struct {
	BaseOffset      int64
	Length          int32 // bytes after the length field; the whole batch has Length+12
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	RecordCount     int32
}

// Size is the whole batch in bytes.
func (h *Header) Size() int { return int(h.Length) + beforeLength }

// LastOffset is the offset of the batch's last record, also when compaction removed that record.
func (h *Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset is where the next batch may begin at the earliest.
func (h *Header) NextOffset() int64 { return h.LastOffset() + 1 }

// LastSequence is the sequence of the last record, -1 without a sequence; sequences wrap after 2^31-1 to 0.
func (h *Header) LastSequence() int32 {
	if h.BaseSequence < 0 {
		return -1
	}
	return int32((uint32(h.BaseSequence) + uint32(h.LastOffsetDelta)) & math.MaxInt32)
}

// Codec is the compression codec, one of the Codec constants.
func (h *Header) Codec() int8 { return int8(h.Attributes & codecMask) }

// LogAppendTime says that the broker, not the producer, set the timestamps.
func (h *Header) LogAppendTime() bool { return h.Attributes&attributeLogAppendTime != 0 }

// Transactional says that the batch belongs to a transaction.
func (h *Header) Transactional() bool { return h.Attributes&attributeTransactional != 0 }

// Control says that the batch is a control batch (a transaction marker, a producer-id reset …).
func (h *Header) Control() bool { return h.Attributes&attributeControl != 0 }

// DeleteHorizon says that compaction keeps this batch's tombstones or markers until the time in BaseTimestamp, which then is no record's time (KIP-534).
func (h *Header) DeleteHorizon() bool { return h.Attributes&attributeDeleteHorizon != 0 }

// ParseHeader reads the header at the start of b. Errors: ErrCut when b is shorter than the header, *FormatError, *CorruptError when the length field or a delta cannot be.
// With an error the header holds what could be read: with ErrCut, base offset and length as soon as b reaches to the magic byte.
func ParseHeader(b []byte) (Header, error) {
	if len(b) <= atMagic {
		return Header{}, ErrCut
	}
	h := Header{
		BaseOffset:  int64(binary.BigEndian.Uint64(b)),
		Length:      int32(binary.BigEndian.Uint32(b[atLength:])),
		LeaderEpoch: int32(binary.BigEndian.Uint32(b[atLeaderEpoch:])),
		Magic:       int8(b[atMagic]),
	}
	// An old message can be shorter than our header, so its format is seen before its size is judged.
	if h.Magic != 2 {
		return h, &FormatError{Offset: h.BaseOffset, Magic: h.Magic}
	}
	if h.BaseOffset < 0 {
		return h, &CorruptError{Offset: h.BaseOffset, Reason: "base offset is negative"}
	}
	if h.Length < HeaderSize-beforeLength || h.Length > maxLength {
		return h, &CorruptError{Offset: h.BaseOffset, Reason: fmt.Sprintf("length field %d cannot be", h.Length)}
	}
	if len(b) < HeaderSize {
		return h, ErrCut
	}
	h.CRC = binary.BigEndian.Uint32(b[atCRC:])
	h.Attributes = int16(binary.BigEndian.Uint16(b[atAttributes:]))
	h.LastOffsetDelta = int32(binary.BigEndian.Uint32(b[atLastOffsetDelta:]))
	h.BaseTimestamp = int64(binary.BigEndian.Uint64(b[atBaseTimestamp:]))
	h.MaxTimestamp = int64(binary.BigEndian.Uint64(b[atMaxTimestamp:]))
	h.ProducerID = int64(binary.BigEndian.Uint64(b[atProducerID:]))
	h.ProducerEpoch = int16(binary.BigEndian.Uint16(b[atProducerEpoch:]))
	h.BaseSequence = int32(binary.BigEndian.Uint32(b[atBaseSequence:]))
	h.RecordCount = int32(binary.BigEndian.Uint32(b[atRecordCount:]))
	if h.LastOffsetDelta < 0 || h.BaseOffset > math.MaxInt64-1-int64(h.LastOffsetDelta) {
		return h, headerCorrupt(b, &h)
	}
	return h, nil
}

// headerCorrupt explains an impossible last offset delta. The delta is under the checksum, so where the batch is whole its checksum tells damage in transit from a bad writer.
func headerCorrupt(b []byte, h *Header) error {
	e := &CorruptError{Offset: h.BaseOffset, Reason: fmt.Sprintf("last offset delta %d cannot be", h.LastOffsetDelta)}
	if len(b) >= h.Size() {
		e.CRC = checksum(b[:h.Size()]) != h.CRC
	}
	return e
}

// Next reads the header of the batch at the start of b and says how long that batch is; it does not check the checksum.
// ErrCut: b ends inside the batch; header and length are then what could be read (see ParseHeader; 0 if the length field was not), so that the caller can ask for that many bytes.
// Errors otherwise as ParseHeader, with length 0. An empty b gives ErrCut.
func Next(b []byte) (Header, int, error) {
	h, err := ParseHeader(b)
	switch {
	case err == nil:
		n := h.Size()
		if len(b) < n {
			err = ErrCut
		}
		return h, n, err
	case err == ErrCut && h.Length > 0:
		return h, h.Size(), err
	}
	return h, 0, err
}

// All walks whole batches that were checked before. It stops at the first one that is cut or unreadable. The slices alias b.
func All(b []byte) iter.Seq2[Header, []byte] {
	return func(yield func(Header, []byte) bool) {
		for len(b) > 0 {
			h, n, err := Next(b)
			if err != nil || !yield(h, b[:n:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// SetBaseOffset and SetLeaderEpoch write the two fields that the checksum does not cover, in place. b begins with a header.
func SetBaseOffset(b []byte, offset int64) { binary.BigEndian.PutUint64(b, uint64(offset)) }

// SetLeaderEpoch: see SetBaseOffset.
func SetLeaderEpoch(b []byte, epoch int32) {
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(epoch))
}
