package mirror

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"pgregory.net/rapid"
)

func compareLogs(t *testing.T, a, b LogReader, o CompareOptions) Comparison {
	t.Helper()
	c, err := Compare(context.Background(), a, b, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// spoiled is a copy of a log in which one batch was changed.
func (l *batchLog) spoiled(i int, change func([]byte)) *batchLog {
	c := &batchLog{start: l.start, end: l.end, batches: slices.Clone(l.batches)}
	c.batches[i] = slices.Clone(c.batches[i])
	change(c.batches[i])
	return c
}

// rawLog gives out bytes as they are: damaged batches too. Reads are answered in the pieces that were put in.
type rawLog struct {
	start, end int64
	at         []int64 // offset for which piece i is the answer
	pieces     [][]byte
}

func (l *rawLog) Start() int64 { return l.start }
func (l *rawLog) End() int64   { return l.end }
func (l *rawLog) Read(_ context.Context, from int64, _ int) ([]byte, error) {
	for i := range l.at {
		if l.at[i] >= from {
			return l.pieces[i], nil
		}
	}
	return nil, nil
}

// raw is l with each batch as one piece.
func raw(l *batchLog) *rawLog {
	r := &rawLog{start: l.start, end: l.end}
	for _, b := range l.batches {
		info, _ := first(b)
		r.at = append(r.at, info.Base)
		r.pieces = append(r.pieces, slices.Clone(b))
	}
	return r
}

func threeBatches() *batchLog {
	return logOf(data(10, 3), data(13, 1, transactional(7)), marker(14, 7, batch.ControlCommit), data(15, 2))
}

func TestCompareFindsOneFlippedBitAtEveryPositionOfABatch(t *testing.T) {
	fields := map[string]bool{}
	for _, which := range []int{0, 1, 2, 3} {
		for side := range 2 {
			for at := range threeBatches().batches[which] {
				for _, bit := range []byte{0x01, 0x10, 0x80} {
					good, bad := raw(threeBatches()), raw(threeBatches())
					bad.pieces[which][at] ^= bit
					a, b := LogReader(good), LogReader(bad)
					if side == 1 {
						a, b = b, a
					}
					c := compareLogs(t, a, b, CompareOptions{})
					if c.First == nil || c.Equal() {
						t.Fatalf("batch %d, byte %d, bit %02x: not found: %s", which, at, bit, c)
					}
					d := c.First
					switch {
					case at < 8 && d.Kind == DifferenceShifted && (d.Offset == good.at[which] || d.Other == good.at[which]):
					case at < 8 && d.Kind == DifferenceBytes && d.Field == "base offset": // no longer readable
					case at >= 8 && d.Kind == DifferenceBytes && d.Byte == at && d.Offset == good.at[which]:
						fields[d.Field] = true
					default:
						t.Fatalf("batch %d, byte %d, bit %02x: %+v", which, at, bit, d)
					}
					if c.Batches != int64(which) {
						t.Fatalf("batch %d, byte %d: %d equal batches before", which, at, c.Batches)
					}
				}
			}
		}
	}
	for _, f := range []string{"length", "leader epoch", "magic", "checksum", "attributes", "last offset delta", "base timestamp", "max timestamp", "producer id", "producer epoch", "base sequence", "record count", "records"} {
		if !fields[f] {
			t.Errorf("no difference was named %q", f)
		}
	}
}

func TestCompareFindsAnotherLeaderEpochWhichNoChecksumCovers(t *testing.T) {
	l := threeBatches()
	other := l.spoiled(2, func(b []byte) { batch.SetLeaderEpoch(b, 6) })
	c := compareLogs(t, l, other, CompareOptions{})
	if c.First == nil || c.First.Field != "leader epoch" || c.First.Offset != 14 || CheckBatch(other.batches[2]) != nil {
		t.Errorf("%s", c)
	}
}

func TestCompareFindsOneMissingBatch(t *testing.T) {
	for missing := range 4 {
		l, other := threeBatches(), threeBatches()
		gone, _ := first(l.batches[missing])
		other.batches = slices.Delete(other.batches, missing, missing+1) // start and end stay: a hole
		c := compareLogs(t, l, other, CompareOptions{})
		if c.First == nil || c.First.Kind != DifferenceMissingB || c.First.Offset != gone.Base || c.First.Last != gone.Last {
			t.Errorf("missing in b, batch %d: %s", missing, c)
		}
		c = compareLogs(t, other, l, CompareOptions{})
		if c.First == nil || c.First.Kind != DifferenceMissingA || c.First.Offset != gone.Base || c.First.Last != gone.Last {
			t.Errorf("missing in a, batch %d: %s", missing, c)
		}
	}
}

func TestCompareFindsAShiftedOffset(t *testing.T) {
	l := threeBatches()
	other := l.spoiled(3, func(b []byte) { batch.SetBaseOffset(b, 20) })
	other.end = 22
	c := compareLogs(t, l, other, CompareOptions{})
	if c.First == nil || c.First.Kind != DifferenceShifted || c.First.Offset != 15 || c.First.Other != 20 {
		t.Errorf("up: %s", c)
	}
	c = compareLogs(t, other, l, CompareOptions{})
	if c.First == nil || c.First.Kind != DifferenceShifted || c.First.Offset != 20 || c.First.Other != 15 {
		t.Errorf("down: %s", c)
	}
	// The same, when the shift moves the batch beyond the other log's end.
	other = l.spoiled(3, func(b []byte) { batch.SetBaseOffset(b, 1000) })
	other.end = 1002
	if c = compareLogs(t, l, other, CompareOptions{}); c.First == nil || c.First.Kind != DifferenceShifted {
		t.Errorf("far: %s", c)
	}
}

func TestCompareFindsSwappedBatches(t *testing.T) {
	l := logOf(data(0, 1), data(1, 1, transactional(3)), data(2, 1))
	order := &batchLog{start: 0, end: 3, batches: [][]byte{l.batches[0], l.batches[2], l.batches[1]}}
	c := compareLogs(t, l, raw(order), CompareOptions{})
	if c.First == nil || c.First.Offset != 1 {
		t.Errorf("as they are: %s", c)
	}
	contents := logOf(l.batches[0], data(1, 1), data(2, 1, transactional(3)))
	c = compareLogs(t, l, contents, CompareOptions{})
	if c.First == nil || c.First.Kind != DifferenceBytes || c.First.Offset != 1 {
		t.Errorf("with each other's offsets: %s", c)
	}
}

func TestCompareReportsWhatOnlyOneLogHolds(t *testing.T) {
	tail := logOf(append(threeBatches().batches, data(17, 1))...)
	for what, tc := range map[string]struct {
		a, b     *batchLog
		from, to int64
		outside  []Outside
		batches  int64
	}{
		"extra tail in b":   {threeBatches(), tail, 10, 17, []Outside{{"b", 17, 18}}, 4},
		"extra tail in a":   {tail, threeBatches(), 10, 17, []Outside{{"a", 17, 18}}, 4},
		"b starts later":    {threeBatches(), logOf(threeBatches().batches[1:]...), 13, 17, []Outside{{"a", 10, 13}}, 3},
		"both ways":         {logOf(threeBatches().batches[:3]...), logOf(tail.batches[2:]...), 14, 15, []Outside{{"a", 10, 14}, {"b", 15, 18}}, 1},
		"nothing in common": {logOf(data(0, 5)), logOf(data(10, 5)), 10, 10, []Outside{{"a", 0, 5}, {"b", 10, 15}}, 0},
		"one is empty":      {logOf(data(0, 5)), &batchLog{start: 7, end: 7}, 7, 7, []Outside{{"a", 0, 5}}, 0},
	} {
		c := compareLogs(t, tc.a, tc.b, CompareOptions{})
		if c.First != nil || c.From != tc.from || c.To != tc.to || !reflect.DeepEqual(c.Outside, tc.outside) || c.Batches != tc.batches || c.Equal() {
			t.Errorf("%s: %s (%+v)", what, c, c)
		}
		if !strings.Contains(c.String(), "only ") {
			t.Errorf("%s: %s", what, c)
		}
	}
	empty := compareLogs(t, &batchLog{}, &batchLog{}, CompareOptions{})
	if !empty.Equal() || empty.String() != "equal; 0 batches, 0 bytes equal in [0,0)" {
		t.Errorf("two empty logs: %s", empty)
	}
}

func TestCompareStraddlingBatchesCountWhole(t *testing.T) {
	// A log start inside a batch keeps that batch; both have it.
	a, b := threeBatches(), threeBatches()
	a.start = 11
	c := compareLogs(t, a, b, CompareOptions{})
	if c.First != nil || c.From != 11 || c.Batches != 4 || !reflect.DeepEqual(c.Outside, []Outside{{"b", 10, 11}}) {
		t.Errorf("%s", c)
	}
	// A batch that reaches beyond the shorter log's end is no part of it.
	short := logOf(data(10, 2))
	c = compareLogs(t, threeBatches(), short, CompareOptions{})
	if c.First == nil || c.First.Kind != DifferenceBytes || c.First.Offset != 10 {
		t.Errorf("%s", c)
	}
}

func TestCompareWithinARange(t *testing.T) {
	l := threeBatches()
	other := l.spoiled(2, func(b []byte) { b[20] ^= 1 })
	for _, tc := range []struct {
		o         CompareOptions
		different bool
		batches   int64
	}{
		{CompareOptions{}, true, 2}, {CompareOptions{From: 15}, false, 1}, {CompareOptions{To: 14}, false, 2}, {CompareOptions{From: 14, To: 15}, true, 0}, {CompareOptions{From: 13, To: 15}, true, 1},
		{CompareOptions{From: 100}, false, 0}, {CompareOptions{To: 5}, false, 0},
	} {
		c := compareLogs(t, l, other, tc.o)
		if (c.First != nil) != tc.different || c.Batches != tc.batches {
			t.Errorf("%+v: %s", tc.o, c)
		}
	}
}

func TestCompareGapsAreEqualWhenBothHaveThem(t *testing.T) {
	l := logOf(data(0, 1), data(100, 1), data(5000, 1))
	if c := compareLogs(t, l, logOf(l.batches...), CompareOptions{Chunk: 1}); !c.Equal() || c.Batches != 3 {
		t.Errorf("%s", c)
	}
	if c := compareLogs(t, l, logOf(data(0, 1), data(101, 1), data(5000, 1)), CompareOptions{}); c.First == nil {
		t.Errorf("%s", c)
	}
	open := logOf(l.batches[:2]...)
	open.end = 4000 // a hole up to the end
	if c := compareLogs(t, l, open, CompareOptions{}); c.First != nil || c.To != 4000 || c.Batches != 2 {
		t.Errorf("%s", c)
	}
}

func TestCompareReportsWhatNeitherCanRead(t *testing.T) {
	a, b := raw(threeBatches()), raw(threeBatches())
	a.pieces[1][16], b.pieces[1][16] = 9, 9
	c := compareLogs(t, a, b, CompareOptions{})
	if c.First == nil || c.First.Kind != DifferenceGarbage || c.First.Offset != 13 || c.Batches != 1 {
		t.Errorf("%s", c)
	}
	b.pieces[1], b.pieces[2], b.pieces[3] = nil, nil, nil
	if c = compareLogs(t, a, b, CompareOptions{}); c.First == nil || c.First.Kind != DifferenceGarbage {
		t.Errorf("%s", c)
	}
	if c = compareLogs(t, b, a, CompareOptions{}); c.First == nil || c.First.Kind != DifferenceGarbage {
		t.Errorf("%s", c)
	}
}

func TestCompareErrors(t *testing.T) {
	l, broken := threeBatches(), threeBatches()
	broken.err = errors.New("disk")
	if _, err := Compare(context.Background(), l, broken, CompareOptions{}); !errors.Is(err, broken.err) || !strings.Contains(err.Error(), "log b at offset 10") {
		t.Errorf("%v", err)
	}
	if _, err := Compare(context.Background(), broken, l, CompareOptions{}); !errors.Is(err, broken.err) || !strings.Contains(err.Error(), "log a at offset 10") {
		t.Errorf("%v", err)
	}
	stuck := &rawLog{start: 10, end: 20, at: []int64{10, 13}, pieces: [][]byte{data(10, 3), data(10, 3)}}
	if _, err := Compare(context.Background(), stuck, stuck, CompareOptions{}); err == nil {
		t.Error("logs that give out the same batch again and again are compared without end or word")
	}
}

func TestCompareEqualLogsReadInDifferentPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var batches [][]byte
		offset := int64(0)
		for range rapid.IntRange(1, 12).Draw(t, "batches") {
			n := rapid.IntRange(1, 4).Draw(t, "records")
			batches = append(batches, data(offset, n))
			offset += int64(n) + rapid.SampledFrom([]int64{0, 0, 5}).Draw(t, "gap")
		}
		a, b := logOf(batches...), logOf(batches...)
		chunk := rapid.IntRange(1, 400)
		c, err := Compare(context.Background(), resized{a, chunk.Draw(t, "chunk a")}, resized{b, chunk.Draw(t, "chunk b")}, CompareOptions{})
		if err != nil || !c.Equal() || c.Batches != int64(len(batches)) {
			t.Fatalf("%s %v", c, err)
		}
		i := rapid.IntRange(0, len(batches)-1).Draw(t, "which")
		at := rapid.IntRange(0, len(batches[i])-1).Draw(t, "byte")
		bad := raw(b)
		bad.pieces[i][at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		c, err = Compare(context.Background(), a, bad, CompareOptions{Chunk: chunk.Draw(t, "chunk")})
		if err != nil || c.First == nil || c.Batches != int64(i) {
			t.Fatalf("batch %d byte %d: %s %v", i, at, c, err)
		}
	})
}

