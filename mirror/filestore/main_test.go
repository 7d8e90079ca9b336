package filestore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// childVariable names what a child process of these tests is to do; the folder comes as the first argument.
const childVariable = "CLUSTERMIRROR_FILESTORE_CHILD"

var children = map[string]func(dir string) error{}

// TestMain is also the main of the child processes. It fails when a goroutine of a store is left.
func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		if err := children[name](os.Args[1]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	var left []byte
	for range 200 { // who is ending gets the time to
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left = nil
		for i, s := range bytes.Split(stacks, []byte("\n\n")) {
			if i > 0 && bytes.Contains(s, []byte("clustermirror/mirror/")) {
				left = append(append(left, s...), '\n')
			}
		}
		if left == nil {
			break
		}
		runtime.Gosched()
	}
	if left != nil && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines left:\n%s", left)
		code = 1
	}
	os.Exit(code)
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func opened(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openSession(t testing.TB, log keyedlog.Log, writer string) keyedlog.Session {
	t.Helper()
	s, err := log.Open(bounded(t), writer)
	must(t, err)
	return s
}

// put writes one key in a session.
func put(ctx context.Context, s keyedlog.Session, key, value string) error {
	return s.Update(ctx, [][]byte{[]byte(key)}, func(keyedlog.View) ([]keyedlog.Change, error) {
		return []keyedlog.Change{{Key: []byte(key), Value: []byte(value)}}, nil
	})
}

// write writes keys that nobody owns: pairs of key and value.
func write(ctx context.Context, log keyedlog.Log, pairs ...string) error {
	return log.Update(ctx, func(keyedlog.View) ([]keyedlog.Change, error) {
		var changes []keyedlog.Change
		for pair := range slices.Chunk(pairs, 2) {
			changes = append(changes, keyedlog.Change{Key: []byte(pair[0]), Value: []byte(pair[1])})
		}
		return changes, nil
	})
}

// shown is all that a log shows, as text: records, the numbers of some writers' sessions, and the version.
func shown(ctx context.Context, log keyedlog.Log, writers ...string) (string, error) {
	var text string
	err := log.Read(ctx, func(v keyedlog.View) error {
		var err error
		text, err = render(v, writers...)
		return err
	})
	return text, err
}

func render(v keyedlog.View, writers ...string) (string, error) {
	var b strings.Builder
	for _, w := range writers {
		fmt.Fprintf(&b, "session %s %d\n", w, v.Session(w))
	}
	err := v.Each(nil, func(r keyedlog.Record) error {
		fmt.Fprintf(&b, "%s = %q of %q/%d\n", r.Key, r.Value, r.Writer, r.Session)
		return nil
	})
	fmt.Fprintf(&b, "version %d\n", v.Version())
	return b.String(), err
}

func mustShow(t testing.TB, log keyedlog.Log, want string, writers ...string) {
	t.Helper()
	got, err := shown(bounded(t), log, writers...)
	must(t, err)
	if got != want {
		t.Fatalf("it shows\n%sbut should show\n%s", got, want)
	}
}
