package replicaserver

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Session epochs with a meaning (Kafka: FetchMetadata).
const (
	newSessionEpoch = 0  // a full fetch that asks for a session
	noSessionEpoch  = -1 // a full fetch without one
)

// sessionlessGrace is how much longer a Fetch without a session waits for batches that are being read back, as nothing of an unfinished reading is kept for its next one.
const sessionlessGrace = 5 * time.Second

// fetch answers a Fetch.
func (c *connection) fetch(h header, kind answered, req *kmsg.FetchRequest, started time.Time) error {
	replica, brokerEpoch := req.ReplicaID, int64(-1)
	if req.Version >= 15 {
		replica, brokerEpoch = req.ReplicaState.ID, req.ReplicaState.Epoch
	}
	var out []*partitionAnswer
	code, id := int16(0), int32(0)
	switch own := c.server.config.ClusterID; {
	case c.refusesReplica(replica):
		out = refuseAll(req)
	case own != "" && req.ClusterID != nil && *req.ClusterID != own:
		code = codeInconsistentClusterID
	default:
		var s *session
		var full bool
		if s, full, code = c.sessionFor(req, replica); s != nil {
			c.server.noteFetch(replica)
			if s != c.session {
				defer s.release()
			}
			if len(s.entries) > maxPartitions {
				return &refusal{"too many partitions", "in one fetch session"}
			}
			f := fetching{connection: c, session: s, full: full, brokerEpoch: brokerEpoch, maxBytes: min(max(0, int(req.MaxBytes)), c.server.config.MaxResponseBytes), minBytes: int(req.MinBytes)}
			f.collect(min(time.Duration(max(0, req.MaxWaitMillis))*time.Millisecond, c.server.config.MaxWait))
			out, id = f.finish(), s.id
		}
	}
	pieces := c.encoder.encode(h.correlation, code, id, c.server.config.NodeID, out)
	err := c.send(kind, h.version, nil, pieces, started)
	c.encoder.forget()
	for _, p := range out {
		p.Batches = nil
	}
	return err
}

// refuseAll answers every partition with an error that a client does not try again.
func refuseAll(req *kmsg.FetchRequest) []*partitionAnswer {
	var out []*partitionAnswer
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			out = append(out, &partitionAnswer{topic: t.TopicID, partition: p.Partition, FetchAnswer: failure(codeTopicAuthorizationFailed)})
		}
	}
	return out
}

func failure(code int16) FetchAnswer {
	return FetchAnswer{Code: code, LeaderEpoch: -1, HighWatermark: -1, LastStableOffset: -1, LogStart: -1}
}

// sessionFor finds or makes the session that a request is for, and takes what it says of partitions (Kafka: FetchManager.newContext). A code that is not 0 answers the whole request.
func (c *connection) sessionFor(req *kmsg.FetchRequest, replica int32) (s *session, full bool, code int16) {
	if full = req.SessionEpoch == newSessionEpoch || req.SessionEpoch == noSessionEpoch; full {
		if req.SessionID != 0 {
			c.server.sessions.end(req.SessionID, replica)
		}
		n := 0
		for _, t := range req.Topics {
			n += len(t.Partitions)
		}
		s = newSession(replica, n, c.server.ending)
		if req.SessionEpoch == newSessionEpoch && n > 0 {
			c.leaveSession() // a follower has one session on a connection
			if c.server.sessions.add(s) {
				c.session = s
			}
		}
	} else {
		s = c.session
		if s != nil && s.closed.Load() {
			c.leaveSession()
			s = nil
		}
		switch {
		case s == nil || s.id != req.SessionID || s.broker != replica:
			return nil, false, codeSessionNotFound
		case s.epoch != req.SessionEpoch:
			return nil, false, codeInvalidSessionEpoch
		}
		if s.epoch++; s.epoch <= 0 || s.epoch == math.MaxInt32 {
			s.epoch = 1
		}
		s.used.Store(time.Now().UnixNano())
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			s.name(partitionKey{statemachine.TopicID(t.TopicID), p.Partition}, p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch, p.LogStartOffset, p.PartitionMaxBytes)
		}
	}
	if full {
		return s, true, 0
	}
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			s.forget(partitionKey{statemachine.TopicID(t.TopicID), p})
		}
	}
	if len(s.entries) == 0 { // an empty session is closed, and the answer says so with the id 0
		c.leaveSession()
		return newSession(replica, 0, c.server.ending), true, 0
	}
	return s, false, 0
}

// leaveSession drops the connection's session.
func (c *connection) leaveSession() {
	if s := c.session; s != nil {
		c.session = nil
		c.server.sessions.leave(s)
		s.release()
	}
}

