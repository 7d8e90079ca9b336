package mirror

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

// PlanGroup is one group of which a person has to know before topics of it are stopped: it spans both sides, is active at the destination, is behind there, or was not looked at lately.
type PlanGroup struct {
	Group  string    `json:"group"`
	Kind   string    `json:"kind"`          // "group" or "share group"
	Active bool      `json:"active"`        // it had members at the destination when it was looked at last: its offsets there are its own, and a stop moves none of them
	Spans  bool      `json:"spans"`         // some of its topics are stopped when this plan is carried out, and others stay in the mirror (F-88)
	Seen   time.Time `json:"seen,omitzero"` // when it was last looked at on both sides; zero, and absent in JSON: never
	// Its topics of this mirror, sorted: those that are stopped already, those that this plan stops, and those that stay in the mirror.
	Stopped []string `json:"stopped"`
	Stops   []string `json:"stops"`
	Stays   []string `json:"stays"`
	// Partitions are those of Stops, and of Stays if it spans, by topic and partition.
	Partitions []PlanGroupPartition `json:"partitions"`
}

// PlanGroupPartition is how far a group is in one partition.
type PlanGroupPartition struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Source    Number    `json:"source"`        // its offset at the source when it was looked at last
	Written   Number    `json:"written"`       // what the mirror wrote at the destination last; unknown: nothing, or somebody has moved it since
	Behind    Number    `json:"behind"`        // Source − Written, never below 0; unknown if one of them is
	Seen      time.Time `json:"seen,omitzero"` // when Source was so; zero, and absent in JSON: never
	Reason    string    `json:"reason"`        // why it is not where the source has it
}

// side is where a topic is when a plan has been carried out.
type side int

const (
	notMember side = iota // not in this mirror
	isStopped             // already
	willStop              // by the plan
	stays                 // in the mirror
)

// sides says where each topic of the snapshot will be.
func (p *FailoverPlan) sides(s *Snapshot) map[string]side {
	all := map[string]side{}
	for _, t := range s.Topics {
		all[t.Topic] = stays
		if stopped(t.MirrorName) {
			all[t.Topic] = isStopped
		}
	}
	for _, x := range s.Partitions {
		all[x.Topic] = cmp.Or(all[x.Topic], stays)
	}
	for _, t := range p.Topics {
		switch t.Outcome {
		case OutcomeStop:
			all[t.Topic] = willStop
		case OutcomeDone:
			all[t.Topic] = isStopped
		}
	}
	return all
}

// addGroups takes in the groups that have offsets in topics which the plan stops, or has stopped while others of the group stay. One that needs nobody is only counted.
func (p *FailoverPlan) addGroups(s *Snapshot, fresh time.Duration) {
	p.GroupsError = s.GroupsError
	sides := p.sides(s)
	asked := map[string]bool{}
	for _, t := range p.Topics {
		asked[t.Topic] = true
	}
	copies := map[TopicPartition]metadatasync.Copy{}
	for _, x := range s.Partitions {
		copies[TopicPartition{x.Topic, x.Partition}] = metadatasync.Copy{Start: x.Start, Replicated: x.Replicated}
	}
	for _, status := range s.Groups {
		g := planGroup(&status, sides, copies)
		again := g.Spans && slices.ContainsFunc(g.Stopped, func(topic string) bool { return asked[topic] })
		switch {
		case len(g.Stops) == 0 && !again:
		case g.Spans || g.Active || g.troubled() || g.old(p.Taken, fresh):
			p.Groups = append(p.Groups, g)
		default:
			p.GroupsInStep++
		}
	}
	slices.SortFunc(p.Groups, func(a, b PlanGroup) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind)) })
}

