// Package txnabort builds the batches that end a mirror: an ABORT marker for each open transaction, and the MIRROR_PID_RESET control batch (KIP-1279, STOPPING).
//
// The functions are pure: offset, leader epoch and time are arguments, and equal arguments give equal bytes. They may be called concurrently.
package txnabort

import (
	"encoding/binary"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/producerstate"
)

// Abort is the marker that closes t: same producer id and epoch, coordinator epoch as last known (0 if unknown), at offset, under leaderEpoch. Timestamp in milliseconds.
// It is one whole batch with one record (Kafka: EndTransactionMarker); the slice is the caller's.
func Abort(offset int64, leaderEpoch int32, t producerstate.Transaction, timestamp int64) []byte {
	value := make([]byte, 0, 6)
	value = binary.BigEndian.AppendUint16(value, 0) // version
	value = binary.BigEndian.AppendUint32(value, uint32(max(t.CoordinatorEpoch, 0)))
	return batch.AppendControl(nil, batch.ControlSpec{
		BaseOffset:    offset,
		LeaderEpoch:   leaderEpoch,
		ProducerID:    t.ProducerID,
		ProducerEpoch: t.ProducerEpoch,
		BaseSequence:  -1,
		Transactional: true,
		Timestamp:     timestamp,
		Key:           controlKey(batch.ControlAbort),
		Value:         value,
	})
}

// PIDReset is the batch after which no producer from before it is known (spec §5). Timestamp in milliseconds. The slice is the caller's.
func PIDReset(offset int64, leaderEpoch int32, timestamp int64) []byte {
	return batch.AppendControl(nil, batch.ControlSpec{
		BaseOffset:    offset,
		LeaderEpoch:   leaderEpoch,
		ProducerID:    -1,
		ProducerEpoch: -1,
		BaseSequence:  -1,
		Timestamp:     timestamp,
		Key:           controlKey(batch.ControlMirrorPIDReset),
		Value:         []byte{0, 0, 0}, // MirrorPidResetRecord v0, a flexible version: int16 version, no tagged fields
	})
}

// IsPIDReset says whether the whole batch b is a MIRROR_PID_RESET, of whatever version. Bytes that are not one whole batch are not.
// The checksum is not looked at.
func IsPIDReset(b []byte) bool {
	h, n, err := batch.Next(b)
	if err != nil || n != len(b) || !h.Control() {
		return false
	}
	c, err := batch.ReadControl(b, &h)
	return err == nil && c.Type == batch.ControlMirrorPIDReset
}

// controlKey is a control record's key: int16 version 0, int16 type.
func controlKey(t batch.ControlType) []byte {
	return binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(t))
}
