package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// The states (decision 1).
const preparing, fencing, mirroring, pausing, paused, stopping, stopped, failed, unknown int8 = 0, 1, 2, 3, 4, 5, 6, 7, 16

const never = math.MaxInt

// version is a batch that lies, or once lay, in a log. A log has one line at a time; a cut begins the next one. Two batches were in one log together when their lives have a line in common.
// born is the line in which it was written, died the first line without it; expired: the log start passed it.
type version struct {
	Batch
	who        Who
	born, died int
	expired    bool
}

func (v *version) with(o *version) bool { return max(v.born, o.born) < min(v.died, o.died) }

// log is one copy. risen, top: the highest start and leader epoch that it ever had. own: where it ended when somebody took it. opened: ever. taken: somebody opened it while it was a mirror's. behind: a
// replica has not followed the last cut. stopped: a mirror of it was STOPPED once; ended: one recorded where it ended. theirs: the clients': open, or closed since without anything of it having been
// touched, by a restart or by a start that may still be refused. since: its line when it was created. batches lie in it; alive are those of this line, with those that compaction and retention took, and
// ever those of all lines; the former by base, the latter by bytes.
type log struct {
	at                                                         At
	start, end, replicated, risen, own                         int64
	epoch, top                                                 int32
	there, open, opened, taken, behind, stopped, ended, theirs bool
	line, since                                                int
	batches, alive                                             []*version
	ever                                                       map[uint64]*version
}

// member is a partition of a mirror. record is of UNKNOWN while there is none. fetched: a reply was taken since the last failure. lost: a loss was told under the policy fail since the last record. stop: a stop was wished and has
// not been answered by STOPPED; late: it was wished since the last write of a record began. person: a person did something since the last failure, or while it was being written; acted: since the last record of a failure. beyond: MIRRORING was reached since the last
// PREPARING. hole: end of the source that was proved to follow the copy's present end, 0: none. prepared, line: the copy's end and line when PREPARING was entered; closing: that end when the closing of the
// gate began. safe: what was replicated when the stop began. opened: the episode in which the gate was opened, −1 none. need, told: ranges that have to be told; those that were told as lost, or as a hole.
// began, room: by call, the state, and the copy's start and what was replicated. saw, looked, aims: by group, where the source had it, the episode in which that was seen last, and where
// the mirror was about to move it. served: what is in reply to the fetch that was asked last.
type member struct {
	of                                               Of
	source                                           At
	proof                                            proof
	record                                           Record
	end                                              *End
	wish                                             Wish
	fetched, lost, stop, late, person, acted, beyond bool
	line                                             int
	process, loss                                    string
	consents                                         []consent
	floor, hole, shown, prepared, closing, safe      int64
	opened                                           int32
	need, told                                       map[string][]gap
	began                                            map[string]int8
	room                                             map[string]gap
	saw                                              map[string]seen
	aims                                             map[string]int64
	served                                           []Batch
	looked                                           map[string]int32
}

// seen is what the source said: where a group is, a committed offset and its leader epoch, in a topic with this id; or where a leader epoch ends.
type seen struct {
	offset int64
	epoch  int32
	topic  string
}

type gap struct{ from, to int64 }

type consent struct {
	gap
	episode int32
}

// World is all that was told so far. Not safe for concurrent use. Every method judges what it is told and then believes it, so that one fault is told once. members stand in the order in which they were
// first told of; active is by cluster and name of a group, settled by cluster.
type World struct {
	broken  []Violation
	logs    map[At]*log
	members []*member
	groups  []*group
	active  map[[2]string]bool
	settled map[string]int64
}

// New is a world in which nothing exists.
func New() *World {
	return &World{logs: map[At]*log{}, active: map[[2]string]bool{}, settled: map[string]int64{}}
}

// Violations are the rules that were broken, in the order in which they were.
func (w *World) Violations() []Violation { return w.broken }

// must is how a rule speaks: its name, where it stands, and what is wrong. It says whether it is kept.
func (w *World) must(ok bool, rule, source, format string, args ...any) bool {
	if !ok {
		w.broken = append(w.broken, Violation{Rule: rule, Source: source, What: fmt.Sprintf(format, args...)})
	}
	return ok
}

func (w *World) log(at At) *log {
	if w.logs[at] == nil {
		w.logs[at] = &log{at: at, ever: map[uint64]*version{}}
	}
	return w.logs[at]
}

