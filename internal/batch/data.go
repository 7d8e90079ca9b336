package batch

// Record is one record to write into a data batch, or one read from an uncompressed batch. Slices alias the batch they were read from.
type Record struct {
	OffsetDelta    int32
	TimestampDelta int64
	Key, Value     []byte // nil is Kafka's null
	Headers        []RecordHeader
}

// RecordHeader is one header of a record.
type RecordHeader struct {
	Key   string
	Value []byte
}

// DataSpec describes an uncompressed data batch to build (tests, harnesses, memlog's own clients).
type DataSpec struct {
	BaseOffset      int64
	LeaderEpoch     int32
	LastOffsetDelta int32 // 0 with records: the last record's delta; set it to keep a hole at the end
	ProducerID      int64 // -1: not idempotent
	ProducerEpoch   int16
	BaseSequence    int32
	Transactional   bool
	LogAppendTime   bool
	BaseTimestamp   int64
	MaxTimestamp    int64 // 0: computed from the records
	Records         []Record
}

// AppendData appends the batch to dst and returns the longer slice. Records must have rising offset deltas.
func AppendData(dst []byte, s DataSpec) []byte { panic("contract") }

// ReadRecords reads the records of an uncompressed batch (a control batch too). Errors: *CorruptError, also for a compressed batch.
func ReadRecords(b []byte, h *Header) ([]Record, error) { panic("contract") }
