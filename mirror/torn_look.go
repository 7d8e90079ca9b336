package mirror

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/txncut"
)

// How much of the copies a look at their transactions reads: of all of them together, but of each as much as tells anything, and for how long.
const (
	lookBytes     = 64 << 20
	lookLeast     = 64 << 10
	lookBound     = 2 * time.Second
	lookAtOnce    = 16
	lookFirst     = 256 // offsets below a copy's end
	lookNoFurther = 8   // by how much more is looked at next
)

// tornNow looks at the copies and says what a stop of these topics tears apart, or has.
func (m *Mirror) tornNow(ctx context.Context, topics []string, skew time.Duration) (t TornTransactions) {
	if look := m.lookAtTransactions(ctx, m.partitions()); look != nil {
		t = look.torn(skew).within(func(tp TopicPartition) bool { return slices.Contains(topics, tp.Topic) })
	}
	return t
}

// partitions are those of all topics, as they are now.
func (m *Mirror) partitions() (all []PartitionStatus) {
	for _, t := range m.Status().Topics {
		all = append(all, t.Partitions...)
	}
	return all
}

// lookAtTransactions reads the newest part of the copies of these partitions, as far as it may. Nil: no transaction is open in any, and none was ended by a stop of this process, so none is torn as far as
// this process knows. It reads copies only, and only those that this process has.
func (m *Mirror) lookAtTransactions(ctx context.Context, partitions []PartitionStatus) *TransactionLook {
	return m.lookWithin(ctx, partitions, lookBytes, lookBound)
}

// lookWithin is lookAtTransactions, of so many bytes and for so long.
func (m *Mirror) lookWithin(ctx context.Context, partitions []PartitionStatus, bytes int, bound time.Duration) *TransactionLook {
	if !slices.ContainsFunc(partitions, func(p PartitionStatus) bool { return len(unended(&p)) > 0 }) {
		return nil
	}
	logs := map[TopicPartition]Log{}
	m.mu.Lock()
	for _, t := range m.topics {
		for _, r := range t.partitions {
			logs[r.tp] = r.log
		}
	}
	m.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, bound)
	defer stop()
	look := &TransactionLook{Taken: time.Now(), Copies: make([]CopyLook, len(partitions)), Readable: m.copiesAreRead()}
	most := max(bytes/max(1, len(partitions)), lookLeast)
	turns := make(semaphore, lookAtOnce)
	var all sync.WaitGroup
	for i := range partitions {
		p, c := &partitions[i], &look.Copies[i]
		c.TopicPartition = TopicPartition{p.Topic, p.Partition}
		c.Start, c.End, c.within = p.Start, copiedEnd(p), bound
		c.Floor = cutFloor(p)
		c.From = c.End
		log, here := logs[c.TopicPartition]
		switch {
		case c.End <= c.Start:
			c.From = c.Start
			continue
		case !here:
			c.Error = "its log is not open here"
			continue
		}
		all.Add(1)
		go func() {
			defer all.Done()
			if err := turns.acquire(ctx); err != nil {
				c.Error = c.lookError(err)
				return
			}
			defer turns.release()
			c.read(ctx, boundedLog{log, m.cfg.CallBound, readChunk}, most, unended(p))
		}()
	}
	all.Wait()
	return look
}

// copiedEnd is where the part of a copy ends that is the source's and counts: a stop cuts what replicas do not confirm, and behind where the mirror ended its own ABORTs and clients follow.
func copiedEnd(p *PartitionStatus) int64 {
	if p.LME != nil && p.LME.Episode == p.Episode {
		return min(p.LME.Offset, p.End)
	}
	return p.Replicated
}

// unended are the transactions of a copy that have no marker of the source: open ones, and those that the last stop ended.
func unended(p *PartitionStatus) (list []Transaction) {
	list = append(list, p.InFlight...)
	if p.State == statemachine.Stopped || p.State == statemachine.Stopping {
		for _, a := range p.Aborts {
			list = append(list, Transaction{a.ProducerID, a.ProducerEpoch, a.FirstOffset, a.FirstOffset})
		}
	}
	end := copiedEnd(p)
	return slices.DeleteFunc(list, func(t Transaction) bool { return t.FirstOffset >= end })
}

