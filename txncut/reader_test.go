package txncut

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/txnabort"
	"pgregory.net/rapid"
)

func read(t *testing.T, batches ...[]byte) []Piece {
	t.Helper()
	r := NewReader(0)
	if err := r.Observe(bytes.Join(batches, nil)); err != nil {
		t.Fatal(err)
	}
	return r.Pieces()
}

func wantPieces(t *testing.T, got []Piece, want ...Piece) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestReaderFindsPieces(t *testing.T) {
	wantPieces(t, read(t,
		dataBatch(0, 2, 7, 1, 1000), dataBatch(3, 3, 8, 0, 1010), plainBatch(4, 1020), dataBatch(10, 12, 7, 1, 1030), // a gap
		markerBatch(20, 7, 2, Committed, 1040), dataBatch(21, 21, 9, 3, 1050), markerBatch(22, 8, 0, Aborted, 1060), dataBatch(23, 23, 7, 2, 1070)),
		Piece{ProducerID: 7, ProducerEpoch: 1, FirstOffset: 0, LastOffset: 12, FirstTimestamp: 1000, Outcome: Committed, MarkerOffset: 20, MarkerEpoch: 2, MarkerTimestamp: 1040},
		Piece{ProducerID: 8, ProducerEpoch: 0, FirstOffset: 3, LastOffset: 3, FirstTimestamp: 1010, Outcome: Aborted, MarkerOffset: 22, MarkerEpoch: 0, MarkerTimestamp: 1060},
		Piece{ProducerID: 9, ProducerEpoch: 3, FirstOffset: 21, LastOffset: 21, FirstTimestamp: 1050, MarkerOffset: -1, MarkerEpoch: -1, MarkerTimestamp: -1},
		Piece{ProducerID: 7, ProducerEpoch: 2, FirstOffset: 23, LastOffset: 23, FirstTimestamp: 1070, MarkerOffset: -1, MarkerEpoch: -1, MarkerTimestamp: -1})
}

// TestReaderPassesOver: what makes no piece, each alone.
func TestReaderPassesOver(t *testing.T) {
	idempotent := batch.AppendData(nil, batch.DataSpec{ProducerID: 7, Records: []batch.Record{{}}})
	for what, b := range map[string][]byte{
		"nothing":                          nil,
		"data without a producer":          plainBatch(0, 1),
		"data outside a transaction":       idempotent,
		"transactional without a producer": batch.AppendData(nil, batch.DataSpec{ProducerID: -1, Transactional: true, Records: []batch.Record{{}}}),
		"data that compaction emptied":     emptied(dataBatch(0, 4, 7, 1, 1)),
		"a COMMIT of nothing":              markerBatch(0, 7, 1, Committed, 1),
		"an ABORT of nothing":              markerBatch(0, 7, 1, Aborted, 1),
		"a marker that compaction emptied": emptied(markerBatch(0, 7, 1, Committed, 1)),
		"a reset":                          txnabort.PIDReset(0, 1, 1),
		"a leader change":                  controlBatch(0, -1, -1, batch.ControlLeaderChange, 1),
	} {
		r := NewReader(0)
		if err := r.Observe(b); err != nil || len(r.Pieces()) != 0 {
			t.Errorf("%s: %v, %+v", what, err, r.Pieces())
		}
		if len(b) > 0 && r.Next() == 0 {
			t.Errorf("%s: the reader stands still", what)
		}
	}
}

