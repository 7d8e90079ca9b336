package simulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// link is the network between a mirror and its source. A request and its answer are two events: what is answered may be old when it arrives.
type link struct {
	mode      linkMode
	delay     time.Duration
	duplicate int       // answers that come twice
	past      int       // answers that are held back for seconds
	reorder   int       // answers whose way takes longer than that of later ones
	corrupt   int       // fetch replies with a damaged byte
	cut       int       // fetch replies that end inside a batch
	crowded   int       // fetch replies that are left empty for want of room
	leftOut   int       // replies of a fetch session that leave the partition out although there is something for it
	undefined int       // answers to epoch questions that say nothing
	lateEnd   int       // answers to epoch questions whose end of the current epoch is late
	lateMark  int       // fetch replies whose high watermark was noted before their batches were read
	boldStart int       // looks at a source that names a log start far too high; the next look is right
	hit       []*runner // whose calls it has met as it is now: each is counted once
}

// counts says whether a fault that lasts meets this partition for the first time.
func (l *link) counts(r *runner) bool {
	if r == nil || slices.Contains(l.hit, r) {
		return false
	}
	l.hit = append(l.hit, r)
	return true
}

type linkMode uint8

const (
	linkUp linkMode = iota
	linkCut
	linkBlackHole
)

// call asks the source. at is done there and gives what is done with the answer; nil: there is no answer yet. failed is done when there is none.
func (m *mirror) call(r *runner, what string, failed func(error), at func() func()) {
	w := m.w
	if r != nil {
		if r.generation == r.l.generation { // what an overtaken process asks harms nobody
			w.tell(func(mo *model.World) { mo.Asked(r.of, what) })
		}
	}
	if m.link.mode != linkUp || m.source.lost {
		m.unanswered(r, failed)
		return
	}
	purpose := fingerprint([]byte(m.name + what))
	w.after(m.link.delay+w.jitter(purpose, 200*time.Microsecond, 4*time.Millisecond), func() {
		if m.link.mode != linkUp || m.source.lost {
			m.unanswered(r, failed)
			return
		}
		if answer := at(); answer != nil {
			m.back(r, purpose, failed, answer)
		}
	})
}

// unanswered lets a call fail: soon where the connection breaks, after its bound where nobody answers.
func (m *mirror) unanswered(r *runner, failed func(error)) {
	if m.link.mode != linkUp && m.link.counts(r) {
		m.w.stats.fault(map[linkMode]string{linkCut: "link cut", linkBlackHole: "black hole"}[m.link.mode], r.state)
	}
	if m.link.mode == linkCut {
		m.w.after(m.w.jitter(7, time.Millisecond, 30*time.Millisecond), func() { failed(errLost) })
		return
	}
	m.w.after(callBound, func() { failed(context.DeadlineExceeded) })
}

// back brings an answer home.
func (m *mirror) back(r *runner, purpose uint64, failed func(error), answer func()) {
	w := m.w
	count := func(name string) { // what is asked for no partition is not counted
		if r != nil {
			w.stats.fault(name, r.state)
		}
	}
	late := m.link.delay + w.jitter(purpose+1, 200*time.Microsecond, 4*time.Millisecond)
	if m.link.delay > 0 && m.link.counts(r) {
		count("delay")
	}
	if m.link.past > 0 {
		m.link.past--
		count("answer from the past")
		late += w.jitter(purpose+2, 300*time.Millisecond, callBound)
	}
	if m.link.reorder > 0 {
		m.link.reorder--
		count("reordered")
		late += w.jitter(purpose+3, 5*time.Millisecond, 60*time.Millisecond)
	}
	arrive := func() {
		if m.link.mode != linkUp {
			m.unanswered(r, failed)
			return
		}
		answer()
	}
	if m.link.duplicate > 0 {
		m.link.duplicate--
		count("duplicate")
		w.after(late+w.jitter(purpose+4, time.Millisecond, 2*time.Second), arrive)
	}
	w.after(late, arrive)
}

// set changes the network, and breaks what is under way on it.
func (l *link) set(m *mirror, mode linkMode) {
	l.mode, l.hit = mode, nil
	if mode == linkUp {
		return
	}
	m.drop()
}

// drop breaks the fetches that wait at the source.
func (m *mirror) drop() {
	for _, p := range m.processes {
		for _, r := range p.runners {
			if f := r.fetch; f != nil && f.parkedAt != nil {
				f.unpark()
				m.unanswered(r, f.failed)
			}
		}
	}
}

