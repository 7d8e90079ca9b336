package kafkastore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// AccessError: the destination cluster refuses something to this user. Nothing of the update was written.
type AccessError struct {
	Resource string // "topic", "transactional-id", "cluster", as kafka-acls.sh has them
	Name     string // "" for the cluster
	Right    string // "Read", "Write", "Describe", "Create"
	Err      error
}

func (e *AccessError) Error() string {
	resource := "--" + e.Resource
	if e.Name != "" {
		resource += " " + e.Name
	}
	return fmt.Sprintf("kafkastore: no right to %s %s %s: %v; if the role is meant to have it: "+
		"kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation %s %s", e.Right, e.Resource, e.Name, e.Err, e.Right, resource)
}

func (e *AccessError) Unwrap() error { return e.Err }

// Is finds keyedlog.ErrDenied.
func (e *AccessError) Is(target error) bool { return target == keyedlog.ErrDenied }

// TopicError: a topic of the store cannot be made or used as it is.
type TopicError struct {
	Topic string
	Err   error
}

func (e *TopicError) Error() string { return fmt.Sprintf("kafkastore: topic %s: %v", e.Topic, e.Err) }

func (e *TopicError) Unwrap() error { return e.Err }

// SizeError: a record is larger than its topic takes. Nothing of its update was written.
type SizeError struct {
	Topic string
	Key   []byte
	Bytes int // of the record, about
	Err   error
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("kafkastore: the record with key %x and %d bytes is more than topic %s takes: %v; make it smaller, or raise the limit: "+
		"kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name %s --add-config max.message.bytes=%d",
		e.Key, e.Bytes, e.Topic, e.Err, e.Topic, 2*e.Bytes)
}

func (e *SizeError) Unwrap() error { return e.Err }

// BeginError: the transactional id with which everything is decided could not be initialised, so no transaction began and nothing was written. It is keyedlog.ErrNothingWritten to
// errors.Is.
type BeginError struct {
	ID  string
	Err error
}

func (e *BeginError) Error() string {
	if errors.Is(e.Err, kerr.CoordinatorNotAvailable) {
		return fmt.Sprintf("kafkastore: nothing has changed: the cluster has no transaction coordinator for %s; with fewer than 3 brokers set transaction.state.log.replication.factor and "+
			"transaction.state.log.min.isr on them, else see that enough of them run: %v", e.ID, e.Err)
	}
	return e.Err.Error()
}

func (e *BeginError) Unwrap() error { return e.Err }

// Is finds keyedlog.ErrNothingWritten.
func (e *BeginError) Is(target error) bool { return target == keyedlog.ErrNothingWritten }

// unwrittenError: the call has ended before what it decided was committed, and nothing of that will be. It is keyedlog.ErrNothingWritten to errors.Is.
type unwrittenError struct{ err error }

func (e *unwrittenError) Error() string        { return e.err.Error() }
func (e *unwrittenError) Unwrap() error        { return e.err }
func (e *unwrittenError) Is(target error) bool { return target == keyedlog.ErrNothingWritten }

// SilentError: no broker has answered since the call began. It unwraps to the context's error and to the last answer of the network.
type SilentError struct {
	Seeds     []string
	Waited    time.Duration
	Err, Last error
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("kafkastore: no broker of %s answered for %s: %v", strings.Join(e.Seeds, ","), e.Waited.Round(100*time.Millisecond), e.Last)
}

func (e *SilentError) Unwrap() []error { return []error{e.Err, e.Last} }

// errFenced: somebody else initialised the transactional id, or the cluster gave up on the transaction. Nothing of it will be committed.
var errFenced = errors.New("the transactional id was initialised again")

// retryError is something that waiting may heal. Nothing was committed, and nothing of the transaction will be once its id is initialised again.
type retryError struct{ err error }

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

func again(format string, args ...any) error { return &retryError{fmt.Errorf(format, args...)} }

// mayRepeat says whether the same call from its beginning may succeed.
func mayRepeat(err error) bool {
	var r *retryError
	return (errors.Is(err, errFenced) || errors.As(err, &r)) && !errors.Is(err, keyedlog.ErrOutcomeUnknown)
}

// lostError: the end of a transaction was asked for, and a try of it may have been carried out without an answer that says so. When errFenced is in it the id was initialised
// since: then the transaction is over, and reading shows how it ended. Otherwise it may still end in either way.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// readFailed turns an error of a Reader into this package's words.
func readFailed(err error) error {
	var access *topicreader.AccessError
	if errors.As(err, &access) {
		right := "Read"
		if access.Right == "DESCRIBE" {
			right = "Describe"
		}
		return &AccessError{Resource: "topic", Name: access.Topic, Right: right, Err: access.Err}
	}
	return fmt.Errorf("kafkastore: read: %w", err)
}

// transactionFailed judges the error code of a request about a transactional id; topic is "" unless the code is a topic's.
func transactionFailed(id, topic string, code int16) error {
	return judge(id, topic, kerr.ErrorForCode(code))
}

func judge(id, topic string, err error) error {
	switch err {
	case nil:
		return nil
	case kerr.TransactionalIDAuthorizationFailed:
		return &AccessError{Resource: "transactional-id", Name: id, Right: "Write", Err: err}
	case kerr.ClusterAuthorizationFailed:
		return &AccessError{Resource: "cluster", Right: "IdempotentWrite", Err: err}
	case kerr.TopicAuthorizationFailed:
		return &AccessError{Resource: "topic", Name: topic, Right: "Write", Err: err}
	case kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState, kerr.TransactionAbortable, kerr.UnknownProducerID:
		return fmt.Errorf("%w: %w", errFenced, err)
	case kerr.InvalidTransactionTimeout:
		return fmt.Errorf("kafkastore: transactional id %s: %w; lower Config.TransactionTimeout below the cluster's transaction.max.timeout.ms", id, err)
	case kerr.InvalidRecord, kerr.InvalidRequiredAcks, kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat,
		kerr.PolicyViolation, kerr.InvalidRequest, kerr.SaslAuthenticationFailed:
		return &TopicError{Topic: topic, Err: err}
	}
	return again("transactional id %s: %w", id, err) // the rest passes, or ends with the context
}

// requestFailed judges an error that is no answer.
func requestFailed(what string, err error) error {
	var broker *kerr.Error
	if errors.As(err, &broker) && (broker == kerr.SaslAuthenticationFailed || broker == kerr.UnsupportedSaslMechanism || broker == kerr.IllegalSaslState) {
		return fmt.Errorf("kafkastore: %s: %w; check user, password and SASL mechanism", what, broker)
	}
	return again("%s: %w", what, err)
}
