package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
)

// withRecords is a batch with these bytes behind its header, sealed, that counts n records.
func withRecords(records []byte, n, lastDelta int32, attributes int16) ([]byte, Header) {
	b := appendHeader(nil, &Header{BaseOffset: 7, Attributes: attributes, LastOffsetDelta: lastDelta, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, RecordCount: n})
	b = append(b, records...)
	finish(b)
	h, size, err := Next(b)
	if err != nil || size != len(b) {
		panic(fmt.Sprint(size, err))
	}
	return b, h
}

// fields is a record's body with each of its fields written out.
func fields(timestamp, offset int64, key, value []byte, headers ...RecordHeader) [][]byte {
	number := func(v int64) []byte { return binary.AppendVarint(nil, v) }
	text := func(b []byte) []byte { return appendBytes(nil, b) }
	all := [][]byte{{0}, number(timestamp), number(offset), text(key), text(value), number(int64(len(headers)))}
	for _, h := range headers {
		all = append(all, text([]byte(h.Key)), text(h.Value))
	}
	return all
}

func record(body []byte) []byte { return append(binary.AppendVarint(nil, int64(len(body))), body...) }

// TestRecordsThatEndInsideTheirFields cuts a record at each of its bytes, with a length that says so, behind one that is whole and in front of another: what of it is missing is never taken from the next one.
func TestRecordsThatEndInsideTheirFields(t *testing.T) {
	whole := record(bytes.Join(fields(1, 0, nil, []byte("v")), nil))
	next := record(bytes.Join(fields(3, 2, []byte("key"), []byte("value")), nil))
	for name, parts := range map[string][][]byte{
		"key, value and headers": fields(math.MaxInt32*9, 1, []byte("key"), []byte("value"), RecordHeader{"a", []byte("x")}, RecordHeader{"b", nil}),
		"nothing":                fields(2, 1, nil, nil),
		"one long field":         fields(-1, 1, bytes.Repeat([]byte("k"), 70), nil),
	} {
		body := bytes.Join(parts, nil)
		frame := len(parts[0]) + len(parts[1]) + len(parts[2])
		for cut := range len(body) + 1 {
			b, h := withRecords(slices.Concat(whole, record(body[:cut]), next), 3, 2, 0)
			records, err := ReadRecords(b, &h)
			if cut == len(body) {
				if err != nil || len(records) != 3 || records[1].OffsetDelta != 1 || records[2].OffsetDelta != 2 || string(records[2].Value) != "value" {
					t.Errorf("%s, whole: %+v, %v", name, records, err)
				}
				continue
			}
			var damaged *CorruptError
			if !errors.As(err, &damaged) || records != nil {
				t.Errorf("%s, cut at %d of %d: read as %+v, %v", name, cut, len(body), records, err)
			}
			if err := Check(b, &h); cut < frame && !errors.As(err, &damaged) {
				t.Errorf("%s, cut at %d of %d: Check says %v", name, cut, len(body), err)
			}
		}
	}
}

