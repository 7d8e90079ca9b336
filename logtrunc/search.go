package logtrunc

import "slices"

// Round is one question and answer of a search.
type Round struct {
	Ask      int32 // epoch asked for
	Epoch    int32 // epoch in the answer, -1 undefined
	End      int64 // its end offset in the answer, -1 undefined
	Boundary int64 // what of our log is still in question after this round: the common point is at most here
}

// Search finds where our log and the source's part, in rounds of end-offset-for-epoch (several where one is not enough, KIP-279). It changes nothing: the cut is the
// caller's. It works on a copy of the cache, so later changes of the log do not reach it: start a new Search after a cut. Not safe for concurrent use.
//
// One round (Kafka: AbstractFetcherThread.getOffsetTruncationState):
//
//	ask our latest epoch below the boundary
//	the answer names an epoch of ours     → the common point is the smallest of its end there, its end here, and the boundary. Proved.
//	the answer names an epoch we lack     → nothing above that epoch is common: the boundary falls to the start of our first epoch above it. Ask again.
//	undefined, or above what was asked    → no proof. Kafka would cut to 0 or keep; both are guesses (KAFKA-7897).
//
// Each further round asks a lower epoch, so it ends after at most as many rounds as our log has epochs. When nothing is left to ask because the boundary reached the
// log start, every batch of ours is of an epoch that the source lacks: proved, nothing is common. Records below our first known epoch stay unproved.
type Search struct {
	entries    []Entry // those that start below boundary
	start, end int64
	boundary   int64
	over       bool
	proved     bool
	rounds     []Round
}

// NewSearch begins with our log [start, end) as it is. Epochs under which nothing was written (a start at or beyond end) are not asked about.
func NewSearch(c *Cache, start, end int64) *Search {
	s := &Search{entries: c.Entries(), start: start, end: end, boundary: end}
	s.shrink(end)
	return s
}

// Ask is the epoch to ask the source for next; ok is false when the search is over. Asking twice asks the same.
func (s *Search) Ask() (epoch int32, ok bool) {
	if s.over {
		return Unknown, false
	}
	return s.entries[len(s.entries)-1].Epoch, true
}

// Answer takes the source's answer to the last Ask. An undefined answer (-1, -1), or one that names no epoch of ours and leaves nothing to ask, ends the search without
// proof, unless all of our log is of epochs that the source lacks. A source whose first epoch is above the one asked answers with the epoch asked and the start of its
// first (Kafka's rule), which names an epoch of ours. A diverging epoch in a fetch reply is an answer to our latest epoch. Once the search is over, answers change nothing.
func (s *Search) Answer(epoch int32, end int64) {
	ask, ok := s.Ask()
	if !ok {
		return
	}
	switch {
	case epoch < 0 || end < 0 || epoch > ask:
		s.over = true
	case s.knows(epoch):
		_, ours := (&Cache{entries: s.entries}).EndOffsetFor(epoch, s.boundary)
		s.boundary = min(end, ours)
		s.over, s.proved = true, true
	default:
		first := (&Cache{entries: s.entries}).firstAbove(epoch)
		s.shrink(s.entries[first].Start)
	}
	s.rounds = append(s.rounds, Round{Ask: ask, Epoch: epoch, End: end, Boundary: s.boundary})
}

// Result is the common point (our log below it is the source's) and whether it is proved: false → nothing may be cut (decision 15), and the point is our end.
// A log without any epoch is proved at end when it is empty, and unproved otherwise.
// The point is never above end; it is below start when the source's part of the epoch that both know ends below our log start.
func (s *Search) Result() (point int64, proved bool) {
	if !s.proved {
		return s.end, false
	}
	return s.boundary, true
}

// Rounds lists what was asked and answered so far. The slice is the caller's.
func (s *Search) Rounds() []Round { return slices.Clone(s.rounds) }

// shrink lowers the boundary and drops the epochs that lie above it; nothing left in question, or nothing left to ask, ends the search.
func (s *Search) shrink(boundary int64) {
	s.boundary = max(boundary, s.start)
	n := len(s.entries)
	for n > 0 && s.entries[n-1].Start >= s.boundary {
		n--
	}
	s.entries = s.entries[:n]
	s.proved = s.boundary == s.start
	s.over = s.proved || n == 0
}

func (s *Search) knows(epoch int32) bool {
	return slices.ContainsFunc(s.entries, func(e Entry) bool { return e.Epoch == epoch })
}
