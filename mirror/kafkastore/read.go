package kafkastore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/topicreader"
)

// leastRetention is how long a tombstone has to be kept: the topics' delete.retention.ms. A topic with less is refused.
const leastRetention = 24 * time.Hour

// reloadAfter is how long after the last reading everything is read anew: an older tombstone may be gone unseen. The other half of the time is for the reading itself.
const reloadAfter = leastRetention / 2

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

// reading is what was read of all topics.
type reading struct {
	reader  *topicreader.Reader
	records *records
	// unjudged is what was read since the last reading that got to the end: only then is it known in which partitions keys of states lie.
	unjudged []topicreader.Record
	layout   topicreader.StateLayout
	places   int32 // in how many partitions they were looked for; 0: none was
	// when is when the last reading that got to the end was begun; before any did, when the first one was.
	when  time.Time
	asked time.Time // when leaders were asked for last
}

// newReading begins at the start of all topics. Nothing is asked yet.
func (s *Store) newReading() *reading {
	r := &reading{reader: s.newReader(s.client, s.topics()...), records: newRecords(), when: time.Now(), asked: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.records.watched = s.records.watched
	r.records.sessions.last = s.records.sessions.last // numbers go on
	return r
}

// old says whether tombstones may be gone unseen, by the wall clock, which goes on while a machine sleeps.
func (r *reading) old() bool { return time.Since(r.when.Round(0)) > reloadAfter }

// readLocked is readAll for who holds reading. What is read from the start of all topics is seen by nobody before it is complete; one that breaks off is gone on with.
func (s *Store) readLocked(ctx context.Context) error {
	if s.next == nil && s.shown.old() || s.next != nil && s.next.old() {
		s.next = s.newReading()
	}
	in := s.shown
	if s.next != nil {
		in = s.next
	}
	s.mu.Lock()
	stale := false
	for _, lead := range s.leaders {
		stale = stale || lead.Leader < 0
	}
	s.mu.Unlock()
	if stale || time.Since(in.asked) > leadersAfter {
		in.reader.Forget()
		in.asked = time.Now()
	}
	begun := time.Now()
	for range mostPasses {
		before := in.reader.Total()
		if err := s.pass(ctx, in); err != nil {
			return err
		}
		if in.reader.Total() == before {
			break // nothing was written from the end of the last reading to now: this is what there was at a moment in between
		}
	}
	in.when = begun
	s.show(in)
	return s.vetNew(ctx, in.reader)
}

// pass reads all topics once.
func (s *Store) pass(ctx context.Context, in *reading) error {
	s.mu.Lock()
	in.records.pass++
	s.mu.Unlock()
	err := in.reader.ReadToEnd(ctx, func(k topicreader.Record) {
		in.unjudged = append(in.unjudged, k)
	})
	if isAnother(err) {
		s.next = s.newReading()
		s.mu.Lock()
		s.least = s.version + 1 // fewer offsets, but not what was there before
		s.mu.Unlock()
		return again("%w", err)
	}
	if err != nil {
		return readFailed(err)
	}
	return s.judge(in)
}

// judge keeps what counts of what was read.
func (s *Store) judge(in *reading) error {
	state := s.cfg.namespace + stateTopic
	layout := in.layout
	for _, k := range in.unjudged {
		if k.Topic == state {
			layout.Take(k)
		}
	}
	places, err := layout.Partitions(in.reader.Partitions(state))
	if err != nil {
		return &TopicError{state, err}
	}
	if in.places > 0 && in.places != places {
		s.next = s.newReading()
		return again("keys of %s lie in %d partitions and not in %d", state, places, in.places)
	}
	var strays []*StrayError
	s.mu.Lock()
	for _, k := range in.unjudged {
		if stray := s.stray(k, places); stray != nil {
			strays = append(strays, stray)
		} else if t, ok := recordType(k.Key); !ok || t != topicreader.StateLayoutType {
			in.records.add(k)
		}
	}
	in.records.passed()
	unreadable := slices.Collect(maps.Values(in.records.sessions.unreadable))
	s.mu.Unlock()
	in.layout, in.places, in.unjudged = layout, places, nil
	s.tell(strays, unreadable)
	return nil
}

// show makes a reading that got to the end the one that is decided on.
func (s *Store) show(in *reading) {
	s.shown, s.next = in, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = in.records
	position := in.reader.Total() - int64(in.records.waiting) // a record that waits for the rest of its update counts when it is shown
	s.base = max(s.base, s.least-position)
	s.version = max(s.version, s.base+position)
	s.statePlaces, s.layout = in.places, in.layout.Known()
	clear(s.leaders)
	for _, topic := range s.topics() {
		for p := range in.reader.Partitions(topic) {
			s.leaders[place{topic, p}] = in.reader.Lead(topic, p)
		}
	}
	if in.records.waiting == 0 {
		for session := range s.sessions {
			session.forgetRead(in.reader)
		}
	}
}

// vetAfter is how long what was seen of the topics' configuration holds, and leadersAfter how long what was seen of the topics themselves: nothing else tells that a topic was
// made again where its log is as long as the old one's was.
const (
	vetAfter     = time.Minute
	leadersAfter = 5 * time.Second
)

// vetted is a topic whose configuration was looked at.
type vetted struct {
	id [16]byte
	at time.Time
}

// vetNew looks at the configuration of topics that were not there before, and now and then of all.
func (s *Store) vetNew(ctx context.Context, reader *topicreader.Reader) error {
	var topics []string
	due := false
	for _, topic := range s.topics() {
		if reader.Partitions(topic) == 0 {
			continue
		}
		topics = append(topics, topic)
		v := s.vetted[topic]
		due = due || v.id != reader.ID(topic) || time.Since(v.at) > vetAfter
	}
	if !due {
		return nil
	}
	if err := s.vet(ctx, topics); err != nil {
		return err
	}
	for _, topic := range topics {
		s.vetted[topic] = vetted{reader.ID(topic), time.Now()}
	}
	return nil
}

// checker reads sessions only.
type checker struct {
	reader   *topicreader.Reader
	sessions sessionRecords
	asked    time.Time // when leaders were asked for last
}

func (s *Store) newChecker() *checker {
	return &checker{reader: s.newReader(s.client, s.controlTopic()), sessions: newSessionRecords(), asked: time.Now()}
}

// newestSession asks for a writer's newest session, and reads nothing but the control topic.
func (s *Store) newestSession(ctx context.Context, writer string) (sessionRecord, error) {
	if err := s.checking.take(ctx); err != nil {
		return sessionRecord{}, err
	}
	defer s.checking.give()
	if time.Since(s.checker.asked) > leadersAfter {
		s.checker.reader.Forget()
		s.checker.asked = time.Now()
	}
	err := s.checker.reader.ReadToEnd(ctx, func(k topicreader.Record) {
		if t, ok := recordType(k.Key); ok && t == sessionType && k.Partition == 0 {
			s.checker.sessions.take(k)
		}
	})
	if err != nil {
		if isAnother(err) {
			s.checker = s.newChecker()
		}
		return sessionRecord{}, readFailed(err)
	}
	return s.checker.sessions.of(writer)
}

// isAnother says whether what was read of a topic is not what there is: it was made again, or got more partitions.
func isAnother(err error) bool {
	var replaced *topicreader.ReplacedError
	var grown *topicreader.PartitionsError
	return errors.As(err, &replaced) || errors.As(err, &grown)
}
