package mirror

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/partition"
)

// link is everything that fetches: for each source broker one (or FetchersPerBroker) brokerLink, each with its own Fetcher, hence its own connection and fetch session.
type link struct {
	m *Mirror

	allowance allowance

	mu        sync.Mutex
	brokers   map[brokerKey]*brokerLink
	wants     map[TopicPartition]*want
	throttled time.Duration // sum of the pauses that the source has asked for
	heldBack  time.Duration // sum of the times that our own limits held the fetches of one broker back
	rng       *rand.Rand
	lose      func(tp TopicPartition, again bool) bool // for tests: true loses what the core asked for
}

type brokerKey struct {
	broker int32
	n      int
}

// want is one partition that is to be fetched.
type want struct {
	r        *runner
	on       *brokerLink
	token    partition.Token
	at       FetchPosition
	state    wantState
	failing  bool // the last answer was an error
	timer    *time.Timer
	since    time.Time // of the state
	answered time.Time // when a reply last named it
	silence  partition.Silence
	hold     *hold // while busy: the reply whose bytes it works on
	sent     bool  // its position is in the session, not only to be put there
	end      int64 // the source's high watermark in its last answer, Unknown
}

// hold is one reply in memory: its bytes are one buffer, which lives until the last of its partitions has passed its part on.
type hold struct {
	bytes int64
	left  int // partitions still at work
}

type wantState uint8

const (
	wantWaiting wantState = iota // backing off
	wantReady                    // in the fetch session
	wantBusy                     // its answer is being worked on
)

// brokerLink is one Fetcher and the goroutine that drives it.
type brokerLink struct {
	l    *link
	key  brokerKey
	wake chan struct{} // capacity 1

	// Under link.mu.
	changed  []TopicPartition // to Want or Forget before the next fetch
	ready    int
	busy     int
	held     int64 // bytes of replies that are still worked on
	lastOK   time.Time
	began    time.Time // when the request began that was answered at lastOK
	beforeOK time.Time // the answer before that
	trouble  bool
	err      error     // of the last fetch, nil if it was answered
	notUntil time.Time // no new connection before
	renew    bool      // the connection is to be opened anew
	failures int
	slowed   slowed
}

func newLink(m *Mirror) *link {
	l := &link{m: m, brokers: map[brokerKey]*brokerLink{}, wants: map[TopicPartition]*want{}, rng: rand.New(rand.NewPCG(m.cfg.Seed, 0x6c696e6b))}
	l.allowance.set(m.cfg.FetchRate, time.Now())
	return l
}

// reconnect ends the pauses of broken connections: the source answers again.
func (l *link) reconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.brokers {
		b.notUntil = time.Time{}
		b.poke()
	}
}

// renew has every connection opened anew, with the bounds that hold now.
func (l *link) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.brokers {
		b.renew = true
		b.poke()
	}
}

// laggardBound is how long a fetcher waits for the partitions of one reply before it goes on without those that are not done (F-75).
const laggardBound = 20 * time.Millisecond

// want carries out AddFetcher and Continue.
func (l *link) want(r *runner, e partition.Effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.wants[r.tp]
	if l.lose != nil && l.lose(r.tp, e.Kind == partition.Continue) {
		return
	}
	if e.Kind == partition.AddFetcher {
		if w != nil {
			l.drop(w)
		}
		r.seenMu.Lock()
		leader, id := r.seen.LeaderID, r.seen.TopicID
		r.seenMu.Unlock()
		w = &want{r: r, on: l.broker(leader, r.tp), state: wantWaiting, end: Unknown}
		w.at = FetchPosition{TopicPartition: r.tp, TopicID: id, LeaderEpoch: e.Epoch}
		l.wants[r.tp] = w
	} else if w == nil {
		return // removed meanwhile; the core knows
	}
	w.token = e.Token
	w.at.Offset, w.at.LastEpoch, w.at.LogStart = e.Offset, e.LastEpoch, r.log.Start()
	l.set(w, wantWaiting)
	if e.Bound <= 0 {
		l.makeReady(w)
		return
	}
	token := e.Token
	w.timer = time.AfterFunc(e.Bound, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.wants[r.tp] == w && w.token == token && w.state == wantWaiting {
			l.makeReady(w)
		}
	})
}

func (l *link) set(w *want, s wantState) {
	switch w.state {
	case wantReady:
		w.on.ready--
	case wantBusy:
		w.on.busy--
		if h := w.hold; h != nil {
			w.hold = nil
			if h.left--; h.left == 0 {
				w.on.held -= h.bytes
				w.on.poke()
			}
		}
	}
	switch s {
	case wantReady:
		w.on.ready++
	case wantBusy:
		w.on.busy++
	}
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	w.state, w.since = s, time.Now()
}

