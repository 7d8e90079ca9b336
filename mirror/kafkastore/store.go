package kafkastore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/asking"
	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// Store is a keyedlog.Log on the compacted topics of a cluster. Safe for concurrent use.
type Store struct {
	cfg    Config
	client *kgo.Client

	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	background sync.WaitGroup

	// reading guards what is read: callbacks see it under this lock, and whoever reads on needs it. writing lets one call of this process at a time use the control id. Both
	// are taken with a context. Who takes both takes writing first.
	reading  lock
	writing  lock
	checking lock // guards checker

	shown   *reading // what is decided on; its records are those below
	next    *reading // what will be, when it is complete; nil: none is under way
	vetted  map[string]vetted
	told    map[string]bool // see tell
	checker *checker

	mu           sync.Mutex // held for moments; taken after all others
	records      *records   // changed with reading too, so that who has either may look
	base         int64      // what is added to positions, so that versions do not fall when a topic was made again
	least        int64      // of the next version
	version      int64
	statePlaces  int32 // in how many partitions keys of states lie; 0: there is no such topic
	layout       bool  // a record says so
	leaders      map[place]topicreader.Lead
	coordinators map[string]int32
	sessions     map[*session]struct{}
	closed       bool
	changed      chan struct{}
	watching     bool
}

// lock is a mutex that a context ends waiting for.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) take(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	default:
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l lock) give() { <-l }

// Open connects to the cluster and looks at the topics that there are. It reads, writes and creates nothing. Errors: *AccessError, *TopicError, and *SilentError, no broker answers.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		cfg: cfg, reading: newLock(), writing: newLock(), checking: newLock(), vetted: make(map[string]vetted), told: make(map[string]bool),
		records: newRecords(), leaders: make(map[place]topicreader.Lead),
		coordinators: make(map[string]int32), sessions: make(map[*session]struct{}), changed: make(chan struct{}),
	}
	if s.client, err = cfg.client(); err != nil {
		return nil, fmt.Errorf("kafkastore: options for the client: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.next = s.newReading() // shown begins with a complete one, of nothing
	s.checker = s.newChecker()
	if err := s.connect(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// connect finds out which topics there are.
func (s *Store) connect(ctx context.Context) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	began := time.Now()
	err = s.repeat(ctx, func() error {
		if err := s.next.reader.Look(ctx); err != nil {
			return readFailed(err)
		}
		return s.vetNew(ctx, s.next.reader)
	})
	var broker *kerr.Error
	if err == nil || ctx.Err() == nil || s.ctx.Err() != nil || errors.As(err, &broker) { // a broker has answered
		return err
	}
	why := err
	var wait *topicreader.WaitError
	if errors.As(err, &wait) && wait.Last != nil {
		why = wait.Last
	}
	return &SilentError{Seeds: s.cfg.Seeds, Waited: time.Since(began), Err: ctx.Err(), Last: why}
}

func (s *Store) newReader(client *kgo.Client, topics ...string) *topicreader.Reader {
	return topicreader.New(client, topics...).MissingIsEmpty()
}

// begin bounds a call. It must be ended.
func (s *Store) begin(ctx context.Context) (bounded context.Context, end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, fmt.Errorf("%w: the store; open it again", keyedlog.ErrClosed)
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Bound)
	stop := context.AfterFunc(s.ctx, cancel)
	return bounded, func() { stop(); cancel() }, nil
}

// ended says why a call ended whose context did.
func (s *Store) ended(ctx context.Context, err error) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("%w: the store was closed meanwhile: %w", keyedlog.ErrClosed, err)
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("kafkastore: %w; the last answer was: %w", ctx.Err(), err)
	}
	return err
}

// repeat runs a step until it succeeds, fails for good, or the context ends. Pauses grow and are random, so that processes that fence each other get out of step.
func (s *Store) repeat(ctx context.Context, step func() error) error {
	const first, longest = 10 * time.Millisecond, 500 * time.Millisecond
	most := first
	for {
		err := step()
		if err == nil {
			return nil
		}
		if !mayRepeat(err) {
			if s.ctx.Err() != nil {
				return s.ended(ctx, err)
			}
			return err
		}
		if pause(ctx, rand.N(most)+time.Millisecond) != nil {
			return s.ended(ctx, err)
		}
		most = min(2*most, longest)
	}
}

func (s *Store) control() string                 { return s.cfg.Prefix + "-control" }
func (s *Store) controlTopic() string            { return s.cfg.namespace + controlTopic }
func (s *Store) ownerID(writer string) string    { return s.cfg.Prefix + "-owner-" + writer }
func (s *Store) newProducer(id string) *producer { return &producer{store: s, id: id} }

