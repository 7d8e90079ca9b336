package txncut

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/batch"
	"pgregory.net/rapid"
)

// draw gives a number below n.
type draw func(n int) int

// drawn is a source of numbers behind one that is drawn: rapid itself prefers small numbers, with which nothing much happens in a history.
func drawn(t *rapid.T) draw { return seeded(rapid.Uint64().Draw(t, "seed")) }

func seeded(seed uint64) draw {
	r := rand.New(rand.NewPCG(seed, 1))
	return r.IntN
}

// sizes bound a history.
type sizes struct {
	partitions, producers, transactions, steps int
	v1                                         bool // producers may be v1
	ahead                                      int  // by how many milliseconds their clocks are ahead at most
	quiet                                      bool // the source finishes what it is ending before it is lost
	lag                                        bool // copies may lack what came last
}

// entry is one batch of the source's log. transaction is the true one, −1: none.
type entry struct {
	bytes       []byte
	base, next  int64
	transaction int
	outcome     Outcome // of a marker
}

// source makes a history as brokers and producers make one: the coordinator of a transaction writes its marker into each of its partitions, one after the other, with whatever else
// happens in between; and its producer's next one begins when all are written.
type source struct {
	draw
	now          int64
	logs         [][]entry
	producers    []*transactional
	transactions int
	v1           bool // some producer is
}

type transactional struct {
	id          int64
	epoch       int16
	version     Version
	ahead       int64
	transaction int // −1: none
	touched     []int
	ending      []int // partitions that lack the marker
	outcome     Outcome
	markerEpoch int16
	raised      bool // the epoch goes up with the end
}

func (s *source) append(partition int, transaction int, outcome Outcome, build func(base int64) []byte) {
	l := s.logs[partition]
	base := int64(0)
	if len(l) > 0 {
		base = l[len(l)-1].next
	}
	if s.draw(12) == 0 {
		base += 1 + int64(s.draw(3)) // a gap
	}
	b := build(base)
	h, _, err := batch.Next(b)
	if err != nil {
		panic(err)
	}
	s.logs[partition] = append(l, entry{bytes: b, base: base, next: h.NextOffset(), transaction: transaction, outcome: outcome})
}

func (s *source) data(p *transactional, partition int) {
	n := 1 + s.draw(3)
	s.append(partition, p.transaction, Open, func(base int64) []byte {
		return dataBatch(base, base+int64(n)-1, p.id, p.epoch, s.now+p.ahead)
	})
	if !slices.Contains(p.touched, partition) {
		p.touched = append(p.touched, partition)
	}
}

func (s *source) marker(p *transactional) {
	i := s.draw(len(p.ending))
	s.append(p.ending[i], p.transaction, p.outcome, func(base int64) []byte { return markerBatch(base, p.id, p.markerEpoch, p.outcome, s.now) })
	if p.ending = slices.Delete(p.ending, i, i+1); len(p.ending) == 0 {
		p.transaction = -1
		if p.raised {
			p.epoch++
		}
	}
}

func (s *source) step(p *transactional, most int) {
	s.now += int64(1 + s.draw(20))
	switch {
	case s.draw(8) == 0:
		s.append(s.draw(len(s.logs)), -1, Open, func(base int64) []byte { return plainBatch(base, s.now) })
	case len(p.ending) > 0:
		s.marker(p)
	case p.transaction < 0:
		if s.transactions < most {
			p.transaction, p.touched = s.transactions, nil
			s.transactions++
			s.data(p, s.draw(len(s.logs)))
		}
	case s.draw(3) > 0:
		s.data(p, s.draw(len(s.logs)))
	default:
		p.outcome, p.ending = Committed, slices.Clone(p.touched)
		if s.draw(5) == 0 {
			p.outcome = Aborted
		}
		// A coordinator that ends a v1 transaction on its own raises the epoch too.
		p.raised = p.version == Version2 || p.outcome == Aborted && s.draw(2) == 0
		p.markerEpoch = p.epoch
		if p.raised {
			p.markerEpoch++
		}
		if s.draw(6) == 0 { // a partition that was added and never written
			if other := s.draw(len(s.logs)); !slices.Contains(p.ending, other) {
				p.ending = append(p.ending, other)
			}
		}
	}
}

// history is what a source wrote and how much of it the copies have.
type history struct {
	*source
	copied []int // batches of each partition
	floors []int64
}

