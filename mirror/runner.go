package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// runner runs one partition's core: it feeds events to Step and carries out the effects. Events are handled one at a time, by a goroutine that lives only
// while there are any, so an idle partition costs no goroutine. What waits for somebody else (source, replicas, store) runs beside it and comes back as an event.
type runner struct {
	m     *Mirror
	tp    TopicPartition
	topic *topicRun
	id    TopicID // the destination's
	log   Log

	mu     sync.Mutex
	busy   bool // a goroutine is handling events
	closed bool
	loaded bool  // Loaded was sent
	writes int32 // state writes without an answer
	queue  []partition.Event

	coreMu sync.Mutex // held during Step and Status only, never during an effect
	core   *partition.Core
	adopts *statemachine.Write // of the record of another mirror that goes with this one's first write; of the persister's goroutine once events are sent

	// Only touched by the goroutine that handles events.
	cancel context.CancelFunc // of the wait that runs beside, nil if none
	waits  partition.Token    // the effect that it answers

	seenMu      sync.Mutex
	owner       Ownership // as the log said last
	halted      bool      // nothing is served here any more
	behindSince time.Time // since when the watchdog sees it behind at behindAt
	behindAt    int64
	answered    time.Time    // when the source last said anything about this partition, also that nothing has changed
	refusal     error        // of the last state write that was refused
	dropped     droppedRange // last one that was carried out
	seen        SourceView   // what the shell last told the core about the source
	retry       *time.Timer
	retryAt     time.Time
	moved       time.Time // when End last moved or fetching began, for the watchdog
	movedEnd    int64

	caughtUp time.Time  // the last moment at which the copy held everything then known, as far as the link knows
	stops    *stopTimes // nil: it was not told to stop
	sizes    meanSize   // of what was copied last
}

// droppedRange is [from, to).
type droppedRange struct{ from, to int64 }

// SourceView is the core's view of the source partition.
type SourceView = partition.SourceView

func newRunner(m *Mirror, topic *topicRun, tp TopicPartition, log Log, seed uint64) *runner {
	cfg := m.cfg.core(tp, topic.id, seed)
	_, cfg.Recovers = log.(Recoverer)
	return &runner{
		m: m, tp: tp, topic: topic, id: topic.id, log: log, moved: time.Now(), movedEnd: log.End(),
		core: partition.New(cfg),
		seen: SourceView{LeaderID: Unknown, LeaderEpoch: Unknown, LogStart: Unknown, HighWatermark: Unknown, LME: Unknown, LMO: Unknown},
	}
}

// send queues an event. It never blocks. Loaded is the first of all: what comes before it is told to nobody, and whoever sends it sends what is so behind it.
func (r *runner) send(ev partition.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded = r.loaded || ev.Kind == partition.Loaded
	if r.closed || !r.loaded {
		return
	}
	r.queue = append(r.queue, ev)
	if ev.Kind == partition.Persisted {
		r.writes--
	}
	if !r.busy {
		r.busy = true
		r.m.running.Add(1)
		go r.run()
	}
}

// decided says that every event so far was handled and every state that followed is written: the status is not about to change because of what was wanted before.
func (r *runner) decided() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed || len(r.queue) == 0 && !r.busy && r.writes == 0
}

func (r *runner) run() {
	defer r.m.running.Done()
	for {
		r.mu.Lock()
		if len(r.queue) == 0 || r.closed {
			r.busy = false
			r.queue = nil
			r.mu.Unlock()
			return
		}
		ev := r.queue[0]
		r.queue[0] = partition.Event{}
		if len(r.queue) == 1 {
			r.queue = r.queue[:0]
		} else {
			r.queue = r.queue[1:]
		}
		r.mu.Unlock()
		r.handle(ev)
	}
}

func (r *runner) handle(ev partition.Event) {
	if r.cancel != nil && ev.Kind == partition.Done && ev.Token == r.waits {
		r.cancel = nil // what it would cancel is over, and would be kept for nothing
	}
	room := rooms.Get().(*partition.Room)
	r.coreMu.Lock()
	effects := r.core.StepIn(room, time.Now(), ev)
	state, step := r.core.Where()
	r.coreMu.Unlock()
	r.measure(&ev, state, step, effects)
	for i := range effects {
		r.do(&effects[i])
		effects[i] = partition.Effect{}
	}
	rooms.Put(room)
}

