package batch

import "encoding/binary"

// Record is one record to write into a data batch, or one read from an uncompressed batch. Slices alias the batch they were read from.
type Record struct {
	OffsetDelta    int32
	TimestampDelta int64
	Key, Value     []byte // nil is Kafka's null
	Headers        []RecordHeader
}

// RecordHeader is one header of a record.
type RecordHeader struct {
	Key   string
	Value []byte
}

// DataSpec describes an uncompressed data batch to build (mirror/kafkastore, tests, harnesses, memlog's own clients).
type DataSpec struct {
	BaseOffset      int64
	LeaderEpoch     int32
	LastOffsetDelta int32 // 0 with records: the last record's delta; set it to keep a hole at the end
	ProducerID      int64 // -1: not idempotent; epoch and sequence are then written as -1, as every producer does
	ProducerEpoch   int16
	BaseSequence    int32
	Transactional   bool
	LogAppendTime   bool
	BaseTimestamp   int64
	MaxTimestamp    int64 // 0: computed from the records
	Records         []Record
}

// AppendData appends the batch to dst and returns the longer slice. Records must have rising offset deltas; that is not checked, so that tests can build what Check refuses.
func AppendData(dst []byte, s DataSpec) []byte {
	h := Header{
		BaseOffset:      s.BaseOffset,
		LeaderEpoch:     s.LeaderEpoch,
		LastOffsetDelta: s.LastOffsetDelta,
		BaseTimestamp:   s.BaseTimestamp,
		MaxTimestamp:    s.MaxTimestamp,
		ProducerID:      s.ProducerID,
		ProducerEpoch:   s.ProducerEpoch,
		BaseSequence:    s.BaseSequence,
		RecordCount:     int32(len(s.Records)),
	}
	if s.Transactional {
		h.Attributes |= attributeTransactional
	}
	if s.LogAppendTime {
		h.Attributes |= attributeLogAppendTime
	}
	if s.ProducerID < 0 {
		h.ProducerEpoch, h.BaseSequence = -1, -1
	}
	if len(s.Records) > 0 && h.LastOffsetDelta == 0 {
		h.LastOffsetDelta = s.Records[len(s.Records)-1].OffsetDelta
	}
	if h.MaxTimestamp == 0 {
		h.MaxTimestamp = s.BaseTimestamp
		for i := range s.Records {
			if t := s.BaseTimestamp + s.Records[i].TimestampDelta; i == 0 || t > h.MaxTimestamp {
				h.MaxTimestamp = t
			}
		}
	}
	start := len(dst)
	dst = appendHeader(dst, &h)
	for i := range s.Records {
		dst = appendRecord(dst, &s.Records[i])
	}
	finish(dst[start:])
	return dst
}

// appendHeader writes all but length and checksum, which finish knows.
func appendHeader(dst []byte, h *Header) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.BaseOffset))
	dst = binary.BigEndian.AppendUint32(dst, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.LeaderEpoch))
	dst = append(dst, 2)
	dst = binary.BigEndian.AppendUint32(dst, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Attributes))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.LastOffsetDelta))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.BaseTimestamp))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.MaxTimestamp))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.ProducerID))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.ProducerEpoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.BaseSequence))
	return binary.BigEndian.AppendUint32(dst, uint32(h.RecordCount))
}

// finish completes the one batch b.
func finish(b []byte) {
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-beforeLength))
	Seal(b)
}

func appendRecord(dst []byte, r *Record) []byte {
	size := 1 + varintSize(r.TimestampDelta) + varintSize(int64(r.OffsetDelta)) +
		bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		n := len(r.Headers[i].Key)
		size += varintSize(int64(n)) + n + bytesSize(r.Headers[i].Value)
	}
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0) // attributes: none are defined
	dst = binary.AppendVarint(dst, r.TimestampDelta)
	dst = binary.AppendVarint(dst, int64(r.OffsetDelta))
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		dst = binary.AppendVarint(dst, int64(len(r.Headers[i].Key)))
		dst = append(dst, r.Headers[i].Key...)
		dst = appendBytes(dst, r.Headers[i].Value)
	}
	return dst
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

// minRecordSize is the size of a record whose seven fields take one byte each.
const minRecordSize = 7

// ReadRecords reads the records of an uncompressed batch (a control batch too). b is one whole batch; its checksum is not looked at. Errors: *CorruptError, also for a compressed batch.
func ReadRecords(b []byte, h *Header) ([]Record, error) {
	if h.Codec() != CodecNone {
		return nil, corrupt(h, "is compressed with codec %d", h.Codec())
	}
	if len(b) < HeaderSize || len(b) != h.Size() {
		return nil, corrupt(h, "has %d bytes, its header says %d", len(b), h.Size())
	}
	if h.RecordCount < 0 || int(h.RecordCount) > (len(b)-HeaderSize)/minRecordSize {
		return nil, corrupt(h, "%d records cannot be in %d bytes", h.RecordCount, len(b)-HeaderSize)
	}
	records := make([]Record, h.RecordCount)
	at := HeaderSize
	for i := range records {
		size, next := varint32(b, at)
		if next < 0 || size < 0 || int(size) > len(b)-next {
			return nil, corrupt(h, "record %d of %d: its length does not fit into the batch", i, h.RecordCount)
		}
		at = next + int(size)
		if end := readRecord(b[:at], next, &records[i]); end != at {
			return nil, corrupt(h, "record %d of %d: its fields do not fill its length", i, h.RecordCount)
		}
	}
	if at != len(b) {
		return nil, corrupt(h, "%d bytes after the last of %d records", len(b)-at, h.RecordCount)
	}
	return records, nil
}

// readRecord reads the record that begins at b[at:] after its length and says where it ends, -1 if it cannot be read.
func readRecord(b []byte, at int, r *Record) int {
	if r.TimestampDelta, at = varint64(b, at+1); at < 0 {
		return -1
	}
	if r.OffsetDelta, at = varint32(b, at); at < 0 {
		return -1
	}
	if r.Key, at = nullableBytes(b, at); at < 0 {
		return -1
	}
	if r.Value, at = nullableBytes(b, at); at < 0 {
		return -1
	}
	n, at := varint32(b, at)
	if at < 0 || n < 0 || int(n) > (len(b)-at)/2 { // a header takes two bytes at least
		return -1
	}
	if n == 0 {
		return at
	}
	r.Headers = make([]RecordHeader, n)
	for i := range r.Headers {
		var key []byte
		if key, at = nullableBytes(b, at); at < 0 || key == nil {
			return -1
		}
		r.Headers[i].Key = string(key)
		if r.Headers[i].Value, at = nullableBytes(b, at); at < 0 {
			return -1
		}
	}
	return at
}

// nullableBytes reads a length and that many bytes; nil where the length says null. Writers say it with -1; any negative length is read so (Kafka: DefaultRecord).
func nullableBytes(b []byte, at int) ([]byte, int) {
	n, at := varint32(b, at)
	switch {
	case at < 0 || int(n) > len(b)-at:
		return nil, -1
	case n < 0:
		return nil, at
	}
	end := at + int(n)
	return b[at:end:end], end
}
