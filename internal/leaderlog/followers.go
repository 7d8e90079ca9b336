package leaderlog

import (
	"cmp"
	"slices"
	"time"
)

// Follower is what is known of one follower.
type Follower struct {
	Broker   int32
	Live     bool
	Position int64     // its copy is ours up to here; -1: it has not fetched since Begin
	Seen     time.Time // its last fetch, the zero time if there was none since Begin
	Since    time.Time // when it began to be waited for: it became a replica, registered anew, or Begin came
	// InStep is until when it had all that is replicated, but for what came while it fetched; the zero time: never. One that copies as fast as records come is in step all the time.
	InStep time.Time
	// Truncated says that it has fetched and agreed since the last Begin, TruncateTo or ResetTo.
	Truncated bool
	// Limit is the lowest end left by Begin, TruncateTo or ResetTo of which it is not certain yet that it followed it; -1: none. From there on it may hold what was cut. Whoever
	// recovers the log after this process needs it (Found.Limits).
	Limit    int64
	LogStart int64 // its log start offset, as it said last; -1 unknown
	// BrokerEpoch is that of the registration under which it was at Position: whoever names it in sync names that one, so that the controllers refuse it if it has restarted (KIP-903). -1 unknown.
	BrokerEpoch int64
}

// Agrees says that all that it holds is ours: it has followed every cut.
func (f Follower) Agrees() bool { return f.Truncated && f.Limit < 0 }

// Has says that it has the log up to end, and nothing that was cut.
func (f Follower) Has(end int64) bool { return f.Position >= end && f.Agrees() }

// follower is one other replica.
type follower struct {
	id          int32
	live        bool
	position    int64 // confirmed; -1 never. At most limit
	hint        int64 // as recovery found its copy; used to read back until it fetches
	truncated   bool  // it has fetched and agreed since the last cut
	limit       int64 // lowest end left by cuts of which it is not certain that it followed them; none: it did. It may hold other bytes from there on
	reading     bool  // its last answer was that batches are read back for it
	stale       bool  // that was before a cut: it may be sent batches that were cut, and they are not known to have been
	logStart    int64
	begins      int64     // logStart of its last fetch that was accepted
	empty       bool      // and it had no batch then
	since       time.Time // when it was forgotten last
	registered  int64     // its broker epoch as the cluster has it; -1 unknown
	brokerEpoch int64     // under which it fetched last; -1 never, or unknown
	seen        time.Time
	inStep      time.Time // until when it had what is replicated; the zero time: it never did

	seenBefore       time.Time // of the fetch before, and what was replicated then
	replicatedBefore int64
}

// agreed says that all that it holds is ours.
func (f *follower) agreed() bool { return f.position >= 0 && f.limit == none }

// SetFollowers says which brokers are replicas beside us, which of them are live, and how many copies must confirm a batch (min.insync.replicas). What is known of a broker that stays is kept.
// A broker that is new, or comes back, has to begin at or below every end that Begin and the cuts since left.
//
// registered are their broker epochs, as the cluster has them; a missing one is not known. A broker that registers anew has restarted, perhaps without what its disk had not written yet, or with an empty
// disk: its position is forgotten until it fetches.
//
// Replicated is the k-th largest of the followers' positions, k = max(1, min(want, live followers)), but never above the furthest live follower's. A dead follower's position counts: its disk
// has the bytes, and if it did not count, one restarting broker would stop the stop of a mirror although as many copies as asked for exist. Only k shrinks, as Kafka's in-sync set does, else a
// dead broker would stall everything. The bound by the live ones keeps a follower's death from raising Replicated to what that follower alone has: the process that takes over could not
// find those bytes, and the live followers could not be given them. A position rises only by an accepted fetch, so Replicated never counts what was merely sent.
func (l *Log) SetFollowers(ids, live []int32, registered map[int32]int64, want int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.followers
	l.followers = make([]*follower, 0, len(ids))
	for _, id := range ids {
		i := slices.IndexFunc(old, func(f *follower) bool { return f.id == id })
		f := &follower{id: id, registered: -1}
		l.forget(f)
		if i >= 0 {
			f = old[i]
		}
		f.live = slices.Contains(live, id)
		if epoch, ok := registered[id]; ok {
			f.under(epoch, l.now())
		}
		l.followers = append(l.followers, f)
	}
	l.want = want
	l.advance()
	l.notify()
}

