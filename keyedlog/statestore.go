package keyedlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/clustermirror/clustermirror/statemachine"
)

// NewStateStore returns a StateStore that keeps its records in log, byte for byte as spec §8 has them: per key a MirrorPartitionState and a LastMirrorEpochs record, both of one
// writer, the key's owner. Records of other types beside them are left alone. Close of the store leaves the Log open: close it behind the store.
//
// Load fails with a *RecordError at the first record that this program cannot read; a Write refuses the writes of such a key alone, with the same error.
func NewStateStore(log Log) statemachine.StateStore { return &stateStore{log: log} }

// RecordError is a record of a partition that this program cannot read. Nothing is written over it.
type RecordError struct {
	Key []byte // of the record
	Err error  // a *statemachine.RecordError
}

func (e *RecordError) Error() string {
	name := fmt.Sprintf("%x", e.Key)
	if t, k, err := statemachine.DecodeKey(e.Key); err == nil {
		name = fmt.Sprintf("%v (type %d)", k, t)
	}
	return fmt.Sprintf("keyedlog: record %s: %v; a newer version of this program wrote it: update this one, or find who else writes there", name, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }

type stateStore struct{ log Log }

func (s *stateStore) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	session, err := s.log.Open(ctx, owner)
	if err != nil {
		return nil, asStateStore(err)
	}
	return &stateSession{session: session, owner: owner}, nil
}

func (s *stateStore) Load(ctx context.Context, each func(statemachine.Entry) error) error {
	return load(ctx, s.log.Read, each)
}

func (s *stateStore) Close() error { return nil }

type stateSession struct {
	session Session
	owner   string
}

func (s *stateSession) Load(ctx context.Context, each func(statemachine.Entry) error) error {
	return load(ctx, s.session.Read, each)
}

func (s *stateSession) Close() error { return asStateStore(s.session.Close()) }

// Write without writes asks whether the session still holds.
func (s *stateSession) Write(ctx context.Context, writes []statemachine.Write) ([]statemachine.WriteResult, error) {
	var keys [][]byte
	named := make(map[statemachine.Key]bool)
	for _, w := range writes {
		if !named[w.Key] && statemachine.CheckMirrorName(w.Key.Mirror) == nil {
			named[w.Key] = true
			keys = append(keys, stateKey(w.Key), lmeKey(w.Key))
		}
	}
	if len(keys) == 0 {
		if err := s.session.Check(ctx); err != nil {
			return nil, asStateStore(err)
		}
	}
	results := make([]statemachine.WriteResult, len(writes))
	if len(keys) == 0 {
		s.judge(nil, writes, results) // refuses each, for its name
		return results, nil
	}
	err := s.session.Update(ctx, keys, func(v View) ([]Change, error) { return s.judge(v, writes, results), nil })
	if err != nil {
		return nil, asStateStore(err)
	}
	return results, nil
}

// judge fills results and returns what the writes change. It begins anew each time that it is called.
func (s *stateSession) judge(v View, writes []statemachine.Write, results []statemachine.WriteResult) []Change {
	partitions := make(map[statemachine.Key]*partition)
	var order []*partition
	for i, w := range writes {
		p := partitions[w.Key]
		if p == nil {
			p = &partition{err: statemachine.CheckMirrorName(w.Key.Mirror)}
			if p.err == nil {
				p.read(v, w.Key)
			}
			partitions[w.Key] = p
			order = append(order, p)
		}
		if p.err != nil {
			results[i] = statemachine.WriteResult{StateEpoch: -1, Err: p.err}
			continue
		}
		reopened := v.Session(p.after.Owner) > p.session // of no meaning once a write of this batch was accepted: the key is its own then
		p.after, results[i] = statemachine.Apply(p.after, w, s.owner, reopened)
		if results[i].Err == nil && (w.State != nil || w.LME != nil || w.Delete) {
			p.written = true
		}
	}
	var changes []Change
	for _, p := range order {
		changes = append(changes, p.changes(s.session.Number())...)
	}
	return changes
}

// partition is one key while a batch is judged.
type partition struct {
	before, after statemachine.Entry
	state, lme    bool  // whether the record is there
	session       int64 // the owner's newest one that wrote one of the records
	written       bool  // a write that is more than a check was accepted
	err           error // why the key cannot be judged
}

func (p *partition) read(v View, k statemachine.Key) {
	p.before = statemachine.NewEntry(k)
	var state, lme Record
	if state, p.state = v.Get(stateKey(k)); p.state {
		p.err = setState(&p.before, state)
	}
	if lme, p.lme = v.Get(lmeKey(k)); p.lme && p.err == nil {
		p.err = setLME(&p.before, lme)
	}
	p.after, p.session = p.before, max(state.Session, lme.Session)
}

