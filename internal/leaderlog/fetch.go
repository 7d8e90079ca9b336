package leaderlog

import (
	"slices"

	"github.com/clustermirror/clustermirror/internal/replicaserver"
)

// The Kafka error codes that a follower gets.
const (
	codeOffsetOutOfRange    = 1
	codeNotLeaderOrFollower = 6
	codeFencedLeaderEpoch   = 74
	codeUnknownLeaderEpoch  = 75
)

var _ replicaserver.Partition = (*Log)(nil)

// serving is the code for a request that was made under a leader epoch, -1 not told. Under mu.
//
// While the log is held, or its content unknown, or we do not lead, that is NOT_LEADER_OR_FOLLOWER. A stock follower (AbstractFetcherThread.processFetchRequest, handleOutOfRangeError,
// maybeTruncateToEpochEndOffsets) then asks again after replica.fetch.backoff.ms (1 s), notes it at debug level, and truncates nothing. UNKNOWN_LEADER_EPOCH does the same; KAFKA_STORAGE_ERROR and
// LEADER_NOT_AVAILABLE too, but as an error with a stack trace each time. FENCED_LEADER_EPOCH would make it give the partition up until it hears of another leader epoch,
// OFFSET_OUT_OF_RANGE and an empty log's answers would make it truncate. So the gate is looked at before the epochs.
func (l *Log) serving(leaderEpoch int32) int16 {
	switch {
	case l.held || !l.known || !l.leading:
		return codeNotLeaderOrFollower
	case leaderEpoch < 0 || leaderEpoch == l.leaderEpoch:
		return 0
	case leaderEpoch < l.leaderEpoch:
		return codeFencedLeaderEpoch
	}
	return codeUnknownLeaderEpoch
}

// Fetch answers a follower as a Kafka leader does (Partition.fetchRecords, readRecords), and notes its position. See the package's text for what differs and why.
func (l *Log) Fetch(q replicaserver.FetchQuery) replicaserver.FetchAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := replicaserver.FetchAnswer{LeaderEpoch: l.leaderEpoch, HighWatermark: -1, LastStableOffset: -1, LogStart: -1}
	if a.Code = l.serving(q.LeaderEpoch); a.Code != 0 {
		return a
	}
	f := l.follower(q.Broker)
	if f == nil {
		// As Partition.followerReplicaOrThrow: with an epoch it is a replica that we have not heard of yet.
		a.Code = codeNotLeaderOrFollower
		if q.LeaderEpoch >= 0 {
			a.Code = codeUnknownLeaderEpoch
		}
		return a
	}
	if !f.is(q.BrokerEpoch) {
		a.Code = codeNotLeaderOrFollower
		return a
	}
	f.logStart, f.seen = q.LogStart, l.now()
	if q.LastFetchedEpoch < 0 && q.Offset > l.end || q.Offset < l.start || q.LastFetchedEpoch > l.leaderEpoch {
		a.Code = codeOffsetOutOfRange
		return a
	}
	a.HighWatermark, a.LogStart = l.replicated, l.start
	if limit := max(f.limit, l.start); q.Offset > limit {
		// It has not followed a cut. Its own last epoch makes it cut at exactly that end, whatever else it holds (AbstractFetcherThread.getOffsetTruncationState). What lies below our start
		// does not matter.
		a.Diverging, a.DivergingEpoch, a.DivergingEnd = true, max(q.LastFetchedEpoch, 0), limit
		f.stale = false
		return a
	}
	if q.LastFetchedEpoch >= 0 {
		epoch, end := l.endOf(q.LastFetchedEpoch)
		if end < 0 {
			a.Code, a.HighWatermark, a.LogStart = codeOffsetOutOfRange, -1, -1
			return a
		}
		if at := l.epochs.EpochAt(q.Offset - 1); q.Offset > l.start && at >= 0 && at < q.LastFetchedEpoch {
			epoch, end = l.endOf(at)
		}
		if epoch < q.LastFetchedEpoch || end < q.Offset {
			a.Diverging, a.DivergingEpoch, a.DivergingEnd = true, epoch, end
			return a
		}
	}
	if q.Offset < l.end && q.Offset >= l.window.low {
		i, j := l.window.find(q.Offset)
		if i < len(l.window.chunks) {
			if base := l.window.chunks[i].marks[j].base; base < q.Offset && q.LogStart < q.Offset {
				// It holds a part of this batch, or something else in its place, and would fail on it; only an empty log takes a batch that begins below its end.
				a.Diverging, a.DivergingEpoch, a.DivergingEnd = true, max(q.LastFetchedEpoch, 0), base
				return a
			}
		}
		a.Batches, a.Size = l.window.read(i, j, q.MaxBytes, true)
	}
	a.Back = q.Offset < l.end && q.Offset < l.window.low
	if a.Back && q.Offset == l.start && l.start > 0 && q.LogStart < q.Offset {
		// The same, if the batch to be read back begins below our start. What it holds lies below the start: it is made to drop it.
		a.Back, a.Diverging, a.DivergingEpoch, a.DivergingEnd = false, true, max(q.LastFetchedEpoch, 0), l.start-1
		return a
	}
	l.accept(f, q, a.Back)
	l.keepUp(f)
	if f.begins > l.start {
		l.followStarts()
	}
	a.HighWatermark, a.LogStart = l.replicated, l.start
	return a
}

