package synclife_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// TestHeldSettingsChangedByOperators: kafka-configs.sh at the destination, on settings that a mirrored topic has from the mirror process, while topics are idle and while they grow. A failover ends in
// seconds all the same, and each topic has exactly what was set.
func TestHeldSettingsChangedByOperators(t *testing.T) {
	a, b := primary(t), standby(t)
	process := lives.Join(t, b)
	sets := map[string]map[string]string{
		"held-raised":  {"min.insync.replicas": "2"},
		"held-deleted": {"min.insync.replicas": ""},
		"held-both":    {"min.insync.replicas": "3", "unclean.leader.election.enable": "true"},
		"held-again":   {"min.insync.replicas": "2"},
		"held-let":     {},
	}
	var topics []string
	for topic := range sets {
		topics = append(topics, topic)
		a.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
		lives.Produce(t, lives.Client(a), topic, 0, lives.Values("of the source", 10)...)
	}
	r := lives.Open(t, "held", a, process)
	r.Start(topics...)
	for topic := range sets {
		r.InStep(topic, 0, 10)
	}
	for topic, set := range sets {
		if len(set) > 0 {
			alter(t, b, topic, set)
		}
	}
	// One that goes on with it, as a tool does.
	two := "2"
	again := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		every := time.NewTicker(100 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-again:
				return
			case <-every.C:
				if _, err := b.Admin().AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.insync.replicas", Value: &two}}, "held-again"); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	for topic := range sets {
		if topic != "held-again" {
			configured(t, b, topic, true, map[string]string{})
			lives.Produce(t, lives.Client(a), topic, 0, lives.Values("later", 5)...)
			r.InStep(topic, 0, 15)
		}
	}
	began := time.Now()
	r.Failover()
	took := time.Since(began)
	close(again)
	<-ended
	t.Logf("the failover took %v", took)
	for topic, set := range sets {
		want := map[string]string{}
		for name, value := range set {
			if value != "" {
				want[name] = value
			}
		}
		configured(t, b, topic, false, want)
	}
	if events := process.Noticed(kraft.SettingKept); len(events) < 5 {
		t.Errorf("told: %v", events)
	}
	if events := process.Noticed(kraft.Violation); len(events) > 0 {
		t.Errorf("told: %v", events)
	}
}
