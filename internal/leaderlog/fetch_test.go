package leaderlog

import (
	"fmt"
	"testing"

	"github.com/clustermirror/clustermirror/internal/replicaserver"
	"github.com/clustermirror/clustermirror/logtrunc"
)

// history is a log [10, 60) of three epochs, 20 offsets of it in memory: 2 from 10, 4 from 30, 5 from 40 on; the leader's epoch is 9. The followers have come up to 40.
func history(t testing.TB) *Log {
	l := led(t, Options{}, 9, Found{Start: 10, End: 40, Epochs: []logtrunc.Entry{{Epoch: 2, Start: 10}, {Epoch: 4, Start: 30}}})
	for id := range int32(3) {
		at(t, l, id+1, 40, 4)
	}
	add(t, l, data(40, 5, 5, "a"), data(45, 5, 5, "b"))
	add(t, l, data(50, 10, 5, "c"))
	return l
}

// TestFetchAnswers: Partition.fetchRecords, readRecords, checkCurrentLeaderEpoch, followerReplicaOrThrow; LeaderEpochFileCache.endOffsetFor.
func TestFetchAnswers(t *testing.T) {
	for _, c := range []struct {
		name     string
		offset   int64
		last     int32
		change   func(*replicaserver.FetchQuery)
		want     string
		position int64 // noted; 40 before
	}{
		{"in memory", 40, 4, nil, "[40-44@5 45-49@5 50-59@5]", 40},
		{"in the second batch of a chunk", 45, 5, nil, "[45-49@5 50-59@5]", 45},
		{"at the end", 60, 5, nil, "[]", 60},
		{"below what is in memory", 35, 4, nil, "back", 35},
		{"at the start", 10, -1, nil, "back", 10},
		{"at the start, with batches from before it", 10, 1, nil, "diverging 1:9", 40},
		{"below the start", 9, 2, nil, "code 1", 40},
		{"below the start without an epoch", 9, -1, nil, "code 1", 40},
		{"beyond the end without an epoch", 61, -1, nil, "code 1", 40},
		{"beyond the end", 61, 5, nil, "diverging 5:60", 40},
		{"an epoch that ended before", 35, 2, nil, "diverging 2:30", 40},
		{"an epoch that we lack", 50, 3, nil, "diverging 2:30", 40},
		{"an epoch below all", 20, 1, nil, "diverging 1:10", 40},
		{"an epoch above our batches', not above our own", 50, 9, nil, "diverging 5:60", 40},
		{"an epoch between the two", 55, 7, nil, "diverging 5:60", 40},
		{"an epoch above our own", 50, 10, nil, "code 1", 40},
		{"an epoch that begins later here", 35, 5, nil, "diverging 4:40", 40},
		{"no epoch inside the log: Kafka accepts", 50, -1, nil, "[50-59@5]", 10},
		{"inside a batch with an empty log", 47, -1, nil, "[45-49@5 50-59@5]", 10},
		{"inside a batch with a log", 47, 5, nil, "diverging 5:45", 40},
		{"an older leader epoch", 40, 4, func(q *replicaserver.FetchQuery) { q.LeaderEpoch = 8 }, "code 74", 40},
		{"a newer leader epoch", 40, 4, func(q *replicaserver.FetchQuery) { q.LeaderEpoch = 10 }, "code 75", 40},
		{"no leader epoch", 40, 4, func(q *replicaserver.FetchQuery) { q.LeaderEpoch = -1 }, "[40-44@5 45-49@5 50-59@5]", 40},
		{"not a replica", 40, 4, func(q *replicaserver.FetchQuery) { q.Broker = 7 }, "code 75", 40},
		{"not a replica, no leader epoch", 40, 4, func(q *replicaserver.FetchQuery) { q.Broker, q.LeaderEpoch = 7, -1 }, "code 6", 40},
		{"one byte: one batch", 40, 4, func(q *replicaserver.FetchQuery) { q.MaxBytes = 1 }, "[40-44@5]", 40},
		{"no byte: one batch", 40, 4, func(q *replicaserver.FetchQuery) { q.MaxBytes = 0 }, "[40-44@5]", 40},
		{"bytes of two batches", 40, 4, func(q *replicaserver.FetchQuery) { q.MaxBytes = len(data(40, 5, 5, "a")) * 2 }, "[40-44@5 45-49@5]", 40},
		{"a byte less", 40, 4, func(q *replicaserver.FetchQuery) { q.MaxBytes = len(data(40, 5, 5, "a"))*2 - 1 }, "[40-44@5]", 40},
		{"a batch of the next chunk does not fit", 45, 5, func(q *replicaserver.FetchQuery) { q.MaxBytes = len(data(40, 5, 5, "a")) + 1 }, "[45-49@5]", 45},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := history(t)
			q := query(l, 1, c.offset, c.last)
			if c.change != nil {
				c.change(&q)
			}
			a := l.Fetch(q)
			if told(a) != c.want {
				t.Errorf("answered %s, not %s", told(a), c.want)
			}
			size := 0
			for _, b := range a.Batches {
				size += len(b)
			}
			if size != a.Size || a.LeaderEpoch != 9 || a.LastStableOffset != -1 {
				t.Errorf("size %d of %d bytes, leader epoch %d, last stable offset %d", a.Size, size, a.LeaderEpoch, a.LastStableOffset)
			}
			if a.Code == 0 && (a.LogStart != 10 || a.HighWatermark != 40) || a.Code != 0 && (a.LogStart != -1 || a.HighWatermark != -1) {
				t.Errorf("log start %d, high watermark %d", a.LogStart, a.HighWatermark)
			}
			if got := l.Followers()[0].Position; got != c.position {
				t.Errorf("position %d, not %d", got, c.position)
			}
		})
	}
}

