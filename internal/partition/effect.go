package partition

import (
	"time"

	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// EffectKind says what the shell is to do.
type EffectKind uint8

// The effects, in the order they were made. The shell runs them in that order for one partition. Every one of them is answered by exactly one event with
// its Token (named in brackets), except where "not answered" stands. No effect waits for a source longer than the shell's bound for one call.
const (
	// Persist [Persisted]: write Record, and LME when it is not nil, with one conditional write (ExpectedStateEpoch).
	Persist EffectKind = iota + 1
	// CheckSource [SourceSeen]: metadata, ends and log start of the source partition; with Prepare also loop, reverse mirror and LME look-up; with Local also where its leader's own disks
	// begin, if it can tell. Refresh forces new metadata.
	CheckSource
	// AskEpoch [EpochAnswer]: end-offset-for-epoch Epoch at the source's current leader, asked under its leader epoch Under (−1: it tells none), so that a leader that was deposed refuses.
	AskEpoch
	// AskOwner [Done]: Log.Owner, Start, End, Replicated, LeaderEpoch.
	AskOwner
	// CloseForWrites [Done]: Log.CloseForWrites.
	CloseForWrites
	// AwaitReplicated [Done]: until Offset is replicated; Bound limits the wait. Err context.DeadlineExceeded when the bound passed; Log is read either way.
	AwaitReplicated
	// Truncate [Done]: Log.TruncateTo(Offset). Dropped names the range and why, for the event and the sink. With Unconfirmed it is refused, and nothing is changed, when Replicated has come
	// to lie above Offset by then: only what replicas have not confirmed is to go.
	Truncate
	// Reset [Done]: Log.ResetTo(Offset). Dropped as for Truncate.
	Reset
	// AwaitTruncated [Done]: every replica has followed the cut.
	AwaitTruncated
	// RaiseStart [Done]: Log.RaiseStart(Offset).
	RaiseStart
	// RaiseEpoch [Done]: destination leader epoch ≥ Epoch, and then what AskOwner asks: whoever has the log by then writes under the new epoch.
	RaiseEpoch
	// Rebuild [Replayed…, Done]: read the log's batches in [Offset, log end) and feed them. The shell may stop after any piece and answer with More set: then Rebuild
	// is made again for the rest, unless something else is wanted by then. With First a few batches are enough, the one that contains Offset first (where a cut
	// would go through a batch, where the log begins, the marks of a stop): one piece, however long the log is. Feeding more does no harm.
	Rebuild
	// AskRecovered [Done]: Log.Recovered, of a log that can (Config.Recovers). The Log in the answer is read after Recovered has returned.
	AskRecovered
	// AddFetcher [Fetched…]: fetch from Offset under Epoch (the source's leader epoch), last fetched epoch LastEpoch (−1 none). It ends with RemoveFetcher. One reply at a
	// time: after a Fetched the shell fetches this partition again only on Continue.
	AddFetcher
	// Continue (same answer as AddFetcher): the next fetch of the same fetcher, with new Offset and LastEpoch, Bound = wait before it (back-off; 0 at once).
	Continue
	// RemoveFetcher (not answered): what is in flight is discarded by its token.
	RemoveFetcher
	// Append [Done]: Log.Append(Epoch = destination leader epoch, Bytes). Bytes are whole batches; ownership goes to the Log.
	Append
	// QuiesceGroups [Done]: stop offset sync of this partition, bounded.
	QuiesceGroups
	// SettleProducerIDs [Done]: the destination's allocator above Offset (the highest mirrored producer id).
	SettleProducerIDs
	// ClampGroups [Done]: groups the mirror wrote and that are idle, to Offset (LMO).
	ClampGroups
	// AskCut [Done]: where the log is to be cut, so that no transaction of this failover is torn. Only of a stop that asks for it (Event.Cut), when the replicas have all that counts and before LME and LMO
	// are recorded. LME is what would be recorded without a cut, Epochs are the log's. The answer's LME, if it has one, was recorded by the shell in one write with those of all partitions of the failover: then
	// this partition cuts its log to its offset, at once and after every restart. Bounded.
	AskCut
	// OpenLog [Done]: Log.Open.
	OpenLog
	// ScheduleRetry [RetryDue]: after Bound. A later ScheduleRetry replaces it.
	ScheduleRetry
	// ConsentUsed (not answered): the consents of this partition are used up.
	ConsentUsed
	// Emit (not answered): tell the world. Note.
	Emit
	// Halt (not answered): the session is fenced; stop serving this partition at once. No effect follows, ever.
	Halt
)

// Effect is one thing to do. Only the fields named at its kind are set.
type Effect struct {
	Kind               EffectKind
	Token              Token
	Record             statemachine.PartitionState
	LME                *statemachine.LastMirrorEpoch
	Epochs             []logtrunc.Entry
	ExpectedStateEpoch int32
	Prepare, Refresh   bool
	Local              bool
	First              bool
	Unconfirmed        bool
	Offset             int64
	Epoch              int32
	LastEpoch          int32
	Under              int32
	Bound              time.Duration
	Bytes              []byte
	Dropped            Truncation
	Note               Note
}

// NoteKind is the kind of a Note.
type NoteKind uint8

// The notes. The shell turns each into one typed public event.
const (
	StateChanged   NoteKind = iota + 1 // From, To, Message
	RecordsDropped                     // Truncated
	RecordsLost                        // Range: never copied and gone at the source (F-19, F-23)
	Retrying                           // Attempt, After, Message
	Refetched                          // one refetch after a bad checksum or format trouble; Message
	EpochRaised                        // Epoch
	StartRaised                        // Offset
	NothingLeft                        // F-05: nothing left to read up to Offset although our end is below it
	MarkersWritten                     // Aborts, ResetAt
	LMERecorded                        // Epoch, Offset
	LeaderMoved                        // LeaderID, Epoch
	LogDoubted                         // what the log says of itself is not believed; Message
)

// Note is one thing to tell.
type Note struct {
	Kind         NoteKind
	From, To     statemachine.State
	Message      string
	NonRetryable bool
	Truncated    Truncation
	RangeFrom    int64
	RangeTo      int64
	Attempt      int16
	After        time.Duration
	Epoch        int32
	Offset       int64
	LeaderID     int32
	Aborts       []Marker
	ResetAt      int64
}

// Marker is one ABORT that was written at stop.
type Marker struct {
	ProducerID    int64
	ProducerEpoch int16
	FirstOffset   int64 // of the transaction, −1 where the log was not read as far down
	Offset        int64 // of the marker
}
