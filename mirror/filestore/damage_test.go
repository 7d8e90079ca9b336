package filestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// grown is a log of a header, a snapshot and some frames: where each frame ends, and what the log shows up to there.
func grown(t testing.TB) (b []byte, ends []int, shows []string) {
	t.Helper()
	d := newDisk()
	s, err := open(d.folder(), "disk", Options{CompactAbove: 1 << 20})
	must(t, err)
	note := func() {
		text, err := shown(bounded(t), s, "w")
		must(t, err)
		ends, shows = append(ends, int(s.log.end)), append(shows, text)
	}
	w := openSession(t, s, "w")
	must(t, put(bounded(t), w, "k", "a value"))
	must(t, s.log.rewrite())
	note()
	for i := range 4 {
		must(t, put(bounded(t), w, fmt.Sprint("k", i), strings.Repeat("value ", 3*i)))
		note()
	}
	must(t, s.Close())
	return d.files[logName].bytes, ends, shows
}

// tryOpen opens a log of these bytes and reads it. It must leave them as they are.
func tryOpen(t testing.TB, b []byte) (text string, err error) {
	t.Helper()
	d := image{logName: b}.disk()
	s, err := open(d.folder(), "disk", Options{})
	if err == nil {
		text, err = shown(bounded(t), s, "w")
		must(t, s.Close())
	}
	if !bytes.Equal(d.files[logName].bytes, b) {
		t.Fatal("reading has changed the log")
	}
	return text, err
}

// demandDamage wants a DamagedError at a place, with all that whoever reads it needs.
func demandDamage(t *testing.T, what string, err error, at int64) {
	t.Helper()
	var damaged *DamagedError
	if !errors.As(err, &damaged) || damaged.Offset != at || damaged.File != filepath.Join("disk", logName) ||
		!strings.Contains(err.Error(), fmt.Sprintf("%s is damaged at byte %d", damaged.File, at)) || !strings.Contains(err.Error(), "put a good copy of the file in its place") {
		t.Fatalf("%s: error %v, not one of damage at byte %d", what, err, at)
	}
}

// One byte is spoiled, for every byte of a log. In the last frame it is what a crash may leave: the frame does not count. Anywhere else it is refused, with the place where
// the frame begins.
func TestEverySpoiledByteIsSeen(t *testing.T) {
	good, ends, shows := grown(t)
	last := len(ends) - 1
	for i := range good {
		for _, with := range []byte{0x01, 0x80, 0xff} {
			b := bytes.Clone(good)
			b[i] ^= with
			text, err := tryOpen(t, b)
			what := fmt.Sprintf("byte %d xor %#x", i, with)
			switch {
			case i < headerSize:
				demandDamage(t, what, err, 0)
			case i < ends[0]:
				demandDamage(t, what, err, headerSize)
			case i < ends[last-1]:
				frame := 0
				for ends[frame] <= i {
					frame++
				}
				demandDamage(t, what, err, int64(ends[frame-1]))
			case err != nil || text != shows[last-1]:
				t.Fatalf("%s, in the last frame: it shows\n%swith error %v, not\n%s", what, text, err, shows[last-1])
			}
		}
	}
}

