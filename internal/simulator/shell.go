package simulator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/statemachine"
)

// The shell: what mirror.Mirror does with goroutines, done by events. It runs the same cores.

// bounds of the shell's calls and its refresh.
const (
	callBound    = 5 * time.Second
	refreshEvery = 10 * time.Second
	fetchWait    = 500 * time.Millisecond
	storeWait    = 100 * time.Millisecond
	maxStoreWait = 5 * time.Second
)

var (
	errFenced     = errors.New("the log is not led by this process under this leader epoch")
	errOutOfOrder = errors.New("batch below the log's end")
	errLost       = errors.New("no answer")
	errFull       = errors.New("no space left on device")
	errCluster    = errors.New("the cluster does not answer")
	errRemote     = errors.New("what lies there is in remote storage")
)

// mirror copies a topic from one cluster to the other. Its processes run beside the destination, at most one of them has the partitions.
type mirror struct {
	w                   *world
	name                string
	source, destination *cluster
	topic               string
	member              bool // the topic was started once
	want                statemachine.Desired
	consents            []partition.Consent
	processes           []*process // that run, overtaken ones too; the last one is the newest
	number              int
	link                link
	policy              partition.Policy
	armed               []armed
}

// armed is a fault that hits the next effect of a kind.
type armed struct {
	kind partition.EffectKind
	how  failure
}

// failure is how a call goes wrong.
type failure uint8

const (
	fine      failure = iota
	before            // nothing was done
	afterward         // all was done, and an error came back
	half              // Append: a part of the batches was written
)

func (f failure) String() string { return [...]string{"fine", "before", "after", "half"}[f] }

// process is one process that runs a mirror.
type process struct {
	m       *mirror
	name    string
	number  int
	session statemachine.Session
	up      bool
	held    bool     // SIGSTOP
	backlog []func() // what waits until it goes on
	runners []*runner
	missed  int // looks at the source without the topic
}

// runner is one partition of a process.
type runner struct {
	p          *process
	m          *mirror
	w          *world
	of         model.Of
	key        statemachine.Key
	l          *partitionLog
	generation int
	core       *partition.Core
	state      statemachine.State // recorded, as the core knows it
	episode    int32
	mirrored   bool // MIRRORING was reached in this episode
	returning  bool // the source had recorded an end for this cluster
	bold       bool // the last look at the source found a log start that is none
	seen       partition.SourceView
	missed     int // looks at the source without the topic since
	fetch      *fetcher
	waiter     *waiter
	retry      uint64 // number of the timer that counts
	halted     bool
	writing    bool               // a state write has not been answered
	queue      []partition.Event  // that came in while it was at work
	effects    []partition.Effect // not begun yet
	inline     bool               // a call on the log is under way that is waited for …
	at         partition.Token    // … for this effect
	pumping    bool
	unsaid     []dropped // carried out and not told yet
	moving     int       // writes of groups under way
	quiesced   int       // how often the moving of groups was ended
}

type dropped struct{ from, to int64 }

func newMirror(w *world, name string, source, destination *cluster) *mirror {
	m := &mirror{w: w, name: name, source: source, destination: destination, topic: "orders", want: statemachine.WantStopped}
	m.policy = partition.Policy{Loss: w.cfg.Loss, StartFloor: w.cfg.Floor}
	return m
}

// begin starts the mirror's first process.
func (m *mirror) begin() { m.launch() }

// newest process, nil if none runs.
func (m *mirror) newest() *process {
	if n := len(m.processes); n > 0 {
		return m.processes[n-1]
	}
	return nil
}

// serves says whether a process leads this closed log and can answer.
func (m *mirror) serves(l *partitionLog) bool {
	for _, p := range m.processes {
		if p.up && !p.held && l.c == m.destination {
			for _, r := range p.runners {
				if r.l == l && r.generation == l.generation {
					return true
				}
			}
		}
	}
	return false
}

