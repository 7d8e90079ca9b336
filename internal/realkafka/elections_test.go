package realkafka_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
)

// load is a producer that does not stop when brokers do. acks are all.
type load struct {
	cl    *kgo.Client
	stop  context.CancelFunc
	done  sync.WaitGroup
	acked atomic.Int64
}

func startLoad(t *testing.T, c *kafkatest.Cluster, topic string) *load {
	t.Helper()
	l := &load{cl: lives.Client(c, kgo.RequestRetries(1000), kgo.ProducerLinger(0))}
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	l.done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			// A record under way is not given up: its offset would be in doubt.
			if err := l.cl.ProduceSync(context.WithoutCancel(ctx), &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "load %d", n)}).FirstErr(); err != nil {
				t.Errorf("load: %v", err)
				return
			}
			l.acked.Add(1)
		}
	})
	t.Cleanup(func() { l.end() })
	return l
}

func (l *load) end() int64 {
	l.stop()
	l.done.Wait()
	return l.acked.Load()
}

// more waits until n more records were written, and the mirror has copied as many more.
func (l *load) more(r *running, topic string, n int64) {
	r.t.Helper()
	acked, copied := l.acked.Load()+n, lives.One(r.Status(), topic, 0).End+n
	lives.Eventually(r.t, "the load and the mirror go on", func() (bool, string) {
		return l.acked.Load() >= acked && lives.One(r.Status(), topic, 0).End >= copied, fmt.Sprintf("%d written%s", l.acked.Load(), lives.Show(r.Status()))
	})
}

func TestSpec4LeaderChangesAndDeathsUnderLoad(t *testing.T) {
	c := rough(t)
	topic := "under-load"
	c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{2, 3}}})
	r := open(t, c)
	r.start(topic)
	l := startLoad(t, c, topic)
	l.more(r, topic, 50)

	c.MoveLeader(topic, 0, 3)
	l.more(r, topic, 50)

	c.Kill(3) // the leader, at once
	c.WaitPartition(topic, 0, "leader 2", func(p kafkatest.Partition) bool { return p.Leader == 2 })
	l.more(r, topic, 50)
	c.StartBroker(3)
	c.WaitISR(topic, 0, 2, 3)
	l.more(r, topic, 50)

	c.Stop(2) // the leader, cleanly
	c.WaitPartition(topic, 0, "leader 3", func(p kafkatest.Partition) bool { return p.Leader == 3 })
	l.more(r, topic, 50)
	c.StartBroker(2)
	c.WaitISR(topic, 0, 2, 3)
	l.more(r, topic, 50)

	acked := l.end()
	end := lives.OffsetOf(t, c, lives.Latest, topic, 0)
	if end < acked {
		t.Fatalf("%d records were acknowledged, the log ends at %d", acked, end)
	}
	hs := lives.Headers(r.same(topic, 0, end))
	epochs := map[int32]bool{}
	for _, h := range hs {
		epochs[h.LeaderEpoch] = true
	}
	if len(epochs) < 4 {
		t.Errorf("only leader epochs %v: the leader did not change three times", epochs)
	}
	for what, n := range map[string]int{"dropped": len(told[recordsDropped](r)), "lost": len(told[recordsLost](r))} {
		if n != 0 {
			t.Errorf("%d ranges are told as %s; every election was clean", n, what)
		}
	}
	p := lives.One(r.Status(), topic, 0)
	if p.LeaderEpoch < p.SourceLeaderEpoch {
		t.Errorf("destination leader epoch %d, source %d", p.LeaderEpoch, p.SourceLeaderEpoch)
	}
}

func TestF42DestinationEpochFollowsElections(t *testing.T) {
	c := rough(t)
	topic := "f42-epochs"
	c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{2, 3}}})
	cl := lives.Client(c)
	lives.Produce(t, cl, topic, 0, "in the first epoch")
	r := open(t, c)
	r.start(topic)
	r.same(topic, 0, 1)
	follows := func() mirror.PartitionStatus {
		t.Helper()
		now := c.Describe(topic, 0).LeaderEpoch
		return r.until(fmt.Sprintf("the destination's leader epoch is at least %d", now), topic, 0, func(p mirror.PartitionStatus) bool {
			return p.SourceLeaderEpoch >= now && p.LeaderEpoch >= now
		})
	}
	// Without a record: no batch says what the epoch is.
	for _, b := range []int32{3, 2, 3} {
		c.MoveLeader(topic, 0, b)
		follows()
	}
	// A jump of many epochs between two refreshes, while the mirror is paused.
	r.pause(topic)
	for i := range 12 {
		c.MoveLeader(topic, 0, []int32{2, 3}[i%2])
	}
	lives.Produce(t, cl, topic, 0, "after the jump")
	r.resume(topic)
	hs := lives.Headers(r.same(topic, 0, 2))
	p := follows()
	if last := hs[len(hs)-1].LeaderEpoch; last < 12 || p.LeaderEpoch < last {
		t.Errorf("destination leader epoch %d, the last batch's %d", p.LeaderEpoch, last)
	}
}

