package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// records makes n records of about size bytes each.
func records(n, size int) []Record {
	list := make([]Record, n)
	for i := range list {
		list[i] = Record{OffsetDelta: int32(i), TimestampDelta: int64(i), Value: bytes.Repeat([]byte{byte(i)}, size)}
	}
	return list
}

func plain(base int64, n int) DataSpec {
	return DataSpec{BaseOffset: base, LeaderEpoch: 5, ProducerID: -1, BaseTimestamp: 1700000000000, Records: records(n, 10)}
}

// edit changes a copy of b and gives it a right checksum again.
func edit(b []byte, change func(b []byte)) []byte {
	b = bytes.Clone(b)
	change(b)
	Seal(b)
	return b
}

func setLastOffsetDelta(delta int32) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint32(b[atLastOffsetDelta:], uint32(delta)) }
}

func setRecordCount(n int32) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint32(b[atRecordCount:], uint32(n)) }
}

func setAttributes(a int16) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint16(b[atAttributes:], uint16(a)) }
}

// check reads and checks the first batch.
func check(b []byte) (Header, error) {
	h, n, err := Next(b)
	if err == nil {
		err = Check(b[:n], &h)
	}
	return h, err
}

func mustCheck(t testing.TB, b []byte) Header {
	t.Helper()
	h, err := check(b)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// wantCorrupt requires that the batch is refused as corrupt, for this reason, not because of its checksum.
func wantCorrupt(t *testing.T, b []byte, reason string) {
	t.Helper()
	_, err := check(b)
	var e *CorruptError
	if !errors.As(err, &e) || !errors.Is(err, ErrCorrupt) || e.CRC || !strings.Contains(e.Reason, reason) {
		t.Errorf("got %v, want corrupt: %s", err, reason)
	}
}

func TestF01TrailingMarker(t *testing.T) {
	b := AppendData(nil, DataSpec{BaseOffset: 0, ProducerID: 7, Transactional: true, Records: records(5, 1)})
	b = AppendControl(b, ControlSpec{BaseOffset: 5, ProducerID: 7, BaseSequence: -1, Transactional: true, Key: []byte{0, 0, 0, 1}, Value: []byte{0, 0, 0, 0, 0, 3}})
	var next int64
	n := 0
	for h, raw := range All(b) {
		if err := Check(raw, &h); err != nil {
			t.Fatal(err)
		}
		if h.BaseOffset != next {
			t.Fatalf("batch at %d, want %d", h.BaseOffset, next)
		}
		next = h.NextOffset()
		n++
		if h.Control() {
			c, err := ReadControl(raw, &h)
			if err != nil || c != (Control{Type: ControlCommit, CoordinatorEpoch: 3}) {
				t.Fatal(c, err)
			}
		}
	}
	if n != 2 || next != 6 {
		t.Fatalf("%d batches, next %d: the marker's offset must count", n, next)
	}
}

func TestF02EmptiedBatch(t *testing.T) {
	b := AppendData(nil, plain(0, 1))
	empty := AppendData(nil, DataSpec{BaseOffset: 1, LastOffsetDelta: 8, ProducerID: 7, BaseSequence: 3})
	b = append(b, empty...)
	b = AppendData(b, plain(10, 1))
	if len(empty) != HeaderSize {
		t.Fatalf("%d bytes", len(empty))
	}
	var next int64
	for h, raw := range All(b) {
		if err := Check(raw, &h); err != nil {
			t.Fatal(err)
		}
		if h.BaseOffset == 1 && (h.RecordCount != 0 || h.LastSequence() != 11) {
			t.Fatalf("header %+v, last sequence %d", h, h.LastSequence())
		}
		next = h.NextOffset()
	}
	if next != 11 {
		t.Fatalf("next %d", next)
	}
	// Compaction keeps the codec bits of what it emptied.
	for _, codec := range []int16{CodecGzip, CodecSnappy, CodecLZ4, CodecZstd} {
		mustCheck(t, edit(empty, setAttributes(codec)))
	}
	wantCorrupt(t, edit(AppendData(nil, plain(0, 1)), setRecordCount(0)), "bytes after the last of 0 records")
}

func TestF04NextOffsetComesFromTheHeader(t *testing.T) {
	// (a) holes inside and at the end.
	spec := plain(0, 3)
	spec.Records[1].OffsetDelta, spec.Records[2].OffsetDelta = 4, 7
	spec.LastOffsetDelta = 9
	h := mustCheck(t, AppendData(nil, spec))
	if h.RecordCount != 3 || h.NextOffset() != 10 {
		t.Fatalf("%d records, next %d", h.RecordCount, h.NextOffset())
	}
	// (b) a record beyond the header's last delta.
	spec.LastOffsetDelta = 5
	spec.BaseOffset = 20
	b := AppendData(nil, spec)
	wantCorrupt(t, b, "offset delta 7")
	if _, err := check(b); !strings.Contains(err.Error(), "at 20") {
		t.Fatalf("%v does not name the offset", err)
	}
}

func TestF10CutReply(t *testing.T) {
	first := AppendData(nil, plain(0, 5))
	second := AppendData(nil, plain(5, 5))
	// (a) every possible cut of the second batch is a cut and nothing else; what was readable of it is there.
	for cut := range second {
		reply := append(bytes.Clone(first), second[:cut]...)
		h := mustCheck(t, reply)
		n := h.Size()
		if n != len(first) || h.NextOffset() != 5 {
			t.Fatalf("first batch: %d bytes, next %d", n, h.NextOffset())
		}
		h, n, err := Next(reply[n:])
		if err != ErrCut {
			t.Fatalf("cut after %d bytes: %v", cut, err)
		}
		if want := len(second); cut > atMagic && (n != want || h.BaseOffset != 5 || h.Size() != want) || cut <= atMagic && n != 0 {
			t.Fatalf("cut after %d bytes: length %d, header %+v", cut, n, h)
		}
		seen := 0
		for range All(reply) {
			seen++
		}
		if seen != 1 {
			t.Fatalf("All gives %d batches", seen)
		}
	}
	// (b) the third record's length is nonsense; header and checksum are fine.
	at := HeaderSize
	for range 2 {
		size, next := varint32(second, at)
		at = next + int(size)
	}
	for _, length := range []byte{0x7e, 0x01, 0x00, 0xff} {
		_, err := check(edit(second, func(b []byte) { b[at] = length }))
		var e *CorruptError
		if !errors.As(err, &e) || e.Offset != 5 || e.CRC {
			t.Fatalf("length byte %02x: %v", length, err)
		}
	}
}

func TestF15OldFormats(t *testing.T) {
	// An old message: offset, size, CRC, magic, attributes, [timestamp,] key, value.
	old := func(offset int64, magic byte, size int) []byte {
		b := binary.BigEndian.AppendUint64(nil, uint64(offset))
		b = binary.BigEndian.AppendUint32(b, uint32(size))
		b = append(b, 1, 2, 3, 4, magic)
		return append(b, make([]byte, size-5)...)
	}
	v2 := AppendData(nil, plain(4, 3))
	for _, c := range []struct {
		offset int64
		magic  int8
		size   int
	}{{0, 0, 14}, {3, 1, 22}, {3, 1, 500}, {9, 0, 5}, {7, 3, 100}, {7, -1, 100}} {
		for _, after := range [][]byte{nil, v2} {
			b := append(old(c.offset, byte(c.magic), c.size), after...)
			_, n, err := Next(b)
			var e *FormatError
			if !errors.As(err, &e) || *e != (FormatError{Offset: c.offset, Magic: c.magic}) || n != 0 {
				t.Errorf("magic %d, %d bytes: %d, %v", c.magic, c.size, n, err)
			}
			for range All(b) {
				t.Fatal("All yields an old message")
			}
		}
	}
	for h := range All(append(bytes.Clone(v2), old(7, 1, 50)...)) {
		if h.BaseOffset != 4 {
			t.Fatalf("All goes on at %d, after an old message", h.BaseOffset)
		}
	}
}

// Every byte of every kind of batch, every bit: what the checksum covers is found by it, the length field by its effect.
// Base offset and leader epoch are covered by nothing: whoever knows which ones are expected must compare them.
func TestFlippedBitsAreFound(t *testing.T) {
	spec := plain(100, 3)
	spec.Records[0].Key = []byte("k")
	spec.Records[0].Headers = []RecordHeader{{Key: "h", Value: []byte("v")}}
	compressed := edit(AppendData(nil, plain(100, 3)), setAttributes(CodecZstd))
	for name, whole := range map[string][]byte{
		"data":       AppendData(nil, spec),
		"compressed": compressed,
		"emptied":    AppendData(nil, DataSpec{BaseOffset: 1, LastOffsetDelta: 8, ProducerID: 7}),
		"control":    mustHex(t, goldenAbort),
	} {
		t.Run(name, func(t *testing.T) {
			want := mustCheck(t, whole)
			for at := range whole {
				for bit := range 8 {
					b := bytes.Clone(whole)
					b[at] ^= 1 << bit
					h, err := check(b)
					where := fmt.Sprintf("byte %d, bit %d: %v", at, bit, err)
					var e *CorruptError
					switch {
					case at < atLength:
						if want.BaseOffset^h.BaseOffset != 1<<(63-8*at-(7-bit)) {
							t.Fatal(where)
						}
						if (err != nil) != (h.BaseOffset < 0) {
							t.Fatal(where)
						}
					case at < atLeaderEpoch:
						if err == nil {
							t.Fatal(where)
						}
					case at < atMagic:
						if err != nil || h.LeaderEpoch == want.LeaderEpoch {
							t.Fatal(where)
						}
					case at == atMagic:
						var f *FormatError
						if !errors.As(err, &f) {
							t.Fatal(where)
						}
					default:
						if !errors.As(err, &e) || !e.CRC {
							t.Fatal(where)
						}
					}
				}
			}
		})
	}
}

func TestParseHeaderGuardsEveryNumber(t *testing.T) {
	whole := AppendData(nil, plain(100, 3))
	change := func(f func(b []byte)) []byte { return edit(whole, f) }
	for _, c := range []struct {
		name   string
		b      []byte
		reason string
	}{
		{"negative length", change(func(b []byte) { binary.BigEndian.PutUint32(b[atLength:], 1<<31) }), "length field"},
		{"length 0", change(func(b []byte) { binary.BigEndian.PutUint32(b[atLength:], 0) }), "length field"},
		{"length one below the header", change(func(b []byte) { binary.BigEndian.PutUint32(b[atLength:], HeaderSize-beforeLength-1) }), "length field"},
		{"length beyond what an int32 can hold with its own field", change(func(b []byte) { binary.BigEndian.PutUint32(b[atLength:], math.MaxInt32-beforeLength+1) }), "length field"},
		{"negative base offset", change(func(b []byte) { SetBaseOffset(b, -1) }), "base offset"},
		{"least base offset", change(func(b []byte) { SetBaseOffset(b, math.MinInt64) }), "base offset"},
		{"negative delta", change(setLastOffsetDelta(-1)), "last offset delta -1"},
		{"least delta", change(setLastOffsetDelta(math.MinInt32)), "last offset delta"},
		{"offset overflow", change(func(b []byte) { SetBaseOffset(b, math.MaxInt64-2) }), "last offset delta 2"},
		{"next offset overflow", edit(AppendData(nil, plain(0, 1)), func(b []byte) { SetBaseOffset(b, math.MaxInt64) }), "last offset delta 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantCorrupt(t, c.b, c.reason)
			if _, n, _ := Next(c.b); n != 0 {
				t.Errorf("length %d", n)
			}
			var e *CorruptError
			if _, err := ParseHeader(c.b); !errors.As(err, &e) {
				t.Errorf("ParseHeader: %v", err)
			}
		})
	}
	t.Run("greatest offsets", func(t *testing.T) {
		b := change(func(b []byte) { SetBaseOffset(b, math.MaxInt64-3) })
		if h := mustCheck(t, b); h.NextOffset() != math.MaxInt64 {
			t.Fatal(h.NextOffset())
		}
	})
	t.Run("longest length is a cut", func(t *testing.T) {
		b := change(func(b []byte) { binary.BigEndian.PutUint32(b[atLength:], math.MaxInt32-beforeLength) })
		if h, n, err := Next(b); err != ErrCut || n != math.MaxInt32 || h.Size() != n {
			t.Fatal(n, err)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		if h, n, err := Next(nil); err != ErrCut || n != 0 || h != (Header{}) {
			t.Fatal(h, n, err)
		}
	})
	t.Run("delta damaged in transit", func(t *testing.T) {
		b := bytes.Clone(whole)
		setLastOffsetDelta(-1)(b)
		_, _, err := Next(b)
		var e *CorruptError
		if !errors.As(err, &e) || !e.CRC {
			t.Fatalf("%v: a refetch may heal this, so the checksum must be named", err)
		}
		if _, err = ParseHeader(b[:HeaderSize]); !errors.As(err, &e) || e.CRC {
			t.Fatalf("%v: without the records no checksum is known", err)
		}
	})
}

func TestCheckWalksRecords(t *testing.T) {
	one := func(record ...byte) []byte {
		b := AppendData(nil, DataSpec{ProducerID: -1})
		b = append(b, record...)
		binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-beforeLength))
		return edit(b, setRecordCount(1))
	}
	mustCheck(t, one(12, 0, 0, 0, 1, 1, 0))
	mustCheck(t, one(0x8c, 0, 0, 0, 0, 1, 1, 0)) // a longer form of the same length
	for _, c := range []struct {
		name   string
		b      []byte
		reason string
	}{
		{"count too high", edit(AppendData(nil, DataSpec{ProducerID: -1, LastOffsetDelta: 9, Records: records(3, 1)}), setRecordCount(4)), "its length cannot be read"},
		{"count too low", edit(AppendData(nil, plain(0, 3)), setRecordCount(2)), "after the last of 2 records"},
		{"count above the offsets", edit(AppendData(nil, plain(0, 3)), setRecordCount(4)), "4 records cannot have offsets up to delta 2"},
		{"count negative", edit(AppendData(nil, plain(0, 3)), setRecordCount(-1)), "negative"},
		{"count least", edit(AppendData(nil, plain(0, 3)), setRecordCount(math.MinInt32)), "negative"},
		{"no record", one(), "its length cannot be read"},
		{"record length negative", one(1, 0, 0, 0), "does not fit"},
		{"record length zero", one(0), "ends inside its fields"},
		{"record length too long", one(14, 0, 0, 0, 1, 1, 0), "does not fit"},
		{"record length too short", one(10, 0, 0, 0, 1, 1, 0), "bytes after"},
		{"record length huge", one(0xfe, 0xff, 0xff, 0xff, 0x0f), "does not fit"},
		{"record length of 33 bits", one(0xff, 0xff, 0xff, 0xff, 0x1f), "its length cannot be read"},
		{"record length of six bytes", one(0x80, 0x80, 0x80, 0x80, 0x80, 0x00), "its length cannot be read"},
		{"record length cut", one(0x80), "its length cannot be read"},
		{"only attributes", one(2, 0), "ends inside its fields"},
		{"timestamp delta cut", one(4, 0, 0x80), "ends inside its fields"},
		{"timestamp delta of eleven bytes", one(26, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0), "ends inside its fields"},
		{"offset delta cut", one(6, 0, 0, 0x80), "ends inside its fields"},
		{"offset delta negative", one(12, 0, 0, 1, 1, 1, 0), "offset delta -1 after -1"},
		{"offset delta above the last", one(12, 0, 0, 2, 1, 1, 0), "offset delta 1, the header's last is 0"},
		{"unknown codec", edit(AppendData(nil, plain(0, 3)), setAttributes(5)), "codec 5"},
		{"compressed nothing", edit(edit(AppendData(nil, DataSpec{ProducerID: -1}), setAttributes(CodecGzip)), setRecordCount(1)), "1 records in no bytes"},
		{"compressed count above the offsets", edit(edit(AppendData(nil, plain(0, 3)), setAttributes(CodecLZ4)), setRecordCount(4)), "4 records cannot"},
		{"compressed count negative", edit(edit(AppendData(nil, plain(0, 3)), setAttributes(CodecLZ4)), setRecordCount(-1)), "negative"},
		{"control batch with a bad record", edit(mustHex(t, goldenPIDReset), func(b []byte) { b[HeaderSize] = 0x10 }), "bytes after"},
	} {
		t.Run(c.name, func(t *testing.T) { wantCorrupt(t, c.b, c.reason) })
	}
	for name, deltas := range map[string][]int32{"equal": {0, 1, 1}, "falling": {0, 2, 1}, "first twice": {0, 0, 1}} {
		t.Run("deltas "+name, func(t *testing.T) {
			spec := plain(0, len(deltas))
			for i, d := range deltas {
				spec.Records[i].OffsetDelta = d
			}
			spec.LastOffsetDelta = 5
			wantCorrupt(t, AppendData(nil, spec), "after")
		})
	}
	t.Run("bytes and header of different sizes", func(t *testing.T) {
		b := AppendData(nil, plain(0, 3))
		h := mustCheck(t, b)
		for _, other := range [][]byte{nil, b[:10], b[:len(b)-1], append(bytes.Clone(b), 0)} {
			if err := Check(other, &h); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%d bytes pass", len(other))
			}
		}
	})
	t.Run("compressed bytes are not looked into", func(t *testing.T) {
		for codec := int16(CodecGzip); codec <= CodecZstd; codec++ {
			b := edit(AppendData(nil, plain(0, 3)), setAttributes(codec))
			if h := mustCheck(t, b); h.Codec() != int8(codec) {
				t.Fatal(h.Codec())
			}
		}
	})
}

