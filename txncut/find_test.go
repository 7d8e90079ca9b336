package txncut

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func open(id int64, epoch int16, first int64) Piece {
	return Piece{ProducerID: id, ProducerEpoch: epoch, FirstOffset: first, LastOffset: first, FirstTimestamp: 1000 + first, MarkerOffset: -1, MarkerEpoch: -1, MarkerTimestamp: -1}
}

// committed is a piece at first with its COMMIT at marker, under a marker epoch that says v2 if it is above epoch. Its times are its offsets and 1000.
func committed(id int64, epoch int16, first, marker int64, markerEpoch int16) Piece {
	p := open(id, epoch, first)
	p.Outcome, p.MarkerOffset, p.MarkerEpoch, p.MarkerTimestamp = Committed, marker, markerEpoch, 1000+marker
	return p
}

func aborted(id int64, epoch int16, first, marker int64, markerEpoch int16) Piece {
	p := committed(id, epoch, first, marker, markerEpoch)
	p.Outcome = Aborted
	return p
}

// copies are partitions t-0, t-1 … that end at 100.
func copies(pieces ...[]Piece) []Partition {
	var list []Partition
	for i, p := range pieces {
		list = append(list, Partition{Topic: "t", Number: int32(i), End: 100, Pieces: p, Complete: true})
	}
	return list
}

func at(partition int32, offset int64) Place { return Place{"t", partition, offset} }

const exact = time.Nanosecond // no skew

func TestVersionIsToldByACommitOnly(t *testing.T) {
	for want, pieces := range map[Version][]Piece{
		VersionUnknown: {open(7, 1, 0), aborted(7, 1, 0, 5, 1), aborted(7, 1, 0, 5, 2)},
		Version1:       {committed(7, 1, 0, 5, 1)},
		Version2:       {committed(7, 1, 0, 5, 2), committed(7, 1, 0, 5, 9), committed(7, math.MaxInt16-1, 0, 5, math.MaxInt16)},
	} {
		for _, p := range pieces {
			if got := p.Version(); got != want {
				t.Errorf("%s: %v, want %v", pieceText(p), got, want)
			}
		}
	}
}

func TestATransactionCommittedHereAndOpenThereIsTorn(t *testing.T) {
	got := Find(copies([]Piece{committed(7, 1, 0, 5, 2)}, []Piece{open(7, 1, 3)}, []Piece{committed(7, 1, 2, 9, 2)}, []Piece{open(7, 1, 90)}), Options{})
	want := Result{Torn: []Torn{{ProducerID: 7, ProducerEpoch: 1, Certainty: Certain, Committed: []Place{at(0, 5), at(2, 9)}, Missing: []Place{at(1, 3), at(3, 90)}}}}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v", got)
	}
	if s := got.Torn[0].String(); s != "torn producer 7 epoch 1: committed in t-0 at 5, t-2 at 9; not in t-1 at 3, t-3 at 90" {
		t.Error(s)
	}
}

func TestWhatIsNotTorn(t *testing.T) {
	for what, partitions := range map[string][]Partition{
		"nothing":                               nil,
		"committed everywhere":                  copies([]Piece{committed(7, 1, 0, 5, 2)}, []Piece{committed(7, 1, 3, 9, 2)}),
		"open everywhere":                       copies([]Piece{open(7, 1, 0)}, []Piece{open(7, 1, 3)}),
		"aborted everywhere":                    copies([]Piece{aborted(7, 1, 0, 5, 2)}, []Piece{aborted(7, 1, 3, 9, 2)}),
		"aborted here and open there":           copies([]Piece{aborted(7, 1, 0, 5, 2)}, []Piece{open(7, 1, 3)}),
		"another producer's":                    copies([]Piece{committed(7, 1, 0, 5, 2)}, []Piece{open(8, 1, 3)}),
		"the same producer's next, of v2":       copies([]Piece{committed(7, 1, 0, 5, 2)}, []Piece{open(7, 2, 3)}),
		"one partition's":                       copies([]Piece{committed(7, 1, 0, 5, 2), open(7, 1, 6)}),
		"one partition's, v1":                   copies([]Piece{committed(7, 1, 0, 5, 1), open(7, 1, 2)}),
		"decided differently by the source, v1": copies([]Piece{committed(7, 1, 0, 50, 1)}, []Piece{aborted(7, 1, 3, 40, 1)}),
	} {
		if got := Find(partitions, Options{}); len(got.Torn) != 0 {
			t.Errorf("%s: %v", what, got.Torn)
		}
		if c := Cut(partitions, Options{}); !c.Found() || c.GivenUp != 0 || len(c.Undone) != 0 || len(c.Partitions) != len(partitions) {
			t.Errorf("%s: %v", what, &c)
		}
	}
}

