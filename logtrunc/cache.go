package logtrunc

import (
	"slices"
	"sort"
)

// Entry is one entry of the epoch cache: the first offset written under an epoch.
type Entry struct {
	Epoch int32
	Start int64
}

// Cache is the leader-epoch cache of one log: entries whose epochs and starts both rise strictly (Kafka: LeaderEpochFileCache). The zero value is empty and ready.
// Not safe for concurrent use. Pure.
type Cache struct {
	entries []Entry
}

// NewCache returns a cache with these entries, assigned in order.
func NewCache(entries ...Entry) *Cache {
	c := &Cache{}
	for _, e := range entries {
		c.Assign(e.Epoch, e.Start)
	}
	return c
}

// Assign notes a batch of that epoch at that base offset. An entry is added only if the epoch differs from the latest or has a smaller start;
// entries with an epoch or a start at or above the new one are removed first. Negative epochs are ignored.
func (c *Cache) Assign(epoch int32, start int64) {
	if epoch < 0 {
		return
	}
	n := len(c.entries)
	if n > 0 && c.entries[n-1].Epoch == epoch && c.entries[n-1].Start <= start {
		return
	}
	for n > 0 && (c.entries[n-1].Epoch >= epoch || c.entries[n-1].Start >= start) {
		n--
	}
	c.entries = append(c.entries[:n], Entry{Epoch: epoch, Start: start})
}

// Latest is the greatest epoch, -1 if none.
func (c *Cache) Latest() int32 {
	if len(c.entries) == 0 {
		return Unknown
	}
	return c.entries[len(c.entries)-1].Epoch
}

// EndOffsetFor is Kafka's end-offset-for-epoch over this cache and a log that ends at end: (-1, -1) when undefined, which is for a negative epoch, an empty cache
// and an epoch above the latest. The latest epoch ends at end, any other where the next higher one starts. The epoch returned is the greatest one known that is
// not above the one asked for; an epoch below the first known one is returned as asked.
func (c *Cache) EndOffsetFor(epoch int32, end int64) (int32, int64) {
	if epoch < 0 || epoch > c.Latest() {
		return Unknown, Unknown
	}
	if epoch == c.Latest() {
		return epoch, end
	}
	i := c.firstAbove(epoch)
	if i == 0 {
		return epoch, c.entries[0].Start
	}
	return c.entries[i-1].Epoch, c.entries[i].Start
}

// EpochAt is the epoch of the batch at offset, -1 if unknown. The cache does not know where the log ends: an offset beyond it has the latest epoch.
func (c *Cache) EpochAt(offset int64) int32 {
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].Start > offset })
	if i == 0 {
		return Unknown
	}
	return c.entries[i-1].Epoch
}

// Entries returns a copy, in rising order.
func (c *Cache) Entries() []Entry { return slices.Clone(c.entries) }

// TruncateTo removes entries that start at or above offset.
func (c *Cache) TruncateTo(offset int64) {
	n := len(c.entries)
	for n > 0 && c.entries[n-1].Start >= offset {
		n--
	}
	c.entries = c.entries[:n]
}

// RaiseStart moves the log start: entries wholly below it go, the one that covers it starts there (Kafka: truncateFromStart).
func (c *Cache) RaiseStart(start int64) {
	n := 0
	for n < len(c.entries) && c.entries[n].Start <= start {
		n++
	}
	if n == 0 {
		return
	}
	c.entries = slices.Delete(c.entries, 0, n-1)
	c.entries[0].Start = start
}

// Reset empties the cache.
func (c *Cache) Reset() { c.entries = nil }

// firstAbove is the index of the first entry whose epoch is above epoch; len(entries) if none.
func (c *Cache) firstAbove(epoch int32) int {
	return sort.Search(len(c.entries), func(i int) bool { return c.entries[i].Epoch > epoch })
}
