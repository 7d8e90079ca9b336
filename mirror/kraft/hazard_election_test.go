package kraft_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

const (
	unclean = "unclean.leader.election.enable"
	minISR  = "min.insync.replicas"
)

// setTopic sets a topic's setting as an operator does; nil takes it back.
func setTopic(t *testing.T, c *kafkatest.Cluster, topic, name string, value *string) {
	t.Helper()
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value}
	if value == nil {
		change.Op = kadm.DeleteConfig
	}
	rs, err := c.Admin().AlterTopicConfigs(bound(t), []kadm.AlterConfig{change}, topic)
	if err == nil {
		_, err = rs.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	if err != nil {
		t.Fatalf("%s of %s: %v", name, topic, err)
	}
}

// setCluster sets a setting for all brokers and controllers.
func setCluster(t *testing.T, c *kafkatest.Cluster, name, value string) {
	t.Helper()
	rs, err := c.Admin().AlterBrokerConfigs(bound(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}})
	for _, r := range rs {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		t.Fatalf("%s of the cluster: %v", name, err)
	}
}

func text(s string) *string { return &s }

// dies ends the process as a crash does, and waits until the controllers have noticed.
func (s *scene) dies() {
	s.t.Helper()
	began := time.Now()
	s.Close()
	s.fenced(s.cfg.NodeID)
	s.t.Logf("fenced %v after its end", time.Since(began).Round(time.Millisecond))
}

