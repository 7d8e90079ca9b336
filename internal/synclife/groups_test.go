package synclife_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
)

// one is a place in partition 0.
func one(offset int64) map[int32]int64 { return map[int32]int64{0: offset} }

// refreshes waits until groups were looked at n times more, each look from its beginning to its end.
func refreshes(t *testing.T, r *lives.Running, n int) {
	t.Helper()
	for range n + 1 { // the first one may have begun before
		before := r.Status().Metadata.Groups.At
		lives.Eventually(t, "groups are looked at", func() (bool, string) {
			s := r.Status().Metadata.Groups
			return s.At.After(before), fmt.Sprintf("%+v", s)
		})
	}
}

// stays checks that a group does not move in partition 0 while the mirror looks at it several times.
func stays(t *testing.T, r *lives.Running, c *kafkatest.Cluster, group, topic string, offset int64) {
	t.Helper()
	refreshes(t, r, 3)
	if got := lives.CommittedAt(t, c, group, topic, 0); got != offset {
		t.Errorf("group %s is at %d, want %d", group, got, offset)
	}
}

// skipped waits until the status says of a group that it was left, and why.
func skipped(t *testing.T, r *lives.Running, group string, words ...string) {
	t.Helper()
	lives.Eventually(t, fmt.Sprintf("the status says %q of group %s", words, group), func() (bool, string) {
		all := r.Status().Metadata.Groups.Skipped
		return slices.ContainsFunc(all, func(line string) bool {
			return strings.Contains(line, "group "+group+": ") && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
		}), fmt.Sprintf("%q", all)
	})
}

// state waits until a group of any kind is in a state.
func state(t *testing.T, c *kafkatest.Cluster, group, want string) {
	t.Helper()
	lives.Eventually(t, "group "+group+" is "+want, func() (bool, string) {
		all, err := c.Admin().ListGroups(lives.Limited(t))
		return err == nil && all[group].State == want, fmt.Sprint(all[group], err)
	})
}

// working is a member of a group that is at work on some topic of its cluster. It commits only what it is told.
func working(t *testing.T, c *kafkatest.Cluster, group, topic string, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl := c.Client(append([]kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit()}, more...)...)
	state(t, c, group, "Stable")
	return cl
}

func commitAsMember(t *testing.T, cl *kgo.Client, topic string, offset int64) {
	t.Helper()
	lives.Eventually(t, "the member commits", func() (bool, string) { // it may still have to join once more
		refused := error(nil)
		cl.CommitOffsetsSync(lives.Limited(t), map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: offset}}}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if refused = err; err == nil {
				refused = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
			}
		})
		return refused == nil, fmt.Sprint(refused)
	})
}

func leave(t *testing.T, c *kafkatest.Cluster, cl *kgo.Client, group string) {
	t.Helper()
	cl.Close()
	state(t, c, group, "Empty")
}

func fill(t *testing.T, c *kafkatest.Cluster, topic string, n int) {
	t.Helper()
	cl := lives.Client(c)
	for ; n > 0; n -= 100 {
		lives.Produce(t, cl, topic, 0, lives.Values("of the source", min(n, 100))...)
	}
}

func TestF56GroupAheadOfTheMirrorOrBehindItsStart(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "f56"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	a.CreateTopic(kafkatest.Topic{Name: "f56-other"})
	fill(t, a, topic, 1000)
	source := newGated(t, a)
	r := lives.Open(t, topic, a, lives.Join(t, b), func(c *mirror.Config) { c.Source = source })
	r.Start(topic)
	r.InStep(topic, 0, 1000)
	a.DeleteRecords(topic, 0, 100)
	r.Until("trimmed", topic, 0, func(p mirror.PartitionStatus) bool { return p.Start == 100 })
	source.hold()
	fill(t, a, topic, 500)
	for group, offset := range map[string]int64{"f56-ahead": 1500, "f56-end": 1000, "f56-within": 500, "f56-below": 50} {
		lives.Commit(t, a, group, topic, 0, offset, 0)
	}
	lives.Commit(t, a, "f56-none", "f56-other", 0, 0, 0)
	for group, offset := range map[string]int64{"f56-ahead": 1000, "f56-end": 1000, "f56-within": 500, "f56-below": 100} {
		at(t, b, group, topic, one(offset))
	}
	stays(t, r, b, "f56-none", topic, -1)
	source.letGo()
	at(t, b, "f56-ahead", topic, one(1500))

	// The mirror ends behind its source.
	source.hold()
	fill(t, a, topic, 100)
	lives.Commit(t, a, "f56-ahead", topic, 0, 1600, 0)
	stays(t, r, b, "f56-ahead", topic, 1500)
	got := r.Failover().Partitions[0]
	if got.FinalOffset != 1500 {
		t.Fatalf("%+v", got)
	}
	at(t, b, "f56-ahead", topic, one(1500))
	lives.Produce(t, lives.Client(b), topic, 0, "of the destination")
	resumes(t, "the group that was ahead", lives.Resumes(t, b, "f56-ahead", topic, []int32{0}), one(got.OpensAt))
	resumes(t, "the group that was below", lives.Resumes(t, b, "f56-below", topic, []int32{0}), one(100))
	source.letGo()
}

