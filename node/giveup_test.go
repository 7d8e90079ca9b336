package node_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/node"
	"github.com/clustermirror/clustermirror/statemachine"
)

// quickly makes the controllers give a silent broker up soon.
var quickly = map[string]string{"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}

func quick(c *kraft.Config) {
	c.SessionTimeout, c.HeartbeatInterval = 3*time.Second, 500*time.Millisecond
}

// TestRealKafkaGiveUp: a node dies for good with a transaction open. It is given up, after a plan and consent to it, with nothing but the destination; clients write there. A node that comes back under its id leaves
// the topic alone. Then the old source takes the topic back: it finds where the mirror ended, and gives up what was never copied and nothing else.
func TestRealKafkaGiveUp(t *testing.T) {
	a, b := kafkatest.Start(t, kafkatest.Options{}), kafkatest.Start(t, kafkatest.Options{Brokers: 3, Config: quickly})
	const topic = "given-up"
	a.CreateTopic(kafkatest.Topic{Name: topic, Partitions: 2, Replication: 1})
	at := lives.Join(t, b, quick)
	there := lives.Open(t, "there", a, at)
	there.Set(mirror.Settings{"mirror.topic.properties.exclude": ".*"})
	there.Start(topic)
	plain, left := lives.Client(a, lives.Plain...), lives.Client(a, lives.OldProtocol, kgo.TransactionalID("left"), kgo.TransactionTimeout(10*time.Minute))
	lives.Produce(t, plain, topic, 0, lives.Values("mirrored", 10)...)
	lives.Begin(t, left)
	lives.Produce(t, left, topic, 1, lives.Values("open", 2)...)
	lives.Produce(t, plain, topic, 1, lives.Values("mirrored", 3)...)
	there.InStep(topic, 0, 10)
	there.InStep(topic, 1, 5)

	records := reopen(t, b)
	cfg := node.GiveUpConfig{
		Kraft: kraft.Config{NodeID: lives.NodeID, Controllers: b.ControllerAddresses(), SessionTimeout: 3 * time.Second, HeartbeatInterval: 500 * time.Millisecond}, Records: records,
		Reason: "its host burnt", Operator: mirror.Operator{User: "anna"},
	}
	if _, err := node.PlanGiveUp(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "is alive") {
		t.Errorf("planned while it lives: %v", err)
	}
	there.End()
	at.Die()
	b.Kill(3)
	var plan node.GiveUpPlan
	lives.Eventually(t, "its session to end", func() (bool, string) {
		var err error
		plan, err = node.PlanGiveUp(lives.Limited(t), cfg)
		if err != nil && !strings.Contains(err.Error(), "is alive") {
			t.Fatal(err)
		}
		return err == nil, "it is alive"
	})
	lives.Eventually(t, "that of the broker too", func() (bool, string) {
		var err error
		plan, err = node.PlanGiveUp(lives.Limited(t), cfg)
		return err == nil && len(plan.Partitions) == 2 && slices.Equal(plan.Partitions[0].Unasked, []int32{3}), plan.String()
	})
	t.Log(plan)
	if len(plan.Partitions) != 2 || plan.ClusterID != b.ID() {
		t.Fatalf("%+v", plan)
	}
	ends := []int64{10, 5}
	for i, x := range plan.Partitions {
		if x.Partition.Partition != int32(i) || x.Err != nil || x.Opened || x.Mirror != "there" || x.State != statemachine.Mirroring || x.End != ends[i] || x.Aborted != i || x.Clients || x.Recorded == nil ||
			x.Recorded.Offset != ends[i] || x.Recorded.SourceClusterID != a.ID() || len(x.Notes) != 1 || !strings.Contains(x.Notes[0], "brokers [3] do not answer") {
			t.Errorf("%+v", x)
		}
	}
	if _, err := node.GiveUp(t.Context(), cfg, "another"); !errors.Is(err, node.ErrNotThePlan) {
		t.Errorf("given up without consent: %v", err)
	}
	nobody := cfg
	nobody.Reason = " "
	if _, err := node.GiveUp(t.Context(), nobody, plan.Name); err == nil || !strings.Contains(err.Error(), "reason") {
		t.Errorf("given up without a reason: %v", err)
	}
	if l := b.LeaderOf(topic, 0); l >= 0 {
		t.Fatalf("broker %d leads, and nobody has consented", l)
	}
	// A broker is dead too: what is opened is recorded, and finished when it is back.
	short, stop := context.WithTimeout(t.Context(), 18*time.Second)
	defer stop()
	done, err := node.GiveUp(short, cfg, plan.Name)
	t.Log(done)
	if err == nil {
		t.Error("nothing is said of the replica that is missing")
	}
	for i, x := range done.Partitions {
		if !x.Opened || x.Err == nil || !strings.Contains(x.Err.Error(), "not in sync yet") || x.Aborted != i || x.Leader != plan.Partitions[i].Leader || x.Leader != b.LeaderOf(topic, int32(i)) {
			t.Errorf("%+v", x)
		}
	}
	stopped := func(where string) {
		t.Helper()
		found := 0
		if err := keyedlog.NewStateStore(records).Load(lives.Limited(t), func(e statemachine.Entry) error {
			if e.State.State == statemachine.Stopped && e.LME != nil && e.LME.Offset == ends[e.Key.Partition] && e.LME.Episode == e.State.Episode && e.LME.SourceClusterID == a.ID() && e.Owner == "there" {
				found++
			} else {
				t.Errorf("%s: %+v, %+v", where, e, e.LME)
			}
			return nil
		}); err != nil || found != 2 {
			t.Errorf("%s: %d partitions are stopped, %v", where, found, err)
		}
	}
	stopped("given up")
	control := mirror.NewControl(records)
	state, err := control.Read(lives.Limited(t))
	if w, _ := state.Topic(topic); err != nil || w.MirrorName != "there.stopped" {
		t.Errorf("%+v is wanted, %v", w, err)
	}
	history, err := control.History(lives.Limited(t))
	var verbs []string
	for _, h := range history {
		if h.Reason == "its host burnt" && h.Who.User == "anna" && slices.Equal(h.Topics, []string{topic}) {
			verbs = append(verbs, h.Verb)
		}
	}
	if err != nil || !slices.Equal(verbs, []string{"stop", "give up"}) {
		t.Errorf("the history has %v, %v: %+v", verbs, err, history)
	}
	lives.Produce(t, lives.Client(b), topic, 0, lives.Values("at the standby", 4)...) // 10..13
	b.StartBroker(3)
	b.WaitISR(topic, 0, 1, 2, 3) // by then Kafka has taken the node out of it
	if plan, err = node.PlanGiveUp(lives.Limited(t), cfg); err != nil || len(plan.Partitions) != 2 || !plan.Partitions[0].Again || plan.Partitions[0].State != statemachine.Stopped {
		t.Errorf("%v, %v", plan, err)
	}
	if done, err = node.GiveUp(lives.Limited(t), cfg, plan.Name); err != nil || !done.Partitions[0].Opened {
		t.Errorf("the second time: %v, %v", done, err)
	}
	stopped("given up again")
	lives.Produce(t, lives.Client(b), topic, 1, lives.Values("at the standby", 4)...) // behind the ABORT: 6..9
	lives.SameCommitted(t, b, topic, 1, 2, 3, 4, 6, 7, 8, 9)

	// A node comes back after all, and the source is there.
	at = lives.Join(t, b, quick)
	there = lives.Open(t, "there", a, at)
	for p := range int32(2) {
		there.Until("it knows that the topic is stopped", topic, p, func(p mirror.PartitionStatus) bool {
			return p.State == statemachine.Stopped && p.Owner == mirror.OwnerOpen
		})
	}
	lives.Produce(t, plain, topic, 0, lives.Values("never copied", 3)...)
	lives.Produce(t, lives.Client(b), topic, 0, lives.Values("later", 1)...)
	stopped("back")
	there.End()
	at.Leave()
	lives.NoTrace(t, b, topic)

	old := lives.Join(t, a)
	back := lives.Open(t, "back", b, old)
	back.Set(mirror.Settings{"mirror.topic.properties.exclude": ".*"})
	failback := back.Failback(topic)
	if failback.Dropped != 3 {
		t.Errorf("the failback drops %d", failback.Dropped)
	}
	for _, x := range failback.Partitions {
		if x.CommonPoint != mirror.KnownNumber(ends[x.Partition]) || x.LME == (mirror.Number{}) {
			t.Errorf("the common point of partition %d is %s, its last mirror epoch %s", x.Partition, x.CommonPoint, x.LME)
		}
	}
	if from, to, _ := back.Sink.Of(topic, 0); from != 10 || to != 13 {
		t.Errorf("[%d, %d) was given up", from, to)
	}
	if from, to, _ := back.Sink.Of(topic, 1); from != to {
		t.Errorf("[%d, %d) of partition 1 was given up", from, to)
	}
	back.Same(topic, 0, 15)
	back.Same(topic, 1, 10)
	leaves(t, back, old, a)
	purges(t, b, cfg)
}

// leaves: a node that is alive and has partitions leaves by the kill switch alone, with consent, and nothing becomes writable.
func leaves(t *testing.T, m *lives.Running, at *lives.Joined, c *kafkatest.Cluster) {
	t.Helper()
	cfg := node.LeaveConfig{Kraft: kraft.Config{NodeID: lives.NodeID, Controllers: c.ControllerAddresses()}, Records: at.Store}
	l, err := node.Leave(lives.Limited(t), cfg)
	t.Log(l)
	if err != nil || len(l.Partitions) != 2 || l.Registration != kraft.RegisteredAlive || len(l.Mirrored) != 1 || len(l.InternalTopics) == 0 {
		t.Errorf("%+v, %v", l, err)
	}
	for _, want := range []string{"leave: refused", "leave now: broker 9999 is unregistered", "2 partitions have no leader from then on", "the last mirror epochs of 0 partitions"} {
		if !strings.Contains(l.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	cfg.Reason, cfg.Operator = "the drill", mirror.Operator{User: "anna"}
	for _, how := range []node.LeaveHow{node.LeaveClean, node.LeaveNow, node.LeavePurge} {
		cfg.How = how
		if l, err := node.Leave(lives.Limited(t), cfg); !errors.Is(err, node.ErrStays) || l.Done {
			t.Errorf("%s: %v", how, err)
		}
	}
	cfg.How, cfg.ClusterID = node.LeaveNow, "another"
	if _, err := node.Leave(lives.Limited(t), cfg); !errors.Is(err, node.ErrStays) {
		t.Errorf("another cluster is meant: %v", err)
	}
	cfg.ClusterID = c.ID()
	if l, err = node.Leave(lives.Limited(t), cfg); err != nil || !l.Done || l.Unrecorded != nil {
		t.Errorf("%+v, %v", l, err)
	}
	t.Log(l)
	history, err := mirror.NewControl(at.Store).History(lives.Limited(t))
	if err != nil || !slices.ContainsFunc(history, func(h mirror.HistoryEntry) bool {
		return h.Verb == "leave now" && h.Mirror == "back" && h.Reason == "the drill" && h.Who.User == "anna"
	}) {
		t.Errorf("the history has %+v, %v", history, err)
	}
	lives.Eventually(t, "the process to notice", func() (bool, string) { return len(at.Noticed(kraft.Unregistered)) > 0, "it lives" })
	m.End()
	at.Die()
	if p := c.Describe("given-up", 0); p.Leader >= 0 {
		t.Errorf("after the kill switch broker %d leads", p.Leader)
	}
}

// purges: a node that has left takes its topics with it, and what it costs is said before.
func purges(t *testing.T, c *kafkatest.Cluster, given node.GiveUpConfig) {
	t.Helper()
	cfg := node.LeaveConfig{Kraft: given.Kraft, Records: given.Records, How: node.LeavePurge, ClusterID: c.ID(), Reason: "the drill"}
	if _, err := node.Leave(lives.Limited(t), cfg); err == nil || !strings.Contains(err.Error(), "Client is not set") {
		t.Errorf("without a client: %v", err)
	}
	cfg.Client = c.AdminClient()
	c.CreateTopic(kafkatest.Topic{Name: "__mirror_of_my_own", Partitions: 1, Replication: 1})
	told := cfg
	told.How = node.LeaveReport
	if l, err := node.Leave(lives.Limited(t), told); err != nil || l.LastEpochs != 2 || l.Registration != kraft.NotRegistered || !strings.Contains(l.String(), "the last mirror epochs of 2 partitions. Without these a failback") {
		t.Errorf("%v, %v", l, err)
	}
	l, err := node.Leave(lives.Limited(t), cfg)
	t.Log(l)
	if err != nil || !l.Done || !slices.Equal(l.Purged, l.InternalTopics) || len(l.Purged) == 0 {
		t.Errorf("%+v, %v", l, err)
	}
	if left, err := kraft.Left(lives.Limited(t), kraft.Config{NodeID: lives.NodeID, Controllers: c.ControllerAddresses(), Remember: keyedlog.NewMemory()}); err != nil || !slices.Equal(left.InternalTopics, []string{"__mirror_of_my_own"}) {
		t.Errorf("%v, %v", left, err)
	}
}

// reopen is the store of a cluster, as a command has it.
func reopen(t *testing.T, c *kafkatest.Cluster) *kafkastore.Store {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), lives.Bound)
	defer stop()
	s, err := kafkastore.Open(ctx, kafkastore.Config{Seeds: c.Bootstrap(), StatePartitions: 3, ReplicationFactor: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
