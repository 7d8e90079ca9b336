package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// settleItem is a partition that is being stopped: its groups get their last place.
type settleItem struct {
	r     *runner
	token partition.Token
	end   int64     // last mirror offset
	until time.Time // the stop goes on then
}

// settle puts the groups of a partition that is being stopped to where the source had them when they were seen last, and never beyond where the mirror ended. Those of many partitions that are
// stopped together are read and written together. A stop does not wait longer than CallBound for that: what cannot be done by then is told, by group and with what to do, remembered, and
// tried again behind the stop.
func (g *groupSync) settle(r *runner, token partition.Token, end int64) {
	if _, ok := g.m.cfg.Destination.(GroupWriter); !ok {
		r.done(token, nil)
		return
	}
	now := time.Now()
	g.mu.Lock()
	began, ok := g.stopping[r.tp]
	g.mu.Unlock()
	if !ok {
		began = now
	}
	until := began.Add(g.m.cfg.CallBound)
	if least := now.Add(leastSettle); until.Before(least) {
		until = least
	}
	g.q.add(settleItem{r, token, end, until})
}

// leastSettle is how long a stop waits at least, however long it has waited for commits under way.
const leastSettle = time.Second

// settleGap is how long partitions that are stopped wait for those before them: a destination that does not answer must not make one stop wait for the other's whole bound.
const settleGap = time.Second

// settleTogether is how long a partition that is stopped waits for others: they are stopped together, and groups are looked at once for all of them.
const settleTogether = time.Millisecond

func (g *groupSync) settleLoop() {
	for {
		items, ok := g.q.take(g.m.ctx)
		if !ok || !g.m.pause(g.m.ctx, settleTogether) {
			return
		}
		items = append(items, g.q.there()...)
		done := make(chan struct{})
		g.m.spawn(func() {
			defer close(done)
			g.settleStops(items)
		})
		select {
		case <-done:
		case <-time.After(settleGap):
		case <-g.m.ctx.Done():
			return
		}
	}
}

// lastPlace is a stopped partition: its log, with the last mirror offset as its end.
type lastPlace struct {
	copy metadatasync.Copy
	of   TopicID // the source's, that the copy is of
	end  int64
	open bool // clients write: a group is moved only from where the mirror left it
}

// unsettled are the groups of one partition that are not known to be in their place.
type unsettled struct {
	all    bool // nobody knows which
	groups []string
}

// settleStops settles partitions whose stop waits for it.
func (g *groupSync) settleStops(items []settleItem) {
	until := items[0].until
	places := map[TopicPartition]lastPlace{}
	for _, it := range items {
		if it.until.Before(until) {
			until = it.until
		}
		c, st := it.r.copyOf()
		c.Replicated, c.End = it.end, it.end
		places[it.r.tp] = lastPlace{copy: c, of: st.Record.SourceTopicID, end: it.end}
	}
	ctx, stop := context.WithDeadline(g.m.ctx, until)
	left, undone, why := g.settleAll(ctx, places, nil)
	stop()
	if g.m.ctx.Err() != nil {
		return
	}
	for _, it := range items {
		it.r.done(it.token, nil)
		if u, failed := left[it.r.tp]; failed {
			e := GroupsNotSettled{EventMeta: g.m.meta(it.r.tp), Groups: slices.Compact(slices.Sorted(slices.Values(u.groups))), End: it.end, Err: why}
			if u.all {
				e.Groups = nil
			}
			g.m.emit(e)
		}
	}
	if len(undone) > 0 {
		ctx, stop := context.WithTimeout(g.m.ctx, g.m.cfg.CallBound)
		defer stop()
		_, _ = g.rememberWork(ctx, undone, nil, nil, found{}) // without it nothing is tried again, and the event was told
		g.resettle()
	}
}

// resettle has what is unsettled tried again soon.
func (g *groupSync) resettle() {
	select {
	case g.again <- struct{}{}:
	default:
	}
}

