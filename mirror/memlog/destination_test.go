package memlog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func TestCreateLookUpAndGrow(t *testing.T) {
	ctx := t.Context()
	c := memlog.New(memlog.Config{ClusterID: "east"})
	defer c.Close()
	if id, err := c.ClusterID(ctx); err != nil || id != "east" {
		t.Error(id, err)
	}
	if _, err := c.Topic(ctx, "orders"); !errors.Is(err, mirror.ErrUnknownTopic) {
		t.Errorf("look-up: %v", err)
	}
	if _, err := c.Topic(ctx, "orders"); !errors.Is(err, mirror.ErrUnknownTopic) {
		t.Error("the look-up created it")
	}
	spec := mirror.TopicSpec{Name: "orders", Partitions: 2, SourceID: mirror.TopicID{1}, Configs: map[string]string{"cleanup.policy": "compact"}}
	made, err := c.CreateTopic(ctx, spec)
	if err != nil || made.Partitions != 2 || made.ID == (mirror.TopicID{}) || made.ID == spec.SourceID {
		t.Errorf("%+v, %v", made, err)
	}
	if configs, err := c.TopicConfig("orders"); err != nil || configs["cleanup.policy"] != "compact" {
		t.Errorf("settings %v, %v", configs, err)
	}
	if again, err := c.CreateTopic(ctx, spec); !errors.Is(err, mirror.ErrTopicExists) || again != made {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := c.GrowTopic(ctx, "orders", 1); err == nil {
		t.Error("a topic shrank")
	}
	if same, err := c.GrowTopic(ctx, "orders", 2); err != nil || same != made {
		t.Errorf("%+v, %v", same, err)
	}
	grown, err := c.GrowTopic(ctx, "orders", 4)
	if err != nil || grown.Partitions != 4 || grown.ID != made.ID {
		t.Errorf("%+v, %v", grown, err)
	}
	last := mirror.TopicPartition{Topic: "orders", Partition: 3}
	log, err := c.OpenLog(ctx, last)
	if err != nil {
		t.Fatal(err)
	}
	if owner, _, err := log.Owner(ctx); err != nil || owner != mirror.OwnerOurs {
		t.Errorf("a new partition is %s, %v", owner, err)
	}
	if again, _ := c.OpenLog(ctx, last); again != log {
		t.Error("another Log for the same partition")
	}
	if l, err := c.OpenLog(ctx, mirror.TopicPartition{Topic: "orders", Partition: 4}); !errors.Is(err, mirror.ErrUnknownTopic) || l != nil {
		t.Errorf("%v, %v", l, err)
	}
}

func TestKeepSourceIDs(t *testing.T) {
	c := memlog.New(memlog.Config{KeepSourceIDs: true})
	defer c.Close()
	made, err := c.CreateTopic(t.Context(), mirror.TopicSpec{Name: "a", Partitions: 1, SourceID: mirror.TopicID{7}})
	if err != nil || made.ID != (mirror.TopicID{7}) {
		t.Errorf("%+v, %v", made, err)
	}
	if _, err := c.CreateTopic(t.Context(), mirror.TopicSpec{Name: "b", Partitions: 1, SourceID: mirror.TopicID{7}}); err == nil {
		t.Error("two topics have one id")
	}
}

func TestRaiseLeaderEpochs(t *testing.T) {
	c, log := destination(t, memlog.Config{})
	missing := mirror.TopicPartition{Topic: "missing"}
	are, err := c.RaiseLeaderEpochs(t.Context(), map[mirror.TopicPartition]int32{orders: 5, missing: 1})
	if len(are) != 1 || are[orders] != 5 || log.LeaderEpoch() != 5 {
		t.Errorf("epochs %v", are)
	}
	if !errors.Is(err, mirror.ErrUnknownTopic) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("error %v does not name what failed", err)
	}
	if are, err := c.RaiseLeaderEpochs(t.Context(), map[mirror.TopicPartition]int32{orders: 3}); err != nil || are[orders] != 5 {
		t.Errorf("epochs %v, %v", are, err)
	}
}

func TestF12BatchTooLargeNamesBothSizes(t *testing.T) {
	c, log := destination(t, memlog.Config{MaxBatchBytes: 100})
	from, _ := source(t, memlog.Config{})
	produce(t, from, strings.Repeat("x", 500))
	raw, _ := from.RawLog("orders", 0)
	err := log.Append(t.Context(), 0, raw)
	if !errors.Is(err, mirror.ErrBatchTooLarge) || !strings.Contains(err.Error(), "100") || !strings.Contains(err.Error(), "570") {
		t.Errorf("%d bytes: %v", len(raw), err)
	}
	c.SetMaxBatchBytes(0)
	if err := log.Append(t.Context(), 0, raw); err != nil {
		t.Error(err)
	}
}