// The log ends anywhere, or goes on with what is no frame. What is whole counts, readers leave the rest, and the next writer cuts it. A file without its snapshot was never
// given its name.
func TestATornEndIsCutByTheNextWriter(t *testing.T) {
	good, ends, shows := grown(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	noise := make([]byte, 700)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	for n := range len(good) + 1 {
		for what, behind := range map[string][]byte{
			"nothing": nil, "zeros": make([]byte, 5000), "ones": bytes.Repeat([]byte{0xff}, 600), "noise": noise, "the log once more": good, "a frame of this log": good[ends[0]:ends[1]],
		} {
			b := append(bytes.Clone(good[:n]), behind...)
			what = fmt.Sprintf("the first %d bytes, then %s (seed %d)", n, what, seed)
			text, err := tryOpen(t, b)
			if !bytes.HasPrefix(b, good[:ends[0]]) {
				var damaged *DamagedError
				if !errors.As(err, &damaged) {
					t.Fatalf("%s: error %v, not one of damage", what, err)
				}
				continue
			}
			whole := 0
			for whole+1 < len(ends) && bytes.HasPrefix(b, good[:ends[whole+1]]) {
				whole++
			}
			if err != nil || text != shows[whole] {
				t.Fatalf("%s: it shows\n%swith error %v, not\n%s", what, text, err, shows[whole])
			}
			if n%7 != 0 {
				continue
			}
			d := image{logName: b}.disk()
			s, err := open(d.folder(), "disk", Options{})
			must(t, err)
			must(t, write(bounded(t), s, "after", "the crash"))
			after, err := shown(bounded(t), s, "w")
			must(t, errors.Join(err, s.Close()))
			now := d.files[logName].bytes
			again, err := tryOpen(t, now)
			if err != nil || again != after || !strings.Contains(after, `after = "the crash"`) || s.log.end != int64(len(now)) || !bytes.Equal(now[:ends[whole]], good[:ends[whole]]) {
				t.Fatalf("%s: after a write the log has %d bytes, %d count, and it shows\n%swith error %v, not\n%s", what, len(now), s.log.end, again, err, after)
			}
		}
	}
}

// sealed gives a frame's payload at a place its length and checksum.
func sealed(generation uint64, at int64, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))
	return append(binary.BigEndian.AppendUint32(b, frameSum(generation, at, payload)), payload...)
}

func demandNewer(t *testing.T, what string, err error, at int64) {
	t.Helper()
	var newer *NewerError
	if !errors.As(err, &newer) || newer.Offset != at || newer.Version != 2 || newer.Known != 1 ||
		!strings.Contains(err.Error(), "has format 2") || !strings.Contains(err.Error(), "use the newer version of the program that wrote it") {
		t.Fatalf("%s: error %v, not one of a newer format at byte %d", what, err, at)
	}
}

// What a newer version wrote is refused by name: as a file, as its last frame, and in the middle. A handle that has the log open refuses it too, and writes nothing.
func TestANewerFormatIsRefused(t *testing.T) {
	good, ends, _ := grown(t)
	_, generation, _ := header(good)

	file := bytes.Clone(good)
	binary.BigEndian.PutUint32(file[8:], 2)
	binary.BigEndian.PutUint32(file[20:], crc32.Checksum(file[:20], castagnoli))
	_, err := tryOpen(t, file)
	demandNewer(t, "a newer file", err, 0)

	payload := append([]byte{2}, "something that this version does not know"...)
	end := int64(len(good))
	last := append(bytes.Clone(good), sealed(generation, end, payload)...)
	_, err = tryOpen(t, last)
	demandNewer(t, "a newer last frame", err, end)

	middle := bytes.Clone(good)
	middle[ends[0]+frameHead] = 2
	binary.BigEndian.PutUint32(middle[ends[0]+4:], frameSum(generation, int64(ends[0]), middle[ends[0]+frameHead:ends[1]]))
	_, err = tryOpen(t, middle)
	demandNewer(t, "a newer frame in the middle", err, int64(ends[0]))

	d := image{logName: good}.disk()
	s, err := open(d.folder(), "disk", Options{})
	must(t, err)
	d.files[logName].bytes = last
	demandNewer(t, "a newer frame while the log is open", write(bounded(t), s, "k", "v"), end)
	demandNewer(t, "and once more", write(bounded(t), s, "k", "v"), end)
	if !bytes.Equal(d.files[logName].bytes, last) {
		t.Error("the refused log was changed")
	}
	must(t, s.Close())
}

