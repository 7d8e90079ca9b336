package partition

import (
	"fmt"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Tiered storage (KIP-405, F-86): at the source old records come slowly and are no failure; at the destination they cannot be cut.

// proveHole decides what an empty reply proves, although the source ends above our position, at end. Records that are in remote storage alone are sent when they are there in time;
// until then the broker answers without any and without an error (DelayedRemoteFetch). So the source is asked where its own disks begin: from there on an empty reply means a hole (F-05).
func (c *Core) proveHole(end int64) {
	if c.localStart > c.position() { // it only grows
		c.awaitRemote()
		return
	}
	c.ask(Effect{Kind: CheckSource, Local: true}, func(c *Core, e *Event) {
		v := &e.Source
		switch {
		case v.Permanent:
			c.accept(e)
			return
		case e.Err != nil, v.LeaderID < 0, c.deposed(v):
			c.goOn() // nothing is concluded
			return
		case !c.identity(v):
			return
		}
		c.learnEnds(v.LogStart, v.HighWatermark)
		if v.LeaderEpoch > c.askedUnder || c.src.LogStart > c.position() {
			c.mirror()
			return
		}
		if c.localStart = v.LocalStart; c.localStart > c.position() {
			c.awaitRemote()
			return
		}
		c.keepHole(end, func(c *Core) {
			c.nothingLeft, c.provenEnd = true, end
			c.note(Note{Kind: NothingLeft, Offset: end, Message: fmt.Sprintf("nothing left to read; the source ends at %d, the copy at %d", end, c.log.End)})
			c.caughtUpNow()
			c.goOn()
		})
	})
}

// keepHole records a hole behind the copy's end before anybody is told of it: a process that begins when the source is gone cannot see it, and would use the source's offsets again (decision 18).
func (c *Core) keepHole(to int64, then func(*Core)) {
	if c.keptHole() >= to {
		then(c)
		return
	}
	next := c.rec
	next.HoleFrom, next.HoleTo = c.log.End, to
	c.persist(next, nil, then)
}

// keptHole is the end of the hole that is recorded behind the copy's present end, 0: none is.
func (c *Core) keptHole() int64 {
	if c.rec.HoleFrom != c.log.End || c.holeFilled {
		return 0
	}
	return c.rec.HoleTo
}

// awaitRemote asks again before long: the first try has set the source's reading going.
func (c *Core) awaitRemote() {
	c.waiting = fmt.Sprintf("the source reads offset %d from its remote storage, up to %d; it takes its time, and is asked again", c.position(), c.localStart)
	c.emptyWait, c.shownEnd = c.backoff(1), 0 // there are records
	c.goOn()
}

// remotePart says that a cut to this offset would go into the part of our log that is in remote storage, where nothing can be cut.
func (c *Core) remotePart(to int64) bool {
	return c.log.LowestCut > c.log.Start && to < c.log.LowestCut
}

func (c *Core) remoteMessage(to int64) string {
	return fmt.Sprintf("cannot truncate into remote storage: the destination's log would have to be cut at %d, and can be cut down to %d only, because what lies below is in its remote storage. "+
		"Nothing was changed. Keep the topic stopped, or delete it here, without tiered storage the next time, and start it anew", to, c.log.LowestCut)
}

// refuseRemote ends what would need such a cut: no retry can help.
func (c *Core) refuseRemote(to int64) {
	message := c.remoteMessage(to)
	if c.rec.State == statemachine.Preparing {
		c.refuseWith(message)
		return
	}
	c.fail(message, true)
}
