package kafkastore

import (
	"context"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/topicreader"
)

// Changed: see keyedlog.Log. The first call begins to watch; it stops with Close. The topics of states and of reports, which change all the time, are not watched.
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
	if s.closed {
		return
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// watch has a client of its own, because long polls hold up other Fetches of the same connections. Where it is refused, or nobody answers for long, it closes the channel too:
// whoever reads then sees why, and whoever waits for a change is not left to believe that there is none. Pauses grow as long as that goes on.
func (s *Store) watch() {
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	wait := shortest
	for s.ctx.Err() == nil {
		begun := time.Now()
		s.follow()
		if s.ctx.Err() != nil {
			return
		}
		s.notify()
		if time.Since(begun) > 2*longest { // it has watched for a while
			wait = shortest
		}
		if pause(s.ctx, wait) != nil {
			return
		}
		wait = min(2*wait, longest)
	}
}

// watched are the topics whose changes Changed tells.
func (s *Store) watched() []string {
	return slices.DeleteFunc(s.topics(), func(topic string) bool {
		return topic == s.cfg.namespace+stateTopic || topic == s.cfg.namespace+statusTopic
	})
}

// follow watches until something fails. Why is told to whoever reads.
func (s *Store) follow() {
	client, err := s.cfg.client()
	if err != nil {
		return
	}
	defer client.Close()
	r := topicreader.New(client, s.watched()...).MissingIsEmpty()
	for {
		ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Bound)
		err := r.SkipToEnd(ctx)
		cancel()
		if err != nil {
			return
		}
		// What was written before this position is told now, what comes behind it is waited for.
		s.notify()
		if err := r.Wait(s.ctx); err != nil {
			return
		}
	}
}