func drawHistory(d draw, z sizes) *history {
	s := &source{draw: d, now: 1_000_000, logs: make([][]entry, 1+d(z.partitions))}
	for i := range 1 + d(z.producers) {
		p := &transactional{id: int64(7 + i), epoch: int16(d(3)), version: Version2, transaction: -1}
		if z.v1 && d(3) == 0 {
			p.version, s.v1 = Version1, true
		}
		if z.ahead > 0 {
			p.ahead = int64(d(2*z.ahead+1) - z.ahead)
		}
		s.producers = append(s.producers, p)
	}
	for range d(z.steps) + z.steps/2 {
		s.step(s.producers[d(len(s.producers))], z.transactions)
	}
	for _, p := range s.producers {
		for z.quiet && len(p.ending) > 0 {
			s.marker(p)
		}
	}
	h := &history{source: s}
	for _, l := range s.logs {
		have := len(l)
		if z.lag && d(2) == 0 {
			have -= d(min(len(l), 12) + 1)
		}
		floor := int64(0)
		if d(6) == 0 && have > 0 {
			floor = l[d(have)].next
			if d(4) == 0 {
				floor += 100
			}
		}
		h.copied = append(h.copied, have)
		h.floors = append(h.floors, floor)
	}
	return h
}

// end is where a partition's copy ends.
func (h *history) end(partition int) int64 {
	if n := h.copied[partition]; n > 0 {
		return h.logs[partition][n-1].next
	}
	return 0
}

// bytes is a partition's copy as far as it lies below end.
func (h *history) bytes(partition int, end int64) []byte {
	var b []byte
	for _, e := range h.logs[partition][:h.copied[partition]] {
		if e.next <= end {
			b = append(b, e.bytes...)
		}
	}
	return b
}

// boundaries are the offsets to which a partition's copy can be cut, the floor included.
func (h *history) boundaries(partition int) []int64 {
	all := []int64{h.end(partition)}
	for _, e := range h.logs[partition][:h.copied[partition]] {
		all = append(all, e.base)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// at is the copies cut at ends, as whoever reads their bytes sees them.
func (h *history) at(ends []int64) []Partition {
	list := make([]Partition, len(h.logs))
	for i := range list {
		r := NewReader(0)
		if err := r.Observe(h.bytes(i, ends[i])); err != nil {
			panic(err)
		}
		list[i] = Partition{Topic: "t", Number: int32(i), Floor: h.floors[i], End: ends[i], Pieces: r.Pieces(), Complete: true}
	}
	return list
}

func (h *history) partitions() []Partition {
	ends := make([]int64, len(h.logs))
	for i := range ends {
		ends[i] = h.end(i)
	}
	return h.at(ends)
}

// truth says of copies that end at ends whether some transaction is committed in one and, although the copy that was there had data of it, not in another. It knows which data are whose.
// Where from is given, commits below it do not count.
func (h *history) truth(ends, from []int64) (torn []int) {
	committed, missing := map[int]bool{}, map[int]bool{}
	for i := range h.logs {
		had, ended, at := map[int]bool{}, map[int]Outcome{}, map[int]int64{}
		for _, e := range h.logs[i][:h.copied[i]] {
			switch {
			case e.transaction < 0:
			case e.outcome == Open:
				had[e.transaction] = true
			case e.next <= ends[i]:
				ended[e.transaction], at[e.transaction] = e.outcome, e.base
			}
		}
		for t := range had {
			switch ended[t] {
			case Open:
				missing[t] = true
			case Committed:
				committed[t] = committed[t] || from == nil || at[t] >= from[i]
			}
		}
	}
	for t, is := range committed {
		if is && missing[t] {
			torn = append(torn, t)
		}
	}
	slices.Sort(torn)
	return torn
}

// naive says of copies, all up to their ends, which names are torn, as the contract says it, one pair of pieces after the other. Ends may be below the partitions' own.
func naive(partitions []Partition, ends []int64, skew int64) map[name]Certainty {
	torn := map[name]Certainty{}
	for a := range partitions {
		for _, x := range partitions[a].Pieces {
			if x.Outcome != Committed || x.MarkerOffset >= ends[a] {
				continue
			}
			for b := range partitions {
				for _, y := range partitions[b].Pieces {
					if a == b || x.ProducerID != y.ProducerID || x.ProducerEpoch != y.ProducerEpoch || y.Outcome != Open && y.MarkerOffset < ends[b] {
						continue
					}
					key := name{x.ProducerID, x.ProducerEpoch}
					switch v2 := x.MarkerEpoch > x.ProducerEpoch; {
					case v2:
						torn[key] = max(torn[key], Certain)
					case skew < 0 && x.MarkerOffset < min(partitions[a].Floor, partitions[a].End):
					case skew < 0 || x.MarkerTimestamp < 0 || y.FirstTimestamp < 0 || x.MarkerTimestamp >= y.FirstTimestamp-skew:
						torn[key] = Possible
					}
				}
			}
		}
	}
	return torn
}

// oracle looks at every vector of the given ends, each not below its partition's floor, and returns the newest in which nothing is torn, in each partition; tried is how many it looked at.
// newest is nil if something is torn in each.
func oracle(partitions []Partition, candidates [][]int64, skew int64) (newest []int64, tried int) {
	ends := make([]int64, len(partitions))
	var walk func(i int)
	walk = func(i int) {
		if i < len(partitions) {
			for _, e := range candidates[i] {
				if e >= min(partitions[i].Floor, partitions[i].End) {
					ends[i] = e
					walk(i + 1)
				}
			}
			return
		}
		tried++
		if len(naive(partitions, ends, skew)) > 0 {
			return
		}
		if newest == nil {
			newest = slices.Clone(ends)
		}
		for i := range ends {
			newest[i] = max(newest[i], ends[i])
		}
	}
	walk(0)
	return newest, tried
}

func dataBatch(base, last, id int64, epoch int16, timestamp int64) []byte {
	spec := batch.DataSpec{BaseOffset: base, ProducerID: id, ProducerEpoch: epoch, Transactional: true, BaseTimestamp: timestamp}
	for i := range last - base + 1 {
		spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(i), TimestampDelta: i, Value: []byte("v")})
	}
	return batch.AppendData(nil, spec)
}

