package dropped

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
)

// denied reads folders but for some: one with nothing, one after its first entries.
func denied(dirs map[string]int) func(string) ([]fs.DirEntry, error) {
	return func(dir string) ([]fs.DirEntry, error) {
		entries, err := os.ReadDir(dir)
		if n, is := dirs[dir]; is {
			return entries[:n], &fs.PathError{Op: "open", Path: dir, Err: fs.ErrPermission}
		}
		return entries, err
	}
}

// A folder in it that cannot be read hides nothing of the others: they are given, and it is named, once, to whoever reads.
func TestAFolderThatCannotBeReadHidesNothingOfTheOthers(t *testing.T) {
	dir := t.TempDir()
	sink := mirror.FileSink(dir)
	h := &history{begins: map[int]int64{}, end: 880}
	h.data(-1, 0, 0, "a")
	h.data(7, 1, 0, "b")
	h.data(-1, 0, 0, "c")
	for _, tp := range []mirror.TopicPartition{{Topic: "audit", Partition: 0}, {Topic: "orders", Partition: 0}, {Topic: "orders", Partition: 1}, {Topic: "payments", Partition: 2}} {
		for i, p := range h.pieces {
			if i < 2 || tp.Topic == "payments" {
				if err := sink.Dropped(t.Context(), tp, p.base, p.last+1, p.bytes); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	folder, err := listBy(dir, denied(map[string]int{filepath.Join(dir, "audit"): 0, filepath.Join(dir, "orders", "1"): 0, filepath.Join(dir, "payments", "2"): 2}))
	if err != nil {
		t.Fatal(err)
	}
	var hidden []string
	for _, e := range folder.Unreadable {
		if !errors.Is(e, fs.ErrPermission) || !strings.Contains(e.Error(), e.Path+" cannot be read") {
			t.Error(e)
		}
		hidden = append(hidden, strings.TrimPrefix(e.Path, dir+string(filepath.Separator)))
	}
	if want := []string{"audit", "orders/1", "payments/2"}; !slices.Equal(hidden, want) || len(folder.Files) != 4 {
		t.Fatalf("%q, want %q; %+v", hidden, want, folder.Files)
	}
	read := func(o Options) (lines []string) {
		for r, err := range folder.Records(t.Context(), o) {
			var no *UnreadableError
			switch {
			case errors.As(err, &no):
				lines = append(lines, "no "+strings.TrimPrefix(no.Path, dir+string(filepath.Separator)))
			case err != nil:
				t.Fatal(err)
			default:
				lines = append(lines, fmt.Sprintf("%s-%d %d %s", r.Topic, r.Partition, r.Offset, r.Transaction.State))
			}
		}
		return lines
	}
	want := []string{"no audit", "no orders/1", "no payments/2", "orders-0 880 none", "orders-0 881 open", "payments-2 880 none", "payments-2 881 unknown"}
	if got := read(Options{}); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q: what follows of payments-2 may be in what cannot be read", got, want)
	}
	orders := func(tp mirror.TopicPartition) bool { return tp == mirror.TopicPartition{Topic: "orders", Partition: 0} }
	if got := read(Options{Want: orders}); !slices.Equal(got, []string{"no audit", "orders-0 880 none", "orders-0 881 open"}) {
		t.Errorf("%q", got)
	}
	for range folder.Batches(t.Context(), Options{}) {
		break // whoever has had enough is given no more
	}
	s, err := folder.Summarize(t.Context(), Options{})
	if err != nil || len(s.Unread) != 3 || s.Records.None != 2 || !strings.Contains(s.String(), "CANNOT BE READ, and is not counted: "+filepath.Join(dir, "audit")+": ") {
		t.Errorf("%v\n%s", err, s)
	}
	if _, err := listBy(dir, denied(map[string]int{dir: 0})); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("the folder itself cannot be read: %v", err)
	}
	if _, err := List(filepath.Join(dir, "nosuch")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestAStateThatIsNoneIsPrinted(t *testing.T) {
	for s, want := range map[State]string{None: "none", Committed: "committed", Aborted: "aborted", Open: "open", Unknown: "unknown", 5: "State(5)", 255: "State(255)"} {
		if s.String() != want {
			t.Errorf("%s, want %s", s, want)
		}
		text, err := s.MarshalText()
		var back State
		if s <= Unknown && (err != nil || back.UnmarshalText(text) != nil || back != s) || s > Unknown && err == nil {
			t.Errorf("%s: %q, %v", s, text, err)
		}
	}
}
