package kafkametadata

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

func shares(names ...string) []mirror.Group {
	groups := named(names...)
	for i := range groups {
		groups[i].Kind = mirror.ShareGroup
	}
	return groups
}

// starts are start offsets of a topic's partitions from 0 on.
func starts(topic string, offsets ...int64) map[mirror.TopicPartition]mirror.GroupOffset {
	m := map[mirror.TopicPartition]mirror.GroupOffset{}
	for p, o := range offsets {
		m[tp(topic, int32(p))] = mirror.GroupOffset{Offset: o, LeaderEpoch: mirror.Unknown}
	}
	return m
}

// TestShareGroups: they are read and written beside others, by requests of their own; a start of −1 is none, one of 0 is one.
func TestShareGroups(t *testing.T) {
	f := newGroupCluster(1, 2)
	f.group("s1", 1, starts("t", 0, -1, 7)).kind = "share"
	f.group("s2", 1, nil).kind = "share"
	f.group("g", 1, at("t", 4))
	c := New(f, time.Second)
	got, err := c.GroupOffsets(t.Context(), append(shares("s1", "s2", "s3"), named("g")...))
	want := starts("t", 0, 0, 7)
	delete(want, tp("t", 1))
	if err != nil || got["s1"].Err != nil || !maps.Equal(got["s1"].Offsets, want) || got["s2"].Err != nil || len(got["s2"].Offsets) != 0 || got["s3"].Err != nil || !maps.Equal(got["g"].Offsets, at("t", 4)) {
		t.Fatalf("%v, %+v", err, got)
	}
	if f.count(kmsg.DescribeShareGroupOffsets) != 1 || f.count(kmsg.OffsetFetch) != 1 {
		t.Errorf("%v", f.asked)
	}
	f.groups["s1"].refuses = map[mirror.TopicPartition]int16{tp("t", 1): kerr.UnknownTopicOrPartition.Code}
	refused, err := c.WriteGroupOffsets(t.Context(), shares("s1")[0], starts("t", 5, 5, 0))
	if err != nil || len(refused) != 1 || !errors.Is(refused[tp("t", 1)], kerr.UnknownTopicOrPartition) || !strings.Contains(refused[tp("t", 1)].Error(), "not this one") {
		t.Fatalf("%v, refused %v", err, refused)
	}
	if got, err = c.GroupOffsets(t.Context(), shares("s1")); err != nil || got["s1"].Offsets[tp("t", 0)].Offset != 5 || got["s1"].Offsets[tp("t", 2)].Offset != 0 {
		t.Fatalf("%v, %+v", err, got)
	}
	var names []string
	for i := range 600 {
		names = append(names, fmt.Sprint("many", i))
		f.group(names[i], 1, starts("t", int64(i))).kind = "share"
	}
	if got, err = c.GroupOffsets(t.Context(), shares(names...)); err != nil || got["many599"].Offsets[tp("t", 0)].Offset != 599 || f.count(kmsg.DescribeShareGroupOffsets) != 2+3 {
		t.Errorf("%v, %+v, %d requests", err, got["many599"], f.count(kmsg.DescribeShareGroupOffsets))
	}
}

// TestF57ShareGroupWithMembers: members, and a group of another kind under its name, are the cluster's refusal.
func TestF57ShareGroupWithMembers(t *testing.T) {
	f := newGroupCluster(1)
	busy := f.group("busy", 1, starts("t", 3))
	busy.kind, busy.state = "share", "Stable"
	f.group("other kind", 1, at("t", 3))
	for _, name := range []string{"busy", "other kind"} {
		before := maps.Clone(f.groups[name].offsets)
		refused, err := New(f, time.Second).WriteGroupOffsets(t.Context(), shares(name)[0], starts("t", 1))
		if !errors.Is(err, mirror.ErrGroupActive) || len(refused) != 0 || !maps.Equal(f.groups[name].offsets, before) {
			t.Errorf("%s: %v, refused %v", name, err, refused)
		}
	}
	if _, err := New(f, time.Second).WriteGroupOffsets(t.Context(), named("busy")[0], at("t", 1)); !errors.Is(err, mirror.ErrGroupActive) {
		t.Errorf("offsets for a share group: %v", err)
	}
}

