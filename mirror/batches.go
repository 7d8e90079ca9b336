package mirror

import (
	"fmt"
	"iter"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// BatchInfo is what a batch's header says: the one public view of batch bytes, for whoever implements a Log.
type BatchInfo struct {
	Base          int64 // offset of the first record
	Last          int64 // offset of the last record, from the header (also when compaction took that record)
	LeaderEpoch   int32
	ProducerID    int64 // −1: not idempotent
	ProducerEpoch int16
	Control       bool
	Transactional bool
	MaxTimestamp  int64 // milliseconds since the Unix epoch
	Records       int32
}

// Next is the offset after the batch.
func (b BatchInfo) Next() int64 { return b.Last + 1 }

// Batches walks whole batches: what Append receives and Read returns. It stops at bytes that are not a whole batch, so the sum of the lengths yielded
// is the length of the intact prefix: a Log that recovers a file cuts there (CheckBatch tells whether a batch's bytes are intact).
func Batches(b []byte) iter.Seq2[BatchInfo, []byte] {
	return func(yield func(BatchInfo, []byte) bool) {
		for len(b) > 0 {
			h, n, err := batch.Next(b)
			if err != nil || !yield(info(&h), b[:n:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// CheckBatch verifies one whole batch: length, checksum, header against records.
func CheckBatch(b []byte) error {
	h, n, err := batch.Next(b)
	if err != nil {
		return err
	}
	return batch.Check(b[:n], &h)
}

func info(h *batch.Header) BatchInfo {
	return BatchInfo{
		Base: h.BaseOffset, Last: h.LastOffset(), LeaderEpoch: h.LeaderEpoch, ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch,
		Control: h.Control(), Transactional: h.Transactional(), MaxTimestamp: h.MaxTimestamp, Records: h.RecordCount,
	}
}

// Kind says what a whole batch is, for tables and messages: "data", or the control record in it: "ABORT", "COMMIT", "MIRROR_PID_RESET", "control 2" for another type.
func Kind(b []byte) string {
	h, n, err := batch.Next(b)
	if err != nil {
		return "unreadable"
	}
	if !h.Control() {
		return "data"
	}
	c, err := batch.ReadControl(b[:n], &h)
	if err != nil {
		return "unreadable"
	}
	switch c.Type {
	case batch.ControlAbort:
		return "ABORT"
	case batch.ControlCommit:
		return "COMMIT"
	case batch.ControlMirrorPIDReset:
		return "MIRROR_PID_RESET"
	}
	return fmt.Sprintf("control %d", c.Type)
}
