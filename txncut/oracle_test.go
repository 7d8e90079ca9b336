package txncut

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const skewOfHistories = 30 // milliseconds; no clock of a history is further ahead

var small = sizes{partitions: 4, producers: 3, transactions: 8, steps: 50, v1: true, ahead: skewOfHistories, lag: true}

// mostVectors bounds what the oracle tries for one history: beyond it, it tries the ends and the markers only, between which nothing changes.
const mostVectors = 3000

func ends(c *CutResult) []int64 {
	var list []int64
	for _, p := range c.Partitions {
		list = append(list, p.Offset)
	}
	return list
}

// TestTheCutIsTheNewest: acceptance's table. Over histories that tear often, every vector of ends is tried, and the cut is the newest of those that tear nothing.
func TestTheCutIsTheNewest(t *testing.T) {
	const seed = 1
	histories := uint64(1500)
	if testing.Short() {
		histories = 300
	}
	options := Options{Skew: skewOfHistories * time.Millisecond}
	var torn, domino, v1, floored, whole, tried int
	for n := range histories {
		h := drawHistory(seeded(seed<<32+n), small)
		partitions := h.partitions()
		candidates := make([][]int64, len(partitions))
		vectors := 1
		for i := range partitions {
			candidates[i] = h.boundaries(i)
			vectors *= len(candidates[i])
		}
		if vectors <= mostVectors {
			whole++
		} else {
			for i := range partitions {
				candidates[i] = []int64{partitions[i].End}
				for _, p := range partitions[i].Pieces {
					if p.Outcome != Open {
						candidates[i] = append(candidates[i], p.MarkerOffset)
					}
				}
			}
		}
		newest, looked := oracle(partitions, candidates, skewOfHistories)
		tried += looked
		c := Cut(partitions, options)
		switch {
		case c.Found() != (newest != nil):
			t.Fatalf("history %d: %v, the oracle says %v of\n%s", n, &c, newest, text(partitions))
		case c.Found() && !slices.Equal(ends(&c), newest):
			t.Fatalf("history %d: %v, the oracle says %v of\n%s", n, &c, newest, text(partitions))
		case !c.Found() && c.Broken != BoundFloor:
			t.Fatalf("history %d: %v", n, &c)
		}
		if !c.Found() {
			floored++
		}
		if len(Find(partitions, options).Torn) > 0 {
			torn++
		}
		if tears(partitions, skewOfHistories) > 1 {
			domino++
		}
		if h.v1 {
			v1++
		}
	}
	share := func(n int) float64 { return 100 * float64(n) / float64(histories) }
	t.Logf("table: seed %d, %d histories of up to %d partitions and %d transactions", seed, histories, small.partitions, small.transactions)
	t.Logf("table: %5.1f %% have torn transactions", share(torn))
	t.Logf("table: %5.1f %% have chains, where what a cut takes away tears others", share(domino))
	t.Logf("table: %5.1f %% have v1 producers", share(v1))
	t.Logf("table: %5.1f %% have no cut above the floors", share(floored))
	t.Logf("table: the cut was the newest of %d vectors; in %5.1f %% of the histories every batch boundary was tried, in the others every marker and end", tried, share(whole))
	if share(torn) < 20 || share(domino) < 5 || share(v1) < 5 || share(floored) < 1 || share(whole) < 20 {
		t.Error("the histories are too tame")
	}
}

// tears counts rounds: how often one has to cut at every commit of what is torn until nothing is, the floors aside.
func tears(partitions []Partition, skew int64) (rounds int) {
	ends := make([]int64, len(partitions))
	for i := range partitions {
		ends[i] = partitions[i].End
	}
	for {
		lower := slices.Clone(ends)
		for a := range partitions {
			for _, x := range partitions[a].Pieces {
				// Alone among what is not kept: is this commit torn?
				alone := slices.Clone(partitions)
				alone[a].Pieces = []Piece{x}
				for b := range alone {
					if b != a {
						alone[b].Pieces = slices.DeleteFunc(slices.Clone(alone[b].Pieces), func(p Piece) bool { return p.kept(ends[b]) })
					}
				}
				if x.kept(ends[a]) && len(naive(alone, ends, skew)) > 0 {
					lower[a] = min(lower[a], x.MarkerOffset)
				}
			}
		}
		if slices.Equal(lower, ends) {
			return rounds
		}
		ends = lower
		rounds++
	}
}