// TestReaderKeepsOpen: what does not end an open transaction, each alone, and what does.
func TestReaderKeepsOpen(t *testing.T) {
	data := dataBatch(0, 4, 7, 1, 1)
	for what, b := range map[string][]byte{
		"a reset":                            txnabort.PIDReset(5, 1, 1),
		"another producer's marker":          markerBatch(5, 8, 1, Committed, 1),
		"a marker that compaction emptied":   emptied(markerBatch(5, 7, 1, Committed, 1)),
		"a marker without a producer":        controlBatch(5, -1, -1, batch.ControlCommit, 1),
		"a control type of another producer": controlBatch(5, 7, 1, batch.ControlLeaderChange, 1),
		"data outside a transaction":         plainBatch(5, 1),
		"its own data that are emptied":      emptied(dataBatch(5, 9, 7, 3, 1)),
	} {
		got := read(t, data, b)
		want := open(7, 1, 0)
		want.LastOffset, want.FirstTimestamp = 4, 1
		if len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v", what, got)
		}
	}
	for what, epoch := range map[string]int16{"the data's epoch": 1, "the next": 2, "an older one": 0, "the last there is": math.MaxInt16} {
		got := read(t, data, txnabort.PIDReset(5, 1, 1), markerBatch(6, 7, epoch, Committed, 9))
		if len(got) != 1 || got[0].Outcome != Committed || got[0].MarkerEpoch != epoch || got[0].MarkerOffset != 6 {
			t.Errorf("a marker behind a reset, of %s: %+v", what, got)
		}
	}
	ours := txnabort.Abort(5, 9, producerstate.Transaction{ProducerID: 7, ProducerEpoch: 1}, 50)
	got := read(t, data, ours, txnabort.PIDReset(6, 9, 50))
	if len(got) != 1 || got[0].Outcome != Aborted || got[0].MarkerOffset != 5 || got[0].MarkerEpoch != 1 || got[0].Version() != VersionUnknown {
		t.Errorf("a mirror's own ABORT: %+v", got)
	}
}

func TestReaderKnowsProducerZero(t *testing.T) {
	if got := read(t, dataBatch(0, 4, 0, 0, 1), markerBatch(5, 0, 0, Aborted, 2)); len(got) != 1 || got[0].ProducerID != 0 || got[0].Outcome != Aborted {
		t.Fatalf("%+v", got)
	}
}

func TestReaderTakesTheLastEpochOfAPiece(t *testing.T) {
	got := read(t, dataBatch(0, 4, 7, 1, 1), dataBatch(5, 6, 7, 3, 9))
	if len(got) != 1 || got[0].ProducerEpoch != 3 || got[0].FirstOffset != 0 || got[0].LastOffset != 6 || got[0].FirstTimestamp != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestReaderFirstTimestamps(t *testing.T) {
	records := []batch.Record{{}, {OffsetDelta: 1, TimestampDelta: 30}}
	spec := batch.DataSpec{ProducerID: 7, Transactional: true, BaseTimestamp: 1000, Records: records}
	if got := read(t, batch.AppendData(nil, spec))[0].FirstTimestamp; got != 1000 {
		t.Errorf("by the producer's clock: %d", got)
	}
	spec.LogAppendTime = true
	if got := read(t, batch.AppendData(nil, spec))[0].FirstTimestamp; got != 1030 {
		t.Errorf("by the broker's clock: %d", got)
	}
	cleaned := dataBatch(0, 1, 7, 1, 5000)
	cleaned[22] |= 0x40 // the base timestamp is the delete horizon
	batch.Seal(cleaned)
	if got := read(t, cleaned)[0].FirstTimestamp; got != -1 {
		t.Errorf("behind compaction: %d", got)
	}
}

// TestReaderBeginsInTheMiddle: with the transactions open there it finds what a reader of the whole log finds, but for what was decided before.
func TestReaderBeginsInTheMiddle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawn(t)
		h := drawHistory(d, sizes{partitions: 1, producers: 4, transactions: 20, steps: 60, v1: true})
		whole, state := h.partitions()[0], producerstate.New()
		from := h.boundaries(0)[d(len(h.boundaries(0)))]
		if err := state.Observe(h.bytes(0, from)); err != nil {
			t.Fatal(err)
		}
		r := NewReader(from, state.InFlight()...)
		if r.Next() != from {
			t.Fatal(r.Next())
		}
		if err := r.Observe(h.bytes(0, whole.End)); err != nil { // what lies below is passed over
			t.Fatal(err)
		}
		want := slices.DeleteFunc(slices.Clone(whole.Pieces), func(p Piece) bool { return p.Outcome != Open && p.MarkerOffset < from })
		if got := r.Pieces(); !slices.Equal(got, want) {
			t.Fatalf("from %d: %+v, want %+v", from, got, want)
		}
		if r.Next() != max(from, whole.End) {
			t.Fatal(r.Next(), whole.End)
		}
		// Without them, what began before is not there.
		blind := NewReader(from)
		if err := blind.Observe(h.bytes(0, whole.End)); err != nil {
			t.Fatal(err)
		}
		for _, p := range blind.Pieces() {
			if p.FirstOffset < from {
				t.Fatalf("%+v", p)
			}
		}
	})
}

