// Package partition is the core of one mirrored partition: Step(event) → effects. Single-threaded, no goroutine, clock, channel or map iteration, no client.
// mirror runs it with goroutines and a network; the simulator runs the same code without either.
package partition

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// LossPolicy is what happens when the source's log starts beyond our end (decision 16).
type LossPolicy uint8

// The loss policies.
const (
	LossRestart LossPolicy = iota // the copy starts where the source's log now starts
	LossFail                      // FAILED there
	LossKeep                      // older records stay; a reported hole. The source's log start is then never followed, or a restart would drop what was to be kept
)

// Config is what a partition is told once. Durations of 0 mean the default in brackets.
type Config struct {
	Mirror        string
	Topic         string
	Partition     int32
	TopicID       statemachine.TopicID // the destination's
	SourceCluster string               // expected cluster id; "" accepts the first one seen
	Retry         statemachine.RetryPolicy
	Policy
	FetchBackoff time.Duration // [1 s]
	ReplicaWait  time.Duration // bound of StopAwaitReplicated [10 s]
	MaxBatch     int32         // the destination's limit for one batch in bytes; 0: none (F-12)
	Refetches    int           // of a batch with a bad checksum before FAILED [3]
	Seed         uint64        // of the jitter
	Recovers     bool          // the log can be asked what of it need not be read (mirror.Recoverer)
}

// Core is one partition. Not safe for concurrent use.
//
// At any moment at most one answer is awaited for the procedure of the recorded state (await, then). Beside it stand: one state write (writing), during which every other
// event queues; and one call that changes the log or its epoch (busy), which is waited for even when the procedure that made it has been abandoned, because
// a Log is called by one at a time.
type Core struct {
	cfg  Config
	rng  rand.PCG // of the jitter
	own  *Room    // of Step
	room *Room    // of the step that is under way, nil between two

	rec      statemachine.PartitionState
	lme      *statemachine.LastMirrorEpoch
	loaded   bool
	halted   bool
	wished   bool
	begins   bool
	want     statemachine.Desired
	running  bool       // the recorded state's procedure is under way
	due      bool       // a FAILED partition is to be tried now …
	fresh    bool       // … as if it had not failed before
	held     bool       // a Fetched that came while the log was busy waits in reply
	busyKind EffectKind // of busy
	consents []Consent

	sequence    uint64
	await       Token // the answer that the procedure waits for
	then        answer
	busy        Token      // the call on the log that is under way
	busyEpoch   int32      // of a RaiseEpoch
	appendEpoch int32      // of the last Append
	fences      int        // Appends in a row that were fenced by a leader epoch that had risen
	cut         Truncation // of a Truncate or Reset that is under way: what it drops, told when it is done
	reply       *Fetch     // held

	writing Token  // of the Persist that is under way, or of the wait before it is tried again
	write   *write // what that writes
	queue   []Event

	step    string
	waiting string // why it stands still, for a person
	answers string // the failure that a person ended last: what was consented to is an answer to it, and not to one that nobody has read

	log LogView
	derived
	source

	preparing
	mirroring
	stopping
}

// Room is what a step works in: the event that is handled and the effects that it has so far. Nothing of it is needed between two steps, so thousands of partitions that have nothing to do share a few,
// and each keeps only what it has to know.
type Room struct {
	now time.Time
	cur Event
	out []Effect
}

// write is a state write that is not answered yet.
type write struct {
	rec   statemachine.PartitionState
	lme   *statemachine.LastMirrorEpoch
	then  func(*Core)
	tries int
}

// answer goes on with the answer to an effect.
type answer func(*Core, *Event)

// The defaults of Config, and the bounds of waits.
const (
	defaultFetchBackoff = time.Second
	defaultReplicaWait  = 10 * time.Second
	defaultRefetches    = 3
	maxFetchBackoff     = 30 * time.Second
	maxTries            = 10 // of a question whose answer is awaited to become a proof
	maxFences           = 5  // of an Append, one behind the other, by a leader epoch that rises again and again
)

