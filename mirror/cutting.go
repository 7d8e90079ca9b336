package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// cutting finds the consistent cut of a failover: its partitions stand at AskCut, behind the wait for their replicas, until all of them do. Then their copies are read, the cut is computed, and all of it
// is recorded in one write, as the LME and LMO of each partition, before the first log is cut. So nothing of it is computed anew after a crash: a partition whose LMO is recorded does not ask again.
type cutting struct {
	m *Mirror

	mu       sync.Mutex
	standing map[*runner]partition.Effect // nil: none, and nobody looks at it
	since    map[*runner]time.Time
	stops    map[int64]*cutStop // by when they were asked for
}

// cutStop is what is known of one stop with a cut. Once it is decided that does not change.
type cutStop struct {
	cut    ConsistentCut
	vector map[*runner]*statemachine.LastMirrorEpoch // what is recorded, or may be: it is written again as it is, and nothing else. nil: each partition records its own end
}

const (
	cutInterval = 50 * time.Millisecond // how often it is looked who stands there
	cutDeeper   = 16                    // how many times as much is read of the copies, where a look as for a plan was not enough
)

// cutWait is how long partitions wait for others of their failover: those have the same bounds as they had.
func (m *Mirror) cutWait() time.Duration { return 3 * max(m.cfg.CallBound, m.cfg.ReplicaWait) }

// made is what became of the cut that was asked for then, nil if this process does not know.
func (c *cutting) made(asked time.Time) *ConsistentCut {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.stops[asked.UnixNano()]; s != nil {
		cut := s.cut
		return &cut
	}
	return nil
}

// cutOf is what became of the cut of a failover of these topics, nil if this process does not know, or if there are none.
func (m *Mirror) cutOf(topics map[string]bool) *ConsistentCut {
	asked, without := map[int64]time.Time{}, 0
	m.mu.Lock()
	for name := range topics {
		switch t := m.topics[name]; {
		case t == nil:
		case t.wish.Cut.Asked.IsZero():
			without++
		default:
			asked[t.wish.Cut.Asked.UnixNano()] = t.wish.Cut.Asked
		}
	}
	m.mu.Unlock()
	if len(asked) > 1 {
		return &ConsistentCut{Why: "the topics were stopped at different times, each with the cut that it was asked for with"}
	}
	for _, at := range asked {
		return m.cutting.made(at)
	}
	if without == 0 {
		return nil
	}
	return &ConsistentCut{Why: "the stop was under way already, and it was asked for without a cut"}
}

func (c *cutting) stand(r *runner, ask partition.Effect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	begins := c.standing == nil
	if begins {
		c.standing, c.since = map[*runner]partition.Effect{}, map[*runner]time.Time{}
	}
	c.standing[r], c.since[r] = ask, time.Now()
	if begins {
		c.m.spawn(c.watch)
	}
}

func (c *cutting) watch() {
	for {
		for _, wish := range c.asked() {
			c.look(wish)
		}
		c.mu.Lock()
		done := len(c.standing) == 0
		if done {
			c.standing, c.since = nil, nil
		}
		c.mu.Unlock()
		if done || !c.m.pause(c.m.ctx, cutInterval) {
			return
		}
	}
}

// asked are the cuts for which partitions stand, in their order.
func (c *cutting) asked() (all []CutWish) {
	c.mu.Lock()
	standing := slices.Collect(maps.Keys(c.standing))
	c.mu.Unlock()
	for _, r := range standing {
		if w := c.m.cutWish(r); !slices.ContainsFunc(all, func(x CutWish) bool { return x.Asked.Equal(w.Asked) }) {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b CutWish) int { return a.Asked.Compare(b.Asked) })
	return all
}

// cutWish is the cut that is wanted of a partition.
func (m *Mirror) cutWish(r *runner) CutWish {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.topic.wish.Cut
}

// cutMembers are the partitions of this process.
type cutMembers struct {
	standing map[*runner]partition.Effect // of the stop, at AskCut
	stopped  []*runner                    // of any stop: their ends are recorded
	missing  []string                     // of the stop, that do not stand there yet
	hopeless bool                         // one of those does not get there by itself
	until    time.Time                    // for how long they are waited for
	floors   map[string][]int64           // CutWish.Floors, by topic
}

func (c *cutting) members(wish CutWish) cutMembers {
	x := cutMembers{standing: map[*runner]partition.Effect{}, floors: map[string][]int64{}}
	var all []*runner
	drained := time.Time{}
	c.m.mu.Lock()
	for _, t := range c.m.topics {
		all = append(all, t.partitions...)
		if !t.wish.Cut.Asked.Equal(wish.Asked) {
			continue
		}
		x.floors[t.name] = t.wish.Cut.Floors
		if len(t.partitions) == 0 {
			x.missing = append(x.missing, t.name+" (its logs are not open here)")
		}
		if t.wish.DrainUntil.After(drained) {
			drained = t.wish.DrainUntil
		}
	}
	c.m.mu.Unlock()
	now := time.Now()
	oldest := now
	c.mu.Lock()
	for r, ask := range c.standing {
		if c.m.cutWish(r).Asked.Equal(wish.Asked) {
			x.standing[r] = ask
			if c.since[r].Before(oldest) {
				oldest = c.since[r]
			}
		}
	}
	c.mu.Unlock()
	if drained.After(oldest) {
		oldest = drained
	}
	x.until = oldest.Add(c.m.cutWait())
	for _, r := range all {
		if _, stands := x.standing[r]; stands {
			continue
		}
		p := r.status(now)
		switch {
		case p.LME != nil && p.LME.Episode == p.Episode:
			x.stopped = append(x.stopped, r)
		case p.State == statemachine.Stopped || !c.m.cutWish(r).Asked.Equal(wish.Asked): // it is its clients', or is mirrored on
		default:
			x.missing = append(x.missing, fmt.Sprintf("%s-%d (%s)", r.tp.Topic, r.tp.Partition, p.State))
			x.hopeless = x.hopeless || p.Halted || p.State == statemachine.Failed && p.RetryAttempt == statemachine.NonRetryable
		}
	}
	slices.Sort(x.missing)
	return x
}

