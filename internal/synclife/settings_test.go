package synclife_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// alter changes settings of a topic, as an operator does; "" takes one back.
func alter(t *testing.T, c *kafkatest.Cluster, topic string, settings map[string]string) {
	t.Helper()
	var changes []kadm.AlterConfig
	for name, value := range settings {
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value}
		if value == "" {
			change = kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name}
		}
		changes = append(changes, change)
	}
	answers, err := c.Admin().AlterTopicConfigs(lives.Limited(t), changes, topic)
	if err == nil {
		for _, a := range answers {
			err = a.Err
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// settingsOf are those that a topic has for itself, as a cluster's brokers tell them.
func settingsOf(t *testing.T, c *kafkatest.Cluster, topic string) (map[string]string, error) {
	all, err := c.Admin().DescribeTopicConfigs(lives.Limited(t), topic)
	if err == nil {
		err = all[0].Err
	}
	if err != nil {
		return nil, err
	}
	own := map[string]string{}
	for _, x := range all[0].Configs {
		if x.Source == kmsg.ConfigSourceDynamicTopicConfig {
			own[x.Key] = x.MaybeValue()
		}
	}
	return own, nil
}

// configured waits until a topic has exactly these settings for itself. While it is mirrored two of them are the mirror's own.
func configured(t *testing.T, c *kafkatest.Cluster, topic string, mirrored bool, want map[string]string) {
	t.Helper()
	want = maps.Clone(want)
	if mirrored {
		want["min.insync.replicas"], want["unclean.leader.election.enable"] = "1", "false"
	}
	lives.Eventually(t, fmt.Sprintf("topic %s has %v", topic, want), func() (bool, string) {
		got, err := settingsOf(t, c, topic)
		return err == nil && maps.Equal(got, want), fmt.Sprint(got, err)
	})
}

// The topic is there already, empty and with settings of its own.
func TestF63SettingsOfTheDestinationStay(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "f63"
	a.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3, Configs: map[string]string{"retention.ms": "3600000", "segment.bytes": "2097152", "compression.type": "zstd"}})
	b.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3, Configs: map[string]string{"min.insync.replicas": "2", "retention.ms": "604800000", "flush.ms": "60000", "compression.type": "lz4"}})
	process := lives.Join(t, b)
	r := lives.Open(t, topic, a, process)
	r.Set(mirror.Settings{"mirror.topic.properties.exclude": "retention.ms,min.insync.replicas,unclean.leader.election.enable"})
	r.Start(topic)
	r.InStep(topic, 0, 0)
	own := map[string]string{"retention.ms": "604800000", "flush.ms": "60000"}
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(own)
		maps.Copy(all, more)
		return all
	}
	configured(t, b, topic, true, with(map[string]string{"segment.bytes": "2097152", "compression.type": "zstd"}))

	// What the source drops goes to what it was here, also when the mirror was restarted meanwhile. What the mirror did not set stays.
	r.End()
	alter(t, a, topic, map[string]string{"segment.bytes": "", "compression.type": "", "retention.ms": ""})
	r = lives.Open(t, topic, a, process)
	configured(t, b, topic, true, with(map[string]string{"compression.type": "lz4"}))

	// An operator's change of a followed setting is overruled.
	alter(t, a, topic, map[string]string{"segment.bytes": "3145728"})
	configured(t, b, topic, true, with(map[string]string{"compression.type": "lz4", "segment.bytes": "3145728"}))
	alter(t, b, topic, map[string]string{"segment.bytes": "7340032", "flush.ms": "90000"})
	own["flush.ms"] = "90000"
	configured(t, b, topic, true, with(map[string]string{"compression.type": "lz4", "segment.bytes": "3145728"}))
	r.Failover()
	configured(t, b, topic, false, with(map[string]string{"compression.type": "lz4", "segment.bytes": "3145728", "min.insync.replicas": "2"}))
}

