package partition

import (
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// mirroring is the working memory of MIRRORING and EPOCH_FENCING: entry (source → align → loss → log start → leader epoch → fetcher), then replies one at a time.
type mirroring struct {
	fetching   bool // the shell has a fetcher for us
	askedUnder int32
	tries      int  // of the entry, without a good reply in between
	fetchTries int  // of one fetch
	refetches  int  // of a batch with a bad checksum
	above      bool // the last reply began with a batch beyond the source\'s end
	empties    int  // replies in a row without a whole batch although there should be one
	emptyWait  time.Duration
	verdict    verdict
	fenceEpoch int32 // EPOCH_FENCING: the batch epoch that the destination's has to reach

	looks       int       // at ends of the source that had to be seen twice, since the last fetcher
	seenOnce    misplaced // what the last look at the source's ends found, if that has to be seen twice
	holeTo      int64
	lostFrom    int64
	lostTo      int64
	nothingLeft bool
	holeEnd     int64 // the source's end in an empty reply of which it is not known yet what it proves; 0: there is none
	shownEnd    int64 // the highest end of the source in an empty reply, above our position; 0: none since the log changed
	holeFilled  bool  // the hole that is recorded is none, and the next write says so
	localStart  int64 // where the source's leader's own disks began when it was asked last
	provenEnd   int64 // F-05: the source's end up to which an empty reply has proved a hole
	startAsked  int64 // where the log start was to be raised to last, beside a fetch
	startDue    Token // of the wait before the log start is followed again, and how often that has failed
	startTries  int
	movedOn     bool // the source changed while a batch was being appended: enter anew afterwards
}

// mirror enters MIRRORING: after a start, a restart, a resume, a retry, a new leader at the source.
func (c *Core) mirror() {
	c.running = true
	c.removeFetcher()
	if c.dirty || c.log.Owner != OwnerOurs {
		c.askOurs((*Core).lookUp)
		return
	}
	c.sync((*Core).lookUp)
}

// askOurs asks the log whose it is and where it ends, and goes on if it is ours.
func (c *Core) askOurs(then func(*Core)) {
	c.askOwner(func(c *Core, e *Event) {
		if e.Err != nil {
			c.fail(fmt.Sprintf("the destination log cannot be asked who may write it: %v", e.Err), false)
			return
		}
		switch c.log.Owner {
		case OwnerForeign:
			c.fail(foreignMessage, false)
		case OwnerOpen:
			c.fail(fmt.Sprintf("the destination log is open for client writes although it is mirrored; stop the topic, look at what was written from %d on, and start it again", c.writtenFrom()), false)
		default:
			c.sync(then)
		}
	})
}

// lookUp asks the source anew and aligns.
func (c *Core) lookUp() {
	if c.rec.AwaitsCut {
		c.awaitCut((*Core).lookUp)
		return
	}
	c.confirming, c.seenOnce, c.movedOn = false, fits, false
	c.holeTo, c.localStart = 0, 0 // decided anew from what the source says now
	c.askSource(Effect{}, (*Core).align)
}

// again enters anew after growing waits (the first time at once where a look at fresh metadata may be all that is missing); when that does not help either,
// the partition fails with the reason.
func (c *Core) again(reason string) {
	fetching := c.fetching
	c.removeFetcher()
	c.tries++
	if c.tries > maxTries {
		c.fail(reason, false)
		return
	}
	c.waiting = reason
	if fetching && c.tries == 1 {
		c.lookUp()
		return
	}
	c.wait(c.backoff(c.tries), func(c *Core, _ *Event) { c.lookUp() })
}

// reenter enters anew at once.
func (c *Core) reenter() {
	c.await, c.then, c.held, c.reply = Token{}, nil, false, nil
	if c.busy != (Token{}) {
		c.running = false // the answer evaluates, and that enters
		c.removeFetcher()
		return
	}
	c.mirror()
}

// align finds out whether our log is a prefix of the source's (decision 15): a cut needs a second search with the same answer after a metadata refresh.
func (c *Core) align() {
	switch {
	case c.endsInGap() && !c.remotePart(c.recordsEnd()):
		// Nothing is lost by reading the gap once more: the source may have something there by now, or a batch that begins there and ends above.
		c.cut = Truncation{}
		c.cutAt = c.recordsEnd()
		c.truncateAligned()
	case c.src.NoEpochs, !c.holdsRecords():
		c.follow()
	default:
		c.startSearch(c.log.End, (*Core).aligned)
	}
}

func (c *Core) aligned() {
	point, doubt := c.found()
	switch {
	case doubt != "" && c.src.LogStart > c.log.End:
		c.follow() // nothing of ours is there any more to be compared
	case doubt != "":
		c.confirming = false
		c.again(cannotProve(doubt))
	case point >= c.log.End:
		c.confirming = false
		c.follow()
	case !c.confirming:
		c.confirming, c.firstPoint, c.firstEpoch = true, point, c.src.LeaderEpoch
		c.askSource(Effect{}, (*Core).align)
	case point != c.firstPoint || c.src.LeaderEpoch != c.firstEpoch:
		c.confirming = false
		c.again(cannotProve(fmt.Sprintf("asked twice, the source's log parts from ours at %d (epoch %d) and at %d (epoch %d)", c.firstPoint, c.firstEpoch, point, c.src.LeaderEpoch)))
	default:
		c.confirming = false
		c.cutAt = point
		if point <= c.log.Start {
			c.alignCut()
			return
		}
		c.findBatch(point, func(c *Core, e *Event) {
			if e.Err != nil {
				c.fail(fmt.Sprintf("the destination log cannot be read at %d: %v", c.cutAt, e.Err), false)
				return
			}
			c.located()
			c.alignCut()
		})
	}
}

func (c *Core) alignCut() {
	from, to := c.cutAt, c.log.End
	if c.remotePart(from) {
		c.refuseRemote(from)
		return
	}
	if c.everStopped() && !c.consented(from, to) {
		c.needs = &Consent{TopicID: c.cfg.TopicID, Partition: c.cfg.Partition, From: from, To: to, Episode: c.rec.Episode}
		c.fail(fmt.Sprintf("the source's log and ours part at %d: going on would drop the destination's records [%d, %d), and this log was once open for clients. Nothing was changed. Start with consent to drop [%d, %d) in episode %d, or stop the topic",
			from, from, to, from, to, c.rec.Episode), true)
		return
	}
	c.cut = Truncation{From: from, To: to, Reason: fmt.Sprintf("the source's log and ours part at %d", from), Rounds: c.rounds()}
	c.truncateAligned()
}

func (c *Core) truncateAligned() { c.beginCut((*Core).truncate) }

// beginCut records that replicas will have to follow a cut, before it is made: whoever enters MIRRORING next waits for them, if this process does not come to it (decision 22).
func (c *Core) beginCut(then func(*Core)) {
	if c.rec.AwaitsCut {
		then(c)
		return
	}
	next := c.rec
	next.AwaitsCut = true
	c.persist(next, nil, then)
}

func (c *Core) truncate() {
	c.ask(Effect{Kind: Truncate, Offset: c.cutAt, Dropped: c.cut}, func(c *Core, e *Event) {
		if e.Err != nil {
			c.fail(fmt.Sprintf("the destination log cannot be cut at %d: %v", c.cutAt, e.Err), e.NonRetryable)
			return
		}
		c.sync(func(c *Core) { c.awaitCut((*Core).align) })
	})
}

// awaitedCut is what a wait for AwaitTruncated says. It has no bound (KIP-1279: PREPARING may last for ever), so it has to say what would end it.
func (c *Core) awaitedCut() string {
	return fmt.Sprintf("waiting until every replica has followed the cut to %d; bring dead replicas back or take them out of the replica set", c.log.End)
}

// awaitCut waits until every replica has followed a cut.
func (c *Core) awaitCut(then func(*Core)) {
	c.waiting = c.awaitedCut()
	c.ask(Effect{Kind: AwaitTruncated}, func(c *Core, e *Event) {
		c.waiting = ""
		if e.Err != nil {
			c.fail(fmt.Sprintf("the replicas of the destination log have not followed the cut: %v; bring them back", e.Err), false)
			return
		}
		next := c.rec
		next.AwaitsCut = false
		c.persist(next, nil, then)
	})
}

// follow deals with the source's log start: beyond our end it is a loss, inside our log it is followed as far as it can be.
func (c *Core) follow() {
	switch c.misplaced() {
	case startsBeyond:
		c.loss()
		return
	case endsBelow:
		c.startAnew()
		return
	}
	target := c.startTarget()
	if target <= c.log.Start {
		c.raiseToSource()
		return
	}
	c.ask(Effect{Kind: RaiseStart, Offset: target}, func(c *Core, e *Event) {
		if e.Err != nil {
			c.fail(fmt.Sprintf("the destination's log start cannot be raised to the source's: %v", e.Err), false)
			return
		}
		c.onward((*Core).raiseToSource)
	})
}

// misplaced says how the place of the next fetch lies outside of the source's log.
type misplaced uint8

const (
	fits         misplaced = iota // it does not
	startsBeyond                  // the source's log starts beyond it: a loss
	endsBelow                     // a copy without records ends above the source
)

func (c *Core) misplaced() misplaced {
	switch {
	case c.src.LogStart > c.position():
		return startsBeyond
	case !c.holdsRecords() && c.src.HighWatermark >= 0 && c.src.HighWatermark < c.position():
		return endsBelow
	}
	return fits
}

// position is where the next fetch begins: our end, or beyond a hole that was accepted (LossKeep).
func (c *Core) position() int64 { return max(c.log.End, c.holeTo) }

// startTarget is how far our log start may follow the source's now (decisions 11 and 16). The rest is deferred until more is replicated.
func (c *Core) startTarget() int64 {
	if c.cfg.Loss == LossKeep {
		return c.log.Start
	}
	t := min(c.src.LogStart, c.log.Replicated)
	if c.cfg.StartFloor > 0 {
		t = min(t, c.cfg.StartFloor)
	}
	return t
}

// followStart raises our log start beside a fetch that is under way.
func (c *Core) followStart() {
	if c.rebuilding || c.busy != (Token{}) || !c.besideFetch() {
		return
	}
	if t := c.startTarget(); t > c.log.Start && c.src.LogStart <= c.position() {
		c.startAsked = t
		c.beside(Effect{Kind: RaiseStart, Offset: t})
	}
}

// besideFetch says that a fetch is under way, or its reply is held.
func (c *Core) besideFetch() bool {
	return c.rec.State == statemachine.Mirroring && c.fetching && (c.held || c.await != (Token{}))
}

// beside makes a call on the log while a fetch is under way; a reply that comes meanwhile is held.
func (c *Core) beside(e Effect) {
	c.busy, c.busyKind, c.busyEpoch = c.emit(e), e.Kind, e.Epoch
}

// besideDone goes on after a call beside a fetch. An idle source gives no other occasion to follow its log start.
func (c *Core) besideDone(kind EffectKind, err error) {
	switch {
	case kind != RaiseStart:
		c.followStart()
	case err == nil:
		c.startTries = 0
		if c.startTarget() > c.startAsked { // more was replicated meanwhile, or the source's start rose further
			c.followStart()
		}
	case c.rec.State == statemachine.Mirroring && c.fetching:
		c.startTries++
		c.startDue = c.emit(Effect{Kind: ScheduleRetry, Bound: c.backoff(c.startTries)})
	}
}

// loss handles a source whose log starts beyond our end (decision 16), seen twice.
func (c *Core) loss() {
	if c.lookTwice() {
		return
	}
	from, to := c.position(), c.src.LogStart
	if c.cfg.Loss == LossFail {
		c.tellLost(from, to)
		c.fail(fmt.Sprintf("the source's log now starts at %d: the records [%d, %d) were deleted there before they were copied. The copy ends at %d. Recover with policy restart (the copy starts anew at %d) or keep (a hole), or stop the topic",
			to, from, to, c.log.End, to), true)
		return
	}
	if c.cfg.Loss == LossKeep && c.holdsRecords() {
		c.tellLost(from, to)
		c.holeTo = to
		c.raiseToSource()
		return
	}
	if c.holdsRecords() && c.remotePart(c.log.Start) {
		c.tellLost(from, to)
		c.refuseRemote(c.log.Start)
		return
	}
	c.cut = Truncation{From: c.log.Start, To: c.log.End, Reason: fmt.Sprintf("the source's log now starts at %d, beyond our end %d; the copy starts there", to, c.log.End)}
	c.tellLost(from, to) // before the call: they are gone whatever becomes of it
	c.resetTo(to)
}

// resetTo empties the copy, and goes on when every replica has followed.
func (c *Core) resetTo(start int64) {
	c.beginCut(func(c *Core) {
		c.ask(Effect{Kind: Reset, Offset: start, Dropped: c.cut}, func(c *Core, e *Event) {
			if e.Err != nil {
				c.fail(fmt.Sprintf("the destination log cannot be started anew at %d: %v", start, e.Err), e.NonRetryable)
				return
			}
			c.holeTo = 0
			c.awaitCut((*Core).follow)
		})
	})
}

// startAnew moves a copy without records to a source that, seen twice, ends below it (an unclean election took away what we were waiting to copy). Nothing is dropped.
func (c *Core) startAnew() {
	if c.lookTwice() {
		return
	}
	c.cut = Truncation{}
	c.resetTo(c.src.LogStart)
}

// lookTwice asks the source a second time before its ends are acted on, and then the log whether it still is as it is known: what is lost begins where that ends. Two looks in a row have to find the
// same: one that finds the opposite of the one before proves that one of them was wrong. True: they have been asked.
func (c *Core) lookTwice() bool {
	now := c.misplaced()
	if c.seenOnce == now {
		c.seenOnce = fits
		return false
	}
	c.seenOnce = now
	look := func(c *Core, _ *Event) {
		c.askSource(Effect{}, func(c *Core) {
			c.askOurs(func(c *Core) {
				if c.misplaced() != fits {
					c.follow()
					return
				}
				c.seenOnce = fits // it was none, and the logs have to be compared after all
				c.align()
			})
		})
	}
	c.looks++
	if c.looks == 1 {
		look(c, nil)
	} else {
		c.wait(c.backoff(c.looks-1), look) // the source's ends do not come to rest
	}
	return true
}

func (c *Core) tellLost(from, to int64) {
	if c.lostFrom == from && c.lostTo == to {
		return
	}
	c.lostFrom, c.lostTo = from, to
	message := fmt.Sprintf("[%d, %d) was deleted at the source before it was copied", from, to)
	if open := c.producers.InFlight(); c.cfg.Loss == LossKeep && len(open) > 0 {
		message += fmt.Sprintf("; transactions were open before it (the first is producer %d's since %d) and may have ended in it: readers of committed records are shown them as their producers' next markers say, or the stop aborts them",
			open[0].ProducerID, open[0].FirstOffset)
	}
	c.note(Note{Kind: RecordsLost, RangeFrom: from, RangeTo: to, Message: message})
}

func (c *Core) raiseToSource() {
	if c.src.LeaderEpoch <= c.log.LeaderEpoch {
		c.addFetcher()
		return
	}
	c.ask(Effect{Kind: RaiseEpoch, Epoch: c.src.LeaderEpoch}, func(c *Core, e *Event) {
		if c.raised(e, c.src.LeaderEpoch) {
			c.onward((*Core).addFetcher)
		}
	})
}

// onward goes on with the entry, or enters anew where a call has shown that the log is not the one that was aligned.
func (c *Core) onward(then func(*Core)) {
	if c.dirty {
		c.mirror()
		return
	}
	then(c)
}

func (c *Core) addFetcher() {
	c.useConsents()
	c.fetching, c.waiting = true, ""
	c.refetches, c.fetchTries, c.looks = 0, 0, 0
	c.askedUnder = c.src.LeaderEpoch
	c.ask(Effect{Kind: AddFetcher, Offset: c.position(), Epoch: c.askedUnder, LastEpoch: c.epochs.Latest()}, (*Core).fetchedAnswer)
}

func (c *Core) fetchedAnswer(e *Event) { c.fetched(e) }

func (c *Core) removeFetcher() {
	if c.fetching {
		c.fetching = false
		c.emit(Effect{Kind: RemoveFetcher})
	}
}

// sourceChanged takes news of the source that nobody asked for.
func (c *Core) sourceChanged(e *Event) {
	v := &e.Source
	if c.rec.State != statemachine.Mirroring || !c.running {
		if (v.ClusterID == "" || c.cluster == "" || v.ClusterID == c.cluster) && !c.deposed(v) {
			c.learnEnds(v.LogStart, v.HighWatermark)
		}
		return
	}
	if v.Permanent {
		message := v.Refused
		if message == "" && e.Err != nil {
			message = e.Err.Error()
		}
		if message == "" {
			message = "the source partition is gone for good"
		}
		c.fail(message, true)
		return
	}
	if e.Err != nil || c.rebuilding {
		return
	}
	if !c.identity(v) || c.deposed(v) {
		return
	}
	moved := v.LeaderEpoch > c.src.LeaderEpoch || v.LeaderID >= 0 && c.src.LeaderID >= 0 && v.LeaderID != c.src.LeaderID && (v.LeaderEpoch < 0 || v.LeaderEpoch >= c.src.LeaderEpoch)
	c.learnEnds(v.LogStart, v.HighWatermark)
	if !c.fetching {
		return // the entry asks for itself
	}
	if moved || c.src.LogStart > c.position() {
		if c.busy != (Token{}) && c.busy == c.await {
			c.movedOn = true
			return
		}
		c.reenter()
		return
	}
	c.followStart()
}

// fence is EPOCH_FENCING: the destination's leader epoch has to reach that of a batch at hand.
func (c *Core) fence() {
	c.removeFetcher()
	c.askSource(Effect{}, func(c *Core) {
		epoch := max(c.fenceEpoch, c.src.LeaderEpoch)
		if epoch <= c.log.LeaderEpoch {
			c.move(statemachine.Mirroring)
			return
		}
		c.ask(Effect{Kind: RaiseEpoch, Epoch: epoch}, func(c *Core, e *Event) {
			if c.raised(e, epoch) {
				c.move(statemachine.Mirroring)
			}
		})
	})
}
