package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// four has data, a transaction and its marker, and data; offsets 10 to 16.
func four() *disk {
	return logOf(write(10, "k1", "k2", "k3"), write(13, "k4").inTransaction(7, 0), end(14, 7, 'C'), write(15, "k5", "k6"))
}

// many has n batches of three records each.
func many(n int) *disk {
	var all []*content
	for i := range n {
		all = append(all, write(int64(3*i), fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("c", i)).by(1, int32(3*i)))
	}
	return logOf(all...)
}

func TestEqualLogsAreEqualByteByByte(t *testing.T) {
	for name, d := range map[string]*disk{"four": four(), "many": many(500), "compressed": logOf(write(0, "a", "b").compressed(4), write(2, "c").compressed(2))} {
		for _, compacted := range []bool{false, true} {
			r := look(t, d, d.clone(), Options{Compacted: compacted})
			bytes := int64(0)
			for _, b := range d.batches {
				bytes += int64(len(b))
			}
			if !r.Equal() || !r.Complete || r.Wrong() || r.Resume != nil || r.From != d.start || r.To != d.end || r.At != d.end || r.Clean != d.start {
				t.Errorf("%s: %s %+v", name, &r, r)
			}
			if want := (Proof{Batches: int64(len(d.batches)), Records: d.end - d.start, Bytes: bytes}); r.Bytewise != want || r.Recordwise != (Proof{}) || r.Compacted != 0 {
				t.Errorf("%s: %+v, want %+v", name, r.Bytewise, want)
			}
		}
	}
}

func TestEmptyLogsAreEqualAndNothingWasProved(t *testing.T) {
	r := look(t, &disk{start: 4, end: 4}, &disk{start: 4, end: 4}, Options{})
	if !r.Equal() || r.Bytewise != (Proof{}) || r.From != 4 || r.To != 4 {
		t.Errorf("%s", &r)
	}
}

func TestTwoPartitionsAreNotCompared(t *testing.T) {
	other := LogSide(mirror.TopicPartition{Topic: "orders", Partition: 4}, nil)
	if _, err := Verify(t.Context(), four(), other, Options{}); err == nil || !strings.Contains(err.Error(), "orders-4") {
		t.Errorf("%v", err)
	}
}