// TestV1IsTornWhereTimesAllowIt: the marker's time against the first timestamp and the skew, to the millisecond.
func TestV1IsTornWhereTimesAllowIt(t *testing.T) {
	commit, piece := committed(7, 1, 0, 5, 1), open(7, 1, 3)
	for _, c := range []struct {
		marker, first int64
		skew          time.Duration
		torn          bool
	}{
		{2000, 2000, exact, true}, {2000, 2001, exact, false}, {2001, 2000, exact, true},
		{2000, 2010, 10 * time.Millisecond, true}, {2000, 2011, 10 * time.Millisecond, false},
		{2000, 302_000, 0, true}, {2000, 302_001, 0, false}, // five minutes
		{2000, 9_000_000, -1, true}, {0, math.MaxInt64, -1, true}, {0, math.MaxInt64, math.MaxInt64, false},
		{-1, 9_000_000, exact, true}, {2000, -1, exact, true}, // nobody knows the time
		{0, 1, exact, false}, {0, 0, exact, true}, {1, 0, exact, true},
	} {
		commit.MarkerTimestamp, piece.FirstTimestamp = c.marker, c.first
		got := Find(copies([]Piece{commit}, []Piece{piece}), Options{Skew: c.skew}).Torn
		if (len(got) == 1) != c.torn {
			t.Errorf("%+v: %v", c, got)
		}
		if len(got) == 1 && (got[0].Certainty != Possible || got[0].String() != "possibly torn producer 7 epoch 1: committed in t-0 at 5; not in t-1 at 3") {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestV1MeansEachCommitThatIsNotTooOld, and v2 each whatever the time.
func TestV1MeansEachCommitThatIsNotTooOld(t *testing.T) {
	list := []Piece{committed(7, 1, 0, 5, 1), committed(7, 1, 10, 15, 1), committed(7, 1, 20, 25, 1)}
	got := Find(copies(list, []Piece{open(7, 1, 15)}), Options{Skew: exact}).Torn
	if len(got) != 1 || !slices.Equal(got[0].Committed, []Place{at(0, 15), at(0, 25)}) || !slices.Equal(got[0].Missing, []Place{at(1, 15)}) {
		t.Fatal(got)
	}
	for i := range list {
		list[i].MarkerEpoch = 2
	}
	if got := Find(copies(list, []Piece{open(7, 1, 15)}), Options{Skew: exact}).Torn; len(got) != 1 || len(got[0].Committed) != 3 || got[0].Certainty != Certain {
		t.Fatal(got)
	}
}

// TestAProducerThatBecameV2: its id and epoch name v1 transactions and a v2 one; where times leave only that one it is certain.
func TestAProducerThatBecameV2(t *testing.T) {
	list := []Piece{committed(7, 1, 0, 5, 1), committed(7, 1, 10, 50, 2)}
	for first, want := range map[int64]Certainty{5: Possible, 6: Certain} {
		if got := Find(copies(list, []Piece{open(7, 1, first)}), Options{Skew: exact}).Torn; len(got) != 1 || got[0].Certainty != want {
			t.Errorf("open since %d: %v", first, got)
		}
	}
}

// TestOnlyWhatIsMissingIsListed: an open piece too new for every commit elsewhere is not, although another one of its name is.
func TestOnlyWhatIsMissingIsListed(t *testing.T) {
	got := Find(copies([]Piece{committed(7, 1, 0, 20, 1)}, []Piece{open(7, 1, 20)}, []Piece{open(7, 1, 21)}), Options{Skew: exact}).Torn
	if len(got) != 1 || !slices.Equal(got[0].Missing, []Place{at(1, 20)}) {
		t.Fatal(got)
	}
}

func TestClocksNeverBelievedMeansCommitsFromTheFloorOn(t *testing.T) {
	partitions := copies([]Piece{committed(7, 1, 0, 5, 1), committed(7, 1, 10, 15, 1), committed(7, 1, 20, 25, 1)}, []Piece{open(7, 1, 90)})
	for floor, want := range map[int64][]Place{0: {at(0, 5), at(0, 15), at(0, 25)}, 15: {at(0, 15), at(0, 25)}, 16: {at(0, 25)}} {
		partitions[0].Floor = floor
		if got := Find(partitions, Options{Skew: -1}).Torn; len(got) != 1 || !slices.Equal(got[0].Committed, want) {
			t.Errorf("floor %d: %v", floor, got)
		}
	}
	partitions[0].Floor = 26
	if got := Find(partitions, Options{Skew: -1}).Torn; len(got) != 0 {
		t.Error(got)
	}
	if c := Cut(partitions, Options{Skew: -1}); !c.Found() {
		t.Error(&c)
	}
	// Of v2 each is meant: the name is the transaction's.
	partitions[0].Pieces = []Piece{committed(7, 1, 0, 5, 2)}
	if got := Find(partitions, Options{Skew: -1}).Torn; len(got) != 1 {
		t.Error(got)
	}
}

// TestWhatLiesAboveTheEndIsNotThere: a marker at the end or above it, as when replicas have not confirmed it.
func TestWhatLiesAboveTheEndIsNotThere(t *testing.T) {
	partitions := copies([]Piece{committed(7, 1, 0, 5, 2)}, []Piece{committed(7, 1, 3, 9, 2)})
	for end, torn := range map[int64]int{10: 0, 9: 1, 2: 1} {
		partitions[1].End = end
		if got := Find(partitions, Options{}).Torn; len(got) != torn {
			t.Errorf("end %d: %v", end, got)
		}
	}
	partitions[0].End, partitions[1].End = 5, 9
	if got := Find(partitions, Options{}).Torn; len(got) != 0 {
		t.Error(got)
	}
}

func TestTornIsInOrderOfProducers(t *testing.T) {
	pieces := []name{{9, 0}, {7, 2}, {8, 0}, {7, 1}}
	var a, b []Piece
	for i, n := range pieces {
		a = append(a, committed(n.producerID, n.producerEpoch, int64(10*i), int64(10*i+1), n.producerEpoch+1))
		b = append(b, open(n.producerID, n.producerEpoch, int64(i)))
	}
	var got []name
	for _, torn := range Find(copies(a, b), Options{}).Torn {
		got = append(got, name{torn.ProducerID, torn.ProducerEpoch})
	}
	if !slices.Equal(got, []name{{7, 1}, {7, 2}, {8, 0}, {9, 0}}) {
		t.Fatal(got)
	}
}

func TestUnseenAreCommitsThatAnIncompleteCopyCannotVouchFor(t *testing.T) {
	partitions := copies(
		[]Piece{committed(7, 1, 0, 5, 2), committed(7, 2, 20, 30, 3), committed(8, 1, 25, 29, 1), aborted(9, 1, 31, 32, 2), open(9, 2, 33)},
		[]Piece{committed(5, 1, 9, 29, 2), committed(5, 2, 40, 99, 3)},
		nil)
	if got := Find(partitions, Options{Skew: exact}).Unseen; len(got) != 0 {
		t.Fatalf("all are complete: %v", got)
	}
	partitions[1].Complete, partitions[1].End = false, 90 // its marker at 99 is not there; the one at 29 was written at 1029
	got := Find(partitions, Options{Skew: exact}).Unseen
	want := []Unseen{
		{ProducerID: 8, ProducerEpoch: 1, Commit: at(0, 29), Behind: at(1, 90)},
		{ProducerID: 7, ProducerEpoch: 2, Commit: at(0, 30), Behind: at(1, 90)},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	if s := got[1].String(); s != "unseen producer 7 epoch 2: committed in t-0 at 30; the copy of t-1 ends at 90 and may lack all of it" {
		t.Error(s)
	}
	// Ten milliseconds between the brokers' clocks are not believed either: 1005 is not before 1029 − 24.
	if got := Find(partitions, Options{Skew: 24 * time.Millisecond}).Unseen; len(got) != 3 {
		t.Errorf("%v", got)
	}
	if got := Find(partitions, Options{Skew: 23 * time.Millisecond}).Unseen; len(got) != 2 {
		t.Errorf("%v", got)
	}
	// Clocks that are never believed vouch for nothing.
	partitions[0].Pieces[0].MarkerTimestamp = 0
	if got := Find(partitions, Options{Skew: -1}).Unseen; len(got) != 3 {
		t.Errorf("%v", got)
	}
	// A commit without a time is vouched for by nobody.
	partitions[0].Pieces[0].MarkerTimestamp = -1
	if got := Find(partitions, Options{Skew: exact}).Unseen; len(got) != 3 {
		t.Errorf("%v", got)
	}
	// One that has no marker vouches for nothing, and is named before the other; it hides its own commits from nobody but the other.
	partitions[2].Complete = false
	got = Find(partitions, Options{Skew: exact}).Unseen
	if len(got) != 4 || got[0].Behind != at(2, 100) || got[3].Commit != at(1, 29) || got[3].Behind != at(2, 100) {
		t.Errorf("%v", got)
	}
	// A COMMIT in the only incomplete copy is vouched for by the others.
	partitions[2].Complete, partitions[0].Pieces = true, nil
	if got := Find(partitions, Options{Skew: exact}).Unseen; len(got) != 0 {
		t.Errorf("%v", got)
	}
	// The first partition may be the one that lags.
	if got := Find([]Partition{{Topic: "t", End: 3}, copies(nil, []Piece{committed(7, 1, 0, 5, 2)})[1]}, Options{}).Unseen; len(got) != 1 || got[0].Behind != at(0, 3) {
		t.Errorf("%v", got)
	}
	// A marker of time 0 is one with a time.
	partitions[0].Pieces = []Piece{committed(7, 1, 0, 5, 2)}
	partitions[0].Pieces[0].MarkerTimestamp = 0
	partitions[1].Pieces = []Piece{aborted(5, 1, 9, 29, 2)}
	for until, want := range map[int64]int{0: 1, 1: 0} {
		if partitions[1].Pieces[0].MarkerTimestamp = until; len(Find(partitions, Options{Skew: exact}).Unseen) != want {
			t.Errorf("vouched until %d", until)
		}
	}
}

func TestExtremesKnowTheLeastOfOtherPartitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, e := drawn(t), newExtremes()
		var all [4][]int64
		for range 12 {
			n, partition := int64(d(8))-4, d(len(all))
			all[partition] = append(all[partition], n)
			e.add(n, partition)
			for partition := range all {
				others := slices.Concat(slices.Concat(all[:partition]...), slices.Concat(all[partition+1:]...))
				least, of := e.elsewhere(partition)
				switch {
				case of < 0 != (len(others) == 0):
					t.Fatalf("of %v: other than %d is %d of %d", all, partition, least, of)
				case of >= 0 && (of == partition || least != slices.Min(others) || !slices.Contains(all[of], least)):
					t.Fatalf("of %v: other than %d is %d of %d", all, partition, least, of)
				}
			}
		}
	})
}

// drawPieces are partitions that no source ever wrote: any pieces, of few names, with any times.
func drawPieces(d draw) []Partition {
	partitions := make([]Partition, 1+d(4))
	for i := range partitions {
		p := Partition{Topic: "t", Number: int32(i), Complete: d(2) == 0}
		offset := int64(0)
		for range d(8) {
			first := offset
			offset += 1 + int64(d(3))
			q := open(int64(7+d(2)), int16(d(2)), first)
			q.LastOffset = offset - 1
			if q.FirstTimestamp = int64(1000 + d(10)); d(12) == 0 {
				q.FirstTimestamp = -1
			}
			if d(4) > 0 {
				q.Outcome, q.MarkerOffset, q.MarkerEpoch = Outcome(1+d(2)), offset, q.ProducerEpoch+int16(d(2))
				if q.MarkerTimestamp = int64(1000 + d(10)); d(12) == 0 {
					q.MarkerTimestamp = -1
				}
				offset++
			}
			p.Pieces = append(p.Pieces, q)
		}
		p.End = offset - int64(d(3))
		if d(4) == 0 {
			p.Floor = int64(d(int(max(p.End, 0)) + 3))
		}
		for j := range p.Pieces { // in any order
			k := d(j + 1)
			p.Pieces[j], p.Pieces[k] = p.Pieces[k], p.Pieces[j]
		}
		partitions[i] = p
	}
	return partitions
}

// TestAnyPieces: whatever the pieces are, Find is the naive checker and Cut the oracle.
func TestAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawn(t)
		for range 30 {
			checkAnyPieces(t, d)
		}
	})
}

