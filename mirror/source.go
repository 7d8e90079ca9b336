package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Source is one cluster read from. Safe for concurrent use. It never changes anything in the source cluster; in particular a look-up never creates a topic (F-31).
// Every call has a bound of its own besides its context; nothing in stop, failover, status or close waits for a source.
type Source interface {
	// Cluster is the source's cluster id and brokers, asked anew.
	Cluster(ctx context.Context) (ClusterInfo, error)
	// Topics looks topics up by name; no names: all of them. A topic that does not exist is absent from the result; one that cannot be read now has Err.
	Topics(ctx context.Context, names ...string) ([]SourceTopic, error)
	// Offsets gives log start and high watermark of partitions, each under its current leader. A partition that could not be asked has Err.
	Offsets(ctx context.Context, partitions []TopicPartition) (map[TopicPartition]SourceOffsets, error)
	// OffsetsAt is the first offset whose timestamp is at or after at; a partition without one answers its end (F-24).
	OffsetsAt(ctx context.Context, at time.Time, partitions []TopicPartition) (map[TopicPartition]SourceOffsets, error)
	// EndOffsetForEpoch asks the partition's current leader, under leaderEpoch (the source leader epoch known to the caller, −1 to send none).
	EndOffsetForEpoch(ctx context.Context, tp TopicPartition, leaderEpoch, epoch int32) (EpochEnd, error)
	// OpenFetcher returns a fetcher for one broker of the source.
	OpenFetcher(ctx context.Context, broker int32, options FetchOptions) (Fetcher, error)
	// Close ends every call and connection.
	Close() error
}

// LastMirrorEpochReader is an optional ability of a Source: the source is itself somebody's mirror, and can tell where it stopped.
type LastMirrorEpochReader interface {
	// LastMirrorEpochs looks up, under any mirror name, what was recorded for mirrors whose source was the cluster sourceClusterID: greatest LME, then greatest LMO.
	// Partitions without a record are absent. An error with ErrUnsupported in it: the source records no such thing; and where it is a *SourceError with SourceDenied,
	// it does not let us see whether it does: a start goes on as without a record, a failback is not planned.
	LastMirrorEpochs(ctx context.Context, sourceClusterID string, partitions []TopicPartition) (map[TopicPartition]statemachine.LastMirrorEpoch, error)
	// MirrorsOf lists the mirrors that the source runs: for loop detection, and "is the reverse mirror stopped".
	MirrorsOf(ctx context.Context, partitions []TopicPartition) ([]SourceMirror, error)
}

// LocalStartReader is an optional ability of a Source: it can tell what of a partition is in remote storage alone (tiered storage, KIP-405). A broker that does not have such records at hand in time
// answers a fetch without any and without an error; without this ability that is taken for the proof that nothing is left to read.
type LocalStartReader interface {
	// LocalStarts is the first offset that each partition's leader has on its own disks; where nothing is in remote storage alone, it is the log's start. Absent: the leader cannot tell.
	// Errors: it could not be asked, which is worth another try.
	LocalStarts(ctx context.Context, partitions []TopicPartition) (map[TopicPartition]int64, error)
}

// SourceMirror is one mirrored partition at the source, where the source is a destination itself.
type SourceMirror struct {
	Mirror          string
	SourceClusterID string
	Partition       TopicPartition
	State           statemachine.State
	Upstream        []string // cluster ids that its source itself mirrors the topic from, nearest first, as far as it is recorded there (TopicOrigin)
}

// ClusterInfo is a cluster id and who is in it.
type ClusterInfo struct {
	ID      string
	Brokers []Broker
}

// Broker is one broker's address.
type Broker struct {
	ID   int32
	Host string
	Port int32
}

// SourceTopic is one topic at the source.
type SourceTopic struct {
	Topic
	Leaders []SourcePartition // by partition number
	Err     error
}

// SourcePartition is who leads a partition. Leader −1: none now. LeaderEpoch −1: the source does not say.
type SourcePartition struct {
	Partition   int32
	Leader      int32
	LeaderEpoch int32
	Err         error
}

// SourceOffsets are offsets of one partition, −1 unknown.
type SourceOffsets struct {
	LogStart      int64
	HighWatermark int64 // for OffsetsAt: the offset found
	LeaderEpoch   int32 // that the answer names, −1 if none
	Err           error
}

// EpochEnd is an answer to end-offset-for-epoch; −1, −1 is "undefined".
type EpochEnd struct {
	Epoch int32
	End   int64
}

// FetchOptions bound one fetcher. Zero values are the defaults in brackets (spec §4).
type FetchOptions struct {
	MaxWait           time.Duration // [500 ms]
	MinBytes          int32         // [1]
	MaxBytes          int32         // of a reply [10 MiB]
	PartitionMaxBytes int32         // [1 MiB]
	Rack              string        // KIP-392
}

