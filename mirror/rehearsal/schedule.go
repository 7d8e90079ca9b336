package rehearsal

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Schedule rehearses again and again. Its methods are safe for concurrent use.
type Schedule struct {
	options  Options
	every    time.Duration
	onReport func(*Report)

	mu       sync.Mutex
	last     *Report
	lastGood *Report
}

// NewSchedule makes a schedule of one rehearsal every so often. onReport, which may be nil, is called after each with a report that nobody changes any more.
func NewSchedule(o Options, every time.Duration, onReport func(*Report)) (*Schedule, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if every <= 0 {
		return nil, errors.New("rehearsal: a schedule needs a time between two rehearsals")
	}
	return &Schedule{options: o, every: every, onReport: onReport}, nil
}

// Run rehearses until ctx ends, and returns its error. The first rehearsal comes after one interval: when a process has just begun, its mirror has other things to do.
func (s *Schedule) Run(ctx context.Context) error {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		r, _ := Rehearse(ctx, s.options)
		s.mu.Lock()
		s.last = r
		if r.Good() {
			s.lastGood = r
		}
		s.mu.Unlock()
		if s.onReport != nil {
			s.onReport(r)
		}
	}
}

// Last is the last report, and the last good one; nil: there is none yet. Nobody changes them any more.
func (s *Schedule) Last() (last, good *Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.lastGood
}
