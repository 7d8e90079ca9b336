package simulator

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/statemachine"
)

// An op is one line of a script: a verb, then whom it is about, then words of the form name or name=value. Every op is total: one that finds nothing to do does nothing.

// words are an op's.
type words struct {
	verb string
	args []string          // in order, without name=value
	set  map[string]string // looked up only
}

func parseWords(line string) words {
	w := words{set: map[string]string{}}
	for i, f := range strings.Fields(line) {
		name, value, ok := strings.Cut(f, "=")
		switch {
		case i == 0:
			w.verb = f
		case ok:
			w.set[name] = value
		default:
			w.args = append(w.args, f)
		}
	}
	return w
}

func (o *words) arg(i int) string {
	if i < len(o.args) {
		return o.args[i]
	}
	return ""
}

func (o *words) has(word string) bool {
	for _, a := range o.args {
		if a == word {
			return true
		}
	}
	return false
}

func (o *words) number(name string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(o.set[name], 10, 64); err == nil {
		return n
	}
	return otherwise
}

func (o *words) duration(name string) time.Duration {
	d, err := time.ParseDuration(o.set[name])
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// verb is how an op is carried out. It says what is wrong with the line's words, not with the world.
type verb func(w *world, o *words) error

// verbs are all ops, in order of name. Each says in its comment what it does.
var verbs = []struct {
	name string
	do   verb
}{
	{"abort", opEnd},                 // abort T1 [most=1]: the transaction is aborted, in so many of its partitions
	{"begin", opBegin},               // begin A T1 [v2]
	{"catch-up", onLog(opCatchUp)},   // catch-up A orders-0: every follower follows, and is in sync
	{"commit", opEnd},                // commit T1 [most=1]
	{"compact", onLog(opCompact)},    // compact A orders-0
	{"consent", onMirror(opConsent)}, // consent b-to-a 0: to exactly what the partition needs [from=1 to=5 episode=2]: to something else
	{"crash", onMirror(opCrash)},     // crash a-to-b [keep=1] [short=2] [back]: all processes, logs keep so many batches that were not replicated; short, back: runner.lose
	{"delete-topic", opDeleteTopic},  // delete-topic A orders
	{"doubt", onMirror(opDoubt)},     // doubt a-to-b 0 [for-good]: the watchdog thinks that it does not work; for-good: the source's address leads elsewhere
	{"elect", onLog(opElect)},        // elect A orders-0 [unclean] [stale=2s], or former: who led before the last unclean election leads again
	{"fault", onMirror(opFault)},     // fault a-to-b Append before|after|half
	{"fence", onLog(opFence)},        // fence B orders-0 [by=2]: somebody raises the leader epoch
	{"forget", opForget},             // forget B g1: the cluster forgets where the group is
	{"full", onLog(opFull)},          // full B orders-0
	{"group", onLog(opGroup)},        // group A orders-0 name=g1 [to=12] [latest]: consumers of a group have read up to there; latest: and commit the leader epoch that they know, not that of what they read
	{"groups", opGroups},             // groups B slow [by=2s]|hang [n=1]: what mirrors write of groups takes so long, or so many writes never end
	{"hold", onMirror(opHold)},       // hold a-to-b: the newest process stands still
	{"join", opMembers},              // join B g1: the group has members there
	{"lag", onLog(opLag)},            // lag A orders-0 [n=1]: followers do not follow
	{"launch", onMirror(opLaunch)},   // launch a-to-b: a process, if there is none
	{"lead", onLog(opLead)},          // lead A orders-0 none|again
	{"leave", opMembers},             // leave B g1
	{"lose", opLose},                 // lose A: the cluster does not answer
	{"network", onMirror(opNetwork)}, // network a-to-b cut|heal|black-hole, or delay|duplicate|reorder|past|corrupt|cut-reply|crowded|left-out|undefined|late-end|late-mark|bold-start with n= or by=
	{"offload", onLog(opOffload)},    // offload B orders-0 [to=5]: into remote storage
	{"pause", onMirror(opPause)},
	{"poll", onLog(opPoll)},          // poll A orders-0 by=g1 [n=3]: a consumer reads, at most so many batches; its name says how (consumers.go)
	{"produce", onLog(opProduce)},    // produce A orders-0 [n=3] [by=P1]
	{"recover", onMirror(opRecover)}, // recover a-to-b 0
	{"recreate", opRecreate},         // recreate A orders
	{"resume", onMirror(opResume)},   // resume a-to-b: processes that stand still go on
	{"return", opReturn},             // return A
	{"room", onLog(opRoom)},          // room B orders-0
	{"run", opRun},                   // run 5s
	{"send", opSend},                 // send T1 orders-0 [n=2]
	{"shorten", onLog(opShorten)},    // shorten B orders-0: a copy loses what is not replicated
	{"shrink", onLog(opShrink)},      // shrink A orders-0: followers that do not follow leave those in sync
	{"slow", onLog(opSlow)},          // slow B orders-0 by=50ms
	{"start", onMirror(opStart)},
	{"step", opStep}, // step 3: so many events
	{"stop", onMirror(opStop)},
	{"store", opStore},                  // store B before|after|loads|refuse [n=2], slow [by=50ms]
	{"take", onLog(opTake)},             // take B orders-0: somebody leads and opens a copy
	{"take-over", onMirror(opTakeOver)}, // take-over a-to-b: a new process, whatever the old one does
	{"trim", onLog(opTrim)},             // trim A orders-0 to=12
	{"tune", onMirror(opTune)},          // tune a-to-b [loss=keep] [floor=3]
	{"unmake", onMirror(opUnmake)},      // unmake a-to-b: the mirror is deleted, its last mirror epochs stay
	{"until", onMirror(opUntil)},        // until a-to-b MIRRORING [0] [by=20s]
}

// apply carries out one op.
func (w *world) apply(line string) error {
	o := parseWords(line)
	for i := range verbs {
		if verbs[i].name == o.verb {
			w.say("--- %s", line)
			w.stats.Ops++
			err := verbs[i].do(w, &o)
			w.compare()
			w.show()
			return err
		}
	}
	return fmt.Errorf("unknown op %q", o.verb)
}

// onLog finds the log: CLUSTER TOPIC-PARTITION.
func onLog(do func(*world, *partitionLog, *words)) verb {
	return func(w *world, o *words) error {
		c := w.cluster(o.arg(0))
		i := strings.LastIndexByte(o.arg(1), '-')
		if c == nil || i < 0 {
			return errors.New("cluster and topic-partition are wanted")
		}
		p, err := strconv.ParseInt(o.arg(1)[i+1:], 10, 32)
		if err != nil {
			return err
		}
		if l := c.log(o.arg(1)[:i], int32(p)); l != nil {
			do(w, l, o)
		}
		return nil
	}
}

func onMirror(do func(*world, *mirror, *words)) verb {
	return func(w *world, o *words) error {
		m := w.mirror(o.arg(0))
		if m == nil {
			return errors.New("a mirror is wanted")
		}
		do(w, m, o)
		return nil
	}
}

func opRun(w *world, o *words) error {
	d, err := time.ParseDuration(o.arg(0))
	if err != nil {
		return err
	}
	w.run(min(d, time.Hour))
	return nil
}

func opStep(w *world, o *words) error {
	n, err := strconv.Atoi(o.arg(0))
	if err != nil {
		return err
	}
	for range min(n, 10000) {
		if !w.step(w.now + time.Hour) {
			break
		}
	}
	return nil
}

// Clients.

func opProduce(w *world, l *partitionLog, o *words) {
	n := int(min(max(o.number("n", 1), 1), 100))
	var p *producer
	if name := o.set["by"]; name != "" {
		if l.c.lost || !l.open {
			return
		}
		p = w.register(name, l.c)
		if p.open || p.ended {
			return
		}
	}
	w.produce(l, p, n, false)
}

func opBegin(w *world, o *words) error {
	c := w.cluster(o.arg(0))
	if c == nil || o.arg(1) == "" {
		return errors.New("cluster and transaction are wanted")
	}
	if !c.lost {
		w.begin(o.arg(1), c, o.has("v2"))
	}
	return nil
}

func opSend(w *world, o *words) error {
	topic, p, ok := strings.Cut(o.arg(1), "-")
	n, err := strconv.ParseInt(p, 10, 32)
	if !ok || err != nil {
		return errors.New("transaction and topic-partition are wanted")
	}
	w.send(o.arg(0), int32(n), topic, int(min(max(o.number("n", 1), 1), 100)))
	return nil
}

func opEnd(w *world, o *words) error {
	w.end(o.arg(0), o.verb == "commit", int(o.number("most", -1)))
	return nil
}

// Clusters.

func opElect(w *world, l *partitionLog, o *words) {
	if l.c.lost || !l.open {
		return
	}
	if w.unseen(o) {
		return
	}
	if o.has("former") {
		if l.restore() {
			w.onCopies(l, "former leader leads again")
		}
		return
	}
	unclean := o.has("unclean")
	before := l.end
	if l.elect(unclean, min(o.duration("stale"), time.Minute)) {
		name := "clean election"
		if unclean {
			name = "unclean election"
		}
		w.onCopies(l, name)
		if states := w.copies(l); l.end < before && unclean && len(states) > 0 {
			w.stats.answer("records lost by an unclean election", states[0])
		}
	}
}

// unseen says that no mirror could see what this election does: where a source answers no epoch questions, an unclean one; where it names no epochs, that a broker leads again with other records.
func (w *world) unseen(o *words) bool {
	return w.cfg.NoEpochs && (o.has("unclean") || o.has("former")) || w.cfg.Blind && o.has("former")
}

// onCopies counts a fault of a log for the partitions that copy it, or that it is a copy of.
func (w *world) onCopies(l *partitionLog, name string) { w.stats.fault(name, w.copies(l)...) }

// copies are the states of the partitions that copy a log, or that it is a copy of.
func (w *world) copies(l *partitionLog) (states []statemachine.State) {
	w.each(func(r *runner) {
		if r.l == l || r.m.source == l.c && r.l.at.Topic == l.at.Topic && r.l.at.Partition == l.at.Partition {
			states = append(states, r.state)
		}
	})
	return states
}

// states of the partitions that a process has and nobody took from it.
func (p *process) states() (states []statemachine.State) {
	for _, r := range p.runners {
		if r.generation == r.l.generation && !r.l.gone {
			states = append(states, r.state)
		}
	}
	return states
}

func opLag(w *world, l *partitionLog, o *words) {
	n := o.number("n", 1)
	before := n
	for i := range l.replicas {
		if r := &l.replicas[i]; i != l.leader && !r.stuck && n > 0 {
			r.stuck = true
			n--
		}
	}
	if n < before {
		w.onCopies(l, "follower lags")
	}
}

func opShrink(w *world, l *partitionLog, o *words) {
	shrinks := false
	for i := range l.replicas {
		if r := &l.replicas[i]; i != l.leader && r.stuck && r.inSync {
			r.inSync, shrinks = false, true
		}
	}
	if shrinks {
		w.onCopies(l, "in sync shrinks")
	}
	l.advance()
}

func opCatchUp(w *world, l *partitionLog, o *words) {
	for i := range l.replicas {
		l.replicas[i].stuck = false
	}
	l.follow()
	for i := range l.replicas {
		l.replicas[i].inSync = true
	}
}

func opLead(w *world, l *partitionLog, o *words) {
	none := o.has("none")
	if none && !l.noLeader && l.open {
		w.onCopies(l, "no leader")
		l.noLeader = true
		return
	}
	if !none {
		l.noLeader = false
		l.wake()
	}
}

func opTrim(w *world, l *partitionLog, o *words) {
	if to := min(o.number("to", 0), l.high); to > l.start && l.open && !l.c.lost {
		l.raiseStart(to, model.Cluster, "")
		w.onCopies(l, "log start raised")
	}
}

func opCompact(w *world, l *partitionLog, o *words) {
	if l.open && !l.c.lost && l.compact() {
		w.onCopies(l, "compaction")
	}
}

func opFence(w *world, l *partitionLog, o *words) {
	if !l.open && !l.c.lost {
		l.raiseEpoch(max(l.epoch, l.top)+int32(min(max(o.number("by", 1), 1), 10)), model.Cluster, "")
		w.onCopies(l, "leader epoch raised by somebody")
	}
}

func opFull(w *world, l *partitionLog, o *words) { l.refused, l.full = l.refused && l.full, true }
func opRoom(w *world, l *partitionLog, o *words) { l.full = false }

func opSlow(w *world, l *partitionLog, o *words) {
	was := l.slow
	if l.slow = min(o.duration("by"), callBound); l.slow > 0 && was == 0 {
		w.onCopies(l, "slow log")
	}
}

func opDeleteTopic(w *world, o *words) error {
	c := w.cluster(o.arg(0))
	if c == nil {
		return errors.New("a cluster is wanted")
	}
	t := c.topic(o.arg(1))
	if t == nil || c.lost || !c.mayDelete(t) {
		return nil
	}
	for _, l := range t.logs {
		w.onCopies(l, "topic deleted")
	}
	c.delete(t)
	for _, m := range w.mirrors {
		for _, p := range m.processes {
			p.forget()
		}
	}
	return nil
}

// mayDelete is spec §1.11: a topic that is mirrored is not deleted before it is stopped.
func (c *cluster) mayDelete(t *topic) bool {
	for _, l := range t.logs {
		for _, e := range c.entries(t, l.at.Partition) {
			if e.State.State != statemachine.Stopped {
				return false
			}
		}
		if !l.open {
			return false
		}
	}
	return true
}

func opRecreate(w *world, o *words) error {
	c := w.cluster(o.arg(0))
	if c == nil || o.arg(1) == "" {
		return errors.New("cluster and topic are wanted")
	}
	if !c.lost && c.topic(o.arg(1)) == nil {
		c.create(o.arg(1), w.cfg.Partitions, true)
	}
	return nil
}

func opLose(w *world, o *words) error {
	c := w.cluster(o.arg(0))
	if c == nil {
		return errors.New("a cluster is wanted")
	}
	w.lose(c, true)
	return nil
}

func opReturn(w *world, o *words) error {
	c := w.cluster(o.arg(0))
	if c == nil {
		return errors.New("a cluster is wanted")
	}
	w.lose(c, false)
	return nil
}

// lose lets a cluster answer no more, or again.
func (w *world) lose(c *cluster, lost bool) {
	if c.lost == lost {
		return
	}
	c.lost = lost
	if !lost {
		return
	}
	for _, m := range w.mirrors {
		if m.source != c {
			continue
		}
		if p := m.newest(); p != nil && m.link.mode == linkUp {
			w.stats.fault("source lost", p.states()...)
		}
		m.drop()
	}
}

func opStore(w *world, o *words) error {
	c := w.cluster(o.arg(0))
	if c == nil {
		return errors.New("a cluster is wanted")
	}
	n := int(min(o.number("n", 1), 20))
	switch {
	case o.has("before"):
		c.storeFail.before = n
	case o.has("after"):
		c.storeFail.after = n
	case o.has("refuse"):
		c.storeFail.refused = n
	case o.has("loads"):
		c.storeFail.loads = n
	case o.has("slow"):
		c.storeFail.slow = min(o.duration("by"), callBound)
	}
	return nil
}

// Processes.

func opCrash(w *world, m *mirror, o *words) {
	for len(m.processes) > 0 {
		p := m.processes[0]
		w.stats.fault("process crash", p.states()...)
		p.crash(int(o.number("keep", 0)))
		for _, r := range p.runners {
			if !r.l.gone && r.l.generation == r.generation && (o.has("back") || o.number("short", 0) > 0) {
				r.lose(int(o.number("short", 0)), o.has("back"))
			}
		}
	}
}

func opLaunch(w *world, m *mirror, o *words) {
	if len(m.processes) == 0 && !m.destination.lost {
		m.launch()
	}
}

func opTakeOver(w *world, m *mirror, o *words) {
	if m.destination.lost || len(m.processes) > 3 {
		return
	}
	if p := m.newest(); p != nil {
		w.stats.fault("take-over", p.states()...)
	}
	m.launch()
}

func opHold(w *world, m *mirror, o *words) {
	if p := m.newest(); p != nil && !p.held {
		p.held = true
		w.stats.fault("process held up", p.states()...)
	}
}

func opResume(w *world, m *mirror, o *words) {
	for _, p := range append([]*process(nil), m.processes...) {
		if p.held {
			p.resume()
		}
	}
}

func opFault(w *world, m *mirror, o *words) {
	how := fine
	switch {
	case o.has("before"):
		how = before
	case o.has("after"):
		how = afterward
	case o.has("half"):
		how = half
	default:
		return
	}
	for k := partition.Persist; k <= partition.Halt; k++ {
		if k.String() == o.arg(1) && k != partition.Persist && k != partition.AwaitReplicated && len(m.armed) < 10 {
			m.armed = append(m.armed, armed{k, how})
		}
	}
}

func opNetwork(w *world, m *mirror, o *words) {
	k := &m.link
	n := int(min(o.number("n", 1), 20))
	switch o.arg(1) {
	case "cut":
		k.set(m, linkCut)
	case "black-hole":
		k.set(m, linkBlackHole)
	case "heal":
		*k = link{}
	case "delay":
		k.delay, k.hit = min(o.duration("by"), callBound), nil
	case "duplicate":
		k.duplicate = n
	case "reorder":
		k.reorder = n
	case "past":
		k.past = n
	case "corrupt":
		k.corrupt = n
	case "cut-reply":
		k.cut = n
	case "crowded":
		k.crowded = n
	case "left-out":
		k.leftOut = n
	case "undefined":
		k.undefined = n
	case "late-end":
		k.lateEnd = n
	case "late-mark":
		k.lateMark = n
	case "bold-start":
		k.boldStart = n
	}
}

// Operators.

// wanted notes what an operator wants.
func (m *mirror) wanted(want statemachine.Desired) {
	m.want = want
	if t := m.destination.topic(m.topic); t != nil {
		for _, l := range t.logs {
			m.w.tell(func(mo *model.World) { mo.Wished(model.Of{Mirror: m.name, At: l.at}, wishes[want]) })
		}
	}
	m.wish()
}

func opStart(w *world, m *mirror, o *words) {
	m.member = true
	m.wanted(statemachine.WantMirroring)
}

func opPause(w *world, m *mirror, o *words) {
	if m.member && m.want == statemachine.WantMirroring {
		m.wanted(statemachine.WantPaused)
	}
}

func opStop(w *world, m *mirror, o *words) {
	if m.member {
		m.wanted(statemachine.WantStopped)
	}
}

// runner of a partition in the newest process, nil if there is none.
func (m *mirror) runner(p string) *runner {
	n, err := strconv.ParseInt(p, 10, 32)
	if q := m.newest(); q != nil && err == nil {
		for _, r := range q.runners {
			if r.l.at.Partition == int32(n) && !r.l.gone {
				return r
			}
		}
	}
	return nil
}

func opConsent(w *world, m *mirror, o *words) {
	r := m.runner(o.arg(1))
	if r == nil {
		return
	}
	need := r.core.Status().Needs
	k := partition.Consent{TopicID: r.key.TopicID, Partition: r.key.Partition}
	if _, given := o.set["from"]; given {
		k.From, k.To, k.Episode = o.number("from", 0), o.number("to", 0), int32(o.number("episode", int64(r.episode)))
	} else if need != nil {
		k = *need
	} else {
		return
	}
	w.tell(func(mo *model.World) { mo.Consented(r.of, k.From, k.To, k.Episode) })
	m.consents = append(append([]partition.Consent(nil), m.consents...), k)
	m.wish()
}

func opRecover(w *world, m *mirror, o *words) {
	if r := m.runner(o.arg(1)); r != nil {
		w.after(time.Millisecond, func() { r.deliver(partition.Event{Kind: partition.Recover}) })
	}
}

func opDoubt(w *world, m *mirror, o *words) {
	if r := m.runner(o.arg(1)); r != nil {
		if r.state != statemachine.Paused { // which is not watched
			w.stats.fault("watchdog", r.state)
		}
		w.after(time.Millisecond, func() {
			ev := partition.Event{Kind: partition.FailPartition, Err: errors.New("no progress while the source is ahead")}
			if o.has("for-good") {
				ev.NonRetryable, ev.Source.Permanent, ev.Err = true, true, errors.New("the source's address leads to another cluster")
			}
			r.deliver(ev)
		})
	}
}

func opTune(w *world, m *mirror, o *words) {
	if s, ok := o.set["loss"]; ok {
		if loss, err := parseLoss(s); err == nil {
			m.policy.Loss = loss
		}
	}
	m.policy.StartFloor = o.number("floor", m.policy.StartFloor)
	for _, p := range m.processes {
		for _, r := range p.runners {
			policy := m.policy
			w.after(time.Millisecond, func() { r.deliver(partition.Event{Kind: partition.Tuned, Policy: policy}) })
		}
	}
}
