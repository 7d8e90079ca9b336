package txncut

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// DefaultSkew is how far a producer's clock may be ahead of the brokers' if Options does not say it.
const DefaultSkew = 5 * time.Minute

// Options say how far the evidence is believed, and how much may be given up.
type Options struct {
	// Skew is how far a producer's clock may be ahead of the clocks of the source's brokers. It matters for v1 transactions only: an open piece may belong to a COMMIT of
	// its producer id and epoch unless that was written before the piece began by more than this. 0: DefaultSkew; below a millisecond: none. Negative: clocks are never
	// believed, and every COMMIT of that id and epoch at or above its partition's Floor is meant.
	Skew time.Duration
	// MaxGiveUp is how many offsets a cut may give up, over all partitions. 0: no bound but the floors.
	MaxGiveUp int64
}

// never is the skew in milliseconds that no two times are apart.
const never = math.MaxInt64

func (o Options) skew() int64 {
	switch {
	case o.Skew < 0:
		return never
	case o.Skew == 0:
		return DefaultSkew.Milliseconds()
	}
	return o.Skew.Milliseconds()
}

// Certainty is how sure it is that what is listed as torn is one transaction.
type Certainty uint8

// The certainties. Both are treated alike.
const (
	Certain  Certainty = iota // v2: producer id and epoch name one transaction
	Possible                  // v1: they name many, and times do not tell them apart
)

func (c Certainty) String() string { return [...]string{"torn", "possibly torn"}[c] }

// Torn is a transaction that ends committed in some partitions and aborted in others if the copies are made writable as they are.
type Torn struct {
	ProducerID    int64
	ProducerEpoch int16 // of the data
	Certainty     Certainty
	Committed     []Place // the COMMIT markers; of a v1 producer each one that may be the transaction's
	Missing       []Place // the first offsets of its data where no marker is there
}

// String is one line for a person.
func (t Torn) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v: committed in", t.Certainty, name{t.ProducerID, t.ProducerEpoch})
	appendPlaces(&b, t.Committed)
	b.WriteString("; not in")
	appendPlaces(&b, t.Missing)
	return b.String()
}

func appendPlaces(b *strings.Builder, places []Place) {
	for i, p := range places {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(b, " %v", p)
	}
}

// Unseen is a COMMIT that no log vouches for: its transaction may have data in a partition whose copy has received nothing of them.
type Unseen struct {
	ProducerID    int64
	ProducerEpoch int16
	Commit        Place // the marker
	Behind        Place // the partition whose copy is not complete, the one that reaches back furthest if there are several, and the copy's end
}

// String is one line for a person.
func (u Unseen) String() string {
	return fmt.Sprintf("unseen %v: committed in %v; the copy of %s-%d ends at %d and may lack all of it", name{u.ProducerID, u.ProducerEpoch}, u.Commit,
		u.Behind.Topic, u.Behind.Partition, u.Behind.Offset)
}

// Result is what Find found.
type Result struct {
	Torn []Torn // in order of producer id and epoch
	// Unseen are the commits newer than can be vouched for, in order of the partitions and of their markers. A partition that is not Complete vouches for the commits that were
	// written, by the brokers' clocks and by more than Options.Skew, before its newest marker: their data in it lie below that marker. It vouches for none if it has no marker,
	// or if clocks are not believed. What is Unseen may be torn, and no cut knows where.
	Unseen []Unseen
}

// Find says which transactions are torn if the copies are made writable as they are, each up to its End. It changes nothing and keeps nothing of what it was given.
// Cost: O(n log n) time and O(n) memory for n pieces in all.
func Find(partitions []Partition, o Options) Result {
	g := gather(partitions, o)
	var r Result
	for _, group := range g.inOrder() {
		if t, is := g.torn(group); is {
			r.Torn = append(r.Torn, t)
		}
	}
	ends := make([]int64, len(partitions))
	for i := range partitions {
		ends[i] = partitions[i].End
	}
	r.Unseen = unseen(partitions, ends, o)
	return r
}

// piece is one piece, in the form in which pieces are compared.
type piece struct {
	*Piece
	partition int // its place in what the caller gave
	// strength of a COMMIT is its time, or always where nothing can exclude it. An unkept piece may belong to each COMMIT of its name, in another partition, whose strength is not
	// below the piece's bound: the earliest time at which the transaction can have been committed.
	strength int64
	meant    bool // a COMMIT that counts at all
	bound    int64
}

const always = math.MaxInt64

// group is all pieces of one name: of one transaction under v2, of many under v1.
type group struct {
	name
	pieces []int
}

// gathered is all pieces of all partitions.
type gathered struct {
	partitions []Partition
	pieces     []piece
	groups     []group
	byName     map[name]int
}

