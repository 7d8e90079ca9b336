package verify

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// drawn is a random log with what two sides made of it.
type drawn struct {
	whole   []*content // uncleaned
	sides   [2][]*content
	compact bool
}

// drawLog draws batches as producers write them: plain, idempotent, in transactions that overlap, with tombstones and without keys, in any compression.
func drawLog(t *rapid.T, compact bool) []*content {
	var log []*content
	at := rapid.Int64Range(0, 100).Draw(t, "start")
	epoch := int32(3)
	sequence := map[int64]int32{}
	open := map[int64]bool{}
	for range rapid.IntRange(1, 25).Draw(t, "batches") {
		if rapid.IntRange(0, 9).Draw(t, "election") == 0 {
			epoch++
		}
		if len(open) > 0 && rapid.IntRange(0, 3).Draw(t, "end") == 0 {
			var of []int64
			for p := range open {
				of = append(of, p)
			}
			slices.Sort(of)
			p := rapid.SampledFrom(of).Draw(t, "of")
			delete(open, p)
			log = append(log, end(at, p, rapid.SampledFrom([]int8{'A', 'C'}).Draw(t, "how")))
			log[len(log)-1].epoch = epoch
			at++
			continue
		}
		var keys []string
		for range rapid.IntRange(1, 5).Draw(t, "records") {
			k := fmt.Sprint("k", rapid.IntRange(0, 5).Draw(t, "key"))
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0, 1:
				k += "="
			case 2:
				k = ""
			}
			keys = append(keys, k)
		}
		c := write(at, keys...).compressed(rapid.SampledFrom([]int8{0, 0, 1, 2, 3, 4}).Draw(t, "codec"))
		c.epoch = epoch
		if rapid.IntRange(0, 4).Draw(t, "time") == 0 {
			c.appendTime, c.maxTime = true, 50_000+at
		}
		switch p := rapid.Int64Range(-1, 3).Draw(t, "producer"); {
		case p == 0 || p == 1:
			c.by(p, sequence[p])
			sequence[p] += int32(len(keys))
		case p > 1:
			c.inTransaction(p, sequence[p])
			sequence[p] += int32(len(keys))
			open[p] = true
		}
		log = append(log, c)
		at = c.last + 1
	}
	return log
}

// drawSides draws what the cleaners of both sides made of a log, at different times, each knowing another part of it.
func drawSides(t *rapid.T, compact bool) drawn {
	d := drawn{whole: drawLog(t, compact), compact: compact}
	for side := range d.sides {
		log := d.whole
		if compact {
			now, bound := int64(100_000), stable(d.whole)
			at := d.whole[0].base
			for range rapid.IntRange(0, 4).Draw(t, "passes") {
				at = rapid.Int64Range(at, bound).Draw(t, "up to")
				now += rapid.Int64Range(0, 100).Draw(t, "later")
				c := cleaner{upTo: at, now: now, keep: 60, active: map[int64]bool{}}
				for p := range int64(4) {
					c.active[p] = rapid.Bool().Draw(t, "active")
				}
				log = c.pass(log)
			}
		}
		d.sides[side] = log
	}
	return d
}

// disk writes a side, with the bounds of the whole log.
func (d *drawn) disk(side int) *disk {
	l := logOf(d.sides[side]...)
	l.start, l.end = d.whole[0].base, d.whole[len(d.whole)-1].last+1
	return l
}

func drawOptions(t *rapid.T, compact bool) Options {
	return Options{Compacted: compact, Piece: rapid.SampledFrom([]int{1, 200, 1000, 0}).Draw(t, "piece"), Chunk: rapid.SampledFrom([]int{1, 150, 1000, 0}).Draw(t, "chunk")}
}

func verified(t *rapid.T, a, b Side, o Options) Report {
	if rapid.Bool().Draw(t, "in steps") {
		o.MaxBytes = 1
	}
	for {
		r, err := Verify(t.Context(), a, b, o)
		if err != nil {
			t.Fatalf("%v: %s", err, &r)
		}
		if o.Resume = r.Resume; o.Resume == nil {
			return r
		}
	}
}

