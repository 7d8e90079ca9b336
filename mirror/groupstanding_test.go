package mirror

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

// TestF88PlanSaysWhereEachGroupGoesOn: also those in step, which nobody has to do anything about.
func TestF88PlanSaysWhereEachGroupGoesOn(t *testing.T) {
	ago := 23 * time.Second
	status := func(source, here int64, skipped string) GroupStatus {
		return reads("g", ago, GroupPartitionStatus{TopicPartition{"t", 0}, source, here, here, skipped})
	}
	for _, c := range []struct {
		name  string
		group GroupStatus
		says  string
	}{
		{"in step", status(60, 60, ""), "g t-0 goes on at 60 (as at the source 23s ago)\n"},
		{"the copy has come on since", status(60, 50, ""), "g t-0 goes on at 60 (as at the source 23s ago)\n"},
		{"below the copy", status(0, 30, ""), "g t-0 goes on at 30 (where the copy begins; 0 at the source 23s ago)\n"},
		{"beyond the copy", status(1010, 1000, ""), "g t-0 goes on at 1000 (where the copy ends; 1010 at the source 23s ago)\n"},
		{"refused", status(60, 50, skippedWords(skippedRefused)), "g t-0 goes on at 60 (as at the source 23s ago; refused by the destination)\n"},
		{"unreadable", status(60, 50, skippedWords(skippedUnreadable)), "g t-0 goes on at 60 (as at the source 23s ago; it could not be read at the destination)\n"},
		{"only intended", status(60, Unknown, skippedWords(skippedUnknown)), "g t-0 goes on at 60 (as at the source 23s ago; it is not known whether it was written)\n"},
		{"paused", status(60, 60, skippedWords(skippedNotMirrored)), "g t-0 goes on at 60 (as at the source at an earlier look; the partition is not mirrored now"},
		{"a commit is under way", status(60, 60, skippedWords(skippedPending)), "g t-0 goes on at 60 (as at the source at an earlier look; a transaction is committing it)\n"},
		{"moved", status(60, 64, skippedWords(skippedMoved)), "g t-0 stays where it is, at 64: SKIPS 4 (moved at the destination; 60 at the source 23s ago)\n"},
		{"active", status(60, 57, skippedWords(skippedActive)), "g t-0 stays where it is, at 57: READS AGAIN 3 (active at the destination; 60 at the source 23s ago)\n"},
		{"active, without an offset", status(60, Unknown, skippedWords(skippedActive)), "g t-0 stays without an offset, and begins as its auto.offset.reset says (active at the destination; 60 at the source 23s ago)\n"},
		{"no offset at the source", status(Unknown, 60, skippedWords(skippedNoOffset)), "g t-0 stays where it is, at 60 (no offset at the source)\n"},
		{"never looked at", GroupStatus{Group: "g", Partitions: []GroupPartitionStatus{at("t", Unknown, Unknown)}}, "g t-0 goes on where the destination has it, which is not known (never looked at)\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := eastSnapshot(mirrored("t", 0, 1000, 1020, time.Second))
			s.Partitions[0].Start = 30
			s.Groups = []GroupStatus{c.group}
			p := PlanFailover(s, FailoverOptions{})
			checkPlan(t, p, "After the stop, at the destination:\n", c.says)
			known := !p.GroupPlaces[0].Seen.IsZero() && !p.GroupPlaces[0].Stays
			if says := strings.Contains(p.String(), "What groups committed at the source after that is not known: they read it again. The oldest of these moments is 2026-03-14 03:12:21 UTC."); says != known {
				t.Errorf("%v\n%s", p.GroupPlaces, p)
			}
		})
	}
}

