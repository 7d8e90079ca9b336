package mirror

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

var rewritePlans = flag.Bool("rewrite", false, "write testdata/plans anew")

// golden compares got with testdata/plans/name, or writes it under -rewrite.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "plans", name)
	if *rewritePlans {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s (go test -run %s -rewrite, and read the diff)\n--- want\n%s\n--- got\n%s", path, t.Name(), want, got)
	}
}

var planTime = time.Date(2026, 3, 14, 3, 12, 44, 0, time.UTC)

func mirrored(topic string, partition int32, replicated, sourceEnd int64, ago time.Duration) PartitionStatus {
	return PartitionStatus{
		Mirror: "east", Topic: topic, Partition: partition, State: statemachine.Mirroring, Want: statemachine.WantMirroring, Episode: 1,
		End: replicated, Replicated: replicated, LastStable: replicated, LeaderEpoch: 8, LastEpoch: 5, ResetAt: Unknown, HighestProducerID: Unknown,
		SourceEnd: sourceEnd, SourceSeen: planTime.Add(-ago), LagTime: ago,
	}
}

func eastSnapshot(partitions ...PartitionStatus) Snapshot {
	s := Snapshot{Mirror: "east", SourceClusterID: "q1Sh-9_ISia_zwGINzRvyQ", DestinationClusterID: "MkU3OEVBNTcwNTJENDM2Qk", Taken: planTime, Partitions: partitions}
	for _, p := range partitions {
		if !slices.ContainsFunc(s.Topics, func(t TopicSnapshot) bool { return t.Topic == p.Topic }) {
			s.Topics = append(s.Topics, TopicSnapshot{Topic: p.Topic, MirrorName: "east"})
		}
	}
	return s
}

// deadSource is the night for which plans are made: the source does not answer any more, and each partition knows something else of it.
func deadSource() Snapshot {
	upToDate := mirrored("orders", 0, 1000, 1000, 14*time.Minute)
	behind := mirrored("orders", 1, 900, 1020, 14*time.Minute)
	behind.State, behind.Reason, behind.RetryAttempt = statemachine.Failed, "source unreachable: dial tcp 10.0.0.1:9092: connect: connection refused", 7
	behind.LagTime, behind.OffsetBytes = 15*time.Minute, 80
	never := mirrored("orders", 2, 40, 0, 0)
	never.SourceSeen, never.SourceEnd, never.State, never.Unproved, never.LagTime = time.Time{}, Unknown, statemachine.Preparing, true, Unknown
	open := mirrored("payments", 0, 6, 7, 2*time.Hour+10*time.Minute)
	open.InFlight = []Transaction{{ProducerID: 7, ProducerEpoch: 0, FirstOffset: 0, LastOffset: 4}}
	open.LastStable = 0
	done := mirrored("done", 0, 61, 60, 26*time.Hour)
	done.State, done.Want, done.Owner = statemachine.Stopped, statemachine.WantStopped, OwnerOpen
	done.LME = &statemachine.LastMirrorEpoch{Epoch: 5, Offset: 58, Episode: 1}
	s := eastSnapshot(open, never, behind, upToDate, done)
	s.SourceError = "dial tcp 10.0.0.1:9092: connect: connection refused"
	for i := range s.Partitions {
		s.Partitions[i].LagUnknown = planTime.Add(-14 * time.Minute)
	}
	s.Topics = append(s.Topics, TopicSnapshot{Topic: "leaderless", MirrorName: "east", Reason: "opening the log of leaderless-0: no leader"})
	return s
}

func deadSourcePlan() FailoverPlan {
	return PlanFailover(deadSource(), FailoverOptions{Topics: []string{"orders", "payments", "not-mirrored", "done", "leaderless", "orders"}})
}

