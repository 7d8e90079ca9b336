package verify

import (
	"bytes"
	"context"
	"fmt"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/recordreader"
	"github.com/clustermirror/clustermirror/mirror"
)

// held is a record as one side or both have it.
type held struct {
	offset int64
	record *batch.Record
	lacks  int // the side that has not got it: 0 a, 1 b, both -1
}

// compared is what two batches of the same base offset, or one without a counterpart, gave.
type compared struct {
	difference *mirror.Difference // nil: none
	size       bool               // the records are too many to read
	equal      bool               // byte by byte
	records    []held             // in the order of offsets; nil if equal and not asked for
}

// decoder reads records, and compares them.
type decoder struct{ *recordreader.Reader }

func newDecoder(most int) *decoder { return &decoder{recordreader.New(most)} }

// codecBits are those of the attributes that name the compression; horizonBit is the delete horizon's (KIP-534).
const (
	codecBits  = 0x07
	horizonBit = 0x40
)

// one reads a batch that only one side has.
func (d *decoder) one(f *front, lacks int) compared {
	if err := batch.Check(f.b, &f.h); err != nil {
		return compared{difference: garbage(f, 1-lacks, err)}
	}
	records, err := d.Records(f.b, &f.h)
	if err == recordreader.ErrSize {
		return compared{size: true}
	}
	if err != nil {
		return compared{difference: garbage(f, 1-lacks, err)}
	}
	all := make([]held, len(records))
	for i := range records {
		all[i] = held{f.h.BaseOffset + int64(records[i].OffsetDelta), &records[i], lacks}
	}
	return compared{records: all}
}

func garbage(f *front, side int, err error) *mirror.Difference {
	return &mirror.Difference{Kind: mirror.DifferenceGarbage, Offset: f.h.BaseOffset, Last: f.h.LastOffset(), Detail: fmt.Sprintf("log %s: %v", names[side], err)}
}

// pair compares two batches that begin at the same offset, as the cleaner may have left them. Read means that the records are wanted also of equal ones.
func (d *decoder) pair(a, b *front, read bool) compared {
	if bytes.Equal(a.b, b.b) {
		if !read {
			return compared{equal: true}
		}
		c := d.one(a, -1)
		c.equal, c.difference = true, nil // what is the same on both sides is the same, whatever it is
		return c
	}
	for side, f := range [2]*front{a, b} {
		if err := batch.Check(f.b, &f.h); err != nil {
			diff := bytesOf(a, b)
			diff.Detail = fmt.Sprintf("log %s: %v", names[side], err)
			return compared{difference: diff}
		}
	}
	// The cleaner writes a batch anew only to take records out of it or to set its delete horizon (Kafka: MemoryRecords.filterTo).
	if original(&a.h) && original(&b.h) {
		return compared{difference: bytesOf(a, b)}
	}
	if field := lasting(&a.h, &b.h); field != "" {
		return compared{difference: headerDiffers(a, b, field)}
	}
	ra, err := d.Records(a.b, &a.h)
	rb, errB := d.Records(b.b, &b.h)
	if err == nil {
		err = errB
	}
	if err == recordreader.ErrSize {
		return compared{size: true}
	}
	if err != nil {
		diff := bytesOf(a, b)
		diff.Detail = err.Error()
		return compared{difference: diff}
	}
	c := compared{records: make([]held, 0, max(len(ra), len(rb)))}
	base, same := a.h.BaseOffset, true
	for i, j := 0, 0; i < len(ra) || j < len(rb); {
		switch {
		case j == len(rb) || i < len(ra) && ra[i].OffsetDelta < rb[j].OffsetDelta:
			c.records = append(c.records, held{base + int64(ra[i].OffsetDelta), &ra[i], 1})
			i, same = i+1, false
		case i == len(ra) || rb[j].OffsetDelta < ra[i].OffsetDelta:
			c.records = append(c.records, held{base + int64(rb[j].OffsetDelta), &rb[j], 0})
			j, same = j+1, false
		default:
			if field := recordDifference(&a.h, &ra[i], &b.h, &rb[j]); field != "" {
				return compared{difference: differs(&a.h, base+int64(ra[i].OffsetDelta), field)}
			}
			c.records = append(c.records, held{base + int64(ra[i].OffsetDelta), &ra[i], -1})
			i, j = i+1, j+1
		}
	}
	if a.h.MaxTimestamp != b.h.MaxTimestamp && !latestFits(a, ra, b, rb, same) {
		return compared{difference: headerDiffers(a, b, "max timestamp")}
	}
	return c
}

