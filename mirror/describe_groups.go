package mirror

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
	"github.com/clustermirror/clustermirror/statemachine"
)

// fillGroups takes in what the desired state and the reports have of groups.
func (d *Description) fillGroups(s *ControlState, reports *Reports) {
	entry, _ := s.Mirror(d.Mirror)
	episodes, off := s.groupEpisodes(d.Mirror), map[string]bool{}
	groups, err := GroupStatuses(*s, d.Mirror)
	d.Groups = groups
	if err != nil {
		d.unread = "some groups are not shown: " + err.Error()
		d.Notes = append(d.Notes, d.unread)
	}
	for _, n := range reports.Nodes {
		if n.Mirror == d.Mirror && n.GroupsSeen.After(d.GroupsSeen) && !ahead(n.GroupsSeen, d.Taken) {
			d.GroupsSeen = n.GroupsSeen
		}
	}
	for _, g := range groups {
		if g.Seen.After(d.GroupsSeen) && !ahead(g.Seen, d.Taken) {
			d.GroupsSeen = g.Seen
		}
	}
	looked := map[string]time.Time{}
	for _, n := range reports.Nodes {
		if n.Mirror == d.Mirror && !ahead(n.GroupsSeen, d.Taken) {
			looked[n.Owner] = n.GroupsSeen
		}
		if n.Mirror == d.Mirror && n.Groups != nil && n.Groups.Off != "" {
			off[n.Owner] = true
		}
	}
	d.looked, d.opened, d.stopping, d.copies = map[TopicPartition]time.Time{}, map[TopicPartition]bool{}, map[TopicPartition]bool{}, map[TopicPartition]metadatasync.Copy{}
	d.unfollowed = map[TopicPartition]bool{}
	for _, t := range d.Topics {
		for _, p := range t.Partitions {
			tp := TopicPartition{t.Topic, p.Partition}
			c := metadatasync.Copy{Start: p.start, Replicated: math.MaxInt64} // how far it goes is not known
			if end, known := p.DestinationEnd.Value(); known {
				c.Replicated = end
			}
			if end, known := p.LMO.Value(); known && p.State == statemachine.Stopped.String() {
				c.Replicated = end // beyond it are records of the destination's own
			}
			d.copies[tp] = c
			if p.State != statemachine.Stopped.String() && !off[p.Owner] && !entry.followsNoGroup() {
				d.unfollowed[tp] = !episodes[t.Topic].overIn(p.Partition, p.episode)
			}
			switch {
			case p.State == statemachine.Stopped.String():
				d.opened[tp] = true
			case t.want == statemachine.WantStopped:
				d.stopping[tp] = true
			case p.State == statemachine.Mirroring.String(): // of others nothing is looked at
				d.looked[tp] = looked[p.Owner]
			}
		}
	}
}

// outOfStep says why a group is not where the source has it, or for what is stopped, was not put there; "" if it is, or was.
func (d *Description) outOfStep(g *GroupStatus) string {
	switch {
	case g.Seen.IsZero():
		return neverLooked
	case g.Active && !d.left(g):
		return skippedWords(skippedActive)
	}
	for i := range g.Partitions {
		if why := g.Partitions[i].outOfStep(); why != "" {
			return why
		}
	}
	return ""
}

// left says that every partition of the group is stopped, so that it is not followed any more.
func (d *Description) left(g *GroupStatus) bool {
	for _, p := range g.Partitions {
		if !d.opened[p.TopicPartition] {
			return false
		}
	}
	return len(g.Partitions) > 0
}

// groupName is a group for a person. kind is GroupKind's text.
func groupName(group, kind string) string {
	if kind == OffsetGroup.String() {
		return group
	}
	return kind + " " + group
}

// groupsLine says in one line how the groups are.
func (d *Description) groupsLine() string {
	var out []string
	followed, until := 0, 0
	looked := d.GroupsSeen
	var last time.Time
	for i := range d.Groups {
		g := &d.Groups[i]
		if d.left(g) {
			until++
			if g.Seen.After(last) {
				last = g.Seen
			}
		} else {
			followed++
		}
		if why := d.outOfStep(g); why != "" {
			out = append(out, fmt.Sprintf("%s (%s)", groupName(g.Group, g.Kind.String()), why))
		}
	}
	line := fmt.Sprintf("groups: %d followed, ", followed)
	switch {
	case until > 0 && followed == 0:
		line, looked = fmt.Sprintf("groups: %d followed until the stop, ", until), last // no look is about them any more
	case until > 0:
		line += fmt.Sprintf("%d followed until the stop, ", until)
	}
	switch {
	case looked.IsZero() && len(d.Topics) > 0 && !slices.ContainsFunc(d.Topics, func(t DescribedTopic) bool { return t.want != statemachine.WantStopped }):
		line += "never followed before the stop" // no look is about them any more
	case looked.IsZero():
		line += d.unlooked()
	default:
		line += "looked at " + age(d.Taken.Sub(looked))
	}
	if len(out) > 0 {
		line += fmt.Sprintf("; %d not in step: %s", len(out), few(out))
	}
	return line
}

// unlooked says what to expect where no process has looked at groups.
func (d *Description) unlooked() string {
	interval := (&NodeReport{}).interval()
	for _, n := range d.Nodes {
		if n.Silent || n.ClockAhead {
			continue
		}
		if interval = cmp.Or(n.Refresh, n.interval()); d.Taken.Sub(n.Opened) > 2*interval {
			return fmt.Sprintf("%s, though %s runs since %s: its events say what hinders it", neverLooked, n.name(), stamp(n.Opened))
		}
	}
	return fmt.Sprintf("%s: the first look is made within %s of the start of a process", neverLooked, span(interval))
}