// A flip of any bit of any byte, on either side, is found at the batch that it is in, with its byte and field: also in the bytes that no checksum covers.
func TestOneFlippedBitIsFoundAtEveryPositionOfABatch(t *testing.T) {
	fields := map[string]bool{}
	for which := range four().batches {
		for side := range 2 {
			for at := range four().batches[which] {
				for _, bit := range []byte{0x01, 0x10, 0x80} {
					good, bad := four(), four()
					bad.batches[which][at] ^= bit
					a, b := Side(good), Side(bad)
					if side == 1 {
						a, b = b, a
					}
					base := []int64{10, 13, 14, 15}[which]
					r := look(t, a, b, Options{})
					d := r.Mismatch
					if d == nil || r.Equal() {
						t.Fatalf("batch %d, byte %d, bit %02x: not found: %s", which, at, bit, &r)
					}
					switch {
					case at < 8 && (d.Offset == base || d.Other == base):
					case at >= 8 && d.Offset == base && d.Byte == at && d.Kind == mirror.DifferenceBytes:
						fields[d.Field] = true
					default:
						t.Fatalf("batch %d, byte %d, bit %02x, side %d: %+v", which, at, bit, side, d)
					}
					if r.Bytewise.Batches > int64(which) || r.Resume != nil {
						t.Fatalf("batch %d, byte %d: %d equal batches before", which, at, r.Bytewise.Batches)
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

func TestTheFirstDifferenceIsFoundByBisection(t *testing.T) {
	for _, which := range []int{0, 1, 63, 64, 200, 398, 399} {
		a, b := many(400), many(400)
		b.batches[which][70]++
		if which < 390 {
			b.batches[which+7][80]++
		}
		r := look(t, a, b, Options{})
		if r.Mismatch == nil || r.Mismatch.Offset != int64(3*which) || r.Mismatch.Byte != 70 || r.Bytewise.Batches != int64(which) || r.At != int64(3*which) {
			t.Errorf("batch %d: %s", which, &r)
		}
	}
}

func TestAMissingBatchIsAHole(t *testing.T) {
	for i, want := range []Hole{{"b", 10, 13}, {"b", 13, 14}, {"b", 14, 15}, {"b", 15, 17}} {
		r := look(t, four(), four().without(i), Options{})
		if !slices.Equal(r.Holes, []Hole{want}) || r.Mismatch != nil || r.Equal() || !r.Wrong() || !r.Complete || r.Bytewise.Batches != 3 {
			t.Errorf("batch %d: %s", i, &r)
		}
		r = look(t, four().without(i), four(), Options{})
		if want.In = "a"; !slices.Equal(r.Holes, []Hole{want}) || r.Bytewise.Batches != 3 {
			t.Errorf("in a, batch %d: %s", i, &r)
		}
	}
}

func TestBatchesThatAreMissingTogetherAreOneHole(t *testing.T) {
	b := many(40)
	for range 9 {
		b = b.without(11)
	}
	r := look(t, many(40), b.without(2), Options{})
	if want := []Hole{{"b", 6, 9}, {"b", 33, 60}}; !slices.Equal(r.Holes, want) || r.Bytewise.Batches != 30 {
		t.Errorf("%s", &r)
	}
}

func TestHolesAreListedUpToABound(t *testing.T) {
	b := many(100)
	for i := 98; i > 0; i -= 4 {
		b = b.without(i)
	}
	if r := look(t, many(100), b, Options{Findings: 3}); len(r.Holes) != 3 || r.MoreFindings != 22 || r.Equal() || !r.Complete {
		t.Errorf("%s", &r)
	}
}

func TestAShiftedBatchIsFound(t *testing.T) {
	b := four()
	batch.SetBaseOffset(b.batches[3], 20)
	b.end = 22
	r := look(t, four(), b, Options{})
	if r.Mismatch == nil || r.Mismatch.Kind != mirror.DifferenceShifted || r.Mismatch.Offset != 15 || r.Mismatch.Other != 20 {
		t.Errorf("%s", &r)
	}
}

func TestSwappedBatchesAreFound(t *testing.T) {
	b := four()
	b.batches[1], b.batches[2] = b.batches[2], b.batches[1] // at each other's place, offsets as they were
	r := look(t, four(), b, Options{})
	if r.Mismatch == nil || r.Mismatch.Kind != DifferenceOrder || r.Mismatch.Offset != 13 || r.Bytewise.Batches != 1 {
		t.Errorf("%s", &r)
	}
	b = logOf(write(10, "k1", "k2", "k3"), end(13, 7, 'C'), write(14, "k4").inTransaction(7, 0), write(15, "k5", "k6")) // and with each other's offsets
	r = look(t, four(), b, Options{})
	if r.Mismatch == nil || r.Mismatch.Kind != mirror.DifferenceBytes || r.Mismatch.Offset != 13 {
		t.Errorf("%s", &r)
	}
}

func TestABatchThatIsThereTwiceIsFound(t *testing.T) {
	for i := range 4 {
		b := four()
		b.batches, b.last = slices.Insert(b.batches, i, b.batches[i]), slices.Insert(b.last, i, b.last[i])
		r := look(t, four(), b, Options{})
		if i == 3 {
			// Nothing asks for what lies behind the end.
			continue
		}
		if next := []int64{13, 14, 15}[i]; r.Mismatch == nil || r.Mismatch.Kind != DifferenceOrder || r.Mismatch.Offset != next {
			t.Errorf("batch %d: %s", i, &r)
		}
	}
}

func TestWhatStartsLaterCannotBeComparedForRetention(t *testing.T) {
	b := four()
	b.start, b.last, b.batches = 13, b.last[1:], b.batches[1:]
	for side, sides := range [][2]*disk{{four(), b}, {b, four()}} {
		r := look(t, sides[0], sides[1], Options{})
		if want := []Uncomparable{{Retention, names[1-side], 10, 13}}; !slices.Equal(r.Uncomparable, want) || r.Wrong() || r.Equal() || !r.Complete || r.Bytewise.Batches != 3 || r.From != 13 {
			t.Errorf("%s", &r)
		}
	}
}

func TestABatchThatBeginsBelowTheStartIsCompared(t *testing.T) {
	a, b := four(), four()
	a.start, b.start = 11, 12
	if r := look(t, a, b, Options{}); r.Bytewise.Batches != 4 || r.Wrong() || r.From != 12 {
		t.Errorf("%s", &r)
	}
	b.batches[0][64]++
	if r := look(t, a, b, Options{}); r.Mismatch == nil || r.Mismatch.Offset != 10 || r.Mismatch.Byte != 64 {
		t.Errorf("%s", &r)
	}
}

func TestOnlyWhatIsBelowTheSmallerEndIsCompared(t *testing.T) {
	a, b := four(), four()
	b.end = 15
	a.batches[3][70]++
	if r := look(t, a, b, Options{}); !r.Equal() || r.To != 15 || r.Bytewise.Batches != 3 || r.A.End != 17 || r.B.End != 15 {
		t.Errorf("%s", &r)
	}
}

func TestFromAndToBoundWhatIsCompared(t *testing.T) {
	a, b := four(), four()
	a.batches[0][70]++
	b.batches[3][70]++
	r := look(t, a, b, Options{From: 13, To: 15})
	if !r.Equal() || r.From != 13 || r.To != 15 || r.Bytewise.Batches != 2 {
		t.Errorf("%s", &r)
	}
}

func TestNothingInCommonIsNotEqual(t *testing.T) {
	b := many(20)
	b.start, b.batches, b.last = 45, b.batches[15:], b.last[15:]
	a := many(10)
	r := look(t, a, b, Options{})
	if r.Equal() || r.Wrong() || !slices.Equal(r.Uncomparable, []Uncomparable{{Retention, "b", 0, 30}}) || !strings.Contains(r.String(), "nothing in common") {
		t.Errorf("%s", &r)
	}
}

// The ends are taken when it begins.
func TestLogsMayGrowMeanwhile(t *testing.T) {
	a, b := many(100), many(100)
	a.before = func(int64) error {
		more := write(a.end, "later")
		a.batches, a.last, a.end = append(a.batches, more.bytes()), append(a.last, a.end), a.end+1
		return nil
	}
	if r := look(t, a, b, Options{}); !r.Equal() || r.To != 300 || r.Bytewise.Batches != 100 {
		t.Errorf("%s", &r)
	}
}

func TestRetentionWhileReadingIsNoFinding(t *testing.T) {
	for side := range 2 {
		for _, mode := range []bool{false, true} {
			logs := [2]*disk{many(300), many(300)}
			d := logs[side]
			d.before = func(from int64) error {
				if from >= 200 && d.start == 0 {
					d.start, d.batches, d.last = 450, d.batches[150:], d.last[150:]
				}
				return nil
			}
			r := look(t, logs[0], logs[1], Options{Compacted: mode})
			if r.Wrong() || r.Equal() || !r.Complete || len(r.Uncomparable) != 1 {
				t.Fatalf("%s", &r)
			}
			if u := r.Uncomparable[0]; u.Reason != Retention || u.In != names[side] || u.To != 450 || u.From < 150 {
				t.Errorf("%s", &r)
			}
			if u := r.Uncomparable[0]; 3*r.Bytewise.Batches != u.From+450 {
				t.Errorf("%d batches are proved: %s", r.Bytewise.Batches, &r)
			}
		}
	}
}

func TestALogThatIsCutMeanwhileIsNoMismatch(t *testing.T) {
	a, b := many(300), many(300)
	for i := 250; i < 300; i++ {
		b.batches[i] = write(int64(3*i), "other", "records", "there").bytes()
	}
	a.before = func(from int64) error {
		if from >= 700 {
			a.end, a.batches, a.last = 750, a.batches[:min(250, len(a.batches))], a.last[:min(250, len(a.last))] // an unclean election
		}
		return nil
	}
	r := look(t, a, b, Options{})
	if want := []Uncomparable{{Cut, "a", 750, 900}}; r.Wrong() || !slices.Equal(r.Uncomparable, want) || r.To != 750 || !r.Complete || r.Bytewise.Batches != 250 {
		t.Errorf("%s", &r)
	}
}

func TestWhatIsMendedWhenLookedAtAgainIsNoMismatch(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		a, b := many(50), many(50)
		reads := 0
		good := slices.Clone(b.batches[20])
		b.before = func(int64) error {
			b.batches[20] = slices.Clone(good)
			if reads++; reads < 3 {
				b.batches[20][90]++ // damage on the way
			}
			return nil
		}
		if r := look(t, a, b, Options{Compacted: compacted}); !r.Equal() || r.Bytewise.Batches != 50 || reads < 3 {
			t.Errorf("%d reads: %s", reads, &r)
		}
	}
}

func TestWhatIsAnotherOneEachTimeIsNeitherEqualNorDifferent(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		a, b := many(50), many(50)
		reads := 0
		b.before = func(int64) error {
			reads++
			b.batches[20][90] = byte(reads)
			return nil
		}
		r := look(t, a, b, Options{Compacted: compacted})
		if len(r.Uncomparable) != 1 || r.Uncomparable[0].Reason != Changing || r.Wrong() || r.Equal() || !r.Complete {
			t.Errorf("%s", &r)
		}
		if u := r.Uncomparable[0]; u.From > 60 || u.To < 63 {
			t.Errorf("%s", &r)
		}
	}
}

func TestRemoteStorageThatDoesNotAnswerIsToldAndPassedOver(t *testing.T) {
	a, b := many(300), &remote{disk: many(300), local: 600}
	r := look(t, a, b, Options{})
	if want := []Uncomparable{{Remote, "b", 0, 600}}; r.Wrong() || !slices.Equal(r.Uncomparable, want) || r.Bytewise.Batches != 100 || r.Equal() {
		t.Errorf("%s", &r)
	}
}

type remote struct {
	*disk
	local int64
}

func (r *remote) Bounds(ctx context.Context) (Bounds, error) {
	b, err := r.disk.Bounds(ctx)
	b.Local = r.local
	return b, err
}

func (r *remote) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	if from < r.local {
		return nil, fmt.Errorf("%d: %w", from, ErrRemote)
	}
	return r.disk.Read(ctx, from, most)
}

func TestAnErrorOfASideIsReturnedWithWhatWasProved(t *testing.T) {
	broken := errors.New("disk on fire")
	a, b := many(400), many(400)
	b.before = func(from int64) error {
		if from >= 900 {
			return broken
		}
		return nil
	}
	r, err := Verify(t.Context(), a, b, Options{})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "side b") || !strings.Contains(err.Error(), "orders-3") {
		t.Fatalf("%v", err)
	}
	if r.Complete || r.Equal() || r.Resume == nil || r.At < 500 || r.Bytewise.Batches*3 != r.At {
		t.Fatalf("%s", &r)
	}
	b.before = nil
	if r = look(t, a, b, Options{Resume: r.Resume}); !r.Equal() || r.Bytewise.Batches != 400 || r.From != 0 {
		t.Errorf("%s", &r)
	}
}

func TestAContextThatEndsLeavesWhatWasProvedAndAResumeThatGoesOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a, b := many(400), many(400)
	b.before = func(from int64) error {
		if from >= 600 {
			cancel()
		}
		return nil
	}
	r, err := Verify(ctx, a, b, Options{})
	if !errors.Is(err, context.Canceled) || r.Complete || r.Resume == nil || r.At == 0 || !strings.Contains(r.String(), fmt.Sprintf("looked at up to %d", r.At)) {
		t.Fatalf("%v: %s", err, &r)
	}
	b.before = nil
	b.batches[390][70]++
	if r = look(t, a, b, Options{Resume: r.Resume}); r.Mismatch == nil || r.Mismatch.Offset != 1170 || r.Bytewise.Batches != 390 {
		t.Errorf("%s", &r)
	}
}

// steps verifies in calls that end after each piece; the Resume goes through JSON each time.
func steps(t testing.TB, a, b Side, o Options) (r Report, calls int) {
	t.Helper()
	o.MaxBytes = 1
	for {
		calls++
		r = look(t, a, b, o)
		if r.Resume == nil {
			return r, calls
		}
		text, err := json.Marshal(r.Resume)
		if err != nil {
			t.Fatal(err)
		}
		o.Resume = new(Resume)
		if err := json.Unmarshal(text, o.Resume); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(o.Resume, r.Resume) {
			t.Fatalf("a Resume became another one in JSON:\n%+v\n%+v", r.Resume, o.Resume)
		}
		if calls > 10000 {
			t.Fatalf("no end: %s", &r)
		}
	}
}

func TestManyShortCallsProveWhatOneLongCallProves(t *testing.T) {
	a, b := many(400), many(400).without(100)
	whole := look(t, a, b, Options{Piece: 1000})
	r, calls := steps(t, a, b, Options{Piece: 1000})
	whole.Read, r.Read = 0, 0
	if calls < 20 || !reflect.DeepEqual(r, whole) {
		t.Errorf("%d calls:\n%s\n%s", calls, &r, &whole)
	}
}

func TestAResumeOfAnotherPartitionIsRefused(t *testing.T) {
	other := &Resume{Report: Report{Partition: mirror.TopicPartition{Topic: "others"}}}
	if _, err := Verify(t.Context(), four(), four(), Options{Resume: other}); err == nil || !strings.Contains(err.Error(), "others-0") {
		t.Errorf("%v", err)
	}
}

// slept is a clock on which time passes only while somebody sleeps.
type slept struct {
	now   time.Time
	slept time.Duration
	limit time.Duration // the context ends then
	end   context.CancelFunc
}

func (s *slept) Now() time.Time { return s.now }
func (s *slept) Sleep(ctx context.Context, d time.Duration) error {
	s.now, s.slept = s.now.Add(d), s.slept+d
	if s.limit > 0 && s.slept >= s.limit {
		s.end()
	}
	return ctx.Err()
}

func TestReadingKeepsToTheRate(t *testing.T) {
	a, b := many(2000), many(2000)
	clock := &slept{now: time.Unix(0, 0)}
	r := look(t, a, b, Options{BytesPerSecond: 10000, Clock: clock})
	want := time.Duration(r.Read) * time.Second / 10000
	if !r.Equal() || r.Read != a.bytes+b.bytes || clock.slept < want-10*time.Second || clock.slept > want {
		t.Errorf("%d bytes, %d and %d were read, in %v, want %v", r.Read, a.bytes, b.bytes, clock.slept, want)
	}
	clock.slept = 0
	if look(t, a, b, Options{Clock: clock}); clock.slept != 0 {
		t.Errorf("without a limit it slept %v", clock.slept)
	}
}

func TestEqualLogsAreReadOnce(t *testing.T) {
	a, b := many(40000), many(40000)
	size := int64(0)
	for _, x := range a.batches {
		size += int64(len(x))
	}
	for _, compacted := range []bool{false, true} {
		a.bytes, b.bytes = 0, 0
		r := look(t, a, b, Options{Compacted: compacted})
		if most := size * 115 / 100; !r.Equal() || a.bytes > most || b.bytes > most {
			t.Errorf("of %d bytes, %d and %d were read: %s", size, a.bytes, b.bytes, &r)
		}
	}
}

// near computes its digests itself.
type near struct {
	*disk
	digests int
}

func (n *near) Digest(ctx context.Context, from, to, most int64) (Digest, error) {
	n.digests++
	return DigestOf(ctx, n.disk, from, to, 0, most)
}

func TestDigestsTravelInsteadOfTheData(t *testing.T) {
	a, b := &remoteDigest{near{disk: many(3000)}, 0}, many(3000)
	if r := look(t, a, b, Options{Piece: 20000}); !r.Equal() || a.travelled != 0 || a.digests < 5 {
		t.Errorf("%d digests, %d bytes travelled: %s", a.digests, a.travelled, &r)
	}
	b.batches[2000][100]++
	r := look(t, a, b, Options{Piece: 20000})
	if r.Mismatch == nil || r.Mismatch.Offset != 6000 || r.Mismatch.Byte != 100 || a.travelled > 2*lookChunk {
		t.Errorf("%d bytes travelled: %s", a.travelled, &r)
	}
}

type remoteDigest struct {
	near
	travelled int
}

func (r *remoteDigest) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	b, err := r.disk.Read(ctx, from, most)
	r.travelled += len(b)
	return b, err
}

