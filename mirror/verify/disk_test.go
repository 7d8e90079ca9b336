package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/twmb/franz-go/pkg/kgo"
)

var tp = mirror.TopicPartition{Topic: "orders", Partition: 3}

// disk is a log as a broker has it: an index by offset that damage does not change, and behind it the bytes in the order in which they lie.
type disk struct {
	start, end int64
	last       []int64 // of each batch, as the index has it
	batches    [][]byte
	before     func(from int64) error // a read
	reads      int
	bytes      int64
}

func diskOf(batches ...[]byte) *disk {
	d := &disk{}
	for i, b := range batches {
		h, _, err := batch.Next(b)
		if err != nil {
			panic(err)
		}
		if i == 0 {
			d.start = h.BaseOffset
		}
		d.last, d.end = append(d.last, h.LastOffset()), h.NextOffset()
		d.batches = append(d.batches, slices.Clone(b))
	}
	return d
}

func (d *disk) clone() *disk {
	c := &disk{start: d.start, end: d.end, last: slices.Clone(d.last)}
	for _, b := range d.batches {
		c.batches = append(c.batches, slices.Clone(b))
	}
	return c
}

// without is the log without batch i, its bounds as they were.
func (d *disk) without(i int) *disk {
	c := d.clone()
	c.last, c.batches = slices.Delete(c.last, i, i+1), slices.Delete(c.batches, i, i+1)
	return c
}

func (d *disk) Partition() mirror.TopicPartition { return tp }

func (d *disk) Bounds(ctx context.Context) (Bounds, error) {
	return Bounds{Start: d.start, End: d.end}, ctx.Err()
}

func (d *disk) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	if d.before != nil {
		if err := d.before(from); err != nil {
			return nil, err
		}
	}
	if from < d.start || from > d.end {
		return nil, fmt.Errorf("%d is not in [%d,%d]: %w", from, d.start, d.end, mirror.ErrOffsetOutOfRange)
	}
	var b []byte
	first, _ := slices.BinarySearch(d.last, from)
	for i := first; i < len(d.last); i++ {
		if b != nil && len(b)+len(d.batches[i]) > most {
			break
		}
		b = append(b, d.batches[i]...)
	}
	d.reads, d.bytes = d.reads+1, d.bytes+int64(len(b))
	return b, ctx.Err()
}

// look verifies, and fails the test on an error.
func look(t testing.TB, a, b Side, o Options) Report {
	t.Helper()
	r, err := Verify(t.Context(), a, b, o)
	if err != nil {
		t.Fatalf("%v; %s", err, &r)
	}
	return r
}

// content is a batch as its producer and the cleaner see it.
type content struct {
	base, last int64
	epoch      int32
	pid        int64
	pepoch     int16
	seq        int32
	txn        bool
	control    int8 // 0 data, 'A' ABORT, 'C' COMMIT, 'R' a reset
	appendTime bool
	codec      int8
	horizon    int64 // -1: none
	maxTime    int64
	records    []entry
}

type entry struct {
	offset, time int64
	key, value   []byte
	headers      []batch.RecordHeader
}

var codecs = map[int8]kgo.Compressor{}

func init() {
	for codec, c := range map[int8]kgo.CompressionCodec{1: kgo.GzipCompression(), 2: kgo.SnappyCompression(), 3: kgo.Lz4Compression(), 4: kgo.ZstdCompression()} {
		made, err := kgo.DefaultCompressor(c)
		if err != nil {
			panic(err)
		}
		codecs[codec] = made
	}
}

func compress(codec int8, plain []byte) []byte {
	if codec == 0 || len(plain) == 0 {
		return plain
	}
	var into bytes.Buffer
	b, as := codecs[codec].Compress(&into, plain)
	if int8(as) != codec {
		panic(fmt.Sprintf("codec %d became %d", codec, as))
	}
	return slices.Clone(b)
}

