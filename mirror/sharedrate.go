package mirror

import (
	"sync/atomic"
	"time"
)

// SharedRate is a limit of bytes per second that several mirrors keep together: each is given it in Config.SharedRate, beside the limit of its own (FetchRate), and the tighter of the two
// holds it back. Mirrors that are behind take turns, so that none of them takes it all. Safe for concurrent use.
type SharedRate struct {
	allowance allowance
	fetchers  atomic.Int32 // that are open, of all mirrors
}

// NewSharedRate is a limit of that many bytes of batches in a second; 0 or less: none.
func NewSharedRate(bytesPerSecond int64) *SharedRate {
	s := &SharedRate{}
	s.Set(bytesPerSecond)
	return s
}

// Set changes the limit for what is fetched from now on, 0 or less for none. A fetch that waits already does so to the end of its wait under the old limit.
func (s *SharedRate) Set(bytesPerSecond int64) { s.allowance.set(max(bytesPerSecond, 0), time.Now()) }

// Rate is the limit in bytes per second, 0 if there is none; of a nil SharedRate too.
func (s *SharedRate) Rate() int64 {
	if s == nil {
		return 0
	}
	rate, _ := s.allowance.limit()
	return rate
}

// reply is how large a reply should be at most, 0 for no bound: each fetcher's part of a second, because all of them may be waiting for the same moment and fetch in it.
func (s *SharedRate) reply() int32 {
	rate, second := s.allowance.limit()
	if rate == 0 {
		return 0
	}
	return max(second/max(s.fetchers.Load(), 1), 1)
}

// enter and leave count the fetchers that share it.
func (s *SharedRate) enter() {
	if s != nil {
		s.fetchers.Add(1)
	}
}

func (s *SharedRate) leave() {
	if s != nil {
		s.fetchers.Add(-1)
	}
}