// launch starts a process: it fences the one before, and takes the logs.
func (m *mirror) launch() *process {
	m.number++
	p := &process{m: m, number: m.number, name: fmt.Sprintf("%s.%d", m.name, m.number), up: true}
	session, err := m.destination.store.Open(context.Background(), m.name)
	if err != nil {
		m.w.wrong(err)
		return p
	}
	p.session = session
	m.processes = append(m.processes, p)
	m.w.say("process %s begins", p.name)
	p.serve()
	m.w.after(refreshEvery, p.refresh)
	m.w.after(groupsEvery, p.syncGroups)
	return p
}

// serve makes a runner for each partition of the topic that has none.
func (p *process) serve() {
	m := p.m
	if !m.member {
		return
	}
	t := m.destination.topic(m.topic)
	if t == nil {
		p.makeTopic()
		return
	}
	for _, l := range t.logs {
		has := false
		for _, r := range p.runners {
			has = has || r.l == l
		}
		if !has {
			p.take(l)
		}
	}
}

// forget lets go of partitions whose topic is gone.
func (p *process) forget() {
	keep := p.runners[:0:0]
	for _, r := range p.runners {
		if r.l.gone {
			r.halted = true
			r.quit()
			continue
		}
		keep = append(keep, r)
	}
	p.runners = keep
}

// makeTopic creates the destination's topic once the source has told of it.
func (p *process) makeTopic() {
	m := p.m
	m.call(nil, "topics", func(error) {}, func() func() {
		t := m.source.topic(m.topic)
		return func() {
			p.guard(func() {
				if t == nil || m.destination.lost || !m.member || m.want != statemachine.WantMirroring || m.destination.topic(m.topic) != nil || m.newest() != p {
					return
				}
				m.destination.create(m.topic, int32(len(t.logs)), false)
				p.serve()
			})
		}
	})
}

// take begins to run a partition.
func (p *process) take(l *partitionLog) {
	m, w := p.m, p.m.w
	l.generation = max(l.generation, m.number) // who was overtaken takes nothing any more
	r := &runner{
		p: p, m: m, w: w, l: l, generation: p.number, of: model.Of{Mirror: m.name, At: l.at}, state: statemachine.Unknown,
		key:  statemachine.Key{Mirror: m.name, TopicID: l.t.id, Partition: l.at.Partition},
		seen: blank(),
	}
	cfg := partition.Config{
		Mirror: m.name, Topic: l.at.Topic, Partition: l.at.Partition, TopicID: l.t.id, Policy: m.policy, MaxBatch: w.cfg.MaxBatch, Recovers: w.cfg.Recovers != "no",
		Retry: statemachine.RetryPolicy{Initial: time.Second, Max: 20 * time.Second}, ReplicaWait: 3 * time.Second,
		Seed: mix(w.cfg.Seed ^ fingerprintOf(l.at) ^ uint64(m.number)<<32),
	}
	r.core = partition.New(cfg)
	p.runners = append(p.runners, r)
	if p.number == l.generation {
		w.tell(func(mo *model.World) { mo.Runs(r.of, p.name) })
	}
	w.tell(func(mo *model.World) { mo.Policy(r.of, m.policy.Loss.String(), m.policy.StartFloor) })
	w.tell(func(mo *model.World) {
		mo.Follows(r.of, model.At{Cluster: m.source.name, Topic: l.at.Topic, Partition: l.at.Partition})
	})
	w.tell(func(mo *model.World) { mo.Wished(r.of, wishes[m.want]) })
	ev := partition.Event{Kind: partition.Loaded, Record: statemachine.NewPartitionState(), Log: l.view()}
	for _, e := range m.destination.entries(l.t, l.at.Partition) {
		if e.Key == r.key {
			ev.Record, ev.LME = e.State, e.LME
		}
	}
	r.state, r.episode = ev.Record.State, ev.Record.Episode
	w.after(w.jitter(r.purpose(1), time.Millisecond, 5*time.Millisecond), func() {
		r.deliver(ev)
		r.deliver(partition.Event{Kind: partition.Tuned, Policy: m.policy})
		r.hear()
	})
}

// wishes are what is wanted, in the model's words.
var wishes = map[statemachine.Desired]model.Wish{
	statemachine.WantMirroring: model.WantMirroring, statemachine.WantPaused: model.WantPaused, statemachine.WantStopped: model.WantStopped,
}

