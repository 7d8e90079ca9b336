package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Mirror runs one mirror: any number of topics from one Source into one Destination. It only carries out the desired state that its Control holds; verbs
// are on Admin. It never fails over by itself: it offers facts (Status, events) and waits for a person or the caller's code.
//
// All methods are safe for concurrent use.
type Mirror struct {
	cfg     Config
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	session statemachine.Session
	admin   *Admin
	opened  time.Time

	persister persister
	raiser    raiser
	vanished  vanished
	lease     lease
	reopening *reopening // the Source, where the mirror opens it itself; else nil
	following following
	draining  draining
	cutting   cutting
	loading   loading
	desk      desk
	syncing   *syncing
	answering answering
	returning returning
	verifying verifying
	surveying surveying
	looks     firstLooks
	failovers failovers
	link      *link
	asks      semaphore
	fetches   fetchCounting

	certificates certificates
	kick         chan struct{} // capacity 1: reconcile now

	mu       sync.Mutex
	topics   map[string]*topicRun
	atOpen   []statemachine.Entry // what the store held of this mirror when the session began
	fenced   error
	followed int64 // version of the desired state that was handed to the partitions last
	// promotion is one that is under way, as that version says it.
	promotion *Promotion

	tuning      tuning
	controlTold telling // trouble with the desired state

	changeMu sync.Mutex
	change   chan struct{} // closed at the next change of any partition's state

	eventMu sync.Mutex
}

// topicRun is one topic of the mirror in this process.
type topicRun struct {
	name       string
	id         TopicID // the destination's; zero while the topic does not exist there
	wish       TopicWish
	partitions []*runner
	source     *SourceTopic // as last seen
	err        error        // why there are no runners, or why they cannot go on
	tries      int
	notBefore  time.Time
	busy       bool  // being provisioned
	recovered  int64 // TopicWish.Recover that was answered
	// recoverNext: a request to recover waits until there are partitions, and all of them are set up.
	recoverNext bool
	// checking: whether the destination's topic still is the one whose logs are open here.
	checking bool
}

// Open starts a mirror: it opens the state store under cfg.Owner (fencing whoever had it), loads the recorded states and goes on where they say.
// It needs the store and the destination; the source may be dead. Stop it with Close.
func Open(ctx context.Context, cfg Config) (*Mirror, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	m := &Mirror{
		cfg: cfg, topics: map[string]*topicRun{}, change: make(chan struct{}),
		kick: make(chan struct{}, 1), asks: make(semaphore, 32), opened: time.Now(),
	}
	m.admin = newAdmin(&m.cfg)
	m.persister = persister{m: m, q: newGathering[persistItem]()}
	m.raiser = raiser{m: m, q: newGathering[raiseItem]()}
	m.vanished = vanished{m: m, turn: make(semaphore, 1)}
	if cfg.OpenSource != nil {
		m.reopening = newReopening(cfg.Name, cfg.OpenSource)
		m.cfg.Source = m.reopening
	}
	m.tuning, _ = cfg.tuned(nil)
	m.following, m.draining.m, m.cutting.m = following{m: m}, m, m
	m.loading = loading{m: m, turn: make(semaphore, 1)}
	m.lease = lease{m: m, asking: make(semaphore, 1), asked: time.Now()}
	m.desk = desk{m: m, q: newGathering[deskItem]()}
	m.syncing, m.looks.m = newSyncing(m), m
	m.answering = answering{m: m, turn: make(semaphore, 1)}
	m.returning.m, m.verifying.m = m, m
	m.surveying = surveying{m: m, kick: make(chan bool, 1)}
	m.link = newLink(m)
	openCtx, stop := context.WithTimeout(ctx, cfg.CallBound)
	defer stop()
	for _, owner := range cfg.TakeFrom {
		// Opening a name fences the process that has it; only then may its partitions be taken.
		old, err := cfg.Store.Open(openCtx, owner)
		if err == nil {
			err = old.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("mirror %s: opening the state store as %q, whose partitions are to be taken: %w", cfg.Name, owner, err)
		}
	}
	session, err := cfg.Store.Open(openCtx, cfg.Owner)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: opening the state store as %q: %w", cfg.Name, cfg.Owner, err)
	}
	m.session = session
	if err := session.Load(openCtx, func(e statemachine.Entry) error {
		if e.Key.Mirror == cfg.Name {
			m.atOpen = append(m.atOpen, e)
			m.desk.recordedSource = cmp.Or(e.State.SourceClusterID, m.desk.recordedSource)
		}
		return nil
	}); err != nil {
		return nil, errors.Join(fmt.Errorf("mirror %s: loading states: %w", cfg.Name, err), session.Close())
	}
	m.desk.recordedSource = cmp.Or(cfg.SourceClusterID, m.desk.recordedSource)
	// Who is mirrored is known without the source, and a person at night has to see it. The destination may be slow to say; it is asked again when it is needed.
	if id, err := cfg.Destination.ClusterID(openCtx); err == nil {
		m.desk.own = id
	}
	m.ctx, m.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	m.spawn(m.persister.run)
	m.spawn(m.raiser.run)
	m.spawn(m.lease.run)
	m.spawn(m.desk.run)
	m.syncing.start()
	m.spawn(m.reconcileLoop)
	m.spawn(m.refreshLoop)
	m.spawn((&reporting{m: m}).run)
	m.spawn(m.returning.run)
	m.spawn(m.verifying.run)
	m.spawn(m.surveying.run)
	return m, nil
}

