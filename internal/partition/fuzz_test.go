package partition

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"pgregory.net/rapid"
)

// FuzzBatchLines: whatever stands where a script has batches, it is refused with its line or makes batches that are whole, so that a slip in a script is no panic that looks like
// the core's.
func FuzzBatchLines(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if line[0] >= '0' && line[0] <= '9' && strings.Contains(line, "-") {
				f.Add(line)
			}
		}
	}
	f.Add("0-9*0 e1")
	f.Add("0-9223372036854775807 e1; 5-5 bad-length; 3-1")
	f.Add("0-4/n0 bad-length e-1")
	f.Add("100-229999*50 e1")
	f.Add("0-9999*10; 0-999*1 e1\n0-9999/n10000")
	f.Add("0-4/n5 e5 P7.0 T s0 bad-crc bad-delta magic=1")
	f.Fuzz(func(t *testing.T, text string) {
		var list []modelBatch
		var err error
		// A range of a few characters may ask for a thousand batches with ten thousand records.
		ranges := 1 + strings.Count(text, ";") + strings.Count(text, "\n")
		fuzzbound.Run(t, ranges<<20, func() { list, err = readBatches(text) })
		if err != nil {
			return
		}
		for _, m := range list {
			if len(m.bytes) < batch.HeaderSize || m.h.Size() != len(m.bytes) || m.h.BaseOffset < 0 || m.h.NextOffset() <= m.h.BaseOffset {
				t.Fatalf("%q made %+v of %d bytes", text, m.h, len(m.bytes))
			}
		}
	})
}

// FuzzCore draws a partition's life from the bytes, with a core whose every effect is checked: see chaosHeals.
func FuzzCore(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0}, 2000))
	f.Add(bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 0}, 1000))
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		var compared, partly int
		chaosHeals(t, &compared, &partly)
	}))
}
