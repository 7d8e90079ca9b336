package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/statemachine"
)

// verdictKind is what follows after the good batches of a reply.
type verdictKind uint8

const (
	goOn         verdictKind = iota
	refetch                  // a bad checksum: damage in transit heals
	failed                   // message, nonRetryable
	refreshEpoch             // a batch of an epoch above the one asked under: the metadata is old (F-38)
	aboveEnd                 // a batch beyond the source's end: once it may be a broker that was quick, then it is damage
	fenceFirst               // a batch of an epoch above the destination's
	parted                   // a batch of an epoch below that of the one before it: no log has that, so the two logs part (decision 15)
)

// looksAgain says that the source is looked at anew before anything else is taken from it.
func (k verdictKind) looksAgain() bool { return k == refreshEpoch || k == parted }

// verdict is the gate's word on what comes after the last batch that was let through.
type verdict struct {
	kind         verdictKind
	message      string
	nonRetryable bool
	epoch        int32
}

// fetched handles one reply. Whoever answers must have been asked: the token was checked.
func (c *Core) fetched(e *Event) {
	f := &e.Fetch
	if f.Code != FetchOK {
		c.fetchRefused(f)
		return
	}
	if f.Offset != c.position() {
		c.next(c.backoff(1))
		return
	}
	c.denied, c.holeEnd = false, 0
	if impossibleEnds(f.LogStart, f.HighWatermark) {
		f.LogStart = -1 // nothing is concluded from it; the records speak for themselves
	}
	c.learnEnds(f.LogStart, f.HighWatermark)
	if f.LogStart > c.position() {
		c.again(fmt.Sprintf("the source's log starts at %d, above our offset %d, and answers the fetch all the same", f.LogStart, c.position()))
		return
	}
	c.fetchTries, c.waiting = 0, ""
	good, v := c.gate(f)
	if len(good) > 0 || !v.kind.looksAgain() { // looks that bring nothing are counted on, or they would never end
		c.tries = 0
	}
	if len(good) == 0 {
		c.verdict = v
		c.nothingWhole(f)
		c.processed()
		return
	}
	n, err := c.observe(good)
	if err != nil {
		v = verdict{kind: failed, message: fmt.Sprintf("the source's log cannot be followed: %v; look at the partition at the source, or start over from a later offset", err)}
		if n == 0 {
			c.fail(v.message, false)
			return
		}
		good = good[:n:n]
	}
	c.verdict = v
	c.append(good, (*Core).appended)
}