func TestInvariant3NoBatchAboveTheLeaderEpoch(t *testing.T) {
	_, log := destination(t, memlog.Config{})
	from, _ := source(t, memlog.Config{})
	from.ElectLeader("orders", 0)
	produce(t, from, "a")
	raw, _ := from.RawLog("orders", 0)
	if err := log.Append(t.Context(), 0, raw); err == nil || log.End() != 0 {
		t.Errorf("a batch of epoch 1 under leader epoch 0: %v", err)
	}
}

func TestDiscardChecksAndKeepsNoBytes(t *testing.T) {
	ctx := t.Context()
	c, log := destination(t, memlog.Config{Discard: true})
	from, _ := source(t, memlog.Config{})
	produce(t, from, "a", "b")
	from.ElectLeader("orders", 0)
	produce(t, from, "c")
	c.RaiseLeaderEpochs(ctx, map[mirror.TopicPartition]int32{orders: 1})
	copyLog(t, from, log)
	if log.End() != 3 || log.Replicated() != 3 {
		t.Errorf("end %d, replicated %d", log.End(), log.Replicated())
	}
	raw, _ := from.RawLog("orders", 0)
	if err := log.Append(ctx, 1, raw); !errors.Is(err, mirror.ErrOutOfOrder) {
		t.Errorf("the same batches again: %v", err)
	}
	if err := log.Append(ctx, 0, raw); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("under an old epoch: %v", err)
	}
	if _, err := log.Read(ctx, 0, 100); err == nil {
		t.Error("discarded bytes were read")
	}
	if b, err := log.Read(ctx, 3, 100); err != nil || len(b) > 0 {
		t.Errorf("read at the end: %v", err)
	}
	if end, err := c.EndOffsetForEpoch(ctx, orders, -1, 0); err != nil || end != (mirror.EpochEnd{Epoch: 0, End: 2}) {
		t.Errorf("end of epoch 0: %+v, %v", end, err)
	}
	if _, err := log.TruncateTo(ctx, 2); err == nil {
		t.Error("cut inside a discarded log")
	}
	if end, err := log.TruncateTo(ctx, 0); err != nil || end != 0 || log.End() != 0 {
		t.Errorf("emptied: %d, %v", end, err)
	}
}

func TestDeletedTopicEndsItsLogs(t *testing.T) {
	c, log := destination(t, memlog.Config{})
	done := make(chan error, 1)
	ctx := t.Context()
	go func() { done <- log.AwaitReplicated(ctx, 1) }()
	if err := c.DeleteTopic("orders"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, mirror.ErrUnknownTopic) {
		t.Errorf("the wait ended with %v", err)
	}
	if _, err := log.Read(ctx, 0, 1); !errors.Is(err, mirror.ErrUnknownTopic) {
		t.Errorf("read: %v", err)
	}
}

func TestCloseEndsWaits(t *testing.T) {
	c, log := destination(t, memlog.Config{})
	done := make(chan error, 1)
	ctx := t.Context()
	go func() { done <- log.AwaitReplicated(ctx, 1) }()
	c.Close()
	if err := <-done; !errors.Is(err, memlog.ErrClosed) {
		t.Errorf("the wait ended with %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Topics(ctx); !errors.Is(err, memlog.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestDecision15ACopyKeepsNoEpochThatNobodyWroteIn(t *testing.T) {
	ctx := t.Context()
	c, log := destination(t, memlog.Config{})
	from, _ := source(t, memlog.Config{})
	produce(t, from, "a")
	from.ElectLeader("orders", 0)
	from.ElectLeader("orders", 0)
	produce(t, from, "b")
	raw, _ := from.RawLog("orders", 0)
	known := len(raw)
	produce(t, from, "c")
	all, _ := from.RawLog("orders", 0)
	c.RaiseLeaderEpochs(ctx, map[mirror.TopicPartition]int32{orders: 2})
	if err := log.Append(ctx, 2, raw); err != nil {
		t.Fatal(err)
	}
	if err := log.Open(ctx); err != nil {
		t.Fatal(err)
	}
	c.ElectLeader("orders", 0) // epoch 3 begins, and nobody writes in it
	if err := log.CloseForWrites(ctx); err != nil {
		t.Fatal(err)
	}
	if err := log.Append(ctx, 3, all[known:]); err != nil {
		t.Fatal(err)
	}
	if end, err := c.EndOffsetForEpoch(ctx, orders, -1, 1); err != nil || end != (mirror.EpochEnd{Epoch: 0, End: 1}) {
		t.Errorf("epoch 0 ends where epoch 2 began: %+v, %v", end, err)
	}
}
