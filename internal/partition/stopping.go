package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/txnabort"
)

// stopping is STOPPING's working memory. Its steps stand in the order that survives a crash anywhere (design.md); none of them talks to the source (decision 4).
type stopping struct {
	resetMade   int64 // offset of the MIRROR_PID_RESET of this process's stop, −1 none
	markerWaits int
	opens       int
	lookTries   int
	stoppedWhy  string // what is to be known of a STOPPED log that was the clients' before the stop

	writtenOver bool // clients wrote behind our marks: the stop had come to opening the log before, and a restart closed it
	justOpened  bool
	unmarked    bool // LME and LMO are recorded by this process, and it has not come to opening the log

	asksCut bool // the wish asks for a consistent cut
	cutsTo  bool // LMO is recorded as a consistent cut by this process: nothing was written above it

	looking   bool // before STOPPING is persisted: is the log still its clients'?
	givesBack bool // the log is to be recorded as the clients'
}

const maxMarkerWaits = 3

// mustLook says that the stop ends a start that may never have changed anything. Then the log has to be asked before STOPPING is persisted: recording its end would claim client writes as
// mirrored, and abort clients' transactions. So it is where a mirror that was deleted had ended before. A log that is known to be a prefix of the source's by now is stopped as a copy, and so is one
// without a word of clients: its state was lost.
func (c *Core) mustLook() bool {
	starts := c.in(statemachine.Preparing) || c.rec.State == statemachine.Unknown && c.ended()
	return starts && !c.rec.FoundOpen && !c.rec.Mirrored && !c.prefix && c.log.Start < c.log.End
}

// theirs says that this log, which was read, is its clients', or what a cut has left of theirs: nothing was mirrored in this episode, and clients have it, or wrote it before the mirror had it, or it
// still is as an earlier stop left it.
func (c *Core) theirs() bool {
	switch {
	case c.rec.Mirrored || c.prefix || !c.holdsRecords():
		return false
	case c.rec.FoundOpen || c.log.Owner == OwnerOpen:
		return true
	case c.ended():
		return c.lme.Offset >= 0 && c.log.End > c.lme.Offset
	}
	return c.rec.WasOpen
}

// stopLook asks the log whose it is, and begins STOPPING. Without an answer it waits: the stop needs one anyway.
func (c *Core) stopLook() {
	if c.busy != (Token{}) {
		return // the answer evaluates again
	}
	c.looking = true
	c.askOwner(func(c *Core, e *Event) {
		if e.Err != nil {
			c.looked(e.Err)
			return
		}
		if c.log.Owner == OwnerOpen {
			c.looked(nil)
			return
		}
		c.sync(func(c *Core) { c.looked(nil) })
	})
}

func (c *Core) looked(err error) {
	c.looking = false
	switch {
	case c.target() != statemachine.Stopping:
		c.running = false
		c.evaluate()
	case err != nil:
		c.lookTries++
		c.waiting = fmt.Sprintf("stopping: the destination log does not answer: %v", err)
		c.wait(c.backoff(c.lookTries), func(c *Core, _ *Event) { c.evaluate() })
	default:
		c.givesBack = c.log.Owner == OwnerOpen || c.theirs()
		c.move(statemachine.Stopping)
	}
}

func (c *Core) stopStep(s statemachine.StoppingStep) { c.step = s.String() }

// recorded says that this episode's LME is written: it is never written twice (decision 5).
func (c *Core) recorded() bool { return c.ended() && c.lme.Episode == c.rec.Episode }

func (c *Core) stop() {
	c.lookTries = 0
	c.markerWaits = 0
	c.stopStep(statemachine.StopAskOwner)
	c.askOwner((*Core).stopOwner)
}

// stopFailed says what failed in STOPPING and that it goes on by itself.
func (c *Core) stopFailed(what string, err error) {
	c.fail(fmt.Sprintf("stopping, %s: %v; the stop is tried again from its first step", what, err), false)
}

