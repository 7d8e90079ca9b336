package batch

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func drawBytes(t *rapid.T, name string) []byte {
	switch rapid.IntRange(0, 9).Draw(t, name+" kind") {
	case 0:
		return nil
	case 1:
		return bytes.Repeat([]byte{7}, rapid.SampledFrom([]int{63, 64, 8191, 8192, 70000}).Draw(t, name+" size"))
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, name)
}

func drawSpec(t *rapid.T) DataSpec {
	s := DataSpec{
		BaseOffset:    rapid.Int64Range(0, 1<<62).Draw(t, "base"),
		LeaderEpoch:   rapid.Int32Range(0, 1<<31-1).Draw(t, "leader epoch"),
		ProducerID:    rapid.Int64Range(-1, 1<<62).Draw(t, "producer"),
		ProducerEpoch: rapid.Int16Range(0, 1<<15-1).Draw(t, "producer epoch"),
		BaseSequence:  rapid.Int32Range(0, 1<<31-1).Draw(t, "sequence"),
		Transactional: rapid.Bool().Draw(t, "transactional"),
		LogAppendTime: rapid.Bool().Draw(t, "log append time"),
		BaseTimestamp: rapid.Int64Range(-1, 1<<42).Draw(t, "timestamp"),
	}
	delta := int32(-1)
	for range rapid.IntRange(0, 5).Draw(t, "records") {
		delta += rapid.Int32Range(1, 300).Draw(t, "step")
		r := Record{OffsetDelta: delta, TimestampDelta: rapid.Int64Range(-1<<40, 1<<40).Draw(t, "timestamp delta"), Key: drawBytes(t, "key"), Value: drawBytes(t, "value")}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, RecordHeader{Key: rapid.StringN(0, 5, 20).Draw(t, "header key"), Value: drawBytes(t, "header value")})
		}
		s.Records = append(s.Records, r)
	}
	s.LastOffsetDelta = max(delta, 0)
	if rapid.Bool().Draw(t, "hole at the end") {
		s.LastOffsetDelta += rapid.Int32Range(1, 1<<20).Draw(t, "hole")
	}
	return s
}

// kmsgBatch builds the batch of s a second way, from the message definitions in kmsg.
func kmsgBatch(s DataSpec) []byte {
	rb := kmsg.RecordBatch{
		FirstOffset: s.BaseOffset, PartitionLeaderEpoch: s.LeaderEpoch, Magic: 2, LastOffsetDelta: s.LastOffsetDelta, FirstTimestamp: s.BaseTimestamp, MaxTimestamp: s.BaseTimestamp,
		ProducerID: s.ProducerID, ProducerEpoch: s.ProducerEpoch, FirstSequence: s.BaseSequence, NumRecords: int32(len(s.Records)),
	}
	if s.ProducerID < 0 {
		rb.ProducerEpoch, rb.FirstSequence = -1, -1
	}
	if s.Transactional {
		rb.Attributes += 16
	}
	if s.LogAppendTime {
		rb.Attributes += 8
	}
	for i, r := range s.Records {
		k := kmsg.Record{TimestampDelta64: r.TimestampDelta, OffsetDelta: r.OffsetDelta, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		k.Length = int32(len(k.AppendTo(nil)) - 1) // a length of 0 takes one byte
		rb.Records = k.AppendTo(rb.Records)
		if at := s.BaseTimestamp + r.TimestampDelta; i == 0 || at > rb.MaxTimestamp {
			rb.MaxTimestamp = at
		}
	}
	b := rb.AppendTo(nil)
	rb.Length = int32(len(b) - 12)
	rb.CRC = int32(crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return rb.AppendTo(nil)
}

// What we write is what kmsg writes; what we read is what we wrote; what kgo reads from it is the same.
func TestDataBatchesAgainstKmsgAndKgo(t *testing.T) {
	rapid.Check(t, dataBatchAgainstKmsgAndKgo)
}

func dataBatchAgainstKmsgAndKgo(t *rapid.T) {
	s := drawSpec(t)
	b := AppendData(nil, s)
	if want := kmsgBatch(s); !bytes.Equal(b, want) {
		t.Fatalf("built\n%x, kmsg builds\n%x", b, want)
	}
	h, n, err := Next(b)
	if err != nil || n != len(b) {
		t.Fatal(n, err)
	}
	if err := Check(b, &h); err != nil {
		t.Fatal(err)
	}
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	if !same(h, &k) {
		t.Fatalf("header %+v, kmsg reads %+v", h, k)
	}
	records, err := ReadRecords(b, &h)
	if err != nil || len(records) != len(s.Records) {
		t.Fatal(len(records), err)
	}
	for i, r := range records {
		if w := s.Records[i]; !sameRecord(r, w) {
			t.Fatalf("record %d is %+v, want %+v", i, r, w)
		}
	}
	response := kmsg.NewFetchResponseTopicPartition()
	response.RecordBatches = b
	read, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: s.BaseOffset}, &response, kgo.DefaultDecompressor(), nil)
	if read.Err != nil || len(read.Records) != len(s.Records) {
		t.Fatalf("kgo reads %d records, %v", len(read.Records), read.Err)
	}
	for i, r := range read.Records {
		w := s.Records[i]
		if r.Offset != s.BaseOffset+int64(w.OffsetDelta) || !bytes.Equal(r.Key, w.Key) || !bytes.Equal(r.Value, w.Value) || len(r.Headers) != len(w.Headers) {
			t.Fatalf("kgo reads record %d as %+v, want %+v", i, r, w)
		}
	}
}