// New returns the core of a partition that has not been Loaded.
func New(cfg Config) *Core {
	if cfg.FetchBackoff <= 0 {
		cfg.FetchBackoff = defaultFetchBackoff
	}
	if cfg.ReplicaWait <= 0 {
		cfg.ReplicaWait = defaultReplicaWait
	}
	if cfg.Refetches <= 0 {
		cfg.Refetches = defaultRefetches
	}
	return &Core{
		cfg:     cfg,
		rng:     *rand.NewPCG(cfg.Seed, 0x6d6972726f72),
		rec:     statemachine.NewPartitionState(),
		derived: newDerived(),
		source:  newSource(cfg.SourceCluster),
		stopping: stopping{
			resetMade: -1,
		},
	}
}

// Step takes one event at a time now and returns what is to be done. The slice is reused by the next Step. While a Persist is unanswered, events queue inside.
func (c *Core) Step(now time.Time, ev Event) []Effect {
	if c.own == nil {
		c.own = new(Room)
	}
	clear(c.own.out)
	return c.StepIn(c.own, now, ev)
}

// StepIn is Step in a room of the caller's, who has it alone until the next step in it: what is returned stands there.
func (c *Core) StepIn(room *Room, now time.Time, ev Event) []Effect {
	room.out = room.out[:0]
	if c.halted {
		return nil
	}
	c.room, room.now = room, now
	switch {
	case c.writing == (Token{}):
		c.take(ev)
	case ev.Token == c.writing && (ev.Kind == Persisted || ev.Kind == RetryDue):
		c.room.cur = ev
		c.persisted(&c.room.cur)
	default:
		c.enqueue(ev)
	}
	for len(c.queue) > 0 && c.writing == (Token{}) && !c.halted {
		next := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		c.take(next)
	}
	if len(c.queue) == 0 {
		c.queue = nil
	}
	c.room.cur = Event{} // a room that nobody works in keeps no reply alive
	c.room = nil
	return room.out
}

// enqueue keeps an event until the state write is answered. Of events that only say how things are, the newest one is enough.
func (c *Core) enqueue(ev Event) {
	switch ev.Kind {
	case Recover: // it is about the failure that is recorded: what is being written nobody has read
		return
	case Wish, SourceChanged, ReplicatedMoved:
		for i := range c.queue {
			if c.queue[i].Kind == ev.Kind {
				c.queue = slices.Delete(c.queue, i, i+1)
				break
			}
		}
	}
	c.queue = append(c.queue, ev)
}

// take handles one event.
func (c *Core) take(ev Event) {
	c.room.cur = ev
	e := &c.room.cur
	switch e.Kind {
	case Loaded:
		c.load(e)
		return
	case Wish:
		c.wish(e)
		return
	}
	if !c.loaded {
		return
	}
	switch e.Kind {
	case Persisted: // an old one
	case Replayed:
		if e.Token == c.await {
			c.replayed(e)
		}
	case Done:
		c.done(e)
	case RetryDue:
		if e.Token == c.startDue && e.Token != (Token{}) {
			c.startDue = Token{}
			c.followStart()
			return
		}
		c.answered(e)
	case SourceSeen, EpochAnswer:
		c.answered(e)
	case Fetched:
		if e.Token != c.await || e.Token == (Token{}) {
			return
		}
		if c.busy != (Token{}) {
			held := e.Fetch
			c.await, c.held, c.reply = Token{}, true, &held
			return
		}
		c.answered(e)
	case SourceChanged:
		c.sourceChanged(e)
	case ReplicatedMoved:
		c.replicatedMoved(&e.Log)
	case FailPartition:
		c.failPartition(e)
	case Tuned:
		c.cfg.Policy = e.Policy
		c.followStart() // a floor that is lifted is news only here, where the source is idle
	case Recover:
		if c.rec.State == statemachine.Failed {
			c.due, c.fresh = true, true
			c.evaluate()
		}
	}
}

// answered goes on with the procedure if the event is the answer that it waits for.
func (c *Core) answered(e *Event) {
	if e.Token == (Token{}) || e.Token != c.await {
		return
	}
	then := c.then
	c.await, c.then = Token{}, nil
	then(c, e)
}

