package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// bounded is a context for one step: it ends with the test, or when patience does.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// positions checks Start and End, and what must always hold between the offsets.
func positions(t testing.TB, log mirror.Log, start, end int64) {
	t.Helper()
	if log.Start() != start || log.End() != end {
		t.Fatalf("the log is [%d, %d], it should be [%d, %d]", log.Start(), log.End(), start, end)
	}
	if r := log.Replicated(); r < start || r > end {
		t.Fatalf("Replicated is %d in a log [%d, %d]", r, start, end)
	}
}

func add(t testing.TB, log mirror.Log, some ...made) {
	t.Helper()
	if err := log.Append(bounded(t), log.LeaderEpoch(), join(some...)); err != nil {
		t.Fatalf("append of %v: %v", some, err)
	}
	positions(t, log, log.Start(), some[len(some)-1].next)
}

// refuse appends what must be refused with an error, and nothing of it kept.
func refuse(t testing.TB, log mirror.Log, leaderEpoch int32, want error, some ...made) {
	t.Helper()
	start, end := log.Start(), log.End()
	if err := log.Append(bounded(t), leaderEpoch, join(some...)); !errors.Is(err, want) {
		t.Errorf("append of %v under leader epoch %d to a log [%d, %d]: error %v, not %v", some, leaderEpoch, start, end, err, want)
	}
	positions(t, log, start, end)
}

func read(t testing.TB, log mirror.Log, from int64) []byte {
	t.Helper()
	b, err := log.Read(bounded(t), from, 1<<20)
	if err != nil {
		t.Fatalf("read at %d: %v", from, err)
	}
	return b
}

func same(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: %s, it should be %s", what, describe(got), describe(want))
	}
}

// describe names the batches in some bytes.
func describe(b []byte) string {
	s, n := "", 0
	for info, whole := range mirror.Batches(b) {
		n += len(whole)
		s += fmt.Sprintf("%d–%d (%d bytes, checksum %08x) ", info.Base, info.Last, len(whole), checksum(whole))
	}
	if n < len(b) {
		s += fmt.Sprintf("and %d bytes that are no batch ", len(b)-n)
	}
	if s == "" {
		return "nothing"
	}
	return s[:len(s)-1]
}

