package model

// Active: a group has members at a cluster, or none any more.
func (w *World) Active(cluster, name string, active bool) { w.active[cluster+" "+name] = active }

// Committed: a group's committed offset of a partition is now this; epoch −1: none.
func (w *World) Committed(at At, who Who, name string, offset int64, epoch int32) {
	key := groupAt{at, name}
	if who == Mirror {
		w.mirrorCommits(w.log(at), w.groups[key], name, offset, epoch)
	}
	w.groups[key] = &group{offset, who}
}

func (w *World) mirrorCommits(l *log, was *group, name string, offset int64, epoch int32) {
	m := w.acting(l.at)
	if s := m.state(); l.open || s == stopped || s == paused {
		w.fault("group late", "%v: group %s is moved to %d in state %d, open %v", l.at, name, offset, s, l.open)
	}
	limit := l.replicated
	if end := m.ended(); m.state() == stopping && end != nil && end.LMO >= 0 {
		limit = min(limit, end.LMO)
	}
	if offset < l.start || offset > limit {
		w.fault("group bounds", "%v: group %s is moved to %d; the log starts at %d, the limit is %d", l.at, name, offset, l.start, limit)
	}
	if epoch > l.epoch {
		w.fault("group epoch", "%v: group %s is moved with epoch %d; the log's is %d", l.at, name, epoch, l.epoch)
	}
	if w.active[l.at.Cluster+" "+name] || was != nil && was.who == Clients && was.offset != offset {
		w.fault("group owner", "%v: group %s is moved to %d; active %v, before %+v", l.at, name, offset, w.active[l.at.Cluster+" "+name], was)
	}
}

// restGroups judges the groups that a mirror moved and nobody else did since: each is where the source has it, within the copy.
func (w *World) restGroups(m *member, l *log) {
	for key, g := range w.groups {
		at := w.groups[groupAt{m.source, key.name}]
		if key.at != m.of.At || g.who != Mirror || at == nil || w.active[m.of.Cluster+" "+key.name] {
			continue
		}
		if want := max(l.start, min(at.offset, l.replicated)); g.offset != want {
			w.fault("rest groups", "%v: group %s rests at %d; the source has it at %d, the copy is [%d, %d)", m.of, key.name, g.offset, at.offset, l.start, l.replicated)
		}
	}
}