// TestPlacesOfManyGroupsAreBounded: the text stays readable, and JSON has all.
func TestPlacesOfManyGroupsAreBounded(t *testing.T) {
	s := eastSnapshot(mirrored("t", 0, 1000, 1000, time.Second))
	for i := range mostPlaces + 7 {
		g := reads(fmt.Sprintf("g%02d", i), time.Second, GroupPartitionStatus{TopicPartition{"t", 0}, 5, Unknown, 9, skippedWords(skippedMoved)})
		s.Groups = append(s.Groups, g)
	}
	p := PlanFailover(s, FailoverOptions{})
	text := p.String()
	if n := strings.Count(text, " stays where it is"); n != mostPlaces || len(p.GroupPlaces) != mostPlaces+7 {
		t.Errorf("%d lines, %d places", n, len(p.GroupPlaces))
	}
	if n := strings.Count(text, "--delete-offsets"); n != mostAdvice/2 {
		t.Errorf("%d lines of advice\n%s", n, text)
	}
	checkPlan(t, p, "and 7 more; all are in JSON\n", "and 94 more lines of this kind")
}

// TestPlanSaysWhatToDoAboutGroupsThatAreNotMoved: with commands that can be copied, and none that would put a group beyond the copy.
func TestPlanSaysWhatToDoAboutGroupsThatAreNotMoved(t *testing.T) {
	s := eastSnapshot(mirrored("t", 0, 1000, 1020, time.Second), mirrored("t", 1, 1000, 1020, time.Second))
	two := func(name string, active bool, skipped string, written, here int64) GroupStatus {
		g := reads(name, time.Second, GroupPartitionStatus{TopicPartition{"t", 0}, 60, written, here, skipped}, GroupPartitionStatus{TopicPartition{"t", 1}, 1020, written, here, skipped})
		g.Active = active
		return g
	}
	active, moved := skippedWords(skippedActive), skippedWords(skippedMoved)
	s.Groups = []GroupStatus{two("active", true, active, 50, 50), two("it's", true, active, Unknown, 70), two("moved", false, moved, Unknown, 70), two("odd\x1b", false, moved, Unknown, 70), two("in-step", false, "", 60, 60)}
	const groups = "kafka-consumer-groups.sh --bootstrap-server DESTINATION:PORT "
	p := PlanFailover(s, FailoverOptions{})
	checkPlan(t, p,
		"active: stop its members at the destination ("+groups+"--describe --members --group 'active' shows them); it is moved at the next look\n",
		"active: if that is not done before the stop, then after it, while it has no members: "+groups+"--reset-offsets --group 'active' --topic t:0 --to-offset 60 --execute\n",
		"--group 'active' --topic t:1 --to-offset 1000 --execute\n",
		`it's: stop its members at the destination (`+groups+`--describe --members --group 'it'\''s' shows them); then go on with the next line: it has committed offsets of its own`+"\n",
		`it's: `+groups+`--delete-offsets --group 'it'\''s' --topic t:0,1 has it follow at the next look (--reset-offsets fails at a copy, which has no leader for clients)`+"\n",
		"moved: "+groups+"--delete-offsets --group 'moved' --topic t:0,1 has it follow at the next look",
		`odd\x1b: end its members at the destination and delete its offsets there, with a program: its name holds characters that cannot be typed`)
	if text := p.String(); strings.Contains(text, "--group 'in-step'") || strings.Contains(text, "--group 'odd") {
		t.Error(text)
	}
}

// TestPlanKeepsAStreamsApplicationTogether: its own topics are of use only together with its input, though its group has no offset in them.
func TestPlanKeepsAStreamsApplicationTogether(t *testing.T) {
	s := eastSnapshot(mirrored("orders", 0, 1000, 1000, time.Second), mirrored("clicks", 0, 1000, 1000, time.Second), mirrored("app-s-changelog", 0, 10, 10, time.Second),
		mirrored("app-2-s-changelog", 0, 10, 10, time.Second), mirrored("app-x", 0, 10, 10, time.Second), mirrored("nobody-s-changelog", 0, 10, 10, time.Second))
	s.Groups = []GroupStatus{reads("app", time.Second, at("orders", 5, 5)), reads("app-2", time.Second, at("clicks", 5, 5)), reads("plain", time.Second, at("orders", 5, 5))}
	p := PlanFailover(s, FailoverOptions{Topics: []string{"orders"}})
	checkPlan(t, p, "GROUPS: 1 ON BOTH SIDES, 1 in step; see below: app\n",
		"app SPANS BOTH SIDES: orders stops with this plan, app-s-changelog stays in the mirror; app-s-changelog is made by Kafka Streams for this application: it is of use only together with what it reads\n")
	both := PlanFailover(s, FailoverOptions{Topics: []string{"orders", "app-s-changelog"}})
	if len(both.Groups) != 0 || both.GroupsInStep != 2 {
		t.Errorf("%d in step\n%s", both.GroupsInStep, both)
	}
	checkPlan(t, PlanFailover(s, FailoverOptions{Topics: []string{"app-2-s-changelog"}}), "app-2 SPANS BOTH SIDES: app-2-s-changelog stops with this plan, clicks stays in the mirror; ")
}

