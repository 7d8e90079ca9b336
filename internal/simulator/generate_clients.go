package simulator

import (
	"fmt"
	"time"
)

// clients adds what consumers do, and begins some runs with a story about groups.
func (a *adversary) clients(some func(func() string)) {
	some(a.group)
	if a.rng.IntN(2) == 0 {
		a.add(4+a.rng.IntN(10), a.poll)
	}
	some(func() string {
		return fmt.Sprintf("groups %s %s", a.cluster(), a.pick("hang", "slow", fmt.Sprintf("slow by=%dms", 100+a.rng.IntN(4000))))
	})
	switch a.rng.IntN(24) {
	case 0, 1:
		a.tell(a.writtenDuringAStop()...)
	case 2, 3:
		a.tell(a.neverWritten()...)
	case 4, 5, 6:
		a.tell(a.stoppedBehindClients()...)
	case 7:
		a.tell(a.movedAtTheCopy()...)
	case 8, 9:
		a.tell(a.readInPieces()...)
	case 10:
		a.tell(a.aheadOfTheCopy()...)
	case 11, 12, 13:
		if a.w.cfg.Closes {
			a.tell(a.endsBeforeStopped()...)
		}
	}
}

// poll lets a consumer read where clients write, mostly.
func (a *adversary) poll() string {
	c := a.primary()
	if a.rng.IntN(8) == 0 {
		c = a.cluster()
	}
	return fmt.Sprintf("poll %s orders-%d by=%s%s", c, a.partition(), a.pick("R1", "R1", "U1", "U1", "g1", "g2"), a.pick("", "", " n=1", " n=2"))
}

// ran is a pause of least to most.
func (a *adversary) ran(least, most time.Duration) string {
	return fmt.Sprintf("run %dms", (least + time.Duration(a.rng.Int64N(int64(most-least)))).Milliseconds())
}

// mirrored is a copy at B, and consumers of it that have read some of it.
func (a *adversary) mirrored() []string {
	return []string{
		fmt.Sprintf("produce A orders-0 n=%d", 2+a.rng.IntN(5)), "start a-to-b", a.ran(time.Second, 2*time.Second),
		fmt.Sprintf("group A orders-0 name=g1 to=%d", 1+a.rng.IntN(3)), a.ran(groupsEvery, groupsEvery+2*time.Second), fmt.Sprintf("produce A orders-0 n=%d", 1+a.rng.IntN(5)),
	}
}

// writtenDuringAStop: writes of groups are under way for long when a stop comes.
func (a *adversary) writtenDuringAStop() []string {
	return append(a.mirrored(), fmt.Sprintf("groups B slow by=%dms", 1000+a.rng.IntN(3500)), "group A orders-0 name=g1", a.ran(time.Second, groupsEvery+time.Second), "stop a-to-b", a.ran(time.Millisecond, 3*time.Second))
}

// neverWritten: writes of groups do not end, and a stop has to.
func (a *adversary) neverWritten() []string {
	return append(a.mirrored(), "groups B hang", "group A orders-0 name=g1", a.ran(groupsEvery, groupsEvery+time.Second), "stop a-to-b", a.ran(time.Millisecond, 10*time.Second))
}

// movedAtTheCopy: somebody commits at the copy, mostly behind where the source's group stands, which goes on, or does not.
func (a *adversary) movedAtTheCopy() []string {
	story := append(a.mirrored(), "group A orders-0 name=g1", a.ran(groupsEvery, groupsEvery+time.Second), fmt.Sprintf("group B orders-0 name=g1 to=%d", 1+a.rng.IntN(4)))
	story = append(story, a.pick("step 1", fmt.Sprintf("group A orders-0 name=g1 to=%d", 2+a.rng.IntN(4))), a.ran(time.Second, groupsEvery+time.Second))
	return append(story, a.pick("step 1", fmt.Sprintf("group B orders-0 name=g1 to=%d", 1+a.rng.IntN(4))), a.ran(groupsEvery, groupsEvery+time.Second))
}

