package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/logtest"
)

// TestLog runs the conformance kit.
func TestLog(t *testing.T) {
	logtest.Run(t, func(t testing.TB) logtest.Subject {
		l, err := OpenLog(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return logtest.Subject{Log: l, Close: l.Close, RaiseLeaderEpoch: func(ctx context.Context, epoch int32) error {
			_, err := l.RaiseLeaderEpoch(ctx, epoch)
			return err
		}}
	})
}

// faulty puts logtest's directory under the broker's.
type faulty struct{ *logtest.FaultyDir }

func (d faulty) OpenFile(name string, flag int) (file, error) {
	f, err := d.FaultyDir.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d faulty) Sync() error  { return d.SyncDir() }
func (d faulty) Lock() error  { return nil }
func (d faulty) Close() error { return nil }

func opened(l *Log, err error) (logtest.Opened, error) {
	if err != nil {
		return logtest.Opened{}, err
	}
	return logtest.Opened{Log: l, Close: l.Close}, nil
}

// TestLogCrash runs the crash kit: kill -9, torn tails, power cuts that drop what was not synced.
func TestLogCrash(t *testing.T) {
	logtest.RunCrash(t, logtest.CrashFactory{
		Open:   func(dir string) (logtest.Opened, error) { return opened(OpenLog(dir)) },
		OpenOn: func(dir *logtest.FaultyDir) (logtest.Opened, error) { return opened(openLog(faulty{dir})) },
	})
}

func newLog(t testing.TB) (*Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a", "b")
	l, err := OpenLog(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, path
}

// records is one batch of n records at base; bytes differ with base.
func records(base int64, n int) []byte {
	some := make([]batch.Record, n)
	for i := range some {
		some[i] = batch.Record{OffsetDelta: int32(i), Value: bytes.Repeat([]byte{byte(base), byte(i)}, 50)}
	}
	return batch.AppendData(nil, batch.DataSpec{BaseOffset: base, BaseTimestamp: 1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: some})
}

func add(t testing.TB, l *Log, base int64, n int) {
	t.Helper()
	if err := l.Append(t.Context(), l.LeaderEpoch(), records(base, n)); err != nil {
		t.Fatal(err)
	}
}

func reopen(t testing.TB, l *Log, path string) *Log {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLog(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestSecondOpenIsRefused(t *testing.T) {
	l, path := newLog(t)
	if second, err := OpenLog(path); !errors.Is(err, errLocked) {
		t.Fatalf("a second open of %s gave %v, error %v; want errLocked", path, second, err)
	}
	add(t, l, 0, 3) // the first one still works
	reopen(t, l, path)
}

// otherVariable tells the child process of TestSecondProcessIsRefused which folder to try.
const otherVariable = "CUSTOMBROKER_TEST_OTHER"

// TestSecondProcessIsRefused is F-81's second half: two processes by mistake.
func TestSecondProcessIsRefused(t *testing.T) {
	if path := os.Getenv(otherVariable); path != "" {
		_, log := OpenLog(filepath.Join(path, "log"))
		_, cluster := OpenDestination(filepath.Join(path, "cluster"))
		if errors.Is(log, errLocked) && errors.Is(cluster, errLocked) {
			os.Exit(0)
		}
		os.Exit(7)
	}
	path := t.TempDir()
	child := func() error {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSecondProcessIsRefused$")
		cmd.Env = append(os.Environ(), otherVariable+"="+path)
		return cmd.Run()
	}
	if err := child(); err == nil {
		t.Error("another process was refused, though nobody has the folders")
	}
	l, err := OpenLog(filepath.Join(path, "log"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenDestination(filepath.Join(path, "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	if err := child(); err != nil {
		t.Errorf("another process was not refused: %v", err)
	}
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestProduceAssignsOffsetsAndLeaderEpoch(t *testing.T) {
	l, path := newLog(t)
	add(t, l, 5, 3)
	if _, err := l.Produce(t.Context(), records(0, 1)); !errors.Is(err, ErrNotOpen) {
		t.Fatalf("a client wrote to a closed log: error %v", err)
	}
	if _, err := l.RaiseLeaderEpoch(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	if err := l.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	theirs := append(records(0, 2), records(0, 3)...)
	before := bytes.Clone(theirs)
	base, err := l.Produce(t.Context(), theirs)
	if err != nil || base != 8 || l.End() != 13 {
		t.Fatalf("Produce gave offset %d, error %v, end %d; want 8, nil, 13", base, err, l.End())
	}
	if !bytes.Equal(theirs, before) {
		t.Error("Produce changed the client's bytes")
	}
	damaged := bytes.Clone(theirs)
	damaged[len(damaged)-1]++
	if _, err := l.Produce(t.Context(), damaged); err == nil {
		t.Error("Produce took a batch whose checksum is wrong")
	}
	if _, err := l.Produce(t.Context(), theirs[:len(theirs)-1]); err == nil {
		t.Error("Produce took a cut batch")
	}
	l = reopen(t, l, path)
	if owner, epoch, err := l.Owner(t.Context()); owner != mirror.OwnerOpen || epoch != 4 || err != nil {
		t.Errorf("after a restart: %v under leader epoch %d, error %v; want open under 4", owner, epoch, err)
	}
	b, err := l.Read(t.Context(), 8, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	next := int64(8)
	for info, raw := range mirror.Batches(b) {
		if info.Base != next || info.LeaderEpoch != 4 || mirror.CheckBatch(raw) != nil {
			t.Errorf("batch at %d under leader epoch %d, check %v; want %d under 4", info.Base, info.LeaderEpoch, mirror.CheckBatch(raw), next)
		}
		next = info.Next()
	}
	if next != 13 {
		t.Errorf("what clients wrote ends at %d, want 13", next)
	}
	if err := l.CloseForWrites(t.Context()); err != nil {
		t.Fatal(err)
	}
	l = reopen(t, l, path)
	if _, err := l.Produce(t.Context(), theirs); !errors.Is(err, ErrNotOpen) {
		t.Errorf("a client wrote to a log that was closed before the restart: error %v", err)
	}
}

// TestRaiseStartGivesSpaceBack: the bytes in front of the start are copied away once they are most of the file.
func TestRaiseStartGivesSpaceBack(t *testing.T) {
	l, path := newLog(t)
	for base := int64(0); base < 100; base += 10 {
		add(t, l, base, 10)
	}
	whole := diskUse(t, path)
	if err := l.RaiseStart(t.Context(), 25); err != nil {
		t.Fatal(err)
	}
	if now := diskUse(t, path); now < whole-100 {
		t.Errorf("%d bytes of %d are left after a small raise, which should have cost only a meta", now, whole)
	}
	if err := l.RaiseStart(t.Context(), 85); err != nil {
		t.Fatal(err)
	}
	if now := diskUse(t, path); now > whole/4 {
		t.Errorf("%d bytes of %d are left after a raise to 85 of 100", now, whole)
	}
	for range 2 {
		if l.Start() != 85 || l.End() != 100 {
			t.Errorf("the log is [%d, %d], want [85, 100]", l.Start(), l.End())
		}
		b, err := l.Read(t.Context(), 85, 1<<20)
		if want := append(records(80, 10), records(90, 10)...); err != nil || !bytes.Equal(b, want) {
			t.Errorf("read at 85: %d bytes, error %v; want %d", len(b), err, len(want))
		}
		l = reopen(t, l, path)
	}
}

func diskUse(t testing.TB, path string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			info, statErr := e.Info()
			if err = statErr; err == nil {
				n += info.Size()
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMetaIsNeeded: data without meta, or with a damaged one, is not taken for an empty log.
func TestMetaIsNeeded(t *testing.T) {
	l, path := newLog(t)
	add(t, l, 0, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(path, "meta")
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(content), `"start":0`, `"start":1`, 1)
	if damaged == string(content) {
		t.Fatalf("meta is %q", content)
	}
	for what, change := range map[string]func() error{
		"without meta":      func() error { return os.Remove(name) },
		"with another meta": func() error { return os.WriteFile(name, []byte(damaged), 0o644) },
		"with an empty one": func() error { return os.WriteFile(name, nil, 0o644) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if l, err := OpenLog(path); err == nil {
			t.Errorf("%s the log opened as [%d, %d]", what, l.Start(), l.End())
			l.Close()
		}
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if l, err = OpenLog(path); err != nil || l.End() != 3 {
		t.Fatalf("with its meta put back: %v", err)
	}
	l.Close()
}

// TestRecoveryReportsWhatItCut: nobody has to find out by himself that bytes are gone.
func TestRecoveryReportsWhatItCut(t *testing.T) {
	l, path := newLog(t)
	add(t, l, 0, 3)
	add(t, l, 3, 3)
	if l.Cut != 0 {
		t.Errorf("a new log says that %d bytes were cut", l.Cut)
	}
	path = killed(t, path)
	name := filepath.Join(path, "data-0")
	whole := int64(len(records(0, 3)))
	if err := os.Truncate(name, 2*whole-5); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Cut != whole-5 || l.End() != 3 {
		t.Errorf("recovery cut %d bytes, end %d; want %d and 3", l.Cut, l.End(), whole-5)
	}
}

// TestDamageBehindAnOpenLogIsAnError: a read never gives less than there is as if there were nothing.
func TestDamageBehindAnOpenLogIsAnError(t *testing.T) {
	l, path := newLog(t)
	add(t, l, 0, 3)
	add(t, l, 3, 3)
	f, err := os.OpenFile(filepath.Join(path, "data-0"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 61), int64(len(records(0, 3)))); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := l.Read(t.Context(), 4, 1<<20); err == nil {
		t.Errorf("read of damaged bytes gave %d bytes", len(b))
	}
	if end, err := l.TruncateTo(t.Context(), 4); err == nil {
		t.Errorf("truncation in damaged bytes gave end %d", end)
	}
	if b, err := l.Read(t.Context(), 1, 1<<20); err != nil || !bytes.Equal(b, records(0, 3)) {
		t.Errorf("read in front of the damage: %d bytes, error %v", len(b), err)
	}
}

func TestBatchAboveTheLimitIsRefused(t *testing.T) {
	l, _ := newLog(t)
	huge := batch.AppendData(nil, batch.DataSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: []batch.Record{{Value: make([]byte, maxBatch)}}})
	if err := l.Append(t.Context(), 0, huge); !errors.Is(err, mirror.ErrBatchTooLarge) {
		t.Errorf("append of %d bytes: error %v, want ErrBatchTooLarge", len(huge), err)
	}
	if l.End() != 0 {
		t.Errorf("end is %d after a refused append", l.End())
	}
}

// TestLargeBatchesAreRecovered: a batch may be larger than the pieces in which the file is read.
func TestLargeBatchesAreRecovered(t *testing.T) {
	l, path := newLog(t)
	large := batch.AppendData(nil, batch.DataSpec{BaseOffset: 3, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: []batch.Record{{Value: make([]byte, 5*firstInterval)}}})
	add(t, l, 0, 3)
	if err := l.Append(t.Context(), 0, large); err != nil {
		t.Fatal(err)
	}
	add(t, l, 4, 1)
	l = reopen(t, l, path)
	b, err := l.Read(t.Context(), 3, 10)
	if err != nil || !bytes.Equal(b, large) || l.End() != 5 {
		t.Errorf("read of a large batch: %d bytes of %d, error %v, end %d", len(b), len(large), err, l.End())
	}
}

// TestIndexStaysSmall: what is in memory does not grow with the file, and every offset is still found from a place in front of it.
func TestIndexStaysSmall(t *testing.T) {
	var x index
	const size = 40 << 10
	for i := range int64(200_000) {
		x.add(i*10, i*size)
		if len(x.entries) >= maxEntries {
			t.Fatalf("%d entries", len(x.entries))
		}
	}
	for i := int64(0); i < 200_000; i += 97 {
		place := x.find(i*10 + 5)
		if place > i*size || i > 0 && place > (i-1)*size || place < i*size-3*x.interval {
			t.Fatalf("offset %d of the batch at %d is looked for from %d, interval %d", i*10+5, i*size, place, x.interval)
		}
	}
	x.cut(100_000 * size)
	if place := x.find(1_999_999); place >= 100_000*size {
		t.Errorf("after a cut at %d an offset is looked for from %d", 100_000*size, place)
	}
	x.shift(50_000 * size)
	if place := x.find(50_005 * 10); place > 5*size || place < 0 {
		t.Errorf("after a shift the batch at %d is looked for from %d", 5*size, place)
	}
}

func TestClosedLogRefusesEverything(t *testing.T) {
	l, _ := newLog(t)
	add(t, l, 0, 3)
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), 0, records(3, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("append to a closed log: %v", err)
	}
	if _, err := l.Read(t.Context(), 0, 100); err == nil {
		t.Error("read of a closed log succeeded")
	}
	if err := l.Open(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Open of a closed log: %v", err)
	}
}
