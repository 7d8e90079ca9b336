package partition

import (
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// EventKind says what happened.
type EventKind uint8

// The events. An event that answers an effect carries the effect's Token; with another token it is dropped inside Step.
const (
	// Loaded: what the store and the log hold, once, first of all. Record, LME (nil if none), Log.
	Loaded EventKind = iota + 1
	// Wish: the desired state, or its consents, changed. Want, Consents, Cut; with a pause Begins: a partition that has not begun to be mirrored begins all the same, and is paused when it is.
	Wish
	// Persisted answers Persist. StateEpoch is the record's new state epoch; Err set: not written. ErrFenced, ErrNotOwner, ErrStateEpoch and an illegal move end
	// the partition for good (Halt); after any other error the same write is asked for again after a back-off.
	Persisted
	// Done answers every effect that has no event of its own. Err set: it failed; with NonRetryable no retry helps. Log, when Err is not set, after every effect but QuiesceGroups,
	// SettleProducerIDs and ClampGroups, and after AwaitReplicated in any case; its Owner is read only after AskOwner and RaiseEpoch. Recovered after AskRecovered, More after Rebuild,
	// Fenced after Append, Refused where PREPARING cuts, LME after AskCut (nil: nothing is to be cut).
	Done
	// SourceSeen answers CheckSource. Source; Err set: no answer, or a refusal (see SourceView.Refused).
	SourceSeen
	// EpochAnswer answers AskEpoch. AnswerEpoch, AnswerEnd (−1, −1 undefined); Err set: no answer; with Source.NoEpochs too: there never will be one.
	EpochAnswer
	// Replayed feeds whole batches of the log in order, for Rebuild; Done with the same token ends it.
	Replayed
	// Fetched is one partition of a fetch reply; Token is AddFetcher's (or Continue's). Fetch.
	Fetched
	// RetryDue answers ScheduleRetry.
	RetryDue
	// SourceChanged: metadata of the source changed or was refreshed (leader, epoch, log start, topic id). Source with what is known. No token.
	SourceChanged
	// ReplicatedMoved: the log's Replicated moved by itself. Log. No token.
	ReplicatedMoved
	// FailPartition: the shell found something that only FAILED answers (watchdog, a lost goroutine). Err, NonRetryable; Source.Permanent says that it is the source that is
	// gone for good or another one, which is nothing to a stop. No token.
	FailPartition
	// Recover: the operator wants a failed partition tried again now, non-retryable ones too (spec §1.10). No token.
	Recover
	// Tuned: the mirror's settings, right behind Loaded and when they were altered. Policy counts from the next decision on. No token.
	Tuned
)

// Event is one input of Step. Only the fields named at its kind are read.
type Event struct {
	Kind         EventKind
	Token        Token
	Record       statemachine.PartitionState
	LME          *statemachine.LastMirrorEpoch
	Log          LogView
	Want         statemachine.Desired
	Consents     []Consent
	Begins       bool
	Cut          bool // with a stop: the shell is asked where to cut, so that no transaction is torn
	StateEpoch   int32
	Err          error
	NonRetryable bool
	Source       SourceView
	AnswerEpoch  int32
	AnswerEnd    int64
	Bytes        []byte
	More         bool // Rebuild stopped before the log's end
	Recovered    Recovered
	Fenced       bool // with Err, after Append, Truncate and Reset: the leader epoch was not the log's, or the log was not ours, and nothing was done
	Refused      bool // with Err, after Truncate, Reset and AwaitTruncated of PREPARING: the log may not be changed now, and nothing was done. Err says why
	Fetch        Fetch
	Policy       Policy
}

// Policy is what may be altered while a partition runs.
type Policy struct {
	Loss       LossPolicy
	StartFloor int64 // the log start is never raised above it by following; 0: no floor is set
}

// Token names one effect: the state epoch under which it was made and a running number. The zero Token is nobody's.
type Token struct {
	StateEpoch int32
	Sequence   uint64
}

// Ownership is who may write the log.
type Ownership uint8

// The owners of a log.
const (
	OwnerOurs    Ownership = iota // only the mirror appends
	OwnerOpen                     // clients write
	OwnerForeign                  // another mirror process leads it
)

// LogView is the log as the shell saw it in answer to an effect.
type LogView struct {
	Start, End, Replicated int64
	LeaderEpoch            int32
	Owner                  Ownership
	// LowestCut is the lowest offset that Truncate can cut to: what lies below is in remote storage. At or below Start, as where it is not set, everything can be cut, and Reset works.
	LowestCut int64
}

// SourceView is what is known of the partition at the source. Offsets are −1 and epochs −1 when unknown.
type SourceView struct {
	ClusterID     string
	TopicID       statemachine.TopicID
	LeaderID      int32
	LeaderEpoch   int32
	LogStart      int64
	HighWatermark int64
	// LocalStart answers a CheckSource with Local: the first offset that the source's leader has on its own disks. What lies below it is read from remote storage, and may take its time.
	// At or below LogStart, as where it is not known: everything is there.
	LocalStart int64
	// For PREPARING only: what the source recorded for our cluster (failback), and why it must not be started now.
	LME     int32
	LMO     int64
	Refused string // "" or a reason: loop, reverse mirror not stopped …
	// Permanent makes a refusal or an Err non-retryable: other cluster id, topic deleted (confirmed twice).
	Permanent bool
	// NoEpochs: this source cannot answer end-offset-for-epoch; the partition runs marked "no divergence checks".
	NoEpochs bool
}

// Consent allows dropping exactly these destination records (decision 7). It is used up when MIRRORING is reached.
type Consent struct {
	TopicID   statemachine.TopicID // the destination's
	Partition int32
	From, To  int64 // [From, To)
	Episode   int32 // the episode that is to begin
}

// FetchCode is what a fetch reply said, in the core's terms.
type FetchCode uint8

// The answers of a fetch.
const (
	FetchOK               FetchCode = iota
	FetchDiverging                  // DivergingEpoch, DivergingEnd; data in the same reply is ignored
	FetchOffsetOutOfRange           // our offset is not in the source's log
	FetchFencedEpoch                // FENCED_LEADER_EPOCH: ours is old; CurrentLeader may be known
	FetchNotLeader                  // NOT_LEADER_OR_FOLLOWER; CurrentLeader may be known
	FetchRetry                      // UNKNOWN_LEADER_EPOCH, unknown topic, timeouts, transport: back off and ask again
	FetchTopicID                    // UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID: metadata decides
	FetchDenied                     // authorization
	FetchUnsupported                // UNSUPPORTED_COMPRESSION_TYPE, UNSUPPORTED_VERSION: F-14
	FetchRefused                    // authentication, TLS: F-77
)

// Fetch is one partition of a fetch reply.
type Fetch struct {
	Code           FetchCode
	Err            error // the broker's own words, for the message
	Offset         int64 // asked for
	LeaderEpoch    int32 // asked under, −1 if none was sent
	HighWatermark  int64
	LastStable     int64
	LogStart       int64
	DivergingEpoch int32
	DivergingEnd   int64
	LeaderID       int32 // CurrentLeader, −1 unknown
	CurrentEpoch   int32 // CurrentLeader's epoch, −1 unknown
	Records        []byte
	// CutBatch is the size of the batch when Records holds only the beginning of one that exceeds the limit asked for; 0 otherwise.
	CutBatch int32
	// Crowded says that other partitions of the same reply carried records. The broker may then have left this one empty for want of room: no records prove nothing.
	Crowded bool
}

// Truncation tells of records that were dropped, in an Emit.
type Truncation struct {
	From, To int64 // [From, To)
	Reason   string
	Rounds   []logtrunc.Round
}