// done takes a Done: first what the log now is, whoever asked; then the procedure, if it still waits for this.
func (c *Core) done(e *Event) {
	if e.Token == (Token{}) {
		return
	}
	if e.Token != c.busy {
		c.answered(e)
		return
	}
	kind, replicated, failed := c.busyKind, c.log.Replicated, e.Err // a held reply takes e's place
	c.busy, c.busyKind = Token{}, 0
	c.applied(kind, e)
	switch {
	case e.Token == c.await:
		c.answered(e)
	case c.dirty && c.besideFetch(): // it is not the log that the fetch goes on from, and an idle source gives no other occasion to see that
		c.reenter()
	case c.held:
		c.held = false
		c.room.cur, c.reply = Event{Kind: Fetched, Fetch: *c.reply}, nil
		c.fetched(&c.room.cur)
		c.besideDone(kind, failed)
	default:
		c.evaluate()
		c.besideDone(kind, failed)
		if c.log.Replicated > replicated { // what was put off until then can go on
			c.caughtUpNow()
			c.followStart()
		}
	}
}

// replicatedMoved takes news of the log that nobody asked for. It may be older than the last answer: it never moves the end of a log that is ours. Under a leader epoch that nobody here raised that end may be
// another one, as after a restart of who leads the log beside us: an append under that epoch would then leave a gap, or fall into one. So the epoch is taken with the end that is known, or the log is asked.
func (c *Core) replicatedMoved(v *LogView) {
	if c.log.Owner == OwnerOpen { // clients write; whoever needs the log next asks for its end
		c.setLog(*v)
		c.dirty = true
		return
	}
	if c.busy != (Token{}) && c.busyKind == Reset { // its answer says what it has changed, and that is told as dropped
		return
	}
	now := c.log
	if v.End == now.End {
		now.Start = max(now.Start, min(v.Start, now.End))
		now.LeaderEpoch = max(now.LeaderEpoch, v.LeaderEpoch)
	} else if v.LeaderEpoch > now.LeaderEpoch && c.busy == (Token{}) && c.rec.State == statemachine.Mirroring && c.fetching {
		c.dirty = true
		c.reenter()
		return
	}
	now.LowestCut = max(now.LowestCut, v.LowestCut)
	c.setLog(now)
	c.confirmed(v)
	c.caughtUpNow()
	c.followStart()
}

func (c *Core) load(e *Event) {
	if c.loaded {
		return
	}
	c.loaded, c.mayHaveCut = true, true
	c.rec, c.lme = e.Record, copyLME(e.LME)
	c.log = e.Log
	c.led, c.readUnder = c.rec.LeaderEpoch, c.log.LeaderEpoch
	c.expect()
	c.rewindAll()
	if c.rec.State == statemachine.Stopped || c.log.Start == c.log.End {
		c.evaluate()
		return
	}
	c.running = true
	c.sync(func(c *Core) {
		c.running = false
		c.evaluate()
	})
}

// wish notes what is wanted. A FAILED partition is tried again at once when something about the wish is new for it: another state, or a consent (a consent that has gone
// says nothing, nor does one for another partition of the topic). The first wish after a load only says what was wanted all along, so it ends only failures that it
// answers: a stop, or a consent.
func (c *Core) wish(e *Event) {
	first := !c.wished
	changed := first || e.Want != c.want || c.newConsent(e.Consents)
	c.wished, c.want, c.begins = true, e.Want, e.Begins
	c.consents = append([]Consent(nil), e.Consents...)
	c.asksCut = e.Cut && e.Want == statemachine.WantStopped
	if !c.loaded {
		return
	}
	if c.rec.State == statemachine.Failed && changed {
		switch {
		case !first:
			c.due, c.fresh = true, true
		case c.want == statemachine.WantStopped:
			c.due = c.rec.RetryAttempt != statemachine.NonRetryable
		case c.rec.RetryAttempt == statemachine.NonRetryable && c.want == statemachine.WantMirroring:
			c.due = c.anyConsent()
			c.fresh = c.due
		}
	}
	if c.rec.State == statemachine.Stopped && c.want != statemachine.WantMirroring && c.await == (Token{}) {
		c.running = false // ask once more whether it is open
	}
	c.evaluate()
}

func (c *Core) newConsent(consents []Consent) bool {
	for _, k := range consents {
		if k.TopicID == c.cfg.TopicID && k.Partition == c.cfg.Partition && !slices.Contains(c.consents, k) {
			return true
		}
	}
	return false
}