func (w *World) member(of Of) *member {
	if i := slices.IndexFunc(w.members, func(m *member) bool { return m.of == of }); i >= 0 {
		return w.members[i]
	}
	m := &member{of: of, loss: "restart", closing: never, began: map[string]int8{}, room: map[string]gap{}}
	m.forget()
	w.members = append(w.members, m)
	return m
}

// forget is a partition that no state record is about.
func (m *member) forget() {
	m.record, m.consents, m.opened, m.beyond, m.proof = Record{State: unknown, Previous: unknown}, nil, -1, false, newProof(0)
	m.need, m.told, m.saw, m.looked, m.aims = map[string][]gap{}, map[string][]gap{}, map[string]seen{}, map[string]int32{}, map[string]int64{}
}

// acting is the member that a copy belongs to: the one that is not STOPPED, or else the last one.
func (w *World) acting(at At) (m *member) {
	for _, c := range w.members {
		if s := c.record.State; c.of.At == at && (m == nil || s != unknown && (s != stopped || m.record.State == unknown || m.record.State == stopped)) {
			m = c
		}
	}
	return m
}

// owned is the member of a log that a mirror's process changes. An overtaken process must not, nor one of a mirror that the partition does not belong to.
func (w *World) owned(l *log, by, does string) *member {
	m := w.acting(l.at)
	if m == nil {
		m = w.member(Of{At: l.at})
	}
	w.must(m.process == by, "one process", "invariant 9", "%v: process %s, which does not run it, %s", l.at, by, does)
	return m
}

// opposite says whether a mirror of the other direction is so.
func (w *World) opposite(m *member, is func(o *member) bool) bool {
	return slices.ContainsFunc(w.members, func(o *member) bool { return o.source == m.of.At && o.of.At == m.source && is(o) })
}

// ended is the end that was recorded in this episode.
func (m *member) ended() *End {
	if m.end != nil && m.end.Episode == m.record.Episode {
		return m.end
	}
	return nil
}

// latest is the log's latest leader epoch, −1 when it never had a record. Retention does not forget it.
func (l *log) latest() int32 { return latest(l.alive, never) }

// latest is the leader epoch of the last batch below an end, −1 if there is none.
func latest(list []*version, end int64) int32 {
	if i := below(list, end); i > 0 {
		return list[i-1].LeaderEpoch
	}
	return -1
}

// below is how many batches lie below an end.
func below(list []*version, end int64) int {
	i, _ := slices.BinarySearchFunc(list, end, func(v *version, end int64) int { return cmp.Compare(v.Last, end) })
	return i
}

func (l *log) add(b Batch, who Who) {
	v := &version{Batch: b, who: who, born: l.line, died: never}
	l.batches, l.alive, l.ever[b.Bytes], l.end = append(l.batches, v), append(l.alive, v), v, max(l.end, b.Last+1)
}

// cut ends the line: what holds an offset from end on is in no later one.
func (l *log) cut(end int64) {
	l.line++
	for _, v := range l.alive[below(l.alive, end):] {
		v.died = l.line
	}
	l.batches, l.alive = l.batches[:below(l.batches, end)], l.alive[:below(l.alive, end)]
	l.end, l.start, l.replicated = end, min(l.start, end), min(l.replicated, end)
}

// transactions are those that are open in what lies in the log, by first offset.
func transactions(list []*version) (open []Batch) {
	for _, v := range list {
		i := slices.IndexFunc(open, func(t Batch) bool { return t.ProducerID == v.ProducerID })
		switch {
		case i >= 0 && (v.Kind == Commit || v.Kind == Abort):
			open = slices.Delete(open, i, i+1)
		case i >= 0 && v.Kind == Data:
			open[i].ProducerEpoch = v.ProducerEpoch
		case v.Kind == Data && v.Transactional:
			open = append(open, v.Batch)
		}
	}
	return open
}

// Created: a partition exists, empty, from start on. open: clients write it; otherwise it was made to be a mirror's copy and its gate is closed.
func (w *World) Created(at At, start int64, leaderEpoch int32, open bool) {
	w.Deleted(at)
	old := w.log(at)
	w.logs[at] = &log{at: at, start: start, end: start, replicated: start, risen: old.risen, epoch: leaderEpoch, top: leaderEpoch, there: true, open: open, opened: open, theirs: open, line: old.line, since: old.line, ever: old.ever}
}

