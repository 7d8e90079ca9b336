package memlog_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func configs(t testing.TB, c *memlog.Cluster, topic string) map[string]string {
	t.Helper()
	all, err := c.TopicConfigs(t.Context(), []string{topic})
	if err != nil || all[topic].Err != nil {
		t.Fatalf("%v, %v", all, err)
	}
	return all[topic].Values
}

func TestSettingsOfATopic(t *testing.T) {
	ctx := t.Context()
	c := memlog.New(memlog.Config{})
	defer c.Close()
	spec := mirror.TopicSpec{Name: "orders", Partitions: 1, Configs: map[string]string{"cleanup.policy": "compact"}}
	if _, err := c.CreateTopic(ctx, spec); err != nil {
		t.Fatal(err)
	}
	if is := configs(t, c, "orders"); !maps.Equal(is, spec.Configs) {
		t.Errorf("after creation: %v", is)
	}
	if err := c.SetTopicConfig("orders", "retention.ms", "1"); err != nil {
		t.Fatal(err)
	}
	failed := c.AlterTopicConfigs(ctx, map[string]mirror.TopicConfigChange{
		"orders":  {Set: map[string]string{"segment.bytes": "2"}, Delete: []string{"cleanup.policy", "never.set"}},
		"missing": {Set: map[string]string{"segment.bytes": "2"}},
	})
	if len(failed) != 1 || !errors.Is(failed["missing"], mirror.ErrUnknownTopic) {
		t.Errorf("failed: %v", failed)
	}
	if is := configs(t, c, "orders"); !maps.Equal(is, map[string]string{"retention.ms": "1", "segment.bytes": "2"}) {
		t.Errorf("after a change: %v", is)
	}
	if err := c.DeleteTopicConfig("orders", "retention.ms"); err != nil {
		t.Fatal(err)
	}
	if is, err := c.TopicConfig("orders"); err != nil || !maps.Equal(is, map[string]string{"segment.bytes": "2"}) {
		t.Errorf("after a deletion: %v, %v", is, err)
	}
	if all, err := c.TopicConfigs(ctx, []string{"missing"}); err != nil || len(all) != 0 {
		t.Errorf("a topic that is not there: %v, %v", all, err)
	}
}

func TestF65ARefusedSettingIsThatTopicsAlone(t *testing.T) {
	ctx := t.Context()
	c := memlog.New(memlog.Config{})
	defer c.Close()
	c.SetRefusedConfig("vendor.tier", "Unknown topic config name: vendor.tier")
	odd := map[string]string{"vendor.tier": "cold", "retention.ms": "1"}
	if _, err := c.CreateTopic(ctx, mirror.TopicSpec{Name: "a", Partitions: 1, Configs: odd}); err == nil || !strings.Contains(err.Error(), "Unknown topic config name: vendor.tier") {
		t.Errorf("creation: %v", err)
	}
	if _, err := c.Topic(ctx, "a"); !errors.Is(err, mirror.ErrUnknownTopic) {
		t.Errorf("the refused topic is there: %v", err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := c.CreateTopic(ctx, mirror.TopicSpec{Name: name, Partitions: 1}); err != nil {
			t.Fatal(err)
		}
	}
	changes := map[string]mirror.TopicConfigChange{"a": {Set: odd}, "b": {Set: map[string]string{"retention.ms": "1"}}}
	if failed := c.AlterTopicConfigs(ctx, changes); len(failed) != 1 || !strings.Contains(failed["a"].Error(), "Unknown topic config name") {
		t.Errorf("change: %v", failed)
	}
	if a, b := configs(t, c, "a"), configs(t, c, "b"); len(a) != 0 || b["retention.ms"] != "1" {
		t.Errorf("a has %v, b %v", a, b)
	}
	c.SetRefusedConfig("vendor.tier", "")
	if failed := c.AlterTopicConfigs(ctx, changes); len(failed) != 0 || configs(t, c, "a")["vendor.tier"] != "cold" {
		t.Errorf("when it is taken again: %v", failed)
	}
}

func TestALostChangeIsEveryTopics(t *testing.T) {
	lost := errors.New("lost")
	c, _ := source(t, memlog.Config{})
	c.SetHooks(memlog.Hooks{After: func(_ context.Context, call memlog.Call) error {
		if call.Operation == "Destination.AlterTopicConfigs" {
			return lost
		}
		return nil
	}})
	failed := c.AlterTopicConfigs(t.Context(), map[string]mirror.TopicConfigChange{"orders": {Set: map[string]string{"retention.ms": "1"}}})
	if !errors.Is(failed["orders"], lost) || configs(t, c, "orders")["retention.ms"] != "1" {
		t.Errorf("%v", failed)
	}
}
