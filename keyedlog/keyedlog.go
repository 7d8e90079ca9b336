// Package keyedlog is one small log of keyed records with atomic conditional batches: what state stores and control records stand on, so that each kind of storage is
// written once. Memory is here; mirror/filestore keeps one in a file, mirror/kafkastore on compacted topics. keyedlogtest checks any of them. NewStateStore makes a
// statemachine.StateStore of one; mirror.NewControl the desired state of a cluster. Both may share a Log: their keys differ in the record type that a key begins with.
package keyedlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// ErrFenced: the writer was opened again elsewhere. Whoever sees it stops serving before another byte.
var ErrFenced = errors.New("keyedlog: session is fenced")

// ErrOwned: the key belongs to a writer whose newest session wrote it. Open that writer first, which fences the process that has it.
var ErrOwned = errors.New("keyedlog: key belongs to another writer")

// ErrClosed: the session or the log was closed.
var ErrClosed = errors.New("keyedlog: closed")

// ErrDenied: the storage does not give this user the right to read or write that. Nothing was written. The error around it says which right is missing.
var ErrDenied = errors.New("keyedlog: no right")

// ErrOutcomeUnknown: the storage did not answer, and whether the changes were written cannot be found out any more. Read again and decide anew.
var ErrOutcomeUnknown = errors.New("keyedlog: it is not known whether the changes were written")

// ErrNothingWritten: the call ended, for whatever reason, and nothing of it was written, or will be. An error without it need not have written something.
var ErrNothingWritten = errors.New("keyedlog: nothing was written")

// Record is the newest value of one key.
type Record struct {
	Key   []byte
	Value []byte // never nil in a View
	// Writer owns the key; "" is nobody: everybody may write it.
	Writer string
	// Session is the number of the writer's session that wrote the record, 0 without a writer.
	Session int64
}

// Change is a new value of one key.
type Change struct {
	Key   []byte
	Value []byte // nil takes the key out (a tombstone); nobody owns it afterwards
	// Release leaves the key without an owner. Log.Update writes that way always.
	Release bool
}

// View is all records at one moment, but for what sessions write to keys that they have already while it is read: of two such updates it may show the later one without the
// earlier one. Each update is shown whole or not at all. It is valid during the call that it is handed to, and what it returns must not be changed. Not safe for concurrent use.
type View interface {
	// Get returns a key's record; false: it was never written, or taken out.
	Get(key []byte) (Record, bool)
	// Each calls f for each record whose key begins with prefix, in order of key. An error from f ends it and is returned.
	Each(prefix []byte, f func(Record) error) error
	// Session is the number of a writer's newest session, 0 if it was never opened.
	Session(writer string) int64
	// Version grows with every change, by whatever process, and never falls. The same records may have several versions in a row. In Session.Update it may be that of an
	// earlier moment, which other records have too: of one Log, Views of Read and of Log.Update that have the same version have the same records.
	Version() int64
}

// Log is a keyed log. Safe for concurrent use, by several processes too. Every call ends with its context, also while another one's callback runs; its own callback it waits
// for. Nothing is kept of slices that are passed in.
type Log interface {
	// Open begins a session under a writer's name ("" is an error) and fences every earlier one of that name, in whatever process. It returns when the earlier ones
	// can write nothing any more and all that they wrote is seen. Numbers of sessions grow for each writer.
	Open(ctx context.Context, writer string) (Session, error)
	// Update reads the newest records, lets decide choose changes, and writes them in one atomic step, but only if nothing was written in between by another Update of a Log,
	// by Open, or by a session to a key that it had not written itself before; else it begins anew, until the context ends. What a session writes meanwhile to keys that it
	// has already may count as written after the Update, whatever decide has seen of it. decide must depend on its View only and must not call the Log; an error of it is
	// returned as it is, and nothing is written. No changes: nothing is written. Keys that have an owner cannot be changed (ErrOwned). When Update returns nil the changes
	// survive a crash. ErrOutcomeUnknown is possible.
	Update(ctx context.Context, decide func(View) ([]Change, error)) error
	// Read shows the records as they are at some moment after the call began. An error of read is returned as it is. read must not call the Log either.
	Read(ctx context.Context, read func(View) error) error
	// Changed returns a channel that is closed after the next change that Log.Update made, by whatever process, within about a second. Take it before Read, so that no change is
	// missed. It may close without a change too. A Log that knows what records mean may leave out those that change all the time: states and last mirror epochs (record types 1
	// and 2) and reports (types 75, 76 and 78). After Close nothing closes it, so whoever waits for it waits for something else too.
	Changed() <-chan struct{}
	// Close ends all sessions of this Log value, and every later call says ErrClosed. What is stored stays. Closing twice is fine.
	Close() error
}

// Session writes as one writer. Safe for concurrent use.
type Session interface {
	// Number of the session.
	Number() int64
	// Update is Log.Update with ownership: what is written belongs to this session's writer, unless it is released. decide may look at and change only the named keys; for
	// these it sees the newest records. CheckOwner says which may be changed. A fenced session returns ErrFenced and has written nothing.
	Update(ctx context.Context, keys [][]byte, decide func(View) ([]Change, error)) error
	// Check asks the storage whether the session still holds: nil, ErrFenced, or that it cannot be known now.
	Check(ctx context.Context) error
	// Read is Log.Read, and never shows less than this session has written.
	Read(ctx context.Context, read func(View) error) error
	Close() error
}

// CheckOwner is who may change what, for every Log: a writer's session ("" for Log.Update) may change a key that has no owner, that is its own, or whose owner was opened again
// since it wrote the key. nil or ErrOwned.
func CheckOwner(v View, key []byte, writer string) error {
	r, ok := v.Get(key)
	if !ok || r.Writer == "" || writer != "" && (r.Writer == writer || v.Session(r.Writer) > r.Session) {
		return nil
	}
	return fmt.Errorf("%w: %q has written key %x", ErrOwned, r.Writer, bytes.Clone(r.Key))
}

// CheckChanges is what a Log asks before it writes anything of what decide chose: CheckOwner for every change, and for Session.Update whether the key is one of the named ones.
// keys nil, as in Log.Update, is any key. A key that was not named is an error in the caller's program.
func CheckChanges(v View, writer string, keys [][]byte, changes []Change) error {
	named := make(map[string]bool, len(keys))
	for _, k := range keys {
		named[string(k)] = true
	}
	for _, c := range changes {
		if keys != nil && !named[string(c.Key)] {
			return fmt.Errorf("keyedlog: key %x is changed but was not named; name each key that decide may change", c.Key)
		}
		if err := CheckOwner(v, c.Key, writer); err != nil {
			return err
		}
	}
	return nil
}