// returns joins again under the same node id: the same folder and listener address, as a process that is started again.
func (s *scene) returns() {
	s.t.Helper()
	cfg := s.cfg
	listener, err := net.Listen("tcp", s.cfg.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.Listener = listener
	began := time.Now()
	s.joined = joinWith(s.t, s.c, cfg)
	s.t.Logf("joined again after %v", time.Since(began).Round(time.Millisecond))
}

// leaders are who leads the topics.
func (s *scene) leaders(topics ...string) []int32 {
	s.t.Helper()
	im := s.w.image()
	var ids []int32
	for _, topic := range topics {
		p, _ := im.Partition(topic, 0)
		ids = append(ids, p.Leader)
	}
	return ids
}

// raise raises the leader epoch of one topic; it is a fence of the whole node.
func (s *scene) raise(topic string) error {
	l := s.open(topic, 0)
	_, err := s.RaiseLeaderEpochs(bound(s.t), map[mirror.TopicPartition]int32{{Topic: topic}: l.LeaderEpoch() + 2})
	return err
}

// refused waits until nothing can be appended to a topic any more.
func (s *scene) refused(topic, why string) {
	s.t.Helper()
	l := s.open(topic, 0)
	var err error
	eventually(s.t, "appends to be refused", func() bool {
		before := l.End()
		b := data(before, l.LeaderEpoch(), 1, topic)
		if err = l.Append(bound(s.t), l.LeaderEpoch(), b); err == nil {
			s.written[topic] = append(s.written[topic], b...)
		}
		return err != nil
	})
	if !strings.Contains(err.Error(), why) {
		s.t.Errorf("the refusal does not say %q: %v", why, err)
	}
}

// unsafe waits for the event about a topic, and says how long it took.
func (s *scene) unsafe(topic, why string, began time.Time) {
	s.t.Helper()
	eventually(s.t, "an event unsafe about "+topic, func() bool {
		return slices.ContainsFunc(s.seen(), func(e kraft.Event) bool {
			return e.Kind == kraft.Unsafe && e.Partition.Topic == topic && strings.Contains(e.Text, why)
		})
	})
	s.t.Logf("unsafe (%s of %s) was told %v after the change was asked for", why, topic, time.Since(began).Round(time.Millisecond))
}

// counted counts the heartbeats that ask to be fenced. The process changes no settings: a right to do that was taken away.
func counted(fences *atomic.Int32, drop *atomic.Bool) func(*kraft.Config) {
	return func(cfg *kraft.Config) {
		cfg.Intercept(func(_ context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error) {
			if r, ok := req.(*kmsg.IncrementalAlterConfigsRequest); ok && !r.ValidateOnly {
				return nil, kerr.TopicAuthorizationFailed
			}
			if r, ok := req.(*kmsg.BrokerHeartbeatRequest); ok {
				if r.WantFence {
					fences.Add(1)
				}
				if drop.Load() {
					return nil, errors.New("dropped by the test")
				}
			}
			return send()
		})
	}
}

// electUnclean is kafka-leader-election --election-type unclean.
func electUnclean(t *testing.T, c *kafkatest.Cluster, topic string) error {
	t.Helper()
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType, req.TimeoutMillis = 1, 10_000
	et := kmsg.NewElectLeadersRequestTopic()
	et.Topic, et.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, et)
	resp, err := req.RequestWith(bound(t), c.AdminClient())
	if err != nil {
		t.Fatal(err)
	}
	err = kerr.ErrorForCode(resp.ErrorCode)
	for _, at := range resp.Topics {
		for _, p := range at.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	return err
}

// TestRealKafkaUncleanElectionEverywhere: unclean elections are on in every server.properties, and then for the whole cluster too. A fence and a crash make no stock broker the leader,
// and everything is known again afterwards. Then somebody deletes the topic's own setting, so that the cluster's holds, and it cannot be set back: that is told, nothing is appended, no fence is sent; and when the
// process dies nevertheless, a stock broker leads: that is what the operator has asked for.
func TestRealKafkaUncleanElectionEverywhere(t *testing.T) {
	c := short(t, 1, map[string]string{unclean: "true"})
	var fences atomic.Int32
	var drop atomic.Bool
	s := play(t, c, []string{"kept"}, quick, counted(&fences, &drop))
	if err := s.raise("kept"); err != nil {
		t.Fatal(err)
	}
	s.more("kept", 2)
	setCluster(t, c, unclean, "true")
	if err := s.raise("kept"); err != nil {
		t.Fatal(err)
	}
	s.more("kept", 2)
	await(t, s.open("kept", 0))
	s.writer.WaitRounds(1)
	s.dies()
	if got := s.leaders("kept"); got[0] != -1 {
		t.Errorf("leader %v after the death of this process", got)
	}
	// The longest follower may be gone for a moment: that elects nobody either.
	c.Stop(3)
	c.StartBroker(3)
	s.writer.WaitRounds(1)
	s.closedAll()
	s.returns()
	s.more("kept", 2)
	await(t, s.open("kept", 0))
	s.exactly("kept", 1, 2, 3)

	l := s.create("deleted", 1)
	appendTo(t, l, data(0, l.LeaderEpoch(), 3, "deleted"))
	await(t, l)
	sent := fences.Load()
	began := time.Now()
	setTopic(t, c, "deleted", unclean, nil)
	s.unsafe("deleted", unclean, began)
	s.refused("deleted", unclean)
	if err := s.raise("kept"); err == nil || fences.Load() != sent {
		t.Errorf("a fence was sent (%v)", err)
	}
	s.dies()
	eventually(t, "what happens to the topic without its setting", func() bool { return s.leaders("deleted")[0] >= 0 })
	t.Log("deleted:", s.w.history("deleted", 0))
	if got := s.leaders("kept"); got[0] != -1 {
		t.Errorf("leader %v of the other topic", got)
	}
	s.closedAll()
}

// TestRealKafkaUncleanElectionOfTopic: somebody sets, or deletes, the setting of single topics while they are mirrored, and this process may not set it back. It is told, and until somebody does nothing is appended to the topic
// and no fence is sent. With the setting true a crash makes a stock broker the leader: the operator has asked for it. A deleted one is as good as false when the cluster's is.
// An election of any type that an operator asks for changes nothing while this process leads, and makes a stock broker the leader while it is fenced: that is a violation.
func TestRealKafkaUncleanElectionOfTopic(t *testing.T) {
	c := short(t, 3, nil)
	var fences atomic.Int32
	var drop atomic.Bool
	s := play(t, c, []string{"deleted", "bystander"}, quick, counted(&fences, &drop))
	for _, topic := range []string{"set", "elected", "late"} {
		l := s.create(topic, 1)
		appendTo(t, l, data(0, l.LeaderEpoch(), 3, topic))
		await(t, l)
	}
	for _, v := range []struct {
		topic string
		value *string
	}{{"set", text("true")}, {"deleted", nil}} {
		sent, began := fences.Load(), time.Now()
		setTopic(t, c, v.topic, unclean, v.value)
		s.unsafe(v.topic, unclean, began)
		s.refused(v.topic, unclean)
		if err := s.raise("bystander"); err == nil || !strings.Contains(err.Error(), v.topic) || fences.Load() != sent {
			t.Errorf("a fence was sent, or the refusal does not name %s: %v", v.topic, err)
		}
		s.more("bystander", 1)
		setTopic(t, c, v.topic, unclean, text("false"))
		eventually(t, "a fence to be possible again", func() bool { return s.raise("bystander") == nil })
	}
	s.more("deleted", 1)

	if err := electUnclean(t, c, "elected"); !errors.Is(err, kerr.ElectionNotNeeded) {
		t.Errorf("an unclean election while this process leads: %v", err)
	}
	setTopic(t, c, "set", unclean, text("true"))
	setTopic(t, c, "deleted", unclean, nil)
	for _, topic := range []string{"deleted", "bystander"} {
		await(t, s.open(topic, 0))
	}
	elected := s.open("elected", 0)
	drop.Store(true) // the process lives and is fenced
	s.fenced(nodeID)
	eventually(t, "the outcome of the setting true", func() bool { return s.leaders("set")[0] >= 0 })
	if err := electUnclean(t, c, "elected"); err != nil {
		t.Errorf("an unclean election while this process is fenced: %v", err)
	}
	// With the process away somebody sets it: the controllers look for partitions without a leader every unclean.leader.election.interval.ms (5 minutes).
	setTopic(t, c, "late", unclean, text("true"))
	eventually(t, "violations to be told", func() bool {
		told := map[string]bool{}
		for _, e := range s.seen() {
			if e.Kind == kraft.Violation {
				told[e.Partition.Topic] = true
			}
		}
		return told["set"] && told["elected"] && !told["deleted"] && !told["bystander"]
	})
	if err := elected.Append(bound(t), elected.LeaderEpoch(), data(elected.End(), elected.LeaderEpoch(), 1, "x")); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("append to a topic that a stock broker leads: %v", err)
	}
	if owner, _, err := elected.Owner(bound(t)); owner != mirror.OwnerOpen || err != nil {
		t.Errorf("a topic that a stock broker leads is %v, %v", owner, err)
	}
	for _, topic := range []string{"set", "elected", "late"} {
		t.Log(topic, ":", s.w.history(topic, 0))
	}
	drop.Store(false)
	eventually(t, "this process to lead again", func() bool { return slices.Equal(s.leaders("deleted", "bystander"), []int32{nodeID, nodeID}) })
	if got := s.leaders("set", "elected"); got[0] == nodeID || got[1] == nodeID {
		t.Errorf("leaders %v: what a stock broker led was taken back by itself", got)
	}
	s.more("bystander", 2)
	await(t, s.open("bystander", 0))
	s.exactly("bystander", 1, 2, 3)
	s.exactly("deleted", 1, 2, 3)
	s.closedAll()
}

