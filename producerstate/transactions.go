package producerstate

import (
	"cmp"
	"maps"
	"slices"
)

// openTransactions holds the transactions without a marker.
type openTransactions struct {
	// list is in order of FirstOffset, which is unique among the open. A transaction that ended stays in it until as many have ended as are open:
	// to close the gap at once would make a stop, which ends all from the oldest on, cost the square of their number.
	list  []openTransaction
	ended int // how many in list; never more than are open
	head  int // the oldest one that is open, 0 if there is none
	// orphans are those whose producer entry a MIRROR_PID_RESET took away: producer id → first offset. Elsewhere the entry's OpenSince leads here.
	orphans map[int64]int64
}

type openTransaction struct {
	Transaction
	ended bool
}

func (o *openTransactions) count() int { return len(o.list) - o.ended }

// appendTo appends the open ones to dst, in order of FirstOffset.
func (o *openTransactions) appendTo(dst []Transaction) []Transaction {
	for i := range o.list {
		if t := &o.list[i]; !t.ended {
			dst = append(dst, t.Transaction)
		}
	}
	return dst
}

// find is the place of the open one that begins at first, or where it would go.
func (o *openTransactions) find(first int64) (i int, found bool) {
	i, _ = slices.BinarySearchFunc(o.list, first, func(t openTransaction, first int64) int { return cmp.Compare(t.FirstOffset, first) })
	for ; i < len(o.list) && o.list[i].FirstOffset == first; i++ {
		if !o.list[i].ended {
			return i, true
		}
	}
	return i, false
}

// begin adds a transaction. In log order it starts above all others.
func (o *openTransactions) begin(t Transaction) {
	i, _ := o.find(t.FirstOffset)
	o.list = slices.Insert(o.list, i, openTransaction{Transaction: t})
	o.head = min(o.head, i)
}

// at finds the one that begins at first. It stays valid until the next begin or end.
func (o *openTransactions) at(first int64) *Transaction {
	i, _ := o.find(first)
	return &o.list[i].Transaction
}

func (o *openTransactions) end(first int64) {
	i, found := o.find(first)
	if !found {
		return
	}
	o.list[i].ended = true
	o.ended++
	if o.ended > len(o.list)/2 {
		o.list = slices.DeleteFunc(o.list, func(t openTransaction) bool { return t.ended })
		o.ended, o.head = 0, 0
		return
	}
	for o.list[o.head].ended { // at least half are open
		o.head++
	}
}

// oldest is the first offset of the oldest one, or end if that is lower.
func (o *openTransactions) oldest(end int64) int64 {
	if len(o.list) == 0 {
		return end
	}
	return min(o.list[o.head].FirstOffset, end)
}

// orphan cuts all from their producer entries.
func (o *openTransactions) orphan() {
	if len(o.list) == 0 {
		return
	}
	if o.orphans == nil {
		o.orphans = make(map[int64]int64, o.count())
	}
	for i := range o.list {
		if t := &o.list[i]; !t.ended {
			o.orphans[t.ProducerID] = t.FirstOffset
		}
	}
}

// adopt gives an orphan back to its producer, who must see to it from now on: its first offset, -1 if there is none.
func (o *openTransactions) adopt(producerID int64) int64 {
	first, found := o.orphans[producerID]
	if !found {
		return -1
	}
	delete(o.orphans, producerID)
	return first
}

// forgetBelow drops the transactions whose data lies wholly below start: no reader can meet it. It returns the producers that have nothing open any more.
func (o *openTransactions) forgetBelow(start int64) (producerIDs []int64) {
	o.list = slices.DeleteFunc(o.list, func(t openTransaction) bool {
		switch {
		case t.ended:
			return true
		case t.LastOffset >= start:
			return false
		}
		producerIDs = append(producerIDs, t.ProducerID)
		delete(o.orphans, t.ProducerID)
		return true
	})
	o.ended, o.head = 0, 0
	return producerIDs
}

// copyTo makes dst equal, in dst's own memory.
func (o *openTransactions) copyTo(dst *openTransactions) {
	dst.list = append(dst.list[:0], o.list...)
	dst.ended, dst.head = o.ended, o.head
	dst.orphans = maps.Clone(o.orphans)
}

// maxDecided bounds decidedTransactions.
const maxDecided = 256

// decidedTransactions remembers where decided transactions began, for readers whose end is below the marker.
type decidedTransactions struct {
	// In order of both fields: one that begins not before a later-decided one is hidden by that one and left out.
	list []decided
}

type decided struct {
	first  int64
	marker int64 // last offset of the marker
}

func (d *decidedTransactions) add(first, marker int64) {
	n := len(d.list)
	for n > 0 && d.list[n-1].first >= first {
		n--
	}
	d.list = append(d.list[:n], decided{first, marker})
	if len(d.list) > maxDecided {
		d.coarsen()
	}
}

// coarsen joins neighbours in the older half. A reader there is told to stop too early, never too late.
func (d *decidedTransactions) coarsen() {
	half := len(d.list) / 2 &^ 1
	joined := 0
	for i := 0; i < half; i += 2 {
		d.list[joined] = decided{d.list[i].first, d.list[i+1].marker}
		joined++
	}
	d.list = slices.Delete(d.list, joined, half)
}

// oldest is the first offset of the oldest one that is undecided for a reader that ends at end, or stable if that is lower.
func (d *decidedTransactions) oldest(end, stable int64) int64 {
	i, _ := slices.BinarySearchFunc(d.list, end, func(t decided, end int64) int { return cmp.Compare(t.marker, end) })
	if i == len(d.list) {
		return stable
	}
	return min(d.list[i].first, stable)
}

func (d *decidedTransactions) forgetBelow(start int64) {
	i, _ := slices.BinarySearchFunc(d.list, start, func(t decided, start int64) int { return cmp.Compare(t.marker, start) })
	d.list = slices.Delete(d.list, 0, i)
}