func plainBatch(base int64, timestamp int64) []byte {
	return batch.AppendData(nil, batch.DataSpec{BaseOffset: base, ProducerID: -1, BaseTimestamp: timestamp, Records: []batch.Record{{Value: []byte("v")}}})
}

func markerBatch(offset, id int64, epoch int16, outcome Outcome, timestamp int64) []byte {
	kind := batch.ControlAbort
	if outcome == Committed {
		kind = batch.ControlCommit
	}
	return controlBatch(offset, id, epoch, kind, timestamp)
}

func controlBatch(offset, id int64, epoch int16, kind batch.ControlType, timestamp int64) []byte {
	return batch.AppendControl(nil, batch.ControlSpec{
		BaseOffset: offset, ProducerID: id, ProducerEpoch: epoch, BaseSequence: -1, Transactional: id >= 0, Timestamp: timestamp,
		Key: binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(kind)), Value: make([]byte, 6),
	})
}

// emptied is the batch as compaction leaves it when all its records are gone.
func emptied(b []byte) []byte {
	b = slices.Clone(b[:batch.HeaderSize])
	binary.BigEndian.PutUint32(b[8:], batch.HeaderSize-12)
	binary.BigEndian.PutUint32(b[57:], 0)
	batch.Seal(b)
	return b
}

// text is partitions as a script has them.
func text(partitions []Partition) string {
	var b strings.Builder
	for i := range partitions {
		p := &partitions[i]
		fmt.Fprintf(&b, "%s-%d floor=%d end=%d complete=%v\n", p.Topic, p.Number, p.Floor, p.End, p.Complete)
		for _, q := range p.Pieces {
			fmt.Fprintf(&b, "  %s\n", pieceText(q))
		}
	}
	return b.String()
}

func pieceText(p Piece) string {
	s := fmt.Sprintf("P%d.%d %d-%d @%d", p.ProducerID, p.ProducerEpoch, p.FirstOffset, p.LastOffset, p.FirstTimestamp)
	switch p.Outcome {
	case Committed:
		s += fmt.Sprintf(" COMMIT %d e%d @%d", p.MarkerOffset, p.MarkerEpoch, p.MarkerTimestamp)
	case Aborted:
		s += fmt.Sprintf(" ABORT %d e%d @%d", p.MarkerOffset, p.MarkerEpoch, p.MarkerTimestamp)
	}
	return s
}

// naiveSkew is how naive and oracle are told of it.
func naiveSkew(o Options) int64 {
	if o.Skew < 0 {
		return -1
	}
	return o.skew()
}

func names(m map[name]Certainty) []name {
	return slices.SortedFunc(maps.Keys(m), func(a, b name) int { return strings.Compare(a.String(), b.String()) })
}