func gather(partitions []Partition, o Options) *gathered {
	g := &gathered{partitions: partitions, byName: map[name]int{}}
	skew := o.skew()
	for i := range partitions {
		list := &partitions[i]
		for j := range list.Pieces {
			p := piece{Piece: &list.Pieces[j], partition: i}
			p.bound = max(p.FirstTimestamp, 0) - skew // of an unknown time no COMMIT is too old: none has a strength below 0
			if p.Outcome == Committed {
				p.meant, p.strength = true, always
				switch {
				case p.Version() == Version2:
				case skew == never:
					p.meant = p.MarkerOffset >= list.floor()
				case p.MarkerTimestamp >= 0:
					p.strength = p.MarkerTimestamp
				}
			}
			at, known := g.byName[p.name()]
			if !known {
				at = len(g.groups)
				g.groups = append(g.groups, group{name: p.name()})
				g.byName[p.name()] = at
			}
			g.groups[at].pieces = append(g.groups[at].pieces, len(g.pieces))
			g.pieces = append(g.pieces, p)
		}
	}
	return g
}

func (p *Partition) floor() int64 { return min(p.Floor, p.End) }

func (g *gathered) kept(i int) bool { return g.pieces[i].kept(g.partitions[g.pieces[i].partition].End) }

// inOrder lists the groups by producer id and epoch.
func (g *gathered) inOrder() []group {
	slices.SortFunc(g.groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.producerID, b.producerID), cmp.Compare(a.producerEpoch, b.producerEpoch))
	})
	return g.groups
}

// torn says what of a group is torn, and whether anything is.
func (g *gathered) torn(group group) (t Torn, is bool) {
	least := newExtremes() // bounds of what is not kept
	most := newExtremes()  // strengths of the commits that are kept, as negative numbers, so that the least is the strongest
	for _, i := range group.pieces {
		switch p := &g.pieces[i]; {
		case !g.kept(i):
			least.add(p.bound, p.partition)
		case p.meant:
			most.add(-p.strength, p.partition)
		}
	}
	t = Torn{ProducerID: group.producerID, ProducerEpoch: group.producerEpoch, Certainty: Certain}
	for _, i := range group.pieces {
		p := &g.pieces[i]
		list := &g.partitions[p.partition]
		if !g.kept(i) {
			if strongest, of := most.elsewhere(p.partition); of >= 0 && -strongest >= p.bound {
				t.Missing = append(t.Missing, list.place(p.FirstOffset))
			}
		} else if bound, of := least.elsewhere(p.partition); p.meant && of >= 0 && p.strength >= bound {
			t.Committed = append(t.Committed, list.place(p.MarkerOffset))
			if p.Version() != Version2 {
				t.Certainty = Possible
			}
		}
	}
	return t, len(t.Missing) > 0
}

// extremes keeps the least of some numbers, and the least of those that are of another partition than that one.
type extremes struct {
	least, second    int64
	partition, other int // of least, of second; −1: there is none
}

func newExtremes() extremes { return extremes{partition: -1, other: -1} }

// add takes a number of a partition.
func (e *extremes) add(n int64, partition int) {
	switch {
	case e.partition < 0:
		e.least, e.partition = n, partition
	case e.partition == partition:
		e.least = min(e.least, n)
	case n < e.least:
		e.second, e.other = e.least, e.partition
		e.least, e.partition = n, partition
	case e.other < 0 || n < e.second:
		e.second, e.other = n, partition
	}
}

// elsewhere is the least of the numbers of other partitions than this one, and whose it is, −1 if there is none.
func (e *extremes) elsewhere(partition int) (n int64, of int) {
	if e.partition != partition {
		return e.least, e.partition
	}
	return e.second, e.other
}

// unseen lists the commits below ends for which some partition that is not complete does not vouch.
func unseen(partitions []Partition, ends []int64, o Options) []Unseen {
	skew := o.skew()
	least := newExtremes() // until when the partitions vouch, those that are not complete
	for i := range partitions {
		if partitions[i].Complete {
			continue
		}
		until := int64(math.MinInt64)
		for j := range partitions[i].Pieces {
			if p := &partitions[i].Pieces[j]; p.kept(ends[i]) {
				until = max(until, max(p.MarkerTimestamp, 0)-skew) // an unknown time vouches for none, as each has a time from 0 on
			}
		}
		least.add(until, i)
	}
	var list []Unseen
	for i := range partitions {
		until, behind := least.elsewhere(i)
		if behind < 0 {
			continue
		}
		first := len(list)
		for j := range partitions[i].Pieces {
			if p := &partitions[i].Pieces[j]; p.Outcome == Committed && p.kept(ends[i]) && (p.MarkerTimestamp < 0 || p.MarkerTimestamp >= until) {
				list = append(list, Unseen{ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, Commit: partitions[i].place(p.MarkerOffset), Behind: partitions[behind].place(ends[behind])})
			}
		}
		slices.SortFunc(list[first:], func(a, b Unseen) int { return cmp.Compare(a.Commit.Offset, b.Commit.Offset) })
	}
	return list
}
