package leaderlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/logtrunc"
)

// evicted is a log of batches of 10 offsets, [0, 60), of which all below 40 are in copies only. Broker 2 has everything, 1 is at 20, 3 is dead at 30.
func evicted(t *testing.T) (*Log, *copies, []byte) {
	var all []byte
	for base := int64(0); base < 40; base += 10 {
		all = append(all, data(base, 10, 1, "old")...)
	}
	back := &copies{held: map[int32][]byte{1: all, 2: all, 3: all}}
	l := led(t, Options{Back: back}, 5, Found{End: 40, Epochs: []logtrunc.Entry{{Epoch: 1, Start: 0}}})
	l.SetFollowers([]int32{1, 2, 3}, []int32{1, 2}, nil, 2)
	at(t, l, 2, 40, 1)
	at(t, l, 3, 30, 1)
	at(t, l, 1, 20, 1)
	recent := chunkOf(data(40, 10, 2, "new"), data(50, 10, 2, "new"))
	add(t, l, recent)
	return l, back, append(slices.Clip(all), recent...)
}

func TestReadFromCopiesAndMemory(t *testing.T) {
	l, back, all := evicted(t)
	size := len(all) / 6
	for _, c := range []struct {
		from    int64
		most    int
		first   int
		batches int
	}{
		{0, 1, 0, 1}, {5, size, 0, 1}, {9, 2*size - 1, 0, 1}, {9, 2 * size, 0, 2}, {10, 1, 1, 1}, {39, 1 << 20, 3, 3}, {0, 1 << 20, 0, 6}, {40, 1 << 20, 4, 2}, {55, 0, 5, 1}, {60, 1 << 20, 6, 0},
		{30, 2*size + 1, 3, 2},
	} {
		b, err := l.Read(bounded(t), c.from, c.most)
		if err != nil || string(b) != string(all[c.first*size:(c.first+c.batches)*size]) {
			t.Errorf("read of %d bytes at %d: %s, %v; not %d batches from %d on", c.most, c.from, spans(b), err, c.batches, c.first)
		}
	}
	for _, asked := range back.asked {
		if asked := fmt.Sprint(asked); asked != "[2]" && asked != "[2 1]" {
			t.Errorf("brokers %s were asked; 3 is dead, and 2 has more than 1", asked)
		}
	}
	for _, from := range []int64{-1, 61} {
		if _, err := l.Read(bounded(t), from, 1); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("read at %d: %v", from, err)
		}
	}
}

func TestReadBackForAFollower(t *testing.T) {
	l, _, all := evicted(t)
	size := len(all) / 6
	if b, err := l.ReadBack(bounded(t), 20, 1<<20); err != nil || string(b) != string(all[2*size:4*size]) {
		t.Errorf("%s, %v", spans(b), err)
	}
	if b, err := l.ReadBack(bounded(t), 25, 1<<20); err != nil || b != nil {
		t.Errorf("inside a batch: %s, %v; no follower can take that", spans(b), err)
	}
	if b, err := l.ReadBack(bounded(t), 60, 1<<20); err != nil || b != nil {
		t.Errorf("at the end: %s, %v", spans(b), err)
	}
}

// shortest asks the last of the holders.
type shortest struct{ *copies }

func (s shortest) ReadBack(ctx context.Context, from int64, most int, holders []int32) ([]byte, error) {
	return s.copies.ReadBack(ctx, from, most, holders[len(holders)-1:])
}

// TestACopyThatEndsInAGap says that nothing comes, which counts as far as that copy reaches.
func TestACopyThatEndsInAGap(t *testing.T) {
	early, late := data(0, 10, 1, "a"), data(20, 10, 1, "b")
	back := shortest{&copies{held: map[int32][]byte{1: early, 2: chunkOf(early, late)}}}
	l := led(t, Options{Back: back}, 5, Found{End: 30, Epochs: []logtrunc.Entry{{Epoch: 1, Start: 0}}})
	at(t, l, 1, 15, 1)
	at(t, l, 2, 30, 1)
	if b, err := l.Read(bounded(t), 10, 1<<20); err != nil || string(b) != string(late) {
		t.Errorf("%s, %v", spans(b), err)
	}
}

func TestHoldersOfWhatIsNotKnownToBeCutCountToThatCutOnly(t *testing.T) {
	l, back, _ := evicted(t)
	if _, err := l.TruncateTo(bounded(t), 20); err != nil {
		t.Fatal(err)
	}
	add(t, l, data(20, 10, 3, "other"))
	back.asked = nil
	b, err := l.Read(bounded(t), 10, 1<<20)
	if err != nil || spans(b) != "[10-19@1 20-29@3]" {
		t.Errorf("%s, %v", spans(b), err)
	}
	if fmt.Sprint(back.asked) != "[[1 2 3]]" {
		t.Errorf("brokers %v were asked", back.asked)
	}
}

