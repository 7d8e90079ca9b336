package clienthistory

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// entry is what lies at one offset of a correct log.
type entry struct {
	record      Record // 0: a marker
	transaction Transaction
	gone        bool
}

// made is a partition of two clusters that do what they promise.
type made struct {
	id      Partition
	logs    map[string][]entry
	primary string
	follows bool // the other cluster is a copy; otherwise it was turned away from
	copied  int  // how much of the primary's log the copy has
}

func (m *made) other() string {
	if m.primary == "A" {
		return "B"
	}
	return "A"
}

// log is what a cluster has.
func (m *made) log(cluster string) []entry {
	if cluster != m.primary && m.follows {
		return m.logs[m.primary][:m.copied]
	}
	return m.logs[cluster]
}

// doing is a transaction that has not ended in the clusters.
type doing struct {
	id      Transaction
	cluster string
	parts   map[int]bool
	dead    bool // its cluster was turned away from
}

// maker makes histories in which nothing is wrong.
type maker struct {
	*rapid.T
	h       History
	parts   []*made
	now     Moment
	numbers uint32
	doing   []*doing
	decided map[Partition]map[Transaction]map[string]bool // by partition, transaction and cluster: committed there; missing: not decided
	next    map[string]map[int]int64                      // by consumer and partition
	at      map[string]string                             // consumer's cluster
	groups  map[int]map[string]int64                      // the group's offset of each partition in each cluster
}

func newMaker(t *rapid.T) *maker {
	m := &maker{T: t, h: History{First: map[Partition]string{}}, decided: map[Partition]map[Transaction]map[string]bool{}, next: map[string]map[int]int64{}, at: map[string]string{}, groups: map[int]map[string]int64{}}
	for i := range rapid.IntRange(1, 3).Draw(t, "partitions") {
		p := &made{id: Partition{"t", int32(i)}, logs: map[string][]entry{}, primary: "A", follows: true}
		m.parts = append(m.parts, p)
		m.h.First[p.id] = "A"
		m.decided[p.id] = map[Transaction]map[string]bool{}
		m.groups[i] = map[string]int64{}
	}
	for _, c := range []string{"x", "y", "u"} {
		m.next[c], m.at[c] = map[int]int64{}, "A"
		for i := range m.parts {
			m.next[c][i] = 0
		}
	}
	return m
}

func (m *maker) span() Span { m.now += 2; return Span{m.now - 1, m.now} }

func (m *maker) pick(name string, n int) int { return rapid.IntRange(0, n-1).Draw(m.T, name) }

func (m *maker) number() uint32 { m.numbers++; return m.numbers }

// produce writes one record somewhere.
func (m *maker) produce(d *doing) {
	i := m.pick("partition", len(m.parts))
	p := m.parts[i]
	cluster := p.primary
	if !p.follows && m.pick("ignores the fence", 4) == 0 {
		cluster = p.other()
	}
	w := Produce{Span: m.span(), Cluster: cluster, Partition: p.id, Record: NewRecord(1, m.number())}
	if d != nil {
		if cluster != d.cluster || d.dead {
			return
		}
		w.Transaction = d.id
		d.parts[i] = true
	}
	outcome := m.pick("outcome", 8)
	switch {
	case outcome == 0:
		w.Outcome = Failed
	case outcome == 1:
		w.Outcome = Unknown // and not done
	default:
		w.Outcome, w.Offset = OK, int64(len(p.logs[cluster]))
		if outcome == 2 && d == nil {
			w.Outcome, w.Offset = Unknown, 0 // and done
		}
		p.logs[cluster] = append(p.logs[cluster], entry{record: w.Record, transaction: w.Transaction})
	}
	m.h.Produces = append(m.h.Produces, w)
}

func (m *maker) end(d *doing) {
	commit := m.pick("commit", 3) > 0
	e := End{Span: m.span(), Transaction: d.id, Commit: commit, Outcome: OK}
	if d.dead || m.pick("outcome", 4) == 0 {
		e.Outcome = Unknown
	}
	m.h.Ends = append(m.h.Ends, e)
	m.doing = slices.DeleteFunc(m.doing, func(o *doing) bool { return o == d })
	for i := range m.parts {
		p := m.parts[i]
		if d.parts[i] && (!d.dead || d.cluster == p.other() && !p.follows) { // of a cluster that was turned away from the coordinator aborts what it has
			p.logs[d.cluster] = append(p.logs[d.cluster], entry{transaction: d.id})
			m.decide(p, d.id, d.cluster, commit && !d.dead)
		}
	}
}

