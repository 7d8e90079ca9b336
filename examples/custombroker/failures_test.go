package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/logtest"
)

// operation is one call that changes a log.
type operation struct {
	name string
	do   func(ctx context.Context, l *Log) error
}

func (o operation) String() string { return o.name }

func appending(seed int64) func(context.Context, *Log) error {
	return func(ctx context.Context, l *Log) error {
		b := records(seed, 5)
		batch.SetBaseOffset(b, l.End())
		if l.meta.Open {
			_, err := l.Produce(ctx, b)
			return err
		}
		return l.Append(ctx, l.LeaderEpoch(), b)
	}
}

func truncating(offset int64) func(context.Context, *Log) error {
	return func(ctx context.Context, l *Log) error {
		_, err := l.TruncateTo(ctx, offset)
		return err
	}
}

var operations = []operation{
	{"append", appending(100)},
	{"append of other bytes", appending(101)},
	{"truncate the last batch", truncating(17)},
	{"truncate the last two", truncating(10)},
	{"truncate inside the first", truncating(8)},
	{"truncate below the start", truncating(3)},
	{"reset upwards", func(ctx context.Context, l *Log) error { return l.ResetTo(ctx, 40) }},
	{"reset downwards", func(ctx context.Context, l *Log) error { return l.ResetTo(ctx, 2) }},
	{"raise the start in meta", func(ctx context.Context, l *Log) error { return l.RaiseStart(ctx, 11) }},
	{"raise the start by copying", func(ctx context.Context, l *Log) error { return l.RaiseStart(ctx, 16) }},
	{"raise the start to the end", func(ctx context.Context, l *Log) error { return l.RaiseStart(ctx, 20) }},
	{"open", func(ctx context.Context, l *Log) error { return l.Open(ctx) }},
	{"raise the leader epoch", func(ctx context.Context, l *Log) error {
		_, err := l.RaiseLeaderEpoch(ctx, 9)
		return err
	}},
}