// is says whether a fetch is that follower's of now, and notes the broker epoch under which it is made (KIP-903; -1: a broker that does not tell it, Fetch below version 15). As Replica.updateFetchStateOrThrow,
// but an epoch above the one that the metadata shows here is not taken for news: a stranger would confirm what the broker does not have, and shut the broker out. A broker that has just restarted asks again
// after a second, and by then its registration is known here. Under mu.
func (f *follower) is(epoch int64) bool {
	switch {
	case f.registered < 0 && epoch < 0:
		return true
	case f.registered < 0: // the metadata does not know it
		if epoch < f.brokerEpoch {
			return false
		}
		if f.brokerEpoch >= 0 && f.brokerEpoch != epoch {
			f.position, f.hint, f.truncated = -1, -1, false
		}
		f.brokerEpoch = epoch
		return true
	case epoch >= 0 && epoch != f.registered:
		return false
	}
	f.brokerEpoch = f.registered
	return true
}

// accept notes the position of a follower whose log agrees with ours, and that it has followed the cuts. Of one that is to be sent what is read back, and was when a cut came, that is not
// certain: the server may have kept what was read before. Its limit stays until it is answered from the window, or was told the limit. So it may have to take one answer's bytes twice. Under mu.
func (l *Log) accept(f *follower, q replicaserver.FetchQuery, back bool) {
	position := l.reached(q.Offset)
	f.begins, f.empty = min(q.LogStart, q.Offset), q.LastFetchedEpoch < 0
	if q.LastFetchedEpoch < 0 && l.epochs.EpochAt(q.Offset-1) >= 0 {
		position = l.start // it holds nothing, wherever its log begins
	}
	f.reading, f.stale = back, f.stale && back
	certain := !f.stale
	if position == f.position && f.truncated && (f.limit == none || !certain) {
		return
	}
	f.position, f.truncated = position, true
	if certain {
		f.limit = none
	}
	if l.advance() {
		l.notify()
	} else {
		l.told()
	}
}

// keepUp notes until when a follower was in step, as Kafka does (Replica.updateFetchStateOrThrow): now, if it has what is replicated; when it fetched before, if it has by now what was replicated then. Under mu.
func (l *Log) keepUp(f *follower) {
	switch {
	case f.position >= l.replicated:
		f.inStep = f.seen
	case f.position >= f.replicatedBefore:
		f.inStep = f.seenBefore
	}
	f.seenBefore, f.replicatedBefore = f.seen, l.replicated
}

// endOf is where an epoch ends here: Kafka's rule over our cache, but for one thing. A Kafka leader's cache begins its own epoch at its end when it becomes leader, so that a follower whose
// last epoch is above all that the leader's batches have finds out where they part. Ours holds batches' epochs only, for batches of lower epochs are appended still; so every epoch above the
// latest and up to our own is one that ends where the latest does, and a follower that has it parts from us. In a log without epochs, an empty one first of all, each of them ends at the
// end. (-1, -1): undefined. Under mu.
func (l *Log) endOf(epoch int32) (int32, int64) {
	latest := l.epochs.Latest()
	switch {
	case epoch <= latest || epoch > l.leaderEpoch:
		return l.epochs.EndOffsetFor(epoch, l.end)
	case latest >= 0:
		return latest, l.end
	}
	return epoch, l.end
}

// Offsets says where the log starts and ends, and the leader epochs of its first and last batch, -1 in an empty log.
func (l *Log) Offsets(leaderEpoch int32) replicaserver.OffsetsAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := replicaserver.OffsetsAnswer{Code: l.serving(leaderEpoch), Start: -1, End: -1, HighWatermark: -1, StartEpoch: -1, EndEpoch: -1}
	if a.Code == 0 {
		a.Start, a.End, a.HighWatermark = l.start, l.end, l.replicated
		if l.start < l.end {
			a.StartEpoch, a.EndEpoch = l.epochs.EpochAt(l.start), l.epochs.Latest()
		}
	}
	return a
}

// EndOffsetFor answers OffsetForLeaderEpoch.
func (l *Log) EndOffsetFor(leaderEpoch, epoch int32) (foundEpoch int32, endOffset int64, code int16) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if code := l.serving(leaderEpoch); code != 0 {
		return -1, -1, code
	}
	foundEpoch, endOffset = l.endOf(epoch)
	return foundEpoch, endOffset, 0
}

// Subscribe has wake called after every change that may change a Fetch's answer. wake is called with the log's lock held: it must not block, and must not call the log.
func (l *Log) Subscribe(wake func()) (unsubscribe func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := &wake
	l.subscribers = append(slices.Clip(l.subscribers), one)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.subscribers = slices.DeleteFunc(slices.Clone(l.subscribers), func(other *func()) bool { return other == one })
	}
}