// Fetcher fetches from one broker, over one connection, with an incremental fetch session where the broker offers it (KIP-227).
// It is not safe for concurrent use, except Close, which ends a Fetch that is under way.
type Fetcher interface {
	// Want adds a partition or changes where it is to be fetched; it holds until Forget. Only changes travel.
	Want(position FetchPosition)
	// Forget removes a partition.
	Forget(tp TopicPartition)
	// Fetch sends one request for what is wanted and returns the partitions that the broker answered; the others, of those that were wanted when Fetch was called, have
	// nothing new. That is a statement of the broker, from which a mirror concludes that nothing is left to read: a Fetch that sent no request, or whose reply a quota
	// left empty, returns ErrNoAnswer instead. The Records of the reply are the caller's; nothing reuses them. Any other error is the connection's, or the whole request's.
	Fetch(ctx context.Context) ([]FetchedPartition, error)
	Close() error
}

// ThrottleTeller is an optional ability of a Fetcher: the source has quotas, and says how long it wants to be left alone.
type ThrottleTeller interface {
	// Throttled is the pause that the broker asked for in the reply that the last Fetch received, be it empty (ErrNoAnswer) or not; 0: none, or no reply was received.
	// The fetcher keeps to it by itself. Not safe beside a Fetch.
	Throttled() time.Duration
}

// ReplyLimiter is an optional ability of a Fetcher: replies can be made smaller while it is open.
type ReplyLimiter interface {
	// LimitReply bounds the bytes of the replies of later Fetches below FetchOptions.MaxBytes; 0 lifts that. A batch that is larger comes whole all the same. Not safe beside a Fetch.
	LimitReply(bytes int32)
}

// FetchPosition is where to fetch one partition.
type FetchPosition struct {
	TopicPartition
	TopicID     TopicID // zero: unknown
	Offset      int64
	LeaderEpoch int32 // the source leader epoch known, −1: none sent
	LastEpoch   int32 // leader epoch of the last batch we hold, −1: none sent (KIP-595's last fetched epoch)
	LogStart    int64 // of the copy
	MaxBytes    int32 // 0: FetchOptions.PartitionMaxBytes. Raised by the caller after a cut batch.
}

// FetchedPartition is one partition of a reply. Offset and LeaderEpoch repeat what was asked, so that an old answer can be told.
type FetchedPartition struct {
	TopicPartition
	Offset         int64
	LeaderEpoch    int32
	Err            error // a *SourceError; nil: fine
	HighWatermark  int64
	LastStable     int64
	LogStart       int64
	Diverging      *EpochEnd        // the source's log parts from ours (Fetch v12+)
	CurrentLeader  *SourcePartition // KIP-951 hint: leader and epoch
	LeaderEndpoint *Broker          // its address, when the reply names one
	Records        []byte           // whole batches, the last one possibly cut
}

// SourceCode is what a source's error means to a mirror.
type SourceCode uint8

// The meanings.
const (
	SourceOther SourceCode = iota
	SourceUnreachable
	SourceAuthentication  // wrong credentials, TLS failure: a person has to act
	SourceDenied          // authorization
	SourceUnknownTopic    // unknown topic or partition, or topic id
	SourceTopicIDChanged  // INCONSISTENT_TOPIC_ID, UNKNOWN_TOPIC_ID
	SourceNotLeader       // not leader or follower, leader not available
	SourceFencedEpoch     // FENCED_LEADER_EPOCH: the epoch sent is old
	SourceUnknownEpoch    // UNKNOWN_LEADER_EPOCH: the broker is behind
	SourceOffsetRange     // OFFSET_OUT_OF_RANGE
	SourceOffsetsNotReady // OFFSET_NOT_AVAILABLE: election under way
	SourceUnsupported     // version or compression not served, source older than supported
	SourceSession         // fetch session lost; the fetcher mends it itself
	SourceTimeout
)

// ErrNoAnswer: a Fetch brought nothing that says anything about the source's logs, and nothing is wrong: the broker holds replies back (a quota), or nothing was asked.
// The fetcher has waited as long as it should before it returns this.
var ErrNoAnswer = errors.New("mirror: no answer")

// ErrUnsupported: the source lacks what was asked (EndOffsetForEpoch on a service that does not offer it: F-41).
var ErrUnsupported = errors.New("mirror: source does not support this")

// SourceError is an error of the source cluster in a mirror's terms. It wraps the client's or broker's own error.
type SourceError struct {
	Code      SourceCode
	Operation string // fetch, metadata, list offsets …
	Partition TopicPartition
	Err       error
	Advice    string // what to do, "" if waiting is enough
}

func (e *SourceError) Error() string {
	s := "source: " + e.Operation
	if e.Partition.Topic != "" {
		s += fmt.Sprintf(" %s-%d", e.Partition.Topic, e.Partition.Partition)
	}
	s += fmt.Sprintf(": %v", e.Err)
	if e.Advice != "" {
		s += " (" + e.Advice + ")"
	}
	return s
}
func (e *SourceError) Unwrap() error { return e.Err }