// rooms are for what a step works in and asks for, which is kept only until that is done: an idle partition needs none.
var rooms = sync.Pool{New: func() any { return new(partition.Room) }}

// measure notes how long the steps of a stop take.
func (r *runner) measure(ev *partition.Event, state statemachine.State, step string, effects []partition.Effect) {
	now := time.Now()
	halted := slices.ContainsFunc(effects, func(e partition.Effect) bool { return e.Kind == partition.Halt })
	r.seenMu.Lock()
	var s stopTimes
	if r.stops != nil {
		s = *r.stops
	}
	told := s.told
	begins, ends, opened := s.observe(now, ev, state, step, halted)
	if begins {
		told, r.stops = now, new(stopTimes)
	}
	if r.stops != nil {
		*r.stops = s
	}
	steps := s.steps
	r.seenMu.Unlock()
	if begins {
		r.m.failovers.begins(r, now)
	}
	if ends {
		r.m.failovers.ends(r, told, now, opened, steps)
	}
}

// close stops the partition: nothing more is handled, nothing more is fetched.
func (r *runner) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.m.link.remove(r.tp)
	r.m.failovers.ends(r, time.Time{}, time.Time{}, false, nil)
	r.seenMu.Lock()
	if r.retry != nil {
		r.retry.Stop()
	}
	r.seenMu.Unlock()
}

// tellLeft tells of a partition whose topic has left the mirror before it was stopped, as one does that was made here while the mirror was being deleted: clients cannot write it,
// and no verb of this mirror reaches it any more.
func (r *runner) tellLeft() {
	r.seenMu.Lock()
	owner := r.owner
	r.seenMu.Unlock()
	if owner == OwnerOurs {
		r.m.emit(TopicTrouble{EventMeta: r.m.meta(r.tp), Err: errors.New("its topic is in this mirror no more, and was not stopped: it stays closed for clients; delete it here, or start it in a mirror and stop it there")})
	}
}

func (r *runner) view() partition.LogView {
	v := partition.LogView{Start: r.log.Start(), End: r.log.End(), Replicated: r.log.Replicated(), LeaderEpoch: r.log.LeaderEpoch()}
	if b, ok := r.log.(CutBounder); ok {
		v.LowestCut = b.LowestCut()
	}
	return v
}

// done answers an effect.
func (r *runner) done(token partition.Token, err error) {
	r.send(partition.Event{Kind: partition.Done, Token: token, Log: r.view(), Err: err, NonRetryable: errors.Is(err, ErrRemoteStorage), Fenced: errors.Is(err, ErrFenced), Refused: errors.As(err, new(*notPassed))})
}

