package statemachine

import (
	"context"
	"errors"
)

// ErrFenced: the session's owner was opened again elsewhere, or the key has moved on under a higher leader epoch. Whoever sees it stops serving before another byte.
var ErrFenced = errors.New("statemachine: session is fenced")

// ErrStateEpoch: the key's state epoch is not the expected one (Kafka's FENCED_STATE_EPOCH); read again and decide anew.
var ErrStateEpoch = errors.New("statemachine: state epoch does not match")

// ErrNotOwner: the key belongs to another owner.
var ErrNotOwner = errors.New("statemachine: key belongs to another owner")

// ErrContradiction: one Write asks for things that exclude each other.
var ErrContradiction = errors.New("statemachine: write asks for a change and its removal at once")

// ErrLMEWritten: the key's LME of that episode is recorded with another value. It is written once per episode, because readers elsewhere may have acted on it.
var ErrLMEWritten = errors.New("statemachine: the episode's last mirror epoch is recorded already")

// ErrClosed: the session was closed.
var ErrClosed = errors.New("statemachine: session is closed")

// Entry is everything that is kept for one key. Owner is the owner that wrote it last, "" after a Delete. A key of which only an LME is kept has the State of NewPartitionState.
type Entry struct {
	Key   Key
	Owner string
	State PartitionState
	LME   *LastMirrorEpoch // nil if none recorded
}

// Write is one conditional write. State and LME are written together, atomically. The store copies both.
//
// Delete writes the state's tombstone: owner, state epoch and leader epoch are forgotten, as if the key had never been written; the LME stays (decision 8).
// With Purge its tombstone is written too, and nothing stays. Every state may be deleted, and deleting what is not there succeeds. Delete beside a State, Purge beside an
// LME, and Purge without Delete are ErrContradiction. A Write without any of the four is checked and changes nothing.
//
// An LME is written once per episode: one of the recorded LME's Episode that differs from it is ErrLMEWritten, also when the state was deleted since. The same once more is fine,
// so that a write of unknown outcome may be repeated.
//
// The first owner that writes a key owns it; writes of others are ErrNotOwner. TakeFrom takes a key over from the owner it names. It is accepted only when that owner was
// opened again (StateStore.Open) since the key was last written: whoever takes keys opens the old owner's name first, which fences the process that had them, and
// then writes them under its own. A TakeFrom that names somebody else than the key's owner is ErrNotOwner, unless the writer or nobody owns the key already: so a takeover
// may be repeated.
type Write struct {
	Key                Key
	TakeFrom           string           // the owner that the key is taken from; "" takes nothing over
	ExpectedStateEpoch int32            // the state epoch that was read; 0 for a key without a record; −1 does not check
	LeaderEpoch        int32            // of the writer; −1 does not check; below the highest seen → ErrFenced
	State              *PartitionState  // nil: unchanged. Its StateEpoch is ignored: the store counts. Stored as leader epoch: the highest of the record's, this one's, the writer's
	LME                *LastMirrorEpoch // nil: unchanged
	Delete, Purge      bool
}

// WriteResult answers one Write, in the same order. A Write is checked in this order: contradiction, owner, leader epoch, state epoch, legality of the move, LME.
type WriteResult struct {
	StateEpoch int32 // the key's now: one more where a State was written, else as it was; 0 without a record. −1 with an Err
	Err        error // ErrContradiction, ErrNotOwner, ErrFenced, ErrStateEpoch, *IllegalMoveError, ErrLMEWritten; nil: written
}

// StateStore keeps the states of partitions. Implementations: MemoryStore, files, compacted topics, yours (storetest checks it). Safe for concurrent use.
type StateStore interface {
	// Open begins a session under an owner's name and fences every earlier session of that name. "" is no name: an error.
	Open(ctx context.Context, owner string) (Session, error)
	// Load reads every entry without owning anything. The callback must not call the store; an error from it ends Load and is returned.
	Load(ctx context.Context, each func(Entry) error) error
	Close() error
}

// Session writes as one owner. Safe for concurrent use.
type Session interface {
	// Write applies conditional writes: what is refused is refused alone, the rest of the batch is written as one atomic change.
	// They are judged in order: the second write of a key sees the first one's result.
	// An error from Write itself means that nothing is known to be written (the caller reads again). A fenced session returns ErrFenced.
	// When Write returns, what it reports as written survives a crash of the process.
	Write(ctx context.Context, writes []Write) ([]WriteResult, error)
	// Load reads every entry, as StateStore.Load, and never shows less than this session has written.
	Load(ctx context.Context, each func(Entry) error) error
	Close() error
}
