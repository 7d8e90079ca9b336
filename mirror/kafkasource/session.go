package kafkasource

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// Fetch session epochs with a meaning of their own (KIP-227).
const firstSessionEpoch = 0

// session is what one broker is to be asked for, and what it knows of that already (KIP-227). Not safe for concurrent use.
//
// A request is full (every partition, session epoch 0) or incremental (what changed since the last one). A full request that carries the id of
// an older session closes that session.
type session struct {
	partitions map[mirror.TopicPartition]*fetched
	byID       map[mirror.TopicID]*topic
	byName     map[string]*topic // of the latest id
	withoutID  int               // partitions wanted without a topic id

	id    int32 // 0: none
	epoch int32
	full  bool   // the next request is full
	names bool   // the session was made by topic names; it must not be continued by ids
	lost  uint64 // counts resets

	changed []*fetched // may have changed since the last request; meaningless while full

	request   kmsg.FetchRequest // reused
	generated uint64            // counts requests, to find a topic's place in the one being built
}

// topic groups partitions for requests.
type topic struct {
	name       string
	id         mirror.TopicID
	partitions map[int32]*fetched
	built      uint64 // the request in which slot is its place
	slot       int
}

// fetched is one partition.
type fetched struct {
	topic   *topic
	want    mirror.FetchPosition
	sent    mirror.FetchPosition // what the broker was asked last
	asked   bool                 // sent is set
	held    bool                 // the broker's session has it, or will have with the request under way
	queued  bool                 // is in session.changed
	dropped bool                 // forgotten; stays until the broker's session has been told
}

func newSession() *session {
	return &session{
		partitions: make(map[mirror.TopicPartition]*fetched),
		byID:       make(map[mirror.TopicID]*topic),
		byName:     make(map[string]*topic),
		full:       true,
		request:    kmsg.NewFetchRequest(),
	}
}

// want adds or moves a partition.
func (s *session) want(position mirror.FetchPosition) {
	p := s.partitions[position.TopicPartition]
	if p != nil && p.topic.id != position.TopicID {
		// A recreated topic: the broker's session knows the partition by its old id.
		if p.held {
			s.reset()
		}
		s.remove(p)
		p = nil
	}
	if p == nil {
		p = &fetched{topic: s.topicOf(position)}
		p.topic.partitions[position.Partition] = p
		s.partitions[position.TopicPartition] = p
		if position.TopicID == (mirror.TopicID{}) {
			s.withoutID++
		}
	}
	p.want, p.dropped = position, false
	if !p.held || differs(&p.want, &p.sent) {
		s.enqueue(p)
	}
}

// forget removes a partition, at once or with the next request.
func (s *session) forget(tp mirror.TopicPartition) {
	p := s.partitions[tp]
	if p == nil {
		return
	}
	p.dropped = true
	if !p.held {
		s.remove(p)
		return
	}
	s.enqueue(p)
}

func (s *session) enqueue(p *fetched) {
	if !p.queued && !s.full {
		p.queued = true
		s.changed = append(s.changed, p)
	}
}

func (s *session) topicOf(position mirror.FetchPosition) *topic {
	t := s.byID[position.TopicID]
	if position.TopicID == (mirror.TopicID{}) {
		t = s.byName[position.Topic]
	}
	if t == nil || t.id != position.TopicID || t.name != position.Topic {
		t = &topic{name: position.Topic, id: position.TopicID, partitions: make(map[int32]*fetched)}
		s.byName[t.name] = t
		if t.id != (mirror.TopicID{}) {
			s.byID[t.id] = t
		}
	}
	return t
}

// remove drops a partition from the tables. An entry in changed may remain; it is told by dropped and held.
func (s *session) remove(p *fetched) {
	p.dropped, p.held = true, false
	delete(s.partitions, p.want.TopicPartition)
	t := p.topic
	delete(t.partitions, p.want.Partition)
	if t.id == (mirror.TopicID{}) {
		s.withoutID--
	}
	if len(t.partitions) == 0 {
		if s.byID[t.id] == t {
			delete(s.byID, t.id)
		}
		if s.byName[t.name] == t {
			delete(s.byName, t.name)
		}
	}
}

// differs says whether a change must travel. The log start is information only.
func differs(a, b *mirror.FetchPosition) bool {
	return a.Offset != b.Offset || a.LeaderEpoch != b.LeaderEpoch || a.LastEpoch != b.LastEpoch || a.MaxBytes != b.MaxBytes
}

// reset makes the next request full. The id stays, so that the broker can let go of the old session.
func (s *session) reset() {
	s.full, s.epoch = true, firstSessionEpoch
	s.lost++
	s.changed = s.changed[:0]
	for _, p := range s.partitions {
		p.held, p.queued = false, false
		if p.dropped {
			s.remove(p)
		}
	}
}

