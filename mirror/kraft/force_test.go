package kraft_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// shortSession makes the controllers give a silent broker up soon.
var shortSession = map[string]string{"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}

// TestRealKafkaForce: the mirror process is gone for good, with a transaction open. Force refuses while it is alive, records before it opens, elects the longest copy although another
// broker comes first, aborts the transaction, and puts the settings back.
func TestRealKafkaForce(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Config: shortSession})
	j := join(t, c, func(cfg *kraft.Config) {
		cfg.SessionTimeout, cfg.HeartbeatInterval = 3*time.Second, 500*time.Millisecond
	})
	j.create("forced", 2)
	l := j.open("forced", 1) // its stock replicas are 2, 3, 1, in this order
	plain, late := data(0, 0, 5, "plain"), data(6, 0, 4, "late")
	appendTo(t, l, plain)
	open := batch.AppendData(nil, batch.DataSpec{BaseOffset: 5, LeaderEpoch: 0, ProducerID: 70, ProducerEpoch: 0, BaseSequence: 0, Transactional: true,
		BaseTimestamp: time.Now().UnixMilli(), Records: []batch.Record{{Value: []byte("open")}}})
	appendTo(t, l, open)
	await(t, l)
	whole := len(plain) + len(open) + len(late)
	c.Pause(2) // misses what comes now
	appendTo(t, l, late)
	eventually(t, "brokers 1 and 3 to have everything", func() bool {
		return len(c.WaitSameSegments("forced", 1, 1, 3)) == whole && l.Replicated() == 10 // a broker that has only just begun has no folder yet
	})
	var recorded atomic.Int32
	record := func(_ context.Context, f kraft.Forced) error {
		recorded.Add(1)
		if f.Partition.Partition == 0 {
			return nil
		}
		if f.End != 10 || f.Epoch != 0 {
			t.Errorf("recorded %+v, it ended at 10 in epoch 0", f)
		}
		return nil
	}
	if _, err := kraft.Force(bound(t), j.cfg, nil, record); err == nil || !strings.Contains(err.Error(), "is alive") {
		t.Fatalf("force while the process lives: %v", err)
	}
	j.Close()
	c.Resume(2)
	refuse := errors.New("the store does not answer")
	var forced []kraft.Forced
	eventually(t, "the session to end", func() bool {
		_, err := kraft.Force(bound(t), j.cfg, nil, func(context.Context, kraft.Forced) error { return refuse })
		if err != nil && strings.Contains(err.Error(), "is alive") {
			return false
		}
		if !errors.Is(err, refuse) {
			t.Fatalf("force without a record: %v", err)
		}
		return true
	})
	if leader := c.LeaderOf("forced", 1); leader >= 0 {
		t.Fatalf("broker %d leads although nothing was recorded", leader)
	}
	planned, err := kraft.PlanForce(bound(t), j.cfg, nil)
	if err != nil || len(planned) != 2 || planned[0].Err != nil || planned[1].Err != nil {
		t.Fatalf("planned: %+v, %v", planned, err)
	}
	if f := planned[1]; f.Leader == 2 || f.Aborted != 1 || f.End != 10 || f.Epoch != 0 {
		t.Errorf("planned %+v", f)
	}
	if leader := c.LeaderOf("forced", 1); leader >= 0 {
		t.Fatalf("broker %d leads although it was only planned", leader)
	}
	forced, err = kraft.Force(bound(t), j.cfg, []string{"forced"}, record)
	if err != nil || len(forced) != 2 || recorded.Load() != 2 {
		t.Fatalf("force: %+v, recorded %d times: %v", forced, recorded.Load(), err)
	}
	if forced[1].Leader != planned[1].Leader {
		t.Errorf("planned was broker %d, and %d leads", planned[1].Leader, forced[1].Leader)
	}
	if f := forced[1]; f.Leader == 2 || f.Aborted != 1 || f.End != 10 {
		t.Fatalf("forced %+v", f)
	}
	if at := produce(t, c, "forced", 1, "local"); at != 11 {
		t.Fatalf("the first local record is at %d, the ABORT marker is at 10", at)
	}
	cl := c.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"forced": {1: kgo.NewOffset().AtStart()}}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var read []string
	for len(read) < 10 {
		fs := cl.PollFetches(bound(t))
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) { read = append(read, string(r.Value)) })
	}
	if got := strings.Join(read, " "); got != "plain-0 plain-1 plain-2 plain-3 plain-4 late-0 late-1 late-2 late-3 local" {
		t.Fatalf("a read_committed consumer reads %s", got)
	}
	c.WaitISR("forced", 1, 1, 2, 3)
	for _, name := range []string{"min.insync.replicas", "unclean.leader.election.enable"} {
		if v, ok := topicConfig(t, c, "forced", name); ok {
			t.Errorf("%s=%s is left behind", name, v)
		}
	}
	if _, err := kraft.Force(bound(t), j.cfg, nil, record); err == nil {
		t.Error("nothing is left to force, and Force said nothing")
	}
}