// Groups that work at the destination are theirs: when they are active, when they become so between the mirror's look and its write, and after the cut-over. That is so for members of both
// protocols (KIP-848).
func TestF57GroupThatWorksAtTheDestinationIsNotMoved(t *testing.T) {
	a, b := primary(t), standby(t)
	topic, later, local := "f57", "f57-later", "f57-local"
	for _, name := range []string{topic, later} {
		a.CreateTopic(kafkatest.Topic{Name: name})
		fill(t, a, name, 1000)
	}
	lives.Commit(t, a, "f57-later", later, 0, 7, 0)
	b.CreateTopic(kafkatest.Topic{Name: local, Replication: 3})
	active := map[string]*kgo.Client{"f57-active": nil, "f57-active-848": nil}
	joining := map[string]*kgo.Client{"f57-joins": nil, "f57-joins-848": nil}
	groups := slices.Concat(slices.Collect(maps.Keys(active)), slices.Collect(maps.Keys(joining)), []string{"f57-idle"})
	protocol := func(group string) []kgo.Opt {
		if strings.HasSuffix(group, "-848") {
			return []kgo.Opt{kgo.ServerSideBalancer()}
		}
		return nil
	}
	for _, group := range groups {
		lives.Commit(t, a, group, topic, 0, 400, 0)
	}
	process := lives.Join(t, b)
	var mu sync.Mutex
	armed := false
	seen := &watched{Destination: process.Destination, before: func(g mirror.Group) {
		mu.Lock()
		defer mu.Unlock()
		if cl, joins := joining[g.Name]; armed && joins && cl == nil {
			joining[g.Name] = working(t, b, g.Name, local, protocol(g.Name)...)
		}
	}}
	r := lives.Open(t, topic, a, process, func(c *mirror.Config) { c.Destination = seen })
	r.Start(topic)
	for _, group := range groups {
		at(t, b, group, topic, one(400))
	}
	for group := range active {
		active[group] = working(t, b, group, local, protocol(group)...)
		commitAsMember(t, active[group], topic, 900)
	}
	mu.Lock()
	armed = true
	mu.Unlock()
	for _, group := range groups {
		lives.Commit(t, a, group, topic, 0, 500, 0)
	}
	at(t, b, "f57-idle", topic, one(500))
	for _, group := range groups {
		if group != "f57-idle" {
			skipped(t, r, group, topic+"-0", "active at the destination")
		}
	}
	stay := func(mirror *lives.Running, want map[string]int64) {
		t.Helper()
		refreshes(t, mirror, 3)
		for group, offset := range want {
			if got := lives.CommittedAt(t, b, group, topic, 0); got != offset {
				t.Errorf("group %s is at %d, want %d", group, got, offset)
			}
		}
	}
	stay(r, map[string]int64{"f57-active": 900, "f57-active-848": 900, "f57-joins": 400, "f57-joins-848": 400})
	mu.Lock()
	for group, cl := range joining {
		if cl == nil {
			t.Fatalf("nobody has joined %s between look and write", group)
		}
	}
	mu.Unlock()

	// They go on, and rest. The source's offset is behind what was done here.
	for group, cl := range active {
		commitAsMember(t, cl, topic, 950)
		leave(t, b, cl, group)
	}
	for group, cl := range joining {
		leave(t, b, cl, group)
		at(t, b, group, topic, one(500)) // it did nothing here: the mirror's again
	}
	worked := map[string]int64{"f57-active": 950, "f57-active-848": 950}
	stay(r, worked)
	r.End()
	r = lives.Open(t, topic, a, process)
	stay(r, worked)
	lives.Commit(t, a, "f57-active", topic, 0, 600, 0)
	stay(r, worked)
	r.Failover()
	at(t, b, "f57-active", topic, one(950))

	// After the cut-over it works here; a mirror that is started again looks on.
	lives.Produce(t, lives.Client(b), topic, 0, "of the destination")
	resumes(t, "the group that was idle", lives.Resumes(t, b, "f57-idle", topic, []int32{0}), one(500))
	resumes(t, "the group of the new protocol", lives.Resumes(t, b, "f57-active-848", topic, []int32{0}, kgo.ServerSideBalancer()), one(950))
	idle := working(t, b, "f57-idle", topic)
	commitAsMember(t, idle, topic, 990)
	leave(t, b, idle, "f57-idle")
	r.End()
	lives.Commit(t, a, "f57-idle", topic, 0, 700, 0)
	r = lives.Open(t, topic, a, process)
	r.Until("open", topic, 0, func(p mirror.PartitionStatus) bool { return p.Owner == mirror.OwnerOpen })
	r.Start(later) // so that it has something to look for
	at(t, b, "f57-later", later, one(7))
	stay(r, map[string]int64{"f57-active": 950, "f57-active-848": 950, "f57-joins": 500, "f57-joins-848": 500, "f57-idle": 990})
}

