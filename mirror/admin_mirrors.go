package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/statemachine"
)

// CreateOptions belong to Create.
type CreateOptions struct {
	DryRun bool
	Intent Intent
}

// DeleteOptions belong to Delete.
type DeleteOptions struct {
	// Purge takes out the last mirror epochs too: a later failback to this cluster's former source then copies everything again (spec decision 8).
	Purge bool
	// Abandon lets go of partitions that only the state store knows of and that are not STOPPED: topics that were deleted at the destination leave such. It needs a Destination, which
	// says which topics there are. If one of them does exist, its log stays closed for clients.
	Abandon bool
	DryRun  bool
	Intent  Intent
}

// AlterConfigOptions belong to AlterConfig.
type AlterConfigOptions struct {
	DryRun bool
	Intent Intent
}

// Create makes the mirror, without topics (KIP-1279, CreateClusterMirror; spec §1.1). settings are copied; secrets in them are references, never values.
// Where the source can be asked it is: for its cluster id, which is kept from then on, and for mirrors of its own. A source that does not answer stops nothing; it is said in a
// note. A name that was deleted may be created again.
// Errors, in this order: ClusterMirrorAlreadyExists, InvalidConfig (a setting that does not exist, a bad value, a literal secret, no bootstrap.servers), InvalidRequest (the
// intent; the source is the destination itself; topics that the new mirror would take are mirrored by the source from here: a loop).
func (a *Admin) Create(ctx context.Context, settings Settings, o CreateOptions) (Result, error) {
	c, err := a.begin(ctx, verbCreate, o.DryRun, o.Intent, settingWords(settings))
	if err != nil {
		return c.nothing(err)
	}
	fresh := func(s *ControlState) error {
		if _, there := s.Mirror(c.cfg.Mirror); there {
			return c.refuse(ClusterMirrorAlreadyExists, "", "there is a mirror of that name; AlterConfig changes it, Describe shows it")
		}
		return nil
	}
	if err := fresh(&c.known); err != nil {
		return c.nothing(err)
	}
	if settings, err = c.checkSettings(settings); err != nil {
		return c.nothing(err)
	}
	if settings[bootstrapSetting] == "" && c.borrowed == nil {
		return c.nothing(c.refuse(InvalidConfig, "", "setting %s is required: the addresses of the source's brokers", bootstrapSetting))
	}
	c.settings = settings
	if err := c.askDestination(ctx); err != nil {
		return c.nothing(err)
	}
	loops, err := c.lookAtSource(ctx)
	if err != nil {
		return c.nothing(err)
	}
	return c.commit(ctx, func(s *ControlState, r *Result) (outcome, error) {
		if err := fresh(s); err != nil {
			return outcome{}, err
		}
		if err := c.notItself(r.Clusters); err != nil {
			return outcome{}, err
		}
		if loops != "" {
			return outcome{}, c.refuse(InvalidRequest, "", "loop: %s; stop that mirror first, or exclude the topics", loops)
		}
		out := outcome{changed: true, detail: changeWords(changedSettings(nil, settings))}
		if d, deleted := s.DeletedMirror(c.cfg.Mirror); deleted {
			out.plan = append(out.plan, "again")
			out.notes = append(out.notes, fmt.Sprintf("a mirror of that name was deleted at %s; what it has left in the state store belongs to the new one", stamp(d.At)))
		}
		s.SetMirror(MirrorEntry{Name: c.cfg.Mirror, Settings: settings, SourceClusterID: r.Clusters.SourceID, Created: c.begun})
		return out, nil
	})
}

// foundBy are the source's topics that are mirrored by themselves.
func foundBy(filter Filter, there []SourceTopic) (names []string) {
	for _, t := range there {
		if filter.Matches(t.Name) && !t.Internal {
			names = append(names, t.Name)
		}
	}
	return names
}