// changes is the difference between before and after. When the owner changes both records are written, so that they always have the same one. A session whose accepted write
// puts nothing new leaves its number there all the same: as long as it holds, nobody may take the key.
func (p *partition) changes(session int64) []Change {
	if p.err != nil {
		return nil
	}
	var changes []Change
	add := func(key, value []byte) {
		changes = append(changes, Change{Key: key, Value: value, Release: p.after.Owner == ""})
	}
	moved := p.before.Owner != p.after.Owner
	state, lme := stateValue(p.after), lmeValue(p.after)
	if moved && p.state || !bytes.Equal(stateValue(p.before), state) {
		add(stateKey(p.after.Key), state)
	}
	if moved && p.lme || !bytes.Equal(lmeValue(p.before), lme) {
		add(lmeKey(p.after.Key), lme)
	}
	put := slices.ContainsFunc(changes, func(c Change) bool { return c.Value != nil })
	if !put && p.written && p.after.Owner != "" && (p.session != session || len(changes) > 0) {
		if state != nil {
			add(stateKey(p.after.Key), state)
		} else {
			add(lmeKey(p.after.Key), lme)
		}
	}
	return changes
}

func stateKey(k statemachine.Key) []byte {
	return statemachine.AppendKey(nil, statemachine.PartitionStateType, k)
}

func lmeKey(k statemachine.Key) []byte {
	return statemachine.AppendKey(nil, statemachine.LastMirrorEpochsType, k)
}

// stateValue is the value of the state's record, nil if there is none.
func stateValue(e statemachine.Entry) []byte {
	if e.State == statemachine.NewPartitionState() {
		return nil
	}
	return statemachine.AppendPartitionState(nil, e.State)
}

func lmeValue(e statemachine.Entry) []byte {
	if e.LME == nil {
		return nil
	}
	return statemachine.AppendLastMirrorEpoch(nil, *e.LME)
}

// setState takes a state record into an entry, before the LME: its writer is the owner also where the LME's record has another one.
func setState(e *statemachine.Entry, r Record) error {
	var err error
	if e.State, err = statemachine.DecodePartitionState(r.Value); err != nil {
		return &RecordError{Key: bytes.Clone(r.Key), Err: err}
	}
	e.Owner = r.Writer
	return nil
}

// setLME takes an LME's record into an entry.
func setLME(e *statemachine.Entry, r Record) error {
	lme, err := statemachine.DecodeLastMirrorEpoch(r.Value)
	if err != nil {
		return &RecordError{Key: bytes.Clone(r.Key), Err: err}
	}
	e.LME = &lme
	if e.Owner == "" {
		e.Owner = r.Writer
	}
	return nil
}

// load decodes all records of one View first: each is called without it, and may take its time.
func load(ctx context.Context, read func(context.Context, func(View) error) error, each func(statemachine.Entry) error) error {
	var entries map[statemachine.Key]*statemachine.Entry
	err := read(ctx, func(v View) error {
		entries = make(map[statemachine.Key]*statemachine.Entry)
		if err := gather(v, statemachine.PartitionStateType, entries, setState); err != nil {
			return err
		}
		return gather(v, statemachine.LastMirrorEpochsType, entries, setLME)
	})
	if err != nil {
		return asStateStore(err)
	}
	for _, k := range slices.SortedFunc(maps.Keys(entries), statemachine.Key.Compare) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if entries[k].Empty() {
			continue
		}
		if err := each(*entries[k]); err != nil {
			return err
		}
	}
	return nil
}

// gather takes every record of one type into its key's entry.
func gather(v View, t statemachine.RecordType, entries map[statemachine.Key]*statemachine.Entry, set func(*statemachine.Entry, Record) error) error {
	return v.Each([]byte{byte(t >> 8), byte(t)}, func(r Record) error {
		_, k, err := statemachine.DecodeKey(r.Key)
		if err != nil {
			return &RecordError{Key: bytes.Clone(r.Key), Err: err}
		}
		e := entries[k]
		if e == nil {
			fresh := statemachine.NewEntry(k)
			e = &fresh
			entries[k] = e
		}
		return set(e, r)
	})
}

// asStateStore says a Log's errors in the words of statemachine too.
func asStateStore(err error) error {
	switch {
	case errors.Is(err, ErrFenced):
		return fmt.Errorf("%w: %w", statemachine.ErrFenced, err)
	case errors.Is(err, ErrClosed):
		return fmt.Errorf("%w: %w", statemachine.ErrClosed, err)
	}
	return err
}