// prepare makes the log with which each try begins: batches 0–4, 5–9, 10–14, 15–19 of the same size, start 7.
func prepare(t testing.TB, dir *logtest.FaultyDir) *Log {
	t.Helper()
	l, err := openLog(faulty{dir})
	if err != nil {
		t.Fatal(err)
	}
	for base := int64(0); base < 20; base += 5 {
		add(t, l, base, 5)
	}
	if err := l.RaiseStart(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	return l
}

// observe is everything that a log shows.
func observe(t testing.TB, l *Log) string {
	t.Helper()
	all, err := readAll(t.Context(), l)
	if err != nil {
		t.Fatalf("reading: %v", err)
	}
	s := fmt.Sprintf("[%d, %d] replicated %d leader epoch %d open %t:", l.Start(), l.End(), l.Replicated(), l.LeaderEpoch(), l.meta.Open)
	for info, raw := range mirror.Batches(all) {
		s += fmt.Sprintf(" %d–%d %x", info.Base, info.Last, raw[17:21]) // the checksum stands for the bytes
	}
	return s
}

// after is what a log shows after operations that all succeed.
func after(t testing.TB, some ...operation) string {
	t.Helper()
	l := prepare(t, &logtest.FaultyDir{})
	for _, o := range some {
		if err := o.do(t.Context(), l); err != nil {
			t.Fatalf("%v: %v", some, err)
		}
	}
	return observe(t, l)
}

func recovered(t testing.TB, dir *logtest.FaultyDir) *Log {
	t.Helper()
	l, err := openLog(faulty{dir})
	if err != nil {
		t.Fatalf("opening after a crash: %v; %v", err, dir)
	}
	return l
}

var errInjected = errors.New("injected")

// failing makes the n-th operation of files from now on fail (n from 1), and reports whether it came to that.
func failing(dir *logtest.FaultyDir, n int, do func() error) (failed bool, err error) {
	dir.Fault = func(logtest.FileOperation) error {
		if n--; n == 0 {
			failed = true
			return errInjected
		}
		return nil
	}
	err = do()
	dir.Fault = nil
	return failed, err
}

// TestFailureThenAnotherOperation tries every operation with a failure at each of its file operations, then every operation as the second one. What the second one returned
// must hold to the letter after a power cut, and a power cut at any moment of it must leave a state that the log had before or has after it.
func TestFailureThenAnotherOperation(t *testing.T) {
	before := after(t)
	for _, first := range operations {
		done := after(t, first)
		for at := 1; ; at++ {
			dir := &logtest.FaultyDir{}
			l := prepare(t, dir)
			failed, err := failing(dir, at, func() error { return first.do(t.Context(), l) })
			if !failed {
				if err != nil {
					t.Fatalf("%v without a failure: %v", first, err)
				}
				break
			}
			now := observe(t, l)
			if now != before && now != done || err == nil && now != done {
				t.Fatalf("%v with a failure at its file operation %d, error %v, shows\n%s, which is neither\n%s nor\n%s", first, at, err, now, before, done)
			}
			for _, second := range operations {
				secondAfterFailure(t, first, at, second, before, done)
			}
		}
	}
}

func secondAfterFailure(t *testing.T, first operation, at int, second operation, before, done string) {
	t.Helper()
	run := func(cut int) (dir *logtest.FaultyDir, l *Log, may []string, err error) {
		dir = &logtest.FaultyDir{}
		l = prepare(t, dir)
		_, firstErr := failing(dir, at, func() error { return first.do(t.Context(), l) })
		want := after(t, second)
		if observe(t, l) == done && done != before {
			want = after(t, first, second)
		}
		may = []string{want, before, done}
		if firstErr == nil {
			may = []string{want, done}
		}
		if cut > 0 {
			dir.CutPowerAfter(cut)
		}
		return dir, l, may, second.do(t.Context(), l)
	}
	dir, l, may, err := run(0)
	if err != nil {
		t.Fatalf("%v after a failure at file operation %d of %v: %v", second, at, first, err)
	}
	if now := observe(t, l); now != may[0] {
		t.Fatalf("%v after a failure at file operation %d of %v shows\n%s, it should be\n%s", second, at, first, now, may[0])
	}
	dir.Restart(rand.New(rand.NewPCG(1, uint64(at))))
	if now := observe(t, recovered(t, dir)); now != may[0] {
		t.Fatalf("%v after a failure at file operation %d of %v, and a power cut, shows\n%s, it should be\n%s", second, at, first, now, may[0])
	}
	for cut := 1; ; cut++ {
		dir, _, may, err := run(cut)
		if err == nil {
			return
		}
		dir.Restart(rand.New(rand.NewPCG(uint64(cut), uint64(at))))
		if now := observe(t, recovered(t, dir)); !slices.Contains(may, now) {
			t.Fatalf("%v, cut at its file operation %d, after a failure at file operation %d of %v shows\n%s, which is none of\n%s\n%s", second, cut, at, first, now, may[0], may[1:])
		}
	}
}

// TestWhatARestartShowsSurvivesAPowerCut: the process dies anywhere in an operation, the machine does not. The next process shows what it finds in the caches, so it must have
// made that safe first.
func TestWhatARestartShowsSurvivesAPowerCut(t *testing.T) {
	for _, o := range operations {
		for seed := range uint64(10) {
			for at, failed := 1, true; failed; at++ {
				dir := &logtest.FaultyDir{}
				l := prepare(t, dir)
				failed, _ = failing(dir, at, func() error { return o.do(t.Context(), l) })
				now := observe(t, recovered(t, dir))
				dir.Restart(rand.New(rand.NewPCG(seed, uint64(at))))
				if later := observe(t, recovered(t, dir)); later != now {
					t.Fatalf("died at file operation %d of %v, opened again: %s\nthen a power cut: %s", at, o, now, later)
				}
			}
		}
	}
}

// TestANameIsSafeBeforeMetaNamesIt: a file system may keep a rename and lose a file that was made before it, which FaultyDir does not do. So between the two there is a Sync.
func TestANameIsSafeBeforeMetaNamesIt(t *testing.T) {
	var made, named, wrong bool // a data file was made, meta is written without the directory having been synced since
	dir := &logtest.FaultyDir{Fault: func(op logtest.FileOperation) error {
		switch {
		case op.Name == "openfile" && strings.HasPrefix(op.File, "data-"):
			made = true
		case op.Name == "syncdir":
			made = false
		case op.Name == "rename":
			named, wrong = true, wrong || made
		}
		return nil
	}}
	l, err := openLog(faulty{dir})
	if err == nil {
		err = l.ResetTo(t.Context(), 5)
	}
	if err != nil || !named {
		t.Fatalf("error %v, meta written: %t", err, named)
	}
	if wrong {
		t.Error("meta was put in place before the name of the data file was safe")
	}
}

// TestOnlyBytesBelowTheStartAreLeft: damage took the batches at and above the start. They had been synced, so the log does not open as an empty one.
func TestOnlyBytesBelowTheStartAreLeft(t *testing.T) {
	dir := &logtest.FaultyDir{}
	l := prepare(t, dir)
	if err := l.data.Truncate(int64(len(records(0, 5)))); err != nil {
		t.Fatal(err)
	}
	if l, err := openLog(faulty{dir}); err == nil {
		t.Fatalf("the log opened as [%d, %d]; it was [7, 20]", l.Start(), l.End())
	}
}

// TestOffsetsAreFoundInALongLog: with many entries in the index, after cuts and copies.
func TestOffsetsAreFoundInALongLog(t *testing.T) {
	const n, step = 200, 10
	of := func(i int, seed int64) []byte {
		return batch.AppendData(nil, batch.DataSpec{BaseOffset: int64(i) * step, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, LastOffsetDelta: step - 1,
			Records: []batch.Record{{Value: bytes.Repeat([]byte{byte(i), byte(seed)}, 10<<10+int(seed)*1000)}}})
	}
	l, path := newLog(t)
	first, log := 0, [][]byte{}
	fill := func(seed int64) {
		for i := first + len(log); i < n; i++ {
			log = append(log, of(i, seed))
			if err := l.Append(t.Context(), 0, bytes.Clone(log[len(log)-1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(when string) {
		t.Helper()
		for i, want := range log {
			from := max(int64(first+i)*step+3, l.Start())
			if got, err := l.Read(t.Context(), from, 1); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s: read at %d: %d bytes of %d, error %v", when, from, len(got), len(want), err)
			}
		}
	}
	fill(1)
	if len(l.index.entries) < 20 {
		t.Fatalf("the index has %d entries: too few to show anything", len(l.index.entries))
	}
	check("filled")
	if end, err := l.TruncateTo(t.Context(), 150*step+5); err != nil || end != 150*step {
		t.Fatalf("truncation gave %d, %v", end, err)
	}
	log = log[:150]
	check("cut")
	fill(2)
	check("filled again")
	if err := l.RaiseStart(t.Context(), 120*step+7); err != nil {
		t.Fatal(err)
	}
	first, log = 120, log[120:]
	check("start raised")
	if use := diskUse(t, path); use > 110*(20<<10) {
		t.Errorf("%d bytes on disk: the bytes in front of the start were not given back", use)
	}
	l = reopen(t, l, path)
	check("opened again")
	if err := l.ResetTo(t.Context(), 60*step); err != nil {
		t.Fatal(err)
	}
	first, log = 60, nil
	fill(3)
	check("reset and filled")
}
