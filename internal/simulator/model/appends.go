package model

import (
	"cmp"
	"slices"
)

// Appended: whole batches now lie at the log's end, in this order. by names the process or client. accepted says that the writer was told so (a client's acknowledgement).
func (w *World) Appended(at At, who Who, by string, batches []Batch, accepted bool) {
	l := w.log(at)
	for _, b := range batches {
		w.inOrder(l, b)
		switch who {
		case Clients:
			w.clientWrites(l, by, b)
		case Mirror:
			w.mirrorWrites(l, by, b)
		}
		l.add(b, who)
	}
}

// Refused: a client's write was refused, and nothing was written.
func (w *World) Refused(at At, by string) {}

func (w *World) inOrder(l *log, b Batch) {
	if b.Base < l.end || b.Last < b.Base {
		w.fault("order", "%v: batch [%d, %d] is appended to a log that ends at %d", l.at, b.Base, b.Last, l.end)
	}
	if b.LeaderEpoch > l.epoch || b.LeaderEpoch < l.latest() {
		w.fault("epoch fence", "%v: batch at %d has epoch %d; the log's leader epoch is %d, its last record's %d", l.at, b.Base, b.LeaderEpoch, l.epoch, l.latest())
	}
}

func (w *World) clientWrites(l *log, by string, b Batch) {
	if !l.open {
		w.fault("closed gate", "%v: client %s wrote [%d, %d] to a closed log", l.at, by, b.Base, b.Last)
	}
	if m := w.acting(l.at); m.state() == stopped && m.ended() != nil && b.LeaderEpoch <= m.end.LME {
		w.fault("above the end", "%v: client %s wrote at %d under epoch %d; LME is %d", l.at, by, b.Base, b.LeaderEpoch, m.end.LME)
	}
}

func (w *World) mirrorWrites(l *log, by string, b Batch) {
	m := w.owned(l, by, "appends")
	if m == nil {
		return
	}
	source := w.log(m.source)
	if v := source.find(b); v != nil {
		w.copied(m, l, source, v)
	} else if b.Kind == Abort || b.Kind == Reset {
		w.marked(m, l, b)
	} else {
		w.fault("log matching", "%v: the source never had [%d, %d] in these bytes", l.at, b.Base, b.Last)
	}
	m.hole = 0
}

// owned is the member of a log that a mirror's process changes. An overtaken process must not (invariant 9), nor one of a mirror that the partition does not belong to.
func (w *World) owned(l *log, by, does string) *member {
	m := w.acting(l.at)
	if m == nil || m.process != by {
		w.fault("one process", "%v: process %s %s, which does not run it", l.at, by, does)
	}
	return m
}

// copied judges a batch that came from the source: in this state, in these bytes, on top of the same log.
func (w *World) copied(m *member, l, source *log, v *version) {
	if s := m.state(); s != mirroring && !(s == failed && m.record.Previous == mirroring) && s != fencing && s != pausing && !(s == stopping && m.ended() == nil) {
		w.fault("copies", "%v: a batch of the source is appended at %d in state %d", m.of, v.Base, s)
	}
	if w.against(m) {
		w.fault("opposite", "%v copies at %d while the opposite mirror runs", m.of, v.Base)
	}
	if p := l.last(); p != nil && p.who != Cluster {
		if below := source.find(p.Batch); below == nil || !below.with(v) {
			w.fault("log matching", "%v: [%d, %d] is appended on [%d, %d], which the source did not have together with it", m.of, v.Base, v.Last, p.Base, p.Last)
		}
	}
	if v.died != never {
		return
	}
	i, _ := slices.BinarySearchFunc(source.alive, l.end, func(s *version, end int64) int { return cmp.Compare(s.Base, end) })
	for _, s := range source.alive[i:] {
		if s.Base >= v.Base {
			break
		}
		switch {
		case s.Last >= v.Base:
		case s.expired && len(l.ever) > 0:
			m.owes("hole", max(l.end, s.Base), s.Last+1)
		case slices.Contains(source.batches, s):
			w.fault("skipped", "%v: [%d, %d] is appended at end %d; the source has [%d, %d]", m.of, v.Base, v.Last, l.end, s.Base, s.Last)
		}
	}
}

// marked judges a batch of the mirror's own.
func (w *World) marked(m *member, l *log, b Batch) {
	end := m.ended()
	if m.state() != stopping || end == nil || b.LeaderEpoch <= end.LME {
		w.fault("early marker", "%v: marker at %d under epoch %d in state %d; recorded is %+v", m.of, b.Base, b.LeaderEpoch, m.state(), end)
		return
	}
	if want := max(l.end, m.hole); b.Base != want {
		w.fault("used offset", "%v: own batch at %d; the log ends at %d, the source is known to end at %d", m.of, b.Base, l.end, m.hole)
	}
	open := l.transactions()
	switch {
	case l.resets(end.LMO) > 0:
		w.fault("reset", "%v: marker at %d after the reset", m.of, b.Base)
	case b.Kind == Reset && len(open) > 0:
		w.fault("reset", "%v: reset at %d before the ABORTs of %v", m.of, b.Base, open)
	case b.Kind == Abort && (len(open) == 0 || open[0].producer != b.ProducerID || open[0].epoch != b.ProducerEpoch):
		w.fault("abort", "%v: ABORT at %d for producer %d epoch %d; open are %v", m.of, b.Base, b.ProducerID, b.ProducerEpoch, open)
	}
}

// resets counts the resets from an offset on.
func (l *log) resets(from int64) (n int) {
	for _, v := range l.batches {
		if v.Kind == Reset && v.Base >= from {
			n++
		}
	}
	return n
}

// against says whether a mirror of the other direction is beyond its own check (decision 14).
func (w *World) against(m *member) bool {
	return slices.ContainsFunc(w.members, func(o *member) bool {
		s := o.state()
		return o.source == m.of.At && o.of.At == m.source && (s == mirroring || s == fencing || s == pausing || s == paused || s == stopping)
	})
}

// EpochRaised: the log's leader epoch is another one: an election, or a mirror's request.
func (w *World) EpochRaised(at At, who Who, by string, epoch int32) {
	l := w.log(at)
	if epoch < l.epoch {
		w.fault("epoch fence", "%v: the leader epoch went from %d back to %d", at, l.epoch, epoch)
	}
	if who == Mirror {
		if m := w.owned(l, by, "raises the epoch"); m.state() == stopping && m.ended() == nil || m.state() == stopped {
			w.fault("raised epoch", "%v: the leader epoch is raised to %d in state %d; recorded is %+v", at, epoch, m.state(), m.end)
		}
	}
	l.epoch = epoch
}
