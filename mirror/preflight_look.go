package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// adviceOn is what a source's error says is to be done.
func adviceOn(err error, otherwise string) string {
	var e *SourceError
	if errors.As(err, &e) && e.Advice != "" {
		return "" // it is in the error's own words
	}
	return otherwise
}

// open connects to the source.
func (p *preflight) open(ctx context.Context) {
	switch {
	case p.source != nil:
	case p.cfg.OpenSource == nil:
		p.addf(AboutClusters, FindingWarns, AtSource, nil, "", "it was not looked at: nobody can open it here")
	default:
		source, err := answered(ctx, p, func(ctx context.Context) (Source, error) { return p.cfg.OpenSource(ctx, p.cfg.Settings) })
		if err != nil {
			p.addf(AboutClusters, FindingBlocks, AtSource, nil, adviceOn(err, "see that "+bootstrapSetting+" and the settings of its security are right"), "it cannot be opened: %v", err)
			return
		}
		p.source = source
	}
}

// clusters asks both who they are.
func (p *preflight) clusters(ctx context.Context) {
	if p.source != nil {
		info, err := answered(ctx, p, p.source.Cluster)
		if err != nil {
			p.addf(AboutClusters, FindingBlocks, AtSource, nil, adviceOn(err, "see that it runs, that the way to it is open, and that the settings of its security are right"), "it cannot be reached: %v", err)
			if p.cfg.Source == nil {
				_ = p.source.Close()
			}
			p.source = nil
		}
		p.report.SourceClusterID = info.ID
	}
	if p.cfg.Destination == nil {
		p.silent = true
		p.addf(AboutClusters, FindingWarns, AtDestination, nil, "", "it was not looked at: nobody can ask it here")
	} else {
		id, err := answered(ctx, p, p.cfg.Destination.ClusterID)
		if err != nil {
			p.silent = true
			p.addf(AboutClusters, FindingBlocks, AtDestination, nil, adviceOn(err, "see that it runs, and that the way to it is open"), "it cannot be reached: %v", err)
		}
		p.report.DestinationClusterID = id
	}
	pinned := func(at FindingSide, setting, recorded, id string) {
		pin := p.cfg.Settings.Effective(setting)
		switch {
		case id != "" && pin == "" && recorded != "" && recorded != id:
			p.addf(AboutClusters, FindingBlocks, at, nil, "correct the address; if another cluster is meant, make a new mirror", "its id is %s, and the mirror is of %s", id, recorded)
		case id == "":
		case pin != "" && pin != id:
			p.addf(AboutClusters, FindingBlocks, at, nil, "correct the address, or the setting", "its id is %s, and setting %s names %s", id, setting, pin)
		case pin == "":
			p.addf(AboutClusters, FindingFine, at, nil, "", "its id is %s, which setting %s could pin", id, setting)
		default:
			p.addf(AboutClusters, FindingFine, at, nil, "", "its id is %s, as setting %s says", id, setting)
		}
	}
	pinned(AtSource, sourceClusterIDSetting, p.cfg.SourceClusterID, p.report.SourceClusterID)
	pinned(AtDestination, destinationClusterIDSetting, p.cfg.DestinationClusterID, p.report.DestinationClusterID)
	if id := p.report.SourceClusterID; id != "" && id == p.report.DestinationClusterID {
		p.addf(AboutClusters, FindingBlocks, AtSource, nil, "correct "+bootstrapSetting, "it is the destination itself: cluster id %s on both sides", id)
	}
}

