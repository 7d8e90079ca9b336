package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
	"github.com/clustermirror/clustermirror/statemachine"
)

// lookAtFollowers finds out what a failback has metadata sync do here: it looks as that will, decides as that will, and carries nothing out. found are the plan's topics at the source, and s has the
// partitions that were compared.
func (m *Mirror) lookAtFollowers(ctx context.Context, s *Snapshot, topics []string, found []SourceTopic) {
	ctx, stop := context.WithTimeout(ctx, settingLook*m.cfg.CallBound)
	defer stop()
	f := &followers{m: m, snapshot: s, ids: map[string]TopicID{}, created: map[string]bool{}}
	at := make(map[string]*SourceTopic, len(found))
	for i := range found {
		if found[i].Err == nil {
			at[found[i].Name] = &found[i]
		}
	}
	asked := make(map[string]bool, len(topics))
	for _, name := range topics {
		asked[name] = true
	}
	for _, x := range s.Topics {
		if t := at[x.Topic]; x.Missing && asked[x.Topic] && t != nil {
			f.create(t)
		}
	}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if t := at[p.Topic]; asked[p.Topic] && t != nil {
			f.take(t, p)
		}
	}
	var groups FailbackGroups
	var settings FailbackSettings
	var rules FailbackRules
	var looking sync.WaitGroup
	looking.Go(func() { groups = f.groups(ctx) })
	looking.Go(func() { settings = f.settings(ctx) })
	looking.Go(func() { rules = f.rules(ctx, topics) })
	looking.Wait()
	s.FailbackGroups, s.FailbackSettings, s.FailbackRules = groups, settings, rules
}

// followers is one look at what follows the source back. It is not changed while the parts look.
type followers struct {
	m          *Mirror
	snapshot   *Snapshot
	ids        map[string]TopicID // of topics whose mirroring is to begin, at the source
	created    map[string]bool    // those of them that are not here yet
	partitions []followedBack
}

// followedBack is a partition whose mirroring is to begin.
type followedBack struct {
	TopicPartition
	episode     int32
	cut         int64 // where its log is cut, Unknown: nowhere
	start, end  int64 // of the copy when it is in step; end is math.MaxInt64 where that is not known
	sourceTopic TopicID
}

// create takes in a topic that is not here yet.
func (f *followers) create(t *SourceTopic) {
	f.ids[t.Name], f.created[t.Name] = t.ID, true
	for n := range t.Leaders {
		f.partitions = append(f.partitions, followedBack{TopicPartition: TopicPartition{t.Name, int32(n)}, cut: Unknown, end: math.MaxInt64, sourceTopic: t.ID})
	}
}

// take takes in a partition. One that this mirror copies already begins nothing, and one of which the plan cannot tell neither.
func (f *followers) take(t *SourceTopic, p *PartitionStatus) {
	plan := planFailbackPartition(f.snapshot, p)
	if _, parts := plan.CommonPoint.Value(); plan.Outcome == OutcomeRefused || plan.Outcome == OutcomeGo && (!parts || p.beingCopied()) {
		return
	}
	x := followedBack{TopicPartition: TopicPartition{p.Topic, p.Partition}, episode: plan.Episode, cut: plan.From.orUnknown(), start: max(p.Start, p.SourceStart), end: p.SourceEnd, sourceTopic: t.ID}
	if p.SourceEnd < 0 {
		x.end = math.MaxInt64
	}
	f.ids[t.Name] = t.ID
	f.partitions = append(f.partitions, x)
}

// beingCopied says that mirroring has begun, so that a start begins nothing.
func (p *PartitionStatus) beingCopied() bool {
	return slices.Contains([]statemachine.State{statemachine.Mirroring, statemachine.EpochFencing, statemachine.Pausing, statemachine.Paused}, p.State)
}

// followLook is how a part was looked at, when it came to err.
func followLook(err error) FollowLook {
	var off notFollowed
	switch {
	case errors.As(err, &off):
		return FollowLook{Off: seenWord(OneLine(string(off)))}
	case err != nil:
		return FollowLook{Error: seenWord(OneLine(err.Error()))}
	}
	return FollowLook{Seen: storedTime(time.Now())}
}