// content checks that the log holds exactly these batches, in one read and in small ones.
func content(t testing.TB, log mirror.Log, want []made) {
	t.Helper()
	all, err := everything(bounded(t), log, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the log's content", all, join(want...))
	all, err = everything(bounded(t), log, 1)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the log's content, batch by batch", all, join(want...))
}

// everything reads a log from Start to End.
func everything(ctx context.Context, log mirror.Log, max int) ([]byte, error) {
	var all []byte
	for from := log.Start(); from < log.End(); {
		b, err := log.Read(ctx, from, max)
		if err != nil {
			return nil, fmt.Errorf("read at %d: %w", from, err)
		}
		next, n := from, 0
		for info, whole := range mirror.Batches(b) {
			next, n = info.Next(), n+len(whole)
		}
		if n < len(b) {
			return nil, fmt.Errorf("read at %d returned %d bytes that are no whole batch", from, len(b)-n)
		}
		if len(b) == 0 {
			break // a hole at the end
		}
		if next <= from {
			return nil, fmt.Errorf("read at %d returned a batch that ends at %d", from, next-1)
		}
		all, from = append(all, b...), next
	}
	return all, nil
}

func outside(t testing.TB, log mirror.Log, offsets ...int64) {
	t.Helper()
	for _, from := range offsets {
		if b, err := log.Read(bounded(t), from, 1<<20); !errors.Is(err, mirror.ErrOffsetOutOfRange) {
			t.Errorf("read at %d of a log [%d, %d] gave %s, error %v, not ErrOffsetOutOfRange", from, log.Start(), log.End(), describe(b), err)
		}
	}
}

// truncate cuts and checks that the new end is within [low, high]: in a gap both ends of it are right.
func truncate(t testing.TB, log mirror.Log, to, low, high int64) {
	t.Helper()
	end, err := log.TruncateTo(bounded(t), to)
	if err != nil {
		t.Fatalf("truncation to %d: %v", to, err)
	}
	if end != log.End() {
		t.Fatalf("truncation to %d returned %d, End is %d", to, end, log.End())
	}
	if end < low || end > high {
		t.Fatalf("truncation to %d gave End %d, it should be %d to %d", to, end, low, high)
	}
	positions(t, log, log.Start(), end)
}

func replicated(t testing.TB, log mirror.Log, offset int64) {
	t.Helper()
	if err := log.AwaitReplicated(bounded(t), offset); err != nil {
		t.Fatalf("AwaitReplicated(%d): %v", offset, err)
	}
	if log.Replicated() < offset {
		t.Fatalf("AwaitReplicated(%d) returned, Replicated is %d", offset, log.Replicated())
	}
	positions(t, log, log.Start(), log.End())
}

func openLog(t testing.TB, log mirror.Log) {
	t.Helper()
	if err := log.Open(bounded(t)); err != nil {
		t.Fatalf("Open: %v", err)
	}
}

func closeLog(t testing.TB, log mirror.Log) {
	t.Helper()
	if err := log.CloseForWrites(bounded(t)); err != nil {
		t.Fatalf("CloseForWrites: %v", err)
	}
}

func owner(t testing.TB, log mirror.Log, want mirror.Ownership) {
	t.Helper()
	got, epoch, err := log.Owner(bounded(t))
	if err != nil {
		t.Fatalf("Owner: %v", err)
	}
	if got != want || epoch != log.LeaderEpoch() {
		t.Fatalf("Owner says %s under leader epoch %d, it should be %s under %d", got, epoch, want, log.LeaderEpoch())
	}
}

func foreign(t testing.TB, s Subject, foreign bool) {
	t.Helper()
	if err := s.SetForeign(foreign); err != nil {
		t.Fatalf("SetForeign(%t): %v", foreign, err)
	}
}

// drop is one of the calls that take something from a log.
type drop struct {
	name string
	call func(ctx context.Context, log mirror.Log, to int64) error
	to   []int64
}

// Of a log [2, 15] with batches at 0, 5 and 10. Also offsets at which there is nothing to do are refused.
var (
	truncations = drop{"TruncateTo", func(ctx context.Context, log mirror.Log, to int64) error {
		_, err := log.TruncateTo(ctx, to)
		return err
	}, []int64{10, 7, 3, 2, 0, 15, 1000}}
	resets = drop{"ResetTo", func(ctx context.Context, log mirror.Log, to int64) error { return log.ResetTo(ctx, to) }, []int64{2, 15, 7, 0, 1000}}
	raises = drop{"RaiseStart", func(ctx context.Context, log mirror.Log, to int64) error { return log.RaiseStart(ctx, to) }, []int64{3, 5, 7, 15, 1000, 2, 0}}
)

// leaves checks that a log which is not the mirror's refuses a call and stays as it is.
func leaves(t testing.TB, s Subject, isForeign bool, d drop) {
	t.Helper()
	log := []made{data(0, 5), data(5, 5), data(10, 5)}
	add(t, s.Log, log...)
	replicated(t, s.Log, 15)
	if err := s.Log.RaiseStart(bounded(t), 2); err != nil {
		t.Fatal(err)
	}
	for _, to := range d.to {
		kind, is := "an open", mirror.OwnerOpen
		if isForeign {
			kind, is = "a foreign", mirror.OwnerForeign
			foreign(t, s, true)
		} else {
			openLog(t, s.Log)
		}
		if err := d.call(bounded(t), s.Log, to); !errors.Is(err, mirror.ErrFenced) {
			t.Errorf("%s(%d) on %s log: error %v, not ErrFenced", d.name, to, kind, err)
		}
		owner(t, s.Log, is)
		if isForeign {
			foreign(t, s, false)
		} else {
			closeLog(t, s.Log)
		}
		owner(t, s.Log, mirror.OwnerOurs)
		positions(t, s.Log, 2, 15)
		content(t, s.Log, log)
	}
	replicated(t, s.Log, 15)
	add(t, s.Log, data(15, 1))
	content(t, s.Log, append(log, data(15, 1)))
}

// ends checks that something waits until its context is cancelled, and returns then and says so.
func ends(t testing.TB, wait func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(bounded(t))
	done := make(chan error, 1)
	go func() { done <- wait(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it returned %v when its context was cancelled, not context.Canceled; what it waits for cannot have happened", err)
	}
}
