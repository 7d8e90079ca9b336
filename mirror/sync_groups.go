package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// groupSync moves groups at the destination to where they are at the source (spec §6, decisions 12 and 17), on the partitions that this process mirrors: their owner commits. What it decides
// is metadatasync.Decide's; here it is asked, remembered and written. A stop ends it for its partition first (quiesce), and has the groups put to their last place at the end (settle).
type groupSync struct {
	m *Mirror
	q gathering[settleItem]

	mu       sync.Mutex
	turns    map[TopicPartition]uint64            // grows with each quiesce: what was decided before is not written after
	writing  map[TopicPartition]int               // writes under way
	ended    chan struct{}                        // closed when one has ended
	looked   map[TopicPartition]int32             // episode in which this process looked at every group there
	metadata map[string]map[TopicPartition]string // the applications' own, as the source had it last: not kept anywhere else
	seen     map[string]time.Time                 // groups of the last looks, and when
	decoded  []GroupStatus                        // of version
	version  int64
}

func newGroupSync(m *Mirror) *groupSync {
	return &groupSync{
		m: m, q: newGathering[settleItem](), turns: map[TopicPartition]uint64{}, writing: map[TopicPartition]int{}, ended: make(chan struct{}), looked: map[TopicPartition]int32{},
		metadata: map[string]map[TopicPartition]string{}, seen: map[string]time.Time{}, version: -1,
	}
}

// renewAfter is how long offsets that stand still are left alone. A cluster forgets those of a group without members after offsets.retention.minutes, a week unless it is told otherwise, and
// a group that is idle at the source, or alive and waiting for records, would begin anew after a failover.
const renewAfter = 6 * time.Hour

// forgetAfter is how long a group is remembered that the source has no more: a group that comes for a moment, as a console's does, must not stay for ever.
const forgetAfter = 48 * time.Hour

// groupWriters is how many groups are written at once.
const groupWriters = 8

// followedPartition is a partition whose groups are moved.
type followedPartition struct {
	turn    uint64
	episode int32
	copy    metadatasync.Copy
	topicID TopicID // the source's
}

// copyOf is what Decide has to know of a partition's log.
func (r *runner) copyOf() (metadatasync.Copy, partitionView) {
	r.coreMu.Lock()
	st := r.core.Status()
	r.coreMu.Unlock()
	epochs := st.Epochs
	c := metadatasync.Copy{Start: r.log.Start(), Replicated: r.log.Replicated(), End: r.log.End(), LeaderEpoch: r.log.LeaderEpoch(), EpochBelow: func(offset int64) int32 { return epochBelow(epochs, offset) }}
	return c, partitionView{st.Record.State, st.Want, st.Record.Episode}
}

type partitionView struct {
	state   statemachine.State
	want    statemachine.Desired
	episode int32
}

// epochBelow is the leader epoch of the last batch below an offset.
func epochBelow(epochs []logtrunc.Entry, offset int64) int32 {
	epoch := int32(Unknown)
	for _, e := range epochs {
		if e.Start < offset {
			epoch = e.Epoch
		}
	}
	return epoch
}

// followed are the partitions that are mirrored here now.
func (g *groupSync) followed() map[TopicPartition]followedPartition {
	all := map[TopicPartition]followedPartition{}
	for _, r := range g.m.memberRunners() {
		g.mu.Lock()
		turn := g.turns[r.tp]
		g.mu.Unlock()
		c, v := r.copyOf()
		r.seenMu.Lock()
		ours, id, cluster := r.owner == OwnerOurs && !r.halted, r.seen.TopicID, r.seen.ClusterID
		r.seenMu.Unlock()
		if v.state != statemachine.Mirroring || v.want != statemachine.WantMirroring || !ours || cluster == "" {
			continue
		}
		all[r.tp] = followedPartition{turn, v.episode, c, id}
	}
	return all
}

// groupView is what both sides say of one group.
type groupView struct {
	group  Group
	source GroupOffsets
	here   Group
	copies GroupOffsets
}

// groupWork is what is to be written of one group.
type groupWork struct {
	group  Group
	memory groupMemory // what is to be remembered, of the partitions looked at
	write  map[TopicPartition]GroupOffset
	back   map[TopicPartition][2]int64 // from, to: moves back
}