func TestFetchReturnsOneSlicePerChunk(t *testing.T) {
	l := led(t, Options{}, 0, Found{})
	at(t, l, 1, 0, -1)
	var first [][]byte
	for i := range 50 {
		first = append(first, data(int64(i), 1, 0, "x"))
	}
	add(t, l, first...)
	add(t, l, data(50, 1, 0, "y"), data(51, 1, 0, "y"))
	if a := at(t, l, 1, 3, 0); len(a.Batches) != 2 || a.Size != len(chunkOf(first[3:]...))+2*len(first[0]) {
		t.Errorf("%d slices of %d bytes", len(a.Batches), a.Size)
	}
}

// TestGate: whoever may not be told anything is put off, whatever he asks and under whichever epoch.
func TestGate(t *testing.T) {
	shut := map[string]func() *Log{
		"new":    func() *Log { return New(Options{}) },
		"held":   func() *Log { l := history(t); l.Hold(); return l },
		"resign": func() *Log { l := history(t); l.Resign(); return l },
		"closed": func() *Log { l := history(t); l.Close(); return l },
		"content unknown": func() *Log {
			l := New(Options{})
			l.Lead(9)
			l.Release()
			return l
		},
		"not led": func() *Log {
			l := New(Options{})
			l.Begin(Found{})
			l.Release()
			return l
		},
		"begun, not released": func() *Log {
			l := New(Options{})
			l.Lead(9)
			l.Begin(Found{})
			return l
		},
	}
	for name, make := range shut {
		l := make()
		for _, epoch := range []int32{-1, 0, 9, 10} {
			q := query(l, 1, 40, 4)
			q.LeaderEpoch = epoch
			_, _, code := l.EndOffsetFor(epoch, 4)
			if a := l.Fetch(q); a.Code != 6 || l.Offsets(epoch).Code != 6 || code != 6 {
				t.Errorf("%s, epoch %d: codes %d, %d, %d, not 6", name, epoch, a.Code, l.Offsets(epoch).Code, code)
			}
		}
	}
	l := history(t)
	l.Hold()
	if !l.Held() {
		t.Error("not held")
	}
	l.Release()
	if at(t, l, 1, 40, 4); l.Held() {
		t.Error("held")
	}
}

