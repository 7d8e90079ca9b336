package mirror

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Control holds the desired state of a destination cluster: which topics are mirrored, by which mirror, and what the operator consented to.
// Admin writes it, a Mirror reads it and follows. Safe for concurrent use. Every call ends with its context.
type Control interface {
	// Read returns a copy of the state; it is the caller's.
	Read(ctx context.Context) (ControlState, error)
	// Update reads the newest state, lets change alter a copy, and writes the result in one atomic step. An error from change is returned as it is and changes
	// nothing. change may be called more than once (when somebody else wrote in between), must depend on its argument only, and must not call the Control.
	// A state that change leaves equal is not written.
	Update(ctx context.Context, change func(*ControlState) error) error
	// Changed returns a channel that is closed at the next change. Take it before Read, so that no change is missed.
	Changed() <-chan struct{}
}

// ControlState is the desired state as plain data.
type ControlState struct {
	// Version counts the changes. It is set by the Control.
	Version int64
	// Topics is sorted by topic name; each name is there once.
	Topics []TopicWish
}

// TopicWish is what is wanted of one topic.
type TopicWish struct {
	Topic string
	// MirrorName is the value that KIP-1279 keeps in the topic's mirror.name: "m", "m.paused" or "m.stopped" (statemachine.MirrorNameValue).
	MirrorName string
	// AdoptedFrom is the mirror in which the topic was stopped before this one took it over, "" if none. Its state records get their tombstones in the write that
	// makes this mirror's first ones; what it recorded as last mirror epochs stays (spec decision 21).
	AdoptedFrom string
	// Consents are what may be dropped when mirroring begins, sorted by topic id, partition, offset. They are used up when MIRRORING is reached (spec decision 7).
	Consents []Consent
}

// Wish splits MirrorName into the mirror and what is wanted. Errors: a value that nobody could have written.
func (w TopicWish) Wish() (mirror string, want statemachine.Desired, err error) {
	mirror, want, err = statemachine.ParseMirrorNameValue(w.MirrorName)
	if err != nil {
		err = fmt.Errorf("mirror: topic %q has mirror.name %q: %w", w.Topic, w.MirrorName, err)
	}
	return mirror, want, err
}

// Clone returns a deep copy.
func (s ControlState) Clone() ControlState {
	s.Topics = slices.Clone(s.Topics)
	for i := range s.Topics {
		s.Topics[i].Consents = slices.Clone(s.Topics[i].Consents)
	}
	return s
}

// Topic returns what is wanted of a topic; ok is false when it is in no mirror. The consents are shared with s.
func (s *ControlState) Topic(name string) (wish TopicWish, ok bool) {
	i, ok := s.find(name)
	if !ok {
		return TopicWish{}, false
	}
	return s.Topics[i], true
}

// Set adds a topic's wish or replaces it, and keeps both orders.
func (s *ControlState) Set(w TopicWish) {
	slices.SortFunc(w.Consents, compareConsents)
	i, ok := s.find(w.Topic)
	if ok {
		s.Topics[i] = w
		return
	}
	s.Topics = slices.Insert(s.Topics, i, w)
}

// Remove takes a topic out; one that is not there is fine.
func (s *ControlState) Remove(name string) {
	if i, ok := s.find(name); ok {
		s.Topics = slices.Delete(s.Topics, i, i+1)
	}
}

// UseConsents takes out the consents of one partition: they are used up. It reports whether there were any.
func (s *ControlState) UseConsents(tp TopicPartition) bool {
	i, ok := s.find(tp.Topic)
	if !ok {
		return false
	}
	w := &s.Topics[i]
	n := len(w.Consents)
	w.Consents = slices.DeleteFunc(w.Consents, func(c Consent) bool { return c.Partition == tp.Partition })
	return len(w.Consents) < n
}

func (s *ControlState) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.Topics, name, func(w TopicWish, name string) int { return cmp.Compare(w.Topic, name) })
}

func (s ControlState) equal(o ControlState) bool {
	return slices.EqualFunc(s.Topics, o.Topics, func(a, b TopicWish) bool {
		return a.Topic == b.Topic && a.MirrorName == b.MirrorName && a.AdoptedFrom == b.AdoptedFrom && slices.Equal(a.Consents, b.Consents)
	})
}

func compareConsents(a, b Consent) int {
	return cmp.Or(slices.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To),
		cmp.Compare(a.Episode, b.Episode))
}

// NewMemoryControl is a Control in memory: it ends with the process.
func NewMemoryControl() Control { return &memoryControl{changed: make(chan struct{})} }

type memoryControl struct {
	mu      sync.Mutex
	state   ControlState
	changed chan struct{}
}

func (m *memoryControl) Read(ctx context.Context) (ControlState, error) {
	if err := ctx.Err(); err != nil {
		return ControlState{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.Clone(), nil
}

func (m *memoryControl) Update(ctx context.Context, change func(*ControlState) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.state.Clone()
	if err := change(&next); err != nil {
		return err
	}
	if next.equal(m.state) {
		return nil
	}
	next.Version = m.state.Version + 1
	m.state = next.Clone() // change may have kept what it was given
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

func (m *memoryControl) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}