// TestRealKafkaForceOneCopy: one broker, one copy. Nothing but the election changes its in-sync replicas, so nobody would ever complete the reassignment that takes the gone node out. Force does,
// and so does one that finds a partition which an earlier Force left in the middle, with the reassignment pending or cancelled.
func TestRealKafkaForceOneCopy(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Config: shortSession})
	j := join(t, c, func(cfg *kraft.Config) {
		cfg.SessionTimeout, cfg.HeartbeatInterval = 3*time.Second, 500*time.Millisecond
	})
	for _, topic := range []string{"whole", "left", "cancelled"} {
		j.create(topic, 2)
		for p := range int32(2) {
			l := j.open(topic, p)
			appendTo(t, l, data(0, 0, 5, "plain"))
			await(t, l)
		}
	}
	j.Close()
	eventually(t, "the session to end", func() bool {
		_, err := kraft.PlanForce(bound(t), j.cfg, nil)
		return err == nil
	})
	var mu sync.Mutex
	open := 0
	cfg := j.cfg
	cfg.Notice = func(e kraft.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == kraft.HandedOver && strings.Contains(e.Text, "broker 1 leads it, the mirror ended at 5") {
			open++
		}
	}
	done := func(topic string, again bool, forced []kraft.Forced, err error) {
		t.Helper()
		if err != nil || len(forced) != 2 {
			t.Fatalf("%s: %+v, %v", topic, forced, err)
		}
		for _, f := range forced {
			if f.Leader != 1 || f.End != 5 || !f.Opened || f.Again != again {
				t.Errorf("%+v", f)
			}
			eventually(t, "broker 1 to be the only replica", func() bool { // a broker hears of it a moment after Force
				p := c.Describe(topic, f.Partition.Partition)
				return slices.Equal(p.Replicas, []int32{1}) && p.Leader == 1
			})
		}
		for _, name := range []string{"min.insync.replicas", "unclean.leader.election.enable"} {
			eventually(t, name+" of "+topic+" to be put back", func() bool {
				_, own := topicConfig(t, c, topic, name)
				return !own
			})
		}
		if at := produce(t, c, topic, 1, "local"); at != 5 {
			t.Errorf("%s: the first local record is at %d", topic, at)
		}
	}
	kept := func(context.Context, kraft.Forced) error { return nil }
	forced, err := kraft.Force(bound(t), cfg, []string{"whole"}, kept)
	if done("whole", false, forced, err); open != 2 {
		t.Errorf("%d partitions were said to be open", open)
	}
	for _, topic := range []string{"left", "cancelled"} {
		short, stop := context.WithCancel(bound(t))
		cfg.Intercept(func(_ context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error) {
			if q, ok := req.(*kmsg.AlterPartitionAssignmentsRequest); ok && q.Topics[0].Partitions[0].Replicas == nil { // dies before it asks again
				stop()
				return nil, errors.New("it died")
			}
			return send()
		})
		forced, err := kraft.Force(short, cfg, []string{topic}, kept)
		if err == nil || len(forced) != 2 || !forced[0].Opened || !forced[1].Opened || !strings.Contains(err.Error(), "it is open, led by 1; broker 9999 is still among its replicas") {
			t.Fatalf("%s, left in the middle: %+v, %v", topic, forced, err)
		}
		for p := range int32(2) {
			eventually(t, "the broker to know what was left in the middle", func() bool {
				got := c.Describe(topic, p)
				return len(got.Replicas) == 2 && got.Leader == 1
			})
			if topic == "cancelled" {
				if err := reassign(t, c, topic, p); err != nil {
					t.Fatal(err)
				}
			}
		}
		forced, err = kraft.Force(bound(t), j.cfg, []string{topic}, kept)
		done(topic, true, forced, err)
	}
}

// topicConfig is a topic's own setting.
func topicConfig(t *testing.T, c *kafkatest.Cluster, topic, name string) (string, bool) {
	t.Helper()
	all, err := c.Admin().DescribeTopicConfigs(bound(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		for _, cf := range r.Configs {
			if cf.Key == name && cf.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				return cf.MaybeValue(), true
			}
		}
	}
	return "", false
}

// TestRealKafkaGive: a partition is moved to another mirror process, which knows all of it and goes on; nothing is asked of the followers but to follow.
func TestRealKafkaGive(t *testing.T) {
	c := kafkatest.Shared(t)
	a := join(t, c, func(cfg *kraft.Config) { cfg.NodeID = 7001 })
	b := join(t, c, func(cfg *kraft.Config) { cfg.NodeID, cfg.Remember = 7002, a.cfg.Remember })
	l := a.create("given", 1)
	all := data(0, 0, 5, "one")
	appendTo(t, l, all)
	if owner, _, err := b.open("given", 0).Owner(bound(t)); owner != mirror.OwnerForeign || err != nil {
		t.Fatalf("for the other process the log is %v, %v", owner, err)
	}
	tp := mirror.TopicPartition{Topic: "given"}
	if err := a.Give(bound(t), tp, 7002); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(bound(t), l.LeaderEpoch(), data(5, 0, 1, "no")); !errors.Is(err, mirror.ErrFenced) {
		t.Fatalf("append after the partition was given away: %v", err)
	}
	if owner, _, err := l.Owner(bound(t)); owner != mirror.OwnerForeign || err != nil {
		t.Fatalf("for the one who gave it away the log is %v, %v", owner, err)
	}
	m := b.open("given", 0)
	if owner, _, err := m.Owner(bound(t)); owner != mirror.OwnerOurs || err != nil || m.End() != 5 {
		t.Fatalf("the other process has it as %v, up to %d: %v", owner, m.End(), err)
	}
	more := data(5, 0, 5, "two")
	all = append(all, more...)
	appendTo(t, m, more)
	await(t, m)
	if got := c.WaitSameSegments("given", 0, 1, 2, 3); string(got) != string(all) {
		t.Fatal("the followers hold something else")
	}
	if err := m.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Leave(bound(t)), b.Leave(bound(t))); err != nil {
		t.Fatal(err)
	}
}