func blank() partition.SourceView {
	return partition.SourceView{LeaderID: -1, LeaderEpoch: -1, LogStart: -1, HighWatermark: -1, LME: -1, LMO: -1}
}

func (r *runner) purpose(n uint64) uint64 { return fingerprintOf(r.l.at)*31 + n }

// guard runs what the process does, when it can.
func (p *process) guard(do func()) {
	switch {
	case !p.up:
	case p.held:
		p.backlog = append(p.backlog, do)
	default:
		do()
	}
}

// resume lets a process that was held up go on.
func (p *process) resume() {
	p.held = false
	list := p.backlog
	p.backlog = nil
	for _, do := range list {
		p.guard(do)
	}
}

// crash ends a process. Logs that it led keep what every replica had, and so many batches more.
func (p *process) crash(keep int) {
	p.up = false
	m := p.m
	for i, q := range m.processes {
		if q == p {
			m.processes = append(m.processes[:i:i], m.processes[i+1:]...)
			break
		}
	}
	for _, r := range p.runners {
		r.quit()
		l := r.l
		if l.gone || l.generation != r.generation {
			continue
		}
		if l.open {
			if m.w.cfg.Closes && !l.taken && r.state != statemachine.Unknown { // who has recorded nothing does not lead it yet
				m.w.stats.answer("gate closed by a restart", r.state)
				l.setOpen(false, model.Cluster, "")
			}
			continue
		}
		if at := l.kept(keep); at < l.end {
			m.w.stats.answer("crash loses the end", r.state)
			l.cutTo(at, model.Cluster, "")
		}
	}
}

// quit ends what a runner has under way.
func (r *runner) quit() {
	for _, d := range r.unsaid { // the sink was handed the records before they were cut
		r.w.history.dropped(r.l, d.from, d.to)
		r.w.tell(func(m *model.World) { m.Told(r.of, "dropped", d.from, d.to) })
	}
	r.unsaid = nil
	r.unfetch()
	if r.waiter != nil {
		r.waiter.over = true
	}
}

// wish tells every process what is wanted.
func (m *mirror) wish() {
	w := m.w
	for _, p := range m.processes {
		p.serve()
		for _, r := range p.runners {
			w.after(w.jitter(r.purpose(2), 0, 5*time.Millisecond), r.hear)
		}
	}
}

// hear gives a core what is wanted now.
func (r *runner) hear() {
	r.p.guard(func() {
		r.step(partition.Event{Kind: partition.Wish, Want: r.m.want, Consents: append([]partition.Consent(nil), r.m.consents...)})
	})
}

// deliver gives a core an event.
func (r *runner) deliver(ev partition.Event) {
	r.p.guard(func() { r.step(ev) })
}

// step takes an event. Effects are begun in their order; while a call that changes or reads the log is under way nothing else of the partition happens, as in the goroutine of
// mirror's runner. Everything else runs beside.
func (r *runner) step(ev partition.Event) {
	r.queue = append(r.queue, ev)
	r.pump()
}

func (r *runner) pump() {
	if r.pumping {
		return
	}
	r.pumping = true
	for !r.inline && !r.halted {
		if len(r.effects) > 0 {
			e := r.effects[0]
			r.effects = r.effects[1:]
			r.do(e)
		} else if len(r.queue) > 0 {
			ev := r.queue[0]
			r.queue = r.queue[1:]
			r.handle(ev)
		} else {
			break
		}
	}
	r.pumping = false
}

