package logtrunc

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestSpec3LMEPoint(t *testing.T) {
	abc := NewCache(entries(0, 0, 2, 10, 5, 25)...)
	for _, tt := range []struct {
		name       string
		cache      *Cache
		lme        int32
		lmo        int64
		start, end int64
		want       int64
	}{
		// the examples of spec §3
		{"nothing recorded: everything goes", abc, -1, -1, 0, 40, 0},
		{"0", abc, 0, -1, 0, 40, 10},
		{"1, between epochs", abc, 1, -1, 0, 40, 10},
		{"2", abc, 2, -1, 0, 40, 25},
		{"3", abc, 3, -1, 0, 40, 25},
		{"4", abc, 4, -1, 0, 40, 25},
		{"5, the latest: nothing beyond", abc, 5, -1, 0, 40, 40},
		{"6, above the latest: kept (decision 3)", abc, 6, -1, 0, 40, 40},
		{"far above the latest", abc, math.MaxInt32, -1, 0, 40, 40},
		{"LMO lowers", abc, 5, 30, 0, 40, 30},
		{"LMO lowers below the epoch's start", abc, 2, 20, 0, 40, 20},
		{"LMO never raises", abc, 2, 100, 0, 40, 25},
		{"older than the log start", NewCache(entries(3, 50)...), 1, -1, 50, 80, 50},
		// edges
		{"LME above ours is still bounded by LMO", abc, 6, 30, 0, 40, 30},
		{"LMO above our end", abc, 6, 100, 0, 40, 40},
		{"LMO 0", abc, 5, 0, 0, 40, 0},
		{"LMO below our start", NewCache(entries(3, 50)...), 3, 20, 50, 80, 50},
		{"LMO without LME raises nothing", abc, -1, 30, 0, 40, 0},
		{"no epoch in our log: kept", &Cache{}, 3, -1, 0, 40, 40},
		{"no epoch in our log, LMO", &Cache{}, 3, 30, 0, 40, 30},
		{"empty log", &Cache{}, 3, 30, 7, 7, 7},
		{"empty log, nothing recorded", &Cache{}, -1, -1, 7, 7, 7},
		{"first epoch starts above the log start", NewCache(entries(4, 60)...), 3, -1, 50, 80, 60},
		{"epoch started below the raised log start", NewCache(entries(4, 60)...), 3, -1, 70, 80, 70},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := LMEPoint(tt.cache, tt.lme, tt.lmo, tt.start, tt.end); got != tt.want {
				t.Errorf("LMEPoint(%v, lme %d, lmo %d, [%d, %d)) = %d, want %d", tt.cache.Entries(), tt.lme, tt.lmo, tt.start, tt.end, got, tt.want)
			}
		})
	}
}

func TestSpec3LMEPointKeepsExactlyWhatWasMirrored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log, c := drawLog(t, 0, 0)
		end := int64(len(log))
		lme := rapid.Int32Range(-1, 20).Draw(t, "lme")
		lmo := rapid.Int64Range(-1, end+5).Draw(t, "lmo")
		want := int64(0) // the longest prefix of records with an epoch ≤ LME, below LMO
		for lme >= 0 && want < end && log[want] <= lme && (lmo < 0 || want < lmo) {
			want++
		}
		if got := LMEPoint(c, lme, lmo, 0, end); got != want {
			t.Fatalf("LMEPoint(%v, %d, %d) = %d, want %d", log, lme, lmo, got, want)
		}
	})
}

// drawLog draws the epochs of a log's records from offset start, the first one at least epoch, and its cache.
func drawLog(t *rapid.T, start int64, epoch int32) ([]int32, *Cache) {
	var log []int32
	c := &Cache{}
	for range rapid.IntRange(0, 5).Draw(t, "elections") {
		epoch += rapid.Int32Range(0, 3).Draw(t, "epoch step")
		for range rapid.IntRange(1, 4).Draw(t, "records") {
			c.Assign(epoch, start+int64(len(log)))
			log = append(log, epoch)
		}
	}
	return log, c
}
