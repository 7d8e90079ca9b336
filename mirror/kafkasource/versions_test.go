package kafkasource

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/clustermirror/mirror"
)

func TestEveryCallAgainstEverySupportedVersion(t *testing.T) {
	for _, v := range []struct {
		name     string
		versions *kversion.Versions
		fetch    int16 // version that is spoken
		ids      bool
	}{
		{"2.1", kversion.V2_1_0(), 10, false},
		{"2.4", kversion.V2_4_0(), 11, false},
		{"2.8", kversion.V2_8_0(), 12, true},
		{"3.1", kversion.V3_1_0(), 13, true},
		{"3.6", kversion.V3_6_0(), 15, true},
		{"newest", nil, 18, true},
	} {
		t.Run(v.name, func(t *testing.T) {
			opts := []kfake.Opt{kfake.SeedTopics(2, "t")}
			if v.versions != nil {
				opts = append(opts, kfake.MaxVersions(v.versions))
			}
			c := cluster(t, opts...)
			produce(t, c, "t", 1, "1", "2", "3")
			seen := recordFetches(c)
			s := openTo(t, c)

			info, err := s.Cluster(t.Context())
			if err != nil || info.ID != "source-one" || len(info.Brokers) != 1 {
				t.Fatalf("%+v %v", info, err)
			}
			topic := topicOf(t, s, "t")
			if topic.Partitions != 2 || len(topic.Leaders) != 2 || topic.Leaders[1].Leader != info.Brokers[0].ID || topic.Leaders[1].LeaderEpoch < 0 {
				t.Fatalf("%+v", topic)
			}
			if hasID := topic.ID != (mirror.TopicID{}); hasID != v.ids {
				t.Errorf("topic id known: %v, want %v", hasID, v.ids)
			}
			one := mirror.TopicPartition{Topic: "t", Partition: 1}
			offsets, err := s.Offsets(t.Context(), []mirror.TopicPartition{{Topic: "t"}, one})
			if err != nil || offsets[one].Err != nil || offsets[one].LogStart != 0 || offsets[one].HighWatermark != 3 {
				t.Fatalf("%+v %v", offsets, err)
			}
			end, err := s.EndOffsetForEpoch(t.Context(), one, topic.Leaders[1].LeaderEpoch, topic.Leaders[1].LeaderEpoch)
			if v.name == "2.1" {
				// Kafka 2.1 serves version 2; this fake cluster has none below 3.
				if !errors.Is(err, mirror.ErrUnsupported) {
					t.Fatalf("%+v %v", end, err)
				}
			} else if err != nil || end.End != 3 || end.Epoch != topic.Leaders[1].LeaderEpoch {
				t.Fatalf("%+v %v", end, err)
			}
			f := fetcherOf(t, s, topic.Leaders[1].Leader, mirror.FetchOptions{})
			f.Want(position(topic, 0, 0))
			f.Want(position(topic, 1, 0))
			produce(t, c, "t", 0, "4")
			for records := map[int32]bool{}; !records[0] || !records[1]; {
				for _, got := range fetchUntil(t, f) {
					if got.Err != nil {
						t.Fatal(got.Err)
					}
					if len(got.Records) > 0 {
						records[got.Partition] = true
						f.Want(position(topic, got.Partition, got.HighWatermark))
					}
				}
			}
			for _, r := range seen.all() {
				if r.Version != v.fetch {
					t.Errorf("fetch version %d, want %d", r.Version, v.fetch)
				}
			}
		})
	}
}

func TestSourceOlderThanSupported(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(kversion.V2_0_0()))
	s := openTo(t, c)
	check := func(err error) {
		t.Helper()
		e := sourceError(t, err, mirror.SourceUnsupported, true)
		if !strings.Contains(e.Error(), "source older than supported") {
			t.Errorf("%v", e)
		}
	}
	tp := mirror.TopicPartition{Topic: "t"}
	_, err := s.Cluster(t.Context())
	check(err)
	_, err = s.Topics(t.Context(), "t")
	check(err)
	_, err = s.Offsets(t.Context(), []mirror.TopicPartition{tp})
	check(err)
	_, err = s.EndOffsetForEpoch(t.Context(), tp, 0, 0)
	check(err)
	_, err = s.OpenFetcher(t.Context(), 0, mirror.FetchOptions{})
	check(err)
}

