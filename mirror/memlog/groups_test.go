package memlog_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

var (
	billing = mirror.Group{Name: "billing"}
	queue   = mirror.Group{Name: "queue", Kind: mirror.ShareGroup}
)

func place(offset int64) mirror.GroupOffset {
	return mirror.GroupOffset{Offset: offset, LeaderEpoch: mirror.Unknown}
}

func commit(t testing.TB, c *memlog.Cluster, group string, offset int64) {
	t.Helper()
	if err := c.CommitOffset(group, orders, place(offset)); err != nil {
		t.Fatal(err)
	}
}

// groupOffsets reads one group, as a mirror does.
func groupOffsets(t testing.TB, c *memlog.Cluster, group mirror.Group) mirror.GroupOffsets {
	t.Helper()
	all, err := c.GroupOffsets(t.Context(), []mirror.Group{group})
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	return all[group.Name]
}

// write moves a group on orders-0, as a mirror does.
func write(t testing.TB, c *memlog.Cluster, group mirror.Group, offset int64) error {
	t.Helper()
	refused, err := c.WriteGroupOffsets(t.Context(), group, map[mirror.TopicPartition]mirror.GroupOffset{orders: place(offset)})
	if len(refused) > 0 {
		t.Fatal(refused)
	}
	return err
}

func TestGroupsAndTheirOffsets(t *testing.T) {
	c, _ := source(t, memlog.Config{})
	if found := groupOffsets(t, c, billing); found.Err != nil || len(found.Offsets) != 0 {
		t.Errorf("a group that is not there: %+v", found)
	}
	full := mirror.GroupOffset{Offset: 0, LeaderEpoch: 3, Metadata: "mine"}
	if err := c.CommitOffset("billing", orders, full); err != nil {
		t.Fatal(err)
	}
	if err := c.SetShareOffset("queue", orders, 7); err != nil {
		t.Fatal(err)
	}
	c.JoinGroup("audit")
	groups, err := c.Groups(t.Context())
	want := []mirror.Group{{Name: "audit", Active: true, State: "Stable"}, {Name: "billing", State: "Empty"}, {Name: "queue", Kind: mirror.ShareGroup, State: "Empty"}}
	if err != nil || len(groups) != 3 || groups[0] != want[0] || groups[1] != want[1] || groups[2] != want[2] {
		t.Errorf("%+v, %v; want %+v", groups, err, want)
	}
	if found := groupOffsets(t, c, billing); found.Err != nil || found.Offsets[orders] != full || len(found.Offsets) != 1 {
		t.Errorf("%+v", found)
	}
	if found := groupOffsets(t, c, queue); found.Err != nil || found.Offsets[orders] != place(7) {
		t.Errorf("%+v", found)
	}
	if err := c.CommitOffset("billing", mirror.TopicPartition{Topic: "orders", Partition: 1}, place(1)); !errors.Is(err, mirror.ErrUnknownTopic) {
		t.Errorf("a commit for a partition that is not there: %v", err)
	}
	if err := c.CommitOffset("queue", orders, place(1)); err == nil {
		t.Error("a share group took a commit")
	}
	c.LeaveGroup("audit")
	c.DeleteGroupOffsets("billing", orders)
	if groups, _ := c.Groups(t.Context()); len(groups) != 1 || groups[0].Name != "queue" {
		t.Errorf("what keeps nothing is still there: %+v", groups)
	}
}

func TestF57AMemberThatJoinsBeforeTheCommitKeepsItsGroup(t *testing.T) {
	c, _ := destination(t, memlog.Config{})
	commit(t, c, "billing", 900)
	c.SetHooks(memlog.Hooks{Before: func(_ context.Context, call memlog.Call) error {
		if call.Operation == "Destination.WriteGroupOffsets" && call.Group == "billing" {
			c.JoinGroup("billing")
		}
		return nil
	}})
	if groups, err := c.Groups(t.Context()); err != nil || groups[0].Active {
		t.Fatal(groups, err)
	}
	if err := write(t, c, billing, 500); !errors.Is(err, mirror.ErrGroupActive) {
		t.Errorf("a group with a member was moved: %v", err)
	}
	if is, _ := c.GroupOffset("billing", orders); is != place(900) {
		t.Errorf("the group is at %+v", is)
	}
	c.SetHooks(memlog.Hooks{})
	c.LeaveGroup("billing")
	if err := write(t, c, billing, 500); err != nil {
		t.Errorf("after its member left: %v", err)
	}
	if is, _ := c.GroupOffset("billing", orders); is != place(500) {
		t.Errorf("the group is at %+v", is)
	}
}