func planGroup(status *GroupStatus, sides map[string]side, copies map[TopicPartition]metadatasync.Copy) PlanGroup {
	g := PlanGroup{
		Group: status.Group, Kind: status.Kind.String(), Active: status.Active, Seen: storedTime(status.Seen), Stopped: []string{}, Stops: []string{}, Stays: []string{}, Partitions: []PlanGroupPartition{},
	}
	topics := map[side]map[string]bool{isStopped: {}, willStop: {}, stays: {}}
	for _, x := range status.Partitions {
		if where := sides[x.Topic]; where != notMember && !x.absent(g.Seen) {
			topics[where][x.Topic] = true
		}
	}
	for where, list := range map[side]*[]string{isStopped: &g.Stopped, willStop: &g.Stops, stays: &g.Stays} {
		*list = append(*list, slices.Sorted(maps.Keys(topics[where]))...)
	}
	g.Spans = len(g.Stopped)+len(g.Stops) > 0 && len(g.Stays) > 0
	for _, x := range status.Partitions {
		where := sides[x.Topic]
		if x.absent(g.Seen) || where != willStop && !(where == stays && g.Spans) {
			continue
		}
		y := PlanGroupPartition{Topic: x.Topic, Partition: x.Partition, Source: KnownNumber(x.Source), Written: KnownNumber(x.Written), Behind: x.Behind(), Reason: x.Skipped}
		if x.Source >= 0 {
			y.Seen = g.Seen
		}
		c, here := copies[x.TopicPartition]
		switch {
		case y.Reason != "" || g.Seen.IsZero():
		case x.Written < 0:
			y.Reason = notWritten
		case x.Source < 0 || x.Source == x.Written:
		case here && x.Written == metadatasync.Place(metadatasync.Offset{Offset: x.Source}, c).Offset:
			y.Reason = asNear
		case !g.Active && where == willStop:
			y.Reason = "the stop is to move it"
		}
		g.Partitions = append(g.Partitions, y)
	}
	slices.SortFunc(g.Partitions, func(a, b PlanGroupPartition) int {
		return compareTopicPartitions(TopicPartition{a.Topic, a.Partition}, TopicPartition{b.Topic, b.Partition})
	})
	return g
}

// notWritten is the reason of a group of which the destination may have an offset, but none that is known to be the mirror's.
const notWritten = "the mirror has written nothing here, or somebody has moved it since"

// asNear is the reason of a group that is where it belongs in the copy: what it lacks is the copy's loss, and none of its own.
const asNear = "as near as the copy goes"

// absent says of a partition of a group that was looked at that it has no offset there, on neither side.
func (x *GroupPartitionStatus) absent(seen time.Time) bool {
	return !seen.IsZero() && x.Source < 0 && x.Written < 0 && (x.Skipped == "" || x.Skipped == skippedWords(skippedNoOffset))
}

// troubled says that the group is not where the source has it, in a partition that the plan stops.
func (g *PlanGroup) troubled() bool {
	return slices.ContainsFunc(g.Partitions, func(x PlanGroupPartition) bool { return slices.Contains(g.Stops, x.Topic) && x.troubled() })
}

func (x *PlanGroupPartition) troubled() bool {
	behind, known := x.Behind.Value()
	switch x.Reason {
	case asNear:
		return false
	case skippedWords(skippedNoOffset): // nothing is left to follow
		return behind > 0
	}
	return !known || behind > 0 || x.Reason != ""
}

// groupsLookedAt is how old a look at groups is at least before it says nothing of now: a look is made at every refresh.
const groupsLookedAt = silentAfter

func (g *PlanGroup) old(taken time.Time, fresh time.Duration) bool {
	return g.Seen.IsZero() || taken.Sub(g.Seen) > max(fresh, groupsLookedAt)
}

func (g *PlanGroup) name() string { return groupName(g.Group, g.Kind) }

// sentence says on which sides the group is.
func (g *PlanGroup) sentence() string {
	s := g.name()
	switch {
	case g.Spans:
		s += " SPANS BOTH SIDES"
	case g.Active:
		s += " IS ACTIVE HERE"
	}
	var parts []string
	for _, x := range []struct {
		topics   []string
		one, all string
	}{{g.Stopped, "is stopped", "are stopped"}, {g.Stops, "stops with this plan", "stop with this plan"}, {g.Stays, "stays in the mirror", "stay in the mirror"}} {
		if len(x.topics) > 0 {
			word := x.all
			if len(x.topics) == 1 {
				word = x.one
			}
			parts = append(parts, strings.Join(x.topics, ", ")+" "+word)
		}
	}
	s += ": " + strings.Join(parts, ", ")
	if g.Active {
		s += "; a stop moves no offset of a group that has members here: it goes on from its own, or from what was written last"
	}
	return s
}

