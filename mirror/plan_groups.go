package mirror

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

// PlanGroup is one group of which a person has to know before topics of it are stopped: it spans both sides, is active at the destination, is not in step there, or was not looked at lately.
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
	// Internal are those of them that a Kafka Streams application of this name makes for itself: what is in them belongs to what the group has read.
	Internal []string `json:"internal,omitempty"`
	// Partitions are those of Stops, and of Stays if it spans, by topic and partition.
	Partitions []PlanGroupPartition `json:"partitions"`
}

// PlanGroupPartition is how far a group is in one partition.
type PlanGroupPartition struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Source    Number    `json:"source"`        // its offset at the source when it was looked at last
	Here      Number    `json:"destination"`   // where the destination has it, as seen or written last; unknown: it has none, or it was not seen
	Written   Number    `json:"written"`       // what the mirror wrote at the destination last; unknown: nothing, or somebody has moved it since
	Behind    Number    `json:"behind"`        // offsets that it reads again if it goes on at Here (GroupPartitionStatus.Behind)
	Skips     Number    `json:"skips"`         // offsets that it does not read if it goes on at Here, and that it has not read at the source
	Seen      time.Time `json:"seen,omitzero"` // when Source was so; zero, and absent in JSON: never, or at an earlier look
	Reason    string    `json:"reason"`        // why it is not where the source has it
}

// PlanGroupPlace is where a group goes on in one partition, at the destination: after the stop, and in a failback's plan (FailbackGroups) when the copy is in step with the source.
type PlanGroupPlace struct {
	Group     string    `json:"group"`
	Kind      string    `json:"kind"` // "group" or "share group"
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	At        Number    `json:"at"`            // unknown: nobody knows, or it has no offset there
	Place     Number    `json:"place"`         // where the mirror would have it; At of one that does not stay
	Stays     bool      `json:"stays"`         // the stop does not move it: At is where the destination has it
	Source    Number    `json:"source"`        // where the source had it
	Seen      time.Time `json:"seen,omitzero"` // when that was; zero, and absent in JSON: never, or at an earlier look
	Written   Number    `json:"written"`       // what the mirror wrote at the destination last; unknown: nothing, or somebody has moved it since
	Again     Number    `json:"again"`         // of one that does not stay: offsets that it reads again, at most, if it has read everything at the source since; unknown: nobody knows how far the copy goes
	Behind    Number    `json:"behind"`        // of one that stays: offsets that it reads again
	Skips     Number    `json:"skips"`         // of one that stays: offsets that it has not read at the source, and does not read
	Reason    string    `json:"reason"`        // why it is not in step now
	// Here is, in a failback's plan, where the destination has it now; unknown, and absent in JSON: nowhere.
	Here Number `json:"destination,omitzero"`
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
	p.GroupsError, p.GroupsSeen = s.GroupsError, storedTime(s.GroupsSeen)
	sides := p.sides(s)
	asked := map[string]bool{}
	for _, t := range p.Topics {
		asked[t.Topic] = true
	}
	copies := map[TopicPartition]metadatasync.Copy{}
	for _, x := range s.Partitions {
		c := metadatasync.Copy{Start: x.Start, Replicated: x.Replicated, End: x.End}
		if cut := p.TornTransactions.Cut.of(TopicPartition{x.Topic, x.Partition}); cut != nil {
			c.Replicated, c.End = cut.Offset, cut.Offset
		}
		copies[TopicPartition{x.Topic, x.Partition}] = c
		if x.GroupsUnlooked && sides[x.Topic] == willStop {
			p.GroupsUnlooked = append(p.GroupsUnlooked, fmt.Sprintf("%s-%d", x.Topic, x.Partition))
		}
	}
	slices.Sort(p.GroupsUnlooked)
	internal := streamsTopics(sides, s.Groups)
	p.addStreams(sides, internal)
	for _, status := range s.Groups {
		g := planGroup(&status, sides, internal[status.Group])
		p.GroupPlaces = append(p.GroupPlaces, places(&status, sides, copies)...)
		again := g.Spans && slices.ContainsFunc(g.Stopped, func(topic string) bool { return asked[topic] })
		switch {
		case len(g.Stops) == 0 && !again:
		case g.Spans || g.Active || g.troubled() || g.old(p.Taken, fresh):
			p.Groups = append(p.Groups, g)
		default:
			p.GroupsInStep++
		}
	}
	slices.SortFunc(p.GroupPlaces, func(a, b PlanGroupPlace) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	slices.SortFunc(p.Groups, func(a, b PlanGroup) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind)) })
}