// TestPlanNamesPartitionsWhoseGroupsWereNotLookedAt: what a source had of them when it died is known to nobody.
func TestPlanNamesPartitionsWhoseGroupsWereNotLookedAt(t *testing.T) {
	s := eastSnapshot(mirrored("old", 0, 10, 10, 0), mirrored("fresh", 0, 10, 10, 0), mirrored("stays", 0, 10, 10, 0))
	s.Partitions[1].GroupsUnlooked, s.Partitions[2].GroupsUnlooked = true, true
	s.GroupsError = "connection refused"
	p := PlanFailover(s, FailoverOptions{Topics: []string{"old", "fresh"}})
	checkPlan(t, p, "of fresh-0 groups were not looked at since mirroring began: what the source has of them is not known, and nothing follows to the destination\n")
	if len(p.GroupsUnlooked) != 1 {
		t.Error(p.GroupsUnlooked)
	}
	s.GroupsError = notLookedYet
	young := PlanFailover(s, FailoverOptions{Topics: []string{"old", "fresh"}})
	checkPlan(t, young, "GROUPS: not looked at yet: this process looks at its next refresh (every 30 s unless set otherwise); plan again then\n")
	if text := young.String(); strings.Contains(text, "fresh-0 groups") || strings.Contains(text, "not followed") {
		t.Errorf("said twice, or too loud:\n%s", text)
	}
	s.Groups = []GroupStatus{reads("g", time.Second, at("old", 5, 5))}
	checkPlan(t, PlanFailover(s, FailoverOptions{Topics: []string{"old", "fresh"}}), "of fresh-0 groups were not looked at since mirroring began", "g old-0 goes on at 5")
}

// TestDescriptionsAndPlansAgreeOnWhatIsInStep: whatever is known of a group.
func TestDescriptionsAndPlansAgreeOnWhatIsInStep(t *testing.T) {
	codes := []string{"", skippedActive, skippedMoved, skippedNoOffset, skippedPending, skippedRefused, skippedUnknown, skippedUnreadable, skippedNotMirrored, skippedUnsettled, "newer"}
	rapid.Check(t, func(t *rapid.T) {
		x := at("t", rapid.Int64Range(Unknown, 5).Draw(t, "source"), rapid.Int64Range(Unknown, 5).Draw(t, "written"))
		x.Here, x.Skipped = rapid.Int64Range(Unknown, 5).Draw(t, "here"), skippedWords(rapid.SampledFrom(codes).Draw(t, "code"))
		g := reads("g", time.Second, x)
		g.Active = rapid.Bool().Draw(t, "active")
		s := eastSnapshot(mirrored("t", 0, 50, 50, 0))
		s.Groups = []GroupStatus{g}
		p := PlanFailover(s, FailoverOptions{})
		if x.absent(planTime) {
			return
		}
		d := Description{Taken: planTime, Groups: s.Groups, Topics: []DescribedTopic{{Topic: "t", MirrorName: "east"}}}
		why := d.outOfStep(&g)
		if (why == "") != (p.GroupsInStep == 1) {
			t.Fatalf("%+v: %q, and the plan says\n%s", g, why, p)
		}
		if hidden := x.hidden(); hidden && (why == "" || x.Behind() != Number{}) {
			t.Fatalf("%+v is not known, and %q, %s", x, why, x.Behind())
		}
		if text := d.GroupsOf("t"); (why == "") != strings.Contains(text, "GROUPS: 1 in step") {
			t.Fatalf("%+v: %q, and a stop says\n%s", g, why, text)
		}
	})
}

