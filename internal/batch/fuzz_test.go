package batch

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// addRecorded adds what real brokers answered, see testdata/kafka/recorded: each answer whole where it is small, and its first batches.
func addRecorded(f *testing.F, add func(b []byte)) {
	for _, b := range fuzzbound.Recorded(f) {
		add(b)
		for _, raw := range All(b) {
			add(raw)
		}
	}
}

// same says that a header is what kmsg reads from the same bytes.
func same(h Header, k *kmsg.RecordBatch) bool {
	return h == Header{k.FirstOffset, k.Length, k.PartitionLeaderEpoch, k.Magic, uint32(k.CRC), k.Attributes, k.LastOffsetDelta, k.FirstTimestamp, k.MaxTimestamp, k.ProducerID, k.ProducerEpoch,
		k.FirstSequence, k.NumRecords}
}

// FuzzSplit: whatever the bytes, batches lie one behind the other inside them, their sizes add up to what was walked, no end of them is taken for a batch, and each is what
// kmsg reads. What Check and ReadRecords let pass has, record by record, what kgo delivers from it.
func FuzzSplit(f *testing.F) {
	addRecorded(f, func(b []byte) { f.Add(b) })
	f.Add(AppendData(AppendData(nil, plain(0, 3)), plain(3, 2)))
	f.Add(AppendData(nil, DataSpec{BaseOffset: 1, LastOffsetDelta: 8, ProducerID: 7}))
	f.Add(append(mustHex(f, goldenAbort), mustHex(f, goldenPIDReset)[:40]...))
	f.Add(edit(AppendData(nil, plain(0, 3)), setRecordCount(4)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var batches [][]byte
		fuzzbound.Run(t, len(b), func() {
			batches = batches[:0]
			at := 0
			for h, raw := range All(b) {
				if &raw[0] != &b[at] || len(raw) != h.Size() || cap(raw) != len(raw) {
					t.Fatalf("the batch at byte %d has %d bytes of %d, its header says %d", at, len(raw), cap(raw), h.Size())
				}
				at += len(raw)
				batches = append(batches, raw)
				_ = Check(raw, &h)
				_, _ = ReadControl(raw, &h)
				_, _ = ReadRecords(raw, &h)
			}
			if _, _, err := Next(b[at:]); err == nil {
				t.Fatalf("%d bytes were walked, and another batch follows", at)
			}
		})
		for _, raw := range batches {
			againstKmsg(t, raw)
			for _, n := range []int{0, 1, atMagic, atMagic + 1, HeaderSize - 1, HeaderSize, len(raw) - 1} {
				if _, _, err := Next(raw[:min(n, len(raw)-1)]); err != ErrCut {
					t.Fatalf("the first %d bytes of %d: %v", n, len(raw), err)
				}
			}
		}
	})
}

// againstKmsg compares what we read of one batch with what kmsg and kgo read of it.
func againstKmsg(t *testing.T, raw []byte) {
	t.Helper()
	raw = bytes.Clone(raw)
	Seal(raw) // a random checksum is never right
	h, _, err := Next(raw)
	if err != nil {
		t.Fatal(err)
	}
	var k kmsg.RecordBatch
	if err := k.ReadFrom(raw); err != nil || !same(h, &k) || len(k.Records) != len(raw)-HeaderSize {
		t.Fatalf("header %+v, kmsg reads %+v, %v", h, k, err)
	}
	if Check(raw, &h) != nil || h.Codec() != CodecNone {
		return
	}
	response := kmsg.NewFetchResponseTopicPartition()
	response.RecordBatches = raw
	read, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: h.BaseOffset, KeepControlRecords: true}, &response, kgo.DefaultDecompressor(), nil)
	records, err := ReadRecords(raw, &h)
	if err != nil {
		return // kgo reads over bytes behind a record's last field
	}
	for rest := k.Records; len(records) > 0; records = records[1:] {
		var r kmsg.Record
		size, next := varint32(rest, 0)
		if next < 0 || r.ReadFrom(rest[:next+int(size)]) != nil {
			t.Fatalf("kmsg does not read the record %+v from %x", records[0], rest)
		}
		theirs := Record{OffsetDelta: r.OffsetDelta, TimestampDelta: r.TimestampDelta64, Key: r.Key, Value: r.Value}
		for _, header := range r.Headers {
			theirs.Headers = append(theirs.Headers, RecordHeader{header.Key, header.Value})
		}
		if !sameRecord(records[0], theirs) {
			t.Fatalf("record %+v, kmsg reads %+v", records[0], theirs)
		}
		rest = rest[next+int(size):]
	}
	if h.Control() && h.RecordCount > 0 {
		controlAgainstKmsg(t, raw, &h, &k)
	}
	records, _ = ReadRecords(raw, &h)
	if read.Err != nil || len(read.Records) != len(records) || next != h.NextOffset() {
		t.Fatalf("kgo reads %d records of %d and goes on at %d, not %d: %v", len(read.Records), len(records), next, h.NextOffset(), read.Err)
	}
	for i, r := range read.Records {
		if r.Offset != h.BaseOffset+int64(records[i].OffsetDelta) || !bytes.Equal(r.Key, records[i].Key) || !bytes.Equal(r.Value, records[i].Value) {
			t.Fatalf("kgo reads record %d as %+v, we %+v", i, r, records[i])
		}
	}
}

