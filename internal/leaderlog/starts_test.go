package leaderlog

import (
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/replicaserver"
)

// from is a Fetch of a follower whose copy begins at start.
func from(l *Log, broker int32, start, offset int64, lastEpoch int32) replicaserver.FetchQuery {
	q := query(l, broker, offset, lastEpoch)
	q.LogStart = start
	return q
}

// retained is a log [0, 30] that three followers have, and what was told of its start.
func retained(t *testing.T, o Options) (*Log, *[][2]int64) {
	told := &[][2]int64{}
	o.Raised = func(before, start int64) { *told = append(*told, [2]int64{before, start}) }
	l := led(t, o, 5, Found{})
	for id := range int32(3) {
		at(t, l, id+1, 0, -1)
	}
	add(t, l, data(0, 10, 1, "a"), data(10, 10, 1, "b"), data(20, 10, 1, "c"))
	for id := range int32(3) {
		at(t, l, id+1, 30, 1)
	}
	positions(t, l, 0, 30, 30)
	return l, told
}

func TestStartFollowsWhatEveryCopyDeleted(t *testing.T) {
	l, told := retained(t, Options{})
	var waked int
	defer l.Subscribe(func() { waked++ })()
	l.Fetch(from(l, 1, 20, 30, 1))
	l.Fetch(from(l, 2, 10, 30, 1))
	positions(t, l, 0, 30, 30) // broker 3 has all
	if waked != 0 || len(*told) != 0 {
		t.Errorf("%d %v", waked, *told)
	}
	if a := l.Fetch(from(l, 3, 15, 30, 1)); a.LogStart != 10 || a.HighWatermark != 30 {
		t.Errorf("%+v", a)
	}
	positions(t, l, 10, 30, 30)
	if waked == 0 || len(*told) != 1 || (*told)[0] != [2]int64{0, 10} {
		t.Errorf("%d %v", waked, *told)
	}
	if _, err := l.Read(bounded(t), 9, 100); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("%v", err)
	}
	l.Fetch(from(l, 2, 30, 30, 1))
	positions(t, l, 15, 30, 30)
	if b, err := l.Read(bounded(t), 15, 1); err != nil || spans(b) != "[10-19@1]" {
		t.Errorf("%s %v", spans(b), err)
	}
	for _, id := range []int32{1, 3} {
		l.Fetch(from(l, id, 30, 30, 1))
	}
	positions(t, l, 30, 30, 30)
	add(t, l, data(30, 5, 1, "d"))
	at(t, l, 1, 35, 1)
	at(t, l, 2, 35, 1)
	positions(t, l, 30, 35, 35)
}

func TestStartWaitsForWhoHasMore(t *testing.T) {
	clock := time.Now()
	l, _ := retained(t, Options{Now: func() time.Time { return clock }})
	all := []int32{1, 2, 3}
	l.Fetch(from(l, 1, 20, 30, 1))
	l.Fetch(from(l, 2, 20, 30, 1))
	l.SetFollowers(all, all, map[int32]int64{3: 7}, 2) // what it has under this registration is not known
	l.Fetch(from(l, 1, 20, 30, 1))
	positions(t, l, 0, 30, 30)
	l.SetFollowers(all, all, map[int32]int64{3: 8}, 2)
	l.Fetch(from(l, 1, 20, 30, 1))
	positions(t, l, 0, 30, 30)
	q := from(l, 3, 5, 20, 1) // behind, and reaches to where the others begin
	q.BrokerEpoch = 8
	l.Fetch(q)
	l.Fetch(from(l, 1, 20, 30, 1))
	positions(t, l, 5, 30, 30)
	l.SetFollowers(all, all, map[int32]int64{3: 9}, 2)
	q = from(l, 3, 5, 10, 1) // behind, and does not
	q.BrokerEpoch = 9
	l.Fetch(q)
	l.Fetch(from(l, 1, 20, 30, 1))
	positions(t, l, 20, 30, 30)
	l.SetFollowers(all, all, map[int32]int64{3: 10}, 2)
	l.Fetch(from(l, 1, 21, 30, 1))
	l.Fetch(from(l, 2, 21, 30, 1))
	positions(t, l, 20, 30, 30)
	clock = clock.Add(unheardWait)
	l.Fetch(from(l, 1, 21, 30, 1))
	positions(t, l, 21, 30, 30) // it is alive and does not ask
}

// TestEmptyDiskBeginsWhereTheCopiesBegin: a broker whose disk was replaced asks at 0, which nobody has any more.
func TestEmptyDiskBeginsWhereTheCopiesBegin(t *testing.T) {
	l := led(t, Options{}, 5, Found{Start: 0, End: 30, Epochs: nil})
	l.SetFollowers([]int32{1, 2}, []int32{1, 2}, nil, 2)
	if a := l.Fetch(from(l, 2, 0, 0, -1)); a.Code != 0 || !a.Back {
		t.Fatalf("%+v", a)
	}
	l.Fetch(from(l, 1, 20, 30, 1))
	positions(t, l, 20, 30, 20) // nobody waits for a second copy of what nobody has
	if a := l.Fetch(from(l, 2, 0, 0, -1)); a.Code != codeOffsetOutOfRange {
		t.Errorf("%+v", a)
	}
	if a := l.Offsets(5); a.Start != 20 {
		t.Errorf("%+v", a)
	}
	if a := l.Fetch(from(l, 2, 20, 20, -1)); a.Code != 0 || !a.Back || a.LogStart != 20 {
		t.Errorf("%+v", a)
	}
}

// TestStartIsNotForStrangers: what a follower says of its start while its log does not agree with ours raises nothing.
func TestStartIsNotForStrangers(t *testing.T) {
	l, told := retained(t, Options{})
	for _, id := range []int32{1, 2, 3} {
		l.Fetch(from(l, id, 1<<40, 1<<40, 1))
		l.Fetch(from(l, id, 25, 31, 4))
	}
	if positions(t, l, 0, 30, 30); len(*told) != 0 {
		t.Error(*told)
	}
}
