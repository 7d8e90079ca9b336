package replicareader

import (
	"errors"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
)

// FuzzWholeBatches: of whatever a broker answers only a beginning of whole, checked batches in order is taken, within the limit but for the first one; otherwise it is said how
// many bytes the first one has, or why it cannot be read.
func FuzzWholeBatches(f *testing.F) {
	for _, b := range fuzzbound.Recorded(f) {
		f.Add(b, int64(0), 1<<20)
		f.Add(b[:len(b)-1], int64(2), 100)
	}
	f.Add(append(data(5, 0, 2, 10), data(3, 0, 2, 10)...), int64(0), 1000)
	f.Add(data(5, 0, 2, 10), int64(9), 1000)
	f.Add(data(5, 0, 2, 10)[:20], int64(5), -1)
	f.Fuzz(func(t *testing.T, raw []byte, from int64, limit int) {
		var whole []byte
		var need int
		var err error
		fuzzbound.Run(t, len(raw), func() { whole, need, err = wholeBatches(raw, from, limit) })
		if err != nil || need != 0 {
			if len(whole) > 0 || err != nil && need != 0 || err == nil && need <= len(raw) {
				t.Fatalf("%d bytes of %d, %d are needed, %v", len(whole), len(raw), need, err)
			}
			var corrupt *batch.CorruptError
			var format *batch.FormatError
			if err != nil && !errors.Is(err, errOrder) && !errors.As(err, &corrupt) && !errors.As(err, &format) {
				t.Fatalf("error %T %v", err, err)
			}
			return
		}
		size, next := 0, from
		for h, one := range batch.All(whole) {
			if err := batch.Check(one, &h); err != nil || h.LastOffset() < next || size > 0 && (h.BaseOffset < next || size+len(one) > limit) {
				t.Fatalf("[%d,%d] at byte %d where %d has to come, of at most %d bytes: %v", h.BaseOffset, h.LastOffset(), size, next, limit, err)
			}
			size, next = size+len(one), h.NextOffset()
		}
		if size != len(whole) || len(whole) > 0 && &whole[0] != &raw[0] || len(whole) == 0 && len(raw) > 0 {
			t.Fatalf("%d of %d bytes are whole batches, %d were taken", size, len(raw), len(whole))
		}
	})
}
