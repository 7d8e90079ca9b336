package statemachine

import "fmt"

// NewEntry is what is kept for a key that was never written: nothing.
func NewEntry(k Key) Entry { return Entry{Key: k, State: NewPartitionState()} }

// Empty says that nothing is kept: no state record and no LME. A store drops such an entry.
func (e Entry) Empty() bool { return e.LME == nil && e.State == NewPartitionState() }

// Apply judges one Write by owner against what is kept for its key and returns what is kept afterwards: the whole rule of a StateStore in one pure function, so that
// an implementation is left with storage, sessions and atomicity. reopened says whether before.Owner was opened again since the key was last written (see Write).
// When result.Err is set, after is before. after shares no memory with w.
func Apply(before Entry, w Write, owner string, reopened bool) (after Entry, result WriteResult) {
	if err := check(before, w, owner, reopened); err != nil {
		return before, WriteResult{StateEpoch: -1, Err: fmt.Errorf("key %v: %w", before.Key, err)}
	}
	after = before
	if w.Delete {
		after = NewEntry(before.Key)
		if !w.Purge {
			after.LME = before.LME
		}
	}
	if w.State != nil {
		after.State = *w.State
		after.State.StateEpoch = before.State.StateEpoch + 1
		after.State.LeaderEpoch = max(before.State.LeaderEpoch, w.State.LeaderEpoch, w.LeaderEpoch)
		after.Owner = owner
	}
	if w.LME != nil {
		lme := *w.LME
		after.LME = &lme
		if !w.Delete {
			after.Owner = owner
		}
	}
	return after, WriteResult{StateEpoch: after.State.StateEpoch}
}

// check is the order of spec §2, coordinator fencing, behind contradiction and ownership; then decision 5.
func check(before Entry, w Write, owner string, reopened bool) error {
	if w.Delete && w.State != nil || w.Purge && (w.LME != nil || !w.Delete) {
		return ErrContradiction
	}
	if before.Owner != "" && before.Owner != owner {
		if w.TakeFrom != before.Owner {
			return fmt.Errorf("%w: %q, not %q; take it from its owner or leave it alone", ErrNotOwner, before.Owner, owner)
		}
		if !reopened {
			return fmt.Errorf("%w: %q may still be writing; open that name before %q takes the key", ErrNotOwner, before.Owner, owner)
		}
	}
	if w.LeaderEpoch != -1 && w.LeaderEpoch < before.State.LeaderEpoch {
		return fmt.Errorf("%w: leader epoch %d, but %d has written; stop serving this partition", ErrFenced, w.LeaderEpoch, before.State.LeaderEpoch)
	}
	if w.ExpectedStateEpoch != -1 && w.ExpectedStateEpoch != before.State.StateEpoch {
		return fmt.Errorf("%w: expected %d, found %d; read the record again", ErrStateEpoch, w.ExpectedStateEpoch, before.State.StateEpoch)
	}
	if w.State != nil && !Legal(before.State.State, w.State.State) {
		return &IllegalMoveError{From: before.State.State, To: w.State.State}
	}
	if w.LME != nil && before.LME != nil && w.LME.Episode == before.LME.Episode && *w.LME != *before.LME {
		return fmt.Errorf("%w: episode %d ended at epoch %d, offset %d, and not at epoch %d, offset %d; read the record again and keep what it says",
			ErrLMEWritten, before.LME.Episode, before.LME.Epoch, before.LME.Offset, w.LME.Epoch, w.LME.Offset)
	}
	return nil
}
