package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/statemachine"
)

// west is what is known at the cluster that was the source once: some partitions parted, some did not, some could not be compared.
func west() Snapshot {
	at := func(topic string, partition int32, end int64) PartitionStatus {
		return PartitionStatus{Mirror: "west", Topic: topic, Partition: partition, TopicID: adminTopicID(topic), State: statemachine.Unknown, Episode: 1, Owner: OwnerOpen,
			End: end, Replicated: end, LeaderEpoch: 6, LastEpoch: 6, SourceEnd: 952, SourceSeen: planTime.Add(-time.Second)}
	}
	orders := at("orders", 0, 951)
	orders.NeedsConsent = &Consent{TopicID: adminTopicID("orders"), Partition: 0, From: 880, To: 951, Episode: 1}
	same := at("orders", 1, 900)
	grown := at("orders", 2, 960)
	grown.NeedsConsent = &Consent{TopicID: adminTopicID("orders"), Partition: 2, From: 900, To: 955, Episode: 1}
	payments := at("payments", 0, 7)
	payments.State, payments.Episode, payments.Reason = statemachine.Failed, 3, "starting would drop the destination's records [6, 7)"
	payments.NeedsConsent = &Consent{TopicID: adminTopicID("payments"), From: 6, To: 7, Episode: 3}
	fresh := at("fresh", 0, 40)
	fresh.NoEpochChecks = true
	fresh.NeedsConsent = &Consent{TopicID: adminTopicID("fresh"), From: 0, To: 40, Episode: 1}
	reverse := at("audit", 0, 12)
	reverse.State, reverse.Reason = statemachine.Failed, "mirror east at the source still mirrors audit-0 from here (MIRRORING): stop it there first"
	reverse.SourceSeen, reverse.SourceEnd = time.Time{}, Unknown
	running := at("audit", 1, 30)
	running.State = statemachine.Mirroring
	idle := at("audit", 2, 30)
	return Snapshot{
		Mirror: "west", SourceClusterID: "MkU3OEVBNTcwNTJENDM2Qk", DestinationClusterID: "q1Sh-9_ISia_zwGINzRvyQ", Taken: planTime,
		Topics:     []TopicSnapshot{{Topic: "orders"}, {Topic: "payments"}, {Topic: "fresh"}, {Topic: "audit"}, {Topic: "gone", Reason: "the cluster that took over does not have this topic"}},
		Partitions: []PartitionStatus{grown, same, orders, payments, fresh, reverse, running, idle},
		Evidence: []Evidence{
			{TopicPartition: TopicPartition{"orders", 0}, Compared: true, CommonPoint: 880, LME: 5, LMO: 900, Rounds: []EpochRound{{Ask: 5, Epoch: 5, End: 900, Boundary: 880}}, DropBytes: KnownNumber(12345)},
			{TopicPartition: TopicPartition{"orders", 1}, Compared: true, CommonPoint: 900, LME: 5, LMO: 900, Rounds: []EpochRound{{Ask: 5, Epoch: Unknown, End: Unknown, Boundary: 900}, {Ask: 4, Epoch: 4, End: 900, Boundary: 900}}},
			{TopicPartition: TopicPartition{"payments", 0}, Compared: true, CommonPoint: 6, LME: 0, LMO: 6, Disagreements: []Disagreement{{ProducerID: 7, ProducerEpoch: 0, CommitAt: 6}}, DropBytes: KnownNumber(78)},
			{TopicPartition: TopicPartition{"fresh", 0}, Compared: true, CommonPoint: 0, LME: Unknown, LMO: Unknown},
		},
	}
}

