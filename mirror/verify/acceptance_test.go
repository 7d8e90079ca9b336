package verify

import (
	"context"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// changed is a log of a destination whose reads show one thing differently from what was appended.
type changed struct {
	mirror.Log
	change func([]byte) []byte
}

func (c changed) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	b, err := c.Log.Read(ctx, from, most)
	return c.change(slices.Clone(b)), err
}

// eachBatch hands every batch of what was read to change, which returns what stands there instead.
func eachBatch(b []byte, change func(base int64, whole []byte) []byte) (out []byte) {
	for info, whole := range mirror.Batches(b) {
		out = append(out, change(info.Base, whole)...)
	}
	return out
}

// throughBothSides verifies a source and its copy as a mirror does, with what is read of one side changed.
func throughBothSides(t *testing.T, p *pair, side int, compacted bool, change func([]byte) []byte) Report {
	t.Helper()
	copied := mirror.Log(p.copy)
	p.src.SetHooks(memlog.Hooks{})
	if side == 1 {
		copied = changed{p.copy, change}
	} else {
		p.src.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
			for i := range reply {
				reply[i].Records = change(slices.Clone(reply[i].Records))
			}
			return reply
		}})
	}
	return look(t, p.side, LogSide(tp, copied), Options{Compacted: compacted})
}

