package replicareader

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/statemachine"
)

// The replica ids with which a broker answers for a copy that does not lead, and for all of it. They differ: see the package's text.
const (
	offsetsReplica = -2 // Kafka: ListOffsetsRequest.DEBUGGING_REPLICA_ID
	fetchReplica   = -3 // Kafka: FetchRequest.FUTURE_LOCAL_REPLICA_ID
)

// Requester sends one request to one broker and returns its answer. An error is about the connection or the context, not about what the answer says. It returns when ctx ends,
// and may be called concurrently.
type Requester interface {
	Broker(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error)
}

// Target names a partition. Both name and id are needed: ListOffsets asks by name, Fetch by id (from version 13 on), so that a topic that was deleted and created again under
// the same name is not taken for the old one. Comparable.
type Target struct {
	Topic     string
	ID        statemachine.TopicID
	Partition int32
}

func (t Target) String() string { return fmt.Sprintf("%s-%d", t.Topic, t.Partition) }

// Reader reads copies. It has no state of its own and is safe for concurrent use.
type Reader struct {
	requester Requester
}

// New returns a Reader that asks through r.
func New(r Requester) *Reader { return &Reader{requester: r} }

// request sends req and returns the answer if it has the right type.
func request[A kmsg.Response](ctx context.Context, r *Reader, broker int32, t Target, req kmsg.Request) (answer A, err error) {
	if err := ctx.Err(); err != nil {
		return answer, &Error{Broker: broker, Target: t, Reason: Unreachable, Err: err}
	}
	resp, err := r.requester.Broker(ctx, broker, req)
	if err != nil {
		return answer, &Error{Broker: broker, Target: t, Reason: Unreachable, Err: err}
	}
	answer, ok := resp.(A)
	if !ok {
		return answer, &Error{Broker: broker, Target: t, Reason: BadAnswer, Err: fmt.Errorf("%s was answered with %T", kmsg.NameForKey(req.Key()), resp)}
	}
	return answer, nil
}

// refusal turns an error code into an error; nil for none.
func refusal(broker int32, t Target, code int16) error {
	if code == 0 {
		return nil
	}
	err := kerr.ErrorForCode(code)
	reason := Refused
	switch err {
	case kerr.NotLeaderForPartition, kerr.ReplicaNotAvailable:
		reason = NotReplica
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID:
		reason = UnknownTopic
	case kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed:
		reason = NoAccess
	case kerr.KafkaStorageError:
		reason = Offline
	}
	return &Error{Broker: broker, Target: t, Reason: reason, Err: err}
}
