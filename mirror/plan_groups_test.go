package mirror

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/statemachine"
)

// reads is a group with its offsets at the source and what was written at the destination, in partition 0 of topics.
func reads(group string, ago time.Duration, offsets ...GroupPartitionStatus) GroupStatus {
	return GroupStatus{Group: group, Seen: planTime.Add(-ago), Partitions: offsets}
}

func at(topic string, source, written int64) GroupPartitionStatus {
	return GroupPartitionStatus{TopicPartition: TopicPartition{topic, 0}, Source: source, Written: written, Here: written}
}

// stoppedBefore makes a topic of the snapshot one that was failed over earlier.
func stoppedBefore(s *Snapshot, topic string) {
	for i := range s.Topics {
		if s.Topics[i].Topic == topic {
			s.Topics[i].MirrorName = "east.stopped"
		}
	}
	for i := range s.Partitions {
		if p := &s.Partitions[i]; p.Topic == topic {
			p.State, p.Want, p.Owner, p.LME = statemachine.Stopped, statemachine.WantStopped, OwnerOpen, &statemachine.LastMirrorEpoch{Epoch: 5, Offset: p.End, Episode: 1}
		}
	}
}

// halfOver is an hour after t1 was failed over, and g moved with it: g is active at the destination, so nobody moves its offset of t2 any more.
func halfOver(ago time.Duration, topics ...string) Snapshot {
	var partitions []PartitionStatus
	for _, topic := range append([]string{"t1", "t2"}, topics...) {
		partitions = append(partitions, mirrored(topic, 0, 1000, 1000, time.Second))
	}
	s := eastSnapshot(partitions...)
	stoppedBefore(&s, "t1")
	g := reads("g", ago, at("t1", 400, 400), GroupPartitionStatus{TopicPartition: TopicPartition{"t2", 0}, Source: 700, Written: 640, Here: 640, Skipped: "active at the destination"})
	g.Active = true
	s.Groups = []GroupStatus{g}
	return s
}

// checkPlan also has the plan come back from its JSON.
func checkPlan(t *testing.T, p FailoverPlan, says ...string) {
	t.Helper()
	text := p.String()
	for _, s := range says {
		if !strings.Contains(text, s) {
			t.Errorf("the plan does not say %q:\n%s", s, text)
		}
	}
	b, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var back FailoverPlan
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, p) {
		t.Errorf("JSON gives back another plan (%v)\n%+v\n%+v", err, back, p)
	}
}

func planGroupNamed(t *testing.T, p FailoverPlan, name string) PlanGroup {
	t.Helper()
	i := slices.IndexFunc(p.Groups, func(g PlanGroup) bool { return g.Group == name })
	if i < 0 {
		t.Fatalf("the plan does not name %s: %+v", name, p.Groups)
	}
	return p.Groups[i]
}

