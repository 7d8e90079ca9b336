package model

import "slices"

// group is a group's committed offset of a partition, and who moved it last. episode: of the mirror that moved it last. before: where it was before that: as long as the mirror does not know that its move was
// done, either is its own. put: where the mirror moved it last, until it is told of neither: who moves it away and back there cannot be told from the mirror. theirs: somebody else has moved it since this episode's mirror looked at it first. passed: the source's has moved since. free: when the mirror last began to move it, it was free to.
type group struct {
	at                   At
	name                 string
	offset, before, put  int64
	epoch                int32
	who                  Who
	episode              int32
	theirs, passed, free bool
}

// Active: a group has members at a cluster, or none any more. What is not the mirror's already when they come is theirs.
func (w *World) Active(cluster, name string, active bool) {
	w.active[[2]string{cluster, name}] = active
	for _, g := range w.groups {
		if m := w.acting(g.at); active && g.name == name && g.at.Cluster == cluster && g.who != Mirror && (m == nil || !m.lookedAt(name)) { // an idle one that it looked at was taken over
			g.theirs, g.passed = true, false
		}
	}
}

// Committed: a group's committed offset of a partition is now this; epoch −1: none.
func (w *World) Committed(at At, who Who, name string, offset int64, epoch int32) {
	g := w.group(at, name)
	fresh := g == nil
	if fresh {
		g = &group{at: at, name: name, offset: offset, epoch: epoch, who: who, put: -1}
		w.groups = append(w.groups, g)
	}
	m, was := w.acting(at), *g
	g.epoch = epoch
	switch {
	case who == Mirror && m != nil:
		w.moves(m, w.log(at), was, offset, epoch)
		g.episode, g.before, g.put, g.theirs, g.passed = m.record.Episode, g.offset, offset, false, false
	case !fresh && !g.theirs && g.offset == offset: // nobody can tell this from what the mirror has put or found there
		return
	case who != Mirror:
		g.theirs, g.passed = m != nil && m.lookedAt(name) && m.aims[name] != offset+1, false
	}
	g.offset, g.who = offset, who
}

// Aims: a mirror is about to move a group there. Whoever commits just that cannot be told from it, unless it knows that the move was not done (−1): then what is there is theirs, but for what the move was
// to bring forward.
func (w *World) Aims(of Of, name string, offset int64) {
	if g := w.group(of.At, name); offset < 0 && g != nil && g.who != Mirror {
		g.theirs = g.theirs || g.offset >= w.member(of).aims[name]-1
	}
	w.member(of).aims[name] = offset + 1
}

// Forgotten: a cluster knows no more where a group is.
func (w *World) Forgotten(at At, name string) {
	w.groups = slices.DeleteFunc(w.groups, func(g *group) bool { return g.at == at && g.name == name })
}

// lookedAt says that the mirror has looked at a group in this episode, and that the topic is still the same.
func (m *member) lookedAt(name string) bool {
	return m.looked[name] == m.record.Episode && !m.earlier(name)
}

// earlier says that the topic was made again since the group was looked at: where it was then says nothing of this copy (F-28).
func (m *member) earlier(name string) bool {
	saw, ok := m.saw[name]
	return ok && saw.topic != m.record.Topic
}

// place is where a group belongs in a copy (spec §6): where it is at the source, but not beyond a limit, nor beyond where the copy has something of a later leader epoch than the group has read. A gap
// before that is of neither epoch.
func (l *log) place(s seen, limit int64) gap {
	at := gap{min(s.offset, limit), min(s.offset, limit)}
	if i := slices.IndexFunc(l.batches, func(v *version) bool { return v.LeaderEpoch > s.epoch }); i > 0 && s.epoch >= 0 {
		at = gap{min(at.from, l.batches[i-1].Last+1), min(at.to, l.batches[i].Base)}
	} else if i == 0 && s.epoch >= 0 {
		at = gap{l.start, min(at.to, l.batches[i].Base)}
	}
	return gap{max(l.start, at.from), max(l.start, at.to)}
}

func (g gap) has(offset int64) bool { return g.from <= offset && offset <= g.to }

// Saw: the mirror's process was told where the source's topic of this id has a group. The first time in an episode it takes an idle group over, wherever that is: what the copy has is from before. From then on what
// somebody commits at the copy stays until the source's group has moved since (decisions 12, 17). Once it sees that it is theirs, where it has put it before counts no more.
func (w *World) Saw(of Of, name, topic string, offset int64, epoch int32) {
	m, now := w.member(of), seen{offset, epoch, topic}
	last, known := m.saw[name]
	if g := w.group(of.At, name); g != nil && g.who != Mirror {
		first := !m.lookedAt(name)
		g.theirs, g.passed = first && w.active[[2]string{of.Cluster, name}] || !first && g.theirs, g.passed || known && offset != last.offset
		m.aims[name] = map[bool]int64{false: m.aims[name]}[g.theirs]
		g.put = map[bool]int64{true: g.put, false: -1}[g.offset == g.put || g.offset == g.before]
		if l := w.log(of.At); first && !g.theirs && l.place(now, l.replicated).has(g.offset) { // found where the mirror would have put it: as if it had
			g.who, g.episode, g.before = Mirror, m.record.Episode, g.offset
		}
	}
	m.saw[name], m.looked[name] = now, m.record.Episode
}