// PlanStreams is a Kafka Streams application of which topics that it makes for itself are stopped: each is cut at a place of its own.
type PlanStreams struct {
	Application string   `json:"application"` // the name of its group
	Topics      []string `json:"topics"`      // that it makes for itself and that this plan stops, sorted
}

func (p *FailoverPlan) addStreams(sides map[string]side, internal map[string][]string) {
	for _, application := range slices.Sorted(maps.Keys(internal)) {
		topics := slices.DeleteFunc(slices.Clone(internal[application]), func(topic string) bool { return sides[topic] != willStop })
		if len(topics) > 0 {
			p.Streams = append(p.Streams, PlanStreams{application, topics})
		}
	}
}

// mostStreams is how many applications have a line.
const mostStreams = 10

// streamsLines say what has to be decided for each Kafka Streams application, one line each.
func (p *FailoverPlan) streamsLines(t *planText) {
	var lines []string
	for _, x := range p.Streams {
		lines = append(lines, fmt.Sprintf("STREAMS %s: its state may be ahead of its input after the cut, or behind it: reset or accept (%s)", x.Application, few(x.Topics)))
	}
	t.bounded(lines, mostStreams, " Kafka Streams applications; all are in JSON")
}

// places are where a group goes on in the partitions that are to be stopped: what is the mirror's is put to where the source had it, and what is others' stays.
func places(status *GroupStatus, sides map[string]side, copies map[TopicPartition]metadatasync.Copy) (all []PlanGroupPlace) {
	seen := storedTime(status.Seen)
	for _, x := range status.Partitions {
		if sides[x.Topic] != willStop || x.absent(seen) {
			continue
		}
		y := PlanGroupPlace{Group: status.Group, Kind: status.Kind.String(), Topic: x.Topic, Partition: x.Partition, Source: KnownNumber(x.Source), Written: KnownNumber(x.Written),
			Reason: x.outOfStep()}
		if x.Source >= 0 && !x.earlier() {
			y.Seen = seen
		}
		switch {
		case seen.IsZero():
			y.Reason = neverLooked
		case status.Active || x.others() || x.Source < 0:
			if status.Active && x.Skipped == "" {
				x.Skipped = skippedWords(skippedActive)
			}
			y.Stays, y.At, y.Behind, y.Skips, y.Reason = true, KnownNumber(x.Here), x.Behind(), x.Skips(), x.Skipped
		}
		if x.Source >= 0 && !seen.IsZero() {
			y.Place = y.Source // of a copy that nobody knows it is not known how far it goes
			if c, known := copies[x.TopicPartition]; known {
				y.Place = KnownNumber(x.lastPlaceOf(c))
			}
		}
		if !y.Stays {
			y.At = y.Place
			at, known := y.At.Value()
			if c := copies[x.TopicPartition]; known && c.Replicated < math.MaxInt64 {
				y.Again = KnownNumber(max(0, c.Replicated-at))
			}
		}
		all = append(all, y)
	}
	return all
}