// do carries out one effect.
func (r *runner) do(e *partition.Effect) {
	switch e.Kind {
	case partition.Persist:
		r.mu.Lock()
		r.writes++
		r.mu.Unlock()
		r.m.persister.add(r, *e)
	case partition.CheckSource:
		r.m.desk.add(deskItem{r: r, token: e.Token, prepare: e.Prepare, refresh: e.Refresh, local: e.Local})
	case partition.AskEpoch:
		r.askEpoch(e.Token, e.Under, e.Epoch)
	case partition.RaiseEpoch:
		r.m.raiser.add(r, e.Token, e.Epoch)

	case partition.AddFetcher, partition.Continue:
		r.m.link.want(r, *e)
	case partition.RemoveFetcher:
		r.m.link.remove(r.tp)

	case partition.Append:
		before, size, batches := r.log.End(), int64(len(e.Bytes)), batchesOf(e.Bytes) // the bytes are the log's from here on
		err := r.change(func(ctx context.Context) error { return r.log.Append(ctx, e.Epoch, e.Bytes) })
		if err == nil {
			r.noteMoved()
			r.m.fetches.copied(size, batches)
			r.seenMu.Lock()
			r.sizes.add(size, r.log.End()-before)
			r.seenMu.Unlock()
		}
		r.done(e.Token, err)
	case partition.Truncate:
		offset, unconfirmed := e.Offset, e.Unconfirmed
		r.done(e.Token, r.cut(e.Dropped, func(ctx context.Context) error {
			if now := r.log.Replicated(); unconfirmed && now > offset {
				return fmt.Errorf("replicas have confirmed up to %d meanwhile", now)
			}
			_, err := r.log.TruncateTo(ctx, offset)
			return err
		}))
	case partition.Reset:
		offset := e.Offset
		r.done(e.Token, r.cut(e.Dropped, func(ctx context.Context) error { return r.log.ResetTo(ctx, offset) }))
	case partition.RaiseStart:
		r.done(e.Token, r.change(func(ctx context.Context) error { return r.log.RaiseStart(ctx, e.Offset) }))
	case partition.CloseForWrites:
		r.beside(e.Token, r.m.cfg.CallBound, r.gate(r.log.CloseForWrites, OwnerOurs))
	case partition.OpenLog:
		r.beside(e.Token, r.m.cfg.CallBound, r.gate(r.log.Open, OwnerOpen))
	case partition.AwaitReplicated:
		offset, bound := e.Offset, e.Bound
		r.beside(e.Token, bound, func(ctx context.Context) error { return r.log.AwaitReplicated(ctx, offset) })
	case partition.AwaitTruncated:
		r.beside(e.Token, e.Bound, func(ctx context.Context) error {
			if err := r.passNoReturn(); err != nil {
				return err
			}
			return r.log.AwaitTruncated(ctx)
		})
	case partition.AskOwner:
		r.askOwner(e.Token)
	case partition.Rebuild:
		r.rebuild(e.Token, e.Offset, e.First)
	case partition.AskRecovered:
		r.askRecovered(e.Token)

	case partition.QuiesceGroups:
		r.beside(e.Token, r.m.cfg.CallBound, func(ctx context.Context) error { return r.m.syncing.groups.quiesce(ctx, r.tp) })
	case partition.AskCut:
		r.m.cutting.stand(r, *e)
	case partition.SettleProducerIDs:
		if s, ok := r.log.(ProducerIDSettler); ok {
			highest := e.Offset
			r.beside(e.Token, r.m.cfg.CallBound, func(ctx context.Context) error { return s.SettleProducerIDs(ctx, highest) })
			return
		}
		r.done(e.Token, nil)
	case partition.ClampGroups:
		r.m.syncing.groups.settle(r, e.Token, e.Offset)

	case partition.ScheduleRetry:
		token, after := e.Token, e.Bound
		r.seenMu.Lock()
		if r.retry != nil {
			r.retry.Stop()
		}
		r.retryAt = time.Now().Add(after)
		r.retry = time.AfterFunc(after, func() { r.send(partition.Event{Kind: partition.RetryDue, Token: token}) })
		r.seenMu.Unlock()
	case partition.ConsentUsed:
		r.m.consentUsed(r.tp)
	case partition.Emit:
		r.m.emitNote(r, e.Note)
	case partition.Halt:
		r.m.halted(r)
	default:
		panic(fmt.Sprintf("mirror: unknown effect %d", e.Kind))
	}
}

// bounded is the context of a call on the log that runs in line.
func (r *runner) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.m.ctx, r.m.cfg.CallBound)
}

// change is a call that changes the log, in line. A process that was held up makes none before it knows that the partition is still its own.
func (r *runner) change(call func(context.Context) error) error {
	if err := r.m.lease.hold(); err != nil {
		return err
	}
	ctx, stop := r.bounded()
	defer stop()
	return call(ctx)
}

// beside runs a wait on the log in a goroutine of its own, so that a stop is seen while it lasts. Only one runs at a time for a partition: a newer one, made
// because the older is no longer of interest, cancels it first. bound 0: until the mirror closes.
func (r *runner) beside(token partition.Token, bound time.Duration, f func(context.Context) error) {
	if r.cancel != nil {
		r.cancel()
	}
	var ctx context.Context
	if bound > 0 {
		ctx, r.cancel = context.WithTimeout(r.m.ctx, bound)
	} else {
		ctx, r.cancel = context.WithCancel(r.m.ctx)
	}
	cancel := r.cancel
	r.waits = token
	r.m.spawn(func() {
		err := f(ctx)
		cancel()
		r.done(token, err)
	})
}