// A range that was chosen by offsets and has far more bytes than the ones before is digested in parts, so that a limit, a Resume and the end of a context hold there too.
func TestADigestIsBoundedInBytes(t *testing.T) {
	d := many(1)
	last := int64(1 << 30) // a long gap, in which ranges grow
	for i := range 2000 {
		c := write(last+int64(i), "x")
		d.batches, d.last, d.end = append(d.batches, c.bytes()), append(d.last, c.last), c.last+1
	}
	a := &near{disk: d}
	r, calls := steps(t, a, d.clone(), Options{Piece: 4000})
	if !r.Equal() || r.Bytewise.Batches != 2001 || calls < 10 {
		t.Errorf("%d calls: %s", calls, &r)
	}
}

// Where digests differ, bytes decide.
func TestADigestThatIsWrongIsNoMismatch(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		if r := look(t, liar{near{disk: many(10)}}, many(10), Options{Compacted: compacted}); !r.Equal() || r.Bytewise.Batches != 10 {
			t.Errorf("%s", &r)
		}
	}
}

type liar struct{ near }

func (l liar) Digest(ctx context.Context, from, to, most int64) (Digest, error) {
	d, err := l.disk.digest(ctx, from, to, most)
	d.Sum[0]++
	return d, err
}

func (d *disk) digest(ctx context.Context, from, to, most int64) (Digest, error) {
	return DigestOf(ctx, d, from, to, 0, most)
}