func (r *runner) handle(ev partition.Event) {
	w := r.w
	w.stats.cover(r.state, ev.Kind)
	if w.record {
		w.say("%s %v < %s", r.p.name, r.l.at, eventText(&ev))
	}
	switch ev.Kind {
	case partition.Persisted:
		r.writing = ev.Err != nil // then it is written again
	case partition.Wish, partition.Recover: // a person did something
		w.tell(func(m *model.World) { m.Wished(r.of, wishes[r.m.want]) })
	case partition.Tuned:
		if r.m.newest() == r.p {
			w.tell(func(m *model.World) { m.Policy(r.of, ev.Policy.Loss.String(), ev.Policy.StartFloor) })
		}
	}
	if f := &ev.Fetch; ev.Kind == partition.Fetched && f.Code == partition.FetchOK && r.m.newest() == r.p {
		end, base := int64(0), int64(-1)
		if r.fetch != nil && ev.Token == r.fetch.token && !r.writing && r.state == statemachine.Mirroring && len(f.Records) == 0 && !f.Crowded && f.HighWatermark > f.Offset && ev.Token != r.fetch.unproven {
			end = f.HighWatermark
		}
		for h, whole := range batch.All(f.Records) { // there are records after all
			if batch.Check(whole, &h) != nil {
				break
			}
			if h.LastOffset() >= f.Offset {
				base = h.BaseOffset
				break
			}
		}
		if r.fetch != nil && ev.Token == r.fetch.remote && !r.writing && r.state == statemachine.Mirroring && base < 0 { // what comes while a stop is recorded is dropped
			end, base = f.HighWatermark, -2
		}
		w.tell(func(m *model.World) { m.Fetched(r.of, f.Offset, end, base) })
	}
	if r.fetch != nil && ev.Kind == partition.Fetched && ev.Token == r.fetch.token {
		r.fetch.asked = false
	}
	out := r.core.Step(w.time(), ev)
	if ev.Kind == partition.Persisted && ev.Err == nil {
		st := r.core.Status()
		r.moved(st.Record)
	}
	for i := range out {
		if w.record {
			w.say("%s %v   > %s", r.p.name, r.l.at, effectText(&out[i]))
		}
		r.effects = append(r.effects, out[i])
	}
}

// moved notes a state that was reached.
func (r *runner) moved(rec statemachine.PartitionState) {
	if rec.State == r.state {
		return
	}
	was := r.state
	r.state = rec.State
	if rec.Episode != r.episode {
		r.episode, r.mirrored = rec.Episode, false
	}
	s := &r.w.stats
	switch {
	case rec.State == statemachine.Mirroring && was == statemachine.Preparing:
		s.Preparings++
		if r.returning {
			s.Failbacks++
		}
		r.mirrored = true
	case rec.State == statemachine.Mirroring:
		r.mirrored = true
	case rec.State == statemachine.Stopped:
		s.Stoppings++
		if r.l.end > r.l.start {
			s.Failovers++
		}
	}
}

// do carries out one effect.
func (r *runner) do(e partition.Effect) {
	w := r.w
	switch e.Kind {
	case partition.Persist:
		r.persist(e, 0)
	case partition.CheckSource:
		r.checkSource(e)
	case partition.AskEpoch:
		r.askEpoch(e)
	case partition.AddFetcher:
		r.unfetch()
		r.fetch = &fetcher{r: r, broker: r.seen.LeaderID, id: r.seen.TopicID, start: -1, high: -1, left: -1, alive: true}
		r.fetch.want(e)
	case partition.Continue:
		if r.fetch != nil {
			r.fetch.want(e)
		}
	case partition.RemoveFetcher:
		r.unfetch()
	case partition.ScheduleRetry:
		r.retry++
		n, token := r.retry, e.Token
		w.after(e.Bound, func() {
			if n == r.retry {
				r.deliver(partition.Event{Kind: partition.RetryDue, Token: token})
			}
		})
	case partition.ConsentUsed:
		r.m.useConsents(r)
	case partition.Emit:
		r.note(e.Note)
	case partition.Halt:
		r.halt()
	default:
		r.call(e)
	}
}

// halt ends the partition here.
func (r *runner) halt() {
	r.halted = true
	r.quit()
	if r.m.newest() == r.p {
		r.w.tell(func(m *model.World) { m.Halted(r.of, r.p.name) })
	}
	r.w.stats.answer("halted", r.state)
}