func (c *Core) stopOwner(e *Event) {
	if e.Err != nil {
		c.stopFailed("the destination log cannot be asked who may write it", e.Err)
		return
	}
	c.stopStep(statemachine.RemoveFetcher)
	c.removeFetcher()
	switch c.log.Owner {
	case OwnerForeign:
		c.fail("stopping: "+foreignMessage, false)
	case OwnerOpen:
		// Clients write: either this stop had come this far, or this episode never had the log, or it was taken from the mirror. Aborting and resetting now would hit clients.
		if c.recorded() && !c.unmarked && c.marksSeen() || c.rec.FoundOpen || !c.recorded() && !c.rec.Mirrored {
			c.stopAbove((*Core).stopped)
			return
		}
		c.rewind(min(c.upTo, c.ours.replicated)) // what lies above may be gone, and something else in its place
		under := c.log.LeaderEpoch
		c.sync(func(c *Core) { c.stopTaken(under) })
	default:
		if c.rec.FoundOpen { // the log is the clients': their transactions are not ours to abort, their records not mirrored
			if !c.logLost() {
				c.stopAbove((*Core).stopOpen)
			}
			return
		}
		c.sync((*Core).stopQuiesce)
	}
}

// stopTaken ends the mirroring of a log that somebody else leads although it was not stopped: clients may write it already. Where the mirror ended is recorded, so that a
// failback knows it, and the producer ids are settled; in the log nothing is written. It was read under a leader epoch, and counts as long as that lasts: an election may take the log's end away while
// it is read, or bring back its start.
func (c *Core) stopTaken(under int32) {
	end := c.mirroredEnd()
	if end <= c.from && c.readMore(func(c *Core) { c.stopTaken(under) }) {
		return // what lies before the first batch of clients was not read
	}
	cache := logtrunc.NewCache(c.epochs.Entries()...)
	cache.TruncateTo(end)
	lme := c.lastMirrorEpoch(cache.Latest(), end)
	if c.recorded() {
		lme = copyLME(c.lme)
	}
	c.stopStep(statemachine.QuiesceGroups)
	c.ask(Effect{Kind: QuiesceGroups}, func(c *Core, e *Event) {
		if c.quiesced(e) {
			c.settle(func(c *Core) { c.stillTaken(under, lme) })
		}
	})
}

// stillTaken looks once more whether the log has had no election since it was looked at to be read.
func (c *Core) stillTaken(under int32, lme *statemachine.LastMirrorEpoch) {
	c.askOwner(func(c *Core, e *Event) {
		if e.Err != nil {
			c.stopFailed("the destination log cannot be asked who may write it", e.Err)
			return
		}
		if e.Log.Owner != OwnerOpen || e.Log.LeaderEpoch != under {
			c.stop()
			return
		}
		c.takenAbove(lme)
	})
}

// takenAbove records it, with the move to STOPPED, once the leader epoch is above the last mirror epoch.
func (c *Core) takenAbove(lme *statemachine.LastMirrorEpoch) {
	record := func(c *Core) {
		c.justOpened = true
		c.stoppedWhy, c.unmarked = c.taken(lme.Offset), false
		c.moveWith(statemachine.Stopped, lme)
	}
	if c.log.LeaderEpoch > lme.Epoch {
		record(c)
		return
	}
	c.stopStep(statemachine.StopRaiseEpoch)
	c.ask(Effect{Kind: RaiseEpoch, Epoch: lme.Epoch + 1}, func(c *Core, e *Event) {
		if c.raised(e, lme.Epoch+1) {
			record(c)
		}
	})
}