// checkSource looks at the source: metadata, then ends, then what it recorded, each at its own moment.
func (r *runner) checkSource(e partition.Effect) {
	m := r.m
	how := r.takeFault(e.Kind)
	failed := func(err error) {
		r.deliver(partition.Event{Kind: partition.SourceSeen, Token: e.Token, Source: blank(), Err: err})
	}
	if how == before {
		m.w.after(time.Millisecond, func() { failed(errLost) })
		return
	}
	v := blank()
	told := func(err error) {
		if how != fine {
			err = errLost
		}
		if err == nil {
			r.seen, r.missed = v, 0
		}
		r.deliver(partition.Event{Kind: partition.SourceSeen, Token: e.Token, Source: v, Err: err})
	}
	m.call(r, "metadata", failed, func() func() {
		if err := m.metadata(r, &v); err != nil {
			return func() { told(err) }
		}
		m.w.after(m.w.jitter(r.purpose(5), 100*time.Microsecond, 3*time.Millisecond), func() {
			err := m.offsets(r, &v)
			if l := m.source.log(r.l.at.Topic, r.l.at.Partition); e.Local && l != nil {
				v.LocalStart = l.local
			}
			if err == nil && !e.Prepare && !e.Local {
				m.bold(r, &v)
			}
			if err == nil {
				r.tell(func(mo *model.World) { mo.Looked(r.of, v.LeaderEpoch, v.LogStart) })
			}
			if err == nil && e.Prepare {
				m.recorded(r, &v)
			}
			m.back(r, r.purpose(6), failed, func() { told(err) })
		})
		return nil
	})
}

// metadata is who leads the partition; old metadata names a leader that was deposed.
func (m *mirror) metadata(r *runner, v *partition.SourceView) error {
	v.ClusterID = m.source.name
	t := m.source.topic(r.l.at.Topic)
	if t == nil || int(r.l.at.Partition) >= len(t.logs) {
		return errors.New("the topic is missing at the source")
	}
	l := t.logs[r.l.at.Partition]
	v.TopicID = t.id
	v.LeaderID, v.LeaderEpoch = l.leaderID(), l.epoch
	if old, ok := l.stale(); ok && m.w.draw(r.purpose(7))%2 == 0 {
		m.w.stats.answer("old metadata", r.state)
		v.LeaderID, v.LeaderEpoch = old.broker, old.epoch
	}
	if m.w.cfg.Blind {
		v.LeaderEpoch = -1
	}
	r.tell(func(mo *model.World) { mo.Named(r.of, v.LeaderEpoch) })
	return nil
}

// offsets are the ends, as the leader named in v says them.
func (m *mirror) offsets(r *runner, v *partition.SourceView) error {
	l := m.source.log(r.l.at.Topic, r.l.at.Partition)
	if l == nil || l.t.id != v.TopicID {
		return errors.New("the topic is missing at the source")
	}
	if v.LeaderID < 0 {
		m.w.stats.answer("no leader", r.state)
		return nil // the core says what is to be done
	}
	b, ok := l.as(v.LeaderID)
	if !ok || b.epoch != v.LeaderEpoch && !m.w.cfg.Blind {
		m.w.stats.answer("not the leader", r.state)
		return errors.New("NOT_LEADER_OR_FOLLOWER")
	}
	v.LogStart, v.HighWatermark = b.start, b.high
	return nil
}

// bold lets a look at the source find a log start above the copy's end, as a leader may name one that has just begun to lead (F-26). Of two looks one is right. A copy that has lost its end beside its mirror ends
// where the mirror knows it to end: one look is enough to follow the source's log start up to there (decision 16).
func (m *mirror) bold(r *runner, v *partition.SourceView) {
	if l := m.source.log(r.l.at.Topic, r.l.at.Partition); l != nil && l.leaderID() != v.LeaderID { // of one that was deposed, which may not count
		return
	}
	end := max(r.l.end, r.core.Log().End)
	if m.link.boldStart == 0 || r.bold || v.HighWatermark <= end || v.LogStart > end { // of a loss that is one the second look may say more
		r.bold = false
		return
	}
	m.link.boldStart--
	r.bold = true
	m.w.stats.fault("log start taken back", r.state)
	v.LogStart = v.HighWatermark
}

// tell tells the model what this process was told, as long as nobody overtook it.
func (r *runner) tell(fact func(*model.World)) {
	if r.generation == r.l.generation {
		r.w.tell(fact)
	}
}