// follows has groups, settings and rules follow back.
func (s *Snapshot) follows() {
	place := func(group, topic string, here, source, at int64) PlanGroupPlace {
		return PlanGroupPlace{Group: group, Kind: OffsetGroup.String(), Topic: topic, Here: KnownNumber(here), Source: KnownNumber(source), At: KnownNumber(at), Place: KnownNumber(at), Seen: planTime}
	}
	active, share := place("billing", "orders", 930, 870, 930), place("workers", "payments", 3, 5, 5)
	active.Place, active.Stays, active.Skips, active.Behind, active.Reason = KnownNumber(870), true, KnownNumber(60), KnownNumber(0), skippedWords(skippedActive)
	share.Kind = ShareGroup.String()
	unread := place("lost", "orders", 12, Unknown, Unknown)
	unread.Reason = "it could not be read at the source"
	own := place("local", "orders", 40, Unknown, 40)
	own.Stays, own.Place, own.Reason = true, Number{}, skippedWords(skippedNoOffset)
	s.FailbackGroups.FollowLook = FollowLook{Seen: planTime, Left: []string{"some of the source's groups: broker 3: i/o timeout"}}
	s.FailbackGroups.addPlaces([]PlanGroupPlace{place("reports", "orders", 945, 700, 700), place("audit", "orders", 951, Unknown, 880), place("new", "payments", Unknown, 6, 6), share, active, unread, own,
		place("same", "payments", 6, 6, 6), place("ahead", "orders", 100, 990, 952)})
	week, day, compact := "604800000", "86400000", "compact"
	s.FailbackSettings = FailbackSettings{FollowLook: FollowLook{Seen: planTime}, Changes: []PlanSetting{{"orders", "cleanup.policy", nil, &compact}, {"orders", "retention.ms", &week, &day}, {"payments", "max.message.bytes", &day, nil}}}
	s.FailbackRules = FailbackRules{FollowLook: FollowLook{Seen: planTime}, Makes: []string{"ALLOW User:new to READ on LITERAL TOPIC orders from host *"}, Removes: []string{"ALLOW User:old to READ on LITERAL TOPIC orders from host *"}}
}

func failbackOf(topics ...string) FailbackPlan {
	return PlanFailback(west(), FailbackOptions{Topics: topics})
}

func TestFailbackPlanTexts(t *testing.T) {
	dead := west()
	dead.SourceError = "i/o timeout"
	poor, rich, follows := west(), west(), west()
	follows.follows()
	poor.MissingRights = &SeenNames{Count: 2, Names: []string{"Alter on topic orders", "Write on topic orders"}}
	rich.MissingRights = &SeenNames{}
	for name, plan := range map[string]FailbackPlan{
		"failback-all":         failbackOf(),
		"failback-ready":       failbackOf("payments", "fresh"),
		"failback-not-member":  failbackOf("payments", "nowhere"),
		"failback-dead-source": PlanFailback(dead, FailbackOptions{Topics: []string{"payments"}}),
		"failback-rights":      PlanFailback(poor, FailbackOptions{Topics: []string{"payments"}}),
		"failback-all-rights":  PlanFailback(rich, FailbackOptions{Topics: []string{"payments"}}),
		"failback-follows":     PlanFailback(follows, FailbackOptions{Topics: []string{"orders", "payments"}}),
		"failback-nothing":     PlanFailback(Snapshot{Mirror: "west", Taken: planTime}, FailbackOptions{}),
	} {
		golden(t, name+".txt", []byte(plan.String()))
		b, err := plan.JSON()
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", b)
		var back FailbackPlan
		if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, plan) {
			t.Errorf("%s: JSON gives back another plan (%v)\n%+v\n%+v", name, err, back, plan)
		}
		if !reflect.DeepEqual(back.Consents(), plan.Consents()) {
			t.Errorf("%s: a plan that was read again consents to something else", name)
		}
	}
	var x FailbackPartition
	for _, bad := range []string{`{"topicId":"short"}`, `{"topicId":"!!!!!!!!!!!!!!!!!!!!!!"}`, `{}`, `[]`} {
		if json.Unmarshal([]byte(bad), &x) == nil {
			t.Errorf("%s is read", bad)
		}
	}
}

func failbackPartition(t *testing.T, p FailbackPlan, topic string, partition int32) FailbackPartition {
	t.Helper()
	for _, x := range p.Partitions {
		if x.Topic == topic && x.Partition == partition {
			return x
		}
	}
	t.Fatalf("the plan does not have %s-%d", topic, partition)
	return FailbackPartition{}
}