func (m *maker) decide(p *made, t Transaction, cluster string, commit bool) {
	if m.decided[p.id][t] == nil {
		m.decided[p.id][t] = map[string]bool{}
	}
	m.decided[p.id][t][cluster] = commit
}

// visible is what a reader of a cluster's log sees from an offset on, at most n records, and where it stands then.
func (m *maker) visible(p *made, cluster string, committed bool, from int64, n int) (seen []Seen, next int64) {
	log := p.log(cluster)
	closed := map[Transaction]int{}
	for i, e := range log {
		if e.record == 0 {
			closed[e.transaction] = i
		}
	}
	owner := cluster
	if cluster != p.primary && p.follows {
		owner = p.primary
	}
	next = from
	for i := from; i < int64(len(log)) && len(seen) < n; i++ {
		e := log[i]
		at, ok := closed[e.transaction]
		if committed && e.record != 0 && e.transaction != 0 && (!ok || at < int(i)) {
			return seen, next // an open transaction
		}
		next = i + 1
		if e.record == 0 || e.gone || committed && e.transaction != 0 && !m.decided[p.id][e.transaction][owner] {
			continue
		}
		seen = append(seen, Seen{i, e.record})
	}
	return seen, next
}

func (m *maker) poll() {
	consumer := []string{"x", "y", "u"}[m.pick("consumer", 3)]
	i := m.pick("partition", len(m.parts))
	p := m.parts[i]
	seen, next := m.visible(p, m.at[consumer], consumer != "u", m.next[consumer][i], 1+m.pick("records", 4))
	s := m.span()
	m.next[consumer][i] = next
	if len(seen) > 0 {
		m.h.Polls = append(m.h.Polls, Poll{Span: s, Consumer: consumer, Cluster: m.at[consumer], Partition: p.id, Committed: consumer != "u", Records: seen})
	}
	if consumer == "x" && m.at["x"] == p.primary && m.pick("commits", 2) == 0 {
		m.groups[i][p.primary] = next
		m.h.Commits = append(m.h.Commits, Commit{Span: m.span(), Group: "g", Cluster: p.primary, Partition: p.id, Offset: next, Outcome: OK})
	}
}

// seek puts a consumer of a group to where its group is, others to the beginning.
func (m *maker) seek(consumer string) {
	for i, p := range m.parts {
		m.at[consumer] = p.primary
		s := Seek{Span: m.span(), Consumer: consumer, Cluster: p.primary, Partition: p.id, Offset: 0}
		if consumer == "x" {
			s.Group, s.Offset = "g", m.groups[i][p.primary]
		}
		m.next[consumer][i] = s.Offset
		m.h.Seeks = append(m.h.Seeks, s)
	}
}

// failover turns every partition to the other cluster.
func (m *maker) failover() {
	if !m.parts[0].follows {
		m.failback()
	}
	for i, p := range m.parts {
		from, to, copied := p.primary, p.other(), int64(p.copied)
		t := Turn{At: m.now + 1, Partition: p.id, From: from, To: to, Offset: copied, Lost: Above(copied)}
		m.now++
		p.logs[to] = append([]entry(nil), p.logs[from][:copied]...)
		open := map[Transaction]bool{}
		for _, e := range p.logs[to] {
			if e.transaction != 0 {
				open[e.transaction] = e.record != 0 && !open[e.transaction] || e.record != 0
			}
			if e.record == 0 && e.transaction != 0 {
				m.decide(p, e.transaction, to, m.decided[p.id][e.transaction][from])
			}
		}
		for n := uint32(1); n <= m.numbers; n++ { // in an order that is always the same
			id := NewTransaction(1, n)
			if open[id] {
				t.Aborted = append(t.Aborted, id)
				p.logs[to] = append(p.logs[to], entry{transaction: id})
				m.decide(p, id, to, false)
			}
		}
		p.logs[to] = append(p.logs[to], entry{})
		m.h.Turns = append(m.h.Turns, t)
		m.groups[i][to] = min(m.groups[i][from], copied)
		p.primary, p.follows = to, false
	}
	for _, d := range m.doing {
		d.dead = true
	}
	for _, c := range []string{"x", "y", "u"} {
		m.seek(c)
	}
}

