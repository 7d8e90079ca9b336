package mirror

import (
	"errors"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// FetchCounts are what a mirror has fetched from its source and appended to its copies, since this process began to run it.
type FetchCounts struct {
	// Records, Empty and Failed are its fetches, by what came of them: a reply with records for somebody, one without, none.
	Records, Empty, Failed FetchTimes

	ReceivedBytes int64 // of batches in replies, whatever became of them
	CopiedBytes   int64 // appended to copies, as the source stores them: compressed, with the batches' headers
	CopiedBatches int64 // appended to copies
}

// FetchTimes are how long fetches took, from the request until its reply was there. In it is the time for which the source waits for records, FetchOptions.MaxWait at most; where a source is
// asked ahead (kafkasource.Config.ReadAheadBytes) it is the wait for the next reply.
type FetchTimes struct {
	Count  int64
	Total  time.Duration
	Within [len(fetchBounds)]int64 // by FetchBounds: how many took that long at most
}

var fetchBounds = [...]time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// FetchBounds are the times that FetchTimes.Within counts by, the shortest first. The slice is the caller's.
func FetchBounds() []time.Duration { return append([]time.Duration(nil), fetchBounds[:]...) }

func (t *FetchTimes) add(took time.Duration) {
	t.Count++
	t.Total += took
	for i := len(fetchBounds) - 1; i >= 0 && took <= fetchBounds[i]; i-- {
		t.Within[i]++
	}
}

// fetchCounting counts for one mirror. Safe for concurrent use: fetchers count replies, and partitions what they append.
type fetchCounting struct {
	mu sync.Mutex
	n  FetchCounts
}

// fetched takes in what came of a fetch.
func (c *fetchCounting) fetched(took time.Duration, reply []FetchedPartition, err error) {
	bytes := int64(0)
	for i := range reply {
		bytes += int64(len(reply[i].Records))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n.ReceivedBytes += bytes
	switch {
	case err != nil && !errors.Is(err, ErrNoAnswer):
		c.n.Failed.add(took)
	case bytes > 0:
		c.n.Records.add(took)
	default:
		c.n.Empty.add(took)
	}
}

// copied takes in what was appended.
func (c *fetchCounting) copied(bytes, batches int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n.CopiedBytes += bytes
	c.n.CopiedBatches += batches
}

func (c *fetchCounting) now() FetchCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// batchesOf counts whole batches that were checked before.
func batchesOf(b []byte) (n int64) {
	for len(b) > 0 {
		_, size, err := batch.Next(b)
		if err != nil {
			break
		}
		n, b = n+1, b[size:]
	}
	return n
}