// sourceTopics finds out which topics would be mirrored, and how they are.
func (p *preflight) sourceTopics(ctx context.Context) {
	var internal, excluded, named []string
	patterns := map[string]bool{}
	for _, topic := range p.cfg.Topics {
		pattern := p.topics.forbids.excludes(topic, true)
		switch err := checkTopicName(topic); {
		case err != nil:
			p.addf(AboutTopics, FindingBlocks, "", nil, "correct the name", "%v", err)
		case internalTopic(topic):
			internal = append(internal, topic)
		case pattern != "":
			patterns[pattern] = true
			excluded = append(excluded, topic)
		default:
			named = append(named, topic)
		}
	}
	for _, g := range cautionsOf(internal) {
		p.addf(AboutTopics, FindingBlocks, AtSource, g.topics, g.Do, "it is never mirrored: %s", g.Reason)
	}
	if len(excluded) > 0 {
		p.addf(AboutTopics, FindingBlocks, AtSource, excluded, "take that out of the setting, or do not start them", "%s: %s has %s", plural(len(excluded), "named topic is excluded", "named topics are excluded"),
			topicsExcludeSetting, strings.Join(slices.Sorted(maps.Keys(patterns)), ", "))
	}
	if p.source == nil {
		p.report.Topics = slices.Compact(slices.Sorted(slices.Values(named))) // what the destination can be asked about
		return
	}
	var there []SourceTopic
	var err error
	if !p.topics.FindsNothing() {
		p.addf(AboutTopics, FindingFine, AtSource, nil, "", "patterns find only topics that this user may Describe")
		there, err = answered(ctx, p, func(ctx context.Context) ([]SourceTopic, error) { return p.source.Topics(ctx) })
	}
	seen, byName := map[string]bool{}, map[string]bool{}
	for _, t := range there {
		seen[t.Name] = true
	}
	for _, topic := range named {
		byName[topic] = true
	}
	asked := slices.DeleteFunc(slices.Clone(named), func(topic string) bool { return seen[topic] })
	if len(asked) > 0 && err == nil { // by name a cluster says of a topic that it must not show it
		var more []SourceTopic
		more, err = answered(ctx, p, func(ctx context.Context) ([]SourceTopic, error) { return p.source.Topics(ctx, asked...) })
		there = append(there, more...)
	}
	if err != nil {
		p.addf(AboutTopics, FindingBlocks, AtSource, nil, adviceOn(err, "look again when it answers"), "its topics cannot be listed: %v", err)
		p.report.Topics = slices.Compact(slices.Sorted(slices.Values(named)))
		return
	}
	p.found = there
	p.unreadable = map[string]error{}
	for _, t := range there {
		seen[t.Name] = true
		if !byName[t.Name] && (t.Internal || !p.topics.Matches(t.Name)) {
			continue
		}
		p.report.Topics = append(p.report.Topics, t.Name)
		if t.Err != nil {
			p.unreadable[t.Name] = t.Err
		}
	}
	slices.Sort(p.report.Topics)
	p.report.Topics = slices.Compact(p.report.Topics)
	p.absent = slices.DeleteFunc(named, func(topic string) bool { return seen[topic] })
}

// sourceShape says what is wrong with the source's topics, behind the rights: a topic that must not be seen looks like one that is not there.
func (p *preflight) sourceShape() {
	if p.source == nil || p.unreadable == nil {
		return
	}
	denied := map[string]bool{}
	for _, f := range p.report.Findings {
		if f.Kind == AboutRights && f.Severity == FindingBlocks && f.Right.Operation == "Describe" {
			for _, topic := range f.Names {
				denied[topic] = true
			}
		}
	}
	hidden := func(topic string) bool { return denied[topic] }
	if absent := slices.DeleteFunc(slices.Clone(p.absent), hidden); len(absent) > 0 {
		p.addf(AboutTopics, FindingBlocks, AtSource, absent, "correct the names; a topic that is made later is mirrored from then on", "it has no such topic")
	}
	words := map[string][]string{}
	for topic, err := range p.unreadable {
		var e *SourceError
		if hidden(topic) && errors.As(err, &e) && e.Code == SourceDenied {
			continue
		}
		reason := err.Error()
		if e != nil {
			reason = fmt.Sprint(e.Err)
		}
		words[reason] = append(words[reason], topic)
	}
	for _, reason := range slices.Sorted(maps.Keys(words)) {
		p.addf(AboutTopics, FindingBlocks, AtSource, words[reason], "look again; a topic that cannot be read is not mirrored", "%s cannot be read now: %s", plural(len(words[reason]), "topic", "topics"), reason)
	}
	var leaderless []string
	for _, t := range p.found {
		if _, is := slices.BinarySearch(p.report.Topics, t.Name); !is {
			continue
		}
		for _, l := range t.Leaders {
			if l.Leader < 0 {
				leaderless = append(leaderless, fmt.Sprintf("%s-%d", t.Name, l.Partition))
			}
		}
	}
	if len(leaderless) > 0 {
		p.addf(AboutTopics, FindingWarns, AtSource, leaderless, "start their brokers; they are mirrored from then on", "%s no leader now", plural(len(leaderless), "partition has", "partitions have"))
	}
	if len(p.report.Topics) == 0 && len(p.cfg.Topics) == 0 {
		p.addf(AboutTopics, FindingWarns, AtSource, nil, "start topics by name, or set "+topicsIncludeSetting, "no topic is named, and %s finds none", topicsIncludeSetting)
	}
}

// lookedUpAtOnce is how many topics are looked up at the destination at the same time.
const lookedUpAtOnce = 8

