package partition

import (
	"fmt"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/txnabort"
)

// Recovered is what a log says of its batches below From, without their being read (mirror.Recovered).
type Recovered struct {
	From              int64
	Epochs            []logtrunc.Entry
	HighestProducerID int64
}

// recovering is what is known of a log that was not read whole.
//
// Its lower part, below from, is known by what the log said when it was asked: epochs, the highest producer id, and that every transaction with a batch there had been ended by a
// marker below what was replicated then. Nobody needs the rest of the producers there: nothing is checked against an unknown producer, and a marker of one closes nothing. A cut that leaves at
// least settled takes away no such marker, so the state from there on is gone back to as usual; after a deeper one the log is asked again.
type recovering struct {
	from      int64 // the log below it was not read; at or below the log start: all of it was
	settled   int64
	highestID int64  // of the producer ids that a log told of, −1 none
	facts     *facts // being gathered, nil if none are
	told      *facts // what counts, nil if the log is known by its batches alone
}

// facts are gathered one after the other, and count together or not at all.
type facts struct {
	Recovered
	settled int64
	first   int64 // where the log's first batch begins, −1 if there is none
	// The marks of the last stop, ABORTs and the MIRROR_PID_RESET, lie at its last mirror offset or shortly after it, with nothing in between.
	marks   bool  // they are being looked for, from next on
	next    int64 // behind the ABORTs seen so far
	aborts  []Marker
	over    bool  // the batch behind them was seen
	resetAt int64 // it was the reset; −1 it was not
}

// askRecovered asks the log what need not be read.
func (c *Core) askRecovered() { c.ask(Effect{Kind: AskRecovered}, (*Core).recovered) }

func (c *Core) recovered(e *Event) {
	if e.Err != nil {
		c.rebuilt(e)
		return
	}
	c.confirmed(&e.Log) // of what lies below From nothing is known but that it had ended there: readers come no less far
	k := e.Recovered
	if why := k.contradicts(&e.Log); why != "" {
		c.note(Note{Kind: LogDoubted, Message: fmt.Sprintf("what the destination log says of itself is not believed: %s; it is read whole", why)})
		c.readOn()
		return
	}
	k.From = min(k.From, c.log.End-1) // the last batch is read in any case: it may be a reset that was mirrored, and then serves for ours
	if k.From <= c.log.Start {
		c.readOn()
		return
	}
	c.facts = &facts{Recovered: k, settled: max(k.From, e.Log.Replicated), first: -1, next: c.log.Start, resetAt: -1}
	c.look(c.log.Start, func(c *Core) {
		if c.lme == nil || c.lme.Offset < 0 {
			c.recall()
			return
		}
		c.facts.marks, c.facts.next = true, max(c.lme.Offset, c.log.Start)
		c.lookForMarks()
	})
}

// contradicts says what cannot be true of a log that looks like this, "" if all of it can.
func (k *Recovered) contradicts(v *LogView) string {
	if k.From < v.Start || k.From > v.End {
		return fmt.Sprintf("it is to be read from %d on, but reaches from %d to %d", k.From, v.Start, v.End)
	}
	last := logtrunc.Entry{Epoch: -1, Start: -1}
	for _, e := range k.Epochs {
		if e.Epoch <= last.Epoch || e.Start <= last.Start {
			return fmt.Sprintf("its leader epochs do not rise: epoch %d starts at %d after epoch %d at %d", e.Epoch, e.Start, last.Epoch, last.Start)
		}
		last = e
	}
	return ""
}

// look has a few batches read, beginning with the one that holds offset.
func (c *Core) look(offset int64, then func(*Core)) {
	c.ask(Effect{Kind: Rebuild, Offset: offset, First: true}, func(c *Core, e *Event) {
		if e.Err != nil {
			c.rebuilt(e)
			return
		}
		then(c)
	})
}

