package mirror_test

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func (s *side) configure(topic string, settings map[string]string) {
	s.t.Helper()
	for name, value := range settings {
		if err := s.SetTopicConfig(topic, name, value); err != nil {
			s.t.Fatal(err)
		}
	}
}

// configured checks a topic's own settings.
func (s *side) configured(topic string, want map[string]string) {
	s.t.Helper()
	got, err := s.TopicConfig(topic)
	if err != nil || !maps.Equal(got, want) {
		s.t.Fatalf("settings of %s: %v, %v; want %v", topic, got, err, want)
	}
}

func TestF63SettingsOfTheDestinationStay(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		set(tt, m.b, "mirror.topic.properties.exclude", "retention.ms,min.insync.replicas")
		m.a.configure("t", map[string]string{"retention.ms": "3600000", "min.insync.replicas": "1", "segment.bytes": "1048576", "compression.type": "zstd"})
		m.b.configure("t", map[string]string{"min.insync.replicas": "2", "retention.ms": "604800000", "flush.ms": "5", "compression.type": "lz4"})
		refreshes(2)
		m.b.configured("t", map[string]string{"min.insync.replicas": "2", "retention.ms": "604800000", "flush.ms": "5", "segment.bytes": "1048576", "compression.type": "zstd"})
		// What the mirror had set goes back when the source drops it, to what it was; what it had not set stays.
		for _, name := range []string{"segment.bytes", "compression.type"} {
			if err := m.a.DeleteTopicConfig("t", name); err != nil {
				tt.Fatal(err)
			}
		}
		m.again(tt)
		refreshes(2)
		m.b.configured("t", map[string]string{"min.insync.replicas": "2", "retention.ms": "604800000", "flush.ms": "5", "compression.type": "lz4"})
		// Whoever changes a followed setting here is overruled, and what he has set behind a dropped one is his.
		m.a.configure("t", map[string]string{"segment.bytes": "2097152"})
		refreshes(2)
		m.b.configure("t", map[string]string{"segment.bytes": "7000000"})
		refreshes(2)
		m.b.configured("t", map[string]string{"min.insync.replicas": "2", "retention.ms": "604800000", "flush.ms": "5", "compression.type": "lz4", "segment.bytes": "2097152"})
		writes := 0
		m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Destination.AlterTopicConfigs" {
				writes++
			}
			return nil
		}})
		refreshes(10)
		expect(tt, "changes while nothing changes", writes, 0)
	})
}

func TestF64TopicIsCreatedWithItsSettings(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 3)
		a.configure("t", map[string]string{"cleanup.policy": "compact", "max.message.bytes": "10485760", "retention.ms": "1000", "remote.storage.enable": "true"})
		m := follow(tt, "m", a, b)
		defer m.close()
		set(tt, b, "mirror.topic.properties.exclude", "retention.ms")
		want := map[string]string{"cleanup.policy": "compact", "max.message.bytes": "10485760"}
		created := false
		b.SetHooks(memlog.Hooks{After: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Destination.CreateTopic" {
				created = true
				b.configured("t", want) // from its first moment
			}
			if c.Operation == "Destination.AlterTopicConfigs" {
				tt.Error("changed afterwards")
			}
			return nil
		}})
		m.start("t")
		m.untilInStep()
		refreshes(3)
		expect(tt, "created", created, true)
		b.configured("t", want)
		// They are the mirror's own: what the source drops goes.
		if err := a.DeleteTopicConfig("t", "cleanup.policy"); err != nil {
			tt.Fatal(err)
		}
		b.SetHooks(memlog.Hooks{})
		refreshes(2)
		b.configured("t", map[string]string{"max.message.bytes": "10485760"})
	})
}

func TestF64ATopicWhoseSettingsCannotBeReadIsNotCreated(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 3)
		a.SetDenied(mirror.Right{Operation: "DescribeConfigs", Resource: "Topic", Name: "t"})
		m := follow(tt, "m", a, b)
		defer m.close()
		m.start("t")
		refreshes(2)
		s := m.Status()
		if len(s.Topics) != 1 || s.Topics[0].Err == nil {
			tt.Fatalf("%+v", s.Topics)
		}
		expectWords(tt, s.Topics[0].Err.Error(), "without which it is not created", "allow DescribeConfigs", "mirror.topic.properties.exclude=.*")
		set(tt, b, "mirror.topic.properties.exclude", ".*")
		m.untilInStep()
	})
}

func TestF65OneRefusedTopicOrSettingBlocksNoOther(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		var topics []string
		for i := range 300 {
			name := fmt.Sprintf("t%d", i)
			topics = append(topics, name)
			a.local(name, 1)
		}
		a.configure("t17", map[string]string{"vendor.magic": "on"})
		b.SetRefusedConfig("vendor.magic", "Unknown topic config name: vendor.magic")
		m := follow(tt, "m", a, b)
		defer m.close()
		m.start(topics...)
		m.until("299 mirrored", func(s mirror.Status) bool {
			n := 0
			for _, t := range s.Topics {
				for _, p := range t.Partitions {
					if inStep(p) {
						n++
					}
				}
			}
			return n == 299
		})
		for _, t := range m.Status().Topics {
			if (t.Topic == "t17") != (t.Err != nil) {
				tt.Errorf("%s: %v", t.Topic, t.Err)
			}
			if t.Err != nil {
				expectWords(tt, t.Err.Error(), "Unknown topic config name: vendor.magic")
			}
		}
		// On a topic that is there it holds up no other setting, and no other topic.
		a.configure("t18", map[string]string{"vendor.magic": "on", "flush.ms": "5"})
		a.configure("t19", map[string]string{"flush.ms": "6"})
		refreshes(2)
		b.configured("t18", map[string]string{"flush.ms": "5"})
		b.configured("t19", map[string]string{"flush.ms": "6"})
		if s := m.Status().Metadata.Configs.Skipped; len(s) != 1 {
			tt.Errorf("%q", s)
		} else {
			expectWords(tt, s[0], "topic t18", "vendor.magic")
		}
		// It is tried again at each refresh.
		b.SetRefusedConfig("vendor.magic", "")
		refreshes(2)
		b.configured("t18", map[string]string{"flush.ms": "5", "vendor.magic": "on"})
		m.until("all mirrored", func(s mirror.Status) bool { return len(s.Topics) == 300 && each(s, inStep) && s.Topics[9].Err == nil })
	})
}

func TestF68NewPartitionsBeginAtTheirFirstRecord(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 3, 10)
		if _, err := m.a.GrowTopic(tt.Context(), "t", 5); err != nil {
			tt.Fatal(err)
		}
		m.a.fill("t", 3, 100)
		m.a.fill("t", 4, 100)
		m.a.commit("g", t(4), 60)
		refreshes(3)
		m.inStepAndSame()
		expect(tt, "partitions", len(m.Status().Topics[0].Partitions), 5)
		refreshes(2)
		m.b.at("g", t(4), 60)
	})
}

func TestF68MorePartitionsThanTheSourceHasAreNotIgnored(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		a.local("t", 5)
		a.fill("t", 4, 10)
		if _, err := b.CreateTopic(tt.Context(), mirror.TopicSpec{Name: "t", Partitions: 7}); err != nil {
			tt.Fatal(err)
		}
		m := follow(tt, "m", a, b)
		defer m.close()
		m.start("t")
		for p := range int32(2) {
			m.untilFailed("t", 5+p, "partition counts differ")
		}
		refreshes(2)
		expectWords(tt, m.Status().Topics[0].Err.Error(), "partition counts differ: 5 at the source, 7 at the destination")
		m.untilOne("in step", "t", 4, inStep)
	})
}