// TestF14ZstdNotServedAtAnOldFetchVersion: a broker below Fetch version 10 is refused, and one that refuses the compression is believed.
func TestF14ZstdNotServedAtAnOldFetchVersion(t *testing.T) {
	t.Run("old fetch version", func(t *testing.T) {
		old := kversion.V2_1_0()
		old.SetMaxKeyVersion(int16(kmsg.Fetch), 9)
		c := cluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(old))
		s := openTo(t, c)
		topic := topicOf(t, s, "t")
		f := fetcherOf(t, s, topic.Leaders[0].Leader, mirror.FetchOptions{})
		f.Want(position(topic, 0, 0))
		_, err := f.Fetch(t.Context())
		if e := sourceError(t, err, mirror.SourceUnsupported, true); !strings.Contains(e.Error(), "older than supported") {
			t.Error(e)
		}
	})
	t.Run("compression refused", func(t *testing.T) {
		c := cluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(kversion.V2_1_0()))
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: kerr.UnsupportedCompressionType, Count: -1})
		s := openTo(t, c)
		topic := topicOf(t, s, "t")
		f := fetcherOf(t, s, topic.Leaders[0].Leader, mirror.FetchOptions{})
		f.Want(position(topic, 0, 0))
		got := fetchUntil(t, f)
		e := sourceError(t, got[0].Err, mirror.SourceUnsupported, true)
		if !strings.Contains(e.Advice, "compression") || e.Partition != got[0].TopicPartition {
			t.Error(e)
		}
	})
}

// TestF41NoEndOffsetForEpochOffered: the API is missing, too old, or there and failing; only the first two are ErrUnsupported.
func TestF41NoEndOffsetForEpochOffered(t *testing.T) {
	tp := mirror.TopicPartition{Topic: "t"}
	ask := func(t *testing.T, c *kfake.Cluster) error {
		_, err := openTo(t, c).EndOffsetForEpoch(t.Context(), tp, -1, 0)
		return err
	}
	t.Run("missing", func(t *testing.T) {
		without := kversion.V3_6_0()
		without.SetMaxKeyVersion(int16(kmsg.OffsetForLeaderEpoch), -1)
		c := cluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(without))
		err := ask(t, c)
		sourceError(t, err, mirror.SourceUnsupported, false)
		if !errors.Is(err, mirror.ErrUnsupported) {
			t.Error(err)
		}
	})
	t.Run("too old", func(t *testing.T) {
		old := kversion.V3_6_0()
		old.SetMaxKeyVersion(int16(kmsg.OffsetForLeaderEpoch), 1)
		if err := ask(t, cluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(old))); !errors.Is(err, mirror.ErrUnsupported) {
			t.Error(err)
		}
	})
	t.Run("failing", func(t *testing.T) {
		c := cluster(t, kfake.SeedTopics(1, "t"))
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Topic: "t", Err: kerr.UnknownServerError, Count: -1})
		if err := ask(t, c); err == nil || errors.Is(err, mirror.ErrUnsupported) {
			t.Error(err)
		}
	})
	t.Run("undefined epoch", func(t *testing.T) {
		c := cluster(t, kfake.SeedTopics(1, "t"))
		end, err := openTo(t, c).EndOffsetForEpoch(t.Context(), tp, -1, 99)
		if err != nil || end != (mirror.EpochEnd{Epoch: -1, End: -1}) {
			t.Errorf("%+v %v", end, err)
		}
	})
	t.Run("fenced", func(t *testing.T) {
		c := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "t"))
		s := openTo(t, c)
		before := topicOf(t, s, "t").Leaders[0]
		if err := c.MoveTopicPartition("t", 0, 1-before.Leader); err != nil {
			t.Fatal(err)
		}
		// Asked where it led before, under the old epoch: an error, and the next call asks the new leader.
		if _, err := s.EndOffsetForEpoch(t.Context(), tp, before.LeaderEpoch, 0); err == nil {
			t.Fatal("an old leader or epoch answered")
		}
		if _, err := s.EndOffsetForEpoch(t.Context(), tp, before.LeaderEpoch, 0); err == nil {
			t.Fatal("the new leader answered under an old epoch")
		} else {
			sourceError(t, err, mirror.SourceFencedEpoch, false)
		}
		now := topicOf(t, s, "t").Leaders[0]
		if _, err := s.EndOffsetForEpoch(t.Context(), tp, now.LeaderEpoch, 0); err != nil {
			t.Fatal(err)
		}
	})
}