// readInPieces: transactions overlap, and consumers read them batch by batch.
func (a *adversary) readInPieces() []string {
	var story []string
	for range 1 + a.rng.IntN(3) {
		story = append(story, "begin A T1", "send T1 orders-0", "begin A T2", "send T2 orders-0 n=2", "send T1 orders-0 n=2", a.pick("abort T2", "commit T2", "step 1"), "produce A orders-0", "send T1 orders-0", a.pick("abort T1", "abort T1", "commit T1"), a.pick("abort T2", "commit T2"))
	}
	for range 2 + a.rng.IntN(8) {
		story = append(story, fmt.Sprintf("poll A orders-0 by=R1 n=%d", 1+a.rng.IntN(2)))
	}
	return story
}

// aheadOfTheCopy: consumers commit leader epochs that the copy has not seen a record of.
func (a *adversary) aheadOfTheCopy() []string {
	return append(a.mirrored(), "elect A orders-0", "elect A orders-0", a.ran(time.Millisecond, time.Second), fmt.Sprintf("group A orders-0 name=g1 to=%d latest", 1+a.rng.IntN(4)), a.ran(groupsEvery, groupsEvery+time.Second))
}

// endsBeforeStopped: a stop has opened the log, and clients have written, when its process ends before STOPPED is recorded; the restart closes the log, and the stop begins again.
func (a *adversary) endsBeforeStopped() []string {
	story := append(a.mirrored(), "store A slow by=0ms", "store B slow by=400ms")
	if a.rng.IntN(2) == 0 {
		story = append(story, "join B g1")
	}
	return append(story, "stop a-to-b", a.ran(830*time.Millisecond, 1200*time.Millisecond), "produce B orders-0 n=2", "leave B g1", a.pick("forget B g1", "forget B g1", "group B orders-0 name=g1"), "crash a-to-b", "launch a-to-b", a.ran(time.Second, 4*time.Second))
}

// stoppedBehindClients: after a failover clients write and consumers are moved, or forgotten; then a start is refused, and stopped.
func (a *adversary) stoppedBehindClients() []string {
	story := a.mirrored()
	if a.rng.IntN(2) == 0 {
		story = append(story, "join B g1")
	}
	story = append(story, "stop a-to-b", a.ran(time.Second, 3*time.Second), "produce B orders-0 n=2", "leave B g1", a.pick("forget B g1", "group B orders-0 name=g1", "step 1"), "produce B orders-0",
		a.pick("crash a-to-b", "step 1"), "launch a-to-b", "start a-to-b", a.ran(time.Second, 3*time.Second))
	return append(story, a.pick("crash a-to-b", "step 1"), "launch a-to-b", "stop a-to-b", a.ran(time.Second, 3*time.Second))
}

// group lets consumers read on, mostly where they write, now and then back, and now and then at a copy.
func (a *adversary) group() string {
	c, name := a.primary(), a.pick("g1", "g2")
	switch a.rng.IntN(12) {
	case 0:
		c = a.cluster()
	case 1:
		return fmt.Sprintf("join %s %s", a.cluster(), name)
	case 2, 3:
		return fmt.Sprintf("leave %s %s", a.cluster(), name)
	case 4:
		if a.rng.IntN(3) == 0 {
			return fmt.Sprintf("forget %s %s", a.cluster(), name)
		}
	}
	p, to := a.partition(), ""
	if l := a.w.cluster(c).log("orders", int32(p)); l != nil && l.high > l.start && a.rng.IntN(3) == 0 {
		to = fmt.Sprintf(" to=%d", l.start+int64(a.rng.IntN(int(l.high-l.start))))
	}
	return fmt.Sprintf("group %s orders-%d name=%s%s%s", c, p, name, to, a.pick("", "", "", " latest"))
}
