package kafkatest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestLogDirsFindsOnePartitionsFolders(t *testing.T) {
	dir := t.TempDir()
	id := strings.Repeat("0a", 16)
	for _, name := range []string{"t-1", "t-1." + id + "-delete", "t-1." + id + "-stray", "t-10", "t-2", "t-1.x-delete", "t-1-1", "u-t-1"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got, err := logDirs(dir, "t", 1)
	if want := []string{"t-1", "t-1." + id + "-delete", "t-1." + id + "-stray"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("folders %q, %v; want %q", got, err, want)
	}
}

// What lies on a real broker's disk, before and after a topic is deleted, and what outsiders see of the controller through a proxy.
func TestFoldersMetadataLogAndControllerProxies(t *testing.T) {
	c := Shared(t)
	const topic = "folders"
	c.CreateTopic(Topic{Name: topic, Assignment: [][]int32{{2, 3}}, Configs: map[string]string{"file.delete.delay.ms": "600000"}})
	c.Produce(topic, 0, "x")
	c.WaitSameSegments(topic, 0, 2, 3)
	for broker, want := range map[int32][]string{1: nil, 2: {"folders-0"}, 3: {"folders-0"}} {
		if got := c.LogDirs(topic, 0, broker); !slices.Equal(got, want) {
			t.Errorf("broker %d has %q, want %q", broker, got, want)
		}
	}
	for _, broker := range c.Brokers() {
		if b := c.MetadataLogBytes(broker); !bytes.Contains(b, []byte(topic)) {
			t.Errorf("the %d bytes of the metadata log on broker %d do not name the topic", len(b), broker)
		}
	}
	ctx, cancel := c.limit()
	defer cancel()
	if r, err := c.Admin().DeleteTopic(ctx, topic); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	err := poll(ctx, "the renamed folder", func(context.Context) (bool, error) {
		got := c.LogDirs(topic, 0, 3)
		return len(got) == 1 && strings.HasPrefix(got[0], "folders-0.") && strings.HasSuffix(got[0], "-delete"), fmt.Errorf("folders %q", got)
	})
	if err != nil {
		t.Error(err)
	}

	proxies := c.ControllerProxies()
	if len(proxies) != 1 {
		t.Fatalf("%d proxies for one controller", len(proxies))
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(proxies[0].Address()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	// a controller answers ApiVersions to everybody
	if _, err := cl.SeedBrokers()[0].Request(ctx, kmsg.NewPtrApiVersionsRequest()); err != nil {
		t.Errorf("through the proxy: %v", err)
	}
	if s := proxies[0].Connections(); len(s) == 0 || s[0].ToClient == 0 {
		t.Errorf("nothing went through the proxy: %+v", s)
	}
}
