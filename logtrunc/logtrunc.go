// Package logtrunc says where a log has to be cut: the leader-epoch cache with Kafka's rules (LeaderEpochFileCache), the truncation at the last mirror epoch
// (KIP-1279, PREPARING), and the search for the point where two logs part (KIP-101, KIP-279).
package logtrunc

// Entry is one entry of the epoch cache: the first offset written under an epoch.
type Entry struct {
	Epoch int32
	Start int64
}

// Cache is the leader-epoch cache of one log. Not safe for concurrent use. Pure.
type Cache struct {
	_ int // contract
}

// NewCache returns a cache with these entries, assigned in order.
func NewCache(entries ...Entry) *Cache { panic("contract") }

// Assign notes a batch of that epoch at that base offset. An entry is added only if the epoch differs from the latest or has a smaller start;
// entries with an epoch or a start at or above the new one are removed first. Negative epochs are ignored.
func (c *Cache) Assign(epoch int32, start int64) { panic("contract") }

// Latest is the greatest epoch, -1 if none.
func (c *Cache) Latest() int32 { panic("contract") }

// EndOffsetFor is Kafka's end-offset-for-epoch over this cache and a log that ends at end: (-1, -1) when undefined.
func (c *Cache) EndOffsetFor(epoch int32, end int64) (int32, int64) { panic("contract") }

// EpochAt is the epoch of the batch at offset, -1 if unknown.
func (c *Cache) EpochAt(offset int64) int32 { panic("contract") }

// Entries returns a copy, in rising order.
func (c *Cache) Entries() []Entry { panic("contract") }

// TruncateTo removes entries that start at or above offset.
func (c *Cache) TruncateTo(offset int64) { panic("contract") }

// RaiseStart moves the log start: entries wholly below it go, the one that covers it starts there (Kafka: truncateFromStart).
func (c *Cache) RaiseStart(start int64) { panic("contract") }

// Reset empties the cache.
func (c *Cache) Reset() { panic("contract") }

// Unknown is an epoch or offset that nobody recorded.
const Unknown = -1

// LMEPoint is where a log is cut in PREPARING, given the last mirror epoch and offset that the source recorded for us (spec §3, decision 3):
// lme Unknown → start (everything goes); else the start of the first epoch beyond lme, or end when there is none; additionally bounded by lmo when it is known.
// The result is within [start, end].
func LMEPoint(c *Cache, lme int32, lmo, start, end int64) int64 { panic("contract") }

// Round is one question and answer of a search.
type Round struct {
	Ask      int32 // epoch asked for
	Epoch    int32 // epoch in the answer, -1 undefined
	End      int64 // its end offset in the answer, -1 undefined
	Boundary int64 // what of our log is still in question after this round: the common point is at most here
}

// Search finds where our log and the source's part, in rounds of end-offset-for-epoch (several where one is not enough, KIP-279). It changes nothing: the cut is the caller's.
type Search struct {
	_ int // contract
}

// NewSearch begins with our log [start, end) as it is.
func NewSearch(c *Cache, start, end int64) *Search { panic("contract") }

// Ask is the epoch to ask the source for next; ok is false when the search is over.
func (s *Search) Ask() (epoch int32, ok bool) { panic("contract") }

// Answer takes the source's answer to the last Ask. An undefined answer (-1, -1), or one that names no epoch of ours and leaves nothing to ask, ends the search without proof.
func (s *Search) Answer(epoch int32, end int64) { panic("contract") }

// Result is the common point (our log below it is the source's) and whether it is proved: false → nothing may be cut (decision 15).
// A log without any epoch is proved at end when it is empty, and unproved otherwise.
func (s *Search) Result() (point int64, proved bool) { panic("contract") }

// Rounds lists what was asked and answered so far. The slice is the caller's.
func (s *Search) Rounds() []Round { panic("contract") }
