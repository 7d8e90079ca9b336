package txncut

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Why says how a piece came to be undone.
type Why uint8

// The reasons.
const (
	TornBy Why = iota // it is a COMMIT, and the cause is, or may be, the same transaction in another partition, without its marker
	Behind            // its marker lies behind the cause's, in the same partition
)

func (w Why) String() string { return [...]string{"torn by", "behind"}[w] }

// Undone is a piece whose marker a cut takes away. A committed one was committed data in the copy; an aborted one will be aborted again by the stop, and is listed because it can
// be the cause of others.
type Undone struct {
	Partition int // its place in what Cut was given
	Piece     Piece
	Marker    Place
	Certainty Certainty // of TornBy

	Why   Why
	Cause Cause
}

// Cause is the piece that led to another one's being undone.
type Cause struct {
	Partition int // its place in what Cut was given
	Piece     Piece
	At        Place // its marker; its first offset where Undone is −1
	Undone    int   // its place in CutResult.Undone, below that of what it led to; −1: it was not decided in the copy to begin with, and with it the chain begins
}

// PartitionCut is where one copy is to end.
type PartitionCut struct {
	Topic  string
	Number int32
	Offset int64 // the copy's end from now on: the LMO. On a batch's boundary, Floor ≤ Offset ≤ End
	End    int64 // where it ended
	// Stable is the last stable offset of the copy before the cut, as far as its pieces tell. Readers on the standby may have seen [Offset, End) if they read uncommitted records, and
	// [Offset, Stable), where that is not empty, if they read committed ones.
	Stable int64
}

// GivenUp is how many offsets the cut gives up here.
func (p PartitionCut) GivenUp() int64 { return p.End - p.Offset }

// Bound is which bound a cut would have broken.
type Bound uint8

// The bounds.
const (
	BoundNone   Bound = iota
	BoundFloor        // a COMMIT that has to go lies below its partition's Floor
	BoundGiveUp       // more than Options.MaxGiveUp offsets would go
)

func (b Bound) String() string {
	return [...]string{"none", "it lies below the floor", "more than may be given up"}[b]
}

// CutResult is what Cut found.
type CutResult struct {
	// Broken is BoundNone if there is a cut. Otherwise there is none within the bounds, and the last of Undone is the piece that led beyond; what to do then is for the
	// caller to say: stop without a cut, as KIP-1279 does, and say so, or refuse.
	Broken Bound
	// Partitions are the newest cut at which nothing is torn, in the order given; nil without one.
	Partitions []PartitionCut
	// GivenUp is how many offsets go, over all partitions; without a cut, how many it was when the search ended.
	GivenUp int64
	// Undone are the pieces whose markers go, in the order in which they were found: what is torn as the copies are comes before what another cut tears.
	Undone []Undone
	// Unseen is as Result.Unseen, of the copies as they are when they are cut; nil without a cut.
	Unseen []Unseen
}

// Found says whether there is a cut.
func (r *CutResult) Found() bool { return r.Broken == BoundNone }

// Chain says why Undone[i] is undone: that piece, what led to it, and so on to the one whose cause was not decided in the copy to begin with.
func (r *CutResult) Chain(i int) []Undone {
	var chain []Undone
	for ; i >= 0; i = r.Undone[i].Cause.Undone {
		chain = append(chain, r.Undone[i])
	}
	return chain
}

// String is some lines for a person: the cut, or why there is none, and each transaction that is undone with its cause.
func (r *CutResult) String() string {
	var b strings.Builder
	switch {
	case !r.Found():
		last := &r.Undone[len(r.Undone)-1]
		fmt.Fprintf(&b, "no cut: the COMMIT of %v in %v would have to go: %v (offsets given up by then: %d)\n", last.Piece.name(), last.Marker, r.Broken, r.GivenUp)
	case r.GivenUp == 0:
		b.WriteString("nothing to cut\n")
	default:
		fmt.Fprintf(&b, "cut: offsets given up: %d\n", r.GivenUp)
	}
	for _, p := range r.Partitions {
		if p.GivenUp() > 0 {
			fmt.Fprintf(&b, "%s-%d at %d: gives up [%d, %d)", p.Topic, p.Number, p.Offset, p.Offset, p.End)
			if p.Stable > p.Offset {
				fmt.Fprintf(&b, ", readers of committed records may have seen [%d, %d)", p.Offset, p.Stable)
			}
			b.WriteString("\n")
		}
	}
	for i, u := range r.Undone {
		fmt.Fprintf(&b, "%d. %v: %v in %v, ", i+1, u.Piece.name(), u.Piece.Outcome, u.Marker)
		switch {
		case u.Why == Behind:
			fmt.Fprintf(&b, "behind %d.\n", u.Cause.Undone+1)
		case u.Cause.Undone >= 0:
			fmt.Fprintf(&b, "%v by %d.\n", u.Certainty, u.Cause.Undone+1)
		default:
			fmt.Fprintf(&b, "%v by what is open in %v\n", u.Certainty, u.Cause.At)
		}
	}
	for _, u := range r.Unseen {
		fmt.Fprintf(&b, "%v\n", u)
	}
	return b.String()
}

// Cut finds the newest cut at which no transaction is torn: the one vector of ends, none above the copies' ends, such that Find finds nothing torn in copies that end there, and every
// other such vector is nowhere newer. It only computes; nothing it was given is changed or kept. Cost: O(n log n) time and O(n) memory for n pieces in all.
func Cut(partitions []Partition, o Options) CutResult {
	c := newCutter(partitions, o)
	c.run()
	c.result.Broken = c.broken
	if c.result.Found() {
		ends := make([]int64, len(partitions))
		for i := range partitions {
			p := &partitions[i]
			ends[i] = c.cut[i]
			c.result.Partitions = append(c.result.Partitions, PartitionCut{Topic: p.Topic, Number: p.Number, Offset: c.cut[i], End: p.End, Stable: p.stable()})
		}
		c.result.Unseen = unseen(partitions, ends, o)
	}
	return c.result
}