func TestF88GroupsSpanBothSidesAfterAPartialFailover(t *testing.T) {
	// The first failover: t1 goes, t2 stays. g is in step, and has to be named all the same: from now on it is on both sides.
	before := eastSnapshot(mirrored("t1", 0, 1000, 1000, time.Second), mirrored("t2", 0, 1000, 1000, time.Second))
	before.Groups = []GroupStatus{reads("g", 14*time.Second, at("t1", 400, 400), at("t2", 640, 640)), reads("only-t1", 14*time.Second, at("t1", 9, 9)), reads("only-t2", 14*time.Second, at("t2", 9, 9))}
	first := PlanFailover(before, FailoverOptions{Topics: []string{"t1"}, Partial: true})
	want := PlanGroup{
		Group: "g", Kind: "group", Spans: true, Seen: planTime.Add(-14 * time.Second), Stopped: []string{}, Stops: []string{"t1"}, Stays: []string{"t2"}, Partitions: []PlanGroupPartition{
			{"t1", 0, KnownNumber(400), KnownNumber(400), KnownNumber(400), KnownNumber(0), KnownNumber(0), planTime.Add(-14 * time.Second), ""}, {"t2", 0, KnownNumber(640), KnownNumber(640), KnownNumber(640), KnownNumber(0), KnownNumber(0), planTime.Add(-14 * time.Second), ""},
		},
	}
	if len(first.Groups) != 1 || !reflect.DeepEqual(first.Groups[0], want) || first.GroupsInStep != 1 {
		t.Errorf("%d in step, %+v, want\n%+v", first.GroupsInStep, first.Groups, want)
	}
	checkPlan(t, first, "GROUPS: 1 ON BOTH SIDES, 1 in step; see below: g\n", "g SPANS BOTH SIDES: t1 stops with this plan, t2 stays in the mirror\n")

	// An hour later t2 follows. The plan says how far g's offset of it is behind: exactly, where g was looked at just now.
	second := PlanFailover(halfOver(14*time.Second), FailoverOptions{Topics: []string{"t2"}})
	g := planGroupNamed(t, second, "g")
	if behind, known := g.Partitions[0].Behind.Value(); g.Spans || !g.Active || len(g.Partitions) != 1 || !known || behind != 60 {
		t.Errorf("%+v", g)
	}
	checkPlan(t, second, "GROUPS: 1 ACTIVE AT THE DESTINATION; see below: g\n", "g IS ACTIVE AT THE DESTINATION: t1 is stopped, t2 stops with this plan; a stop moves no offset",
		"t2-0       stop  700, seen 14s ago  640             640      READS AGAIN 60  active at the destination\n")

	// Where the source has not answered since, it is not known how far g went on, and no number may look as if it were.
	dead := PlanFailover(halfOver(time.Hour), FailoverOptions{Topics: []string{"t2"}})
	checkPlan(t, dead, "t2-0       stop  700, seen 60m ago  640             640      unknown since 2026-03-14 02:12:44 UTC, READS AGAIN 60 then  active at the destination\n")

	// With a third topic it goes on to span; so it does in a plan that has nothing left to do.
	third := PlanFailover(halfOver(14*time.Second, "t3"), FailoverOptions{Topics: []string{"t2"}})
	if g := planGroupNamed(t, third, "g"); g.Spans {
		t.Errorf("g has nothing in t3, and spans: %+v", g)
	}
	wide := halfOver(14*time.Second, "t3")
	wide.Groups[0].Partitions = append(wide.Groups[0].Partitions, at("t3", 5, Unknown))
	for _, topics := range [][]string{{"t2"}, {"t1", "t2"}} {
		checkPlan(t, PlanFailover(wide, FailoverOptions{Topics: topics}), "g SPANS BOTH SIDES: t1 is stopped, t2 stops with this plan, t3 stays in the mirror; a stop moves no offset",
			"t3-0       stays  5, seen 14s ago    -               -        unknown         nothing is known of it at the destination\n")
	}
	checkPlan(t, PlanFailover(wide, FailoverOptions{Topics: []string{"t1"}}), "NOTHING TO STOP", "g SPANS BOTH SIDES: t1 is stopped, t2, t3 stay in the mirror")
	if p := PlanFailover(wide, FailoverOptions{Topics: []string{"t3"}}); !planGroupNamed(t, p, "g").Spans {
		t.Errorf("%+v", p.Groups)
	}
}

// groupsPlan is the second of three failovers, with every kind of group.
func groupsPlan() FailoverPlan {
	s := halfOver(14*time.Second, "t3")
	s.SourceError = "dial tcp 10.0.0.1:9092: connect: connection refused"
	s.GroupsError = s.SourceError
	s.Groups = append(s.Groups, reads("in-step", 14*time.Second, at("t2", 5, 5)), reads("spans", 14*time.Minute, at("t1", 7, 7), at("t2", 5, 5), at("t3", 600, Unknown)),
		reads("ahead-of-the-copy", 14*time.Second, at("t2", 1020, 1000)), reads("long-ago", 50*time.Hour, at("t2", 10, 10)), reads("longer-ago", 100*time.Hour, at("t2", 10, 10)),
		GroupStatus{Group: "new", Partitions: []GroupPartitionStatus{at("t2", Unknown, Unknown)}}, reads("of-another-topic", time.Hour, at("t3", 1, 1)),
		GroupStatus{Group: "workers", Kind: ShareGroup, Seen: planTime.Add(-14 * time.Second), Partitions: []GroupPartitionStatus{{TopicPartition{"t2", 0}, 50, Unknown, 54, "moved at the destination"}}})
	return PlanFailover(s, FailoverOptions{Topics: []string{"t2"}, Partial: true})
}