// TestDescribeOfAStopSaysUntilWhenGroupsWereFollowed: and what to do about those that were left.
func TestDescribeOfAStopSaysUntilWhenGroupsWereFollowed(t *testing.T) {
	w, c := describeWorld(t)
	done, orders := TopicPartition{"done", 0}, TopicPartition{"orders", 0}
	left := memoryOf(60, metadatasync.None, skippedActive)
	left.Here = 70
	remember(t, c, "m", groupMemory{Group: "gone", Looked: planTime.Add(-time.Hour), Partitions: map[TopicPartition]partitionMemory{done: memoryOf(58, 58, "")}},
		groupMemory{Group: "left", Active: true, Looked: planTime.Add(-time.Hour), Partitions: map[TopicPartition]partitionMemory{done: left}},
		groupMemory{Group: "held", Looked: planTime.Add(-time.Second), Partitions: map[TopicPartition]partitionMemory{{"held", 0}: memoryOf(7, 7, skippedNotMirrored)}},
		groupMemory{Group: "here", Looked: planTime.Add(-time.Hour), Partitions: map[TopicPartition]partitionMemory{orders: memoryOf(7, 7, "")}})
	text := describe(t, w, c).GroupTable()
	for _, want := range []string{
		"groups: 2 followed, 2 followed until the stop, looked at 1s ago; 2 not in step: held (the partition is not mirrored now, and was not looked at), left (active at the destination)\n",
		"gone   done-0     58             58              58       none        60m ago   followed until the stop\n",
		"held   held-0     7              7               7        unknown     earlier   the partition is not mirrored now, and was not looked at\n",
		"left   done-0     60             70              -        SKIPS 10    60m ago   followed until the stop; active at the destination\n",
		"left: stop its members, if it has any, then kafka-consumer-groups.sh --bootstrap-server DESTINATION:PORT --reset-offsets --group 'left' --topic done:0 --to-offset 58 --execute\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	mustUpdate(t, c, func(s *ControlState) {
		s.removeProvenance(Provenance{Mirror: "m", Kind: groupProvenance, Name: "here"})
		s.removeProvenance(Provenance{Mirror: "m", Kind: groupProvenance, Name: "held"})
	})
	report(t, c, NodeReport{Owner: "node-2", Mirror: "m", Seen: planTime, GroupsSeen: planTime}) // it looks, and has nothing to look at
	if text := describe(t, w, c).GroupTable(); !strings.HasPrefix(text, "groups: 2 followed until the stop, looked at 60m ago; 1 not in step: left ") {
		t.Error(text)
	}
	if strings.Contains(text, "--describe --members") {
		t.Errorf("nobody looks at a group of a stopped partition:\n%s", text)
	}
}

// TestDescribeSaysWhenTheFirstLookIsMade: or that it should have been.
func TestDescribeSaysWhenTheFirstLookIsMade(t *testing.T) {
	w, c := describeWorld(t)
	for _, x := range []struct {
		opened time.Time
		says   string
	}{
		{planTime.Add(-time.Minute), "never looked at: the first look is made within 60s of the start of a process\n"},
		{planTime.Add(-26 * time.Hour), "never looked at, though node-1 runs since 2026-03-13 01:12:44 UTC: its events say what hinders it\n"},
	} {
		report(t, c, NodeReport{Owner: "node-1", Mirror: "m", Interval: time.Minute, Opened: x.opened, Seen: planTime.Add(-time.Second)})
		if text := describe(t, w, c).GroupTable(); text != "groups: 0 followed, "+x.says {
			t.Error(text)
		}
	}
}

// TestStopShowsWhatDeservesASecondLook: before a topic is opened for clients.
func TestStopShowsWhatDeservesASecondLook(t *testing.T) {
	w, c := describeWorld(t)
	mustUpdate(t, c, func(s *ControlState) { s.Set(wishOf("_schemas", "m")) })
	d := describe(t, w, c)
	if text := d.Partitions("_schemas", "orders"); !strings.Contains(text, "\ncaution: _schemas: a schema registry: two registries") {
		t.Error(text)
	}
	if text := d.Partitions("orders"); strings.Contains(text, "caution") {
		t.Error(text)
	}
}
