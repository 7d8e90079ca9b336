package filestore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// wholeFrames is how a log is read in the plainest way: the frames that are whole, one behind the other, and what they leave, up to the first place where none begins.
func wholeFrames(b []byte) (shows []string, end int) {
	_, generation, ok := header(b)
	if !ok {
		return nil, 0
	}
	v := newView()
	end = headerSize
	for {
		payload, ok := cutFrame(b[end:], generation, int64(end))
		if !ok {
			return shows, end
		}
		version, entries, ok := decode(payload)
		if !ok || payload[0] > frameFormat {
			return shows, end
		}
		v.apply(version, entries)
		shows, end = append(shows, contents(v)), end+frameHead+len(payload)
	}
}

// contents is all that a view holds, as text.
func contents(v *view) string {
	var b []byte
	for _, e := range v.snapshot() {
		b = appendBytes(appendBytes(appendBytes(append(b, e.kind, byte(e.session)), e.writer), e.key), e.value)
	}
	return string(b)
}

// FuzzLog opens a folder with any two files: the log, and what a compaction that was cut has left. The log is refused with the place of the damage, or shows what its whole
// frames say, nothing else and nothing less; reading changes no byte of it. It can be written on then, and shows the same after a compaction.
func FuzzLog(f *testing.F) {
	good, ends, _ := grown(f)
	f.Add(good, []byte(nil))
	f.Add(good[:ends[1]+5], good)
	f.Add(slices.Concat(good, good), []byte("x"))
	f.Add(append(bytes.Clone(good), make([]byte, 5000)...), good[:headerSize])
	f.Add(appendHeader(nil, 7), []byte(nil))
	spoiled := bytes.Clone(good)
	spoiled[ends[0]+frameHead+3] ^= 1
	f.Add(spoiled, []byte(nil))
	// Lengths that nearly fit, at each byte: whoever looks for a whole frame behind has the most to do.
	f.Add(append(bytes.Clone(good), bytes.Repeat([]byte{0, 0, 0x30}, 6000)...), []byte(nil))
	first, err := os.ReadFile(filepath.Join("testdata", "compat", "v1", "log"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(first, []byte(nil))
	f.Fuzz(func(t *testing.T, b, left []byte) {
		d := image{logName: b, newName: left}.disk()
		var s *Store
		var err error
		fuzzbound.Run(t, len(b)+len(left), func() { s, err = open(d.folder(), "disk", Options{}) })
		if !bytes.Equal(d.files[logName].bytes, b) || !bytes.Equal(d.files[newName].bytes, left) {
			t.Fatal("opening has changed the folder")
		}
		whole, end := wholeFrames(b)
		if err != nil {
			var damaged *DamagedError
			var newer *NewerError
			if !errors.As(err, &damaged) && !errors.As(err, &newer) {
				t.Fatalf("error %T %v", err, err)
			}
			if damaged != nil && (damaged.Offset < 0 || damaged.Offset > int64(end)) {
				t.Fatalf("damaged at %d, the frames are whole up to %d", damaged.Offset, end)
			}
			return
		}
		if len(whole) == 0 {
			t.Fatalf("it shows %q, and no frame is whole", contents(s.log.view))
		}
		shows := contents(s.log.view)
		if shows != whole[len(whole)-1] || s.log.end != int64(end) {
			t.Fatalf("it shows %q up to %d, its frames say %q up to %d", shows, s.log.end, whole[len(whole)-1], end)
		}
		must(t, s.Update(bounded(t), func(keyedlog.View) ([]keyedlog.Change, error) {
			return []keyedlog.Change{{Key: []byte("new"), Value: []byte("v")}}, nil
		}))
		if written := d.files[logName].bytes; s.log.end != int64(len(written)) || len(b) < 1<<20 && !bytes.HasPrefix(written, b[:end]) {
			t.Fatalf("written on it has %d bytes of %d", s.log.end, len(written))
		}
		want := contents(s.log.view)
		must(t, s.log.rewrite())
		must(t, s.Close())
		again, err := open(image{logName: d.files[logName].bytes}.disk().folder(), "disk", Options{})
		must(t, err)
		if got := contents(again.log.view); got != want {
			t.Fatalf("written on and compacted it shows %q, not %q", got, want)
		}
		must(t, again.Close())
	})
}

// FuzzFolder does it with a real folder, where names are taken by what is no file too.
func FuzzFolder(f *testing.F) {
	good, _, _ := grown(f)
	f.Add(good, uint8(0))
	f.Add(good[:len(good)-3], uint8(1))
	f.Add([]byte{}, uint8(2))
	f.Add([]byte("x"), uint8(3))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, shape uint8) {
		folder := filepath.Join(dir, "store")
		defer os.RemoveAll(folder)
		must(t, os.MkdirAll(folder, 0o700))
		at := filepath.Join(folder, logName)
		if shape&1 != 0 {
			must(t, os.Mkdir(filepath.Join(folder, newName), 0o700))
		}
		if shape&2 != 0 {
			must(t, os.Mkdir(at, 0o700))
		} else {
			must(t, os.WriteFile(at, b, 0o600))
		}
		var s *Store
		var err error
		fuzzbound.Run(t, len(b), func() {
			if s, err = Open(folder, Options{}); err == nil {
				must(t, s.Close())
			}
		})
		memory, wantErr := open(image{logName: b}.disk().folder(), folder, Options{})
		switch {
		case shape&2 != 0:
			if err == nil {
				t.Fatal("a folder was opened as the log")
			}
		case (err == nil) != (wantErr == nil):
			t.Fatalf("on a disk: %v, in memory: %v", err, wantErr)
		case err == nil && contents(s.log.view) != contents(memory.log.view):
			t.Fatalf("on a disk it shows %q, in memory %q", contents(s.log.view), contents(memory.log.view))
		}
		if wantErr == nil {
			must(t, memory.Close())
		}
		if got, readErr := os.ReadFile(at); shape&2 == 0 && (readErr != nil || !bytes.Equal(got, b)) {
			t.Fatalf("opening has changed the log: %v", readErr)
		}
	})
}
