package txnabort

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kmsgControl reads a control batch's first record with kmsg; ok is false where there is none, or it has no key of four bytes at least.
func kmsgControl(b []byte) (version, kind int16, value []byte, ok bool) {
	var k kmsg.RecordBatch
	var r kmsg.Record
	if k.ReadFrom(b) != nil || k.Magic != 2 || k.Attributes&0x20 == 0 || k.Attributes&7 != 0 || k.NumRecords < 1 {
		return 0, 0, nil, false
	}
	size, n := binary.Varint(k.Records)
	if n <= 0 || size < 0 || size > int64(len(k.Records)-n) || r.ReadFrom(k.Records[:n+int(size)]) != nil || len(r.Key) < 4 {
		return 0, 0, nil, false
	}
	return int16(binary.BigEndian.Uint16(r.Key)), int16(binary.BigEndian.Uint16(r.Key[2:])), r.Value, true
}

// FuzzIsPIDReset: whatever the bytes, the question is answered, and where kmsg reads the batch the answer is kmsg's.
func FuzzIsPIDReset(f *testing.F) {
	f.Add(PIDReset(6, 12, 1700000000000))
	f.Add(Abort(3, 11, producerstate.Transaction{ProducerID: 4001, ProducerEpoch: 5}, 1700000000000))
	f.Add(PIDReset(6, 12, 1700000000000)[:70])
	f.Fuzz(func(t *testing.T, b []byte) {
		var is bool
		fuzzbound.Run(t, len(b), func() { is = IsPIDReset(b) })
		h, n, err := batch.Next(b)
		version, kind, _, ok := kmsgControl(b)
		if want := ok && kind == int16(batch.ControlMirrorPIDReset) && version >= 0; err == nil && n == len(b) && ok && is != want {
			t.Fatalf("%v of %+v, kmsg reads version %d of type %d", is, h, version, kind)
		}
		if is && (err != nil || n != len(b) || !h.Control()) {
			t.Fatalf("%x is one, but no whole control batch: %v", b, err)
		}
	})
}

// FuzzEnd builds what ends a mirror: each batch is whole and right, kmsg reads in it what it was built of, and a log with the transaction has it closed behind the ABORT.
func FuzzEnd(f *testing.F) {
	f.Add(int64(3), int32(11), int64(4001), int16(5), int32(7), int64(1700000000000))
	f.Add(int64(0), int32(-1), int64(1<<62), int16(-1), int32(-1), int64(-1))
	f.Add(int64(1)<<62, int32(1<<31-1), int64(0), int16(1<<15-1), int32(1<<31-1), int64(0))
	f.Fuzz(func(t *testing.T, offset int64, leaderEpoch int32, id int64, epoch int16, coordinator int32, timestamp int64) {
		if offset < 1 || offset > 1<<62 || id < 0 {
			return // no offset or id of a log
		}
		open := producerstate.Transaction{ProducerID: id, ProducerEpoch: epoch, FirstOffset: offset - 1, LastOffset: offset - 1, CoordinatorEpoch: coordinator}
		var abort, reset []byte
		fuzzbound.Run(t, 0, func() {
			abort, reset = Abort(offset, leaderEpoch, open, timestamp), PIDReset(offset+1, leaderEpoch, timestamp)
		})
		for i, b := range [][]byte{abort, reset} {
			h, n, err := batch.Next(b)
			if err != nil || n != len(b) || batch.Check(b, &h) != nil || h.BaseOffset != offset+int64(i) || h.NextOffset() != offset+int64(i)+1 || h.LeaderEpoch != leaderEpoch ||
				h.MaxTimestamp != timestamp || h.LastSequence() != -1 {
				t.Fatalf("%+v, %v, %v", h, err, batch.Check(b, &h))
			}
			if IsPIDReset(b) != (i == 1) {
				t.Fatalf("batch %d is a reset: %v", i, IsPIDReset(b))
			}
		}
		version, kind, value, ok := kmsgControl(abort)
		var marker kmsg.EndTxnMarker
		if err := marker.ReadFrom(value); !ok || err != nil || version != 0 || kind != int16(kmsg.ControlRecordKeyTypeAbort) || marker.Version != 0 || marker.CoordinatorEpoch != max(coordinator, 0) {
			t.Fatalf("kmsg reads type %d, %+v, %v; coordinator epoch %d", kind, marker, err, coordinator)
		}
		if version, kind, value, ok := kmsgControl(reset); !ok || version != 0 || kind != 7 || !bytes.Equal(value, []byte{0, 0, 0}) {
			t.Fatalf("kmsg reads version %d of type %d with %x", version, kind, value)
		}
		m := producerstate.New()
		m.Reset(offset - 1)
		data := batch.AppendData(nil, batch.DataSpec{BaseOffset: offset - 1, ProducerID: id, ProducerEpoch: epoch, Transactional: true, Records: []batch.Record{{}}})
		if err := m.Observe(bytes.Join([][]byte{data, abort}, nil)); err != nil {
			t.Fatal(err)
		}
		if len(m.InFlight()) != 0 || len(m.Aborted(offset-1, offset)) != 1 || len(m.Producers()) != 1 || m.LastIsReset() {
			t.Fatalf("behind the ABORT: open %+v, aborted %+v", m.InFlight(), m.Aborted(offset-1, offset))
		}
		if err := m.Observe(reset); err != nil || len(m.Producers()) != 0 || !m.LastIsReset() {
			t.Fatalf("behind the reset: %+v, %v", m.Producers(), err)
		}
	})
}
