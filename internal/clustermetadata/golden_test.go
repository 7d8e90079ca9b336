package clustermetadata

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// dumps are the versions of Kafka under testdata (see the package's text).
var dumps = []string{"3.9.1", "4.0.0", "4.1.1", "4.3.1", "4.4.0"}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRealLogsAndSnapshots(t *testing.T) {
	for _, version := range dumps {
		t.Run(version, func(t *testing.T) {
			log, im, follower := read(t, version+".log"), New(), New()
			changes, err := im.Apply(log)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := seen(im), string(read(t, version+".said")); got != want {
				t.Errorf("image:\n%s\nthe brokers said:\n%s", got, want)
			}
			follow(t, follower, changes, im)
			var last batch.Header
			for h := range batch.All(log) {
				last = h
			}
			if im.Next() != last.NextOffset() || im.LastEpoch() != last.LeaderEpoch {
				t.Errorf("next %d, epoch %d after %+v", im.Next(), im.LastEpoch(), last)
			}
			files, err := filepath.Glob("testdata/" + version + "-*.checkpoint")
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			name := filepath.Base(files[0])
			compareSnapshot(t, log, strings.TrimPrefix(name, version+"-"), read(t, name))

			// One record at a time, everything again each time.
			slow := New()
			for end := int64(1); end <= im.Next(); end++ {
				if _, err := slow.Apply(Whole(log, end)); err != nil {
					t.Fatal(err)
				}
			}
			if picture(slow) != picture(im) {
				t.Errorf("record by record:\n%s\nat once:\n%s", picture(slow), picture(im))
			}
		})
	}
}

// What the real logs have is what this package must be tried on.
func TestRealLogsHaveTheRecords(t *testing.T) {
	has := map[string]int{}
	for _, version := range dumps {
		for h, whole := range batch.All(read(t, version+".log")) {
			records, err := batch.ReadRecords(whole, &h)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range records {
				if rec := open(r.Value, h.BaseOffset+int64(i)); !h.Control() {
					has[fmt.Sprintf("%d version %d", rec.kind, rec.version)]++
				}
			}
		}
	}
	t.Logf("type and version: how often\n%v", has)
	for _, want := range []string{"0 version 3", "0 version 4", "2 version 0", "3 version 1", "3 version 2", "4 version 0", "5 version 1", "5 version 2", "9 version 0", "11 version 0", "12 version 0", "15 version 0", "17 version 3",
		"22 version 0", "23 version 0", "24 version 0", "27 version 0", "28 version 0"} {
		if has[want] == 0 {
			t.Errorf("no record of type %s among %v", want, slices.Sorted(maps.Keys(has)))
		}
	}
}