// resized reads with its own chunk size.
type resized struct {
	*batchLog
	chunk int
}

func (r resized) Read(ctx context.Context, from int64, _ int) ([]byte, error) {
	return r.batchLog.Read(ctx, from, r.chunk)
}

func TestCompareReadsInBoundedChunks(t *testing.T) {
	var batches [][]byte
	for i := range 100 {
		batches = append(batches, data(int64(i), 1))
	}
	size := len(batches[0])
	a, b := logOf(batches...), logOf(batches...)
	c := compareLogs(t, a, b, CompareOptions{Chunk: 10 * size})
	if !c.Equal() || c.Bytes != int64(100*size) || a.reads != 10 || b.reads != 10 {
		t.Errorf("%s; %d and %d reads", c, a.reads, b.reads)
	}
}

func TestComparisonTexts(t *testing.T) {
	l := threeBatches()
	missing := threeBatches()
	missing.batches = slices.Delete(missing.batches, 1, 2)
	shifted := l.spoiled(3, func(b []byte) { batch.SetBaseOffset(b, 20) })
	shifted.end = 22
	unreadable := raw(l)
	unreadable.pieces[0][16] = 1
	for _, tc := range []struct {
		a, b LogReader
		want string
	}{
		{l, l, "equal; 4 batches, 339 bytes equal in [10,17)"},
		{l, l.spoiled(2, func(b []byte) { b[70] ^= 1 }), "DIFFERENT: batch at offset 14 differs in byte 70 (records); 2 batches, 174 bytes equal in [10,17)"},
		{l, missing, "DIFFERENT: batch at offsets 13..13 is missing in b; 1 batches, 100 bytes equal in [10,17)"},
		{missing, l, "DIFFERENT: batch at offsets 13..13 is missing in a; 1 batches, 100 bytes equal in [10,17)"},
		{l, shifted, "DIFFERENT: batch at offset 15 in a is at offset 20 in b; 3 batches, 252 bytes equal in [10,17); only b has [17,22)"},
		{l, unreadable, "DIFFERENT: batch at offset 10 differs in byte 16 (magic): log b: message format v1 at 10: only v2 batches can be mirrored; 0 batches, 0 bytes equal in [10,17)"},
		{unreadable, unreadable, "DIFFERENT: unreadable at offset 10: log a: message format v1 at 10: only v2 batches can be mirrored; 0 batches, 0 bytes equal in [10,17)"},
		{l, logOf(data(10, 3)), "equal where both have records; 1 batches, 100 bytes equal in [10,13); only a has [13,17)"},
		{l, &batchLog{}, "NOTHING IN COMMON; 0 batches, 0 bytes equal in [10,10); only a has [10,17)"},
	} {
		if got := compareLogs(t, tc.a, tc.b, CompareOptions{}).String(); got != tc.want {
			t.Errorf("\n got %s\nwant %s", got, tc.want)
		}
	}
	if got := (*Difference)(nil).String(); got != "no difference" {
		t.Error(got)
	}
}

func TestCompareLeavesOutWhatBeginsBeyondTheRange(t *testing.T) {
	holed := logOf(data(0, 1), data(50, 1), data(60, 1))
	for _, other := range []*batchLog{logOf(data(0, 1), data(50, 1)), logOf(data(0, 1), data(40, 2)), logOf(data(0, 1))} {
		other.end = 62
		for _, pair := range [][2]LogReader{{holed, other}, {other, holed}} {
			if c := compareLogs(t, pair[0], pair[1], CompareOptions{To: 30}); c.First != nil || c.Batches != 1 || c.To != 30 {
				t.Errorf("%s", c)
			}
		}
	}
}