func (g *groupSync) look(ctx context.Context) (left found, err error) {
	left = found{}
	partitions := g.followed()
	if len(partitions) == 0 {
		return left, nil
	}
	filter, err := g.m.settingsNow().GroupFilter()
	if err != nil {
		return left, err
	}
	reader, writer, err := abilities[GroupReader, GroupWriter](ctx, g.m, "groups")
	if err != nil {
		return left, err
	}
	views, listed, complete, err := g.ask(ctx, reader, writer, filter.Matches, left)
	if err != nil {
		return left, unsupported(err, "groups")
	}
	// What was read is this cluster's and these topics': a topic that was made again under its name has other offsets (F-28, F-33).
	ids := map[string]TopicID{}
	for tp, p := range partitions {
		ids[tp.Topic] = p.topicID
	}
	same, err := g.m.desk.confirm(ctx, ids)
	if err != nil {
		return left, err
	}
	maps.DeleteFunc(partitions, func(tp TopicPartition, _ followedPartition) bool { return !same[tp.Topic] })
	state, err := bounded(ctx, g.m, g.m.cfg.Control.Read)
	if err != nil {
		return left, fmt.Errorf("reading what is remembered of groups: %w", err)
	}
	memories, err := g.memories(&state)
	if err != nil {
		return left, err
	}
	now := time.Now()
	first := g.firstLooks(&state, partitions)
	var work []groupWork
	for _, v := range views {
		if w, ok := g.decide(v, memories[groupKey{v.group.Name, v.group.Kind}], partitions, first, now, left); ok {
			work = append(work, w)
		}
	}
	var gone []Provenance
	for key, m := range memories {
		if !filter.Matches(key.name) || complete && !listed[key.name] && now.Sub(m.Looked) >= forgetAfter {
			gone = append(gone, Provenance{Mirror: g.m.cfg.Name, Kind: provenanceOf(key.kind), Name: key.name})
		}
	}
	if err := g.rememberWork(ctx, work, gone, partitions, first, complete); err != nil {
		return left, fmt.Errorf("remembering what is to be written of groups; nothing is written: %w", err)
	}
	g.write(ctx, writer, work, partitions, left)
	g.mu.Lock()
	clear(g.seen)
	for _, v := range views {
		g.seen[v.group.Name] = now
	}
	for tp, p := range partitions {
		if complete {
			g.looked[tp] = p.episode
		}
	}
	g.mu.Unlock()
	return left, nil
}

type groupKey struct {
	name string
	kind GroupKind
}

// memories is what is remembered of this mirror's groups.
func (g *groupSync) memories(s *ControlState) (map[groupKey]groupMemory, error) {
	list, err := groupMemories(s, g.m.cfg.Name)
	if err != nil {
		return nil, err
	}
	all := make(map[groupKey]groupMemory, len(list))
	for _, m := range list {
		all[groupKey{m.Group, m.Kind}] = m
	}
	return all, nil
}

