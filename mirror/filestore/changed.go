package filestore

import (
	"context"
	"errors"
	"time"
)

// announce wakes whoever waits for a change, and notes what was seen.
func (s *Store) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation, s.size, s.version = s.log.generation, s.log.end, s.log.view.version
	if s.version > s.since {
		s.wake()
	}
}

// wake is called with mu.
func (s *Store) wake() {
	if s.changed != nil && !s.closed {
		close(s.changed)
		s.changed = nil
	}
}

// pollEvery is how often the log is looked at while somebody waits for a change.
const pollEvery = 200 * time.Millisecond

// Changed: see keyedlog.Log. As long as a channel is not closed the log's size is looked at five times a second. When the log cannot be read the channel is closed too, so
// that the next Read says why.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		return s.changed
	}
	changed := make(chan struct{})
	if s.closed {
		return changed
	}
	s.changed, s.since = changed, s.version
	s.polls.Go(func() { s.poll(changed) })
	return changed
}

func (s *Store) poll(changed <-chan struct{}) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-changed:
			return
		case <-s.done:
			return
		case <-tick.C:
		}
		if !s.moved() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), pollEvery)
		err := s.do(ctx, nil, nil)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			s.mu.Lock()
			if s.changed == changed {
				s.wake()
			}
			s.mu.Unlock()
		}
	}
}

// moved says whether the log may have changed since the last call. Frames are only ever added, by whoever has the lock, so that a length and a generation say it.
func (s *Store) moved() bool {
	f, err := s.log.in.Open(logName)
	if err != nil {
		return true
	}
	defer f.Close()
	generation, size, err := s.log.header(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	return err != nil || generation != s.generation || size != s.size
}
