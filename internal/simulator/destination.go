package simulator

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/statemachine"
)

// What happens to a copy that its mirror did not do, and what can be seen of a mirror from outside.

// opTake lets somebody else lead a copy, and open it: another broker of the cluster, elected without being asked. It has what was replicated.
func opTake(w *world, l *partitionLog, o *words) {
	if l.open || l.c.lost || l.short {
		return
	}
	w.onCopies(l, "log taken by somebody")
	l.cutTo(l.kept(0), model.Cluster, "")
	l.raiseEpoch(max(l.epoch, l.top)+10, model.Cluster, "") // two clusters whose clients write under one epoch cannot be told apart by anybody
	l.taken = true
	l.setOpen(true, model.Cluster, "")
	l.noLeader = false
}

// opShorten lets a copy's leader restart beside the mirror's process: what was not replicated is gone, and the leader epoch is another one.
func opShorten(w *world, l *partitionLog, o *words) {
	if l.open || l.c.lost {
		return
	}
	if l.end > l.high {
		w.onCopies(l, "log loses its end")
	}
	l.cutTo(l.kept(0), model.Cluster, "")
	l.raiseEpoch(l.epoch+1, model.Cluster, "")
}

// opOffload moves what is replicated of a log into remote storage, up to an offset.
func opOffload(w *world, l *partitionLog, o *words) {
	if to := min(o.number("to", l.high), l.high); to > max(l.local, l.start) && !l.c.lost {
		l.local = to
		w.onCopies(l, "log in remote storage")
	}
}

// opUnmake deletes a mirror that is STOPPED everywhere. Its states are taken out, its last mirror epochs stay (decision 8).
func opUnmake(w *world, m *mirror, o *words) {
	t, p := m.destination.topic(m.topic), m.newest()
	if !m.member || m.want != statemachine.WantStopped || t == nil || p == nil || p.held || m.destination.lost {
		return
	}
	var writes []statemachine.Write
	for _, l := range t.logs {
		for _, e := range m.destination.entries(t, l.at.Partition) {
			if e.Key.Mirror == m.name && (e.State.State != statemachine.Stopped || !l.open) {
				return
			}
			if e.Key.Mirror == m.name {
				writes = append(writes, statemachine.Write{Key: e.Key, ExpectedStateEpoch: -1, LeaderEpoch: -1, Delete: true})
			}
		}
	}
	if len(writes) == 0 {
		return
	}
	if results, err := p.session.Write(context.Background(), writes); err != nil || results[0].Err != nil {
		w.wrong(fmt.Errorf("a mirror cannot be deleted: %v, %v", err, results))
		return
	}
	for _, q := range m.processes {
		for _, r := range q.runners {
			r.halted = true
			r.quit()
		}
		q.runners = nil
	}
	m.member, m.consents = false, nil
	keep := w.groups.memories[:0:0]
	for _, k := range w.groups.memories {
		if k.m != m {
			keep = append(keep, k)
		}
	}
	w.groups.memories = keep
	w.stats.answer("mirror deleted", statemachine.Stopped)
	for _, l := range t.logs {
		w.tell(func(mo *model.World) { mo.Removed(model.Of{Mirror: m.name, At: l.at}) })
	}
}

// opUntil lets the world run until all partitions of a mirror, or one, are in a state, or so long: until a-to-b MIRRORING [0] [by=20s].
func opUntil(w *world, m *mirror, o *words) {
	bound := o.duration("by")
	if bound == 0 {
		bound = 20 * time.Second
	}
	there := func() bool {
		p := m.newest()
		if p == nil || len(p.runners) == 0 {
			return false
		}
		for _, r := range p.runners {
			if p := o.arg(2); (p == "" || p == strconv.Itoa(int(r.l.at.Partition))) && !strings.EqualFold(r.state.String(), o.arg(1)) {
				return false
			}
		}
		return true
	}
	for limit := w.now + min(bound, time.Hour); !there() && w.step(limit); {
	}
}

