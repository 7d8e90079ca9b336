package leaderlog

import (
	"time"
)

// unheardWait is how long a live follower that has not fetched yet, since Begin or since it registered anew, keeps Start where it is: its copy may begin lower than the others'.
const unheardWait = 30 * time.Second

// followStarts raises Start to where the copies begin. A stock follower applies its topic's retention to its copy by itself (UnifiedLog.deleteOldSegments), and nobody tells the leader: what every
// copy has deleted is nowhere any more, and a broker with an empty disk, which begins at our Start, would ask for ever for what nobody can give it. Under mu.
func (l *Log) followStarts() {
	start := min(l.lowestStart(), l.end)
	if start <= l.start {
		return
	}
	before := l.start
	// What lies below is on no copy that counts, so waiting for more of them to have it would wait for ever.
	l.replicated = max(l.replicated, start)
	l.setStart(start)
	l.advance()
	l.notify()
	if l.raised != nil {
		l.raised(before, start)
	}
}

// lowestStart is the lowest offset from which on the live followers' copies have everything that need not be in memory: of those that have all that is Replicated, and of those behind them that
// reach beyond where these begin. Empty copies say nothing. -1: it is not known, as a live follower has not been heard. Under mu.
func (l *Log) lowestStart() int64 {
	lowest, found := max(l.replicated, l.window.low), false
	for _, f := range l.followers {
		if f.live && f.position < 0 && l.now().Sub(f.since) < unheardWait {
			return -1
		}
	}
	for range l.followers { // each may let another one count
		for _, f := range l.followers {
			if f.live && !f.empty && f.position >= lowest && (f.begins < lowest || !found) {
				lowest, found = min(lowest, f.begins), true
			}
		}
	}
	if !found {
		return -1
	}
	return lowest
}

// setStart moves Start up, at most to End, and keeps the batch that contains it. Under mu.
func (l *Log) setStart(start int64) {
	l.start = start
	w := &l.window
	n, j := w.find(start)
	l.dropFront(n)
	if len(w.chunks) > 0 {
		w.chunks[0].marks = w.chunks[0].marks[j:]
	}
	l.epochs.RaiseStart(start)
}
