package leaderlog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestReplicated: the k-th largest position, k = max(1, min(want, live)), not above the furthest live one's.
func TestReplicated(t *testing.T) {
	all := []int32{1, 2, 3}
	for _, c := range []struct {
		name      string
		positions [3]int64
		live      []int32
		want      int
		is        int64
	}{
		{"one copy", [3]int64{10, 40, 20}, all, 1, 40},
		{"two copies", [3]int64{10, 40, 20}, all, 2, 20},
		{"three copies", [3]int64{10, 40, 20}, all, 3, 10},
		{"more than there are", [3]int64{10, 40, 20}, all, 9, 10},
		{"none asked for is one", [3]int64{10, 40, 20}, all, 0, 40},
		{"k shrinks to the live ones", [3]int64{10, 30, 20}, []int32{1, 2}, 3, 20},
		{"a dead one counts as a copy", [3]int64{10, 30, 20}, []int32{1, 2}, 2, 20},
		{"but alone it raises nothing", [3]int64{10, 40, 20}, []int32{3}, 2, 20},
		{"nobody is live", [3]int64{10, 40, 20}, nil, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := led(t, Options{}, 5, Found{})
			l.SetFollowers(all, nil, nil, c.want)
			for id := range int32(3) {
				at(t, l, id+1, 0, -1)
			}
			add(t, l, data(0, 10, 1, "a"), data(10, 10, 1, "b"), data(20, 10, 1, "c"), data(30, 10, 1, "d"))
			for i, p := range c.positions {
				at(t, l, int32(i+1), p, 1)
			}
			l.SetFollowers(all, c.live, nil, c.want)
			positions(t, l, 0, 40, c.is)
			l.SetFollowers(all, all, nil, 3)
			l.SetFollowers(all, nil, nil, 3)
			at(t, l, 2, 0, -1)
			if l.Replicated() < c.is {
				t.Errorf("replicated fell to %d", l.Replicated())
			}
		})
	}
}

func TestReplicatedWithoutFollowers(t *testing.T) {
	l := led(t, Options{}, 5, Found{})
	l.SetFollowers(nil, nil, nil, 1)
	add(t, l, data(0, 3, 1, "a"))
	positions(t, l, 0, 3, 0)
}

// TestGapAtTheEnd: a cut may leave the end in a gap. A follower that has the last batch has everything, and is told to wait.
func TestGapAtTheEnd(t *testing.T) {
	l := led(t, Options{}, 5, Found{})
	at(t, l, 1, 0, -1)
	at(t, l, 2, 0, -1)
	add(t, l, data(0, 3, 1, "a"), data(8, 3, 1, "b"))
	if end, err := l.TruncateTo(bounded(t), 10); err != nil || end != 8 {
		t.Fatal(end, err)
	}
	at(t, l, 1, 3, 1)
	if a := at(t, l, 2, 3, 1); a.Size != 0 || a.Back || a.HighWatermark != 8 {
		t.Errorf("%+v", a)
	}
	positions(t, l, 0, 8, 8)
}

func TestGapAfterNothing(t *testing.T) {
	l := led(t, Options{}, 5, Found{})
	add(t, l, data(8, 3, 1, "b"))
	if end, err := l.TruncateTo(bounded(t), 9); err != nil || end != 8 {
		t.Fatal(end, err)
	}
	at(t, l, 1, 0, -1)
	at(t, l, 2, 0, -1)
	positions(t, l, 0, 8, 8)
}

func TestFollowersAreReported(t *testing.T) {
	clock := time.Unix(1000, 0)
	l := led(t, Options{Now: func() time.Time { return clock }}, 5, Found{})
	q := query(l, 2, 0, -1)
	q.LogStart = 0
	l.Fetch(q)
	l.SetFollowers([]int32{2, 4}, []int32{4}, nil, 1)
	got := l.Followers()
	if want := (Follower{Broker: 2, Position: 0, Seen: clock, Since: clock, InStep: clock, Truncated: true, Limit: -1, LogStart: 0, BrokerEpoch: -1}); got[0] != want {
		t.Errorf("%+v", got[0])
	}
	if want := (Follower{Broker: 4, Live: true, Position: -1, Since: clock, Limit: 0, LogStart: -1, BrokerEpoch: -1}); got[1] != want || len(got) != 2 {
		t.Errorf("%+v", got[1:])
	}
}

func TestLimitsFromRecovery(t *testing.T) {
	l := led(t, Options{}, 5, Found{End: 20, Limits: map[int32]int64{1: 10}})
	if a := l.Fetch(query(l, 1, 15, 1)); told(a) != "diverging 1:10" {
		t.Errorf("a follower that did not follow a cut of the last process: %s", told(a))
	}
	add(t, l, data(20, 5, 1, "x"))
	if a := l.Fetch(query(l, 2, 25, 1)); told(a) != "diverging 1:20" {
		t.Errorf("a follower that has more than was found: %s", told(a))
	}
}

func TestWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*Log, context.CancelFunc)
		want error
	}{
		{"enough copies", func(l *Log, _ context.CancelFunc) { at(t, l, 1, 3, 1); at(t, l, 2, 3, 1) }, nil},
		{"fewer are asked for", func(l *Log, _ context.CancelFunc) {
			at(t, l, 1, 3, 1)
			l.SetFollowers([]int32{1, 2, 3}, []int32{1}, nil, 2)
		}, nil},
		{"no leadership", func(l *Log, _ context.CancelFunc) { l.Resign() }, ErrFenced},
		{"closed", func(l *Log, _ context.CancelFunc) { l.Close() }, ErrClosed},
		{"canceled", func(_ *Log, cancel context.CancelFunc) { cancel() }, context.Canceled},
		{"late", func(*Log, context.CancelFunc) { time.Sleep(time.Hour) }, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := led(t, Options{}, 5, Found{})
			at(t, l, 1, 0, -1)
			at(t, l, 2, 0, -1)
			add(t, l, data(0, 3, 1, "a"))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			done := make(chan error, 3)
			go func() { done <- l.AwaitReplicated(ctx, 3) }()
			go func() {
				done <- l.AwaitFollowers(ctx, func(end int64, all []Follower) bool { return all[0].Position == end })
			}()
			synctest.Wait()
			c.end(l, cancel)
			for range 2 {
				if err := <-done; !errors.Is(err, c.want) {
					t.Errorf("%s: %v, not %v", c.name, err, c.want)
				}
			}
		})
	}
}