func TestReadSaysWhyItCannot(t *testing.T) {
	l, back, _ := evicted(t)
	back.err = errors.New("no broker answers")
	var e *Error
	if _, err := l.Read(bounded(t), 0, 1); !errors.Is(err, back.err) || !errors.As(err, &e) || e.Topic != "orders" || e.Offset != 0 {
		t.Errorf("error %v", err)
	}
	l.SetFollowers(nil, nil, nil, 1)
	if _, err := l.Read(bounded(t), 0, 1); !errors.Is(err, ErrNoCopy) {
		t.Errorf("error %v", err)
	}
	if _, err := New(Options{}).Read(bounded(t), 0, 1); !errors.Is(err, ErrUnknown) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Read(ctx, 40, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	l.Close()
	if _, err := l.Read(bounded(t), 40, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v", err)
	}
}

// cutting cuts the log while a copy is being read.
type cutting struct {
	*copies
	then func()
}

func (c *cutting) ReadBack(ctx context.Context, from int64, most int, holders []int32) ([]byte, error) {
	b, err := c.copies.ReadBack(ctx, from, most, holders)
	if c.then != nil {
		then := c.then
		c.then = nil
		then()
	}
	return b, err
}

func TestACutWhileACopyIsRead(t *testing.T) {
	old := chunkOf(data(0, 10, 1, "a"), data(10, 10, 1, "b"))
	back := &cutting{copies: &copies{held: map[int32][]byte{1: old}}}
	l := led(t, Options{Back: back}, 5, Found{End: 20, Epochs: []logtrunc.Entry{{Epoch: 1, Start: 0}}, Ends: map[int32]int64{1: 20}})
	back.then = func() {
		if _, err := l.TruncateTo(bounded(t), 10); err != nil {
			t.Error(err)
		}
		add(t, l, data(10, 5, 1, "other"))
	}
	if b, err := l.Read(bounded(t), 0, 1<<20); err != nil || string(b) != string(chunkOf(data(0, 10, 1, "a"), data(10, 5, 1, "other"))) {
		t.Errorf("%s, %v", spans(b), err)
	}
	back.then = func() {
		if err := l.ResetTo(1); err != nil {
			t.Error(err)
		}
		add(t, l, data(1, 3, 1, "c"), data(4, 5, 1, "d"))
	}
	if _, err := l.TruncateTo(bounded(t), 5); err != nil {
		t.Fatal(err)
	}
	positions(t, l, 1, 4, 1)
}

// TestConcurrentUse is for the race detector: one writer, three followers, readers; at the end every follower has everything.
func TestConcurrentUse(t *testing.T) {
	l := led(t, Options{Memory: NewMemory(5000)}, 5, Found{})
	l.SetFollowers([]int32{1, 2, 3}, []int32{1, 2, 3}, nil, 3)
	const n = 500
	ctx := bounded(t)
	var all sync.WaitGroup
	all.Go(func() {
		for i := range int64(n) {
			if err := l.Append(ctx, 5, data(i, 1, 1, "value")); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for id := range int32(3) {
		all.Go(func() {
			wake := make(chan struct{}, 1)
			defer l.Subscribe(func() {
				select {
				case wake <- struct{}{}:
				default:
				}
			})()
			offset, last := int64(0), int32(-1)
			for {
				q := query(l, id+1, offset, last)
				q.MaxBytes = 300
				a := l.Fetch(q)
				if a.Code != 0 || a.Diverging || a.Back {
					t.Errorf("%+v", a)
					return
				}
				for h := range batch.All(slices.Concat(a.Batches...)) {
					if h.BaseOffset != offset {
						t.Errorf("batch %d at %d", h.BaseOffset, offset)
					}
					offset, last = h.NextOffset(), h.LeaderEpoch
				}
				if offset == n && a.HighWatermark == n {
					return
				}
				if a.Size == 0 {
					select {
					case <-wake:
					case <-ctx.Done():
						t.Error(ctx.Err())
						return
					}
				}
			}
		})
	}
	all.Go(func() {
		if err := l.AwaitReplicated(ctx, n); err != nil {
			t.Error(err)
		}
		if err := l.AwaitTruncated(ctx); err != nil {
			t.Error(err)
		}
	})
	all.Wait()
	positions(t, l, 0, n, n)
	if used := l.memory.Used(); used > 5000 {
		t.Errorf("%d bytes held", used)
	}
}
