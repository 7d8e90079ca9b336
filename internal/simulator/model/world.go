package model

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// The states (decision 1).
const (
	preparing int8 = 0
	fencing   int8 = 1
	mirroring int8 = 2
	pausing   int8 = 3
	paused    int8 = 4
	stopping  int8 = 5
	stopped   int8 = 6
	failed    int8 = 7
	unknown   int8 = 16
)

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
	epoch                  int32
	open, opened           bool // now; ever
	line                   int
	batches                []*version           // that lie in it
	alive                  []*version           // of this line, with those that compaction and retention took, by base
	ever                   map[int64][]*version // by base, of all lines
}

// member is a partition of a mirror.
type member struct {
	of       Of
	source   At
	record   *Record
	end      *End
	wish     Wish
	stop     bool // a stop was wished and has not been answered by STOPPED
	person   bool // did something since the last failure
	process  string
	consents []consent
	loss     string
	floor    int64
	hole     int64            // end of the source that an empty answer proved for the copy's present end, 0: none
	prepared int64            // end of the copy when PREPARING was entered
	opened   int32            // episode in which the gate was opened
	need     map[string][]gap // ranges that have to be told
	told     map[string][]gap
}

type gap struct{ from, to int64 }

type consent struct {
	gap
	episode int32
}

type group struct {
	offset int64
	who    Who
}

type groupAt struct {
	at   At
	name string
}

// World is all that was told so far. Not safe for concurrent use. Every method judges what it is told and then believes it, so that one fault is told once.
type World struct {
	broken  []Violation
	now     time.Time
	logs    map[At]*log
	members []*member // in the order in which they were first told of
	groups  map[groupAt]*group
	active  map[string]bool // cluster and group
	settled map[string]int64
}

// New is a world in which nothing exists.
func New() *World {
	return &World{logs: map[At]*log{}, groups: map[groupAt]*group{}, active: map[string]bool{}, settled: map[string]int64{}}
}

// Violations are the rules that were broken, in the order in which they were.
func (w *World) Violations() []Violation { return w.broken }

// Now is the time of what is told next.
func (w *World) Now(t time.Time) { w.now = t }

func (w *World) fault(rule, format string, args ...any) {
	source, ok := rules[rule]
	if !ok {
		panic("model: no rule " + rule)
	}
	w.broken = append(w.broken, Violation{Rule: rule, Source: source, What: fmt.Sprintf(format, args...)})
}

func (w *World) log(at At) *log {
	if w.logs[at] == nil {
		w.logs[at] = &log{at: at, ever: map[int64][]*version{}}
	}
	return w.logs[at]
}

func (w *World) member(of Of) *member {
	for _, m := range w.members {
		if m.of == of {
			return m
		}
	}
	m := &member{of: of, loss: "restart", need: map[string][]gap{}, told: map[string][]gap{}}
	w.members = append(w.members, m)
	return m
}

// acting is the member that a copy belongs to: the one that is not STOPPED, or the last one.
func (w *World) acting(at At) (m *member) {
	for _, c := range w.members {
		if c.of.At == at && (m == nil || c.state() != unknown && (c.state() != stopped || m.state() == unknown || m.state() == stopped)) {
			m = c
		}
	}
	return m
}

func (m *member) state() int8 {
	if m == nil || m.record == nil {
		return unknown
	}
	return m.record.State
}

// ended is the end that was recorded in this episode.
func (m *member) ended() *End {
	if m.end != nil && m.record != nil && m.end.Episode == m.record.Episode {
		return m.end
	}
	return nil
}

func (l *log) find(b Batch) *version {
	all := l.ever[b.Base]
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Bytes == b.Bytes && all[i].Last == b.Last {
			return all[i]
		}
	}
	return nil
}

func (l *log) last() *version {
	if len(l.batches) == 0 {
		return nil
	}
	return l.batches[len(l.batches)-1]
}

// latest is the log's latest leader epoch, −1 when it never had a record. Retention does not forget it.
func (l *log) latest() int32 {
	if len(l.alive) == 0 {
		return -1
	}
	return l.alive[len(l.alive)-1].LeaderEpoch
}

func (l *log) add(b Batch, who Who) {
	v := &version{Batch: b, who: who, born: l.line, died: never}
	l.batches, l.alive = append(l.batches, v), append(l.alive, v)
	l.ever[b.Base] = append(l.ever[b.Base], v)
	l.end = max(l.end, b.Last+1)
}

