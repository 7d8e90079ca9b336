package lives

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// Commit writes a group's offset of one partition, as somebody does who is not one of its members. epoch is that of the record before the offset, -1: none.
func Commit(t testing.TB, c *kafkatest.Cluster, group, topic string, partition int32, offset int64, epoch int32) {
	t.Helper()
	Eventually(t, "group "+group+" has a coordinator", func() (bool, string) {
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: epoch})
		answer, err := c.Admin().CommitOffsets(Limited(t), group, offsets)
		if err == nil {
			err = answer.Error()
		}
		return err == nil, fmt.Sprint(err)
	})
}

// CommittedOffset is a group's committed offset of one partition as the cluster tells it; ok is false if it has none.
func CommittedOffset(t testing.TB, c *kafkatest.Cluster, group, topic string, partition int32) (o kadm.Offset, ok bool) {
	t.Helper()
	Eventually(t, "group "+group+" tells its offsets", func() (bool, string) {
		all, err := c.Admin().FetchOffsets(Limited(t), group)
		if err == nil {
			var got kadm.OffsetResponse
			if got, ok = all.Lookup(topic, partition); ok {
				o, err = got.Offset, got.Err
				ok = o.At >= 0
			}
		}
		return err == nil, fmt.Sprint(err)
	})
	return o, ok
}

// CommittedAt is a group's committed offset of one partition, -1 if it has none.
func CommittedAt(t testing.TB, c *kafkatest.Cluster, group, topic string, partition int32) int64 {
	t.Helper()
	if o, ok := CommittedOffset(t, c, group, topic, partition); ok {
		return o.At
	}
	return -1
}

// CommitAsMember reads as a member of a group, of all partitions that are named up to the record before these offsets, commits them with its epoch, and leaves.
func CommitAsMember(t testing.TB, c *kafkatest.Cluster, group, topic string, offsets map[int32]int64) {
	t.Helper()
	cl := c.Client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	commit := map[int32]kgo.EpochOffset{}
	read := map[int32]bool{}
	for len(commit) < len(offsets) {
		fs := cl.PollFetches(Limited(t))
		if err := fs.Err(); err != nil {
			t.Fatalf("group %s has read up to %v of %v: %v", group, commit, offsets, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			read[r.Partition] = true
			if r.Offset == offsets[r.Partition]-1 {
				commit[r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
			}
		})
		for p, o := range offsets {
			if o == 0 && read[p] {
				commit[p] = kgo.EpochOffset{Epoch: -1, Offset: 0}
			}
		}
	}
	var refused error
	cl.CommitOffsetsSync(Limited(t), map[string]map[int32]kgo.EpochOffset{topic: commit}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		refused = err
		if err != nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				refused = errors.Join(refused, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	})
	if refused != nil {
		t.Fatalf("group %s: %v", group, refused)
	}
	if err := cl.LeaveGroupContext(Limited(t)); err != nil {
		t.Fatalf("group %s: %v", group, err)
	}
}

// Resumes joins a group with a member of franz-go until it has something of each of these partitions, and returns where in each of them it began. It commits nothing.
func Resumes(t testing.TB, c *kafkatest.Cluster, group, topic string, partitions []int32, more ...kgo.Opt) map[int32]int64 {
	t.Helper()
	cl := c.Client(append([]kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit()}, more...)...)
	defer cl.Close()
	first := map[int32]int64{}
	for !hasAll(first, partitions) {
		fs := cl.PollFetches(Limited(t))
		if err := fs.Err(); err != nil {
			t.Fatalf("group %s has records of %v, not of all of %v: %v", group, slices.Sorted(maps.Keys(first)), partitions, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if _, ok := first[r.Partition]; !ok {
				first[r.Partition] = r.Offset
			}
		})
	}
	return first
}

func hasAll(first map[int32]int64, partitions []int32) bool {
	return !slices.ContainsFunc(partitions, func(p int32) bool { _, ok := first[p]; return !ok })
}

// JavaResumes does what Resumes does with Kafka's own console consumer; it reads n records, which has to be all that the group has left in these partitions. It commits what it read.
func JavaResumes(t testing.TB, c *kafkatest.Cluster, n int, group, topic string, more ...string) map[int32]int64 {
	t.Helper()
	first := map[int32]int64{}
	out := javaTool(t, c, "", "org.apache.kafka.tools.consumer.ConsoleConsumer", append([]string{"--isolation-level", "read_committed", "--topic", topic, "--group", group,
		"--formatter-property", "print.offset=true", "--formatter-property", "print.partition=true", "--max-messages", strconv.Itoa(n), "--timeout-ms", "30000"}, more...)...)
	return firsts(t, out, n, first)
}

// JavaShareResumes does it with Kafka's own console consumer of a share group.
func JavaShareResumes(t testing.TB, c *kafkatest.Cluster, n int, group, topic string) map[int32]int64 {
	t.Helper()
	out := javaTool(t, c, "", "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--topic", topic, "--group", group,
		"--formatter-property", "print.offset=true", "--formatter-property", "print.partition=true", "--max-messages", strconv.Itoa(n), "--timeout-ms", "30000")
	return firsts(t, out, n, map[int32]int64{})
}

// firsts are the lowest offsets in what a console consumer printed, by partition.
func firsts(t testing.TB, out string, n int, first map[int32]int64) map[int32]int64 {
	t.Helper()
	records := 0
	for line := range strings.Lines(out) {
		var partition int32
		var offset int64
		if _, err := fmt.Sscanf(line, "Partition:%d\tOffset:%d", &partition, &offset); err != nil {
			continue
		}
		records++
		if at, ok := first[partition]; !ok || offset < at {
			first[partition] = offset
		}
	}
	if records != n {
		t.Fatalf("console consumer: %d records, want %d:\n%s", records, n, out)
	}
	return first
}
