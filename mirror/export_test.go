package mirror

import "time"

// LoseFetches makes the mirror lose what a partition's core asks the fetcher for, while lose says so: the fault that the watchdog is there for (F-74). again is
// true for the next fetch after an answer, false for the first one.
func (m *Mirror) LoseFetches(lose func(tp TopicPartition, again bool) bool) {
	m.link.mu.Lock()
	defer m.link.mu.Unlock()
	m.link.lose = lose
}

// WakeUp makes the mirror find that it was held up: its newest heartbeat is an hour old.
func (m *Mirror) WakeUp() { m.lease.note(time.Now().Add(-time.Hour)) }

// SetClock gives an Admin another clock.
func (a *Admin) SetClock(now func() time.Time) { a.now = now }

// SetPromotion records a promotion as its processes do.
func (s *ControlState) SetPromotion(p Promotion) { s.setPromotion(p) }
