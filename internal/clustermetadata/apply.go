package clustermetadata

import (
	"bytes"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// Whole is the front part of b that Apply can take: the whole batches that lie below the offset end, which is a Fetch reply's high watermark. For a snapshot's content end is the
// highest int64. What follows is a batch that is cut, not committed yet, or unreadable (then Apply says why, if it is given the rest).
func Whole(b []byte, end int64) []byte {
	n := 0
	for {
		h, size, err := batch.Next(b[n:])
		if err != nil || h.LastOffset() >= end {
			return b[:n]
		}
		n += size
	}
}

// Apply takes whole record batches of the metadata log, or of a snapshot's content, in order, and returns what changed, in order. It keeps nothing of b.
//
// Control batches only move Next on. Records below Next are left out: a fetch may begin inside a batch. Records of a metadata transaction (KIP-868) are kept back until it ends; the
// changes have their own offsets.
//
// With an error the changes are those before it. Errors: *RecordError (the image takes no more, and the next call gives the same one); *GapError, *BatchError, and those of package
// batch for bytes that are damaged or cut: these leave Next at the batch, which may be fetched again.
func (im *Image) Apply(b []byte) ([]Change, error) {
	if im.failed != nil {
		return nil, im.failed
	}
	var s changes
	for len(b) > 0 {
		h, size, err := batch.Next(b)
		if err != nil {
			return s.all, err
		}
		whole := b[:size]
		b = b[size:]
		if h.LastOffset() < im.next {
			continue
		}
		if h.BaseOffset > im.next {
			return s.all, &GapError{Next: im.next, Found: h.BaseOffset}
		}
		if err := batch.Check(whole, &h); err != nil {
			return s.all, err
		}
		if !h.Control() {
			if h.Codec() != batch.CodecNone {
				return s.all, &BatchError{Offset: h.BaseOffset, Reason: "it is compressed, which Kafka never does there"}
			}
			records, err := batch.ReadRecords(whole, &h)
			if err != nil {
				return s.all, err
			}
			for _, r := range records {
				offset := h.BaseOffset + int64(r.OffsetDelta)
				if offset < im.next {
					continue
				}
				if im.failed = im.take(r.Value, offset, &s); im.failed != nil {
					return s.all, im.failed
				}
				im.next = offset + 1
			}
		}
		im.next, im.epoch = h.NextOffset(), h.LeaderEpoch
	}
	return s.all, nil
}

// changes collects what was changed by the record, or the snapshot, at offset.
type changes struct {
	offset int64
	all    []Change
}

func (s *changes) add(c Change) {
	c.Offset = s.offset
	s.all = append(s.all, c)
}

// transaction is a metadata transaction that has begun (KIP-868): what a controller writes over several batches and readers must see as one, or not at all.
type transaction struct {
	records []kept
}

type kept struct {
	offset int64
	value  []byte
}

// take applies one record, or keeps it until its transaction ends.
func (im *Image) take(value []byte, offset int64, s *changes) error {
	rec := open(value, offset)
	switch rec.kind {
	case beginTransaction, endTransaction, abortTransaction:
		rec.tags(nil)
		if rec.end() {
			if im.transaction != nil && rec.kind == beginTransaction {
				rec.fail("a transaction is open already")
			} else if im.transaction == nil && rec.kind != beginTransaction {
				rec.fail("no transaction is open")
			}
		}
	default:
		switch {
		case rec.why != "" || im.transaction == nil:
			im.replay(rec, s)
		case rec.known():
			im.transaction.records = append(im.transaction.records, kept{offset, bytes.Clone(value)})
		}
		return rec.err()
	}
	if err := rec.err(); err != nil {
		return err
	}
	ended := im.transaction
	im.transaction = nil
	switch rec.kind {
	case beginTransaction:
		im.transaction = &transaction{}
	case endTransaction:
		for _, k := range ended.records {
			rec := open(k.value, k.offset)
			if im.replay(rec, s); rec.why != "" {
				return rec.err()
			}
		}
	}
	return nil
}