func liveSnapshot() Snapshot {
	behind := mirrored("orders", 1, 900, 1020, 2*time.Second)
	behind.End = 910
	hole := mirrored("orders", 2, 500, 503, 1500*time.Millisecond)
	hole.NothingLeft = true
	lost := mirrored("clicks", 0, 4000, 4000, 0)
	lost.LostFrom, lost.LostTo, lost.NoEpochChecks = 100, 150, true
	stopping := mirrored("audit", 0, 70, 70, time.Second)
	stopping.State, stopping.Want, stopping.Step = statemachine.Stopping, statemachine.WantStopped, "AppendAborts"
	closed := mirrored("audit", 1, 71, 70, 48*time.Hour)
	closed.State, closed.Want, closed.LME = statemachine.Stopped, statemachine.WantStopped, &statemachine.LastMirrorEpoch{Epoch: 5, Offset: 70, Episode: 1}
	waiting := mirrored("audit", 2, 90, 95, 3*time.Second)
	waiting.State, waiting.Reason = statemachine.Failed, "starting would drop the destination's records [80, 90)"
	waiting.Unproved, waiting.NeedsConsent = true, &Consent{Partition: 2, From: 80, To: 90, Episode: 1}
	foreign := mirrored("audit", 3, 10, 10, time.Second)
	foreign.Owner = OwnerForeign
	log := mirrored("audit", 4, 3, 10, time.Second)
	log.State, log.LME = statemachine.Failed, &statemachine.LastMirrorEpoch{Epoch: 5, Offset: 10, Episode: 1}
	return eastSnapshot(mirrored("orders", 0, 1000, 1000, 100*time.Millisecond), behind, hole, lost, stopping, closed, waiting, foreign, log)
}

func planPartition(t *testing.T, p FailoverPlan, topic string, partition int32) FailoverPartition {
	t.Helper()
	i := slices.IndexFunc(p.Partitions, func(x FailoverPartition) bool { return x.Topic == topic && x.Partition == partition })
	if i < 0 {
		t.Fatalf("the plan does not have %s-%d", topic, partition)
	}
	return p.Partitions[i]
}

func TestFailoverPlanTexts(t *testing.T) {
	safe := PlanFailover(eastSnapshot(mirrored("orders", 0, 1000, 1000, time.Second), mirrored("orders", 1, 0, 0, 0)), FailoverOptions{})
	done := deadSource()
	for name, plan := range map[string]FailoverPlan{
		"failover-dead-source":  deadSourcePlan(),
		"failover-live-source":  PlanFailover(liveSnapshot(), FailoverOptions{}),
		"failover-safe":         safe,
		"failover-already-done": PlanFailover(done, FailoverOptions{Topics: []string{"done"}}),
		"failover-nothing":      PlanFailover(eastSnapshot(), FailoverOptions{}),
		"failover-groups":       groupsPlan(),
		"failover-torn":         PlanFailover(tornSnapshot(), FailoverOptions{}),
		"failover-torn-refused": PlanFailover(tornSnapshot(), FailoverOptions{Torn: TornRefuse}),
		"failover-cut":          PlanFailover(cutSnapshot(true), FailoverOptions{Torn: TornCut, MaxGiveUp: 100, CutReaders: true}),
		"failover-cut-refused":  PlanFailover(cutSnapshot(true), FailoverOptions{Torn: TornCut}),
		"failover-cut-none":     PlanFailover(cutSnapshot(false), FailoverOptions{Torn: TornCut, MaxGiveUp: 80}),
	} {
		golden(t, name+".txt", []byte(plan.String()))
		b, err := plan.JSON()
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", b)
		var back FailoverPlan
		if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, plan) {
			t.Errorf("%s: JSON gives back another plan (%v)\n%+v\n%+v", name, err, back, plan)
		}
	}
}

