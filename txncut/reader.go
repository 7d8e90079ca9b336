package txncut

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/producerstate"
)

// Reader finds the pieces in one partition's copy. Not safe for concurrent use. Its memory is what it found: a piece for each transaction that is open, or whose marker was read.
type Reader struct {
	next    int64
	decided []Piece         // in order of MarkerOffset
	open    map[int64]Piece // by producer id
}

// NewReader returns a reader for the part of a log that begins at from, which may lie inside a batch. inFlight are the transactions open there
// (producerstate.Manager.InFlight when Next was from). Without them the data below from are not known, and a COMMIT of nothing but such data is passed over.
func NewReader(from int64, inFlight ...producerstate.Transaction) *Reader {
	r := &Reader{next: from, open: make(map[int64]Piece, len(inFlight))}
	for _, t := range inFlight {
		r.open[t.ProducerID] = Piece{
			ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch, FirstOffset: t.FirstOffset, LastOffset: t.LastOffset, FirstTimestamp: t.FirstTimestamp,
			MarkerOffset: -1, MarkerEpoch: -1, MarkerTimestamp: -1,
		}
	}
	return r
}

// Observe reads whole, checked batches in log order (mirror.Log.Read gives them so). How the log is cut into calls makes no difference; a batch that ends at or below Next is known and
// passed over; offsets may have gaps. The bytes are not kept.
//
//   - A transactional batch begins a piece or adds to its producer's open one. One that compaction emptied holds nothing of a transaction: only what is decided is ever compacted.
//   - An ABORT or COMMIT ends its producer's open piece, whatever its epoch. With nothing open it is passed over: the transaction had this partition and wrote nothing here,
//     or its data are compacted away or lie below the reader's beginning.
//   - The ABORT that a mirror wrote when it was stopped is one like any other. It lies at or above the LMO of that stop, so where it is not to count, End is that LMO.
//   - MIRROR_PID_RESET ends no transaction (spec §5): what is open behind it stays open until its marker.
//   - Control batches that compaction emptied, other control types, markers without a producer and data outside a transaction say nothing.
//
// Errors: *batch.CorruptError for a control batch that cannot be read, what batch.Next says of bytes that are no whole batch. Batches before the bad one are applied.
func (r *Reader) Observe(batches []byte) error {
	for len(batches) > 0 {
		h, n, err := batch.Next(batches)
		if err != nil {
			return fmt.Errorf("transactions at %d: %w", r.next, err)
		}
		if h.NextOffset() > r.next {
			if err := r.observe(batches[:n], &h); err != nil {
				return fmt.Errorf("transactions at %d: %w", r.next, err)
			}
			r.next = h.NextOffset()
		}
		batches = batches[n:]
	}
	return nil
}

func (r *Reader) observe(b []byte, h *batch.Header) error {
	switch {
	case h.RecordCount <= 0:
	case h.Control():
		c, err := batch.ReadControl(b, h)
		if err != nil {
			return err
		}
		switch c.Type {
		case batch.ControlCommit:
			r.marker(h, Committed)
		case batch.ControlAbort:
			r.marker(h, Aborted)
		}
	case h.Transactional() && h.ProducerID >= 0:
		r.data(h)
	}
	return nil
}

func (r *Reader) data(h *batch.Header) {
	p, known := r.open[h.ProducerID]
	if !known {
		p = Piece{
			ProducerID: h.ProducerID, FirstOffset: h.BaseOffset, FirstTimestamp: firstTimestamp(h),
			MarkerOffset: -1, MarkerEpoch: -1, MarkerTimestamp: -1,
		}
	}
	p.ProducerEpoch = h.ProducerEpoch
	p.LastOffset = h.LastOffset()
	r.open[h.ProducerID] = p
}

// firstTimestamp is the time of a batch's first record: the base timestamp, unless the broker's time is what counts, or compaction wrote something else there (KIP-534).
func firstTimestamp(h *batch.Header) int64 {
	switch {
	case h.LogAppendTime():
		return h.MaxTimestamp
	case h.DeleteHorizon():
		return -1
	}
	return h.BaseTimestamp
}

func (r *Reader) marker(h *batch.Header, outcome Outcome) {
	p, known := r.open[h.ProducerID]
	if !known {
		return
	}
	delete(r.open, h.ProducerID)
	p.Outcome = outcome
	p.MarkerOffset, p.MarkerEpoch, p.MarkerTimestamp = h.BaseOffset, h.ProducerEpoch, h.MaxTimestamp
	r.decided = append(r.decided, p)
}

// Next is the offset behind the last batch that was read, or NewReader's from.
func (r *Reader) Next() int64 { return r.next }

// Pieces lists what was found, in order of first offset. The slice is the caller's.
func (r *Reader) Pieces() []Piece {
	all := slices.Clone(r.decided)
	for _, p := range r.open {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.FirstOffset, b.FirstOffset), cmp.Compare(a.ProducerID, b.ProducerID))
	})
	return all
}
