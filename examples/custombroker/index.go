package main

import "sort"

// index is where to begin looking for an offset: base offset and place of one batch in about every interval bytes. It stays small whatever the size of the file:
// when it is full it forgets every second entry and doubles the interval.
type index struct {
	interval int64
	entries  []entry
}

type entry struct{ offset, place int64 }

const (
	firstInterval = 64 << 10
	maxEntries    = 4096 // with the first interval enough for 256 MiB
)

// add is told of every batch, in order.
func (x *index) add(offset, place int64) {
	if n := len(x.entries); n > 0 && place-x.entries[n-1].place < x.interval {
		return
	}
	x.entries = append(x.entries, entry{offset, place})
	x.interval = max(x.interval, firstInterval)
	if len(x.entries) == maxEntries {
		for i := range maxEntries / 2 {
			x.entries[i] = x.entries[2*i]
		}
		x.entries = x.entries[:maxEntries/2]
		x.interval *= 2
	}
}

// find is a place at or before the batch that contains offset, and before that batch's predecessor if it has one.
func (x *index) find(offset int64) int64 {
	i := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].offset > offset })
	if i < 2 {
		return 0
	}
	return x.entries[i-2].place
}

// cut forgets what lies at or beyond a place.
func (x *index) cut(place int64) {
	i := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].place >= place })
	x.entries = x.entries[:i]
}

// shift is told that the bytes in front of a place are gone.
func (x *index) shift(place int64) {
	i := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].place >= place })
	x.entries = append([]entry(nil), x.entries[i:]...)
	for i := range x.entries {
		x.entries[i].place -= place
	}
}
