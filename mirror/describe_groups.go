package mirror

import (
	"fmt"
	"math"
	"slices"
)

// fillGroups takes in what the desired state and the reports have of groups.
func (d *Description) fillGroups(s *ControlState, reports *Reports) {
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
}

// outOfStep says why a group is not where the source has it; "" if it is. A partition without an offset at the source has nothing to follow.
func (g *GroupStatus) outOfStep() string {
	switch {
	case g.Active:
		return skippedWords(skippedActive)
	case g.Seen.IsZero():
		return "never looked at"
	}
	for _, p := range g.Partitions {
		if p.Skipped != "" && p.Skipped != skippedWords(skippedNoOffset) {
			return p.Skipped
		}
	}
	return ""
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
	for i := range d.Groups {
		g := &d.Groups[i]
		if why := g.outOfStep(); why != "" {
			out = append(out, fmt.Sprintf("%s (%s)", groupName(g.Group, g.Kind.String()), why))
		}
	}
	line := fmt.Sprintf("groups: %d followed, ", len(d.Groups))
	if d.GroupsSeen.IsZero() {
		line += "never looked at"
	} else {
		line += "looked at " + age(d.Taken.Sub(d.GroupsSeen))
	}
	if len(out) > 0 {
		line += fmt.Sprintf("; %d not in step: %s", len(out), few(out))
	}
	return line
}

// Behind is how many offsets a group reads again if it goes on at the destination from what was written there: Source − Written, never below 0. It is unknown if one of them is.
func (p GroupPartitionStatus) Behind() Number {
	if p.Source < 0 || p.Written < 0 {
		return Number{}
	}
	return KnownNumber(max(0, p.Source-p.Written))
}

// GroupTable shows the groups for a person: a line for each partition, and how far the group is there.
func (d Description) GroupTable() string {
	var t planText
	t.line("%s", d.groupsLine())
	var rows [][]string
	for _, g := range d.Groups {
		recorded := "never"
		if !g.Seen.IsZero() {
			recorded = age(d.Taken.Sub(g.Seen))
			if ahead(g.Seen, d.Taken) {
				recorded = "by a clock that is ahead"
			}
		}
		name := groupName(g.Group, g.Kind.String())
		if len(g.Partitions) == 0 {
			rows = append(rows, []string{name, "-", "unknown", "-", "unknown", recorded, ""})
		}
		for _, p := range g.Partitions {
			rows = append(rows, []string{name, fmt.Sprintf("%s-%d", p.Topic, p.Partition), KnownNumber(p.Source).String(), dash(KnownNumber(p.Written)), p.Behind().String(), recorded, p.Skipped})
		}
	}
	if len(rows) > 0 {
		t.line("")
		t.table([]string{"GROUP", "PARTITION", "AT THE SOURCE", "WRITTEN HERE", "BEHIND", "RECORDED", "WHY"}, rows)
		t.line("")
		t.line("AT THE SOURCE: where the group was when that was recorded; it is recorded again when something of it changes. WRITTEN HERE: what the mirror wrote last, - if")
		t.line("nothing, or if it was moved here since; what the group has committed here by itself is not shown. BEHIND: offsets that it reads again if it goes on here from what was written.")
	}
	if d.unread != "" {
		t.line("")
		t.line("%s", d.unread)
	}
	return t.String()
}

// GroupsOf is what a person has to know of groups before these topics are stopped, as FailoverPlan has it: those that would be on both sides, are active at the destination, or were not in step
// when they were recorded last. "": no group reads the topics.
func (d Description) GroupsOf(topics ...string) string {
	s := Snapshot{Groups: d.Groups}
	p := FailoverPlan{Taken: d.Taken}
	for _, t := range d.Topics {
		s.Topics = append(s.Topics, TopicSnapshot{Topic: t.Topic, MirrorName: t.MirrorName})
		if slices.Contains(topics, t.Topic) {
			outcome := OutcomeStop
			if stopped(t.MirrorName) {
				outcome = OutcomeDone
			}
			p.Topics = append(p.Topics, PlanTopic{Topic: t.Topic, Outcome: outcome})
		}
	}
	p.addGroups(&s, math.MaxInt64) // of a group in which nothing changes nothing new is recorded, so none is old
	var t planText
	if line := p.groupsLine(); line != "" {
		t.line("%s", line)
	}
	p.groupsText(&t)
	if d.unread != "" {
		t.line("%s", d.unread)
	}
	return t.String()
}
