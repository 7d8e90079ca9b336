package simulator

import (
	"fmt"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/txnabort"
)

// held is a batch as it lies in a log. Its bytes are never changed.
type held struct {
	h     batch.Header
	bytes []byte
	m     model.Batch
}

// next is where the next batch may begin. It is counted here, not by the code under test.
func (b *held) next() int64 { return b.h.BaseOffset + int64(b.h.LastOffsetDelta) + 1 }

// heldFrom cuts whole batches apart. The bytes are kept.
func heldFrom(b []byte) []held {
	var list []held
	for h, whole := range batch.All(b) {
		list = append(list, held{h: h, bytes: whole, m: describe(&h, whole)})
	}
	return list
}

// describe is a batch in the model's words.
func describe(h *batch.Header, b []byte) model.Batch {
	m := model.Batch{
		Base: h.BaseOffset, Last: h.LastOffset(), LeaderEpoch: h.LeaderEpoch, Transactional: h.Transactional(), ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch,
		Bytes: fingerprint(b),
	}
	if !h.Control() {
		return m
	}
	m.Kind = model.Abort
	if txnabort.IsPIDReset(b) {
		m.Kind = model.Reset
	} else if c, err := batch.ReadControl(b, h); err == nil && c.Type == batch.ControlCommit {
		m.Kind = model.Commit
	}
	return m
}

// fingerprint tells equal bytes from different ones (FNV-1a).
func fingerprint(b []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

func facts(list []held) []model.Batch {
	out := make([]model.Batch, len(list))
	for i := range list {
		out[i] = list[i].m
	}
	return out
}

func (b *held) String() string {
	s := fmt.Sprintf("%d-%d/e%d", b.h.BaseOffset, b.h.LastOffset(), b.h.LeaderEpoch)
	switch b.m.Kind {
	case model.Reset:
		return s + "/RESET"
	case model.Commit:
		return s + fmt.Sprintf("/COMMIT:%d.%d", b.h.ProducerID, b.h.ProducerEpoch)
	case model.Abort:
		return s + fmt.Sprintf("/ABORT:%d.%d", b.h.ProducerID, b.h.ProducerEpoch)
	}
	if b.h.ProducerID >= 0 {
		s += fmt.Sprintf("/P%d.%d", b.h.ProducerID, b.h.ProducerEpoch)
		if b.h.Transactional() {
			s += "T"
		}
	}
	return s
}

func listOf(list []held) string {
	var b strings.Builder
	for i := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(list[i].String())
	}
	return b.String()
}

// replica is one broker's copy of a log: the leader's log up to end, because whoever leads next has nothing else.
type replica struct {
	broker int32
	end    int64
	stuck  bool // does not follow
	inSync bool
	behind bool // has not followed the last cut
}

// believed is a log as one broker believes it to be: the leader, or one that was deposed and does not know it yet.
type believed struct {
	broker     int32
	batches    []held
	start, end int64
	high       int64 // watermark
	epoch      int32
	cache      []logtrunc.Entry
	until      time.Duration // that it goes on answering; 0: it leads
}

// partitionLog is one partition of one cluster. It is source and destination in one: while its gate is open brokers lead it and clients write it; a copy whose gate is closed is led by the
// process of a mirror.
type partitionLog struct {
	w          *world
	c          *cluster
	t          *topic
	at         model.At
	batches    []held
	start, end int64
	high       int64 // what every replica in sync has: the high watermark, and Replicated of a mirror's log
	epoch      int32
	cache      *logtrunc.Cache
	replicas   [3]replica
	leader     int  // index of replicas
	noLeader   bool // nobody answers for it
	open       bool // clients write
	resets     int  // MIRROR_PID_RESETs that were appended to it
	rewrites   int  // how often something was taken out of it
	foreign    bool // another mirror process has it
	generation int  // of the mirror process that leads it while it is closed
	deposed    []believed
	former     *believed     // what the last unclean election took away: it still lies on the disks of the broker that led, which may lead again
	lowHigh    int64         // a new leader's high watermark lags behind: it tells this one …
	lowUntil   time.Duration // … until then
	slow       time.Duration // what calls on it take in addition
	full       bool          // takes no append
	local      int64         // what lies below is in remote storage
	top        int32         // the highest leader epoch that it ever had, where a restart has taken it back
	short      bool          // something that was replicated is lost
	taken      bool          // somebody opened it while it was a mirror's
	refused    bool          // and has refused one
	pending    bool          // followers will fetch soon
	waiters    []*waiter
	parked     []*fetcher
	changed    bool // since the model was asked to compare
	gone       bool

	producers       *producerstate.Manager // of the first so many batches, as of so many rewrites
	observed, known int
}

