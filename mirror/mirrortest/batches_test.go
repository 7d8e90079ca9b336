package mirrortest_test

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// oneBatch is a batch with one record, as a producer sends it.
func oneBatch(producer int64, epoch int16, sequence int32) []byte {
	record := []byte{0, 0, 0, 1, 2, 'x', 0} // attributes, deltas, no key, a value of one byte, no headers
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, FirstTimestamp: 1000, MaxTimestamp: 1000, ProducerID: producer, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: 1,
		Records: append([]byte{byte(len(record) << 1)}, record...),
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// versionsByName is the newest protocol in which Produce names topics.
func versionsByName() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(0, 12)
	return v
}
