package logtrunc

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func entries(pairs ...int64) []Entry {
	var out []Entry
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Entry{Epoch: int32(pairs[i]), Start: pairs[i+1]})
	}
	return out
}

func wantEntries(t *testing.T, c *Cache, pairs ...int64) {
	t.Helper()
	if want, got := entries(pairs...), c.Entries(); !slices.Equal(want, got) {
		t.Errorf("entries %v, want %v", got, want)
	}
}

func TestSpec4EpochAssignAddsOnlyNewEpochsOrSmallerStarts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		assign []int64
		want   []int64
	}{
		{"first", []int64{3, 50}, []int64{3, 50}},
		{"same epoch further on", []int64{3, 50, 3, 60}, []int64{3, 50}},
		{"same epoch same start", []int64{3, 50, 3, 50}, []int64{3, 50}},
		{"same epoch smaller start", []int64{3, 50, 3, 40}, []int64{3, 40}},
		{"next epoch", []int64{3, 50, 4, 60}, []int64{3, 50, 4, 60}},
		{"next epoch at the same start replaces", []int64{3, 50, 4, 50}, []int64{4, 50}},
		{"next epoch at a smaller start replaces", []int64{3, 50, 4, 40}, []int64{4, 40}},
		{"lower epoch further on removes the higher ones", []int64{3, 50, 7, 60, 9, 70, 5, 80}, []int64{3, 50, 5, 80}},
		{"lower epoch before all", []int64{3, 50, 7, 60, 2, 10}, []int64{2, 10}},
		{"higher epoch in the middle removes later starts", []int64{3, 50, 7, 60, 9, 70, 10, 60}, []int64{3, 50, 10, 60}},
		{"a middle epoch again", []int64{3, 50, 7, 60, 9, 70, 7, 80}, []int64{3, 50, 7, 80}},
		{"negative", []int64{-1, 0, 3, 50, -1, 60, -2, 0}, []int64{3, 50}},
		{"epoch 0", []int64{0, 0}, []int64{0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantEntries(t, NewCache(entries(tt.assign...)...), tt.want...)
		})
	}
}

func TestSpec3EndOffsetForEpoch(t *testing.T) {
	c := NewCache(entries(0, 0, 2, 10, 5, 25)...)
	late := NewCache(entries(3, 50)...)
	for _, tt := range []struct {
		cache     *Cache
		ask       int32
		end       int64
		wantEpoch int32
		wantEnd   int64
	}{
		{c, -1, 40, -1, -1},
		{c, -7, 40, -1, -1},
		{c, 0, 40, 0, 10},
		{c, 1, 40, 0, 10},
		{c, 2, 40, 2, 25},
		{c, 3, 40, 2, 25},
		{c, 4, 40, 2, 25},
		{c, 5, 40, 5, 40},
		{c, 6, 40, -1, -1},
		{late, 1, 80, 1, 50}, // below the first known epoch: as asked
		{late, 3, 80, 3, 80},
		{&Cache{}, 0, 40, -1, -1},
		{&Cache{}, -1, 40, -1, -1}, // an empty cache's latest epoch is not an epoch
	} {
		if e, end := tt.cache.EndOffsetFor(tt.ask, tt.end); e != tt.wantEpoch || end != tt.wantEnd {
			t.Errorf("EndOffsetFor(%d, %d) of %v = (%d, %d), want (%d, %d)", tt.ask, tt.end, tt.cache.Entries(), e, end, tt.wantEpoch, tt.wantEnd)
		}
	}
}

func TestEpochAt(t *testing.T) {
	c := NewCache(entries(0, 5, 2, 10, 5, 25)...)
	for offset, want := range map[int64]int32{0: -1, 4: -1, 5: 0, 9: 0, 10: 2, 24: 2, 25: 5, 1000: 5} {
		if got := c.EpochAt(offset); got != want {
			t.Errorf("EpochAt(%d) = %d, want %d", offset, got, want)
		}
	}
	if got := (&Cache{}).EpochAt(0); got != -1 {
		t.Errorf("EpochAt of an empty cache = %d", got)
	}
}

func TestSpec3TruncateToRemovesEntriesThatStartAtOrAbove(t *testing.T) {
	for offset, want := range map[int64][]int64{
		100: {0, 0, 2, 10, 5, 25}, 26: {0, 0, 2, 10, 5, 25}, 25: {0, 0, 2, 10}, 11: {0, 0, 2, 10}, 10: {0, 0}, 1: {0, 0}, 0: nil, -1: nil,
	} {
		c := NewCache(entries(0, 0, 2, 10, 5, 25)...)
		c.TruncateTo(offset)
		wantEntries(t, c, want...)
	}
}

