package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
)

var (
	_ mirror.Log         = (*Log)(nil)
	_ mirror.Destination = (*Destination)(nil)
)

func newDestination(t testing.TB) (*Destination, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster")
	d, err := OpenDestination(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, path
}

func reopenDestination(t testing.TB, d *Destination, path string) *Destination {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDestination(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestClusterIDStays(t *testing.T) {
	d, path := newDestination(t)
	id, err := d.ClusterID(t.Context())
	if err != nil || id == "" {
		t.Fatalf("cluster id %q, error %v", id, err)
	}
	other, _ := newDestination(t)
	if theirs, _ := other.ClusterID(t.Context()); theirs == id {
		t.Errorf("two clusters have the id %s", id)
	}
	d = reopenDestination(t, d, path)
	if again, _ := d.ClusterID(t.Context()); again != id {
		t.Errorf("cluster id %s was %s before the restart", again, id)
	}
}

func TestTopics(t *testing.T) {
	ctx := t.Context()
	d, path := newDestination(t)
	if _, err := d.Topic(ctx, "orders"); !errors.Is(err, mirror.ErrUnknownTopic) {
		t.Fatalf("a topic that does not exist: error %v", err)
	}
	if found, err := filepath.Glob(filepath.Join(path, "*", "*")); err != nil || len(found) > 0 {
		t.Fatalf("looking made %v, %v", found, err)
	}
	want := mirror.Topic{Name: "orders", ID: mirror.TopicID{1, 2, 3}, Partitions: 2}
	made, err := d.CreateTopic(ctx, mirror.TopicSpec{Name: "orders", Partitions: 2, SourceID: want.ID, Configs: map[string]string{"cleanup.policy": "compact"}})
	if err != nil || made != want {
		t.Fatalf("made %+v, error %v", made, err)
	}
	again, err := d.CreateTopic(ctx, mirror.TopicSpec{Name: "orders", Partitions: 7})
	if !errors.Is(err, mirror.ErrTopicExists) || again != want {
		t.Errorf("made twice: %+v, error %v; want ErrTopicExists and the topic as it is", again, err)
	}
	unnamed, err := d.CreateTopic(ctx, mirror.TopicSpec{Name: "payments", Partitions: 1})
	if err != nil || unnamed.ID == (mirror.TopicID{}) {
		t.Errorf("a topic whose source has no id: %+v, error %v", unnamed, err)
	}
	if _, err := d.CreateTopic(ctx, mirror.TopicSpec{Name: "empty"}); err == nil {
		t.Error("a topic without partitions was made")
	}
	if _, err := d.GrowTopic(ctx, "orders", 1); err == nil {
		t.Error("a topic was shrunk")
	}
	if same, err := d.GrowTopic(ctx, "orders", 2); err != nil || same != want {
		t.Errorf("growing to what is there: %+v, error %v", same, err)
	}
	want.Partitions = 5
	if grown, err := d.GrowTopic(ctx, "orders", 5); err != nil || grown != want {
		t.Errorf("grown %+v, error %v", grown, err)
	}
	if _, err := d.GrowTopic(ctx, "nothing", 5); !errors.Is(err, mirror.ErrUnknownTopic) {
		t.Errorf("growing what does not exist: %v", err)
	}
	d = reopenDestination(t, d, path)
	if found, err := d.Topic(ctx, "orders"); err != nil || found != want {
		t.Errorf("after a restart %+v, error %v, want %+v", found, err, want)
	}
	content, err := os.ReadFile(filepath.Join(path, "topics", "orders", "topic.json"))
	if err != nil || !strings.Contains(string(content), `"cleanup.policy":"compact"`) {
		t.Errorf("topic.json is %s, error %v; the settings are missing", content, err)
	}
}

// TestTopicNamesStayInTheFolder: a name is a folder's name, and must not lead anywhere else.
func TestTopicNamesStayInTheFolder(t *testing.T) {
	d, path := newDestination(t)
	for _, name := range []string{"", ".", "..", "../x", "a/b", `a\b`, "a b", "ä", "a\x00", strings.Repeat("a", 250)} {
		if _, err := d.CreateTopic(t.Context(), mirror.TopicSpec{Name: name, Partitions: 1}); err == nil {
			t.Errorf("topic %q was made", name)
		}
		if _, err := d.Topic(t.Context(), name); err == nil {
			t.Errorf("topic %q was found", name)
		}
	}
	if _, err := d.CreateTopic(t.Context(), mirror.TopicSpec{Name: "...a-Z_9", Partitions: 1}); err != nil {
		t.Errorf("a legal name was refused: %v", err)
	}
	if found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || !slices.Equal(found, []string{path}) {
		t.Errorf("beside the folder there are %v, error %v", found, err)
	}
}

func TestLogsOfADestination(t *testing.T) {
	ctx := t.Context()
	d, path := newDestination(t)
	if _, err := d.CreateTopic(ctx, mirror.TopicSpec{Name: "orders", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	at := func(p int32) mirror.TopicPartition { return mirror.TopicPartition{Topic: "orders", Partition: p} }
	l, err := d.OpenLog(ctx, at(1))
	if err != nil {
		t.Fatal(err)
	}
	if owner, _, err := l.Owner(ctx); owner != mirror.OwnerOurs || err != nil {
		t.Errorf("a new log is %v, error %v; it should be closed for clients", owner, err)
	}
	if again, err := d.OpenLog(ctx, at(1)); err != nil || again != l {
		t.Errorf("the second OpenLog gave another log, or error %v", err)
	}
	for _, tp := range []mirror.TopicPartition{at(-1), at(2), {Topic: "nothing"}} {
		if l, err := d.OpenLog(ctx, tp); !errors.Is(err, mirror.ErrUnknownTopic) || l != nil {
			t.Errorf("OpenLog of %v gave %v, error %v", tp, l, err)
		}
	}
	are, err := d.RaiseLeaderEpochs(ctx, map[mirror.TopicPartition]int32{at(0): 3, at(1): 4, at(2): 5, {Topic: "nothing"}: 6})
	if want := map[mirror.TopicPartition]int32{at(0): 3, at(1): 4}; !maps.Equal(are, want) {
		t.Errorf("leader epochs are %v, want %v", are, want)
	}
	if err == nil || !strings.Contains(err.Error(), "orders-2") || !strings.Contains(err.Error(), "nothing-0") {
		t.Errorf("the error does not name what failed: %v", err)
	}
	if are, err = d.RaiseLeaderEpochs(ctx, map[mirror.TopicPartition]int32{at(1): 2}); err != nil || are[at(1)] != 4 {
		t.Errorf("a raise to less gave %v, error %v; leader epochs only grow", are, err)
	}
	if err := l.Append(ctx, 4, records(0, 3)); err != nil {
		t.Fatal(err)
	}
	d = reopenDestination(t, d, path)
	if l, err = d.OpenLog(ctx, at(1)); err != nil || l.End() != 3 || l.LeaderEpoch() != 4 {
		t.Errorf("after a restart: error %v, end %d, leader epoch %d; want 3 and 4", err, l.End(), l.LeaderEpoch())
	}
}

func TestClosedDestinationAndEndedContext(t *testing.T) {
	d, path := newDestination(t)
	if _, err := d.CreateTopic(t.Context(), mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	tp := mirror.TopicPartition{Topic: "orders"}
	calls := func(ctx context.Context) []error {
		_, topic := d.Topic(ctx, "orders")
		_, create := d.CreateTopic(ctx, mirror.TopicSpec{Name: "more", Partitions: 1})
		_, grow := d.GrowTopic(ctx, "orders", 9)
		_, open := d.OpenLog(ctx, tp)
		_, raise := d.RaiseLeaderEpochs(ctx, map[mirror.TopicPartition]int32{tp: 9})
		return []error{topic, create, grow, open, raise}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i, err := range calls(ended) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("call %d with an ended context: %v", i, err)
		}
	}
	if second, err := OpenDestination(path); !errors.Is(err, errLocked) {
		t.Errorf("a second open gave %v, error %v", second, err)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	for i, err := range calls(t.Context()) {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("call %d on a closed destination: %v", i, err)
		}
	}
}