func newLog(c *cluster, t *topic, p int32, open bool) *partitionLog {
	l := &partitionLog{w: c.w, c: c, t: t, at: model.At{Cluster: c.name, Topic: t.name, Partition: p}, cache: logtrunc.NewCache(), open: open, changed: true}
	for i := range l.replicas {
		l.replicas[i] = replica{broker: c.firstBroker + int32(i), inSync: true}
	}
	l.leader = int(p) % len(l.replicas)
	if open {
		l.cache.Assign(l.epoch, 0)
	}
	l.w.tell(func(m *model.World) { m.Created(l.at, 0, l.epoch, open) })
	l.w.say("%v exists, open %v", l.at, open)
	return l
}

func (l *partitionLog) String() string {
	return fmt.Sprintf("%v [%d, %d) replicated %d epoch %d open %v: %s", l.at, l.start, l.end, l.high, l.epoch, l.open, listOf(l.batches))
}

func (l *partitionLog) view() partition.LogView {
	v := partition.LogView{Start: l.start, End: l.end, Replicated: l.high, LeaderEpoch: l.epoch, LowestCut: l.local}
	switch {
	case l.foreign:
		v.Owner = partition.OwnerForeign
	case l.open:
		v.Owner = partition.OwnerOpen
	}
	return v
}

// broker that leads, −1 none.
func (l *partitionLog) leaderID() int32 {
	if l.noLeader || l.gone || !l.open && !l.c.served(l) {
		return -1
	}
	return l.replicas[l.leader].broker
}

func (l *partitionLog) now() believed {
	high := l.high
	if l.w.now < l.lowUntil {
		high = max(l.start, min(high, l.lowHigh))
	}
	return believed{broker: l.replicas[l.leader].broker, batches: l.batches, start: l.start, end: l.end, high: high, epoch: l.epoch, cache: l.cache.Entries()}
}

// as is the log as a broker believes it to be; false: it does not lead it, as far as it knows.
func (l *partitionLog) as(broker int32) (believed, bool) {
	if l.leaderID() == broker && broker >= 0 {
		return l.now(), true
	}
	for i := len(l.deposed) - 1; i >= 0; i-- {
		if d := &l.deposed[i]; d.broker == broker && l.w.now < d.until {
			return *d, true
		}
	}
	return believed{}, false
}

// stale is what metadata that is old says: the youngest deposed leader that still answers.
func (l *partitionLog) stale() (believed, bool) {
	for i := len(l.deposed) - 1; i >= 0; i-- {
		if l.w.now < l.deposed[i].until {
			return l.deposed[i], true
		}
	}
	return believed{}, false
}

// add puts batches at the end.
func (l *partitionLog) add(list []held) {
	l.batches = append(l.batches, list...)
	for i := range list {
		h := &list[i].h
		l.cache.Assign(h.LeaderEpoch, max(l.start, h.BaseOffset))
		l.end = list[i].next()
		if list[i].m.Kind == model.Reset {
			l.resets++
		}
	}
	l.changed = true
}