func planGroup(status *GroupStatus, sides map[string]side, internal []string) PlanGroup {
	g := PlanGroup{
		Group: status.Group, Kind: status.Kind.String(), Active: status.Active, Seen: storedTime(status.Seen), Stopped: []string{}, Stops: []string{}, Stays: []string{}, Partitions: []PlanGroupPartition{},
	}
	topics := map[side]map[string]bool{isStopped: {}, willStop: {}, stays: {}}
	for _, x := range status.Partitions {
		if where := sides[x.Topic]; where != notMember && !x.absent(g.Seen) {
			topics[where][x.Topic] = true
		}
	}
	for _, topic := range internal {
		for _, of := range topics {
			if len(of) > 0 {
				topics[sides[topic]][topic] = true
				g.Internal = append(g.Internal, topic)
				break
			}
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
		y := PlanGroupPartition{Topic: x.Topic, Partition: x.Partition, Source: KnownNumber(x.Source), Here: KnownNumber(x.Here), Written: KnownNumber(x.Written), Behind: x.Behind(), Skips: x.Skips(),
			Reason: x.outOfStep()}
		if x.Source >= 0 && !x.earlier() {
			y.Seen = g.Seen
		}
		switch {
		case y.Reason != "" || g.Seen.IsZero():
		case x.Source < 0:
			y.Reason = x.Skipped // there is nothing to follow
		case x.Source != x.Here:
			y.Reason = asNear
		}
		g.Partitions = append(g.Partitions, y)
	}
	slices.SortFunc(g.Partitions, func(a, b PlanGroupPartition) int {
		return compareTopicPartitions(TopicPartition{a.Topic, a.Partition}, TopicPartition{b.Topic, b.Partition})
	})
	return g
}

// neverLooked is why nothing is known of a group.
const neverLooked = "never looked at"

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
	return x.Reason != "" && x.Reason != asNear && x.Reason != skippedWords(skippedNoOffset)
}