// note passes on what the core tells.
func (r *runner) note(n partition.Note) {
	r.w.history.told(r, &n)
	switch n.Kind {
	case partition.RecordsDropped:
		r.unsaid = nil
		r.w.tell(func(m *model.World) { m.Told(r.of, "dropped", n.Truncated.From, n.Truncated.To) })
	case partition.RecordsLost:
		r.w.tell(func(m *model.World) { m.Told(r.of, "lost", n.RangeFrom, n.RangeTo) })
		if r.m.policy.Loss == partition.LossKeep {
			r.w.tell(func(m *model.World) { m.Told(r.of, "hole", n.RangeFrom, n.RangeTo) })
		}
	}
}

// useConsents takes the consents of a partition out of what is wanted.
func (m *mirror) useConsents(r *runner) {
	m.w.after(m.w.jitter(r.purpose(3), 0, 5*time.Millisecond), func() {
		keep := m.consents[:0:0]
		for _, k := range m.consents {
			if k.TopicID != r.key.TopicID || k.Partition != r.key.Partition {
				keep = append(keep, k)
			}
		}
		if len(keep) != len(m.consents) {
			m.consents = keep
			m.wish()
		}
	})
}

// takeFault says how this effect is to go wrong.
func (r *runner) takeFault(kind partition.EffectKind) failure {
	for i, a := range r.m.armed {
		if a.kind == kind {
			if kind != partition.Append && a.how == half {
				a.how = afterward
			}
			r.m.armed = append(r.m.armed[:i:i], r.m.armed[i+1:]...)
			r.w.stats.fault(fmt.Sprintf("%v fails %v", kind, a.how), r.state)
			return a.how
		}
	}
	return fine
}

// calls are what changes a log, in the model's words.
var calls = map[partition.EffectKind]string{
	partition.Append: "append", partition.Truncate: "cut", partition.Reset: "restart", partition.RaiseStart: "start", partition.RaiseEpoch: "epoch", partition.OpenLog: "open", partition.CloseForWrites: "close",
}

// call makes a call on the destination: an event that does it, and one that answers.
func (r *runner) call(e partition.Effect) {
	w := r.w
	how := r.takeFault(e.Kind)
	if name, ok := calls[e.Kind]; ok && r.generation == r.l.generation {
		offset := e.Offset
		if h, _, err := batch.Next(e.Bytes); err == nil {
			offset = h.BaseOffset
		}
		w.tell(func(m *model.World) { m.Began(r.of, name, offset) })
	}
	switch e.Kind {
	case partition.Append, partition.Truncate, partition.Reset, partition.RaiseStart, partition.Rebuild:
		r.inline, r.at = true, e.Token
	}
	w.after(r.l.slow+w.jitter(r.purpose(uint64(e.Kind)+10), 100*time.Microsecond, 2*time.Millisecond), func() {
		r.p.guard(func() { r.perform(e, how) })
	})
}

// answer gives the core the answer to a call.
func (r *runner) answer(ev partition.Event) {
	w := r.w
	w.after(w.jitter(r.purpose(4), 100*time.Microsecond, 2*time.Millisecond), func() {
		r.p.guard(func() {
			if r.inline && ev.Token == r.at {
				r.inline = false
			}
			r.step(ev)
		})
	})
}

// perform carries out a call on the log, or beside it.
func (r *runner) perform(e partition.Effect, how failure) {
	l := r.l
	ev := partition.Event{Kind: partition.Done, Token: e.Token}
	switch {
	case how == before:
		ev.Err = errLost
	case l.gone:
		ev.Err = errors.New("unknown topic or partition")
	case l.c.lost:
		ev.Err = errCluster
	case e.Kind == partition.QuiesceGroups:
		r.quiesce(e, how)
		return
	case e.Kind == partition.AwaitReplicated || e.Kind == partition.AwaitTruncated:
		r.wait(e)
		return
	default:
		r.change(&e, how, &ev)
	}
	if how == afterward && ev.Err == nil {
		ev.Err = errLost
	}
	if ev.Err == nil {
		ev.Log = l.view()
		if e.Kind == partition.AskOwner && l.generation != r.generation {
			ev.Log.Owner = partition.OwnerForeign
		}
	}
	r.answer(ev)
}

