package filestore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/keyedlog"
)

var errBroken = errors.New("disk broken by the test")

// faults lets operations fail by their number, from 1; a write does half of its work first.
type faults struct {
	done, first, last int
	what              []string
}

func (f *faults) fail(o op) (part int, err error) {
	f.done++
	if f.done < f.first || f.done > f.last {
		return 0, nil
	}
	f.what = append(f.what, strings.TrimSpace(o.kind+" "+o.name))
	return len(o.data) / 2, errBroken
}

// insist calls until the disk works again; another error than the disk's ends the test.
func insist(t *testing.T, where string, call func() error) {
	t.Helper()
	for range 10 {
		err := call()
		if err == nil {
			return
		}
		if !errors.Is(err, errBroken) {
			t.Fatalf("%s: error %v, not the disk's", where, err)
		}
	}
	t.Fatalf("%s: the disk works again, and the store does not", where)
}

// TestEveryOperationFails lets each operation of a sequence fail, alone or with those that follow. What a failed sync leaves is lost, though the system shows it. A call that
// returns the error has written nothing, unless it says ErrOutcomeUnknown; one that returns nil has written; and every handle shows that from then on, also when the power
// goes at the end. With two handles only one operation fails: when the cut after a failed sync fails too, another process believes what the disk does not have (doc.go).
func TestEveryOperationFails(t *testing.T) {
	refused, unknown, runs := 0, 0, 0
	for _, c := range []struct{ handles, burst int }{{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 1}} {
		for first := 1; ; first++ {
			d, f := newDisk(), &faults{first: first, last: first + c.burst - 1}
			d.fail = f.fail
			runs++
			where := func(more string) string {
				return fmt.Sprintf("%d handles, operations %d to %d fail (%s), %s", c.handles, f.first, f.last, strings.Join(f.what, ", "), more)
			}
			stores := make([]*Store, c.handles)
			for i := range stores {
				insist(t, where("opening"), func() (err error) {
					stores[i], err = open(d.folder(), "disk", Options{CompactAbove: 250})
					return err
				})
			}
			now := func(s *Store) (text string) {
				insist(t, where("reading"), func() (err error) {
					text, err = shown(bounded(t), s, script...)
					return err
				})
				return text
			}
			before, version := now(stores[0]), 0
			for i := range 9 {
				value := fmt.Sprint(i, strings.Repeat("x", 60))
				after := fmt.Sprintf("session w 0\nsession v 0\nk = %q of \"\"/0\nversion %d\n", value, version+1)
				err := write(bounded(t), stores[i%c.handles], "k", value)
				got := now(stores[(i+1)%c.handles]) // the other one first
				switch {
				case err == nil:
					if got != after {
						t.Fatalf("%s: write %d succeeded, and it shows\n%snot\n%s", where("writing"), i, got, after)
					}
				case !errors.Is(err, errBroken):
					t.Fatalf("%s: write %d says %v", where("writing"), i, err)
				case errors.Is(err, keyedlog.ErrOutcomeUnknown):
					unknown++
					if got != before && got != after {
						t.Fatalf("%s: write %d is unknown, and it shows\n%sneither\n%snor\n%s", where("writing"), i, got, before, after)
					}
				default:
					refused++
					if got != before {
						t.Fatalf("%s: write %d says %v, and it shows\n%snot\n%s", where("writing"), i, err, got, before)
					}
				}
				if got == after {
					version++
				}
				before = got
				for _, s := range stores {
					if text := now(s); text != got {
						t.Fatalf("%s: after write %d one handle shows\n%sand another\n%s", where("reading"), i, got, text)
					}
				}
			}
			images(d.ops, func(what string, im image) {
				if got, _ := reopen(t, where("then the power goes, "+what), im); got != before {
					t.Fatalf("%s: it shows\n%snot\n%s", where("then the power goes, "+what), got, before)
				}
			})
			if stores[0].log.generation < 2 {
				t.Fatalf("%s: generation %d, nothing was compacted", where("at the end"), stores[0].log.generation)
			}
			for _, s := range stores {
				must(t, s.Close())
			}
			if len(f.what) == 0 {
				break // the sequence is shorter
			}
		}
	}
	t.Logf("%d runs, %d writes refused, %d with an unknown outcome", runs, refused, unknown)
	if refused < 30 || unknown < 30 {
		t.Error("too few")
	}
}

