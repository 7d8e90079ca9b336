package mirror

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

// outOfStep is why a group is not where the source has it in this partition, as far as the last look says; "" if it is, or as near as the copy goes, whoever has put it there. Where the source has
// no offset there is nothing to follow. Descriptions and plans go by it alone.
func (p *GroupPartitionStatus) outOfStep() string {
	switch {
	case p.Skipped == skippedWords(skippedNoOffset), p.Source >= 0 && p.Here == p.Source && !p.hidden():
		return ""
	case p.Skipped == "" && p.Source >= 0 && p.Here < 0:
		return "nothing is known of it at the destination"
	}
	return p.Skipped
}

// hidden says that where the destination has the group is from before, or was only intended: it says nothing of now.
func (p *GroupPartitionStatus) hidden() bool {
	for _, code := range []string{skippedPending, skippedUnknown, skippedUnreadable, skippedNotMirrored, skippedUnsettled} {
		if p.Skipped == skippedWords(code) {
			return true
		}
	}
	return false
}

// earlier says that where the source has the group is from an earlier look than the group's last, and nobody knows from when.
func (p *GroupPartitionStatus) earlier() bool {
	return p.Skipped == skippedWords(skippedNotMirrored) || p.Skipped == skippedWords(skippedPending)
}

// others says that the group is not the mirror's to move in this partition: it has members at the destination, or somebody else has moved it there.
func (p *GroupPartitionStatus) others() bool {
	return p.Skipped == skippedWords(skippedActive) || p.Skipped == skippedWords(skippedMoved)
}

// apart is how far the destination has the group beyond where the source has it. A group that is as near as the copy goes lacks nothing that is its own.
func (p *GroupPartitionStatus) apart() (n int64, known bool) {
	switch {
	case p.Source < 0 || p.Here < 0 || p.hidden():
		return 0, false
	case p.Skipped == "":
		return 0, true
	}
	return p.Here - p.Source, true
}

// Behind is how many offsets a group reads again that it has read at the source, if it goes on where the destination has it. It is unknown if one of both places is, or is not known to be so now.
func (p GroupPartitionStatus) Behind() Number {
	n, known := p.apart()
	if !known {
		return Number{}
	}
	return KnownNumber(max(0, -n))
}

// Skips is how many offsets a group does not read that it has not read at the source, if it goes on where the destination has it and has not read them there. It is unknown where Behind is.
func (p GroupPartitionStatus) Skips() Number {
	n, known := p.apart()
	if !known {
		return Number{}
	}
	return KnownNumber(max(0, n))
}

// inOffsets is Behind and Skips in words.
func inOffsets(behind, skips Number) string {
	again, known := behind.Value()
	misses, _ := skips.Value()
	switch {
	case !known:
		return "unknown"
	case again > 0:
		return fmt.Sprintf("READS AGAIN %d", again)
	case misses > 0:
		return fmt.Sprintf("SKIPS %d", misses)
	}
	return "none"
}

// lastPlaceOf is where a stop puts a group: where the source had it, no lower than where the copy begins, and not beyond where it ends. What the mirror wrote was replicated then.
func (p *GroupPartitionStatus) lastPlaceOf(c metadatasync.Copy) int64 {
	written := p.Written
	if c.End > 0 {
		written = min(written, c.End)
	}
	c.Replicated = max(c.Replicated, written)
	return metadatasync.Place(metadatasync.Offset{Offset: p.Source}, c).Offset
}

// groupsCommand begins a command about a group at the destination.
const groupsCommand = "kafka-consumer-groups.sh --bootstrap-server DESTINATION:PORT "

// groupAdvice is what to do about a group that is not the mirror's to move.
type groupAdvice struct {
	group  string
	kind   string // GroupKind's text
	active bool
	own    []TopicPartition // where it has committed offsets of its own at the destination, of partitions that are mirrored
	reset  []groupReset     // of partitions that are stopped, or are about to be
	later  bool             // they are about to be
}

type groupReset struct {
	TopicPartition
	to int64
}

// lines are what to do, each with its command, where the group's name can be typed.
func (a *groupAdvice) lines() (lines []string) {
	if !a.active && len(a.own)+len(a.reset) == 0 {
		return nil
	}
	who := groupName(a.group, a.kind)
	if a.kind != OffsetGroup.String() || !typed(a.group) {
		how := "kafka-share-groups.sh"
		if a.kind == OffsetGroup.String() {
			how = "a program: its name holds characters that cannot be typed"
		}
		return []string{fmt.Sprintf("%s: end its members at the destination and delete its offsets there, with %s; it follows at the next look", who, how)}
	}
	group := "--group " + shellWord(a.group)
	mirrored := a.later || len(a.reset) == 0 || len(a.own) > 0
	if a.active && mirrored {
		then := "it is moved at the next look"
		if len(a.own) > 0 {
			then = "then go on with the next line: it has committed offsets of its own"
		}
		lines = append(lines, fmt.Sprintf("%s: stop its members at the destination (%s--describe --members %s shows them); %s", who, groupsCommand, group, then))
	}
	if len(a.own) > 0 {
		by := map[string][]string{}
		var topics []string
		for _, tp := range a.own {
			if by[tp.Topic] == nil {
				topics = append(topics, tp.Topic)
			}
			by[tp.Topic] = append(by[tp.Topic], fmt.Sprint(tp.Partition))
		}
		slices.Sort(topics)
		names := ""
		for _, topic := range topics {
			names += " --topic " + topic + ":" + strings.Join(by[topic], ",")
		}
		lines = append(lines, fmt.Sprintf("%s: %s--delete-offsets %s%s has it follow at the next look (--reset-offsets fails at a copy, which has no leader for clients)", who, groupsCommand, group, names))
	}
	when := "stop its members, if it has any, then"
	if a.later {
		when = "if that is not done before the stop, then after it, while it has no members:"
	}
	for _, r := range a.reset {
		lines = append(lines, fmt.Sprintf("%s: %s %s--reset-offsets %s --topic %s:%d --to-offset %d --execute", who, when, groupsCommand, group, r.Topic, r.Partition, r.to))
	}
	return lines
}

// most lines of advice, and of places where groups go on.
const (
	mostAdvice = 20
	mostPlaces = 50
)

// bounded writes at most so many lines, and how many more there are.
func (t *planText) bounded(lines []string, most int, where string) {
	for _, l := range lines[:min(len(lines), most)] {
		t.line("%s", l)
	}
	if n := len(lines) - most; n > 0 {
		t.line("and %d more%s", n, where)
	}
}

// streamsTopics finds whose the topics are that a Kafka Streams application makes for itself: APPLICATION-NAME-changelog and the like, where the group is called APPLICATION.
func streamsTopics(sides map[string]side, groups []GroupStatus) map[string][]string {
	names := map[string]bool{}
	for _, g := range groups {
		if g.Kind == OffsetGroup {
			names[g.Group] = true
		}
	}
	own := map[string][]string{}
	for topic := range sides {
		if c, ok := CautionOf(topic); !ok || !strings.Contains(c.About, "Kafka Streams") {
			continue
		}
		for at := len(topic) - 1; at > 0; at-- { // the longest name: app-2 is another application than app
			if topic[at] == '-' && names[topic[:at]] {
				own[topic[:at]] = append(own[topic[:at]], topic)
				break
			}
		}
	}
	for _, topics := range own {
		slices.Sort(topics)
	}
	return own
}
