package batch

import "encoding/binary"

// ControlType is the kind of a control record (Kafka: ControlRecordType). 0 to 6 are Kafka's; 7 is KIP-1279's.
type ControlType int16

// The control types.
const (
	ControlAbort          ControlType = 0
	ControlCommit         ControlType = 1
	ControlLeaderChange   ControlType = 2
	ControlSnapshotHeader ControlType = 3
	ControlSnapshotFooter ControlType = 4
	ControlKRaftVersion   ControlType = 5
	ControlKRaftVoters    ControlType = 6
	ControlMirrorPIDReset ControlType = 7
)

// Control is what a control batch says.
type Control struct {
	Type             ControlType
	Version          int16
	CoordinatorEpoch int32 // of an ABORT or COMMIT; -1 otherwise, or when the value is too short to hold one
}

// ReadControl reads the first record of a control batch: a whole batch that was checked. Errors: *CorruptError, also for a batch that is no control batch
// and for a control batch that compaction emptied, which says nothing (its RecordCount is 0; ask that first).
func ReadControl(b []byte, h *Header) (Control, error) {
	if !h.Control() {
		return Control{}, corrupt(h, "is not a control batch")
	}
	if h.Codec() != CodecNone {
		return Control{}, corrupt(h, "control batch is compressed")
	}
	if h.RecordCount < 1 {
		return Control{}, corrupt(h, "control batch has no record")
	}
	key, value, ok := firstKeyValue(b)
	if !ok || len(key) < 4 {
		return Control{}, corrupt(h, "control record has no key that names its type")
	}
	c := Control{
		Version:          int16(binary.BigEndian.Uint16(key)),
		Type:             ControlType(binary.BigEndian.Uint16(key[2:])),
		CoordinatorEpoch: -1,
	}
	if c.Version < 0 {
		return Control{}, corrupt(h, "control record has version %d", c.Version)
	}
	// The value is int16 version, int32 coordinator epoch (Kafka: EndTxnMarker). Some writers leave it empty.
	if (c.Type == ControlAbort || c.Type == ControlCommit) && len(value) >= 6 {
		c.CoordinatorEpoch = int32(binary.BigEndian.Uint32(value[2:]))
	}
	return c, nil
}

// firstKeyValue reads the first record of an uncompressed batch as far as its value. It allocates nothing.
func firstKeyValue(b []byte) (key, value []byte, ok bool) {
	size, at := varint32(b, HeaderSize)
	if at < 0 || size < 0 || int(size) > len(b)-at {
		return nil, nil, false
	}
	r := b[:at+int(size)]
	if at = skipVarint64(r, at+1); at < 0 {
		return nil, nil, false
	}
	if _, at = varint32(r, at); at < 0 {
		return nil, nil, false
	}
	if key, at = nullableBytes(r, at); at < 0 {
		return nil, nil, false
	}
	value, at = nullableBytes(r, at)
	return key, value, at >= 0
}

// ControlSpec describes a control batch to build: one record, no compression, CREATE_TIME.
type ControlSpec struct {
	BaseOffset    int64
	LeaderEpoch   int32
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32 // -1 for a control batch
	Transactional bool
	Timestamp     int64 // milliseconds since the Unix epoch
	Key, Value    []byte
}

// AppendControl appends the batch to dst and returns the longer slice.
func AppendControl(dst []byte, s ControlSpec) []byte {
	attributes := int16(attributeControl)
	if s.Transactional {
		attributes |= attributeTransactional
	}
	start := len(dst)
	dst = appendHeader(dst, &Header{
		BaseOffset:    s.BaseOffset,
		LeaderEpoch:   s.LeaderEpoch,
		Attributes:    attributes,
		BaseTimestamp: s.Timestamp,
		MaxTimestamp:  s.Timestamp,
		ProducerID:    s.ProducerID,
		ProducerEpoch: s.ProducerEpoch,
		BaseSequence:  s.BaseSequence,
		RecordCount:   1,
	})
	dst = appendRecord(dst, &Record{Key: s.Key, Value: s.Value})
	finish(dst[start:])
	return dst
}
