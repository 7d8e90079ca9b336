package simulator

import (
	"fmt"

	"github.com/clustermirror/clustermirror/statemachine"
)

// act is a part of a story. Nothing comes between an undisturbed one and the one before it.
type act struct {
	op          func() string // the next one, "" when there is no more to do
	undisturbed bool
}

// once is the act of one op.
func once(op string, undisturbed bool) act {
	return act{undisturbed: undisturbed, op: func() string {
		next := op
		op = ""
		return next
	}}
}

// tell plans a story of ops in a row.
func (a *adversary) tell(ops ...string) {
	for _, op := range ops {
		a.plan = append(a.plan, once(op, true))
	}
}

// then plans an act that may be disturbed.
func (a *adversary) then(op func() string) { a.plan = append(a.plan, act{op: op}) }

// scene plans one of the stories that chance alone hardly ever tells: they need many things in one order, and the world left alone meanwhile. Numbers in them are drawn, and now and then something else happens
// between two ops.
func (a *adversary) scene() {
	m := a.w.mirrors[0]
	p := a.partition()
	stories := []func(m *mirror, p int){a.twoRounds, a.longerThere, a.lateEnds, a.oldReply, a.oldAnswer, a.oldAnswer, a.outOfRange, a.crowd, a.startTakenBack, a.recreatedWhileDown, a.recreatedCopy, a.splitEnd}
	switch {
	case a.w.cfg.Blind: // nobody could see that a broker led again with something else, nor keep clear of the epochs of a topic that began anew
		stories = []func(m *mirror, p int){a.crowd, a.startTakenBack, a.splitEnd, a.lateEnds}
	case a.w.cfg.NoEpochs:
		stories = []func(m *mirror, p int){a.crowd, a.startTakenBack, a.recreatedWhileDown, a.recreatedCopy, a.splitEnd, a.splitEnd, a.splitEnd}
	}
	for a.rng.IntN(3) == 0 { // begin in the other direction, or after a few turns
		a.turn(m)
		m = a.w.opposite(m)
	}
	a.settle(m)
	a.put(m, p, 6)
	a.then(func() string {
		a.next = m
		return ""
	})
	a.caughtUp(m, p)
	stories[a.rng.IntN(len(stories))](m, p)
}

// opposite is the mirror of the other direction.
func (w *world) opposite(m *mirror) *mirror {
	if m == w.mirrors[0] {
		return w.mirrors[1]
	}
	return w.mirrors[0]
}

// say plans one op.
func (a *adversary) say(format string, args ...any) {
	a.plan = append(a.plan, once(fmt.Sprintf(format, args...), false))
}

// await plans to let time pass until something is so, at most so many times.
func (a *adversary) await(most int, pause string, so func() bool) {
	a.then(func() string {
		if most--; most < 0 || so() {
			return ""
		}
		return "run " + pause
	})
}

// settle plans to start a mirror and to consent until all of it mirrors.
func (a *adversary) settle(m *mirror) {
	a.say("start %s", m.name)
	most := 30
	a.then(func() string {
		if most--; most < 0 {
			return ""
		}
		q := m.newest()
		if q == nil {
			return "launch " + m.name
		}
		all := len(q.runners) > 0
		for _, r := range q.runners {
			if r.state == statemachine.Failed && r.core.Status().Needs != nil && a.rng.IntN(4) > 0 {
				return fmt.Sprintf("consent %s %d", m.name, r.l.at.Partition)
			}
			all = all && r.state == statemachine.Mirroring
		}
		if all {
			return ""
		}
		return "run 700ms"
	})
}

// turn plans a life in this direction that ends with a stop.
func (a *adversary) turn(m *mirror) {
	a.settle(m)
	a.put(m, a.partition(), 2)
	a.say("run %dms", 20+a.rng.IntN(500))
	a.over(m)
}

// over plans a stop.
func (a *adversary) over(m *mirror) {
	a.say("stop %s", m.name)
	a.await(20, "800ms", func() bool { return a.w.stopped(m) })
}

// put plans some batches at the source, up to so many.
func (a *adversary) put(m *mirror, p, most int) {
	for range 1 + a.rng.IntN(most) {
		a.say("produce %s orders-%d n=%d", m.source.name, p, 1+a.rng.IntN(3))
	}
}

// caughtUp plans to wait until the copy has everything.
func (a *adversary) caughtUp(m *mirror, p int) {
	a.await(8, "400ms", func() bool {
		from, to := m.source.log(m.topic, int32(p)), m.destination.log(m.topic, int32(p))
		return from != nil && to != nil && to.high >= from.high
	})
}

// left behind plans that a follower has nothing of what comes now.
func (a *adversary) leave(m *mirror, p int) {
	a.say("lag %s orders-%d", m.source.name, p)
	a.say("shrink %s orders-%d", m.source.name, p)
}

func (a *adversary) elect(m *mirror, p int, how string) {
	a.say("elect %s orders-%d%s", m.source.name, p, how)
}

// blind plans to cut the mirror off from its source while something happens there.
func (a *adversary) blind(m *mirror, what func()) {
	a.say("network %s %s", m.name, a.pick("cut", "black-hole"))
	what()
	a.say("network %s heal", m.name)
}

// twoRounds: the copy has an epoch that the source lacks, and the source one in between that the copy lacks (F-36).
func (a *adversary) twoRounds(m *mirror, p int) {
	a.leave(m, p)
	a.put(m, p, 3)
	a.caughtUp(m, p)
	a.blind(m, func() {
		a.elect(m, p, " unclean")
		a.put(m, p, 4)
		a.elect(m, p, " former")
		a.put(m, p, 3)
	})
	a.caughtUp(m, p)
	a.say("run 3s")
	a.elect(m, p, " former")
	a.put(m, p, 3)
}