func sameRecord(a, b Record) bool {
	same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	if a.OffsetDelta != b.OffsetDelta || a.TimestampDelta != b.TimestampDelta || !same(a.Key, b.Key) || !same(a.Value, b.Value) || len(a.Headers) != len(b.Headers) {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !same(a.Headers[i].Value, b.Headers[i].Value) {
			return false
		}
	}
	return true
}

func TestSameRecordSaysNo(t *testing.T) {
	base := func() Record {
		return Record{OffsetDelta: 1, TimestampDelta: 2, Key: []byte("k"), Value: []byte{}, Headers: []RecordHeader{{Key: "h", Value: []byte("v")}}}
	}
	if !sameRecord(base(), base()) {
		t.Fatal("equal records differ")
	}
	for i, change := range []func(r *Record){
		func(r *Record) { r.OffsetDelta++ }, func(r *Record) { r.TimestampDelta++ }, func(r *Record) { r.Key = []byte("j") }, func(r *Record) { r.Value = nil },
		func(r *Record) { r.Headers = nil }, func(r *Record) { r.Headers[0].Key = "g" }, func(r *Record) { r.Headers[0].Value = nil },
	} {
		r := base()
		change(&r)
		if sameRecord(r, base()) {
			t.Errorf("change %d is not seen", i)
		}
	}
}

// A real client's batches, every codec and a transaction, as a broker stores them, pass.
func TestClientBatchesPass(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	ctx := context.Background()
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	value := bytes.Repeat([]byte("compressible "), 100)
	for i, codec := range codecs {
		client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(codec),
			kgo.TransactionalID(string(rune('a'+i))), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := client.ProduceSync(ctx, &kgo.Record{Key: []byte("k"), Value: value}, &kgo.Record{Value: value}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.EndTransaction(ctx, kgo.TransactionEndTry(i%2 == 0)); err != nil {
			t.Fatal(err)
		}
		client.Close()
	}

	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topics := kmsg.NewMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr("t")
	topics.Topics = append(topics.Topics, topic)
	metadata, err := topics.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	fetch := kmsg.NewFetchRequest()
	fetch.MaxBytes = 64 << 20
	fetchTopic := kmsg.NewFetchRequestTopic()
	fetchTopic.Topic, fetchTopic.TopicID = "t", metadata.Topics[0].TopicID
	fetchPartition := kmsg.NewFetchRequestTopicPartition()
	fetchPartition.PartitionMaxBytes = 64 << 20
	fetchPartition.CurrentLeaderEpoch = -1
	fetchTopic.Partitions = append(fetchTopic.Partitions, fetchPartition)
	fetch.Topics = append(fetch.Topics, fetchTopic)
	response, err := fetch.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	partition := response.Topics[0].Partitions[0]
	var next int64
	seen := map[int8]int{}
	markers := map[ControlType]int{}
	for b := partition.RecordBatches; len(b) > 0; {
		h, n, err := Next(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(b[:n], &h); err != nil {
			t.Fatal(err)
		}
		if h.BaseOffset != next {
			t.Fatalf("batch at %d, want %d", h.BaseOffset, next)
		}
		next = h.NextOffset()
		if h.Control() {
			c, err := ReadControl(b[:n], &h)
			if err != nil {
				t.Fatal(err)
			}
			markers[c.Type]++
		} else {
			seen[h.Codec()]++
		}
		b = b[n:]
	}
	if next != partition.HighWatermark {
		t.Fatalf("read to %d, high watermark %d", next, partition.HighWatermark)
	}
	for codec := int8(CodecNone); codec <= CodecZstd; codec++ {
		if seen[codec] == 0 {
			t.Errorf("no batch with codec %d: %v", codec, seen)
		}
	}
	if markers[ControlCommit] != 3 || markers[ControlAbort] != 2 {
		t.Errorf("markers %v", markers)
	}
}

// Whatever the bytes, reading them neither panics nor runs over; what passes holds what Check promises.
func FuzzNextCheck(f *testing.F) {
	f.Add(AppendData(nil, plain(0, 3)))
	f.Add(edit(AppendData(nil, plain(0, 3)), setAttributes(CodecZstd)))
	f.Add(AppendData(nil, DataSpec{BaseOffset: 1, LastOffsetDelta: 8, ProducerID: 7}))
	f.Add(mustHex(f, goldenAbort))
	f.Add(mustHex(f, goldenPIDReset))
	f.Add(append(mustHex(f, goldenAbort), mustHex(f, goldenPIDReset)[:40]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := Next(b)
		if err != nil {
			return
		}
		if n != h.Size() || n > len(b) || n < HeaderSize || h.BaseOffset < 0 || h.LastOffsetDelta < 0 || h.NextOffset() <= h.BaseOffset {
			t.Fatalf("%d of %d bytes, header %+v", n, len(b), h)
		}
		whole := bytes.Clone(b[:n])
		// A random checksum is never right. Seal, so that what lies behind it is tried too.
		Seal(whole)
		h.CRC = binary.BigEndian.Uint32(whole[atCRC:])
		control, controlErr := ReadControl(whole, &h)
		if controlErr == nil && control.Version < 0 {
			t.Fatalf("%+v", control)
		}
		records, recordsErr := ReadRecords(whole, &h)
		if err := Check(whole, &h); err != nil {
			return
		}
		if int64(h.RecordCount) > int64(h.LastOffsetDelta)+1 || h.RecordCount < 0 {
			t.Fatalf("header %+v passes", h)
		}
		last := int32(-1)
		for _, r := range records {
			if recordsErr == nil && (r.OffsetDelta <= last || r.OffsetDelta > h.LastOffsetDelta) {
				t.Fatalf("deltas %d after %d pass; last is %d", r.OffsetDelta, last, h.LastOffsetDelta)
			}
			last = r.OffsetDelta
		}
	})
}