// leave notes what is left alone.
func (l *FollowLook) leave(left found) {
	for _, who := range slices.Sorted(maps.Keys(left)) {
		l.Left = append(l.Left, seenWord(OneLine(who+": "+left[who])))
	}
	l.Left, l.MoreLeft = atMost(l.Left, mostSeenNames)
	if len(l.Left) == 0 {
		l.Left = nil
	}
}

// groups looks as groupSync does at the first look after mirroring has begun.
func (f *followers) groups(ctx context.Context) (seen FailbackGroups) {
	left := found{}
	places, err := f.places(ctx, left)
	if seen.FollowLook = followLook(err); err != nil {
		return seen
	}
	seen.addPlaces(places)
	seen.leave(left)
	return seen
}

func (f *followers) places(ctx context.Context, left found) ([]PlanGroupPlace, error) {
	m := f.m
	filter, err := m.settingsNow().GroupFilter()
	if err != nil {
		return nil, err
	}
	reader, writer, err := abilities[GroupReader, GroupWriter](ctx, m, "groups")
	if err != nil || len(f.partitions) == 0 {
		return nil, err
	}
	state, err := bounded(ctx, m, m.cfg.Control.Read)
	if err != nil {
		return nil, fmt.Errorf("reading what is remembered of groups: %w", err)
	}
	g := newGroupSync(m) // what it notes is nobody's
	l := &groupLook{groupSync: g, writer: writer, partitions: map[TopicPartition]followedPartition{}, resting: map[TopicPartition]bool{}, episodes: state.groupEpisodes(m.cfg.Name),
		fresh: map[TopicPartition]bool{}, dropped: map[TopicPartition]int64{}, out: map[TopicPartition][]string{}, now: time.Now(), left: left}
	for _, p := range f.partitions {
		l.partitions[p.TopicPartition] = followedPartition{episode: p.episode, copy: p.copy(), topicID: p.sourceTopic}
		if !l.episodes[p.Topic].over(p.Partition, p.episode, p.sourceTopic) {
			l.fresh[p.TopicPartition] = true
			if p.cut >= 0 {
				l.dropped[p.TopicPartition] = p.cut
			}
		}
	}
	memories, unread := g.memories(&state)
	views, _, _, err := l.ask(ctx, reader, filter.Matches)
	if err != nil {
		return nil, unsupported(err, "groups")
	}
	if err := f.measure(ctx, l, views); err != nil {
		return nil, err
	}
	same, err := m.desk.confirm(ctx, f.ids)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(l.partitions, func(tp TopicPartition, _ followedPartition) bool { return !same[tp.Topic] })
	for name := range f.ids {
		if !same[name] {
			left["topic "+name] = "it is being deleted or made again at the source: nothing is known of its groups"
		}
	}
	var places []PlanGroupPlace
	for _, v := range views {
		key := groupKey{v.group.Name, v.group.Kind}
		if err := unread[key]; err != nil {
			left[v.group.who()] = "what is remembered of it cannot be read, so it stays where it is: " + err.Error()
			continue
		}
		places = append(places, l.placesBack(v, memories[key])...)
	}
	return places, nil
}

// measure asks again for the source's ends where a group is beyond what was seen: it has committed since, or the end of its records is not there any more (F-56), and both look alike.
func (f *followers) measure(ctx context.Context, l *groupLook, views []groupView) error {
	beyond := map[TopicPartition]bool{}
	for _, v := range views {
		for tp, at := range v.source.Offsets {
			if p, is := l.partitions[tp]; is && at.Offset > p.copy.Replicated {
				beyond[tp] = true
			}
		}
	}
	if len(beyond) == 0 {
		return nil
	}
	ends, err := bounded(ctx, l.m, func(ctx context.Context) (map[TopicPartition]SourceOffsets, error) {
		return l.m.cfg.Source.Offsets(ctx, slices.Collect(maps.Keys(beyond)))
	})
	if err != nil {
		return fmt.Errorf("measuring where the source's logs end: %w", err)
	}
	for tp := range beyond {
		if at, is := ends[tp]; is && at.Err == nil {
			p := l.partitions[tp]
			p.copy.Replicated = max(p.copy.Replicated, at.HighWatermark)
			p.copy.End = p.copy.Replicated
			l.partitions[tp] = p
		}
	}
	return nil
}

