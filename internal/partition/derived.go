package partition

import (
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/txnabort"
)

// derived is what follows from the log's batches: it can always be built again from them.
type derived struct {
	epochs    *logtrunc.Cache
	producers *producerstate.Manager
	upTo      int64     // the log below it has been observed
	recordsAt int64     // where the first batch observed begins, not below the log start
	recordsTo int64     // the end of the last batch observed, at or below the log start: there is none
	resetAt   int64     // offset of the last MIRROR_PID_RESET observed, −1 if none
	aborts    []Marker  // the ABORTs of this episode's stop, whichever process wrote them
	expired   time.Time // when producers were last forgotten for their age
	readUnder int32     // leader epoch of the log when a start read it, −1 none
	dirty     bool      // the log may differ from what was observed: ask for its end before relying on anything
	recovering
	ours

	unsure *unsure // of a cut that failed and may have been done, until the log is seen again

	syncThen   func(*Core)
	replayErr  error
	firstBase  int64 // of the batch looked for by findBatch, −1 not seen
	firstUnder int32 // the leader epoch of that batch
	firstEnds  bool  // that batch is a COMMIT
	foundEpoch int32 // the highest leader epoch of what was read for it, −1 none
	mayHaveCut bool  // something was cut in this episode, by this process or by one before it
	rebuilding bool
}

// ours is what was last known of the log while it was ours. A log whose leadership somebody else takes while it is mirrored is open, and what clients write there must not be
// taken for mirrored.
type ours struct {
	led        int32 // the highest leader epoch under which it was ours, in this episode; clients write under higher ones
	end        int64 // where it ended, −1: this process has not seen it as ours
	replicated int64 // what of it every replica had: no election takes that away
}

func newDerived() derived {
	return derived{epochs: logtrunc.NewCache(), producers: producerstate.New(), resetAt: -1, readUnder: -1, recovering: recovering{highestID: -1}, ours: ours{led: -1, end: -1}}
}

// sawOurs notes the log while it is ours, under a leader epoch that we have it under.
func (c *Core) sawOurs(epoch int32) {
	if c.log.Owner == OwnerOurs {
		c.ours = ours{led: max(c.led, epoch), end: c.log.End, replicated: c.log.Replicated}
	}
}

// writtenFrom is from where on clients may have written in a log that was taken from us.
func (c *Core) writtenFrom() int64 {
	if c.ours.end >= 0 {
		return min(c.upTo, c.ours.end)
	}
	return c.upTo
}

// mirroredEnd is where the copy ends in a log that was taken from us and has been read: below every batch of a leader epoch that was not ours.
func (c *Core) mirroredEnd() int64 {
	end := c.log.End
	if c.ours.end >= 0 {
		end = min(end, c.ours.end)
	}
	for _, e := range c.epochs.Entries() {
		if e.Epoch > c.led {
			return min(end, e.Start)
		}
	}
	return end
}

// setLog takes a new view of the log; who owns it is taken from AskOwner, OpenLog and CloseForWrites only.
func (c *Core) setLog(v LogView) {
	v.Owner = c.log.Owner
	if v.Start > c.log.Start && v.Start <= c.upTo {
		c.epochs.RaiseStart(v.Start)
		c.producers.RaiseStart(v.Start)
	}
	c.log = v
}

// confirmed takes what a view of the log says of its replicas. The end stays, what a view says of it may be old.
func (c *Core) confirmed(v *LogView) {
	c.log.Replicated = max(c.log.Replicated, min(v.Replicated, c.log.End))
}

// askOwner asks the log whose it is and where it ends, takes the answer, and goes on. A log that clients write by now has to be looked into if a cut of it is in doubt: whatever was done, it may end anywhere.
// What they have put in the place of what went is of a higher leader epoch.
func (c *Core) askOwner(then answer) {
	c.ask(Effect{Kind: AskOwner}, func(c *Core, e *Event) {
		if e.Err != nil {
			then(c, e)
			return
		}
		c.sawLog(e)
		if c.unsure == nil {
			then(c, e)
			return
		}
		seen := *e
		c.findBatch(max(c.unsure.cut.From, c.log.Start), func(c *Core, e *Event) {
			if e.Err != nil {
				then(c, e)
				return
			}
			c.tellUnsure(c.firstBase < 0 || c.firstUnder > c.unsure.before.LeaderEpoch)
			then(c, &seen)
		})
	})
}

