package mirror

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestAcceptance4_10LossInBytesAndTime(t *testing.T) {
	behind := mirrored("orders", 1, 900, 1020, 2*time.Second)
	behind.OffsetBytes, behind.LagTime = 80, 7*time.Second
	plan := PlanFailover(eastSnapshot(mirrored("orders", 0, 1000, 1000, time.Second), behind), FailoverOptions{})
	checkPlan(t, plan, "LOSS IN BYTES AND TIME: about 9600 bytes that the source was seen to have 2s ago at the longest; what was written since orders-1 had everything, 7s ago\n")
	if got := planPartition(t, plan, "orders", 1); got.LossBytes != KnownNumber(9600) || !got.InStep.Equal(planTime.Add(-7*time.Second)) {
		t.Errorf("%+v", got)
	}
	checkPlan(t, deadSourcePlan(), "LOSS IN BYTES AND TIME: at least about 9600 bytes that the source was seen to have 2h ago at the longest; what was written since payments-0 had everything, 2h ago; "+
		"1 copy is never known to have had everything\n")
	doesNotSay(t, PlanFailover(eastSnapshot(mirrored("orders", 0, 1000, 1000, time.Second)), FailoverOptions{}), "LOSS IN BYTES AND TIME")
	copied := mirrored("t", 0, 10, 30, time.Second) // by an earlier process: what an offset weighs is not known
	copied.LagTime = Unknown
	doesNotSay(t, PlanFailover(eastSnapshot(copied), FailoverOptions{}), "LOSS IN BYTES AND TIME")
}

// doesNotSay says that a plan does not hold these words.
func doesNotSay(t *testing.T, p FailoverPlan, words string) {
	t.Helper()
	if text := p.String(); strings.Contains(text, words) {
		t.Errorf("the plan says %q:\n%s", words, text)
	}
}

func groupAt(name, topic string, source int64) GroupStatus {
	return GroupStatus{Group: name, Seen: planTime.Add(-12 * time.Second), Partitions: []GroupPartitionStatus{{TopicPartition: TopicPartition{topic, 0}, Source: source, Here: source, Written: source}}}
}

func TestAcceptance4_10AgeOfTheLastGroupSyncAndWhatEachGroupReadsAgain(t *testing.T) {
	s := eastSnapshot(mirrored("orders", 0, 1000, 1000, time.Second), mirrored("bills", 0, 30, 30, time.Second))
	s.Groups, s.GroupsSeen = []GroupStatus{groupAt("b", "bills", 20), groupAt("at-the-end", "bills", 30), groupAt("a", "orders", 998), groupAt("c", "orders", 700)}, planTime.Add(-12*time.Second)
	plan := PlanFailover(s, FailoverOptions{})
	checkPlan(t, plan, "GROUPS: 4 in step; looked at 12s ago\n", " At most they read again: c 300 offsets, b 10 offsets, a 2 offsets.\n")
	s.GroupsSeen = time.Time{}
	checkPlan(t, PlanFailover(s, FailoverOptions{}), "GROUPS: 4 in step\n")
}

func TestAcceptance4_10StreamsApplicationsAreFound(t *testing.T) {
	s := eastSnapshot(mirrored("orders", 0, 1000, 1000, time.Second), mirrored("app-totals-changelog", 0, 30, 30, time.Second), mirrored("app-by-key-repartition", 0, 30, 30, time.Second),
		mirrored("other-x-changelog", 0, 30, 30, time.Second))
	s.Groups = []GroupStatus{groupAt("app", "orders", 20)}
	const line = "STREAMS app: its state may be ahead of its input after the cut, or behind it: reset or accept (app-by-key-repartition, app-totals-changelog)\n"
	checkPlan(t, PlanFailover(s, FailoverOptions{}), line)
	doesNotSay(t, PlanFailover(s, FailoverOptions{Topics: []string{"orders"}}), "STREAMS app")
	doesNotSay(t, PlanFailover(s, FailoverOptions{}), "STREAMS other")
	d := Description{Mirror: "east", Taken: planTime, Groups: s.Groups}
	for _, topic := range []string{"orders", "app-totals-changelog", "app-by-key-repartition"} {
		d.Topics = append(d.Topics, DescribedTopic{Topic: topic, MirrorName: "east", Partitions: []DescribedPartition{{}}})
	}
	if text := d.GroupsOf("orders", "app-totals-changelog", "app-by-key-repartition"); !strings.Contains(text, line) {
		t.Errorf("a dry run does not say it:\n%s", text)
	}
}