func produceTens(t *testing.T, c *kafkatest.Cluster, topic, name string, tens int) {
	t.Helper()
	cl := lives.Client(c)
	defer cl.Close()
	for range tens {
		lives.Produce(t, cl, topic, 0, lives.Values(name, 10)...)
	}
}

func TestF35UncleanElectionReplacesTheTail(t *testing.T) {
	c := rough(t)
	topic := "f35-unclean"
	c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{2, 3}}})
	r := open(t, c)
	r.start(topic)
	produceTens(t, c, topic, "on both", 9)
	lives.Freeze(t, c, topic, 3)
	produceTens(t, c, topic, "on broker 2 only", 1)
	r.same(topic, 0, 100)
	lives.FreezeLeader(t, c, topic, 2)
	lives.Elect(t, c, topic, 3)
	produceTens(t, c, topic, "on broker 3, other", 2)
	r.same(topic, 0, 110)
	if dropped := told[recordsDropped](r); len(dropped) != 1 || dropped[0].From != 90 || dropped[0].To != 100 {
		t.Errorf("dropped: %v; want [90,100)", dropped)
	}
	if p := lives.One(r.Status(), topic, 0); p.DroppedFrom != 90 || p.DroppedTo != 100 {
		t.Errorf("the status says [%d,%d) was dropped", p.DroppedFrom, p.DroppedTo)
	}
	// The old leader comes back and follows; nothing changes for the copy.
	c.Resume(2)
	c.WaitReady()
	c.WaitISR(topic, 0, 2, 3)
	c.WaitSameSegments(topic, 0, 2, 3)
	r.same(topic, 0, 110)
}

// Two elections while the mirror does not look: broker 2 has epochs that broker 3 has not, and the other way round. One question is not enough.
func TestF36TwoUncleanElections(t *testing.T) {
	c := rough(t)
	topic := "f36-two-elections"
	c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{2, 3}}})
	r := open(t, c)
	r.start(topic)
	produceTens(t, c, topic, "first epoch", 1)
	c.MoveLeader(topic, 0, 3)
	c.MoveLeader(topic, 0, 2)
	cl := lives.Client(c)
	lives.Produce(t, cl, topic, 0, lives.Values("on both", 3)...) // 10..12
	lives.Freeze(t, c, topic, 3)
	lives.Produce(t, cl, topic, 0, lives.Values("on broker 2 only", 2)...) // 13..14
	r.same(topic, 0, 15)
	r.pause(topic)

	lives.FreezeLeader(t, c, topic, 2)
	lives.Elect(t, c, topic, 3)
	lives.Produce(t, lives.Client(c), topic, 0, lives.Values("on broker 3 only", 8)...) // 13..20, never seen
	lives.FreezeLeader(t, c, topic, 3)
	lives.Elect(t, c, topic, 2)
	lives.Produce(t, lives.Client(c), topic, 0, lives.Values("on broker 2 again", 5)...) // 15..19
	r.resume(topic)
	r.same(topic, 0, 20)
	if dropped := told[recordsDropped](r); len(dropped) != 0 {
		t.Fatalf("dropped: %v; broker 2 had all that was copied", dropped)
	}

	lives.FreezeLeader(t, c, topic, 2)
	lives.Elect(t, c, topic, 3)
	lives.Produce(t, lives.Client(c), topic, 0, "the end") // 21
	r.same(topic, 0, 22)
	dropped := told[recordsDropped](r)
	if len(dropped) == 0 || dropped[len(dropped)-1].From != 13 || dropped[0].To != 20 {
		t.Errorf("dropped: %v; want [13,20), in one or two rounds", dropped)
	}
	c.Resume(2)
	c.WaitReady()
	c.WaitISR(topic, 0, 2, 3)
}