// failback lets the cluster that was turned away from follow again.
func (m *maker) failback() {
	for _, p := range m.parts {
		if p.follows {
			continue
		}
		common := 0
		old, line := p.logs[p.other()], p.logs[p.primary]
		for common < min(len(old), len(line)) && old[common] == line[common] {
			common++
		}
		m.now++
		m.h.Rejoins = append(m.h.Rejoins, Rejoin{At: m.now, Partition: p.id, Cluster: p.other(), GivenUp: Range{int64(common), int64(len(old))}})
		p.follows, p.copied = true, common
	}
}

// retain takes records away at the start of the primary's log, or one of them.
func (m *maker) retain() {
	p := m.parts[m.pick("partition", len(m.parts))]
	log := p.logs[p.primary]
	if len(log) == 0 || !p.follows {
		return
	}
	from, to := 0, m.pick("to", len(log))
	if m.pick("compacts", 2) == 0 {
		from, to = to, to+1
	}
	m.now++
	m.h.Gone = append(m.h.Gone, Gone{At: m.now, Partition: p.id, Range: Range{int64(from), int64(to)}, Why: "retention"})
	for i := from; i < to; i++ {
		log[i].gone = true
	}
}

// elect lets a replica lead that has not got everything. Markers are left alone: nobody would write them again.
func (m *maker) elect() {
	p := m.parts[m.pick("partition", len(m.parts))]
	log := p.logs[p.primary]
	from := len(log)
	for from > 0 && log[from-1].record != 0 && !log[from-1].gone {
		from--
	}
	if !p.follows || from == len(log) {
		return
	}
	from = rapid.IntRange(from, len(log)-1).Draw(m.T, "end")
	m.now++
	m.h.Turns = append(m.h.Turns, Turn{At: m.now, Partition: p.id, From: p.primary, To: p.primary, Offset: int64(from), Lost: Range{int64(from), int64(len(log))}})
	p.logs[p.primary], p.copied = log[:from:from], min(p.copied, from)
	for _, next := range m.next {
		next[int(p.id.Partition)] = min(next[int(p.id.Partition)], int64(from))
	}
	for c, g := range m.groups[int(p.id.Partition)] {
		m.groups[int(p.id.Partition)][c] = min(g, int64(from))
	}
}

func (m *maker) make() (History, Final) {
	for range rapid.IntRange(5, 120).Draw(m.T, "steps") {
		switch k := m.pick("step", 25); {
		case k < 8:
			m.produce(nil)
		case k < 9 && len(m.doing) < 3:
			m.doing = append(m.doing, &doing{id: NewTransaction(1, m.number()), cluster: m.parts[0].primary, parts: map[int]bool{}})
		case k < 12 && len(m.doing) > 0:
			m.produce(m.doing[m.pick("transaction", len(m.doing))])
		case k < 14 && len(m.doing) > 0:
			m.end(m.doing[m.pick("transaction", len(m.doing))])
		case k < 17:
			m.poll()
		case k < 20:
			for _, p := range m.parts {
				if p.follows {
					p.copied = rapid.IntRange(p.copied, len(p.logs[p.primary])).Draw(m.T, "copied")
				}
			}
		case k == 20:
			m.failover()
		case k == 21:
			m.failback()
		case k == 22:
			m.retain()
		case k == 23:
			m.elect()
		case k == 24:
			m.seek([]string{"x", "y", "u"}[m.pick("consumer", 3)])
		}
	}
	for len(m.doing) > 0 {
		m.end(m.doing[0])
	}
	var f Final
	for _, p := range m.parts {
		if p.follows {
			p.copied = len(p.logs[p.primary])
		}
		for _, c := range []string{"A", "B"} {
			seen, next := m.visible(p, c, true, 0, 1<<20)
			f.Logs = append(f.Logs, Log{Cluster: c, Partition: p.id, Records: seen, End: next})
		}
	}
	return m.h, f
}

func TestWhatCorrectClustersDoHasNoAnomaly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, f := newMaker(t).make()
		if found := Check(h, f); len(found) > 0 {
			t.Fatalf("%v\nin %s", found, tell(h, f))
		}
	})
}