// bytes writes the batch as a producer does, or the cleaner.
func (c *content) bytes() []byte {
	spec := batch.DataSpec{
		BaseOffset: c.base, LeaderEpoch: c.epoch, LastOffsetDelta: int32(c.last - c.base), ProducerID: c.pid, ProducerEpoch: c.pepoch, BaseSequence: c.seq,
		Transactional: c.txn, LogAppendTime: c.appendTime, BaseTimestamp: -1, MaxTimestamp: c.maxTime,
	}
	if len(c.records) > 0 {
		spec.BaseTimestamp = c.records[0].time
		if c.horizon >= 0 {
			spec.BaseTimestamp = c.horizon
		}
	}
	for _, r := range c.records {
		spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(r.offset - c.base), TimestampDelta: r.time - spec.BaseTimestamp, Key: r.key, Value: r.value, Headers: r.headers})
	}
	b := batch.AppendData(nil, spec)
	binary.BigEndian.PutUint64(b[35:], uint64(c.maxTime))
	attributes := binary.BigEndian.Uint16(b[21:])
	if c.control != 0 {
		attributes |= 0x20
	}
	if len(c.records) > 0 {
		if c.horizon >= 0 {
			attributes |= 0x40
		}
		attributes |= uint16(c.codec)
		b = append(b[:batch.HeaderSize:batch.HeaderSize], compress(c.codec, b[batch.HeaderSize:])...)
		binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	}
	binary.BigEndian.PutUint16(b[21:], attributes)
	batch.Seal(b)
	return b
}

// write is a data batch without a producer: one record for each key; "k=" is a tombstone, "" has no key.
func write(base int64, keys ...string) *content {
	c := &content{base: base, last: base + int64(len(keys)) - 1, epoch: 5, pid: -1, pepoch: -1, seq: -1, horizon: -1}
	for i, k := range keys {
		e := entry{offset: base + int64(i), time: 1000 + base + int64(i)}
		switch n := len(k); {
		case n == 0:
			e.value = []byte("v")
		case k[n-1] == '=':
			e.key = []byte(k[:n-1])
		default:
			e.key, e.value = []byte(k), fmt.Appendf(nil, "%s at %d", k, e.offset)
		}
		c.records, c.maxTime = append(c.records, e), e.time
	}
	return c
}

func (c *content) by(pid int64, seq int32) *content {
	c.pid, c.pepoch, c.seq = pid, 0, seq
	return c
}

func (c *content) inTransaction(pid int64, seq int32) *content {
	c.by(pid, seq).txn = true
	return c
}

func (c *content) compressed(codec int8) *content {
	c.codec = codec
	return c
}

// end is a control batch of one record.
func end(base, pid int64, kind int8) *content {
	c := &content{base: base, last: base, epoch: 5, pid: pid, txn: kind != 'R', control: kind, seq: -1, horizon: -1, maxTime: 1000 + base}
	if kind == 'R' {
		c.pepoch = -1
	}
	types := map[int8]byte{'A': 0, 'C': 1, 'R': 7}
	c.records = []entry{{offset: base, time: c.maxTime, key: []byte{0, 0, 0, types[kind]}, value: []byte{0, 0, 0, 0, 0, 1}}}
	return c
}

// kept is the batch with these of its records only, as the cleaner writes it.
func (c *content) kept(offsets ...int64) *content {
	k := *c
	k.records = slices.DeleteFunc(slices.Clone(c.records), func(e entry) bool { return !slices.Contains(offsets, e.offset) })
	if !k.appendTime && len(k.records) > 0 {
		k.maxTime = k.records[0].time
		for _, e := range k.records {
			k.maxTime = max(k.maxTime, e.time)
		}
	}
	return &k
}

func (c *content) until(horizon int64) *content {
	k := *c
	k.horizon = horizon
	return &k
}

func logOf(all ...*content) *disk {
	var batches [][]byte
	for _, c := range all {
		batches = append(batches, c.bytes())
	}
	return diskOf(batches...)
}
