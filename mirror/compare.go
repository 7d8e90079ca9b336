package mirror

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// LogReader is the reading side of a Log: every Log has it.
type LogReader interface {
	Start() int64
	End() int64
	Read(ctx context.Context, from int64, max int) ([]byte, error)
}

// CompareOptions bound a comparison. The zero value compares everything.
type CompareOptions struct {
	From, To int64 // compare [From, To) only; To 0: up to the ends
	Chunk    int   // bytes read at once from each log [1 MiB]
}

// Comparison is what Compare found. Equal is the verdict; a nil First alone only says that what both logs have is the same.
type Comparison struct {
	From, To int64       // what both logs hold: [From, To), ends as they were when the comparison began; From == To: nothing
	Batches  int64       // that are equal, before First
	Bytes    int64       // in those batches
	First    *Difference // nil: none in [From, To)
	Outside  []Outside   // what only one of the logs holds, because it starts earlier or ends later
}

// Outside is a range that only one log holds.
type Outside struct {
	In       string // "a" or "b"
	From, To int64
}

// DifferenceKind says how two logs differ at a place.
type DifferenceKind string

// The kinds of differences.
const (
	DifferenceBytes    DifferenceKind = "mismatch"       // a batch at the same offset has other bytes
	DifferenceMissingA DifferenceKind = "missing in a"   // only b has a batch there
	DifferenceMissingB DifferenceKind = "missing in b"   // only a has a batch there
	DifferenceShifted  DifferenceKind = "shifted offset" // the same batch at another offset
	DifferenceGarbage  DifferenceKind = "unreadable"     // neither log has a readable batch there
)

// Difference is the first place at which two logs differ.
type Difference struct {
	Kind   DifferenceKind
	Offset int64  // base offset of the batch (in a, unless only b has one)
	Other  int64  // shifted: the batch's base offset in b
	Last   int64  // offset of the batch's last record; Unknown if unreadable
	Byte   int    // mismatch: position of the first differing byte in the batch, from 0
	Field  string // mismatch: the header field (or "records") in which that byte lies
	Detail string // what a reader could not read, "" otherwise
}

func (d *Difference) String() string {
	if d == nil {
		return "no difference"
	}
	s := fmt.Sprintf("%s at offset %d", d.Kind, d.Offset)
	switch d.Kind {
	case DifferenceBytes:
		s = fmt.Sprintf("batch at offset %d differs in byte %d (%s)", d.Offset, d.Byte, d.Field)
	case DifferenceShifted:
		s = fmt.Sprintf("batch at offset %d in a is at offset %d in b", d.Offset, d.Other)
	case DifferenceMissingA, DifferenceMissingB:
		s = fmt.Sprintf("batch at offsets %d..%d is %s", d.Offset, d.Last, d.Kind)
	}
	if d.Detail != "" {
		s += ": " + d.Detail
	}
	return s
}

// Equal says that both logs hold the same range and the same bytes in it.
func (c Comparison) Equal() bool { return c.First == nil && len(c.Outside) == 0 }

func (c Comparison) String() string {
	var s strings.Builder
	switch {
	case c.First != nil:
		fmt.Fprintf(&s, "DIFFERENT: %s", c.First)
	case c.From == c.To && len(c.Outside) > 0:
		s.WriteString("NOTHING IN COMMON")
	case len(c.Outside) > 0:
		s.WriteString("equal where both have records")
	default:
		s.WriteString("equal")
	}
	fmt.Fprintf(&s, "; %d batches, %d bytes equal in [%d,%d)", c.Batches, c.Bytes, c.From, c.To)
	for _, o := range c.Outside {
		fmt.Fprintf(&s, "; only %s has [%d,%d)", o.In, o.From, o.To)
	}
	return s.String()
}

// Compare compares two logs batch by batch, byte by byte: bytes that no checksum covers (base offset, leader epoch) too. It stops at the first difference, and
// holds two chunks in memory, or one batch of each log if that is larger. The logs may grow meanwhile; their ends count as of the call.
// An error says that a log could not be read; the comparison up to there is returned with it.
func Compare(ctx context.Context, a, b LogReader, o CompareOptions) (Comparison, error) {
	if o.Chunk <= 0 {
		o.Chunk = 1 << 20
	}
	c := commonRange(a, b, o)
	ra, rb := batchReader{log: a, name: "a", at: c.From, chunk: o.Chunk}, batchReader{log: b, name: "b", at: c.From, chunk: o.Chunk}
	for at := c.From; at < c.To; {
		if err := ra.fill(ctx, c.To); err != nil {
			return c, err
		}
		if err := rb.fill(ctx, c.To); err != nil {
			return c, err
		}
		h, size, different := compareBatches(ra.buf, rb.buf, c.To)
		if different != nil {
			c.First = different
			return c, nil
		}
		if size == 0 {
			return c, nil // neither has a batch up to the end
		}
		if h.NextOffset() <= at {
			return c, fmt.Errorf("mirror: comparing: both logs gave the batch at %d for offset %d, which lies behind it", h.BaseOffset, at)
		}
		c.Batches, c.Bytes, at = c.Batches+1, c.Bytes+int64(size), h.NextOffset()
		ra.advance(size, at)
		rb.advance(size, at)
	}
	return c, nil
}