// spoils are ways to make a history wrong. Each says what it did, or "" when there is nothing in the history that it could spoil.
var spoils = map[string]func(t *rapid.T, h *History, f *Final) string{
	"a record that somebody was promised is taken out of the log": func(t *rapid.T, h *History, f *Final) string {
		l := choose(t, f.Logs, func(l Log) bool {
			return slices.ContainsFunc(l.Records, func(s Seen) bool { return promised(h, s.Record) })
		})
		if l == nil {
			return ""
		}
		s := *choose(t, l.Records, func(s Seen) bool { return promised(h, s.Record) })
		l.Records = slices.DeleteFunc(slices.Clone(l.Records), func(o Seen) bool { return o == s })
		return fmt.Sprint(s, " of ", l.Cluster)
	},
	"the log's readers end early": func(t *rapid.T, h *History, f *Final) string {
		l := choose(t, f.Logs, func(l Log) bool { return len(l.Records) > 0 && promised(h, l.Records[len(l.Records)-1].Record) })
		if l == nil {
			return ""
		}
		l.End = l.Records[len(l.Records)-1].Offset
		l.Records = l.Records[:len(l.Records)-1]
		return l.Cluster
	},
	"a record is there twice": func(t *rapid.T, h *History, f *Final) string {
		l := choose(t, f.Logs, func(l Log) bool { return len(l.Records) > 0 })
		if l == nil {
			return ""
		}
		s := *choose(t, l.Records, func(Seen) bool { return true })
		l.Records = append(slices.Clone(l.Records), Seen{l.End, s.Record})
		l.End++
		return s.Record.String()
	},
	"a record that nobody wrote is read": func(t *rapid.T, h *History, f *Final) string {
		p := choose(t, h.Polls, func(Poll) bool { return true })
		if p == nil {
			return ""
		}
		p.Records = slices.Clone(p.Records)
		p.Records[0].Record = NewRecord(9, 9)
		return p.Consumer
	},
	"a consumer is not given a record": func(t *rapid.T, h *History, f *Final) string {
		p := choose(t, h.Polls, func(p Poll) bool {
			return len(p.Records) > 2 && promised(h, p.Records[1].Record) && !ambiguous(h, p.Records[2].Record)
		})
		if p == nil {
			return ""
		}
		s := p.Records[1]
		p.Records = slices.Delete(slices.Clone(p.Records), 1, 2)
		return fmt.Sprint(s, " of ", p.Consumer)
	},
	"a consumer is given the same again": func(t *rapid.T, h *History, f *Final) string {
		p := choose(t, h.Polls, func(Poll) bool { return true })
		if p == nil {
			return ""
		}
		p.Records = append(slices.Clone(p.Records), p.Records[0])
		return p.Consumer
	},
	"what was read is of an aborted transaction": func(t *rapid.T, h *History, f *Final) string {
		e := choose(t, h.Ends, func(e End) bool { return e.Commit && e.Outcome == OK && readOf(h, f, e.Transaction) })
		if e == nil {
			return ""
		}
		e.Commit = false
		return e.Transaction.String()
	},
	"what was read had failed": func(t *rapid.T, h *History, f *Final) string {
		w := choose(t, h.Produces, func(w Produce) bool { return w.Outcome != Failed && read(h, f, w.Record) })
		if w == nil {
			return ""
		}
		w.Outcome = Failed
		return w.Record.String()
	},
	"a record is read before its commit was called": func(t *rapid.T, h *History, f *Final) string {
		e := choose(t, h.Ends, func(e End) bool { return readByPoll(h, e.Transaction) })
		if e == nil {
			return ""
		}
		e.Span = Span{1 << 40, 1<<40 + 1}
		return e.Transaction.String()
	},
	"what a failover lost is not named": func(t *rapid.T, h *History, f *Final) string {
		turn := choose(t, h.Turns, func(turn Turn) bool {
			return slices.ContainsFunc(h.Produces, func(w Produce) bool {
				return w.Partition == turn.Partition && w.Cluster == turn.From && w.Transaction == 0 && w.Outcome == OK && w.Offset >= turn.Offset && w.End < turn.At && !named(h, w, turn)
			})
		})
		if turn == nil {
			return ""
		}
		turn.Lost = Range{}
		return turn.Partition.String()
	},
	"an acknowledgement names another offset": func(t *rapid.T, h *History, f *Final) string {
		w := choose(t, h.Produces, func(w Produce) bool { return w.Outcome == OK && read(h, f, w.Record) })
		if w == nil {
			return ""
		}
		w.Offset += 1000
		return w.Record.String()
	},
}