// Joining and writing race; whichever comes first decides about all of the write.
func TestAWriteAndAMemberDecideAtomically(t *testing.T) {
	c := memlog.New(memlog.Config{})
	defer c.Close()
	two := map[mirror.TopicPartition]mirror.GroupOffset{{Topic: "t", Partition: 0}: place(5), {Topic: "t", Partition: 1}: place(6)}
	if _, err := c.CreateLocalTopic(memlog.LocalTopic{Name: "t", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		var both sync.WaitGroup
		var err error
		both.Go(func() { c.JoinGroup("billing") })
		both.Go(func() { _, err = c.WriteGroupOffsets(t.Context(), billing, two) })
		both.Wait()
		found := groupOffsets(t, c, billing)
		if written := maps.Equal(found.Offsets, two); written != (err == nil) || !written && len(found.Offsets) > 0 {
			t.Fatalf("%v and %v", err, found.Offsets)
		}
		c.LeaveGroup("billing")
		c.DeleteGroupOffsets("billing")
	}
}

func TestWriteGroupOffsetsKeepsKinds(t *testing.T) {
	c, _ := destination(t, memlog.Config{})
	if err := write(t, c, queue, 4); err != nil {
		t.Fatal(err)
	}
	if err := write(t, c, mirror.Group{Name: "queue"}, 5); !errors.Is(err, mirror.ErrGroupActive) {
		t.Errorf("a group of another kind was moved: %v", err)
	}
	c.JoinGroup("queue")
	if err := write(t, c, queue, 5); !errors.Is(err, mirror.ErrGroupActive) {
		t.Errorf("a share group with a member was moved: %v", err)
	}
	if is, _ := c.GroupOffset("queue", orders); is != place(4) {
		t.Errorf("the share group is at %+v", is)
	}
	if found := groupOffsets(t, c, mirror.Group{Name: "queue"}); found.Err != nil || len(found.Offsets) > 0 {
		t.Errorf("start offsets were read as commits: %+v", found)
	}
	old, _ := destination(t, memlog.Config{NoShareGroups: true})
	if err := write(t, old, queue, 4); !errors.Is(err, mirror.ErrUnsupported) {
		t.Errorf("a share group where there are none: %v", err)
	}
	if found := groupOffsets(t, old, queue); !errors.Is(found.Err, mirror.ErrUnsupported) {
		t.Errorf("a share group where there are none: %+v", found)
	}
}

func TestF59APartitionOfAMissingTopicIsRefusedAlone(t *testing.T) {
	c, _ := destination(t, memlog.Config{})
	beyond, missing := mirror.TopicPartition{Topic: "orders", Partition: 1}, mirror.TopicPartition{Topic: "missing"}
	refused, err := c.WriteGroupOffsets(t.Context(), billing, map[mirror.TopicPartition]mirror.GroupOffset{orders: place(1), beyond: place(1), missing: place(1)})
	if err != nil || len(refused) != 2 || !errors.Is(refused[beyond], mirror.ErrUnknownTopic) || !errors.Is(refused[missing], mirror.ErrUnknownTopic) {
		t.Errorf("refused %v, %v", refused, err)
	}
	if is, ok := c.GroupOffset("billing", orders); !ok || is != place(1) {
		t.Errorf("the partition that is there was not written: %+v", is)
	}
}

func TestF59AStoppedCoordinatorHarmsItsOwnGroups(t *testing.T) {
	c, _ := source(t, memlog.Config{Brokers: 2})
	names := map[int32]string{}
	for _, name := range strings.Fields("a b c d e f g h") {
		names[c.GroupCoordinator(name)] = name
	}
	down, up := mirror.Group{Name: names[1]}, mirror.Group{Name: names[2]}
	commit(t, c, down.Name, 1)
	commit(t, c, up.Name, 2)
	if err := c.StopBroker(1); err != nil {
		t.Fatal(err)
	}
	groups, err := c.Groups(t.Context())
	if len(groups) != 1 || groups[0].Name != up.Name || err == nil || !strings.Contains(err.Error(), "broker 1") {
		t.Errorf("%+v, %v", groups, err)
	}
	found, err := c.GroupOffsets(t.Context(), []mirror.Group{down, up})
	if err != nil || found[down.Name].Err == nil || found[up.Name].Err != nil || found[up.Name].Offsets[orders] != place(2) {
		t.Errorf("%+v, %v", found, err)
	}
	if err := write(t, c, down, 5); err == nil || errors.Is(err, mirror.ErrGroupActive) {
		t.Errorf("a stopped coordinator took a write: %v", err)
	}
	if err := c.StartBroker(1); err != nil {
		t.Fatal(err)
	}
	if groups, err := c.Groups(t.Context()); err != nil || len(groups) != 2 {
		t.Errorf("%+v, %v", groups, err)
	}
}

func TestF55APendingCommitHidesItsPartition(t *testing.T) {
	c := memlog.New(memlog.Config{})
	defer c.Close()
	if _, err := c.CreateLocalTopic(memlog.LocalTopic{Name: "orders", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	other := mirror.TopicPartition{Topic: "orders", Partition: 1}
	commit(t, c, "billing", 3)
	if err := c.CommitOffset("billing", other, place(4)); err != nil {
		t.Fatal(err)
	}
	c.PendingCommit("billing", orders, true)
	found := groupOffsets(t, c, billing)
	if len(found.Pending) != 1 || found.Pending[0] != orders || len(found.Offsets) != 1 || found.Offsets[other] != place(4) || found.Err != nil {
		t.Errorf("while it is pending: %+v", found)
	}
	c.PendingCommit("billing", orders, false)
	if found := groupOffsets(t, c, billing); len(found.Pending) != 0 || found.Offsets[orders] != place(3) {
		t.Errorf("after it: %+v", found)
	}
}

func TestADeletedTopicTakesItsCommitsAlong(t *testing.T) {
	c, _ := source(t, memlog.Config{})
	if _, err := c.CreateLocalTopic(memlog.LocalTopic{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	kept := mirror.TopicPartition{Topic: "kept"}
	commit(t, c, "billing", 3)
	commit(t, c, "audit", 3)
	if err := c.CommitOffset("audit", kept, place(9)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RecreateTopic("orders", 1); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.GroupOffset("billing", orders); ok {
		t.Error("the commit of a deleted topic is there")
	}
	if groups, err := c.Groups(t.Context()); err != nil || len(groups) != 1 || groups[0].Name != "audit" {
		t.Errorf("%+v, %v", groups, err)
	}
	if found := groupOffsets(t, c, mirror.Group{Name: "audit"}); len(found.Offsets) != 1 || found.Offsets[kept] != place(9) {
		t.Errorf("%+v", found)
	}
}

// A write may be lost in front of its effect, or its answer after it.
func TestLostGroupWrites(t *testing.T) {
	lost := errors.New("lost")
	lose := func(_ context.Context, call memlog.Call) error {
		if call.Operation == "Destination.WriteGroupOffsets" {
			return lost
		}
		return nil
	}
	c, _ := destination(t, memlog.Config{})
	c.SetHooks(memlog.Hooks{Before: lose})
	if err := write(t, c, billing, 1); !errors.Is(err, lost) {
		t.Error(err)
	}
	if _, ok := c.GroupOffset("billing", orders); ok {
		t.Error("a lost request had an effect")
	}
	c.SetHooks(memlog.Hooks{After: lose})
	if err := write(t, c, billing, 1); !errors.Is(err, lost) {
		t.Error(err)
	}
	if _, ok := c.GroupOffset("billing", orders); !ok {
		t.Error("a request whose answer was lost had no effect")
	}
}

func TestMetadataOfAnUnreachableClusterCannotBeRead(t *testing.T) {
	ctx := t.Context()
	c, _ := source(t, memlog.Config{})
	commit(t, c, "billing", 1)
	c.SetAuthorizer(true)
	reads := map[string]func() error{
		"Groups":       func() error { _, err := c.Groups(ctx); return err },
		"GroupOffsets": func() error { _, err := c.GroupOffsets(ctx, []mirror.Group{billing}); return err },
		"TopicConfigs": func() error { _, err := c.TopicConfigs(ctx, []string{"orders"}); return err },
		"ACLs":         func() error { _, err := c.ACLs(ctx); return err },
		"MissingRights": func() error {
			_, unknown, err := c.MissingRights(ctx, []mirror.Right{{Operation: "Describe", Resource: "Cluster"}})
			if (err != nil) != (len(unknown) == 1) {
				t.Errorf("unknown %v, %v", unknown, err)
			}
			return err
		},
	}
	for name, read := range reads {
		var hooked bool
		c.SetHooks(memlog.Hooks{Before: func(_ context.Context, call memlog.Call) error {
			hooked = hooked || call.Operation == "Metadata."+name
			return nil
		}})
		c.SetUnreachable(true)
		if err := read(); !errors.Is(err, memlog.ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
		c.SetUnreachable(false)
		if err := read(); err != nil || !hooked {
			t.Errorf("%s: %v, hook called %v", name, err, hooked)
		}
	}
	c.Close()
	for name, read := range reads {
		if err := read(); !errors.Is(err, memlog.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}
