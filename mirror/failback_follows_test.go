package mirror_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// wentHome is a cluster A that was failed over to B and has records that B never had: of t-0 and t-1 A has [0,105) and B has [0,150), and they are the same below 100. Of "made" A has nothing. home is
// the mirror that is to bring both back.
func wentHome(tt *testing.T) (a, b *side, home *running) {
	tt.Helper()
	a, b = newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
	a.local("t", 2)
	for p := range int32(2) {
		a.fill("t", p, 100)
	}
	out := follow(tt, "a-b", a, b)
	out.start("t")
	out.untilInStep()
	if _, err := out.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
		tt.Fatal(err)
	}
	out.close()
	for p := range int32(2) {
		a.fill("t", p, 5)
		b.fill("t", p, 50)
	}
	b.local("made", 1)
	b.fill("made", 0, 10)
	home = follow(tt, "b-a", b, a)
	tt.Cleanup(func() { home.close() })
	return a, b, home
}

// goesHome carries the plan out, and lets everything follow.
func goesHome(tt *testing.T, home *running, plan mirror.FailbackPlan) {
	tt.Helper()
	if _, err := home.ExecuteFailback(tt.Context(), plan); err != nil {
		tt.Fatal(err)
	}
	home.untilInStep()
	refreshes(4) // a rule that is gone has to be missed twice
}

// sees is the plan, as whoever is sent it reads it.
func sees(tt *testing.T, home *running, topics ...string) mirror.FailbackPlan {
	tt.Helper()
	plan, err := home.PlanFailback(tt.Context(), topics...)
	if err != nil {
		tt.Fatal(err)
	}
	b, err := plan.JSON()
	if err != nil {
		tt.Fatal(err)
	}
	var back mirror.FailbackPlan
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, plan) {
		tt.Fatalf("JSON gives back another plan (%v)\n%s", err, b)
	}
	return back
}

// TestAFailbacksPlanSaysWhereGroupsGoOn, each kind of group once; and the failback does just that.
func TestAFailbacksPlanSaysWhereGroupsGoOn(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b, home := wentHome(tt)
		a.commit("gone-on", t(0), 90)
		b.commit("gone-on", t(0), 140)
		a.commit("rewound", t(0), 104)
		b.commit("rewound", t(0), 30)
		a.commit("cut", t(1), 105) // read what nobody will have read, and B knows nothing of it
		a.commit("below", t(1), 40)
		b.commit("new", t(0), 7)
		b.commit("new", mirror.TopicPartition{Topic: "made"}, 3)
		a.commit("at-work", t(0), 103)
		b.commit("at-work", t(0), 120)
		a.JoinGroup("at-work")
		a.commit("same", t(1), 60)
		b.commit("same", t(1), 60)
		a.commit("waiting", t(1), 10)
		b.PendingCommit("waiting", t(1), true)
		plan := sees(tt, home, "t", "made")
		g := plan.Groups
		if g.Active != 1 || g.Unknown != 1 || g.Back != 2 || g.On != 2 || g.InStep != 2 || g.Error != "" || g.Off != "" || g.Seen.IsZero() || len(g.Places) != 9 {
			tt.Errorf("%+v", g)
		}
		expectWords(tt, plan.String(), "GROUPS: 1 ACTIVE AT THE DESTINATION, 1 of which it is not known where it goes on, 2 GO BACK, 2 go on further, 2 in step; looked at <1s ago\n",
			"at-work t-0 STAYS at 103, and belongs at 120: READS AGAIN 17 (active at the destination; as at the source; it has read 3 offsets that are given up)\n",
			"waiting t-1 is at 10 here, and where it goes on is not known (a transaction is committing it)\n",
			"cut t-1 GOES BACK from 105 to 100 (where the log is cut; no offset at the source; it has read 5 offsets that are given up)\n",
			"rewound t-0 GOES BACK from 104 to 30 (as at the source; it has read 4 offsets that are given up)\n",
			"gone-on t-0 goes on from 90 to 140 (as at the source)\n",
			"new made-0 goes on at 3 (as at the source; no offset here)\nnew t-0 goes on at 7 (as at the source; no offset here)\n",
			"below t-1 stays at 40 (no offset at the source)\nsame t-1 stays at 60 (as at the source)\n",
			"at-work: stop its members at the destination (kafka-consumer-groups.sh --bootstrap-server DESTINATION:PORT --describe --members --group 'at-work' shows them); what they commit there until then is theirs")
		a.at("rewound", t(0), 104) // a plan changes nothing
		a.at("new", t(0), -1)
		b.PendingCommit("waiting", t(1), false)
		goesHome(tt, home, plan)
		for _, x := range g.Places {
			if at, known := x.At.Value(); known {
				a.at(x.Group, mirror.TopicPartition{Topic: x.Topic, Partition: x.Partition}, at)
			}
		}
	})
}