// cut hands what will be dropped to the sink, then drops it.
func (r *runner) cut(d partition.Truncation, drop func(context.Context) error) error {
	if err := r.passNoReturn(); err != nil {
		return err
	}
	if err := r.saveDropped(d); err != nil {
		return err
	}
	if err := r.change(drop); err != nil {
		return err
	}
	if d.To > d.From {
		r.seenMu.Lock()
		r.dropped = droppedRange{d.From, d.To}
		r.seenMu.Unlock()
	}
	return nil
}

// gate moves the gate and remembers where it is.
func (r *runner) gate(move func(context.Context) error, to Ownership) func(context.Context) error {
	return func(ctx context.Context) error {
		err := r.m.lease.hold()
		if err == nil {
			err = move(ctx)
		}
		if err == nil {
			r.setOwner(to)
		}
		return err
	}
}

// noteAnswered remembers when the source last said anything about this partition.
func (r *runner) noteAnswered(at time.Time) {
	r.seenMu.Lock()
	if at.After(r.answered) {
		r.answered = at
	}
	r.seenMu.Unlock()
}

// refused notes why a state write was refused.
func (r *runner) refused(err error) {
	r.seenMu.Lock()
	r.refusal = err
	r.seenMu.Unlock()
}

// halt notes that the partition is not served here any more, and returns why.
func (r *runner) halt() error {
	r.seenMu.Lock()
	defer r.seenMu.Unlock()
	r.halted = true
	if r.refusal == nil {
		r.refusal = ErrFenced
	}
	return r.refusal
}

func (r *runner) setOwner(o Ownership) {
	r.seenMu.Lock()
	r.owner = o
	r.seenMu.Unlock()
}

func (r *runner) askOwner(token partition.Token) {
	r.m.spawn(func() {
		ctx, stop := r.bounded()
		defer stop()
		owner, epoch, err := r.log.Owner(ctx)
		v := r.view()
		if err == nil {
			v.Owner, v.LeaderEpoch = partition.Ownership(owner), epoch
			r.setOwner(owner)
		}
		r.send(partition.Event{Kind: partition.Done, Token: token, Log: v, Err: err})
	})
}

func (r *runner) askEpoch(token partition.Token, leaderEpoch, epoch int32) {
	r.m.spawn(func() {
		ctx, stop := r.bounded()
		defer stop()
		ev := partition.Event{Kind: partition.EpochAnswer, Token: token, AnswerEpoch: Unknown, AnswerEnd: Unknown}
		if ev.Err = r.m.asks.acquire(ctx); ev.Err == nil {
			var a EpochEnd
			a, ev.Err = r.m.desk.askEpoch(ctx, epochQuestion{r.tp, leaderEpoch, epoch})
			r.m.asks.release()
			for try := 0; electing(SourceView{}, ev.Err) && try < maxElectionTries && r.m.pause(ctx, r.m.cfg.FetchBackoff<<min(try, 2)); try++ {
				a, ev.Err = r.m.desk.askEpoch(ctx, epochQuestion{r.tp, leaderEpoch, epoch})
			}
			if ev.Err == nil {
				ev.AnswerEpoch, ev.AnswerEnd = a.Epoch, a.End
			}
		}
		if errors.Is(ev.Err, ErrUnsupported) {
			ev.Source.NoEpochs = true
		}
		r.send(ev)
	})
}

// rebuildPieces is how many pieces of a log are fed to the core in one go: between two goes it sees what else has happened, a wish to stop or the end of the mirror.
const rebuildPieces = 8

var errEnough = errors.New("mirror: enough was read")

// rebuild reads the log, or only a few batches of it, and feeds it to the core in line: nothing else of this partition may happen meanwhile.
func (r *runner) rebuild(token partition.Token, from int64, few bool) {
	log, pieces := boundedLog{r.log, r.m.cfg.CallBound, readChunk}, rebuildPieces
	if few {
		log.most, pieces = readFew, 1
	}
	more := false
	var room partition.Room // the one of the step that asked for this is not done with
	err := readLog(r.m.ctx, log, from, r.log.End(), func(b []byte) error {
		r.coreMu.Lock()
		defer r.coreMu.Unlock()
		r.core.StepIn(&room, time.Now(), partition.Event{Kind: partition.Replayed, Token: token, Bytes: b})
		if pieces--; pieces == 0 {
			more = true
			return errEnough
		}
		return nil
	})
	if more {
		err = nil
	}
	r.send(partition.Event{Kind: partition.Done, Token: token, Log: r.view(), Err: err, More: more})
}

