package logtest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// made is a batch that the kit made.
type made struct {
	base, next int64
	bytes      []byte
}

func (m made) String() string { return fmt.Sprintf("%d–%d", m.base, m.next-1) }

func join(some ...made) []byte {
	var b []byte
	for _, m := range some {
		b = append(b, m.bytes...)
	}
	return b
}

const timestamp = 1_700_000_000_000

func records(n int32, seed uint64, size int) []batch.Record {
	r := rand.New(rand.NewPCG(seed, 1279))
	some := make([]batch.Record, n)
	for i := range some {
		value := make([]byte, size+r.IntN(size+1))
		for j := range value {
			value[j] = byte(r.Uint32())
		}
		some[i] = batch.Record{OffsetDelta: int32(i), TimestampDelta: int64(i), Key: fmt.Appendf(nil, "key-%d", i), Value: value}
	}
	return some
}

func build(spec batch.DataSpec) made {
	if spec.ProducerID == 0 {
		spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence = -1, -1, -1
	}
	spec.BaseTimestamp = timestamp
	m := made{base: spec.BaseOffset, bytes: batch.AppendData(nil, spec)}
	h, _, err := batch.Next(m.bytes)
	if err != nil {
		panic(err)
	}
	m.next = h.NextOffset()
	return m
}

// data is n records at base; the same arguments give the same bytes.
func data(base int64, n int32) made {
	return build(batch.DataSpec{BaseOffset: base, Records: records(n, uint64(base), 20)})
}

// other is as data, with other bytes.
func other(base int64, n int32) made {
	return build(batch.DataSpec{BaseOffset: base, Records: records(n, uint64(base)+1<<50, 30)})
}

// hole is a batch whose header names more offsets than it has records: compaction took the last ones.
func hole(base int64, n, lastDelta int32) made {
	return build(batch.DataSpec{BaseOffset: base, Records: records(n, uint64(base), 20), LastOffsetDelta: lastDelta})
}

// emptied is a batch without records.
func emptied(base int64, lastDelta int32) made {
	return build(batch.DataSpec{BaseOffset: base, LastOffsetDelta: lastDelta, ProducerID: 7, BaseSequence: 3, MaxTimestamp: timestamp})
}

func transactional(base int64, n int32) made {
	return build(batch.DataSpec{BaseOffset: base, Records: records(n, uint64(base), 20), ProducerID: 9, Transactional: true})
}

// control is a transaction marker.
func control(base int64) made {
	return made{base, base + 1, batch.AppendControl(nil, batch.ControlSpec{
		BaseOffset: base, ProducerID: 9, BaseSequence: -1, Transactional: true, Timestamp: timestamp, Key: []byte{0, 0, 0, 1}, Value: make([]byte, 6),
	})}
}

// compressed claims a codec that its bytes are not in: a Log never looks.
func compressed(base int64, n int32) made {
	m := data(base, n)
	const attributes, crc, covered = 21, 17, 21
	binary.BigEndian.PutUint16(m.bytes[attributes:], batch.CodecZstd)
	binary.BigEndian.PutUint32(m.bytes[crc:], checksum(m.bytes[covered:]))
	return m
}
