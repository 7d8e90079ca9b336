package model

import "slices"

// proved: while mirroring, records are cut on the word of two searches that came to one point, with a look at fresh metadata between them, and not below it.
func (w *World) proved(m *member, l *log, end int64) {
	dropped := l.batches[below(l.batches, end):]
	if len(dropped) == 0 {
		return
	}
	p := &m.proof
	first, one := l.point(p.first, p.epoch)
	second, two := l.point(p.second, p.epoch)
	w.must(one && two && first == second && dropped[0].Last >= second, "cut proof", "decision 15, F-26, F-36, F-40, F-41", "%v is cut at %d; the source said %+v, and then %+v; the copy has epochs up to %d", m.of, end, p.first, p.second, l.latest())
	p.first, p.second = nil, nil
}

// asked: no batch is appended of a leader epoch that the process had not heard of when it asked (spec §4, F-38), nor of another topic than the one that was copied so far (F-28).
func (w *World) asked(m *member, l, source *log, v *version) {
	p := &m.proof
	w.must(v.LeaderEpoch <= p.epoch, "newer epoch", "spec §4, F-38", "%v: [%d, %d] of epoch %d is appended; the newest epoch that the source named is %d", m.of, v.Base, v.Last, v.LeaderEpoch, p.epoch)
	w.must(slices.Contains(m.served, v.Batch), "stale reply", "F-38, design.md", "%v: [%d, %d] is appended; no reply to the last fetch had it", m.of, v.Base, v.Last)
	if v.born < source.since {
		return
	}
	w.must(p.topic == 0 || p.topic == source.since+1 || !slices.ContainsFunc(l.batches, func(o *version) bool { return o.who == Mirror && o.Kind == Data }), "recreated", "F-28, decision 7", "%v: [%d, %d] is appended behind what was copied from a topic that was deleted", m.of, v.Base, v.Last)
	p.topic = source.since + 1
}

// point is the end of what a log has in common with one that gives this answer; false: it proves nothing (decision 15): it is none, of the epoch that is being written, whose end only grows, or of one
// that the log does not have, unless all of the log, but for what its start has passed, is of later ones.
func (l *log) point(a *seen, current int32) (int64, bool) {
	if a == nil || a.epoch < 0 || a.offset < 0 || a.epoch >= current || len(l.alive) == 0 {
		return 0, false
	}
	has := func(v *version) bool { return v.LeaderEpoch == a.epoch }
	later := func(v *version) bool { return v.LeaderEpoch > a.epoch }
	i := slices.IndexFunc(l.alive, later)
	switch {
	case !slices.ContainsFunc(l.alive, has):
		return l.alive[max(i, 0)].Base, i >= 0 && !slices.ContainsFunc(l.alive[:i], func(v *version) bool { return !v.expired })
	case i < 0:
		return min(a.offset, l.end), true
	}
	return min(a.offset, l.alive[i].Base), true
}
