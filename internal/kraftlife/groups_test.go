package kraftlife_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// commit writes a group's offset of partition 0, as a group's member does.
func commit(t *testing.T, c *kafkatest.Cluster, group, topic string, offset int64, epoch int32) {
	t.Helper()
	lives.Eventually(t, "group "+group+" has a coordinator", func() (bool, string) {
		answer, err := c.Admin().CommitOffsets(limited(t), group, kadm.OffsetsFromRecords(kgo.Record{Topic: topic, Offset: offset - 1, LeaderEpoch: epoch}))
		if err == nil {
			err = answer.Error()
		}
		return err == nil, fmt.Sprint(err)
	})
}

// at is a group's committed offset.
func committedAt(t *testing.T, c *kafkatest.Cluster, group, topic string) int64 {
	t.Helper()
	all, err := c.Admin().FetchOffsets(limited(t), group)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := all.Lookup(topic, 0)
	if !ok {
		return -1
	}
	return o.At
}

// member reads as a member of a group until it has something, and returns the first record's offset.
func member(t *testing.T, c *kafkatest.Cluster, group, topic string) int64 {
	t.Helper()
	cl := c.Client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	defer cl.Close()
	first := int64(-1)
	for first < 0 {
		fs := cl.PollFetches(limited(t))
		if err := fs.Err(); err != nil {
			t.Fatalf("group %s: %v", group, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if first < 0 {
				first = r.Offset
			}
		})
	}
	return first
}

// The source's leader epoch is 12, then 40. A group's commits carry it, and a consumer that resumes with an epoch that the destination does not know asks for metadata for ever.
func TestF42GroupsResumeWithTheSourcesEpochs(t *testing.T) {
	b := standby(t)
	topic := "f42-epochs"
	tp := mirror.TopicPartition{Topic: topic}
	source := memlog.New(memlog.Config{ClusterID: "f42 source"})
	if _, err := source.CreateLocalTopic(memlog.LocalTopic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	jump := func(epoch int32) {
		t.Helper()
		if got, err := source.RaiseLeaderEpochs(t.Context(), map[mirror.TopicPartition]int32{tp: epoch}); err != nil || got[tp] != epoch {
			t.Fatal(got, err)
		}
	}
	write := func(n int) {
		t.Helper()
		for i := range n {
			if _, err := source.Produce(t.Context(), topic, 0, memlog.Record{Value: fmt.Appendf(nil, "record %d", i), Time: time.Now()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	same := func(r *running, end int64, epoch int32) {
		t.Helper()
		p := r.inStep(topic, 0, end)
		raw, err := source.RawLog(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		if copied := b.WaitSameSegments(topic, 0, 1, 2, 3); !bytes.Equal(copied, raw) {
			t.Fatalf("the copy and the source: %s", lives.Difference(copied, raw))
		}
		if p.LeaderEpoch < epoch || p.SourceLeaderEpoch != epoch {
			t.Errorf("the destination's leader epoch is %d, the source's %d", p.LeaderEpoch, p.SourceLeaderEpoch)
		}
	}
	jump(12)
	write(50)
	r := open(t, "f42", nil, join(t, b), func(c *mirror.Config) { c.Source = source })
	r.start(topic)
	same(r, 50, 12)
	commit(t, b, "f42-first", topic, 40, 12)
	jump(40)
	write(10)
	same(r, 60, 40)
	for _, group := range []string{"f42-go", "f42-java"} {
		commit(t, b, group, topic, 55, 40)
	}
	r.failover()
	for group, want := range map[string]int64{"f42-first": 40, "f42-go": 55} {
		if got := member(t, b, group, topic); got != want {
			t.Errorf("group %s resumes at %d, want %d", group, got, want)
		}
	}
	if got, _ := javaConsumer(t, b, 5, "--topic", topic, "--group", "f42-java"); !slices.Equal(got, []int64{55, 56, 57, 58, 59}) {
		t.Errorf("Kafka's own consumer gets %v, want 55 to 59", got)
	}
}

// Nothing that a mirror does moves a group of the destination.
func TestF57GroupsOfTheDestinationStay(t *testing.T) {
	a, b := small(t), standby(t)
	topic, group := "f57-groups", "f57"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	for range 10 {
		lives.Produce(t, lives.Client(a), topic, 0, lives.Values("of the source", 100)...)
	}
	commit(t, a, group, topic, 500, 0)
	at := join(t, b)
	r := open(t, "f57", a, at)
	r.start(topic)
	r.same(topic, 0, 1000)
	commit(t, b, group, topic, 900, 0)
	stays := func(after string) {
		t.Helper()
		if got := committedAt(t, b, group, topic); got != 900 {
			t.Fatalf("after %s the group is at %d, want 900", after, got)
		}
	}
	r.pause(topic)
	stays("a pause")
	r.resume(topic)
	lives.Produce(t, lives.Client(a), topic, 0, lives.Values("later", 5)...)
	r.same(topic, 0, 1005)
	r.end()
	r = open(t, "f57", a, at)
	r.inStep(topic, 0, 1005)
	stays("a restart")
	commit(t, a, group, topic, 400, 0) // rewound at the source
	r.failover()
	stays("the failover")
	r.end()
	r = open(t, "f57", a, at)
	r.until("stopped", topic, 0, func(p mirror.PartitionStatus) bool { return p.Owner == mirror.OwnerOpen })
	stays("a restart after the failover")
	if got := member(t, b, group, topic); got != 900 {
		t.Errorf("the group resumes at %d, want 900", got)
	}
}
