// Package batch reads and writes the bytes of Kafka record batches (message format v2).
//
// It is the one place in this module that parses batch bytes. It never decompresses. Reading allocates nothing.
// A batch's own header says where the next batch begins (base offset + last offset delta + 1); record counts never do.
package batch

import (
	"errors"
	"fmt"
	"iter"
)

// HeaderSize is the number of bytes in front of a batch's records: from the base offset to the record count.
const HeaderSize = 61

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
func (h *Header) Size() int { return int(h.Length) + 12 }

// LastOffset is the offset of the batch's last record, also when compaction removed that record.
func (h *Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset is where the next batch may begin at the earliest.
func (h *Header) NextOffset() int64 { return h.LastOffset() + 1 }

// LastSequence is the sequence of the last record, -1 without a sequence; sequences wrap after 2^31-1 to 0.
func (h *Header) LastSequence() int32 { panic("contract") }

// Codec is the compression codec, one of the Codec constants.
func (h *Header) Codec() int8 { return int8(h.Attributes & 0x7) }

// LogAppendTime says that the broker, not the producer, set the timestamps.
func (h *Header) LogAppendTime() bool { return h.Attributes&0x08 != 0 }

// Transactional says that the batch belongs to a transaction.
func (h *Header) Transactional() bool { return h.Attributes&0x10 != 0 }

// Control says that the batch is a control batch (a transaction marker, a producer-id reset …).
func (h *Header) Control() bool { return h.Attributes&0x20 != 0 }

// ParseHeader reads the header at the start of b. Errors: ErrCut when b is shorter than the header, *FormatError, *CorruptError when the length field or a delta cannot be.
func ParseHeader(b []byte) (Header, error) { panic("contract") }

// Next reads the header of the batch at the start of b and says how long that batch is; it does not check the checksum.
// ErrCut: b ends inside the batch. Errors otherwise as ParseHeader. An empty b gives ErrCut.
func Next(b []byte) (Header, int, error) { panic("contract") }

// Check verifies one whole batch whose header was read by Next: CRC32C, and that header and records agree as far as that can be seen without decompressing
// (uncompressed: every record's length, strictly rising offset deltas not above the last offset delta, as many records as the header counts;
// compressed: a record count that fits). Errors: *CorruptError.
func Check(b []byte, h *Header) error { panic("contract") }

// All walks whole batches that were checked before. It stops at the first one that is cut or unreadable.
func All(b []byte) iter.Seq2[Header, []byte] { panic("contract") }

// SetBaseOffset and SetLeaderEpoch write the two fields that the checksum does not cover, in place.
func SetBaseOffset(b []byte, offset int64) { panic("contract") }

// SetLeaderEpoch: see SetBaseOffset.
func SetLeaderEpoch(b []byte, epoch int32) { panic("contract") }
