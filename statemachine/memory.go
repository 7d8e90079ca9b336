package statemachine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// MemoryStore is a StateStore in memory: for tests, harnesses and whoever accepts that a restart forgets. The zero value is ready. It must not be copied once used.
// Processes that share one value in a test fence each other as they would over a real store.
type MemoryStore struct {
	mu       sync.Mutex
	records  map[Key]memoryRecord
	openings map[string]int64 // owner → number of its newest session
	last     int64            // number given last
}

type memoryRecord struct {
	entry   Entry
	opening int64 // of the session that wrote it last
}

// Open begins a session.
func (m *MemoryStore) Open(ctx context.Context, owner string) (Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if owner == "" {
		return nil, errors.New("statemachine: open needs an owner's name; \"\" means nobody")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.openings == nil {
		m.openings = make(map[string]int64)
		m.records = make(map[Key]memoryRecord)
	}
	m.last++
	m.openings[owner] = m.last
	return &memorySession{store: m, owner: owner, opening: m.last}, nil
}

// Load reads every entry in order of key. Each entry is the callback's own copy, all of them of one moment.
func (m *MemoryStore) Load(ctx context.Context, each func(Entry) error) error {
	for _, e := range m.snapshot() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Close does nothing.
func (m *MemoryStore) Close() error { return nil }

func (m *MemoryStore) snapshot() []Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries := make([]Entry, 0, len(m.records))
	for _, r := range m.records {
		e := r.entry
		if e.LME != nil {
			lme := *e.LME
			e.LME = &lme
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return a.Key.Compare(b.Key) })
	return entries
}

// Compare orders keys by mirror, topic id and partition.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Mirror, other.Mirror), bytes.Compare(k.TopicID[:], other.TopicID[:]), cmp.Compare(k.Partition, other.Partition))
}

type memorySession struct {
	store   *MemoryStore
	owner   string
	opening int64
	closed  bool // guarded by store.mu
}

func (s *memorySession) Write(ctx context.Context, writes []Write) ([]WriteResult, error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.closed {
		return nil, ErrClosed
	}
	if s.store.openings[s.owner] != s.opening {
		return nil, fmt.Errorf("%w: %q was opened again elsewhere; stop serving its partitions", ErrFenced, s.owner)
	}
	results := make([]WriteResult, len(writes))
	for i, w := range writes {
		r, ok := s.store.records[w.Key]
		if !ok {
			r.entry = NewEntry(w.Key)
		}
		reopened := s.store.openings[r.entry.Owner] > r.opening
		r.entry, results[i] = Apply(r.entry, w, s.owner, reopened)
		switch {
		case results[i].Err != nil:
		case r.entry.Empty():
			delete(s.store.records, w.Key)
		case w.State != nil || w.LME != nil || w.Delete:
			r.opening = s.opening
			s.store.records[w.Key] = r
		}
	}
	return results, nil
}

func (s *memorySession) Load(ctx context.Context, each func(Entry) error) error {
	return s.store.Load(ctx, each)
}

func (s *memorySession) Close() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.closed = true
	return nil
}
