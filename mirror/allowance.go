package mirror

import (
	"math"
	"sync"
	"time"
)

// allowance is how many bytes a mirror may receive from its source (mirror.replication.throttled.rate): a bucket that the rate fills. A reply is charged when it is there, so
// the bucket may be in debt, and nothing is fetched before the debt is paid off. The zero allowance is without end. Safe for concurrent use: the fetchers of all brokers share it.
type allowance struct {
	mu    sync.Mutex
	rate  int64   // bytes per second; 0: no limit
	level float64 // bytes that may be received, as of at; below 0: a debt
	at    time.Time
}

// allowanceSpan is how much of the rate is kept while nothing arrives, as a time: what is lost between a reply and the next fetch is made up for, up to that long a round trip.
const allowanceSpan = 250 * time.Millisecond

// set changes the rate; 0 is no limit. A debt stays, and is paid off at the new rate.
func (a *allowance) set(rate int64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if rate == a.rate {
		return
	}
	a.fill(now)
	a.rate = rate
	a.level = min(a.level, a.most())
	if rate == 0 {
		a.level = 0
	}
}

// fill brings the level up to now. Under mu.
func (a *allowance) fill(now time.Time) {
	if a.rate > 0 && !a.at.IsZero() {
		a.level = min(a.level+float64(a.rate)*now.Sub(a.at).Seconds(), a.most())
	}
	a.at = now
}

func (a *allowance) most() float64 { return float64(a.rate) * allowanceSpan.Seconds() }

// charge takes the bytes of a reply off.
func (a *allowance) charge(bytes int64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rate > 0 {
		a.fill(now)
		a.level -= float64(bytes)
	}
}

// wait is how long nothing may be fetched, 0 if it may now.
func (a *allowance) wait(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fill(now)
	if a.rate == 0 || a.level >= 0 {
		return 0
	}
	seconds := -a.level / float64(a.rate)
	return time.Duration(min(math.Ceil(seconds*float64(time.Second)), float64(math.MaxInt64/2)))
}

// limit is the rate in bytes per second, 0 if there is none, and how large a reply should be at most: a second's worth, so that no debt keeps the mirror silent for long.
func (a *allowance) limit() (rate int64, reply int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rate, int32(min(a.rate, math.MaxInt32))
}