// taken says what a person has to know of such a log.
func (c *Core) taken(end int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "the log was open for clients before the stop: the mirror ended at %d, and what lies above was written by clients", end)
	if c.log.End <= end {
		b.Reset()
		fmt.Fprintf(&b, "the log was open for clients before the stop: the mirror ended at %d, and nothing lies above", end)
	}
	var open []string
	first := int64(-1)
	for _, t := range c.producers.InFlight() {
		if t.FirstOffset >= end {
			continue
		}
		open = append(open, fmt.Sprintf("producer %d epoch %d since %d", t.ProducerID, t.ProducerEpoch, t.FirstOffset))
		if first < 0 || t.FirstOffset < first {
			first = t.FirstOffset
		}
	}
	if len(open) > 0 {
		fmt.Fprintf(&b, ". Transactions of the source that were open are not aborted, because the log is not the mirror's to write: %s. Readers of committed records wait at %d until you abort them "+
			"(kafka-transactions.sh abort --topic %s --partition %d --start-offset %d)", strings.Join(open, ", "), first, c.cfg.Topic, c.cfg.Partition, first)
	}
	return b.String()
}

// stopAbove goes on when the leader epoch is one that clients may write in.
func (c *Core) stopAbove(then func(*Core)) {
	c.clientsEpoch(func(c *Core, epoch int32, err error) {
		switch {
		case err != nil:
			c.stopFailed(cannotReadItsEnd, err)
		case c.log.LeaderEpoch >= epoch:
			then(c)
		default:
			c.ask(Effect{Kind: RaiseEpoch, Epoch: epoch}, func(c *Core, e *Event) {
				if c.raised(e, epoch) {
					then(c)
				}
			})
		}
	})
}

const cannotReadItsEnd = "its end cannot be read"

// clientsEpoch finds the leader epoch from which on clients may write: it is above the last mirror epoch, in which the source has written too. A log that is closed may have come back from a restart with a
// lower leader epoch than it had: then it is not below that of the marks either, and above those of what lies at the log's end.
func (c *Core) clientsEpoch(then func(c *Core, epoch int32, err error)) {
	epoch, below := c.log.LeaderEpoch, c.belowLME()
	if below {
		epoch = max(c.lme.Epoch+1, c.rec.LeaderEpoch)
	}
	if c.log.Start == c.log.End || !below && c.log.Owner == OwnerOpen {
		then(c, epoch, nil)
		return
	}
	found := func(c *Core, last int32, err error) {
		if below || last > epoch {
			epoch = max(epoch, last+1)
		}
		then(c, epoch, err)
	}
	if c.upTo >= c.log.End && !c.dirty { // it was read
		found(c, c.epochs.Latest(), nil)
		return
	}
	c.findBatch(c.log.End-1, func(c *Core, e *Event) { found(c, c.foundEpoch, e.Err) })
}

func (c *Core) stopQuiesce() {
	c.stopStep(statemachine.QuiesceGroups)
	c.ask(Effect{Kind: QuiesceGroups}, func(c *Core, e *Event) {
		if c.quiesced(e) {
			c.stopReplicate()
		}
	})
}

// quiesced takes the answer to QuiesceGroups; false: the stop has failed over it.
func (c *Core) quiesced(e *Event) bool {
	if e.Err != nil && !errors.Is(e.Err, context.DeadlineExceeded) {
		c.stopFailed("the offset sync of its groups cannot be ended", e.Err)
		return false
	}
	return true
}

// stopCut asks where the log is to be cut, so that no transaction of the failover is torn. Other stops know nothing of it. The answer is recorded: whoever runs the stop again takes that, and cuts what is
// left to be cut.
func (c *Core) stopCut() {
	if !c.asksCut || c.recorded() {
		c.stopRecord()
		return
	}
	c.stopStep(statemachine.StopCut)
	c.ask(Effect{Kind: AskCut, LME: c.lastMirrorEpoch(c.epochs.Latest(), c.log.End), Epochs: c.epochs.Entries()}, func(c *Core, e *Event) {
		switch {
		case e.Err != nil:
			c.stopFailed("it is not known where no transaction is torn", e.Err)
			return
		case e.LME != nil:
			c.lme = copyLME(e.LME)
			c.cutsTo = c.lme.Cut
			c.note(Note{Kind: LMERecorded, Epoch: c.lme.Epoch, Offset: c.lme.Offset})
		}
		c.stopRecord()
	})
}