// Deleted: it exists no more. What is created under its name is another one, which no record of a mirror is about (decision 2: records go by topic id).
func (w *World) Deleted(at At) {
	if l := w.logs[at]; l != nil { // what was fetched of it may still arrive
		start := l.start
		l.cut(-1)
		l.start, l.end, l.there, l.stopped, l.ended = start, start, false, false, false
	}
	w.groups = slices.DeleteFunc(w.groups, func(g *group) bool { return g.at == at })
	for _, m := range w.members {
		if m.source == at { // epochs begin anew
			m.proof.looked = -1
		}
		if m.of.At == at {
			m.forget()
			m.end = nil
		}
	}
}

// Replicated: what lies below offset survives the loss of the process that leads the log.
func (w *World) Replicated(at At, offset int64) { w.log(at).replicated = offset }

// Followed: every replica of the log has followed the last cut.
func (w *World) Followed(at At) { w.log(at).behind = false }

// Lost: what a closed log had above end is gone, though it was replicated: the destination broke its word (decision 19).
func (w *World) Lost(at At, end int64) {
	l, m := w.log(at), w.acting(at)
	l.cut(end)
	l.theirs = l.theirs && (m == nil || m.end == nil || end >= m.end.LMO)
}

// Restored: an unclean election made a broker the leader that had led before, and that still has these batches behind the end of the log.
func (w *World) Restored(at At, batches []Batch) {
	l := w.log(at)
	for _, b := range batches {
		v := l.ever[b.Bytes]
		for _, o := range l.ever { // what compaction had taken is in its place again
			if o.died == v.died && o.Base >= l.end && o.Last <= b.Last && o != v {
				o.born, o.died, l.alive = l.line, never, append(l.alive, o)
			}
		}
		l.add(b, v.who)
	}
	slices.SortFunc(l.alive, func(a, b *version) int { return cmp.Compare(a.Base, b.Base) })
}

// Follows: a mirror copies this source into its partition.
func (w *World) Follows(of Of, source At) { w.member(of).source = source }

// Runs: a process took this partition of a mirror over; an earlier one must not change anything any more. It knows nothing of what an earlier one saw, and
// compares the logs anew: a replica that had not followed a cut, and led by now, would be found out.
func (w *World) Runs(of Of, process string) {
	m := w.member(of)
	m.process, m.hole, m.shown, m.lost, m.proof, w.log(of.At).behind = process, 0, 0, false, newProof(m.proof.topic), false
}

// Policy: what a mirror does when the source's log starts above the copy's end (decision 16: restart, fail or keep), and the floor above which the log start is never followed (0: none).
func (w *World) Policy(of Of, loss string, floor int64) {
	m := w.member(of)
	m.loss, m.floor, m.acted = loss, floor, true
}

// Consented: an operator allows dropping the records [from, to) of this copy in the episode that is to begin, or has begun (decision 7).
func (w *World) Consented(of Of, from, to int64, episode int32) {
	m := w.member(of)
	m.consents, m.acted = append(m.consents, consent{gap{from, to}, episode}), true
}

// Wished: what an operator wants from now on.
func (w *World) Wished(of Of, wish Wish) {
	m := w.member(of)
	m.wish, m.acted, m.stop, m.late = wish, true, m.stop || wish == WantStopped, m.late || wish == WantStopped
}

// Told: the mirror told its operator of records [from, to): "dropped" (after they were, and only of those), "lost" (gone at the source before they were copied), "hole". What was lost is told ahead, and
// stays in the status, until the copy is another one.
func (w *World) Told(of Of, what string, from, to int64) {
	m := w.member(of)
	if m.need[what] = without(m.need[what], gap{from, to}); what != "dropped" {
		m.told[what] = append(m.told[what], gap{from, to})
	}
	m.lost = m.lost || what == "lost" && m.loss == "fail"
}

// Fetched: this process took a good reply. base: where the first batch in it begins, so that what was thought to be a hole across it is none; −2: there is none, but what lies there comes out of remote
// storage, and end is all that was shown, until there are records; −1: there is none. Then end, if it is not 0, is proved to be what the source uses offsets up to from at, the copy's end, without a record (F-05).
func (w *World) Fetched(of Of, at, end, base int64) {
	m := w.member(of)
	if m.fetched = true; base >= 0 {
		m.shown, m.hole = map[bool]int64{false: m.shown}[base < m.shown], map[bool]int64{false: m.hole}[base < m.hole]
	} else if base == -2 {
		m.shown = end
	} else if end > 0 && w.log(of.At).end == at {
		m.hole = max(m.hole, end)
	}
}