// lookAtSource learns the source's cluster id, and which topics of the new mirror it mirrors from this cluster: a loop.
func (c *call) lookAtSource(ctx context.Context) (loops string, err error) {
	var torn, free []string
	canAsk, err := c.askSource(ctx, func(ctx context.Context, source Source) error {
		filter, err := c.settings.TopicFilter()
		if err != nil {
			return err
		}
		reader, ok := source.(LastMirrorEpochReader)
		ok = ok && c.destinationID != ""
		if !ok && filter.FindsNothing() {
			return nil
		}
		there, err := source.Topics(ctx)
		if err != nil {
			return err
		}
		c.notes = append(c.notes, cautionNotes(foundBy(filter, there))...)
		if !ok {
			return nil
		}
		var partitions []TopicPartition
		for _, t := range there {
			for p := range t.Partitions {
				partitions = append(partitions, TopicPartition{t.Name, p})
			}
		}
		mirrors, err := reader.MirrorsOf(ctx, partitions)
		if err != nil && !errors.Is(err, ErrUnsupported) {
			return err
		}
		for _, m := range mirrors {
			chain := append([]string{m.SourceClusterID}, m.Upstream...)
			ours := slices.Index(chain, c.destinationID)
			if ours < 0 || m.State == statemachine.Stopped {
				continue
			}
			what := fmt.Sprintf("%s (mirror %s", m.Partition.Topic, m.Mirror)
			if ours > 0 {
				what += ", by way of " + strings.Join(chain[:ours], ", ")
			}
			what += ")"
			if filter.Matches(m.Partition.Topic) {
				torn = append(torn, what)
			} else {
				free = append(free, what)
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return "", fmt.Errorf("mirror %s: asking the source, nothing has changed: %w", c.cfg.Mirror, ctx.Err())
	}
	if err := c.neverOpens(err); err != nil {
		return "", err
	}
	if canAsk && err != nil {
		c.notes = append(c.notes, "the source could not be asked, so nothing of it was checked: "+err.Error())
	}
	slices.Sort(torn)
	slices.Sort(free)
	torn, free = slices.Compact(torn), slices.Compact(free) // one for each partition
	if len(free) > 0 {
		c.notes = append(c.notes, "the source mirrors from this cluster, and these topics can be started here only when they are stopped there: "+few(free))
	}
	if len(torn) > 0 {
		return "the source mirrors from this cluster: " + few(torn), nil
	}
	return "", nil
}

// Delete takes the mirror away: its settings, and what binds its topics to it (KIP-1279, DeleteClusterMirror; spec §1.4). The topics stay, open for clients as they are. The
// running mirror, or the next process that has its records, takes out its states; its last mirror epochs stay for a failback, unless Purge says otherwise (spec decision 8).
// Errors, in this order: InvalidRequest (the intent), InvalidClusterMirrorState (a partition of a topic of the mirror is not STOPPED), UnknownClusterMirror,
// ClusterMirrorNotEmpty (a topic is wanted mirrored or paused).
func (a *Admin) Delete(ctx context.Context, o DeleteOptions) (Result, error) {
	c, err := a.begin(ctx, verbDelete, o.DryRun, o.Intent, o.Purge, o.Abandon)
	if err != nil {
		return c.nothing(err)
	}
	facts, err := c.look(ctx, c.members(&c.known, nil))
	if err != nil {
		return c.nothing(err)
	}
	if err := c.askDestination(ctx); err != nil {
		return c.nothing(err)
	}
	return c.commit(ctx, func(s *ControlState, r *Result) (outcome, error) {
		var out outcome
		if err := c.strict("a deletion", r.Clusters); err != nil {
			return out, err
		}
		topics := c.members(s, nil)
		for _, topic := range topics {
			if err := c.allStopped(topic, facts); err != nil {
				return out, err
			}
		}
		abandoned, err := c.storedStopped(facts, o.Abandon)
		if err != nil {
			return out, err
		}
		if _, err := c.exists(s); err != nil {
			return out, err
		}
		for _, topic := range topics {
			if wish, _ := s.Topic(topic); !stopped(wish.MirrorName) {
				return out, c.refuse(ClusterMirrorNotEmpty, topic, "the topic is wanted as %s; Stop it first", wish.MirrorName)
			}
		}
		left, err := s.LeftFences(c.cfg.Mirror)
		for _, f := range left {
			out.notes = append(out.notes, "nobody will remember it any more: "+f.String())
		}
		if err != nil {
			out.notes = append(out.notes, "a fence was left up at the source, and which one cannot be read: "+err.Error())
		}
		for _, topic := range topics {
			s.Remove(topic)
			r.Topics = append(r.Topics, TopicResult{Topic: topic, Changed: true})
		}
		s.Provenance = slices.DeleteFunc(slices.Clone(s.Provenance), func(x Provenance) bool { return x.Mirror == c.cfg.Mirror })
		s.RemoveMirror(DeletedMirror{Name: c.cfg.Mirror, Purge: o.Purge, At: c.begun})
		out.changed = true
		if len(abandoned) > 0 {
			out.detail, out.plan = "abandoned "+few(abandoned), abandoned
			out.notes = append(out.notes, "let go of, and not opened if they exist: "+few(abandoned))
		}
		if o.Purge {
			out.detail = strings.TrimSpace("purge " + out.detail)
			out.notes = append(out.notes, "the last mirror epochs are deleted too: a failback from here copies everything again")
		}
		return out, nil
	})
}

// allStopped refuses a topic with a partition that is not STOPPED. One that does not exist at the destination and has no records was never taken up: nothing is left to open.
func (c *call) allStopped(topic string, found map[string]facts) error {
	f, looked := found[topic]
	if !looked {
		return c.refuse(InvalidClusterMirrorState, topic, "the topic has joined just now; nothing has changed")
	}
	if f.err != nil && f.missing() == nil {
		return c.failed(InvalidClusterMirrorState, topic, f.err, "the destination could not look the topic up; try again when it answers. Nothing has changed")
	}
	for partition := range f.topic.Partitions {
		if p := f.state(c.cfg.Mirror, partition); p.State != statemachine.Stopped {
			return c.refuse(InvalidClusterMirrorState, topic, "partition %d is %s%s, and every partition has to be STOPPED; Stop the topic and wait. Nothing has changed",
				partition, p.State, because(p.ErrorMessage))
		}
	}
	return nil
}

// storedStopped refuses partitions of this mirror that the state store has in another state than STOPPED, whoever knows of their topics: with the mirror goes whoever would open
// them. abandon lets go of those of topics that the destination does not have among the mirror's, and they are returned.
func (c *call) storedStopped(found map[string]facts, abandon bool) (abandoned []string, err error) {
	names := map[TopicID]string{}
	for _, p := range c.reports.Partitions {
		if p.Mirror == c.cfg.Mirror {
			names[p.TopicID] = p.Topic
		}
	}
	members := map[TopicID]bool{}
	for name, f := range found {
		if f.err == nil {
			names[f.topic.ID], members[f.topic.ID] = name, true
		}
	}
	var open []string
	for _, e := range c.stored {
		if e.State.State == statemachine.Stopped || e.State.State == statemachine.Unknown {
			continue
		}
		name := fmt.Sprintf("topic id %s", e.Key.TopicID)
		if known := names[e.Key.TopicID]; known != "" {
			name = known
		}
		name = fmt.Sprintf("%s partition %d (%s)", name, e.Key.Partition, e.State.State)
		if abandon && c.cfg.Destination != nil && !c.elsewhere && !members[e.Key.TopicID] {
			abandoned = append(abandoned, name)
		} else {
			open = append(open, name)
		}
	}
	slices.Sort(open)
	slices.Sort(abandoned)
	if len(open) > 0 {
		return nil, c.refuse(InvalidClusterMirrorState, "", "the state store has partitions of this mirror that are not STOPPED: %s; Stop their topics and wait. For topics that were deleted: "+
			"delete with Abandon, where the destination can be asked. Nothing has changed", few(open))
	}
	return abandoned, nil
}

// AlterConfig sets and unsets settings of the mirror in one step (spec §1.5). A changed connection setting makes the running mirror connect anew; whoever answers there is asked who it is, and one
// that does not answer stops nothing: that is a warning. Topics that are excluded now are
// stopped in the same step, and are in the result; topics that are included now are started at the mirror's next refresh. A topic set counts as the request leaves it.
// Errors, in this order: InvalidRequest (nothing named), UnknownClusterMirror, InvalidConfig (a setting that does not exist, a bad value, a literal secret; bootstrap.servers
// unset; a connection that leads to another cluster than the mirror's source), InvalidRegularExpression (a pattern, and nothing else), InvalidRequest (a setting set and unset; the intent; a filter would stop a part of a topic set). Nothing is
// applied then.
func (a *Admin) AlterConfig(ctx context.Context, set Settings, unset []string, o AlterConfigOptions) (Result, error) {
	c, err := a.begin(ctx, verbAlter, o.DryRun, o.Intent, settingWords(set), unset)
	if err != nil {
		return c.nothing(err)
	}
	if len(set) == 0 && len(unset) == 0 {
		return c.nothing(c.refuse(InvalidRequest, "", "no setting is named"))
	}
	if _, err := c.exists(&c.known); err != nil {
		return c.nothing(err)
	}
	before := c.settings
	if c.settings, err = c.altered(c.settings, set, unset); err != nil {
		return c.nothing(err)
	}
	if c.cfg.OpenSource != nil && ReconnectNeeded(before, c.settings) {
		if err := c.compareSource(ctx); err != nil {
			return c.nothing(err)
		}
	}
	if err := c.noteFound(ctx, before); err != nil {
		return c.nothing(err)
	}
	if err := c.askDestination(ctx); err != nil {
		return c.nothing(err)
	}
	return c.commit(ctx, func(s *ControlState, r *Result) (outcome, error) {
		var out outcome
		entry, err := c.exists(s)
		if err != nil {
			return out, err
		}
		next, err := c.altered(entry.Settings, set, unset)
		if err != nil {
			return out, err
		}
		before, err := c.altered(entry.Settings, nil, nil)
		if err != nil {
			return out, err
		}
		if r.Settings = changedSettings(before, next); len(r.Settings) == 0 {
			out.notes = append(out.notes, "every setting is so already")
			return out, nil
		}
		filter, err := next.TopicFilter()
		if err != nil {
			return out, c.badSetting(err, InvalidConfig)
		}
		whole := s.Clone()
		entry.Settings = next
		s.SetMirror(entry)
		out.changed, out.detail = true, changeWords(r.Settings)
		for _, x := range r.Settings {
			out.plan = append(out.plan, x.String())
		}
		out.notes = append(out.notes, c.effects(s, before, next)...)
		if excluded := c.running(s, filter.Excludes); len(excluded) > 0 {
			if err := c.strict("a filter that stops topics, which opens them for clients,", r.Clusters); err != nil {
				return out, err
			}
			if err := c.stopExcluded(s, r, excluded); err != nil {
				return out, err
			}
			c.warnUnattended(r)
			note, err := c.wholeSets(&whole, s, false)
			if err != nil {
				return out, err
			}
			out.notes = append(out.notes, note...)
		}
		if ReconnectNeeded(before, next) {
			out.notes = append(out.notes, "the running mirror connects to the source anew")
		}
		return out, nil
	})
}

// compareSource refuses connection settings that lead to another cluster than the mirror's source. Where nobody answers that is found out by the process that runs the mirror, and a warning says so.
func (c *call) compareSource(ctx context.Context) error {
	entry, _ := c.known.Mirror(c.cfg.Mirror)
	pinned := cmp.Or(entry.SourceClusterID, c.settings[sourceClusterIDSetting], c.cfg.SourceClusterID)
	known := c.sourceID
	_, err := c.askSource(ctx, func(context.Context, Source) error { return nil })
	answered := c.sourceID
	c.sourceID = known // an alteration is about what is recorded, whichever cluster answers
	if ctx.Err() != nil {
		return fmt.Errorf("mirror %s: asking the source, nothing has changed: %w", c.cfg.Mirror, ctx.Err())
	}
	if err := c.neverOpens(err); err != nil {
		return err
	}
	switch {
	case pinned == "":
	case err != nil:
		c.warnings = append(c.warnings, fmt.Sprintf("the source, cluster %s, was not compared: nobody answers there (%v); from another cluster nothing is fetched", pinned, err))
	case answered != pinned:
		return c.refuse(InvalidConfig, "", "%s leads to cluster %s, and the source of this mirror is cluster %s: correct the address; another source needs a mirror of its own. Nothing has changed",
			c.settings.shown(bootstrapSetting), answered, pinned)
	}
	return nil
}

// effects are what a change of settings does besides that nobody reads in the names: the exclude list without its default, and remembered groups that it takes out or in.
func (c *call) effects(s *ControlState, before, after Settings) (notes []string) {
	byDefault := settingsByName[topicsExcludeSetting].Default
	has := func(s Settings) bool {
		return slices.Contains(settingList(s.Effective(topicsExcludeSetting)), byDefault)
	}
	if has(before) && !has(after) {
		notes = append(notes, fmt.Sprintf("%s loses its default %s: what is set replaces it; topics with such names are not mirrored all the same", topicsExcludeSetting, byDefault))
	}
	if before.Effective(groupsIncludeSetting) == after.Effective(groupsIncludeSetting) && before.Effective(groupsExcludeSetting) == after.Effective(groupsExcludeSetting) {
		return notes
	}
	was, bad := before.GroupFilter()
	now, err := after.GroupFilter()
	if bad != nil || err != nil {
		return append(notes, "which groups that takes out or in is not known: the patterns cannot be read")
	}
	memories, err := groupMemories(s, c.cfg.Mirror)
	var out, in []string
	for _, g := range memories {
		switch status := g.status(); {
		case was.Matches(g.Group) && !now.Matches(g.Group):
			out = append(out, status.whereHere())
		case !was.Matches(g.Group) && now.Matches(g.Group):
			in = append(in, status.whereHere())
		}
	}
	if len(out) > 0 {
		notes = append(notes, "not followed any more, and its offset at the destination stays where it is: "+few(out))
	}
	if len(in) > 0 {
		notes = append(notes, "followed again: "+few(in))
	}
	if err != nil {
		notes = append(notes, "whether it takes out or in other groups is not known: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return notes
}

// whereHere is a group and the offsets that it has at the destination, for a person.
func (g *GroupStatus) whereHere() string {
	var at []string
	for _, p := range g.Partitions {
		if p.Here != Unknown {
			at = append(at, fmt.Sprintf("%s-%d at %d", p.Topic, p.Partition, p.Here))
		}
	}
	name := groupName(g.Group, g.Kind.String())
	if len(at) == 0 {
		return name + " (no offset there is known)"
	}
	return fmt.Sprintf("%s (%s)", name, few(at))
}

// noteFound notes which topics of the source the changed filters take besides, and which of them deserve a second look. Nothing else depends on it.
func (c *call) noteFound(ctx context.Context, before Settings) error {
	if c.settings.Effective(topicsIncludeSetting) == before.Effective(topicsIncludeSetting) && c.settings.Effective(topicsExcludeSetting) == before.Effective(topicsExcludeSetting) {
		return nil
	}
	filter, err := c.settings.TopicFilter()
	was, bad := before.TopicFilter()
	if err != nil || bad != nil || filter.FindsNothing() {
		return nil
	}
	known := c.sourceID
	canAsk, err := c.askSource(ctx, func(ctx context.Context, source Source) error {
		there, err := source.Topics(ctx)
		if err != nil {
			return err
		}
		fresh := slices.DeleteFunc(foundBy(filter, there), func(topic string) bool {
			_, member := c.known.Topic(topic)
			return member || was.Matches(topic)
		})
		if len(fresh) > 0 {
			slices.Sort(fresh)
			c.notes = append(c.notes, "the mirror finds at its next refresh, and starts: "+few(fresh))
		}
		c.notes = append(c.notes, cautionNotes(fresh)...)
		return nil
	})
	c.sourceID = known // an alteration is about what is recorded, whichever cluster answers
	if ctx.Err() != nil {
		return fmt.Errorf("mirror %s: asking the source, nothing has changed: %w", c.cfg.Mirror, ctx.Err())
	}
	if canAsk && err != nil {
		c.notes = append(c.notes, "which topics of the source that takes in was not seen: "+err.Error())
	}
	return nil
}

// checkSettings checks settings that are to be stored, and returns them under their own names.
func (a *Admin) checkSettings(s Settings) (Settings, error) {
	if err := joinFaults(s.mirrorFaults()); err != nil {
		return nil, a.failed(InvalidConfig, "", err, "nothing has changed")
	}
	return s.Canonical()
}

// altered are settings with some set and some unset, under their own names.
func (a *Admin) altered(s, set Settings, unset []string) (Settings, error) {
	next, err := s.Canonical()
	if err != nil {
		return nil, a.failed(InvalidConfig, "", err, "nothing has changed")
	}
	set, err = a.checkSettings(set)
	if onlyPatterns(err) {
		return nil, a.badSetting(err, InvalidConfig)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range unset {
		if _, known := lookUpSetting(name); !known {
			return nil, a.failed(InvalidConfig, "", &SettingError{Setting: name, Problem: unknownSetting(name)}, "nothing has changed")
		}
		if d, ok := settingsByName[name]; ok {
			name = d.Name
		}
		if name == bootstrapSetting {
			return nil, a.refuse(InvalidConfig, "", "setting %s is required and cannot be unset; nothing has changed", name)
		}
		if _, both := set[name]; both {
			return nil, a.refuse(InvalidRequest, "", "setting %s is to be set and unset; nothing has changed", name)
		}
		delete(next, name)
	}
	maps.Copy(next, set)
	return next, nil
}

// onlyPatterns says whether patterns are all that is wrong with settings.
func onlyPatterns(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !onlyPatterns(err) })
	case *Error:
		return onlyPatterns(e.Err)
	}
	return errors.Is(err, ErrPattern)
}

func settingNames(s Settings) []string { return slices.Sorted(maps.Keys(s)) }

// settingWords are settings in order, for the hash of a plan.
func settingWords(s Settings) []string {
	var words []string
	for _, name := range settingNames(s) {
		words = append(words, name, s[name])
	}
	return words
}

// ListOptions belong to List.
type ListOptions struct {
	TopicNames bool // names too, not only their number
}

// ListedMirror is one mirror of a destination cluster (KIP-1279, ListClusterMirrors; spec §1.2).
type ListedMirror struct {
	Name            string
	SourceBootstrap string
	SourceClusterID string   // "" until the source has said it
	TopicCount      int      // topics that are not stopped: what the other side looks at to see a loop
	Stopped         int      // topics that are
	TopicNames      []string // of TopicCount, sorted; nil unless asked for
}

// List returns all mirrors of the destination cluster, sorted by name. Errors are the Control's.
func (a *Admin) List(ctx context.Context, o ListOptions) ([]ListedMirror, error) {
	s, err := a.cfg.Control.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing mirrors: %w", err)
	}
	listed := make([]ListedMirror, 0, len(s.Mirrors))
	for _, m := range s.Mirrors {
		l := ListedMirror{Name: m.Name, SourceBootstrap: m.Settings.shown(bootstrapSetting), SourceClusterID: m.SourceClusterID}
		if o.TopicNames {
			l.TopicNames = []string{}
		}
		for _, w := range s.Topics {
			mirror, want, err := w.Wish()
			switch {
			case err != nil || mirror != m.Name:
			case want == statemachine.WantStopped:
				l.Stopped++
			default:
				l.TopicCount++
				if o.TopicNames {
					l.TopicNames = append(l.TopicNames, w.Topic)
				}
			}
		}
		listed = append(listed, l)
	}
	return listed, nil
}
