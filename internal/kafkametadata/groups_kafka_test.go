package kafkametadata

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
)

// realGroups are the groups of a real cluster.
type realGroups struct {
	*Client
	t *testing.T
	c *kafkatest.Cluster
}

func groupsOf(t *testing.T, c *kafkatest.Cluster) realGroups {
	return realGroups{New(clientOf{c.Client()}, 10*time.Second), t, c}
}

// topic creates one with records in each partition.
func (r realGroups) topic(name string, partitions int, records int) string {
	r.t.Helper()
	r.c.CreateTopic(kafkatest.Topic{Name: name, Partitions: partitions, Replication: len(r.c.Brokers())})
	var values []string
	for i := range records {
		values = append(values, fmt.Sprint("value ", i))
	}
	for p := range int32(partitions) {
		r.c.Produce(name, p, values...)
	}
	return name
}

// of is what the cluster lists of a group.
func (r realGroups) of(name string) mirror.Group {
	r.t.Helper()
	groups, err := r.Groups(bounded(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(groups, func(g mirror.Group) bool { return g.Name == name })
	if i < 0 {
		return mirror.Group{}
	}
	return groups[i]
}

func (r realGroups) awaitState(name, state string) mirror.Group {
	r.t.Helper()
	var g mirror.Group
	until(r.t, fmt.Sprintf("group %s to be %s", name, state), func() bool { g = r.of(name); return g.State == state })
	return g
}

func (r realGroups) read(group mirror.Group) mirror.GroupOffsets {
	r.t.Helper()
	got, err := r.GroupOffsets(bounded(r.t), []mirror.Group{group})
	if err != nil {
		r.t.Fatal(err)
	}
	return got[group.Name]
}

func (r realGroups) write(group mirror.Group, offsets map[mirror.TopicPartition]mirror.GroupOffset) {
	r.t.Helper()
	if refused, err := r.WriteGroupOffsets(bounded(r.t), group, offsets); err != nil || len(refused) != 0 {
		r.t.Fatalf("write to %s: %v, refused %v", group.Name, err, refused)
	}
}

func (r realGroups) want(group mirror.Group, offsets map[mirror.TopicPartition]mirror.GroupOffset) {
	r.t.Helper()
	if got := r.read(group); got.Err != nil || len(got.Pending) > 0 || !maps.Equal(got.Offsets, offsets) {
		r.t.Fatalf("%s %s: %+v, want %v", group.Kind, group.Name, got, offsets)
	}
}

// member joins a group and consumes until it has a record.
func (r realGroups) member(topic string, more ...kgo.Opt) (*kgo.Client, *kgo.Record) {
	r.t.Helper()
	cl := r.c.Client(append([]kgo.Opt{kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100 * time.Millisecond)}, more...)...)
	for {
		fetches := cl.PollRecords(bounded(r.t), 1)
		if err := fetches.Err(); err != nil {
			r.t.Fatal(err)
		}
		for record := range fetches.RecordsAll() {
			return cl, record
		}
	}
}

// plain are offsets of a topic's partitions from 0 on, without epochs.
func plain(topic string, offsets ...int64) map[mirror.TopicPartition]mirror.GroupOffset {
	m := map[mirror.TopicPartition]mirror.GroupOffset{}
	for p, o := range offsets {
		m[tp(topic, int32(p))] = mirror.GroupOffset{Offset: o, LeaderEpoch: mirror.Unknown, Metadata: fmt.Sprint("note ", o)}
	}
	return m
}

// aGroup is read and moved while it has no members, and not while it has (F-57).
func (r realGroups) aGroup(name string, opts ...kgo.Opt) {
	r.t.Helper()
	topic := r.topic(name, 2, 5)
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	cl, _ := r.member(topic, append(opts, kgo.ConsumerGroup(name), kgo.DisableAutoCommit(), start)...)
	committed := map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: 0, Offset: 3}, 1: {Epoch: 0, Offset: 2}}}
	failed := error(nil)
	cl.CommitOffsetsSync(bounded(r.t), committed, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		failed = err
		if err == nil {
			failed = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
	})
	if failed != nil {
		r.t.Fatal(failed)
	}
	g := r.awaitState(name, "Stable")
	if g != (mirror.Group{Name: name, Active: true, State: "Stable"}) {
		r.t.Errorf("while it has a member: %+v", g)
	}
	at := map[mirror.TopicPartition]mirror.GroupOffset{tp(topic, 0): {Offset: 3}, tp(topic, 1): {Offset: 2}}
	seen := r.read(g)
	for tp, o := range seen.Offsets {
		o.Metadata = "" // the client's own
		seen.Offsets[tp] = o
	}
	if !maps.Equal(seen.Offsets, at) || seen.Err != nil {
		r.t.Errorf("%+v, want %v", seen, at)
	}
	r.refused(g, plain(topic, 1, 1))
	cl.Close()
	if g = r.awaitState(name, "Empty"); g.Active {
		r.t.Errorf("without members: %+v", g)
	}
	want := map[mirror.TopicPartition]mirror.GroupOffset{tp(topic, 0): {Offset: 1, LeaderEpoch: 0, Metadata: "note"}, tp(topic, 1): {Offset: 0, LeaderEpoch: -1}}
	r.write(g, want)
	r.want(g, want)
	// What it was taken for before does not count: a member joins between the look and the write.
	cl, first := r.member(topic, append(opts, kgo.ConsumerGroup(name), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))...)
	if o := want[tp(topic, first.Partition)]; first.Offset != o.Offset {
		r.t.Errorf("a new member began at %d in partition %d, want %d", first.Offset, first.Partition, o.Offset)
	}
	r.refused(g, plain(topic, 4, 4))
	r.want(g, want)
	cl.Close()
	r.awaitState(name, "Empty")
	r.write(g, plain(topic, 4, 4))
	r.want(g, plain(topic, 4, 4))
}