// Settled: the cluster gives no producer id at or below this one any more.
func (w *World) Settled(cluster string, id int64) { w.settled[cluster] = max(w.settled[cluster], id) }

// Removed: the mirror was deleted. Its end stays (decision 8).
func (w *World) Removed(of Of) { w.member(of).forget() }

// Holds: the log is exactly this. What differs from what was told is a fault of who tells, and ends the run.
func (w *World) Holds(at At, start, end, replicated int64, leaderEpoch int32, open bool, batches []Batch) error {
	l := w.log(at)
	told, is := []any{l.start, l.end, l.replicated, l.epoch, l.open, len(l.batches)}, []any{start, end, replicated, leaderEpoch, open, len(batches)}
	if !slices.Equal(told, is) || !slices.EqualFunc(l.batches, batches, func(v *version, b Batch) bool { return v.Batch == b }) {
		return fmt.Errorf("model: %v was told to be %v (start, end, replicated, epoch, open, batches), and is %v", at, told, is)
	}
	return nil
}

// without is what is left of ranges when another one is taken out of them.
func without(list []gap, o gap) (left []gap) {
	for _, g := range list {
		for _, p := range []gap{{g.from, min(g.to, o.from)}, {max(g.from, o.to), g.to}} {
			if p.from < p.to {
				left = append(left, p)
			}
		}
	}
	return left
}

// untold is what of a range was not told; it may be told in pieces.
func (m *member) untold(n gap, what ...string) []gap {
	left := []gap{n}
	for _, w := range what {
		for _, t := range m.told[w] {
			left = without(left, t)
		}
	}
	return left
}

// owes notes that records have to be told of, from the log's start on.
func (m *member) owes(what string, v *version, start int64) {
	if v.Kind == Data {
		as := []string{what, "lost"}[:1+map[string]int{"hole": 1}[what]] // what was told as lost before the policy was changed to keep is known to be
		m.need[what] = append(m.need[what], m.untold(gap{max(v.Base, start), v.Last + 1}, as...)...)
	}
}

// when is the state in which a call was begun.
func (m *member) when(call string) int8 {
	if s, ok := m.began[call]; ok {
		return s
	}
	return m.record.State
}

// proof is what the source said of a partition lately, as far as anybody may act on it.
type proof struct {
	epoch         int32    // the highest leader epoch that the process was told
	looked        int32    // the highest leader epoch under which the process looked at the source
	starts        [2]int64 // of the source's log, at the last two looks; those at a leader that was deposed when it was known do not count
	first, second *seen    // where an epoch ends: of the search before the last look, and of the one since
	line          int      // of the source when it answered last
	topic         int      // what was copied is of this topic: its line when it was created, and 1; 0: nothing is
}

func newProof(topic int) proof { return proof{epoch: -1, looked: -1, line: never, topic: topic} }

// Named: the source's metadata, or an answer of one of its brokers, named this leader epoch. −1: they name none.
func (w *World) Named(of Of, epoch int32) {
	p := &w.member(of).proof
	if p.epoch = max(p.epoch, epoch); epoch < 0 {
		p.epoch = math.MaxInt32
	}
}

// Looked: the process looked at the source anew, its metadata included, and was told that the log starts there. Who is to pause or stop does not wait for that.
func (w *World) Looked(of Of, epoch int32, start int64) {
	m := w.member(of)
	p := &m.proof
	if m.wish != WantMirroring || epoch >= 0 && epoch < p.looked {
		return
	}
	p.looked, p.starts = epoch, [2]int64{p.starts[1], start}
	if p.second != nil {
		p.first, p.second = p.second, nil
	}
}

// Answered: the source answered where a leader epoch ends: the last round of a search so far. (−1, −1): it does not know.
func (w *World) Answered(of Of, epoch int32, end int64) {
	m := w.member(of)
	m.proof.second, m.proof.line = &seen{epoch: epoch, offset: end}, w.log(m.source).line
}

// Served: the source's reply to the fetch that this process asked for last carries these batches.
func (w *World) Served(of Of, batches []Batch) { w.member(of).served = batches }
