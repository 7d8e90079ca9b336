//go:build unix

package filestore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

var killSeed = flag.Uint64("kill.seed", 1279, "seed of the moments at which TestKill500 kills")

func init() { children["batches"] = writeBatches }

// told prints what a folder and its files are about to do, so that the parent knows in what it has killed the child.
type told struct{ folder }

type toldFile struct {
	file
	name string
}

func (f told) Open(name string) (file, error) {
	opened, err := f.folder.Open(name)
	return toldFile{opened, name}, err
}

func (f told) Create(name string) (file, error) {
	fmt.Println("in create", name)
	opened, err := f.folder.Create(name)
	return toldFile{opened, name}, err
}

func (f told) Rename(from, to string) error {
	fmt.Println("in rename")
	return f.folder.Rename(from, to)
}

func (f told) Sync() error {
	fmt.Println("in sync folder")
	return f.folder.Sync()
}

// WriteAt writes a long frame in two pieces, so that a kill can come in between: the kernel seldom lets one into a single write.
func (f toldFile) WriteAt(b []byte, at int64) (int, error) {
	fmt.Println("in write", f.name)
	half := len(b) / 2
	n, err := f.file.WriteAt(b[:half], at)
	if err == nil {
		fmt.Println("in second write", f.name)
		n, err = f.file.WriteAt(b[half:], at+int64(half))
		n += half
	}
	return n, err
}

func (f toldFile) Truncate(size int64) error {
	fmt.Println("in cut")
	return f.file.Truncate(size)
}

func (f toldFile) Sync() error {
	fmt.Println("in sync", f.name)
	return f.file.Sync()
}

const batchKeys = 4

// writeBatches writes batches of one number under several keys, for ever, and prints each number when it is acknowledged. It counts on from what is there.
func writeBatches(dir string) error {
	in, err := openFolder(dir)
	if err != nil {
		return err
	}
	s, err := open(told{in}, dir, Options{CompactAbove: 3000})
	if err != nil {
		return err
	}
	w, err := s.Open(context.Background(), "w")
	if err != nil {
		return err
	}
	fmt.Println("session", w.Number())
	var keys [][]byte
	for k := range batchKeys {
		keys = append(keys, fmt.Append(nil, "k", k))
	}
	for {
		var n int
		err := w.Update(context.Background(), keys, func(v keyedlog.View) ([]keyedlog.Change, error) {
			if r, ok := v.Get(keys[0]); ok {
				var err error
				if n, err = strconv.Atoi(strings.TrimRight(string(r.Value), ".")); err != nil {
					return nil, err
				}
			}
			n++
			var changes []keyedlog.Change
			for _, k := range keys {
				changes = append(changes, keyedlog.Change{Key: k, Value: []byte(strconv.Itoa(n) + strings.Repeat(".", n%60))})
			}
			return changes, nil
		})
		if err != nil {
			return err
		}
		fmt.Println("wrote", n)
	}
}

// TestKill500 kills a writing child 500 times. After each kill the folder must show whole batches, none older than the last one that was acknowledged, by at most one newer,
// and every session's number.
func TestKill500(t *testing.T) {
	const kills, lanes = 500, 4
	t.Logf("seed %d", *killSeed)
	var mu sync.Mutex
	within := map[string]int{}
	t.Run("lanes", func(t *testing.T) {
		for lane := range lanes {
			t.Run(strconv.Itoa(lane), func(t *testing.T) {
				t.Parallel()
				dir, r := t.TempDir(), rand.New(rand.NewPCG(*killSeed, uint64(lane)))
				witness := opened(t, dir, Options{})
				acknowledged, sessions := 0, int64(0)
				for range kills / lanes {
					last, err := killOnce(t, dir, r, &acknowledged, &sessions)
					if err == nil {
						err = sameAsAnew(witness, dir)
					}
					if err != nil {
						t.Fatalf("seed %d, lane %d, killed within %q: %v", *killSeed, lane, last, err)
					}
					mu.Lock()
					within[last]++
					mu.Unlock()
				}
			})
		}
	})
	inside := 0
	for _, what := range slices.Sorted(maps.Keys(within)) {
		t.Logf("%4d killed within %q", within[what], what)
		if strings.HasPrefix(what, "in ") {
			inside += within[what]
		}
	}
	t.Logf("%d of %d kills came between a step of a write and its end", inside, kills)
	if inside < kills/5 || within["in rename"]+within["in sync "+newName]+within["in write "+newName]+within["in second write "+newName] == 0 {
		t.Errorf("the kills do not reach into writes and compactions: %v", within)
	}
}

// sameAsAnew demands that a handle that has seen all the kills shows what a new one shows.
func sameAsAnew(witness *Store, dir string) error {
	got, err := shown(context.Background(), witness, "w")
	if err != nil {
		return err
	}
	s, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	want, err := shown(context.Background(), s, "w")
	if err == nil && got != want {
		err = fmt.Errorf("a handle that was open shows\n%sand a new one\n%s", got, want)
	}
	return errors.Join(err, s.Close())
}

// killOnce lets a child run for a random number of steps and some microseconds, kills it and looks at what is there. last is what the child did last.
func killOnce(t *testing.T, dir string, r *rand.Rand, acknowledged *int, sessions *int64) (last string, err error) {
	child, _, out := startChild(t, "batches", dir)
	defer child.Process.Kill()
	steps, pause := r.IntN(40), time.Duration(r.IntN(300))*time.Microsecond
	killed := false
	for {
		line, err := out.ReadString('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return last, err
		}
		last = strings.TrimSpace(line)
		if what, number, ok := strings.Cut(last, " "); ok && (what == "wrote" || what == "session") {
			n, err := strconv.Atoi(number)
			if err != nil {
				return last, err
			}
			last = what
			if what == "wrote" {
				*acknowledged = n
			} else if int64(n) <= *sessions {
				return last, fmt.Errorf("session %d was given after %d", n, *sessions)
			} else {
				*sessions = int64(n)
			}
		}
		if strings.HasPrefix(last, "error") {
			_ = child.Wait()
			return last, errors.New(last)
		}
		if steps--; steps < 0 && !killed {
			for begin := time.Now(); time.Since(begin) < pause; { // a sleep is too coarse
			}
			if err := child.Process.Kill(); err != nil {
				return last, err
			}
			killed = true
		}
	}
	_ = child.Wait() // says that it was killed
	s, err := Open(dir, Options{CompactAbove: 3000})
	if err != nil {
		return last, err
	}
	defer s.Close()
	return last, s.Read(context.Background(), func(v keyedlog.View) error {
		var values []string
		if err := v.Each(nil, func(r keyedlog.Record) error {
			if r.Writer != "w" || r.Session > v.Session("w") {
				return fmt.Errorf("%s belongs to %q, session %d; the newest is %d", r.Key, r.Writer, r.Session, v.Session("w"))
			}
			values = append(values, string(r.Value))
			return nil
		}); err != nil {
			return err
		}
		n := 0
		if len(values) > 0 {
			n, err = strconv.Atoi(strings.TrimRight(values[0], "."))
			if err != nil || len(values) != batchKeys || len(slices.Compact(values)) != 1 {
				return fmt.Errorf("it is no whole batch: %q", values)
			}
		}
		if n != *acknowledged && n != *acknowledged+1 {
			return fmt.Errorf("it shows batch %d, and %d was acknowledged last", n, *acknowledged)
		}
		if got := v.Session("w"); got < *sessions || got > *sessions+1 {
			return fmt.Errorf("session is %d, and %d was given last", got, *sessions)
		}
		*acknowledged, *sessions = n, v.Session("w")
		return nil
	})
}