func checkAnyPieces(t fataler, d draw) {
	partitions := drawPieces(d)
	o := Options{Skew: [...]time.Duration{exact, 3 * time.Millisecond, 0, -1}[d(4)]}
	given := text(partitions)
	at := make([]int64, len(partitions))
	candidates := make([][]int64, len(partitions))
	for i := range partitions {
		at[i] = partitions[i].End
		candidates[i] = []int64{partitions[i].End}
		for _, p := range partitions[i].Pieces {
			if p.kept(at[i]) {
				candidates[i] = append(candidates[i], p.MarkerOffset)
			}
		}
	}
	found := map[name]Certainty{}
	for _, torn := range Find(partitions, o).Torn {
		found[name{torn.ProducerID, torn.ProducerEpoch}] = torn.Certainty
	}
	if want := naive(partitions, at, naiveSkew(o)); !maps.Equal(found, want) {
		t.Fatalf("found %v, want %v of\n%s", found, want, given)
	}
	c := Cut(partitions, o)
	checkUndone(t, partitions, &c, o)
	if newest, _ := oracle(partitions, candidates, naiveSkew(o)); c.Found() != (newest != nil) || c.Found() && !slices.Equal(ends(&c), newest) {
		t.Fatalf("%v\nthe oracle says %v of\n%s", &c, newest, given)
	}
	bounded := Cut(partitions, Options{Skew: o.Skew, MaxGiveUp: max(1, c.GivenUp)})
	if !reflect.DeepEqual(bounded, c) {
		t.Fatalf("within its own bound %v, without one %v", &bounded, &c)
	}
	if c.Found() && c.GivenUp > 1 {
		if less := Cut(partitions, Options{Skew: o.Skew, MaxGiveUp: c.GivenUp - 1}); less.Broken != BoundGiveUp {
			t.Fatalf("%v with one offset less to give up than\n%v", &less, &c)
		}
	}
	if text(partitions) != given {
		t.Fatalf("the arguments were changed:\n%s\nbecame\n%s", given, text(partitions))
	}
}