// The pauses between two tries of what is unsettled, and how long after the last look at a group they go on.
const (
	firstResettle = 2 * time.Second
	maxResettle   = time.Minute
	resettleFor   = 24 * time.Hour
)

// resettleLoop tries again what a stop of this process, or of one before it, has left.
func (g *groupSync) resettleLoop() {
	pause := firstResettle
	for {
		wait := time.NewTimer(pause)
		select {
		case <-g.m.ctx.Done():
			wait.Stop()
			return
		case <-g.again:
			pause = firstResettle
			wait.Stop()
			continue
		case <-wait.C:
		}
		pause = min(2*pause, maxResettle)
		if g.m.lease.over() != nil {
			return
		}
		g.resettleOnce()
	}
}

func (g *groupSync) resettleOnce() {
	writer, ok := g.m.cfg.Destination.(GroupWriter)
	if !ok || writer == nil {
		return
	}
	g.m.following.mu.Lock()
	state := g.m.following.state
	g.m.following.mu.Unlock()
	memories, _ := g.memories(&state)
	places := map[TopicPartition]lastPlace{}
	only := map[groupPlace]bool{}
	for key, m := range memories {
		for tp, p := range m.Partitions {
			if p.Skipped != skippedUnsettled || time.Since(m.Looked) > resettleFor {
				continue
			}
			if place, ok := g.stoppedHere(tp); ok {
				places[tp], only[groupPlace{key, tp}] = place, true
			}
		}
	}
	if len(places) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(g.m.ctx, g.m.cfg.CallBound)
	defer stop()
	_, _, _ = g.settleAll(ctx, places, only)
}

// stoppedHere is a partition that this process has stopped, and that still is the one that it has.
func (g *groupSync) stoppedHere(tp TopicPartition) (place lastPlace, ok bool) {
	g.m.mu.Lock()
	var r *runner
	if t := g.m.topics[tp.Topic]; t != nil && int(tp.Partition) < len(t.partitions) {
		r = t.partitions[tp.Partition]
	}
	g.m.mu.Unlock()
	if r == nil {
		return place, false
	}
	c, st := r.copyOf()
	r.seenMu.Lock()
	halted := r.halted
	r.seenMu.Unlock()
	if halted || st.Record.State != statemachine.Stopped || st.Want != statemachine.WantStopped || st.LME == nil || st.LME.Episode != st.Record.Episode {
		return place, false
	}
	c.Replicated, c.End = st.LME.Offset, st.LME.Offset
	return lastPlace{copy: c, of: st.Record.SourceTopicID, end: st.LME.Offset, open: true}, true
}