// TestOracleSaysNo: a cut one batch too old and one too new is seen.
func TestOracleSaysNo(t *testing.T) {
	partitions := []Partition{
		{Topic: "a", End: 10, Pieces: []Piece{committed(7, 1, 0, 5, 2)}},
		{Topic: "b", End: 10, Pieces: []Piece{open(7, 1, 3)}},
	}
	newest, tried := oracle(partitions, [][]int64{{0, 5, 10}, {0, 3, 10}}, 0)
	if !slices.Equal(newest, []int64{5, 10}) || tried != 9 {
		t.Fatal(newest, tried)
	}
	if len(naive(partitions, []int64{6, 10}, 0)) != 1 || len(naive(partitions, []int64{5, 10}, 0)) != 0 {
		t.Fatal("the checker does not look")
	}
	partitions[0].Floor = 6
	if newest, _ := oracle(partitions, [][]int64{{0, 5, 10}, {0, 3, 10}}, 0); newest != nil {
		t.Fatal(newest)
	}
}

// checkCut demands of a cut what its contract says: nothing is torn behind it, in what its pieces say, in what is read from logs cut there, nor in truth; no floor is broken; a cut of the
// cut is itself; and each undone piece has a chain of causes.
func checkCut(t fataler, h *history, partitions []Partition, o Options) {
	t.Helper()
	skew := naiveSkew(o)
	c := Cut(partitions, o)
	checkUndone(t, partitions, &c, o)
	if !c.Found() {
		return
	}
	at := ends(&c)
	total := int64(0)
	for i, p := range c.Partitions {
		total += p.GivenUp()
		if p.Offset > partitions[i].End || p.Offset < min(partitions[i].Floor, partitions[i].End) || !slices.Contains(h.boundaries(i), p.Offset) {
			t.Fatalf("cut at %d of %s", p.Offset, text(partitions))
		}
	}
	if total != c.GivenUp || o.MaxGiveUp > 0 && total > o.MaxGiveUp {
		t.Fatalf("gives up %d, says %d, may %d", total, c.GivenUp, o.MaxGiveUp)
	}
	var from []int64
	if o.Skew < 0 { // commits of v1 below a floor are not meant
		for i := range partitions {
			from = append(from, partitions[i].floor())
		}
	}
	if torn := h.truth(at, from); len(torn) > 0 {
		t.Fatalf("cut at %v tears %v of\n%s", at, torn, text(partitions))
	}
	lower := slices.Clone(partitions)
	for i := range lower {
		lower[i].End = at[i]
	}
	for _, again := range [][]Partition{lower, h.at(at)} {
		if torn := naive(again, at, skew); len(torn) > 0 {
			t.Fatalf("cut at %v tears %v of\n%s", at, names(torn), text(again))
		}
		if r := Find(again, o); len(r.Torn) > 0 {
			t.Fatalf("cut at %v, and then\n%v", at, r.Torn)
		}
		if second := Cut(again, o); !second.Found() || second.GivenUp != 0 || len(second.Undone) > 0 || !slices.Equal(ends(&second), at) {
			t.Fatalf("cut at %v, and then\n%v", at, &second)
		}
	}
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkUndone: the list is what the cut takes away, and each entry's cause makes it so.
func checkUndone(t fataler, partitions []Partition, c *CutResult, o Options) {
	t.Helper()
	for i, u := range c.Undone {
		cause, before := u.Cause.Piece, u.Cause.Undone
		switch {
		case before >= i || before < -1:
			t.Fatalf("%d is caused by %d", i, before)
		case before >= 0 && (c.Undone[before].Piece != cause || c.Undone[before].Partition != u.Cause.Partition):
			t.Fatalf("%d names another cause than its own: %+v", i, u)
		case before < 0 && cause.kept(partitions[u.Cause.Partition].End):
			t.Fatalf("%d begins with what is decided: %+v", i, u)
		case before >= 0 && u.Cause.At != c.Undone[before].Marker || before < 0 && u.Cause.At != partitions[u.Cause.Partition].place(cause.FirstOffset):
			t.Fatalf("%d has its cause at another place: %+v", i, u)
		case u.Marker != partitions[u.Partition].place(u.Piece.MarkerOffset) || !slices.Contains(partitions[u.Partition].Pieces, u.Piece):
			t.Fatalf("%d is %+v", i, u)
		case u.Why == Behind && (u.Partition != u.Cause.Partition || cause.MarkerOffset > u.Piece.MarkerOffset):
			t.Fatalf("%d is not behind: %+v", i, u)
		case u.Why == TornBy:
			pair := make([]Partition, len(partitions))
			at := make([]int64, len(partitions))
			for j := range partitions {
				pair[j] = Partition{Floor: partitions[j].Floor, End: partitions[j].End}
				at[j] = partitions[j].End
			}
			pair[u.Partition].Pieces = []Piece{u.Piece}
			undecided := cause
			undecided.Outcome = Open
			pair[u.Cause.Partition].Pieces = append(pair[u.Cause.Partition].Pieces, undecided)
			if torn := naive(pair, at, naiveSkew(o)); len(torn) != 1 || torn[u.Piece.name()] != u.Certainty {
				t.Fatalf("%d is not torn by its cause: %+v", i, u)
			}
		}
		chain := c.Chain(i)
		if chain[0] != u || chain[len(chain)-1].Cause.Undone != -1 {
			t.Fatalf("%d has chain %+v", i, chain)
		}
	}
	if !c.Found() {
		last := c.Undone[len(c.Undone)-1]
		if c.Partitions != nil || last.Why != TornBy || c.Broken == BoundFloor && last.Piece.MarkerOffset >= partitions[last.Partition].Floor ||
			c.Broken == BoundGiveUp && c.GivenUp <= o.MaxGiveUp {
			t.Fatalf("%+v", c)
		}
		return
	}
	for i := range partitions {
		for _, p := range partitions[i].Pieces {
			gone := p.kept(partitions[i].End) && !p.kept(c.Partitions[i].Offset)
			listed := 0
			for _, u := range c.Undone {
				if u.Partition == i && u.Piece == p {
					listed++
				}
			}
			if listed > 1 || gone != (listed == 1) {
				t.Fatalf("%s-%d: %s is listed %d times in\n%v", partitions[i].Topic, partitions[i].Number, pieceText(p), listed, c)
			}
		}
	}
}

func drawOptions(d draw) Options {
	o := Options{Skew: skewOfHistories * time.Millisecond}
	switch d(5) {
	case 0:
		o.Skew = 0 // five minutes: every commit of a history
	case 1:
		o.MaxGiveUp = int64(1 + d(60))
	case 2:
		o.Skew = -1
	}
	return o
}

// TestHistories: long histories, their copies lagging each as it likes.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawn(t)
		h := drawHistory(d, sizes{partitions: 6, producers: 5, transactions: 30, steps: 100, v1: true, ahead: skewOfHistories, lag: true})
		checkCut(t, h, h.partitions(), drawOptions(d))
	})
}

