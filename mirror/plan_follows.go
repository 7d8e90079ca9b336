package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// FollowLook is how a part of metadata sync was looked at for a plan. The zero value: nobody has looked.
type FollowLook struct {
	Seen  time.Time `json:"seen,omitzero"`   // when both sides had been asked; zero, and absent in JSON: they were not
	Off   string    `json:"off,omitempty"`   // why this part is not followed at all; "" if it is
	Error string    `json:"error,omitempty"` // why nothing is known of it; "" if Off says it, or if something is
	// Left are those of which nothing is known all the same, or that are left alone, and why: one line for each, sorted, at most 20. MoreLeft counts the others.
	Left     []string `json:"left,omitempty"`
	MoreLeft int      `json:"moreLeft,omitempty"`
}

// FailbackGroups is what becomes of groups at the cluster that gives records up, when the topics of the plan are in step with the source. Groups go on there where the source has them: what they
// read before is from before. What they commit after the look is in no number here, and a group that has read at the source what that has lost since goes back further. Each group is counted once, by
// what a person has to know first of it.
type FailbackGroups struct {
	FollowLook
	Active  int `json:"active"`  // have members there, or are of another kind there, and are not where they belong: they stay where they are
	Unknown int `json:"unknown"` // it is not known where they go on
	Back    int `json:"back"`    // go back there: to where the source has them, or to where the log is cut
	On      int `json:"on"`      // go on there further than they are, or have no offset there yet
	InStep  int `json:"inStep"`  // are where the source has them, or nothing that they have read is cut
	// Places are where each goes on, in one partition: those of groups of which a person has to know first, then by group, topic and partition; at most 1000. MorePlaces counts the others.
	Places     []PlanGroupPlace `json:"places,omitempty"`
	MorePlaces int              `json:"morePlaces,omitempty"`
}

// FailbackSettings are the settings of the plan's topics that follow the source back: what changes of the topic itself at the cluster that gives records up.
type FailbackSettings struct {
	FollowLook
	Changes     []PlanSetting `json:"changes,omitempty"` // by topic and name; at most 1000
	MoreChanges int           `json:"moreChanges,omitempty"`
}

// PlanSetting is one setting of a topic that changes.
type PlanSetting struct {
	Topic string  `json:"topic"`
	Name  string  `json:"name"`
	Here  *string `json:"destination"` // what the topic has of its own; null: nothing
	To    *string `json:"to"`          // what it has then; null: nothing of its own, so the cluster's default counts
}

// FailbackRules are the access rules that follow the source back, whatever topic they are for: those that are made at the cluster that gives records up, and those of the mirror's own that are removed
// there. Each list is sorted and has 1000 at most.
type FailbackRules struct {
	FollowLook
	Makes       []string `json:"makes,omitempty"` // ACL.String
	Removes     []string `json:"removes,omitempty"`
	MoreMakes   int      `json:"moreMakes,omitempty"`
	MoreRemoves int      `json:"moreRemoves,omitempty"`
}

// mostFollows is how many entries each list of a failback's plan has: a plan is kept as one record.
const mostFollows = 1000

// mostShown is how many lines of settings, and of access rules, are shown.
const mostShown = 30

// atMost cuts a list, and says how many are cut off.
func atMost[T any](list []T, most int) (kept []T, more int) {
	more = max(0, len(list)-most)
	return list[: len(list)-more : len(list)-more], more
}

// unlooked is why nothing is known, "" if something is.
func (l *FollowLook) unlooked() string {
	switch {
	case l.Off != "":
		return "not followed: " + l.Off
	case l.Error != "":
		return "unknown: " + l.Error
	case l.Seen.IsZero():
		return "unknown: nobody has looked for this plan"
	}
	return ""
}

// line is the verdict of a part, in one line.
func (l *FollowLook) line(part string, taken time.Time, parts ...string) string {
	words := l.unlooked()
	if words == "" {
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		if n := len(l.Left) + l.MoreLeft; n > 0 {
			parts = append(parts, fmt.Sprintf("%d LEFT ALONE, see below", n))
		}
		words = cmp.Or(strings.Join(parts, ", "), "nothing changes") + "; looked at " + age(taken.Sub(l.Seen))
	}
	return part + ": " + words
}

