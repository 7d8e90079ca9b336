package keyedlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Memory is a Log in memory: for tests, harnesses and whoever accepts that a restart forgets. A callback that calls the Log waits for itself: it runs under the lock.
type Memory struct {
	*memoryRecords
	closed bool // guarded by mu
}

// memoryRecords is what all handles share.
type memoryRecords struct {
	turn     chan struct{} // full while a call runs; guards what follows
	records  map[string]Record
	sessions map[string]int64 // writer → number of its newest session
	version  int64

	mu      sync.Mutex // held for moments
	waiting map[*Memory]chan struct{}
}

// NewMemory returns an empty Log.
func NewMemory() *Memory {
	return &Memory{memoryRecords: &memoryRecords{turn: make(chan struct{}, 1), records: make(map[string]Record), sessions: make(map[string]int64), waiting: make(map[*Memory]chan struct{})}}
}

// Again returns another handle on the same records, as another process has it: Close of one leaves the other alone. Close may come first; that is how a test restarts a process.
func (m *Memory) Again() *Memory { return &Memory{memoryRecords: m.memoryRecords} }

// lock takes the lock for one call. Without an error the caller unlocks.
func (m *Memory) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		m.unlock()
		return fmt.Errorf("%w: the log in memory; open it again", ErrClosed)
	}
	return nil
}

func (r *memoryRecords) unlock() { <-r.turn }

// Open: see Log.
func (m *Memory) Open(ctx context.Context, writer string) (Session, error) {
	if writer == "" {
		return nil, errors.New("keyedlog: open needs a writer's name; \"\" means nobody")
	}
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.unlock()
	m.sessions[writer]++
	return &memorySession{log: m, writer: writer, number: m.sessions[writer]}, nil
}

// Update: see Log. Nobody can write in between, so decide is called once.
func (m *Memory) Update(ctx context.Context, decide func(View) ([]Change, error)) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	wrote, err := m.update("", 0, nil, decide)
	if wrote {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, changed := range m.waiting {
			close(changed)
		}
		clear(m.waiting)
	}
	return err
}

// Read: see Log.
func (m *Memory) Read(ctx context.Context, read func(View) error) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	return read(memoryView{m.memoryRecords})
}

// Changed: see Log.
func (m *Memory) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := m.waiting[m]
	if changed == nil {
		changed = make(chan struct{})
		if !m.closed {
			m.waiting[m] = changed
		}
	}
	return changed
}

// Close: see Log.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	delete(m.waiting, m)
	return nil
}

// update is called with the lock. keys nil: every key.
func (r *memoryRecords) update(writer string, session int64, keys [][]byte, decide func(View) ([]Change, error)) (wrote bool, err error) {
	v := memoryView{r}
	changes, err := decide(v)
	if err != nil {
		return false, err
	}
	if err := CheckChanges(v, writer, keys, changes); err != nil {
		return false, err
	}
	for _, c := range changes {
		if c.Value == nil {
			delete(r.records, string(c.Key))
			continue
		}
		next := Record{Key: bytes.Clone(c.Key), Value: bytes.Clone(c.Value)}
		if writer != "" && !c.Release {
			next.Writer, next.Session = writer, session
		}
		r.records[string(c.Key)] = next
	}
	if len(changes) > 0 {
		r.version++
	}
	return len(changes) > 0, nil
}

type memorySession struct {
	log    *Memory
	writer string
	number int64
	closed atomic.Bool
}

func (s *memorySession) Number() int64 { return s.number }

// lock takes the lock for one call. Without an error the caller unlocks.
func (s *memorySession) lock(ctx context.Context) error {
	if err := s.log.lock(ctx); err != nil {
		return err
	}
	if s.closed.Load() {
		s.log.unlock()
		return fmt.Errorf("%w: session %d of %q; open another one", ErrClosed, s.number, s.writer)
	}
	return nil
}

// fenced is called with the lock.
func (s *memorySession) fenced() error {
	if newest := s.log.sessions[s.writer]; newest != s.number {
		return fmt.Errorf("%w: %q has session %d, this is %d; stop serving", ErrFenced, s.writer, newest, s.number)
	}
	return nil
}

func (s *memorySession) Update(ctx context.Context, keys [][]byte, decide func(View) ([]Change, error)) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.log.unlock()
	if err := s.fenced(); err != nil {
		return err
	}
	if keys == nil {
		keys = [][]byte{}
	}
	_, err := s.log.update(s.writer, s.number, keys, decide)
	return err
}

func (s *memorySession) Check(ctx context.Context) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.log.unlock()
	return s.fenced()
}

func (s *memorySession) Read(ctx context.Context, read func(View) error) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.log.unlock()
	return read(memoryView{s.log.memoryRecords})
}

func (s *memorySession) Close() error {
	s.closed.Store(true)
	return nil
}

// memoryView is used under the lock.
type memoryView struct{ r *memoryRecords }

func (v memoryView) Get(key []byte) (Record, bool) {
	r, ok := v.r.records[string(key)]
	return r, ok
}

func (v memoryView) Each(prefix []byte, f func(Record) error) error {
	keys := slices.Collect(maps.Keys(v.r.records))
	keys = slices.DeleteFunc(keys, func(k string) bool { return !strings.HasPrefix(k, string(prefix)) })
	slices.Sort(keys)
	for _, k := range keys {
		if err := f(v.r.records[k]); err != nil {
			return err
		}
	}
	return nil
}

func (v memoryView) Session(writer string) int64 { return v.r.sessions[writer] }

func (v memoryView) Version() int64 { return v.r.version }