// TestPlanNamesGroupsThatNeedSomebody: and counts the others.
func TestPlanNamesGroupsThatNeedSomebody(t *testing.T) {
	with := func(g GroupStatus, change func(*GroupStatus)) GroupStatus {
		g.Partitions = slices.Clone(g.Partitions)
		change(&g)
		return g
	}
	one := reads("g", time.Second, at("t", 500, 500))
	for _, c := range []struct {
		name  string
		group GroupStatus
		says  string // "": it is only counted
	}{
		{"in step", one, ""},
		{"looked at one interval ago", reads("g", 100*time.Second, at("t", 500, 500)), ""},
		{"at 0, which is an offset (F-58), below where the copy begins", reads("g", time.Second, at("t", 0, 30)), ""},
		{"rewound at the source, which the destination refuses", with(one, func(g *GroupStatus) {
			g.Partitions[0].Source, g.Partitions[0].Skipped = 400, "refused by the destination"
		}), "400, seen 1s ago  500             500      SKIPS 100   refused"},
		{"behind", with(one, func(g *GroupStatus) {
			g.Partitions[0].Here, g.Partitions[0].Skipped = 499, "refused by the destination"
		}), "500, seen 1s ago  499             500      READS AGAIN 1  refused"},
		{"equal on both sides, and nothing of it written by the mirror", reads("g", time.Second, GroupPartitionStatus{TopicPartition{"t", 0}, 60, Unknown, 60, ""}), ""},
		{"moved at the destination, to the same place", reads("g", time.Second, GroupPartitionStatus{TopicPartition{"t", 0}, 60, Unknown, 60, "moved at the destination"}), ""},
		{"only intended", with(one, func(g *GroupStatus) {
			g.Partitions[0].Here, g.Partitions[0].Skipped = Unknown, "it is not known whether it was written"
		}), "500, seen 1s ago  -               500      unknown     it is not known"},
		{"of a partition that is paused", with(one, func(g *GroupStatus) {
			g.Partitions[0].Skipped = "the partition is not mirrored now, and was not looked at"
		}), "500, at an earlier look  500             500      unknown     the partition is not mirrored now"},
		{"unreadable", with(one, func(g *GroupStatus) { g.Partitions[0].Skipped = "it could not be read at the destination" }), "500, seen 1s ago  500             500      unknown     it could not be read"},
		{"ahead of the copy, so that it is where the copy ends", reads("g", time.Second, at("t", 1010, 1000)), ""},
		{"moved at the destination", with(one, func(g *GroupStatus) { g.Partitions[0].Here, g.Partitions[0].Skipped = 504, "moved at the destination" }), "SKIPS 4     moved at the destination"},
		{"active at the destination", with(one, func(g *GroupStatus) { g.Active = true }), "g IS ACTIVE AT THE DESTINATION: t stops with this plan"},
		{"never written", reads("g", time.Second, at("t", 0, Unknown)), "0, seen 1s ago  -               -        unknown     nothing is known of it at the destination"},
		{"a commit is under way", reads("g", time.Second, GroupPartitionStatus{TopicPartition{"t", 0}, Unknown, 40, 40, "a transaction is committing it"}),
			"unknown        40              40       unknown     a transaction is committing it"},
		{"never looked at", with(one, func(g *GroupStatus) { g.Seen = time.Time{} }), "GROUPS: 1 never looked at\n"},
		{"never looked at, with nothing known", GroupStatus{Group: "g", Partitions: []GroupPartitionStatus{at("t", Unknown, Unknown)}}, "never looked at, so nothing is known of their offsets: g\n"},
		{"looked at long ago", reads("g", 14*time.Minute, at("t", 500, 500)), "in step when looked at last, and unknown since; the oldest since 2026-03-14 02:58:44 UTC (14m ago): g\n"},
		{"long ago, and behind then", with(reads("g", 14*time.Minute, at("t", 500, 490)), func(g *GroupStatus) { g.Partitions[0].Skipped = "refused by the destination" }), "unknown since 2026-03-14 02:58:44 UTC, READS AGAIN 10 then"},
		{"a share group", with(one, func(g *GroupStatus) { g.Kind, g.Active = ShareGroup, true }), "share group g IS ACTIVE AT THE DESTINATION"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := eastSnapshot(mirrored("t", 0, 1000, 1020, time.Second))
			s.Partitions[0].Start = 30
			s.Groups = []GroupStatus{c.group}
			p := PlanFailover(s, FailoverOptions{})
			if c.says == "" {
				if len(p.Groups) != 0 || p.GroupsInStep != 1 {
					t.Errorf("%d in step, %+v", p.GroupsInStep, p.Groups)
				}
				checkPlan(t, p, "GROUPS: 1 in step\n", "After the stop, at the destination:\ng t-0 ")
				return
			}
			if len(p.Groups) != 1 || p.GroupsInStep != 0 {
				t.Errorf("%d in step, %+v", p.GroupsInStep, p.Groups)
			}
			checkPlan(t, p, c.says)
		})
	}
}

// TestPlanLeavesOutGroupsOfOtherTopics: those that no stop of this plan concerns.
func TestPlanLeavesOutGroupsOfOtherTopics(t *testing.T) {
	s := eastSnapshot(mirrored("t1", 0, 10, 10, 0), mirrored("t2", 0, 10, 10, 0), mirrored("done", 0, 10, 10, 0))
	stoppedBefore(&s, "done")
	long := 14 * time.Minute
	s.Groups = []GroupStatus{
		reads("stays", long, at("t2", 5, 1)), reads("moved-earlier", long, at("done", 5, 1)), reads("of-a-topic-that-left", long, at("gone", 5, 1), at("t2", 5, 1)),
		reads("without-offset", time.Second, at("t1", Unknown, Unknown), at("t2", 5, 1)), reads("spans-but-not-here", long, at("done", 5, 5), at("t2", 5, 1)),
	}
	if p := PlanFailover(s, FailoverOptions{Topics: []string{"t1"}}); len(p.Groups) != 0 || p.GroupsInStep != 0 || strings.Contains(p.String(), "GROUPS") {
		t.Errorf("%d, %+v\n%s", p.GroupsInStep, p.Groups, p)
	}
}