// in says that the recorded state is this one, or a failure after which it is this one again.
func (c *Core) in(s statemachine.State) bool {
	return c.rec.State == s || c.rec.State == statemachine.Failed && statemachine.RetryTarget(c.rec) == s
}

// target is the state in which the partition ought to be next (spec §2; a stop comes before everything else).
func (c *Core) target() statemachine.State {
	s := c.rec.State
	if c.want == statemachine.WantStopped {
		switch {
		case s == statemachine.Stopped:
			return s
		case s == statemachine.Failed && !c.due && c.in(statemachine.Stopping):
			return s
		}
		return statemachine.Stopping
	}
	switch s {
	case statemachine.Unknown, statemachine.Stopped:
		if c.want == statemachine.WantMirroring || c.want == statemachine.WantPaused && c.begins {
			return statemachine.Preparing
		}
	case statemachine.Paused:
		if c.want == statemachine.WantMirroring {
			return statemachine.Mirroring
		}
	case statemachine.Mirroring:
		if c.want == statemachine.WantPaused {
			return statemachine.Pausing
		}
	case statemachine.Failed:
		if c.due {
			if c.startOver {
				return statemachine.Preparing
			}
			return statemachine.RetryTarget(c.rec)
		}
	}
	return s
}

// evaluate moves to where the partition ought to be, or begins the procedure of the state it is in.
func (c *Core) evaluate() {
	if !c.loaded || !c.wished || c.halted || c.writing != (Token{}) || c.rebuilding || c.looking {
		return
	}
	target := c.target()
	if target == c.rec.State {
		if !c.running {
			c.enter()
		}
		return
	}
	c.abandon()
	if target == statemachine.Stopping && c.mustLook() {
		c.stopLook()
		return
	}
	c.move(target)
}

// enter begins the procedure of the recorded state. While a call on the log is still under way it waits: the answer evaluates again.
func (c *Core) enter() {
	if c.busy != (Token{}) {
		return
	}
	c.running = true
	switch c.rec.State {
	case statemachine.Preparing:
		c.prepare()
	case statemachine.EpochFencing:
		c.fence()
	case statemachine.Mirroring:
		c.tries = 0
		if c.rec.RetryAttempt > 0 {
			c.tries = maxTries // one look for each retry: the waits between retries are the ones that grow now (F-72)
		}
		c.mirror()
	case statemachine.Pausing:
		c.removeFetcher()
		c.move(statemachine.Paused)
	case statemachine.Paused:
		c.removeFetcher()
	case statemachine.Stopping:
		c.stop()
	case statemachine.Stopped:
		if !c.justOpened {
			c.reopen()
		}
		c.justOpened = false
	case statemachine.Failed:
		c.removeFetcher()
		if c.rec.FoundOpen && c.log.Owner != OwnerOpen && c.in(statemachine.Preparing) && !c.cfg.Retry.Retryable(c.rec.RetryAttempt) {
			c.reopen() // nobody knows how long it takes until a person looks at it, and the log is the clients' until then
			return
		}
		c.armRetry()
	}
}

// abandon forgets what is under way. Its answers will be dropped by their tokens; a call on the log is still waited for.
func (c *Core) abandon() {
	c.await, c.then = Token{}, nil
	c.held, c.reply = false, nil
	c.running, c.step, c.waiting = false, "", ""
	c.search, c.confirming = nil, false
	c.verdict, c.emptyWait, c.movedOn = verdict{}, 0, false
	c.looking = false
	if c.rebuilding {
		c.rebuilding, c.syncThen, c.facts, c.dirty = false, nil, nil, true
	}
}

// token makes the next token.
func (c *Core) token() Token {
	c.sequence++
	return Token{StateEpoch: c.rec.StateEpoch, Sequence: c.sequence}
}

// emit hands out an effect that is not answered, or whose answer is looked for elsewhere.
func (c *Core) emit(e Effect) Token {
	e.Token = c.token()
	c.room.out = append(c.room.out, e)
	return e.Token
}

func (c *Core) note(n Note) { c.emit(Effect{Kind: Emit, Note: n}) }

