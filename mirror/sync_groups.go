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
	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// groupSync moves groups at the destination to where they are at the source (spec §6, decisions 12 and 17), on the partitions that this process mirrors: their owner commits. What it decides
// is metadatasync.Decide's; here it is asked, remembered and written. A stop ends it for its partition first (quiesce), and has the groups put to their last place at the end (settle).
type groupSync struct {
	m     *Mirror
	q     gathering[settleItem]
	again chan struct{} // capacity 1: something is unsettled

	mu       sync.Mutex
	turns    map[TopicPartition]uint64            // grows with each quiesce: what was decided before is not written after
	stopping map[TopicPartition]time.Time         // when a partition was quiesced: its stop waits for groups not longer than CallBound from then on
	writing  map[TopicPartition]int               // writes under way
	ended    chan struct{}                        // closed when one has ended
	metadata map[string]map[TopicPartition]string // the applications' own, as the source had it last: not kept anywhere else
	seen     map[string]time.Time                 // groups of the last look, and when
	bare     map[groupPlace]string                // metadata that the destination refuses

	decodeMu sync.Mutex // held for as long as a decoding takes, and never with mu
	cache    memoryCache
	statuses []GroupStatus // of version
	version  int64
}

func newGroupSync(m *Mirror) *groupSync {
	g := &groupSync{m: m, q: newGathering[settleItem](), again: make(chan struct{}, 1), turns: map[TopicPartition]uint64{}, stopping: map[TopicPartition]time.Time{}, writing: map[TopicPartition]int{}, ended: make(chan struct{}), version: -1}
	g.forget()
	return g
}

// forget drops what is known of a mirror that was deleted: one of that name that is created later begins anew.
func (g *groupSync) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.metadata, g.seen, g.bare = map[string]map[TopicPartition]string{}, map[string]time.Time{}, map[groupPlace]string{}
}

// groupPlace is a group in one partition.
type groupPlace struct {
	group groupKey
	tp    TopicPartition
}

// renewAfter is how long offsets that stand still are left alone. A cluster forgets those of a group without members after offsets.retention.minutes, a week unless it is told otherwise, and
// a group that is idle at the source, or alive and waiting for records, would begin anew after a failover.
const renewAfter = 6 * time.Hour

// forgetAfter is how long a group is remembered that the source has no more: a group that comes for a moment, as a console's does, must not stay for ever.
const forgetAfter = 48 * time.Hour

// groupWriters is how many groups are written at once.
const groupWriters = 8

// mostExcepted is how many groups may be left out of the first look at a partition; with more it is not over.
const mostExcepted = 1000

// followedPartition is a partition whose groups are moved.
type followedPartition struct {
	turn    uint64
	episode int32
	copy    metadatasync.Copy
	topicID TopicID // the source's, that the copy is of
}

// copyOf is what Decide has to know of a partition's log, and the status of the partition that it was taken with. What the log has beyond what this process knows to be there may be clients' records, if
// somebody has opened it: no group goes behind them.
func (r *runner) copyOf() (metadatasync.Copy, partition.Status) {
	r.coreMu.Lock()
	st, known := r.core.Status(), r.core.Log().End
	r.coreMu.Unlock()
	c := metadatasync.Copy{Start: r.log.Start(), Replicated: min(r.log.Replicated(), known), End: min(r.log.End(), known), LeaderEpoch: r.log.LeaderEpoch()}
	epochs := sync.OnceValue(func() *logtrunc.Cache { return logtrunc.NewCache(st.Epochs...) })
	c.EpochBelow = func(offset int64) int32 { return epochs().EpochAt(offset - 1) }
	c.EpochEnd = func(epoch int32) int64 {
		_, end := epochs().EndOffsetFor(epoch, c.End)
		return end
	}
	return c, st
}