// choose draws one that fits, nil if none does.
func choose[S any](t *rapid.T, all []S, fits func(S) bool) *S {
	var those []*S
	for i := range all {
		if fits(all[i]) {
			those = append(those, &all[i])
		}
	}
	if len(those) == 0 {
		return nil
	}
	return those[rapid.IntRange(0, len(those)-1).Draw(t, "one")]
}

func written(h *History, r Record) *Produce {
	i := slices.IndexFunc(h.Produces, func(w Produce) bool { return w.Record == r })
	return &h.Produces[i]
}

// promised says that a client was told that a record is there, and that nothing that was named can have taken it.
func promised(h *History, r Record) bool {
	w := written(h, r)
	if w.Outcome != OK || ambiguous(h, r) || slices.ContainsFunc(h.Gone, func(g Gone) bool { return g.Partition == w.Partition && g.Range.holds(w.Offset) }) {
		return false
	}
	if slices.ContainsFunc(h.Turns, func(t Turn) bool { return slices.Contains(t.Aborted, w.Transaction) }) {
		return false
	}
	return w.Transaction == 0 || slices.ContainsFunc(h.Ends, func(e End) bool { return e.Transaction == w.Transaction && e.Commit && e.Outcome == OK })
}

// ambiguous says that it cannot be known in which line a record was written.
func ambiguous(h *History, r Record) bool {
	w := written(h, r)
	return w.Outcome != OK && slices.ContainsFunc(h.Turns, func(t Turn) bool { return t.Partition == w.Partition })
}

func readOf(h *History, f *Final, n Transaction) bool {
	return slices.ContainsFunc(h.Produces, func(w Produce) bool {
		return w.Transaction == n && read(h, f, w.Record) && (readByPoll(h, n) || readAtTheEnd(f, w.Record))
	})
}

func readByPoll(h *History, n Transaction) bool {
	return slices.ContainsFunc(h.Polls, func(p Poll) bool {
		return p.Committed && slices.ContainsFunc(p.Records, func(s Seen) bool { return written(h, s.Record).Transaction == n && n != 0 })
	})
}

func readAtTheEnd(f *Final, r Record) bool {
	return slices.ContainsFunc(f.Logs, func(l Log) bool { return slices.ContainsFunc(l.Records, func(s Seen) bool { return s.Record == r }) })
}

func read(h *History, f *Final, r Record) bool {
	return readAtTheEnd(f, r) || slices.ContainsFunc(h.Polls, func(p Poll) bool { return slices.ContainsFunc(p.Records, func(s Seen) bool { return s.Record == r }) })
}

// named says that something else than this turn names a write.
func named(h *History, w Produce, but Turn) bool {
	return slices.ContainsFunc(h.Gone, func(g Gone) bool { return g.Partition == w.Partition && g.Range.holds(w.Offset) }) ||
		slices.ContainsFunc(h.Rejoins, func(r Rejoin) bool { return r.Partition == w.Partition && r.Cluster == w.Cluster && r.At >= w.Start }) ||
		slices.ContainsFunc(h.Turns, func(t Turn) bool { return t.Partition == w.Partition && t.At != but.At && t.From == w.Cluster })
}

func TestAnySpoilingIsFound(t *testing.T) {
	done := map[string]int{}
	names := slices.Sorted(maps.Keys(spoils))
	rapid.Check(t, func(t *rapid.T) {
		h, f := newMaker(t).make()
		name := rapid.SampledFrom(names).Draw(t, "spoiling")
		what := spoils[name](t, &h, &f)
		if what == "" {
			return
		}
		done[name]++
		if len(Check(h, f)) == 0 {
			t.Fatalf("%s (%s) is not found in %s", name, what, tell(h, f))
		}
	})
	t.Log(done)
}

func tell(h History, f Final) string {
	return fmt.Sprintf("writes %+v\nends %+v\nturns %+v\nrejoins %+v\ngone %+v\npolls %+v\nseeks %+v\ncommits %+v\nlogs %+v", h.Produces, h.Ends, h.Turns, h.Rejoins, h.Gone, h.Polls, h.Seeks, h.Commits, f.Logs)
}