// stable is the copy's last stable offset.
func (p *Partition) stable() int64 {
	stable := p.End
	for i := range p.Pieces {
		if !p.Pieces[i].kept(p.End) {
			stable = min(stable, p.Pieces[i].FirstOffset)
		}
	}
	return stable
}

// cutter lowers ends until nothing is torn. A piece whose marker is not below its partition's end is lost. Each lost piece is looked at once: it takes with it the commits that may be its
// transaction's in other partitions, and each of those takes what lies behind it.
type cutter struct {
	*gathered
	most    int64 // how many offsets may go
	cut     []int64
	markers [][]int   // for each partition the pieces with a marker below cut, in order of their markers
	members []members // as groups
	lost    []int     // in the order found
	undone  []int     // each piece's place in result.Undone, −1: none
	broken  Bound
	result  CutResult
}

// members are a group's commits, the strongest first, and what of the group is lost.
type members struct {
	commits []int
	next    int      // those before it are lost, or held
	bounds  extremes // of what is lost
	// held are, from heldNext on, the commits that the least bound would reach if it were not of their own partition; the strongest first. When it becomes another partition's, they go.
	held     []int
	heldNext int
}

func newCutter(partitions []Partition, o Options) *cutter {
	g := gather(partitions, o)
	c := &cutter{
		gathered: g,
		most:     o.MaxGiveUp,
		cut:      make([]int64, len(partitions)),
		markers:  make([][]int, len(partitions)),
		members:  make([]members, len(g.groups)),
		undone:   make([]int, len(g.pieces)),
	}
	for i := range partitions {
		c.cut[i] = partitions[i].End
	}
	for i := range g.pieces {
		c.undone[i] = -1
		if p := &g.pieces[i]; g.kept(i) {
			c.markers[p.partition] = append(c.markers[p.partition], i)
		} else {
			c.lost = append(c.lost, i)
		}
	}
	for _, list := range c.markers {
		slices.SortFunc(list, func(a, b int) int { return cmp.Compare(g.pieces[a].MarkerOffset, g.pieces[b].MarkerOffset) })
	}
	for i := range g.groups {
		m := &c.members[i]
		m.bounds = newExtremes()
		for _, j := range g.groups[i].pieces {
			if g.pieces[j].meant && g.kept(j) {
				m.commits = append(m.commits, j)
			}
		}
		slices.SortFunc(m.commits, func(a, b int) int {
			return cmp.Or(cmp.Compare(g.pieces[b].strength, g.pieces[a].strength), cmp.Compare(a, b))
		})
	}
	return c
}

func (c *cutter) run() {
	for next := 0; next < len(c.lost); next++ {
		cause := c.lost[next]
		for _, i := range c.members[c.byName[c.pieces[cause].name()]].take(c.pieces, cause) {
			if c.undo(i, cause); c.broken != BoundNone {
				return
			}
		}
	}
}

// take lists the commits that go with the lost piece cause and did not go before.
func (m *members) take(pieces []piece, cause int) (taken []int) {
	m.bounds.add(pieces[cause].bound, pieces[cause].partition)
	reaches := func(i int) bool {
		bound, of := m.bounds.elsewhere(pieces[i].partition)
		return of >= 0 && pieces[i].strength >= bound
	}
	for ; m.heldNext < len(m.held) && reaches(m.held[m.heldNext]); m.heldNext++ {
		taken = append(taken, m.held[m.heldNext])
	}
	for ; m.next < len(m.commits) && pieces[m.commits[m.next]].strength >= m.bounds.least; m.next++ {
		if i := m.commits[m.next]; reaches(i) {
			taken = append(taken, i)
		} else {
			m.held = append(m.held, i)
		}
	}
	return taken
}

// undo cuts the partition of commit i at its marker, because of cause.
func (c *cutter) undo(i, cause int) {
	p := &c.pieces[i]
	at := p.partition
	if c.undone[i] >= 0 { // it lay behind another one
		return
	}
	list := c.markers[at]
	n, _ := slices.BinarySearchFunc(list, p.MarkerOffset, func(j int, offset int64) int { return cmp.Compare(c.pieces[j].MarkerOffset, offset) })
	c.lose(i, TornBy, cause)
	c.result.GivenUp += c.cut[at] - p.MarkerOffset
	c.cut[at] = p.MarkerOffset
	switch {
	case p.MarkerOffset < c.partitions[at].floor():
		c.broken = BoundFloor
		return
	case c.most > 0 && c.result.GivenUp > c.most:
		c.broken = BoundGiveUp
		return
	}
	for _, j := range list[n:] {
		if j != i {
			c.lose(j, Behind, i)
		}
	}
	c.markers[at] = list[:n]
}

func (c *cutter) lose(i int, why Why, cause int) {
	p, q := &c.pieces[i], &c.pieces[cause]
	c.undone[i] = len(c.result.Undone)
	u := Undone{
		Partition: p.partition, Piece: *p.Piece, Marker: c.partitions[p.partition].place(p.MarkerOffset), Why: why,
		Cause: Cause{Partition: q.partition, Piece: *q.Piece, At: c.partitions[q.partition].place(q.FirstOffset), Undone: c.undone[cause]},
	}
	if u.Cause.Undone >= 0 {
		u.Cause.At.Offset = q.MarkerOffset
	}
	if why == TornBy && p.Version() != Version2 {
		u.Certainty = Possible
	}
	c.result.Undone = append(c.result.Undone, u)
	c.lost = append(c.lost, i)
}