// destinationTopics compares topics that both have.
func (p *preflight) destinationTopics(ctx context.Context) {
	if p.silent || len(p.report.Topics) == 0 {
		return
	}
	var mu sync.Mutex
	var trouble error
	have := map[string]Topic{}
	next := make(chan string)
	var wg sync.WaitGroup
	for range min(lookedUpAtOnce, len(p.report.Topics)) {
		wg.Go(func() {
			for name := range next {
				mu.Lock()
				stop := trouble != nil
				mu.Unlock()
				if stop {
					continue
				}
				t, err := answered(ctx, p, func(ctx context.Context) (Topic, error) { return p.cfg.Destination.Topic(ctx, name) })
				mu.Lock()
				if err == nil {
					have[name] = t
				} else if !errors.Is(err, ErrUnknownTopic) && trouble == nil {
					trouble = fmt.Errorf("topic %s: %w", name, err)
				}
				mu.Unlock()
			}
		})
	}
	for _, name := range p.report.Topics {
		next <- name
	}
	close(next)
	wg.Wait()
	if trouble != nil {
		p.addf(AboutTopics, FindingWarns, AtDestination, nil, adviceOn(trouble, "look again when it answers"), "whether it has the topics was not seen: %v", trouble)
		return
	}
	var more, fewer, internal, same []string
	for _, t := range p.found {
		d, there := have[t.Name]
		switch {
		case !there || t.Err != nil:
		case d.Internal:
			internal = append(internal, t.Name)
		case d.Partitions > t.Partitions:
			more = append(more, t.Name)
		case d.Partitions < t.Partitions:
			fewer = append(fewer, t.Name)
		default:
			same = append(same, t.Name)
		}
	}
	if len(internal) > 0 {
		p.addf(AboutTopics, FindingBlocks, AtDestination, internal, "do not mirror them", "%s internal there", plural(len(internal), "topic is", "topics are"))
	}
	if len(more) > 0 {
		p.addf(AboutTopics, FindingBlocks, AtDestination, more, "delete them there if they are of no use; a mirror never removes partitions", "%s more partitions than at the source", plural(len(more), "topic has", "topics have"))
	}
	if len(fewer) > 0 {
		p.addf(AboutTopics, FindingWarns, AtDestination, fewer, "", "%s fewer partitions than at the source, and will get the others", plural(len(fewer), "topic has", "topics have"))
	}
	if len(same) > 0 {
		p.addf(AboutTopics, FindingFine, AtDestination, same, "", "%s there with as many partitions; a start compares what is in them, and refuses to drop records that the source never had", plural(len(same), "topic is", "topics are"))
	}
	if fresh := slices.DeleteFunc(slices.Clone(p.report.Topics), func(topic string) bool { _, there := have[topic]; return there }); len(fresh) > 0 {
		p.addf(AboutTopics, FindingFine, AtDestination, fresh, "", "%s created", plural(len(fresh), "topic will be", "topics will be"))
	}
}

// sourceGroups finds out which groups would be followed.
func (p *preflight) sourceGroups(ctx context.Context) {
	if p.source == nil {
		return
	}
	reader, ok := p.source.(GroupReader)
	if !ok {
		p.addf(AboutGroups, FindingWarns, AtSource, nil, "", "this source cannot list groups: offsets of groups are not followed")
		return
	}
	all, err := answered(ctx, p, reader.Groups)
	if err != nil {
		p.addf(AboutGroups, FindingWarns, AtSource, nil, adviceOn(err, "look again when all brokers answer"), "not all of its groups were seen: %v", err)
	}
	for _, g := range all {
		if p.groups.Matches(g.Name) {
			p.report.Groups = append(p.report.Groups, g.Name)
			p.followed = append(p.followed, g)
		}
	}
	slices.Sort(p.report.Groups)
	p.report.Groups = slices.Compact(p.report.Groups)
	p.addf(AboutGroups, FindingFine, AtSource, p.report.Groups, "", "%s of %d would be followed", plural(len(p.report.Groups), "group", "groups"), len(all))
}

// destinationGroups says which groups will not be moved there.
func (p *preflight) destinationGroups(ctx context.Context) {
	if p.silent {
		return
	}
	if whole, ok := p.cfg.Destination.(Destination); ok {
		if _, can := whole.(GroupWriter); !can {
			p.addf(AboutGroups, FindingWarns, AtDestination, nil, "", "this destination cannot move groups: offsets of groups are not followed")
			return
		}
	}
	reader, ok := p.cfg.Destination.(GroupReader)
	if !ok || len(p.followed) == 0 {
		return
	}
	all, err := answered(ctx, p, reader.Groups)
	if err != nil {
		p.addf(AboutGroups, FindingWarns, AtDestination, nil, adviceOn(err, "look again when all brokers answer"), "not all of its groups were seen: %v", err)
	}
	kinds := map[string]GroupKind{}
	for _, g := range p.followed {
		kinds[g.Name] = g.Kind
	}
	var active, other []string
	for _, g := range all {
		kind, followed := kinds[g.Name]
		switch {
		case !followed:
		case kind != g.Kind:
			other = append(other, g.Name)
		case g.Active:
			active = append(active, g.Name)
		}
	}
	if len(active) > 0 {
		p.addf(AboutGroups, FindingWarns, AtDestination, active, "end their members there until the failover", "%s there: not moved as long as that is so", plural(len(active), "group has members", "groups have members"))
	}
	if len(other) > 0 {
		p.addf(AboutGroups, FindingWarns, AtDestination, other, "use another name on one side", "%s of another kind there: not moved", plural(len(other), "group is", "groups are"))
	}
}