// TestRecordsWithMoreThanTheirFields: a record is longer than its fields, a batch than its records, a length than the batch.
func TestRecordsWithMoreThanTheirFields(t *testing.T) {
	body := bytes.Join(fields(1, 0, []byte("k"), []byte("v")), nil)
	for name, c := range map[string]struct {
		records []byte
		count   int32
	}{
		"a byte behind the fields":      {record(append(slices.Clone(body), 0)), 1},
		"a byte behind the records":     {append(record(body), 0), 1},
		"a length beyond the batch":     {append(binary.AppendVarint(nil, int64(len(body)+1)), body...), 1},
		"a negative length":             {append(binary.AppendVarint(nil, -1), body...), 1},
		"a length of too many bytes":    {append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 1}, body...), 1},
		"a length that is cut":          {[]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80}, 1},
		"more records than fit":         {slices.Repeat([]byte{0}, 13), 2},
		"no bytes for a record":         {nil, 1},
		"a negative number of records":  {nil, -1},
		"a negative number of headers":  {record(slices.Concat(body[:len(body)-1], binary.AppendVarint(nil, -1))), 1},
		"more headers than fit":         {record(slices.Concat(body[:len(body)-1], binary.AppendVarint(nil, 3), []byte{0, 1, 0, 1, 0})), 1},
		"a header without a key":        {record(slices.Concat(body[:len(body)-1], binary.AppendVarint(nil, 1), []byte{1, 1})), 1},
		"a key of too many bytes":       {record(slices.Concat(body[:3], binary.AppendVarint(nil, 60), body[4:])), 1},
		"a timestamp of eleven bytes":   {record(slices.Concat(body[:1], bytes.Repeat([]byte{0x80}, 10), []byte{0}, body[2:])), 1},
		"an offset delta of six bytes":  {record(slices.Concat(body[:2], bytes.Repeat([]byte{0x80}, 5), []byte{0}, body[3:])), 1},
		"an offset delta of 33 bits":    {record(slices.Concat(body[:2], []byte{0x80, 0x80, 0x80, 0x80, 0x10}, body[3:])), 1},
		"one record less than is there": {slices.Concat(record(body), record(bytes.Join(fields(1, 1, nil, nil), nil))), 1},
	} {
		b, h := withRecords(c.records, c.count, 5, 0)
		var damaged *CorruptError
		if records, err := ReadRecords(b, &h); !errors.As(err, &damaged) || records != nil {
			t.Errorf("%s: read as %+v, %v", name, records, err)
		}
	}
	b, h := withRecords(record(body), 1, 0, 0)
	if records, err := ReadRecords(b[:len(b)-1], &h); err == nil {
		t.Errorf("a batch without its last byte: %+v", records)
	}
	if err := Check(append(slices.Clone(b), 0), &h); err == nil {
		t.Error("a batch with a byte behind it passes")
	}
}

// TestRecordsRoundTrip writes records of all lengths that take another number of bytes to say, and reads them.
func TestRecordsRoundTrip(t *testing.T) {
	var records []Record
	for i, n := range []int{0, 1, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 8193} {
		records = append(records, Record{OffsetDelta: int32(i * 3), TimestampDelta: int64(n) << 30, Key: bytes.Repeat([]byte{'k'}, n), Value: nil},
			Record{OffsetDelta: int32(i*3 + 1), TimestampDelta: -int64(n), Value: bytes.Repeat([]byte{'v'}, n), Headers: []RecordHeader{{"", nil}, {"h", bytes.Repeat([]byte{'x'}, n)}}})
	}
	for _, cut := range []int{len(records), 1, 2, 0} {
		b := AppendData(nil, DataSpec{BaseOffset: 100, ProducerID: -1, BaseTimestamp: 50, Records: records[:cut]})
		h, size, err := Next(b)
		if err != nil || size != len(b) || h.RecordCount != int32(cut) {
			t.Fatalf("%d records: %+v, %d of %d, %v", cut, h, size, len(b), err)
		}
		if err := Check(b, &h); err != nil {
			t.Errorf("%d records: %v", cut, err)
		}
		got, err := ReadRecords(b, &h)
		if err != nil || len(got) != cut || cut > 0 && !reflect.DeepEqual(got, records[:cut]) {
			t.Errorf("%d records come back as %d, %v", cut, len(got), err)
		}
		if cut > 0 && h.LastOffsetDelta != records[cut-1].OffsetDelta {
			t.Errorf("last offset delta %d, want %d", h.LastOffsetDelta, records[cut-1].OffsetDelta)
		}
	}
	if h, _, _ := Next(AppendData(nil, DataSpec{ProducerID: -1, LastOffsetDelta: 9, Records: records[:1]})); h.LastOffsetDelta != 9 {
		t.Errorf("a hole at the end is lost: last offset delta %d", h.LastOffsetDelta)
	}
	if h, _, _ := Next(AppendData(nil, DataSpec{ProducerID: -1, BaseTimestamp: 50, Records: []Record{{TimestampDelta: -20}, {OffsetDelta: 1, TimestampDelta: -5}, {OffsetDelta: 2, TimestampDelta: -9}}})); h.MaxTimestamp != 45 {
		t.Errorf("newest timestamp %d, want 45", h.MaxTimestamp)
	}
}