func TestF84CommonPointIsWhereTheLogsPartNotTheRecordedOffset(t *testing.T) {
	p := failbackPartition(t, failbackOf("orders"), "orders", 0)
	if p.CommonPoint != KnownNumber(880) || p.From != KnownNumber(880) || p.To != KnownNumber(951) || p.Dropped != KnownNumber(71) || p.LMO != KnownNumber(900) || p.Outcome != OutcomeDrop {
		t.Errorf("%+v", p)
	}
	if text := failbackOf("orders").String(); !strings.Contains(text, "orders-0: common point 880; this cluster gives up 880..950") {
		t.Error(text)
	}
	if same := failbackPartition(t, failbackOf("orders"), "orders", 1); same.Outcome != OutcomeGo || same.CommonPoint != KnownNumber(900) || same.Dropped != KnownNumber(0) {
		t.Errorf("nothing is to be dropped here: %+v", same)
	}
}

func TestF47DisagreementsAreListedInThePlan(t *testing.T) {
	plan := failbackOf("payments")
	if text := plan.String(); !strings.Contains(text, "payments-0: producer 7 epoch 0: committed here at 6, aborted at the source") {
		t.Error(text)
	}
	if d := plan.Partitions[0].Disagreements; !reflect.DeepEqual(d, []Disagreement{{ProducerID: 7, ProducerEpoch: 0, CommitAt: 6}}) {
		t.Errorf("%+v", d)
	}
}

func TestDecision7ConsentsAreExactlyThePlan(t *testing.T) {
	plan := failbackOf()
	want := []Consent{
		{TopicID: adminTopicID("fresh"), From: 0, To: 40, Episode: 1},
		{TopicID: adminTopicID("orders"), From: 880, To: 951, Episode: 1},
		{TopicID: adminTopicID("payments"), From: 6, To: 7, Episode: 3},
	}
	if got := plan.Consents(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v; orders-2 has grown, so it has none", got, want)
	}
	if got := plan.TopicNames(); !reflect.DeepEqual(got, []string{"fresh", "orders", "payments"}) {
		t.Errorf("topics %v", got)
	}
	if plan.Dropped != 40+71+1 {
		t.Errorf("dropped %d", plan.Dropped)
	}
}

func TestDecision7AStartWithThePlansConsentsIsAccepted(t *testing.T) {
	plan := failbackOf("payments", "fresh")
	if plan.Severity != SeverityLoses {
		t.Fatalf("severity %s", plan.Severity)
	}
	w, c := &adminWorld{}, controlWith(t, wishOf("payments", "m"))
	w.has("m", "payments", statemachine.Failed)
	w.has("m", "fresh", statemachine.Unknown)
	if _, err := w.admin(t, c).Start(bg, plan.TopicNames(), StartOptions{Consents: plan.Consents()}); err != nil {
		t.Fatal(err)
	}
	s := mustRead(t, c)
	var recorded []Consent
	for _, topic := range s.Topics {
		recorded = append(recorded, topic.Consents...)
	}
	if !reflect.DeepEqual(recorded, plan.Consents()) {
		t.Errorf("recorded %v, planned %v", recorded, plan.Consents())
	}
}

func TestFailbackPlanRefusals(t *testing.T) {
	plan := failbackOf()
	if plan.Severity != SeverityRefused {
		t.Errorf("severity %s", plan.Severity)
	}
	for _, tc := range []struct {
		topic     string
		partition int32
		outcome   Outcome
		reason    string
	}{
		{"orders", 2, OutcomeRefused, "ends at 960, but it was compared when it ended at 955"},
		{"audit", 0, OutcomeRefused, "stop it there first"},
		{"audit", 1, OutcomeGo, ""},
		{"audit", 2, OutcomeRefused, "not compared"},
		{"fresh", 0, OutcomeDrop, "recorded no last mirror epoch"},
		{"fresh", 0, OutcomeDrop, "no divergence checks"},
	} {
		p := failbackPartition(t, plan, tc.topic, tc.partition)
		if p.Outcome != tc.outcome || !strings.Contains(strings.Join(p.Reasons, "\n"), tc.reason) {
			t.Errorf("%s-%d: %s %q, want %s %q", tc.topic, tc.partition, p.Outcome, p.Reasons, tc.outcome, tc.reason)
		}
	}
	for _, tc := range []struct {
		plan  FailbackPlan
		holds []bool
	}{
		{plan, []bool{true, false, false}},
		{failbackOf("payments", "fresh"), []bool{true, true, true}},
		{failbackOf("orders"), []bool{true, true, false}},
		{failbackOf("audit"), []bool{true, false, true}},
		{failbackOf("gone"), []bool{true, false, true}},
		{failbackOf("nowhere"), []bool{true, false, true}},
	} {
		for i, p := range tc.plan.Preconditions {
			if p.Holds != tc.holds[i] || p.Holds != (p.Detail == "") {
				t.Errorf("%v: %+v, want %v", tc.plan.TopicNames(), p, tc.holds[i])
			}
		}
	}
	foreign := west()
	foreign.Partitions[2].Owner = OwnerForeign
	if p := failbackPartition(t, PlanFailback(foreign, FailbackOptions{}), "orders", 0); p.Outcome != OutcomeRefused {
		t.Errorf("another owner: %+v", p)
	}
	for state, want := range map[statemachine.State]Outcome{
		statemachine.Preparing: OutcomeRefused, statemachine.EpochFencing: OutcomeGo, statemachine.Mirroring: OutcomeGo, statemachine.Pausing: OutcomeGo, statemachine.Paused: OutcomeGo,
		statemachine.Stopping: OutcomeRefused, statemachine.Stopped: OutcomeRefused, statemachine.Failed: OutcomeRefused, statemachine.Unknown: OutcomeRefused,
	} {
		s := eastSnapshot(mirrored("t", 0, 10, 10, 0))
		s.Partitions[0].State = state
		if got := PlanFailback(s, FailbackOptions{}).Partitions[0].Outcome; got != want {
			t.Errorf("%s: %s, want %s", state, got, want)
		}
	}
}