// leftText says what is left alone.
func (l *FollowLook) leftText() (lines []string) {
	lines = slices.Clone(l.Left)
	if l.MoreLeft > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", l.MoreLeft))
	}
	return lines
}

// counted is a number of something with its words, "" for none.
func counted(n int, one, many string) string {
	if n == 0 {
		return ""
	}
	return plural(n, one, many)
}

func (g *FailbackGroups) line(taken time.Time) string {
	const active, unknown = "ACTIVE AT THE DESTINATION", "of which it is not known where they go on"
	return g.FollowLook.line("GROUPS", taken, counted(g.Active, active, active), counted(g.Unknown, "of which it is not known where it goes on", unknown), counted(g.Back, "GOES BACK", "GO BACK"),
		counted(g.On, "goes on further", "go on further"), counted(g.InStep, "in step", "in step"))
}

func (s *FailbackSettings) line(taken time.Time) string {
	return s.FollowLook.line("TOPIC SETTINGS", taken, counted(len(s.Changes)+s.MoreChanges, "changes", "change"))
}

func (r *FailbackRules) line(taken time.Time) string {
	return r.FollowLook.line("ACCESS RULES", taken, counted(len(r.Makes)+r.MoreMakes, "is made", "are made"), counted(len(r.Removes)+r.MoreRemoves, "IS REMOVED", "ARE REMOVED"))
}

// placeKind says what becomes of a group in one partition, the worst first.
type placeKind int

const (
	placeActive placeKind = iota
	placeUnknown
	placeBack
	placeOn
	placeInStep
)

// kind is that of a place in a failback's plan.
func (x *PlanGroupPlace) kind() placeKind {
	at, known := x.At.Value()
	here, has := x.Here.Value()
	place, belongs := x.Place.Value()
	switch {
	case x.Stays && belongs && (!has || here != place):
		return placeActive
	case !known && !x.Stays:
		return placeUnknown
	case x.Stays:
		return placeInStep
	case !has || at > here:
		return placeOn
	case at < here:
		return placeBack
	}
	return placeInStep
}

// addPlaces takes in where groups go on, and counts the groups.
func (g *FailbackGroups) addPlaces(places []PlanGroupPlace) {
	type name struct{ group, kind string }
	worst := map[name]placeKind{}
	for i := range places {
		x := &places[i]
		n := name{x.Group, x.Kind}
		if w, known := worst[n]; !known || x.kind() < w {
			worst[n] = x.kind()
		}
	}
	for _, w := range worst {
		*[...]*int{&g.Active, &g.Unknown, &g.Back, &g.On, &g.InStep}[w]++
	}
	slices.SortFunc(places, func(a, b PlanGroupPlace) int {
		return cmp.Or(cmp.Compare(worst[name{a.Group, a.Kind}], worst[name{b.Group, b.Kind}]), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Topic, b.Topic),
			cmp.Compare(a.Partition, b.Partition))
	})
	g.Places, g.MorePlaces = atMost(places, mostFollows)
}

// followsLines are the verdicts on what follows the source back.
func (p *FailbackPlan) followsLines(t *planText) {
	if len(p.Topics) == 0 {
		return
	}
	for _, line := range []string{p.Groups.line(p.Taken), p.Settings.line(p.Taken), p.Rules.line(p.Taken)} {
		t.line("%s", line)
	}
}

// followsText is what a person has to know of single groups, settings and rules.
func (p *FailbackPlan) followsText(t *planText) {
	show := func(title string, lines []string, most, more int) {
		if len(lines) == 0 {
			return
		}
		t.line("")
		t.line("%s", title)
		t.bounded(lines, most, ", which are in JSON")
		if more > 0 {
			t.line("and %d more, for which a plan has no room", more)
		}
	}
	cuts := map[TopicPartition]int64{}
	for _, x := range p.Partitions {
		if from, ok := x.From.Value(); ok && x.Outcome == OutcomeDrop {
			cuts[TopicPartition{x.Topic, x.Partition}] = from
		}
	}
	var groups, advice []string
	for i := range p.Groups.Places {
		x := &p.Groups.Places[i]
		groups = append(groups, x.backLine(cuts))
		if x.kind() == placeActive {
			advice = append(advice, x.stopFirst())
		}
	}
	show("After the failback, at the destination:", groups, mostPlaces, p.Groups.MorePlaces)
	show("Before the plan is carried out:", slices.Compact(advice), mostAdvice, 0)
	var settings []string
	for _, x := range p.Settings.Changes {
		settings = append(settings, fmt.Sprintf("%s %s: %s → %s", x.Topic, x.Name, ownValue(x.Here), ownValue(x.To)))
	}
	show("Topic settings at the destination that follow the source:", settings, mostShown, p.Settings.MoreChanges)
	var rules []string
	for _, x := range p.Rules.Removes {
		rules = append(rules, "removed: "+x)
	}
	for _, x := range p.Rules.Makes {
		rules = append(rules, "made: "+x)
	}
	show("Access rules at the destination that follow the source:", rules, mostShown, p.Rules.MoreMakes+p.Rules.MoreRemoves)
	show("Left alone:", slices.Concat(p.Groups.leftText(), p.Settings.leftText(), p.Rules.leftText()), 3*mostSeenNames+3, 0)
}