// forget makes a follower one that has not fetched yet. Under mu.
func (l *Log) forget(f *follower) {
	*f = follower{id: f.id, live: f.live, registered: f.registered, position: -1, hint: -1, limit: l.lowestCut, logStart: -1, brokerEpoch: -1, since: l.now()}
	if limit, ok := l.found.Limits[f.id]; ok {
		f.limit = min(f.limit, limit)
	}
	if end, ok := l.found.Ends[f.id]; ok {
		f.hint = min(end, f.limit)
	}
}

// under takes the epoch of a follower's registration; they only grow, and whoever tells an older one is late. What was known of it under another one it need not have any more; which cuts it has followed
// stays. Under mu.
func (f *follower) under(epoch int64, now time.Time) {
	if epoch < f.registered {
		return
	}
	if f.registered >= 0 && f.registered != epoch || f.brokerEpoch >= 0 && f.brokerEpoch != epoch {
		f.position, f.hint, f.truncated, f.brokerEpoch, f.since = -1, -1, false, -1, now
	}
	f.registered = epoch
}

// Followers lists the followers in the order of SetFollowers. The slice is the caller's.
func (l *Log) Followers() []Follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report()
}

func (l *Log) report() []Follower {
	all := make([]Follower, len(l.followers))
	for i, f := range l.followers {
		all[i] = Follower{Broker: f.id, Live: f.live, Position: f.position, Seen: f.seen, InStep: f.inStep, Since: f.since, Truncated: f.truncated, Limit: f.limit, LogStart: f.logStart, BrokerEpoch: f.brokerEpoch}
		if f.limit == none {
			all[i].Limit = -1
		}
	}
	return all
}

// follower finds a follower. Under mu.
func (l *Log) follower(id int32) *follower {
	for _, f := range l.followers {
		if f.id == id {
			return f
		}
	}
	return nil
}

// advance moves Replicated up to what the positions say, and lets go of batches accordingly. It says whether Replicated moved. Under mu.
func (l *Log) advance() bool {
	all, live := l.positions[:0], 0
	furthest, slowest := int64(-1), int64(none)
	for _, f := range l.followers {
		all = append(all, f.position)
		for i := len(all) - 1; i > 0 && all[i] > all[i-1]; i-- {
			all[i], all[i-1] = all[i-1], all[i]
		}
		if f.live {
			live++
			furthest, slowest = max(furthest, f.position), min(slowest, f.position)
		}
	}
	l.positions = all
	moved := false
	if live > 0 {
		if r := min(all[max(1, min(l.want, live))-1], furthest, l.end); r > l.replicated {
			l.replicated, moved = r, true
		}
	}
	have := min(l.replicated, furthest)
	l.sort(have, min(have, slowest))
	return moved
}

// cutFollowers notes that every follower has to follow a cut that left end. Under mu.
func (l *Log) cutFollowers(end int64) {
	l.cuts++
	l.lowestCut = min(l.lowestCut, end)
	for _, f := range l.followers {
		f.position, f.hint, f.limit, f.truncated, f.stale = min(f.position, end), min(f.hint, end), min(f.limit, end), false, f.stale || f.reading
	}
}

// reached is a position as it counts: a follower that has the last batch has everything, even where a gap follows it. Under mu.
func (l *Log) reached(position int64) int64 {
	if position >= l.tail {
		return l.end
	}
	return position
}

// holders are the followers whose copies reach beyond from; least is up to where each of them reaches, limit up to where whatever they hold is ours. Those that are live and agree with us
// come alone if there are any. Else all others, the live ones first, the furthest first. Under mu.
func (l *Log) holders(from int64) (ids []int32, least, limit int64) {
	var some []*follower
	least, limit = l.end, l.end
	for _, f := range l.followers {
		if f.live && f.agreed() && f.position > from {
			some = append(some, f)
			least = min(least, f.position)
		}
	}
	if len(some) == 0 {
		for _, f := range l.followers {
			if reach := max(f.position, f.hint); reach > from {
				some = append(some, f)
				least = min(least, reach)
			}
		}
		limit = least
	}
	slices.SortStableFunc(some, func(a, b *follower) int {
		if a.live != b.live {
			if a.live {
				return -1
			}
			return 1
		}
		// A copy whose start is above from comes last: there retention or compaction went further than here.
		if short := cmp.Compare(min(max(a.logStart-from, 0), 1), min(max(b.logStart-from, 0), 1)); short != 0 {
			return short
		}
		return cmp.Compare(max(b.position, b.hint), max(a.position, a.hint))
	})
	for _, f := range some {
		ids = append(ids, f.id)
	}
	return ids, least, limit
}