// GroupTable shows the groups for a person: a line for each partition with the group's place on both sides, and what to do about a group that is not moved.
func (d Description) GroupTable() string {
	var t planText
	t.line("%s", d.groupsLine())
	var rows [][]string
	var advice []string
	for i := range d.Groups {
		g := &d.Groups[i]
		recorded := "never"
		if !g.Seen.IsZero() {
			recorded = ageAt(g.Seen, d.Taken)
		}
		name := groupName(g.Group, g.Kind.String())
		if len(g.Partitions) == 0 {
			rows = append(rows, []string{name, "-", "unknown", "-", "-", "unknown", recorded, ""})
		}
		for _, p := range g.Partitions {
			why := p.Skipped
			switch {
			case g.Seen.IsZero() || why != "":
			case p.outOfStep() != "":
				why = p.outOfStep()
			case p.Source != p.Here:
				why = asNear
			}
			when := recorded
			if p.earlier() {
				when = "earlier"
			}
			if d.stopping[p.TopicPartition] {
				why = strings.TrimSuffix("to be stopped; "+why, "; ")
			}
			if d.opened[p.TopicPartition] {
				why = strings.TrimSuffix("followed until the stop; "+why, "; ")
			}
			rows = append(rows, []string{name, fmt.Sprintf("%s-%d", p.Topic, p.Partition), KnownNumber(p.Source).String(), dash(KnownNumber(p.Here)), dash(KnownNumber(p.Written)),
				inOffsets(p.Behind(), p.Skips()), when, why})
		}
		advice = append(advice, d.advice(g)...)
	}
	if len(rows) > 0 {
		t.line("")
		t.table([]string{"GROUP", "PARTITION", "AT THE SOURCE", "AT DESTINATION", "WRITTEN", "DIFFERENCE", "RECORDED", "WHY"}, rows)
		t.line("")
		t.line("AT THE SOURCE: where the group was when that was recorded; it is recorded again when something of it changes. AT DESTINATION: where it was there then, or was written; - if nowhere, or if")
		t.line("that is not known. WRITTEN: what the mirror wrote there last, - if nothing, or if somebody has moved it since. DIFFERENCE: if it goes on where the destination has it, it READS AGAIN offsets")
		t.line("that it has read at the source, or SKIPS offsets that it has not read there, unless it has read them at the destination; none also where it is as near as the copy goes.")
	}
	if len(advice) > 0 {
		t.line("")
		t.bounded(advice, mostAdvice, " lines of this kind, for other groups that are not moved")
	}
	if d.unread != "" {
		t.line("")
		t.line("%s", d.unread)
	}
	return t.String()
}

// advice is what to do about a group that is not moved.
func (d *Description) advice(g *GroupStatus) []string {
	a := groupAdvice{group: g.Group, kind: g.Kind.String()}
	for _, p := range g.Partitions {
		stopped := d.opened[p.TopicPartition]
		a.active = a.active || p.Skipped == skippedWords(skippedActive) && !stopped
		if !p.others() || p.Source < 0 || p.Here == p.Source {
			continue
		}
		switch {
		case stopped:
			a.reset = append(a.reset, groupReset{p.TopicPartition, p.lastPlaceOf(d.copies[p.TopicPartition])})
		case p.Here >= 0 && p.Written < 0:
			a.own = append(a.own, p.TopicPartition)
		}
	}
	a.active = a.active || g.Active && !d.left(g)
	return a.lines()
}

// GroupsOf is what a person has to know of groups before these topics are stopped, as FailoverPlan has it: those that would be on both sides, are active at the destination, or were not in step
// when they were recorded last, and where each group goes on; or that groups of these topics were never looked at, so that nobody knows. "": no group reads the topics.
func (d Description) GroupsOf(topics ...string) string {
	p := d.groupsPlan(topics)
	var t planText
	if line := p.groupsLine(); line != "" {
		t.line("%s", line)
	}
	p.streamsLines(&t)
	p.groupsText(&t)
	if d.unread != "" {
		t.line("%s", d.unread)
	}
	return t.String()
}

// GroupPlaces is where groups go on after these topics are stopped, as FailoverPlan has it: by group, topic and partition.
func (d Description) GroupPlaces(topics ...string) []PlanGroupPlace {
	p := d.groupsPlan(topics)
	return p.GroupPlaces
}

func (d *Description) groupsPlan(topics []string) *FailoverPlan {
	s := Snapshot{Groups: d.Groups, GroupsSeen: d.GroupsSeen}
	p := FailoverPlan{Taken: d.Taken, looked: d.looked}
	for _, t := range d.Topics {
		s.Topics = append(s.Topics, TopicSnapshot{Topic: t.Topic, MirrorName: t.MirrorName})
		if slices.Contains(topics, t.Topic) {
			outcome := OutcomeStop
			if stopped(t.MirrorName) {
				outcome = OutcomeDone
			}
			p.Topics = append(p.Topics, PlanTopic{Topic: t.Topic, Outcome: outcome})
		}
		for _, x := range t.Partitions {
			c := d.copies[TopicPartition{t.Topic, x.Partition}]
			if slices.Contains(topics, t.Topic) && !stopped(t.MirrorName) {
				p.stops++
			}
			s.Partitions = append(s.Partitions, PartitionStatus{Topic: t.Topic, Partition: x.Partition, Start: c.Start, Replicated: c.Replicated,
				GroupsUnlooked: d.unfollowed[TopicPartition{t.Topic, x.Partition}]})
		}
	}
	p.addGroups(&s, math.MaxInt64) // of a group in which nothing changes nothing new is recorded, so none is old
	return &p
}