// exclusive runs f as the only process that uses the control id: whatever others began with it before is committed or aborted, and what f has not committed when another
// process comes is not committed at all; then it runs again. writing is held.
func (s *Store) exclusive(ctx context.Context, f func(*producer) error) error {
	began := false
	err := s.repeat(ctx, func() error {
		p := s.newProducer(s.control())
		if err := p.init(ctx); err != nil {
			return err
		}
		began = true
		return f(p)
	})
	if err == nil || began {
		return err
	}
	return &BeginError{ID: s.control(), Err: err}
}

// Update: see keyedlog.Log.
func (s *Store) Update(ctx context.Context, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := s.writing.take(ctx); err != nil {
		return s.ended(ctx, err)
	}
	defer s.writing.give()
	wrote := false
	err = s.exclusive(ctx, func(p *producer) error {
		wrote = false
		if err := s.readAll(ctx); err != nil {
			return err
		}
		changes, err := s.decide(ctx, "", nil, decide)
		if err != nil || len(changes) == 0 {
			return err
		}
		wrote = true
		_, err = s.commit(ctx, p, "", 0, changes)
		return err
	})
	if err == nil && wrote {
		s.notify()
	}
	if mayRepeat(err) || ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, keyedlog.ErrOutcomeUnknown) { // the call has ended, and transact would have said that a commit may have been made
		return &unwrittenError{err}
	}
	return err
}

// look is what was read last. reading is held, and as long as the view is used.
func (s *Store) look() view {
	s.mu.Lock()
	defer s.mu.Unlock()
	return view{s.records, s.version}
}

// decide lets a callback choose on what was read last.
func (s *Store) decide(ctx context.Context, writer string, keys [][]byte, decide func(keyedlog.View) ([]keyedlog.Change, error)) ([]keyedlog.Change, error) {
	if err := s.reading.take(ctx); err != nil {
		return nil, err
	}
	defer s.reading.give()
	v := s.look()
	changes, err := decide(v)
	if err != nil {
		return nil, err
	}
	return changes, check(v, writer, keys, changes)
}

func check(v keyedlog.View, writer string, keys [][]byte, changes []keyedlog.Change) error {
	if err := keyedlog.CheckChanges(v, writer, keys, changes); err != nil {
		return err
	}
	return checkTwins(v, writer, changes)
}

// commit writes changes in one transaction. It begins anew (retryError) when a topic had to be created: another process may have made and filled it.
func (s *Store) commit(ctx context.Context, p *producer, writer string, session int64, changes []keyedlog.Change) ([]*output, error) {
	outputs, missing, err := s.outputs(writer, session, changes)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		if err := s.create(ctx, missing); err != nil {
			return nil, err
		}
		return nil, again("topics %v were created", missing)
	}
	return outputs, s.transact(ctx, p, outputs)
}

// transact writes outputs in one transaction and finds out what became of it.
func (s *Store) transact(ctx context.Context, p *producer, outputs []*output) error {
	update := newUpdate()
	w := &watch{before: make(map[string]int64)}
	s.mu.Lock()
	for _, o := range outputs {
		w.before[string(o.key)] = s.newest(o.key)
	}
	s.records.watched[update] = w
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.records.watched, update)
	}()
	err := p.write(ctx, update, outputs)
	var lost *lostError
	if !errors.As(err, &lost) {
		return err
	}
	if err := s.readAll(ctx); err != nil {
		return unknown(lost, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case w.seen:
		return nil
	case !errors.Is(lost, errFenced):
		return unknown(lost, errors.New("its records are not there, but may still come"))
	case w.overwritten:
		return unknown(lost, errors.New("its keys were written again since, so its own records may be gone"))
	}
	// The id was initialised since, so the transaction was over, or was being ended, before this reading, which shows all of it or nothing.
	return again("not committed: %w", lost)
}

func unknown(lost, err error) error {
	return fmt.Errorf("%w: the end of the transaction was asked for and not answered (%w), and afterwards: %w", keyedlog.ErrOutcomeUnknown, lost, err)
}

// newest is where the newest record of a key is that this process knows, read or written, -1 if there is none. mu is held.
func (s *Store) newest(key []byte) int64 {
	at := int64(-1)
	if v, ok := s.records.keys[string(key)]; ok {
		at = v.offset
	}
	for n := range s.sessions {
		if v, ok := n.own[string(key)]; ok {
			at = max(at, v.offset)
		}
	}
	return at
}

