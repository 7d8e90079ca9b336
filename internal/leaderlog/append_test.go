package leaderlog

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/logtrunc"
)

func TestAppendAddsWholeChunks(t *testing.T) {
	l := led(t, Options{}, 5, Found{})
	chunk := chunkOf(data(0, 3, 2, "a"), data(5, 2, 4, "b"), data(7, 1, 4, "c"))
	if err := l.Append(bounded(t), 5, chunk); err != nil {
		t.Fatal(err)
	}
	positions(t, l, 0, 8, 0)
	if got := fmt.Sprint(l.Epochs()); got != "[{2 0} {4 5}]" {
		t.Errorf("epochs %s", got)
	}
	b, err := l.Read(bounded(t), 0, 1<<20)
	if err != nil || unsafe.SliceData(b) != unsafe.SliceData(chunk) || !bytes.Equal(b, chunk) {
		t.Errorf("read %s, %v, or a copy of it", spans(b), err)
	}
}

func TestAppendRefuses(t *testing.T) {
	cut := data(10, 3, 1, "x")
	var poison *PoisonError
	var epoch *EpochError
	for _, c := range []struct {
		name  string
		epoch int32
		chunk []byte
		is    error
		as    any
		says  string
	}{
		{"an older leader epoch", 4, data(10, 1, 1, "x"), ErrFenced, nil, "orders-0"},
		{"a newer leader epoch", 6, data(10, 1, 1, "x"), ErrFenced, nil, "the log's is 5"},
		{"a batch below the end", 5, data(9, 2, 1, "x"), ErrOutOfOrder, nil, "9–10"},
		{"a second batch below the first one's end", 5, chunkOf(data(10, 3, 1, "x"), data(12, 1, 1, "x")), ErrOutOfOrder, nil, "ends at 12"},
		{"nothing", 5, nil, batch.ErrCut, nil, ""},
		{"a cut batch", 5, cut[:len(cut)-1], batch.ErrCut, nil, ""},
		{"a batch and a cut one", 5, chunkOf(data(10, 1, 1, "x"), cut[:20]), batch.ErrCut, nil, ""},
		{"a batch whose epoch is above ours", 5, chunkOf(data(10, 1, 5, "x"), data(11, 1, 6, "x")), nil, &epoch, "raise it to at least 6"},
		{"a control batch with a producer id that ends no transaction", 5, chunkOf(data(10, 1, 1, "x"), control(11, 1, 77, 6, 0)), nil, &poison, "batch 11 (producer id 77)"},
		{"a reset with a producer id", 5, control(10, 1, 0, 7, 0), nil, &poison, "neither ABORT nor COMMIT"},
		{"an abort of a negative version", 5, control(10, 1, 1, 0, -1), nil, &poison, "version -1"},
		{"a batch without a leader epoch", 5, data(10, 1, -1, "x"), nil, &poison, "no leader epoch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := led(t, Options{}, 5, Found{})
			add(t, l, data(0, 10, 1, "a"))
			err := l.Append(bounded(t), c.epoch, c.chunk)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || c.as != nil && !errors.As(err, c.as) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v", err)
			}
			positions(t, l, 0, 10, 0)
			if used := l.memory.Used(); used != int64(len(data(0, 10, 1, "a"))) {
				t.Errorf("%d bytes held", used)
			}
		})
	}
}

func TestAppendTakesMarkersAndResets(t *testing.T) {
	l := led(t, Options{}, 5, Found{})
	emptied := control(4, 1, 9, 99, 0)
	emptied = emptied[:batch.HeaderSize]
	emptied[11], emptied[57], emptied[58], emptied[59], emptied[60] = batch.HeaderSize-12, 0, 0, 0, 0
	batch.Seal(emptied)
	add(t, l, control(0, 1, 77, 0, 0), control(1, 1, 77, 1, 0), control(2, 1, -1, 7, 0), control(3, 1, -1, 100, 1), emptied)
	positions(t, l, 0, 5, 0)
}