// gate checks the batches of a reply in order and returns the ones that may be appended: a slice of the reply. What stands behind them is in the verdict.
func (c *Core) gate(f *Fetch) ([]byte, verdict) {
	b, next, latest := f.Records, c.position(), c.epochs.Latest()
	begin, end := 0, 0
	empty := c.log.Start == c.log.End && next == c.log.End
	for end < len(b) {
		h, size, err := batch.Next(b[end:])
		if errors.Is(err, batch.ErrCut) {
			if begin == end && c.cfg.MaxBatch > 0 && f.CutBatch > c.cfg.MaxBatch {
				return nil, c.tooLarge(next, int64(f.CutBatch))
			}
			break
		}
		if err != nil {
			return b[begin:end:end], unreadable(err, next)
		}
		whole := b[end : end+size]
		if h.BaseOffset < next {
			switch {
			case begin < end:
				return b[begin:end:end], verdict{kind: failed, message: fmt.Sprintf("the source sent a batch at %d behind one that ends at %d; it is fetched again", h.BaseOffset, next)}
			case h.LastOffset() < next: // a broker answers from the batch that holds the offset, and a compacted one may end below it
				if err := batch.Check(whole, &h); err != nil { // damage may make a batch look as if it ended below
					return nil, unreadable(err, next)
				}
				begin, end = end+size, end+size
				continue
			case !empty && h.BaseOffset < c.log.End && c.endsInGap() && c.remotePart(c.recordsEnd()): // align cuts such a gap, where it can
				return nil, verdict{kind: failed, message: c.remoteMessage(c.recordsEnd()), nonRetryable: true}
			case !empty && h.BaseOffset < c.log.End:
				return nil, verdict{kind: failed, message: fmt.Sprintf("destination diverged at %d: the source has one batch [%d, %d] there, we end inside it; the logs are compared again", next, h.BaseOffset, h.LastOffset())}
			}
			// F-07: the source's log start lies inside the batch, which is kept whole.
		}
		if err := batch.Check(whole, &h); err != nil {
			return b[begin:end:end], unreadable(err, next)
		}
		c.filledHole(h.BaseOffset)
		if c.cfg.MaxBatch > 0 && size > int(c.cfg.MaxBatch) {
			return b[begin:end:end], c.tooLarge(h.BaseOffset, int64(size))
		}
		if h.LastOffset() > maxOffset {
			return b[begin:end:end], verdict{kind: failed, message: fmt.Sprintf("batch at %d ends at %d: behind it there is no offset left for the markers that end a mirror; look at the partition at the source", h.BaseOffset, h.LastOffset())}
		}
		if f.HighWatermark >= 0 && h.LastOffset() >= f.HighWatermark {
			// The checksum does not cover the base offset. A consumer's fetch ends at the high watermark, but a broker may raise it between noting it and reading; the
			// next reply shows which it was.
			if begin < end {
				return b[begin:end:end], verdict{}
			}
			return nil, verdict{kind: aboveEnd, message: fmt.Sprintf("batch at %d lies at or above the source's own high watermark %d", h.BaseOffset, f.HighWatermark)}
		}
		if f.LeaderEpoch >= 0 && h.LeaderEpoch > f.LeaderEpoch {
			return b[begin:end:end], verdict{kind: refreshEpoch, epoch: h.LeaderEpoch}
		}
		if h.LeaderEpoch > c.log.LeaderEpoch {
			return b[begin:end:end], verdict{kind: fenceFirst, epoch: h.LeaderEpoch}
		}
		if h.LeaderEpoch < latest {
			return b[begin:end:end], verdict{kind: parted, message: cannotProve(fmt.Sprintf("the source has a batch of epoch %d at %d, behind one of epoch %d", h.LeaderEpoch, h.BaseOffset, latest))}
		}
		next, latest = h.NextOffset(), h.LeaderEpoch
		end += size
		empty = false
	}
	return b[begin:end:end], verdict{}
}

// maxOffset leaves room for the batches that end a mirror.
const maxOffset = 1<<63 - 1 - 1<<32

// impossibleEnds says that a log start and a high watermark cannot be a log's: nothing may be concluded from either.
func impossibleEnds(start, end int64) bool { return start >= 0 && end >= 0 && start > end }

func (c *Core) tooLarge(offset, size int64) verdict {
	return verdict{kind: failed, message: fmt.Sprintf("batch at %d is %d bytes, limit %d; raise the destination's max.message.bytes for %s, it goes on from %d by itself", offset, size, c.cfg.MaxBatch, c.cfg.Topic, offset)}
}

// unreadable is the verdict on a batch that cannot be right.
func unreadable(err error, next int64) verdict {
	var format *batch.FormatError
	if errors.As(err, &format) {
		return verdict{kind: refetch, nonRetryable: true, message: fmt.Sprintf("message format v%d at %d: only v2 batches can be mirrored; let the source rewrite the topic, or start after these records", format.Magic, format.Offset)}
	}
	var corrupt *batch.CorruptError
	if errors.As(err, &corrupt) {
		if corrupt.CRC {
			return verdict{kind: refetch, message: fmt.Sprintf("CRC at %d: %s", corrupt.Offset, corrupt.Reason)}
		}
		return verdict{kind: failed, message: fmt.Sprintf("%v; look at the partition's log at the source", corrupt)}
	}
	return verdict{kind: failed, message: fmt.Sprintf("unreadable batch at %d: %v", next, err)}
}

// producerExpiry is Kafka's producer.id.expiration.ms: how long a producer without an open transaction is remembered.
const producerExpiry = 24 * time.Hour