func TestRaiseStartKeepsTheCoveringEntry(t *testing.T) {
	for start, want := range map[int64][]int64{
		4: {0, 5, 2, 10, 5, 25}, 5: {0, 5, 2, 10, 5, 25}, 6: {0, 6, 2, 10, 5, 25}, 9: {0, 9, 2, 10, 5, 25}, 10: {2, 10, 5, 25}, 24: {2, 24, 5, 25}, 25: {5, 25}, 30: {5, 30},
	} {
		c := NewCache(entries(0, 5, 2, 10, 5, 25)...)
		c.RaiseStart(start)
		wantEntries(t, c, want...)
	}
	empty := &Cache{}
	empty.RaiseStart(7)
	wantEntries(t, empty)
}

func TestResetEmptiesAndLatest(t *testing.T) {
	c := NewCache(entries(0, 0, 2, 10)...)
	if c.Latest() != 2 {
		t.Errorf("Latest %d", c.Latest())
	}
	c.Reset()
	wantEntries(t, c)
	if c.Latest() != -1 {
		t.Errorf("Latest of an empty cache %d", c.Latest())
	}
	c.Assign(1, 0)
	wantEntries(t, c, 1, 0)
}

func TestEntriesIsACopy(t *testing.T) {
	c := NewCache(entries(0, 0, 2, 10)...)
	c.Entries()[0].Epoch = 99
	wantEntries(t, c, 0, 0, 2, 10)
	before := c.Entries()
	c.RaiseStart(5)
	c.Assign(9, 20)
	if want := entries(0, 0, 2, 10); !slices.Equal(before, want) {
		t.Errorf("an earlier copy changed to %v", before)
	}
}

// TestCacheAgainstTheLogItself compares the cache with a plain list of (offset, epoch), one per record.
func TestCacheAgainstTheLogItself(t *testing.T) { rapid.Check(t, cacheAgainstTheLogItself) }

func cacheAgainstTheLogItself(t *rapid.T) {
	c := &Cache{}
	start, epoch := int64(0), int32(0)
	var log []int32 // epoch of offset start+i
	end := func() int64 { return start + int64(len(log)) }
	t.Repeat(map[string]func(*rapid.T){
		"append": func(t *rapid.T) {
			epoch += rapid.Int32Range(0, 2).Draw(t, "epoch step")
			n := rapid.IntRange(1, 4).Draw(t, "records")
			c.Assign(epoch, end())
			for range n {
				log = append(log, epoch)
			}
		},
		"truncate": func(t *rapid.T) {
			n := rapid.IntRange(0, len(log)).Draw(t, "kept")
			log = log[:n]
			c.TruncateTo(end())
		},
		"raise start": func(t *rapid.T) {
			n := rapid.IntRange(0, max(0, len(log)-1)).Draw(t, "dropped")
			log, start = log[n:], start+int64(n)
			c.RaiseStart(start)
		},
		"": func(t *rapid.T) {
			for i, want := range log {
				if got := c.EpochAt(start + int64(i)); got != want {
					t.Fatalf("EpochAt(%d) = %d, want %d; log from %d %v, cache %v", start+int64(i), got, want, start, log, c.Entries())
				}
			}
			es := c.Entries()
			if !slices.IsSortedFunc(es, func(a, b Entry) int { return int(a.Epoch - b.Epoch) }) || !slices.IsSortedFunc(es, func(a, b Entry) int { return int(a.Start - b.Start) }) {
				t.Fatalf("entries do not rise: %v", es)
			}
			if len(log) == 0 {
				return
			}
			if c.Latest() != log[len(log)-1] {
				t.Fatalf("Latest %d, last record has %d", c.Latest(), log[len(log)-1])
			}
			for ask := int32(0); ask <= epoch+1; ask++ {
				gotEpoch, gotEnd := c.EndOffsetFor(ask, end())
				wantEpoch, wantEnd := endOf(log, start, ask)
				if gotEpoch != wantEpoch || gotEnd != wantEnd {
					t.Fatalf("EndOffsetFor(%d) = (%d, %d), want (%d, %d)", ask, gotEpoch, gotEnd, wantEpoch, wantEnd)
				}
			}
		},
	})
}

// endOf is end-offset-for-epoch by looking at every record.
func endOf(log []int32, start int64, ask int32) (int32, int64) {
	last := log[len(log)-1]
	if ask > last {
		return -1, -1
	}
	if ask == last {
		return ask, start + int64(len(log))
	}
	floor := ask
	for i, e := range log {
		if e > ask {
			if i > 0 {
				floor = log[i-1]
			}
			return floor, start + int64(i)
		}
	}
	panic(fmt.Sprintf("no epoch above %d in %v", ask, log))
}
