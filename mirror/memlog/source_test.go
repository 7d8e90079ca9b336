package memlog_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

func TestTopicsAndCluster(t *testing.T) {
	ctx := t.Context()
	c := memlog.New(memlog.Config{ClusterID: "east", Brokers: 3})
	defer c.Close()
	made, err := c.CreateLocalTopic(memlog.LocalTopic{Name: "b", Partitions: 4})
	if err != nil {
		t.Fatal(err)
	}
	c.CreateLocalTopic(memlog.LocalTopic{Name: "a", ID: mirror.TopicID{9}})
	c.CreateLocalTopic(memlog.LocalTopic{Name: "__consumer_offsets"})
	info, err := c.Cluster(ctx)
	if err != nil || info.ID != "east" || len(info.Brokers) != 3 || info.Brokers[2].ID != 3 {
		t.Errorf("cluster %+v, %v", info, err)
	}
	all, err := c.Topics(ctx)
	if err != nil || len(all) != 3 || !all[0].Internal || all[1].Name != "a" || all[1].ID != (mirror.TopicID{9}) || all[2].Topic != made {
		t.Errorf("topics %+v, %v", all, err)
	}
	for i, p := range all[2].Leaders {
		if p != (mirror.SourcePartition{Partition: int32(i), Leader: int32(i%3) + 1}) {
			t.Errorf("partition %d: %+v", i, p)
		}
	}
	some, err := c.Topics(ctx, "missing", "a")
	if err != nil || len(some) != 1 || some[0].Name != "a" {
		t.Errorf("topics %+v, %v", some, err)
	}
	if again, _ := c.Topics(ctx); len(again) != 3 {
		t.Error("looking created a topic")
	}
	c.StopBroker(2)
	some, _ = c.Topics(ctx, "b")
	if p := some[0].Leaders[1]; p.Leader != -1 || p.Err == nil {
		t.Errorf("partition led by a stopped broker: %+v", p)
	}
	offsets, err := c.Offsets(ctx, []mirror.TopicPartition{{Topic: "b", Partition: 1}, {Topic: "b"}, {Topic: "x"}})
	if err != nil || len(offsets) != 3 || offsets[mirror.TopicPartition{Topic: "b"}].Err != nil {
		t.Errorf("offsets %+v, %v", offsets, err)
	}
	code(t, offsets[mirror.TopicPartition{Topic: "b", Partition: 1}].Err, mirror.SourceNotLeader)
	code(t, offsets[mirror.TopicPartition{Topic: "x"}].Err, mirror.SourceUnknownTopic)
	if led, _ := c.ElectLeader("b", 1); led.Leader != 1 || led.LeaderEpoch != 1 {
		t.Errorf("led by %+v", led)
	}
}

func TestRecreatedTopicHasAnotherID(t *testing.T) {
	c, old := source(t, memlog.Config{ClusterID: "c"})
	produce(t, c, "a")
	recreated, err := c.RecreateTopic("orders", 2)
	if err != nil || recreated.ID == old.ID || recreated.Partitions != 2 {
		t.Errorf("%+v, %v", recreated, err)
	}
	if got := values(t, c, memlog.ReadUncommitted); len(got) > 0 {
		t.Errorf("records %v in a recreated topic", got)
	}
	c2 := memlog.New(memlog.Config{ClusterID: "c"})
	defer c2.Close()
	if same, _ := c2.CreateLocalTopic(memlog.LocalTopic{Name: "orders"}); same.ID != old.ID {
		t.Error("topic ids are not the same from run to run")
	}
}

func TestF24OffsetsAtATime(t *testing.T) {
	c, _ := source(t, memlog.Config{})
	when := func(s int64) time.Time { return time.Unix(s, 0) }
	for _, s := range []int64{10, 20, 30} {
		_, err := c.Produce(t.Context(), "orders", 0, memlog.Record{Time: when(s), Value: []byte("x")}, memlog.Record{Time: when(s + 5), Value: []byte("y")})
		if err != nil {
			t.Fatal(err)
		}
	}
	for s, want := range map[int64]int64{0: 0, 10: 0, 11: 1, 15: 1, 16: 2, 25: 3, 35: 5, 36: 6, 1000: 6} {
		got, err := c.OffsetsAt(t.Context(), when(s), []mirror.TopicPartition{orders})
		if err != nil || got[orders].Err != nil || got[orders].HighWatermark != want {
			t.Errorf("offset at %d s: %+v, %v; it should be %d", s, got[orders], err, want)
		}
	}
	c.DeleteRecords(t.Context(), "orders", 0, 3)
	if got, _ := c.OffsetsAt(t.Context(), when(0), []mirror.TopicPartition{orders}); got[orders].HighWatermark != 3 {
		t.Errorf("offset at the beginning of a trimmed log: %+v", got[orders])
	}
}

