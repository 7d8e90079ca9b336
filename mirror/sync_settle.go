package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	end   int64 // last mirror offset
	tries int   // 0: the stop waits for it
}

// settle puts the groups of a partition that is being stopped to where the source had them when they were seen last, and never behind where the mirror ended. Those of many partitions that are
// stopped together are read and written together. A stop does not wait long for that: what cannot be done within CallBound is told, by group and with what to do, and tried again
// behind the stop, as long as the group is as the mirror left it.
func (g *groupSync) settle(r *runner, token partition.Token, end int64) {
	if _, ok := g.m.cfg.Destination.(GroupWriter); !ok {
		r.done(token, nil)
		return
	}
	g.q.add(settleItem{r: r, token: token, end: end})
}

// maxSettlePause is the longest time between two tries.
const maxSettlePause = time.Minute

func (g *groupSync) settleLoop() {
	for {
		items, ok := g.q.take(g.m.ctx)
		if !ok {
			return
		}
		undone, why := g.settleAll(items)
		if g.m.ctx.Err() != nil {
			return
		}
		var again []settleItem
		for _, it := range items {
			if it.tries == 0 {
				it.r.done(it.token, nil)
			}
			groups, failed := undone[it.r.tp]
			if !failed {
				continue
			}
			if it.tries == 0 {
				g.m.emit(GroupsNotSettled{EventMeta: g.m.meta(it.r.tp), Groups: groups, End: it.end, Err: why})
			}
			it.tries++
			again = append(again, it)
		}
		if len(again) > 0 && !errors.Is(why, ErrFenced) {
			pause := min(time.Second<<min(again[0].tries, 10), maxSettlePause)
			g.m.spawn(func() {
				if g.m.pause(g.m.ctx, pause) {
					for _, it := range again {
						g.q.add(it)
					}
				}
			})
		}
	}
}

// settleAll does it once for several partitions, within CallBound. undone are the partitions with groups of which it is not known that they are in their place: nil names all of them.
func (g *groupSync) settleAll(items []settleItem) (undone map[TopicPartition][]string, why error) {
	ctx, stop := context.WithTimeout(g.m.ctx, g.m.cfg.CallBound)
	defer stop()
	all := func(err error) (map[TopicPartition][]string, error) {
		undone := map[TopicPartition][]string{}
		for _, it := range items {
			undone[it.r.tp] = nil
		}
		return undone, err
	}
	writer := g.m.cfg.Destination.(GroupWriter)
	state, err := g.m.cfg.Control.Read(ctx)
	if err != nil {
		return all(fmt.Errorf("reading what is remembered of groups: %w", err))
	}
	memories, unread := groupMemories(&state, g.m.cfg.Name)
	ends := map[TopicPartition]*settleItem{}
	for i := range items {
		if _, v := items[i].r.copyOf(); v.state == statemachine.Stopping || v.state == statemachine.Stopped { // it may have been started again meanwhile
			ends[items[i].r.tp] = &items[i]
		}
	}
	filter, err := g.m.settingsNow().GroupFilter()
	if err != nil {
		filter = GroupFilter{} // settings that cannot be read exclude nothing
	}
	var groups []Group
	var concerned []groupMemory
	for _, m := range memories {
		if !filter.Matches(m.Group) {
			continue
		}
		is := func(tp TopicPartition) bool { return ends[tp] != nil && m.Partitions[tp].Seen != metadatasync.None }
		if slices.ContainsFunc(slices.Collect(maps.Keys(m.Partitions)), is) {
			concerned = append(concerned, m)
			groups = append(groups, Group{Name: m.Group, Kind: m.Kind})
		}
	}
	if len(groups) == 0 {
		if unread != nil {
			return all(unread)
		}
		return nil, nil
	}
	list, listErr := writer.Groups(ctx)
	here := map[string]Group{}
	for _, group := range list {
		here[group.Name] = group
	}
	offsets, err := writer.GroupOffsets(ctx, groups)
	if err != nil {
		return all(fmt.Errorf("reading groups at the destination: %w", err))
	}
	copies := map[TopicPartition]metadatasync.Copy{}
	for tp, it := range ends {
		c, _ := it.r.copyOf()
		c.Replicated, c.End = it.end, it.end
		copies[tp] = c
	}
	undone = map[TopicPartition][]string{}
	if unread != nil { // one record of a newer version must not keep the other groups from their place
		undone, why = all(unread)
	}
	fail := func(m groupMemory, err error) {
		why = errors.Join(why, fmt.Errorf("%s %s: %w", m.Kind, m.Group, err))
		for tp := range m.Partitions {
			if ends[tp] != nil {
				undone[tp] = append(undone[tp], m.Group)
			}
		}
	}
	var work []groupWork
	for _, m := range concerned {
		at := offsets[m.Group]
		if at.Err != nil {
			fail(m, at.Err)
			continue
		}
		if w, ok := g.decideLast(m, here[m.Group], at, copies); ok {
			work = append(work, w)
		}
	}
	if listErr != nil && len(undone) > 0 && why == nil {
		why = listErr // the cluster itself refuses to move a group with members
	}
	if len(work) == 0 {
		return undone, why
	}
	if err := g.m.syncing.remember.do(ctx, func(s *ControlState) {
		for _, w := range work {
			_ = g.store(s, w) // one that cannot be remembered is moved all the same: the stop is its last move
		}
	}); err != nil {
		return all(fmt.Errorf("remembering where groups are put: %w", err))
	}
	left := found{}
	for _, w := range work {
		if len(w.write) == 0 {
			continue
		}
		refused, err := g.writeOne(ctx, writer, w, func(TopicPartition, uint64) bool { return true })
		switch {
		case errors.Is(err, ErrGroupActive):
			leave(left, w.group, slices.Collect(maps.Keys(w.write)), skippedWords(skippedActive))
		case err != nil:
			fail(w.memory, err)
		}
		for tp, err := range refused {
			fail(groupMemory{Group: w.group.Name, Kind: w.group.Kind, Partitions: map[TopicPartition]partitionMemory{tp: {}}}, err)
		}
	}
	for who, words := range left {
		g.m.emit(SyncSkipped{EventMeta: g.m.meta(TopicPartition{Partition: Unknown}), Part: "groups", Reason: who + ": " + words})
	}
	for tp := range undone {
		slices.Sort(undone[tp])
	}
	return undone, why
}