// look cuts the partitions of one failover if all of them stand there, or lets go of them if one does not get there in time.
func (c *cutting) look(wish CutWish) {
	x := c.members(wish)
	late := !time.Now().Before(x.until)
	c.mu.Lock()
	decided := c.stops[wish.Asked.UnixNano()]
	c.mu.Unlock()
	switch {
	case len(x.standing) == 0:
	case wish.Asked.IsZero():
		c.answer(x.standing, nil) // something else was wanted meanwhile
	case decided != nil:
		c.answer(x.standing, decided.vector)
	case len(x.missing) > 0 && (x.hopeless || late):
		c.decide(wish, x.standing, cutStop{cut: ConsistentCut{Why: "not every partition has come to where it could be cut: " + few(x.missing)}})
	case len(x.missing) == 0:
		if s, ok := c.find(wish, &x, late); ok {
			c.decide(wish, x.standing, s)
		}
	}
}

// find finds the cut. Not ok: a copy could not be read, and is read again until it is late.
func (c *cutting) find(wish CutWish, x *cutMembers, late bool) (s cutStop, ok bool) {
	var partitions []PartitionStatus
	runners := map[TopicPartition]*runner{}
	now := time.Now()
	for r, ask := range x.standing {
		p := r.status(now)
		p.Replicated = ask.LME.Offset
		partitions, runners[r.tp] = append(partitions, p), r
	}
	for _, r := range x.stopped {
		partitions = append(partitions, r.status(now))
	}
	bounds := cutBounds{maxGiveUp: wish.MaxGiveUp, skew: wish.ClockSkew, floors: x.floors}
	var points map[TopicPartition]int64
	for _, bytes := range []int{lookBytes, cutDeeper * lookBytes} {
		look := c.m.lookWithin(c.m.ctx, partitions, bytes, c.m.cutWait())
		if look == nil {
			return s, true // nothing is open, so nothing is torn
		}
		if !late && slices.ContainsFunc(look.Copies, func(x CopyLook) bool { return x.Error != "" }) {
			return s, false
		}
		s.cut, points = look.cut(func(TopicPartition) bool { return true }, bounds)
		if !s.cut.shallow {
			break
		}
	}
	if s.cut.exposes() && !wish.Readers {
		s.cut = ConsistentCut{Readable: true, Why: "readers of the copies may have seen what it would give up, and nobody has said that it may: " + few(s.cut.lines(5))}
	}
	if s.cut.GivenUp == 0 {
		return s, true
	}
	s.vector = map[*runner]*statemachine.LastMirrorEpoch{}
	for tp, r := range runners {
		ask := x.standing[r]
		lme := *ask.LME
		cache := logtrunc.NewCache(ask.Epochs...)
		cache.TruncateTo(points[tp])
		lme.Cut = points[tp] < lme.Offset
		lme.Offset, lme.Epoch = points[tp], cache.Latest()
		s.vector[r] = &lme
	}
	return s, true
}

// decide keeps what was found, tells it, and answers.
func (c *cutting) decide(wish CutWish, standing map[*runner]partition.Effect, s cutStop) {
	c.mu.Lock()
	if c.stops == nil {
		c.stops = map[int64]*cutStop{}
	}
	c.stops[wish.Asked.UnixNano()] = &s
	c.mu.Unlock()
	if s.cut.Why != "" || s.cut.GivenUp > 0 {
		c.m.emit(CutMade{EventMeta: c.m.meta(TopicPartition{Partition: Unknown}), Cut: s.cut})
	}
	c.answer(standing, s.vector)
}

// answer records a vector and answers all partitions that stand; without one they are stopped as they are.
func (c *cutting) answer(standing map[*runner]partition.Effect, vector map[*runner]*statemachine.LastMirrorEpoch) {
	err := c.record(standing, vector)
	for r, ask := range standing {
		c.mu.Lock()
		asksStill := c.standing[r].Token == ask.Token
		if asksStill {
			delete(c.standing, r)
		}
		c.mu.Unlock()
		if asksStill {
			r.send(partition.Event{Kind: partition.Done, Token: ask.Token, Log: r.view(), LME: vector[r], Err: err})
		}
	}
}

// record writes a vector in one write. One that may have been written is written again, and no other in its place: an LME is written once per episode.
func (c *cutting) record(standing map[*runner]partition.Effect, vector map[*runner]*statemachine.LastMirrorEpoch) error {
	var writes []statemachine.Write
	for r := range standing {
		if lme := vector[r]; lme != nil {
			writes = append(writes, statemachine.Write{Key: c.m.key(r), ExpectedStateEpoch: -1, LeaderEpoch: -1, LME: lme})
		}
	}
	if len(writes) == 0 {
		return nil
	}
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, maxStoreWait) {
		if err := c.m.lease.hold(); err != nil {
			return err
		}
		ctx, stop := context.WithTimeout(c.m.ctx, c.m.cfg.CallBound)
		results, err := c.m.session.Write(ctx, writes)
		stop()
		if err == nil {
			for _, x := range results {
				err = errors.Join(err, x.Err)
			}
			return err
		}
		if errors.Is(err, statemachine.ErrFenced) || !c.m.pause(c.m.ctx, wait) {
			return err
		}
	}
}