// The source elects leaders while it is mirrored, and members commit with the new epochs: nobody at the destination is told of an epoch that it has not reached.
func TestF42SourcesEpochsJump(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "f42"
	a.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	fill(t, a, topic, 50)
	r := lives.Open(t, topic, a, lives.Join(t, b))
	r.Start(topic)
	r.InStep(topic, 0, 50)
	for i, group := range []string{"f42-go", "f42-java"} {
		read := int64(50 + 20*i)
		replicas := a.Describe(topic, 0).Replicas
		for i := range 3 {
			a.MoveLeader(topic, 0, replicas[(i+1)%3])
		}
		fill(t, a, topic, 20)
		source := a.Describe(topic, 0).LeaderEpoch
		lives.CommitAsMember(t, a, group, topic, one(read+10))
		o, _ := lives.CommittedOffset(t, a, group, topic, 0)
		if o.LeaderEpoch != source || source < 3 {
			t.Fatalf("committed %+v, the source's leader epoch is %d", o, source)
		}
		at(t, b, group, topic, one(read+10))
		known(t, b, group, topic, 0)
		p := r.InStep(topic, 0, read+20)
		if p.LeaderEpoch < source {
			t.Errorf("the destination's leader epoch is %d, the source's %d", p.LeaderEpoch, source)
		}
	}
	r.Failover()
	known(t, b, "f42-go", topic, 0)
	known(t, b, "f42-java", topic, 0)
	resumes(t, "franz-go", lives.Resumes(t, b, "f42-go", topic, []int32{0}), one(60))
	resumes(t, "Kafka's own consumer", lives.JavaResumes(t, b, 10, "f42-java", topic), one(80))
}

// g1's offset is part of a transaction that is open. Its groups beside it go on.
func TestF55PendingTransactionalCommit(t *testing.T) {
	a, b := primary(t), standby(t)
	topic, out := "f55", "f55-out"
	for _, name := range []string{topic, out} {
		a.CreateTopic(kafkatest.Topic{Name: name, Replication: 3})
	}
	fill(t, a, topic, 100)
	groups := []string{"f55-g1", "f55-g2", "f55-g3"}
	for _, group := range groups {
		lives.Commit(t, a, group, topic, 0, 10, 0)
	}
	r := lives.Open(t, topic, a, lives.Join(t, b))
	r.Start(topic)
	for _, group := range groups {
		at(t, b, group, topic, one(10))
	}
	cl := lives.Client(a, kgo.TransactionalID(topic), lives.OldProtocol)
	pending := func(offset int64) {
		t.Helper()
		lives.Begin(t, cl)
		lives.Produce(t, cl, out, 0, "made of f55")
		id, epoch, err := cl.ProducerID(lives.Limited(t))
		if err != nil {
			t.Fatal(err)
		}
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = topic, id, epoch, "f55-g1"
		if resp, err := add.RequestWith(lives.Limited(t), cl); err != nil || resp.ErrorCode != 0 {
			t.Fatal(resp, err)
		}
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = topic, id, epoch, "f55-g1"
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Offset = offset
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		if resp, err := req.RequestWith(lives.Limited(t), cl); err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatal(resp, err)
		}
	}
	pending(50)
	for _, group := range groups[1:] {
		lives.Commit(t, a, group, topic, 0, 60, 0)
		at(t, b, group, topic, one(60))
	}
	skipped(t, r, "f55-g1", topic+"-0", "transaction")
	stays(t, r, b, "f55-g1", topic, 10)
	lives.Finish(t, a, cl, kgo.TryCommit, out, 0)
	at(t, b, "f55-g1", topic, one(50))
	pending(70)
	skipped(t, r, "f55-g1", topic+"-0", "transaction")
	lives.Finish(t, a, cl, kgo.TryAbort, out, 0)
	lives.Eventually(t, "nothing is pending", func() (bool, string) {
		all := r.Status().Metadata.Groups.Skipped
		return !strings.Contains(strings.Join(all, "\n"), "f55-g1"), fmt.Sprintf("%q", all)
	})
	stays(t, r, b, "f55-g1", topic, 50)
}

