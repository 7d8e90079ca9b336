package kraft

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// remake deletes a topic and makes another one of its name.
func (f *fake) remake(name string, replicas ...[]int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.topics[name]
	f.record(9, 0, append(id[:], 0))
	delete(f.topics, name)
	f.topics["deleted "+name] = id
	for tp := range f.parts {
		if tp.Topic == name {
			delete(f.parts, tp)
		}
	}
	f.create(name, replicas)
}

// TestLogOfADeletedTopicTouchesNoOther: whoever still has the Log of a topic that was deleted does nothing to the topic that has its name now.
func TestLogOfADeletedTopicTouchesNoOther(t *testing.T) {
	for name, do := range map[string]func(context.Context, *Log) error{
		"Open":           func(ctx context.Context, l *Log) error { return l.Open(ctx) },
		"CloseForWrites": func(ctx context.Context, l *Log) error { return l.CloseForWrites(ctx) },
		"Owner":          func(ctx context.Context, l *Log) error { _, _, err := l.Owner(ctx); return err },
		"Read":           func(ctx context.Context, l *Log) error { _, err := l.Read(ctx, 0, 100); return err },
		"a reassignment": func(ctx context.Context, l *Log) error {
			return l.d.setReplicasOf(ctx, l.tp, l.id, []int32{2, 1})
		},
		"in-sync replicas": func(ctx context.Context, l *Log) error {
			return l.d.setISROf(ctx, l.tp, l.id, []int32{us, 1}, func(clustermetadata.Partition) bool { return false })
		},
	} {
		for leads, replicas := range map[string][]int32{"a stock broker": {1, 2}, "this process": {us, 1, 2}} {
			t.Run(name+", then "+leads+" leads", func(t *testing.T) {
				f, d := startFake(t)
				f.topic("orders", []int32{1, 2})
				if err := d.meta.caughtUp(t.Context()); err != nil {
					t.Fatal(err)
				}
				l := d.log(orders)
				f.remake("orders", replicas)
				if err := d.meta.caughtUp(t.Context()); err != nil {
					t.Fatal(err)
				}
				asked := f.count(kmsg.AlterPartitionAssignments) + f.count(kmsg.AlterPartition) + f.count(kmsg.IncrementalAlterConfigs)
				if err := do(t.Context(), l); !errors.Is(err, mirror.ErrUnknownTopic) {
					t.Errorf("%v", err)
				}
				if leads == "a stock broker" && f.count(kmsg.AlterPartitionAssignments)+f.count(kmsg.AlterPartition)+f.count(kmsg.IncrementalAlterConfigs) != asked {
					t.Error("something was asked for")
				}
			})
		}
	}
}

// TestADeletedTopicsLogSaysWhatItHeld: a status after the deletion does not say that nothing was ever copied.
func TestADeletedTopicsLogSaysWhatItHeld(t *testing.T) {
	c, d := startFake(t)
	if _, err := d.CreateTopic(within(t, 5*time.Second), mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	l := d.known(orders)
	if err := l.Append(within(t, 5*time.Second), 0, oneBatch(0)); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int32]string{1: "broker 1 has not asked for it yet", 2: "broker 2 has not asked for it yet"} {
		if _, others := l.caughtUp([]int32{id}); !strings.Contains(others, want) {
			t.Errorf("%s", others)
		}
	}
	start, end, replicated := l.Start(), l.End(), l.Replicated()
	if end == 0 || replicated == end {
		t.Fatalf("[%d, %d], replicated to %d", start, end, replicated)
	}
	c.remake("orders", []int32{1, 2})
	if err := d.meta.caughtUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.Start() != start || l.End() != end || l.Replicated() != replicated {
		t.Errorf("[%d, %d], replicated to %d; before the deletion [%d, %d], %d", l.Start(), l.End(), l.Replicated(), start, end, replicated)
	}
}
