package verify

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/mirror"
)

// blob is a log whose every read brings the same bytes, from the batch on that contains the offset, as far as batches can be seen.
type blob struct {
	bytes []byte
	reads int
}

func (b *blob) Partition() mirror.TopicPartition           { return tp }
func (b *blob) Bounds(ctx context.Context) (Bounds, error) { return Bounds{End: 1000}, ctx.Err() }
func (b *blob) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	b.reads++
	rest := b.bytes
	for len(rest) > 0 {
		h, n, err := batch.Next(rest)
		if err != nil || h.LastOffset() >= from {
			break
		}
		rest = rest[n:]
	}
	return rest, ctx.Err()
}

// FuzzVerify compares logs of any bytes: it ends, costs little, says the same twice, does not find a log to be another one than itself, and does not find two different ones equal byte by byte.
func FuzzVerify(f *testing.F) {
	for _, l := range []*disk{four(), many(3), logOf(write(0, "a", "b=").until(7).compressed(4), end(2, 5, 'C'), write(3, "a"))} {
		var all []byte
		for _, b := range l.batches {
			all = append(all, b...)
		}
		f.Add(all, uint16(20), byte(1), false)
		f.Add(all, uint16(len(all)-5), byte(0x80), true)
	}
	f.Fuzz(func(t *testing.T, bytes []byte, at uint16, flip byte, compacted bool) {
		if len(bytes) == 0 || len(bytes) > 1<<16 {
			return
		}
		other := append([]byte(nil), bytes...)
		other[int(at)%len(bytes)] ^= flip
		o := Options{Compacted: compacted, MaxBatch: len(bytes), Waiting: 64, Findings: 4, Chunk: len(bytes)}
		var r, again, self Report
		var err, errAgain, errSelf error
		fuzzbound.Run(t, 64*len(bytes), func() { // each piece, and each half of one that differs, is hashed
			r, err = Verify(t.Context(), &blob{bytes: bytes}, &blob{bytes: other}, o)
		})
		again, errAgain = Verify(t.Context(), &blob{bytes: bytes}, &blob{bytes: other}, o)
		if r.String() != again.String() || (err == nil) != (errAgain == nil) {
			t.Errorf("%s, %v\nand then\n%s, %v", &r, err, &again, errAgain)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
		self, errSelf = Verify(t.Context(), &blob{bytes: bytes}, &blob{bytes: bytes}, o)
		if m := self.Mismatch; errSelf == nil && (len(self.Holes) > 0 || m != nil && m.Kind != mirror.DifferenceGarbage && m.Kind != DifferenceOrder) {
			t.Errorf("with itself: %s", &self)
		}
		if err == nil && r.Equal() && !compacted && flip != 0 && r.Bytewise.Bytes > int64(int(at)%len(bytes)) {
			t.Errorf("byte %d is another one: %s", int(at)%len(bytes), &r)
		}
	})
}
