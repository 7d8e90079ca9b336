package topicreader

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// MissingError: a topic is not there, on any broker that could be asked.
type MissingError struct{ Topic string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("topic %s does not exist; create it, or wait if it was created just now", e.Topic)
}

// AccessError: the cluster does not let this user read.
type AccessError struct {
	Topic string
	Right string // "READ", "DESCRIBE"
	Err   error
}

func (e *AccessError) Error() string {
	return fmt.Sprintf("no right to %s topic %s: %v; grant it with: kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation %s --topic %s",
		e.Right, e.Topic, e.Err, e.Right, e.Topic)
}

func (e *AccessError) Unwrap() error { return e.Err }

// ReplacedError: the log is not the one that was read: its topic was created again, or it ends before the position. Whoever has kept what was read begins anew with a new Reader.
type ReplacedError struct {
	Topic     string
	Partition int32
	Next, End int64 // the position and where the log ends now; both 0 for a topic that was created again
}

func (e *ReplacedError) Error() string {
	if e.End == e.Next {
		return fmt.Sprintf("topic %s was deleted and created again; read it anew", e.Topic)
	}
	return fmt.Sprintf("%s-%d ends at %d, but was read up to %d; read it anew", e.Topic, e.Partition, e.End, e.Next)
}

// PartitionsError: the topic got more partitions since it was read. Whoever has kept what was read begins anew with a new Reader, which reads the new ones too.
type PartitionsError struct {
	Topic    string
	Had, Has int32
}

func (e *PartitionsError) Error() string {
	return fmt.Sprintf("topic %s has %d partitions, it had %d; read it anew", e.Topic, e.Has, e.Had)
}

// WaitError: the context ended before the end was reached. It unwraps to the context's error.
type WaitError struct {
	// Topic is "" unless an open transaction is what was waited for: records up to End are there, those from Stable on are not visible before it ends.
	Topic             string
	Partition         int32
	Next, Stable, End int64
	Err               error
	Last              error // what stood in the way last, nil if only time
}

func (e *WaitError) Error() string {
	switch {
	case e.Topic != "":
		return fmt.Sprintf("%v: %s-%d was read up to %d of %d, because a transaction that is open since offset %d hides what follows; it ends when its process goes on, "+
			"or some seconds after its transaction timeout when that process is gone: try again then", e.Err, e.Topic, e.Partition, e.Next, e.End, e.Stable)
	case e.Last != nil:
		return fmt.Sprintf("%v: the last answer was: %v", e.Err, e.Last)
	}
	return e.Err.Error()
}

func (e *WaitError) Unwrap() []error { return []error{e.Err, e.Last} }

// passingError is something that waiting may heal.
type passingError struct{ err error }

func (e *passingError) Error() string { return e.err.Error() }
func (e *passingError) Unwrap() error { return e.err }

func passing(err error) error {
	if err == nil {
		return nil
	}
	var broker *kerr.Error
	if errors.As(err, &broker) {
		switch broker {
		case kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.ClusterAuthorizationFailed, kerr.UnsupportedVersion:
			return err // a login that was refused is refused again
		}
	}
	return &passingError{err}
}

func isPassing(err error) bool {
	var p *passingError
	return errors.As(err, &p)
}

// refusal turns the error code of a topic or partition into an error; nil for none.
func refusal(code int16, topic, right string) error {
	if code == 0 {
		return nil
	}
	err := kerr.ErrorForCode(code)
	switch err {
	case kerr.TopicAuthorizationFailed:
		return &AccessError{Topic: topic, Right: right, Err: err}
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID, kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch,
		kerr.OffsetNotAvailable, kerr.ReplicaNotAvailable, kerr.KafkaStorageError, kerr.LeaderNotAvailable:
		return &passingError{fmt.Errorf("topic %s: %w", topic, err)}
	}
	if kerr.IsRetriable(err) {
		return &passingError{fmt.Errorf("topic %s: %w", topic, err)}
	}
	return fmt.Errorf("topic %s: %w", topic, err)
}
