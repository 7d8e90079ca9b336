package mirror

import (
	"context"
	"errors"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// bytesLog is a log that is whatever bytes it holds.
type bytesLog struct {
	end    int64
	chunks map[int64][]byte // by the offset asked for
}

func (l bytesLog) Start() int64 { return 0 }
func (l bytesLog) End() int64   { return l.end }
func (l bytesLog) Read(_ context.Context, from int64, _ int) ([]byte, error) {
	return l.chunks[from], nil
}

// TestReadLogTellsDamageFromAGap: an empty read is a gap up to the end; bytes that are no batch are damage, at the beginning of a piece as well as later, and when read again.
func TestReadLogTellsDamageFromAGap(t *testing.T) {
	one := func(base int64) []byte {
		return batch.AppendData(nil, batch.DataSpec{BaseOffset: base, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, BaseTimestamp: 1, Records: []batch.Record{{Value: []byte("v")}}})
	}
	rotten := one(1)
	rotten[16] = 9 // the format
	for _, c := range []struct {
		name    string
		log     bytesLog
		from    int64
		read    int
		damaged int64
	}{
		{"whole", bytesLog{2, map[int64][]byte{0: append(one(0), one(1)...)}}, 0, 2, -1},
		{"gap at the end", bytesLog{9, map[int64][]byte{0: one(0)}}, 0, 1, -1},
		{"damage at the beginning of a piece", bytesLog{2, map[int64][]byte{0: one(0), 1: rotten}}, 0, 1, 1},
		{"damage inside a piece", bytesLog{2, map[int64][]byte{0: append(one(0), rotten...)}}, 0, 0, 1},
		{"damage read again", bytesLog{2, map[int64][]byte{1: rotten}}, 1, 0, 1},
		{"half a batch", bytesLog{1, map[int64][]byte{0: one(0)[:40]}}, 0, 0, 0},
		{"no progress", bytesLog{9, map[int64][]byte{0: one(0), 1: one(0)}}, 0, 1, 1},
	} {
		read := 0
		err := readLog(t.Context(), c.log, c.from, c.log.end, func(b []byte) error {
			for range Batches(b) {
				read++
			}
			return nil
		})
		var damage *DamagedLogError
		if read != c.read || (c.damaged < 0) != (err == nil) || err != nil && (!errors.As(err, &damage) || damage.Offset != c.damaged) {
			t.Errorf("%s: read %d, %v", c.name, read, err)
		}
	}
}
