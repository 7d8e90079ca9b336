package mirror

import (
	"context"
	"errors"
)

// ErrFenced: the leader epoch given is not the log's, or the log is not ours (open or foreign). The partition stops before another byte.
var ErrFenced = errors.New("mirror: fenced")

// ErrOutOfOrder: a batch's base offset is below the log's end.
var ErrOutOfOrder = errors.New("mirror: batch below the log's end")

// ErrOffsetOutOfRange: a read outside [Start, End].
var ErrOffsetOutOfRange = errors.New("mirror: offset out of range")

// ErrBatchTooLarge: the destination does not take a batch of this size. A Log wraps it in an error that names both sizes.
var ErrBatchTooLarge = errors.New("mirror: batch larger than the destination's limit")

// ErrRemoteStorage: a log cannot be closed for the mirror or cut, because a part of it is in remote storage (tiered storage), or may get there. Nothing has changed, and
// trying again does not help: the partition is FAILED until a person acts.
var ErrRemoteStorage = errors.New("mirror: remote storage")

// Ownership is who may append to a log.
type Ownership uint8

// The owners.
const (
	OwnerOurs    Ownership = iota // the gate is closed: only the mirror appends
	OwnerOpen                     // clients write; the mirror must not
	OwnerForeign                  // another process has it
)

func (o Ownership) String() string { return [...]string{"ours", "open", "foreign"}[o] }

// Log is one partition's copy at the destination. The mirror is its only writer while the gate is closed.
//
// The gate is closed by default: a log is closed from its creation and after every restart until Open. (A log that was opened and is then restarted may come back
// either way; the mirror asks Owner, and opens a stopped log again.)
//
// Methods may be called concurrently; the mirror itself calls Append, TruncateTo, ResetTo, RaiseStart, Open and CloseForWrites from one goroutine at a time.
// Every method that takes a context returns when it ends. Errors that say nothing special are retried.
// Start, End, Replicated and LeaderEpoch are cheap and take no context: on an open or foreign log they may be as of the last Owner, Open or CloseForWrites.
//
// TruncateTo, ResetTo and RaiseStart on a log that is open or foreign: ErrFenced, and nothing changes. When they return any other error, they have done nothing or all
// of it, and Start, End and Read say which; after a crash the log is the one from before or the one from after too, as far
// as it was replicated. The mirror looks and calls again.
type Log interface {
	// Start is the log start offset: the first offset that a reader may ask for. The first batch held may begin below it.
	Start() int64
	// End is where the next batch goes (log end offset). Start == End: empty.
	End() int64
	// Replicated is the offset below which bytes survive the loss of this process. Start ≤ Replicated ≤ End.
	Replicated() int64
	// LeaderEpoch is the destination's leader epoch. It only grows.
	LeaderEpoch() int32

	// Append adds one or more whole, checked batches, bytes verbatim. Ownership of the bytes passes to the Log: from then on nobody changes or reuses them.
	// A base offset above End leaves a gap, which is legal. A base below End is ErrOutOfOrder, with one exception: an empty log takes as its first batch
	// the one that contains Start. leaderEpoch other than LeaderEpoch, an open or foreign log: ErrFenced. After an error, or a crash, a prefix of whole batches is there.
	// ErrFenced is final for this leaderEpoch as long as the log has this owner: the mirror asks Owner anew before it retries, and appends under what that says.
	Append(ctx context.Context, leaderEpoch int32, batches []byte) error
	// Read returns whole batches beginning with the one that contains from (or the first one after it), at most max bytes but at least one batch; nothing at End.
	// The bytes are read-only and stay valid. from outside [Start, End]: ErrOffsetOutOfRange.
	Read(ctx context.Context, from int64, max int) ([]byte, error)
	// TruncateTo drops every batch that holds an offset ≥ offset (a batch that only partly lies above goes whole) and returns the new End.
	// An offset at or below Start empties the log; End is then offset, and Start min(Start, offset). An offset at or above End changes nothing.
	// In a gap the new End is the offset asked for or the end of the last batch below it, as the Log likes: the caller goes on with the value returned.
	TruncateTo(ctx context.Context, offset int64) (int64, error)
	// ResetTo drops everything; the log is then empty at start.
	ResetTo(ctx context.Context, start int64) error
	// RaiseStart moves Start up, never above Replicated, and keeps the batch that contains it. Lower than Start: nothing happens.
	RaiseStart(ctx context.Context, start int64) error
	// AwaitReplicated waits until Replicated ≥ offset. When ctx ends first, errors.Is says of the error which it was: context.DeadlineExceeded or context.Canceled.
	// A stop depends on it: replicas that are late are waited for no longer, another error is retried.
	AwaitReplicated(ctx context.Context, offset int64) error
	// AwaitTruncated waits until every replica has followed the last TruncateTo or ResetTo. When ctx ends first: as AwaitReplicated.
	AwaitTruncated(ctx context.Context) error
	// Open lets clients write. Idempotent. Returns when it holds.
	Open(ctx context.Context) error
	// CloseForWrites shuts the gate and returns when no client's write is under way. Idempotent.
	CloseForWrites(ctx context.Context) error
	// Owner says who may append, and under which leader epoch.
	Owner(ctx context.Context) (Ownership, int32, error)
}

// CutBounder is an optional ability of a Log, found by type assertion: a part of it may lie in remote storage (tiered storage, KIP-405), where nothing can be cut. A partition that
// would need such a cut is FAILED with "cannot truncate into remote storage", before its gate, its log or the Sink is touched, and is not tried again by itself.
type CutBounder interface {
	// LowestCut is the lowest offset that TruncateTo can cut to; what lies below leaves the log by RaiseStart only. At or below Start everything can be cut. Above it TruncateTo below
	// LowestCut, and ResetTo, are errors and change nothing. It is never above Replicated, may rise at any time, is cheap and takes no context.
	LowestCut() int64
}

// ProducerIDSettler is an optional ability of a Log, found by type assertion. A Log without it has nothing to do there.
type ProducerIDSettler interface {
	// SettleProducerIDs returns when the destination will give out no producer id ≤ highest.
	SettleProducerIDs(ctx context.Context, highest int64) error
}