// surrounded is what a process had gathered twenty seconds before planTime.
func surrounded() Surroundings {
	seen := planTime.Add(-20 * time.Second)
	return Surroundings{
		TransactionalIDs: TransactionalIDs{Count: 12, Open: 1, IDs: []TransactionalID{{"payments-tx", 7, "Ongoing"}, {"billing-tx", 9, "Empty"}}, Seen: seen},
		NotMirrored:      seenNames([]string{"f", "e", "d", "c", "b", "a"}, seen),
		MissingRights:    seenNames([]string{"Read on 1 group is not allowed: its offsets are not followed (billing)"}, seen),
		NextProducerID:   SeenNumber{KnownNumber(5000), seen},
	}
}

func TestAcceptance4_10WhatWasGatheredWhileTheSourceAnswered(t *testing.T) {
	s := deadSource()
	s.Surroundings = surrounded()
	s.Surroundings.NotFollowed = []string{"access rules (this source does not tell its access rules)"}
	for i := range s.Partitions {
		s.Partitions[i].HighestProducerID = 4711
	}
	plan := PlanFailover(s, FailoverOptions{})
	checkPlan(t, plan, "TRANSACTIONAL IDS at the source: 12, 1 in a transaction (payments-tx), seen 20s ago; their producers begin anew at the destination\n",
		"PRODUCER IDS: up to 4711 in the copies, from 5000 on at the destination, measured 20s ago: none is given out twice\n",
		"NOT MIRRORED: 6 topics of the source (a, b, c, d, e and 1 more), seen 20s ago; access rules (this source does not tell its access rules); quotas, users and their passwords, delegation tokens\n",
		"RIGHTS MISSING at the destination, looked at 20s ago; preflight has the commands: Read on 1 group is not allowed: its offsets are not followed (billing)\n",
		"payments-0: ABORT for producer 7 epoch 0 (transactional id payments-tx), open since 0: ")
	s.Surroundings.NextProducerID.Number = KnownNumber(4711)
	checkPlan(t, PlanFailover(s, FailoverOptions{}), "PRODUCER IDS OVERLAP: up to 4711 in the copies, from 4711 on at the destination, measured 20s ago; the stop opens nothing before the destination is above them\n")
	done := PlanFailover(s, FailoverOptions{Topics: []string{"done"}})
	for _, words := range []string{"TRANSACTIONAL IDS", "PRODUCER IDS", "NOT MIRRORED", "RIGHTS MISSING"} {
		doesNotSay(t, done, words) // nothing is left to stop
	}
	s.Surroundings = Surroundings{TransactionalIDs: TransactionalIDs{Error: "no broker answers"}}
	bare := PlanFailover(s, FailoverOptions{})
	checkPlan(t, bare, "TRANSACTIONAL IDS at the source: unknown: no broker answers\n", "NOT MIRRORED: quotas, users and their passwords, delegation tokens\n")
	for _, words := range []string{"PRODUCER IDS", "RIGHTS MISSING"} {
		doesNotSay(t, bare, words)
	}
}