// TestRealKafkaMinInSyncReplicasRaised: min.insync.replicas of a topic is raised to 2, and the cluster's to 3, while this process is the only one in sync. No stock broker becomes eligible
// by that (KIP-966), whether this process dies or not: they are not in sync, and only who leaves the in-sync replicas can be. Where it cannot be set back that is told, nothing is appended and no fence is sent; it
// would be dangerous in the next shrinking.
func TestRealKafkaMinInSyncReplicasRaised(t *testing.T) {
	c := short(t, 1, nil)
	var fences atomic.Int32
	var drop atomic.Bool
	s := play(t, c, []string{"raised", "default", "unset"}, quick, counted(&fences, &drop))
	setCluster(t, c, minISR, "3")
	s.more("default", 1)
	for _, v := range []struct {
		topic string
		value *string
	}{{"raised", text("2")}, {"unset", nil}} {
		sent, began := fences.Load(), time.Now()
		setTopic(t, c, v.topic, minISR, v.value)
		s.unsafe(v.topic, minISR, began)
		s.refused(v.topic, minISR)
		if err := s.raise("default"); err == nil || !strings.Contains(err.Error(), v.topic) || fences.Load() != sent {
			t.Errorf("a fence was sent, or the refusal does not name %s: %v", v.topic, err)
		}
	}
	for _, topic := range []string{"raised", "default", "unset"} {
		await(t, s.open(topic, 0))
	}
	s.dies()
	s.writer.WaitRounds(1)
	for _, topic := range []string{"raised", "default", "unset"} {
		if p := s.w.partition(topic, 0); p.Leader != -1 || len(p.ELR) > 1 {
			t.Errorf("%s: leader %d, ELR %v", topic, p.Leader, p.ELR)
		}
	}
	// A stock broker that comes back changes nothing either.
	c.Stop(2)
	c.StartBroker(2)
	s.writer.WaitRounds(1)
	t.Log("raised:", s.w.history("raised", 0))
	s.returns()
	s.more("default", 2)
	s.refused("raised", minISR)
	setTopic(t, c, "raised", minISR, text("1"))
	setTopic(t, c, "unset", minISR, text("1"))
	eventually(t, "a fence to be possible again", func() bool { return s.raise("default") == nil })
	for _, topic := range []string{"raised", "default", "unset"} {
		s.more(topic, 1)
		await(t, s.open(topic, 0))
		s.exactly(topic, 1, 2, 3)
	}
	s.closedAll()
}