// original says that the cleaner has not written the batch anew.
func original(h *batch.Header) bool { return full(h) && !h.DeleteHorizon() }

// lasting names the first field that no cleaner changes and that differs. An emptied batch is written without compression.
func lasting(a, b *batch.Header) string {
	bits := int16(horizonBit)
	if a.RecordCount == 0 || b.RecordCount == 0 {
		bits |= codecBits
	}
	switch {
	case a.LeaderEpoch != b.LeaderEpoch:
		return "leader epoch"
	case a.Attributes&^bits != b.Attributes&^bits:
		return "attributes"
	case a.LastOffsetDelta != b.LastOffsetDelta:
		return "last offset delta"
	case a.ProducerID != b.ProducerID:
		return "producer id"
	case a.ProducerEpoch != b.ProducerEpoch:
		return "producer epoch"
	case a.BaseSequence != b.BaseSequence:
		return "base sequence"
	}
	return ""
}

func recordDifference(ha *batch.Header, a *batch.Record, hb *batch.Header, b *batch.Record) string {
	switch {
	case recordreader.Timestamp(ha, a) != recordreader.Timestamp(hb, b):
		return "timestamp"
	case !sameBytes(a.Key, b.Key):
		return "key"
	case !sameBytes(a.Value, b.Value):
		return "value"
	case len(a.Headers) != len(b.Headers):
		return "headers"
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !sameBytes(a.Headers[i].Value, b.Headers[i].Value) {
			return "headers"
		}
	}
	return ""
}

// sameBytes tells nothing from null.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// latestFits says whether the largest timestamps of two batches may differ: the cleaner sets it to that of the records that stay, and leaves it alone in a batch that it empties.
func latestFits(a *front, ra []batch.Record, b *front, rb []batch.Record, same bool) bool {
	if a.h.LogAppendTime() {
		return false
	}
	latest := func(f *front, records []batch.Record) (most int64, any bool) {
		for i := range records {
			if t := recordreader.Timestamp(&f.h, &records[i]); i == 0 || t > most {
				most = t
			}
		}
		return most, len(records) > 0
	}
	la, anyA := latest(a, ra)
	lb, anyB := latest(b, rb)
	switch {
	case anyA && anyB:
		return !same && la == a.h.MaxTimestamp && lb == b.h.MaxTimestamp
	case !anyA && !anyB:
		return true // emptied at different times; it is no record's any more
	case anyA:
		return la == a.h.MaxTimestamp
	}
	return lb == b.h.MaxTimestamp
}

// headerDiffers is a difference in a field of the batch, at the first byte of it that is another one.
func headerDiffers(a, b *front, field string) *mirror.Difference {
	d := differs(&a.h, a.h.BaseOffset, field)
	d.Byte = map[string]int{"leader epoch": 12, "attributes": 21, "last offset delta": 23, "max timestamp": 35, "producer id": 43, "producer epoch": 51, "base sequence": 53}[field]
	for a.b[d.Byte] == b.b[d.Byte] {
		d.Byte++
	}
	return d
}

// differs is a difference in a record.
func differs(h *batch.Header, offset int64, field string) *mirror.Difference {
	return &mirror.Difference{Kind: mirror.DifferenceBytes, Offset: offset, Last: h.LastOffset(), Byte: mirror.Unknown, Field: field}
}

// bytesOf is mirror.Compare's word on two batches that begin at the same offset and are not equal.
func bytesOf(a, b *front) *mirror.Difference {
	if d := compareFronts(a.b, b.b, a.h.BaseOffset, a.h.BaseOffset+1); d != nil {
		return d
	}
	return differs(&a.h, a.h.BaseOffset, "bytes")
}

// compareFronts is mirror.Compare's word on the first batches of two reads for the same offset.
func compareFronts(a, b []byte, at, to int64) *mirror.Difference {
	c, err := mirror.Compare(context.Background(), piece{at, to, a}, piece{at, to, b}, mirror.CompareOptions{})
	if err != nil {
		return &mirror.Difference{Kind: DifferenceOrder, Offset: at, Last: mirror.Unknown, Detail: err.Error()}
	}
	return c.First
}

// piece is what was read of a log.
type piece struct {
	start, end int64
	bytes      []byte
}

func (p piece) Start() int64 { return p.start }
func (p piece) End() int64   { return p.end }
func (p piece) Read(_ context.Context, from int64, _ int) ([]byte, error) {
	if from > p.start {
		return nil, nil
	}
	return p.bytes, nil
}