// stopCutAway makes a consistent cut that is recorded and not made. What was mirrored lies above LMO only then, and at LMO lies the COMMIT that tears its transaction: a stop's own marks, which lie there
// otherwise or behind a gap, have none before the reset. So that is looked at, whatever the stop asks for: the record says that there was a cut, and the wish for it may be gone.
func (c *Core) stopCutAway() {
	above := c.lme.Cut && c.log.End > c.lme.Offset && c.log.Start <= c.lme.Offset
	switch {
	case above && c.cutsTo:
		c.stopTruncate()
	case !above || c.resetAt == c.lme.Offset || len(c.aborts) > 0 && c.aborts[0].Offset == c.lme.Offset:
		c.stopRaise()
	default:
		c.findBatch(c.lme.Offset, func(c *Core, e *Event) {
			switch {
			case e.Err != nil:
				c.stopFailed("what lies where it is to be cut cannot be read", e.Err)
			case c.firstEnds && c.firstBase == c.lme.Offset:
				c.cutsTo = true
				c.stopTruncate()
			default:
				c.stopRaise()
			}
		})
	}
}

func (c *Core) stopTruncate() {
	c.stopStep(statemachine.StopCut)
	at := c.lme.Offset
	c.cut = Truncation{From: at, To: c.log.End, Reason: "a consistent cut, so that no transaction is committed here and aborted in another partition"}
	c.ask(Effect{Kind: Truncate, Offset: at, Dropped: c.cut}, func(c *Core, e *Event) {
		if e.Err != nil {
			c.stopFailed(fmt.Sprintf("the log cannot be cut to where no transaction is torn, %d", at), e.Err)
			return
		}
		c.sync((*Core).stopRaise)
	})
}

// stopReplicate lets the replicas confirm what was copied, for a bounded time. Once LME and LMO are recorded all of it was confirmed.
func (c *Core) stopReplicate() {
	c.stopStep(statemachine.StopAwaitReplicated)
	if c.recorded() {
		c.stopRecord()
		return
	}
	c.ask(Effect{Kind: AwaitReplicated, Offset: c.log.End, Bound: c.cfg.ReplicaWait}, func(c *Core, e *Event) {
		late := errors.Is(e.Err, context.DeadlineExceeded)
		if e.Err != nil && !late {
			c.stopFailed("the replicas cannot be waited for", e.Err)
			return
		}
		if e.Log.LeaderEpoch > c.log.LeaderEpoch { // somebody may have taken the log
			c.setLog(e.Log)
			c.stop()
			return
		}
		if e.Log.End > c.log.End {
			c.stopFailed("the replicas are waited for", fmt.Errorf("the log ends at %d, and at %d when it was asked who may write it: somebody else writes", e.Log.End, c.log.End))
			return
		}
		c.setLog(e.Log)
		if c.log.Replicated >= c.log.End {
			c.sync((*Core).stopCut)
			return
		}
		if !late {
			c.stopFailed("the replicas are said to have everything", fmt.Errorf("but only up to %d of %d", c.log.Replicated, c.log.End))
			return
		}
		at := c.log.Replicated
		c.cut = Truncation{From: at, To: c.log.End, Reason: fmt.Sprintf("not confirmed by the live replicas within %v of the stop", c.cfg.ReplicaWait)}
		c.ask(Effect{Kind: Truncate, Offset: at, Dropped: c.cut, Unconfirmed: true}, func(c *Core, e *Event) {
			if e.Err != nil {
				c.stopFailed(fmt.Sprintf("the log cannot be cut to what is replicated, %d", at), e.Err)
				return
			}
			c.sync((*Core).stopCut)
		})
	})
}

// stopRecord records LME and LMO, once per episode and before the epoch is raised: after that the log holds epochs and offsets that the source never had.
func (c *Core) stopRecord() {
	c.stopStep(statemachine.RecordLME)
	if c.recorded() {
		if !c.logLost() {
			c.stopCutAway()
		}
		return
	}
	next := c.rec
	if at := c.ownOffset(); at > c.log.End { // whoever carries this on has to come to the same
		next.HoleFrom, next.HoleTo = c.log.End, at
	}
	c.persist(next, c.lastMirrorEpoch(c.epochs.Latest(), c.log.End), func(c *Core) {
		c.unmarked = true
		c.stopRaise()
	})
}