// fetching is one Fetch while its answer is made.
type fetching struct {
	*connection
	session     *session
	full        bool // every partition is in the answer
	brokerEpoch int64
	maxBytes    int
	minBytes    int

	out    []*entry
	held   []*entry // there was no room for their batches
	bytes  int      // of batches in out
	urgent bool     // something in out is not to wait for more
}

// collect asks the partitions in line and waits until there is enough to answer (Kafka: ReplicaManager.fetchMessages, DelayedFetch): MinBytes of batches, an error, a diverging epoch,
// something that the follower of a session was told otherwise before, or the end of the wait.
func (f *fetching) collect(wait time.Duration) {
	s := f.session
	until := time.Now().Add(wait)
	for {
		s.takeReady()
		for i := 0; i < len(s.line); i++ {
			e := s.line[i]
			e.inLine = false
			f.ask(e)
		}
		clear(s.line)
		s.line = s.line[:0]
		f.startReadBacks()
		left := time.Until(until)
		if left <= 0 && s.id == 0 && f.bytes == 0 && s.reads() {
			left = time.Until(until.Add(sessionlessGrace))
		}
		if left <= 0 || f.urgent || f.bytes > 0 && f.bytes >= f.minBytes || f.minBytes <= 0 || len(f.held) > 0 || len(s.entries) == 0 {
			return
		}
		if f.timer == nil {
			f.timer = time.NewTimer(left)
		} else {
			f.timer.Reset(left)
		}
		select {
		case <-s.news:
		case <-f.timer.C:
		case <-f.server.ending.Done():
			return
		}
	}
}

// ask asks one partition, and puts what it answers into the answer if that is worth it.
func (f *fetching) ask(e *entry) {
	if e.gone {
		return
	}
	if e.answering { // woken again while waiting: the new answer takes the place of the old one
		f.bytes -= e.answer.Size
		e.answer.Size = 0
	}
	room := f.maxBytes - f.bytes
	if room <= 0 && f.bytes > 0 && !e.named && !f.full {
		f.hold(e)
		return
	}
	limit := min(max(0, int(e.maxBytes)), max(0, room))
	a := f.answerOf(e, limit)
	e.named = false
	if a.Size > limit && f.bytes > 0 { // only the first batches of an answer may be above the limits (Kafka: minOneMessage)
		a.Batches, a.Size = nil, 0
		f.hold(e)
	}
	e.failed = a.Code != 0
	e.answer.FetchAnswer = a
	f.bytes += a.Size
	changed := a.HighWatermark != e.sentHW || a.LogStart != e.sentStart
	f.urgent = f.urgent || a.Code != 0 || a.Diverging || changed && !f.full
	if !e.answering && (f.full || a.Code != 0 || a.Diverging || a.Size > 0 || changed) {
		e.answering = true
		f.out = append(f.out, e)
	}
}

// hold keeps a partition in front of the line for the next Fetch.
func (f *fetching) hold(e *entry) {
	if !e.postponed {
		e.postponed = true
		f.held = append(f.held, e)
	}
}

// answerOf asks a partition, and takes batches that were read back for it.
func (f *fetching) answerOf(e *entry, maxBytes int) FetchAnswer {
	s := f.session
	if e.part == nil || e.failed {
		if code := s.find(e, f.server.topics); code != 0 {
			return failure(code)
		}
	}
	a := e.part.Fetch(FetchQuery{
		Broker: s.broker, BrokerEpoch: f.brokerEpoch, LeaderEpoch: e.leaderEpoch, Offset: e.offset, LastFetchedEpoch: e.lastEpoch, LogStart: e.logStart, MaxBytes: maxBytes,
	})
	if a.Code != 0 || a.Diverging {
		a.Batches, a.Size, a.Back = nil, 0, false
	}
	if a.Back && a.Size == 0 {
		return s.readBackOf(e, a)
	}
	s.dropBack(e)
	return a
}

// finish ends the making of the answer: it notes what the follower will know, and puts the partitions that will be looked at by the next Fetch into the line. Those that were sent batches, an error or a
// diverging epoch are, as the follower need not name them again if it could not use what it was sent.
func (f *fetching) finish() []*partitionAnswer {
	s := f.session
	out := make([]*partitionAnswer, 0, len(f.out))
	for _, e := range f.held {
		e.postponed = false
		if !e.gone {
			s.join(e)
		}
	}
	for _, e := range f.out {
		e.answering = false
		out = append(out, &e.answer)
		a := &e.answer
		e.sentHW, e.sentStart = a.HighWatermark, a.LogStart
		if a.Code != 0 || a.Diverging {
			e.sentHW, e.sentStart = -1, -1 // the follower does not look at them: to be told again
		}
		if a.Code != 0 || a.Diverging || a.Size > 0 {
			s.join(e)
		}
	}
	return out
}