// copy is the copy as it is when it is in step with the source.
func (p *followedBack) copy() metadatasync.Copy {
	return metadatasync.Copy{Start: p.start, Replicated: p.end, End: p.end, LeaderEpoch: math.MaxInt32, EpochBelow: func(int64) int32 { return metadatasync.None }}
}

// placesBack are where one group goes on, as decide decides it.
func (l *groupLook) placesBack(v groupView, memory groupMemory) (places []PlanGroupPlace) {
	told := l.left
	l.left = found{} // what decide says there of single partitions is said of each place here
	w, _ := l.decide(v, memory)
	l.left = told
	concerned := map[TopicPartition]bool{}
	for _, offsets := range []map[TopicPartition]GroupOffset{v.source.Offsets, v.copies.Offsets} {
		for tp := range offsets {
			concerned[tp] = true
		}
	}
	waits := map[TopicPartition]bool{}
	for _, tp := range slices.Concat(v.source.Pending, v.copies.Pending) {
		concerned[tp], waits[tp] = true, true
	}
	for tp := range concerned {
		p, follows := l.partitions[tp]
		if !follows {
			continue
		}
		at, source := v.source.Offsets[tp]
		had, here := v.copies.Offsets[tp]
		x := PlanGroupPlace{Group: v.group.Name, Kind: v.group.Kind.String(), Topic: tp.Topic, Partition: tp.Partition, Seen: storedTime(l.now)}
		if source {
			x.Source = KnownNumber(at.Offset)
			x.Place = KnownNumber(metadatasync.Place(metadatasync.Offset{Offset: at.Offset, LeaderEpoch: at.LeaderEpoch}, p.copy).Offset)
		}
		if here {
			x.Here = KnownNumber(had.Offset)
		}
		decided := w.memory.Partitions[tp]
		to, moves := w.write[tp]
		stranger := v.here.Name != "" && v.here.Kind != v.group.Kind
		if cut, is := l.dropped[tp]; is && here && !source && had.Offset > cut {
			x.Place = KnownNumber(max(cut, p.copy.Start))
		}
		switch {
		case waits[tp]:
			x.Reason = skippedWords(skippedPending)
		case !source && v.source.hides(tp), !here && v.copies.hides(tp):
			x.Reason = skippedWords(skippedUnreadable)
			if !source {
				x.Reason = "it could not be read at the source"
			}
		case moves:
			x.At, x.Place = KnownNumber(to.Offset), KnownNumber(to.Offset)
		case stranger:
			x.Stays, x.Reason = true, fmt.Sprintf("it is a %s at the destination", v.here.Kind)
		case v.here.Active:
			x.Stays, x.Reason = true, skippedWords(skippedActive)
		default:
			x.Stays, x.Reason = !source || decided.Skipped != "", skippedWords(cmp.Or(decided.Skipped, map[bool]string{false: skippedNoOffset}[source]))
			if !x.Stays {
				x.At = x.Here
			}
		}
		if x.Stays {
			x.At = x.Here
			if place, belongs := x.Place.Value(); belongs && here {
				x.Behind, x.Skips = KnownNumber(max(0, place-had.Offset)), KnownNumber(max(0, had.Offset-place))
			}
		}
		places = append(places, x)
	}
	return places
}

// settings looks as settingSync does, and as it does before it creates a topic.
func (f *followers) settings(ctx context.Context) (seen FailbackSettings) {
	left := found{}
	changes, err := f.settingChanges(ctx, left)
	if seen.FollowLook = followLook(err); err != nil {
		return seen
	}
	slices.SortFunc(changes, func(a, b PlanSetting) int { return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Name, b.Name)) })
	seen.Changes, seen.MoreChanges = atMost(changes, mostFollows)
	seen.leave(left)
	return seen
}