// follow lets the followers that are not stuck have everything, and moves the high watermark.
func (l *partitionLog) follow() {
	for i := range l.replicas {
		r := &l.replicas[i]
		if i == l.leader || !r.stuck {
			r.end, r.behind = l.end, false
		}
	}
	l.followed()
	l.advance()
}

// advance moves the high watermark to what every replica in sync has.
func (l *partitionLog) advance() {
	high := l.end
	for i := range l.replicas {
		r := &l.replicas[i]
		if i == l.leader {
			r.end = l.end
		} else if r.inSync {
			high = min(high, r.end)
		}
	}
	if high = max(high, l.start); high > l.high {
		l.high = high
		l.changed = true
		l.w.tell(func(m *model.World) { m.Replicated(l.at, high) })
		l.tellReplicated()
	}
	l.wake()
}

// soon lets followers fetch in a moment.
func (l *partitionLog) soon() {
	if l.pending {
		return
	}
	l.pending = true
	l.w.after(l.w.jitter(fingerprintOf(l.at), 2*time.Millisecond, 20*time.Millisecond), func() {
		l.pending = false
		if !l.gone {
			l.follow()
		}
	})
}

// cutTo drops every batch that holds an offset from offset on, and says where the log ends then.
func (l *partitionLog) cutTo(offset int64, who model.Who, by string) int64 {
	if offset >= l.end {
		return l.end
	}
	n := len(l.batches)
	for ; n > 0 && l.batches[n-1].h.LastOffset() >= offset; n-- {
		offset = min(offset, l.batches[n-1].h.BaseOffset)
	}
	l.rewrites++
	l.unshown(who)
	l.w.history.cut(l, offset, l.end, who)
	l.batches = l.batches[:n:n] // what comes next must not write over what a deposed leader still shows
	l.end = offset
	l.start = min(l.start, offset)
	l.high, l.local = min(l.high, offset), min(l.local, offset)
	l.cache.TruncateTo(offset)
	for i := range l.replicas {
		r := &l.replicas[i]
		if r.end > offset || i != l.leader {
			r.behind = i != l.leader
		}
		r.end = min(r.end, offset)
	}
	l.changed = true
	l.w.tell(func(m *model.World) { m.Cut(l.at, who, by, offset) })
	return offset
}

// unshown ends deposed leaders that still show what a mirror cuts, where a source answers no epoch questions: no mirror of it could see that (as for unseen).
func (l *partitionLog) unshown(who model.Who) {
	if l.w.cfg.NoEpochs && who == model.Mirror {
		l.deposed = nil
	}
}

// forgetTo takes away what lies from offset on, replicated or not.
func (l *partitionLog) forgetTo(offset int64) {
	l.rewrites++
	l.w.history.cut(l, offset, l.end, model.Cluster)
	l.batches = l.batches[: len(l.batches)-len(l.from(offset)) : len(l.batches)-len(l.from(offset))]
	l.end, l.start, l.high, l.local = offset, min(l.start, offset), min(l.high, offset), 0
	l.cache.TruncateTo(offset)
	for i := range l.replicas {
		l.replicas[i].end = min(l.replicas[i].end, offset)
	}
	l.changed = true
	l.w.tell(func(m *model.World) { m.Lost(l.at, offset) })
}

// restart empties the log.
func (l *partitionLog) restart(start int64, who model.Who, by string) {
	l.rewrites++
	l.unshown(who)
	l.w.history.cut(l, 0, l.end, who)
	l.batches, l.start, l.end, l.high, l.local, l.short = nil, start, start, start, 0, false
	l.cache.Reset()
	for i := range l.replicas {
		l.replicas[i].end, l.replicas[i].behind = start, i != l.leader
	}
	l.changed, l.former = true, nil
	l.w.tell(func(m *model.World) { m.Restarted(l.at, who, by, start) })
}