// An operator sets a group back at the source while no mirror runs. A restart alone moves nothing.
func TestF62DeliberateRewind(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "f62"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	fill(t, a, topic, 1000)
	lives.Commit(t, a, "f62-rewound", topic, 0, 900, 0)
	lives.Commit(t, a, "f62-moved-here", topic, 0, 900, 0)
	process := lives.Join(t, b)
	r := lives.Open(t, topic, a, process)
	r.Start(topic)
	at(t, b, "f62-rewound", topic, one(900))
	at(t, b, "f62-moved-here", topic, one(900))
	lives.Commit(t, b, "f62-moved-here", topic, 0, 300, 0)
	stays(t, r, b, "f62-moved-here", topic, 300)
	r.End()
	lives.Commit(t, a, "f62-rewound", topic, 0, 100, 0)
	r = lives.Open(t, topic, a, process)
	at(t, b, "f62-rewound", topic, one(100))
	stays(t, r, b, "f62-moved-here", topic, 300)
	told := slices.ContainsFunc(r.Told(), func(e mirror.Event) bool {
		back, ok := e.(mirror.GroupMovedBack)
		return ok && back.Group == "f62-rewound" && back.From == 900 && back.To == 100
	})
	if !told {
		t.Error("nobody was told that the group went back")
	}
	r.Failover()
	resumes(t, "the group that was rewound", lives.Resumes(t, b, "f62-rewound", topic, []int32{0}), one(100))
}

// coordinatedBy makes a group at the source that has its coordinator on one of these brokers of the destination.
func coordinatedBy(t *testing.T, c *kafkatest.Cluster, prefix string, brokers ...int32) (group string, broker int32) {
	t.Helper()
	for i := range 100 {
		group = fmt.Sprintf("%s-%d", prefix, i)
		var r kadm.FindCoordinatorResponse
		lives.Eventually(t, "group "+group+" has a coordinator", func() (bool, string) {
			r = c.Admin().FindGroupCoordinators(lives.Limited(t), group)[group]
			return r.Err == nil, fmt.Sprint(r.Err)
		})
		if slices.Contains(brokers, r.NodeID) {
			return group, r.NodeID
		}
	}
	t.Fatalf("brokers %v coordinate no group", brokers)
	return "", 0
}

// g2's coordinator at the destination is silent, then it is restarted, and groups go on moving at the source all the time. g3 is followed through all of it, g2 as soon as somebody can.
func TestF59CoordinatorThatIsSilentAndOneThatIsRestarted(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "f59"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	fill(t, a, topic, 1000)
	g2, silent := coordinatedBy(t, b, "f59-g2", 2, 3) // node 1 is the controller
	others := slices.DeleteFunc(b.Brokers(), func(id int32) bool { return id == silent })
	g3, _ := coordinatedBy(t, b, "f59-g3", others...)
	r := lives.Open(t, topic, a, lives.Join(t, b))
	r.Start(topic)
	move := func(offset int64) {
		t.Helper()
		for _, group := range []string{g2, g3} {
			lives.Commit(t, a, group, topic, 0, offset, 0)
		}
	}
	both := func(offset int64) {
		t.Helper()
		move(offset)
		at(t, b, g2, topic, one(offset))
		at(t, b, g3, topic, one(offset))
	}
	both(100)
	began := time.Now()
	b.Pause(silent)
	move(200)
	// g3's coordinator tells it; the silent one is not asked.
	at(t, b, g3, topic, one(200))
	t.Logf("g3 is followed %v after g2's coordinator fell silent", time.Since(began).Round(time.Millisecond))
	b.Resume(silent)
	b.WaitReady()
	both(300)
	t.Logf("g2 is followed again %v after that", time.Since(began).Round(time.Millisecond))

	// Restarted in the middle of it.
	b.Stop(silent)
	both(400) // another broker is g2's coordinator now
	t.Logf("both are followed while the broker is stopped, %v after that", time.Since(began).Round(time.Millisecond))
	moved := int64(400)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.StartBroker(silent)
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-tick.C:
			moved++
			move(moved)
		}
	}
	both(moved + 1)
	for _, e := range r.Told() {
		if back, ok := e.(mirror.GroupMovedBack); ok {
			t.Errorf("a group went back: %v", back)
		}
	}
}