func TestAcceptance2_11FailoverPlanOfPartOfASet(t *testing.T) {
	s := eastSnapshot(mirrored("bills", 0, 10, 10, time.Second), mirrored("carts", 0, 10, 10, time.Second), mirrored("invoices", 0, 10, 10, time.Second))
	s.Sets = map[string][]string{"billing": {"bills", "invoices"}, "shop": {"carts"}}
	for _, tc := range []struct {
		what     string
		o        FailoverOptions
		stopped  string // beforehand
		severity Severity
		words    []string
	}{
		{"a part", FailoverOptions{Topics: []string{"bills", "carts"}}, "", SeverityRefused, []string{"REFUSED: ", "billing", "bills would be stopped without invoices"}},
		{"a part that is meant", FailoverOptions{Topics: []string{"bills"}, Partial: true}, "", SeveritySafe, []string{"PARTIAL: ", "bills would be stopped without invoices"}},
		{"all", FailoverOptions{}, "", SeveritySafe, nil},
		{"the rest", FailoverOptions{Topics: []string{"bills"}}, "invoices", SeveritySafe, nil},
		{"what is stopped already", FailoverOptions{Topics: []string{"bills"}}, "bills", SeveritySafe, nil},
	} {
		now := s
		now.Topics = slices.Clone(s.Topics)
		for i := range now.Topics {
			if now.Topics[i].Topic == tc.stopped {
				now.Topics[i].MirrorName = "east.stopped"
			}
		}
		plan := PlanFailover(now, tc.o)
		text := plan.String()
		if plan.Severity != tc.severity || len(plan.Torn) != min(len(tc.words), 1) || plan.Partial != tc.o.Partial {
			t.Errorf("%s: severity %s, torn %q", tc.what, plan.Severity, plan.Torn)
		}
		for _, word := range tc.words {
			if !strings.Contains(text, word) {
				t.Errorf("%s: %q is missing in\n%s", tc.what, word, text)
			}
		}
		if tc.words == nil && (strings.Contains(text, "REFUSED") || strings.Contains(text, "PARTIAL")) {
			t.Errorf("%s:\n%s", tc.what, text)
		}
	}
}

func TestFailoverPlanIsAPureFunction(t *testing.T) {
	s := liveSnapshot()
	first := PlanFailover(s, FailoverOptions{}).String()
	slices.Reverse(s.Partitions)
	slices.Reverse(s.Topics)
	if again := PlanFailover(s, FailoverOptions{}).String(); again != first {
		t.Errorf("the order of the snapshot reaches the plan:\n%s\n%s", first, again)
	}
	s.Taken = s.Taken.In(time.FixedZone("elsewhere", 3600)).Add(time.Hour)
	if later := PlanFailover(s, FailoverOptions{}); later.Severity == SeveritySafe || !strings.Contains(later.String(), "last seen 1h ago") && !strings.Contains(later.String(), "last seen 60m ago") {
		t.Errorf("an hour later the same numbers count as fresh:\n%s", later)
	}
}

// bareNumbers lists the cells of a rendered plan's loss column that show a number as if it were known.
func bareNumbers(plan string) []string {
	bare := regexp.MustCompile(`\d`)
	qualified := regexp.MustCompile(`^unknown, at least \d+$`)
	var found []string
	column := -1
	for _, line := range strings.Split(plan, "\n") {
		if i := strings.Index(line, "LOSS  "); i >= 0 && strings.HasPrefix(line, "PARTITION") {
			column = i
			continue
		}
		if line == "" {
			column = -1
		}
		if column < 0 {
			continue
		}
		cell, _, _ := strings.Cut(line[min(column, len(line)):], "  ")
		if bare.MatchString(cell) && !qualified.MatchString(cell) {
			found = append(found, cell)
		}
	}
	return found
}

func TestDeadSourceShowsNoBareNumberInTheLossColumn(t *testing.T) {
	plan := deadSourcePlan()
	text := plan.String()
	if found := bareNumbers(text); len(found) > 0 {
		t.Errorf("%q in\n%s", found, text)
	}
	if !strings.Contains(text, "LOSS") {
		t.Error("there is no loss column")
	}
	for _, p := range plan.Partitions {
		if p.Outcome == OutcomeStop && (p.Severity != SeverityUnknown || !strings.HasPrefix(p.Loss.String(), "unknown")) {
			t.Errorf("%s-%d: severity %s, loss %s, of a source that is dead", p.Topic, p.Partition, p.Severity, p.Loss)
		}
	}
	if plan.Loss.String() != "unknown, at least 121" || plan.Severity != SeverityRefused {
		t.Errorf("whole plan: loss %s, severity %s", plan.Loss, plan.Severity)
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "LOSS UNKNOWN") && !strings.Contains(line, "AT LEAST 121 OFFSETS") {
			t.Errorf("the verdict gives a number without a word of doubt: %s", line)
		}
	}
}

