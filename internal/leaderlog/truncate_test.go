package leaderlog

import (
	"errors"
	"testing"

	"github.com/clustermirror/clustermirror/logtrunc"
)

// cutLog is a log [5, 30) of which 0-9 (from 5 on) and 10-19 are in followers' copies only, then a gap to 22, then 22-24 and 25-29 in memory.
func cutLog(t *testing.T) (*Log, *copies) {
	back := &copies{held: map[int32][]byte{1: chunkOf(data(0, 10, 1, "a"), data(10, 10, 2, "b"), data(22, 3, 2, "c"), data(25, 5, 3, "d"))}}
	l := led(t, Options{Back: back}, 5, Found{Start: 5, End: 20, Epochs: []logtrunc.Entry{{Epoch: 1, Start: 5}, {Epoch: 2, Start: 10}}, Ends: map[int32]int64{1: 20}})
	add(t, l, data(22, 3, 2, "c"), data(25, 5, 3, "d"))
	return l, back
}

func TestTruncateTo(t *testing.T) {
	for _, c := range []struct {
		name      string
		to        int64
		start     int64
		end       int64
		epoch     int32
		lookedFor int64 // offset that copies were asked for, -1 none
	}{
		{"at the end", 30, 5, 30, 3, -1},
		{"above the end", 31, 5, 30, 3, -1},
		{"between two batches in memory", 25, 5, 25, 2, -1},
		{"inside a batch in memory", 27, 5, 25, 2, -1},
		{"inside the first batch in memory", 23, 5, 22, 2, -1},
		{"in a gap", 21, 5, 20, 2, -1},
		{"where the memory begins", 20, 5, 20, 2, -1},
		{"inside a batch that is in copies only", 19, 5, 10, 1, 18},
		{"between two batches that are in copies only", 10, 5, 10, 1, 9},
		{"inside the batch that contains the start", 7, 5, 5, -1, 6},
		{"at the start", 5, 5, 5, -1, -1},
		{"below the start", 3, 3, 3, -1, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, back := cutLog(t)
			end, err := l.TruncateTo(bounded(t), c.to)
			if err != nil || end != c.end {
				t.Fatalf("%d, %v; not %d", end, err, c.end)
			}
			positions(t, l, c.start, c.end, c.start)
			if got := logtrunc.NewCache(l.Epochs()...).Latest(); got != c.epoch {
				t.Errorf("latest epoch %d, not %d", got, c.epoch)
			}
			if looked := int64(-1); len(back.froms) > 1 || len(back.froms) == 1 && back.froms[0] != c.lookedFor || len(back.froms) == 0 && c.lookedFor != looked {
				t.Errorf("copies were asked at %v, not %d", back.froms, c.lookedFor)
			}
			if c.end == 30 {
				return
			}
			add(t, l, data(c.end, 2, 4, "n"))
			positions(t, l, c.start, c.end+2, c.start)
			if b, err := l.Read(bounded(t), c.end, 1<<20); err != nil || string(b) != string(data(c.end, 2, 4, "n")) {
				t.Errorf("read %s, %v", spans(b), err)
			}
		})
	}
}

func TestTruncateToThatCannotLookDoesNothing(t *testing.T) {
	l, back := cutLog(t)
	back.err = errors.New("no broker answers")
	if _, err := l.TruncateTo(bounded(t), 15); !errors.Is(err, back.err) {
		t.Errorf("error %v", err)
	}
	l.SetFollowers([]int32{2}, []int32{2}, nil, 1)
	if _, err := l.TruncateTo(bounded(t), 15); !errors.Is(err, ErrNoCopy) {
		t.Errorf("error %v", err)
	}
	if _, err := l.TruncateTo(bounded(t), -1); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("error %v", err)
	}
	if err := l.ResetTo(-1); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("error %v", err)
	}
	positions(t, l, 5, 30, 5)
}

// TestCutsAreFollowed: a follower that holds what was cut is told, even where its epochs look right, and counts up to the cut only until it is back.
func TestCutsAreFollowed(t *testing.T) {
	l := led(t, Options{}, 5, Found{})
	for id := range int32(3) {
		at(t, l, id+1, 0, -1)
	}
	add(t, l, data(0, 5, 1, "a"), data(5, 5, 1, "b"))
	at(t, l, 1, 10, 1)
	at(t, l, 2, 10, 1)
	positions(t, l, 0, 10, 10)
	if _, err := l.TruncateTo(bounded(t), 5); err != nil {
		t.Fatal(err)
	}
	positions(t, l, 0, 5, 5)
	add(t, l, data(5, 5, 1, "other"), data(10, 5, 1, "more"))
	if a := l.Fetch(query(l, 1, 10, 1)); told(a) != "diverging 1:5" {
		t.Fatalf("with the old batch: %s", told(a))
	}
	if f := l.Followers()[0]; f.Position != 5 || f.Truncated || f.Limit != 5 {
		t.Errorf("%+v", f)
	}
	if err := l.AwaitTruncated(now()); err == nil {
		t.Error("nobody followed the cut yet")
	}
	at(t, l, 1, 5, 1)
	if f := l.Followers()[0]; !f.Truncated || f.Limit != -1 {
		t.Errorf("%+v", f)
	}
	at(t, l, 1, 15, 1)
	positions(t, l, 0, 15, 5)
	at(t, l, 2, 5, 1)
	if err := l.AwaitTruncated(now()); err == nil {
		t.Error("follower 3 did not follow the cut yet")
	}
	l.SetFollowers([]int32{1, 2, 3}, []int32{1, 2}, nil, 2)
	if err := l.AwaitTruncated(now()); err != nil {
		t.Errorf("follower 3 is dead: %v", err)
	}
	if a := l.Fetch(query(l, 3, 10, 1)); told(a) != "diverging 1:5" {
		t.Errorf("it comes back with the old batch: %s", told(a))
	}
	l.SetFollowers([]int32{1, 2}, []int32{1, 2}, nil, 2)
	l.SetFollowers([]int32{1, 2, 3}, []int32{1, 2, 3}, nil, 2)
	if a := l.Fetch(query(l, 3, 10, 1)); told(a) != "diverging 1:0" {
		t.Errorf("it was no replica meanwhile: %s", told(a))
	}
}