// appended takes the log's answer to Append.
func (c *Core) appended(e *Event) {
	if e.Err != nil {
		message := fmt.Sprintf("the destination log does not take the batches from %d on: %v", c.log.End, e.Err)
		if e.Fenced {
			c.fenced(message, (*Core).refetchFenced)
			return
		}
		c.fail(message, false)
		return
	}
	c.fences = 0
	c.forgetHole()
	if c.dirty {
		c.fail(fmt.Sprintf("destination diverged at %d: its log ends at %d after an append that was to end there; the logs are compared again", c.upTo, c.log.End), false)
		return
	}
	c.refetches, c.empties, c.above = 0, 0, false
	if c.room.now.Sub(c.expired) > producerExpiry/24 {
		c.expired = c.room.now
		c.producers.Expire(c.room.now.Add(-producerExpiry).UnixMilli())
	}
	c.caughtUpNow()
	c.processed()
}

// fenced asks who may write the log after an Append under an old leader epoch: that it has risen says nothing bad, somebody raised it, of this partition or of another one that
// its leader has too. When the log is still ours, under a higher epoch, then goes on; otherwise, or when it rises again and again, the partition fails with the message.
func (c *Core) fenced(message string, then func(c *Core, end int64)) {
	c.fences++
	if c.fences > maxFences {
		c.fences, c.waiting = 0, ""
		c.fail(message, false)
		return
	}
	under, end := c.appendEpoch, c.log.End
	c.ask(Effect{Kind: AskOwner}, func(c *Core, e *Event) {
		if e.Err != nil { // while it rises nobody may have the log for a moment
			c.waiting = message
			c.wait(c.backoff(c.fences), func(c *Core, _ *Event) { c.fenced(message, then) })
			return
		}
		c.waiting = ""
		if e.Log.Owner != OwnerOurs || e.Log.LeaderEpoch <= under {
			c.fences = 0
			c.fail(message, false)
			return
		}
		c.sawLog(e)
		then(c, end)
	})
}

// refetchFenced fetches what was fenced once more: its bytes are the log's. A log that no longer ends where it did is compared with the source's first.
func (c *Core) refetchFenced(end int64) {
	moved := c.movedOn || c.log.End != end
	c.sync(func(c *Core) {
		if moved {
			c.mirror()
			return
		}
		c.verdict = verdict{}
		c.next(0)
	})
}

// append hands batches to the log, under the leader epoch that it is known to have.
func (c *Core) append(bytes []byte, then answer) {
	c.appendEpoch = c.log.LeaderEpoch
	c.ask(Effect{Kind: Append, Epoch: c.appendEpoch, Bytes: bytes}, then)
}

// nothingWhole decides how long to wait after a reply without a whole batch for us. F-05: an empty reply although the source's end is above our position proves
// that nothing is left in between, unless the broker had no room for it, or reads from remote storage and did not have the bytes in time (F-86).
func (c *Core) nothingWhole(f *Fetch) {
	at := c.position()
	switch {
	case c.verdict.kind != goOn, f.CutBatch > 0:
	case len(f.Records) > 0:
		c.empties++
		c.emptyWait = c.backoff(c.empties)
	case f.HighWatermark <= at:
		c.empties = 0
	case f.Crowded:
	default:
		c.empties++
		c.emptyWait = c.backoff(c.empties)
		c.shownEnd = max(c.shownEnd, f.HighWatermark)
		if c.nothingLeft && c.provenEnd == f.HighWatermark {
			c.caughtUpNow()
			return
		}
		c.holeEnd = f.HighWatermark
	}
}

// forgetHole forgets what empty replies have shown of a log that is another one now.
func (c *Core) forgetHole() { c.nothingLeft, c.shownEnd = false, 0 }

// filledHole forgets it where a batch begins inside of what was thought to be a hole, whether or not it can be taken. One that lies behind leaves the hole before it until it is appended.
func (c *Core) filledHole(base int64) {
	c.nothingLeft = c.nothingLeft && base >= c.provenEnd
	if base < c.shownEnd {
		c.shownEnd = 0
	}
	c.holeFilled = c.holeFilled || base < c.rec.HoleTo && base >= c.rec.HoleFrom
}

// processed goes on after a reply. The first one clears what failed before.
func (c *Core) processed() {
	failing := c.verdict.kind == failed || c.verdict.kind == refetch || c.verdict.kind == aboveEnd || c.verdict.kind.looksAgain()
	if !failing && (c.rec.RetryAttempt != 0 || c.rec.ErrorMessage != "") {
		c.persist(statemachine.ClearFailure(c.rec), nil, (*Core).afterReply)
		return
	}
	c.afterReply()
}