func (f *followers) settingChanges(ctx context.Context, left found) (changes []PlanSetting, err error) {
	m := f.m
	excluded, err := m.settingsNow().PropertyExcluded()
	if err != nil {
		return nil, err
	}
	if excluded(everySetting) {
		return nil, notFollowed(propertiesExcludeSetting + " excludes all of them")
	}
	reader, writer, err := abilities[TopicConfigReader, TopicConfigWriter](ctx, m, "topic settings")
	if err != nil || len(f.ids) == 0 {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(f.ids))
	source, err := bounded(ctx, m, func(ctx context.Context) (map[string]TopicConfigs, error) { return reader.TopicConfigs(ctx, names) })
	if err != nil {
		return nil, unsupported(fmt.Errorf("reading topic settings at the source: %w", err), "topic settings")
	}
	same, err := m.desk.confirm(ctx, f.ids)
	if err != nil {
		return nil, err
	}
	here := map[string]TopicConfigs{}
	if there := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return f.created[name] }); len(there) > 0 {
		if here, err = bounded(ctx, m, func(ctx context.Context) (map[string]TopicConfigs, error) { return writer.TopicConfigs(ctx, there) }); err != nil {
			return nil, fmt.Errorf("reading topic settings at the destination: %w", err)
		}
	}
	state, err := bounded(ctx, m, m.cfg.Control.Read)
	if err != nil {
		return nil, fmt.Errorf("reading what is remembered of topic settings: %w", err)
	}
	stored, unread := m.syncing.settings.remembered(&state, left)
	maps.DeleteFunc(left, func(who, _ string) bool { // of topics that are in no plan
		return !slices.ContainsFunc(names, func(name string) bool { return who == "topic "+name })
	})
	for _, name := range names {
		from, there := source[name]
		to, hereToo := here[name]
		memory := stored[name]
		switch {
		case unread[name]: // it is in left
			continue
		case !same[name] || !there || !hereToo && !f.created[name]:
			left["topic "+name] = "it is being deleted or made again: nothing is known of its settings"
			continue
		case from.Err != nil || to.Err != nil:
			left["topic "+name] = "its settings cannot be read: " + errors.Join(from.Err, to.Err).Error()
			continue
		case f.created[name]:
			memory = nil
		}
		d := metadatasync.Settings(metadatasync.SettingsLook{Source: from.Values, Destination: to.Values, Memory: memory, Excluded: excluded})
		for setting, value := range d.Set {
			changes = append(changes, PlanSetting{name, setting, own(to.Values, setting), &value})
		}
		for _, setting := range d.Delete {
			changes = append(changes, PlanSetting{name, setting, own(to.Values, setting), nil})
		}
	}
	return changes, nil
}

// own is the value of a setting that a topic has of its own, nil: none.
func own(values map[string]string, name string) *string {
	value, is := values[name]
	if !is {
		return nil
	}
	return &value
}

// rules looks as ruleSync does, twice: what the source has no more is removed at its second look.
func (f *followers) rules(ctx context.Context, topics []string) (seen FailbackRules) {
	left := found{}
	d, err := f.ruleChanges(ctx, topics, left)
	if seen.FollowLook = followLook(err); err != nil {
		return seen
	}
	words := func(rules []ACL) (all []string) {
		for _, a := range rules {
			all = append(all, a.String())
		}
		slices.Sort(all)
		return all
	}
	seen.Makes, seen.MoreMakes = atMost(words(d.Create), mostFollows)
	seen.Removes, seen.MoreRemoves = atMost(words(d.Delete), mostFollows)
	seen.leave(left)
	return seen
}

func (f *followers) ruleChanges(ctx context.Context, topics []string, left found) (d metadatasync.RulesDecision[ACL], err error) {
	m := f.m
	filter, err := m.settingsNow().ACLRules()
	if err != nil {
		return d, err
	}
	reader, writer, err := abilities[ACLReader, ACLWriter](ctx, m, "access rules")
	if err != nil {
		return d, err
	}
	source, err := bounded(ctx, m, reader.ACLs)
	if err != nil {
		return d, unsupported(noAuthorizer(err, "source"), "access rules")
	}
	if _, err := m.desk.confirm(ctx, nil); err != nil {
		return d, err
	}
	here, err := bounded(ctx, m, writer.ACLs)
	if err != nil {
		return d, noAuthorizer(err, "destination")
	}
	state, err := bounded(ctx, m, m.cfg.Control.Read)
	if err != nil {
		return d, fmt.Errorf("reading which access rules are the mirror's: %w", err)
	}
	m.syncing.rules.remembered(&state, left) // for what it leaves
	stopped := slices.DeleteFunc(state.stoppedNames(m.cfg.Name), func(topic string) bool { return slices.Contains(topics, topic) })
	look := m.syncing.rules.lookOf(&state, filter, nil, source, here, stopped, left)
	look.Missed = look.Memory
	return metadatasync.Rules(look), nil
}