func TestTheSearchForBareNumbersFindsThem(t *testing.T) {
	live := PlanFailover(liveSnapshot(), FailoverOptions{}).String()
	if found := bareNumbers(live); !slices.Equal(found, []string{"120"}) {
		t.Errorf("%q in\n%s", found, live)
	}
	spoiled := strings.Replace(deadSourcePlan().String(), "unknown, at least 120", "120                  ", 1)
	if len(bareNumbers(spoiled)) != 1 {
		t.Errorf("nothing found in\n%s", spoiled)
	}
}

func TestEveryNumberOfTheSourceHasAnAge(t *testing.T) {
	aged := regexp.MustCompile(`^(unknown|\d+, (measured|last seen) (<1s ago|\d+[smhd] ago))$`)
	for _, plan := range []FailoverPlan{deadSourcePlan(), PlanFailover(liveSnapshot(), FailoverOptions{})} {
		for _, p := range plan.Partitions {
			if got := p.seen(plan.Taken); !aged.MatchString(got) {
				t.Errorf("%s-%d: %q", p.Topic, p.Partition, got)
			}
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "<1s ago", 999 * time.Millisecond: "<1s ago", time.Second: "1s ago", 119 * time.Second: "119s ago", 2 * time.Minute: "2m ago", 119 * time.Minute: "119m ago",
		2 * time.Hour: "2h ago", 47 * time.Hour: "47h ago", 48 * time.Hour: "2d ago", 400 * 24 * time.Hour: "400d ago",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%s) = %q, want %q", d, got, want)
		}
	}
}

func TestFailoverPlanSeverities(t *testing.T) {
	for what, tc := range map[string]struct {
		change   func(*PartitionStatus, *Snapshot)
		severity Severity
		loss     string
	}{
		"up to date, measured now":            {func(p *PartitionStatus, s *Snapshot) {}, SeveritySafe, "none"},
		"ahead of what was measured":          {func(p *PartitionStatus, s *Snapshot) { p.End, p.Replicated = 1010, 1010 }, SeveritySafe, "none"},
		"behind, measured now":                {func(p *PartitionStatus, s *Snapshot) { p.SourceEnd = 1100 }, SeverityLoses, "100"},
		"not replicated":                      {func(p *PartitionStatus, s *Snapshot) { p.Replicated = 990 }, SeverityLoses, "10"},
		"nothing left to read":                {func(p *PartitionStatus, s *Snapshot) { p.SourceEnd, p.NothingLeft = 1100, true }, SeveritySafe, "none"},
		"nothing left, not replicated":        {func(p *PartitionStatus, s *Snapshot) { p.SourceEnd, p.NothingLeft, p.Replicated = 1100, true, 995 }, SeverityLoses, "5"},
		"measured too long ago":               {func(p *PartitionStatus, s *Snapshot) { p.SourceSeen = planTime.Add(-11 * time.Second) }, SeverityUnknown, "unknown, none missing when last seen"},
		"lag not measurable":                  {func(p *PartitionStatus, s *Snapshot) { p.LagUnknown = planTime }, SeverityUnknown, "unknown, none missing when last seen"},
		"source does not answer":              {func(p *PartitionStatus, s *Snapshot) { s.SourceError = "refused" }, SeverityUnknown, "unknown, none missing when last seen"},
		"source does not answer, was behind":  {func(p *PartitionStatus, s *Snapshot) { s.SourceError, p.SourceEnd = "refused", 1001 }, SeverityUnknown, "unknown, at least 1"},
		"never measured":                      {func(p *PartitionStatus, s *Snapshot) { p.SourceSeen = time.Time{} }, SeverityUnknown, "unknown"},
		"end unknown":                         {func(p *PartitionStatus, s *Snapshot) { p.SourceEnd = Unknown }, SeverityUnknown, "unknown"},
		"another owner":                       {func(p *PartitionStatus, s *Snapshot) { p.Owner = OwnerForeign }, SeverityRefused, "unknown"},
		"decision 19, destination log lost":   {func(p *PartitionStatus, s *Snapshot) { p.LME = &statemachine.LastMirrorEpoch{Offset: 1001, Episode: 1} }, SeverityRefused, "unknown"},
		"an earlier episode's end is no loss": {func(p *PartitionStatus, s *Snapshot) { p.LME = &statemachine.LastMirrorEpoch{Offset: 1001, Episode: 0} }, SeveritySafe, "none"},
	} {
		p := mirrored("t", 0, 1000, 1000, time.Second)
		s := eastSnapshot()
		tc.change(&p, &s)
		s.Partitions = []PartitionStatus{p}
		plan := PlanFailover(s, FailoverOptions{})
		got := plan.Partitions[0]
		if got.Severity != tc.severity || plan.Severity != tc.severity || got.Loss.String() != tc.loss {
			t.Errorf("%s: severity %s (plan %s), loss %q; want %s, %q", what, got.Severity, plan.Severity, got.Loss, tc.severity, tc.loss)
		}
	}
	fresh := PlanFailover(eastSnapshot(mirrored("t", 0, 1000, 1000, 20*time.Second)), FailoverOptions{Fresh: time.Minute})
	if fresh.Severity != SeveritySafe {
		t.Errorf("within Fresh: %s", fresh.Severity)
	}
}

