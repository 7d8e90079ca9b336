package mirror

import (
	"context"
	"fmt"
	"time"
)

// What slows copying down and is no failure: a quota at the source, and a limit of our own.

// slowedFor is how long after the last time somebody is said to be slowed down: a source that throttles does so every few replies.
const slowedFor = 10 * time.Second

// slowed is how one broker's fetches are held back. Under link.mu.
type slowed struct {
	pause   time.Duration // that the broker asked for last
	until   time.Time     // the end of that pause; zero: it has not asked
	told    bool          // an event says that it throttles
	limited time.Time     // until when our own limit holds fetches back, or held the last one
	shared  bool          // that limit is the one of all mirrors together
}

// throttling says that the source throttles.
func (s *slowed) throttling(now time.Time) bool {
	return !s.until.IsZero() && now.Before(s.until.Add(slowedFor))
}

// limiting says that our own limit is what holds fetches back.
func (s *slowed) limiting(now time.Time) bool {
	return !s.limited.IsZero() && now.Before(s.limited.Add(slowedFor))
}

// allow changes the limit of bytes per second, 0 for none, for what is fetched from now on. No connection is opened anew.
func (l *link) allow(rate int64) {
	l.allowance.set(rate, time.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.brokers {
		b.poke()
	}
}

// awaitAllowance waits until something may be fetched under the limit. False: it has waited, and what is wanted may have changed meanwhile.
func (b *brokerLink) awaitAllowance(ctx context.Context) bool {
	began := time.Now()
	wait, shared := b.l.allowance.wait(began), false
	if s := b.l.m.cfg.SharedRate; s != nil {
		if longer := s.allowance.wait(began); longer > wait {
			wait, shared = longer, true
		}
	}
	if wait <= 0 {
		return true
	}
	b.l.mu.Lock()
	b.slowed.limited, b.slowed.shared = began.Add(wait), shared
	b.l.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-b.wake:
	}
	b.l.mu.Lock()
	b.slowed.limited = time.Now()
	b.l.heldBack += b.slowed.limited.Sub(began)
	b.l.mu.Unlock()
	return false
}

// limitReply makes replies no larger than what the limit allows in a second.
func (b *brokerLink) limitReply(f Fetcher) {
	if r, ok := f.(ReplyLimiter); ok {
		_, bytes := b.l.allowance.limit()
		if s := b.l.m.cfg.SharedRate; s != nil {
			if share := s.reply(); share > 0 && (bytes == 0 || share < bytes) {
				bytes = share
			}
		}
		r.LimitReply(bytes)
	}
}

// received takes note of a reply, or of none: its bytes count against the limit, and the source may have asked for a pause.
func (b *brokerLink) received(f Fetcher, reply []FetchedPartition) {
	var bytes int64
	for i := range reply {
		bytes += int64(len(reply[i].Records))
	}
	now := time.Now()
	b.l.allowance.charge(bytes, now)
	if s := b.l.m.cfg.SharedRate; s != nil {
		s.allowance.charge(bytes, now)
	}
	var pause time.Duration
	if t, ok := f.(ThrottleTeller); ok {
		pause = t.Throttled()
	}
	b.l.mu.Lock()
	s := &b.slowed
	if pause > 0 {
		s.pause, s.until = pause, now.Add(pause)
		b.l.throttled += pause
	}
	is := s.throttling(now)
	tell := is != s.told
	s.told = is
	b.l.mu.Unlock()
	if tell {
		b.l.m.emit(SourceThrottled{EventMeta: b.l.m.meta(TopicPartition{Partition: Unknown}), Broker: b.key.broker, Pause: pause})
	}
}

// slowedBy is what slows a partition down, "" if nothing does.
func (l *link) slowedBy(tp TopicPartition) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.wants[tp]
	if w == nil {
		return ""
	}
	now, s := time.Now(), &w.on.slowed
	words := ""
	if s.throttling(now) {
		words = fmt.Sprintf("throttled by the source, %d ms: broker %d asks for pauses because of a quota there", s.pause.Milliseconds(), w.on.key.broker)
	}
	rate, by := l.m.cfg.SharedRate.Rate(), nodeRateSetting+", which all mirrors of the process share"
	if !s.shared {
		rate, _ = l.allowance.limit()
		by = rateSetting
	}
	if rate > 0 && s.limiting(now) {
		if words != "" {
			words += "; "
		}
		words += fmt.Sprintf("limited to %d bytes/s by %s", rate, by)
	}
	return words
}

// throttling says that some broker of the source throttles.
func (l *link) throttling() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, b := range l.brokers {
		if b.used() && b.slowed.throttling(now) {
			return true
		}
	}
	return false
}

// throttledFor is the sum of the pauses that brokers of the source have asked for.
func (l *link) throttledFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.throttled
}

// heldBackFor is the sum of the times that our own limits have held the fetches of one broker back.
func (l *link) heldBackFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heldBack
}