// raiseStart moves the log start up, keeping the batch that holds it.
func (l *partitionLog) raiseStart(to int64, who model.Who, by string) {
	if to = min(to, l.high); to <= l.start {
		return
	}
	n := 0
	for n < len(l.batches) && l.batches[n].next() <= to {
		n++
	}
	l.rewrites++
	if who == model.Cluster {
		l.w.history.taken(l, l.start, to, "the log start was raised")
	}
	l.batches = l.batches[n:]
	l.start = to
	l.cache.RaiseStart(to)
	l.changed, l.former = true, nil
	l.w.tell(func(m *model.World) { m.StartRaised(l.at, who, by, to) })
	l.wake()
}

// raiseEpoch gives the log a higher leader epoch.
func (l *partitionLog) raiseEpoch(epoch int32, who model.Who, by string) {
	if epoch <= l.epoch {
		return
	}
	l.epoch = epoch
	l.changed = true
	l.w.tell(func(m *model.World) { m.EpochRaised(l.at, who, by, epoch) })
	if l.open {
		l.cache.Assign(epoch, l.end)
	}
	l.wake()
}

// setOpen moves the gate.
func (l *partitionLog) setOpen(open bool, who model.Who, by string) {
	if l.open == open {
		return
	}
	l.open = open
	l.taken = l.taken && (open || who == model.Cluster)
	l.changed, l.former = true, nil
	if open && who != model.Mirror {
		l.w.history.opens(l, nil)
	}
	l.w.tell(func(m *model.World) { m.Gate(l.at, who, by, open) })
	if open {
		l.cache.Assign(l.epoch, l.end)
	} else {
		l.cache.TruncateTo(l.end) // a follower keeps no epoch that its leader began and wrote nothing in: a batch of a lower one that is copied now would begin anew what is known of that
	}
	l.wake()
}

// depose lets the leader of now go on answering for a while.
func (l *partitionLog) depose(stale time.Duration) {
	keep := l.deposed[:0]
	for _, d := range l.deposed {
		if l.w.now < d.until {
			keep = append(keep, d)
		}
	}
	l.deposed = keep
	if stale > 0 {
		d := l.now()
		d.until = l.w.now + stale
		d.batches = d.batches[:len(d.batches):len(d.batches)]
		l.deposed = append(l.deposed, d)
	}
}

// elect makes another replica the leader of an open log: one in sync, or with unclean the one that has least.
func (l *partitionLog) elect(unclean bool, stale time.Duration) bool {
	next := -1
	for i := range l.replicas {
		r := &l.replicas[i]
		switch {
		case i == l.leader:
		case unclean && (r.inSync && r.end >= l.high):
		case !unclean && !r.inSync:
		case next < 0 || unclean && r.end < l.replicas[next].end || !unclean && r.end > l.replicas[next].end:
			next = i
		}
	}
	if next < 0 {
		return false
	}
	l.depose(stale)
	high, was := l.high, l.leader
	l.leader = next
	l.noLeader = false
	r := &l.replicas[next]
	r.stuck, r.inSync, r.behind = false, true, false
	l.followed()
	if r.end < l.end {
		if unclean {
			l.former = l.onDisk(was)
		}
		l.batches = l.batches[:len(l.batches):len(l.batches)]
		l.cutTo(r.end, model.Cluster, "")
	}
	if unclean {
		for i := range l.replicas { // who was in sync with the old leader has to follow the new one
			l.replicas[i].end = min(l.replicas[i].end, l.end)
		}
	}
	l.raiseEpoch(l.epoch+1, model.Cluster, "")
	if stale > 0 {
		l.lowHigh, l.lowUntil = l.bound(min(high, l.end)-2), l.w.now+stale/2
		l.w.after(stale/2, l.wake)
		l.w.after(stale, l.wake)
	}
	l.advance()
	return true
}

// onDisk is the log as a broker that leads it now has it.
func (l *partitionLog) onDisk(leader int) *believed {
	n := len(l.batches)
	return &believed{broker: l.replicas[leader].broker, batches: l.batches[:n:n], start: l.start, end: l.end, epoch: l.epoch, cache: l.cache.Entries()}
}

