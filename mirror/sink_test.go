package mirror

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sinkFiles lists the files below dir, sorted, with slashes.
func sinkFiles(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			files = append(files, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestFileSinkKeepsBatchesVerbatim(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dropped", "records")
	sink := FileSink(dir)
	whole := slices.Concat(data(880, 20), data(900, 50, transactional(7)), marker(950, 7, 1))
	if err := sink.Dropped(bg, TopicPartition{"x.stopped-1", 12}, 880, 951, whole); err != nil {
		t.Fatal(err)
	}
	if got := sinkFiles(t, dir); !slices.Equal(got, []string{"x.stopped-1/12/00000000000000000880.00000000000000000951.0.log"}) {
		t.Fatalf("files %q", got)
	}
	path := filepath.Join(dir, sinkFiles(t, dir)[0])
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	raw, _ := os.ReadFile(path)
	f, err := ReadSinkFile(path)
	if err != nil || string(f.Batches) != string(whole) || string(raw) != string(whole) || f.TopicPartition != (TopicPartition{"x.stopped-1", 12}) || f.From != 880 || f.To != 951 {
		t.Errorf("%+v %v", f.TopicPartition, err)
	}
	var offsets []int64
	for info := range Batches(f.Batches) {
		offsets = append(offsets, info.Base)
	}
	if !slices.Equal(offsets, []int64{880, 900, 950}) {
		t.Errorf("batches at %v", offsets)
	}
}

func TestFileSinkNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	tp := TopicPartition{"t", 0}
	one, two := data(5, 2), data(5, 2, transactional(7))
	for _, b := range [][]byte{one, one, two, one, two} { // a retry, another failback, retries of both
		if err := FileSink(dir).Dropped(bg, tp, 5, 7, b); err != nil {
			t.Fatal(err)
		}
	}
	files := sinkFiles(t, dir)
	if len(files) != 2 || !strings.HasSuffix(files[0], ".0.log") || !strings.HasSuffix(files[1], ".1.log") {
		t.Fatalf("files %q", files)
	}
	for i, want := range [][]byte{one, two} {
		if f, err := ReadSinkFile(filepath.Join(dir, files[i])); err != nil || string(f.Batches) != string(want) {
			t.Errorf("%s: %v", files[i], err)
		}
	}
}

func TestFileSinkRefuses(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if err := FileSink(dir).Dropped(ctx, TopicPartition{"t", 0}, 5, 6, data(5, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context's end: %v", err)
	}
	for _, name := range []string{"", ".", "..", "../up", "a/b"} {
		if err := FileSink(dir).Dropped(bg, TopicPartition{name, 0}, 5, 6, data(5, 1)); err == nil {
			t.Errorf("topic %q has a folder", name)
		}
	}
	if err := FileSink(dir).Dropped(bg, TopicPartition{"t", 0}, 5, 5, data(5, 1)); err == nil {
		t.Error("an empty range is kept")
	}
	if err := FileSink(dir).Dropped(bg, TopicPartition{"t", 0}, 5, 6, nil); err == nil {
		t.Error("no bytes are kept")
	}
	if files := sinkFiles(t, dir); len(files) != 0 {
		t.Errorf("left behind: %q", files)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := FileSink(file).Dropped(bg, TopicPartition{"t", 0}, 5, 6, data(5, 1)); err == nil || !strings.Contains(err.Error(), "[5,6) of t-0") {
		t.Errorf("a folder that cannot be made: %v", err)
	}
	if err := Discard.Dropped(bg, TopicPartition{}, 0, 0, nil); err != nil {
		t.Errorf("Discard: %v", err)
	}
}

func TestReadSinkFileSaysNoToDamage(t *testing.T) {
	good := slices.Concat(data(5, 2), data(7, 3))
	for what, tc := range map[string]struct {
		name string
		b    []byte
	}{
		"cut at the end":    {"00000000000000000005.00000000000000000010.0.log", good[:len(good)-1]},
		"a batch missing":   {"00000000000000000005.00000000000000000010.0.log", data(5, 2)},
		"first missing":     {"00000000000000000005.00000000000000000010.0.log", data(7, 3)},
		"wrong order":       {"00000000000000000005.00000000000000000007.0.log", slices.Concat(data(5, 5), data(5, 2))},
		"empty":             {"00000000000000000005.00000000000000000010.0.log", nil},
		"garbage behind":    {"00000000000000000005.00000000000000000010.0.log", append(slices.Clone(good), "garbage"...)},
		"another range":     {"00000000000000000005.00000000000000000011.0.log", good},
		"not a name of it":  {"5-10.log", good},
		"not a number":      {"five.10.0.log", good},
		"an unfinished one": {"unfinished-1", good},
	} {
		folder := filepath.Join(t.TempDir(), "t", "0")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, tc.name)
		if err := os.WriteFile(path, tc.b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSinkFile(path); err == nil || !strings.Contains(err.Error(), tc.name) {
			t.Errorf("%s: %v", what, err)
		}
	}
	folder := filepath.Join(t.TempDir(), "t", "0")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "00000000000000000005.00000000000000000010.0.log")
	for at := range good {
		bad := slices.Clone(good)
		bad[at] ^= 1
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := ReadSinkFile(path)
		inEpoch := at >= 12 && at < 16 || at >= len(data(5, 2))+12 && at < len(data(5, 2))+16
		if inEpoch { // no checksum covers it, and the name does not say it
			continue
		}
		if err == nil || string(f.Batches) != string(bad) {
			t.Errorf("byte %d flipped: %v, %d bytes returned", at, err, len(f.Batches))
		}
	}
	if _, err := ReadSinkFile(filepath.Join(folder, "00000000000000000005.00000000000000000099.0.log")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestFileSinkSyncsFoldersThatWereThere: a process that was killed may have made them and synced nothing, and another partition may be about to. Once in a process is enough, unless one was moved away.
func TestFileSinkSyncsFoldersThatWereThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "above", "dropped")
	if err := os.MkdirAll(filepath.Join(dir, "t", "0"), 0o700); err != nil {
		t.Fatal(err)
	}
	sink := FileSink(dir).(*fileSink)
	synced := map[string]int{}
	sink.sync = func(folder string) error {
		synced[folder]++
		return nil
	}
	drop := func() {
		t.Helper()
		clear(synced)
		if err := sink.Dropped(bg, TopicPartition{"t", 0}, 5, 7, data(5, 2)); err != nil {
			t.Fatal(err)
		}
	}
	chain := []string{filepath.Dir(dir), dir, filepath.Join(dir, "t"), filepath.Join(dir, "t", "0")}
	for i := range 2 {
		drop()
		for _, folder := range chain {
			if want := i == 0 || folder == chain[3]; (synced[folder] > 0) != want {
				t.Errorf("call %d: %s synced %d times", i, folder, synced[folder])
			}
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "t")); err != nil {
		t.Fatal(err)
	}
	if drop(); synced[dir] == 0 || synced[filepath.Join(dir, "t")] == 0 {
		t.Errorf("made again, and synced %v", synced)
	}
	failing := FileSink(dir).(*fileSink)
	failing.sync = func(folder string) error {
		if folder == dir {
			return errors.New("the disk is gone")
		}
		return nil
	}
	for range 2 {
		if err := failing.Dropped(bg, TopicPartition{"t", 0}, 5, 7, data(5, 2)); err == nil {
			t.Error("a folder is not safe, and Dropped says that it is")
		}
	}
}

// TestSinksOfOneFolderOverwriteNothing: two processes drop the same range of the same topic's partition, each its own records.
func TestSinksOfOneFolderOverwriteNothing(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	const sinks = 8
	for i := range sinks {
		all.Go(func() {
			if err := FileSink(dir).Dropped(bg, TopicPartition{"t", 0}, 5, 7, data(5, 2, transactional(int64(i)))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	found := map[string]bool{}
	for _, name := range sinkFiles(t, dir) {
		f, err := ReadSinkFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		found[string(f.Batches)] = true
	}
	if len(found) != sinks {
		t.Errorf("%d of %d are there", len(found), sinks)
	}
}