// repeatedly draws a property some hundred times. A seed is printed when it fails.
func repeatedly(t *testing.T, property func(*rapid.T)) {
	for range 5 {
		rapid.Check(t, property)
	}
}

func TestRandomLogsAreEqualWhateverTheirCleanersDid(t *testing.T) {
	var seen struct{ recordwise, compacted, equal int64 }
	repeatedly(t, func(t *rapid.T) {
		d := drawSides(t, rapid.IntRange(0, 3).Draw(t, "compacted") > 0)
		a, b := d.disk(0), d.disk(1)
		r := verified(t, a, b, drawOptions(t, d.compact))
		if !r.Equal() {
			t.Fatalf("%s", &r)
		}
		seen.recordwise += r.Recordwise.Batches
		seen.compacted += r.Compacted
		seen.equal += r.Bytewise.Batches
		if r.Clean < r.From || r.Clean > r.To {
			t.Fatalf("clean from %d: %s", r.Clean, &r)
		}
		// From Clean on both sides are dense and the same.
		var tails [2][]byte
		for side, l := range [2]*disk{a, b} {
			next := r.Clean
			for i, x := range l.batches {
				if l.last[i] < r.Clean {
					continue
				}
				h, _, _ := batch.Next(x)
				if h.BaseOffset != next || !full(&h) {
					t.Fatalf("clean from %d, and side %s has a batch of %d records at %d: %s", r.Clean, names[side], h.RecordCount, h.BaseOffset, &r)
				}
				next = h.NextOffset()
				tails[side] = append(tails[side], x...)
			}
		}
		if string(tails[0]) != string(tails[1]) {
			t.Fatalf("clean from %d, and the rest differs: %s", r.Clean, &r)
		}
	})
	t.Logf("%+v", seen)
	if seen.recordwise == 0 || seen.compacted == 0 || seen.equal == 0 {
		t.Errorf("%+v: one of the ways was never taken", seen)
	}
}

// One side ends earlier, starts later, and is cleaned while it is read.
func TestRandomLogsThatMoveGiveNoFalseAlarm(t *testing.T) {
	repeatedly(t, func(t *rapid.T) {
		d := drawSides(t, rapid.IntRange(0, 3).Draw(t, "compacted") > 0)
		logs := [2]*disk{d.disk(0), d.disk(1)}
		for side, l := range logs {
			l.start = rapid.Int64Range(l.start, l.end).Draw(t, "start")
			first, _ := slices.BinarySearch(l.last, l.start)
			l.last, l.batches = l.last[first:], l.batches[first:]
			if side == 1 && rapid.Bool().Draw(t, "behind") {
				to := rapid.Int64Range(l.start, l.end).Draw(t, "end")
				n, _ := slices.BinarySearch(l.last, to)
				l.last, l.batches = l.last[:n], l.batches[:n]
				if l.end = l.start; n > 0 {
					l.end = max(l.start, l.last[n-1]+1)
				}
			}
			when := rapid.IntRange(0, 12).Draw(t, "when")
			what := rapid.IntRange(0, 2).Draw(t, "what")
			log, reads := d.sides[side], 0
			l.before = func(int64) error {
				if reads++; reads != when || !d.compact && what == 0 {
					return nil
				}
				var by *disk
				switch what {
				case 0: // a pass of the cleaner
					by = logOf((&cleaner{upTo: min(l.end, stable(d.whole)), now: 200_000, keep: 60}).pass(log)...)
				default: // retention
					by = l.clone()
					l.start = min(l.end, l.start+5)
				}
				from, _ := slices.BinarySearch(by.last, l.start)
				to, _ := slices.BinarySearch(by.last, l.end)
				l.last, l.batches = by.last[min(from, to):to], by.batches[min(from, to):to]
				return nil
			}
		}
		r := verified(t, logs[0], logs[1], drawOptions(t, d.compact))
		if r.Wrong() || !r.Complete {
			t.Fatalf("%s", &r)
		}
		for _, u := range r.Uncomparable {
			if u.Reason != Retention && u.Reason != Compaction && u.Reason != Changing {
				t.Fatalf("%s", &r)
			}
		}
	})
}

