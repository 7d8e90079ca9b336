package kafkasource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/mirror"
)

// ErrClosed ends the calls of a Source or Fetcher that is closed.
var ErrClosed = errors.New("kafkasource: closed")

// ErrClusterChanged: the addresses lead to another cluster than the one that Cluster last told of. Nothing of its answer is used. Call Cluster to see the new id.
var ErrClusterChanged = errors.New("another cluster answers")

// The least versions of the APIs without which a mirror cannot be kept: those of Kafka 2.1.
const (
	leastFetch       = 10 // zstd
	leastListOffsets = 4  // current leader epoch
	leastMetadata    = 7  // leader epochs
	leastEpochEnd    = 2  // current leader epoch
)

const (
	adviceAddress     = "check the source's bootstrap addresses, and that its listener is up and reachable from here"
	adviceCredentials = "the source refused these credentials: check user, password or token and the SASL mechanism"
	adviceTLS         = "TLS failed: check that the listener speaks TLS, its certificate, host name and authority, and the client certificate if it asks for one"
	adviceFirstAnswer = "the broker closed the connection before its first answer: is one side set to TLS and the other not, does the listener ask for SASL, " +
		"or does a proxy stand before a broker that is down?"
	adviceSilent = "the source accepts connections and does not answer: look at the broker, and at proxies and firewalls before it, " +
		"and check that not only one side is set to TLS"
	adviceCutOff = "the broker closed the connection while it was being set up: brokers and services that do not tell of wrong credentials do so; " +
		"check user, password or token and the SASL mechanism"
	adviceOldSource = "upgrade the source to Kafka 2.1 or later"
)

// failure turns an error of the client or a broker into the mirror's terms. bound is the time limit that a call had.
func failure(operation string, tp mirror.TopicPartition, err error, bound time.Duration) *mirror.SourceError {
	var already *mirror.SourceError
	if errors.As(err, &already) {
		return already
	}
	e := &mirror.SourceError{Operation: operation, Partition: tp, Err: err}
	var broker *kerr.Error
	setting := kafkaconfig.Find(err)
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, kgo.ErrClientClosed):
		e.Err = ErrClosed
	case errors.As(err, &broker):
		e.Code, e.Advice = meaning(broker, tp)
		// The broker's own text is left out: it may repeat what was sent to it.
		e.Err = broker
	case errors.Is(err, context.Canceled):
	case setting != nil: // a secret that cannot be read, a certificate that is not accepted
		e.Code, e.Advice, e.Err = mirror.SourceAuthentication, setting.Advice, setting.Wrong()
	case isTLS(err):
		e.Code, e.Advice = mirror.SourceAuthentication, adviceTLS
	case isFirstRead(err):
		e.Code, e.Advice = mirror.SourceUnreachable, adviceFirstAnswer
	case isDial(err):
		e.Code, e.Advice = mirror.SourceUnreachable, adviceAddress
	case isTimeout(err):
		e.Code, e.Advice = mirror.SourceTimeout, adviceSilent
		e.Err = fmt.Errorf("no answer within %v: %w", bound, err)
	default:
		var op *net.OpError
		if errors.As(err, &op) || kgo.IsRetryableBrokerErr(err) {
			e.Code = mirror.SourceUnreachable
		}
	}
	return e
}

// whileConnecting says what an end of the connection means before the first request went out; ApiVersions had been answered.
func whileConnecting(e *mirror.SourceError) *mirror.SourceError {
	if e.Code == mirror.SourceUnreachable && e.Advice == "" && isCut(e.Err) {
		e.Advice = adviceCutOff
	}
	return e
}

// failed is failure for one partition's error code, nil for none.
func failed(operation string, tp mirror.TopicPartition, code int16) error {
	if code == 0 {
		return nil
	}
	return failure(operation, tp, kerr.ErrorForCode(code), 0)
}

// meaning says what a broker's error code means to a mirror.
func meaning(err *kerr.Error, tp mirror.TopicPartition) (mirror.SourceCode, string) {
	switch err {
	case kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState:
		return mirror.SourceAuthentication, adviceCredentials
	case kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.SecurityDisabled:
		what := "the topic"
		if tp.Topic != "" {
			what = "topic " + tp.Topic
		}
		return mirror.SourceDenied, "grant the mirror's user READ and DESCRIBE on " + what + " at the source"
	case kerr.UnknownTopicOrPartition, kerr.InvalidTopicException:
		return mirror.SourceUnknownTopic, ""
	case kerr.UnknownTopicID, kerr.InconsistentTopicID:
		return mirror.SourceTopicIDChanged, ""
	case kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.ReplicaNotAvailable, kerr.KafkaStorageError, kerr.ListenerNotFound:
		return mirror.SourceNotLeader, ""
	case kerr.FencedLeaderEpoch:
		return mirror.SourceFencedEpoch, ""
	case kerr.UnknownLeaderEpoch:
		return mirror.SourceUnknownEpoch, ""
	case kerr.OffsetOutOfRange:
		return mirror.SourceOffsetRange, ""
	case kerr.OffsetNotAvailable:
		return mirror.SourceOffsetsNotReady, ""
	case kerr.UnsupportedCompressionType:
		return mirror.SourceUnsupported, "the broker does not serve this topic's compression at the version in use: " + adviceOldSource
	case kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat:
		return mirror.SourceUnsupported, adviceOldSource
	case kerr.FetchSessionIDNotFound, kerr.InvalidFetchSessionEpoch, kerr.FetchSessionTopicIDError:
		return mirror.SourceSession, ""
	case kerr.RequestTimedOut:
		return mirror.SourceTimeout, ""
	case kerr.NetworkException, kerr.BrokerNotAvailable, kerr.RebootstrapRequired:
		return mirror.SourceUnreachable, ""
	}
	return mirror.SourceOther, ""
}

func tooOld(operation, api string, version, least int16) *mirror.SourceError {
	return &mirror.SourceError{
		Code:      mirror.SourceUnsupported,
		Operation: operation,
		Err:       fmt.Errorf("source older than supported: it serves %s up to version %d, Kafka 2.1 serves %d", api, version, least),
		Advice:    adviceOldSource,
	}
}

func clusterChanged(operation, known, answers string) *mirror.SourceError {
	return &mirror.SourceError{
		Code:      mirror.SourceOther,
		Operation: operation,
		Err:       fmt.Errorf("%w: cluster id %s, not %s", ErrClusterChanged, answers, known),
		Advice:    "nothing was read from it; point the mirror's bootstrap addresses at the right cluster",
	}
}

func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

func isFirstRead(err error) bool {
	var first *kgo.ErrFirstReadEOF
	return errors.As(err, &first)
}

func isTLS(err error) bool {
	var (
		header      tls.RecordHeaderError
		verify      *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		certificate x509.CertificateInvalidError
		op          *net.OpError
	)
	switch {
	case errors.As(err, &header), errors.As(err, &verify), errors.As(err, &authority), errors.As(err, &host), errors.As(err, &certificate):
		return true
	case errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"): // crypto/tls's operations for alerts
		return true
	}
	// A client that speaks plain text reads a TLS alert as the length of a response; the client says so in words only.
	return strings.Contains(err.Error(), "tls alert record")
}

func isDial(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