// sawLog takes the answer to AskOwner.
func (c *Core) sawLog(e *Event) {
	c.setLog(e.Log)
	c.log.Owner = e.Log.Owner
	c.sawOurs(e.Log.LeaderEpoch)
	if u := c.unsure; u != nil && (c.log.Owner != OwnerOpen || c.log.End <= u.cut.From) {
		c.tellUnsure(c.log.Owner == OwnerForeign || u.kind == Reset && (c.log.Start != u.before.Start || c.log.End != u.before.End))
	}
}

// unsure is a Truncate or Reset that was answered with an error, and was not refused as somebody else's log. It has done nothing or all of it (mirror.Log), and what it has done is to be told. Another process
// that has the log by now may have appended to it since: then all that was to go counts as gone.
type unsure struct {
	kind   EffectKind
	before LogView
	ended  int64 // where the last batch did
	cut    Truncation
}

// tellUnsure tells what such a call has done. done: all of it, or nobody can tell any more; otherwise nothing is missing but what lies above the log's end.
func (c *Core) tellUnsure(done bool) {
	u := c.unsure
	c.unsure = nil
	from := c.log.End
	if done {
		from = u.cut.From
	}
	if c.cut = u.cut; from < u.ended {
		c.tellDropped(from, u.before.End)
	}
	if done && u.kind == Reset {
		c.tellLostBefore(u.before)
	}
}

// tellLostBefore tells what a loss may have begun with that was told when a copy was about to begin anew: a leader epoch that has risen beside the call says that somebody led the log in between, and
// what replicas had not confirmed may have gone with that, copied once and not any more.
func (c *Core) tellLostBefore(before LogView) {
	if c.log.LeaderEpoch > before.LeaderEpoch && c.lostTo == c.log.Start && before.Replicated < c.lostFrom {
		c.tellLost(before.Replicated, c.lostTo)
	}
}

// rewindAll forgets everything observed.
func (c *Core) rewindAll() {
	c.epochs.Reset()
	c.producers.Reset(c.log.Start)
	c.recordsAt = c.log.Start
	c.upTo, c.recordsTo, c.resetAt, c.aborts, c.dirty = c.log.Start, c.log.Start, -1, nil, false
	c.from, c.settled, c.told = c.log.Start, c.log.Start, nil
}

// rewind goes back to a log that ends at end. What producerstate no longer knows is observed again by the next sync.
func (c *Core) rewind(end int64) {
	if end <= c.log.Start || c.from > c.log.Start && end < c.settled {
		c.rewindAll()
		return
	}
	c.upTo = c.producers.TruncateTo(min(end, c.upTo))
	c.epochs.TruncateTo(c.upTo)
	c.recordsTo = min(c.recordsTo, c.upTo) // a point that can be gone back to is the end of a batch, the log start, or where the log was read from: then something is read there
	if c.resetAt >= c.upTo {
		c.resetAt = -1
	}
	c.aborts = slices.DeleteFunc(c.aborts, func(m Marker) bool { return m.Offset >= c.upTo })
}

// sync brings what is derived in line with the log as last seen, reading what has to be read, and goes on.
func (c *Core) sync(then func(*Core)) {
	switch {
	case c.log.Start == c.log.End, c.upTo < c.log.Start:
		c.rewindAll()
	case c.dirty || c.upTo > c.log.End:
		c.rewind(c.log.End)
	}
	c.dirty = false
	if c.upTo >= c.log.End {
		then(c)
		return
	}
	c.syncThen, c.rebuilding, c.replayErr = then, true, nil
	if c.cfg.Recovers && c.upTo == c.log.Start {
		c.askRecovered()
		return
	}
	c.readOn()
}

// readOn reads the log from where it is known up to.
func (c *Core) readOn() { c.ask(Effect{Kind: Rebuild, Offset: c.upTo}, (*Core).rebuilt) }