func TestLastSequenceWraps(t *testing.T) {
	for _, c := range []struct{ base, delta, want int32 }{
		{-1, 0, -1}, {-1, 7, -1}, {0, 0, 0}, {57, 4, 61}, {math.MaxInt32, 0, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 2, 9, 6},
		{math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1},
	} {
		h := Header{BaseSequence: c.base, LastOffsetDelta: c.delta}
		if got := h.LastSequence(); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.base, c.delta, got, c.want)
		}
	}
}

func TestSetFieldsOutsideTheChecksum(t *testing.T) {
	b := AppendData(nil, plain(3, 2))
	want := mustCheck(t, b)
	SetBaseOffset(b, 1<<40)
	SetLeaderEpoch(b, 99)
	want.BaseOffset, want.LeaderEpoch = 1<<40, 99
	if h := mustCheck(t, b); h != want {
		t.Fatalf("%+v, want %+v", h, want)
	}
}

func TestAllStopsWhenToldTo(t *testing.T) {
	b := AppendData(AppendData(nil, plain(0, 1)), plain(1, 1))
	n := 0
	for _, raw := range All(b) {
		n++
		if cap(raw) != len(raw) {
			t.Fatal("an append to one batch would overwrite the next")
		}
		break
	}
	if n != 1 {
		t.Fatal(n)
	}
}

