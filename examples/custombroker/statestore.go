package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/clustermirror/clustermirror/statemachine"
)

// StateStore keeps the states of partitions in one small file: a statemachine.StateStore, so that a restart goes on where the last process was. Processes may share it: each
// call takes the folder's lock, reads the file, and replaces it as a whole. That is right for some thousands of partitions; beyond, write changes instead of everything.
//
// The rules of a write are statemachine.Apply. What is left for a store is atomicity, sessions, and remembering when each key's owner was last opened.
type StateStore struct{ path string }

// states is the file.
type states struct {
	Last     int64            `json:"last"`     // number given last to a session
	Sessions map[string]int64 `json:"sessions"` // owner → number of its newest session: any other is fenced
	Records  []record         `json:"records"`  // in order of key
}

type record struct {
	Entry   statemachine.Entry `json:"entry"`
	Session int64              `json:"session"` // that wrote it last
}

// OpenStateStore opens the store in a folder, or makes one there.
func OpenStateStore(path string) (*StateStore, error) {
	dir, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	return &StateStore{path}, dir.Close()
}

// do runs one step on the newest states. What change leaves is written when it says so. The lock belongs to the handle, so it keeps goroutines apart too.
func (s *StateStore) do(ctx context.Context, change func(*states) (write bool, err error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir, err := openDirectory(s.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := lockWithin(ctx, dir); err != nil {
		return err
	}
	// A process may have died between renaming the file and syncing the folder. Nobody may act on a file that a power cut could still take back.
	if err := dir.Sync(); err != nil {
		return err
	}
	all := states{Sessions: map[string]int64{}}
	if err := readFile(dir, "states", &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	write, err := change(&all)
	if err != nil || !write {
		return err
	}
	return writeFile(dir, "states", all)
}

// Open begins a session; its number fences the owner's earlier ones.
func (s *StateStore) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	if owner == "" {
		return nil, errors.New("custombroker: a session needs an owner's name; \"\" means nobody")
	}
	opened := &session{store: s, owner: owner}
	err := s.do(ctx, func(all *states) (bool, error) {
		all.Last++
		all.Sessions[owner], opened.number = all.Last, all.Last
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Load reads every entry in order of key.
func (s *StateStore) Load(ctx context.Context, each func(statemachine.Entry) error) error {
	var found []record
	err := s.do(ctx, func(all *states) (bool, error) {
		found = all.Records
		return false, nil
	})
	for i := 0; i < len(found) && err == nil; i++ {
		if err = ctx.Err(); err == nil {
			err = each(found[i].Entry)
		}
	}
	return err
}

// Close does nothing: between calls the store holds nothing.
func (s *StateStore) Close() error { return nil }