// batchLog is a log in memory that answers Read from whole batches.
type batchLog struct {
	start, end int64
	batches    [][]byte
	err        error
	reads      int
}

func (l *batchLog) Start() int64 { return l.start }
func (l *batchLog) End() int64   { return l.end }
func (l *batchLog) Read(_ context.Context, from int64, max int) ([]byte, error) {
	l.reads++
	if l.err != nil {
		return nil, l.err
	}
	if from < l.start || from > l.end {
		return nil, ErrOffsetOutOfRange
	}
	var out []byte
	for _, b := range l.batches {
		info, _ := first(b)
		if info.Next() <= from {
			continue
		}
		if len(out) > 0 && len(out)+len(b) > max {
			break
		}
		out = append(out, b...)
	}
	return out, nil
}

func first(b []byte) (BatchInfo, bool) {
	for info := range Batches(b) {
		return info, true
	}
	return BatchInfo{}, false
}

func logOf(batches ...[]byte) *batchLog {
	l := &batchLog{batches: batches}
	for i, b := range batches {
		info, _ := first(b)
		if i == 0 {
			l.start = info.Base
		}
		l.end = info.Next()
	}
	return l
}

// data is a batch of n records at an offset.
func data(offset int64, n int, change ...func(*batch.DataSpec)) []byte {
	s := batch.DataSpec{BaseOffset: offset, LeaderEpoch: 5, ProducerID: -1, BaseTimestamp: 1700000000000}
	for i := range n {
		s.Records = append(s.Records, batch.Record{OffsetDelta: int32(i), Key: []byte("k"), Value: []byte("value")})
	}
	for _, f := range change {
		f(&s)
	}
	return batch.AppendData(nil, s)
}

func transactional(producer int64) func(*batch.DataSpec) {
	return func(s *batch.DataSpec) { s.ProducerID, s.Transactional = producer, true }
}

func marker(offset, producer int64, kind batch.ControlType) []byte {
	return batch.AppendControl(nil, batch.ControlSpec{BaseOffset: offset, LeaderEpoch: 5, ProducerID: producer, BaseSequence: -1, Transactional: true, Timestamp: 1700000000000,
		Key: []byte{0, 0, 0, byte(kind)}, Value: []byte{0, 0, 0, 0, 0, 0}})
}