// recorded is what the source recorded for our cluster (spec decision 2), and why the partition must not be started now (spec §3, decision 14).
func (m *mirror) recorded(r *runner, v *partition.SourceView) {
	own := m.destination.name
	t := m.source.topic(r.l.at.Topic)
	if t == nil {
		return
	}
	for _, e := range m.source.entries(t, r.l.at.Partition) {
		if e.LME != nil && e.LME.SourceClusterID == own && partition.IsAbout(*e.LME, r.key.TopicID) && (e.LME.Epoch > v.LME || e.LME.Epoch == v.LME && e.LME.Offset > v.LMO) {
			v.LME, v.LMO = e.LME.Epoch, e.LME.Offset
		}
		switch {
		case e.State.State == statemachine.Stopped:
		case e.State.SourceClusterID == "" && e.State.State == statemachine.Preparing:
			v.Refused = fmt.Sprintf("mirror %s at the source starts just now, and it is not known yet from where; it is looked at again", e.Key.Mirror)
		case e.State.SourceClusterID == own:
			v.Refused = fmt.Sprintf("detected mirror loop for mirror: %s: it is %v there; stop that mirror first", e.Key.Mirror, e.State.State)
		}
	}
	r.returning = v.LME >= 0
}

// askEpoch asks where a leader epoch ends.
func (r *runner) askEpoch(e partition.Effect) {
	m := r.m
	how := r.takeFault(e.Kind)
	tell := func(epoch int32, end int64, err error) {
		ev := partition.Event{Kind: partition.EpochAnswer, Token: e.Token, AnswerEpoch: epoch, AnswerEnd: end, Err: err}
		ev.Source.NoEpochs = m.w.cfg.NoEpochs
		r.deliver(ev)
	}
	failed := func(err error) { tell(-1, -1, err) }
	if how != fine {
		m.w.after(time.Millisecond, func() { failed(errLost) })
		return
	}
	broker, under := r.seen.LeaderID, e.Under
	m.call(r, "end of epoch", failed, func() func() {
		if m.w.cfg.NoEpochs {
			return func() { failed(errors.New("not supported")) }
		}
		l := m.source.log(r.l.at.Topic, r.l.at.Partition)
		if l == nil {
			return func() { failed(errors.New("UNKNOWN_TOPIC_OR_PARTITION")) }
		}
		b, ok := l.as(broker)
		switch {
		case !ok:
			m.w.stats.answer("not the leader", r.state)
			return func() { failed(errors.New("NOT_LEADER_OR_FOLLOWER")) }
		case under >= 0 && under < b.epoch && !m.w.cfg.Unfenced:
			m.w.stats.answer("fenced epoch", r.state)
			return func() { failed(errors.New("FENCED_LEADER_EPOCH")) }
		case under > b.epoch:
			return func() { failed(errors.New("UNKNOWN_LEADER_EPOCH")) }
		}
		epoch, end := logtrunc.NewCache(b.cache...).EndOffsetFor(e.Epoch, b.end)
		epoch, end = m.lie(r, &b, epoch, end)
		r.tell(func(mo *model.World) { mo.Answered(r.of, epoch, end) })
		return func() { tell(epoch, end, nil) }
	})
}

// lie lets an answer to an epoch question be none (F-40), or late: the end of the epoch that is being written as the leader had it a while ago (F-41).
func (m *mirror) lie(r *runner, b *believed, epoch int32, end int64) (int32, int64) {
	k := &m.link
	if k.undefined > 0 {
		k.undefined--
		m.w.stats.fault("epoch unknown", r.state)
		return -1, -1
	}
	if n := len(b.cache); k.lateEnd > 0 && n > 0 && epoch == b.epoch && b.cache[n-1].Epoch == epoch {
		k.lateEnd--
		m.w.stats.fault("late end of an epoch", r.state)
		end = max(b.cache[n-1].Start, end-3)
	}
	return epoch, end
}

// fetcher is what fetches one partition. One request is under way at a time.
type fetcher struct {
	r           *runner
	broker      int32
	id          statemachine.TopicID
	alive       bool
	asked       bool // a reply is awaited
	token       partition.Token
	offset      int64
	under, last int32
	parkedAt    *partitionLog // where it waits for something new
	start, high int64         // as last told
	silence     partition.Silence
	quiet       int             // replies in a row that left the partition out at this offset
	left        int64           // the offset at which one did although there was something, −1 none
	remote      partition.Token // the request whose records are read from remote storage
	unproven    partition.Token // the request whose empty reply proves nothing, whatever is made of it
}

