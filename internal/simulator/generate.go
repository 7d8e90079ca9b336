package simulator

import (
	"fmt"
	"math/rand/v2"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// adversary chooses the next op. It is driven by the seed and sees the state of the world; what it chose is a script that replays without it.
//
// Each seed draws weights and which kinds of faults are on at all: a run in which everything goes wrong at once finds less than many in which a few things do (swarm testing).
type adversary struct {
	w    *world
	rng  *rand.Rand
	move []choice
	sum  int
	pace int // of the life of mirrors, in percent of all ops
	calm bool
	idle bool  // mirrors are paused often
	plan []act // the stories that are being told
	next *mirror
}

type choice struct {
	weight int
	op     func() string
}

func newAdversary(w *world, rng *rand.Rand) *adversary {
	a := &adversary{w: w, rng: rng, next: w.mirrors[0], pace: 12 + rng.IntN(25), calm: rng.IntN(2) == 0}
	odds := 3
	if a.calm { // many lives with few faults, beside few lives with many
		a.pace, odds = 40+rng.IntN(30), 9
	}
	if rng.IntN(3) == 0 { // states last as long as the store takes to write the next one
		a.tell(fmt.Sprintf("store A slow by=%dms", 50+rng.IntN(400)), fmt.Sprintf("store B slow by=%dms", 50+rng.IntN(400)))
		a.idle = rng.IntN(2) == 0
	}
	if w.cfg.Blind { // every election is seen by its first batch only
		a.tell(fmt.Sprintf("network a-to-b delay by=%dms", 20+rng.IntN(400)), "network b-to-a delay by=100ms")
		a.add(25, func() string { return fmt.Sprintf("elect %s orders-%d", a.primary(), a.partition()) })
	}
	always := func(weight int, op func() string) { a.add(weight, op) }
	some := func(op func() string) {
		if rng.IntN(odds) > odds/3 != a.calm {
			a.add(1+rng.IntN(10), op)
		}
	}
	always(15+rng.IntN(20), a.produce)
	always(10+rng.IntN(20), func() string { return fmt.Sprintf("run %dms", 1+a.rng.IntN(2000)) })
	always(5+rng.IntN(20), func() string { return fmt.Sprintf("step %d", 1+a.rng.IntN(12)) })
	always(6, a.mend)
	some(a.transaction)
	some(a.transaction)
	some(func() string { return fmt.Sprintf("elect %s%s", a.log(), a.stale()) })
	some(a.unclean)
	if w.cfg.Unfenced { // a broker that leads again under a newer epoch goes on answering those who ask under the old one
		a.add(10, func() string {
			op := fmt.Sprintf("elect %s orders-%d", a.primary(), a.partition())
			a.plan = append([]act{once(op, true)}, a.plan...)
			return op
		})
	}
	some(func() string { return fmt.Sprintf("lag %s n=%d", a.log(), 1+a.rng.IntN(2)) })
	some(func() string { return fmt.Sprintf("shrink %s", a.log()) })
	some(func() string { return fmt.Sprintf("lead %s none", a.log()) })
	some(a.trim)
	some(func() string { return "compact " + a.log() })
	some(func() string { return fmt.Sprintf("fence %s by=%d", a.log(), 1+a.rng.IntN(3)) })
	some(func() string { return "full " + a.log() })
	some(func() string { return fmt.Sprintf("slow %s by=%dms", a.log(), 1+a.rng.IntN(400)) })
	some(a.network)
	some(a.network)
	some(a.spoil)
	some(a.spoil)
	some(a.fault)
	some(a.fault)
	some(a.fault)
	some(func() string {
		return fmt.Sprintf("store %s %s n=%d", a.cluster(), a.pick("before", "after", "after", "loads"), 1+a.rng.IntN(4))
	})
	some(func() string { return fmt.Sprintf("store %s slow by=%dms", a.cluster(), a.rng.IntN(300)) })
	some(func() string { return fmt.Sprintf("crash %s keep=%d", a.busy(), a.rng.IntN(4)) })
	some(func() string { return "take-over " + a.busy() })
	some(func() string { return "hold " + a.busy() })
	if rng.IntN(3) == 0 {
		a.add(1+rng.IntN(3), func() string { return "lose " + a.cluster() })
	}
	if rng.IntN(4) == 0 {
		a.add(1+rng.IntN(3), func() string {
			return fmt.Sprintf("%s %s orders", a.pick("delete-topic", "recreate", "recreate"), a.cluster())
		})
	}
	if rng.IntN(3) == 0 {
		a.add(1+rng.IntN(3), func() string {
			return fmt.Sprintf("doubt %s %d%s", a.busy(), a.partition(), a.pick("", "", "", " for-good"))
		})
	}
	if rng.IntN(3) == 0 {
		a.add(1+rng.IntN(4), func() string { return fmt.Sprintf("%s %s", a.pick("start", "stop", "pause"), a.mirror()) })
	}
	if rng.IntN(4) == 0 {
		a.add(1+rng.IntN(3), func() string { return fmt.Sprintf("recover %s %d", a.busy(), a.partition()) })
	}
	if rng.IntN(6) == 0 {
		a.add(1, func() string {
			return fmt.Sprintf("tune %s loss=%s floor=%d", a.mirror(), a.pick("restart", "fail", "keep"), a.rng.IntN(2)*a.rng.IntN(30))
		})
	}
	if rng.IntN(4) == 0 {
		a.add(1+rng.IntN(3), func() string {
			from := a.rng.IntN(60)
			return fmt.Sprintf("consent %s %d from=%d to=%d episode=%d", a.busy(), a.partition(), from, from+a.rng.IntN(40), a.rng.IntN(6))
		})
	}
	a.clients(some)
	a.destination(rng)
	if rng.IntN(2) == 0 {
		for range 1 + rng.IntN(2) {
			a.scene()
		}
	}
	return a
}

func (a *adversary) add(weight int, op func() string) {
	a.move = append(a.move, choice{weight, op})
	a.sum += weight
}

// choose is the next op.
func (a *adversary) choose() string {
	for len(a.plan) > 0 {
		if !a.plan[0].undisturbed && a.rng.IntN(30) == 0 { // a scene that is disturbed may become another one
			break
		}
		if op := a.plan[0].op(); op != "" {
			return op
		}
		a.plan = a.plan[1:]
	}
	if a.rng.IntN(100) < a.pace {
		if op := a.life(); op != "" {
			return op
		}
	}
	n := a.rng.IntN(a.sum)
	for _, c := range a.move {
		if n -= c.weight; n < 0 {
			return c.op()
		}
	}
	return "step 1"
}

func (a *adversary) pick(list ...string) string { return list[a.rng.IntN(len(list))] }

func (a *adversary) partition() int { return a.rng.IntN(int(a.w.cfg.Partitions)) }

func (a *adversary) cluster() string { return a.pick("A", "B") }

func (a *adversary) mirror() string { return a.pick("a-to-b", "b-to-a") }

func (a *adversary) log() string { return fmt.Sprintf("%s orders-%d", a.cluster(), a.partition()) }

// busy is the mirror that is at work, most of the time.
func (a *adversary) busy() string {
	for _, m := range a.w.mirrors {
		if m.member && m.want == statemachine.WantMirroring && a.rng.IntN(5) > 0 {
			return m.name
		}
	}
	return a.mirror()
}

func (a *adversary) stale() string {
	if a.rng.IntN(2) == 0 {
		return ""
	}
	return fmt.Sprintf(" stale=%dms", 50+a.rng.IntN(4000))
}

// primary is a cluster whose log clients write.
func (a *adversary) primary() string {
	for range 4 {
		c := a.w.cluster(a.cluster())
		if l := c.log("orders", int32(a.partition())); l != nil && l.open && !c.lost {
			return c.name
		}
	}
	return a.cluster()
}

func (a *adversary) produce() string {
	op := fmt.Sprintf("produce %s orders-%d n=%d", a.primary(), a.partition(), 1+a.rng.IntN(4))
	if a.rng.IntN(2) == 0 {
		op += fmt.Sprintf(" by=P%d", 1+a.rng.IntN(3))
	}
	return op
}

func (a *adversary) transaction() string {
	t := fmt.Sprintf("T%d", 1+a.rng.IntN(3))
	p := a.w.producer(t)
	switch {
	case p == nil || !p.open && !p.ended:
		return fmt.Sprintf("begin %s %s%s", a.primary(), t, a.pick("", " v2"))
	case p.ended:
		return "commit " + t
	case len(p.wrote) == 0 || a.rng.IntN(2) == 0:
		return fmt.Sprintf("send %s orders-%d n=%d", t, a.partition(), 1+a.rng.IntN(3))
	}
	return fmt.Sprintf("%s %s%s", a.pick("commit", "commit", "abort"), t, a.pick("", "", " most=1"))
}

// unclean prepares an unclean election, or holds it.
func (a *adversary) unclean() string {
	c := a.cluster()
	l := a.w.cluster(c).log("orders", int32(a.partition()))
	if l == nil {
		return "step 1"
	}
	at := fmt.Sprintf("%s orders-%d", c, l.at.Partition)
	stuck, out := false, false
	for i := range l.replicas {
		stuck = stuck || l.replicas[i].stuck
		out = out || !l.replicas[i].inSync
	}
	switch {
	case !stuck:
		return "lag " + at
	case !out:
		return "shrink " + at
	case a.rng.IntN(2) == 0:
		return fmt.Sprintf("produce %s n=%d", at, 1+a.rng.IntN(4))
	}
	if l.former != nil && a.rng.IntN(3) == 0 {
		return fmt.Sprintf("elect %s former", at)
	}
	return fmt.Sprintf("elect %s unclean%s", at, a.stale())
}

func (a *adversary) trim() string {
	c := a.cluster()
	p := a.partition()
	to := int64(0)
	if l := a.w.cluster(c).log("orders", int32(p)); l != nil && l.high > l.start {
		to = l.start + 1 + int64(a.rng.IntN(int(l.high-l.start)))
	}
	return fmt.Sprintf("trim %s orders-%d to=%d", c, p, to)
}

func (a *adversary) network() string {
	return fmt.Sprintf("network %s %s", a.busy(), a.pick("cut", "black-hole", "heal", fmt.Sprintf("delay by=%dms", 1+a.rng.IntN(1500))))
}

func (a *adversary) spoil() string {
	return fmt.Sprintf("network %s %s n=%d", a.busy(), a.pick("duplicate", "reorder", "past", "past", "corrupt", "corrupt", "cut-reply", "crowded", "left-out", "undefined", "late-end", "late-mark", "bold-start"), 1+a.rng.IntN(4))
}

// faulty are the effects that a destination or a source may let fail.
var faulty = []partition.EffectKind{
	partition.CheckSource, partition.AskEpoch, partition.AskOwner, partition.CloseForWrites, partition.Truncate, partition.Reset, partition.RaiseStart, partition.RaiseEpoch,
	partition.Rebuild, partition.AddFetcher, partition.Continue, partition.Append, partition.Append, partition.QuiesceGroups, partition.SettleProducerIDs, partition.ClampGroups,
	partition.OpenLog, partition.AskRecovered, partition.AwaitTruncated,
}

func (a *adversary) fault() string {
	return fmt.Sprintf("fault %s %v %s", a.busy(), faulty[a.rng.IntN(len(faulty))], a.pick("before", "after", "half"))
}

// mend ends one thing that is wrong.
func (a *adversary) mend() string {
	switch a.rng.IntN(8) {
	case 0, 1:
		return fmt.Sprintf("network %s heal", a.mirror())
	case 2:
		return "catch-up " + a.log()
	case 3:
		return "room " + a.log()
	case 4:
		return fmt.Sprintf("slow %s by=0ms", a.log())
	case 5:
		return fmt.Sprintf("lead %s again", a.log())
	case 6:
		return "return " + a.cluster()
	}
	for _, m := range a.w.mirrors {
		if len(m.processes) == 0 {
			return "launch " + m.name
		}
	}
	return "resume " + a.mirror()
}

// help mends what keeps a mirror from being where it is wanted.
func (a *adversary) help(m *mirror) string {
	switch a.rng.IntN(6) {
	case 0:
		return fmt.Sprintf("network %s heal", m.name)
	case 1:
		return fmt.Sprintf("catch-up %s orders-%d", m.destination.name, a.partition())
	case 2:
		return fmt.Sprintf("lead %s orders-%d again", m.source.name, a.partition())
	case 3:
		if m.source.lost || m.destination.lost {
			return "return " + a.cluster()
		}
	}
	return fmt.Sprintf("run %dms", 500+a.rng.IntN(4000))
}

// life moves the mirrors on: start, consent, stop, back in the other direction. "": nothing to do.
func (a *adversary) life() string {
	w := a.w
	for _, m := range w.mirrors {
		if len(m.processes) == 0 && m.member && a.rng.IntN(2) == 0 {
			return "launch " + m.name
		}
		if p := m.newest(); p != nil && p.held && a.rng.IntN(2) == 0 {
			return "resume " + m.name
		}
	}
	for _, m := range w.mirrors {
		if !m.member || m.want == statemachine.WantStopped {
			continue
		}
		if m.want == statemachine.WantPaused {
			if a.idle && a.rng.IntN(2) == 0 {
				return ""
			}
			return a.pick("start ", "start ", "stop ") + m.name
		}
		p := m.newest()
		if p == nil || len(p.runners) == 0 {
			break
		}
		all := true
		for _, r := range p.runners {
			if r.state == statemachine.Failed && r.core.Status().Needs != nil {
				return fmt.Sprintf("consent %s %d", m.name, r.l.at.Partition)
			}
			all = all && r.state == statemachine.Mirroring
		}
		switch {
		case !all && a.calm && a.rng.IntN(3) > 0:
			return a.help(m)
		case all && a.rng.IntN(3) == 0:
			a.next = w.mirrors[0]
			if m == w.mirrors[0] {
				a.next = w.mirrors[1]
			}
			if a.rng.IntN(5) == 0 || a.idle && a.rng.IntN(3) > 0 {
				return "pause " + m.name
			}
			return "stop " + m.name
		case a.rng.IntN(12) == 0:
			return "stop " + m.name
		}
		return ""
	}
	for _, m := range w.mirrors { // wait for a stop
		if p := m.newest(); p != nil && m.member {
			for _, r := range p.runners {
				if r.state != statemachine.Stopped && a.rng.IntN(4) > 0 {
					return fmt.Sprintf("run %dms", 100+a.rng.IntN(3000))
				}
			}
		}
	}
	if a.rng.IntN(3) == 0 {
		return "start " + a.mirror()
	}
	return "start " + a.next.name
}