// groupsLookedAt is how old a look at groups is at least before it says nothing of now: a look is made at every refresh.
const groupsLookedAt = 2 * time.Minute

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
		s += " IS ACTIVE AT THE DESTINATION"
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
		s += "; a stop moves no offset of a group that has members there: it goes on from its own, or from what was written last"
	}
	if len(g.Internal) > 0 && g.Spans {
		s += fmt.Sprintf("; %s is made by Kafka Streams for this application: it is of use only together with what it reads", strings.Join(g.Internal, ", "))
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
	}{{spans, "ON BOTH SIDES"}, {active, "ACTIVE AT THE DESTINATION"}, {behind, "not in step"}, {never, neverLooked}, {old, "not looked at lately"}, {p.GroupsInStep, "in step"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	line := strings.Join(parts, ", ")
	if len(names) > 0 {
		line += "; see below: " + few(names)
	}
	young := p.GroupsError == notLookedYet && line == "" && p.SourceError == "" // its first look is about to be made
	if placeless := p.placeless(); len(placeless) > 0 && !young {
		line = strings.TrimPrefix(line+"; ", "; ") + unlookedWords(placeless, len(placeless) == p.stopping())
	}
	if p.GroupsError == notLookedYet && line == "" {
		return "GROUPS: not looked at yet: this process looks at its next refresh (every 30 s unless set otherwise); plan again then"
	}
	if p.GroupsError != "" {
		line = strings.TrimPrefix(line+"; ", "; ") + "not followed now: " + p.GroupsError
	}
	if line != "" && !p.GroupsSeen.IsZero() {
		line += "; looked at " + age(p.Taken.Sub(p.GroupsSeen))
	}
	if line != "" {
		line = "GROUPS: " + line
	}
	return line
}

// placeless are the partitions whose groups were not looked at, without those of which an earlier look knows some.
func (p *FailoverPlan) placeless() []string {
	known := map[string]bool{}
	for i := range p.GroupPlaces {
		known[fmt.Sprintf("%s-%d", p.GroupPlaces[i].Topic, p.GroupPlaces[i].Partition)] = true
	}
	return slices.DeleteFunc(slices.Clone(p.GroupsUnlooked), func(tp string) bool { return known[tp] })
}

// stopping counts the partitions that will be stopped.
func (p *FailoverPlan) stopping() int {
	n := p.stops
	for i := range p.Partitions {
		if p.Partitions[i].Outcome == OutcomeStop {
			n++
		}
	}
	return n
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
		t.table([]string{"GROUP", "PARTITION", "PLAN", "AT THE SOURCE", "AT DESTINATION", "WRITTEN", "DIFFERENCE", "WHY"}, rows)
		t.line("")
		t.line("AT THE SOURCE: where the group was when it was looked at last. AT DESTINATION: where it was there then, or was written; - if nowhere, or if that is not known. WRITTEN: what the mirror")
		t.line("wrote there last, - if nothing, or if somebody has moved it since. DIFFERENCE: if it goes on where the destination has it, it READS AGAIN offsets that it has read at the source, or SKIPS")
		t.line("offsets that it has not read there, unless it has read them at the destination; none also where it is as near as the copy goes.")
	}
	if advice := p.advice(); len(advice) > 0 {
		t.line("")
		t.bounded(advice, mostAdvice, " lines of this kind, for the other groups above")
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
	p.placesText(t)
}

// placesText is where groups go on, one line for each group and partition.
func (p *FailoverPlan) placesText(t *planText) {
	if len(p.GroupsUnlooked) > 0 && (len(p.GroupPlaces) > 0 || len(p.GroupsUnlooked) < p.stopping() && p.GroupsError != notLookedYet) {
		t.line("")
		t.line("of %s groups were not looked at since mirroring began: what the source has of them is not known, and nothing follows to the destination", few(p.GroupsUnlooked))
	}
	if len(p.GroupPlaces) == 0 {
		return
	}
	var lines []string
	var known time.Time // by then, what groups had committed at the source was known of all
	for i := range p.GroupPlaces {
		x := &p.GroupPlaces[i]
		lines = append(lines, p.placeLine(x))
		if at := p.since(TopicPartition{x.Topic, x.Partition}, x.Seen); !x.Stays && !at.IsZero() && (known.IsZero() || at.Before(known)) {
			known = at
		}
	}
	t.line("")
	t.line("After the stop, at the destination:")
	t.bounded(lines, mostPlaces, "; all are in JSON")
	if !known.IsZero() {
		t.line("What groups committed at the source after that is not known: they read it again. The oldest of these moments is %s.%s", stamp(known), p.againWords())
	}
}

// againWords say how many offsets each group reads again at most; "" if none does, or if it is not known how far the copies go.
func (p *FailoverPlan) againWords() string {
	var who []string
	most := map[string]int64{}
	for i := range p.GroupPlaces {
		x := &p.GroupPlaces[i]
		n, known := x.Again.Value()
		if !known || n == 0 {
			continue
		}
		name := groupName(x.Group, x.Kind)
		if most[name] == 0 {
			who = append(who, name)
		}
		most[name] += n
	}
	if len(who) == 0 {
		return ""
	}
	slices.SortStableFunc(who, func(a, b string) int { return cmp.Compare(most[b], most[a]) })
	for i, name := range who {
		who[i] = fmt.Sprintf("%s %s", name, plural(int(most[name]), "offset", "offsets"))
	}
	return " At most they read again: " + few(who) + "."
}

// since is the moment up to which it is known where the source had a group that was recorded at seen.
func (p *FailoverPlan) since(tp TopicPartition, seen time.Time) time.Time {
	if at := p.looked[tp]; !seen.IsZero() && at.After(seen) {
		return at
	}
	return seen
}

// placeLine says where one group goes on in one partition.
func (p *FailoverPlan) placeLine(x *PlanGroupPlace) string {
	who := fmt.Sprintf("%s %s-%d", groupName(x.Group, x.Kind), x.Topic, x.Partition)
	source, hasSource := x.Source.Value()
	when := " " + age(p.Taken.Sub(x.Seen))
	switch {
	case x.Seen.IsZero():
		when = " at an earlier look"
	case p.looked != nil:
		when = ", recorded" + when
	}
	var why []string
	if x.Reason != "" {
		why = append(why, x.Reason)
	}
	at, known := x.At.Value()
	switch {
	case !known && !x.Stays:
		return fmt.Sprintf("%s goes on where the destination has it, which is not known (%s)", who, cmp.Or(x.Reason, neverLooked))
	case x.Stays:
		if hasSource {
			why = append(why, fmt.Sprintf("%d at the source%s", source, when))
		}
		words := fmt.Sprintf(" stays where it is, at %d", at)
		if !known {
			words = " stays without an offset, and begins as its auto.offset.reset says"
		} else if d := inOffsets(x.Behind, x.Skips); hasSource && d != "none" {
			words += ": " + d
		}
		return fmt.Sprintf("%s%s (%s)", who, words, strings.Join(why, "; "))
	case at == source:
		why = append([]string{"as at the source" + when}, why...)
	case at > source:
		why = append([]string{fmt.Sprintf("where the copy begins; %d at the source%s", source, when)}, why...)
	default:
		why = append([]string{fmt.Sprintf("where the copy ends; %d at the source%s", source, when)}, why...)
	}
	return fmt.Sprintf("%s goes on at %d (%s)", who, at, strings.Join(why, "; "))
}

// advice is what to do about groups that a stop does not move.
func (p *FailoverPlan) advice() (lines []string) {
	for i := range p.GroupPlaces {
		first := &p.GroupPlaces[i]
		if i > 0 && p.GroupPlaces[i-1].Group == first.Group && p.GroupPlaces[i-1].Kind == first.Kind {
			continue
		}
		a := groupAdvice{group: first.Group, kind: first.Kind, later: true}
		for _, x := range p.GroupPlaces[i:] {
			if x.Group != first.Group || x.Kind != first.Kind {
				break
			}
			place, known := x.Place.Value()
			moved, active := x.Reason == skippedWords(skippedMoved), x.Reason == skippedWords(skippedActive)
			if !x.Stays || !moved && !active {
				continue
			}
			tp := TopicPartition{x.Topic, x.Partition}
			a.active = a.active || active
			if at, is := x.At.Value(); known && (!is || at != place) {
				_, wrote := x.Written.Value()
				if moved || is && !wrote {
					a.own = append(a.own, tp)
				}
				a.reset = append(a.reset, groupReset{tp, place})
			}
		}
		lines = append(lines, a.lines()...)
	}
	return lines
}

func (p *FailoverPlan) groupRow(g *PlanGroup, x *PlanGroupPartition) []string {
	plan := string(OutcomeStop)
	if slices.Contains(g.Stays, x.Topic) {
		plan = "stays"
	}
	source, apart := "unknown", inOffsets(x.Behind, x.Skips)
	if _, known := x.Source.Value(); known && x.Seen.IsZero() {
		source = fmt.Sprintf("%s, at an earlier look", x.Source)
	} else if known {
		how := "seen"
		if p.looked != nil {
			how = "recorded"
		}
		source = fmt.Sprintf("%s, %s %s", x.Source, how, age(p.Taken.Sub(x.Seen)))
		since := p.since(TopicPartition{x.Topic, x.Partition}, x.Seen)
		if p.Taken.Sub(since) > groupsLookedAt {
			then := ""
			if _, known := x.Behind.Value(); known {
				then = fmt.Sprintf(", %s then", apart)
			}
			apart = fmt.Sprintf("unknown since %s%s", stamp(since), then)
		}
	}
	return []string{g.name(), fmt.Sprintf("%s-%d", x.Topic, x.Partition), plan, source, dash(x.Here), dash(x.Written), apart, x.Reason}
}