// decideLast is the last decision about a group: the source is not asked, where it had the group last is remembered.
func (g *groupSync) decideLast(m groupMemory, here Group, at GroupOffsets, copies map[TopicPartition]metadatasync.Copy) (w groupWork, ok bool) {
	group := Group{Name: m.Group, Kind: m.Kind}
	w = groupWork{group: group, memory: groupMemory{Kind: m.Kind, Group: m.Group, Active: here.Active, Looked: m.Looked, Partitions: map[TopicPartition]partitionMemory{}}, write: map[TopicPartition]GroupOffset{}}
	var behind []string
	for tp, had := range m.Partitions {
		c, ok := copies[tp]
		if !ok || had.Seen == metadatasync.None {
			continue
		}
		g.mu.Lock()
		source := metadatasync.Offset{Offset: had.Seen, LeaderEpoch: had.SeenEpoch, Metadata: g.metadata[m.Group][tp]}
		g.mu.Unlock()
		l := metadatasync.Look{Source: &source, Copy: c, Memory: had.Memory, Active: here.Active || here.Name != "" && here.Kind != m.Kind}
		now := "nowhere"
		if o, ok := at.Offsets[tp]; ok {
			d := metadatasync.Offset(o)
			l.Destination, now = &d, fmt.Sprint(o.Offset)
			if source.Metadata == "" && o.Offset == metadatasync.Place(source, c).Offset {
				source.Metadata = o.Metadata // what the application put there is not known any more, and is there already
			}
		}
		d := metadatasync.Decide(l)
		w.memory.Partitions[tp] = partitionMemory{Memory: d.Memory, Skipped: skippedCode(d.Reason)}
		if d.Write != nil {
			w.write[tp] = GroupOffset(*d.Write)
		}
		if place := metadatasync.Place(source, c).Offset; d.Reason != metadatasync.InStep && now != fmt.Sprint(place) {
			behind = append(behind, fmt.Sprintf("%s-%d is at %s here and was at %d at the source", tp.Topic, tp.Partition, now, had.Seen))
		}
	}
	if len(behind) > 0 {
		slices.Sort(behind)
		g.m.emit(GroupLeft{EventMeta: g.m.meta(TopicPartition{Partition: Unknown}), Group: m.Group, Active: here.Active, Partitions: behind, Seen: m.Looked})
	}
	return w, len(w.memory.Partitions) > 0
}
