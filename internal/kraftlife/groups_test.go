package kraftlife_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

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
	same := func(r *lives.Running, end int64, epoch int32) {
		t.Helper()
		p := r.InStep(topic, 0, end)
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
	r := lives.Open(t, "f42", nil, lives.Join(t, b), func(c *mirror.Config) { c.Source = source })
	r.Start(topic)
	same(r, 50, 12)
	lives.Commit(t, b, "f42-first", topic, 0, 40, 12)
	jump(40)
	write(10)
	same(r, 60, 40)
	for _, group := range []string{"f42-go", "f42-java"} {
		lives.Commit(t, b, group, topic, 0, 55, 40)
	}
	r.Failover()
	for group, want := range map[string]int64{"f42-first": 40, "f42-go": 55} {
		if got := lives.Resumes(t, b, group, topic, []int32{0})[0]; got != want {
			t.Errorf("group %s resumes at %d, want %d", group, got, want)
		}
	}
	if got, _ := lives.JavaConsumer(t, b, 5, "--topic", topic, "--group", "f42-java"); !slices.Equal(got, []int64{55, 56, 57, 58, 59}) {
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
	lives.Commit(t, a, group, topic, 0, 500, 0)
	at := lives.Join(t, b)
	r := lives.Open(t, "f57", a, at)
	r.Start(topic)
	r.Same(topic, 0, 1000)
	lives.Eventually(t, "the group is where the source has it", func() (bool, string) {
		got := lives.CommittedAt(t, b, group, topic, 0)
		return got == 500, fmt.Sprint(got)
	})
	lives.Commit(t, b, group, topic, 0, 900, 0)
	stays := func(after string) {
		t.Helper()
		if got := lives.CommittedAt(t, b, group, topic, 0); got != 900 {
			t.Fatalf("after %s the group is at %d, want 900", after, got)
		}
	}
	r.Pause(topic)
	stays("a pause")
	r.Resume(topic)
	lives.Produce(t, lives.Client(a), topic, 0, lives.Values("later", 5)...)
	r.Same(topic, 0, 1005)
	r.End()
	r = lives.Open(t, "f57", a, at)
	r.InStep(topic, 0, 1005)
	stays("a restart")
	lives.Commit(t, a, group, topic, 0, 400, 0) // rewound at the source
	r.Failover()
	stays("the failover")
	r.End()
	r = lives.Open(t, "f57", a, at)
	r.Until("stopped", topic, 0, func(p mirror.PartitionStatus) bool { return p.Owner == mirror.OwnerOpen })
	stays("a restart after the failover")
	if got := lives.Resumes(t, b, group, topic, []int32{0})[0]; got != 900 {
		t.Errorf("the group resumes at %d, want 900", got)
	}
}