// askRecovered asks a log that can what of it need not be read.
func (r *runner) askRecovered(token partition.Token) {
	r.m.spawn(func() {
		ctx, stop := r.bounded()
		defer stop()
		known, err := r.log.(Recoverer).Recovered(ctx)
		ev := partition.Event{
			Kind: partition.Done, Token: token, Log: r.view(), Err: err,
			Recovered: partition.Recovered{From: known.From, HighestProducerID: known.HighestProducerID},
		}
		for _, e := range known.Epochs {
			ev.Recovered.Epochs = append(ev.Recovered.Epochs, logtrunc.Entry(e))
		}
		r.send(ev)
	})
}

// read reads the log in pieces, each within CallBound.
func (r *runner) read(from, to int64, f func([]byte) error) error {
	return readLog(r.m.ctx, boundedLog{r.log, r.m.cfg.CallBound, readChunk}, from, to, f)
}

// saveDropped hands the batches of a range that is about to be cut to the sink.
func (r *runner) saveDropped(d partition.Truncation) error {
	return r.read(d.From, d.To, func(b []byte) error {
		first, next := int64(Unknown), int64(Unknown)
		for info := range Batches(b) {
			if first == Unknown {
				first = info.Base
			}
			next = info.Next()
		}
		ctx, stop := r.bounded()
		defer stop()
		if err := handTo(ctx, r.m.cfg.Sink, r.tp, first, next, b); err != nil {
			return fmt.Errorf("sink refused [%d,%d), so nothing is cut: %w", first, next, err)
		}
		return nil
	})
}

func (r *runner) noteMoved() {
	end := r.log.End()
	r.seenMu.Lock()
	if end != r.movedEnd {
		r.movedEnd, r.moved = end, time.Now()
	}
	r.seenMu.Unlock()
}

func (r *runner) noteCaughtUp(when time.Time) {
	r.seenMu.Lock()
	defer r.seenMu.Unlock()
	if when.After(r.caughtUp) {
		r.caughtUp = when
	}
}

// noteReplicated tells the core when the log is not as it knows it: what it has put off until replicas confirm more can go on then (F-21), and a log that somebody else leads now is asked.
func (r *runner) noteReplicated() {
	v := r.view()
	r.coreMu.Lock()
	known := r.core.Log()
	r.coreMu.Unlock()
	if v.Owner = known.Owner; v != known {
		r.send(partition.Event{Kind: partition.ReplicatedMoved, Log: v})
	}
}

// tell passes what the shell learned of the source to the core, keeping what AskEpoch and AddFetcher need.
func (r *runner) tell(ev partition.Event) {
	if ev.Err == nil {
		r.seenMu.Lock()
		r.seen = ev.Source
		r.seenMu.Unlock()
	}
	r.send(ev)
}

// state is the partition's state now.
func (r *runner) state() statemachine.State {
	r.coreMu.Lock()
	defer r.coreMu.Unlock()
	return r.core.Status().Record.State
}