func TestOffsetsAndEpochs(t *testing.T) {
	l := history(t)
	if a := l.Offsets(9); a != (replicaserver.OffsetsAnswer{Start: 10, End: 60, HighWatermark: 40, StartEpoch: 2, EndEpoch: 5}) {
		t.Errorf("%+v", a)
	}
	if a := l.Offsets(8); a.Code != 74 || l.Offsets(10).Code != 75 || l.Offsets(-1).Code != 0 {
		t.Errorf("codes %d, %d, %d", a.Code, l.Offsets(10).Code, l.Offsets(-1).Code)
	}
	for epoch, want := range map[int32]string{-1: "-1 -1", 0: "0 10", 2: "2 30", 3: "2 30", 4: "4 40", 5: "5 60", 6: "5 60", 9: "5 60", 10: "-1 -1"} {
		found, end, code := l.EndOffsetFor(9, epoch)
		if got := fmt.Sprint(found, end); got != want || code != 0 {
			t.Errorf("epoch %d: %s, code %d, not %s", epoch, got, code, want)
		}
	}
	if err := l.ResetTo(100); err != nil {
		t.Fatal(err)
	}
	if a := l.Offsets(9); a != (replicaserver.OffsetsAnswer{Start: 100, End: 100, HighWatermark: 100, StartEpoch: -1, EndEpoch: -1}) {
		t.Errorf("empty: %+v", a)
	}
	if found, end, _ := l.EndOffsetFor(9, 5); found != 5 || end != 100 {
		t.Errorf("empty: epoch 5 ends %d:%d", found, end)
	}
}

// TestStaleBrokerEpoch: Replica.updateFetchStateOrThrow.
func TestStaleBrokerEpoch(t *testing.T) {
	l := history(t)
	q := query(l, 1, 60, 5)
	q.BrokerEpoch = 100
	l.Fetch(q)
	old := query(l, 1, 50, 5)
	old.BrokerEpoch = 99
	if a := l.Fetch(old); a.Code != 6 || l.Followers()[0].Position != 60 {
		t.Errorf("a fetch from before the restart: %+v, position %d", a, l.Followers()[0].Position)
	}
	old.BrokerEpoch = -1
	if a := l.Fetch(old); a.Code != 0 {
		t.Errorf("a fetch without a broker epoch: %+v", a)
	}
}

func TestSubscribersHearOfWhatChangesAnAnswer(t *testing.T) {
	l := history(t)
	heard := 0
	end := l.Subscribe(func() { heard++ })
	other := 0
	defer l.Subscribe(func() { other++ })()
	for _, c := range []struct {
		what string
		do   func()
		want bool
	}{
		{"an append", func() { add(t, l, data(60, 1, 5, "x")) }, true},
		{"one copy of two", func() { at(t, l, 1, 61, 5) }, false},
		{"two copies: another high watermark", func() { at(t, l, 2, 61, 5) }, true},
		{"the same again", func() { at(t, l, 2, 61, 5) }, false},
		{"a raised start", func() { l.RaiseStart(20) }, true},
		{"a lower start", func() { l.RaiseStart(15) }, false},
		{"a truncation", func() { l.TruncateTo(bounded(t), 60) }, true},
		{"no truncation", func() { l.TruncateTo(bounded(t), 60) }, false},
		{"a reset", func() { l.ResetTo(70) }, true},
		{"another leader epoch", func() { l.Lead(11) }, true},
		{"the same leader epoch", func() { l.Lead(11) }, false},
		{"a lower leader epoch", func() { l.Lead(3) }, false},
		{"a shut gate", l.Hold, true},
		{"a shut gate again", l.Hold, false},
		{"an open gate", l.Release, true},
		{"other replicas", func() { l.SetFollowers([]int32{1}, nil, nil, 1) }, true},
		{"another content", func() { l.Begin(Found{}) }, true},
		{"no leadership", l.Resign, true},
		{"the end", l.Close, true},
	} {
		before := heard
		if c.do(); heard > before != c.want {
			t.Errorf("%s: woken %v", c.what, heard > before)
		}
	}
	if l.LeaderEpoch() != 11 {
		t.Errorf("leader epoch %d", l.LeaderEpoch())
	}
	end()
	before, others := heard, other
	l.mu.Lock()
	l.notify()
	l.mu.Unlock()
	if heard != before || other != others+1 {
		t.Errorf("after the end: %d and %d calls", heard-before, other-others)
	}
}