// A process dies between writing a frame and syncing it, and the sync of the next one fails. From then on the system shows a frame that the disk does not have, and says that
// there is nothing to sync. Nothing may be shown or built upon before it is written anew.
func TestAFrameThatNobodyCanSyncIsWrittenAnew(t *testing.T) {
	d := newDisk()
	dead, err := open(d.folder(), "disk", Options{})
	must(t, err)
	must(t, write(bounded(t), dead, "k", "1"))
	alive, err := open(d.folder(), "disk", Options{})
	must(t, err)
	wrote := false
	d.fail = func(o op) (int, error) {
		if !wrote {
			wrote = o.kind == "write"
			return 0, nil
		}
		return 0, errBroken
	}
	if err := write(bounded(t), dead, "k", "2"); !errors.Is(err, keyedlog.ErrOutcomeUnknown) {
		t.Fatalf("a write whose sync and whose cut failed says %v", err)
	}
	d.ops = d.ops[:len(d.ops)-1] // it died before the sync
	if d.ops[len(d.ops)-1].kind != "write" {
		t.Fatalf("the last operation is %q", d.ops[len(d.ops)-1].kind)
	}
	d.fail = func(o op) (int, error) {
		if o.kind == "sync" {
			return 0, errBroken
		}
		return 0, nil
	}
	if text, err := shown(bounded(t), alive); !errors.Is(err, errBroken) {
		t.Fatalf("what could not be synced was shown: %q, %v", text, err)
	}
	d.fail = nil
	want := "session w 0\nsession v 0\nk = \"2\" of \"\"/0\nversion 2\n"
	mustShow(t, alive, want, script...)
	images(d.ops, func(what string, im image) {
		if got, _ := reopen(t, what, im); got != want {
			t.Fatalf("it was shown, and after a power cut, %s, it is\n%s", what, got)
		}
	})
	must(t, errors.Join(dead.Close(), alive.Close()))
}

// After a sync that failed nothing is sure of what the file holds: the next call, also one that only reads, writes all of it into a new file.
func TestAfterAFailedSyncTheLogIsWrittenAnew(t *testing.T) {
	d := newDisk()
	s, err := open(d.folder(), "disk", Options{})
	must(t, err)
	must(t, write(bounded(t), s, "k", "1"))
	want, err := shown(bounded(t), s)
	must(t, err)
	d.fail = func(o op) (int, error) {
		if o.kind == "sync" {
			d.fail = nil
			return 0, errBroken
		}
		return 0, nil
	}
	if err := write(bounded(t), s, "k", "2"); !errors.Is(err, errBroken) || errors.Is(err, keyedlog.ErrOutcomeUnknown) {
		t.Fatalf("a write whose sync fails says %v", err)
	}
	mustShow(t, s, want)
	if s.log.generation != 2 {
		t.Errorf("generation %d after a failed sync", s.log.generation)
	}
	must(t, s.Close())
}

// A process dies between giving the new generation its name and syncing the folder. Whoever goes on in the new file syncs the folder first, else a power cut brings the old file back.
func TestANameThatNobodySyncedIsSynced(t *testing.T) {
	d := newDisk()
	dead, err := open(d.folder(), "disk", Options{})
	must(t, err)
	alive, err := open(d.folder(), "disk", Options{})
	must(t, err)
	must(t, write(bounded(t), dead, "k", "1"))
	d.fail = func(o op) (int, error) {
		if o.kind == "sync folder" {
			return 0, errBroken
		}
		return 0, nil
	}
	if err := dead.log.rewrite(); !errors.Is(err, errBroken) {
		t.Fatalf("a new generation whose folder cannot be synced: %v", err)
	}
	d.fail = nil
	must(t, write(bounded(t), alive, "k", "2"))
	want, err := shown(bounded(t), alive, script...)
	must(t, err)
	images(d.ops, func(what string, im image) {
		if got, _ := reopen(t, what, im); got != want {
			t.Fatalf("it was written, and after a power cut, %s, it is\n%s", what, got)
		}
	})
	must(t, errors.Join(dead.Close(), alive.Close()))
}

// A disk that has no room for the next generation has room for another frame: the write succeeds, and the compaction is made later.
func TestAFullDiskFailsNoUpdateByItsCompaction(t *testing.T) {
	d := newDisk()
	s, err := open(d.folder(), "disk", Options{CompactAbove: 1000})
	must(t, err)
	tries := 0
	d.fail = func(o op) (int, error) {
		if o.kind == "create" {
			tries++
			return 0, errBroken
		}
		return 0, nil
	}
	for i := range 100 {
		must(t, write(bounded(t), s, "k", fmt.Sprint(i, strings.Repeat("x", 60))))
	}
	if s.log.generation != 1 || tries < 2 || tries > 10 {
		t.Errorf("generation %d; it tried to compact %d times with %d bytes and 1000 allowed", s.log.generation, tries, s.log.end)
	}
	d.fail = nil
	for i := range 30 {
		must(t, write(bounded(t), s, "k", fmt.Sprint(i, strings.Repeat("x", 60))))
	}
	if s.log.generation == 1 || s.log.end > 1200 {
		t.Errorf("with room again: generation %d, %d bytes", s.log.generation, s.log.end)
	}
	must(t, s.Close())
}
