package model

import "slices"

// Cut: the log now ends at end, and every batch that held an offset from end on is gone. For a cut by a mirror by is its process.
func (w *World) Cut(at At, who Who, by string, end int64) {
	l := w.log(at)
	switch {
	case who == Mirror:
		if m := w.owned(l, by, "cuts"); m != nil {
			w.mirrorCuts(m, l, end)
		}
	case w.acting(at) != nil && !l.open && end < l.replicated:
		w.fault("replicated", "%v loses what lies from %d on by itself; replicated was %d", at, end, l.replicated)
	}
	l.cut(end)
}

// mirrorCuts judges each batch that a mirror drops.
func (w *World) mirrorCuts(m *member, l *log, end int64) {
	s := m.state()
	if s != preparing && s != mirroring && s != stopping {
		w.fault("cut state", "%v is cut at %d in state %d", m.of, end, s)
	}
	if w.against(m) {
		w.fault("opposite", "%v is cut at %d while the opposite mirror runs", m.of, end)
	}
	for _, v := range l.batches {
		if v.Last < end {
			continue
		}
		if s == stopping {
			if v.Last < l.replicated || m.ended() != nil {
				w.fault("stop cut", "%v: a stop drops [%d, %d]; replicated is %d, recorded %+v", m.of, v.Base, v.Last, l.replicated, m.end)
			}
		} else {
			w.drops(m, l, v)
		}
		if v.Kind == Data {
			m.owes("dropped", v.Base, v.Last+1)
		}
	}
	m.hole = 0
}

// drops judges one batch that a start or a running mirror drops (decisions 7 and 15).
func (w *World) drops(m *member, l *log, v *version) {
	has := w.log(m.source).find(v.Batch)
	allowed := m.allows(v.Base, v.Last+1)
	if has != nil && has.died == never && !(allowed && !w.proves(m)) {
		w.fault("cut common", "%v drops [%d, %d], which the source has", m.of, v.Base, v.Last)
	}
	if v.Kind == Data && !allowed && (l.opened || has == nil) {
		w.fault("consent", "%v drops [%d, %d] in episode %d; the source had it: %v, the log was open: %v, consents are %v", m.of, v.Base, v.Last, m.record.Episode, has != nil, l.opened, m.consents)
	}
}

// proves says whether the source knows where its own mirror from us ended, so that what both have is known (spec §3).
func (w *World) proves(m *member) bool {
	return slices.ContainsFunc(w.members, func(o *member) bool {
		return o.of.At == m.source && o.end != nil && o.end.LMO >= 0 && o.end.SourceCluster == m.of.Cluster
	})
}

// allows says whether one consent of this episode covers all of [from, to) (decision 7).
func (m *member) allows(from, to int64) bool {
	return m.record != nil && slices.ContainsFunc(m.consents, func(c consent) bool { return c.episode == m.record.Episode && c.from <= from && to <= c.to })
}

// Restarted: the log is empty and its next offset is start.
func (w *World) Restarted(at At, who Who, by string, start int64) {
	l := w.log(at)
	if who == Mirror {
		if m := w.owned(l, by, "starts again"); m != nil {
			w.mirrorRestarts(m, l, start)
		}
	}
	l.cut(min(l.start, start))
	l.start, l.end, l.replicated = start, start, start
}

func (w *World) mirrorRestarts(m *member, l *log, start int64) {
	source, held := w.log(m.source), len(l.batches) > 0
	gone := source.start >= start && start > l.end && m.loss == "restart"
	if s := m.state(); s != preparing && s != mirroring {
		w.fault("cut state", "%v begins again at %d in state %d", m.of, start, s)
	}
	for _, v := range l.batches {
		has := source.find(v.Batch)
		allowed := m.allows(v.Base, v.Last+1)
		if v.Kind == Data && !allowed && has == nil {
			w.fault("consent", "%v begins again and drops [%d, %d], which the source never had", m.of, v.Base, v.Last)
		} else if v.Kind == Data && !allowed && !gone {
			w.fault("restart", "%v begins again at %d and drops [%d, %d]; the source starts at %d, the policy is %q", m.of, start, v.Base, v.Last, source.start, m.loss)
		}
		if v.Kind == Data {
			m.owes("dropped", v.Base, v.Last+1)
		}
	}
	if start > source.start {
		w.fault("restart", "%v begins again at %d; the source starts at %d", m.of, start, source.start)
	}
	if (held || l.start > 0 || len(l.ever) > 0) && start > l.end {
		m.owes("lost", l.end, start)
	}
}

// StartRaised: the log start moved up; the batch that holds it stays whole.
func (w *World) StartRaised(at At, who Who, by string, start int64) {
	l := w.log(at)
	if who == Mirror {
		if m := w.owned(l, by, "raises the start"); m != nil && (start > w.log(m.source).start || start > l.replicated || m.floor > 0 && start > m.floor) {
			w.fault("start", "%v: start raised to %d; the source's is %d, replicated %d, the floor %d", at, start, w.log(m.source).start, l.replicated, m.floor)
		}
	}
	for _, v := range l.alive {
		v.expired = v.expired || v.Last < start
	}
	l.start = max(l.start, start)
	l.end, l.replicated = max(l.end, l.start), max(l.replicated, l.start)
	l.batches = slices.DeleteFunc(l.batches, func(v *version) bool { return v.Last < start })
}

// Compacted: these batches took the place of all that lay between the first and the last of them; offsets may be missing, none is new.
func (w *World) Compacted(at At, from, to int64, batches []Batch) {
	l := w.log(at)
	i := slices.IndexFunc(l.batches, func(v *version) bool { return v.Last >= from })
	if i < 0 {
		return
	}
	j := i
	for j < len(l.batches) && l.batches[j].Base < to {
		j++
	}
	fresh := make([]*version, 0, len(batches))
	for _, b := range batches {
		if k := slices.IndexFunc(l.batches[i:j], func(v *version) bool { return v.Batch == b }); k >= 0 {
			fresh = append(fresh, l.batches[i+k])
			continue
		}
		v := &version{Batch: b, who: Cluster, born: l.line, died: never}
		fresh, l.ever[b.Base] = append(fresh, v), append(l.ever[b.Base], v)
		k, _ := slices.BinarySearchFunc(l.alive, b.Base+1, func(s *version, base int64) int { return int(s.Base - base) })
		l.alive = slices.Insert(l.alive, k, v)
	}
	l.batches = slices.Replace(l.batches, i, j, fresh...)
}

// owes notes that records have to be told of.
func (m *member) owes(what string, from, to int64) {
	all := m.need[what]
	if n := len(all); n > 0 && all[n-1].to >= from && all[n-1].from <= from {
		all[n-1].to = max(all[n-1].to, to)
		return
	}
	m.need[what] = append(all, gap{from, to})
}

// untold are the ranges that were not told. A range may be told in pieces.
func (m *member) untold(what string) (all []gap) {
	for _, n := range m.need[what] {
		for at := n.from; at < n.to; {
			next := at
			for _, t := range m.told[what] {
				if t.from <= at && at < t.to {
					next = max(next, t.to)
				}
			}
			if next == at {
				all = append(all, gap{at, n.to})
				break
			}
			at = next
		}
	}
	return all
}