// ask asks both sides for the groups that are followed. What one group or one broker lacks is in left; complete is false then. The source is asked first: a member that commits in
// between is seen at the destination. there are all groups of the source.
func (g *groupSync) ask(ctx context.Context, reader GroupReader, writer GroupWriter, follows func(string) bool, left found) (views []groupView, there map[string]bool, complete bool, err error) {
	complete, there = true, map[string]bool{}
	listed, err := bounded(ctx, g.m, reader.Groups)
	if err != nil && len(listed) == 0 {
		return nil, nil, false, fmt.Errorf("listing the source's groups: %w", err)
	}
	if err != nil {
		complete, left["some of the source's groups"] = false, err.Error()
	}
	var groups []Group
	for _, group := range listed {
		there[group.Name] = true
		if follows(group.Name) {
			groups = append(groups, group)
		}
	}
	if len(groups) == 0 {
		return nil, there, complete, nil
	}
	offsets, err := bounded(ctx, g.m, func(ctx context.Context) (map[string]GroupOffsets, error) { return reader.GroupOffsets(ctx, groups) })
	if err != nil {
		return nil, nil, false, fmt.Errorf("reading the offsets of the source's groups: %w", err)
	}
	here, err := bounded(ctx, g.m, writer.Groups)
	if err != nil && len(here) == 0 {
		return nil, nil, false, fmt.Errorf("listing the destination's groups: %w", err)
	}
	if err != nil {
		complete, left["some of the destination's groups"] = false, err.Error()
	}
	byName := make(map[string]Group, len(here))
	for _, group := range here {
		byName[group.Name] = group
	}
	copies, err := bounded(ctx, g.m, func(ctx context.Context) (map[string]GroupOffsets, error) { return writer.GroupOffsets(ctx, groups) })
	if err != nil {
		return nil, nil, false, fmt.Errorf("reading the offsets of the destination's groups: %w", err)
	}
	for _, group := range groups {
		v := groupView{group: group, source: offsets[group.Name], here: byName[group.Name], copies: copies[group.Name]}
		for _, side := range []struct {
			name string
			err  error
		}{{"at the source", v.source.Err}, {"at the destination", v.copies.Err}} {
			if side.err != nil {
				complete = complete && errors.Is(side.err, ErrUnsupported)
				left[group.Kind.String()+" "+group.Name] = side.name + ": " + side.err.Error()
			}
		}
		complete = complete && len(v.source.Pending) == 0 && len(v.copies.Pending) == 0
		if v.source.Err == nil && v.copies.Err == nil {
			views = append(views, v)
		}
	}
	return views, there, complete, nil
}

// firstLooks are the partitions whose groups were not looked at since their mirroring began.
func (g *groupSync) firstLooks(s *ControlState, partitions map[TopicPartition]followedPartition) map[TopicPartition]bool {
	episodes := map[string]map[int32]int32{}
	for _, p := range s.provenanceOfKind(g.m.cfg.Name, groupEpisodesProvenance) {
		if e, ok, err := decodeGroupEpisodes(p); ok && err == nil {
			episodes[e.Topic] = e.Episodes
		}
	}
	first := map[TopicPartition]bool{}
	g.mu.Lock()
	defer g.mu.Unlock()
	for tp, p := range partitions {
		was, ok := episodes[tp.Topic][tp.Partition]
		here, also := g.looked[tp]
		if !(ok && was == p.episode) && !(also && here == p.episode) {
			first[tp] = true
		}
	}
	return first
}

// decide says what becomes of one group. ok is false if there is nothing to write and nothing new to remember.
func (g *groupSync) decide(v groupView, memory groupMemory, partitions map[TopicPartition]followedPartition, first map[TopicPartition]bool, now time.Time, left found) (w groupWork, ok bool) {
	w = groupWork{group: v.group, memory: groupMemory{Kind: v.group.Kind, Group: v.group.Name, Active: v.here.Active, Looked: now, Partitions: map[TopicPartition]partitionMemory{}}, write: map[TopicPartition]GroupOffset{}}
	stranger := v.here.Name != "" && v.here.Kind != v.group.Kind
	pending := map[TopicPartition]bool{}
	for _, tp := range slices.Concat(v.source.Pending, v.copies.Pending) {
		pending[tp] = true
	}
	reasons := map[string][]TopicPartition{}
	changed := v.here.Active != memory.Active
	renew := now.Sub(memory.Wrote) >= renewAfter
	for tp, at := range v.source.Offsets {
		p, ok := partitions[tp]
		if !ok {
			continue
		}
		m, known := memory.Partitions[tp]
		if !known {
			m = forgottenPartition()
		}
		source := metadatasync.Offset(at)
		l := metadatasync.Look{Source: &source, Copy: p.copy, Memory: m.Memory, First: first[tp], Active: v.here.Active || stranger, Renew: renew}
		var from int64 = Unknown
		if had, ok := v.copies.Offsets[tp]; ok {
			o := metadatasync.Offset(had)
			l.Destination, from = &o, had.Offset
		}
		next := partitionMemory{}
		if pending[tp] {
			next = m
			next.Skipped = skippedPending
		} else {
			d := metadatasync.Decide(l)
			next = partitionMemory{Memory: d.Memory, Skipped: skippedCode(d.Reason)}
			if d.Write != nil {
				w.write[tp] = GroupOffset(*d.Write)
				if from != Unknown && d.Write.Offset < from {
					if w.back == nil {
						w.back = map[TopicPartition][2]int64{}
					}
					w.back[tp] = [2]int64{from, d.Write.Offset}
				}
			}
		}
		if next.Skipped != "" {
			reasons[next.Skipped] = append(reasons[next.Skipped], tp)
		}
		if !known || next != m {
			changed = true
		}
		w.memory.Partitions[tp] = next
	}
	for _, tp := range slices.Concat(v.source.Pending) {
		if _, ok := partitions[tp]; ok {
			reasons[skippedPending] = append(reasons[skippedPending], tp)
		}
	}
	g.keepMetadata(v)
	for code, tps := range reasons {
		words := skippedWords(code)
		if stranger && code == skippedActive {
			words = fmt.Sprintf("it is a %s here", v.here.Kind)
		}
		leave(left, v.group, tps, words)
	}
	return w, changed || len(w.write) > 0
}