// lastMirrorEpoch is this episode's record.
func (c *Core) lastMirrorEpoch(epoch int32, end int64) *statemachine.LastMirrorEpoch {
	lme := &statemachine.LastMirrorEpoch{Epoch: epoch, Offset: end, SourceClusterID: c.cluster, Episode: c.rec.Episode, SourceTopicID: c.topicID}
	if c.lme != nil && lme.SourceClusterID == "" {
		lme.SourceClusterID = c.lme.SourceClusterID
	}
	return lme
}

// logLost fails the partition if its log ends below where the last mirror ended, and nothing was cut since (decision 19): clients would write over offsets that are known
// to be used.
func (c *Core) logLost() bool {
	if !c.recorded() && !(c.ended() && c.rec.FoundOpen) || c.log.End >= c.lme.Offset {
		return false
	}
	message := fmt.Sprintf("destination log lost: it ends at %d, but the mirror had ended at %d (last mirror epoch %d). It is not opened. Restore the log, or delete the topic and mirror it again",
		c.log.End, c.lme.Offset, c.lme.Epoch)
	if c.rec.State == statemachine.Failed { // it has a reason of its own already
		c.waiting = message
		return true
	}
	c.fail(message, true)
	return true
}

func (c *Core) stopRaise() {
	c.stopStep(statemachine.StopRaiseEpoch)
	above := c.lme.Epoch + 1
	if c.lme.Cut && !c.marked() {
		above = max(above, c.log.LeaderEpoch+1) // what was cut may have had every epoch up to this one, and replicas follow a cut under a new one
	}
	if (c.lme.Epoch < 0 || c.mayHaveCut && (c.rec.Episode > 1 || c.rec.WasOpen)) && !c.marked() {
		// Nothing of the log says which epochs its earlier records had, which a start may have cut: the source may still have them from us, with a last mirror epoch that covers them, or with a
		// former leader that has them.
		above = max(above, c.log.LeaderEpoch+1)
	}
	if c.log.LeaderEpoch >= above {
		c.stopAbort()
		return
	}
	c.ask(Effect{Kind: RaiseEpoch, Epoch: above}, func(c *Core, e *Event) {
		if c.raised(e, above) {
			c.stopAbort()
		}
	})
}

// marked says that this episode's aborts and reset are in the log: the reset comes last, so with it everything is there.
func (c *Core) marked() bool { return c.resetAt >= 0 && c.resetAt >= c.lme.Offset }

// stopAbort closes what is open: one ABORT per transaction, in the order of their first offsets.
func (c *Core) stopAbort() {
	c.stopStep(statemachine.AppendAborts)
	c.writtenOver = c.marked() && c.log.End > c.resetAt+1
	open := c.producers.InFlight()
	if c.marked() || len(open) == 0 {
		c.stopReset()
		return
	}
	at := c.ownOffset()
	bytes := make([]byte, 0, 80*len(open))
	for _, t := range open {
		bytes = append(bytes, txnabort.Abort(at, c.log.LeaderEpoch, t, c.room.now.UnixMilli())...)
		at++
	}
	c.stopAppend(bytes, func(c *Core, e *Event) {
		if e.Err != nil {
			c.stopFailed("the ABORT markers cannot be appended", e.Err)
			return
		}
		if left := c.producers.InFlight(); len(left) > 0 {
			c.stopFailed("the ABORT markers leave a transaction open", fmt.Errorf("producer %d since %d", left[0].ProducerID, left[0].FirstOffset))
			return
		}
		c.stopReset()
	})
}

