package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/keyedlog"
)

const sector = 512

// image is what a disk may hold when the power comes back.
type image map[string][]byte

// disk is a disk with the log as content 0 and everything synced.
func (im image) disk() *disk {
	d := newDisk()
	for _, name := range []string{logName, newName} {
		if b, ok := im[name]; ok {
			d.files[name] = &content{number: d.made, bytes: bytes.Clone(b)}
		}
		d.made++
	}
	return d
}

// images calls see with all that may be on the disk when the power goes after some operations. What was synced is there. Of the rest of each file: any choice of the sectors
// that were written and of the truncations, applied in the order of the program or in the opposite one, and for each sector the first or the last half of it alone, with zeros
// or with what was there in the rest; the length may be that of the file without its data. Names: any number of the changes since the folder was synced.
func images(ops []op, see func(what string, im image)) {
	durable := map[int][]byte{} // content → what is synced
	now := map[int][]byte{}     // content → what the program sees
	pending := map[int][]op{}   // content → what is not synced, cut into sectors
	names := map[string]int{}   // as synced
	var renames []op            // names that are not synced
	for _, o := range ops {
		switch o.kind {
		case "create", "rename", "remove":
			renames = append(renames, o)
		case "write":
			now[o.file] = written(now[o.file], o.data, o.at)
			for at, rest := o.at, o.data; len(rest) > 0; {
				n := min(int64(len(rest)), sector-at%sector)
				pending[o.file] = append(pending[o.file], op{kind: "write", at: at, data: rest[:n]})
				at, rest = at+n, rest[n:]
			}
		case "truncate":
			now[o.file] = truncated(now[o.file], o.at)
			pending[o.file] = append(pending[o.file], o)
		case "sync":
			for _, s := range pending[o.file] {
				durable[o.file] = applied(durable[o.file], s)
			}
			pending[o.file] = nil
		case "failed sync": // the system takes it for written, the disk does not have it, and no later sync brings it there
			pending[o.file] = nil
		case "sync folder":
			for _, r := range renames {
				rename(names, r)
			}
			renames = nil
		}
	}
	for done := 0; done <= len(renames); done++ {
		if done > 0 {
			rename(names, renames[done-1])
		}
		file, ok := names[logName]
		if !ok {
			see("no log", image{})
			continue
		}
		base, steps := durable[file], pending[file]
		each := func(what string, b []byte) {
			see(fmt.Sprintf("%d of %d names, %s", done, len(renames), what), image{logName: b, newName: []byte("left over")})
		}
		if len(steps) > 7 {
			panic(fmt.Sprintf("%d sectors at once are too many to try every choice; write less", len(steps)))
		}
		for chosen := range 1 << len(steps) {
			for _, backwards := range []bool{false, true} {
				b := base
				for i := range steps {
					if backwards {
						i = len(steps) - 1 - i
					}
					if chosen&(1<<i) != 0 {
						b = applied(b, steps[i])
					}
				}
				each(fmt.Sprintf("sectors %b of %d, backwards %t", chosen, len(steps), backwards), b)
				if grown := len(now[file]); grown > len(b) {
					each(fmt.Sprintf("sectors %b of %d, backwards %t, all of the length", chosen, len(steps), backwards), truncated(b, int64(grown)))
				}
			}
			for i, s := range steps { // of one chosen sector only a part
				if s.kind != "write" || chosen&(1<<i) == 0 {
					continue
				}
				half := len(s.data) / 2
				for part, data := range map[string][]byte{
					"first half": s.data[:half], "last half": append(make([]byte, half), s.data[half:]...),
					"zeros": make([]byte, len(s.data)), "ones": bytes.Repeat([]byte{0xff}, len(s.data)),
				} {
					b := base
					for j, other := range steps {
						if j == i {
							other.data = data
						}
						if chosen&(1<<j) != 0 {
							b = applied(b, other)
						}
					}
					each(fmt.Sprintf("sectors %b of %d, %s of %d", chosen, len(steps), part, i), b)
				}
			}
		}
	}
}

func applied(b []byte, o op) []byte {
	if o.kind == "truncate" {
		return truncated(b, min(o.at, int64(len(b)))) // a cut that comes before the bytes that it cuts, in the opposite order, leaves them
	}
	return written(b, o.data, o.at)
}

func rename(names map[string]int, o op) {
	switch o.kind {
	case "create":
		names[o.name] = o.file
	case "remove":
		delete(names, o.name)
	case "rename":
		names[o.to] = names[o.name]
		delete(names, o.name)
	}
}

// step is one call of the recorded sequence, and what the log shows when it has succeeded.
type step struct {
	ops   int // that the disk had seen before it
	after string
}

var script = []string{"w", "v"}