// cut ends the line: what holds an offset from end on is in no later one.
func (l *log) cut(end int64) {
	l.line++
	l.alive = slices.DeleteFunc(l.alive, func(v *version) bool {
		if v.Last >= end {
			v.died = l.line
		}
		return v.Last >= end
	})
	l.batches = slices.DeleteFunc(l.batches, func(v *version) bool { return v.Last >= end })
	l.end, l.start, l.replicated = end, min(l.start, end), min(l.replicated, end)
}

type transaction struct {
	producer int64
	epoch    int16
	first    int64
}

// open are the transactions that are open in what lies in the log, by first offset.
func (l *log) transactions() (open []transaction) {
	for _, v := range l.batches {
		i := slices.IndexFunc(open, func(t transaction) bool { return t.producer == v.ProducerID })
		switch {
		case v.Kind == Commit || v.Kind == Abort:
			if i >= 0 {
				open = slices.Delete(open, i, i+1)
			}
		case v.Kind == Data && v.Transactional && i >= 0:
			open[i].epoch = v.ProducerEpoch
		case v.Kind == Data && v.Transactional:
			open = append(open, transaction{v.ProducerID, v.ProducerEpoch, v.Base})
		}
	}
	return open
}

// Created: a partition exists, empty, from start on. open: clients write it; otherwise it was made to be a mirror's copy and its gate is closed.
func (w *World) Created(at At, start int64, leaderEpoch int32, open bool) {
	w.Deleted(at)
	l := w.log(at)
	l.start, l.end, l.replicated, l.epoch, l.open, l.opened = start, start, start, leaderEpoch, open, open
}

// Deleted: it exists no more. What is created under its name is another one, which no record of a mirror is about (decision 2: records go by topic id).
func (w *World) Deleted(at At) {
	delete(w.logs, at)
	for _, m := range w.members {
		if m.of.At == at {
			m.record, m.end, m.consents = nil, nil, nil
			clear(m.need)
		}
	}
}

// Replicated: what lies below offset survives the loss of the process that leads the log.
func (w *World) Replicated(at At, offset int64) {
	l := w.log(at)
	if offset > l.end {
		w.fault("replicated", "%v is said to be replicated to %d, and ends at %d", at, offset, l.end)
	}
	l.replicated = offset
}

// Follows: a mirror copies this source into its partition.
func (w *World) Follows(of Of, source At) { w.member(of).source = source }

// Runs: a process took this partition of a mirror over; an earlier one must not change anything any more.
func (w *World) Runs(of Of, process string) {
	m := w.member(of)
	if m.process != process {
		m.hole = 0
	}
	m.process = process
}

// Policy: what a mirror does when the source's log starts above the copy's end (decision 16: restart, fail or keep), and the floor above which the log start is never followed (0: none).
func (w *World) Policy(of Of, loss string, floor int64) {
	m := w.member(of)
	m.loss, m.floor, m.person = loss, floor, true
}

// Consented: an operator allows dropping the records [from, to) of this copy in the episode that is to begin, or has begun (decision 7).
func (w *World) Consented(of Of, from, to int64, episode int32) {
	m := w.member(of)
	m.consents, m.person = append(m.consents, consent{gap{from, to}, episode}), true
}

// Told: the mirror told its operator of records [from, to): "dropped", "lost" (gone at the source before they were copied), "hole".
func (w *World) Told(of Of, what string, from, to int64) {
	m := w.member(of)
	m.told[what] = append(m.told[what], gap{from, to})
}

// EmptyFetch: this process got an answer which proves that the source uses the offsets from at, the copy's end, to end without having a record there (F-05).
func (w *World) EmptyFetch(of Of, at, end int64) {
	if m := w.member(of); w.log(of.At).end == at {
		m.hole = end
	}
}

// SourceLost: nobody answers for this cluster from now on, or somebody does again.
func (w *World) SourceLost(cluster string, lost bool) {}

// Holds: the log is exactly this. What differs from what was told is a fault of who tells, and ends the run.
func (w *World) Holds(at At, start, end, replicated int64, leaderEpoch int32, open bool, batches []Batch) error {
	l := w.log(at)
	if l.start != start || l.end != end || l.replicated != replicated || l.epoch != leaderEpoch || l.open != open {
		return fmt.Errorf("model: %v is told as start %d end %d replicated %d epoch %d open %v, and is %d %d %d %d %v",
			at, l.start, l.end, l.replicated, l.epoch, l.open, start, end, replicated, leaderEpoch, open)
	}
	if !slices.EqualFunc(l.batches, batches, func(v *version, b Batch) bool { return v.Batch == b }) {
		return fmt.Errorf("model: %v does not hold the batches that were told", at)
	}
	return nil
}