func TestEndOffsetForEpochAnswersUnderTheCurrentLeaderEpoch(t *testing.T) {
	ctx := t.Context()
	c, _ := source(t, memlog.Config{})
	produce(t, c, "a", "b") // epoch 0: 0–1
	c.ElectLeader("orders", 0)
	produce(t, c, "c") // epoch 1: 2
	c.ElectLeader("orders", 0)
	c.ElectLeader("orders", 0)
	produce(t, c, "d", "e") // epoch 3: 3–4
	for ask, want := range map[int32]mirror.EpochEnd{
		0: {Epoch: 0, End: 2}, 1: {Epoch: 1, End: 3}, 2: {Epoch: 2, End: 3}, 3: {Epoch: 3, End: 5}, 4: {Epoch: -1, End: -1}, -1: {Epoch: -1, End: -1},
	} {
		for _, under := range []int32{-1, 3} {
			got, err := c.EndOffsetForEpoch(ctx, orders, under, ask)
			if err != nil || got.End != want.End || got.Epoch != want.Epoch && ask != 2 {
				t.Errorf("end of epoch %d: %+v, %v; it should be %+v", ask, got, err, want)
			}
		}
	}
	_, err := c.EndOffsetForEpoch(ctx, orders, 2, 0)
	code(t, err, mirror.SourceFencedEpoch)
	_, err = c.EndOffsetForEpoch(ctx, orders, 4, 0)
	code(t, err, mirror.SourceUnknownEpoch)
	_, err = c.EndOffsetForEpoch(ctx, mirror.TopicPartition{Topic: "x"}, -1, 0)
	code(t, err, mirror.SourceUnknownTopic)
}

func TestUnreachableSource(t *testing.T) {
	c, _ := source(t, memlog.Config{})
	c.SetUnreachable(true)
	_, err := c.Cluster(t.Context())
	code(t, err, mirror.SourceUnreachable)
	_, err = c.OpenFetcher(t.Context(), 1, mirror.FetchOptions{})
	code(t, err, mirror.SourceUnreachable)
	if _, err := c.ClusterID(t.Context()); err != nil {
		t.Errorf("as a destination it is to be there: %v", err)
	}
	c.SetUnreachable(false)
	if _, err := c.Topics(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSpec13GreatestLastMirrorEpochUnderAnyMirrorName(t *testing.T) {
	ctx := t.Context()
	c := memlog.New(memlog.Config{})
	defer c.Close()
	topic, err := c.CreateTopic(ctx, mirror.TopicSpec{Name: "orders", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	session, err := c.StateStore().Open(ctx, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	record := func(mirrorName string, partition int32, lme *statemachine.LastMirrorEpoch) {
		t.Helper()
		state := statemachine.NewPartitionState()
		state.SourceClusterID = "west"
		state.State = statemachine.Preparing
		results, err := session.Write(ctx, []statemachine.Write{{
			Key: statemachine.Key{Mirror: mirrorName, TopicID: topic.ID, Partition: partition}, ExpectedStateEpoch: -1, LeaderEpoch: -1, State: &state, LME: lme,
		}})
		if err != nil || results[0].Err != nil {
			t.Fatal(err, results)
		}
	}
	record("one", 0, &statemachine.LastMirrorEpoch{Epoch: 4, Offset: 90, SourceClusterID: "west"})
	record("two", 0, &statemachine.LastMirrorEpoch{Epoch: 5, Offset: 10, SourceClusterID: "west"})
	record("three", 0, &statemachine.LastMirrorEpoch{Epoch: 5, Offset: 20, SourceClusterID: "west"})
	record("other", 0, &statemachine.LastMirrorEpoch{Epoch: 9, Offset: 99, SourceClusterID: "north"})
	record("one", 1, nil)
	second := mirror.TopicPartition{Topic: "orders", Partition: 1}
	got, err := c.LastMirrorEpochs(ctx, "west", []mirror.TopicPartition{orders, second, {Topic: "missing"}})
	if err != nil || len(got) != 1 || got[orders].Epoch != 5 || got[orders].Offset != 20 {
		t.Errorf("last mirror epochs %+v, %v", got, err)
	}
	mirrors, err := c.MirrorsOf(ctx, []mirror.TopicPartition{second})
	if err != nil || len(mirrors) != 1 || !reflect.DeepEqual(mirrors[0], mirror.SourceMirror{Mirror: "one", SourceClusterID: "west", Partition: second, State: statemachine.Preparing}) {
		t.Errorf("mirrors %+v, %v", mirrors, err)
	}
	mirrors, err = c.MirrorsOf(ctx, []mirror.TopicPartition{orders})
	if err != nil || len(mirrors) != 4 {
		t.Errorf("mirrors %+v, %v", mirrors, err)
	}
}

func TestHooksBeforeAndAfterTheEffect(t *testing.T) {
	c, log := destination(t, memlog.Config{})
	from, _ := source(t, memlog.Config{})
	produce(t, from, "a")
	raw, _ := from.RawLog("orders", 0)
	fault := errors.New("fault")
	on := func(want string) func(context.Context, memlog.Call) error {
		return func(_ context.Context, call memlog.Call) error {
			if call.Operation == want && call.Partition == orders {
				return fault
			}
			return nil
		}
	}
	c.SetHooks(memlog.Hooks{Before: on("Log.Append")})
	if err := log.Append(t.Context(), 0, raw); !errors.Is(err, fault) || log.End() != 0 {
		t.Errorf("error %v, end %d", err, log.End())
	}
	c.SetHooks(memlog.Hooks{After: on("Log.Append")})
	if err := log.Append(t.Context(), 0, raw); !errors.Is(err, fault) || log.End() != 1 {
		t.Errorf("error %v, end %d", err, log.End())
	}
	c.SetHooks(memlog.Hooks{})
	if err := log.Append(t.Context(), 0, raw); !errors.Is(err, mirror.ErrOutOfOrder) {
		t.Errorf("error %v", err)
	}
	from.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
		reply[0].Records[65] ^= 1
		return reply
	}})
	f := fetcher(t, from, mirror.FetchOptions{})
	f.Want(at(0))
	if p := one(t, f); mirror.CheckBatch(p.Records) == nil {
		t.Error("the reply is not broken")
	}
}
