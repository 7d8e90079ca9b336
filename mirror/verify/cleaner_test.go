package verify

import (
	"slices"
	"testing"
)

// cleaner is a small model of Kafka's log cleaner (Cleaner, CleanedTransactionMetadata, MemoryRecords.filterTo): what one pass makes of a log.
type cleaner struct {
	upTo    int64          // the end of the offset map: nothing at or above is touched
	now     int64          // milliseconds
	keep    int64          // delete.retention.ms
	active  map[int64]bool // producers that the broker still knows: the last batch of each is kept, if only empty
	counted struct{ records, batches, emptied, horizons, markers int }
}

// pass is one cleaning. The log is not changed; batches that stay as they were are the same ones.
func (c *cleaner) pass(log []*content) []*content {
	aborted := abortedBatches(log)
	latest := map[string]int64{}
	lastOf := map[int64]*content{}
	for _, b := range log {
		if b.pid >= 0 {
			lastOf[b.pid] = b
		}
		if b.control != 0 || aborted[b] || b.last >= c.upTo {
			continue
		}
		for _, r := range b.records {
			if r.key != nil {
				latest[string(r.key)] = r.offset
			}
		}
	}
	var out []*content
	observed := map[int64]bool{} // producers with a batch in the transaction that is being walked through
	for _, b := range log {
		if b.last >= c.upTo {
			out = append(out, b)
			continue
		}
		emptyTransaction := false
		if b.control == 'A' || b.control == 'C' {
			emptyTransaction = !observed[b.pid]
			delete(observed, b.pid)
		} else if b.txn {
			observed[b.pid] = true
		}
		var kept []entry
		tombstones := false
		for _, r := range b.records {
			switch {
			case b.control != 0:
				if emptyTransaction && b.horizon >= 0 && c.now >= b.horizon {
					c.counted.markers++
					continue
				}
			case aborted[b], r.key == nil, latest[string(r.key)] > r.offset, r.value == nil && b.horizon >= 0 && c.now >= b.horizon:
				c.counted.records++
				continue
			}
			kept = append(kept, r)
			tombstones = tombstones || b.control == 0 && r.value == nil
		}
		horizon := (tombstones || emptyTransaction) && b.horizon < 0
		switch {
		case len(kept) > 0 && len(kept) == len(b.records) && !horizon:
			out = append(out, b)
		case len(kept) > 0:
			n := *b
			n.records = kept
			if horizon {
				n.horizon = c.now + c.keep
				c.counted.horizons++
			}
			if !n.appendTime {
				n.maxTime = kept[0].time
				for _, r := range kept {
					n.maxTime = max(n.maxTime, r.time)
				}
			}
			out = append(out, &n)
		case b.pid >= 0 && c.active[b.pid] && lastOf[b.pid] == b:
			n := *b
			n.records, n.horizon = nil, -1
			out = append(out, &n)
			c.counted.emptied++
		default:
			c.counted.batches++
		}
	}
	return out
}

// abortedBatches are the data batches of transactions whose marker is an ABORT.
func abortedBatches(log []*content) map[*content]bool {
	aborted, open := map[*content]bool{}, map[int64][]*content{}
	for _, b := range log {
		switch {
		case b.control == 'A' || b.control == 'C':
			for _, d := range open[b.pid] {
				aborted[d] = b.control == 'A'
			}
			delete(open, b.pid)
		case b.txn && b.control == 0:
			open[b.pid] = append(open[b.pid], b)
		}
	}
	return aborted
}

// stable is the offset of the first batch of a transaction that is open: nothing from there on is cleaned.
func stable(log []*content) int64 {
	first := map[int64]int64{}
	end := int64(0)
	for _, b := range log {
		if b.control == 'A' || b.control == 'C' {
			delete(first, b.pid)
		} else if _, open := first[b.pid]; b.txn && !open {
			first[b.pid] = b.base
		}
		end = b.last + 1
	}
	for _, o := range first {
		end = min(end, o)
	}
	return end
}

func TestTheModelOfTheCleanerCleans(t *testing.T) {
	log := []*content{write(0, "a", "b="), write(2, "c").inTransaction(7, 0), write(3, "d").by(8, 0), end(4, 7, 'A'), write(5, "a"), write(6, "d")}
	c := cleaner{upTo: 6, now: 100, keep: 50, active: map[int64]bool{8: true, 7: true}}
	once := c.pass(log)
	c.upTo, c.now = 7, 120
	twice := c.pass(once)
	c.now, c.active = 1000, nil
	last := c.pass(c.pass(twice))
	show := func(log []*content) (all [][2]int64) {
		for _, b := range log {
			all = append(all, [2]int64{b.base, int64(len(b.records))})
		}
		return all
	}
	for i, want := range [][][2]int64{{{0, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}}, {{0, 1}, {3, 0}, {4, 1}, {5, 1}, {6, 1}}, {{5, 1}, {6, 1}}} {
		if got := show([][]*content{once, twice, last}[i]); !slices.Equal(got, want) {
			t.Errorf("pass %d: %v, want %v", i, got, want)
		}
	}
	if once[0].horizon != 150 || twice[0].horizon != 150 || twice[2].horizon != 170 || once[2].horizon != -1 {
		t.Errorf("horizons %d %d %d", once[0].horizon, twice[0].horizon, twice[2].horizon)
	}
}