// want asks for the next reply.
func (f *fetcher) want(e partition.Effect) {
	f.unpark()
	if e.Offset != f.offset {
		f.quiet = 0
	}
	f.token, f.offset, f.last, f.asked = e.Token, e.Offset, e.LastEpoch, true
	f.under = e.Epoch
	how := f.r.takeFault(e.Kind)
	token := e.Token
	f.r.w.after(e.Bound, func() {
		if !f.alive || f.token != token {
			return
		}
		f.r.p.guard(func() {
			if how != fine {
				f.failed(errLost)
				return
			}
			f.r.m.call(f.r, "fetch", f.failedFor(token), func() func() { return f.at(token) })
		})
	})
}

func (r *runner) unfetch() {
	if r.fetch != nil {
		r.fetch.alive = false
		r.fetch.unpark()
		r.fetch = nil
	}
}

func (f *fetcher) unpark() {
	if f.parkedAt == nil {
		return
	}
	l := f.parkedAt
	f.parkedAt = nil
	for i, g := range l.parked {
		if g == f {
			l.parked = append(l.parked[:i:i], l.parked[i+1:]...)
			break
		}
	}
}

func (f *fetcher) failed(err error) { f.failedFor(f.token)(err) }

func (f *fetcher) failedFor(token partition.Token) func(error) {
	offset, under := f.offset, f.under
	return func(err error) {
		f.r.deliver(partition.Event{Kind: partition.Fetched, Token: token, Fetch: partition.Fetch{
			Code: partition.FetchRetry, Err: err, Offset: offset, LeaderEpoch: under, HighWatermark: -1, LastStable: -1, LogStart: -1, LeaderID: -1, CurrentEpoch: -1,
		}})
	}
}

// wake looks again at what a waiting fetch waits for.
func (f *fetcher) wake() {
	if !f.alive {
		return
	}
	token := f.token
	f.parkedAt = nil
	m := f.r.m
	m.w.after(0, func() {
		if !f.alive || f.token != token || f.parkedAt != nil {
			return
		}
		if m.link.mode != linkUp || m.source.lost {
			m.unanswered(f.r, f.failedFor(token))
			return
		}
		if answer := f.at(token); answer != nil {
			m.back(f.r, f.r.purpose(8), f.failedFor(token), answer)
		}
	})
}