// wait answers when the replicas have come as far, or when the bound has passed.
func (r *runner) wait(e partition.Effect) {
	l, w := r.l, r.w
	if r.waiter != nil {
		if e.Token.Sequence < r.waiter.sequence { // a slow call that nobody waits for any more
			return
		}
		r.waiter.over = true
	}
	wt := &waiter{sequence: e.Token.Sequence, ready: func() bool { return l.gone || l.copied() }}
	if e.Kind == partition.AwaitReplicated {
		wt.ready = func() bool { return l.gone || l.high >= e.Offset }
	}
	end := func(err error) {
		ev := partition.Event{Kind: partition.Done, Token: e.Token, Err: err, Log: l.view()}
		if err == nil && l.generation != r.generation {
			ev.Err = errFenced
		}
		r.deliver(ev)
	}
	wt.done = func() { end(nil) }
	r.waiter = wt
	if wt.ready() {
		wt.over = true
		w.after(time.Millisecond, wt.done)
		return
	}
	l.waiters = append(l.waiters, wt)
	if e.Bound > 0 {
		w.after(e.Bound, func() {
			if !wt.over {
				wt.over = true
				end(context.DeadlineExceeded)
			}
		})
	}
}

// change does what changes the log, or reads it.
func (r *runner) change(e *partition.Effect, how failure, ev *partition.Event) {
	l, w := r.l, r.w
	by := r.p.name
	switch e.Kind {
	case partition.Append, partition.Truncate, partition.Reset, partition.RaiseStart, partition.RaiseEpoch, partition.OpenLog, partition.CloseForWrites:
		if l.generation != r.generation {
			ev.Err, ev.Fenced = errFenced, true
			w.stats.answer("overtaken process fenced", r.state)
			return
		}
	}
	switch e.Kind {
	case partition.Truncate, partition.Reset, partition.RaiseStart:
		if l.open || l.foreign {
			ev.Err, ev.Fenced = errFenced, true
			return
		}
	}
	if src := r.m.source.log(l.at.Topic, l.at.Partition); (e.Kind == partition.Reset || e.Kind == partition.RaiseStart) && src != nil && e.Offset > src.start { // the source has said so more than once
		w.history.unlike(l)
	}
	switch e.Kind {
	case partition.AskOwner:
	case partition.Append:
		ev.Err = r.append(e, how)
		ev.Fenced = errors.Is(ev.Err, errFenced)
		if how == half && ev.Err == nil {
			ev.Err = errLost
		}
	case partition.Truncate:
		if e.Unconfirmed && l.high > e.Offset {
			ev.Err = errors.New("replicas have confirmed more meanwhile")
			return
		}
		if l.local > l.start && e.Offset < l.local {
			ev.Err, ev.NonRetryable = errRemote, true
			return
		}
		r.dropping(l.from(e.Offset))
		l.cutTo(e.Offset, model.Mirror, by)
		l.soon()
	case partition.Reset:
		if l.local > l.start {
			ev.Err, ev.NonRetryable = errRemote, true
			return
		}
		r.dropping(l.batches)
		l.restart(e.Offset, model.Mirror, by)
		l.soon()
	case partition.RaiseStart:
		l.raiseStart(e.Offset, model.Mirror, by)
	case partition.RaiseEpoch:
		l.raiseEpoch(max(e.Epoch, l.top), model.Mirror, by) // whoever is asked to raise it remembers what it was
	case partition.OpenLog:
		if !l.open {
			l.raiseEpoch(l.epoch+w.cfg.Bumps, model.Cluster, "")
			w.history.opens(l, r)
			l.setOpen(true, model.Mirror, by)
			l.noLeader = false
			l.replay()
		}
	case partition.CloseForWrites:
		if l.open {
			l.raiseEpoch(l.epoch+w.cfg.Bumps, model.Cluster, "")
			l.setOpen(false, model.Mirror, by)
			l.soon()
		}
	case partition.ClampGroups:
		r.clamp(e.Offset)
	case partition.SettleProducerIDs:
		l.c.nextID = max(l.c.nextID, e.Offset+1)
		w.tell(func(m *model.World) { m.Settled(l.c.name, e.Offset) })
	case partition.AskRecovered:
		ev.Recovered = r.recovered()
	case partition.Rebuild:
		r.rebuild(e, how, ev)
	default:
		w.wrong(fmt.Errorf("unknown effect %v", e.Kind))
	}
}