// replayed takes batches of the log. It makes no effect.
func (c *Core) replayed(e *Event) {
	if c.facts != nil {
		c.facts.see(e.Bytes)
		return
	}
	if !c.rebuilding {
		for h, whole := range batch.All(e.Bytes) {
			if c.firstBase < 0 {
				c.firstBase, c.firstUnder = h.BaseOffset, h.LeaderEpoch
			}
			if h.BaseOffset == c.firstBase {
				c.firstEnds = isCommit(&h, whole)
			}
			c.foundEpoch = max(c.foundEpoch, h.LeaderEpoch)
		}
		return
	}
	if c.replayErr != nil {
		return
	}
	b := e.Bytes
	for len(b) > 0 { // what is already known; the batch that holds the log start may begin below it
		h, n, err := batch.Next(b)
		if err != nil {
			c.replayErr = err
			return
		}
		if h.NextOffset() > c.upTo {
			break
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return
	}
	if err := c.producers.Observe(b); err != nil {
		c.replayErr = err
	}
	for h, whole := range batch.All(b) {
		if c.replayErr != nil && h.NextOffset() > c.producers.Next() {
			break
		}
		c.observed(&h, whole)
	}
}

// observed notes a batch that producerstate has taken. Its epoch may have begun where the batch before ends: compaction takes batches away, and of what it took a source that has lost that
// epoch may hold other records. A lower beginning is never wrong, as nothing lies in between.
func (c *Core) observed(h *batch.Header, whole []byte) {
	c.epochs.Assign(h.LeaderEpoch, max(min(h.BaseOffset, c.upTo), c.log.Start))
	switch {
	case !h.Control():
	case txnabort.IsPIDReset(whole):
		c.resetAt = h.BaseOffset
	case c.recorded() && h.BaseOffset >= c.lme.Offset && !c.marked() && isAbort(h, whole):
		c.aborts = append(c.aborts, c.markerOf(h))
	}
	if !c.holdsRecords() {
		c.recordsAt = max(h.BaseOffset, c.log.Start)
	}
	c.upTo = h.NextOffset()
	c.recordsTo = c.upTo
}

// markerOf is an ABORT that was observed. Where its transaction began is not known of a log that was not read as far down.
func (c *Core) markerOf(h *batch.Header) Marker {
	m := Marker{ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, FirstOffset: -1, Offset: h.BaseOffset}
	for _, a := range c.producers.Aborted(h.BaseOffset, h.NextOffset()) {
		if a.LastOffset == h.LastOffset() {
			m.FirstOffset = a.FirstOffset
		}
	}
	return m
}

// holdsRecords says whether there is any batch in the log. A log may reach from 0 to 2 and hold none: a cut went down to a gap.
func (c *Core) holdsRecords() bool { return c.recordsTo > c.log.Start }

// recordsEnd is where the log's last batch ends, or the log starts if it holds none. A log that reaches further ends in a gap, as a cut may leave it.
func (c *Core) recordsEnd() int64 { return max(c.log.Start, c.recordsTo) }

func (c *Core) endsInGap() bool { return c.recordsEnd() < c.log.End }

// firstRecord is the offset below which the log holds nothing that could be compared.
func (c *Core) firstRecord() int64 { return max(c.log.Start, c.recordsAt) }

func (c *Core) rebuilt(e *Event) {
	if e.Err == nil {
		c.confirmed(&e.Log)
	}
	elsewhere := c.wished && c.running && c.target() != c.rec.State
	if e.More && c.upTo < c.log.End && e.Err == nil && c.replayErr == nil && (c.looking || !elsewhere) {
		c.readOn()
		return
	}
	if e.Err == nil && c.replayErr == nil && c.stepBack() {
		return
	}
	c.rebuilding, c.facts = false, nil
	then := c.syncThen
	c.syncThen = nil
	err := e.Err
	if err == nil {
		err = c.replayErr
	}
	if c.looking {
		if err != nil {
			c.dirty = true
		} else {
			c.upTo = max(c.upTo, c.log.End)
		}
		c.looked(err)
		return
	}
	if err != nil {
		c.dirty = true
		if !c.wished || c.target() != c.rec.State {
			c.running = false
			c.evaluate()
			return
		}
		c.fail(fmt.Sprintf("the destination log cannot be read back from %d to %d: %v", c.upTo, c.log.End, err), false)
		return
	}
	if !e.More {
		c.upTo = max(c.upTo, c.log.End)
	}
	if elsewhere { // what is left is read there
		c.evaluate()
		return
	}
	then(c)
}

// observe takes checked batches that are about to be appended. It returns how many of the bytes may be: on an error the batches before the bad one.
func (c *Core) observe(b []byte) (int, error) {
	err := c.producers.Observe(b)
	n := 0
	for h, whole := range batch.All(b) {
		if err != nil && h.NextOffset() > c.producers.Next() {
			break
		}
		c.observed(&h, whole)
		n += len(whole)
	}
	return n, err
}

// findBatch finds where the batch begins that contains an offset inside the log, so that a cut there is known as what it is: the whole batch goes.
func (c *Core) findBatch(offset int64, then answer) {
	c.firstBase, c.firstUnder, c.foundEpoch, c.firstEnds = -1, -1, -1, false
	c.ask(Effect{Kind: Rebuild, Offset: offset, First: true}, then)
}

// applied takes what a call on the log has changed, whether or not its procedure still runs.
func (c *Core) applied(kind EffectKind, e *Event) {
	c.mayHaveCut = c.mayHaveCut || kind == Truncate || kind == Reset
	if e.Err != nil {
		switch kind {
		case Append:
			c.dirty = true
		case Truncate, Reset:
			c.dirty = true
			if !e.Fenced && c.cut.From < c.cut.To {
				c.unsure = &unsure{kind: kind, before: c.log, ended: c.recordsEnd(), cut: c.cut}
			}
		case CloseForWrites:
			c.log.Owner = OwnerOurs // it may have taken effect: whoever wants the gate open has to open it
		}
		return
	}
	before, ended := c.log, c.recordsEnd()
	switch kind {
	case Append:
		c.setLog(e.Log)
		c.sawOurs(c.appendEpoch)
		if c.log.End != c.upTo {
			c.dirty = true
		}
	case Truncate:
		c.setLog(e.Log)
		c.sawOurs(c.led)
		c.rewind(c.log.End)
		c.forgetHole()
		if c.log.End < ended { // not only a gap
			c.tellDropped(c.log.End, before.End)
		}
	case Reset:
		c.log = e.Log
		c.log.Owner = before.Owner
		c.sawOurs(c.led)
		c.rewindAll()
		c.forgetHole()
		if before.Start < ended {
			c.tellDropped(before.Start, before.End)
		}
		c.tellLostBefore(before)
	case RaiseStart:
		c.setLog(e.Log)
		c.dirty = c.dirty || c.log.End != before.End // somebody else has changed it
		if c.log.Start > before.Start {
			c.note(Note{Kind: StartRaised, Offset: c.log.Start})
		}
	case RaiseEpoch:
		c.setLog(e.Log)
		switch {
		case c.log.Owner != OwnerOurs || c.ours.end < 0:
		case c.log.End != before.End || e.Log.Owner == OwnerOpen || e.Log.Owner == OwnerForeign: // somebody writes it
			c.dirty = true
		default:
			c.led = max(c.led, min(c.busyEpoch, c.log.LeaderEpoch)) // what is higher may be somebody else's
		}
		if c.log.LeaderEpoch > before.LeaderEpoch {
			c.note(Note{Kind: EpochRaised, Epoch: c.log.LeaderEpoch})
		}
	case OpenLog:
		c.setLog(e.Log)
		c.log.Owner = OwnerOpen
	case CloseForWrites:
		c.setLog(e.Log)
		c.log.Owner = OwnerOurs
		c.sawOurs(c.log.LeaderEpoch)
	}
}

func (c *Core) tellDropped(from, to int64) {
	if from >= to {
		return
	}
	t := c.cut
	t.From, t.To = from, to
	c.cut = Truncation{}
	c.note(Note{Kind: RecordsDropped, Truncated: t})
}