// ask hands out an effect whose answer the procedure waits for.
func (c *Core) ask(e Effect, then answer) {
	c.await = c.emit(e)
	c.then = then
	if touchesLog(e.Kind) {
		c.busy, c.busyKind, c.busyEpoch = c.await, e.Kind, e.Epoch
	}
}

// touchesLog names the effects after which the log is another one. They are waited for even when nobody wants them any more.
func touchesLog(k EffectKind) bool {
	switch k {
	case Append, Truncate, Reset, RaiseStart, RaiseEpoch, OpenLog, CloseForWrites:
		return true
	}
	return false
}

// wait lets the procedure stand still.
func (c *Core) wait(d time.Duration, then answer) {
	c.ask(Effect{Kind: ScheduleRetry, Bound: d}, then)
}

// backoff is the wait before try n: FetchBackoff·2^(n−1), ±20 %, at most 30 s.
func (c *Core) backoff(n int) time.Duration {
	p := statemachine.RetryPolicy{Initial: c.cfg.FetchBackoff, Max: max(c.cfg.FetchBackoff, maxFetchBackoff)}
	return min(p.Delay(int16(min(n, 1000)), c.jitter()), p.Max)
}

// jitter is what a wait varies by, from 0 to below 1.
func (c *Core) jitter() float64 { return rand.New(&c.rng).Float64() }

// persist writes a record, and goes on when it is written.
func (c *Core) persist(next statemachine.PartitionState, lme *statemachine.LastMirrorEpoch, then func(*Core)) {
	next.StateEpoch = c.rec.StateEpoch + 1
	next.LeaderEpoch = max(next.LeaderEpoch, c.led)
	next.WasOpen = next.WasOpen || (next.FoundOpen || c.rec.FoundOpen) && c.log.End > c.log.Start
	if c.cluster != "" {
		next.SourceClusterID = c.cluster
	}
	if c.topicID != (statemachine.TopicID{}) {
		next.SourceTopicID = c.topicID
	}
	if c.rec.SourceClusterID != "" && next.SourceClusterID != c.rec.SourceClusterID || c.rec.SourceTopicID != (statemachine.TopicID{}) && next.SourceTopicID != c.rec.SourceTopicID {
		c.holeFilled = true
	}
	if c.holeFilled && next.HoleFrom == c.rec.HoleFrom && next.HoleTo == c.rec.HoleTo {
		next.HoleFrom, next.HoleTo = 0, 0
	}
	c.holeFilled = false
	c.write = &write{rec: next, lme: lme, then: then}
	c.writeOut()
}

func (c *Core) writeOut() {
	c.writing = c.emit(Effect{Kind: Persist, Record: c.write.rec, LME: copyLME(c.write.lme), ExpectedStateEpoch: c.rec.StateEpoch})
}

// move persists the move to another state and begins it.
func (c *Core) move(to statemachine.State) {
	c.moveWith(to, nil)
}

func (c *Core) moveWith(to statemachine.State, lme *statemachine.LastMirrorEpoch) {
	next, err := statemachine.Move(c.rec, to)
	if err != nil {
		c.fail(err.Error(), true)
		return
	}
	if next.Episode != c.rec.Episode && c.lme != nil && next.Episode <= c.lme.Episode {
		next.Episode = min(c.lme.Episode, math.MaxInt32-1) + 1 // the state was deleted and its LME kept: what is recorded there is not this episode's
	}
	if c.fresh {
		next = statemachine.ClearFailure(next)
	}
	if to == statemachine.Stopping && !c.in(statemachine.Stopping) {
		next = statemachine.ClearFailure(next) // what failed before says nothing about the stop
		c.aborts, c.resetMade, c.unmarked = nil, -1, false
	}
	begins := to == statemachine.Preparing || to == statemachine.Stopping && c.rec.State == statemachine.Unknown
	if begins && (c.rec.State == statemachine.Stopped || c.log.Owner == OwnerOpen) || to == statemachine.Stopping && c.givesBack {
		next.FoundOpen = true // with this very write: a restart may bring the log back closed, and may have done so
	}
	c.givesBack = false
	if to == statemachine.Stopped {
		next.ErrorMessage = c.stoppedWhy
	}
	if next.Episode != c.rec.Episode {
		c.ours = ours{led: -1, end: -1} // nothing of the log is this episode's yet
		c.mayHaveCut, c.cutsTo = false, false
		c.forgetLeader()
	}
	if c.rec.State == statemachine.Failed {
		c.answers = ""
		if c.rec.RetryAttempt == statemachine.NonRetryable {
			c.answers = c.rec.ErrorMessage
		}
	}
	c.stoppedWhy = ""
	c.due, c.fresh, c.startOver = false, false, false
	c.persist(next, lme, nil)
}

