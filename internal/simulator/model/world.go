package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// The states (decision 1).
const preparing, fencing, mirroring, pausing, paused, stopping, stopped, failed, unknown int8 = 0, 1, 2, 3, 4, 5, 6, 7, 16

const never = math.MaxInt

// version is a batch that lies, or once lay, in a log. A log has one line at a time; a cut begins the next one. Two batches were in one log together when their lives have a line in common.
type version struct {
	Batch
	who        Who
	born, died int  // line in which it was written; first line without it
	expired    bool // the log start passed it
}

func (v *version) with(o *version) bool { return max(v.born, o.born) < min(v.died, o.died) }

type log struct {
	at                     At
	start, end, replicated int64
	risen                  int64                // the highest start that it ever had
	epoch, top             int32                // now; the highest ever
	taken, behind          bool                 // opened by somebody else while it was a mirror's; a replica has not followed the last cut
	own, local             int64                // where it ended when it was taken; the lowest offset that it can be cut to; what lies below is in remote storage
	there, open, opened    bool                 // it exists; now; ever
	stopped, ended         bool                 // a mirror of it was STOPPED once; recorded where it ended
	theirs                 bool                 // the clients': open, or closed since without anything of it having been touched, by a restart or by a start that may still be refused
	line, since            int                  // since: its line when it was created
	batches, alive         []*version           // that lie in it; of this line, with those that compaction and retention took; both by base
	ever                   map[int64][]*version // by base, of all lines
}

// member is a partition of a mirror.
type member struct {
	of                    Of
	source                At
	proof                 proof   // what the source said lately
	served                []Batch // in reply to the fetch that was asked last
	record                Record  // of UNKNOWN while there is none
	end                   *End
	wish                  Wish
	fetched, lost         bool // since the last failure a reply was taken; since the last record a loss was told
	stop, person          bool // a stop was wished and has not been answered by STOPPED; a person did something since the last failure, or while it was being written
	acted                 int  // failures for which what a person did last may count
	process, loss         string
	consents              []consent
	floor, hole, prepared int64            // hole: end of the source that was proved to follow the copy's present end, 0: none. prepared: the copy's end when PREPARING was entered
	closing               int64            // prepared when the closing of the gate began
	opened                int32            // episode in which the gate was opened, −1 none
	beyond                bool             // MIRRORING was reached since the last PREPARING
	line                  int              // of the copy when PREPARING was entered
	safe                  int64            // what was replicated when the stop began
	need, told            map[string][]gap // ranges that have to be told; those that were told as lost, or as a hole
	began                 map[string]int8  // by call: the state
	room                  map[string]gap   // by call: the copy's start and what was replicated
	saw                   map[string]int64 // by group: where the source had it
	looked                map[string]int32 // by group: the episode in which that was seen last
	aims                  map[string]int64 // by group: where the mirror was about to move it
}

type gap struct{ from, to int64 }

type consent struct {
	gap
	episode int32
}

// group is a group's committed offset of a partition, and who moved it last.
type group struct {
	at      At
	name    string
	offset  int64
	who     Who
	episode int32 // of the mirror that moved it last
	before  int64 // where it was before that: as long as the mirror does not know that its move was done, either is its own
	theirs  bool  // somebody else has moved it since this episode's mirror looked at it first
	passed  bool  // the source's has moved since
	free    bool  // when the mirror last began to move it, it was free to
}

// World is all that was told so far. Not safe for concurrent use. Every method judges what it is told and then believes it, so that one fault is told once.
type World struct {
	broken  []Violation
	logs    map[At]*log
	members []*member // in the order in which they were first told of
	groups  []*group
	active  map[[2]string]bool // cluster and name of a group
	settled map[string]int64   // by cluster
}

// New is a world in which nothing exists.
func New() *World {
	return &World{logs: map[At]*log{}, active: map[[2]string]bool{}, settled: map[string]int64{}}
}

// Violations are the rules that were broken, in the order in which they were.
func (w *World) Violations() []Violation { return w.broken }

// Now is the time of what is told next. No rule depends on it: bounds of time are for who says Rest and Stopped.
func (w *World) Now(time.Time) {}

// must is how a rule speaks: its name, where it stands, and what is wrong.
func (w *World) must(ok bool, rule, source, format string, args ...any) {
	if !ok {
		w.broken = append(w.broken, Violation{Rule: rule, Source: source, What: fmt.Sprintf(format, args...)})
	}
}

func (w *World) log(at At) *log {
	if w.logs[at] == nil {
		w.logs[at] = &log{at: at, ever: map[int64][]*version{}}
	}
	return w.logs[at]
}

var none = Record{State: unknown, Previous: unknown}

