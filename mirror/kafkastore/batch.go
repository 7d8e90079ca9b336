package kafkastore

import (
	"strconv"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
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

// maxBatchBytes is far below a topic's max.message.bytes of 1 MiB. headersBytes is about what a record has besides key, value and writer.
const (
	maxBatchBytes = 256 << 10
	headersBytes  = 120
)

// size is about how many bytes the record has in a batch.
func (r *output) size() int { return len(r.key) + len(r.value) + len(r.writer) + headersBytes }

func headers(r *output, update string, of int) []batch.RecordHeader {
	var all []batch.RecordHeader
	if r.writer != "" {
		all = append(all, batch.RecordHeader{Key: headerWriter, Value: []byte(r.writer)}, batch.RecordHeader{Key: headerSession, Value: strconv.AppendInt(nil, r.session, 10)})
	}
	return append(all, batch.RecordHeader{Key: headerUpdate, Value: []byte(update)}, batch.RecordHeader{Key: headerOf, Value: strconv.AppendInt(nil, int64(of), 10)})
}

// batches encodes records of one partition. sizes are their numbers of records.
func batches(records []*output, update string, of int, producer int64, epoch int16, sequence int32, now time.Time) (encoded [][]byte, sizes []int) {
	for len(records) > 0 {
		spec := batch.DataSpec{LeaderEpoch: -1, ProducerID: producer, ProducerEpoch: epoch, BaseSequence: sequence, Transactional: true, BaseTimestamp: now.UnixMilli()}
		size, n := 0, 0
		for _, r := range records {
			size += r.size()
			if n > 0 && size > maxBatchBytes {
				break
			}
			spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(n), Key: r.key, Value: r.value, Headers: headers(r, update, of)})
			n++
		}
		encoded, sizes = append(encoded, batch.AppendData(nil, spec)), append(sizes, n)
		records, sequence = records[n:], sequence+int32(n)
	}
	return encoded, sizes
}
