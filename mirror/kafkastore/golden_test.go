package kafkastore

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// consumed are the last committed records of a topic as any consumer sees them: "partition key" → value, in hexadecimal digits.
func consumed(t *testing.T, seeds []string, topic string, atLeast int) map[string]string {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got := make(map[string]string)
	for n := 0; n < atLeast; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records of %s came", n, atLeast, topic)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			got[fmt.Sprintf("%d %x", r.Partition, r.Key)] = hex.EncodeToString(r.Value)
		})
	}
	return got
}

// Spec §8: keys, values and partitions are Kafka's, to the byte.
func TestRealGoldenRecords(t *testing.T) {
	t.Parallel()
	seeds := kafkatest.Shared(t).Bootstrap()
	for _, x := range []struct {
		partitions, zero, one, seventh int32
	}{{50, 41, 42, 48}, {3, 0, 1, 0}} {
		cfg := sharedConfig(t, newPrefix())
		cfg.StatePartitions = x.partitions
		store := keyedlog.NewStateStore(open(t, cfg))
		n, err := store.Open(t.Context(), "node")
		if err != nil {
			t.Fatal(err)
		}
		id := statemachine.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
		far := statemachine.TopicID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1}
		state := func(s statemachine.State) *statemachine.PartitionState {
			p := statemachine.NewPartitionState()
			p.State = s
			return &p
		}
		writeStates := func(writes ...statemachine.Write) {
			t.Helper()
			results, err := n.Write(t.Context(), writes)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
			}
		}
		zero, one := statemachine.Key{Mirror: "my-mirror", TopicID: id}, statemachine.Key{Mirror: "my-mirror", TopicID: id, Partition: 1}
		seventh := statemachine.Key{Mirror: "b-to-a", TopicID: far, Partition: 7}
		writeStates(statemachine.Write{Key: zero, LeaderEpoch: 4, State: state(statemachine.Preparing)})
		writeStates(
			statemachine.Write{Key: zero, LeaderEpoch: 4, ExpectedStateEpoch: 1, State: state(statemachine.Mirroring)},
			statemachine.Write{Key: zero, LeaderEpoch: 4, ExpectedStateEpoch: -1, LME: &statemachine.LastMirrorEpoch{Epoch: 3, Offset: -1}},
			statemachine.Write{Key: one, LeaderEpoch: 4, LME: &statemachine.LastMirrorEpoch{Epoch: 3, Offset: -1}},
			statemachine.Write{Key: seventh, LeaderEpoch: -1, LME: &statemachine.LastMirrorEpoch{Epoch: 3, Offset: -1}},
		)
		const lme, mirroring = "00000000000300", "00000200000004000000020000001000"
		want := map[string]string{
			fmt.Sprintf("%d 000100096d792d6d6972726f720102030405060708090a0b0c0d0e0f1000000000", x.zero): lme,
			fmt.Sprintf("%d 000200096d792d6d6972726f720102030405060708090a0b0c0d0e0f1000000000", x.zero): mirroring,
			fmt.Sprintf("%d 000100096d792d6d6972726f720102030405060708090a0b0c0d0e0f1000000001", x.one):  lme,
			fmt.Sprintf("%d 00010006622d746f2d61ffffffffffffffff000000000000000100000007", x.seventh):    lme,
			"0 003f": fmt.Sprintf("01%08x", x.partitions), // beside them, of a type that is this package's own: in how many partitions they lie
		}
		if got := consumed(t, seeds, cfg.namespace+stateTopic, 6); !maps.Equal(got, want) {
			t.Errorf("%d partitions:\n got %v\nwant %v", x.partitions, got, want)
		}
	}
}

// Records of each type go where the rights for them are, and no topic is made for records that are not written.
func TestRealTopicsOfRecords(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	s := open(t, cfg)
	seeds := kafkatest.Shared(t).Bootstrap()
	for _, x := range []struct {
		topic string
		types []int16
	}{
		{controlTopic, []int16{65, 66, 67, 68, 69, 70, 77}}, {stopTopic, []int16{71}}, {pauseTopic, []int16{72, 73}}, {historyTopic, []int16{74}}, {statusTopic, []int16{75, 76, 78}},
	} {
		if s.leader(place{cfg.namespace + x.topic, 0}) != noTopic {
			t.Errorf("%s is there before it is needed", x.topic)
		}
		want := make(map[string]string)
		var changes []keyedlog.Change
		for _, recordType := range x.types {
			changes = append(changes, change(key(recordType, "k"), "v"))
			want[fmt.Sprintf("0 %x", key(recordType, "k"))] = hex.EncodeToString([]byte("v"))
		}
		update(t, s, changes...)
		if got := consumed(t, seeds, cfg.namespace+x.topic, len(want)); !maps.Equal(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", x.topic, got, want)
		}
	}
	for _, bad := range [][]byte{key(64, "own"), key(1, "not a state's key")} {
		if err := s.Update(t.Context(), put(change(bad, "v"))); err == nil {
			t.Errorf("key %x was accepted", bad)
		}
	}
}