// dropping notes what is about to be dropped, until it is told.
func (r *runner) dropping(list []held) {
	if len(list) > 0 {
		r.unsaid = append(r.unsaid, dropped{list[0].h.BaseOffset, list[len(list)-1].next()})
	}
}

func (r *runner) append(e *partition.Effect, how failure) error {
	l, w := r.l, r.w
	if e.Epoch != l.epoch || l.open || l.foreign {
		return fmt.Errorf("%w: epoch %d, the log's is %d, open %v", errFenced, e.Epoch, l.epoch, l.open)
	}
	if l.full {
		if !l.refused {
			l.refused = true
			w.stats.fault("log full", r.state)
		}
		return errFull
	}
	list := heldFrom(e.Bytes)
	var err error
	next := l.end
	for i := range list {
		if h := &list[i].h; h.BaseOffset < next && !(i == 0 && l.start == l.end && h.LastOffset() >= l.start) {
			list, err = list[:i], fmt.Errorf("%w: %d < %d", errOutOfOrder, h.BaseOffset, next)
			break
		}
		next = list[i].next()
	}
	if how == half {
		list = list[:(len(list)+1)/2]
	}
	if len(list) > 0 {
		l.add(list)
		if end := r.core.Status().LME; r.state == statemachine.Stopping && end != nil && end.Episode == r.episode && list[0].h.BaseOffset >= end.Offset {
			w.history.marked(l, list[0].h.BaseOffset)
		}
		w.tell(func(m *model.World) { m.Appended(l.at, model.Mirror, r.p.name, facts(list), true) })
		l.soon()
		l.wake()
	}
	return err
}

// rebuild feeds the log to the core.
func (r *runner) rebuild(e *partition.Effect, how failure, ev *partition.Event) {
	pieces := int(r.w.cfg.Piece)
	if e.First {
		pieces = 2
	}
	for i, b := range r.l.from(e.Offset) {
		if pieces > 0 && i == pieces {
			ev.More = true
			break
		}
		if how != fine && i == 1 {
			break
		}
		r.w.stats.cover(r.state, partition.Replayed)
		if out := r.core.Step(r.w.time(), partition.Event{Kind: partition.Replayed, Token: e.Token, Bytes: b.bytes}); len(out) > 0 {
			r.w.wrong(errors.New("an event Replayed made effects"))
		}
	}
}

// recovered is what the log says of its batches without their being read: all that is true, or less.
func (r *runner) recovered() partition.Recovered {
	l := r.l
	k := partition.Recovered{From: l.end, HighestProducerID: -1}
	open := map[int64]int64{} // where each begins; only the least of them counts, so their order does not
	for i := range l.batches {
		h := &l.batches[i].h
		first, isOpen := open[h.ProducerID]
		switch {
		case h.Control() && isOpen:
			delete(open, h.ProducerID)
			if l.batches[i].next() > l.high {
				k.From = min(k.From, first)
			}
		case !h.Control() && h.Transactional() && !isOpen:
			open[h.ProducerID] = h.BaseOffset
		}
	}
	for _, first := range open {
		k.From = min(k.From, first)
	}
	k.From = max(k.From, l.start)
	switch r.w.cfg.Recovers {
	case "less":
		k.From = l.start + (k.From-l.start)/2
	case "nothing":
		k.From = l.start
	}
	for i := range l.batches {
		if h := &l.batches[i].h; h.BaseOffset < k.From {
			k.HighestProducerID = max(k.HighestProducerID, h.ProducerID)
			if n := len(k.Epochs); n == 0 || k.Epochs[n-1].Epoch != h.LeaderEpoch {
				k.Epochs = append(k.Epochs, epochEntry(h, l.start))
			}
		}
	}
	return k
}