// settleAll settles groups in these partitions, or only some. left are partitions with groups that are not known to be in their place, and why; undone is that as it is to be remembered.
func (g *groupSync) settleAll(ctx context.Context, places map[TopicPartition]lastPlace, only map[groupPlace]bool) (left map[TopicPartition]*unsettled, undone []groupWork, why error) {
	left = map[TopicPartition]*unsettled{}
	miss := func(tp TopicPartition) *unsettled {
		if left[tp] == nil {
			left[tp] = &unsettled{}
		}
		return left[tp]
	}
	all := func(err error) (map[TopicPartition]*unsettled, []groupWork, error) {
		for tp := range places {
			miss(tp).all = true
		}
		return left, undone, err
	}
	state, err := g.m.cfg.Control.Read(ctx)
	if err != nil {
		return all(fmt.Errorf("reading what is remembered of groups: %w", err))
	}
	memories, unread := g.memories(&state)
	if only == nil {
		for _, err := range unread { // a record of a newer version must not keep the other groups from their place
			_, _, why = all(errors.Join(why, err))
		}
	}
	filter, err := g.m.settingsNow().GroupFilter()
	if err != nil {
		filter = GroupFilter{} // settings that cannot be read exclude nothing
	}
	concerns := func(m groupMemory, tp TopicPartition) bool {
		_, stopped := places[tp]
		return stopped && m.Partitions[tp].Seen != metadatasync.None && (only == nil || only[groupPlace{groupKey{m.Group, m.Kind}, tp}])
	}
	var groups []Group
	var concerned []groupMemory
	asked := map[string]bool{}
	for _, m := range memories {
		is := false
		for tp := range m.Partitions {
			is = is || concerns(m, tp)
		}
		if is && filter.Matches(m.Group) {
			concerned = append(concerned, m)
			groups = append(groups, Group{Name: m.Group, Kind: m.Kind})
			asked[m.Group] = true
		}
	}
	// fail notes what is not known to be in its place of one group.
	fail := func(m groupMemory, err error, is func(TopicPartition) bool) {
		why = errors.Join(why, fmt.Errorf("%s %s: %w", m.Kind, OneLine(m.Group), err))
		w := newGroupWork(Group{Name: m.Group, Kind: m.Kind}, m.Active, m.Looked)
		for tp, p := range m.Partitions {
			if concerns(m, tp) && is(tp) {
				p.Skipped = skippedUnsettled
				w.memory.Partitions[tp] = p
				u := miss(tp)
				u.groups = append(u.groups, m.Group)
			}
		}
		if len(w.memory.Partitions) > 0 {
			undone = append(undone, w)
		}
	}
	any := func(TopicPartition) bool { return true }
	failAll := func(err error) (map[TopicPartition]*unsettled, []groupWork, error) {
		for _, m := range concerned {
			fail(m, err, any)
		}
		return left, undone, why
	}
	writer := g.m.cfg.Destination.(GroupWriter)
	list, listErr := writer.Groups(ctx)
	here := map[string]Group{}
	for _, group := range list {
		here[group.Name] = group
		if only == nil && !asked[group.Name] && filter.Matches(group.Name) { // to name those that are beyond the end
			groups = append(groups, group)
		}
	}
	if len(groups) == 0 {
		return left, undone, why
	}
	offsets, err := writer.GroupOffsets(ctx, groups)
	if err != nil {
		return failAll(fmt.Errorf("reading groups at the destination: %w", errors.Join(listErr, err)))
	}
	var work []groupWork
	for _, m := range concerned {
		at := offsets[m.Group]
		w, unsure := g.decideLast(m, here[m.Group], at, places, concerns)
		if len(unsure) > 0 {
			err := at.Err
			if err == nil {
				err = errors.New("a transaction is committing its offset")
			}
			fail(m, err, func(tp TopicPartition) bool { return slices.Contains(unsure, tp) })
		}
		if len(w.memory.Partitions) > 0 {
			work = append(work, w)
		}
	}
	for _, group := range groups {
		if !asked[group.Name] {
			g.tellBeyond(group, here[group.Name], offsets[group.Name], places)
		}
	}
	byName := map[groupKey]groupMemory{}
	for _, m := range concerned {
		byName[groupKey{m.Group, m.Kind}] = m
	}
	dropped := found{}
	if work, err = g.rememberWork(ctx, work, nil, nil, dropped); err != nil {
		return failAll(fmt.Errorf("remembering where groups are put: %w", err))
	}
	missed, err := g.stillThere(ctx, writer, work, dropped)
	if err != nil {
		return failAll(fmt.Errorf("reading groups once more at the destination: %w", err))
	}
	for _, o := range g.write(ctx, writer, work, func(TopicPartition, uint64) bool { return true }) {
		m := byName[groupKey{o.work.group.Name, o.work.group.Kind}]
		written := func(tp TopicPartition) bool { _, is := o.work.write[tp]; return is }
		switch {
		case errors.Is(o.err, ErrGroupActive):
			if w, ok := g.note(o, dropped); ok {
				missed = append(missed, w)
			}
		case o.err != nil:
			fail(m, o.err, written)
		default:
			for tp, err := range o.refused {
				fail(m, err, func(x TopicPartition) bool { return x == tp })
			}
			o.refused = nil
			g.note(o, dropped)
		}
	}
	_, _ = g.rememberWork(ctx, missed, nil, nil, dropped) // what it is about was not moved: only the words are lost
	for who, words := range dropped {
		g.m.emit(SyncSkipped{EventMeta: g.m.meta(TopicPartition{Partition: Unknown}), Part: "groups", Reason: who + ": " + words})
	}
	return left, undone, why
}