// followed are the partitions that are mirrored here now.
func (g *groupSync) followed() map[TopicPartition]followedPartition {
	all := map[TopicPartition]followedPartition{}
	for _, r := range g.m.memberRunners() {
		g.mu.Lock()
		turn := g.turns[r.tp]
		g.mu.Unlock()
		c, st := r.copyOf()
		r.seenMu.Lock()
		ours, id, cluster := r.owner == OwnerOurs && !r.halted, cmp.Or(st.Record.SourceTopicID, r.seen.TopicID), r.seen.ClusterID
		r.seenMu.Unlock()
		if st.Record.State != statemachine.Mirroring || st.Want != statemachine.WantMirroring || !ours || cluster == "" {
			continue
		}
		all[r.tp] = followedPartition{turn, st.Record.Episode, c, id}
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
	from   map[TopicPartition]int64           // where the destination had it when that was decided, Unknown: nowhere
	prior  map[TopicPartition]partitionMemory // of what is to be written: what was remembered before
	gone   []TopicPartition                   // to be forgotten: neither side has an offset there any more
}

// groupLook is one look at the groups.
type groupLook struct {
	*groupSync
	writer     GroupWriter
	partitions map[TopicPartition]followedPartition
	resting    map[TopicPartition]bool // partitions of this process that are not mirrored now, and not stopped
	episodes   map[string]groupEpisodes
	fresh      map[TopicPartition]bool     // partitions whose first look is not over
	dropped    map[TopicPartition]int64    // where the copy of a fresh one was cut when its mirroring began
	out        map[TopicPartition][]string // groups that could not be looked at, of fresh partitions
	now        time.Time
	left       found
}

func (g *groupSync) look(ctx context.Context) (left found, err error) {
	left = found{}
	l := &groupLook{groupSync: g, partitions: g.followed(), out: map[TopicPartition][]string{}, left: left}
	// A process that has just taken over does not know yet what is replicated: no group is put to the start because of that.
	maps.DeleteFunc(l.partitions, func(_ TopicPartition, p followedPartition) bool {
		return p.copy.Replicated <= p.copy.Start && p.copy.End > p.copy.Start
	})
	if len(l.partitions) == 0 {
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
	l.writer = writer
	state, err := bounded(ctx, g.m, g.m.cfg.Control.Read)
	if err != nil {
		return left, fmt.Errorf("reading what is remembered of groups: %w", err)
	}
	memories, unread := g.memories(&state)
	for key, err := range unread { // what cannot be read may forbid what would be written: that group is left alone, and no other (F-59)
		left[key.kind.String()+" "+OneLine(key.name)] = "what is remembered of it cannot be read: " + err.Error()
	}
	l.begin(&state)
	views, listed, complete, err := l.ask(ctx, reader, filter.Matches)
	if err != nil {
		return left, unsupported(err, "groups")
	}
	// What was read is this cluster's and these topics': a topic that was made again under its name has other offsets (F-28, F-33).
	ids := map[string]TopicID{}
	for tp, p := range l.partitions {
		ids[tp.Topic] = p.topicID
	}
	same, err := g.m.desk.confirm(ctx, ids)
	if err != nil {
		return left, err
	}
	maps.DeleteFunc(l.partitions, func(tp TopicPartition, _ followedPartition) bool { return !same[tp.Topic] })
	l.now = time.Now()
	var work []groupWork
	for _, v := range views {
		key := groupKey{v.group.Name, v.group.Kind}
		if unread[key] != nil {
			continue
		}
		if w, ok := l.decide(v, memories[key]); ok {
			work = append(work, w)
		}
	}
	var gone []Provenance
	for key, m := range memories { // one that is excluded for a while is remembered, so that it still is the mirror's when it is included again
		if complete && !listed[key.name] && l.now.Sub(m.Looked) >= forgetAfter {
			gone = append(gone, Provenance{Mirror: g.m.cfg.Name, Kind: provenanceOf(key.kind), Name: key.name})
		}
	}
	work, err = g.rememberWork(ctx, work, gone, l.firstLooks(complete), left)
	if err != nil {
		return left, fmt.Errorf("remembering what is to be written of groups; nothing is written: %w", err)
	}
	missed, err := g.stillThere(ctx, writer, work, left)
	if err != nil {
		return left, fmt.Errorf("reading once more the groups that are to be moved; none is moved: %w", err)
	}
	for _, o := range g.write(ctx, writer, work, func(tp TopicPartition, turn uint64) bool { return turn == l.partitions[tp].turn }) {
		if w, ok := g.note(o, left); ok {
			missed = append(missed, w)
		}
	}
	if _, err := g.rememberWork(ctx, missed, nil, nil, left); err != nil {
		return left, fmt.Errorf("remembering which groups were not moved: %w", err)
	}
	g.mu.Lock()
	clear(g.seen)
	for _, v := range views {
		if v.source.Err == nil && v.copies.Err == nil {
			g.seen[v.group.Name] = l.now
		}
	}
	g.mu.Unlock()
	return left, nil
}

// begin takes in what is known before anybody is asked.
func (l *groupLook) begin(s *ControlState) {
	l.episodes, l.fresh, l.dropped, l.resting = s.groupEpisodes(l.m.cfg.Name), map[TopicPartition]bool{}, map[TopicPartition]int64{}, map[TopicPartition]bool{}
	for _, r := range l.m.memberRunners() {
		p, followed := l.partitions[r.tp]
		if !followed {
			l.resting[r.tp] = true
			continue
		}
		if !l.episodes[r.tp.Topic].over(r.tp.Partition, p.episode, p.topicID) {
			l.fresh[r.tp] = true
			r.seenMu.Lock()
			if r.dropped.to > r.dropped.from {
				l.dropped[r.tp] = r.dropped.from
			}
			r.seenMu.Unlock()
		}
	}
}

// memories is what is remembered of this mirror's groups, and why some of it cannot be read.
func (g *groupSync) memories(s *ControlState) (map[groupKey]groupMemory, map[groupKey]error) {
	g.decodeMu.Lock()
	list, unread := g.cache.memories(s, g.m.cfg.Name)
	g.decodeMu.Unlock()
	all := make(map[groupKey]groupMemory, len(list))
	for _, m := range list {
		all[groupKey{m.Group, m.Kind}] = m
	}
	return all, unread
}

// ask asks both sides for the groups that are followed. What one group or one broker lacks is in left. complete: every broker of both sides has told its groups. The source is asked first: a
// member that commits in between is seen at the destination. there are all groups of the source. As long as some partition is fresh, groups that only the destination has are looked at too.
func (l *groupLook) ask(ctx context.Context, reader GroupReader, follows func(string) bool) (views []groupView, there map[string]bool, complete bool, err error) {
	complete, there = true, map[string]bool{}
	list := func(side string, r GroupReader) ([]Group, error) {
		groups, err := bounded(ctx, l.m, r.Groups)
		if err != nil && len(groups) == 0 {
			return nil, fmt.Errorf("listing the %s's groups: %w", side, err)
		}
		if err != nil {
			complete, l.left["some of the "+side+"'s groups"] = false, err.Error()
		}
		return groups, nil
	}
	read := func(side string, r GroupReader, groups []Group) (map[string]GroupOffsets, error) {
		offsets, err := bounded(ctx, l.m, func(ctx context.Context) (map[string]GroupOffsets, error) { return r.GroupOffsets(ctx, groups) })
		if err != nil {
			return nil, fmt.Errorf("reading the offsets of the %s's groups: %w", side, err)
		}
		return offsets, nil
	}
	listed, err := list("source", reader)
	if err != nil {
		return nil, nil, false, err
	}
	var groups []Group
	for _, group := range listed {
		there[group.Name] = true
		if follows(group.Name) {
			groups = append(groups, group)
		}
	}
	if len(groups) == 0 && len(l.fresh) == 0 {
		return nil, there, complete, nil
	}
	offsets := map[string]GroupOffsets{}
	if len(groups) > 0 {
		if offsets, err = read("source", reader, groups); err != nil {
			return nil, nil, false, err
		}
	}
	here, err := list("destination", l.writer)
	if err != nil {
		return nil, nil, false, err
	}
	byName := make(map[string]Group, len(here))
	for _, group := range here {
		byName[group.Name] = group
		if len(l.fresh) > 0 && !there[group.Name] && follows(group.Name) {
			groups = append(groups, group)
		}
	}
	if len(groups) == 0 {
		return nil, there, complete, nil
	}
	copies, err := read("destination", l.writer, groups)
	if err != nil {
		return nil, nil, false, err
	}
	for _, group := range groups {
		v := groupView{group: group, source: offsets[group.Name], here: byName[group.Name], copies: copies[group.Name]}
		for _, side := range []struct {
			name string
			err  error
		}{{"at the source", v.source.Err}, {"at the destination", v.copies.Err}} {
			if side.err != nil {
				l.left[group.who()] = side.name + ": " + side.err.Error()
			}
		}
		views = append(views, v)
	}
	return views, there, complete, nil
}

// who names a group in a line.
func (g Group) who() string { return g.Kind.String() + " " + OneLine(g.Name) }

// firstLooks is which partitions' first look has come to its end with this one, and which groups could not be looked at in it. As long as some broker has not told its groups it goes on.
func (l *groupLook) firstLooks(complete bool) map[string]groupEpisodes {
	ended := map[string]groupEpisodes{}
	if !complete {
		return ended
	}
	for tp := range l.fresh {
		p, ok := l.partitions[tp]
		if !ok || len(l.out[tp]) > mostExcepted {
			continue
		}
		now, ok := ended[tp.Topic]
		if !ok {
			now = groupEpisodes{Topic: tp.Topic, Episodes: map[int32]int32{}, IDs: map[int32]TopicID{}, Except: map[int32][]string{}}
			ended[tp.Topic] = now
		}
		now.Episodes[tp.Partition], now.IDs[tp.Partition] = p.episode, p.topicID
		if except := l.out[tp]; len(except) > 0 {
			slices.Sort(except)
			now.Except[tp.Partition] = slices.Compact(except)
		}
	}
	return ended
}

// decide says what becomes of one group. ok is false if there is nothing to write and nothing new to remember. A partition that one side does not tell, because a commit is under way or an
// error hides it, is not decided, and in out.
func (l *groupLook) decide(v groupView, memory groupMemory) (w groupWork, ok bool) {
	w = newGroupWork(v.group, v.here.Active, l.now)
	key := groupKey{v.group.Name, v.group.Kind}
	stranger := v.here.Name != "" && v.here.Kind != v.group.Kind
	pending := map[TopicPartition]bool{}
	for _, tp := range slices.Concat(v.source.Pending, v.copies.Pending) {
		pending[tp] = true
	}
	concerned := map[TopicPartition]bool{}
	add := func(tp TopicPartition) { concerned[tp] = true }
	for tp := range v.source.Offsets {
		add(tp)
	}
	for tp := range memory.Partitions {
		add(tp)
	}
	for tp := range pending {
		add(tp)
	}
	for tp := range v.copies.Offsets {
		if l.fresh[tp] {
			add(tp)
		}
	}
	if v.source.Err != nil || v.copies.Err != nil {
		for tp := range l.fresh { // it may have had an offset in each of them
			l.out[tp] = append(l.out[tp], v.group.Name)
		}
	}
	reasons := map[string][]TopicPartition{}
	changed := v.here.Active != memory.Active
	for tp := range concerned {
		m, known := memory.Partitions[tp]
		if !known {
			m = forgottenPartition()
		}
		p, followed := l.partitions[tp]
		at, source := v.source.Offsets[tp]
		had, here := v.copies.Offsets[tp]
		if !followed {
			switch {
			case !known:
			case l.resting[tp]:
				if m.Skipped == "" {
					m.Skipped, changed = skippedNotMirrored, true
					w.memory.Partitions[tp] = m
				}
			case !source && !here && v.source.Err == nil && v.copies.Err == nil && !pending[tp]:
				w.gone, changed = append(w.gone, tp), true // a topic that was stopped and deleted
			}
			continue
		}
		first := (m.Episode != p.episode || m.Earlier(p.topicID)) && l.episodes[tp.Topic].first(tp.Partition, p.episode, p.topicID, v.group.Name)
		next := m
		switch {
		case pending[tp]:
			next.Skipped = skippedPending
			if l.fresh[tp] {
				l.out[tp] = append(l.out[tp], v.group.Name)
			}
			if !known {
				reasons[skippedPending] = append(reasons[skippedPending], tp)
				continue // what is remembered of it begins when it is known
			}
		case !source && v.source.hides(tp):
			continue // why is in left already
		case !here && v.copies.hides(tp):
			if !source || !known {
				continue
			}
			next.Saw(metadatasync.Offset{Offset: at.Offset, LeaderEpoch: at.LeaderEpoch}, p.topicID) // a stop has to know it
			next.Skipped = skippedUnreadable
		case !source && first && here:
			to, beyond := l.beyond(tp, p, had.Offset)
			if !beyond {
				continue
			}
			if v.here.Active || stranger {
				leave(l.left, v.group, []TopicPartition{tp}, fmt.Sprintf("it is at %d, beyond what was cut at the destination at %d, and active", had.Offset, to.Offset))
				continue
			}
			next = partitionMemory{Memory: metadatasync.Memory{Topic: p.topicID, Seen: metadatasync.None, SeenEpoch: metadatasync.None, Wrote: to.Offset, Before: had.Offset}, Here: to.Offset, Episode: p.episode, Renewed: l.now.UTC().Truncate(time.Minute)}
			w.write[tp], w.from[tp], w.prior[tp] = to, had.Offset, m
		default:
			look := metadatasync.Look{Copy: p.copy, Topic: p.topicID, Memory: m.Memory, First: first, Active: v.here.Active || stranger, Renew: l.now.Sub(m.Renewed) >= renewAfter}
			if source {
				look.Source = &metadatasync.Offset{Offset: at.Offset, LeaderEpoch: at.LeaderEpoch, Metadata: l.accepted(key, tp, at.Metadata)}
			}
			if here {
				look.Destination = &metadatasync.Offset{Offset: had.Offset, LeaderEpoch: had.LeaderEpoch, Metadata: had.Metadata}
			}
			next = w.decided(tp, look, m, p.episode, l.now)
		}
		if next.Skipped != "" && next.Skipped != skippedNoOffset && next.Skipped != skippedUnreadable {
			reasons[next.Skipped] = append(reasons[next.Skipped], tp)
		}
		changed = changed || !known || next != m
		w.memory.Partitions[tp] = next
	}
	l.keepMetadata(v)
	for code, tps := range reasons {
		words := skippedWords(code)
		if stranger && code == skippedActive {
			words = fmt.Sprintf("it is a %s at the destination", v.here.Kind)
		}
		leave(l.left, v.group, tps, words)
	}
	return w, changed && len(w.memory.Partitions)+len(w.gone) > 0
}

// beyond says where a group that the source does not have belongs, if records were cut below it when mirroring began: what it has read is no more, and what lies there now it has not.
func (l *groupLook) beyond(tp TopicPartition, p followedPartition, at int64) (to GroupOffset, is bool) {
	cut, ok := l.dropped[tp]
	if !ok || at <= cut {
		return GroupOffset{}, false
	}
	return GroupOffset(metadatasync.Place(metadatasync.Offset{Offset: cut, LeaderEpoch: p.copy.EpochBelow(cut)}, p.copy)), true
}

// accepted is metadata as the destination takes it: without, if it has refused it.
func (g *groupSync) accepted(key groupKey, tp TopicPartition, metadata string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if refused, ok := g.bare[groupPlace{key, tp}]; ok && metadata != "" && refused == metadata {
		return ""
	}
	return metadata
}

func newGroupWork(group Group, active bool, looked time.Time) groupWork {
	return groupWork{
		group: group, memory: groupMemory{Kind: group.Kind, Group: group.Name, Active: active, Looked: looked, Partitions: map[TopicPartition]partitionMemory{}},
		write: map[TopicPartition]GroupOffset{}, from: map[TopicPartition]int64{}, prior: map[TopicPartition]partitionMemory{},
	}
}

// decided decides one partition, notes what is to be written, and returns what is to be remembered.
func (w *groupWork) decided(tp TopicPartition, l metadatasync.Look, m partitionMemory, episode int32, now time.Time) partitionMemory {
	d := metadatasync.Decide(l)
	next := partitionMemory{Memory: d.Memory, Here: Unknown, Episode: episode, Renewed: m.Renewed, Skipped: skippedCode(d.Reason)}
	if l.Destination != nil {
		next.Here = l.Destination.Offset
	}
	if d.Write != nil {
		w.write[tp] = GroupOffset(*d.Write)
		w.from[tp], w.prior[tp] = Unknown, m
		if l.Destination != nil {
			w.from[tp] = l.Destination.Offset
		}
		next.Here, next.Renewed = d.Write.Offset, now.UTC().Truncate(time.Minute)
	}
	return next
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
	who := group.who()
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

// rememberWork makes durable what is about to be written, and returns what is: a group that cannot be remembered is not moved, and in left. Of a group's record only what this process
// mirrors is replaced: other processes have other partitions.
func (g *groupSync) rememberWork(ctx context.Context, work []groupWork, gone []Provenance, ended map[string]groupEpisodes, left found) ([]groupWork, error) {
	if len(work)+len(gone)+len(ended) == 0 {
		return nil, nil
	}
	var unstored map[groupKey]error
	err := g.m.syncing.remember.do(ctx, func(s *ControlState) {
		unstored = map[groupKey]error{}
		for _, w := range work {
			if err := g.store(s, w); err != nil {
				unstored[groupKey{w.group.Name, w.group.Kind}] = err
			}
		}
		for _, p := range gone {
			s.removeProvenance(p)
		}
		g.storeEpisodes(s, ended)
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(work, func(w groupWork) bool {
		err := unstored[groupKey{w.group.Name, w.group.Kind}]
		if err != nil {
			left[w.group.who()] = "not moved, because that cannot be remembered; exclude it from the mirror's groups, or some of its topics: " + err.Error()
		}
		return err != nil
	}), nil
}

// store merges one group's memory into the state. What it had in topics that are not this mirror's any more goes.
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
	if memory.Partitions == nil {
		memory.Partitions = map[TopicPartition]partitionMemory{}
	}
	maps.Copy(memory.Partitions, w.memory.Partitions)
	for _, tp := range w.gone {
		delete(memory.Partitions, tp)
	}
	maps.DeleteFunc(memory.Partitions, func(tp TopicPartition, _ partitionMemory) bool {
		of, _ := s.wanted(tp.Topic)
		return of != g.m.cfg.Name
	})
	p, err := memory.encode(g.m.cfg.Name)
	if err == nil {
		s.setProvenance(p)
	}
	return err
}

// wanted is the mirror that a topic is in, "" if none, and what is wanted of it.
func (s *ControlState) wanted(topic string) (mirror string, want statemachine.Desired) {
	w, ok := s.Topic(topic)
	if !ok {
		return "", want
	}
	mirror, want, err := w.Wish()
	if err != nil {
		return "", want
	}
	return mirror, want
}

// storeEpisodes notes first looks that have come to their end, and drops what is noted of topics that are not this mirror's any more.
func (g *groupSync) storeEpisodes(s *ControlState, ended map[string]groupEpisodes) {
	for _, p := range slices.Clone(s.provenanceOfKind(g.m.cfg.Name, groupEpisodesProvenance)) {
		if of, want := s.wanted(p.Name); of != g.m.cfg.Name || want == statemachine.WantStopped { // its next start is another episode
			s.removeProvenance(p)
		}
	}
	for topic, now := range ended {
		e := groupEpisodes{Topic: topic}
		if p, there := s.provenance(g.m.cfg.Name, groupEpisodesProvenance, topic); there {
			was, _, err := decodeGroupEpisodes(p)
			if err != nil {
				continue // a newer version's, or broken: it is nobody's to write over
			}
			e = was
		}
		if e.Episodes == nil {
			e.Episodes = map[int32]int32{}
		}
		if e.Except == nil {
			e.Except = map[int32][]string{}
		}
		if e.IDs == nil {
			e.IDs = map[int32]TopicID{}
		}
		for partition, episode := range now.Episodes {
			e.Episodes[partition], e.IDs[partition] = episode, now.IDs[partition]
			delete(e.Except, partition)
		}
		maps.Copy(e.Except, now.Except)
		if p, err := e.encode(g.m.cfg.Name); err == nil { // one that cannot be stored is looked at for the first time again
			s.setProvenance(p)
		}
	}
}

// stillThere reads once more where groups that are to be moved are, and takes out of work what has changed since it was decided: a member that has come, committed and gone is seen by nobody
// else. missed is what is to be remembered of that.
func (g *groupSync) stillThere(ctx context.Context, writer GroupWriter, work []groupWork, left found) (missed []groupWork, err error) {
	var groups []Group
	for _, w := range work {
		if len(w.write) > 0 {
			groups = append(groups, w.group)
		}
	}
	if len(groups) == 0 {
		return nil, nil
	}
	offsets, err := bounded(ctx, g.m, func(ctx context.Context) (map[string]GroupOffsets, error) { return writer.GroupOffsets(ctx, groups) })
	if err != nil {
		return nil, err
	}
	for i := range work {
		w, now := &work[i], offsets[work[i].group.Name]
		back := w.unwritten()
		for tp := range w.write {
			at, ok := now.Offsets[tp]
			if !ok {
				at.Offset = Unknown
			}
			if at.Offset != w.from[tp] || !ok && now.hides(tp) || slices.Contains(now.Pending, tp) {
				leave(left, w.group, []TopicPartition{tp}, "it was moved at the destination in this moment")
				back.miss(w, tp, "")
				delete(w.write, tp)
			}
		}
		if len(back.memory.Partitions) > 0 {
			missed = append(missed, back)
		}
	}
	return missed, nil
}

// unwritten is an empty work for the same group: for what is to be remembered of what was not written.
func (w groupWork) unwritten() groupWork {
	return newGroupWork(w.group, w.memory.Active, w.memory.Looked)
}

// miss has a partition remembered as it was when its write was decided, but for where the source had it. What was about an earlier topic stays so: it is looked at for the first time again.
func (w *groupWork) miss(of *groupWork, tp TopicPartition, code string) {
	was, decided := of.prior[tp], of.memory.Partitions[tp]
	var from *metadatasync.Offset
	if at := of.from[tp]; at != Unknown {
		from = &metadatasync.Offset{Offset: at}
	}
	was.Memory = was.Missed(from, code == skippedActive)
	was.Saw(metadatasync.Offset{Offset: decided.Seen, LeaderEpoch: decided.SeenEpoch}, decided.Topic)
	was.Here, was.Episode, was.Skipped = of.from[tp], decided.Episode, code
	w.memory.Partitions[tp] = was
}

// written is what came of writing one group.
type written struct {
	work    groupWork
	refused map[TopicPartition]error
	err     error
}

// write writes what was decided, several groups at once.
func (g *groupSync) write(ctx context.Context, writer GroupWriter, work []groupWork, may func(tp TopicPartition, turn uint64) bool) (outcomes []written) {
	var mu sync.Mutex
	var running sync.WaitGroup
	turns := make(semaphore, groupWriters)
	add := func(o written) {
		mu.Lock()
		defer mu.Unlock()
		outcomes = append(outcomes, o)
	}
	for _, w := range work {
		if len(w.write) == 0 {
			continue
		}
		if err := turns.acquire(ctx); err != nil {
			add(written{work: w, err: err})
			continue
		}
		running.Go(func() {
			defer turns.release()
			refused, err := g.writeOne(ctx, writer, w, may)
			if err == nil {
				refused, err = g.writeBare(ctx, writer, w, refused, may)
			}
			add(written{w, refused, err})
		})
	}
	running.Wait()
	return outcomes
}

// writeBare writes once more, without metadata, what was refused and has some: a cluster bounds its length (offset.metadata.max.bytes), and a group without an offset is worse off than one
// without a note. What is taken then is not sent again with that metadata.
func (g *groupSync) writeBare(ctx context.Context, writer GroupWriter, w groupWork, refused map[TopicPartition]error, may func(tp TopicPartition, turn uint64) bool) (map[TopicPartition]error, error) {
	again := w
	again.write = map[TopicPartition]GroupOffset{}
	for tp := range refused {
		if at := w.write[tp]; at.Metadata != "" {
			at.Metadata = ""
			again.write[tp] = at
		}
	}
	if len(again.write) == 0 {
		return refused, nil
	}
	still, err := g.writeOne(ctx, writer, again, may)
	if err != nil {
		return refused, nil // what was refused first is known
	}
	left := map[TopicPartition]error{}
	g.mu.Lock()
	defer g.mu.Unlock()
	for tp, why := range refused {
		if _, tried := again.write[tp]; !tried || still[tp] != nil {
			left[tp] = why
			continue
		}
		g.bare[groupPlace{groupKey{w.group.Name, w.group.Kind}, tp}] = w.write[tp].Metadata
	}
	return left, nil
}

// note takes the outcome of one group's write into left, and tells of moves back. missed is what is to be remembered of what was not written, or not known to be; ok is false if that is nothing.
func (g *groupSync) note(o written, left found) (missed groupWork, ok bool) {
	w := o.work
	missed = w.unwritten()
	switch {
	case errors.Is(o.err, ErrGroupActive):
		missed.memory.Active = true
		leave(left, w.group, slices.Collect(maps.Keys(w.write)), skippedWords(skippedActive))
		for tp := range w.write {
			missed.miss(&w, tp, skippedActive)
		}
	case errors.As(o.err, new(*RefusedError)):
		leave(left, w.group, slices.Collect(maps.Keys(w.write)), "the destination refused it: "+o.err.Error())
		for tp := range w.write {
			missed.miss(&w, tp, skippedRefused)
		}
	case o.err != nil:
		left[w.group.who()] = "it is not known whether it was moved: " + o.err.Error()
		for tp := range w.write {
			m := w.memory.Partitions[tp]
			m.Here, m.Skipped = Unknown, skippedUnknown
			missed.memory.Partitions[tp] = m
		}
	default:
		for tp, err := range o.refused {
			leave(left, w.group, []TopicPartition{tp}, "the destination refused it: "+err.Error())
			missed.miss(&w, tp, skippedRefused)
		}
		for tp, at := range w.write {
			if from := w.from[tp]; o.refused[tp] == nil && at.Offset < from {
				g.m.emit(GroupMovedBack{EventMeta: g.m.meta(tp), Group: w.group.Name, From: from, To: at.Offset})
			}
		}
	}
	return missed, len(missed.memory.Partitions) > 0
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
	g.stopping[tp] = time.Now()
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

// status is the followed groups, as remembered, with when they were looked at last.
func (g *groupSync) status() []GroupStatus {
	g.m.following.mu.Lock()
	state := g.m.following.state
	g.m.following.mu.Unlock()
	g.decodeMu.Lock()
	if g.version != state.Version {
		memories, _ := g.cache.memories(&state, g.m.cfg.Name) // what cannot be read is in what the look left
		g.statuses = groupStatuses(&state, g.m.cfg.Name, memories)
		g.version = state.Version
	}
	all := slices.Clone(g.statuses)
	g.decodeMu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, s := range all {
		all[i].Partitions = slices.Clone(s.Partitions)
		if at := g.seen[s.Group]; at.After(s.Seen) {
			all[i].Seen = at
		}
	}
	return all
}
