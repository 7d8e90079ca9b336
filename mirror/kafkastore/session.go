package kafkastore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/keyedlog"
)

type session struct {
	store  *Store
	writer string
	record sessionRecord

	using    lock // one Update at a time; guards producer and unsure
	producer *producer
	unsure   bool // a claim may have been committed that was not read: the next update begins with the control id, as a claim does, whose initialisation ends it

	// under store.mu
	own    map[string]versioned // written by this session and not read yet
	fenced bool
	closed bool
}

const maxWriter = 1 << 15

// Open: see keyedlog.Log. It writes one record into __mirror_control, and creates all topics that are not there: whoever pauses or stops a mirror some day may have no right to.
func (s *Store) Open(ctx context.Context, writer string) (keyedlog.Session, error) {
	if writer == "" {
		return nil, errors.New("kafkastore: open needs a writer's name; \"\" means nobody")
	}
	if len(writer) >= maxWriter {
		return nil, fmt.Errorf("kafkastore: a writer's name of %d bytes is too long", len(writer))
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	n := &session{store: s, writer: writer, using: newLock(), own: make(map[string]versioned)}
	if err := s.writing.take(ctx); err != nil {
		return nil, s.ended(ctx, err)
	}
	defer s.writing.give()
	if err := s.repeat(ctx, func() error { return n.open(ctx) }); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[n] = struct{}{}
	return n, nil
}

// open takes the owner's id and writes the session's record. store.writing is held.
func (n *session) open(ctx context.Context) error {
	s := n.store
	n.producer = s.newProducer(s.ownerID(n.writer))
	if err := n.producer.init(ctx); err != nil {
		return err
	}
	// Claims of an older session that are under way end here.
	if err := s.newProducer(s.control()).init(ctx); err != nil {
		return err
	}
	if err := s.readAll(ctx); err != nil {
		return err
	}
	if missing := slices.DeleteFunc(s.topics(), func(topic string) bool { return s.leader(place{topic, 0}) != noTopic }); len(missing) > 0 {
		if err := s.create(ctx, missing); err != nil {
			return err
		}
		return again("topics %v were created", missing)
	}
	s.mu.Lock()
	n.record = sessionRecord{number: s.records.nextSession(n.writer), token: newUpdate()}
	s.mu.Unlock()
	err := s.transact(ctx, n.producer, []*output{{place: place{s.controlTopic(), 0}, key: sessionKey(n.writer), value: n.record.value()}})
	if errors.Is(err, keyedlog.ErrOutcomeUnknown) {
		return again("%v", err) // opening once more does no harm
	}
	return err
}

func (n *session) Number() int64 { return n.record.number }

// begin bounds a call.
func (n *session) begin(ctx context.Context) (context.Context, func(), error) {
	ctx, end, err := n.store.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	if n.closed {
		end()
		return nil, nil, fmt.Errorf("%w: session %d of %q; open another one", keyedlog.ErrClosed, n.record.number, n.writer)
	}
	return ctx, end, nil
}

// compare says whether the newest session of the writer is this one.
func (n *session) compare(newest sessionRecord) error {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	if newest != n.record {
		n.fenced = true
	}
	if n.fenced {
		return fmt.Errorf("%w: %q has session %d, this is %d; stop serving", keyedlog.ErrFenced, n.writer, newest.number, n.record.number)
	}
	return nil
}

// stillOurs reads everything and compares.
func (n *session) stillOurs(ctx context.Context) error {
	if err := n.store.readAll(ctx); err != nil {
		return err
	}
	n.store.mu.Lock()
	newest, err := n.store.records.sessions.of(n.writer)
	n.store.mu.Unlock()
	if err != nil {
		return err
	}
	return n.compare(newest)
}

// Check: see keyedlog.Session. It reads __mirror_control only.
func (n *session) Check(ctx context.Context) error {
	ctx, end, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return n.store.repeat(ctx, func() error { return n.check(ctx) })
}

func (n *session) check(ctx context.Context) error {
	newest, err := n.store.newestSession(ctx, n.writer)
	if err != nil {
		return err
	}
	return n.compare(newest)
}

// Read: see keyedlog.Session.
func (n *session) Read(ctx context.Context, read func(keyedlog.View) error) error {
	ctx, end, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return n.store.Read(ctx, read)
}

func (n *session) Close() error {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	n.closed = true
	delete(n.store.sessions, n)
	return nil
}

// Update: see keyedlog.Session.
func (n *session) Update(ctx context.Context, keys [][]byte, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	ctx, end, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := n.using.take(ctx); err != nil {
		return n.store.ended(ctx, err)
	}
	defer n.using.give()
	if keys == nil {
		keys = [][]byte{}
	}
	return n.store.repeat(ctx, func() error {
		if err := n.compare(n.record); err != nil { // fenced already
			return err
		}
		if !n.producer.ready {
			if err := n.recover(ctx); err != nil {
				return err
			}
		}
		if v, ok := n.allOwn(keys); ok && !n.unsure {
			return n.updateOwn(ctx, v, keys, decide)
		}
		return n.claim(ctx, keys, decide)
	})
}

// recover initialises the owner's id again. A process that was away reads before it does, so that it does not disturb whoever took over; and afterwards, because somebody
// may have opened the writer in between.
func (n *session) recover(ctx context.Context) error {
	if err := n.check(ctx); err != nil {
		return err
	}
	if err := n.producer.init(ctx); err != nil {
		return err
	}
	return n.stillOurs(ctx)
}

// allOwn returns the named keys' records if nobody else can change one of them as long as this session holds.
func (n *session) allOwn(keys [][]byte) (named, bool) {
	s := n.store
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := func(key []byte) (versioned, bool) {
		v, ok := s.records.keys[string(key)]
		if o, mine := n.own[string(key)]; mine && (!ok || o.offset > v.offset) {
			v, ok = o, true
		}
		return v, ok && v.Value != nil
	}
	// Written by this session, not by an older one of the same writer: that would be anybody's to claim.
	held := func(v versioned, ok bool) bool { return ok && v.Writer == n.writer && v.Session == n.record.number }
	out := named{keys: make(map[string]keyedlog.Record), sessions: map[string]int64{n.writer: n.record.number}, version: s.version}
	for _, key := range keys {
		v, ok := newest(key)
		if !held(v, ok) {
			other := twin(key)
			if other == nil || ok && v.Writer != "" && v.Writer != n.writer || !held(newest(other)) {
				return named{}, false
			}
		}
		if ok {
			out.keys[string(key)] = v.Record
		}
	}
	return out, len(keys) > 0
}

// updateOwn writes under the owner's id. Nobody else may write these keys, and who opens the writer fences the id: so what is decided on is what there is.
func (n *session) updateOwn(ctx context.Context, v named, keys [][]byte, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	changes, err := decide(v)
	if err == nil {
		err = check(v, n.writer, keys, changes)
	}
	if err != nil || len(changes) == 0 {
		// Nothing is written that would show whether the session holds, so it is asked for.
		if fenced := n.check(ctx); err == nil || errors.Is(fenced, keyedlog.ErrFenced) {
			return fenced
		}
		return err
	}
	outputs, err := n.store.commit(ctx, n.producer, n.writer, n.record.number, changes)
	if err != nil {
		return err
	}
	n.keep(outputs)
	return nil
}

// claim writes at least one key that is not this session's. Every claim, by whatever writer, and every Log.Update has the control id to itself.
func (n *session) claim(ctx context.Context, keys [][]byte, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	s := n.store
	if err := s.writing.take(ctx); err != nil {
		return err
	}
	defer s.writing.give()
	p := s.newProducer(s.control())
	if err := p.init(ctx); err != nil {
		return err
	}
	if err := n.recover(ctx); err != nil {
		return err
	}
	n.unsure = false
	changes, err := s.decide(ctx, n.writer, keys, decide)
	if err != nil || len(changes) == 0 {
		return err
	}
	outputs, err := s.commit(ctx, p, n.writer, n.record.number, changes)
	if err != nil {
		n.unsure = errors.Is(err, keyedlog.ErrOutcomeUnknown)
		return err
	}
	n.keep(outputs)
	return nil
}

// keep remembers what was written until it is read.
func (n *session) keep(outputs []*output) {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	for _, o := range outputs {
		n.own[string(o.key)] = versioned{
			Record: keyedlog.Record{Key: o.key, Value: o.value, Writer: o.writer, Session: o.session}, offset: o.offset, place: o.place,
		}
	}
}

// forgetRead drops what has been read since. store.mu is held.
func (n *session) forgetRead(r *topicreader.Reader) {
	for key, v := range n.own {
		if r.Next(v.place.topic, v.place.partition) > v.offset {
			delete(n.own, key)
		}
	}
}