func (l *link) makeReady(w *want) {
	l.set(w, wantReady)
	w.sent = false
	w.on.changed = append(w.on.changed, w.r.tp)
	w.on.poke()
}

func (b *brokerLink) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// remove carries out RemoveFetcher.
func (l *link) remove(tp TopicPartition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.wants[tp]; w != nil {
		l.drop(w)
	}
}

// noteInStep remembers when a partition held everything that was known, before that changes: while nothing changes no reply names it. Under mu.
func (l *link) noteInStep(w *want, when time.Time) {
	if w.state == wantReady && w.sent && !w.failing && w.end >= 0 && w.r.log.Replicated() >= w.end {
		w.r.noteCaughtUp(when)
	}
}

func (l *link) drop(w *want) {
	at := l.answeredAt(w)
	w.r.noteAnswered(at)
	l.noteInStep(w, at)
	l.set(w, wantWaiting)
	delete(l.wants, w.r.tp)
	w.on.changed = append(w.on.changed, w.r.tp)
	w.on.poke()
}

// broker returns the brokerLink for a partition led by that broker, starting it if need be.
func (l *link) broker(id int32, tp TopicPartition) *brokerLink {
	n := 0
	if l.m.cfg.FetchersPerBroker > 1 {
		h := fnv.New32a()
		fmt.Fprintf(h, "%s/%d", tp.Topic, tp.Partition)
		n = int(h.Sum32() % uint32(l.m.cfg.FetchersPerBroker))
	}
	key := brokerKey{id, n}
	b := l.brokers[key]
	if b == nil {
		b = &brokerLink{l: l, key: key, wake: make(chan struct{}, 1)}
		l.brokers[key] = b
		l.m.spawn(b.run)
	}
	if !b.used() { // partitions come back to it, so what was wrong with it is old news
		b.failures, b.notUntil = 0, time.Time{}
	}
	return b
}

// healthy says whether a partition is being fetched without trouble, and when its broker last answered.
func (l *link) healthy(tp TopicPartition) (bool, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.wants[tp]
	if w == nil || w.failing || w.on.trouble {
		return false, time.Time{}
	}
	at := l.answeredAt(w)
	return !at.IsZero() && time.Since(at) < l.m.fetchWait()+l.m.cfg.CallBound, at
}

// answeredAt is when the source last said anything about this partition: a reply that names it, or one to a request in which it stood. What the broker says of others
// while this one is at work or backing off says nothing of it. Under mu.
func (l *link) answeredAt(w *want) time.Time {
	if w.state == wantReady && w.sent && !w.since.After(w.on.began) {
		return w.on.lastOK
	}
	return w.answered
}

// anyHealthy says that some partition is being fetched without trouble.
func (l *link) anyHealthy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.wants {
		if !w.failing && !w.on.trouble && !w.on.lastOK.IsZero() {
			return true
		}
	}
	return false
}

// troubled is why no broker answers, "" while any does.
func (l *link) troubled() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	reason := ""
	for _, b := range l.brokers {
		if !b.used() {
			continue
		}
		if b.err == nil {
			return ""
		}
		reason = max(reason, b.err.Error())
	}
	return reason
}

// stuck says that a partition that should be fetched has no fetcher, or one that has not come back from its last answer for that long (F-74).
func (l *link) stuck(tp TopicPartition, after time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.wants[tp]
	return w == nil || w.state == wantBusy && time.Since(w.since) > after
}

// idleLimit is how long a fetcher without partitions keeps its connection.
const idleLimit = time.Minute

