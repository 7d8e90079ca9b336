package kraft_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

func offsets(topic string, at ...int64) map[mirror.TopicPartition]mirror.GroupOffset {
	m := map[mirror.TopicPartition]mirror.GroupOffset{}
	for p, o := range at {
		m[mirror.TopicPartition{Topic: topic, Partition: int32(p)}] = mirror.GroupOffset{Offset: o, LeaderEpoch: mirror.Unknown, Metadata: fmt.Sprint("note ", o)}
	}
	return m
}

// TestRealKafkaGroups: a joined process lists, reads and moves the groups of its cluster, on partitions that it leads itself, and is asked for nothing of that itself.
func TestRealKafkaGroups(t *testing.T) {
	c := kafkatest.Shared(t)
	j := join(t, c, func(cfg *kraft.Config) { cfg.NodeID = 8101 })
	topic := fmt.Sprintf("groups-%d", time.Now().UnixNano()) // the cluster may have seen this test before
	j.create(topic, 2)
	g := mirror.Group{Name: topic + " of a destination"}
	want := offsets(topic, 0, 7)
	asked := maps.Clone(want)
	asked[mirror.TopicPartition{Topic: topic, Partition: 5}] = mirror.GroupOffset{}
	refused, err := j.WriteGroupOffsets(bound(t), g, asked)
	if err != nil || len(refused) != 1 || refused[mirror.TopicPartition{Topic: topic, Partition: 5}] == nil {
		t.Fatalf("%v, refused %v", err, refused)
	}
	got, err := j.GroupOffsets(bound(t), []mirror.Group{g, {Name: "nobody"}})
	if err != nil || got[g.Name].Err != nil || !maps.Equal(got[g.Name].Offsets, want) || got["nobody"].Err != nil || len(got["nobody"].Offsets) != 0 {
		t.Fatalf("%v, %+v", err, got)
	}
	groups, err := j.Groups(bound(t))
	if err != nil || !slices.Contains(groups, mirror.Group{Name: g.Name, State: "Empty"}) {
		t.Fatalf("%v, %+v", err, groups)
	}
	member := c.Client(kgo.ConsumerGroup(g.Name), kgo.ConsumeTopics(topic))
	eventually(t, "a member", func() bool {
		groups, err := j.Groups(bound(t))
		return err == nil && slices.ContainsFunc(groups, func(l mirror.Group) bool { return l.Name == g.Name && l.Active })
	})
	if refused, err := j.WriteGroupOffsets(bound(t), g, offsets(topic, 1, 1)); !errors.Is(err, mirror.ErrGroupActive) || len(refused) != 0 {
		t.Fatalf("with a member: %v, refused %v", err, refused)
	}
	if got, err = j.GroupOffsets(bound(t), []mirror.Group{g}); err != nil || !maps.Equal(got[g.Name].Offsets, want) {
		t.Fatalf("with a member: %v, %+v", err, got)
	}
	member.Close()
	j.Close()
	if _, err := j.Groups(bound(t)); !errors.Is(err, kraft.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := j.GroupOffsets(bound(t), []mirror.Group{g}); !errors.Is(err, kraft.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := j.WriteGroupOffsets(bound(t), g, want); !errors.Is(err, kraft.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestF59RealKafkaDeadCoordinator: while the broker that coordinates g2 is dead, g3 is read and moved as before, and g2 comes back by itself, with the same Destination.
func TestF59RealKafkaDeadCoordinator(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Config: map[string]string{"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}})
	j := join(t, c)
	c.CreateTopic(kafkatest.Topic{Name: "t", Partitions: 1, Replication: 3})
	// Broker 1 is the controller, which must live.
	of := map[int32]mirror.Group{}
	for i := 0; len(of) < 3; i++ {
		name := fmt.Sprint("g", i)
		if found := c.Admin().FindGroupCoordinators(bound(t), name)[name]; found.Err == nil {
			of[found.NodeID] = mirror.Group{Name: name}
		}
	}
	g2, g3 := of[2], of[3]
	write := func(g mirror.Group, at int64) error {
		refused, err := j.WriteGroupOffsets(bound(t), g, offsets("t", at))
		if len(refused) > 0 {
			t.Fatalf("%s: refused %v", g.Name, refused)
		}
		return err
	}
	for _, g := range of {
		if err := write(g, 1); err != nil {
			t.Fatal(err)
		}
	}
	c.Kill(2)
	failed := 0
	back := func(at int64) bool {
		t.Helper()
		got, err := j.GroupOffsets(bound(t), []mirror.Group{g2, g3})
		if err != nil || got[g3.Name].Err != nil || !maps.Equal(got[g3.Name].Offsets, offsets("t", at)) {
			t.Fatalf("g3 is harmed: %v, %+v", err, got)
		}
		if err := got[g2.Name].Err; err != nil {
			failed++
			return false
		}
		return maps.Equal(got[g2.Name].Offsets, offsets("t", 1))
	}
	at := int64(1)
	eventually(t, "g2 at another coordinator", func() bool {
		if back(at) {
			return true
		}
		at++
		if err := write(g3, at); err != nil {
			t.Fatalf("g3 cannot be moved: %v", err)
		}
		groups, err := j.Groups(bound(t))
		if err != nil && strings.Contains(err.Error(), "COORDINATOR_LOAD_IN_PROGRESS") { // what broker 2 had is being taken over
			return false
		}
		if err != nil && !strings.Contains(err.Error(), "broker 2: ListGroups") || !slices.ContainsFunc(groups, func(g mirror.Group) bool { return g.Name == g3.Name }) {
			t.Fatalf("%v, %+v", err, groups)
		}
		return false
	})
	if failed == 0 {
		t.Error("nothing failed: the broker was not g2's coordinator")
	}
	if err := write(g2, 9); err != nil {
		t.Errorf("g2 is read, but cannot be moved: %v", err)
	}
	if groups, err := j.Groups(bound(t)); err != nil || !slices.ContainsFunc(groups, func(g mirror.Group) bool { return g.Name == g2.Name }) {
		t.Errorf("%v, %+v", err, groups)
	}
}
