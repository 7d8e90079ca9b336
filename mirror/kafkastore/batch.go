package kafkastore

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The headers of every record. What a key and its value are is spec §8's and mirror's; who wrote them travels beside it, so that they stay byte-compatible.
const (
	headerWriter  = "writer"  // who owns the key; absent: nobody
	headerSession = "session" // number of the writer's session, decimal
	headerUpdate  = "update"  // the update that wrote it: 32 hexadecimal digits
	headerOf      = "of"      // how many records that update wrote, decimal
)

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// output is one record to be written.
type output struct {
	place
	key, value []byte // a nil value is a tombstone
	writer     string
	session    int64
	offset     int64 // once it is written
}

// maxBatchBytes is far below a topic's max.message.bytes of 1 MiB.
const maxBatchBytes = 256 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batchAttributes is a transactional batch without compression.
const batchAttributes = 1 << 4

func encodeRecord(r *output, update string, of int, delta int) []byte {
	k := kmsg.Record{OffsetDelta: int32(delta), Key: r.key, Value: r.value}
	if r.writer != "" {
		k.Headers = append(k.Headers, kmsg.Header{Key: headerWriter, Value: []byte(r.writer)}, kmsg.Header{Key: headerSession, Value: strconv.AppendInt(nil, r.session, 10)})
	}
	k.Headers = append(k.Headers, kmsg.Header{Key: headerUpdate, Value: []byte(update)}, kmsg.Header{Key: headerOf, Value: strconv.AppendInt(nil, int64(of), 10)})
	// The length is a varint in front of what it counts; that of zero is one byte.
	k.Length = int32(len(k.AppendTo(nil)) - 1)
	return k.AppendTo(nil)
}

// batches encodes records of one partition. sizes are their numbers of records.
func batches(records []*output, update string, of int, producer int64, epoch int16, sequence int32, now time.Time) (encoded [][]byte, sizes []int) {
	var body []byte
	n := 0
	flush := func() {
		b := kmsg.RecordBatch{
			PartitionLeaderEpoch: -1, Magic: 2, Attributes: batchAttributes, LastOffsetDelta: int32(n - 1), FirstTimestamp: now.UnixMilli(), MaxTimestamp: now.UnixMilli(),
			ProducerID: producer, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: int32(n), Records: body,
		}
		const beforeLength, beforeCRC, behindCRC = 12, 17, 21
		raw := b.AppendTo(nil)
		binary.BigEndian.PutUint32(raw[beforeLength-4:], uint32(len(raw)-beforeLength))
		binary.BigEndian.PutUint32(raw[beforeCRC:], crc32.Checksum(raw[behindCRC:], castagnoli))
		encoded, sizes = append(encoded, raw), append(sizes, n)
		sequence += int32(n)
		body, n = nil, 0
	}
	for _, r := range records {
		one := encodeRecord(r, update, of, n)
		if n > 0 && len(body)+len(one) > maxBatchBytes {
			flush()
			one = encodeRecord(r, update, of, 0)
		}
		body = slices.Concat(body, one)
		n++
	}
	flush()
	return encoded, sizes
}