// at is the fetch as a broker answers it; nil: it waits for something new.
func (f *fetcher) at(token partition.Token) func() {
	if !f.alive || f.token != token {
		return nil
	}
	r, m := f.r, f.r.m
	w := m.w
	reply := partition.Fetch{Offset: f.offset, LeaderEpoch: f.under, HighWatermark: -1, LastStable: -1, LogStart: -1, LeaderID: -1, CurrentEpoch: -1}
	refuse := func(code partition.FetchCode, words string) func() {
		reply.Code, reply.Err = code, errors.New(words)
		return func() { f.deliver(token, reply) }
	}
	l := m.source.log(r.l.at.Topic, r.l.at.Partition)
	if l == nil {
		w.stats.answer("topic missing", r.state)
		return refuse(partition.FetchRetry, "UNKNOWN_TOPIC_OR_PARTITION")
	}
	if l.t.id != f.id {
		w.stats.answer("topic id", r.state)
		return refuse(partition.FetchTopicID, "UNKNOWN_TOPIC_ID")
	}
	b, ok := l.as(f.broker)
	if !ok {
		w.stats.answer("not the leader", r.state)
		if w.draw(r.purpose(9))%2 == 0 && l.leaderID() >= 0 {
			reply.LeaderID, reply.CurrentEpoch = l.leaderID(), l.epoch
			r.tell(func(mo *model.World) { mo.Named(r.of, l.epoch) })
		}
		return refuse(partition.FetchNotLeader, "NOT_LEADER_OR_FOLLOWER")
	}
	if b.until > 0 {
		w.stats.answer("deposed leader answers", r.state)
	}
	switch {
	case f.under >= 0 && f.under < b.epoch && !w.cfg.Unfenced:
		w.stats.answer("fenced epoch", r.state)
		r.tell(func(mo *model.World) { mo.Named(r.of, b.epoch) })
		reply.LeaderID, reply.CurrentEpoch = b.broker, b.epoch
		return refuse(partition.FetchFencedEpoch, "FENCED_LEADER_EPOCH")
	case f.under > b.epoch:
		w.stats.answer("unknown epoch", r.state)
		return refuse(partition.FetchRetry, "UNKNOWN_LEADER_EPOCH")
	case f.offset > b.high && b.until == 0 && w.now < l.lowUntil && w.draw(r.purpose(24))%2 == 0: // a leader that has just begun does not know its own end
		w.stats.answer("offset out of range", r.state)
		return refuse(partition.FetchOffsetOutOfRange, "OFFSET_OUT_OF_RANGE")
	case f.offset < b.start || f.offset > b.end:
		w.stats.answer("offset out of range", r.state)
		return refuse(partition.FetchOffsetOutOfRange, "OFFSET_OUT_OF_RANGE")
	}
	reply.HighWatermark, reply.LastStable, reply.LogStart = b.high, b.high, b.start
	if w.cfg.Diverging && f.last >= 0 {
		epoch, end := logtrunc.NewCache(b.cache...).EndOffsetFor(f.last, b.end)
		switch {
		case epoch < 0 || end < 0:
			return refuse(partition.FetchOffsetOutOfRange, "OFFSET_OUT_OF_RANGE")
		case epoch < f.last || end < f.offset:
			w.stats.answer("diverging epoch", r.state)
			reply.DivergingEpoch, reply.DivergingEnd = epoch, end
			reply.HighWatermark, reply.LogStart = -1, -1
			return refuse(partition.FetchDiverging, "diverging epoch")
		}
	}
	n := 0
	most := int(w.cfg.Reply)
	for _, held := range b.from(f.offset) {
		if held.h.LastOffset() >= b.high || n == most {
			break
		}
		n++
		reply.Records = append(reply.Records, held.bytes...)
	}
	if l.local > f.offset && b.high > f.offset && (n == 0 || w.draw(r.purpose(52))%3 > 0) {
		if n > 0 {
			w.stats.answer("remote storage is slow", r.state)
		}
		reply.Records = nil // it is being read from remote storage, and was not there in time (F-86); or there is nothing, which nobody can tell from that
		f.unproven, f.remote = token, token
	}
	nothing := len(reply.Records) == 0
	if nothing && b.start == f.start && b.high == f.high { // a session does not repeat what has not changed
		f.parkedAt = l
		l.parked = append(l.parked, f)
		if b.high > f.offset {
			f.hush(token)
		}
		return nil
	}
	if !nothing && m.link.leftOut > 0 && f.high > f.offset && f.left != f.offset { // no room or no time; the next reply has it
		m.link.leftOut--
		w.stats.fault("left out of a reply", r.state)
		f.left = f.offset
		f.parkedAt = l
		l.parked = append(l.parked, f)
		f.hush(token)
		return nil
	}
	if !nothing {
		served := facts(b.from(f.offset)[:n])
		r.tell(func(mo *model.World) { mo.Served(r.of, served) })
	}
	f.spoil(&reply)
	f.start, f.high = b.start, b.high
	return func() { f.deliver(token, reply) }
}

// hush counts the replies that leave the partition out.
func (f *fetcher) hush(token partition.Token) {
	w := f.r.w
	w.after(fetchWait, func() {
		if !f.alive || f.token != token || f.parkedAt == nil {
			return
		}
		answer, proven := f.silence.LeftOut(f.offset, f.under, f.high)
		if f.quiet++; !proven {
			if f.left != f.offset {
				f.hush(token)
				return
			}
			f.unpark()
			f.wake()
			return
		}
		if l := f.r.m.source.log(f.r.l.at.Topic, f.r.l.at.Partition); f.quiet < 2 || l != nil && l.local > f.offset {
			f.unproven = token
		}
		f.quiet = 0
		w.stats.answer("proof by silence", f.r.state)
		f.unpark()
		f.r.m.back(f.r, f.r.purpose(23), f.failedFor(token), func() { f.deliver(token, answer) })
	})
}