// TestShareGroupCoordinatorThatMoved: as for other groups.
func TestShareGroupCoordinatorThatMoved(t *testing.T) {
	f := newGroupCluster(1, 2)
	f.group("s", 1, starts("t", 3)).kind = "share"
	c := New(f, time.Second)
	for i, coordinator := range []int32{1, 2, 1} {
		f.groups["s"].at = coordinator
		if got, err := c.GroupOffsets(t.Context(), shares("s")); err != nil || got["s"].Err != nil || got["s"].Offsets[tp("t", 0)].Offset != int64(3+i) {
			t.Fatalf("%v, %+v", err, got)
		}
		f.groups["s"].at = 3 - coordinator
		if refused, err := c.WriteGroupOffsets(t.Context(), shares("s")[0], starts("t", int64(4+i))); err != nil || len(refused) != 0 {
			t.Fatalf("%v, refused %v", err, refused)
		}
	}
}

// TestClusterWithoutShareGroups: one that does not serve the requests, and one that has them turned off. A broker that fails for another reason is not taken for such a one.
func TestClusterWithoutShareGroups(t *testing.T) {
	f := newGroupCluster(1)
	f.group("s", 1, starts("t", 3)).kind = "share"
	f.group("g", 1, at("t", 3))
	is := func(t *testing.T, want bool) {
		t.Helper()
		c := New(f, time.Second)
		got, err := c.GroupOffsets(t.Context(), append(shares("s"), named("g")...))
		if err != nil || got["s"].Err == nil || errors.Is(got["s"].Err, mirror.ErrUnsupported) != want || len(got["s"].Offsets) != 0 {
			t.Errorf("read: %v, %+v", err, got["s"])
		}
		if _, err := c.WriteGroupOffsets(t.Context(), shares("s")[0], starts("t", 1)); err == nil || errors.Is(err, mirror.ErrUnsupported) != want {
			t.Errorf("write: %v", err)
		}
	}
	f.newest[kmsg.DescribeShareGroupOffsets], f.newest[kmsg.AlterShareGroupOffsets] = -1, -1
	is(t, true)
	if n, looked := f.count(kmsg.DescribeShareGroupOffsets), f.count(kmsg.FindCoordinator); n != 1 || looked != 1 {
		t.Errorf("asked %d times what it does not serve, and %d times who serves it", n, looked)
	}
	f.newest = map[kmsg.Key]int16{}
	f.groups["s"].code = kerr.UnsupportedVersion.Code
	is(t, true)
	f.groups["s"].code = kerr.GroupAuthorizationFailed.Code
	is(t, false)
	f.dead[1] = true
	c := New(f, time.Second)
	if got, err := c.GroupOffsets(t.Context(), shares("s")); err == nil || errors.Is(got["s"].Err, mirror.ErrUnsupported) {
		t.Errorf("dead: %v, %+v", err, got["s"])
	}
}

// TestRefusedPartitionOfAShareGroup: which could not be read is said, and the others hold.
func TestRefusedPartitionOfAShareGroup(t *testing.T) {
	topic := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
	topic.Topic = "t"
	for p, code := range []int16{0, kerr.TopicAuthorizationFailed.Code, 0, kerr.UnknownTopicOrPartition.Code} {
		of := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
		of.Partition, of.StartOffset, of.ErrorCode = int32(3-p), 5, code
		topic.Partitions = append(topic.Partitions, of)
	}
	g := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
	g.Topics = append(g.Topics, topic)
	o := shareOffsetsOf(1, &g)
	if !slices.Equal(o.Unread, []mirror.TopicPartition{tp("t", 0), tp("t", 2)}) || !errors.Is(o.Err, kerr.TopicAuthorizationFailed) || len(o.Offsets) != 2 || o.Offsets[tp("t", 3)].Offset != 5 {
		t.Errorf("%+v", o)
	}
}