// outputs makes records of changes, and names the topics that do not exist yet. Of two changes of one key the later counts.
func (s *Store) outputs(writer string, session int64, changes []keyedlog.Change) (outputs []*output, missing []string, err error) {
	s.mu.Lock()
	partitions, layout := s.statePlaces, s.layout
	s.mu.Unlock()
	at := make(map[string]int)
	for _, c := range changes {
		to, err := s.placeOf(c.Key, max(1, partitions))
		if err != nil {
			return nil, nil, err
		}
		if s.leader(to) == noTopic && !slices.Contains(missing, to.topic) {
			missing = append(missing, to.topic)
		}
		o := &output{place: to, key: bytes.Clone(c.Key), value: bytes.Clone(c.Value)}
		if c.Value != nil && o.value == nil {
			o.value = []byte{}
		}
		if c.Value != nil && !c.Release && writer != "" {
			o.writer, o.session = writer, session
		}
		if i, ok := at[string(c.Key)]; ok {
			outputs[i] = o
			continue
		}
		at[string(c.Key)] = len(outputs)
		outputs = append(outputs, o)
	}
	state := s.cfg.namespace + stateTopic
	if !layout && slices.ContainsFunc(outputs, func(o *output) bool { return o.topic == state }) {
		// With the first state, which nobody owns: so this is a claim or Log.Update, one at a time, and nobody else says another number meanwhile.
		key, value := topicreader.StateLayoutRecord(partitions)
		outputs = append(outputs, &output{place: place{state, 0}, key: key, value: value})
	}
	return outputs, missing, nil
}

// Read: see keyedlog.Log.
func (s *Store) Read(ctx context.Context, read func(keyedlog.View) error) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := s.reading.take(ctx); err != nil {
		return s.ended(ctx, err)
	}
	defer s.reading.give()
	if err := s.repeat(ctx, func() error { return s.readLocked(ctx) }); err != nil {
		return err
	}
	return read(s.look())
}

// Close ends all sessions of this Store and every call, and waits for what runs in the background. What is stored stays. Closing twice is fine.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.background.Wait()
	s.client.Close()
	return nil
}

const noTopic = -2

// leader is who leads a partition as far as is known, -1 nobody, noTopic if there is no such topic.
func (s *Store) leader(at place) int32 { return s.lead(at).Leader }

func (s *Store) lead(at place) topicreader.Lead {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lead, ok := s.leaders[at]; ok {
		return lead
	}
	return topicreader.Lead{Topic: at.topic, Partition: at.partition, Leader: noTopic, Epoch: -1}
}

// forgetLeaders makes the next reading ask for them.
func (s *Store) forgetLeaders() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, lead := range s.leaders {
		lead.Leader = -1
		s.leaders[at] = lead
	}
}

// coordinator is the broker that coordinates a transactional id, as far as is known.
func (s *Store) coordinator(ctx context.Context, id string) (int32, error) {
	s.mu.Lock()
	node, ok := s.coordinators[id]
	s.mu.Unlock()
	if ok {
		return node, nil
	}
	node, err := s.findCoordinator(ctx, id)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coordinators[id] = node
	return node, nil
}

// findCoordinator asks the cluster.
func (s *Store) findCoordinator(ctx context.Context, id string) (int32, error) {
	resp, err := asking.Any[*kmsg.FindCoordinatorResponse](ctx, s.client, func() kmsg.Request {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys, req.CoordinatorType = id, []string{id}, 1
		return req
	})
	if err != nil {
		return 0, requestFailed("FindCoordinator of "+id, err)
	}
	code, node := resp.ErrorCode, resp.NodeID
	if len(resp.Coordinators) > 0 {
		code, node = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].NodeID
	}
	if err := kerr.ErrorForCode(code); err != nil {
		return 0, transactionFailed(id, "", code)
	}
	return node, nil
}

// askCoordinator sends a request about a transactional id to its coordinator. Without an answer the coordinator is asked for anew next time.
func (s *Store) askCoordinator(ctx context.Context, id string, broker int32, req kmsg.Request) (kmsg.Response, error) {
	next := int32(-1)
	resp, err := asking.Holder(ctx, s.client, broker, req, 0, func(ctx context.Context) bool {
		now, err := s.findCoordinator(ctx, id)
		if err != nil || now == broker {
			return false
		}
		next = now
		return true
	})
	switch {
	case err == nil:
	case errors.As(err, new(*asking.MovedError)):
		s.forgetCoordinator(id)
		s.mu.Lock()
		s.coordinators[id] = next
		s.mu.Unlock()
	default:
		s.forgetCoordinator(id)
		s.askForBrokers(ctx)
	}
	return resp, err
}

// askForBrokers lets the client learn addresses anew: a broker may have moved. If nobody answers, the next request says so.
func (s *Store) askForBrokers(ctx context.Context) {
	_, _ = asking.Any[*kmsg.MetadataResponse](ctx, s.client, func() kmsg.Request {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{}
		return req
	})
}

// forgetCoordinator makes whoever asks for the coordinator of an id next ask the cluster. A broker that did not answer for one id is asked for no other one before.
func (s *Store) forgetCoordinator(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node, ok := s.coordinators[id]
	maps.DeleteFunc(s.coordinators, func(_ string, other int32) bool { return ok && other == node })
}