// afterReply does what the verdict asks for.
func (c *Core) afterReply() {
	v := c.verdict
	c.verdict = verdict{}
	if c.movedOn {
		c.movedOn = false
		c.mirror()
		return
	}
	if v.kind == aboveEnd {
		v.kind = refetch
		if !c.above {
			c.above = true
			c.next(0)
			return
		}
	}
	switch v.kind {
	case refetch:
		c.refetches++
		if c.refetches > c.cfg.Refetches {
			c.fail(fmt.Sprintf("%s, %d times in a row; nothing from there on is copied. Look at the partition's log at the source", v.message, c.refetches), v.nonRetryable)
			return
		}
		c.note(Note{Kind: Refetched, Message: v.message, Attempt: int16(c.refetches), Offset: c.position()})
		c.next(c.backoff(c.refetches))
	case failed:
		c.fail(v.message, v.nonRetryable)
	case refreshEpoch:
		c.again(fmt.Sprintf("a batch of epoch %d at %d is newer than the source's metadata (epoch %d)", v.epoch, c.position(), c.askedUnder))
	case parted:
		c.again(v.message)
	case fenceFirst:
		c.fenceEpoch = v.epoch
		c.abandon()
		c.move(statemachine.EpochFencing)
	default:
		if end := c.holeEnd; end > 0 {
			c.holeEnd = 0
			c.proveHole(end)
			return
		}
		c.goOn()
	}
}

// goOn asks for the next reply and does beside it what can be done.
func (c *Core) goOn() {
	wait := c.emptyWait
	c.emptyWait = 0
	c.next(wait)
	c.raiseAhead()
	c.followStart()
}

// next asks for the next reply.
func (c *Core) next(wait time.Duration) {
	c.ask(Effect{Kind: Continue, Offset: c.position(), Epoch: c.askedUnder, LastEpoch: c.epochs.Latest(), Bound: wait}, (*Core).fetchedAnswer)
}

// raiseAhead raises the destination's leader epoch before the source's reaches it, beside the fetch, so that elections at the source seldom stop the copy.
func (c *Core) raiseAhead() {
	ahead := c.src.LeaderEpoch + 2
	if c.busy == (Token{}) && c.epochs.Latest() > c.log.LeaderEpoch-3 && ahead > c.log.LeaderEpoch {
		c.beside(Effect{Kind: RaiseEpoch, Epoch: ahead})
	}
}

// fetchRefused handles a reply that is an error. None of them cuts anything.
func (c *Core) fetchRefused(f *Fetch) {
	words := "no details"
	if f.Err != nil {
		words = f.Err.Error()
	}
	switch f.Code {
	case FetchDiverging:
		c.again(cannotProve(fmt.Sprintf("the source says that our log parts from its log in epoch %d at %d", f.DivergingEpoch, f.DivergingEnd)))
	case FetchOffsetOutOfRange:
		c.again(cannotProve(fmt.Sprintf("the source does not have our offset %d: %s", c.position(), words)))
	case FetchFencedEpoch, FetchNotLeader:
		if f.LeaderID >= 0 && f.CurrentEpoch > c.src.LeaderEpoch {
			c.src.LeaderID, c.src.LeaderEpoch = f.LeaderID, f.CurrentEpoch
			c.note(Note{Kind: LeaderMoved, LeaderID: f.LeaderID, Epoch: f.CurrentEpoch})
		}
		c.again("the source's leader has changed: " + words)
	case FetchTopicID:
		c.again("the source does not know the topic id: " + words)
	case FetchDenied:
		c.denied = true
		c.fail(fmt.Sprintf("the source denies reading: %s; grant the mirror's principal READ on topic %s", words, c.cfg.Topic), false)
	case FetchRefused: // the words say what to do
		c.denied = true
		c.fail("the source does not let the mirror in: "+words, false)
	case FetchUnsupported:
		c.fail(fmt.Sprintf("compression not served at this version: %s; the source has to be upgraded, or the topic rewritten with another codec", words), false)
	default:
		c.fetchTries++
		c.waiting = "the source does not answer the fetch: " + words
		c.next(c.backoff(c.fetchTries))
	}
}