// lookForMarks follows the ABORTs of the last stop until the batch behind them is seen. From where the log is read anyway nothing needs to be looked for.
func (c *Core) lookForMarks() {
	f, at := c.facts, c.facts.next
	if f.over || at >= min(f.From, c.log.End) {
		c.recall()
		return
	}
	c.look(at, func(c *Core) {
		f.over = f.over || f.next == at // a gap up to the end
		c.lookForMarks()
	})
}

// see takes batches that were looked for.
func (f *facts) see(b []byte) {
	for h, whole := range batch.All(b) {
		if !f.marks {
			if f.first < 0 {
				f.first = h.BaseOffset
			}
			return
		}
		switch {
		case f.over, h.NextOffset() <= f.next:
		case isAbort(&h, whole):
			f.next = h.NextOffset()
			f.aborts = append(f.aborts, Marker{ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, FirstOffset: -1, Offset: h.BaseOffset})
		default:
			f.over = true
			if h.Control() && txnabort.IsPIDReset(whole) && h.BaseOffset >= f.next {
				f.resetAt = h.BaseOffset
			}
		}
	}
}

// isAbort says that a batch is an ABORT, or a control batch that compaction has emptied.
func isAbort(h *batch.Header, whole []byte) bool {
	if !h.Control() || h.RecordCount == 0 {
		return h.Control()
	}
	control, err := batch.ReadControl(whole, h)
	return err == nil && control.Type == batch.ControlAbort
}

// isCommit says that a batch ends a transaction with COMMIT.
func isCommit(h *batch.Header, whole []byte) bool {
	if !h.Control() || h.RecordCount == 0 {
		return false
	}
	control, err := batch.ReadControl(whole, h)
	return err == nil && control.Type == batch.ControlCommit
}

// recall takes the facts over, all at once, and reads the rest of the log.
func (c *Core) recall() {
	f := c.facts
	c.facts = nil
	c.believe(f)
}

func (c *Core) believe(f *facts) {
	c.rewindAll()
	c.highestID = max(c.highestID, f.HighestProducerID)
	if f.From <= c.log.Start { // it was raised meanwhile
		c.readOn()
		return
	}
	// An epoch whose first batches compaction took may be said to begin with the first that is left, which is later than observed would have it. A cut that comes of this ends in the gap before that batch,
	// and the gap is cut too before anything is fetched (align): nothing that the source has in it is passed over.
	for _, e := range f.Epochs {
		if e.Start < f.From {
			c.epochs.Assign(e.Epoch, max(e.Start, c.log.Start))
		}
	}
	c.told = f
	c.producers.Reset(f.From)
	c.from, c.settled, c.upTo, c.resetAt = f.From, f.settled, f.From, f.resetAt
	if c.recorded() {
		for _, m := range f.aborts {
			if m.Offset < f.From {
				c.aborts = append(c.aborts, m)
			}
		}
	}
	if f.first >= 0 && f.first < f.From {
		c.recordsAt, c.recordsTo = max(f.first, c.log.Start), f.From
	}
	c.readOn()
}

// readMore reads twice as much of a log that was not read whole, and goes on; false: all of it was read.
func (c *Core) readMore(then func(*Core)) bool {
	if !c.readFurther() {
		return false
	}
	c.syncThen, c.rebuilding, c.replayErr = then, true, nil
	return true
}

// stepBack reads from a lower offset when the log holds nothing from where it was read on: it ends in a gap, as a cut may leave it, and its last batch is not known. The gap is
// doubled until that is reached.
func (c *Core) stepBack() bool { return c.upTo <= c.from && c.readFurther() }

// readFurther begins to read anew, twice as far down as before, a log that has told what of it need not be read; false: all of it was read.
func (c *Core) readFurther() bool {
	f := c.told
	if f == nil || c.from <= c.log.Start {
		return false
	}
	f.From = c.log.End - max(1, 2*(c.log.End-c.from))
	c.believe(f)
	return true
}

// highestProducerID is at least the highest producer id of any batch in the log, −1 if there is none.
func (c *Core) highestProducerID() int64 {
	return max(c.highestID, c.producers.HighestProducerID())
}
