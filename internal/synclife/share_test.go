package synclife_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// shareAt is where a share group starts in partition 0, −1 if nowhere.
func shareAt(t *testing.T, c *kafkatest.Cluster, group, topic string) (offset int64) {
	t.Helper()
	lives.Eventually(t, "share group "+group+" tells its start", func() (bool, string) {
		all, err := c.Admin().DescribeShareGroupOffsets(lives.Limited(t), group)
		if err == nil {
			err = all[group].Err
		}
		offset = -1
		if o, ok := all[group].Offsets.Lookup(topic, 0); ok && err == nil {
			offset, err = o.StartOffset, o.Err
		}
		return err == nil, fmt.Sprint(err)
	})
	return offset
}

func setShare(t *testing.T, c *kafkatest.Cluster, group, topic string, offset int64) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: offset, LeaderEpoch: -1})
	lives.Eventually(t, "share group "+group+" has a coordinator", func() (bool, string) {
		answers, err := c.Admin().AlterShareGroupOffsets(lives.Limited(t), group, offsets)
		if err == nil {
			err = answers.Error()
		}
		return err == nil, fmt.Sprint(err)
	})
}

func shareIsAt(t *testing.T, c *kafkatest.Cluster, group, topic string, offset int64) {
	t.Helper()
	lives.Eventually(t, fmt.Sprintf("share group %s starts at %d", group, offset), func() (bool, string) {
		got := shareAt(t, c, group, topic)
		return got == offset, fmt.Sprint(got)
	})
}

// A share group (KIP-932) that Kafka's own consumers used at the source starts where it does there: also when it is ahead of the copy, and when it is set back.
func TestShareGroupsResumeAtTheirStart(t *testing.T) {
	a, b := primary(t), standby(t)
	topic, group := "share", "share-readers"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	fill(t, a, topic, 100)
	setShare(t, a, group, topic, 20)
	resumes(t, "the share group at the source", lives.JavaShareResumes(t, a, 10, group, topic), one(20))
	read := shareAt(t, a, group, topic)
	if read < 30 {
		t.Fatalf("the share group starts at %d at the source after 10 records from 20 on", read)
	}
	source := newGated(t, a)
	r := lives.Open(t, topic, a, lives.Join(t, b), from(source))
	r.Start(topic)
	r.InStep(topic, 0, 100)
	shareIsAt(t, b, group, topic, read)
	source.hold()
	fill(t, a, topic, 50)
	setShare(t, a, group, topic, 140)
	shareIsAt(t, b, group, topic, 100)
	source.letGo()
	shareIsAt(t, b, group, topic, 140)

	// While it works here it is left alone.
	b.CreateTopic(kafkatest.Topic{Name: "share-local", Replication: 3})
	worker := b.Client(kgo.ShareGroup(group), kgo.ConsumeTopics("share-local"))
	state(t, b, group, "Stable")
	setShare(t, a, group, topic, 45)
	skipped(t, r, group, topic+"-0", "active at the destination")
	refreshes(t, r, 3)
	if got := shareAt(t, b, group, topic); got != 140 {
		t.Errorf("the share group starts at %d, want 140", got)
	}
	leave(t, b, worker, group)
	shareIsAt(t, b, group, topic, 45)
	r.Failover()
	shareIsAt(t, b, group, topic, 45)
	resumes(t, "the share group at the destination", lives.JavaShareResumes(t, b, 20, group, topic), one(45))
}