// Admin has the verbs: Start, Stop, Pause, Resume …
func (m *Mirror) Admin() *Admin { return m.admin }

// spawn runs f in a goroutine that Close waits for.
func (m *Mirror) spawn(f func()) {
	m.running.Add(1)
	go func() {
		defer m.running.Done()
		f()
	}()
}

// pause waits; false: ctx ended first.
func (m *Mirror) pause(ctx context.Context, d time.Duration) bool { return waitFor(ctx, d) }

// ErrClosed is the cause of calls that end because the Mirror was closed.
var ErrClosed = errors.New("mirror: closed")

// Close stops the mirror: nothing more is fetched or written. It changes no state, so the next Open goes on where this one ended. It waits for calls that are
// under way in Logs and stores, at most CallBound; it waits for no source. Safe to call twice.
func (m *Mirror) Close() error {
	m.cancel(ErrClosed)
	m.mu.Lock()
	all := m.everyRunner()
	m.mu.Unlock()
	for _, r := range all {
		r.close()
	}
	done := make(chan struct{})
	go func() {
		m.running.Wait()
		close(done)
	}()
	bound := time.NewTimer(m.cfg.CallBound)
	defer bound.Stop()
	var err error
	select {
	case <-done:
	case <-bound.C:
		err = fmt.Errorf("mirror %s: closed, but a call into a log, store or source did not return within %s of its context's end", m.cfg.Name, m.cfg.CallBound)
	}
	if m.reopening != nil {
		err = errors.Join(err, m.reopening.Close())
	}
	return errors.Join(err, m.session.Close())
}

// everyRunner is every partition of this process. Under mu.
func (m *Mirror) everyRunner() (all []*runner) {
	for _, t := range m.topics {
		all = append(all, t.partitions...)
	}
	return all
}

func (m *Mirror) key(r *runner) statemachine.Key {
	return statemachine.Key{Mirror: m.cfg.Name, TopicID: r.id, Partition: r.tp.Partition}
}

func (m *Mirror) fetchWait() time.Duration {
	if wait := m.tunedNow().fetch.MaxWait; wait > 0 {
		return wait
	}
	return 500 * time.Millisecond
}

// reconcileLoop brings what runs in line with what is desired, at each change of the desired state.
func (m *Mirror) reconcileLoop() {
	for {
		changed := m.cfg.Control.Changed()
		if m.lease.hold() != nil {
			return // whoever has the mirror now follows what is wanted
		}
		if m.reconcile() != nil {
			if !m.pause(m.ctx, time.Second) { // also where the Control says all the time that something has changed
				return
			}
			continue
		}
		var again <-chan time.Time
		// It is read now and then also when nobody says that it has changed: whoever should say so may not be able to.
		wait := m.cfg.RefreshInterval
		if soon := m.nextProvision(); soon >= 0 {
			wait = min(wait, soon)
		}
		again = time.After(wait)
		select {
		case <-m.ctx.Done():
			return
		case <-changed:
		case <-m.kick:
		case <-again:
		}
	}
}

func (m *Mirror) poke() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

func (m *Mirror) reconcile() error {
	ctx, stop := context.WithTimeout(m.ctx, m.cfg.CallBound)
	defer stop()
	state, err := m.cfg.Control.Read(ctx)
	if m.ctx.Err() != nil {
		return m.ctx.Err()
	}
	if err != nil {
		err = fmt.Errorf("reading the desired state: %w", err)
		m.controlTrouble(err)
		return err
	}
	deleted, followErr := m.following.settle(ctx, &state)
	if followErr != nil {
		m.controlTrouble(followErr) // what an earlier mirror has left must not be taken for this one's
		return followErr
	}
	if !deleted {
		followErr = m.following.follow(ctx, &state)
		m.answering.hear(&state)
	}
	wanted := map[string]bool{}
	var then []func()
	// No partition asks what is wanted of the others before all of it is taken in: a consistent cut is of all topics that one stop has named.
	m.mu.Lock()
	for _, w := range state.Topics {
		name, _, err := statemachine.ParseMirrorNameValue(w.MirrorName)
		if err != nil || name != m.cfg.Name {
			continue
		}
		wanted[w.Topic] = true
		f, _ := state.failbackOf(m.cfg.Name, w.Topic)
		_, want, _ := w.Wish()
		w.begins = f.Step == FailbackCopying && want == statemachine.WantPaused
		then = m.takeWish(w, then)
	}
	m.mu.Unlock()
	for _, act := range then {
		act()
	}
	m.mu.Lock()
	var gone []*runner
	for name, t := range m.topics {
		if !wanted[name] && !t.busy {
			gone = append(gone, t.partitions...)
			delete(m.topics, name)
		}
	}
	m.followed, m.promotion = state.Version, nil
	if p, ok := state.Promotion(m.cfg.Name); ok {
		m.promotion = &p
	}
	m.mu.Unlock()
	for _, r := range gone {
		r.close()
		r.tellLeft()
	}
	m.controlTrouble(followErr)
	return followErr
}

