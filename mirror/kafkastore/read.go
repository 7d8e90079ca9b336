package kafkastore

import (
	"context"
	"errors"
	"time"

	"github.com/clustermirror/clustermirror/internal/topicreader"
)

// reloadAfter is how long after the last reading everything is read anew: a tombstone older than the topics' delete.retention.ms of a day may be gone unseen.
const reloadAfter = 12 * time.Hour

// mostPasses is after how many readings in which something new was found the last one has to do. See Read in the package's text.
const mostPasses = 20

// readAll reads everything up to what was committed before it began.
func (s *Store) readAll(ctx context.Context) error {
	if err := s.reading.take(ctx); err != nil {
		return err
	}
	defer s.reading.give()
	return s.readLocked(ctx)
}

// readLocked is readAll for who holds reading.
func (s *Store) readLocked(ctx context.Context) error {
	if !s.read.IsZero() && time.Since(s.read.Round(0)) > reloadAfter { // by the wall clock, which goes on while a machine sleeps
		s.startAnew()
	}
	s.mu.Lock()
	stale := false
	for _, leader := range s.leaders {
		stale = stale || leader < 0
	}
	s.mu.Unlock()
	if stale {
		s.reader.Forget()
	}
	for range mostPasses {
		before := s.reader.Total()
		if err := s.pass(ctx); err != nil {
			return err
		}
		if s.reader.Total() == before {
			break // nothing was written from the end of the last reading to now: this is what there was at a moment in between
		}
	}
	s.read = time.Now()
	s.mu.Lock()
	position := s.reader.Total() - int64(s.records.waiting) // a record that waits for the rest of its update counts when it is shown
	s.base = max(s.base, s.least-position)
	s.version = max(s.version, s.base+position)
	s.mu.Unlock()
	return s.vetNew(ctx)
}

// pass reads all topics once.
func (s *Store) pass(ctx context.Context) error {
	s.mu.Lock()
	s.records.pass++
	s.mu.Unlock()
	err := s.reader.ReadToEnd(ctx, func(k topicreader.Record) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.records.add(k)
	})
	var replaced *topicreader.ReplacedError
	if errors.As(err, &replaced) {
		s.startAnew()
		s.mu.Lock()
		s.least = s.version + 1 // fewer offsets, but not what was there before
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.records.passed()
		err = s.records.fault
	} else {
		err = readFailed(err)
	}
	s.statePlaces = s.reader.Partitions(s.cfg.namespace + stateTopic)
	for _, topic := range s.topics() {
		for p := range s.reader.Partitions(topic) {
			s.leaders[place{topic, p}] = s.reader.Leader(topic, p)
		}
	}
	if err == nil && s.records.waiting == 0 {
		for session := range s.sessions {
			session.forgetRead(s.reader)
		}
	}
	return err
}

// startAnew forgets everything that was read.
func (s *Store) startAnew() {
	s.reader = s.newReader(s.client, s.topics()...)
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := newRecords()
	fresh.watched = s.records.watched
	s.records = fresh
	clear(s.leaders)
}

// vetNew looks at the configuration of topics that were not there before.
func (s *Store) vetNew(ctx context.Context) error {
	var topics []string
	for _, topic := range s.topics() {
		if s.reader.Partitions(topic) > 0 && !s.vetted[topic] {
			topics = append(topics, topic)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	if err := s.vet(ctx, topics); err != nil {
		return err
	}
	for _, topic := range topics {
		s.vetted[topic] = true
	}
	return nil
}

// checker reads sessions only.
type checker struct {
	reader   *topicreader.Reader
	sessions map[string]sessionRecord
}

// newestSession asks for a writer's newest session, and reads nothing but the control topic.
func (s *Store) newestSession(ctx context.Context, writer string) (sessionRecord, error) {
	if err := s.checking.take(ctx); err != nil {
		return sessionRecord{}, err
	}
	defer s.checking.give()
	var fault error
	err := s.checker.reader.ReadToEnd(ctx, func(k topicreader.Record) {
		if t, ok := recordType(k.Key); !ok || t != sessionType || k.Value == nil {
			return
		}
		w, r, err := decodeSession(k)
		if err != nil {
			fault = err
		} else if r.number > s.checker.sessions[w].number {
			s.checker.sessions[w] = r
		}
	})
	if fault != nil {
		return sessionRecord{}, fault
	}
	if err != nil {
		var replaced *topicreader.ReplacedError
		if errors.As(err, &replaced) {
			s.checker = &checker{reader: s.newReader(s.client, s.controlTopic()), sessions: make(map[string]sessionRecord)}
		}
		return sessionRecord{}, readFailed(err)
	}
	return s.checker.sessions[writer], nil
}
