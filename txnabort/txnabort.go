// Package txnabort builds the batches that end a mirror: an ABORT marker for each open transaction, and the MIRROR_PID_RESET control batch (KIP-1279, STOPPING).
package txnabort

import "github.com/clustermirror/clustermirror/producerstate"

// Abort is the marker that closes t: same producer id and epoch, coordinator epoch as last known (0 if unknown), at offset, under leaderEpoch. Timestamp in milliseconds.
func Abort(offset int64, leaderEpoch int32, t producerstate.Transaction, timestamp int64) []byte {
	panic("contract")
}

// PIDReset is the batch after which no producer from before it is known (spec §5).
func PIDReset(offset int64, leaderEpoch int32, timestamp int64) []byte { panic("contract") }

// IsPIDReset says whether the whole batch b is a MIRROR_PID_RESET.
func IsPIDReset(b []byte) bool { panic("contract") }