// takeWish takes in what is wanted of one topic, and tells its partitions. What must not be done under the lock, which the caller holds, it adds to then.
func (m *Mirror) takeWish(w TopicWish, then []func()) []func() {
	t := m.topics[w.Topic]
	if t == nil {
		t = &topicRun{name: w.Topic}
		m.topics[w.Topic] = t
	}
	changed := t.wish.MirrorName != w.MirrorName || t.wish.begins != w.begins || !t.wish.DrainUntil.Equal(w.DrainUntil) || !t.wish.Cut.equal(w.Cut) || !slices.Equal(t.wish.Consents, w.Consents)
	if changed {
		t.tries, t.notBefore = 0, time.Time{}
	}
	_, before, _ := t.wish.Wish()
	_, after, _ := w.Wish()
	t.wish = w
	// A topic that was stopped may have been deleted here since, and made again by somebody.
	begins := changed && len(t.partitions) > 0 && (t.checking || before == statemachine.WantStopped && after != before)
	t.checking = t.checking || begins
	t.recovered = min(t.recovered, w.Recover)
	if w.Recover > t.recovered {
		t.recovered, t.recoverNext = w.Recover, true
		t.tries, t.notBefore = 0, time.Time{} // a topic that could not be set up is tried again at once
	}
	recover := t.recoverNext && len(t.partitions) > 0 && !t.busy
	t.recoverNext = t.recoverNext && !recover
	if changed && !begins {
		for _, r := range t.partitions {
			m.draining.tell(r, w, r.state())
		}
	}
	if begins {
		runners := slices.Clone(t.partitions)
		m.spawn(func() { m.begin(t, runners) })
	}
	if len(t.partitions) == 0 && !t.busy && !time.Now().Before(t.notBefore) {
		t.busy = true
		m.spawn(func() { m.provision(t) })
	}
	if recover {
		runners := slices.Clone(t.partitions)
		then = append(then, func() { m.recoverAsked(w, runners) })
	}
	return then
}

// troubleGap is how long trouble that goes on is not told of again when only its words change.
const troubleGap = 10 * time.Minute

// telling decides when trouble that goes on is told of. Its zero value has told nothing.
type telling struct {
	told string // "": that all is well
	at   time.Time
}

// news says whether trouble, nil for none, is to be told of now: its beginning and its end are, and other words for it only after troubleGap. Words that change with each try (a port,
// a number) are no news by themselves; those that last are told in the end.
func (t *telling) news(err error) bool {
	now := ""
	if err != nil {
		now = err.Error()
	}
	if now == t.told || now != "" && t.told != "" && time.Since(t.at) < troubleGap {
		return false
	}
	t.told, t.at = now, time.Now()
	return true
}

// controlTrouble tells of trouble with the desired state once, and of its end.
func (m *Mirror) controlTrouble(err error) {
	m.mu.Lock()
	tell := m.controlTold.news(err)
	m.mu.Unlock()
	if tell {
		m.emit(TopicTrouble{EventMeta: m.meta(TopicPartition{Partition: Unknown}), Err: err})
	}
}

// dropTopics lets go of every topic: what comes next is set up from what is recorded then. false: one is being set up just now.
func (m *Mirror) dropTopics() bool {
	m.mu.Lock()
	var all []*runner
	busy := false
	for name, t := range m.topics {
		if t.busy {
			busy = true
			continue
		}
		all = append(all, t.partitions...)
		delete(m.topics, name)
	}
	m.mu.Unlock()
	for _, r := range all {
		r.close()
	}
	return !busy
}