func ownValue(v *string) string {
	if v == nil {
		return "(the cluster's default)"
	}
	return cmp.Or(shorten(*v), "(empty)")
}

// backLine says where a group goes on in one partition when a failback is in step. cuts are where logs are cut.
func (x *PlanGroupPlace) backLine(cuts map[TopicPartition]int64) string {
	who := fmt.Sprintf("%s %s-%d", groupName(x.Group, x.Kind), x.Topic, x.Partition)
	at, known := x.At.Value()
	here, has := x.Here.Value()
	source, there := x.Source.Value()
	place, belongs := x.Place.Value()
	why := "no offset at the source"
	switch {
	case there && !belongs:
		why = fmt.Sprintf("%d at the source", source)
	case there && place == source:
		why = "as at the source"
	case there && place < source:
		why = fmt.Sprintf("where the source ends; %d there", source)
	case there:
		why = fmt.Sprintf("where the copy begins; %d at the source", source)
	case belongs:
		why = "where the log is cut; no offset at the source"
	}
	if cut, is := cuts[TopicPartition{x.Topic, x.Partition}]; is && has && here > cut {
		why += fmt.Sprintf("; it has read %s that are given up", plural(int(here-cut), "offset", "offsets"))
	}
	switch x.kind() {
	case placeActive:
		words := fmt.Sprintf("STAYS at %d, and belongs at %d", here, place)
		if !has {
			words = fmt.Sprintf("STAYS without an offset, and belongs at %d", place)
		} else if d := inOffsets(x.Behind, x.Skips); d != "none" {
			words += ": " + d
		}
		return fmt.Sprintf("%s %s (%s; %s)", who, words, x.Reason, why)
	case placeUnknown:
		words := "has no offset here"
		if has {
			words = fmt.Sprintf("is at %d here", here)
		}
		return fmt.Sprintf("%s %s, and where it goes on is not known (%s)", who, words, cmp.Or(x.Reason, neverLooked))
	case placeBack:
		return fmt.Sprintf("%s GOES BACK from %d to %d (%s)", who, here, at, why)
	case placeOn:
		if has {
			return fmt.Sprintf("%s goes on from %d to %d (%s)", who, here, at, why)
		}
		return fmt.Sprintf("%s goes on at %d (%s; no offset here)", who, at, why)
	}
	if !known {
		return fmt.Sprintf("%s stays without an offset (%s)", who, cmp.Or(x.Reason, why))
	}
	return fmt.Sprintf("%s stays at %d (%s)", who, at, why)
}

// stopFirst is what to do about a group with members, before its offsets are the source's again.
func (x *PlanGroupPlace) stopFirst() string {
	who := groupName(x.Group, x.Kind)
	if x.Reason == skippedWords(skippedMoved) {
		return fmt.Sprintf("%s: somebody has moved it at the destination; delete its offsets there, and it follows at the next look", who)
	}
	if x.Reason != skippedWords(skippedActive) {
		return fmt.Sprintf("%s: %s, and a cluster has no two groups of one name; delete that one there, if nobody needs it", who, x.Reason)
	}
	shows := ""
	if x.Kind == OffsetGroup.String() && typed(x.Group) {
		shows = fmt.Sprintf(" (%s--describe --members --group %s shows them)", groupsCommand, shellWord(x.Group))
	}
	return fmt.Sprintf("%s: stop its members at the destination%s; what they commit there until then is theirs, and is not moved", who, shows)
}