// TestNumbersAgreeWithEncodingBinary reads every string of up to three of the bytes that matter, and long ones of each length, as Go's own reader does, except that a number of 32 bits has at most five bytes.
func TestNumbersAgreeWithEncodingBinary(t *testing.T) {
	var all [][]byte
	some := []byte{0, 1, 2, 0x0f, 0x10, 0x7e, 0x7f, 0x80, 0x81, 0xfe, 0xff}
	for _, a := range some {
		all = append(all, []byte{a})
		for _, b := range some {
			all = append(all, []byte{a, b})
			for _, c := range some {
				all = append(all, []byte{a, b, c})
				for n := 1; n < 9; n++ {
					all = append(all, slices.Concat([]byte{a | 0x80}, bytes.Repeat([]byte{b | 0x80}, n), []byte{c}))
				}
			}
		}
	}
	for _, b := range all {
		for _, at := range []int{0, 2} {
			text := append(make([]byte, at), b...)
			want, n := binary.Varint(b)
			end := at + n
			if n <= 0 {
				want, end = 0, -1
			}
			if got, at := varint64(text, at); got != want || at != end {
				t.Errorf("% x: %d up to %d, want %d up to %d", b, got, at, want, end)
			}
			if got := skipVarint64(text, at); end >= 0 && got != end {
				t.Errorf("% x: ends at %d, want %d", b, got, end)
			}
			if u, n := binary.Uvarint(b); n > 5 || u > math.MaxUint32 {
				want, end = 0, -1
			}
			if got, at := varint32(text, at); int64(got) != want || at != end {
				t.Errorf("% x: 32 bits: %d up to %d, want %d up to %d", b, got, at, want, end)
			}
		}
	}
	for _, at := range []int{3, 4} {
		if v, end := varint64([]byte{1, 1, 1}, at); v != 0 || end != -1 {
			t.Errorf("behind the end: %d, %d", v, end)
		}
		if v, end := varint32([]byte{1, 1, 1}, at); v != 0 || end != -1 {
			t.Errorf("32 bits behind the end: %d, %d", v, end)
		}
		if end := skipVarint64([]byte{1, 1, 1}, at); end != -1 {
			t.Errorf("behind the end: %d", end)
		}
	}
}

// TestControlRecordsThatAreCut: a control record whose fields end too early says nothing, and a batch that is none, is compressed or is empty neither (Kafka: ControlRecordType, EndTransactionMarker).
func TestControlRecordsThatAreCut(t *testing.T) {
	key, value := []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 9}
	body := bytes.Join(fields(0, 0, key, value), nil)
	complete := len(body) - 1 // the number of headers is not looked at
	for cut := range len(body) + 1 {
		b, h := withRecords(record(body[:cut]), 1, 0, attributeControl)
		c, err := ReadControl(b, &h)
		if cut >= complete {
			if want := (Control{Type: ControlCommit, CoordinatorEpoch: 9}); err != nil || c != want {
				t.Errorf("cut at %d: %+v, %v", cut, c, err)
			}
			continue
		}
		var damaged *CorruptError
		if !errors.As(err, &damaged) || c != (Control{}) {
			t.Errorf("cut at %d of %d: %+v, %v", cut, len(body), c, err)
		}
	}
	for name, c := range map[string]struct {
		records    []byte
		count      int32
		attributes int16
	}{
		"no control batch":   {record(body), 1, 0},
		"compressed":         {record(body), 1, attributeControl | 1},
		"without a record":   {nil, 0, attributeControl},
		"a short key":        {record(bytes.Join(fields(0, 0, key[:3], value), nil)), 1, attributeControl},
		"no key":             {record(bytes.Join(fields(0, 0, nil, value), nil)), 1, attributeControl},
		"a negative version": {record(bytes.Join(fields(0, 0, []byte{0xff, 0xff, 0, 1}, value), nil)), 1, attributeControl},
	} {
		b, h := withRecords(c.records, c.count, 0, c.attributes)
		var damaged *CorruptError
		if got, err := ReadControl(b, &h); !errors.As(err, &damaged) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for short := range len(value) {
		b, h := withRecords(record(bytes.Join(fields(0, 0, key, value[:short]), nil)), 1, 0, attributeControl)
		if c, err := ReadControl(b, &h); err != nil || c.CoordinatorEpoch != -1 || c.Type != ControlCommit {
			t.Errorf("a value of %d bytes: %+v, %v", short, c, err)
		}
	}
}