// ownOffset is where our own first batch goes: an offset that the source is known to have used is not used for something else (decision 18). The highest end that an empty
// reply showed counts although its proof is not complete, as a source that dies then leaves it, and although a later one showed less: a new leader's end may lag behind (F-26), and an election that takes records
// does not take back that their offsets were used. Offsets that are passed over harm nobody. The one exception is a consistent cut: the source's records from LMO on are given up because a person has asked for
// it, readers are held behind it, and its offsets are used again, by these marks and then by clients, under a leader epoch that the source's records there do not have.
func (c *Core) ownOffset() int64 {
	at := max(c.log.End, c.shownEnd, c.keptHole())
	if c.nothingLeft {
		at = max(at, c.provenEnd)
	}
	return at
}

func (c *Core) stopAppend(bytes []byte, then answer) {
	if _, err := c.observe(bytes); err != nil {
		c.dirty = true
		c.stopFailed("our own markers do not fit the log", err)
		return
	}
	c.append(bytes, func(c *Core, e *Event) {
		switch {
		case e.Err == nil:
			c.fences = 0
		case e.Fenced:
			c.fenced(fmt.Sprintf("stopping, our own markers cannot be appended: %v; the stop is tried again from its first step", e.Err), func(c *Core, _ int64) { c.stop() })
			return
		}
		then(c, e)
	})
}

// marksSeen says that the marks of the stop that recorded the end are in the log, or that retention has taken them with all below. A reset that was mirrored last serves as one.
func (c *Core) marksSeen() bool { return c.resetAt >= c.lme.Offset-1 || c.log.Start > c.lme.Offset }

func (c *Core) stopReset() {
	c.stopStep(statemachine.AppendReset)
	at := c.ownOffset()
	if c.marked() || c.producers.LastIsReset() && at == c.log.End { // the source's last batch does what ours would, unless offsets behind it are used up
		c.stopMarkers()
		return
	}
	c.stopAppend(txnabort.PIDReset(at, c.log.LeaderEpoch, c.room.now.UnixMilli()), func(c *Core, e *Event) {
		if e.Err != nil {
			c.stopFailed("the producer-id reset cannot be appended", e.Err)
			return
		}
		c.resetMade = at
		c.stopMarkers()
	})
}

func (c *Core) stopMarkers() {
	c.stopStep(statemachine.AwaitMarkers)
	c.ask(Effect{Kind: AwaitReplicated, Offset: c.log.End, Bound: c.cfg.ReplicaWait}, func(c *Core, e *Event) {
		if errors.Is(e.Err, context.DeadlineExceeded) && c.markerWaits < maxMarkerWaits {
			c.markerWaits++
			c.stopMarkers()
			return
		}
		if e.Err != nil {
			c.stopFailed(fmt.Sprintf("the replicas do not confirm the markers up to %d, and the log is not opened before they do; bring the replicas back, or take the ones that are gone out of the in-sync replicas", c.log.End), e.Err)
			return
		}
		c.setLog(e.Log)
		if c.resetMade < 0 && !c.writtenOver { // an earlier run's, or a mirrored one that serves
			c.resetMade = c.resetAt
		}
		if len(c.aborts) > 0 || c.resetMade >= 0 {
			c.note(Note{Kind: MarkersWritten, Aborts: append([]Marker(nil), c.aborts...), ResetAt: c.resetMade})
		}
		if c.writtenOver {
			c.stopOpen() // ids and groups were settled by the stop that wrote the marks; clients have moved on
			return
		}
		c.stopSettle()
	})
}

func (c *Core) stopSettle() { c.settle((*Core).stopClamp) }

// settle has the destination give out no producer id that is in the log.
func (c *Core) settle(then func(*Core)) {
	c.stopStep(statemachine.SettleProducerIDs)
	highest := c.highestProducerID()
	if highest < 0 {
		then(c)
		return
	}
	c.ask(Effect{Kind: SettleProducerIDs, Offset: highest}, func(c *Core, e *Event) {
		if e.Err != nil {
			c.stopFailed(fmt.Sprintf("the destination's producer ids cannot be moved above %d", highest), e.Err)
			return
		}
		then(c)
	})
}

