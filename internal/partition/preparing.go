package partition

import (
	"fmt"

	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// preparing is PREPARING's working memory (spec §3; decisions 3, 7, 14, 15). Nothing of the log changes, not even the gate, before CompareConsent has passed.
type preparing struct {
	needs     *Consent
	recreated statemachine.TopicID // the source topic's new id, when it is not the one that was mirrored
	startOver bool                 // FAILED because of that: a consent leads back to PREPARING

	prefix    bool  // the log is known to be a prefix of the source's, nothing has to be cut any more
	lmePoint  int64 // where the last mirror epoch says the log is to be cut
	cutAt     int64
	comparedE int64 // the end for which cutAt was computed
}

func (c *Core) prepare() {
	c.recreated, c.prefix = statemachine.TopicID{}, false
	c.step = statemachine.CheckSource.String()
	c.askSource(Effect{Prepare: true}, func(c *Core) {
		c.step = statemachine.AskOwner.String()
		c.askOwner((*Core).prepareOwner)
	})
}

func (c *Core) prepareOwner(e *Event) {
	if e.Err != nil {
		c.fail(fmt.Sprintf("the destination log cannot be asked who may write it: %v", e.Err), false)
		return
	}
	switch e.Log.Owner {
	case OwnerForeign:
		c.fail(foreignMessage, false)
		return
	case OwnerOpen:
		c.readAnew()
		if !c.rec.FoundOpen {
			c.persistFoundOpen(true, func(c *Core) { c.sync((*Core).prepareFind) })
			return
		}
	}
	c.sync((*Core).prepareFind)
}

// readAnew forgets what is known of a log whose leader epoch has risen since it was read, and says so. Clients had it, and there may have been an election: an unclean one takes the end away, and
// clients put something else there, so that the log may even be longer than it was. Closing the gate may be all that has raised it: nobody can tell.
func (c *Core) readAnew() bool {
	if c.log.LeaderEpoch == c.readUnder {
		return false
	}
	c.readUnder = c.log.LeaderEpoch
	c.rewindAll()
	return true
}

// persistFoundOpen records that the log is the clients', before it is closed, or that it no longer is, before it is cut: whatever comes in between, a refusal or a stop
// after any number of failures and restarts then leaves it as it was found.
func (c *Core) persistFoundOpen(found bool, then func(*Core)) {
	next := c.rec
	next.FoundOpen = found
	c.persist(next, nil, then)
}

const foreignMessage = "another process leads the destination log; stop it, or wait until it has gone"

// prepareFind begins the computation of what would be dropped.
func (c *Core) prepareFind() {
	c.step = statemachine.FindDivergence.String()
	c.confirming = false
	c.comparedE = c.log.End
	switch {
	case !c.holdsRecords(), c.recreated != (statemachine.TopicID{}) || c.src.LME < 0:
		c.cutAt = c.log.Start
		c.search = nil
		c.prepareCompare()
	default:
		c.lmePoint = logtrunc.LMEPoint(c.epochs, c.src.LME, c.src.LMO, c.log.Start, c.log.End)
		c.prepareSearch()
	}
}

func (c *Core) prepareSearch() {
	if c.src.NoEpochs || c.lmePoint <= c.firstRecord() {
		c.search = nil
		c.searchEnd = c.lmePoint
		c.prepareFound()
		return
	}
	c.startSearch(c.lmePoint, (*Core).prepareFound)
}

func (c *Core) prepareFound() {
	point, doubt := c.found()
	switch {
	case doubt != "":
		c.fail(cannotProve(doubt), false)
	case point >= c.log.End:
		c.cutAt = c.log.End
		c.prepareCompare()
	case c.search == nil:
		c.prepareLocate(point)
	case !c.confirming:
		c.confirming, c.firstPoint, c.firstEpoch = true, point, c.src.LeaderEpoch
		c.askSource(Effect{Prepare: true}, (*Core).prepareSearch)
	case point != c.firstPoint || c.src.LeaderEpoch != c.firstEpoch:
		c.fail(cannotProve(fmt.Sprintf("asked twice, the source's log parts from ours at %d (epoch %d) and at %d (epoch %d)", c.firstPoint, c.firstEpoch, point, c.src.LeaderEpoch)), false)
	default:
		c.prepareLocate(point)
	}
}

func cannotProve(doubt string) string {
	return "cannot prove common history: " + doubt + ". Nothing was cut; it is asked again"
}

// prepareLocate moves a cut that goes through a batch to where the batch begins.
func (c *Core) prepareLocate(point int64) {
	c.cutAt = point
	if point <= c.log.Start || point >= c.log.End {
		c.prepareCompare()
		return
	}
	c.findBatch(point, func(c *Core, e *Event) {
		if e.Err != nil {
			c.fail(fmt.Sprintf("the destination log cannot be read at %d: %v", c.cutAt, e.Err), false)
			return
		}
		c.located()
		c.prepareCompare()
	})
}

func (c *Core) located() {
	if c.firstBase >= 0 && c.firstBase < c.cutAt {
		c.cutAt = max(c.firstBase, c.log.Start)
	}
}

func (c *Core) prepareCompare() {
	c.step = statemachine.CompareConsent.String()
	if c.cutsRemote() {
		c.refuseRemote(c.cutAt)
		return
	}
	if c.cutAt < c.log.End && c.holdsRecords() && !c.consented(c.cutAt, c.log.End) {
		c.refuse()
		return
	}
	c.needs = nil
	if c.log.Owner != OwnerOpen {
		c.prepareCut()
		return
	}
	c.step = statemachine.CloseForWrites.String()
	c.ask(Effect{Kind: CloseForWrites}, func(c *Core, e *Event) {
		if e.Err != nil {
			c.fail(fmt.Sprintf("the destination log cannot be closed for client writes: %v", e.Err), e.NonRetryable)
			return
		}
		c.step = statemachine.AwaitReplicated.String()
		c.ask(Effect{Kind: AwaitReplicated, Offset: c.log.End, Bound: c.cfg.ReplicaWait}, (*Core).prepareReplicated)
	})
}

func (c *Core) prepareReplicated(e *Event) {
	if e.Err != nil {
		c.fail(fmt.Sprintf("the replicas of the destination log do not confirm the records up to %d: %v; bring them back", c.log.End, e.Err), false)
		return
	}
	c.setLog(e.Log)
	if c.readAnew() || c.log.End != c.comparedE {
		c.step = statemachine.Compute.String()
		c.sync((*Core).prepareFind)
		return
	}
	c.prepareCut()
}

// refuse ends a start that would drop what nobody consented to.
func (c *Core) refuse() {
	c.needs = &Consent{TopicID: c.cfg.TopicID, Partition: c.cfg.Partition, From: c.cutAt, To: c.log.End, Episode: c.rec.Episode}
	n := c.needs
	if c.recreated != (statemachine.TopicID{}) {
		c.refuseWith(c.recreatedMessage(c.recreated))
		return
	}
	why := fmt.Sprintf("the source's log and ours part at %d", n.From)
	if c.src.LME < 0 {
		why = "the source recorded no last mirror epoch for this cluster, so it cannot be told what it has of them"
	}
	c.refuseWith(fmt.Sprintf("starting would drop the destination's records [%d, %d): %s. Nothing was changed. Look at the plan, then start with consent to drop [%d, %d) in episode %d, or keep the topic stopped",
		n.From, n.To, why, n.From, n.To, n.Episode))
}

// refuseWith ends a start with a failure that only a person ends. A log that still is its clients' although it was recorded that it is about to be cut is recorded as theirs again: FAILED opens it.
func (c *Core) refuseWith(message string) {
	if !c.rec.FoundOpen && c.theirs() {
		c.persistFoundOpen(true, func(c *Core) { c.fail(message, true) })
		return
	}
	c.fail(message, true)
}

// cutsRemote says that what is to be dropped reaches into the log's remote storage. It may have grown since it was asked last.
func (c *Core) cutsRemote() bool {
	return c.cutAt < c.log.End && c.holdsRecords() && c.remotePart(c.cutAt)
}

func (c *Core) prepareCut() {
	if c.cutsRemote() {
		c.refuseRemote(c.cutAt)
		return
	}
	if c.cutAt < c.log.End && c.holdsRecords() && !c.consented(c.cutAt, c.log.End) { // withdrawn while the log was being closed
		c.refuse()
		return
	}
	c.step = statemachine.Truncate.String()
	switch {
	case c.cutAt <= c.log.Start && (c.log.End > c.log.Start || c.log.Start != c.src.LogStart):
		if c.src.LogStart < 0 {
			c.fail("the source does not tell where its log starts; it is asked again", false)
			return
		}
		if c.rec.FoundOpen {
			c.persistFoundOpen(false, (*Core).prepareCut)
			return
		}
		reason := "start over at the source's log start"
		if c.recreated != (statemachine.TopicID{}) {
			reason = fmt.Sprintf("source topic id %v → %v", c.topicID, c.recreated)
		}
		c.cut = Truncation{From: c.log.Start, To: c.log.End, Reason: reason, Rounds: c.rounds()}
		c.ask(Effect{Kind: Reset, Offset: c.src.LogStart, Dropped: c.cut}, (*Core).prepareWasCut)
	case c.cutAt < c.log.End:
		if c.rec.FoundOpen {
			c.persistFoundOpen(false, (*Core).prepareCut)
			return
		}
		reason := fmt.Sprintf("the source's log and ours part at %d (last mirror epoch %d, last mirror offset %d)", c.cutAt, c.src.LME, c.src.LMO)
		c.cut = Truncation{From: c.cutAt, To: c.log.End, Reason: reason, Rounds: c.rounds()}
		c.ask(Effect{Kind: Truncate, Offset: c.cutAt, Dropped: c.cut}, (*Core).prepareWasCut)
	default:
		c.prepareAwaitTruncated()
	}
}

func (c *Core) prepareWasCut(e *Event) {
	if e.Err != nil {
		c.fail(fmt.Sprintf("the destination log cannot be cut at %d: %v", c.cutAt, e.Err), e.NonRetryable)
		return
	}
	c.sync((*Core).prepareAwaitTruncated)
}

func (c *Core) prepareAwaitTruncated() {
	c.prefix = true
	c.step = statemachine.AwaitTruncated.String()
	c.waiting = c.awaitedCut()
	c.ask(Effect{Kind: AwaitTruncated}, func(c *Core, e *Event) {
		c.waiting = ""
		switch {
		case e.Err != nil && e.Refused: // no replica was asked
			c.fail(fmt.Sprintf("the destination log may not be written: %v", e.Err), false)
			return
		case e.Err != nil:
			c.fail(fmt.Sprintf("the replicas of the destination log have not followed the cut: %v; bring them back", e.Err), false)
			return
		}
		if e.Log.LeaderEpoch > c.log.LeaderEpoch { // somebody may have taken the log while they were waited for
			c.prepare()
			return
		}
		if c.recreated != (statemachine.TopicID{}) {
			c.topicID = c.recreated
		}
		c.step = statemachine.RaiseEpoch.String()
		if c.src.LeaderEpoch <= c.log.LeaderEpoch {
			c.prepared()
			return
		}
		c.ask(Effect{Kind: RaiseEpoch, Epoch: c.src.LeaderEpoch}, func(c *Core, e *Event) {
			if c.raised(e, c.src.LeaderEpoch) {
				c.prepared()
			}
		})
	})
}

// prepared ends PREPARING. A log that somebody has taken since it was compared is looked at anew: what clients have put there is theirs.
func (c *Core) prepared() {
	if c.dirty {
		c.prepare()
		return
	}
	c.move(statemachine.Mirroring)
}

// raised checks that the destination's leader epoch is what it had to become; false: the partition has failed over it.
func (c *Core) raised(e *Event, epoch int32) bool {
	if e.Err != nil {
		c.fail(fmt.Sprintf("the destination's leader epoch cannot be raised to %d: %v", epoch, e.Err), false)
		return false
	}
	if c.log.LeaderEpoch < epoch {
		c.fail(fmt.Sprintf("the destination's leader epoch is %d after it was to be raised to %d", c.log.LeaderEpoch, epoch), false)
		return false
	}
	return true
}