// begin has partitions that were stopped mirrored again, if their logs still are the topic's. Otherwise the topic is set up anew.
func (m *Mirror) begin(t *topicRun, runners []*runner) {
	ctx, stop := context.WithTimeout(m.ctx, m.cfg.CallBound)
	have, err := m.cfg.Destination.Topic(ctx, t.name)
	stop()
	stale := errors.Is(err, ErrUnknownTopic) || err == nil && have.ID != t.id
	m.mu.Lock()
	if !t.checking || m.topics[t.name] != t {
		m.mu.Unlock()
		return // another wish was checked meanwhile, or the topic has left
	}
	t.checking = false
	if stale {
		t.partitions, t.tries, t.notBefore = nil, 0, time.Time{}
	} else {
		for _, r := range runners {
			m.draining.tell(r, t.wish, r.state())
		}
	}
	m.mu.Unlock()
	if stale {
		for _, r := range runners {
			r.close()
		}
	}
	m.stateChanged()
	m.poke()
}

// decided says that a topic's partitions have taken in everything that was wanted up to a version of the desired state.
func (m *Mirror) decided(topic string, version int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.topics[topic]
	return m.followed >= version && t != nil && !t.checking && !slices.ContainsFunc(t.partitions, func(r *runner) bool { return !r.decided() || m.draining.holds(r) })
}

func wishEvent(w TopicWish) partition.Event {
	_, want, _ := statemachine.ParseMirrorNameValue(w.MirrorName)
	ev := partition.Event{Kind: partition.Wish, Want: want, Begins: w.begins}
	if want == statemachine.WantStopped {
		ev.Cut = !w.Cut.Asked.IsZero()
		return ev // consents are for the start that they came with
	}
	for _, c := range w.Consents {
		ev.Consents = append(ev.Consents, partition.Consent(c))
	}
	return ev
}

// nextProvision is how long until a topic that could not be set up is tried again; negative: none waits.
func (m *Mirror) nextProvision() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	wait := time.Duration(-1)
	for _, t := range m.topics {
		if len(t.partitions) == 0 && !t.busy && !t.notBefore.IsZero() {
			if d := max(0, time.Until(t.notBefore)); wait < 0 || d < wait {
				wait = d
			}
		}
	}
	return wait
}

// provision finds or creates the destination's topic and starts its partitions. Only a topic that does not exist yet needs the source.
func (m *Mirror) provision(t *topicRun) {
	err := m.setUp(t)
	m.mu.Lock()
	t.busy = false
	same := t.trouble(err)
	if err != nil {
		t.tries++
		t.notBefore = time.Now().Add(m.cfg.Retry.Delay(int16(min(t.tries, 1000)), 0.5))
	} else {
		t.tries, t.notBefore = 0, time.Time{}
	}
	m.mu.Unlock()
	if !same {
		m.emit(TopicTrouble{EventMeta: m.meta(TopicPartition{Topic: t.name, Partition: Unknown}), Err: err})
	}
	m.stateChanged()
	m.poke()
}

func (m *Mirror) setUp(t *topicRun) error {
	ctx, stop := context.WithTimeout(m.ctx, 2*m.cfg.CallBound)
	defer stop()
	m.mu.Lock()
	wish := t.wish
	m.mu.Unlock()
	_, want, _ := statemachine.ParseMirrorNameValue(wish.MirrorName)
	have, err := m.cfg.Destination.Topic(ctx, t.name)
	if errors.Is(err, ErrUnknownTopic) {
		if want == statemachine.WantStopped {
			return fmt.Errorf("%w at the destination, so there is nothing to open: it was stopped before it was created, or its copy was lost here (memory forgets at a restart)", ErrUnknownTopic)
		}
		if err := m.desk.pausing(); err != nil {
			return err
		}
		if err := m.desk.stillFailing(ctx, []string{t.name}, nil); err != nil {
			return err
		}
		_, _, _, err := m.desk.clusters(ctx)
		if err != nil {
			return err
		}
		found, err := m.cfg.Source.Topics(ctx, t.name)
		if m.desk.failed(lookTopics, err) != nil {
			return err
		}
		i := slices.IndexFunc(found, func(s SourceTopic) bool { return s.Name == t.name })
		if i < 0 {
			return &SourceError{Code: SourceUnknownTopic, Operation: "metadata", Err: fmt.Errorf("%w %q", ErrUnknownTopic, t.name),
				Advice: "check the name, and that the user may describe the topic"}
		}
		if found[i].Err != nil {
			return found[i].Err
		}
		m.mu.Lock()
		t.source = &found[i]
		m.mu.Unlock()
		configs, err := m.syncing.settings.forNew(ctx, t.name)
		if err != nil {
			return err
		}
		if err := m.lease.hold(); err != nil {
			return err
		}
		have, err = m.cfg.Destination.CreateTopic(ctx, TopicSpec{Name: t.name, Partitions: found[i].Partitions, SourceID: found[i].ID, Configs: configs})
		if err != nil && !errors.Is(err, ErrTopicExists) {
			return fmt.Errorf("creating topic %s at the destination: %w", t.name, err)
		}
	} else if err != nil {
		return fmt.Errorf("looking up topic %s at the destination: %w", t.name, err)
	}
	if want != statemachine.WantStopped {
		if err := m.elsewhere(ctx, have); err != nil {
			return err
		}
	}
	return m.startPartitions(ctx, t, have)
}

