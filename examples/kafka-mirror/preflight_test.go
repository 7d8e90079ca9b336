package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/clustermirror/mirror"
)

// TestPreflight: before a mirror is created and after, with a folder and with a cluster; what blocks is exit status 1, and nothing is written.
func TestPreflight(t *testing.T) {
	source := startSource(t, "orders", "_schemas").ListenAddrs()[0]
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(standbyID), kfake.SeedTopics(3, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	standby := fake.ListenAddrs()[0]
	dir := filepath.Join(t.TempDir(), "states")
	config := writeFile(t, "dr.properties", "bootstrap.servers="+source, "mirror.topics.include=.*", "mirror.topics.exclude=__.*,orders")
	itself := writeFile(t, "itself.properties", "bootstrap.servers="+standby, "source.cluster.id="+sourceID)
	s := &session{t: t, shown: strings.NewReplacer(source, "primary:9092", standby, "standby:9092", dir, "/var/lib/mirror", config, "dr.properties", itself, "itself.properties")}
	store := func(args ...string) []string {
		return append([]string{"--store", dir, "--preflight", "--mirror", "dr"}, args...)
	}
	cluster := func(args ...string) []string {
		return append([]string{"--bootstrap-server", standby, "--preflight", "--mirror", "dr"}, args...)
	}
	for _, c := range []struct {
		status int
		args   []string
	}{
		{2, store()},
		{0, store("--mirror-config", config)},
		{2, cluster()},
		{1, cluster("--mirror-config", config, "--topics", "orders,ordres")},
		{1, cluster("--mirror-config", itself, "--topics", "orders")},
	} {
		if status, out := s.run(c.args...); status != c.status {
			t.Errorf("%v: exit status %d, want %d\n%s", c.args, status, c.status, out)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it has made the folder")
	}
	for _, args := range [][]string{{"--create", "--mirror-config", config}, {"--start", "--topics", "_schemas"}} {
		if status, _, complaints := command(t, append([]string{"--store", dir, "--mirror", "dr"}, args...)...); status != 0 {
			t.Fatal(complaints)
		}
	}
	before, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	s.run(store()...)
	if after, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || string(after) != string(before) {
		t.Errorf("it has written into the folder (%v)", err)
	}
	golden(t, "preflight.txt", masked(s.text.String()))

	one := writeFile(t, "one.properties", "mirror.state.topic.replication.factor=1")
	if _, out, complaints := command(t, append(cluster("--mirror-config", config), "--command-config", one)...); !strings.Contains(out, "fine    destination, topics: 1 broker is enough for one copy") {
		t.Errorf("with what the finding says it still blocks:\n%s%s", out, complaints)
	}
	status, out, _ := command(t, append(cluster("--mirror-config", config, "--topics", "ordres"), "--json")...)
	var r mirror.PreflightReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || status != 1 || r.SourceClusterID != sourceID || r.Err() == nil {
		t.Errorf("exit status %d, %v\n%s", status, err, out)
	}
}
