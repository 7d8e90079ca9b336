package replicaserver

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// partitionKey names a partition in a session.
type partitionKey struct {
	topic     statemachine.TopicID
	partition int32
}

// session is what a follower asked for (KIP-227): partitions with the parameters that were last told. It belongs to the connection that made it, whose goroutine alone touches it, but for
// what is said otherwise. A Fetch without a session has one for its own time, with the id 0.
//
// The partitions themselves say when there may be something new (wake); only those, and those that the request names, are looked at. So a session with thousands of idle partitions costs nothing.
type session struct {
	id      int32
	broker  int32
	epoch   int32 // of the next incremental request
	entries map[partitionKey]*entry

	// line are the partitions to look at, in the order of service. One whose batches were sent goes to its end, one that found no room any more stays in front.
	line []*entry
	// wants are partitions whose batches must be read back and for which no reading has begun.
	wants     []*entry
	backBytes int // of readings back that were begun and not yet dropped, at their largest

	context context.Context // of readings back
	cancel  context.CancelFunc

	used   atomic.Int64 // when it was last used, Unix nanoseconds
	closed atomic.Bool  // by eviction, or because its follower began anew: its owner drops it

	news chan struct{} // holds one token if ready is not empty

	mu    sync.Mutex // never held while a Partition is called
	ready []*entry   // woken since the last look
	spare []*entry   // the slice that ready swaps with
	backs int        // readings back that run
}

// entry is one partition of a session.
type entry struct {
	key   partitionKey
	part  Partition // nil: not found
	leave func()    // ends the subscription

	// As last named by the follower.
	leaderEpoch int32
	offset      int64
	lastEpoch   int32
	logStart    int64
	maxBytes    int32
	named       bool // since the partition was last asked
	gone        bool // not in the session any more
	failed      bool // the last answer was an error: look the partition up again
	inLine      bool
	wanted      bool      // it is in wants
	back        *readBack // of this offset; nil none
	sentHW      int64     // high watermark that the follower was last told, -1 none
	sentStart   int64     // log start that the follower was last told
	answer      partitionAnswer
	answering   bool // it is in the answer that is being made
	postponed   bool // it has batches that found no room in the answer that is being made
	woken       bool // it is in ready; guarded by the session's mutex
}

func newSession(broker int32, size int, ending context.Context) *session {
	s := &session{broker: broker, epoch: 1, entries: make(map[partitionKey]*entry, size), news: make(chan struct{}, 1)}
	s.context, s.cancel = context.WithCancel(ending)
	return s
}

// name takes a partition's parameters from a request. The partition will be asked.
func (s *session) name(k partitionKey, leaderEpoch int32, offset int64, lastEpoch int32, logStart int64, maxBytes int32) {
	e := s.entries[k]
	if e == nil {
		e = &entry{key: k, failed: true, sentHW: -1, sentStart: -1}
		e.answer.topic, e.answer.partition = k.topic, k.partition
		s.entries[k] = e
	}
	if offset != e.offset {
		s.dropBack(e)
	}
	if leaderEpoch != e.leaderEpoch { // it began to follow anew, and may not have taken the last answer
		e.sentHW, e.sentStart = -1, -1
	}
	e.leaderEpoch, e.offset, e.lastEpoch, e.logStart, e.maxBytes, e.named = leaderEpoch, offset, lastEpoch, logStart, maxBytes, true
	s.join(e)
}

// join puts a partition at the end of the line, if it is not in it.
func (s *session) join(e *entry) {
	if !e.inLine {
		e.inLine = true
		s.line = append(s.line, e)
	}
}

// forget takes a partition out of the session.
func (s *session) forget(k partitionKey) {
	if e := s.entries[k]; e != nil {
		delete(s.entries, k)
		s.drop(e)
	}
}

func (s *session) drop(e *entry) {
	e.gone = true
	s.dropBack(e)
	if e.leave != nil {
		e.leave()
		e.leave = nil
	}
}

// release drops the session: nothing wakes it and nothing is read for it any more.
func (s *session) release() {
	s.closed.Store(true)
	s.cancel()
	for _, e := range s.entries {
		s.drop(e)
	}
	clear(s.entries)
}

// wake notes that a partition may have something new. Called by partitions, with their locks held.
func (s *session) wake(e *entry) {
	if s.closed.Load() {
		return
	}
	s.mu.Lock()
	if !e.woken {
		e.woken = true
		s.ready = append(s.ready, e)
	}
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// takeReady moves the woken partitions to the end of the line.
func (s *session) takeReady() {
	s.mu.Lock()
	woken := s.ready
	s.ready = s.spare[:0]
	for _, e := range woken {
		e.woken = false
	}
	s.mu.Unlock()
	for _, e := range woken {
		s.join(e)
	}
	clear(woken)
	s.spare = woken[:0]
}

// find looks a partition up and subscribes to it.
func (s *session) find(e *entry, topics Topics) (code int16) {
	p, code := topics.ByID(e.key.topic, e.key.partition)
	if p != nil && p == e.part {
		return 0
	}
	if e.leave != nil {
		e.leave()
		e.leave = nil
	}
	e.part = p
	if p == nil {
		return orCode(code, codeUnknownTopicID)
	}
	e.leave = p.Subscribe(func() { s.wake(e) })
	return 0
}

// sessions are the fetch sessions of a server, by id (Kafka: FetchSessionCache). Safe for concurrent use.
type sessions struct {
	max      int
	eviction time.Duration
	told     func(int)

	mu   sync.Mutex
	byID map[int32]*session
}

// add gives a session an id. False if there is no room: every other one was used lately.
func (c *sessions) add(s *session) bool {
	now := time.Now()
	s.used.Store(now.UnixNano())
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byID) >= c.max {
		oldest := s
		for _, other := range c.byID {
			if other.used.Load() < oldest.used.Load() {
				oldest = other
			}
		}
		if oldest == s || now.UnixNano()-oldest.used.Load() < int64(c.eviction) {
			return false
		}
		c.remove(oldest)
	}
	for s.id == 0 || c.byID[s.id] != nil {
		s.id = rand.Int32N(math.MaxInt32-1) + 1
	}
	c.byID[s.id] = s
	c.tell()
	return true
}

// end ends the session with this id if it is the broker's. Its owner drops it.
func (c *sessions) end(id, broker int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil && s.broker == broker {
		c.remove(s)
	}
}

// leave takes a session out that its owner drops.
func (c *sessions) leave(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[s.id] == s {
		c.remove(s)
	}
}

func (c *sessions) remove(s *session) {
	s.closed.Store(true)
	delete(c.byID, s.id)
	c.tell()
}

func (c *sessions) tell() {
	if c.told != nil {
		c.told(len(c.byID))
	}
}
