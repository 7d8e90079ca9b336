package chaos_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clienthistory"
)

// Nothing of this module reads the bytes here: its errors could hide in what is compared.

// piece is one whole batch.
type piece struct {
	base, next    int64
	epoch         int32
	control       int // type of the control record, −1: data
	transactional bool
	producer      int64
	producerEpoch int16
	raw           []byte
}

// The types of control records.
const (
	markerAbort, markerCommit = 0, 1
	markerReset               = 7 // KIP-1279's MIRROR_PID_RESET
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// cut cuts a log into its batches. Bytes at the end that are no whole batch are returned as rest.
func cut(log []byte) (all []piece, rest []byte, err error) {
	for len(log) > 0 {
		if len(log) < 61 {
			return all, log, nil
		}
		size := 12 + int(int32(binary.BigEndian.Uint32(log[8:])))
		base := int64(binary.BigEndian.Uint64(log))
		if size < 61 || log[16] != 2 {
			return all, log, fmt.Errorf("no batch at offset %d: %d bytes, magic %d", base, size, log[16])
		}
		if size > len(log) {
			return all, log, nil
		}
		raw := log[:size:size]
		if crc32.Checksum(raw[21:], castagnoli) != binary.BigEndian.Uint32(raw[17:]) {
			return all, log, fmt.Errorf("the checksum of the batch at offset %d is wrong", base)
		}
		attributes := binary.BigEndian.Uint16(raw[21:])
		p := piece{base: base, next: base + int64(int32(binary.BigEndian.Uint32(raw[23:]))) + 1, epoch: int32(binary.BigEndian.Uint32(raw[12:])), control: -1, transactional: attributes&16 != 0,
			producer: int64(binary.BigEndian.Uint64(raw[43:])), producerEpoch: int16(binary.BigEndian.Uint16(raw[51:])), raw: raw}
		if attributes&32 != 0 {
			// A control record: length, attributes, two deltas, the key's length, each one byte because they are small; then the key: version and type.
			if len(raw) < 61+9 {
				return all, log, fmt.Errorf("the control batch at offset %d has no key", base)
			}
			p.control = int(binary.BigEndian.Uint16(raw[61+7:]))
		}
		all, log = append(all, p), log[size:]
	}
	return all, nil, nil
}

// since drops the batches that end at or below start.
func since(all []piece, start int64) []piece {
	i := slices.IndexFunc(all, func(p piece) bool { return p.next > start })
	if i < 0 {
		return nil
	}
	return all[i:]
}

// endOf is where a log ends; without batches that is its start.
func endOf(all []piece, start int64) int64 {
	if len(all) == 0 {
		return start
	}
	return all[len(all)-1].next
}

// onDisk is one partition of the copy as it lies on disk.
type onDisk struct {
	Start, End  int64
	LeaderEpoch int32
	Open        bool
	log         []byte
}

// readCopy reads a partition of examples/custombroker: the small file meta, whose first line is JSON, and the data file that it names.
func readCopy(dir, topic string, partition int32) (d onDisk, err error) {
	folder := filepath.Join(dir, "topics", topic, strconv.Itoa(int(partition)))
	text, err := os.ReadFile(filepath.Join(folder, "meta"))
	if err != nil {
		return d, err
	}
	var meta struct {
		Start       int64
		LeaderEpoch int32
		Open        bool
		Data        int
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if err := json.Unmarshal([]byte(line), &meta); err != nil {
		return d, err
	}
	d = onDisk{Start: meta.Start, End: meta.Start, LeaderEpoch: meta.LeaderEpoch, Open: meta.Open}
	d.log, err = os.ReadFile(filepath.Join(folder, fmt.Sprintf("data-%d", meta.Data)))
	return d, err
}

// committed is what a reader with read_committed gets of a log, and the transactions that are open at its end, by producer: the offset of their first record.
func committed(all []piece, start int64) (seen []clienthistory.Seen, open map[int64]int64, err error) {
	open = map[int64]int64{}
	pending := map[int64][]clienthistory.Seen{}
	for _, p := range all {
		switch {
		case p.control == markerCommit:
			seen = append(seen, pending[p.producer]...)
			delete(pending, p.producer)
			delete(open, p.producer)
		case p.control == markerAbort:
			delete(pending, p.producer)
			delete(open, p.producer)
		case p.control >= 0:
		default:
			records, err := recordsOf(p)
			if err != nil {
				return nil, nil, err
			}
			var of []clienthistory.Seen
			for _, r := range records {
				if r.Offset >= start {
					of = append(of, clienthistory.Seen{Offset: r.Offset, Record: numberOf(r.Value)})
				}
			}
			if !p.transactional {
				seen = append(seen, of...)
				continue
			}
			if _, ok := open[p.producer]; !ok {
				open[p.producer] = p.base
			}
			pending[p.producer] = append(pending[p.producer], of...)
		}
	}
	slices.SortFunc(seen, func(a, b clienthistory.Seen) int { return int(a.Offset - b.Offset) })
	return seen, open, nil
}

var decompressor = kgo.DefaultDecompressor()

// recordsOf reads a batch's records with the client.
func recordsOf(p piece) ([]*kgo.Record, error) {
	got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: p.base}, &kmsg.FetchResponseTopicPartition{RecordBatches: p.raw, HighWatermark: p.next}, decompressor, nil)
	if got.Err != nil {
		return nil, fmt.Errorf("batch at offset %d: %w", p.base, got.Err)
	}
	return got.Records, nil
}