// refused insists that a group is not moved.
func (r realGroups) refused(g mirror.Group, offsets map[mirror.TopicPartition]mirror.GroupOffset) {
	r.t.Helper()
	before := r.read(g)
	refused, err := r.WriteGroupOffsets(bounded(r.t), g, offsets)
	if !errors.Is(err, mirror.ErrGroupActive) || len(refused) != 0 {
		r.t.Errorf("write to %s: %v, refused %v", g.Name, err, refused)
	}
	if after := r.read(g); !maps.Equal(after.Offsets, before.Offsets) {
		r.t.Errorf("%s moved from %v to %v", g.Name, before.Offsets, after.Offsets)
	}
}

// missingPartition: what the cluster has not is refused alone (F-59).
func (r realGroups) missingPartition(name string) {
	r.t.Helper()
	g := mirror.Group{Name: name}
	topic := r.topic(name, 2, 0)
	offsets := plain(topic, 0, 7, 8)
	offsets[tp("no-such-topic", 0)] = mirror.GroupOffset{Offset: 1, LeaderEpoch: -1}
	refused, err := r.WriteGroupOffsets(bounded(r.t), g, offsets)
	if err != nil || len(refused) != 2 || !errors.Is(refused[tp(topic, 2)], kerr.UnknownTopicOrPartition) || !errors.Is(refused[tp("no-such-topic", 0)], kerr.UnknownTopicOrPartition) {
		r.t.Fatalf("%v, refused %v", err, refused)
	}
	r.want(g, plain(topic, 0, 7))
}