// controlAgainstKmsg compares what a control batch says with what kmsg reads in its first record.
func controlAgainstKmsg(t *testing.T, raw []byte, h *Header, k *kmsg.RecordBatch) {
	t.Helper()
	var r kmsg.Record
	var key kmsg.ControlRecordKey
	size, next := varint32(k.Records, 0)
	if err := r.ReadFrom(k.Records[:next+int(size)]); err != nil {
		t.Fatal(err)
	}
	c, err := ReadControl(raw, h)
	if len(r.Key) < 4 {
		if err == nil {
			t.Fatalf("%+v from a key of %d bytes", c, len(r.Key))
		}
		return
	}
	key.Version, key.Type = int16(binary.BigEndian.Uint16(r.Key)), kmsg.ControlRecordKeyType(binary.BigEndian.Uint16(r.Key[2:]))
	if exact := (kmsg.ControlRecordKey{}); len(r.Key) == 4 && (exact.ReadFrom(r.Key) != nil || exact.Version != key.Version || exact.Type != key.Type) {
		t.Fatalf("kmsg reads the key %x as %+v", r.Key, exact)
	}
	if err != nil {
		if key.Version >= 0 {
			t.Fatalf("kmsg reads a control record %+v, we say: %v", key, err)
		}
		return
	}
	if c.Version != key.Version || int16(c.Type) != int16(key.Type) {
		t.Fatalf("%+v, kmsg reads %+v", c, key)
	}
	var marker kmsg.EndTxnMarker
	want := int32(-1)
	if c.Type == ControlAbort || c.Type == ControlCommit {
		if len(r.Value) >= 6 && marker.ReadFrom(r.Value[:6]) == nil {
			want = marker.CoordinatorEpoch
		}
	}
	if c.CoordinatorEpoch != want {
		t.Fatalf("coordinator epoch %d, kmsg reads %d", c.CoordinatorEpoch, want)
	}
}

// FuzzControl: a control batch comes back as it was described, checked and whole, and kmsg builds the same of it.
func FuzzControl(f *testing.F) {
	f.Add(int64(3), int32(11), int64(4001), int16(5), int32(-1), true, int64(1700000000000), []byte{0, 0, 0, 0}, []byte{0, 0, 0, 0, 0, 0})
	f.Add(int64(6), int32(12), int64(-1), int16(-1), int32(-1), false, int64(1700000000000), []byte{0, 0, 0, 7}, []byte{0, 0, 0})
	f.Add(int64(0), int32(-1), int64(1<<62), int16(0), int32(0), true, int64(-1), []byte{0, 1, 0}, []byte(nil))
	f.Fuzz(func(t *testing.T, base int64, leaderEpoch int32, id int64, epoch int16, sequence int32, transactional bool, timestamp int64, key, value []byte) {
		s := ControlSpec{base, leaderEpoch, id, epoch, sequence, transactional, timestamp, key, value}
		var b []byte
		fuzzbound.Run(t, len(key)+len(value), func() { b = AppendControl(nil, s) })
		record := kmsg.Record{Key: key, Value: value}
		record.Length = int32(len(record.AppendTo(nil)) - 1)
		k := kmsg.RecordBatch{FirstOffset: base, PartitionLeaderEpoch: leaderEpoch, Magic: 2, Attributes: attributeControl, FirstTimestamp: timestamp, MaxTimestamp: timestamp,
			ProducerID: id, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: 1, Records: record.AppendTo(nil), Length: int32(len(b) - beforeLength), CRC: int32(checksum(b))}
		if transactional {
			k.Attributes |= attributeTransactional
		}
		if want := k.AppendTo(nil); !bytes.Equal(b, want) {
			t.Fatalf("built\n%x, kmsg builds\n%x", b, want)
		}
		h, n, err := Next(b)
		if base < 0 || base == 1<<63-1 {
			if err == nil {
				t.Fatalf("base offset %d is taken", base)
			}
			return
		}
		if err != nil || n != len(b) || Check(b, &h) != nil || !same(h, &k) || !h.Control() || h.Transactional() != transactional {
			t.Fatalf("%d of %d bytes, header %+v, %v, %v", n, len(b), h, err, Check(b, &h))
		}
		controlAgainstKmsg(t, b, &h, &k)
	})
}

// FuzzBuild draws whole batches from the bytes: see dataBatchAgainstKmsgAndKgo.
func FuzzBuild(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0}, 400))
	f.Add(slices.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 0}, 60))
	f.Fuzz(rapid.MakeFuzz(dataBatchAgainstKmsgAndKgo))
}