// decideLast is the last decision about a group: the source is not asked, where it had the group last is remembered. unsure are partitions of which the destination does not say where it is.
func (g *groupSync) decideLast(m groupMemory, here Group, at GroupOffsets, places map[TopicPartition]lastPlace, concerns func(groupMemory, TopicPartition) bool) (w groupWork, unsure []TopicPartition) {
	now := time.Now()
	w = newGroupWork(Group{Name: m.Group, Kind: m.Kind}, here.Active, m.Looked)
	var elsewhere []string
	for tp, had := range m.Partitions {
		if !concerns(m, tp) {
			continue
		}
		place := places[tp]
		o, is := at.Offsets[tp]
		switch {
		case slices.Contains(at.Pending, tp), !is && at.hides(tp):
			unsure = append(unsure, tp)
			continue
		case !is && place.open: // it was taken away since, and not by the mirror
			had.Skipped = skippedMoved
			w.memory.Partitions[tp] = had
			continue
		}
		g.mu.Lock()
		source := had.Last(place.of)
		if !had.Earlier(place.of) {
			source.Metadata = g.metadata[m.Group][tp]
		}
		g.mu.Unlock()
		source.Metadata = g.accepted(groupKey{m.Group, m.Kind}, tp, source.Metadata)
		l := metadatasync.Look{Source: &source, Copy: place.copy, Topic: place.of, Memory: had.Memory, Active: here.Active || here.Name != "" && here.Kind != m.Kind, Renew: now.Sub(had.Renewed) >= renewAfter}
		to, placed := metadatasync.Place(source, place.copy).Offset, "nowhere"
		if is {
			l.Destination, placed = &metadatasync.Offset{Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata}, fmt.Sprint(o.Offset)
			if source.Metadata == "" && o.Offset == to {
				source.Metadata = o.Metadata // what the application put there is not known any more, and is there already
			}
		}
		next := w.decided(tp, l, had, had.Episode, now)
		w.memory.Partitions[tp] = next
		if next.Skipped != "" && placed != fmt.Sprint(to) {
			elsewhere = append(elsewhere, fmt.Sprintf("%s-%d is at %s at the destination and was at %d at the source", tp.Topic, tp.Partition, placed, had.Seen))
		}
	}
	if len(elsewhere) > 0 {
		slices.Sort(elsewhere)
		g.m.emit(GroupLeft{EventMeta: g.m.meta(TopicPartition{Partition: Unknown}), Group: m.Group, Active: here.Active, Partitions: elsewhere, Seen: m.Looked})
	}
	return w, unsure
}

// tellBeyond names a group that is not the mirror's and lies beyond where the mirror ended: what is written below it now, it would never read.
func (g *groupSync) tellBeyond(group, here Group, at GroupOffsets, places map[TopicPartition]lastPlace) {
	var beyond []string
	for tp, o := range at.Offsets {
		if p, ok := places[tp]; ok && o.Offset > p.end {
			beyond = append(beyond, fmt.Sprintf("%s-%d is at %d at the destination, and the mirror ended at %d: it misses what is written in between", tp.Topic, tp.Partition, o.Offset, p.end))
		}
	}
	if len(beyond) > 0 {
		slices.Sort(beyond)
		g.m.emit(GroupLeft{EventMeta: g.m.meta(TopicPartition{Partition: Unknown}), Group: group.Name, Active: here.Active, Partitions: beyond})
	}
}
