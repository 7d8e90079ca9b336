package statemachine

import "context"

// MemoryStore is a StateStore in memory: for tests, harnesses and whoever accepts that a restart forgets. The zero value is ready.
type MemoryStore struct {
	_ int // contract
}

// Open begins a session.
func (m *MemoryStore) Open(ctx context.Context, owner string) (Session, error) { panic("contract") }

// Load reads every entry in order of key.
func (m *MemoryStore) Load(ctx context.Context, each func(Entry) error) error { panic("contract") }

// Close does nothing.
func (m *MemoryStore) Close() error { return nil }