// spoil does to a reply what a network and a busy broker do.
func (f *fetcher) spoil(reply *partition.Fetch) {
	k := &f.r.m.link
	s := &f.r.w.stats
	n := len(reply.Records)
	if n == 0 {
		return
	}
	if k.lateMark > 0 && f.high > f.offset && f.high < reply.HighWatermark {
		k.lateMark--
		s.fault("high watermark noted before", f.r.state)
		reply.HighWatermark, reply.LastStable = f.high, f.high
	}
	if h, size, err := batch.Next(reply.Records); err == nil && f.r.w.cfg.MaxBatch > 0 && size > int(f.r.w.cfg.MaxBatch) && h.BaseOffset >= f.offset {
		s.answer("batch too large", f.r.state)
	}
	switch {
	case k.crowded > 0:
		k.crowded--
		s.fault("crowded reply", f.r.state)
		reply.Records, reply.Crowded = nil, true
	case k.corrupt > 0:
		k.corrupt--
		s.fault("corrupted in transit", f.r.state)
		f.damage(reply.Records)
	case k.cut > 0:
		k.cut--
		s.fault("reply cut in a batch", f.r.state)
		at := 1 + int(f.r.w.draw(f.r.purpose(22))%uint64(n-1))
		_, size, _ := batch.Next(reply.Records)
		if at < size && at > 16 {
			reply.CutBatch = int32(size)
		}
		reply.Records = reply.Records[:at:at]
	}
}

// damage flips a bit of one of the batches: mostly in what its checksum covers, or in its length, or so in its base offset or leader epoch that it cannot be missed.
func (f *fetcher) damage(b []byte) {
	draw := func(purpose, most uint64) int { return int(f.r.w.draw(f.r.purpose(purpose)) % most) }
	var begins []int
	for at := 0; at < len(b); {
		begins = append(begins, at)
		_, size, err := batch.Next(b[at:])
		if err != nil {
			break
		}
		at += size
	}
	at := begins[draw(25, uint64(len(begins)))]
	_, size, err := batch.Next(b[at:])
	if err != nil {
		return
	}
	switch how := draw(26, 6); {
	case how == 0:
		at += 1 + draw(20, 4) // far beyond any log
	case how == 1:
		at += 8 + draw(20, 4)
	case how == 2 && !f.r.w.cfg.Blind: // who was told no epoch has nothing to compare it with
		at += 13
	default:
		at += 21 + draw(20, uint64(size-21))
	}
	b[at] ^= 1 << draw(21, 8)
}

func (f *fetcher) deliver(token partition.Token, reply partition.Fetch) {
	f.r.deliver(partition.Event{Kind: partition.Fetched, Token: token, Fetch: reply})
}

// refresh looks at the source's metadata now and then, and tells the cores what has changed.
func (p *process) refresh() {
	if !p.up {
		return
	}
	m, w := p.m, p.m.w
	w.after(refreshEvery, p.refresh)
	p.guard(func() {
		p.serve()
		if len(p.runners) == 0 {
			return
		}
		for _, r := range p.runners {
			now, known := r.l.view(), r.core.Log()
			if now.Owner = known.Owner; now != known && !r.l.gone {
				r.deliver(partition.Event{Kind: partition.ReplicatedMoved, Log: now})
			}
		}
		if m.want != statemachine.WantMirroring {
			return
		}
		m.call(nil, "refresh", func(error) {}, func() func() {
			t := m.source.topic(m.topic)
			views := make([]partition.SourceView, len(p.runners))
			for i, r := range p.runners {
				views[i] = blank()
				if t != nil {
					if err := m.metadata(r, &views[i]); err != nil {
						views[i].LeaderID = -1
					}
				}
			}
			return func() { p.guard(func() { p.refreshed(t != nil, views) }) }
		})
	})
}

func (p *process) refreshed(there bool, views []partition.SourceView) {
	if there {
		p.missed = 0
	} else {
		p.missed++
	}
	for i, r := range p.runners {
		if i >= len(views) {
			break
		}
		v := views[i]
		if !there {
			if r.missed++; p.missed >= 2 || r.missed == 2 { // one look may be a mistake
				r.w.stats.answer("source topic deleted", r.state)
				r.deliver(partition.Event{Kind: partition.FailPartition, NonRetryable: true, Source: partition.SourceView{Permanent: true}, Err: errors.New("the source topic is deleted; the copy is kept")})
			}
			continue
		}
		seen := r.seen
		if v.LeaderID < 0 || seen.ClusterID == "" || seen.LeaderID == v.LeaderID && seen.LeaderEpoch == v.LeaderEpoch && seen.TopicID == v.TopicID {
			continue
		}
		seen.LeaderID, seen.LeaderEpoch, seen.TopicID = v.LeaderID, v.LeaderEpoch, v.TopicID
		seen.LogStart, seen.HighWatermark = -1, -1
		r.seen = seen
		r.deliver(partition.Event{Kind: partition.SourceChanged, Source: seen})
	}
}

func epochEntry(h *batch.Header, start int64) logtrunc.Entry {
	return logtrunc.Entry{Epoch: h.LeaderEpoch, Start: max(start, h.BaseOffset)}
}