// leave notes partitions of a group that were left alone.
func leave(left found, group Group, tps []TopicPartition, words string) {
	slices.SortFunc(tps, compareTopicPartitions)
	tps = slices.Compact(tps)
	names := make([]string, 0, min(len(tps), 6))
	for i, tp := range tps {
		if i == 5 {
			names = append(names, fmt.Sprintf("%d more", len(tps)-i))
			break
		}
		names = append(names, fmt.Sprintf("%s-%d", tp.Topic, tp.Partition))
	}
	who := group.Kind.String() + " " + group.Name
	line := strings.Join(names, ", ") + " left where it is: " + words
	if had := left[who]; had != "" && had != line {
		lines := strings.Split(had, "; ")
		lines = append(lines, line)
		slices.Sort(lines)
		line = strings.Join(slices.Compact(lines), "; ")
	}
	left[who] = line
}

// keepMetadata keeps what applications put beside their offsets, for a stop without a source.
func (g *groupSync) keepMetadata(v groupView) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.metadata, v.group.Name)
	for tp, at := range v.source.Offsets {
		if at.Metadata == "" {
			continue
		}
		if g.metadata[v.group.Name] == nil {
			g.metadata[v.group.Name] = map[TopicPartition]string{}
		}
		g.metadata[v.group.Name][tp] = at.Metadata
	}
}

// rememberWork makes durable what is about to be written. Of a group's record only what this process mirrors is replaced: other processes have other partitions.
func (g *groupSync) rememberWork(ctx context.Context, work []groupWork, gone []Provenance, partitions map[TopicPartition]followedPartition, first map[TopicPartition]bool, complete bool) error {
	if len(work)+len(gone) == 0 && (len(first) == 0 || !complete) {
		return nil
	}
	var unstored error
	err := g.m.syncing.remember.do(ctx, func(s *ControlState) {
		unstored = nil
		for _, w := range work {
			unstored = errors.Join(unstored, g.store(s, w))
		}
		for _, p := range gone {
			s.removeProvenance(p)
		}
		if complete {
			unstored = errors.Join(unstored, g.storeEpisodes(s, partitions, first))
		}
	})
	return cmp.Or(err, unstored)
}

// store merges one group's memory into the state.
func (g *groupSync) store(s *ControlState, w groupWork) error {
	p, ok := s.provenance(g.m.cfg.Name, provenanceOf(w.memory.Kind), w.memory.Group)
	memory := groupMemory{Kind: w.memory.Kind, Group: w.memory.Group}
	if ok {
		var err error
		if memory, _, err = decodeGroupMemory(p); err != nil {
			return err
		}
	}
	memory.Active, memory.Looked = w.memory.Active, w.memory.Looked
	if len(w.write) > 0 {
		memory.Wrote = w.memory.Looked
	}
	if memory.Partitions == nil {
		memory.Partitions = map[TopicPartition]partitionMemory{}
	}
	maps.Copy(memory.Partitions, w.memory.Partitions)
	p, err := memory.encode(g.m.cfg.Name)
	if err == nil {
		s.setProvenance(p)
	}
	return err
}