func TestDecision4EveryStateOfAMemberIsPlanned(t *testing.T) {
	for _, state := range everyState {
		p := mirrored("t", 0, 1000, 1000, time.Second)
		p.State = state
		if state == statemachine.Stopped {
			p.Owner = OwnerOpen
		}
		plan := PlanFailover(eastSnapshot(p), FailoverOptions{Topics: []string{"t"}})
		want := OutcomeStop
		if state == statemachine.Stopped {
			want = OutcomeDone
		}
		if plan.Topics[0].Outcome != want || plan.Partitions[0].Outcome != want || plan.Severity != SeveritySafe {
			t.Errorf("%s: %+v", state, plan)
		}
	}
}

func TestF83FailoverPlanOfFiftyTopicsWithTheSourceGone(t *testing.T) {
	s := eastSnapshot()
	s.SourceError = "i/o timeout"
	topics := []string{"not-mirrored", "already"}
	done := mirrored("already", 0, 5, 4, time.Hour)
	done.State, done.Owner, done.LME = statemachine.Stopped, OwnerOpen, &statemachine.LastMirrorEpoch{Offset: 4}
	s.Partitions = append(s.Partitions, done)
	for i := range 47 {
		name := fmt.Sprintf("t%02d", i)
		topics = append(topics, name)
		s.Partitions = append(s.Partitions, mirrored(name, 0, 10, 12, time.Hour))
	}
	topics = append(topics, "leaderless")
	s.Topics = append(s.Topics, TopicSnapshot{Topic: "leaderless", MirrorName: "east", Reason: "partition 0 has no leader"})
	plan := PlanFailover(s, FailoverOptions{Topics: topics})
	if len(plan.Topics) != 50 {
		t.Fatalf("%d topics", len(plan.Topics))
	}
	counts := map[Outcome]int{}
	for i, x := range plan.Topics {
		if x.Topic != topics[i] {
			t.Errorf("topic %d is %q, want %q", i, x.Topic, topics[i])
		}
		counts[x.Outcome]++
	}
	if !reflect.DeepEqual(counts, map[Outcome]int{OutcomeStop: 47, OutcomeDone: 1, OutcomeRefused: 2}) {
		t.Errorf("%v", counts)
	}
	if x := plan.Topics[0]; x.Code != TopicNotInClusterMirror || !strings.Contains(x.Reason, "not mirrored") {
		t.Errorf("not a member: %+v", x)
	}
	if x := plan.Topics[1]; x.Outcome != OutcomeDone || planPartition(t, plan, "already", 0).MirrorEnd != KnownNumber(4) {
		t.Errorf("already done: %+v", x)
	}
	if x := plan.Topics[49]; x.Code != OK || !strings.Contains(x.Reason, "no leader") {
		t.Errorf("without a leader: %+v", x)
	}
}