// TestReaderBeginsInsideABatch: the batch that contains from is read.
func TestReaderBeginsInsideABatch(t *testing.T) {
	r := NewReader(3)
	if err := r.Observe(slices.Concat(dataBatch(0, 2, 8, 1, 1), dataBatch(3, 5, 7, 1, 1))); err != nil {
		t.Fatal(err)
	}
	r2 := NewReader(4)
	if err := r2.Observe(dataBatch(3, 5, 7, 1, 1)); err != nil {
		t.Fatal(err)
	}
	for _, got := range [][]Piece{r.Pieces(), r2.Pieces()} {
		if len(got) != 1 || got[0].FirstOffset != 3 || got[0].ProducerID != 7 {
			t.Errorf("%+v", got)
		}
	}
}

// TestReaderAgreesWithTheProducersState: what is open is what a stop will abort.
func TestReaderAgreesWithTheProducersState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(drawn(t), sizes{partitions: 1, producers: 5, transactions: 20, steps: 60, v1: true})
		p, state := h.partitions()[0], producerstate.New()
		if err := state.Observe(h.bytes(0, p.End)); err != nil {
			t.Fatal(err)
		}
		var got []Piece
		for _, q := range p.Pieces {
			if q.Outcome == Open {
				got = append(got, q)
			}
		}
		for i, f := range state.InFlight() {
			want := Piece{
				ProducerID: f.ProducerID, ProducerEpoch: f.ProducerEpoch, FirstOffset: f.FirstOffset, LastOffset: f.LastOffset, FirstTimestamp: f.FirstTimestamp,
				MarkerOffset: -1, MarkerEpoch: -1, MarkerTimestamp: -1,
			}
			if i >= len(got) || got[i] != want {
				t.Fatalf("in flight %+v, open %+v", state.InFlight(), got)
			}
		}
		if len(got) != len(state.InFlight()) {
			t.Fatalf("in flight %+v, open %+v", state.InFlight(), got)
		}
		// Its aborted ones too.
		var first []int64
		for _, q := range p.Pieces {
			if q.Outcome == Aborted {
				first = append(first, q.FirstOffset)
			}
		}
		var want []int64
		for _, a := range state.Aborted(0, p.End+1) {
			want = append(want, a.FirstOffset)
		}
		if slices.Sort(want); !slices.Equal(first, want) {
			t.Fatalf("aborted since %v, want %v", first, want)
		}
	})
}

func TestReaderRefuses(t *testing.T) {
	noKey := slices.Concat(batch.AppendControl(nil, batch.ControlSpec{BaseOffset: 5, ProducerID: 7}), dataBatch(9, 9, 8, 1, 1))
	cut := markerBatch(5, 7, 1, Committed, 1)
	for want, b := range map[error][]byte{batch.ErrCorrupt: noKey, batch.ErrCut: cut[:len(cut)-1]} {
		r := NewReader(0)
		if err := r.Observe(slices.Concat(dataBatch(0, 4, 7, 1, 1), b)); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if got := r.Pieces(); len(got) != 1 || got[0].Outcome != Open || r.Next() != 5 {
			t.Errorf("%v: %+v, next is %d", want, got, r.Next())
		}
	}
	if err := NewReader(0).Observe([]byte{0}); !errors.Is(err, batch.ErrCut) {
		t.Error(err)
	}
	r := NewReader(3)
	if err := r.Observe([]byte("no batch")); !errors.Is(err, batch.ErrCut) || err.Error() != "transactions at 3: batch: bytes end inside a batch" {
		t.Error(err)
	}
	err := r.Observe(batch.AppendControl(nil, batch.ControlSpec{BaseOffset: 5, ProducerID: 7}))
	if err == nil || err.Error() != "transactions at 3: corrupt batch at 5: control record has no key that names its type" {
		t.Error(err)
	}
}

func TestPiecesAreACopy(t *testing.T) {
	r := NewReader(0)
	if err := r.Observe(slices.Concat(dataBatch(0, 4, 7, 1, 1), markerBatch(5, 7, 2, Committed, 2))); err != nil {
		t.Fatal(err)
	}
	r.Pieces()[0].ProducerID = 99
	if got := r.Pieces(); got[0].ProducerID != 7 {
		t.Fatalf("%+v", got)
	}
}