// record runs a sequence with two writers, tombstones, releases, large and small values and compactions.
func record(t *testing.T) (d *disk, steps []step) {
	d = newDisk()
	s, err := open(d.folder(), "disk", Options{CompactAbove: 5000})
	must(t, err)
	show := func(before int) {
		text, err := shown(bounded(t), s, script...)
		must(t, err)
		steps = append(steps, step{ops: before, after: text})
	}
	show(0)
	var w, v keyedlog.Session
	for i := range 150 {
		before := len(d.ops)
		switch {
		case i%13 == 0:
			w = openSession(t, s, "w")
		case i%13 == 1:
			v = openSession(t, s, "v")
		case i%5 == 2:
			must(t, v.Update(bounded(t), [][]byte{[]byte("v"), []byte("free")}, func(keyedlog.View) ([]keyedlog.Change, error) {
				return []keyedlog.Change{{Key: []byte("v"), Value: fmt.Append(nil, i)}, {Key: []byte("free"), Value: fmt.Append(nil, i), Release: true}}, nil
			}))
		case i%5 == 3:
			must(t, w.Update(bounded(t), [][]byte{[]byte("large"), []byte("w")}, func(keyedlog.View) ([]keyedlog.Change, error) {
				return []keyedlog.Change{{Key: []byte("large")}, {Key: []byte("w"), Value: fmt.Append(nil, i)}}, nil
			}))
		default:
			must(t, put(bounded(t), w, "large", fmt.Sprint(i, strings.Repeat("large", 30*(i%7)))))
		}
		show(before)
	}
	if s.log.generation < 6 {
		t.Fatalf("the sequence has made generation %d only", s.log.generation)
	}
	must(t, s.Close())
	return d, steps
}

// TestEveryCrashOfASequence cuts the power after every operation of a recorded sequence, in every way that images knows, and demands that the log opens and shows what the
// calls before showed, with the one that was under way or without it. Where the crash left something to cut, the next write is cut off in every way too.
func TestEveryCrashOfASequence(t *testing.T) {
	d, steps := record(t)
	tried, torn, old, new := 0, 0, 0, 0
	seen := map[string]bool{}
	for n := range len(d.ops) + 1 {
		call := 0 // the newest call that had begun
		for call+1 < len(steps) && steps[call+1].ops < n {
			call++
		}
		before, after := steps[max(call-1, 0)].after, steps[call].after
		if call+1 < len(steps) && steps[call+1].ops == n || n == len(d.ops) {
			before = after // it had succeeded
		}
		images(d.ops[:n], func(what string, im image) {
			if key := before + after + string(im[logName]); seen[key] {
				return
			} else {
				seen[key] = true
			}
			tried++
			where := fmt.Sprintf("after %d of %d operations, %s", n, len(d.ops), what)
			got, cut := reopen(t, where, im)
			switch got {
			case after:
				new++
			case before:
				old++
			default:
				t.Fatalf("%s: it shows\n%slegal is\n%sor\n%s", where, got, before, after)
			}
			if cut {
				torn++
				tried += crashAgain(t, where, im, got)
			}
		})
	}
	t.Logf("%d operations, %d images, %d of them with something to cut; %d before the call under way, %d after it", len(d.ops), tried, torn, old, new)
	if torn < 1000 || old < 1000 || new < 200 {
		t.Errorf("too few images: %d torn, %d old, %d new", torn, old, new)
	}
}

// crashAgain cuts the power in every way while the next write is made, which cuts what the first crash left.
func crashAgain(t *testing.T, where string, im image, before string) (tried int) {
	d := im.disk()
	s, err := open(d.folder(), "disk", Options{})
	must(t, err)
	begun := []op{{kind: "create", name: logName}, {kind: "write", data: im[logName]}, {kind: "sync"}, {kind: "sync folder"}}
	from := len(begun) + len(d.ops)
	must(t, write(bounded(t), s, "after", "the crash"))
	after, err := shown(bounded(t), s, script...)
	must(t, errors.Join(err, s.Close()))
	ops := append(begun, d.ops...)
	for n := from; n <= len(ops); n++ {
		images(ops[:n], func(what string, im image) {
			tried++
			if now, _ := reopen(t, where+", then "+what, im); now != after && (now != before || n == len(ops)) {
				t.Fatalf("%s, then after %d of %d operations %s: it shows\n%slegal is\n%sor\n%s", where, n, len(ops), what, now, before, after)
			}
		})
	}
	return tried
}

// reopen opens an image and reads: that must change nothing of a log that is there. cut: something stands behind the last frame.
func reopen(t *testing.T, where string, im image) (text string, cut bool) {
	t.Helper()
	d := im.disk()
	s, err := open(d.folder(), "disk", Options{CompactAbove: 5000})
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	text, err = shown(bounded(t), s, script...)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if b, ok := im[logName]; ok && !bytes.Equal(b, d.files[logName].bytes) {
		t.Fatalf("%s: reading has changed the log", where)
	}
	return text, s.log.torn
}