func (w *World) member(of Of) *member {
	if i := slices.IndexFunc(w.members, func(m *member) bool { return m.of == of }); i >= 0 {
		return w.members[i]
	}
	m := &member{of: of, record: none, proof: newProof(), loss: "restart", opened: -1, began: map[string]int8{}, room: map[string]gap{}, saw: map[string]int64{}, looked: map[string]int32{}, aims: map[string]int64{}, need: map[string][]gap{}, told: map[string][]gap{}}
	w.members = append(w.members, m)
	return m
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

// ended is the end that was recorded in this episode.
func (m *member) ended() *End {
	if m.end != nil && m.end.Episode == m.record.Episode {
		return m.end
	}
	return nil
}

func (l *log) find(b Batch) *version {
	for _, v := range slices.Backward(l.ever[b.Base]) {
		if v.Bytes == b.Bytes && v.Last == b.Last {
			return v
		}
	}
	return nil
}

// latest is the log's latest leader epoch, −1 when it never had a record. Retention does not forget it.
func (l *log) latest() int32 {
	if len(l.alive) == 0 {
		return -1
	}
	return l.alive[len(l.alive)-1].LeaderEpoch
}

// from are the batches that hold an offset from end on.
func (l *log) from(end int64) []*version {
	i, _ := slices.BinarySearchFunc(l.batches, end, func(v *version, end int64) int { return cmp.Compare(v.Last, end) })
	return l.batches[i:]
}

func (l *log) add(b Batch, who Who) {
	v := &version{Batch: b, who: who, born: l.line, died: never}
	l.batches, l.alive, l.ever[b.Base] = append(l.batches, v), append(l.alive, v), append(l.ever[b.Base], v)
	l.end = max(l.end, b.Last+1)
}

// cut ends the line: what holds an offset from end on is in no later one.
func (l *log) cut(end int64) {
	l.line++
	l.batches = l.batches[:len(l.batches)-len(l.from(end))]
	l.alive = slices.DeleteFunc(l.alive, func(v *version) bool {
		if v.Last >= end {
			v.died = l.line
		}
		return v.Last >= end
	})
	l.end, l.start, l.replicated, l.local = end, min(l.start, end), min(l.replicated, end), min(l.local, max(0, end))
}

// transactions are those that are open in what lies in the log, by first offset.
func (l *log) transactions() []Batch { return transactions(l.batches) }

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
	l := w.log(at)
	l.start, l.end, l.replicated, l.epoch, l.there, l.open, l.opened, l.theirs, l.since = start, start, start, leaderEpoch, true, open, open, open, l.line
	l.taken, l.behind, l.local, l.top = false, false, 0, leaderEpoch
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
			m.record, m.end, m.consents, m.opened, m.beyond, m.proof = none, nil, nil, -1, false, newProof()
			m.need, m.told, m.saw, m.looked, m.aims = map[string][]gap{}, map[string][]gap{}, map[string]int64{}, map[string]int32{}, map[string]int64{}
		}
	}
}

// Replicated: what lies below offset survives the loss of the process that leads the log.
func (w *World) Replicated(at At, offset int64) {
	l := w.log(at)
	w.must(offset <= l.end, "replicated", "design.md, Log", "%v is said to be replicated to %d, and ends at %d", at, offset, l.end)
	l.replicated = offset
}

// Follows: a mirror copies this source into its partition.
func (w *World) Follows(of Of, source At) { w.member(of).source = source }

// Runs: a process took this partition of a mirror over; an earlier one must not change anything any more. It knows nothing of what an earlier one saw.
func (w *World) Runs(of Of, process string) {
	m := w.member(of)
	m.process, m.hole = process, 0
	m.proof.forget()
}

// Policy: what a mirror does when the source's log starts above the copy's end (decision 16: restart, fail or keep), and the floor above which the log start is never followed (0: none).
func (w *World) Policy(of Of, loss string, floor int64) {
	m := w.member(of)
	m.loss, m.floor, m.acted = loss, floor, 2
}

// Consented: an operator allows dropping the records [from, to) of this copy in the episode that is to begin, or has begun (decision 7).
func (w *World) Consented(of Of, from, to int64, episode int32) {
	m := w.member(of)
	m.consents, m.acted = append(m.consents, consent{gap{from, to}, episode}), 2
}

// Told: the mirror told its operator of records [from, to): "dropped" (after they were, and only of those), "lost" (gone at the source before they were copied), "hole". What was lost is told ahead, and
// stays in the status, until the copy is another one.
func (w *World) Told(of Of, what string, from, to int64) {
	m := w.member(of)
	if m.need[what] = without(m.need[what], gap{from, to}); what != "dropped" {
		m.told[what] = append(m.told[what], gap{from, to})
	}
	m.lost = m.lost || what == "lost"
}

// Fetched: this process took a good reply. base: where the first batch in it begins, so that what was thought to be a hole across it is none; −1: there is none. Then end, if it is not 0, is proved to be
// what the source uses offsets up to from at, the copy's end, without having a record there (F-05).
func (w *World) Fetched(of Of, at, end, base int64) {
	m := w.member(of)
	if m.fetched = true; base >= 0 && base < m.hole {
		m.hole = 0
	} else if base < 0 && end > 0 && w.log(of.At).end == at {
		m.hole = end
	}
}