// longerThere: of an epoch that both have the source has more, and the copy went on in one that the source lacks.
func (a *adversary) longerThere(m *mirror, p int) {
	a.leave(m, p)
	a.blind(m, func() {
		a.put(m, p, 4)
		a.elect(m, p, " unclean")
		a.put(m, p, 3)
	})
	a.caughtUp(m, p)
	a.say("run 3s")
	a.elect(m, p, " former")
	a.put(m, p, 3)
}

// lateEnds: while a leader begins, the end of its epoch is late, twice the same (F-41), or not known at all (F-40).
func (a *adversary) lateEnds(m *mirror, p int) {
	a.say("network %s %s n=%d", m.name, a.pick("late-end", "late-end", "undefined"), 1+a.rng.IntN(5))
	a.say("doubt %s %d", m.name, p)
	a.put(m, p, 2)
	a.say("run 4s")
}

// oldReply: the reply to a fetch comes when the same offset is fetched again, from another leader who has something else there (F-38).
func (a *adversary) oldReply(m *mirror, p int) {
	a.leave(m, p)
	a.say("network %s past n=1", m.name)
	a.put(m, p, 1)
	a.say("step %d", 1+a.rng.IntN(3))
	a.say("network %s delay by=%dms", m.name, 50+a.rng.IntN(600))
	a.elect(m, p, " unclean")
	soon := a.rng.IntN(2) == 0
	if soon {
		a.put(m, p, 2)
	}
	a.say("doubt %s %d", m.name, p)
	a.say("run 6s")
	if !soon {
		a.put(m, p, 2)
	}
}

// oldAnswer: answers about epochs come twice while the leader changes, so that an old one meets the same question again.
func (a *adversary) oldAnswer(m *mirror, p int) {
	a.leave(m, p)
	a.put(m, p, 2)
	a.caughtUp(m, p)
	a.say("network %s delay by=%dms", m.name, 100+a.rng.IntN(700))
	a.say("network %s duplicate n=20", m.name)
	for range 1 + a.rng.IntN(2) {
		a.say("doubt %s %d", m.name, p)
		a.say("run %dms", 1000+a.rng.IntN(3000))
		a.elect(m, p, a.pick(" unclean", " unclean", " former"))
		a.put(m, p, 2)
	}
	a.say("run 6s")
}

// outOfRange: a new leader that does not know its own high watermark yet answers as if it lacked what the copy has (F-26).
func (a *adversary) outOfRange(m *mirror, p int) {
	a.say("lag %s orders-%d", m.source.name, p)
	a.elect(m, p, fmt.Sprintf(" stale=%dms", 2000+a.rng.IntN(4000)))
	a.say("run 3s")
	a.elect(m, p, fmt.Sprintf(" stale=%dms", 2000+a.rng.IntN(4000)))
	a.put(m, p, 2)
	a.say("run 3s")
}

// crowd: a reply that is full of other partitions, or leaves this one out, is the last thing that is heard of the source (F-05).
func (a *adversary) crowd(m *mirror, p int) {
	how := a.pick("crowded", "left-out")
	a.say("network %s %s n=%d", m.name, how, 1+a.rng.IntN(9))
	a.put(m, p, 9)
	if how == "left-out" {
		a.say("run %dms", 450+a.rng.IntN(150))
	} else {
		a.say("step %d", 2+a.rng.IntN(20))
	}
	if a.rng.IntN(2) == 0 {
		a.say("lose %s", m.source.name)
	}
	a.over(m)
	a.say("return %s", m.source.name)
}

// startTakenBack: a look at the source finds its log to start behind the copy's end, and the next one does not.
func (a *adversary) startTakenBack(m *mirror, p int) {
	a.blind(m, func() { a.put(m, p, 4) })
	a.say("network %s bold-start n=%d", m.name, 1+a.rng.IntN(3))
	a.say("doubt %s %d", m.name, p)
	a.say("run 3s")
}

// recreatedWhileDown: the source's topic is deleted and created again while nobody looks, and soon has more than the copy, under the same epochs (F-28).
func (a *adversary) recreatedWhileDown(m *mirror, p int) {
	a.say("%s %s", a.pick("crash", "crash", "hold", "pause"), m.name)
	a.say("delete-topic %s %s", m.source.name, m.topic)
	a.say("recreate %s %s", m.source.name, m.topic)
	for range a.rng.IntN(3) {
		a.elect(m, p, "")
	}
	a.put(m, p, 20)
	a.put(m, p, 9)
	a.say("crash %s", m.name)
	a.say("launch %s", m.name)
	a.say("start %s", m.name)
	a.say("run 5s")
}

// recreatedCopy: the old primary comes back to a topic that was deleted there and copied from it anew: the end that is recorded for it is of another topic than the one it copied (F-28).
func (a *adversary) recreatedCopy(m *mirror, p int) {
	o := a.w.opposite(m)
	a.over(m)
	a.settle(o)
	a.put(o, p, 2)
	a.caughtUp(o, p)
	a.over(o)
	a.say("delete-topic %s %s", m.destination.name, m.topic)
	a.settle(m)
	a.caughtUp(m, p)
	a.over(m)
	a.put(o, p, 2)
	a.settle(o)
}

// splitEnd: the old primary writes on, in the epoch in which its copy was stopped and in later ones, and comes back.
func (a *adversary) splitEnd(m *mirror, p int) {
	a.blind(m, func() {
		a.put(m, p, 4)
		a.over(m)
		a.put(m, p, 2)
		for range a.rng.IntN(3) {
			a.elect(m, p, "")
			a.put(m, p, 2)
		}
	})
	o := a.w.opposite(m)
	a.put(o, p, 5)
	a.settle(o)
	a.put(o, p, 3)
	a.caughtUp(o, p)
}