// status merges what the core knows with what the shell knows.
func (r *runner) status(now time.Time) PartitionStatus {
	replicated := r.log.Replicated()
	r.coreMu.Lock()
	c, lastStable := r.core.Status(), r.core.LastStable(replicated)
	r.coreMu.Unlock()
	healthy, answered := r.m.link.healthy(r.tp)
	r.seenMu.Lock()
	next, owner, dropped, inStep := r.retryAt, r.owner, r.dropped, r.caughtUp
	var steps []StepTime
	var stopEnded time.Time
	if r.stops != nil {
		steps, stopEnded = slices.Clone(r.stops.steps), r.stops.ended
	}
	sizes := r.sizes
	halted, refusal := r.halted, r.refusal
	if healthy && answered.After(r.answered) {
		r.answered = answered
	}
	answered = r.answered
	r.seenMu.Unlock()

	s := PartitionStatus{
		Mirror: r.m.cfg.Name, Topic: r.tp.Topic, Partition: r.tp.Partition, TopicID: r.id,
		State: c.Record.State, Want: c.Want, Step: c.Step, Reason: c.Record.ErrorMessage, RetryAttempt: c.Record.RetryAttempt, Episode: c.Record.Episode, WasOpen: c.Record.WasOpen,
		Start: r.log.Start(), End: r.log.End(), Replicated: replicated, LeaderEpoch: r.log.LeaderEpoch(), Owner: owner,
		LastStable: lastStable, LastEpoch: Unknown, HighestProducerID: c.HighestProducerID,
		SourceClusterID: c.Source.ClusterID, SourceTopicID: c.Source.TopicID, SourceLeader: c.Source.LeaderID, SourceLeaderEpoch: c.Source.LeaderEpoch,
		SourceStart: c.Source.LogStart, SourceEnd: c.Source.HighWatermark, SourceSeen: c.SourceSeen, NoEpochChecks: c.NoEpochs, Unproved: !c.Proved,
		LagOffsets: Unknown, LagTime: Unknown, NothingLeft: c.NothingLeft, UsedTo: c.UsedTo, LostFrom: c.LostFrom, LostTo: c.LostTo, DroppedFrom: dropped.from, DroppedTo: dropped.to, LME: c.LME, ResetAt: c.ResetAt,
		StopSteps: steps, StopEnded: stopEnded, OffsetBytes: sizes.mean(),
	}
	if c.Record.State == statemachine.Failed && c.Record.RetryAttempt != statemachine.NonRetryable {
		s.NextRetry = next
	}
	if c.Waiting != "" {
		s.Reason = c.Waiting
	}
	if err := r.m.persister.stuck(r); err != nil {
		s.Reason = fmt.Sprintf("the state store does not take its next state: %v", err)
	}
	if halted {
		s.Halted, s.Reason = true, fmt.Sprintf("not served by this process any more: %v", refusal)
	}
	if n := len(c.Epochs); n > 0 {
		s.LastEpoch = c.Epochs[n-1].Epoch
	}
	for _, t := range c.InFlight {
		s.InFlight = append(s.InFlight, Transaction{t.ProducerID, t.ProducerEpoch, t.FirstOffset, t.LastOffset})
	}
	for _, a := range c.Aborts {
		s.Aborts = append(s.Aborts, AbortMarker(a))
	}
	if c.Needs != nil {
		need := Consent(*c.Needs)
		s.NeedsConsent = &need
	}
	if c.SourceSeen.IsZero() {
		s.SourceStart, s.SourceEnd = Unknown, Unknown
	}

	// A reply of a healthy fetch session that does not name this partition says that nothing has changed.
	if !c.SourceSeen.IsZero() && answered.After(s.SourceSeen) {
		s.SourceSeen = answered
	}
	caughtUp := c.CaughtUp
	if inStep.After(caughtUp) {
		caughtUp = inStep
	}
	if healthy && !caughtUp.IsZero() && (s.Replicated >= s.SourceEnd || s.NothingLeft) && answered.After(caughtUp) {
		caughtUp = answered
	}
	if !caughtUp.IsZero() {
		s.LagTime = max(0, now.Sub(caughtUp))
		if healthy && (s.Replicated >= s.SourceEnd || s.NothingLeft) && now.Sub(caughtUp) <= 2*r.m.fetchWait() {
			s.LagTime = 0
		}
	}
	switch {
	case s.State == statemachine.Stopped || s.State == statemachine.Stopping:
		s.LagTime = Unknown
	case s.SourceSeen.IsZero() || c.Denied || !healthy:
		s.LagUnknown = s.SourceSeen
		if s.LagUnknown.IsZero() {
			s.LagUnknown = r.m.opened
		}
	case s.Unproved: // nothing is behind or ahead of what it was not compared with
		s.LagTime = Unknown
	case s.NothingLeft:
		s.LagOffsets = 0
	default:
		s.LagOffsets = max(0, s.SourceEnd-s.Replicated)
	}
	if s.Reason == "" && s.State == statemachine.Mirroring && s.LagOffsets != 0 {
		s.Reason = r.m.link.slowedBy(r.tp)
	}
	return s
}