// TestReadBackBeforeACut: what was read back for a follower before a cut may be sent to it after the cut, with an answer that says so again. It is found out.
func TestReadBackBeforeACut(t *testing.T) {
	l := led(t, Options{Back: &copies{held: map[int32][]byte{2: chunkOf(data(0, 10, 1, "a"), data(10, 10, 1, "b"))}}, Memory: NewMemory(100)}, 5,
		Found{End: 20, Epochs: []logtrunc.Entry{{Epoch: 1, Start: 0}}, Ends: map[int32]int64{2: 20}})
	l.SetFollowers([]int32{1, 2}, []int32{1, 2}, nil, 1)
	if a := at(t, l, 1, 10, 1); !a.Back {
		t.Fatalf("%+v", a)
	}
	if _, err := l.TruncateTo(bounded(t), 10); err != nil {
		t.Fatal(err)
	}
	add(t, l, data(10, 10, 1, "other"))
	at(t, l, 2, 10, 1)
	at(t, l, 2, 20, 1)
	add(t, l, data(20, 10, 1, "more"))
	if a := at(t, l, 1, 10, 1); !a.Back {
		t.Fatalf("%+v", a)
	}
	if f := l.Followers()[0]; !f.Truncated || f.Limit != 10 {
		t.Errorf("%+v", f)
	}
	if a := l.Fetch(query(l, 1, 20, 1)); told(a) != "diverging 1:10" {
		t.Errorf("it comes with what may be the old batch: %s", told(a))
	}
	at(t, l, 1, 10, 1)
	if a := at(t, l, 1, 20, 1); told(a) != "[20-29@1]" {
		t.Errorf("%s", told(a))
	}
}

func TestReset(t *testing.T) {
	l := led(t, Options{}, 5, Found{})
	at(t, l, 1, 0, -1)
	add(t, l, data(0, 10, 1, "a"))
	if err := l.ResetTo(4); err != nil {
		t.Fatal(err)
	}
	positions(t, l, 4, 4, 4)
	if l.memory.Used() != 0 || len(l.Epochs()) != 0 {
		t.Errorf("%d bytes, epochs %v", l.memory.Used(), l.Epochs())
	}
	if a := l.Fetch(query(l, 1, 10, 1)); told(a) != "diverging 1:4" {
		t.Errorf("a follower with the old log: %s", told(a))
	}
	if a := at(t, l, 1, 4, -1); a.LogStart != 4 || a.HighWatermark != 4 {
		t.Errorf("%+v", a)
	}
}

func TestRaiseStart(t *testing.T) {
	l := led(t, Options{}, 5, Found{})
	at(t, l, 1, 0, -1)
	at(t, l, 2, 0, -1)
	add(t, l, data(0, 5, 1, "a"), data(5, 5, 2, "b"))
	add(t, l, data(10, 5, 3, "c"))
	at(t, l, 1, 10, 2)
	at(t, l, 2, 15, 3)
	for _, c := range []struct{ to, want int64 }{{3, 3}, {2, 3}, {7, 7}, {14, 10}, {100, 10}} {
		if err := l.RaiseStart(c.to); err != nil || l.Start() != c.want {
			t.Errorf("raised to %d: %d, %v; not %d", c.to, l.Start(), err, c.want)
		}
		if c.want != 7 {
			continue
		}
		if b, err := l.Read(bounded(t), 7, 1); err != nil || spans(b) != "[5-9@2]" {
			t.Errorf("at the start: %s, %v", spans(b), err)
		}
	}
	if _, err := l.Read(bounded(t), 9, 1); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("below the start: %v", err)
	}
	if l.memory.Used() != int64(len(data(10, 5, 3, "c"))) {
		t.Errorf("%d bytes held", l.memory.Used())
	}
	if a := l.Offsets(5); a.StartEpoch != 3 || a.Start != 10 {
		t.Errorf("%+v", a)
	}
}