// counterpart is the batch of the other side that begins at the same offset.
func counterpart(log []*content, base int64) *content {
	for _, c := range log {
		if c.base == base {
			return c
		}
	}
	return nil
}

func TestRandomDamageIsFound(t *testing.T) {
	kinds := map[string]int{}
	repeatedly(t, func(t *rapid.T) {
		d := drawSides(t, rapid.IntRange(0, 2).Draw(t, "compacted") > 0)
		side := rapid.IntRange(0, 1).Draw(t, "side")
		logs := [2]*disk{d.disk(0), d.disk(1)}
		l, mine, theirs := logs[side], d.sides[side], d.sides[1-side]
		if len(mine) == 0 {
			return
		}
		i := rapid.IntRange(0, len(mine)-1).Draw(t, "batch")
		c := mine[i]
		other := counterpart(theirs, c.base)
		kind := rapid.SampledFrom([]string{"flip", "flip below the checksum", "sealed value", "swap", "twice", "lost", "lost record", "shift"}).Draw(t, "kind")
		offsets := []int64{c.base} // one of these has to be named
		switch kind {
		case "flip":
			at := rapid.IntRange(12, len(l.batches[i])-1).Draw(t, "at")
			if other == nil && at < 16 { // a leader epoch that nothing tells
				return
			}
			l.batches[i][at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		case "flip below the checksum":
			if other == nil { // nothing tells where it was
				return
			}
			l.batches[i][rapid.IntRange(0, 15).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			if h, _, err := batch.Next(l.batches[i]); err == nil {
				offsets = append(offsets, h.BaseOffset)
			}
		case "sealed value":
			if other == nil || len(c.records) == 0 || c.control != 0 {
				return
			}
			n := *c
			n.records = slices.Clone(c.records)
			j := rapid.IntRange(0, len(n.records)-1).Draw(t, "record")
			if !slices.ContainsFunc(other.records, func(e entry) bool { return e.offset == n.records[j].offset }) {
				return
			}
			n.records[j].value = append(slices.Clone(n.records[j].value), 'x')
			l.batches[i] = n.bytes()
			offsets = append(offsets, n.records[j].offset)
		case "swap":
			if i == 0 || other == nil && counterpart(theirs, mine[i-1].base) == nil {
				return
			}
			l.batches[i], l.batches[i-1] = l.batches[i-1], l.batches[i]
			offsets = append(offsets, mine[i-1].base, c.last+1)
		case "twice":
			if i == len(mine)-1 {
				return // behind the end nobody reads
			}
			l.batches, l.last = slices.Insert(l.batches, i, l.batches[i]), slices.Insert(l.last, i, l.last[i])
			offsets = append(offsets, mine[i+1].base)
			for _, x := range theirs {
				if x.base > c.base && x.base <= mine[i+1].base {
					offsets = append(offsets, x.base, c.last+1)
				}
			}
			offsets = append(offsets, c.last+1)
		case "lost", "lost record":
			if other == nil || kind == "lost record" && (len(c.records) < 2 || !d.compact || c.control != 0) {
				return
			}
			n := *c
			lost := c.records
			if kind == "lost record" {
				j := rapid.IntRange(0, len(c.records)-1).Draw(t, "record")
				lost = c.records[j : j+1]
				n.records = slices.Delete(slices.Clone(c.records), j, j+1)
			} else {
				n.records = nil
			}
			if d.compact && !slices.ContainsFunc(lost, func(e entry) bool {
				return slices.ContainsFunc(other.records, func(o entry) bool { return o.offset == e.offset }) && d.needed(c, &e)
			}) {
				return // the cleaner could have done it
			}
			if kind == "lost" {
				*l = *l.without(i)
			} else {
				kept := c.kept()
				kept.records = n.records
				kept = kept.kept(offsetsOf(n.records)...)
				l.batches[i] = kept.bytes()
			}
			offsets = append(offsets, offsetsOf(lost)...)
		case "shift":
			if other == nil {
				return
			}
			by := rapid.Int64Range(1, 60).Draw(t, "by")
			batch.SetBaseOffset(l.batches[i], c.base+by)
			for j := i + 1; !d.compact && j < len(l.batches) && rapid.Bool().Draw(t, "and what follows"); j++ {
				batch.SetBaseOffset(l.batches[j], mine[j].base+by)
				offsets = append(offsets, mine[j].base, mine[j].base+by)
			}
			offsets = append(append(offsets, c.base+by), offsetsOf(c.records)...)
		}
		o := drawOptions(t, d.compact)
		if kind != "flip" && kind != "lost" {
			o.Chunk = 0 // one read has to show a batch and what lies behind it
		}
		r := verified(t, logs[0], logs[1], o)
		kinds[kind]++
		if r.Equal() {
			t.Logf("%v %v", showAll(theirs), showAll(mine))
			t.Fatalf("%s in batch %d of side %s is not found: %s", kind, c.base, names[side], &r)
		}
		if d.compact && (kind == "shift" || kind == "twice" || kind == "swap" || kind == "flip below the checksum") {
			// Where batches are no longer where they were, and the other side's cleaner took others, several places may be named: the first that cannot be.
			return
		}
		if m := r.Mismatch; m != nil && (slices.Contains(offsets, m.Offset) || m.Kind == mirror.DifferenceShifted && slices.Contains(offsets, m.Other)) {
			return
		}
		for _, h := range r.Holes {
			if h.In == names[side] && slices.ContainsFunc(offsets, func(o int64) bool { return h.From <= o && o < h.To }) {
				return
			}
		}
		for _, u := range r.Uncomparable { // where the logs have gaps on both sides, a lost record may have been taken
			if (u.Reason == Compaction || u.Reason == Ambiguous || u.Reason == Changing) && slices.ContainsFunc(offsets, func(o int64) bool { return u.From <= o && o < u.To }) {
				return
			}
		}
		t.Logf("%v %v", showAll(theirs), showAll(mine))
		t.Fatalf("%s in batch %d of side %s, and another place is named: %s", kind, c.base, names[side], &r)
	})
	t.Logf("%v", kinds)
	if len(kinds) < 4 { // with -short few are drawn
		t.Errorf("only %v were tried", kinds)
	}
}

func offsetsOf(records []entry) (all []int64) {
	for _, r := range records {
		all = append(all, r.offset)
	}
	return all
}

// needed says that no cleaner may take a record of the log: it is the last one of its key, as far as transactions were not aborted, and no tombstone; or a marker whose data is there.
func (d *drawn) needed(c *content, e *entry) bool {
	aborted := abortedBatches(d.whole)
	original := counterpart(d.whole, c.base)
	if c.control != 0 {
		for _, side := range d.sides {
			open := false
			for _, b := range side {
				if b.base >= c.base {
					break
				}
				if b.pid == c.pid {
					open = b.control == 0
				}
			}
			if !open {
				return false
			}
		}
		return true
	}
	if e.key == nil || e.value == nil || aborted[original] {
		return false
	}
	for _, b := range d.whole {
		for _, r := range b.records {
			if b.control == 0 && !aborted[b] && string(r.key) == string(e.key) && r.key != nil && r.offset > e.offset {
				return false
			}
		}
	}
	return true
}

// showAll is a log for a person.
func showAll(log []*content) (s string) {
	for _, c := range log {
		s += fmt.Sprintf("\n%d–%d epoch %d producer %d/%d txn %v control %d horizon %d:", c.base, c.last, c.epoch, c.pid, c.seq, c.txn, c.control, c.horizon)
		for _, r := range c.records {
			s += fmt.Sprintf(" %d %q=%q", r.offset, r.key, r.value)
		}
	}
	return s
}
