package memlog

import (
	"context"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// quota is a consumer's quota of bytes at the source, as Kafka keeps it (KIP-219): a reply that exceeds it is followed by an empty one which asks for a pause.
type quota struct {
	mu   sync.Mutex
	rate int64     // bytes per second, 0 for none
	owed float64   // bytes that were sent beyond it, as of at
	at   time.Time // of owed
}

// SetFetchQuota limits what fetchers together receive to that many bytes per second, from now on; 0 lifts that. A fetcher that is to wait returns mirror.ErrNoAnswer and tells
// the pause (mirror.ThrottleTeller), which it keeps by itself.
func (c *Cluster) SetFetchQuota(bytesPerSecond int64) {
	c.quota.mu.Lock()
	defer c.quota.mu.Unlock()
	c.quota.rate, c.quota.owed, c.quota.at = bytesPerSecond, 0, time.Now()
}

// pause is how long whoever fetches now is to be left without records.
func (q *quota) pause() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rate == 0 {
		return 0
	}
	now := time.Now()
	q.owed, q.at = max(0, q.owed-float64(q.rate)*now.Sub(q.at).Seconds()), now
	return time.Duration(q.owed / float64(q.rate) * float64(time.Second)).Round(time.Millisecond)
}

func (q *quota) charge(reply []mirror.FetchedPartition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range reply {
		q.owed += float64(len(reply[i].Records))
	}
}

// Throttled is the pause that the last Fetch was told of, 0 for none.
func (f *fetcher) Throttled() time.Duration { return f.pause }

// LimitReply bounds the bytes of later replies; 0 lifts that.
func (f *fetcher) LimitReply(bytes int32) { f.limit = max(bytes, 0) }

// throttle keeps to a pause that the cluster asked for. When it asks for one now, or one is not over yet, the Fetch ends with mirror.ErrNoAnswer.
func (f *fetcher) throttle(ctx context.Context) error {
	f.pause = 0
	if wait := time.Until(f.until); wait > 0 {
		timer := time.NewTimer(min(wait, f.options.MaxWait))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-f.done: // Fetch says so
		case <-f.c.done:
		}
		if time.Until(f.until) > 0 {
			return mirror.ErrNoAnswer
		}
	}
	if f.pause = f.c.quota.pause(); f.pause > 0 {
		f.until = time.Now().Add(f.pause)
		return mirror.ErrNoAnswer
	}
	return nil
}