// lastPlaces: when a copy is opened, an idle group that the mirror moved last is where the mirror saw it at the source, and not behind LMO; at the start, if the topic was made again since.
func (w *World) lastPlaces(m *member, l *log) {
	for _, g := range w.groups {
		if saw, ok := m.saw[g.name]; ok && g.at == l.at && g.who == Mirror && g.episode == m.record.Episode && !w.active[[2]string{l.at.Cluster, g.name}] {
			if m.earlier(g.name) {
				saw = seen{epoch: -1}
			}
			w.must(l.place(saw, m.end.LMO).has(g.offset), "last place", "design.md, STOPPING; decision 12", "%v is opened with group %s at %d; it was last seen at %+v, LMO is %d", m.of, g.name, g.offset, saw, m.end.LMO)
		}
	}
}

func (w *World) group(at At, name string) *group {
	if i := slices.IndexFunc(w.groups, func(g *group) bool { return g.at == at && g.name == name }); i >= 0 {
		return w.groups[i]
	}
	return nil
}

// moves: a mirror moves groups within the log's start and what is replicated, at a stop LMO, or to the start where that lies above, as clients who had the log may have raised it; a group that stands higher, in a copy that was cut, is brought back to its end at least; none once the copy is open, but for one that somebody takes in that moment; none that is in use. What somebody committed there is
// moved forward only, and only when the source's group has moved since; but for the first time in an episode (what it has is from before).
func (w *World) moves(m *member, l *log, g group, offset int64, epoch int32) {
	s, start, limit, active := m.when("group "+g.name), l.start, l.replicated, w.active[[2]string{l.at.Cluster, g.name}]
	if end := m.ended(); s == stopping && end != nil && end.LMO >= 0 {
		limit = min(limit, end.LMO)
	}
	w.must((!l.open || l.taken) && s != stopped && s != paused && m.record.State != stopped && !m.over(l), "group late", "decision 12, spec §6", "%v: group %s is moved to %d in state %d, open %v", l.at, g.name, offset, s, l.open)
	if room, told := m.room["group "+g.name]; told && s != stopping { // the log may have been cut since
		start, limit = min(start, room.from), max(limit, room.to)
	}
	w.must(l.taken || offset >= start && (offset <= max(limit, l.start) || s != stopping && offset <= g.offset && offset <= l.end), "group bounds", "decision 17, spec §6", "%v: group %s is moved to %d; the log starts at %d, the limit is %d", l.at, g.name, offset, l.start, limit)
	w.must(epoch <= l.epoch, "group epoch", "F-42", "%v: group %s is moved with epoch %d; the log's is %d", l.at, g.name, epoch, l.epoch)
	w.must(!active && (g.who == Mirror || !g.theirs || g.offset == g.before || g.offset == g.put || m.earlier(g.name) || (g.passed || g.free) && g.offset <= offset), "group owner", "decision 12", "%v: group %s is moved to %d; active %v, before %+v", l.at, g.name, offset, active, g)
}

// over says that clients have the log, and have written it since the mirror ended, although its gate may be closed now.
func (m *member) over(l *log) bool {
	return m.ended() != nil && m.end.LMO >= 0 && l.theirs && !l.taken && l.end > m.end.LMO && l.batches[len(l.batches)-1].who == Clients
}

// restGroups: idle groups that the source has are where it has them, within the copy, but for those that somebody else has moved there in this episode.
func (w *World) restGroups(m *member, l *log) {
	for _, at := range w.groups {
		if at.at != m.source || w.active[[2]string{m.of.Cluster, at.name}] {
			continue
		}
		g, want := w.group(m.of.At, at.name), l.place(seen{offset: at.offset, epoch: at.epoch}, l.replicated)
		w.must(g != nil, "rest groups", "decisions 12, 17", "%v: group %s is not there; the source has it at %d, the copy is [%d, %d)", m.of, at.name, at.offset, l.start, l.replicated)
		w.must(g == nil || g.theirs || want.has(g.offset), "rest groups", "decisions 12, 17", "%v: group %s rests at %+v; the source has it at %d, the copy is [%d, %d)", m.of, at.name, g, at.offset, l.start, l.replicated)
	}
}