func (b *brokerLink) run() {
	b.l.m.cfg.SharedRate.enter()
	defer b.l.m.cfg.SharedRate.leave()
	var f Fetcher
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	ctx := b.l.m.ctx
	inSession := map[TopicPartition]bool{}
	hasty := 0 // replies in a row that came at once and without records for anybody
	for {
		if ctx.Err() != nil {
			return
		}
		// What changed since the last fetch.
		b.l.mu.Lock()
		changed, renew := b.changed, b.renew
		b.changed, b.renew = nil, false
		positions := make([]FetchPosition, 0, len(changed))
		for _, tp := range changed {
			w := b.l.wants[tp]
			if w != nil && w.on == b && w.state == wantReady {
				w.sent = true
				positions = append(positions, w.at)
				continue
			}
			positions = append(positions, FetchPosition{TopicPartition: tp, Offset: Unknown})
		}
		ready, wait := b.ready, time.Until(b.notUntil)
		if ready == 0 && len(changed) == 0 && b.busy == 0 && len(inSession) == 0 && !b.used() {
			// Nothing for this broker: wait, and give the connection up after a while.
			b.l.mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-b.wake:
			case <-time.After(idleLimit):
				b.l.mu.Lock()
				if !b.used() && len(b.changed) == 0 {
					delete(b.l.brokers, b.key)
					b.l.mu.Unlock()
					return
				}
				b.l.mu.Unlock()
			}
			continue
		}
		b.l.mu.Unlock()

		if renew && f != nil {
			f.Close()
			f = nil
			clear(inSession)
		}
		for _, at := range positions {
			if at.Offset == Unknown {
				delete(inSession, at.TopicPartition)
				if f != nil {
					f.Forget(at.TopicPartition)
				}
				continue
			}
			inSession[at.TopicPartition] = true
			if f != nil {
				f.Want(at)
			}
		}
		if ready == 0 {
			select {
			case <-ctx.Done():
			case <-b.wake:
			}
			continue
		}
		if f == nil {
			if wait > 0 {
				select {
				case <-ctx.Done():
				case <-time.After(wait):
				case <-b.wake:
				}
				continue
			}
			var err error
			if f, err = b.open(ctx); err != nil {
				f = nil
				b.failed(err)
				continue
			}
			b.l.mu.Lock()
			for tp, w := range b.l.wants {
				if w.on == b && w.state == wantReady {
					w.sent = true
					f.Want(w.at)
					inSession[tp] = true
				}
			}
			b.l.mu.Unlock()
		}

		if !b.awaitRoom(ctx) || !b.awaitAllowance(ctx) {
			continue
		}
		b.limitReply(f)
		callCtx, stop := context.WithTimeout(ctx, b.l.m.fetchWait()+b.l.m.cfg.CallBound)
		began := time.Now()
		reply, err := f.Fetch(callCtx)
		stop()
		if ctx.Err() != nil {
			return
		}
		b.l.m.fetches.fetched(time.Since(began), reply, err)
		b.received(f, reply)
		if errors.Is(err, ErrNoAnswer) {
			if hasty++; time.Since(began) > b.l.m.fetchWait()/2 {
				hasty = 0
			}
			b.restIfHasty(ctx, hasty)
			continue
		}
		if err != nil {
			f.Close()
			f = nil
			clear(inSession)
			b.failed(err)
			continue
		}
		b.answered(began, reply)
		any, records := b.dispatch(reply)
		if !carriesRecords(reply) {
			b.nothingFor()
		}
		if hasty++; records || time.Since(began) > b.l.m.fetchWait()/2 {
			hasty = 0
		}
		if any {
			b.awaitLaggards(ctx)
			// Who is still at work leaves the session until it comes back, so that its old position is not fetched again.
			b.l.mu.Lock()
			for i := range reply {
				tp := reply[i].TopicPartition
				if w := b.l.wants[tp]; w == nil || w.on != b || w.state != wantReady {
					f.Forget(tp)
					delete(inSession, tp)
				}
			}
			b.l.mu.Unlock()
		}
		b.restIfHasty(ctx, hasty)
	}
}

// hastyLimit is how many replies in a row may come at once and without records for anybody before the next fetch waits: some are normal, when partitions come in or
// ends move.
const hastyLimit = 10

// restIfHasty waits when the source neither sends records nor waits for any: it would keep us asking without a pause.
func (b *brokerLink) restIfHasty(ctx context.Context, hasty int) {
	if hasty > hastyLimit {
		b.l.m.pause(ctx, b.l.m.fetchWait())
	}
}

func carriesRecords(reply []FetchedPartition) bool {
	for i := range reply {
		if len(reply[i].Records) > 0 {
			return true
		}
	}
	return false
}

// nothingFor tells the partitions that a reply without any records leaves out what follows from that (partition.Silence, F-05).
func (b *brokerLink) nothingFor() {
	type silent struct {
		w     *want
		token partition.Token
		fetch partition.Fetch
	}
	var answers []silent
	b.l.mu.Lock()
	for _, w := range b.l.wants {
		if w.on != b || w.state != wantReady || !w.sent || w.since.After(b.began) {
			continue
		}
		answer, proven := w.silence.LeftOut(w.at.Offset, w.at.LeaderEpoch, w.end)
		if !proven {
			continue
		}
		b.l.set(w, wantBusy)
		w.failing = false
		b.changed = append(b.changed, w.r.tp)
		answers = append(answers, silent{w, w.token, answer})
	}
	b.l.mu.Unlock()
	for _, a := range answers {
		a.w.r.send(partition.Event{Kind: partition.Fetched, Token: a.token, Fetch: a.fetch})
	}
}