// idle says that there is nothing to ask: nothing wanted, nothing to take back.
func (s *session) idle() bool {
	return len(s.partitions) == 0
}

// byNames says whether the next request must name topics, because the id of one is not known.
func (s *session) byNames() bool { return s.withoutID > 0 }

// build fills the request with what the broker has to be told, and takes note of it as sent.
func (s *session) build(partitionMaxBytes int32) *kmsg.FetchRequest {
	if names := s.byNames(); names != s.names {
		if !s.full {
			s.reset()
		}
		s.names = names
	}
	s.generated++
	r := &s.request
	r.SessionID, r.SessionEpoch = s.id, s.epoch
	r.Topics, r.ForgottenTopics = r.Topics[:0], r.ForgottenTopics[:0]
	if s.full {
		for _, p := range s.partitions {
			s.add(p, partitionMaxBytes)
		}
		return r
	}
	for _, p := range s.changed {
		p.queued = false
		switch {
		case p.dropped && p.held:
			s.take(p)
			s.remove(p)
		case p.dropped:
		case !p.held || differs(&p.want, &p.sent):
			s.add(p, partitionMaxBytes)
		}
	}
	clear(s.changed)
	s.changed = s.changed[:0]
	return r
}

// add puts a partition into the request being built.
func (s *session) add(p *fetched, partitionMaxBytes int32) {
	r, t := &s.request, p.topic
	if t.built != s.generated {
		t.built, t.slot = s.generated, len(r.Topics)
		if cap(r.Topics) > len(r.Topics) {
			r.Topics = r.Topics[:len(r.Topics)+1]
		} else {
			r.Topics = append(r.Topics, kmsg.NewFetchRequestTopic())
		}
		rt := &r.Topics[t.slot]
		rt.Topic, rt.TopicID, rt.Partitions = t.name, t.id, rt.Partitions[:0]
	}
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition = p.want.Partition
	rp.CurrentLeaderEpoch = p.want.LeaderEpoch
	rp.FetchOffset = p.want.Offset
	rp.LastFetchedEpoch = p.want.LastEpoch
	rp.LogStartOffset = p.want.LogStart
	rp.PartitionMaxBytes = p.want.MaxBytes
	if rp.PartitionMaxBytes <= 0 {
		rp.PartitionMaxBytes = partitionMaxBytes
	}
	rt := &r.Topics[t.slot]
	rt.Partitions = append(rt.Partitions, rp)
	p.sent, p.asked, p.held = p.want, true, true
}

// take puts a partition into the list of those that the broker's session has to let go of. Few at a time, so a search is good enough.
func (s *session) take(p *fetched) {
	r := &s.request
	for i := len(r.ForgottenTopics) - 1; i >= 0; i-- {
		if ft := &r.ForgottenTopics[i]; ft.Topic == p.topic.name && ft.TopicID == p.topic.id {
			ft.Partitions = append(ft.Partitions, p.want.Partition)
			return
		}
	}
	ft := kmsg.NewFetchRequestForgottenTopic()
	ft.Topic, ft.TopicID = p.topic.name, p.topic.id
	ft.Partitions = append(ft.Partitions, p.want.Partition)
	r.ForgottenTopics = append(r.ForgottenTopics, ft)
}

// answered takes note of a good answer. lost is the value of s.lost when the request was built.
func (s *session) answered(sessionID int32, lost uint64) {
	wasFull := s.request.SessionEpoch == firstSessionEpoch
	s.id = sessionID
	switch {
	case s.lost != lost:
		// Reset meanwhile; only the id is of use, for closing.
	case sessionID == 0:
		// The broker keeps no session for us: everything again next time, and another try for a session.
		s.reset()
	case wasFull:
		s.full, s.epoch = false, firstSessionEpoch+1
		// Partitions may have been added, moved or dropped while the request travelled.
		for _, p := range s.partitions {
			if !p.held || p.dropped || differs(&p.want, &p.sent) {
				s.enqueue(p)
			}
		}
	case s.epoch == math.MaxInt32:
		s.epoch = firstSessionEpoch + 1
	default:
		s.epoch++
	}
}

// find is the partition that an answer is about, nil if it is no longer wanted.
func (s *session) find(name string, id mirror.TopicID, partition int32) *fetched {
	var p *fetched
	if id == (mirror.TopicID{}) {
		p = s.partitions[mirror.TopicPartition{Topic: name, Partition: partition}]
	} else if t := s.byID[id]; t != nil {
		p = t.partitions[partition]
	}
	if p == nil || p.dropped || !p.asked {
		return nil
	}
	return p
}