// elsewhere refuses a topic that another mirror has in the same store and has not stopped: two sources would fill one log. The desired state says so first, where both
// mirrors share it; the states know it also where they do not.
func (m *Mirror) elsewhere(ctx context.Context, topic Topic) error {
	entries, err := m.loading.of(ctx, topic.ID)
	if err != nil {
		return fmt.Errorf("looking for another mirror of topic %s in the state store: %w", topic.Name, err)
	}
	for _, e := range entries {
		if s := e.State.State; e.Key.Mirror != m.cfg.Name && s != statemachine.Stopped && s != statemachine.Unknown {
			return &Error{Code: TopicAlreadyInClusterMirror, Mirror: m.cfg.Name, Topic: topic.Name, Partition: -1,
				Message: fmt.Sprintf("mirror %q has partition %d of it, %s; stop the topic there first", e.Key.Mirror, e.Key.Partition, s)}
		}
	}
	return nil
}

// startPartitions makes runners for the partitions that have none.
func (m *Mirror) startPartitions(ctx context.Context, t *topicRun, have Topic) error {
	m.mu.Lock()
	t.id = have.ID
	first, adopted := int32(len(t.partitions)), t.wish.AdoptedFrom
	m.mu.Unlock()
	stored, err := m.stored(ctx, have.ID, adopted)
	if err == nil {
		err = m.take(ctx, stored)
	}
	if err != nil {
		return err
	}
	var fresh []*runner
	for p := first; p < have.Partitions; p++ {
		tp := TopicPartition{t.name, p}
		log, err := m.cfg.Destination.OpenLog(ctx, tp)
		if err != nil {
			return fmt.Errorf("opening the log of %s-%d: %w", t.name, p, err)
		}
		h := fnv.New64a()
		fmt.Fprintf(h, "%s/%d", t.name, p)
		fresh = append(fresh, newRunner(m, t, tp, log, h.Sum64()))
	}
	m.mu.Lock()
	t.partitions = append(t.partitions, fresh...)
	m.mu.Unlock()
	for _, r := range fresh {
		if m.ctx.Err() != nil {
			return m.ctx.Err()
		}
		v := r.view()
		owner, epoch, err := r.log.Owner(ctx)
		if err == nil {
			v.Owner, v.LeaderEpoch = partition.Ownership(owner), epoch
			r.setOwner(owner)
		}
		ev := partition.Event{Kind: partition.Loaded, Record: statemachine.NewPartitionState(), Log: v}
		key := m.key(r)
		e, own := stored[key]
		if own {
			ev.Record, ev.LME = e.State, e.LME
		}
		key.Mirror = adopted
		if was, ok := stored[key]; ok && adopted != "" && adopted != m.cfg.Name {
			r.adopts = &statemachine.Write{Key: key, ExpectedStateEpoch: -1, LeaderEpoch: -1, Delete: true}
			if slices.Contains(m.cfg.TakeFrom, was.Owner) {
				r.adopts.TakeFrom = was.Owner
			}
			if e.LME == nil {
				ev.LME = was.LME // where the log was stopped, by whatever mirror (decision 21)
			}
			if !own {
				ev.Record.Episode = was.State.Episode
			}
		}
		m.mu.Lock() // the log was asked, so how the mirror is tuned and what is wanted may be something else by now, which partitions that are served already were told
		r.send(ev)
		r.send(partition.Event{Kind: partition.Tuned, Policy: m.tuning.policy})
		m.draining.tell(r, t.wish, ev.Record.State)
		m.mu.Unlock()
	}
	return nil
}

// stored reads what the store holds now for a topic: this mirror's states, and those of the mirror it was adopted from.
func (m *Mirror) stored(ctx context.Context, id TopicID, adopted string) (map[statemachine.Key]statemachine.Entry, error) {
	entries, err := m.loading.of(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading the states of topic id %s: %w", id, err)
	}
	found := map[statemachine.Key]statemachine.Entry{}
	for _, e := range entries {
		if e.Key.Mirror == m.cfg.Name || adopted != "" && e.Key.Mirror == adopted {
			found[e.Key] = e
		}
	}
	return found, nil
}