// TestWhatIsTornIsFound: what is torn in truth is found; and of v2 transactions nothing else, each for certain.
func TestWhatIsTornIsFound(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			h := drawHistory(drawn(t), sizes{partitions: 5, producers: 4, transactions: 30, steps: 80, v1: v1, ahead: skewOfHistories, lag: true})
			partitions := h.partitions()
			truth := h.truth(func() (at []int64) {
				for i := range partitions {
					at = append(at, partitions[i].End)
				}
				return at
			}(), nil)
			found := Find(partitions, Options{Skew: skewOfHistories * time.Millisecond}).Torn
			places := map[Place]bool{}
			for _, f := range found {
				for _, p := range f.Committed {
					places[p] = true
				}
				if !v1 && f.Certainty != Certain {
					t.Fatalf("%v", f)
				}
			}
			if !v1 && len(truth) != len(found) {
				t.Fatalf("torn are %v, found %v of\n%s", truth, found, text(partitions))
			}
			for i, l := range h.logs {
				for _, e := range l[:h.copied[i]] {
					if e.outcome == Committed && slices.Contains(truth, e.transaction) && h.had(i, e.transaction) && !places[partitions[i].place(e.base)] {
						t.Fatalf("transaction %d is committed in %d at %d, and torn; found %v of\n%s", e.transaction, i, e.base, found, text(partitions))
					}
				}
			}
		})
	}
}

// had says whether a partition's copy has data of a transaction.
func (h *history) had(partition, transaction int) bool {
	return slices.ContainsFunc(h.logs[partition][:h.copied[partition]], func(e entry) bool { return e.transaction == transaction && e.outcome == Open })
}

// TestCompleteCopiesAreNeverTorn: where the copies have everything, and the source had finished what it was ending, nothing is torn and nothing is unseen; of v1 producers that holds
// where their clocks are right and believed.
func TestCompleteCopiesAreNeverTorn(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			d := drawn(t)
			h := drawHistory(d, sizes{partitions: 5, producers: 4, transactions: 30, steps: 80, v1: v1, quiet: true})
			o := drawOptions(d)
			if v1 {
				o.Skew = 1 // a nanosecond
			}
			partitions := h.partitions()
			if r := Find(partitions, o); len(r.Torn) > 0 || len(r.Unseen) > 0 {
				t.Fatalf("%+v of\n%s", r, text(partitions))
			}
			if c := Cut(partitions, o); !c.Found() || c.GivenUp != 0 || len(c.Undone) > 0 || len(c.Partitions) != len(partitions) {
				t.Fatalf("%v", &c)
			}
		})
	}
}
