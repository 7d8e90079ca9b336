package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum computes the CRC32C of one whole batch: everything from the attributes on.
func checksum(b []byte) uint32 { return crc32.Checksum(b[atAttributes:], castagnoli) }

// Seal writes the right checksum into the whole batch b, in place. For whoever changed a field that the checksum covers.
func Seal(b []byte) { binary.BigEndian.PutUint32(b[atCRC:], checksum(b)) }

// Check verifies one whole batch whose header was read by Next: CRC32C, and that header and records agree as far as that can be seen without decompressing
// (uncompressed: every record's length, strictly rising offset deltas not above the last offset delta, as many records as the header counts;
// compressed: a record count that fits). A batch emptied by compaction, with no records at all, is right. Errors: *CorruptError.
func Check(b []byte, h *Header) error {
	if len(b) < HeaderSize || len(b) != h.Size() {
		return corrupt(h, "has %d bytes, its header says %d", len(b), h.Size())
	}
	if sum := checksum(b); sum != h.CRC {
		return &CorruptError{Offset: h.BaseOffset, Reason: fmt.Sprintf("checksum is %08x, its bytes give %08x", h.CRC, sum), CRC: true}
	}
	if h.RecordCount < 0 {
		return corrupt(h, "record count %d is negative", h.RecordCount)
	}
	if int64(h.RecordCount) > int64(h.LastOffsetDelta)+1 {
		return corrupt(h, "%d records cannot have offsets up to delta %d", h.RecordCount, h.LastOffsetDelta)
	}
	switch codec := h.Codec(); {
	case codec == CodecNone:
		return checkRecords(b, h)
	case codec > CodecZstd:
		return corrupt(h, "compression codec %d is unknown", codec)
	case h.RecordCount > 0 && len(b) == HeaderSize:
		return corrupt(h, "%d records in no bytes", h.RecordCount)
	}
	return nil
}

// checkRecords walks the records of an uncompressed batch. It reads of each only what frames it: length, attributes, timestamp delta, offset delta.
func checkRecords(b []byte, h *Header) error {
	at := HeaderSize
	last := int32(-1)
	for i := int32(0); i < h.RecordCount; i++ {
		var size int32
		var next int
		// Most records have 64 to 8,191 bytes: a length of two bytes, read here because the call would cost as much as the rest of the walk.
		if at+1 < len(b) && b[at] >= 0x80 && b[at+1] < 0x80 {
			u := uint32(b[at]&0x7f) | uint32(b[at+1])<<7
			size, next = int32(u>>1)^-int32(u&1), at+2
		} else {
			size, next = varint32(b, at)
		}
		if next < 0 {
			return corrupt(h, "record %d of %d: its length cannot be read", i, h.RecordCount)
		}
		if size < 0 || int(size) > len(b)-next {
			return corrupt(h, "record %d of %d: its length %d does not fit into the batch", i, h.RecordCount, size)
		}
		end := next + int(size)
		record := b[:end]
		delta := int32(-1)
		// One byte of attributes, then the timestamp delta.
		if next = skipVarint64(record, next+1); next >= 0 {
			delta, next = varint32(record, next)
		}
		if next < 0 {
			return corrupt(h, "record %d of %d: it ends inside its fields", i, h.RecordCount)
		}
		if delta <= last {
			return corrupt(h, "record %d of %d: offset delta %d after %d", i, h.RecordCount, delta, last)
		}
		last = delta
		at = end
	}
	if last > h.LastOffsetDelta {
		return corrupt(h, "a record has offset delta %d, the header's last is %d", last, h.LastOffsetDelta)
	}
	if at != len(b) {
		return corrupt(h, "%d bytes after the last of %d records", len(b)-at, h.RecordCount)
	}
	return nil
}

func corrupt(h *Header, format string, args ...any) error {
	return &CorruptError{Offset: h.BaseOffset, Reason: fmt.Sprintf(format, args...)}
}