// Followed: every replica of the log has followed the last cut.
func (w *World) Followed(at At) { w.log(at).behind = false }

// Offloaded: the mirror's process was told that what lies below offset is in remote storage, where nothing can be cut.
func (w *World) Offloaded(at At, offset int64) { w.log(at).local = offset }

// Lost: what a closed log had above end is gone, though it was replicated: the destination broke its word (decision 19).
func (w *World) Lost(at At, end int64) {
	l := w.log(at)
	m := w.acting(at)
	l.cut(end)
	l.local, l.theirs = 0, l.theirs && (m == nil || m.end == nil || end >= m.end.LMO)
}

// SourceLost: nobody answers for this cluster from now on, or somebody does again. No rule excuses anything by it.
func (w *World) SourceLost(cluster string, lost bool) {}

// Holds: the log is exactly this. What differs from what was told is a fault of who tells, and ends the run.
func (w *World) Holds(at At, start, end, replicated int64, leaderEpoch int32, open bool, batches []Batch) error {
	l := w.log(at)
	told, is := []any{l.start, l.end, l.replicated, l.epoch, l.open, len(l.batches)}, []any{start, end, replicated, leaderEpoch, open, len(batches)}
	if !slices.Equal(told, is) || !slices.EqualFunc(l.batches, batches, func(v *version, b Batch) bool { return v.Batch == b }) {
		return fmt.Errorf("model: %v was told to be %v (start, end, replicated, epoch, open, batches), and is %v", at, told, is)
	}
	return nil
}

// proof is what the source said of a partition lately, as far as anybody may act on it.
type proof struct {
	epoch         int32    // the highest leader epoch that the process was told
	looked        int32    // the highest leader epoch under which the process looked at the source
	starts        [2]int64 // of the source's log, at the last two looks; those at a leader that was deposed when it was known do not count
	first, second *answer  // of the search before the last look, and of the one since
	line          int      // of the source when it answered last
	topic         int      // what was copied is of this topic: its line when it was created, and 1; 0: nothing is
}

// answer says where an epoch ends, and how long the copy then is common.
type answer struct {
	epoch int32
	end   int64
}

func (a *answer) String() string {
	if a == nil {
		return "none"
	}
	return fmt.Sprintf("epoch %d ends at %d", a.epoch, a.end)
}

func newProof() proof { return proof{epoch: -1, looked: -1, line: never} }

// forget is a new process: it has asked nothing.
func (p *proof) forget() { *p = proof{epoch: -1, looked: -1, line: never, topic: p.topic} }

// Named: the source's metadata, or an answer of one of its brokers, named this leader epoch. −1: they name none.
func (w *World) Named(of Of, epoch int32) {
	p := &w.member(of).proof
	if p.epoch = max(p.epoch, epoch); epoch < 0 {
		p.epoch = math.MaxInt32
	}
}

// Looked: the process looked at the source anew, its metadata included, and was told that the log starts there.
func (w *World) Looked(of Of, epoch int32, start int64) {
	p := &w.member(of).proof
	if epoch >= 0 && epoch < p.looked {
		return
	}
	p.looked = epoch
	p.starts = [2]int64{p.starts[1], start}
	if p.second != nil {
		p.first, p.second = p.second, nil
	}
}

// Answered: the source answered where a leader epoch ends: the last round of a search so far. (−1, −1): it does not know.
func (w *World) Answered(of Of, epoch int32, end int64) {
	m := w.member(of)
	m.proof.second, m.proof.line = &answer{epoch, end}, w.log(m.source).line
}

// point is the end of what a log has in common with one that gives this answer; false: it proves nothing (decision 15): it is none, of the epoch that is being written, whose end only grows, or of one
// that the log does not have, unless all of the log is of later ones.
func (l *log) point(a *answer, current int32) (int64, bool) {
	if a == nil || a.epoch < 0 || a.end < 0 || a.epoch >= current || len(l.alive) == 0 {
		return 0, false
	}
	has := func(v *version) bool { return v.LeaderEpoch == a.epoch }
	later := func(v *version) bool { return v.LeaderEpoch > a.epoch }
	i := slices.IndexFunc(l.alive, later)
	switch {
	case !slices.ContainsFunc(l.alive, has):
		return l.alive[0].Base, i == 0
	case i < 0:
		return min(a.end, l.end), true
	}
	return min(a.end, l.alive[i].Base), true
}

// Served: the source's reply to the fetch that this process asked for last carries these batches.
func (w *World) Served(of Of, batches []Batch) { w.member(of).served = batches }

// Restored: an unclean election made a broker the leader that had led before, and that still has these batches behind the end of the log.
func (w *World) Restored(at At, batches []Batch) {
	l := w.log(at)
	for _, b := range batches {
		who := Clients
		if v := l.find(b); v != nil {
			who = v.who
		}
		l.add(b, who)
	}
}