// take makes records that belong to an owner in Config.TakeFrom this owner's. Records of others are refused: their process may be writing.
func (m *Mirror) take(ctx context.Context, stored map[statemachine.Key]statemachine.Entry) error {
	var keys []statemachine.Key
	for key, e := range stored {
		switch {
		case key.Mirror != m.cfg.Name || e.Owner == "" || e.Owner == m.cfg.Owner:
		case slices.Contains(m.cfg.TakeFrom, e.Owner):
			keys = append(keys, key)
		default:
			return fmt.Errorf("partition %d belongs to owner %q, and this process is %q: run it as %q to take that process's place, or name %q in Config.TakeFrom if that one is gone for good",
				key.Partition, e.Owner, m.cfg.Owner, e.Owner, e.Owner)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if err := m.lease.hold(); err != nil {
		return err
	}
	writes := make([]statemachine.Write, len(keys))
	for i, key := range keys {
		e := stored[key]
		writes[i] = statemachine.Write{Key: key, TakeFrom: e.Owner, ExpectedStateEpoch: e.State.StateEpoch, LeaderEpoch: -1}
		if e.State != statemachine.NewPartitionState() {
			writes[i].State = &e.State
		} else {
			writes[i].LME = e.LME
		}
	}
	results, err := m.session.Write(ctx, writes)
	if err != nil {
		return fmt.Errorf("taking partitions from other owners: %w", err)
	}
	for i, r := range results {
		if r.Err != nil {
			return fmt.Errorf("taking partition %d from owner %q: %w", keys[i].Partition, writes[i].TakeFrom, r.Err)
		}
		e := stored[keys[i]]
		e.Owner, e.State.StateEpoch = m.cfg.Owner, r.StateEpoch
		stored[keys[i]] = e
	}
	return nil
}

// sourceTopic takes what a refresh saw: partitions that the source has gained are added from offset 0 (F-68).
func (m *Mirror) sourceTopic(s *SourceTopic) {
	m.mu.Lock()
	t := m.topics[s.Name]
	if t == nil || t.busy || len(t.partitions) == 0 {
		m.mu.Unlock()
		return
	}
	t.source = s
	have := int32(len(t.partitions))
	_, want, _ := statemachine.ParseMirrorNameValue(t.wish.MirrorName)
	m.mu.Unlock()
	switch {
	case want != statemachine.WantMirroring || s.Partitions == have:
		m.topicError(t, nil)
	case s.Partitions < have:
		m.topicError(t, fmt.Errorf("partition counts differ: %d at the source, %d at the destination; a mirror never removes partitions", s.Partitions, have))
	default:
		ctx, stop := context.WithTimeout(m.ctx, m.cfg.CallBound)
		defer stop()
		var grown Topic
		err := m.lease.hold()
		if err == nil {
			grown, err = m.cfg.Destination.GrowTopic(ctx, s.Name, s.Partitions)
		}
		if err == nil {
			err = m.startPartitions(ctx, t, grown)
		}
		if err != nil {
			err = fmt.Errorf("growing the topic from %d to %d partitions: %w", have, s.Partitions, err)
		}
		m.topicError(t, err)
	}
}

// trouble notes the topic's error, nil if there is none, and says whether it is what it was. Under Mirror.mu.
func (t *topicRun) trouble(err error) (same bool) {
	same = (err == nil) == (t.err == nil) && (err == nil || err.Error() == t.err.Error())
	t.err = err
	return same
}

func (m *Mirror) topicError(t *topicRun, err error) {
	m.mu.Lock()
	same := t.trouble(err)
	m.mu.Unlock()
	if !same {
		m.emit(TopicTrouble{EventMeta: m.meta(TopicPartition{Topic: t.name, Partition: Unknown}), Err: err})
	}
}

func (m *Mirror) refreshLoop() {
	missed := map[string]int{}
	quiet := 0 // ticks in a row at which no broker was fetched from
	tick := time.NewTicker(m.cfg.RefreshInterval)
	defer tick.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
			if m.lease.over() != nil {
				return
			}
			m.vanished.look()
			if r, ok := m.cfg.Source.(CertificateReader); ok {
				m.certificates.read(r)
			}
			answered := false
			// While nothing is fetched the partitions' own retries look at the source; refreshes besides get rare.
			if quiet++; m.link.anyHealthy() {
				quiet = 0
			}
			m.following.discover(m.ctx)
			if err := m.following.leave(m.ctx); err != nil && m.ctx.Err() == nil {
				m.cfg.Logger.Warn("trying again at the next refresh", "mirror", m.cfg.Name, "error", err)
			}
			if quiet < 2 || quiet%8 == 4 {
				if m.desk.refresh(m.ctx, missed) && quiet == 0 {
					answered = true
					m.syncing.refreshed()
				}
			}
			m.surveying.refreshed(answered)
		}
	}
}

