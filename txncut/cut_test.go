package txncut

import (
	"slices"
	"testing"
	"time"
)

func TestTheCutIsAtTheCommitOfWhatIsTorn(t *testing.T) {
	c := Cut(copies([]Piece{committed(7, 1, 0, 5, 2)}, []Piece{open(7, 1, 3)}), Options{})
	want := []PartitionCut{{Topic: "t", Number: 0, Offset: 5, End: 100, Stable: 100}, {Topic: "t", Number: 1, Offset: 100, End: 100, Stable: 3}}
	if !c.Found() || !slices.Equal(c.Partitions, want) || c.GivenUp != 95 || c.Partitions[0].GivenUp() != 95 || c.Partitions[1].GivenUp() != 0 {
		t.Fatalf("%+v", c)
	}
	if len(c.Undone) != 1 || c.Undone[0] != (Undone{
		Partition: 0, Piece: committed(7, 1, 0, 5, 2), Marker: at(0, 5), Why: TornBy, Certainty: Certain,
		Cause: Cause{Partition: 1, Piece: open(7, 1, 3), At: at(1, 3), Undone: -1},
	}) {
		t.Fatalf("%+v", c.Undone)
	}
}

// TestOneCutTearsAnother: what lies behind a cut is undone, and its commits elsewhere with it; the chain says so.
func TestOneCutTearsAnother(t *testing.T) {
	c := Cut(copies(
		[]Piece{committed(7, 1, 0, 5, 2), committed(8, 1, 2, 9, 2)},
		[]Piece{open(7, 1, 3), committed(8, 1, 2, 50, 2), committed(9, 1, 2, 60, 2)},
		[]Piece{committed(9, 1, 2, 70, 2)},
	), Options{})
	if !c.Found() || !slices.Equal(ends(&c), []int64{5, 50, 70}) || c.GivenUp != 95+50+30 || len(c.Undone) != 5 {
		t.Fatalf("%v", &c)
	}
	var why []string
	for _, u := range c.Chain(4) {
		why = append(why, u.Why.String()+" "+u.Marker.String())
	}
	if !slices.Equal(why, []string{"torn by t-2 at 70", "behind t-1 at 60", "torn by t-1 at 50", "behind t-0 at 9", "torn by t-0 at 5"}) {
		t.Fatal(why)
	}
	if chain := c.Chain(0); len(chain) != 1 {
		t.Fatal(chain)
	}
}

// TestAnAbortThatIsCutAwayIsForgotten: behind the cut nobody can tell any more how its transaction ended, and of a v1 producer it may be any.
func TestAnAbortThatIsCutAwayIsForgotten(t *testing.T) {
	partitions := copies(
		[]Piece{committed(7, 1, 0, 5, 2), aborted(8, 1, 1, 6, 1)},
		[]Piece{open(7, 1, 3), committed(8, 1, 2, 50, 1)},
	)
	c := Cut(partitions, Options{Skew: exact})
	if u := c.Undone; !slices.Equal(ends(&c), []int64{5, 50}) || u[1].Piece.Outcome != Aborted || u[1].Certainty != Certain || u[2].Cause.Undone != 1 || u[2].Certainty != Possible {
		t.Fatalf("%v", &c)
	}
}

func TestNoCutBelowAFloor(t *testing.T) {
	partitions := copies([]Piece{committed(7, 1, 0, 5, 2)}, []Piece{open(7, 1, 3)})
	for floor, want := range map[int64]Bound{0: BoundNone, 5: BoundNone, 6: BoundFloor, 200: BoundFloor} {
		partitions[0].Floor = floor
		c := Cut(partitions, Options{})
		if c.Broken != want || c.Found() != (want == BoundNone) {
			t.Fatalf("floor %d: %v", floor, &c)
		}
		if !c.Found() && (c.Partitions != nil || c.Unseen != nil || len(c.Undone) != 1 || c.Undone[0].Marker != at(0, 5)) {
			t.Fatalf("%+v", c)
		}
	}
}

func TestMaxGiveUpCountsAllPartitions(t *testing.T) {
	partitions := copies([]Piece{committed(7, 1, 0, 60, 2)}, []Piece{open(7, 1, 3)}, []Piece{committed(7, 1, 0, 80, 2)})
	for most, want := range map[int64]Bound{0: BoundNone, 60: BoundNone, 61: BoundNone, 59: BoundGiveUp, 1: BoundGiveUp} {
		c := Cut(partitions, Options{MaxGiveUp: most})
		if c.Broken != want {
			t.Fatalf("at most %d: %v", most, &c)
		}
		if last := c.Undone[len(c.Undone)-1]; most == 59 && (last.Marker != at(2, 80) || c.GivenUp != 60) {
			t.Fatalf("%v", &c)
		}
	}
}

func TestWhatTheCutCannotVouchFor(t *testing.T) {
	partitions := copies([]Piece{committed(7, 1, 0, 5, 2), committed(8, 1, 0, 3, 2)}, []Piece{open(7, 1, 3)}, nil)
	partitions[2].Complete = false
	c := Cut(partitions, Options{})
	if len(c.Unseen) != 1 || c.Unseen[0].Commit != at(0, 3) || c.Unseen[0].Behind != at(2, 100) {
		t.Fatalf("%v", &c)
	}
}

func TestBoundsAndReasonsHaveNames(t *testing.T) {
	for got, want := range map[string]string{
		BoundNone.String(): "none", BoundFloor.String(): "it lies below the floor", BoundGiveUp.String(): "more than may be given up",
		TornBy.String(): "torn by", Behind.String(): "behind", Open.String(): "open", Committed.String(): "committed", Aborted.String(): "aborted",
		VersionUnknown.String(): "unknown", Version1.String(): "v1", Version2.String(): "v2", Certain.String(): "torn", Possible.String(): "possibly torn",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestManyPieces: the cost of many transactions of one name, each torn by all that follow, is not the square of their number. (Were it, this would take many minutes.)
func TestManyPieces(t *testing.T) {
	const each = 20_000
	partitions := make([]Partition, 4)
	for i := range partitions {
		partitions[i] = Partition{Topic: "t", Number: int32(i), End: 2 * each}
		for j := range int64(each) {
			p := committed(7, 1, 2*j, 2*j+1, 1)
			p.FirstTimestamp, p.MarkerTimestamp = 10*j, 10*j+9
			partitions[i].Pieces = append(partitions[i].Pieces, p)
		}
	}
	partitions[2].Pieces = append(partitions[2].Pieces, open(7, 1, 2*each-1))
	partitions[2].Pieces[each].FirstTimestamp = 10 * each
	// Times that are not believed by one millisecond reach one transaction back, and so on to the first.
	for skew, want := range map[time.Duration]int{exact: 0, time.Millisecond: 4 * each, -1: 4 * each} {
		c := Cut(partitions, Options{Skew: skew})
		if len(c.Undone) != want {
			t.Fatalf("skew %v: %d are undone, want %d", skew, len(c.Undone), want)
		}
	}
}
