package simulator

import (
	"context"
	"errors"
	"time"

	"github.com/clustermirror/clustermirror/internal/clienthistory"
	"github.com/clustermirror/clustermirror/internal/metadatasync"
	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// groupsEvery is how often a process looks at groups.
const groupsEvery = 4 * time.Second

// groups are the consumer groups of both clusters, and what mirrors remember of them.
type groups struct {
	placed   []*placed
	active   []member
	memories []*memory
}

// member is a group that has members at a cluster.
type member struct {
	c    *cluster
	name string
}

// placed is where a group is in one log, and who put it there.
type placed struct {
	name string
	l    *partitionLog
	at   metadatasync.Offset
	who  model.Who
	left bool // the mirror has ended without having had it in its hands, and says so
}

// groupFault is how writes of groups go wrong at a cluster.
type groupFault struct {
	slow time.Duration
	hang int // writes that never end: a client that does not listen to its context
}

// memory is what a mirror remembers, durably, of a group in one partition.
type memory struct {
	m       *mirror
	name    string
	l       *partitionLog
	episode int32
	left    bool          // the source had it when it was looked at last only as something that was left there
	busy    time.Duration // a write is under way until then, at most
	metadatasync.Memory
}

func (g *groups) find(name string, l *partitionLog) *placed {
	for _, p := range g.placed {
		if p.name == name && p.l == l {
			return p
		}
	}
	return nil
}

func (g *groups) isActive(c *cluster, name string) bool {
	for _, a := range g.active {
		if a.c == c && a.name == name {
			return true
		}
	}
	return false
}

func (g *groups) memory(m *mirror, name string, l *partitionLog) *memory {
	for _, k := range g.memories {
		if k.m == m && k.name == name && k.l == l {
			return k
		}
	}
	k := &memory{m: m, name: name, l: l, episode: -1, Memory: metadatasync.Forgotten()}
	g.memories = append(g.memories, k)
	return k
}

// settled says that a mirror has looked at a group in this episode, and that it was where its clients had put it.
func (g *groups) settled(r *runner, name string) bool {
	for _, k := range g.memories {
		if k.m == r.m && k.name == name && k.l == r.l {
			return k.episode == r.episode && !k.left
		}
	}
	return false
}

// place commits a group's offset.
func (w *world) place(name string, l *partitionLog, at metadatasync.Offset, who model.Who) {
	p := w.groups.find(name, l)
	forgotten := p == nil
	if forgotten {
		p = &placed{name: name, l: l}
		w.groups.placed = append(w.groups.placed, p)
	}
	for _, k := range w.groups.memories { // who commits just what the mirror has written, or replaced, cannot be told from it: where the group was forgotten, or it is not known whether the write was done
		if who != model.Clients || k.l != l || k.name != name {
			continue
		}
		if forgotten && k.Wrote == at.Offset || (forgotten || k.Wrote != k.Before) && k.Before == at.Offset && !k.Theirs {
			w.tell(func(m *model.World) { m.Aims(model.Of{Mirror: k.m.name, At: l.at}, name, at.Offset) })
		}
	}
	p.at, p.who, p.left = at, who, false
	if k := w.history.of(l); k != nil && who == model.Clients {
		w.history.h.Commits = append(w.history.h.Commits, clienthistory.Commit{Span: w.history.span(), Group: name, Cluster: l.c.name, Partition: k.id, Offset: at.Offset, Outcome: clienthistory.OK})
	}
	w.say("group %s of %v is at %d", name, l.at, at.Offset)
	w.tell(func(m *model.World) { m.Committed(l.at, who, name, at.Offset, at.LeaderEpoch) })
}

// epochBelow is the leader epoch of the last batch below an offset.
func (l *partitionLog) epochBelow(offset int64) int32 {
	epoch := int32(metadatasync.None)
	for i := range l.batches {
		if h := &l.batches[i].h; h.BaseOffset < offset {
			epoch = h.LeaderEpoch
		}
	}
	return epoch
}

// opGroup is a consumer that has read up to somewhere.
func opGroup(w *world, l *partitionLog, o *words) {
	name := o.set["name"]
	if l.c.lost || name == "" {
		return
	}
	to := min(max(o.number("to", l.high), l.start), l.high)
	at := metadatasync.Offset{Offset: to, LeaderEpoch: l.epochBelow(to)}
	if o.has("latest") {
		at.LeaderEpoch = l.epoch
	}
	w.place(name, l, at, model.Clients)
}

// opForget lets a cluster forget a group without members: it was deleted, or nobody came for too long.
func opForget(w *world, o *words) error {
	c, name := w.cluster(o.arg(0)), o.arg(1)
	if c == nil || name == "" {
		return errors.New("cluster and group are wanted")
	}
	if c.lost || w.groups.isActive(c, name) {
		return nil
	}
	keep := w.groups.placed[:0:0]
	for _, p := range w.groups.placed {
		if p.name == name && p.l.c == c {
			w.say("group %s of %v is forgotten", name, p.l.at)
			w.tell(func(m *model.World) { m.Forgotten(p.l.at, name) })
			continue
		}
		keep = append(keep, p)
	}
	w.groups.placed = keep
	return nil
}

// opGroups lets writes of groups go wrong at a cluster.
func opGroups(w *world, o *words) error {
	c := w.cluster(o.arg(0))
	if c == nil {
		return errors.New("a cluster is wanted")
	}
	switch {
	case o.has("slow"):
		c.groupFail.slow = min(o.duration("by"), callBound)
	case o.has("hang"):
		c.groupFail.hang = int(min(o.number("n", 1), 20))
	}
	return nil
}

// opMembers lets a group have members at a cluster, or none.
func opMembers(w *world, o *words) error {
	c, name := w.cluster(o.arg(0)), o.arg(1)
	if c == nil || name == "" {
		return errors.New("cluster and group are wanted")
	}
	is := w.groups.isActive(c, name)
	if comes := o.verb == "join"; comes != is {
		if comes {
			w.groups.active = append(w.groups.active, member{c, name})
		} else {
			for i, a := range w.groups.active {
				if a.c == c && a.name == name {
					w.groups.active = append(w.groups.active[:i:i], w.groups.active[i+1:]...)
					break
				}
			}
		}
		w.tell(func(m *model.World) { m.Active(c.name, name, comes) })
	}
	return nil
}

// syncGroups looks at the source's groups now and then, and moves those of the copies.
func (p *process) syncGroups() {
	if !p.up {
		return
	}
	m, w := p.m, p.m.w
	w.after(groupsEvery, p.syncGroups)
	p.guard(func() {
		if m.want != statemachine.WantMirroring || len(p.runners) == 0 {
			return
		}
		m.call(nil, "groups", func(error) {}, func() func() {
			type look struct {
				r    *runner
				name string
				at   metadatasync.Offset
				of   statemachine.TopicID
				left bool
			}
			var looks []look
			for _, r := range p.runners {
				src := m.source.log(r.l.at.Topic, r.l.at.Partition)
				for _, g := range w.groups.placed {
					if src != nil && g.l == src {
						looks = append(looks, look{r, g.name, g.at, src.t.id, g.left})
					}
				}
			}
			return func() {
				p.guard(func() {
					for _, k := range looks {
						k.r.follow(k.name, k.at, k.of, k.left)
					}
				})
			}
		})
	})
}

// topic is the source's that the copy is of.
func (r *runner) topic() statemachine.TopicID { return r.core.Status().Record.SourceTopicID }

// follow moves one group in one partition to where the source has it: the topic that it was asked about.
func (r *runner) follow(name string, source metadatasync.Offset, of statemachine.TopicID, left bool) {
	if of != r.topic() || r.halted || r.state != statemachine.Mirroring || r.core.Log().Owner != partition.OwnerOurs || r.l.gone || r.l.c.lost || r.m.newest() != r.p {
		return
	}
	k := r.w.groups.memory(r.m, name, r.l)
	if r.w.now < k.busy {
		return
	}
	r.w.tell(func(m *model.World) { m.Saw(r.of, name, of.String(), source.Offset, source.LeaderEpoch) })
	r.move(k, metadatasync.Look{Source: &source, Copy: r.copyOf(min(r.l.high, r.core.Log().End), min(r.l.end, r.core.Log().End)), Topic: of, Memory: k.Memory, First: k.episode != r.episode}, r.quiesced)
	k.episode, k.left = r.episode, left
}

func (r *runner) copyOf(replicated, end int64) metadatasync.Copy {
	epochs, at := logtrunc.NewCache(r.core.Status().Epochs...), r.l.end
	return metadatasync.Copy{Start: r.l.start, Replicated: replicated, End: end, LeaderEpoch: r.l.epoch, EpochBelow: r.l.epochBelow, EpochEnd: func(epoch int32) int64 {
		_, end := epochs.EndOffsetFor(epoch, at)
		return end
	}}
}

// move decides, remembers, and writes; the write takes a while, and is not begun when the partition's groups have been ended since.
func (r *runner) move(k *memory, look metadatasync.Look, turn int) {
	w, l := r.w, r.l
	was := w.groups.find(k.name, l)
	if was != nil {
		at := was.at
		look.Destination = &at
	}
	look.Active = w.groups.isActive(l.c, k.name)
	d := metadatasync.Decide(look)
	prior := k.Memory
	k.Memory = d.Memory
	if d.Write == nil || turn != r.quiesced {
		return
	}
	to := *d.Write
	r.moving++
	k.busy = w.now + callBound
	w.tell(func(m *model.World) { m.Began(r.of, "group "+k.name, 0) })
	w.tell(func(m *model.World) { m.Aims(r.of, k.name, to.Offset) })
	f := &l.c.groupFail
	takes := l.slow + f.slow + w.jitter(r.purpose(40), 100*time.Microsecond, 40*time.Millisecond)
	if f.slow > 0 {
		w.stats.fault("slow group write", r.state)
	}
	switch n := w.draw(r.purpose(41)) % 32; {
	case n < 4:
		takes += w.jitter(r.purpose(42), 0, 3*time.Second)
	case f.hang > 0:
		f.hang--
		w.stats.fault("group write never ends", r.state)
		return
	}
	w.after(min(takes, callBound-time.Millisecond), func() { // a write is given up when its bound has passed
		r.moving--
		k.busy = 0
		missed := func(why string, active bool) { // what was not written is not remembered
			w.stats.answer(why, r.state)
			w.tell(func(m *model.World) { m.Aims(r.of, k.name, -1) })
			prior = prior.Missed(look.Destination, active)
			prior.Saw(metadatasync.Offset{Offset: k.Seen, LeaderEpoch: k.SeenEpoch}, k.Topic)
			k.Memory = prior
		}
		switch now := w.groups.find(k.name, l); {
		case l.gone || l.c.lost || r.m.newest() != r.p: // a commit is fenced by nothing: that what an overtaken process has under way comes late is left out
		case w.groups.isActive(l.c, k.name):
			missed("group refused: it has members", true)
		case now == nil && look.Destination != nil, now != nil && now.who != model.Mirror && (now != was || now.at.Offset != look.Destination.Offset):
			missed("group moved by somebody in this moment", false)
		default:
			w.place(k.name, l, to, model.Mirror)
			w.groups.find(k.name, l).left = k.left
		}
	})
}

// quiesce ends the moving of a partition's groups, and waits for what is under way, for a bounded time.
func (r *runner) quiesce(e partition.Effect, how failure) {
	w := r.w
	r.quiesced++
	ev := partition.Event{Kind: partition.Done, Token: e.Token}
	if how != fine {
		ev.Err = errLost
	}
	until := w.now + callBound
	var look func()
	look = func() {
		switch {
		case r.moving == 0:
			r.answer(ev)
		case w.now >= until:
			w.stats.answer("group writes do not end", r.state)
			ev.Err = context.DeadlineExceeded
			r.answer(ev)
		default:
			w.after(10*time.Millisecond, func() { r.p.guard(look) })
		}
	}
	look()
}

// clamp puts the groups that the mirror wrote to where the source had them last, and not beyond where the mirror ended. That an overtaken process does so late is left out, as for move.
func (r *runner) clamp(end int64) {
	if r.m.newest() != r.p {
		return
	}
	for _, k := range r.w.groups.memories {
		if k.m == r.m && k.l == r.l && k.Seen != metadatasync.None {
			source := k.Last(r.topic())
			look, left := metadatasync.Look{Source: &source, Copy: r.copyOf(end, end), Topic: r.topic(), Memory: k.Memory}, k.left
			if d := r.w.groups.find(k.name, r.l); d != nil {
				at := d.at
				look.Destination, left = &at, left || d.left
			}
			look.Active = r.w.groups.isActive(r.l.c, k.name)
			d := metadatasync.Decide(look)
			if k.Memory = d.Memory; d.Write != nil {
				r.w.tell(func(m *model.World) { m.Began(r.of, "group "+k.name, 0) })
				r.w.place(k.name, r.l, *d.Write, model.Mirror)
				r.w.groups.find(k.name, r.l).left = left
			}
		}
	}
}
