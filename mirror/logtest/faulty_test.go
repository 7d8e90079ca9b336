package logtest

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// create makes a file with this content, synced with its name.
func create(t *testing.T, d *FaultyDir, name, content string) *FaultyFile {
	t.Helper()
	f, err := d.OpenFile("/somewhere/"+name, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteAt([]byte(content), 0)
	}
	if err := errors.Join(err, f.Sync(), d.SyncDir()); err != nil {
		t.Fatal(err)
	}
	return f
}

func contentOf(t *testing.T, d *FaultyDir, name string) string {
	t.Helper()
	f, err := d.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "absent"
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return string(b)
}

// outcomes does something to a directory and restarts it, with many seeds; it returns what became of a file.
func outcomes(t *testing.T, name string, do func(*FaultyDir)) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for seed := range uint64(300) {
		d := &FaultyDir{}
		create(t, d, "a", "0123456789")
		do(d)
		d.Restart(rand.New(rand.NewPCG(seed, 0)))
		seen[contentOf(t, d, name)]++
	}
	return seen
}

func expectOutcomes(t *testing.T, seen map[string]int, want ...string) {
	t.Helper()
	for _, w := range want {
		if seen[w] == 0 {
			t.Errorf("%q never came of it: %v", w, seen)
		}
	}
}

func TestFaultyDirKeepsWhatIsSynced(t *testing.T) {
	seen := outcomes(t, "a", func(d *FaultyDir) {
		f, _ := d.OpenFile("a", os.O_RDWR, 0)
		f.WriteAt([]byte("abc"), 8)
		f.Sync()
	})
	if len(seen) != 1 || seen["01234567abc"] != 300 {
		t.Errorf("%v", seen)
	}
}

func TestFaultyDirLosesAndTearsWhatIsNot(t *testing.T) {
	seen := outcomes(t, "a", func(d *FaultyDir) {
		f, _ := d.OpenFile("a", os.O_RDWR, 0)
		f.WriteAt([]byte("abc"), 10)
		f.WriteAt([]byte("xyz"), 13)
	})
	expectOutcomes(t, seen,
		"0123456789",                // nothing
		"0123456789abc",             // the first
		"0123456789abcxyz",          // both
		"0123456789a",               // the first one torn
		"0123456789abcxy",           // the second one torn
		"0123456789\x00\x00\x00xyz", // the second without the first
		"0123456789abcx\x00z",       // a page in the middle that did not reach the disk
	)
	seen = outcomes(t, "a", func(d *FaultyDir) {
		f, _ := d.OpenFile("a", os.O_RDWR, 0)
		f.Truncate(3)
		f.WriteAt([]byte("x"), 3)
	})
	expectOutcomes(t, seen, "0123456789", "012", "012x", "012x456789")
}