// TestAFailbacksPlanTellsKindsOfGroupsApart: a group of the other kind under the same name is not the mirror's to move.
func TestAFailbacksPlanTellsKindsOfGroupsApart(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b, home := wentHome(tt)
		for group, offset := range map[string]int64{"workers": 120, "other": 130} {
			if err := b.SetShareOffset(group, t(0), offset); err != nil {
				tt.Fatal(err)
			}
		}
		a.commit("other", t(0), 103)
		plan := sees(tt, home, "t")
		expectWords(tt, plan.String(), "GROUPS: 1 ACTIVE AT THE DESTINATION, 1 goes on further;", "share group workers t-0 goes on at 120 (as at the source; no offset here)\n",
			"share group other t-0 STAYS without an offset, and belongs at 130 (it is a group at the destination; as at the source)\n",
			"share group other: it is a group at the destination, and a cluster has no two groups of one name; delete that one there, if nobody needs it\n")
		goesHome(tt, home, plan)
		a.at("workers", t(0), 120)
		a.at("other", t(0), 103)
	})
}

// TestF84AFailbackDoesWhatItsPlanSays: groups end where the plan has them, and nowhere further; topics have the settings, and the cluster the rules, that the plan names, and no others.
func TestF84AFailbackDoesWhatItsPlanSays(tt *testing.T) {
	for seed := range uint64(30) {
		tt.Run(fmt.Sprint("seed ", seed), func(tt *testing.T) {
			bubble(tt, func(tt *testing.T) { doesAsPlanned(tt, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func doesAsPlanned(tt *testing.T, r *rand.Rand) {
	a, b, home := wentHome(tt)
	made := mirror.TopicPartition{Topic: "made"}
	type place struct {
		group string
		tp    mirror.TopicPartition
	}
	before := map[place]int64{}
	for i := range 8 {
		group := fmt.Sprint("g", i)
		for _, tp := range []mirror.TopicPartition{t(0), t(1), made} {
			if r.IntN(3) > 0 && tp != made {
				before[place{group, tp}] = r.Int64N(106)
				a.commit(group, tp, before[place{group, tp}])
			}
			if r.IntN(3) > 0 {
				end := int64(151)
				if tp == made {
					end = 11
				}
				at := mirror.GroupOffset{Offset: r.Int64N(end), LeaderEpoch: mirror.Unknown}
				if at.Offset <= 100 && tp != made && r.IntN(2) == 0 {
					at.LeaderEpoch = 0 // of what both have
				}
				if err := b.CommitOffset(group, tp, at); err != nil {
					tt.Fatal(err)
				}
			}
		}
		if r.IntN(4) == 0 {
			a.JoinGroup(group)
		}
	}
	settings := []string{"retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes"}
	for _, s := range []*side{a, b} {
		for _, name := range settings {
			if r.IntN(2) == 0 {
				if err := s.SetTopicConfig("t", name, fmt.Sprint(1+r.IntN(2))); err != nil {
					tt.Fatal(err)
				}
			}
		}
		s.SetAuthorizer(true)
		for _, who := range []string{"alice", "bob", "carol"} {
			if r.IntN(2) == 0 {
				s.AddACL(rule(who, "READ", "t"))
			}
		}
	}
	if r.IntN(2) == 0 {
		if err := b.SetTopicConfig("made", "retention.ms", "7"); err != nil {
			tt.Fatal(err)
		}
	}
	own, err := a.TopicConfig("t")
	if err != nil {
		tt.Fatal(err)
	}
	rules := a.ListACLs()
	plan := sees(tt, home, "t", "made")

	goesHome(tt, home, plan)
	named := map[place]bool{}
	for _, x := range plan.Groups.Places {
		at := place{x.Group, mirror.TopicPartition{Topic: x.Topic, Partition: x.Partition}}
		named[at] = true
		if to, known := x.At.Value(); known {
			a.at(x.Group, at.tp, to)
		} else if !x.Stays {
			tt.Errorf("%+v", x)
		} else {
			a.at(x.Group, at.tp, mirror.Unknown)
		}
		was, had := before[at]
		if here, has := x.Here.Value(); has != had || here != was {
			tt.Errorf("%+v was at %d, %v", x, was, had)
		}
	}
	for at, offset := range before {
		if !named[at] {
			a.at(at.group, at.tp, offset)
			tt.Errorf("%v is in no plan", at)
		}
	}
	planned := map[string]map[string]string{"t": maps.Clone(own), "made": {}}
	for _, x := range plan.Settings.Changes {
		if have, is := planned[x.Topic][x.Name]; is != (x.Here != nil) || is && have != *x.Here {
			tt.Errorf("%+v: it was %q", x, have)
		}
		if x.To != nil {
			if planned[x.Topic] == nil {
				planned[x.Topic] = map[string]string{}
			}
			planned[x.Topic][x.Name] = *x.To
		} else {
			delete(planned[x.Topic], x.Name)
		}
	}
	for topic, want := range planned {
		got, err := a.TopicConfig(topic)
		if err != nil || len(got)+len(want) > 0 && !maps.Equal(got, want) {
			tt.Errorf("topic %s has %v (%v), planned %v", topic, got, err, want)
		}
	}
	var after, want []string
	for _, x := range a.ListACLs() {
		after = append(after, x.String())
	}
	for _, x := range rules {
		want = append(want, x.String())
	}
	want = append(slices.DeleteFunc(want, func(s string) bool { return slices.Contains(plan.Rules.Removes, s) }), plan.Rules.Makes...)
	slices.Sort(after)
	slices.Sort(want)
	if !slices.Equal(after, want) {
		tt.Errorf("rules %q\nplanned %q", after, want)
	}
}

// TestAFailbacksPlanSaysWhyNothingIsKnown: of what could not be asked, and of nothing else.
func TestAFailbacksPlanSaysWhyNothingIsKnown(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b, home := wentHome(tt)
		b.SetAuthorizer(true)
		a.SetAuthorizer(true)
		b.AddACL(rule("alice", "READ", "t"))
		if err := b.SetTopicConfig("t", "retention.ms", "7"); err != nil {
			tt.Fatal(err)
		}
		failing := map[string]bool{}
		for _, s := range []*side{a, b} {
			s.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
				if failing[c.Operation] {
					return errors.New("coordinator not available")
				}
				return nil
			}})
		}
		for _, x := range []struct{ operation, line string }{
			{"Metadata.Groups", "GROUPS: unknown: listing the source's groups: "},
			{"Metadata.GroupOffsets", "GROUPS: unknown: reading the offsets of the source's groups: "},
			{"Metadata.TopicConfigs", "TOPIC SETTINGS: unknown: reading topic settings at the source: "},
			{"Metadata.ACLs", "ACCESS RULES: unknown: reading access rules at the source: "},
		} {
			b.commit("g", t(0), 7)
			clear(failing)
			failing[x.operation] = true
			plan := sees(tt, home, "t")
			text := plan.String()
			expectWords(tt, text, x.line, "coordinator not available")
			if n := strings.Count(text, ": unknown: "); n != 1 || plan.Severity != mirror.SeverityLoses || plan.Dropped != 10 {
				tt.Errorf("%s: %d parts are unknown, severity %s\n%s", x.operation, n, plan.Severity, text)
			}
		}
		clear(failing)
		expectWords(tt, sees(tt, home, "t").String(), "GROUPS: 1 goes on further", "TOPIC SETTINGS: 1 changes;", "t retention.ms: (the cluster's default) → 7\n",
			"ACCESS RULES: 1 is made;", "made: ALLOW User:alice to READ on LITERAL TOPIC t from host *\n")
	})
}

// TestAFailbacksPlanLeavesOutWhatIsCopiedAlready: what it follows, it follows with or without the plan.
func TestAFailbacksPlanLeavesOutWhatIsCopiedAlready(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b, home := wentHome(tt)
		goesHome(tt, home, sees(tt, home, "t"))
		b.commit("g", t(0), 7)
		if err := b.SetTopicConfig("t", "retention.ms", "7"); err != nil {
			tt.Fatal(err)
		}
		if plan := sees(tt, home); len(plan.Groups.Places) != 0 || len(plan.Settings.Changes) != 0 || plan.Groups.Seen.IsZero() || plan.Settings.Seen.IsZero() {
			tt.Errorf("%s", plan)
		}
		a.at("g", t(0), -1)
	})
}