func TestReadControl(t *testing.T) {
	control := func(key, value []byte) []byte {
		return AppendControl(nil, ControlSpec{BaseOffset: 8, ProducerID: 7, BaseSequence: -1, Transactional: true, Key: key, Value: value})
	}
	for _, c := range []struct {
		name       string
		key, value []byte
		want       Control
	}{
		{"abort", []byte{0, 0, 0, 0}, []byte{0, 0, 0, 0, 1, 0}, Control{ControlAbort, 0, 256}},
		{"commit, longer value", []byte{0, 0, 0, 1}, []byte{0, 1, 0, 0, 0, 5, 9, 9}, Control{ControlCommit, 0, 5}},
		{"commit, longer key", []byte{0, 1, 0, 1, 7}, []byte{0, 0, 0, 0, 0, 5}, Control{ControlCommit, 1, 5}},
		{"commit, empty value", []byte{0, 0, 0, 1}, []byte{}, Control{ControlCommit, 0, -1}},
		{"commit, null value", []byte{0, 0, 0, 1}, nil, Control{ControlCommit, 0, -1}},
		{"abort, short value", []byte{0, 0, 0, 0}, []byte{0, 0, 0, 0, 1}, Control{ControlAbort, 0, -1}},
		{"leader change", []byte{0, 0, 0, 2}, []byte{0, 0, 0, 0, 1, 0}, Control{ControlLeaderChange, 0, -1}},
		{"unknown type", []byte{0, 0, 0, 99}, nil, Control{ControlType(99), 0, -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := control(c.key, c.value)
			h := mustCheck(t, b)
			if got, err := ReadControl(b, &h); err != nil || got != c.want {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
	for name, b := range map[string][]byte{
		"data":             AppendData(nil, plain(8, 1)),
		"short key":        control([]byte{0, 0, 0}, nil),
		"null key":         control(nil, nil),
		"negative version": control([]byte{0xff, 0xff, 0, 0}, nil),
		"compressed":       edit(control([]byte{0, 0, 0, 0}, nil), setAttributes(0x31)),
		"emptied":          edit(AppendData(nil, DataSpec{BaseOffset: 8, ProducerID: 7}), setAttributes(0x30)),
		"record too long":  edit(control([]byte{0, 0, 0, 0}, nil), func(b []byte) { b[HeaderSize] = 0x7e }),
		"key too long":     edit(control([]byte{0, 0, 0, 0}, nil), func(b []byte) { b[HeaderSize+4] = 0x7e }),
		"value too long":   edit(control([]byte{0, 0, 0, 0}, []byte{0, 0}), func(b []byte) { b[HeaderSize+9] = 0x7e }),
	} {
		t.Run(name, func(t *testing.T) {
			h, _, err := Next(b)
			if err != nil {
				t.Fatal(err)
			}
			var e *CorruptError
			if c, err := ReadControl(b, &h); !errors.As(err, &e) || e.Offset != 8 {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

func TestReadRecordsRefuses(t *testing.T) {
	spec := plain(8, 1)
	spec.Records[0] = Record{Key: []byte("k"), Value: []byte("v"), Headers: []RecordHeader{{Key: "h", Value: []byte("x")}}}
	b := AppendData(nil, spec)
	h := mustCheck(t, b)
	if r, err := ReadRecords(b, &h); err != nil || string(r[0].Headers[0].Key) != "h" {
		t.Fatal(r, err)
	}
	// length, attributes, two deltas, key 2, value 2, headers count, header key 2, header value 2
	for name, at := range map[string]int{"key": 4, "value": 6, "header count": 8, "header key": 9, "header value": 11} {
		for _, c := range []byte{0x7e, 0x7f, 0x80, 0xff, 0x03} {
			bad := edit(b, func(b []byte) { b[HeaderSize+at] = c })
			r, err := ReadRecords(bad, &h)
			if c == 0xff && !strings.HasPrefix(name, "header ") || c == 0xff && name == "header value" {
				// With the next byte a negative length, and any of those is null.
				if err != nil || r[0].Key != nil && r[0].Value != nil && r[0].Headers[0].Value != nil {
					t.Errorf("%s null: %+v, %v", name, r, err)
				}
				continue
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s %02x: %+v, %v", name, c, r, err)
			}
		}
	}
	for name, change := range map[string]func(h *Header){
		"compressed":     func(h *Header) { h.Attributes |= CodecGzip },
		"count negative": func(h *Header) { h.RecordCount = -1 },
		"count huge":     func(h *Header) { h.RecordCount = math.MaxInt32 },
		"count low":      func(h *Header) { h.RecordCount = 0 },
		"length":         func(h *Header) { h.Length++ },
	} {
		bad := h
		change(&bad)
		if r, err := ReadRecords(b, &bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

func TestAppendDataWritesWhatProducersWrite(t *testing.T) {
	t.Run("not idempotent", func(t *testing.T) {
		h := mustCheck(t, AppendData(nil, DataSpec{ProducerID: -1, Records: records(1, 1)}))
		if h.ProducerID != -1 || h.ProducerEpoch != -1 || h.BaseSequence != -1 {
			t.Fatalf("%+v", h)
		}
	})
	t.Run("attributes", func(t *testing.T) {
		for _, c := range []struct {
			transactional, logAppend bool
			want                     int16
		}{{false, false, 0}, {true, false, 0x10}, {false, true, 0x08}, {true, true, 0x18}} {
			h := mustCheck(t, AppendData(nil, DataSpec{ProducerID: 1, Transactional: c.transactional, LogAppendTime: c.logAppend, Records: records(1, 1)}))
			if h.Attributes != c.want || h.Transactional() != c.transactional || h.LogAppendTime() != c.logAppend || h.Control() || h.DeleteHorizon() {
				t.Fatalf("%+v", h)
			}
		}
	})
	t.Run("greatest timestamp", func(t *testing.T) {
		h := mustCheck(t, AppendData(nil, DataSpec{ProducerID: -1, BaseTimestamp: 100, Records: []Record{{TimestampDelta: 5}, {OffsetDelta: 1, TimestampDelta: -3}}}))
		if h.BaseTimestamp != 100 || h.MaxTimestamp != 105 {
			t.Fatalf("%+v", h)
		}
		h = mustCheck(t, AppendData(nil, DataSpec{ProducerID: -1, BaseTimestamp: 100, Records: []Record{{TimestampDelta: -5}}}))
		if h.MaxTimestamp != 95 {
			t.Fatalf("%+v", h)
		}
		h = mustCheck(t, AppendData(nil, DataSpec{ProducerID: -1, BaseTimestamp: 100, MaxTimestamp: 7, Records: records(1, 1)}))
		if h.MaxTimestamp != 7 {
			t.Fatalf("%+v", h)
		}
	})
	t.Run("null is not empty", func(t *testing.T) {
		b := AppendData(nil, DataSpec{ProducerID: -1, Records: []Record{{Key: nil, Value: []byte{}, Headers: []RecordHeader{{Key: ""}}}}})
		h := mustCheck(t, b)
		r, err := ReadRecords(b, &h)
		if err != nil || r[0].Key != nil || r[0].Value == nil || r[0].Headers[0].Value != nil {
			t.Fatalf("%+v, %v", r, err)
		}
	})
	t.Run("dst is kept", func(t *testing.T) {
		dst := []byte("kept")
		b := AppendData(dst, plain(0, 1))
		if !slices.Equal(b[:4], dst) || !bytes.Equal(b[4:], AppendData(nil, plain(0, 1))) {
			t.Fatal("dst changed")
		}
	})
}

func TestErrorTexts(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&CorruptError{Offset: 42, Reason: "no"}, "corrupt batch at 42: no"},
		{&FormatError{Offset: 7, Magic: 1}, "message format v1 at 7: only v2 batches can be mirrored"},
	} {
		if c.err.Error() != c.want {
			t.Errorf("%q", c.err.Error())
		}
	}
	if errors.Is(&FormatError{}, ErrCorrupt) || errors.Is(ErrCut, ErrCorrupt) {
		t.Error("a cut or old batch passes for a corrupt one")
	}
}

func TestReadingAllocatesNothing(t *testing.T) {
	b := AppendData(nil, plain(0, 100))
	b = append(b, mustHex(t, goldenAbort)...)
	b = append(b, edit(AppendData(nil, plain(0, 3)), setAttributes(CodecZstd))...)
	if n := testing.AllocsPerRun(200, func() {
		for rest := b; len(rest) > 0; {
			h, n, err := Next(rest)
			if err != nil {
				t.Fatal(err)
			}
			if err := Check(rest[:n], &h); err != nil {
				t.Fatal(err)
			}
			if h.Control() {
				if _, err := ReadControl(rest[:n], &h); err != nil {
					t.Fatal(err)
				}
			}
			rest = rest[n:]
		}
		for h, raw := range All(b) {
			if h.Size() != len(raw) {
				t.Fatal(h)
			}
		}
		if _, _, err := Next(b[:70]); err != ErrCut {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// The benchmarks give bytes per second of Next and Check over batches of 64 KiB, the size a busy producer sends.
func BenchmarkNextCheck100B(b *testing.B)  { benchmarkNextCheck(b, 100) }
func BenchmarkNextCheck10KiB(b *testing.B) { benchmarkNextCheck(b, 10<<10) }

func benchmarkNextCheck(b *testing.B, size int) {
	list := records(64<<10/size, size)
	stream := AppendData(nil, DataSpec{ProducerID: 7, Records: list})
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		h, n, err := Next(stream)
		if err != nil {
			b.Fatal(err)
		}
		if err := Check(stream[:n], &h); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(list)), "ns/record")
}