func TestFaultyDirLosesNamesThatAreNotSynced(t *testing.T) {
	seen := outcomes(t, "b", func(d *FaultyDir) {
		f, err := d.OpenFile("b", os.O_RDWR|os.O_CREATE, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteAt([]byte("new"), 0)
		f.Sync()
	})
	if len(seen) != 2 {
		t.Errorf("%v", seen)
	}
	expectOutcomes(t, seen, "absent", "new")
	rename := func(d *FaultyDir) {
		create(t, d, "b", "new")
		if err := d.Rename("b", "a"); err != nil {
			t.Fatal(err)
		}
	}
	expectOutcomes(t, outcomes(t, "a", rename), "0123456789", "new")
	expectOutcomes(t, outcomes(t, "b", rename), "absent", "new")
	synced := func(d *FaultyDir) { rename(d); d.SyncDir() }
	if seen := outcomes(t, "a", synced); len(seen) != 1 || seen["new"] == 0 {
		t.Errorf("%v", seen)
	}
	expectOutcomes(t, outcomes(t, "a", func(d *FaultyDir) { d.Remove("a") }), "absent", "0123456789")
}

func TestFaultyDirCutsThePowerAtAnOperation(t *testing.T) {
	d := &FaultyDir{}
	f := create(t, d, "a", "0123456789")
	before := d.Operations()
	d.CutPowerAfter(2)
	if _, err := f.Stat(); err != nil {
		t.Fatal(err)
	}
	if n, err := f.WriteAt([]byte("abcd"), 10); n != 2 || !errors.Is(err, ErrPowerCut) {
		t.Errorf("the write at which the power fails: %d bytes, %v", n, err)
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrPowerCut) {
		t.Errorf("afterwards: %v", err)
	}
	if _, err := d.OpenFile("a", os.O_RDWR, 0); !errors.Is(err, ErrPowerCut) {
		t.Errorf("afterwards: %v", err)
	}
	if n := d.Operations() - before; n != 2 {
		t.Errorf("%d operations", n)
	}
	d.Restart(rand.New(rand.NewPCG(1, 1)))
	if err := f.Sync(); !errors.Is(err, ErrPowerCut) {
		t.Errorf("a file that was opened before the power cut: %v", err)
	}
	if c := contentOf(t, d, "a"); c[:10] != "0123456789" || len(c) > 12 {
		t.Errorf("content %q", c)
	}
}

func TestFaultyDirRestartsTheSameWithTheSameSeed(t *testing.T) {
	run := func() string {
		d := &FaultyDir{}
		for i := range 20 {
			f, _ := d.OpenFile(string(rune('a'+i%5)), os.O_RDWR|os.O_CREATE, 0)
			f.WriteAt([]byte("some bytes"), int64(i))
			if i == 7 {
				d.SyncDir()
			}
		}
		d.Restart(rand.New(rand.NewPCG(4, 4)))
		s := d.String()
		names, _ := d.Names()
		for _, name := range names {
			s += contentOf(t, d, name)
		}
		return s
	}
	if a, b := run(), run(); a != b {
		t.Errorf("%q and %q", a, b)
	}
}

func TestFaultyDirInjectsErrors(t *testing.T) {
	fault := errors.New("fault")
	d := &FaultyDir{}
	f := create(t, d, "a", "0123456789")
	var asked []string
	d.Fault = func(op FileOperation) error {
		asked = append(asked, op.Name)
		return fault
	}
	if n, err := f.WriteAt([]byte("abcd"), 10); n != 2 || !errors.Is(err, fault) {
		t.Errorf("write: %d, %v", n, err)
	}
	for what, err := range map[string]error{
		"sync": f.Sync(), "truncate": f.Truncate(0), "rename": d.Rename("a", "b"), "remove": d.Remove("a"), "sync of the directory": d.SyncDir(), "close": f.Close(),
	} {
		if !errors.Is(err, fault) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.Fault = nil
	if c := contentOf(t, d, "a"); c != "0123456789ab" {
		t.Errorf("content %q: what failed had an effect, or the first part of the write had none", c)
	}
	if slices.Contains(asked, "readat") || !slices.Contains(asked, "syncdir") {
		t.Errorf("asked for %q", asked)
	}
}

func TestFaultyFileIsAsOnDisk(t *testing.T) {
	d := &FaultyDir{}
	if _, err := d.OpenFile("a", os.O_RDWR, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of nothing: %v", err)
	}
	f := create(t, d, "a", "0123456789")
	if _, err := d.OpenFile("a", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0); !errors.Is(err, fs.ErrExist) {
		t.Errorf("exclusive open: %v", err)
	}
	b := make([]byte, 4)
	if n, err := f.ReadAt(b, 8); n != 2 || err != io.EOF || string(b[:2]) != "89" {
		t.Errorf("read at the end: %d, %v", n, err)
	}
	if n, err := f.ReadAt(b, 3); n != 4 || err != nil || string(b) != "3456" {
		t.Errorf("read: %d, %v", n, err)
	}
	if _, err := d.OpenFile("a", os.O_RDWR|os.O_TRUNC, 0); err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 0 || info.Name() != "a" {
		t.Errorf("%v, %v", info, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Sync(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("sync of a closed file: %v", err)
	}
	if err := d.Rename("x", "y"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rename of nothing: %v", err)
	}
	if err := d.Remove("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remove of nothing: %v", err)
	}
}