// used says whether any partition belongs here. Under link.mu.
func (b *brokerLink) used() bool {
	for _, w := range b.l.wants {
		if w.on == b {
			return true
		}
	}
	return false
}

func (b *brokerLink) open(ctx context.Context) (Fetcher, error) {
	ctx, stop := context.WithTimeout(ctx, b.l.m.cfg.CallBound)
	defer stop()
	if b.key.broker < 0 {
		return nil, &SourceError{Code: SourceNotLeader, Operation: "fetch", Err: errors.New("no leader at the source")}
	}
	// A new connection may lead elsewhere: nothing is fetched before it is known where (F-33).
	d := &b.l.m.desk
	if err := d.pausing(); err != nil {
		return nil, err
	}
	if _, _, _, err := d.clusters(ctx); err != nil {
		return nil, err
	}
	return b.l.m.cfg.Source.OpenFetcher(ctx, b.key.broker, b.l.m.tunedNow().fetch)
}

// failed answers every partition of this broker with the connection's error. The connection is not opened again before its own back-off.
func (b *brokerLink) failed(err error) {
	b.l.mu.Lock()
	b.notUntil = time.Now().Add(b.pause(err))
	first := !b.trouble
	b.trouble, b.err = true, err
	var hit []*want
	for _, w := range b.l.wants {
		if w.on == b && w.state == wantReady {
			at := b.l.answeredAt(w)
			w.r.noteAnswered(at)
			b.l.noteInStep(w, at)
			b.l.set(w, wantBusy)
			w.failing = true
			hit = append(hit, w)
		}
	}
	b.l.mu.Unlock()
	if first {
		b.l.m.emit(SourceTrouble{EventMeta: b.l.m.meta(TopicPartition{Partition: Unknown}), Broker: b.key.broker, Err: err})
	}
	var elsewhere *ClusterChangedError
	for _, w := range hit {
		if errors.As(err, &elsewhere) {
			w.r.send(partition.Event{Kind: partition.FailPartition, Err: err, NonRetryable: true, Source: SourceView{Permanent: true}})
			continue
		}
		b.l.mu.Lock()
		token, at := w.token, w.at
		b.l.mu.Unlock()
		w.r.send(partition.Event{Kind: partition.Fetched, Token: token, Fetch: partition.Fetch{
			Code: fetchCode(err), Err: err, Offset: at.Offset, LeaderEpoch: at.LeaderEpoch, HighWatermark: Unknown, LastStable: Unknown, LogStart: Unknown,
			LeaderID: Unknown, CurrentEpoch: Unknown,
		}})
	}
}

// pause is how long a broken connection is left alone: 1, 2, 4 … 64 times FetchBackoff, ±20 %; up to 256 times when the broker accepts connections and does not
// answer, because each such try costs three requests and a long wait. Under link.mu.
func (b *brokerLink) pause(err error) time.Duration {
	shift := min(b.failures, 6)
	if errors.Is(err, context.DeadlineExceeded) {
		shift = min(2*b.failures, 8)
	}
	b.failures = min(b.failures+1, 8)
	return time.Duration(float64(b.l.m.cfg.FetchBackoff<<shift) * (0.8 + 0.4*b.l.rng.Float64()))
}

// answered notes that the request that began then was answered, and at once for whom with an error: nobody may look in between and take it for good news.
func (b *brokerLink) answered(began time.Time, reply []FetchedPartition) {
	b.l.mu.Lock()
	for i := range reply {
		if w := b.l.wants[reply[i].TopicPartition]; w != nil && w.on == b && reply[i].Err != nil {
			w.failing = true
		}
	}
	b.beforeOK, b.lastOK, b.began = b.lastOK, time.Now(), began
	again := b.trouble
	b.trouble, b.err, b.failures = false, nil, 0
	b.notUntil = time.Time{}
	b.l.mu.Unlock()
	if again {
		b.l.m.emit(SourceTrouble{EventMeta: b.l.m.meta(TopicPartition{Partition: Unknown}), Broker: b.key.broker})
	}
}