// topicSettings says whether they can be followed, and looks for tiered storage at the source.
func (p *preflight) topicSettings(ctx context.Context) {
	if whole, ok := p.cfg.Destination.(Destination); ok {
		if _, can := whole.(TopicConfigWriter); !can {
			p.addf(AboutTopicSettings, FindingWarns, AtDestination, nil, "set on the topics there what must not be the cluster's default", "this destination cannot set topic settings: they are not followed")
		}
	}
	if p.source == nil || len(p.report.Topics) == 0 {
		return
	}
	reader, ok := p.source.(TopicConfigReader)
	if !ok {
		p.addf(AboutTopicSettings, FindingWarns, AtSource, nil, "", "this source cannot tell topic settings: they are not followed, and tiered storage is not seen")
		return
	}
	var tiered []string
	troubles := map[string][]string{}
	for some := range slices.Chunk(p.report.Topics, askedAtOnce) {
		configs, err := answered(ctx, p, func(ctx context.Context) (map[string]TopicConfigs, error) { return reader.TopicConfigs(ctx, some) })
		if err != nil {
			if !p.refused(AtSource, err) {
				p.addf(AboutTopicSettings, FindingWarns, AtSource, nil, adviceOn(err, "look again when it answers"), "topic settings were not seen: %v", err)
			}
			break
		}
		for topic, c := range configs {
			switch {
			case c.Err != nil && !p.refused(AtSource, c.Err):
				troubles[c.Err.Error()] = append(troubles[c.Err.Error()], topic)
			case strings.EqualFold(c.Values["remote.storage.enable"], "true"):
				tiered = append(tiered, topic)
			}
		}
	}
	for _, trouble := range slices.Sorted(maps.Keys(troubles)) {
		p.addf(AboutTopicSettings, FindingWarns, AtSource, troubles[trouble], "", "settings were not seen: %s", trouble)
	}
	if len(tiered) > 0 {
		p.addf(AboutTopicSettings, FindingWarns, AtSource, tiered, "see that the destination has room for all that retention.ms and retention.bytes keep, and expect that old records come slowly",
			"%s tiered storage, which is not followed: the copy keeps everything on the destination's disks", plural(len(tiered), "topic has", "topics have"))
	}
}

// accessRules says whether they can be followed.
func (p *preflight) accessRules(ctx context.Context) {
	if len(p.rules.rules) == 0 {
		p.addf(AboutACLs, FindingFine, "", nil, "", "%s is empty: none are followed", aclIncludeSetting)
		return
	}
	if p.source == nil {
		return
	}
	reader, ok := p.source.(ACLReader)
	if !ok {
		p.addf(AboutACLs, FindingWarns, AtSource, nil, "", "this source cannot list access rules: they are not followed")
		return
	}
	all, err := answered(ctx, p, reader.ACLs)
	switch {
	case errors.Is(err, ErrNoAuthorizer):
		p.addf(AboutACLs, FindingFine, AtSource, nil, "", "it has no authorizer, so there are no access rules to follow")
		return
	case err != nil:
		if !p.refused(AtSource, err) {
			p.addf(AboutACLs, FindingWarns, AtSource, nil, adviceOn(err, "look again when it answers"), "access rules were not seen: %v", err)
		}
		return
	}
	matching := len(slices.DeleteFunc(slices.Clone(all), func(a ACL) bool { return !p.rules.Matches(a) }))
	p.addf(AboutACLs, FindingFine, AtSource, nil, "", "%d of %s would be followed", matching, plural(len(all), "access rule", "access rules"))
	if p.silent || matching == 0 {
		return
	}
	if whole, ok := p.cfg.Destination.(Destination); ok {
		if _, can := whole.(ACLWriter); !can {
			p.addf(AboutACLs, FindingWarns, AtDestination, nil, "make there by hand what clients need", "this destination cannot make access rules: they are not followed")
			return
		}
	}
	if reader, ok := p.cfg.Destination.(ACLReader); ok {
		_, err := answered(ctx, p, reader.ACLs)
		switch {
		case errors.Is(err, ErrNoAuthorizer):
			p.addf(AboutACLs, FindingWarns, AtDestination, nil, "give its brokers an authorizer (authorizer.class.name) before the failover", "it has no authorizer: the source's access rules cannot be made, and whoever reaches it may do everything")
		case err != nil && !p.refused(AtDestination, err):
			p.addf(AboutACLs, FindingWarns, AtDestination, nil, adviceOn(err, "look again when it answers"), "access rules were not seen: %v", err)
		}
	}
}
