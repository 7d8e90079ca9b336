package mirror

import (
	"errors"
	"fmt"
)

// ErrUnknownTopic and ErrTopicExists are a Destination's answers about topics.
var (
	ErrUnknownTopic = errors.New("mirror: unknown topic")
	ErrTopicExists  = errors.New("mirror: topic exists")
)

// Code is KIP-1279's error code of a verb (134–146), or the Kafka code that it reuses. Kafka's feature gate (UNSUPPORTED_VERSION) has no counterpart here.
type Code int16

// The codes (spec §1).
const (
	OK                               Code = 0
	UnknownTopicOrPartition          Code = 3
	InvalidConfig                    Code = 40
	InvalidRequest                   Code = 42
	TopicAlreadyExists               Code = 36
	InconsistentTopicID              Code = 103
	InvalidRegularExpression         Code = 128
	ReadOnlyTopic                    Code = 134
	ClusterMirrorAlreadyExists       Code = 136
	UnknownClusterMirror             Code = 137
	TopicAlreadyInClusterMirror      Code = 138
	TopicNotInClusterMirror          Code = 139
	MirrorTopicAlreadyPaused         Code = 140
	MirrorTopicNotPaused             Code = 141
	MirrorTopicAlreadyStopped        Code = 142
	ClusterMirrorNotEmpty            Code = 143
	ClusterMirrorAuthorizationFailed Code = 144
	InvalidClusterMirrorState        Code = 145
	MirrorTopicNotStopped            Code = 146
)

// String is the KIP's name of the code, in capitals.
func (c Code) String() string {
	switch c {
	case OK:
		return "NONE"
	case UnknownTopicOrPartition:
		return "UNKNOWN_TOPIC_OR_PARTITION"
	case InvalidConfig:
		return "INVALID_CONFIG"
	case InvalidRequest:
		return "INVALID_REQUEST"
	case TopicAlreadyExists:
		return "TOPIC_ALREADY_EXISTS"
	case InconsistentTopicID:
		return "INCONSISTENT_TOPIC_ID"
	case InvalidRegularExpression:
		return "INVALID_REGULAR_EXPRESSION"
	case ReadOnlyTopic:
		return "READ_ONLY_TOPIC"
	case ClusterMirrorAlreadyExists:
		return "CLUSTER_MIRROR_ALREADY_EXISTS"
	case UnknownClusterMirror:
		return "UNKNOWN_CLUSTER_MIRROR"
	case TopicAlreadyInClusterMirror:
		return "TOPIC_ALREADY_IN_CLUSTER_MIRROR"
	case TopicNotInClusterMirror:
		return "TOPIC_NOT_IN_CLUSTER_MIRROR"
	case MirrorTopicAlreadyPaused:
		return "MIRROR_TOPIC_ALREADY_PAUSED"
	case MirrorTopicNotPaused:
		return "MIRROR_TOPIC_NOT_PAUSED"
	case MirrorTopicAlreadyStopped:
		return "MIRROR_TOPIC_ALREADY_STOPPED"
	case ClusterMirrorNotEmpty:
		return "CLUSTER_MIRROR_NOT_EMPTY"
	case ClusterMirrorAuthorizationFailed:
		return "CLUSTER_MIRROR_AUTHORIZATION_FAILED"
	case InvalidClusterMirrorState:
		return "INVALID_CLUSTER_MIRROR_STATE"
	case MirrorTopicNotStopped:
		return "MIRROR_TOPIC_NOT_STOPPED"
	}
	return fmt.Sprintf("CODE_%d", int16(c))
}

// Error is one verb's failure for one topic (or one partition; Partition −1 is the whole topic). errors.Is finds another *Error with the same Code.
type Error struct {
	Code      Code
	Mirror    string
	Topic     string
	Partition int32
	Message   string // what is wrong and what to do next
	Err       error  // the cause, if any
}

func (e *Error) Error() string {
	where := e.Mirror
	if e.Topic != "" {
		where += "/" + e.Topic
		if e.Partition >= 0 {
			where += fmt.Sprintf("-%d", e.Partition)
		}
	}
	s := fmt.Sprintf("%s: %s: %s", where, e.Code, e.Message)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}
func (e *Error) Unwrap() error { return e.Err }
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}
