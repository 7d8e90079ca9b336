package batch

// ControlType is the kind of a control record (Kafka: ControlRecordType). 0 to 6 are Kafka's; 7 is KIP-1279's.
type ControlType int16

// The control types.
const (
	ControlAbort          ControlType = 0
	ControlCommit         ControlType = 1
	ControlLeaderChange   ControlType = 2
	ControlSnapshotHeader ControlType = 3
	ControlSnapshotFooter ControlType = 4
	ControlKRaftVersion   ControlType = 5
	ControlKRaftVoters    ControlType = 6
	ControlMirrorPIDReset ControlType = 7
)

// Control is what a control batch says.
type Control struct {
	Type             ControlType
	Version          int16
	CoordinatorEpoch int32 // of an ABORT or COMMIT; -1 otherwise, or when the value is too short to hold one
}

// ReadControl reads the first record of a control batch. Errors: *CorruptError.
func ReadControl(b []byte, h *Header) (Control, error) { panic("contract") }

// ControlSpec describes a control batch to build: one record, no compression, CREATE_TIME.
type ControlSpec struct {
	BaseOffset    int64
	LeaderEpoch   int32
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32 // -1 for a control batch
	Transactional bool
	Timestamp     int64 // milliseconds since the Unix epoch
	Key, Value    []byte
}

// AppendControl appends the batch to dst and returns the longer slice.
func AppendControl(dst []byte, s ControlSpec) []byte { panic("contract") }
