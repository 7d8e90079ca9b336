package producerstate

import (
	"cmp"
	"slices"
)

// A truncation goes back to a restore point: a copy of the state at some offset. Points are many near the end, where logs are usually cut, and few far
// from it. Below the oldest point the state is rebuilt from the log's start.

const (
	maxPoints     = 8
	pointInterval = 1024 // batches between two points at least; more with many producers or open transactions, so that copying costs each batch no more than a few entries
)

// point is a state that can be gone back to. The aborted index needs no copy: its later entries are cut off.
type point struct {
	next      int64
	isReset   bool
	observed  uint64 // batches observed before it
	producers []producer
	open      openTransactions
	decided   []decided
}

func (m *Manager) maybeKeepPoint() {
	m.sincePoint++
	if m.sincePoint >= max(m.pointEvery, len(m.current.producers), m.current.open.count()) {
		m.keepPoint()
	}
}

func (m *Manager) keepPoint() {
	m.sincePoint = 0
	var p point
	if len(m.points) >= maxPoints {
		i := m.dispensable()
		p = m.points[i]
		m.points = slices.Delete(m.points, i, i+1)
	}
	s := &m.current
	p.next, p.isReset, p.observed = s.next, s.isReset, m.observed
	p.producers = s.producers.appendSorted(p.producers[:0])
	s.open.copyTo(&p.open)
	p.decided = append(p.decided[:0], s.decided.list...)
	m.points = append(m.points, p)
}

// dispensable finds the point whose absence lengthens a replay least, measured against its distance from the end.
func (m *Manager) dispensable() int {
	best, least := 0, 0.0
	var before uint64
	for i := range m.points {
		after := m.observed
		if i+1 < len(m.points) {
			after = m.points[i+1].observed
		}
		gap := float64(after-before) / float64(m.observed-m.points[i].observed+1)
		if i == 0 || gap < least {
			best, least = i, gap
		}
		before = m.points[i].observed
	}
	return best
}

// TruncateTo goes back to a state at or before offset that it still knows and returns where that is: the caller observes the batches in [returned, offset) again.
// It keeps a bounded number of such points by itself; the oldest is the empty log at RaiseStart's offset. Below that offset the log itself begins anew:
// as Reset(offset). An offset at or above Next changes nothing and returns Next. Offsets are batch boundaries: the end of the log after its truncation.
func (m *Manager) TruncateTo(offset int64) int64 {
	switch {
	case offset >= m.current.next:
		return m.current.next
	case offset < m.start:
		m.Reset(offset)
		return offset
	}
	n, _ := slices.BinarySearchFunc(m.points, offset+1, func(p point, offset int64) int { return cmp.Compare(p.next, offset) })
	clear(m.points[n:])
	m.points = m.points[:n]
	m.sincePoint = 0
	if n == 0 {
		m.current = emptyAt(m.start)
		m.observed = 0
	} else {
		m.points[n-1].copyTo(&m.current)
		m.observed = m.points[n-1].observed
		m.current.forgetBelow(m.start)
	}
	i, _ := slices.BinarySearchFunc(m.aborted, m.current.next, func(a Aborted, next int64) int { return cmp.Compare(a.LastOffset, next) })
	m.aborted = m.aborted[:i]
	return m.current.next
}

func (p *point) copyTo(s *state) {
	s.next, s.isReset = p.next, p.isReset
	clear(s.producers)
	for i := range p.producers {
		entry := p.producers[i]
		s.producers.put(&entry)
	}
	p.open.copyTo(&s.open)
	s.decided.list = append(s.decided.list[:0], p.decided...)
}

// RaiseStart forgets what lies wholly below the log's new start: aborted transactions whose marker is there, open ones with all their data there, producers
// with nothing open and all their batches there. What reaches over the start is kept as it is, so a first offset can be below the start.
// A start at or below the present one changes nothing; one above Next empties the log.
func (m *Manager) RaiseStart(start int64) {
	if start <= m.start {
		return
	}
	m.start = start
	m.points = slices.DeleteFunc(m.points, func(p point) bool { return p.next < start })
	m.aborted = slices.DeleteFunc(m.aborted, func(a Aborted) bool { return a.LastOffset < start })
	m.current.forgetBelow(start)
	if m.current.next < start {
		m.current.next = start
		m.current.isReset = false
	}
}

func (s *state) forgetBelow(start int64) {
	for _, id := range s.open.forgetBelow(start) {
		if p := s.producers[id]; p != nil {
			p.OpenSince = -1
		}
	}
	s.producers.forgetBelow(start)
	s.decided.forgetBelow(start)
}

// Reset is the state of an empty log that starts at offset. HighestProducerID is kept.
func (m *Manager) Reset(offset int64) {
	*m = Manager{current: emptyAt(offset), start: offset, highest: m.highest, pointEvery: m.pointEvery}
}