func TestF47FindDisagreementsListsCommitsOfTransactionsFromBelow(t *testing.T) {
	l := logOf(
		data(0, 5, transactional(7)), data(5, 1), // both sides have these
		marker(6, 7, batch.ControlCommit),                               // aborted by the other side at 6
		data(7, 1, transactional(7)), marker(8, 7, batch.ControlCommit), // a later transaction of the same producer: dropped as a whole
		data(9, 1, transactional(8)), marker(10, 8, batch.ControlCommit),
		marker(11, 9, batch.ControlAbort),                                 // aborted on both sides
		data(12, 1, transactional(9)), marker(13, 9, batch.ControlCommit), // dropped as a whole
		marker(14, 10, batch.ControlCommit), // beyond what is asked for
	)
	got, _, err := findDisagreements(context.Background(), l, 6, 14)
	if err != nil || !reflect.DeepEqual(got, []Disagreement{{ProducerID: 7, CommitAt: 6}}) {
		t.Errorf("%v %v", got, err)
	}
	if got, _, err := findDisagreements(context.Background(), l, 0, 14); err != nil || got != nil {
		t.Errorf("when everything goes, nothing disagrees: %v %v", got, err)
	}
	if got, _, err := findDisagreements(context.Background(), l, 6, 100); err != nil || len(got) != 2 {
		t.Errorf("up to the end: %v %v", got, err)
	}
	both := logOf( // one that wrote on both sides of the common point, one that had ended below it, one that began in the range
		data(0, 1, transactional(8)), marker(1, 8, batch.ControlCommit), data(2, 1, transactional(7)), data(3, 1),
		data(4, 1, transactional(7)), data(5, 1, transactional(8)), data(6, 1, transactional(9)),
		marker(7, 7, batch.ControlCommit), marker(8, 8, batch.ControlCommit), marker(9, 9, batch.ControlCommit),
	)
	if got, _, err := findDisagreements(context.Background(), both, 4, 10); err != nil || !reflect.DeepEqual(got, []Disagreement{{ProducerID: 7, CommitAt: 7}}) {
		t.Errorf("a transaction on both sides of the common point: %v %v", got, err)
	}
	damaged := raw(l)
	damaged.pieces[3][16] = 1
	if _, _, err := findDisagreements(context.Background(), damaged, 6, 14); err == nil {
		t.Error("a damaged batch goes unnoticed")
	}
	l.err = errors.New("disk")
	if _, _, err := findDisagreements(context.Background(), l, 6, 14); !errors.Is(err, l.err) {
		t.Errorf("%v", err)
	}
}

// A plan is kept as one record: of many groups it has those of which a person has to know first, and counts all.
func TestAFailbacksPlanBoundsWhatFollows(t *testing.T) {
	s := west()
	var places []PlanGroupPlace
	for i := range 2 * mostFollows {
		places = append(places, PlanGroupPlace{Group: fmt.Sprintf("same-%04d", i), Kind: OffsetGroup.String(), Topic: "payments", Here: KnownNumber(5), Source: KnownNumber(5), Place: KnownNumber(5), At: KnownNumber(5), Seen: planTime})
	}
	back := places[700]
	back.Group, back.Here = "zz-back", KnownNumber(7)
	s.FailbackGroups.FollowLook = FollowLook{Seen: planTime}
	s.FailbackGroups.addPlaces(append(places, back))
	left := found{}
	for i := range 30 {
		left[fmt.Sprintf("topic t%02d", i)] = "its settings cannot be read: denied"
	}
	s.FailbackSettings.FollowLook = FollowLook{Seen: planTime}
	s.FailbackSettings.leave(left)
	plan := PlanFailback(s, FailbackOptions{Topics: []string{"payments"}})
	g := plan.Groups
	if len(g.Places) != mostFollows || g.MorePlaces != mostFollows+1 || g.Places[0].Group != "zz-back" || g.Back != 1 || g.InStep != 2*mostFollows || len(plan.Settings.Left) != mostSeenNames || plan.Settings.MoreLeft != 10 {
		t.Errorf("%d places and %d more, the first is %s; %d go back, %d are in step; left alone %d and %d", len(g.Places), g.MorePlaces, g.Places[0].Group, g.Back, g.InStep, len(plan.Settings.Left), plan.Settings.MoreLeft)
	}
	text := plan.String()
	for _, words := range []string{"GROUPS: 1 GOES BACK, 2000 in step;", "zz-back payments-0 GOES BACK from 7 to 5", "and 950 more, which are in JSON\nand 1001 more, for which a plan has no room\n", "TOPIC SETTINGS: 30 LEFT ALONE, see below;", "topic t19: its settings cannot be read: denied\nand 10 more\n"} {
		if !strings.Contains(text, words) {
			t.Errorf("lacks %q\n%s", words, text)
		}
	}
	if b, err := plan.pack(); err != nil || len(b) > controlRecordLimit/2 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
