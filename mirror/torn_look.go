package mirror

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

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
	ctx, stop := context.WithTimeout(ctx, lookBound)
	defer stop()
	look := &TransactionLook{Taken: time.Now(), Copies: make([]CopyLook, len(partitions))}
	most := max(lookBytes/max(1, len(partitions)), lookLeast)
	turns := make(semaphore, lookAtOnce)
	var all sync.WaitGroup
	for i := range partitions {
		p, c := &partitions[i], &look.Copies[i]
		c.TopicPartition = TopicPartition{p.Topic, p.Partition}
		c.Start, c.End = p.Start, copiedEnd(p)
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
				c.Error = lookError(err)
				return
			}
			defer turns.release()
			c.read(ctx, boundedLog{log, m.cfg.CallBound, readChunk}, most, unended(p))
		}()
	}
	all.Wait()
	look.keepUnended()
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
	var found *txncut.Reader
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
			c.Error = lookError(err)
		}
		break
	}
	if found != nil {
		c.Pieces = found.Pieces()
	}
	c.add(open)
}

// readFrom reads [from, End), if that is no more than most bytes: else the error is errEnough.
func (c *CopyLook) readFrom(ctx context.Context, log boundedLog, from, most int64) (r *txncut.Reader, size int64, err error) {
	r = txncut.NewReader(from)
	log.most = int(max(1, min(readChunk, most)))
	err = readLog(ctx, log, from, c.End, func(b []byte) error {
		if size += int64(len(b)); size > most {
			return errEnough
		}
		return r.Observe(b)
	})
	return r, size, err
}

// lookError is why a copy could not be read. The end of the time for a look is no trouble of the copy.
func lookError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "not read within " + lookBound.String()
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

// keepUnended keeps the pieces of transactions that are open in some copy: of the others nothing can be torn.
func (l *TransactionLook) keepUnended() {
	type name struct {
		id    int64
		epoch int16
	}
	unended := map[name]bool{}
	for _, c := range l.Copies {
		for _, p := range c.Pieces {
			if p.Outcome == txncut.Open || p.MarkerOffset >= c.End {
				unended[name{p.ProducerID, p.ProducerEpoch}] = true
			}
		}
	}
	for i := range l.Copies {
		l.Copies[i].Pieces = slices.DeleteFunc(l.Copies[i].Pieces, func(p txncut.Piece) bool { return !unended[name{p.ProducerID, p.ProducerEpoch}] })
	}
}