// TestPlanSaysThatGroupsAreNotFollowed: also where none is known, so that nobody takes that for none being behind.
func TestPlanSaysThatGroupsAreNotFollowed(t *testing.T) {
	s := eastSnapshot(mirrored("t", 0, 10, 10, 0))
	s.GroupsError = "this source does not tell its groups"
	checkPlan(t, PlanFailover(s, FailoverOptions{}), "GROUPS: not followed now: this source does not tell its groups\n")
	s.Groups = []GroupStatus{reads("g", time.Second, at("t", 5, 5))}
	checkPlan(t, PlanFailover(s, FailoverOptions{}), "GROUPS: 1 in step; not followed now: this source does not tell its groups\n")
}

// TestPlanAccountsForEveryGroup: each group with an offset in a topic that the plan stops is named or counted, once, whatever is known of it; and no offset behind is negative.
func TestPlanAccountsForEveryGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topics := []string{"t1", "t2", "t3"}
		var partitions []PartitionStatus
		for _, topic := range topics {
			partitions = append(partitions, mirrored(topic, 0, 50, 50, 0))
		}
		s := eastSnapshot(partitions...)
		if rapid.Bool().Draw(t, "half over") {
			stoppedBefore(&s, "t3")
		}
		asked := rapid.SliceOfNDistinct(rapid.SampledFrom(topics), 1, 3, rapid.ID).Draw(t, "asked")
		offset := rapid.Int64Range(Unknown, 60)
		for i := range rapid.IntRange(0, 6).Draw(t, "groups") {
			g := GroupStatus{Group: fmt.Sprint("g", i), Active: rapid.Bool().Draw(t, "active")}
			if rapid.Bool().Draw(t, "looked at") {
				g.Seen = planTime.Add(-rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "ago"))
			}
			for _, topic := range topics {
				if rapid.Bool().Draw(t, topic) {
					x := at(topic, offset.Draw(t, "source"), offset.Draw(t, "written"))
					x.Here = offset.Draw(t, "here")
					x.Skipped = rapid.SampledFrom([]string{"", "active at the destination", "moved at the destination"}).Draw(t, "skipped")
					g.Partitions = append(g.Partitions, x)
				}
			}
			s.Groups = append(s.Groups, g)
		}
		p := PlanFailover(s, FailoverOptions{Topics: asked})
		b, err := p.JSON()
		var back FailoverPlan
		if err != nil || json.Unmarshal(b, &back) != nil || !reflect.DeepEqual(back, p) {
			t.Fatalf("JSON gives back another plan (%v)\n%s", err, b)
		}
		text := p.String()
		concerned := 0
		for _, status := range s.Groups {
			stops, stays, known := false, false, false
			for _, x := range status.Partitions {
				if x.Source < 0 && x.Written < 0 && !status.Seen.IsZero() && x.Skipped == "" {
					continue
				}
				isStopped := x.Topic == "t3" && stopped(s.Topics[2].MirrorName)
				inPlan := slices.Contains(asked, x.Topic)
				stops = stops || inPlan && !isStopped
				stays = stays || !inPlan && !isStopped
				known = known || inPlan
			}
			named := slices.IndexFunc(p.Groups, func(g PlanGroup) bool { return g.Group == status.Group })
			if stops {
				concerned++
			}
			if stops && stays && (named < 0 || !p.Groups[named].Spans || !strings.Contains(text, status.Group+" SPANS BOTH SIDES")) {
				t.Fatalf("%s spans both sides, and the plan does not say so\n%s", status.Group, text)
			}
			if named >= 0 && !known {
				t.Fatalf("%s has nothing in the plan's topics\n%s", status.Group, text)
			}
			if named >= 0 && !stops {
				concerned++ // it spans since an earlier stop
			}
			if stops && status.Active && named < 0 {
				t.Fatalf("%s is active at the destination and not named\n%s", status.Group, text)
			}
		}
		if got := len(p.Groups) + p.GroupsInStep; got != concerned {
			t.Fatalf("%d groups are named or counted, %d are concerned\n%s", got, concerned, text)
		}
		for _, g := range p.Groups {
			for _, x := range g.Partitions {
				source, known := x.Source.Value()
				here, there := x.Here.Value()
				behind, is := x.Behind.Value()
				skips, also := x.Skips.Value()
				if is != (known && there) || is != also || behind > 0 && behind != source-here || skips > 0 && skips != here-source {
					t.Fatalf("%+v", x)
				}
			}
		}
	})
}