func (g *groupSync) storeEpisodes(s *ControlState, partitions map[TopicPartition]followedPartition, first map[TopicPartition]bool) (failed error) {
	topics := map[string]groupEpisodes{}
	for tp := range first {
		e, ok := topics[tp.Topic]
		if !ok {
			e = groupEpisodes{Topic: tp.Topic}
			if p, there := s.provenance(g.m.cfg.Name, groupEpisodesProvenance, tp.Topic); there {
				if was, _, err := decodeGroupEpisodes(p); err == nil {
					e = was
				}
			}
			if e.Episodes == nil {
				e.Episodes = map[int32]int32{}
			}
			topics[tp.Topic] = e
		}
		e.Episodes[tp.Partition] = partitions[tp].episode
	}
	for _, e := range topics {
		p, err := e.encode(g.m.cfg.Name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		s.setProvenance(p)
	}
	return failed
}

// write writes what was decided, several groups at once. What is refused or cannot be told is in left, and decided anew at the next look.
func (g *groupSync) write(ctx context.Context, writer GroupWriter, work []groupWork, partitions map[TopicPartition]followedPartition, left found) {
	var mu sync.Mutex
	var running sync.WaitGroup
	turns := make(semaphore, groupWriters)
	for _, w := range work {
		if len(w.write) == 0 {
			continue
		}
		if turns.acquire(ctx) != nil {
			break
		}
		running.Go(func() {
			defer turns.release()
			refused, err := g.writeOne(ctx, writer, w, func(tp TopicPartition, turn uint64) bool { return turn == partitions[tp].turn })
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, ErrGroupActive):
				leave(left, w.group, slices.Collect(maps.Keys(w.write)), skippedWords(skippedActive))
				return
			case err != nil:
				left[w.group.Kind.String()+" "+w.group.Name] = "it is not known whether it was moved: " + err.Error()
				return
			}
			for tp, err := range refused {
				leave(left, w.group, []TopicPartition{tp}, "the destination refused it: "+err.Error())
			}
			for tp, move := range w.back {
				if refused[tp] == nil {
					g.m.emit(GroupMovedBack{EventMeta: g.m.meta(tp), Group: w.group.Name, From: move[0], To: move[1]})
				}
			}
		})
	}
	running.Wait()
}

// writeOne writes one group, without the partitions that may not be written any more. may is given how often their groups were quiesced, and must not call g.
func (g *groupSync) writeOne(ctx context.Context, writer GroupWriter, w groupWork, may func(tp TopicPartition, turn uint64) bool) (map[TopicPartition]error, error) {
	if err := g.m.lease.hold(); err != nil {
		return nil, err
	}
	write := map[TopicPartition]GroupOffset{}
	g.mu.Lock()
	for tp, at := range w.write {
		if may(tp, g.turns[tp]) {
			write[tp] = at
			g.writing[tp]++
		}
	}
	g.mu.Unlock()
	if len(write) == 0 {
		return nil, nil
	}
	ctx, stop := context.WithTimeout(ctx, g.m.cfg.CallBound)
	refused, err := writer.WriteGroupOffsets(ctx, w.group, write)
	stop()
	g.mu.Lock()
	for tp := range write {
		if g.writing[tp]--; g.writing[tp] == 0 {
			delete(g.writing, tp)
		}
	}
	close(g.ended)
	g.ended = make(chan struct{})
	g.mu.Unlock()
	return refused, err
}

// quiesce has no group moved on a partition any more that was decided before, and waits until no such write is under way. When ctx ends first, that is the error.
func (g *groupSync) quiesce(ctx context.Context, tp TopicPartition) error {
	g.mu.Lock()
	g.turns[tp]++
	g.mu.Unlock()
	for {
		g.mu.Lock()
		busy, ended := g.writing[tp] > 0, g.ended
		g.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
		}
	}
}

// statuses are the followed groups, as remembered, with when they were looked at last.
func (g *groupSync) statuses() []GroupStatus {
	g.m.following.mu.Lock()
	state := g.m.following.state
	g.m.following.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.version != state.Version {
		g.decoded, _ = GroupStatuses(state, g.m.cfg.Name) // what cannot be read is trouble of the look
		g.version = state.Version
	}
	all := slices.Clone(g.decoded)
	for i, s := range all {
		all[i].Partitions = slices.Clone(s.Partitions)
		if at := g.seen[s.Group]; at.After(s.Seen) {
			all[i].Seen = at
		}
	}
	return all
}
