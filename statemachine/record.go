package statemachine

import (
	"encoding/base64"
	"strconv"
)

// TopicID is Kafka's 16-byte topic id. String is base64url without padding, 22 characters, as Kafka prints it.
type TopicID [16]byte

func (t TopicID) String() string { return base64.RawURLEncoding.EncodeToString(t[:]) }

// Key names one partition of one mirror. TopicID is the destination's own (decision 2).
type Key struct {
	Mirror    string
	TopicID   TopicID
	Partition int32
}

// String is mirror:topicid:partition, what StatePartition hashes. A mirror name holds no colon, so no two keys have the same.
func (k Key) String() string {
	return k.Mirror + ":" + k.TopicID.String() + ":" + strconv.Itoa(int(k.Partition))
}

// PartitionState is the value of a MirrorPartitionState record.
type PartitionState struct {
	State         State
	LeaderEpoch   int32 // of the writer, −1 if none
	StateEpoch    int32 // +1 with each write; the first write makes 1
	ErrorMessage  string
	RetryAttempt  int16 // 0 not failed, −1 non-retryable
	PreviousState State // before the first FAILED; Unknown if none
	Episode       int32 // tagged field 0
	// SourceClusterID and SourceTopicID are whom the log was copied from, "" and zero if nobody yet: a recreated topic or another cluster is seen after a restart too
	// (F-28, F-33). Tagged fields 1 and 2, ours.
	SourceClusterID string
	SourceTopicID   TopicID
	// FoundOpen: clients wrote this log when the episode began, and nothing of it has been cut since. Until then the log is theirs: a start that is refused opens it
	// again, and a stop opens it and does nothing else to it. It ends before the first cut and with the move to MIRRORING. Tagged field 3, ours, one byte 1; false is
	// not written.
	FoundOpen bool
	// WasOpen: clients wrote this log before the mirror had it, and what they wrote may still lie in it. Nothing of it is cut without consent then (decision 15), in the
	// first episode either. It stays as long as the record. Tagged field 4, ours, one byte 1; false is not written.
	WasOpen bool
	// Mirrored: MIRRORING was reached in this episode, so what lies in the log may be the mirror's: a stop then ends a mirror, also from a PREPARING that comes after it (the
	// source topic was recreated). Tagged field 5, ours, one byte 1; false is not written.
	Mirrored bool
	// AwaitsCut: a cut while MIRRORING was begun, and it is not known yet that every replica has followed it: nothing is copied before that, in this process or another (decision 22). It ends with the
	// wait, and with the move to PREPARING, which waits itself. Tagged field 6, ours, one byte 1; false is not written.
	AwaitsCut bool
	// HoleFrom and HoleTo are a hole at the end of the source's log, where compaction has taken what was there (F-05): the source uses offsets up to HoleTo, and has nothing from HoleFrom on, where the copy
	// ended. They say something only of a log that ends at HoleFrom: its own first batch goes to HoleTo then (decision 18), also in a process that has not seen the source. They end with the
	// episode, and with the source's topic. Tagged field 7, ours, two int64; both 0 is not written.
	HoleFrom, HoleTo int64
}

// NewPartitionState is a member without a record: UNKNOWN, leader epoch −1, previous UNKNOWN.
func NewPartitionState() PartitionState {
	return PartitionState{State: Unknown, LeaderEpoch: -1, PreviousState: Unknown}
}

// LastMirrorEpoch is the value of a LastMirrorEpochs record: where a mirror ended.
type LastMirrorEpoch struct {
	Epoch           int32 // LME, −1 if the log knew none
	Offset          int64 // LMO, −1 unknown (a page-only record); tagged field 0
	SourceClusterID string
	Episode         int32
	SourceTopicID   TopicID
	Cut             bool // the log reached beyond Offset when this was recorded, and what lay there was given up by a consistent cut
}

// RecordType is the int16 in front of a key.
type RecordType int16

// The record types of __mirror_state.
const (
	LastMirrorEpochsType RecordType = 1
	PartitionStateType   RecordType = 2
)
