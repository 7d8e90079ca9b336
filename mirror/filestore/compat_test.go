package filestore

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/keyedlog"
)

var writeCompat = flag.Bool("compat.write", false, "write testdata/compat of the newest format, if it is not there")

// compatV1 is what testdata/compat/v1 shows, for ever.
const compatV1 = `session mirror-a 3
session mirror-b 1
\x00\x01binary = "\x00\xff" of "mirror-b"/1
a/empty = "" of ""/0
a/late = "after the snapshot" of "mirror-a"/3
a/owned = "before the snapshot" of "mirror-a"/2
a/released = "nobody's" of ""/0
version 12
`

// compatText is all that a log shows, keys in print.
func compatText(t *testing.T, s *Store) string {
	text, err := shown(bounded(t), s, "mirror-a", "mirror-b")
	must(t, err)
	return strings.ReplaceAll(strings.ReplaceAll(text, "\x00", `\x00`), "\x01", `\x01`)
}

// writeV1 makes the log of compatV1: a snapshot with everything, and frames of every kind behind it.
func writeV1(t *testing.T, s *Store) {
	change := func(w keyedlog.Session, changes ...keyedlog.Change) {
		t.Helper()
		var keys [][]byte
		for _, c := range changes {
			keys = append(keys, c.Key)
		}
		must(t, w.Update(bounded(t), keys, func(keyedlog.View) ([]keyedlog.Change, error) { return changes, nil }))
	}
	openSession(t, s, "mirror-a")
	a, b := openSession(t, s, "mirror-a"), openSession(t, s, "mirror-b")
	must(t, write(bounded(t), s, "a/empty", "", "a/gone", "1"))
	must(t, put(bounded(t), a, "a/owned", "before the snapshot"))
	must(t, put(bounded(t), a, "a/released", "mine"))
	must(t, put(bounded(t), b, "\x00\x01binary", "\x00\xff"))
	must(t, s.log.rewrite())
	change(a, keyedlog.Change{Key: []byte("a/released"), Value: []byte("nobody's"), Release: true})
	must(t, s.Update(bounded(t), func(keyedlog.View) ([]keyedlog.Change, error) { return []keyedlog.Change{{Key: []byte("a/gone")}}, nil }))
	a = openSession(t, s, "mirror-a")
	change(a, keyedlog.Change{Key: []byte("a/late"), Value: []byte("after the snapshot")}, keyedlog.Change{Key: []byte("a/gone"), Value: []byte("again")})
	change(a, keyedlog.Change{Key: []byte("a/gone")})
}

// The file was written by the first version that had the format. As long as this is the newest format, the same calls write the same bytes.
func TestFormat1IsWrittenAsItWas(t *testing.T) {
	dir, stored := t.TempDir(), filepath.Join("testdata", "compat", "v1", logName)
	s := opened(t, dir, Options{})
	writeV1(t, s)
	if got := compatText(t, s); got != compatV1 {
		t.Fatalf("it shows\n%snot\n%s", got, compatV1)
	}
	now, err := os.ReadFile(filepath.Join(dir, logName))
	must(t, err)
	if _, err := os.Stat(stored); *writeCompat && os.IsNotExist(err) {
		must(t, os.MkdirAll(filepath.Dir(stored), 0o755))
		must(t, os.WriteFile(stored, now, 0o644))
	}
	want, err := os.ReadFile(stored)
	must(t, err)
	if !bytes.Equal(now, want) {
		t.Errorf("the log has other bytes than the stored one: a changed format needs a new number, and the stored file stays as it is\n%x\n%x", now, want)
	}
}

// The files of format 1 are read by every later version, also while it writes on.
func TestFilesOfFormat1AreRead(t *testing.T) {
	stored, err := os.ReadFile(filepath.Join("testdata", "compat", "v1", logName))
	must(t, err)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, logName), stored, 0o600))
	s := opened(t, dir, Options{})
	if got := compatText(t, s); got != compatV1 {
		t.Fatalf("it shows\n%snot\n%s", got, compatV1)
	}
	if b, err := os.ReadFile(filepath.Join(dir, logName)); err != nil || !bytes.Equal(b, stored) {
		t.Errorf("reading has changed the file: %v", err)
	}
	if w := openSession(t, s, "mirror-a"); w.Number() != 4 {
		t.Errorf("session %d follows 3", w.Number())
	}
	must(t, write(bounded(t), s, "new", "1"))
}
