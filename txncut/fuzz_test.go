package txncut

import (
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"pgregory.net/rapid"
)

// FuzzReader: whatever whole batches a log has, the pieces lie inside it, at most one of a producer is open, and how the log is cut into calls makes no difference.
func FuzzReader(f *testing.F) {
	for _, b := range fuzzbound.Recorded(f) {
		f.Add(b, int64(0))
	}
	h := drawHistory(seeded(1), sizes{partitions: 1, producers: 4, transactions: 12, steps: 60, v1: true})
	b := h.bytes(0, h.end(0))
	f.Add(b, int64(0))
	f.Add(slices.Concat(b, b), h.end(0)/2)
	f.Add(slices.Concat(dataBatch(0, 2, 7, 1, 1), emptied(dataBatch(3, 4, 7, 1, 1)), emptied(markerBatch(5, 7, 1, Committed, 2)), markerBatch(6, 7, 2, Committed, 3)), int64(1))
	f.Add(batch.AppendControl(nil, batch.ControlSpec{ProducerID: 7}), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, from int64) {
		var r *Reader
		var err error
		fuzzbound.Run(t, len(b), func() {
			r = NewReader(from)
			err = r.Observe(b)
			r.Pieces()
		})
		pieces := r.Pieces()
		open := map[int64]bool{}
		for i, p := range pieces {
			if p.FirstOffset > p.LastOffset || p.LastOffset >= r.Next() || i > 0 && p.FirstOffset < pieces[i-1].FirstOffset || p.ProducerID < 0 {
				t.Fatalf("%+v", pieces)
			}
			if p.Outcome == Open {
				if open[p.ProducerID] || p.MarkerOffset != -1 {
					t.Fatalf("%+v", pieces)
				}
				open[p.ProducerID] = true
			} else if p.MarkerOffset <= p.FirstOffset || p.MarkerOffset >= r.Next() {
				t.Fatalf("%+v", pieces)
			}
		}
		single := NewReader(from)
		for _, raw := range batch.All(b) {
			if single.Observe(raw) != nil {
				break
			}
		}
		if !slices.Equal(pieces, single.Pieces()) || r.Next() != single.Next() {
			t.Fatalf("in one call (%v) %+v, in many %+v", err, pieces, single.Pieces())
		}
	})
}

// FuzzHistories draws histories and pieces from the bytes, see checkCut and checkAnyPieces.
func FuzzHistories(f *testing.F) {
	f.Add(fuzzbound.Drawn(64))
	f.Add(fuzzbound.Drawn(200))
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		d := drawn(t)
		h := drawHistory(d, sizes{partitions: 5, producers: 4, transactions: 20, steps: 80, v1: true, ahead: skewOfHistories, lag: true})
		checkCut(t, h, h.partitions(), drawOptions(d))
		checkAnyPieces(t, d)
	}))
}