// dispatch hands each partition of a reply to its runner. any: somebody wanted one; records: one with records.
func (b *brokerLink) dispatch(reply []FetchedPartition) (any, records bool) {
	full := 0
	h := &hold{}
	for i := range reply {
		if n := len(reply[i].Records); n > 0 {
			full++
			h.bytes += int64(n)
		}
	}
	for i := range reply {
		p := &reply[i]
		if len(p.Records) == 0 {
			p.Records = nil // an empty slice would keep the whole reply's buffer alive for as long as this partition is idle
		}
		b.l.mu.Lock()
		w := b.l.wants[p.TopicPartition]
		if w == nil || w.on != b || w.state != wantReady || w.at.Offset != p.Offset || w.at.LeaderEpoch != p.LeaderEpoch {
			b.l.mu.Unlock()
			continue // an answer to an old question
		}
		b.l.noteInStep(w, b.beforeOK)
		b.l.set(w, wantBusy)
		w.failing = p.Err != nil
		if p.Err == nil {
			w.answered = b.lastOK
		}
		if len(p.Records) > 0 {
			w.hold = h
			if h.left++; h.left == 1 {
				b.held += h.bytes
			}
		}
		f := partition.Fetch{
			Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, HighWatermark: p.HighWatermark, LastStable: p.LastStable, LogStart: p.LogStart,
			LeaderID: Unknown, CurrentEpoch: Unknown, Records: p.Records, Crowded: full > 0 && len(p.Records) == 0,
		}
		if len(p.Records) > 0 {
			if _, n, err := batch.Next(p.Records); errors.Is(err, batch.ErrCut) && n > 0 {
				f.CutBatch = int32(min(n, 1<<30))
				w.at.MaxBytes = max(w.at.MaxBytes, f.CutBatch)
			}
		}
		if p.Err == nil {
			w.end = p.HighWatermark
		}
		token := w.token
		b.l.mu.Unlock()
		any, records = true, records || len(p.Records) > 0
		if p.CurrentLeader != nil {
			f.LeaderID, f.CurrentEpoch = p.CurrentLeader.Leader, p.CurrentLeader.LeaderEpoch
		}
		if p.Err != nil {
			f.Err, f.Code = p.Err, fetchCode(p.Err)
		}
		if p.Diverging != nil {
			f.Code, f.DivergingEpoch, f.DivergingEnd = partition.FetchDiverging, p.Diverging.Epoch, p.Diverging.End
		}
		w.r.send(partition.Event{Kind: partition.Fetched, Token: token, Fetch: f})
	}
	return any, records
}

// awaitRoom keeps memory bounded whatever the number of slow logs: a fetcher holds at most one reply's limit of bytes that are still worked on, besides the reply
// that it is receiving. False: what is wanted has changed meanwhile.
func (b *brokerLink) awaitRoom(ctx context.Context) bool {
	limit := int64(b.l.m.tunedNow().fetch.MaxBytes)
	if limit <= 0 {
		limit = defaultReplyBytes
	}
	for waited := false; ; waited = true {
		b.l.mu.Lock()
		held := b.held
		b.l.mu.Unlock()
		if held <= limit {
			return !waited
		}
		select {
		case <-ctx.Done():
			return false
		case <-b.wake:
		}
	}
}

// defaultReplyBytes is FetchOptions.MaxBytes when it is not set.
const defaultReplyBytes = 10 << 20

// awaitLaggards waits until no partition of this broker is at work, but not longer than laggardBound.
func (b *brokerLink) awaitLaggards(ctx context.Context) {
	var bound <-chan time.Time
	for {
		b.l.mu.Lock()
		busy := b.busy
		b.l.mu.Unlock()
		if busy == 0 {
			return
		}
		if bound == nil {
			t := time.NewTimer(laggardBound)
			defer t.Stop()
			bound = t.C
		}
		select {
		case <-ctx.Done():
			return
		case <-bound:
			return
		case <-b.wake:
		}
	}
}

// fetchCode is what a source's error means to the core.
func fetchCode(err error) partition.FetchCode {
	var s *SourceError
	if !errors.As(err, &s) {
		return partition.FetchRetry
	}
	switch s.Code {
	case SourceDenied:
		return partition.FetchDenied
	case SourceAuthentication:
		return partition.FetchRefused
	case SourceNotLeader:
		return partition.FetchNotLeader
	case SourceFencedEpoch:
		return partition.FetchFencedEpoch
	case SourceOffsetRange:
		return partition.FetchOffsetOutOfRange
	case SourceTopicIDChanged:
		return partition.FetchTopicID
	case SourceUnsupported:
		return partition.FetchUnsupported
	}
	return partition.FetchRetry
}