func TestAcceptance4_12ThePlanThatIsKeptIsSmallAndShownWhenTheSourceIsGone(t *testing.T) {
	s := liveSnapshot()
	s.Surroundings = Surroundings{}
	var ids []TransactionalID
	var names []string
	for i := range 10_000 {
		name := strings.Repeat("x", 249) + fmt.Sprint(i)
		names = append(names, name)
		ids = append(ids, TransactionalID{seenWord(name), int64(i), "Ongoing"})
		s.Partitions = append(s.Partitions, mirrored(fmt.Sprintf("many-%d", i), 0, 5, 5, time.Second))
	}
	s.Surroundings.NotMirrored, s.Surroundings.MissingRights = seenNames(names, planTime), seenNames(names, planTime)
	s.Surroundings.TransactionalIDs = TransactionalIDs{Count: len(ids), Open: len(ids), IDs: ids[:mostTransactionalIDs], Seen: planTime}
	plan := PlanFailover(s, FailoverOptions{})
	kept := plan.kept()
	b, err := json.Marshal(kept)
	if err != nil || len(b) > 40_000 {
		t.Errorf("%d bytes (%v)", len(b), err)
	}
	var back KeptPlan
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(&back, kept) {
		t.Errorf("JSON gives back another one (%v)\n%+v\n%+v", err, back, kept)
	}

	s = eastSnapshot(mirrored("orders", 0, 1000, 1000, time.Second), mirrored("orders", 1, 990, 1000, time.Second))
	s.Partitions[1].OffsetBytes = 10
	s.Surroundings = surrounded()
	plan = PlanFailover(s, FailoverOptions{})
	node := DescribedNode{NodeReport: NodeReport{Owner: "o", Mirror: "east", Seen: planTime.Add(14 * time.Minute), Opened: planTime, SourceError: "refused", Kept: plan.kept()}}
	d := Description{Mirror: "east", Head: "h", Taken: planTime.Add(14 * time.Minute), Alive: true, Nodes: []DescribedNode{node},
		Topics: []DescribedTopic{{Topic: "orders", MirrorName: "east", Partitions: []DescribedPartition{{State: "MIRRORING"}}}}}
	const line = "LAST PLAN while the source answered, made 14m ago (2026-03-14 03:12:44 UTC): 2 partitions to stop, loss 10 offsets, about 100 bytes then, 0 open transactions to abort\n"
	if text := d.String(); !strings.Contains(text, line) {
		t.Errorf("the description of a dead source does not say it:\n%s", text)
	}
	before := d.BeforeStop("orders")
	for _, want := range []string{line, "TRANSACTIONAL IDS at the source: 12, 1 in a transaction (payments-tx), seen 14m ago", "NOT MIRRORED: 6 topics of the source (a, b, c, d, e and 1 more), seen 14m ago"} {
		if !strings.Contains(before, want) {
			t.Errorf("%q is missing before a stop:\n%s", want, before)
		}
	}
	if d.BeforeStop("others") != "" {
		t.Error("topics that are not there have something before a stop")
	}
	d.Nodes[0].SourceError = ""
	if strings.Contains(d.String()+d.BeforeStop("orders"), "LAST PLAN") {
		t.Error("an old plan is shown though the source answers")
	}
	d.Nodes[0].Silent, d.Alive = true, false // the process is gone too
	if !strings.Contains(d.String(), line) {
		t.Errorf("no process lives, and its last plan is not shown:\n%s", d)
	}
	d.Nodes[0].Kept.Taken = d.Taken.Add(time.Hour)
	if d.KeptPlan() != nil {
		t.Error("a plan of tomorrow")
	}
}

// TestAcceptance4_14NoNumberOfADeadSourceWithoutItsAge: in the plan, in what is shown before a stop, and in the report.
func TestAcceptance4_14NoNumberOfADeadSourceWithoutItsAge(t *testing.T) {
	s := deadSource()
	s.Surroundings = surrounded()
	for i := range s.Partitions {
		s.Partitions[i].HighestProducerID = 4711
	}
	s.Groups, s.GroupsSeen = []GroupStatus{groupAt("g", "orders", 7)}, planTime.Add(-12*time.Second)
	plan := PlanFailover(s, FailoverOptions{})
	text := plan.String()
	if found := bareNumbers(text); len(found) > 0 {
		t.Errorf("%q in\n%s", found, text)
	}
	aged := regexp.MustCompile(`ago\b|\bunknown\b`)
	lines := 0
	for line := range strings.Lines(text) {
		for _, about := range []string{"LOSS", "TRANSACTIONAL IDS", "PRODUCER IDS", "NOT MIRRORED", "RIGHTS MISSING", "GROUPS"} {
			if strings.HasPrefix(line, about) {
				lines++
				if !aged.MatchString(line) {
					t.Errorf("a number without its age: %s", line)
				}
			}
		}
	}
	if lines != 7 {
		t.Errorf("%d lines about the source, not 7:\n%s", lines, text)
	}

	d := Description{Taken: planTime.Add(time.Hour), Nodes: []DescribedNode{{NodeReport: NodeReport{Kept: plan.kept()}, Silent: true}},
		Topics: []DescribedTopic{{Topic: "orders", MirrorName: "east", Partitions: []DescribedPartition{{State: "MIRRORING"}}}}}
	for line := range strings.Lines(d.BeforeStop("orders")) {
		if !aged.MatchString(line) {
			t.Errorf("before a stop, a number without its age: %s", line)
		}
	}

	missing := Loss{Offsets: KnownNumber(120), AtLeast: true}
	report := FailoverReport{Mirror: "east", Began: planTime, Partitions: []FailoverResult{{Topic: "orders", Partition: 1, FinalOffset: 900, OpensAt: 901, ResetAt: 900, Missing: missing, SourceEnd: 1020, SourceSeen: planTime.Add(-14 * time.Minute)}}}.String()
	if !strings.Contains(report, "unknown, at least 120 (source end 1020 seen 14m ago)") {
		t.Errorf("the report tells a number without its age:\n%s", report)
	}
}
