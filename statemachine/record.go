package statemachine

// TopicID is Kafka's 16-byte topic id. String is base64url without padding, 22 characters, as Kafka prints it.
type TopicID [16]byte

func (t TopicID) String() string { panic("contract") }

// Key names one partition of one mirror. TopicID is the destination's own (decision 2).
type Key struct {
	Mirror    string
	TopicID   TopicID
	Partition int32
}

func (k Key) String() string { panic("contract") } // mirror:topicid:partition, what StatePartition hashes

// PartitionState is the value of a MirrorPartitionState record.
type PartitionState struct {
	State         State
	LeaderEpoch   int32 // of the writer, −1 if none
	StateEpoch    int32 // +1 with each write; the first write makes 1
	ErrorMessage  string
	RetryAttempt  int16 // 0 not failed, −1 non-retryable
	PreviousState State // before the first FAILED; Unknown if none
	Episode       int32 // tagged field 0
}

// NewPartitionState is a member without a record: UNKNOWN, leader epoch −1, previous UNKNOWN.
func NewPartitionState() PartitionState { panic("contract") }

// LastMirrorEpoch is the value of a LastMirrorEpochs record: where a mirror ended.
type LastMirrorEpoch struct {
	Epoch           int32 // LME, −1 if the log knew none
	Offset          int64 // LMO, −1 unknown (a page-only record); tagged field 0
	SourceClusterID string
	Episode         int32
	SourceTopicID   TopicID
}

// RecordType is the int16 in front of a key.
type RecordType int16

// The record types of __mirror_state.
const (
	LastMirrorEpochsType RecordType = 1
	PartitionStateType   RecordType = 2
)

// AppendKey, AppendPartitionState and AppendLastMirrorEpoch write Kafka's bytes (spec §8) behind dst.
func AppendKey(dst []byte, t RecordType, k Key) []byte { panic("contract") }

// DecodeKey reads a key. Errors: *RecordError; a type that is not known is an error that errors.Is ErrUnknownRecord finds.
func DecodeKey(b []byte) (RecordType, Key, error) { panic("contract") }

// AppendPartitionState: see AppendKey. Tags with their default values are not written.
func AppendPartitionState(dst []byte, s PartitionState) []byte { panic("contract") }

// DecodePartitionState skips unknown tags; a version above the known one is an error.
func DecodePartitionState(b []byte) (PartitionState, error) { panic("contract") }

// AppendLastMirrorEpoch: see AppendKey.
func AppendLastMirrorEpoch(dst []byte, e LastMirrorEpoch) []byte { panic("contract") }

// DecodeLastMirrorEpoch also reads the untagged page form and the later draft {epoch, offset}.
func DecodeLastMirrorEpoch(b []byte) (LastMirrorEpoch, error) { panic("contract") }

// StatePartition is the partition of __mirror_state that holds k: |javaHash(k)| mod n. OwnerPartition is the one of a mirror's name.
func StatePartition(k Key, n int32) int32 { panic("contract") }

// OwnerPartition: see StatePartition.
func OwnerPartition(mirror string, n int32) int32 { panic("contract") }