// fail ends what is under way with FAILED. The message says what is wrong and what to do.
func (c *Core) fail(message string, nonRetryable bool) {
	c.abandon()
	c.due, c.fresh = false, false
	c.persist(statemachine.Fail(c.rec, message, nonRetryable), nil, nil)
}

// persisted takes the answer to the state write.
func (c *Core) persisted(e *Event) {
	if e.Kind == RetryDue {
		c.writeOut()
		return
	}
	if e.Err != nil {
		if endsForGood(e.Err) {
			c.halt()
			return
		}
		c.write.tries++
		c.writing = c.emit(Effect{Kind: ScheduleRetry, Bound: c.backoff(c.write.tries)})
		return
	}
	before, wrote := c.rec, c.write
	c.rec = wrote.rec
	c.rec.StateEpoch = e.StateEpoch
	if wrote.lme != nil {
		c.lme = wrote.lme
		if c.ended() {
			c.note(Note{Kind: LMERecorded, Epoch: c.lme.Epoch, Offset: c.lme.Offset})
		}
	}
	if before.State != c.rec.State {
		c.step = ""
	}
	c.writing, c.write = Token{}, nil
	if before.State != c.rec.State || c.rec.State == statemachine.Failed {
		c.note(Note{
			Kind: StateChanged, From: before.State, To: c.rec.State, Message: c.rec.ErrorMessage,
			NonRetryable: c.rec.RetryAttempt == statemachine.NonRetryable,
		})
	}
	if wrote.then != nil {
		wrote.then(c)
		return
	}
	if before.State == statemachine.Preparing && c.rec.State == statemachine.Mirroring {
		c.useConsents()
	}
	if c.rec.State == statemachine.Failed && c.startOver && c.consented(c.log.Start, c.log.End) && c.rec.ErrorMessage == c.answers {
		c.due, c.fresh = true, true
	}
	c.running = false
	c.evaluate()
}

func (c *Core) halt() {
	c.abandon()
	c.writing = Token{}
	c.queue = nil
	c.halted = true
	c.emit(Effect{Kind: Halt})
}

// armRetry schedules the next try of a FAILED partition, unless only a person ends the failure.
func (c *Core) armRetry() {
	if !c.cfg.Retry.Retryable(c.rec.RetryAttempt) {
		return
	}
	after := c.cfg.Retry.Delay(c.rec.RetryAttempt, c.jitter())
	c.note(Note{Kind: Retrying, Attempt: c.rec.RetryAttempt, After: after, Message: c.rec.ErrorMessage})
	c.wait(after, func(c *Core, _ *Event) {
		c.due = true
		c.evaluate()
	})
}

// failPartition is the shell's word that this partition does not work, though nothing it was asked for has failed.
func (c *Core) failPartition(e *Event) {
	if e.Source.Permanent && c.in(statemachine.Stopping) {
		return // a stop needs no source (decision 4)
	}
	switch c.rec.State {
	case statemachine.Preparing, statemachine.EpochFencing, statemachine.Mirroring, statemachine.Pausing, statemachine.Stopping:
		message := "the partition does not work; it is tried again"
		if e.Err != nil {
			message = e.Err.Error()
		}
		c.fail(message, e.NonRetryable)
	case statemachine.Failed:
		if e.NonRetryable && e.Err != nil && c.rec.RetryAttempt != statemachine.NonRetryable { // what is tried again cannot help
			c.fail(e.Err.Error(), true)
		}
	}
}

func copyLME(l *statemachine.LastMirrorEpoch) *statemachine.LastMirrorEpoch {
	if l == nil {
		return nil
	}
	d := *l
	return &d
}
