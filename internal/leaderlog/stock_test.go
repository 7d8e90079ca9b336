package leaderlog

import (
	"fmt"
	"slices"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
	"github.com/clustermirror/clustermirror/logtrunc"
)

// copied is one batch of a copy.
type copied struct {
	base, last int64
	epoch      int32
	bytes      string
}

// stock is a stock broker's follower of one partition: UnifiedLog, LeaderEpochFileCache, AbstractFetcherThread and ReplicaFetcherThread as far as bytes and offsets go. Its disk survives everything.
type stock struct {
	id            int32
	batches       []copied
	segment       int64 // base offset of the first segment
	start, end    int64
	highWatermark int64
	cache         *logtrunc.Cache
	last          int32 // last fetched epoch, -1 none
	leaderEpoch   int32 // as its metadata says
	fenced        bool  // given up until it hears of another leader epoch
	dead          bool
	failed        string // what a stock broker would never come back from by itself

	asked  *replicaserver.FetchQuery // a fetch under way, and what was answered
	answer replicaserver.FetchAnswer
	back   []byte
}

func newStock(id int32) *stock { return &stock{id: id, cache: logtrunc.NewCache(), last: -1} }

// leader is what a follower talks to.
type leader interface {
	Fetch(q replicaserver.FetchQuery) replicaserver.FetchAnswer
	Offsets(leaderEpoch int32) replicaserver.OffsetsAnswer
}

// ask sends a fetch.
func (s *stock) ask(l leader, most int) {
	if s.dead || s.fenced || s.asked != nil {
		return
	}
	s.asked = &replicaserver.FetchQuery{Broker: s.id, BrokerEpoch: -1, LeaderEpoch: s.leaderEpoch, Offset: s.end, LastFetchedEpoch: s.last, LogStart: s.start, MaxBytes: most}
	s.answer, s.back = l.Fetch(*s.asked), nil
}

// take takes the answer: AbstractFetcherThread.processFetchRequest.
func (s *stock) take(l leader) {
	q, a := s.asked, s.answer
	s.asked = nil
	if q == nil || s.dead || s.fenced || q.Offset != s.end || q.LeaderEpoch != s.leaderEpoch {
		return
	}
	switch {
	case a.Code == codeFencedLeaderEpoch:
		s.fenced = true
	case a.Code == codeOffsetOutOfRange:
		s.outOfRange(l)
	case a.Code != 0:
	case a.Diverging:
		s.diverge(a.DivergingEpoch, a.DivergingEnd)
	default:
		batches := slices.Concat(a.Batches...)
		if a.Back {
			batches = s.back
		}
		s.append(batches)
		s.highWatermark = min(a.HighWatermark, s.end)
		s.raise(a.LogStart)
	}
}

// append: UnifiedLog.appendAsFollower, Partition.appendRecordsToFollowerOrFutureReplica.
func (s *stock) append(b []byte) {
	for h, whole := range batch.All(b) {
		if h.LeaderEpoch > s.leaderEpoch {
			s.failed = fmt.Sprintf("batch %d with epoch %d skipped under leader epoch %d", h.BaseOffset, h.LeaderEpoch, s.leaderEpoch)
			return
		}
		if h.BaseOffset < s.end {
			if s.start != s.end || h.LastOffset() < s.end {
				s.failed = fmt.Sprintf("batch %d–%d to append at %d, the log begins at %d", h.BaseOffset, h.LastOffset(), s.end, s.start)
				return
			}
			s.wipe(h.BaseOffset)
		}
		s.batches = append(s.batches, copied{h.BaseOffset, h.LastOffset(), h.LeaderEpoch, string(whole)})
		s.cache.Assign(h.LeaderEpoch, h.BaseOffset)
		s.end, s.last = h.NextOffset(), h.LeaderEpoch
	}
}

// raise: UnifiedLog.maybeIncrementLogStartOffset.
func (s *stock) raise(start int64) {
	if start > s.highWatermark {
		s.failed = fmt.Sprintf("log start %d told with a high watermark of %d", start, s.highWatermark)
		return
	}
	if start > s.start {
		s.start = start
		s.cache.RaiseStart(start)
	}
}

// outOfRange: AbstractFetcherThread.fetchOffsetAndTruncate.
func (s *stock) outOfRange(l leader) {
	a := l.Offsets(s.leaderEpoch)
	switch {
	case a.Code == codeFencedLeaderEpoch:
		s.fenced = true
		return
	case a.Code != 0:
		return
	case a.End < s.end:
		s.truncate(a.End)
	case a.Start > s.end:
		s.wipe(a.Start)
	}
	s.last = s.cache.Latest()
}

// diverge: AbstractFetcherThread.getOffsetTruncationState.
func (s *stock) diverge(epoch int32, end int64) {
	found, own := s.cache.EndOffsetFor(epoch, s.end)
	switch {
	case own < 0:
		s.truncate(min(end, s.end))
	case found != epoch:
		s.truncate(min(own, s.end))
	default:
		s.truncate(min(own, end, s.end))
	}
	s.last = s.cache.Latest()
}

// truncate: UnifiedLog.truncateTo, LocalLog.truncateTo.
func (s *stock) truncate(to int64) {
	switch {
	case to >= s.end:
		s.cache.TruncateTo(s.end)
	case s.segment > to:
		s.wipe(to)
	default:
		n := slices.IndexFunc(s.batches, func(b copied) bool { return b.last >= to })
		if n >= 0 {
			s.batches = s.batches[:n]
		}
		s.end, s.start = to, min(s.start, to)
		s.cache.TruncateTo(to)
		s.highWatermark = min(s.highWatermark, to)
	}
}

// wipe: UnifiedLog.truncateFullyAndStartAt.
func (s *stock) wipe(start int64) {
	s.batches, s.segment, s.start, s.end, s.highWatermark = nil, start, start, start, start
	s.cache.Reset()
	s.last = -1
}

// restart: the end is that of the last batch on disk (LogLoader); a request under way is lost.
func (s *stock) restart() {
	s.dead, s.fenced, s.asked = false, false, nil
	if n := len(s.batches); n > 0 {
		s.end = max(s.batches[n-1].last+1, s.start)
	}
	s.last = s.cache.Latest()
}

// hear: it becomes a follower under another leader epoch.
func (s *stock) hear(leaderEpoch int32) {
	if leaderEpoch > s.leaderEpoch {
		s.leaderEpoch, s.fenced, s.asked = leaderEpoch, false, nil
		s.last = s.cache.Latest()
	}
}

// bytes are its batches as one piece.
func (s *stock) bytes() []byte {
	var b []byte
	for _, c := range s.batches {
		b = append(b, c.bytes...)
	}
	return b
}

// has says whether it holds every one of these batches below limit that reaches start.
func (s *stock) has(truth []copied, start, limit int64) bool {
	own := slices.DeleteFunc(slices.Clone(s.batches), func(b copied) bool { return b.last < start || b.base >= limit })
	want := slices.DeleteFunc(slices.Clone(truth), func(b copied) bool { return b.last < start || b.base >= limit })
	return slices.Equal(own, want)
}
