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

// Entry is everything that is kept for one key. Owner is the owner that wrote it last.
type Entry struct {
	Key   Key
	Owner string
	State PartitionState
	LME   *LastMirrorEpoch // nil if none recorded
}

// Write is one conditional write. State and LME are written together, atomically. Delete writes the state's tombstone; Purge also the LME's.
type Write struct {
	Key                Key
	ExpectedStateEpoch int32            // the state epoch that was read; 0 for a key without a record; −1 does not check
	LeaderEpoch        int32            // of the writer; −1 does not check; below the highest seen → ErrFenced
	State              *PartitionState  // nil: unchanged. Its StateEpoch is ignored: the store counts
	LME                *LastMirrorEpoch // nil: unchanged
	Delete, Purge      bool
}

// WriteResult answers one Write, in the same order.
type WriteResult struct {
	StateEpoch int32 // the new one
	Err        error // ErrFenced, ErrStateEpoch, ErrNotOwner, *IllegalMoveError; nil: written
}

// StateStore keeps the states of partitions. Implementations: MemoryStore, files, compacted topics, yours (storetest checks it). Safe for concurrent use.
type StateStore interface {
	// Open begins a session under an owner's name and fences every earlier session of that name.
	Open(ctx context.Context, owner string) (Session, error)
	// Load reads every entry without owning anything. The callback must not call the store; an error from it ends Load and is returned.
	Load(ctx context.Context, each func(Entry) error) error
	Close() error
}

// Session writes as one owner. Safe for concurrent use.
type Session interface {
	// Write applies conditional writes: what is refused is refused alone, the rest of the batch is written as one atomic change.
	// An error from Write itself means that nothing is known to be written (the caller reads again). A fenced session returns ErrFenced.
	// When Write returns, what it reports as written survives a crash of the process.
	Write(ctx context.Context, writes []Write) ([]WriteResult, error)
	// Load reads every entry, as StateStore.Load, and never shows less than this session has written.
	Load(ctx context.Context, each func(Entry) error) error
	Close() error
}