func TestF46OpenTransactionsAreListedWithProducerEpochAndRange(t *testing.T) {
	p := planPartition(t, deadSourcePlan(), "payments", 0)
	if !reflect.DeepEqual(p.Aborts, []PlannedTransaction{{ProducerID: 7, ProducerEpoch: 0, FirstOffset: 0, LastOffset: 4}}) {
		t.Errorf("%+v", p.Aborts)
	}
	if p.OpensAt != KnownNumber(8) { // ABORT at 6, MIRROR_PID_RESET at 7
		t.Errorf("opens at %s", p.OpensAt)
	}
	if text := deadSourcePlan().String(); !strings.Contains(text, "payments-0: ABORT for producer 7 epoch 0, open since 0: 0..4 stay hidden") {
		t.Error(text)
	}
}

func TestF54PlanNamesTheProducerThatHoldsTheLastStableOffset(t *testing.T) {
	p := mirrored("t", 0, 1663, 1663, time.Second)
	p.LastStable = 200
	p.InFlight = []Transaction{{ProducerID: 12, FirstOffset: 900, LastOffset: 901}, {ProducerID: 9, FirstOffset: 200, LastOffset: 1600}}
	x := PlanFailover(eastSnapshot(p), FailoverOptions{}).Partitions[0]
	if want := "read_committed readers stand at 200, held by producer 9; the stop ends that"; !slices.Contains(x.Reasons, want) || x.MirrorEnd != KnownNumber(1663) || x.Severity != SeveritySafe {
		t.Errorf("%+v", x)
	}
	p.LastStable, p.InFlight = 1663, nil
	if x := PlanFailover(eastSnapshot(p), FailoverOptions{}).Partitions[0]; len(x.Reasons) != 0 {
		t.Errorf("nothing is held: %q", x.Reasons)
	}
}

func TestF05FirstOwnOffsetLiesBeyondTheHoleAtTheSourcesEnd(t *testing.T) {
	p := planPartition(t, PlanFailover(liveSnapshot(), FailoverOptions{}), "orders", 2)
	if p.OpensAt != KnownNumber(504) {
		t.Errorf("opens at %s; 500 to 502 were used at the source", p.OpensAt)
	}
}

func TestPlansShareNothingWithTheSnapshot(t *testing.T) {
	s := deadSource()
	plan := PlanFailover(s, FailoverOptions{})
	before, _ := plan.JSON()
	s.Partitions[0].InFlight[0].ProducerID = 99
	s.Topics[0].Topic = "changed"
	if after, _ := plan.JSON(); !bytes.Equal(before, after) {
		t.Error("a change of the snapshot changes the plan")
	}
}

func TestNumber(t *testing.T) {
	for _, n := range []Number{{}, KnownNumber(0), KnownNumber(7), KnownNumber(1 << 62), KnownNumber(Unknown)} {
		b, err := json.Marshal(n)
		var back Number
		if err != nil || json.Unmarshal(b, &back) != nil || back != n {
			t.Errorf("%v: %s %v", n, b, back)
		}
	}
	if v, ok := KnownNumber(Unknown).Value(); ok || v != 0 || KnownNumber(Unknown).String() != "unknown" {
		t.Error("an unknown number is known")
	}
	for _, bad := range []string{`-1`, `"7"`, `1.5`, `{}`} {
		var n Number
		if json.Unmarshal([]byte(bad), &n) == nil {
			t.Errorf("%s is read as %v", bad, n)
		}
	}
}