// TestEachAttributeIsItsOwnBit (Kafka: DefaultRecordBatch): compression in bits 0 to 2, then timestamp type, transactional, control, delete horizon.
func TestEachAttributeIsItsOwnBit(t *testing.T) {
	for bit := range 16 {
		h := &Header{Attributes: int16(uint16(1) << bit)}
		got := []bool{h.Codec() != CodecNone, h.LogAppendTime(), h.Transactional(), h.Control(), h.DeleteHorizon()}
		want := []bool{bit < 3, bit == 3, bit == 4, bit == 5, bit == 6}
		if !slices.Equal(got, want) {
			t.Errorf("bit %d: compressed, log append time, transactional, control, delete horizon are %v", bit, got)
		}
	}
}

// TestHeadersThatCannotBe: what of a header can be read is returned beside the error, so that whoever reports it can say where.
func TestHeadersThatCannotBe(t *testing.T) {
	good := AppendData(nil, DataSpec{BaseOffset: 42, ProducerID: -1, Records: []Record{{Value: []byte("v")}}})
	change := func(f func(b []byte)) []byte {
		b := slices.Clone(good)
		f(b)
		return b
	}
	var format *FormatError
	if h, err := ParseHeader(change(func(b []byte) { b[16] = 1 })); !errors.As(err, &format) || h.BaseOffset != 42 || format.Magic != 1 || format.Offset != 42 {
		t.Errorf("an old format: %+v, %v", h, err)
	}
	for name, b := range map[string][]byte{
		"a length that is too small": change(func(b []byte) { binary.BigEndian.PutUint32(b[8:], HeaderSize-12-1) }),
		"a negative length":          change(func(b []byte) { binary.BigEndian.PutUint32(b[8:], 1<<31) }),
		"a negative base offset":     change(func(b []byte) { b[0] = 0x80 }),
	} {
		var damaged *CorruptError
		h, err := ParseHeader(b)
		if !errors.As(err, &damaged) || h.BaseOffset != int64(binary.BigEndian.Uint64(b)) || damaged.Offset != h.BaseOffset {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
	for n := range HeaderSize {
		if h, err := ParseHeader(good[:n]); err != ErrCut || n >= 17 && h.BaseOffset != 42 {
			t.Errorf("%d bytes: %+v, %v", n, h, err)
		}
	}
	n := 0
	for range All(good[:len(good)-1]) {
		n++
	}
	for range All(nil) {
		n++
	}
	if n > 0 {
		t.Errorf("%d batches where none is whole", n)
	}
}

// TestAllWalksWholeBatches stops in front of one that is cut, and where its caller stops.
func TestAllWalksWholeBatches(t *testing.T) {
	var b []byte
	for base := range int64(3) {
		b = AppendData(b, DataSpec{BaseOffset: base, ProducerID: -1, Records: []Record{{Value: []byte("v")}}})
	}
	for cut, want := range map[int]int64{0: 3, 1: 2, len(b) / 3: 2, len(b)/3 + 1: 1, len(b) - 1: 0} {
		n := int64(0)
		for h, whole := range All(b[:len(b)-cut]) {
			if h.BaseOffset != n || len(whole) != len(b)/3 || cap(whole) != len(whole) {
				t.Errorf("batch %d is at %d, %d bytes", n, h.BaseOffset, len(whole))
			}
			n++
		}
		if n != want {
			t.Errorf("%d bytes less: %d batches, want %d", cut, n, want)
		}
	}
	for h := range All(b) {
		if h.BaseOffset > 0 {
			t.Error("it goes on")
		}
		break
	}
}