// lose is what a crash does beyond the mirror's contract to a log whose mirror has ended: so many batches are gone although they were replicated (decision 19), or the leader epoch is the last mirror's again.
func (r *runner) lose(short int, back bool) {
	l, lme := r.l, int32(-1)
	for _, e := range l.c.entries(l.t, l.at.Partition) {
		if e.Key == r.key && e.LME != nil && e.LME.Episode == e.State.Episode && (e.State.State == statemachine.Stopped || e.State.State == statemachine.Stopping) {
			lme = e.LME.Epoch
		}
	}
	if lme < 0 || r.m.opposite().busy() {
		return
	}
	if l.open {
		l.setOpen(false, model.Cluster, "")
	}
	if n := len(l.batches) - short; short > 0 && n >= 0 {
		end := l.batches[n].h.BaseOffset
		r.w.stats.answer("log lost", r.state)
		l.forgetTo(end)
		l.short = true
		l.raiseEpoch(l.epoch+1, model.Cluster, "")
	}
	if back && r.state == statemachine.Stopped && lme < l.epoch {
		r.w.stats.answer("leader epoch lost", r.state)
		l.top, l.epoch, l.changed = l.epoch, lme, true
		r.w.tell(func(m *model.World) { m.EpochRaised(l.at, model.Cluster, "", lme) })
	}
}

// opposite is the mirror of the other direction.
func (m *mirror) opposite() *mirror {
	if m == m.w.mirrors[0] {
		return m.w.mirrors[1]
	}
	return m.w.mirrors[0]
}

// busy says that it copies, or may soon.
func (m *mirror) busy() bool {
	for _, p := range m.processes {
		for _, r := range p.runners {
			if r.state != statemachine.Stopped && r.state != statemachine.Unknown {
				return true
			}
		}
	}
	return m.member && m.want != statemachine.WantStopped
}

// kept is where a log ends that keeps what is replicated, and so many batches more. The batch that holds the log's start may hold the high watermark too.
func (l *partitionLog) kept(more int) int64 {
	at := l.high
	for _, b := range l.from(l.high) {
		if b.h.BaseOffset < l.high || more > 0 {
			at = b.h.NextOffset()
			if b.h.BaseOffset >= l.high {
				more--
			}
		}
	}
	return at
}

// replay is what a broker does that begins to lead a log: its producers come from the log.
func (l *partitionLog) replay() {
	var bytes []byte
	for i := range l.batches {
		bytes = append(bytes, l.batches[i].bytes...)
	}
	m := producerstate.New()
	m.Reset(l.start)
	if m.Observe(bytes) != nil {
		return // what lies below the log start may be missing
	}
	var ids []int64
	for _, p := range m.Producers() {
		ids = append(ids, p.ID)
	}
	l.w.tell(func(mo *model.World) { mo.Knows(l.at, ids) })
}

// show tells what the status of partitions says that copy and have nothing under way.
func (w *world) show() {
	w.each(func(r *runner) {
		l := r.l
		if r.state != statemachine.Mirroring || r.fetch == nil || !r.fetch.asked || r.inline || r.writing || len(r.queue)+len(r.effects) > 0 || r.generation != l.generation || l.open {
			return
		}
		st := r.core.Status()
		if st.Log.Start != l.start || st.Log.End != l.end || st.Log.Replicated > l.high {
			return
		}
		caught := int64(-1)
		if !st.CaughtUp.IsZero() && st.CaughtUp.Equal(st.SourceSeen) {
			caught = st.Source.HighWatermark
		}
		w.tell(func(m *model.World) { m.Shows(r.of, st.LastStable, st.Log.Replicated, caught) })
	})
}

// tells a core a little later that replicas have more: what it knows of the log may be newer by then.
func (l *partitionLog) tellReplicated() {
	w := l.w
	w.each(func(r *runner) {
		if r.l != l || r.generation != l.generation || l.open || w.draw(r.purpose(50))%4 > 0 {
			return
		}
		view := l.view()
		w.after(w.jitter(r.purpose(51), 0, 10*time.Millisecond), func() {
			r.p.guard(func() {
				if r.core.Log().Replicated != view.Replicated && !l.gone {
					r.step(partition.Event{Kind: partition.ReplicatedMoved, Log: view})
				}
			})
		})
	})
}
