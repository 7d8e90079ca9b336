package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// killed is a copy of an open log's directory: what kill -9 would leave.
func killed(t testing.TB, path string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	return to
}

func readFiles(t testing.TB, path string) string {
	t.Helper()
	var s strings.Builder
	for _, name := range []string{"data-0", "data-1", "meta", "mark"} {
		content, err := os.ReadFile(filepath.Join(path, name))
		fmt.Fprintf(&s, "%s %x %t\n", name, content, err == nil)
	}
	return s.String()
}

func put(t testing.TB, path, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path, name), content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, path, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// refused opens a log that must not open, and must not be changed by the try.
func refused(t testing.TB, path, what string, texts ...string) {
	t.Helper()
	before := readFiles(t, path)
	l, err := OpenLog(path)
	if err == nil {
		t.Errorf("%s: the log opened as [%d, %d], %d bytes were cut", what, l.Start(), l.End(), l.Cut)
		l.Close()
		return
	}
	for _, text := range append(texts, path, "put good copies", "mirror the partition again") {
		if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is not one line with %q: %v", what, text, err)
		}
	}
	if readFiles(t, path) != before {
		t.Errorf("%s: the refused open changed the files", what)
	}
}

// TestDamageInFrontOfTheNewestWriteIsRefused: a crash tears only the newest write. Anything else that is wrong with the data is damage, and what stands behind it is kept.
func TestDamageInFrontOfTheNewestWriteIsRefused(t *testing.T) {
	const n = 10
	size := len(records(0, 1))
	damages := []struct {
		name string
		do   func(data []byte, at int) []byte // at: where a batch begins
	}{
		{"a flipped bit of a record", func(b []byte, at int) []byte { b[at+size-5] ^= 1; return b }},
		{"a flipped bit of a base offset", func(b []byte, at int) []byte { b[at+6] ^= 1; return b }},
		{"a flipped bit of a length", func(b []byte, at int) []byte { b[at+9] ^= 1; return b }},
		{"a flipped bit of a checksum", func(b []byte, at int) []byte { b[at+18] ^= 1; return b }},
		{"zeros in place of a batch", func(b []byte, at int) []byte { clear(b[at : at+size]); return b }},
		{"zeros from a batch on", func(b []byte, at int) []byte { clear(b[at:]); return b }},
		{"an end at a batch", func(b []byte, at int) []byte { return b[:at] }},
		{"an end in a batch", func(b []byte, at int) []byte { return b[:at+size-1] }},
	}
	for _, open := range []bool{false, true} {
		l, path := newLog(t)
		if open {
			if err := l.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range int64(n) {
			if open {
				if _, err := l.Produce(t.Context(), records(i, 1)); err != nil {
					t.Fatal(err)
				}
			} else {
				add(t, l, i, 1)
			}
		}
		crashed := killed(t, path)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for _, left := range []struct {
			how, path string
			sure      int // batches that were certainly synced
		}{{"killed", crashed, n - 1}, {"closed", path, n}} {
			whole := get(t, left.path, "data-0")
			for _, d := range damages {
				for batch := range left.sure {
					put(t, left.path, "data-0", d.do(bytes.Clone(whole), batch*size))
					refused(t, left.path, fmt.Sprintf("%s, open for clients %t, %s %d", left.how, open, d.name, batch), "data-0 is damaged at byte ", "offset ")
				}
			}
			put(t, left.path, "data-0", whole)
			again, err := OpenLog(left.path)
			if err != nil {
				t.Fatalf("%s, with its data put back: %v", left.how, err)
			}
			if again.End() != n || again.Cut != 0 {
				t.Errorf("%s, with its data put back, the log ends at %d, %d bytes were cut", left.how, again.End(), again.Cut)
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestTornNewestWriteIsCut: a power cut may lose a page in the middle of a write of many batches. Nobody was told of that write, and whole batches behind the hole do not count.
func TestTornNewestWriteIsCut(t *testing.T) {
	l, path := newLog(t)
	add(t, l, 0, 1)
	size := len(records(0, 1))
	if err := l.Append(t.Context(), 0, append(append(records(1, 1), records(2, 1)...), records(3, 1)...)); err != nil {
		t.Fatal(err)
	}
	for batch := 1; batch < 4; batch++ {
		crashed := killed(t, path)
		data := get(t, crashed, "data-0")
		clear(data[batch*size+20 : batch*size+40])
		put(t, crashed, "data-0", data)
		again, err := OpenLog(crashed)
		if err != nil {
			t.Fatalf("hole in batch %d of the newest write: %v", batch, err)
		}
		if again.End() != int64(batch) || again.Cut != int64((4-batch)*size) {
			t.Errorf("hole in batch %d of the newest write: end %d, %d bytes cut", batch, again.End(), again.Cut)
		}
		add(t, again, again.End(), 1)
		reopen(t, again, crashed)
	}
}

// TestACutLowersWhatMustBeThere: a log that was cut, reset or moved, and dies at any time later, is not refused for what it had before.
func TestACutLowersWhatMustBeThere(t *testing.T) {
	for name, cut := range map[string]func(l *Log) error{
		"truncated":        func(l *Log) error { _, err := l.TruncateTo(t.Context(), 3); return err },
		"truncated to 0":   func(l *Log) error { _, err := l.TruncateTo(t.Context(), 0); return err },
		"reset to 0":       func(l *Log) error { return l.ResetTo(t.Context(), 0) },
		"reset to 2":       func(l *Log) error { return l.ResetTo(t.Context(), 2) },
		"start raised":     func(l *Log) error { return l.RaiseStart(t.Context(), 8) },
		"start at the end": func(l *Log) error { return l.RaiseStart(t.Context(), 10) },
	} {
		l, path := newLog(t)
		for i := range int64(10) {
			add(t, l, i, 1)
		}
		l = reopen(t, l, path) // so that meta knows of the end, too
		add(t, l, 10, 1)
		if err := cut(l); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			again, err := OpenLog(killed(t, path))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if again.Start() != l.Start() || again.End() != l.End() || again.Cut != 0 {
				t.Errorf("%s: [%d, %d] came back as [%d, %d], %d bytes cut", name, l.Start(), l.End(), again.Start(), again.End(), again.Cut)
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
			add(t, l, l.End(), 1)
		}
	}
}

// TestATornMarkDoesNotCount: the mark is not synced, so a power cut may leave anything of it, or an older one. meta still says what was synced when the log was opened.
func TestATornMarkDoesNotCount(t *testing.T) {
	l, path := newLog(t)
	add(t, l, 0, 1)
	l = reopen(t, l, path)
	add(t, l, 1, 1)
	add(t, l, 2, 1)
	size := len(records(0, 1))
	whole := get(t, path, "mark")
	changed := bytes.Clone(whole)
	changed[10] ^= 1
	for what, content := range map[string][]byte{"no mark": nil, "half a mark": whole[:30], "zeros": make([]byte, len(whole)), "a changed mark": changed} {
		crashed := killed(t, path)
		put(t, crashed, "mark", content)
		again, err := OpenLog(crashed)
		if err != nil || again.End() != 3 {
			t.Fatalf("%s: %v", what, err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		crashed = killed(t, path)
		put(t, crashed, "mark", content)
		put(t, crashed, "data-0", get(t, crashed, "data-0")[:size-1])
		refused(t, crashed, what, "data-0 is damaged at byte 0, offset 0: the log was synced up to byte ")
	}
}

// TestImpossibleMetaIsRefused: its checksum is right, its contents cannot be. It is not obeyed by cutting the data.
func TestImpossibleMetaIsRefused(t *testing.T) {
	for _, m := range []meta{
		{Start: -5}, {Start: 50}, {Data: 7}, {Data: -1}, {LeaderEpoch: -7}, {Start: 1 << 62, Open: true},
		{Start: 50, Confirmed: place{End: 50}}, {Start: 11, Confirmed: place{11, 1700}, Cuts: 3}, {Start: 50, Confirmed: place{End: 10}}, {Confirmed: place{11, 1870}}, {Confirmed: place{End: -1}},
	} {
		l, path := newLog(t)
		for i := range int64(10) {
			add(t, l, i, 1)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		dir, err := openDirectory(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeFile(dir, "meta", m); err != nil {
			t.Fatal(err)
		}
		dir.Close()
		refused(t, path, fmt.Sprintf("%+v", m))
	}
}