func TestEmptyLogTakesTheBatchThatContainsItsStart(t *testing.T) {
	l := led(t, Options{}, 5, Found{})
	if err := l.ResetTo(10); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		base int64
		n    int
	}{{5, 5}, {0, 3}} { // ends below the start
		if err := l.Append(bounded(t), 5, data(c.base, c.n, 1, "x")); !errors.Is(err, ErrOutOfOrder) {
			t.Errorf("batch at %d: %v", c.base, err)
		}
	}
	add(t, l, data(8, 5, 1, "x"))
	positions(t, l, 10, 13, 10)
	if a := l.Fetch(query(l, 1, 10, -1)); told(a) != "[8-12@1]" {
		t.Errorf("an empty follower at the start is sent %s", told(a))
	}
	if err := l.Append(bounded(t), 5, data(9, 9, 1, "x")); !errors.Is(err, ErrOutOfOrder) {
		t.Errorf("the log is not empty: %v", err)
	}
}

// TestWhoMayChangeTheLog: nothing changes before its content is known, nor when we do not lead it.
func TestWhoMayChangeTheLog(t *testing.T) {
	for _, c := range []struct {
		name string
		make func() *Log
		want error
	}{
		{"not led", func() *Log { l := New(Options{}); l.Begin(Found{End: 9}); return l }, ErrFenced},
		{"unknown", func() *Log { l := New(Options{}); l.Lead(5); return l }, ErrUnknown},
		{"resigned", func() *Log { l := New(Options{}); l.Begin(Found{End: 9}); l.Lead(5); l.Resign(); return l }, ErrFenced},
		{"closed", func() *Log {
			l := New(Options{})
			l.Begin(Found{End: 9})
			l.Lead(5)
			l.Close()
			l.Lead(6)
			return l
		}, ErrClosed},
	} {
		l := c.make()
		_, cut := l.TruncateTo(bounded(t), 3)
		for what, err := range map[string]error{
			"append": l.Append(bounded(t), 5, data(9, 1, 1, "x")), "truncation": cut, "reset": l.ResetTo(3), "raise": l.RaiseStart(3),
			"wait": l.AwaitReplicated(bounded(t), 0), "wait for cut": l.AwaitTruncated(bounded(t)),
		} {
			if !errors.Is(err, c.want) {
				t.Errorf("%s, %s: %v, not %v", c.name, what, err, c.want)
			}
		}
	}
	held := New(Options{})
	held.Begin(Found{End: 9, Epochs: []logtrunc.Entry{{Epoch: 1, Start: 0}}})
	held.Lead(5)
	if err := held.Append(bounded(t), 5, data(9, 1, 1, "x")); err != nil {
		t.Errorf("a held log is the leader's to change: %v", err)
	}
}

func TestLeadGoesOnAfterResign(t *testing.T) {
	l := led(t, Options{}, 5, Found{})
	at(t, l, 1, 0, -1)
	add(t, l, data(0, 3, 1, "x"))
	l.Resign()
	l.Lead(7)
	if a := at(t, l, 1, 0, -1); told(a) != "[0-2@1]" || a.LeaderEpoch != 7 {
		t.Errorf("%s under %d", told(a), a.LeaderEpoch)
	}
	if err := l.Append(bounded(t), 5, data(3, 1, 1, "x")); !errors.Is(err, ErrFenced) {
		t.Errorf("append under the old epoch: %v", err)
	}
	add(t, l, data(3, 1, 7, "x"))
}

// TestAppendLeavesRoom: behind the highest offset nothing could follow, neither a batch nor a follower.
func TestAppendLeavesRoom(t *testing.T) {
	l := led(t, Options{}, 5, Found{Start: maxOffset - 100, End: maxOffset - 100})
	for _, base := range []int64{maxOffset - 2, maxOffset, math.MaxInt64 - 3} {
		var poison *PoisonError
		if err := l.Append(bounded(t), 5, data(base, 3, 1, "x")); !errors.As(err, &poison) || poison.Offset != base || !strings.Contains(err.Error(), "no room") {
			t.Errorf("at %d: %v", base, err)
		}
	}
	add(t, l, data(maxOffset-3, 3, 1, "x"))
	if l.End() != maxOffset {
		t.Errorf("it ends at %d", l.End())
	}
}
