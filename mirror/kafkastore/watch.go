package kafkastore

import (
	"context"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/topicreader"
)

// Changed: see keyedlog.Log. The first call begins to watch the control topics; reports of how partitions are, which come all the time, do not count. It stops with Close.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.watching && !s.closed {
		s.watching = true
		s.background.Go(s.watch)
	}
	return s.changed
}

func (s *Store) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// watch has a client of its own, because long polls hold up other Fetches of the same connections.
func (s *Store) watch() {
	const longest = 5 * time.Second
	wait := 100 * time.Millisecond
	for s.ctx.Err() == nil {
		if s.follow() {
			wait = 100 * time.Millisecond
		}
		if pause(s.ctx, wait) != nil {
			return
		}
		wait = min(2*wait, longest)
	}
}

// follow watches until something fails, and reports whether it got as far as watching.
func (s *Store) follow() (watched bool) {
	client, err := s.cfg.client()
	if err != nil {
		return false
	}
	defer client.Close()
	topics := slices.DeleteFunc(s.topics(), func(topic string) bool {
		return topic == s.cfg.namespace+stateTopic || topic == s.cfg.namespace+statusTopic
	})
	r := topicreader.New(client, topics...).MissingIsEmpty()
	for {
		ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Bound)
		err := r.SkipToEnd(ctx)
		cancel()
		if err != nil {
			return watched
		}
		// What was written before this position is told now, what comes behind it is waited for.
		s.notify()
		watched = true
		if err := r.Wait(s.ctx); err != nil {
			return watched
		}
	}
}
