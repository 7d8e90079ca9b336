package txnabort

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The bytes of spec.md, section 5.
const (
	goldenPIDReset = "00000000000000060000003f0000000c02bbdac33c0020000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff000000011a00000008000000070600000000"
	goldenAbort    = "0000000000000003000000420000000b020fed7e950030000000000000018bcfe568000000018bcfe568000000000000000fa10005ffffffff000000012000000008000000000c00000000000000"
	timestamp      = 1700000000000
)

func TestSpec5GoldenPIDReset(t *testing.T) {
	got := PIDReset(6, 12, timestamp)
	if s := hex.EncodeToString(got); s != goldenPIDReset {
		t.Fatalf("got\n%s, want\n%s", s, goldenPIDReset)
	}
	if len(got) != 75 {
		t.Fatalf("%d bytes", len(got))
	}
}

func TestSpec5GoldenAbort(t *testing.T) {
	got := Abort(3, 11, producerstate.Transaction{ProducerID: 4001, ProducerEpoch: 5}, timestamp)
	if s := hex.EncodeToString(got); s != goldenAbort {
		t.Fatalf("got\n%s, want\n%s", s, goldenAbort)
	}
	if len(got) != 78 {
		t.Fatalf("%d bytes", len(got))
	}
}

func TestSpec5AbortCarriesTheLastKnownCoordinatorEpochOrZero(t *testing.T) {
	for _, c := range []struct{ known, want int32 }{{-1, 0}, {0, 0}, {1, 1}, {7, 7}, {1<<31 - 1, 1<<31 - 1}} {
		b := Abort(100, 9, producerstate.Transaction{ProducerID: 7, ProducerEpoch: 3, FirstOffset: 90, LastOffset: 95, CoordinatorEpoch: c.known}, timestamp)
		h, n, err := batch.Next(b)
		if err != nil || n != len(b) {
			t.Fatal(n, err)
		}
		if err := batch.Check(b, &h); err != nil {
			t.Fatal(err)
		}
		control, err := batch.ReadControl(b, &h)
		if err != nil || control != (batch.Control{Type: batch.ControlAbort, CoordinatorEpoch: c.want}) {
			t.Errorf("known %d: %+v, %v", c.known, control, err)
		}
	}
}

// A second reader, made from Kafka's message definitions, agrees on every field.
func TestSpec5MarkersReadByKmsg(t *testing.T) {
	for _, c := range []struct {
		name       string
		b          []byte
		offset     int64
		epoch      int32
		attributes int16
		id         int64
		idEpoch    int16
		kind       kmsg.ControlRecordKeyType
	}{
		{"abort", Abort(1<<40, 77, producerstate.Transaction{ProducerID: 1 << 50, ProducerEpoch: 32767, CoordinatorEpoch: 4}, timestamp), 1 << 40, 77, 0x30, 1 << 50, 32767, kmsg.ControlRecordKeyTypeAbort},
		{"reset", PIDReset(0, 0, timestamp), 0, 0, 0x20, -1, -1, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rb kmsg.RecordBatch
			if err := rb.ReadFrom(c.b); err != nil {
				t.Fatal(err)
			}
			if rb.FirstOffset != c.offset || rb.PartitionLeaderEpoch != c.epoch || rb.Magic != 2 || rb.Attributes != c.attributes || rb.LastOffsetDelta != 0 ||
				rb.FirstTimestamp != timestamp || rb.MaxTimestamp != timestamp || rb.ProducerID != c.id || rb.ProducerEpoch != c.idEpoch || rb.FirstSequence != -1 || rb.NumRecords != 1 {
				t.Fatalf("batch %+v", rb)
			}
			var r kmsg.Record
			if err := r.ReadFrom(rb.Records); err != nil {
				t.Fatal(err)
			}
			if r.Attributes != 0 || r.TimestampDelta64 != 0 || r.OffsetDelta != 0 || len(r.Headers) != 0 {
				t.Fatalf("record %+v", r)
			}
			var key kmsg.ControlRecordKey
			if err := key.ReadFrom(r.Key); err != nil || key.Version != 0 || key.Type != c.kind {
				t.Fatalf("key %+v, %v", key, err)
			}
			if c.kind == kmsg.ControlRecordKeyTypeAbort {
				var marker kmsg.EndTxnMarker
				if err := marker.ReadFrom(r.Value); err != nil || marker.Version != 0 || marker.CoordinatorEpoch != 4 {
					t.Fatalf("value %+v, %v", marker, err)
				}
			}
		})
	}
}

func TestIsPIDReset(t *testing.T) {
	reset := PIDReset(6, 12, timestamp)
	if !IsPIDReset(reset) {
		t.Fatal("a reset is not seen")
	}
	eraA := batch.AppendControl(nil, batch.ControlSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1,
		Key: []byte{0, 0, 0, 7}, Value: append([]byte{0, 0, 23}, "AAAAAAAAAAAAAAAAAAAAAA\x00"...)})
	if !IsPIDReset(eraA) {
		t.Fatal("a reset that names its source cluster is not seen")
	}
	data := batch.AppendData(nil, batch.DataSpec{ProducerID: -1, Records: []batch.Record{{Key: []byte{0, 0, 0, 7}, Value: []byte{0, 0, 0}}}})
	wrongBit := append([]byte(nil), reset...)
	binary.BigEndian.PutUint16(wrongBit[21:], 0x21) // compressed
	noRecords := append([]byte(nil), reset[:batch.HeaderSize]...)
	binary.BigEndian.PutUint32(noRecords[8:], batch.HeaderSize-12)
	binary.BigEndian.PutUint32(noRecords[57:], 0)
	for name, b := range map[string][]byte{
		"nothing":                nil,
		"cut":                    reset[:len(reset)-1],
		"two batches":            append(append([]byte(nil), reset...), reset...),
		"abort":                  Abort(3, 11, producerstate.Transaction{ProducerID: 4001, ProducerEpoch: 5}, timestamp),
		"data with the same key": data,
		"leader change":          batch.AppendControl(nil, batch.ControlSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Key: []byte{0, 0, 0, 2}, Value: []byte{0, 0, 0}}),
		"no key":                 batch.AppendControl(nil, batch.ControlSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}),
		"compressed":             wrongBit,
		"emptied":                noRecords,
	} {
		if IsPIDReset(b) {
			t.Errorf("%s passes for a reset", name)
		}
	}
}

func TestArgumentsAreNotKept(t *testing.T) {
	a, b := PIDReset(1, 1, timestamp), PIDReset(1, 1, timestamp)
	a[0] = 0xff
	if b[0] != 0 {
		t.Fatal("two calls share bytes")
	}
}