// onlyOld are groups that were in step when they were looked at last, and of which no more is known.
func (g *PlanGroup) onlyOld() bool { return !g.Spans && !g.Active && !g.Seen.IsZero() && !g.troubled() }

// groupsLine is the verdict on groups, in one line; "" if no group is known and nothing hindered that.
func (p *FailoverPlan) groupsLine() string {
	var parts, names []string
	spans, active, behind, old, never := 0, 0, 0, 0, 0
	for i := range p.Groups {
		g := &p.Groups[i]
		switch {
		case g.Spans:
			spans++
			names = append(names, g.name())
		case g.Active:
			active++
			names = append(names, g.name())
		case g.Seen.IsZero():
			never++
		case g.onlyOld():
			old++
		default:
			behind++
			names = append(names, g.name())
		}
	}
	for _, x := range []struct {
		n    int
		what string
	}{{spans, "ON BOTH SIDES"}, {active, "ACTIVE HERE"}, {behind, "not in step"}, {never, "never looked at"}, {old, "not looked at lately"}, {p.GroupsInStep, "in step"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	line := strings.Join(parts, ", ")
	if len(names) > 0 {
		line += "; see below: " + few(names)
	}
	if p.GroupsError != "" {
		line = strings.TrimPrefix(line+"; ", "; ") + "not followed now: " + p.GroupsError
	}
	if line != "" {
		line = "GROUPS: " + line
	}
	return line
}

// groupsText is what a person has to know of single groups.
func (p *FailoverPlan) groupsText(t *planText) {
	var rows [][]string
	var never, old []string
	var oldest time.Time
	sentences := false
	for i := range p.Groups {
		g := &p.Groups[i]
		if g.Seen.IsZero() && !g.Spans && !g.Active {
			never = append(never, g.name())
			continue
		}
		if g.onlyOld() {
			old = append(old, g.name())
			if oldest.IsZero() || g.Seen.Before(oldest) {
				oldest = g.Seen
			}
			continue
		}
		if g.Spans || g.Active {
			if !sentences {
				t.line("")
			}
			sentences = true
			t.line("%s", g.sentence())
		}
		for _, x := range g.Partitions {
			if g.Spans || g.Active || x.troubled() {
				rows = append(rows, p.groupRow(g, &x))
			}
		}
	}
	if len(rows) > 0 {
		t.line("")
		t.table([]string{"GROUP", "PARTITION", "PLAN", "AT THE SOURCE", "WRITTEN HERE", "BEHIND", "WHY"}, rows)
		t.line("")
		t.line("AT THE SOURCE: where the group was when it was looked at last. WRITTEN HERE: what the mirror wrote last, - if nothing, or if it was moved here since;")
		t.line("what the group has committed here by itself is not in this plan. BEHIND: offsets that it reads again if it goes on here from what was written.")
	}
	if len(never)+len(old) > 0 {
		t.line("")
	}
	if len(never) > 0 {
		t.line("never looked at, so nothing is known of their offsets: %s", few(never))
	}
	if len(old) > 0 {
		t.line("in step when looked at last, and unknown since; the oldest since %s (%s): %s", stamp(oldest), age(p.Taken.Sub(oldest)), few(old))
	}
}

func (p *FailoverPlan) groupRow(g *PlanGroup, x *PlanGroupPartition) []string {
	plan := string(OutcomeStop)
	if slices.Contains(g.Stays, x.Topic) {
		plan = "stays"
	}
	source, written, behind := "unknown", dash(x.Written), x.Behind.String()
	if _, known := x.Source.Value(); known {
		source = fmt.Sprintf("%s, seen %s", x.Source, age(p.Taken.Sub(x.Seen)))
		if p.Taken.Sub(x.Seen) > groupsLookedAt {
			then := ""
			if _, known := x.Behind.Value(); known {
				then = fmt.Sprintf(", %s then", x.Behind)
			}
			behind = fmt.Sprintf("unknown since %s%s", stamp(x.Seen), then)
		}
	}
	return []string{g.name(), fmt.Sprintf("%s-%d", x.Topic, x.Partition), plan, source, written, behind, x.Reason}
}
