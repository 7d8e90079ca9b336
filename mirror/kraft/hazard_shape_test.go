package kraft_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// as gives a process a node id: tests that share a cluster have one each.
func as(node int32) func(*kraft.Config) { return func(cfg *kraft.Config) { cfg.NodeID = node } }

// reassign is what kafka-reassign-partitions sends; without replicas it is --cancel.
func reassign(t *testing.T, c *kafkatest.Cluster, topic string, p int32, replicas ...int32) error {
	t.Helper()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	at := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	at.Topic = topic
	ap := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	ap.Partition, ap.Replicas = p, replicas
	at.Partitions = append(at.Partitions, ap)
	req.Topics = append(req.Topics, at)
	resp, err := req.RequestWith(bound(t), c.AdminClient())
	if err != nil {
		t.Fatal(err)
	}
	return errors.Join(kerr.ErrorForCode(resp.ErrorCode), kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
}

// copies fails unless exactly these brokers have a copy of a topic, and nobody has one on its way out.
func (s *scene) copies(topic string, brokers ...int32) {
	s.t.Helper()
	for _, id := range s.c.Brokers() {
		var want []string
		if slices.Contains(brokers, id) {
			want = []string{topic + "-0"}
		}
		if got := s.c.LogDirs(topic, 0, id); !slices.Equal(got, want) {
			s.t.Errorf("broker %d has %v of %s, and should have %v", id, got, topic, want)
		}
	}
}

// told waits until an event of this kind was told about a topic after those that were told before it.
func (s *scene) told(kind kraft.EventKind, topic string, before int) kraft.Event {
	s.t.Helper()
	var found kraft.Event
	eventually(s.t, fmt.Sprintf("an event %v about %s", kind, topic), func() bool {
		for _, e := range s.seen()[before:] {
			if e.Kind == kind && e.Partition.Topic == topic {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// TestRealKafkaAllReassignmentsCancelled: somebody cancels all reassignments, as Cruise Control does before it acts: while this process leads, in its session after its death, and when the
// controllers have fenced it. Nothing is under way, so no copy goes.
func TestRealKafkaAllReassignmentsCancelled(t *testing.T) {
	c := kafkatest.Shared(t)
	s := play(t, c, []string{"cancelled"}, as(9101))
	cancel := func(when string) {
		t.Helper()
		if err := reassign(t, c, "cancelled", 0); !errors.Is(err, kerr.NoReassignmentInProgress) {
			t.Errorf("cancelled %s: %v", when, err)
		}
		s.copies("cancelled", 1, 2, 3)
		s.exactly("cancelled", 1, 2, 3)
	}
	cancel("while it is led here")
	s.Close()
	cancel("after the process's death")
	s.fenced(9101)
	cancel("without a leader")
	s.closedAll()
	s.returns()
	s.more("cancelled", 2)
	await(t, s.open("cancelled", 0))
	cancel("at last")
	s.handOver("cancelled")
}

// TestRealKafkaReassignmentCancelledInside: somebody cancels in the moment of a creation, between the addition of the stock brokers and their way into the in-sync replicas, and in the moment
// of a hand-over, between the removal of this process and the AlterPartition. Both go on, and the topics have their copies.
func TestRealKafkaReassignmentCancelledInside(t *testing.T) {
	c := kafkatest.Shared(t)
	st := stepAt(takesIn)
	s := play(t, c, []string{"opened"}, as(9102), st.before)
	s.w.phases["created"] = []phase{{0, false}}
	during := func(topic string, what func() error) {
		t.Helper()
		err := st.during(t, what, func() {
			if err := reassign(t, c, topic, 0); err != nil {
				t.Errorf("cancel: %v", err)
			}
			eventually(t, "the end of the reassignment", func() bool {
				p := s.w.partition(topic, 0)
				return len(p.Adding)+len(p.Removing) == 0
			})
		})
		if err != nil {
			t.Errorf("%s: %v", topic, err)
		}
	}
	during("created", func() error {
		_, err := s.CreateTopic(bound(t), mirror.TopicSpec{Name: "created", Partitions: 1})
		return err
	})
	t.Log("created:", s.w.history("created", 0))
	s.more("created", 5)
	await(t, s.open("created", 0))
	s.exactly("created", 1, 2, 3)
	if p := s.w.partition("created", 0); !slices.Equal(p.ISR, []int32{9102}) || len(p.Replicas) != 4 || len(p.Adding)+len(p.ELR) > 0 {
		t.Errorf("not its shape: %+v", p)
	}
	s.closedAll()
	l := s.open("opened", 0)
	s.w.mayLead("opened")
	during("opened", func() error { return l.Open(bound(t)) })
	t.Log("opened:", s.w.history("opened", 0))
	s.inSync("opened", 1, 2, 3)
	s.writer.Stop()
	s.same("opened", 1, 2, 3)
}

// TestRealKafkaForeignReassignments: somebody reassigns mirrored partitions: adds a broker, removes one, removes this process. It is told. A broker that is added copies, and its
// copy goes with a cancel. Nothing is completed as long as the brokers that are to stay are not in sync, so the other copies stay, this process stays the leader, and nobody leads when it
// dies. The hand-over goes to those whom the operator wants.
func TestRealKafkaForeignReassignments(t *testing.T) {
	c := kafkatest.Shared(t)
	topics := []string{"added", "removed", "us"}
	s := play(t, c, topics, as(9103), func(cfg *kraft.Config) { cfg.ReplicationFactor = 2 })
	stock := map[string][]int32{}
	missing := map[string]int32{}
	for _, topic := range topics {
		stock[topic] = s.w.partition(topic, 0).Replicas[1:]
		for _, id := range c.Brokers() {
			if !slices.Contains(stock[topic], id) {
				missing[topic] = id
			}
		}
	}
	change := func(topic string, replicas ...int32) {
		t.Helper()
		before := len(s.seen())
		if err := reassign(t, c, topic, 0, replicas...); err != nil {
			t.Fatal(err)
		}
		t.Log(s.told(kraft.ShapeChanged, topic, before).Text)
	}
	change("added", append([]int32{9103}, append(slices.Clone(stock["added"]), missing["added"])...)...)
	s.more("added", 2)
	s.exactly("added", 1, 2, 3)
	change("added") // cancelled
	s.more("added", 2)
	s.exactly("added", stock["added"]...)
	eventually(t, "the added copy to go", func() bool { return !slices.Contains(c.LogDirs("added", 0, missing["added"]), "added-0") })

	// The broker that stays is not in sync, so this is not completed, and the other copy stays too.
	change("removed", 9103, stock["removed"][0])
	s.more("removed", 2)
	s.exactly("removed", stock["removed"]...)

	change("us", stock["us"]...)
	s.more("us", 2)
	for _, topic := range topics {
		await(t, s.open(topic, 0))
		s.exactly(topic, stock[topic]...)
	}
	s.closedAll()
	s.dies()
	if got := s.leaders(topics...); !slices.Equal(got, []int32{-1, -1, -1}) {
		t.Errorf("leaders %v after the death of this process", got)
	}
	t.Log("us:", s.w.history("us", 0))
	s.writer.WaitRounds(1)
	s.closedAll()
	s.returns()
	for _, topic := range topics {
		s.more(topic, 1)
		await(t, s.open(topic, 0))
		s.handOverNow(topic)
	}
	s.writer.Stop()
	s.same("added", stock["added"]...)
	s.same("removed", stock["removed"][0])
	s.same("us", stock["us"]...)
	eventually(t, "the removed copy to go", func() bool { return !slices.Contains(c.LogDirs("removed", 0, stock["removed"][1]), "removed-0") })
}

// TestRealKafkaUnregisteredFromOutside: somebody unregisters this process, again and again, as Strimzi does with a broker id that is in none of its node pools. It is told, with what it leads;
// its partitions have no leader; it does not register again. When a person starts a process again nothing is lost.
func TestRealKafkaUnregisteredFromOutside(t *testing.T) {
	c := kafkatest.Shared(t)
	topics := []string{"outside", "beside"}
	s := play(t, c, topics, as(9104))
	logs := map[string]mirror.Log{}
	for _, topic := range topics {
		logs[topic] = s.open(topic, 0)
	}
	unregister := func() error {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = 9104
		resp, err := req.RequestWith(bound(t), c.AdminClient())
		if err != nil {
			t.Fatal(err)
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	}
	if err := unregister(); err != nil {
		t.Fatal(err)
	}
	e := s.saw(kraft.Unregistered)
	t.Log(e.Text)
	for _, topic := range topics {
		if !strings.Contains(e.Text, topic+"-0") {
			t.Errorf("the event does not name %s-0", topic)
		}
		l := logs[topic]
		if err := l.Append(bound(t), l.LeaderEpoch(), data(l.End(), l.LeaderEpoch(), 1, "x")); err == nil {
			t.Errorf("append to %s went on", topic)
		}
	}
	for began, tries := time.Now(), 0; tries < 4; tries++ {
		eventually(t, "the next round", func() bool { return time.Since(began) > time.Duration(tries)*1500*time.Millisecond })
		if _, ok := s.w.image().Broker(9104); ok {
			t.Error("it has registered again")
		}
		if err := unregister(); err != nil && !errors.Is(err, kerr.BrokerIDNotRegistered) {
			t.Error(err)
		}
	}
	if got := s.leaders(topics...); !slices.Equal(got, []int32{-1, -1}) {
		t.Errorf("leaders %v", got)
	}
	s.copies("outside", 1, 2, 3)
	s.writer.WaitRounds(1)
	s.closedAll()
	s.Close()
	s.returns()
	for _, topic := range topics {
		if end := s.open(topic, 0).End(); end != 30 {
			t.Errorf("%s ends at %d after the return", topic, end)
		}
	}
	t.Log(s.w.history("outside", 0))
	if err := s.raise("outside"); err != nil {
		t.Errorf("fence after the return: %v", err)
	}
	for _, topic := range topics {
		s.more(topic, 2)
		await(t, s.open(topic, 0))
		s.exactly(topic, 1, 2, 3)
	}
	s.handOver("outside")
}

// TestRealKafkaGrownAndDeletedByOperators: an operator adds a partition to a mirrored topic, by an assignment that names this process and by one that the cluster makes, then deletes the
// topic, and makes one of that name again.
func TestRealKafkaGrownAndDeletedByOperators(t *testing.T) {
	c := kafkatest.Shared(t)
	s := play(t, c, []string{"operated"}, as(9105))
	grow := func(count int32, replicas ...int32) error {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = 10_000
		ct := kmsg.NewCreatePartitionsRequestTopic()
		ct.Topic, ct.Count = "operated", count
		if len(replicas) > 0 {
			ct.Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: replicas}}
		}
		req.Topics = append(req.Topics, ct)
		resp, err := req.RequestWith(bound(t), c.AdminClient())
		if err != nil {
			t.Fatal(err)
		}
		return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err := grow(2); !errors.Is(err, kerr.InvalidReplicationFactor) {
		t.Errorf("a partition without an assignment: %v", err)
	}
	if err := grow(2, 9105, 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new partition to have its shape", func() bool {
		p := s.w.partition("operated", 1)
		return p.Leader == 9105 && slices.Equal(p.ISR, []int32{9105})
	})
	t.Log(s.w.history("operated", 1))
	l := s.open("operated", 1)
	b := data(0, l.LeaderEpoch(), 3, "grown")
	appendTo(t, l, slices.Clone(b))
	await(t, l)
	if got := c.WaitSameSegments("operated", 1, 1, 2, 3); !bytes.Equal(got, b) {
		t.Error("the copies of the new partition are not what was appended")
	}
	// One that a stock broker leads from the start: clients may write to it. It is told.
	s.closedAll()
	s.w.mayLead("operated")
	before := len(s.seen())
	if err := grow(3, 1, 2, 3, 9105); err != nil {
		t.Fatal(err)
	}
	if e := s.told(kraft.Violation, "operated", before); e.Partition.Partition != 2 {
		t.Errorf("told about %v: %s", e.Partition, e.Text)
	}
	t.Log("a partition led by broker 1:", s.w.history("operated", 2))
	if owner, _, err := s.open("operated", 2).Owner(bound(t)); err != nil || owner != mirror.OwnerOpen {
		t.Errorf("a partition led by broker 1 is %v, %v", owner, err)
	}
	before = len(s.seen())
	gone := s.open("operated", 0)
	if _, err := c.Admin().DeleteTopics(bound(t), "operated"); err != nil {
		t.Fatal(err)
	}
	t.Log(s.told(kraft.TopicGone, "operated", before).Text)
	if err := gone.Append(bound(t), gone.LeaderEpoch(), data(gone.End(), gone.LeaderEpoch(), 1, "x")); !errors.Is(err, mirror.ErrUnknownTopic) {
		t.Errorf("append to a deleted topic: %v", err)
	}
	c.CreateTopic(kafkatest.Topic{Name: "operated", Replication: 3, Partitions: 1})
	if owner, _, err := s.open("operated", 0).Owner(bound(t)); err != nil || owner != mirror.OwnerOpen {
		t.Errorf("the new topic is %v, %v", owner, err)
	}
	eventually(t, "copies of the new topic", func() bool {
		return len(c.LogDirs("operated", 0, 1)) > 0 && len(s.writer.FindIn(c.SegmentBytes("operated", 0, 1))) > 0
	})
	s.writer.Stop()
	if err := s.Leave(bound(t)); err != nil {
		t.Errorf("leave: %v", err)
	}
}