// eachState goes through the states of a cluster's metadata, one batch after the other, as they lie on its controller's disk.
func eachState(t *testing.T, c *kafkatest.Cluster, look func(im *clustermetadata.Image, next int64)) {
	t.Helper()
	im := clustermetadata.New()
	log := c.MetadataLogBytes(1)
	for at := 0; at < len(log); {
		h, err := batch.ParseHeader(log[at:])
		if err != nil || at+h.Size() > len(log) {
			return // the last one is being written
		}
		if _, err := im.Apply(log[at : at+h.Size()]); err != nil {
			t.Fatal(err)
		}
		look(im, h.NextOffset())
		at += h.Size()
	}
}

func TestF64TopicIsCreatedWithItsSettings(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "f64"
	a.CreateTopic(kafkatest.Topic{Name: topic, Partitions: 3, Replication: 3, Configs: map[string]string{
		"cleanup.policy": "compact", "max.message.bytes": "10485760", "retention.ms": "7200000", "min.insync.replicas": "2", "unclean.leader.election.enable": "true"}})
	cl := lives.Client(a)
	lives.Put(t, cl, topic, "a", "b")
	followed := map[string]string{"cleanup.policy": "compact", "max.message.bytes": "10485760"}
	for _, x := range []struct {
		topic, exclude string
		after          map[string]string
	}{
		{topic, "retention.ms,min.insync.replicas,unclean.leader.election.enable", nil},
		{"f64-all", "retention.ms", map[string]string{"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}},
	} {
		if x.topic != topic {
			a.CreateTopic(kafkatest.Topic{Name: x.topic, Partitions: 3, Replication: 3, Configs: map[string]string{
				"cleanup.policy": "compact", "max.message.bytes": "10485760", "retention.ms": "7200000", "min.insync.replicas": "2", "unclean.leader.election.enable": "true"}})
			lives.Put(t, cl, x.topic, "a", "b")
		}
		process := lives.Join(t, b)
		r := lives.Open(t, x.topic, a, process)
		r.Set(mirror.Settings{"mirror.topic.properties.exclude": x.exclude})
		r.Start(x.topic)
		r.InStep(x.topic, 0, 2)
		configured(t, b, x.topic, true, followed)
		refreshes(t, r, 2)
		states := 0
		eachState(t, b, func(im *clustermetadata.Image, next int64) {
			if _, _, ok := im.Topic(x.topic); !ok {
				return
			}
			states++
			all := im.Configs(clustermetadata.TopicResource, x.topic)
			for name, value := range followed {
				if all[name] != value {
					t.Errorf("up to %d of the metadata log topic %s has %s=%q, want %q", next, x.topic, name, all[name], value)
				}
			}
			if value, ok := all["retention.ms"]; ok {
				t.Errorf("up to %d of the metadata log topic %s has retention.ms=%s", next, x.topic, value)
			}
			if all["unclean.leader.election.enable"] != "false" {
				t.Errorf("up to %d of the metadata log topic %s has unclean.leader.election.enable=%q", next, x.topic, all["unclean.leader.election.enable"])
			}
		})
		if states == 0 {
			t.Errorf("no state of the metadata has topic %s", x.topic)
		}
		r.Failover()
		r.End()
		process.Leave()
		want := maps.Clone(followed)
		maps.Copy(want, x.after)
		configured(t, b, x.topic, false, want)
	}
}

// The source is older than the destination: it has a topic with a setting that is unknown there, and another one gets a value that is refused there.
func TestF65OneRefusedTopicDoesNotHoldTheOthersUp(t *testing.T) {
	a, b := older(t), standby(t)
	topics := []string{"f65-0", "f65-1", "f65-2", "f65-3"}
	for i, topic := range topics {
		configs := map[string]string{"retention.ms": fmt.Sprint(3600000 + i)}
		if i == 1 {
			configs["message.downconversion.enable"] = "false" // Kafka 4 does not know it
		}
		a.CreateTopic(kafkatest.Topic{Name: topic, Configs: configs})
		fill(t, a, topic, 10)
	}
	r := lives.Open(t, "f65", a, lives.Join(t, b))
	r.Start(topics...)
	for i, topic := range topics {
		if i != 1 {
			r.Same(topic, 0, 10)
			configured(t, b, topic, true, map[string]string{"retention.ms": fmt.Sprint(3600000 + i)})
		}
	}
	lives.Eventually(t, "the refused topic is told in the broker's words", func() (bool, string) {
		s := r.Status()
		for _, x := range s.Topics {
			if x.Topic == topics[1] && x.Err != nil && strings.Contains(x.Err.Error(), "message.downconversion.enable") {
				return true, ""
			}
		}
		return false, lives.Show(s)
	})
	r.Set(mirror.Settings{"mirror.topic.properties.exclude": "message.downconversion.enable"})
	r.Same(topics[1], 0, 10)
	configured(t, b, topics[1], true, map[string]string{"retention.ms": "3600001"})

	// Below what Kafka 4 takes (KIP-1030), beside one that is taken.
	alter(t, a, topics[2], map[string]string{"segment.bytes": "100000", "flush.ms": "70000"})
	alter(t, a, topics[3], map[string]string{"flush.ms": "80000"})
	configured(t, b, topics[2], true, map[string]string{"retention.ms": "3600002", "flush.ms": "70000"})
	configured(t, b, topics[3], true, map[string]string{"retention.ms": "3600003", "flush.ms": "80000"})
	lives.Eventually(t, "the refused setting is told in the broker's words", func() (bool, string) {
		s := r.Status().Metadata.Configs
		line := strings.Join(s.Skipped, "\n")
		return strings.Contains(line, topics[2]) && strings.Contains(line, "segment.bytes") && strings.Contains(line, kerr.InvalidConfig.Message) && s.Err == nil, fmt.Sprintf("%+v", s)
	})
	alter(t, a, topics[2], map[string]string{"segment.bytes": "2000000"})
	configured(t, b, topics[2], true, map[string]string{"retention.ms": "3600002", "flush.ms": "70000", "segment.bytes": "2000000"})
}

// The source grows, and the new partitions are written to at once.
func TestF68SourceGainsPartitions(t *testing.T) {
	a, b := primary(t), standby(t)
	topic, seven := "f68", "f68-seven"
	for _, name := range []string{topic, seven} {
		a.CreateTopic(kafkatest.Topic{Name: name, Partitions: 3, Replication: 3})
	}
	b.CreateTopic(kafkatest.Topic{Name: seven, Partitions: 7, Replication: 3})
	fill(t, a, topic, 10)
	r := lives.Open(t, topic, a, lives.Join(t, b))
	r.Start(topic, seven)
	r.Same(topic, 0, 10)
	if _, err := a.Admin().UpdatePartitions(lives.Limited(t), 5, topic); err != nil {
		t.Fatal(err)
	}
	for p := int32(3); p < 5; p++ {
		a.WaitPartition(topic, p, "a leader", func(p kafkatest.Partition) bool { return p.Leader >= 0 })
		lives.Produce(t, lives.Client(a), topic, p, lives.Values("of the source", 100)...)
		lives.Commit(t, a, "f68", topic, p, 30+int64(p), 0)
	}
	for p := int32(3); p < 5; p++ {
		r.Same(topic, p, 100)
		if start := lives.One(r.Status(), topic, p).Start; start != 0 {
			t.Errorf("partition %d begins at %d", p, start)
		}
	}
	at(t, b, "f68", topic, map[int32]int64{3: 33, 4: 34})
	lives.Eventually(t, "partition counts differ", func() (bool, string) {
		s := r.Status()
		for _, x := range s.Topics {
			if x.Topic == seven && x.Err != nil && strings.Contains(x.Err.Error(), "partition") && strings.Contains(x.Err.Error(), "7") {
				return true, ""
			}
		}
		p := lives.One(s, seven, 0)
		return p.State == statemachine.Failed && strings.Contains(p.Reason, "partition") && strings.Contains(p.Reason, "7"), lives.Show(s)
	})
	got := map[int32]int64{}
	for _, p := range r.Failover().Partitions {
		if p.Topic == topic {
			got[p.Partition] = p.FinalOffset
		}
	}
	if want := map[int32]int64{0: 10, 1: 0, 2: 0, 3: 100, 4: 100}; !maps.Equal(got, want) {
		t.Errorf("partitions end at %v, want %v", got, want)
	}
}
