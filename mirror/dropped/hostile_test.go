//go:build unix

package dropped

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// A producer that counts in microseconds writes batches of the year 55000. They are counted as any other, and the summary can still be written as JSON.
func TestASummaryOfTimesThatAreNoneIsJSON(t *testing.T) {
	for _, ms := range []int64{1_700_000_000_000_000, 1_700_000_000_000_000_000, math.MaxInt64} {
		dir := t.TempDir()
		b := batch.AppendData(nil, batch.DataSpec{BaseOffset: 5, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, BaseTimestamp: ms, Records: []batch.Record{{Value: []byte("a")}}})
		if err := mirror.FileSink(dir).Dropped(t.Context(), tp, 5, 6, b); err != nil {
			t.Fatal(err)
		}
		s, err := list(t, dir).Summarize(t.Context(), Options{})
		if err != nil || s.Records.None != 1 || s.Files[0].Damage != "" {
			t.Fatalf("%v\n%s", err, s)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("a batch at %d ms: %v", ms, err)
		}
		var back Summary
		if err := json.Unmarshal(text, &back); err != nil || !back.Files[0].Latest.Equal(s.Files[0].Latest) {
			t.Errorf("%v: %s", err, text)
		}
	}
}

// A pipe of a sink file's name would be waited for without an end, and a link would be called damaged: both are told, and not read.
func TestWhatIsNoRegularFileIsNotRead(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "orders", "3")
	h := &history{begins: map[int]int64{}, end: 880}
	h.data(-1, 0, 0, "a")
	err := mirror.FileSink(dir).Dropped(t.Context(), tp, 880, h.end, h.pieces[0].bytes)
	err = errors.Join(err, syscall.Mkfifo(filepath.Join(folder, "881.882.0.log"), 0o600), os.Symlink(filepath.Join(folder, "00000000000000000880.00000000000000000881.0.log"), filepath.Join(folder, "880.881.1.log")))
	if err != nil {
		t.Fatal(err)
	}
	f := list(t, dir)
	if len(f.Files) != 1 || len(f.Strays) != 2 {
		t.Fatalf("%+v", f)
	}
	for _, s := range f.Strays {
		if !strings.Contains(s.Why, "no regular file") {
			t.Errorf("%+v", s)
		}
	}
	if s, err := f.Summarize(t.Context(), Options{}); err != nil || s.Records.None != 1 || s.Files[0].Damage != "" {
		t.Errorf("%v\n%s", err, s)
	}
}