// restore makes the broker the leader again that led before the last unclean election, with the log that it had then: what was written since goes, and what was lost is there again (KIP-279).
func (l *partitionLog) restore() bool {
	f := l.former
	if f == nil {
		return false
	}
	now := l.onDisk(l.leader)
	n := 0
	for n < min(len(l.batches), len(f.batches)) && l.batches[n].m == f.batches[n].m {
		n++
	}
	same := func(b *believed) int64 { // compaction may have left a gap behind what both have, in one of them
		if n < len(b.batches) {
			return b.batches[n].h.BaseOffset
		}
		return b.end
	}
	common := min(same(now), same(f))
	if common < l.start || l.start != f.start { // retention stands between the two
		return false
	}
	l.deposed = nil
	l.cutTo(common, model.Cluster, "")
	l.cache = logtrunc.NewCache(f.cache...)
	if back := f.batches[n:]; len(back) > 0 {
		l.batches = append(l.batches[:n:n], back...)
		l.end, l.changed = f.end, true
		l.w.history.unlike(l)
		l.w.tell(func(m *model.World) { m.Restored(l.at, facts(back)) })
	}
	for i := range l.replicas {
		r := &l.replicas[i]
		if r.broker == f.broker {
			l.leader = i
		}
		r.stuck, r.inSync = false, true
	}
	l.noLeader = false
	l.raiseEpoch(l.epoch+1, model.Cluster, "")
	l.former = now
	l.follow()
	return true
}

// bound is offset, or the beginning of the batch that it lies in: a high watermark never stands inside a batch. It is not below the log's start.
func (l *partitionLog) bound(offset int64) int64 {
	if list := l.from(offset); len(list) > 0 {
		offset = min(offset, list[0].h.BaseOffset)
	}
	return max(l.start, offset)
}

// from are the batches from the one that holds offset on.
func (b *believed) from(offset int64) []held {
	lo, hi := 0, len(b.batches)
	for lo < hi {
		if mid := (lo + hi) / 2; b.batches[mid].next() > offset {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return b.batches[lo:]
}

func (l *partitionLog) from(offset int64) []held {
	b := believed{batches: l.batches}
	return b.from(offset)
}

// waiter waits for something about a log.
type waiter struct {
	sequence uint64 // of the effect
	ready    func() bool
	done     func()
	over     bool
}

// wake looks at whoever waits for this log.
func (l *partitionLog) wake() {
	if len(l.waiters) > 0 {
		list := l.waiters
		l.waiters = nil
		for _, w := range list {
			switch {
			case w.over:
			case w.ready():
				w.over = true
				l.w.after(0, w.done)
			default:
				l.waiters = append(l.waiters, w)
			}
		}
	}
	if len(l.parked) > 0 {
		list := l.parked
		l.parked = nil
		for _, f := range list {
			f.parkedAt = nil
			f.wake()
		}
	}
}

// copied says that every follower has followed the last cut.
func (l *partitionLog) copied() bool {
	for i := range l.replicas {
		if i != l.leader && l.replicas[i].behind {
			return false
		}
	}
	return true
}

// followed tells that every follower has followed the last cut, when that is so.
func (l *partitionLog) followed() {
	if l.copied() {
		l.w.tell(func(m *model.World) { m.Followed(l.at) })
	}
}

// compare lets the model compare what it was told with the log.
func (l *partitionLog) compare() {
	if !l.changed || l.gone {
		return
	}
	l.changed = false
	l.w.tell(func(m *model.World) {
		if err := m.Holds(l.at, l.start, l.end, l.high, l.epoch, l.open, facts(l.batches)); err != nil {
			l.w.wrong(fmt.Errorf("%v: what was told is not what is there: %w", l.at, err))
		}
	})
}