func commonRange(a, b LogReader, o CompareOptions) Comparison {
	window := func(log LogReader) (from, to int64) {
		from, to = log.Start(), log.End()
		from = max(from, o.From)
		if o.To > 0 {
			to = min(to, o.To)
		}
		return from, max(from, to)
	}
	af, at := window(a)
	bf, bt := window(b)
	c := Comparison{From: max(af, bf), To: min(at, bt)}
	outside := func(in string, from, to int64) {
		if from < to {
			c.Outside = append(c.Outside, Outside{in, from, to})
		}
	}
	if c.To <= c.From {
		c.To = c.From
		outside("a", af, at)
		outside("b", bf, bt)
		return c
	}
	outside("a", af, bf)
	outside("b", bf, af)
	outside("a", bt, at)
	outside("b", at, bt)
	return c
}

// batchReader reads a log in chunks.
type batchReader struct {
	log   LogReader
	name  string
	at    int64 // where buf ends if it is empty
	chunk int
	buf   []byte
}

func (r *batchReader) fill(ctx context.Context, to int64) (err error) {
	if len(r.buf) > 0 || r.at >= to {
		return nil
	}
	if r.buf, err = r.log.Read(ctx, r.at, r.chunk); err != nil {
		return fmt.Errorf("mirror: comparing: reading log %s at offset %d: %w", r.name, r.at, err)
	}
	return nil
}

func (r *batchReader) advance(size int, next int64) { r.buf, r.at = r.buf[size:], next }

// compareBatches compares the batches at the beginning of a and b. Equal ones: the header and the size. Nothing on either side below to: size 0.
func compareBatches(a, b []byte, to int64) (batch.Header, int, *Difference) {
	ha, na, errA := batch.Next(a)
	hb, nb, errB := batch.Next(b)
	haveA, haveB := len(a) > 0, len(b) > 0
	switch {
	case !haveA && !haveB:
		return ha, 0, nil
	case haveA && errA != nil && (!haveB || errB != nil):
		return ha, 0, &Difference{Kind: DifferenceGarbage, Offset: rawBase(a), Last: Unknown, Detail: "log a: " + errA.Error()}
	case haveB && errB != nil && !haveA:
		return hb, 0, &Difference{Kind: DifferenceGarbage, Offset: rawBase(b), Last: Unknown, Detail: "log b: " + errB.Error()}
	case errA != nil && haveA:
		d := byteDifference(b[:nb], a, &hb)
		d.Detail = "log a: " + errA.Error()
		return hb, 0, d
	case errB != nil && haveB:
		d := byteDifference(a[:na], b, &ha)
		d.Detail = "log b: " + errB.Error()
		return ha, 0, d
	case !haveA:
		if hb.BaseOffset >= to {
			return hb, 0, nil
		}
		return hb, 0, &Difference{Kind: DifferenceMissingA, Offset: hb.BaseOffset, Last: hb.LastOffset()}
	case !haveB:
		if ha.BaseOffset >= to {
			return ha, 0, nil
		}
		return ha, 0, &Difference{Kind: DifferenceMissingB, Offset: ha.BaseOffset, Last: ha.LastOffset()}
	}
	if ha.BaseOffset >= to && hb.BaseOffset >= to {
		return ha, 0, nil
	}
	if ha.BaseOffset == hb.BaseOffset {
		if string(a[:na]) == string(b[:nb]) {
			return ha, na, nil
		}
		return ha, 0, byteDifference(a[:na], b, &ha)
	}
	if string(a[8:na]) == string(b[8:nb]) {
		return ha, 0, &Difference{Kind: DifferenceShifted, Offset: ha.BaseOffset, Other: hb.BaseOffset, Last: ha.LastOffset()}
	}
	if ha.BaseOffset < hb.BaseOffset {
		return ha, 0, &Difference{Kind: DifferenceMissingB, Offset: ha.BaseOffset, Last: ha.LastOffset()}
	}
	return hb, 0, &Difference{Kind: DifferenceMissingA, Offset: hb.BaseOffset, Last: hb.LastOffset()}
}

// byteDifference finds the first byte of the whole batch that is another one in other.
func byteDifference(whole, other []byte, h *batch.Header) *Difference {
	d := &Difference{Kind: DifferenceBytes, Offset: h.BaseOffset, Last: h.LastOffset(), Byte: min(len(whole), len(other))}
	for i := range d.Byte {
		if whole[i] != other[i] {
			d.Byte = i
			break
		}
	}
	d.Field = fieldAt(d.Byte)
	return d
}

func rawBase(b []byte) int64 {
	if len(b) < 8 {
		return Unknown
	}
	return int64(binary.BigEndian.Uint64(b))
}

// fieldAt names what lies at a byte of a batch (message format v2).
func fieldAt(i int) string {
	for _, f := range []struct {
		end  int
		name string
	}{
		{8, "base offset"}, {12, "length"}, {16, "leader epoch"}, {17, "magic"}, {21, "checksum"}, {23, "attributes"}, {27, "last offset delta"}, {35, "base timestamp"},
		{43, "max timestamp"}, {51, "producer id"}, {53, "producer epoch"}, {57, "base sequence"}, {61, "record count"},
	} {
		if i < f.end {
			return f.name
		}
	}
	return "records"
}