// memberTopics lists the topics that take part in refreshes: those that are wanted and not stopped.
func (m *Mirror) memberTopics() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name, t := range m.topics {
		if _, want, _ := statemachine.ParseMirrorNameValue(t.wish.MirrorName); want != statemachine.WantStopped {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (m *Mirror) memberRunners() []*runner {
	names := m.memberTopics()
	m.mu.Lock()
	defer m.mu.Unlock()
	var rs []*runner
	for _, name := range names {
		if t := m.topics[name]; t != nil {
			rs = append(rs, t.partitions...)
		}
	}
	return rs
}

// consentUsed takes the consents of one partition out of the desired state: one that is left would cover its range once more in this episode.
func (m *Mirror) consentUsed(tp TopicPartition) {
	m.persist(tp, "a used consent could not be removed yet: until it is, the same range may be dropped once more in this episode", func(s *ControlState) { s.UseConsents(tp) })
}

// halted: the state store or the log says that somebody else has this partition, or the whole owner's name.
func (m *Mirror) halted(r *runner) {
	err := r.halt()
	r.close()
	if errors.Is(err, statemachine.ErrFenced) {
		m.stopServing(err)
		return
	}
	m.emit(Fenced{EventMeta: m.meta(r.tp), Err: err})
	m.stateChanged()
}

// stopServing ends every partition of this process: another one has opened the owner's name. A fenced process stops before its next byte.
func (m *Mirror) stopServing(err error) {
	m.mu.Lock()
	first := m.fenced == nil
	m.fenced = err
	m.lease.lose(err)
	all := m.everyRunner()
	m.mu.Unlock()
	for _, r := range all {
		r.refused(err)
		r.halt()
		r.close()
	}
	if first {
		m.emit(Fenced{EventMeta: m.meta(TopicPartition{Partition: Unknown}), Err: err})
	}
	m.stateChanged()
}

// stateChanged wakes whoever waits for states.
func (m *Mirror) stateChanged() {
	m.changeMu.Lock()
	close(m.change)
	m.change = make(chan struct{})
	m.changeMu.Unlock()
}

// changed is closed at the next change of any partition's state.
func (m *Mirror) changed() <-chan struct{} {
	m.changeMu.Lock()
	defer m.changeMu.Unlock()
	return m.change
}

func (m *Mirror) meta(tp TopicPartition) EventMeta {
	return EventMeta{Time: time.Now(), Mirror: m.cfg.Name, Topic: tp.Topic, Partition: tp.Partition}
}

func (m *Mirror) emit(e Event) {
	m.eventMu.Lock()
	defer m.eventMu.Unlock()
	switch e.(type) {
	case SourceTrouble, TopicTrouble, StoreTrouble:
		m.stateChanged() // who waits for the status, or reports it, has news
	}
	attributes := []any{"mirror", e.Where().Mirror}
	if e.Where().Topic != "" {
		attributes = append(attributes, "topic", e.Where().Topic)
	}
	if e.Where().Partition != Unknown {
		attributes = append(attributes, "partition", e.Where().Partition)
	}
	m.cfg.Logger.Log(m.ctx, e.Level(), e.String(), attributes...)
	if m.cfg.OnEvent != nil {
		m.cfg.OnEvent(e)
	}
}

// emitNote turns a note of a core into an event.
func (m *Mirror) emitNote(r *runner, n partition.Note) {
	meta := m.meta(r.tp)
	switch n.Kind {
	case partition.StateChanged:
		m.emit(StateChanged{meta, n.From, n.To, n.Message, n.NonRetryable})
		if n.To == statemachine.Mirroring {
			m.syncing.begun(r)
		}
		m.stateChanged()
	case partition.RecordsDropped:
		m.emit(RecordsDropped{meta, n.Truncated.From, n.Truncated.To, n.Truncated.Reason})
	case partition.RecordsLost:
		m.emit(RecordsLost{meta, n.RangeFrom, n.RangeTo, n.Message})
	case partition.Retrying:
		m.emit(RetryScheduled{meta, n.Attempt, n.After, n.Message})
	case partition.Refetched:
		m.emit(BatchRefetched{meta, n.Message})
	case partition.EpochRaised:
		m.emit(EpochRaised{meta, n.Epoch})
	case partition.StartRaised:
		m.emit(StartRaised{meta, n.Offset})
	case partition.NothingLeft:
		m.emit(NothingLeft{meta, r.log.End(), n.Offset})
	case partition.MarkersWritten:
		e := MarkersWritten{EventMeta: meta, ResetAt: n.ResetAt}
		for _, a := range n.Aborts {
			e.Aborts = append(e.Aborts, AbortMarker(a))
		}
		m.emit(e)
	case partition.LMERecorded:
		m.emit(LastEpochRecorded{meta, n.Epoch, n.Offset})
	case partition.LeaderMoved:
		m.emit(LeaderMoved{meta, n.LeaderID, n.Epoch})
	case partition.LogDoubted:
		m.emit(LogDoubted{meta, n.Message})
	default:
		panic(fmt.Sprintf("mirror: unknown note %d", n.Kind))
	}
}

// Status is what the mirror knows at one moment.
type Status struct {
	Mirror               string
	Taken                time.Time
	SourceClusterID      string // as the source said, else as configured or recorded; "" if nobody knows
	DestinationClusterID string // "" until it was asked
	Topics               []TopicStatus
	Fenced               error // another process has opened the owner's name: this one serves nothing any more, at the latest one RefreshInterval later
	Metadata             MetadataStatus
	FetchRate            int64         // bytes that this process may receive from the source in a second; 0: no limit
	SharedRate           int64         // the same of all mirrors together that share a limit (Config.SharedRate); 0: none
	HeldBack             time.Duration // sum of the times that these limits have held fetches back in this process, over all connections
	Throttled            time.Duration // sum of the pauses that brokers of the source have asked for in this process, because of quotas there
	Certificates         []Certificate // on which connections to the source depend, as last read; empty where the source does not know, or needs none
	Fetches              FetchCounts   // what was fetched and copied in this process
	OldSource            *OldSource    // how the cluster is that stopped topics were copied from; nil: it is not looked at
	Promotion            *Promotion    // one that is under way, as this process has read it last; nil: none is
	// Failovers are those that were measured, the last few of this mirror's processes, the oldest first. PredictFailover says what the next one is expected to take.
	Failovers []MeasuredFailover
	// Verification is how the continuous comparison of copies with their source stands; nil: there is none.
	Verification *VerificationStatus
}

// TopicStatus is one topic of a mirror.
type TopicStatus struct {
	Topic      string
	MirrorName string // value of mirror.name: "m", "m.paused", "m.stopped"
	Err        error  // the whole topic's trouble: missing at the source, partition counts differ …; nil: none
	Partitions []PartitionStatus
	SplitBrain []SplitBrain // of partitions that are stopped: what the old source has that was not known then
}

// Status is a copy, sorted by topic and partition. It waits for nothing, least of all the source.
func (m *Mirror) Status() Status {
	now := time.Now()
	m.desk.mu.Lock()
	s := Status{Mirror: m.cfg.Name, Taken: now, SourceClusterID: cmp.Or(m.desk.cluster, m.desk.recordedSource), DestinationClusterID: m.desk.own}
	m.desk.mu.Unlock()
	s.Metadata = m.syncing.status()
	s.OldSource = m.returning.status()
	s.FetchRate, _ = m.link.allowance.limit()
	s.SharedRate, s.HeldBack = m.cfg.SharedRate.Rate(), m.link.heldBackFor()
	s.Throttled = m.link.throttledFor()
	s.Fetches = m.fetches.now()
	s.Certificates = m.certificates.now()
	s.Failovers = m.failovers.now()
	m.mu.Lock()
	s.Fenced, s.Promotion = m.fenced, m.promotion
	type pair struct {
		t  TopicStatus
		rs []*runner
	}
	var pairs []pair
	for _, t := range m.topics {
		pairs = append(pairs, pair{TopicStatus{Topic: t.name, MirrorName: t.wish.MirrorName, Err: t.err}, slices.Clone(t.partitions)})
	}
	m.mu.Unlock()
	slices.SortFunc(pairs, func(a, b pair) int { return strings.Compare(a.t.Topic, b.t.Topic) })
	for _, p := range pairs {
		for _, r := range p.rs {
			x := r.status(now)
			x.GroupsUnlooked = s.Metadata.Groups.Off == "" && x.State != statemachine.Stopped && !m.looks.over(r.tp, x.Episode, TopicID{})
			x.Verification = m.verifying.of(&x)
			p.t.Partitions = append(p.t.Partitions, x)
		}
		p.t.SplitBrain = m.returning.of(p.t.Topic, p.t.Partitions)
		s.Topics = append(s.Topics, p.t)
	}
	s.Verification = m.verifying.status(s.Topics)
	return s
}

// awaitInterval is how often Await asks again when no state has changed: lags and ends move without one.
const awaitInterval = 500 * time.Millisecond

// Await waits until ok says true of the status, which it is asked at every change of a state and every half second; or until ctx ends, whose error it then returns. Other errors:
// ErrClosed, and ErrFenced when another process has taken this one's place, so that nothing will change here any more.
func (m *Mirror) Await(ctx context.Context, ok func(Status) bool) error {
	var fenced error
	err := m.await(ctx, awaitInterval, func(s Status) bool {
		if ok(s) {
			return true
		}
		fenced = s.Fenced
		return fenced != nil
	})
	if err == nil && fenced != nil {
		return fmt.Errorf("mirror %s: %w: %v", m.cfg.Name, ErrFenced, fenced)
	}
	return err
}

// await also asks every interval, for what is not a change of state; where there is so much to look at that a look takes long, less often.
func (m *Mirror) await(ctx context.Context, interval time.Duration, ok func(Status) bool) error {
	for {
		changed, began := m.changed(), time.Now()
		if ok(m.Status()) {
			return nil
		}
		var tick <-chan time.Time
		if interval > 0 {
			tick = time.After(max(interval, 4*time.Since(began)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.ctx.Done():
			return ErrClosed
		case <-changed:
		case <-tick:
		}
	}
}