// Frames whose checksum is right and that say nothing sensible are refused, and so is a frame that does not follow.
func TestFramesWithoutSenseAreRefused(t *testing.T) {
	good, _, _ := grown(t)
	_, generation, _ := header(good)
	end := int64(len(good))
	next := func(version byte, rest ...byte) []byte { return append([]byte{frameFormat, version}, rest...) }
	for what, payload := range map[string][]byte{
		"nothing":                    {frameFormat},
		"no number of entries":       next(7),
		"an entry too few":           next(7, 1),
		"bytes behind":               next(7, 0, 0),
		"an entry of no kind":        next(7, 1, 9, 0),
		"a key that is too long":     next(7, 1, kindTombstone, 0, 0, 200, 1, 'k'),
		"a number without end":       next(7, 1, kindTombstone, 0, 0, 0xff),
		"a number that is too large": next(7, 1, kindTombstone, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"a version once more":        next(6, 0),
		"a version too far":          next(8, 0),
	} {
		_, err := tryOpen(t, append(bytes.Clone(good), sealed(generation, end, payload)...))
		demandDamage(t, what, err, end)
	}
	if text, err := tryOpen(t, append(bytes.Clone(good), sealed(generation, end, next(7, 0))...)); err != nil || !strings.Contains(text, "version 7") {
		t.Errorf("a frame that follows: %q, %v", text, err)
	}
}

// Whatever a frame says, it is taken or refused by name; what is taken can be written on and compacted, and shows the same then.
func FuzzPayload(f *testing.F) {
	good, _, _ := grown(f)
	_, generation, _ := header(good)
	end := int64(len(good))
	f.Add([]byte{frameFormat, 7, 0})
	f.Add([]byte{frameFormat, 7, 2, kindSession, 3, 1, 'w', 0, 0, kindTombstone, 0, 0, 1, 'k', 0})
	f.Add([]byte{frameFormat, 7, 1, kindRecord, 3, 1, 'w', 1, 'k', 1, 'v'})
	f.Add([]byte{2, 7, 0})
	f.Fuzz(func(t *testing.T, payload []byte) {
		d := image{logName: append(bytes.Clone(good), sealed(generation, end, payload)...)}.disk()
		var s *Store
		var err error
		fuzzbound.Run(t, len(good)+len(payload), func() { s, err = open(d.folder(), "disk", Options{}) })
		var damaged *DamagedError
		var newer *NewerError
		switch {
		case errors.As(err, &damaged) && damaged.Offset == end, errors.As(err, &newer) && newer.Offset == end:
			return
		case err != nil:
			t.Fatal(err)
		}
		openSession(t, s, "somebody new")
		want, err := shown(bounded(t), s, "w")
		must(t, err)
		must(t, s.log.rewrite())
		must(t, s.Close())
		if got, err := tryOpen(t, d.files[logName].bytes); err != nil || got != want {
			t.Errorf("written on and compacted it shows\n%swith error %v, not\n%s", got, err, want)
		}
	})
}

// The file under a handle becomes another one: shorter, older, none. Nothing of that is taken for news, and nothing is written.
func TestAnOlderCopyUnderARunningProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, logName)
	s := opened(t, dir, Options{})
	must(t, write(bounded(t), s, "k", "1"))
	older, err := os.ReadFile(path)
	must(t, err)
	must(t, write(bounded(t), s, "k", "2"))
	must(t, os.WriteFile(path, older, 0o600))
	var damaged *DamagedError
	if err := write(bounded(t), s, "k", "3"); !errors.As(err, &damaged) || damaged.Offset != int64(len(older)) {
		t.Errorf("the log became shorter, and a write says %v", err)
	}
	must(t, os.Remove(path))
	if err := write(bounded(t), s, "k", "3"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("the log was removed, and a write says %v", err)
	}
	must(t, os.WriteFile(path, older, 0o600))
	s = opened(t, dir, Options{})
	for range 3 {
		must(t, write(bounded(t), s, "k", "4"))
	}
	must(t, s.log.rewrite())
	must(t, os.WriteFile(path, older, 0o600))
	if err := s.Read(bounded(t), func(keyedlog.View) error { return nil }); !errors.As(err, &damaged) || !strings.Contains(err.Error(), "older copy") {
		t.Errorf("an older generation came back, and a read says %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, older) {
		t.Errorf("the refused log was changed: %v", err)
	}
}