func (c *Core) stopClamp() {
	c.stopStep(statemachine.ClampGroups)
	c.ask(Effect{Kind: ClampGroups, Offset: c.lme.Offset}, func(c *Core, e *Event) {
		if e.Err != nil {
			c.stopFailed(fmt.Sprintf("the groups that the mirror wrote cannot be moved to %d", c.lme.Offset), e.Err)
			return
		}
		c.stopOpen()
	})
}

func (c *Core) stopOpen() {
	c.stopStep(statemachine.OpenLog)
	c.unmarked = false
	c.ask(Effect{Kind: OpenLog}, func(c *Core, e *Event) {
		if e.Err != nil {
			c.stopFailed("the log cannot be opened for clients", e.Err)
			return
		}
		c.stopped()
	})
}

// stopped ends STOPPING with an open log.
func (c *Core) stopped() {
	c.justOpened = true
	c.move(statemachine.Stopped)
}

// reopen looks whether a STOPPED log is open and opens it if not (decision 4): after a restart it may have come back closed. So it does with the clients' log of a start that only a
// person tries again: the gate may have been on its way to be closed when it failed.
func (c *Core) reopen() {
	c.ifClosed(func(c *Core) {
		if !c.logLost() {
			c.clientsEpoch((*Core).reopenAt)
		}
	})
}

// ifClosed asks whose the log is, and goes on if it has to be opened.
func (c *Core) ifClosed(then func(*Core)) {
	c.askOwner(func(c *Core, e *Event) {
		switch {
		case e.Err != nil:
			c.reopenLater(fmt.Sprintf("the destination log cannot be asked who may write it: %v", e.Err))
		case e.Log.Owner == OwnerForeign:
			c.reopenLater(foreignMessage)
		case c.log.Owner == OwnerOpen:
			c.opens, c.waiting = 0, ""
		default:
			then(c)
		}
	})
}

// reopenAt raises the leader epoch as far as it has to be, and opens the log. Its end was read to know how far: somebody may have opened it, and raised it, meanwhile.
func (c *Core) reopenAt(epoch int32, err error) {
	if err != nil {
		c.reopenLater(fmt.Sprintf("%s: %v", cannotReadItsEnd, err))
		return
	}
	if c.log.LeaderEpoch >= epoch {
		c.reopenNow()
		return
	}
	c.ifClosed(func(c *Core) {
		c.ask(Effect{Kind: RaiseEpoch, Epoch: epoch}, func(c *Core, e *Event) {
			switch {
			case e.Err != nil:
				c.reopenLater(fmt.Sprintf("its leader epoch cannot be raised to %d, above the ones that were used: %v", epoch, e.Err))
			case c.log.LeaderEpoch < epoch:
				c.reopenLater(fmt.Sprintf("its leader epoch is %d after it was to be raised to %d", c.log.LeaderEpoch, epoch))
			default:
				c.reopenNow()
			}
		})
	})
}

// belowLME says that clients would write in an epoch in which the source has written too, or below the marks of the stop: a log may come back from a restart with a lower leader epoch than it had.
func (c *Core) belowLME() bool {
	return c.ended() && (c.log.LeaderEpoch <= c.lme.Epoch || c.log.LeaderEpoch < c.rec.LeaderEpoch)
}

func (c *Core) reopenNow() {
	c.ask(Effect{Kind: OpenLog}, func(c *Core, e *Event) {
		if e.Err != nil {
			c.reopenLater(fmt.Sprintf("the log cannot be opened for clients: %v", e.Err))
			return
		}
		c.opens, c.waiting = 0, ""
	})
}

// reopenLater tries again: the partition is STOPPED all the same.
func (c *Core) reopenLater(why string) {
	c.opens++
	after := c.cfg.Retry.Delay(int16(min(c.opens, 1000)), c.jitter())
	c.waiting = c.rec.State.String() + ", but not open for clients: " + why
	c.note(Note{Kind: Retrying, Attempt: int16(min(c.opens, 1000)), After: after, Message: c.waiting})
	c.wait(after, func(c *Core, _ *Event) { c.reopen() })
}