// pendingCommit: a transactional commit hides the partition, and only that, until it ends (F-55).
func (r realGroups) pendingCommit(name string) {
	r.t.Helper()
	topic := r.topic(name, 3, 0)
	g, other := mirror.Group{Name: name}, mirror.Group{Name: name + " other"}
	r.write(g, plain(topic, 1, 1))
	r.write(other, plain(topic, 2))
	cl := r.c.Client(kgo.TransactionalID(name))
	id, epoch, err := cl.ProducerID(bounded(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = name, id, epoch, name
	if resp, err := add.RequestWith(bounded(r.t), cl); err != nil || resp.ErrorCode != 0 {
		r.t.Fatal(err, resp)
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.Group, commit.ProducerID, commit.ProducerEpoch, commit.Generation = name, name, id, epoch, -1
	of := kmsg.NewTxnOffsetCommitRequestTopic()
	of.Topic = topic
	for _, p := range []int32{1, 2} { // in 1 there is a commit already, in 2 there is none
		at := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		at.Partition, at.Offset = p, 5
		of.Partitions = append(of.Partitions, at)
	}
	commit.Topics = append(commit.Topics, of)
	resp, err := commit.RequestWith(bounded(r.t), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	got, err := r.GroupOffsets(bounded(r.t), []mirror.Group{g, other})
	want := plain(topic, 1)
	if err != nil || got[name].Err != nil || !slices.Equal(got[name].Pending, []mirror.TopicPartition{tp(topic, 1)}) || !maps.Equal(got[name].Offsets, want) || !maps.Equal(got[other.Name].Offsets, plain(topic, 2)) {
		r.t.Errorf("while it is pending: %v, %+v", err, got)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = name, id, epoch, true
	if resp, err := end.RequestWith(bounded(r.t), cl); err != nil || resp.ErrorCode != 0 {
		r.t.Fatal(err, resp)
	}
	until(r.t, "the end of the pending commit", func() bool { return len(r.read(g).Pending) == 0 })
	want[tp(topic, 1)], want[tp(topic, 2)] = mirror.GroupOffset{Offset: 5, LeaderEpoch: -1}, mirror.GroupOffset{Offset: 5, LeaderEpoch: -1}
	r.want(g, want)
}

func TestClassicGroupAtKafka(t *testing.T) {
	groupsOf(t, kafkatest.Shared(t)).aGroup("classic")
}

func TestF57ConsumerGroupAtKafka(t *testing.T) {
	groupsOf(t, kafkatest.Shared(t)).aGroup("next-generation", kgo.ServerSideBalancer())
}

func TestF59MissingPartitionAtKafka(t *testing.T) {
	groupsOf(t, kafkatest.Shared(t)).missingPartition("missing")
}

func TestF55PendingCommitAtKafka(t *testing.T) {
	groupsOf(t, kafkatest.Shared(t)).pendingCommit("pending")
}

// TestF58OffsetZeroAtKafka: a consumer that would begin at the end begins at 0, because that is committed.
func TestF58OffsetZeroAtKafka(t *testing.T) {
	r := groupsOf(t, kafkatest.Shared(t))
	topic := r.topic("zero", 2, 11)
	g := mirror.Group{Name: "zero"}
	r.write(g, plain(topic, 0, 10))
	r.want(g, plain(topic, 0, 10))
	first := map[int32]int64{}
	cl := r.c.Client(kgo.ConsumerGroup("zero"), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	for len(first) < 2 {
		fetches := cl.PollFetches(bounded(t))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for record := range fetches.RecordsAll() {
			if _, ok := first[record.Partition]; !ok {
				first[record.Partition] = record.Offset
			}
		}
	}
	if first[0] != 0 || first[1] != 10 {
		t.Fatalf("it began at %v", first)
	}
}

// TestOddNamesAtKafka: Kafka takes nearly every name of a group.
func TestOddNamesAtKafka(t *testing.T) {
	r := groupsOf(t, kafkatest.Shared(t))
	topic := r.topic("odd", 1, 0)
	var groups []mirror.Group
	for i, name := range oddNames {
		groups = append(groups, mirror.Group{Name: name})
		r.write(groups[i], plain(topic, int64(i)))
	}
	got, err := r.GroupOffsets(bounded(t), groups)
	for i, name := range oddNames {
		if err != nil || got[name].Err != nil || !maps.Equal(got[name].Offsets, plain(topic, int64(i))) {
			t.Errorf("%q: %v, %+v", name, err, got[name])
		}
	}
	listed, err := r.Groups(bounded(t))
	for _, g := range groups {
		if err != nil || !slices.ContainsFunc(listed, func(l mirror.Group) bool { return l.Name == g.Name && !l.Active && l.State == "Empty" }) {
			t.Errorf("%q is not listed: %v", g.Name, err)
		}
	}
}

// fromTheStart has a share group begin at the start of logs.
func (r realGroups) fromTheStart(group string) {
	r.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	of := kmsg.NewIncrementalAlterConfigsRequestResource()
	of.ResourceType, of.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	of.Configs = append(of.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: "share.auto.offset.reset", Value: kmsg.StringPtr("earliest")})
	req.Resources = append(req.Resources, of)
	resp, err := req.RequestWith(bounded(r.t), r.c.AdminClient())
	if err == nil {
		err = refusal(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestShareGroupAtKafka: it is read and moved while it has no members, and not while it has.
func TestShareGroupAtKafka(t *testing.T) {
	r := groupsOf(t, kafkatest.Shared(t))
	topic := r.topic("shared", 2, 5)
	g := mirror.Group{Name: "shared", Kind: mirror.ShareGroup}
	r.fromTheStart(g.Name)
	if got := r.read(g); got.Err != nil || len(got.Offsets) != 0 {
		t.Errorf("before it is: %+v", got)
	}
	cl, _ := r.member(topic, kgo.ShareGroup(g.Name))
	if listed := r.awaitState(g.Name, "Stable"); listed != (mirror.Group{Name: g.Name, Kind: mirror.ShareGroup, Active: true, State: "Stable"}) {
		t.Errorf("%+v", listed)
	}
	r.refused(g, starts(topic, 1, 1))
	cl.Close()
	r.awaitState(g.Name, "Empty")
	r.write(g, starts(topic, 3, 0))
	r.want(g, starts(topic, 3, 0))
	missing := starts(topic, 2, 2, 9)
	if refused, err := r.WriteGroupOffsets(bounded(t), g, missing); err != nil || len(refused) != 1 || !errors.Is(refused[tp(topic, 2)], kerr.UnknownTopicOrPartition) {
		t.Errorf("a partition that is missing: %v, refused %v", err, refused)
	}
	r.want(g, starts(topic, 2, 2))
	cl, first := r.member(topic, kgo.ShareGroup(g.Name))
	if first.Offset != 2 {
		t.Errorf("a new member began at %d", first.Offset)
	}
	cl.Close()
	r.awaitState(g.Name, "Empty")
	made := mirror.Group{Name: "shared and new", Kind: mirror.ShareGroup}
	r.write(made, starts(topic, 2, 0))
	r.want(made, starts(topic, 2, 0))
	if listed := r.of(made.Name); listed.Kind != mirror.ShareGroup || listed.Active {
		t.Errorf("one that a write made: %+v", listed)
	}
	// What one kind has under a name the other kind neither sees nor moves.
	other := mirror.Group{Name: "not shared"}
	r.write(other, plain(topic, 1))
	r.refused(mirror.Group{Name: other.Name, Kind: mirror.ShareGroup}, starts(topic, 2))
	r.want(mirror.Group{Name: other.Name, Kind: mirror.ShareGroup}, nil)
	r.want(other, plain(topic, 1))
	r.refused(mirror.Group{Name: made.Name}, plain(topic, 2))
	r.want(mirror.Group{Name: made.Name}, nil)
	r.want(made, starts(topic, 2, 0))
}

// TestGroupsOfKafka3: an older cluster, which has no share groups.
func TestGroupsOfKafka3(t *testing.T) {
	r := groupsOf(t, kafkatest.Start(t, kafkatest.Options{Version: "3.9.1"}))
	r.aGroup("classic")
	r.missingPartition("missing")
	r.pendingCommit("pending")
	g := mirror.Group{Name: "shared", Kind: mirror.ShareGroup}
	if got := r.read(g); !errors.Is(got.Err, mirror.ErrUnsupported) {
		t.Errorf("share group: %+v", got)
	}
	if _, err := r.WriteGroupOffsets(bounded(t), g, starts("classic", 1)); !errors.Is(err, mirror.ErrUnsupported) {
		t.Errorf("share group: %v", err)
	}
}