// read looks at a copy from its end down: a small part first, then larger ones, as long as the next is expected to fit into what may be read. Open are the transactions that are known to be open at
// its end.
func (c *CopyLook) read(ctx context.Context, log boundedLog, most int, open []Transaction) {
	var found *copyReader
	left, span := int64(most), int64(lookFirst)
	for {
		from := max(c.Start, c.End-span)
		may := left
		if found == nil {
			may = left / 4 // what turns out to be too much leaves something for less
		}
		r, size, err := c.readFrom(ctx, log, from, may)
		left -= size
		if err == nil {
			found, c.From = r, from
		}
		switch {
		case err == nil && (from == c.Start || left < 2*size):
		case err == nil:
			span *= min(lookNoFurther, max(2, left/max(size, 1)/2))
			continue
		case found != nil: // what was read before counts
		case errors.Is(err, errEnough) && span > 1 && left > 0:
			span = max(1, span/lookNoFurther)
			continue
		case !errors.Is(err, errEnough):
			c.Error = c.lookError(err)
		}
		break
	}
	if found != nil {
		c.Pieces, c.edge = found.Pieces(), found.edge
		c.sizes = found.sizes
	}
	c.add(open)
}

// readFrom reads [from, End), if that is no more than most bytes: else the error is errEnough.
func (c *CopyLook) readFrom(ctx context.Context, log boundedLog, from, most int64) (r *copyReader, size int64, err error) {
	r = newCopyReader(from)
	log.most = int(max(1, min(readChunk, most)))
	err = readLog(ctx, log, from, c.End, func(b []byte) error {
		if size += int64(len(b)); size > most {
			return errEnough
		}
		return r.observe(b)
	})
	return r, size, err
}

// copyReader finds the pieces in a part of a copy, and what the part below may hide of them.
type copyReader struct {
	*txncut.Reader
	edge  lookEdge
	sizes []sizeFrom
	begun map[int64]bool // producers of which something was read
}

// lookEdge is what is known of the part of a copy below where a look began.
type lookEdge struct {
	time  int64           // of the first marker that was read, −1: none was. Those below are not newer, by the brokers' clocks
	ended map[int64]int64 // producers whose first batch that was read is a marker, which may end a transaction whose data lie below; with its offset
	wrote map[int64]bool  // producers whose first batch that was read is data of a transaction, which may have begun below
}

// sizeFrom is how much of a copy lies from the marker at Offset on to the next marker.
type sizeFrom struct{ offset, records, bytes int64 }

func newCopyReader(from int64) *copyReader {
	return &copyReader{Reader: txncut.NewReader(from), edge: lookEdge{time: -1, ended: map[int64]int64{}, wrote: map[int64]bool{}}, begun: map[int64]bool{}}
}

func (r *copyReader) observe(batches []byte) error {
	for h, one := range batch.All(batches) {
		if h.Control() {
			r.sizes = append(r.sizes, sizeFrom{offset: h.BaseOffset})
			if r.edge.time < 0 {
				r.edge.time = h.MaxTimestamp
			}
		}
		if n := len(r.sizes); n > 0 {
			last := &r.sizes[n-1]
			last.bytes += int64(len(one))
			if !h.Control() {
				last.records += int64(h.RecordCount)
			}
		}
		if id := h.ProducerID; id >= 0 && h.Transactional() && !r.begun[id] {
			r.begun[id] = true
			if h.Control() {
				r.edge.ended[id] = h.BaseOffset
			} else {
				r.edge.wrote[id] = true
			}
		}
	}
	return r.Observe(batches)
}

// sizeAt is how many records and bytes of what was read lie at or above a marker.
func (c *CopyLook) sizeAt(offset int64) (records, bytes int64) {
	i, _ := slices.BinarySearchFunc(c.sizes, offset, func(s sizeFrom, offset int64) int { return cmp.Compare(s.offset, offset) })
	for _, s := range c.sizes[i:] {
		records, bytes = records+s.records, bytes+s.bytes
	}
	return records, bytes
}

// lookError is why a copy could not be read. The end of the time for a look is no trouble of the copy.
func (c *CopyLook) lookError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "not read within " + c.within.String()
	}
	return err.Error()
}

// add puts in what is known to be open, and began below what was read.
func (c *CopyLook) add(open []Transaction) {
	for _, t := range open {
		i := slices.IndexFunc(c.Pieces, func(p txncut.Piece) bool {
			return p.ProducerID == t.ProducerID && (p.Outcome == txncut.Open || p.MarkerOffset >= c.End)
		})
		switch {
		case i < 0:
			first := max(t.FirstOffset, 0)
			c.Pieces = append(c.Pieces, txncut.Piece{ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch, FirstOffset: first, LastOffset: max(t.LastOffset, first), FirstTimestamp: -1,
				MarkerOffset: -1, MarkerEpoch: -1, MarkerTimestamp: -1})
		case t.FirstOffset >= 0 && t.FirstOffset < c.Pieces[i].FirstOffset:
			c.Pieces[i].FirstOffset, c.Pieces[i].FirstTimestamp = t.FirstOffset, -1 // when it began is not known
		}
	}
}
