package statemachine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	sm "github.com/clustermirror/clustermirror/statemachine"
)

// jsonStore is a StateStore in one JSON file, replaced by rename: a crash leaves the file before the write or the one behind it, never half of it. The rules are
// sm.Apply's; left to the store are the file, the numbers of openings, and the order of writes. Processes that share the file need a lock on it as well.
type jsonStore struct {
	mu   *sync.Mutex // one per file
	path string
}

type jsonFile struct {
	Opened  int64            // openings so far, of all names
	Newest  map[string]int64 // owner → its newest opening
	Records []jsonRecord
}

type jsonRecord struct {
	Entry   sm.Entry
	Opening int64 // that wrote it last
}

func (s *jsonStore) read() (jsonFile, error) {
	f := jsonFile{Newest: map[string]int64{}}
	b, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	return f, err
}

func (s *jsonStore) replace(f jsonFile) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	next, err := os.Create(s.path + ".next")
	if err != nil {
		return err
	}
	_, err = next.Write(b)
	if err := errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), s.path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(s.path)) // the new name has to survive too
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (s *jsonStore) Open(ctx context.Context, owner string) (sm.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner == "" {
		return nil, errors.New("no owner")
	}
	f, err := s.read()
	if err = errors.Join(ctx.Err(), err); err != nil {
		return nil, err
	}
	f.Opened++
	f.Newest[owner] = f.Opened
	return &jsonSession{jsonStore: s, owner: owner, opening: f.Opened}, s.replace(f)
}

func (s *jsonStore) Load(ctx context.Context, each func(sm.Entry) error) error {
	s.mu.Lock()
	f, err := s.read()
	s.mu.Unlock()
	if err = errors.Join(ctx.Err(), err); err != nil {
		return err
	}
	for _, r := range f.Records {
		if err := each(r.Entry); err != nil {
			return err
		}
	}
	return nil
}

func (s *jsonStore) Close() error { return nil }

type jsonSession struct {
	*jsonStore
	owner   string
	opening int64
	closed  bool
}

func (s *jsonSession) Write(ctx context.Context, writes []sm.Write) ([]sm.WriteResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.read()
	if err = errors.Join(ctx.Err(), err); err != nil {
		return nil, err
	}
	switch {
	case s.closed:
		return nil, sm.ErrClosed
	case f.Newest[s.owner] != s.opening:
		return nil, sm.ErrFenced
	}
	results := make([]sm.WriteResult, len(writes))
	for i, w := range writes {
		at := 0
		for at < len(f.Records) && f.Records[at].Entry.Key != w.Key {
			at++
		}
		if at == len(f.Records) {
			f.Records = append(f.Records, jsonRecord{Entry: sm.NewEntry(w.Key)})
		}
		r := &f.Records[at]
		r.Entry, results[i] = sm.Apply(r.Entry, w, s.owner, f.Newest[r.Entry.Owner] > r.Opening)
		if results[i].Err == nil && (w.State != nil || w.LME != nil) {
			r.Opening = s.opening
		}
		if r.Entry.Empty() {
			f.Records = append(f.Records[:at], f.Records[at+1:]...)
		}
	}
	return results, s.replace(f)
}

func (s *jsonSession) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// A store of one's own: a JSON file. What it must do is in the comments of StateStore; storetest.Run checks it (see TestExampleStorePassesTheKit).
func ExampleStateStore() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "states")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store := &jsonStore{mu: new(sync.Mutex), path: filepath.Join(dir, "states.json")}

	first, _ := store.Open(ctx, "node-1")
	key := sm.Key{Mirror: "a-to-b", TopicID: sm.TopicID{15: 1}, Partition: 0}
	preparing, _ := sm.Move(sm.NewPartitionState(), sm.Preparing)
	results, _ := first.Write(ctx, []sm.Write{{Key: key, LeaderEpoch: 4, State: &preparing}})
	fmt.Println("state epoch", results[0].StateEpoch)

	// what is not legal is refused, and says so
	stopped := preparing
	stopped.State = sm.Stopped
	results, _ = first.Write(ctx, []sm.Write{{Key: key, ExpectedStateEpoch: 1, LeaderEpoch: 4, State: &stopped}})
	fmt.Println(results[0].Err)

	// a second process of the same name fences the first
	second, _ := store.Open(ctx, "node-1")
	_, err = first.Write(ctx, []sm.Write{{Key: key, ExpectedStateEpoch: 1, LeaderEpoch: 4, State: &preparing}})
	fmt.Println("first process:", err)
	_ = second.Load(ctx, func(e sm.Entry) error {
		fmt.Println(e.Key, e.Owner, e.State.State, "episode", e.State.Episode)
		return nil
	})
	// Output:
	// state epoch 1
	// key a-to-b:AAAAAAAAAAAAAAAAAAAAAQ:0: statemachine: a partition may not go from PREPARING to STOPPED; read its record again and decide anew
	// first process: statemachine: session is fenced
	// a-to-b:AAAAAAAAAAAAAAAAAAAAAQ:0 node-1 PREPARING episode 1
}

// The life of a record: a start, a failure with its retry, and the way back to health.
func ExampleMove() {
	r, _ := sm.Move(sm.NewPartitionState(), sm.Preparing)
	r = sm.Fail(r, "source unreachable", false)
	r = sm.Fail(r, "source unreachable", false)
	fmt.Println(r.State, "attempt", r.RetryAttempt, "next", sm.RetryTarget(r), "in", sm.RetryPolicy{}.Delay(r.RetryAttempt, 0.5))
	r, _ = sm.Move(r, sm.RetryTarget(r))
	r, _ = sm.Move(r, sm.Mirroring)
	r = sm.ClearFailure(r) // the first fetch was processed
	fmt.Println(r.State, "attempt", r.RetryAttempt)
	_, err := sm.Move(r, sm.Paused)
	fmt.Println(err)
	// Output:
	// FAILED attempt 2 next PREPARING in 2s
	// MIRRORING attempt 0
	// statemachine: a partition may not go from MIRRORING to PAUSED; read its record again and decide anew
}