// Acceptance 4.9: every single flipped byte is found, at every byte position of a batch header and of the body, on either side, also bytes that no CRC covers (base offset, leader epoch, length): through a
// fetch of the source and a read of the copy, as a mirror compares them, and where the topic is compacted too.
func TestAcceptance4_9EveryFlippedByteIsFoundOnEitherSide(t *testing.T) {
	p := newPair(t, 3)
	size := 0
	eachBatch(must(p.copy.Read(t.Context(), 0, 1<<20)), func(base int64, whole []byte) []byte {
		if base == 2 {
			size = len(whole)
		}
		return nil
	})
	if size < batch.HeaderSize+100 {
		t.Fatalf("the batch has %d bytes", size)
	}
	for _, compacted := range []bool{false, true} {
		for side := range 2 {
			for at := range size {
				r := throughBothSides(t, p, side, compacted, func(b []byte) []byte {
					return eachBatch(b, func(base int64, whole []byte) []byte {
						if base == 2 {
							whole[at] ^= 0xff
						}
						return whole
					})
				})
				if !r.Wrong() || r.Equal() || r.FirstWrong() != 2 && !(at < 8 && r.Mismatch != nil && (r.Mismatch.Other == 2 || r.Mismatch.Offset == 4)) {
					t.Fatalf("compacted %t, side %s, byte %d: %s", compacted, names[side], at, &r)
				}
			}
		}
	}
	p.src.SetHooks(memlog.Hooks{})
	if r := p.verify(); !r.Equal() {
		t.Errorf("undamaged: %s", &r)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// Every bit of every byte of every batch of a log: data, of a transaction, a marker.
func TestAcceptance4_9EveryBitOfEveryKindOfBatch(t *testing.T) {
	good := four()
	for which := range good.batches {
		for at := range good.batches[which] {
			for bit := range 8 {
				bad := four()
				bad.batches[which][at] ^= 1 << bit
				for i, sides := range [2][2]Side{{good, bad}, {bad, good}} {
					if r := look(t, sides[0], sides[1], Options{}); r.Mismatch == nil || r.Equal() {
						t.Fatalf("batch %d, byte %d, bit %d, order %d: %s", which, at, bit, i, &r)
					}
				}
			}
		}
	}
}

// Acceptance 4.9: every swapped, missing and shifted batch is found, on either side, with and without compaction, wherever it lies.
func TestAcceptance4_9EverySwappedMissingAndShiftedBatchIsFound(t *testing.T) {
	dense := func() *disk { // each key once: no cleaner may take any of it
		var all []*content
		for i := range 12 {
			all = append(all, write(int64(3*i), "k"+string(rune('a'+3*i)), "k"+string(rune('b'+3*i)), "k"+string(rune('c'+3*i))).by(1, int32(3*i)))
		}
		return logOf(all...)
	}
	n := len(dense().batches)
	damages := map[string]func(d *disk, i int) *disk{
		"swapped": func(d *disk, i int) *disk {
			if i == 0 {
				i = 1
			}
			d.batches[i], d.batches[i-1] = d.batches[i-1], d.batches[i]
			return d
		},
		"swapped with their offsets": func(d *disk, i int) *disk {
			if i == 0 {
				i = 1
			}
			d.batches[i], d.batches[i-1] = d.batches[i-1], d.batches[i]
			batch.SetBaseOffset(d.batches[i], int64(3*i))
			batch.SetBaseOffset(d.batches[i-1], int64(3*i-3))
			return d
		},
		"missing":      func(d *disk, i int) *disk { return d.without(i) },
		"shifted by 1": func(d *disk, i int) *disk { batch.SetBaseOffset(d.batches[i], int64(3*i+1)); return d },
		"shifted, and all behind it": func(d *disk, i int) *disk {
			for ; i < n; i++ {
				batch.SetBaseOffset(d.batches[i], int64(3*i+2))
			}
			return d
		},
	}
	for name, damage := range damages {
		for i := range n {
			for _, compacted := range []bool{false, true} {
				for order := range 2 {
					a, b := dense(), damage(dense(), i)
					if order == 1 {
						a, b = b, a
					}
					for _, piece := range []int{1, 300, 0} {
						if r := look(t, a, b, Options{Compacted: compacted, Piece: piece}); !r.Wrong() || r.Equal() {
							t.Errorf("%s %d, compacted %t, order %d, piece %d: %s", name, i, compacted, order, piece, &r)
						}
					}
				}
			}
		}
	}
}

// Acceptance 4.9: and it never cries wolf on compaction or retention: whatever cleaners of either side took, whichever side has deleted its oldest records, at whatever time of the reading.
func TestAcceptance4_9NoFalseAlarmOnCompactionOrRetention(t *testing.T) {
	log := []*content{write(0, "a", "b"), write(2, "a", "c=").compressed(2), write(4, "b", "d"), write(6, "a", "e"), write(8, "f")}
	upTo := int64(9)
	for _, early := range []int64{2, 4, 6} { // where each side's cleaner was first
		for _, late := range []int64{4, 6, 8} {
			for _, keep := range []int64{0, 1 << 40} { // of tombstones
				once := (&cleaner{upTo: early, now: 200_000, keep: keep}).pass(log)
				twice := (&cleaner{upTo: late, now: 400_000, keep: keep}).pass(once)
				for _, trimmed := range []int64{0, 3, 5} {
					for order := range 2 {
						a, b := logOf(log...), logOf(twice...)
						for _, d := range []*disk{a, b} {
							d.start, d.end = 0, upTo
						}
						b.start = trimmed
						first, _ := slices.BinarySearch(b.last, trimmed)
						b.last, b.batches = b.last[first:], b.batches[first:]
						if order == 1 {
							a, b = b, a
						}
						r := look(t, a, b, Options{Compacted: true})
						if r.Wrong() || !r.Complete {
							t.Errorf("cleaned to %d, then to %d, tombstones kept for %d, trimmed to %d, order %d: %s", early, late, keep, trimmed, order, &r)
						}
					}
				}
			}
		}
	}
}

// Acceptance 4.8: below either side's cleaned point records are compared (offset, key, value, headers, timestamp, producer fields), above it bytes, and the report says how much was proved by which. The
// delete horizon is normalised.
func TestAcceptance4_8TheReportSaysWhatWasProvedByWhich(t *testing.T) {
	base := write(10, "k1", "k2", "k3=").by(9, 3)
	above := write(13, "k1", "k4", "k5")
	later := write(16, "k6")
	for name, cleaned := range map[string]*content{"cleaned": base.kept(11, 12), "cleaned, with a delete horizon": base.kept(11, 12).until(12345), "a delete horizon alone": base.kept(10, 11, 12).until(12345)} {
		a, b := logOf(base, above, later), logOf(cleaned, above, later)
		r := look(t, a, b, Options{Compacted: true})
		v := Verified(&r, nil)
		if !r.Equal() || r.Clean != 13 || v.Verdict != mirror.VerifiedIdentical || v.Recordwise.Batches != 1 || v.Bytewise.Batches != 2 || v.Bytewise.Records != 4 || v.Bytewise.Bytes != int64(len(a.batches[1])+len(a.batches[2])) {
			t.Errorf("%s: %s, clean from %d, %+v", name, &r, r.Clean, v)
		}
		for what, change := range map[string]func(*content){
			"key": func(c *content) { c.records[0].key = []byte("kx") }, "value": func(c *content) { c.records[0].value = []byte("x") }, "timestamp": func(c *content) { c.records[0].time++ },
			"headers":     func(c *content) { c.records[0].headers = []batch.RecordHeader{{Key: "h"}} },
			"producer id": func(c *content) { c.pid++ }, "producer epoch": func(c *content) { c.pepoch++ }, "base sequence": func(c *content) { c.seq++ }, "leader epoch": func(c *content) { c.epoch++ },
		} {
			other := *cleaned
			other.records = slices.Clone(cleaned.records)
			change(&other)
			if r := look(t, logOf(base, above, later), logOf(&other, above, later), Options{Compacted: true}); !r.Wrong() {
				t.Errorf("%s, another %s: %s", name, what, &r)
			}
		}
		// Above the cleaned point the same records in other bytes are a difference.
		if r := look(t, a, logOf(cleaned, write(13, "k1", "k4", "k5").compressed(4), later), Options{Compacted: true}); r.Mismatch == nil || r.Mismatch.Offset != 13 {
			t.Errorf("%s, other bytes above: %s", name, &r)
		}
	}
}
