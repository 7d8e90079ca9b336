package synclife_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// at waits until a group is at these offsets at a cluster, as its brokers tell it; −1: nowhere.
func at(t *testing.T, c *kafkatest.Cluster, group, topic string, want map[int32]int64) {
	t.Helper()
	lives.Eventually(t, fmt.Sprintf("group %s is at %v in %s", group, want, topic), func() (bool, string) {
		got := map[int32]int64{}
		for p := range want {
			got[p] = lives.CommittedAt(t, c, group, topic, p)
		}
		return maps.Equal(got, want), fmt.Sprint(got)
	})
}

// resumes checks where members began.
func resumes(t *testing.T, who string, got, want map[int32]int64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s goes on at %v, want %v", who, got, want)
	}
}

// known checks that no offset of a group has an epoch that the cluster has not reached: who resumes with one asks for metadata for ever (F-42).
func known(t *testing.T, c *kafkatest.Cluster, group, topic string, partitions ...int32) {
	t.Helper()
	for _, p := range partitions {
		o, _ := lives.CommittedOffset(t, c, group, topic, p)
		if epoch := c.Describe(topic, p).LeaderEpoch; o.LeaderEpoch > epoch {
			t.Errorf("group %s is at %d in %s-%d with leader epoch %d, the leader has %d", group, o.At, topic, p, o.LeaderEpoch, epoch)
		}
	}
}

// The partitions of the topic in which groups are in all kinds of places.
const (
	rPlain   = int32(iota)
	rZero    // F-58
	rEnd     // nothing is left to read
	rTrimmed // the group is below where the log starts
	rEpochs  // the source's leader epochs are above those that the destination begins with (F-42)
)

// Whoever read at the source goes on at the destination with the record that comes next: members of franz-go, classic ones of Kafka and those of the new protocol (KIP-848).
func TestGroupsResumeAtTheirRecord(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "resume"
	a.CreateTopic(kafkatest.Topic{Name: topic, Partitions: 5, Replication: 3})
	cl := lives.Client(a)
	for p := range int32(4) {
		for range 4 {
			lives.Produce(t, cl, topic, p, lives.Values("of the source", 25)...)
		}
	}
	replicas := a.Describe(topic, rEpochs).Replicas
	for i := range 4 {
		lives.Produce(t, cl, topic, rEpochs, lives.Values("before a move", 25)...)
		a.MoveLeader(topic, rEpochs, replicas[(i+1)%3])
	}
	if epoch := a.Describe(topic, rEpochs).LeaderEpoch; epoch < 4 {
		t.Fatalf("the source's leader epoch is %d", epoch)
	}
	source := map[int32]int64{rPlain: 37, rZero: 0, rEnd: 100, rTrimmed: 20, rEpochs: 90}
	want := map[int32]int64{rPlain: 37, rZero: 0, rEnd: 100, rTrimmed: 50, rEpochs: 90}
	next := map[string][]string{"resume-java": nil, "resume-848": {"--consumer-property", "group.protocol=consumer"}}
	lives.CommitAsMember(t, a, "resume-go", topic, source)
	for group, options := range next {
		lives.JavaResumes(t, a, 10, group, topic, append([]string{"--from-beginning"}, options...)...)
		for p, o := range source {
			epoch := int32(0)
			if p == rEpochs {
				epoch = a.Describe(topic, p).LeaderEpoch - 1 // of the batch below
			}
			lives.Commit(t, a, group, topic, p, o, epoch)
		}
	}
	a.DeleteRecords(topic, rTrimmed, 50)

	at9999 := lives.Join(t, b)
	r := lives.Open(t, "resume", a, at9999)
	r.Start(topic)
	groups := []string{"resume-go", "resume-java", "resume-848"}
	for _, group := range groups {
		at(t, b, group, topic, want)
		known(t, b, group, topic, 0, 1, 2, 3, 4)
	}
	for p := range int32(5) {
		r.Same(topic, p, 100)
	}
	report := r.Failover()
	for _, group := range groups {
		at(t, b, group, topic, want)
		known(t, b, group, topic, 0, 1, 2, 3, 4)
	}
	// Behind the end the next record is the first one that somebody writes here.
	for _, p := range report.Partitions {
		if p.Partition == rEnd {
			want[rEnd] = p.OpensAt
		}
		lives.Produce(t, lives.Client(b), topic, p.Partition, "of the destination")
	}
	resumes(t, "franz-go", lives.Resumes(t, b, "resume-go", topic, []int32{0, 1, 2, 3, 4}, kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd())), want)
	left := 63 + 100 + 0 + 50 + 10 + 5
	for group, options := range next {
		resumes(t, group, lives.JavaResumes(t, b, left, group, topic, options...), want)
	}
}
