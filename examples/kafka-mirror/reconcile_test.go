package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror/reconcile"
)

// TestReconcileOfAMirrorThatWasNeverStopped: nothing is listed and the reason is said; another cluster at the source's address, and a source that is away, are refused.
func TestReconcileOfAMirrorThatWasNeverStopped(t *testing.T) {
	source, standby := startSource(t, "orders"), startStandby(t, "orders")
	at := []string{"--bootstrap-server", standby.ListenAddrs()[0], "--command-config", writeFile(t, "client.properties", "mirror.state.topic.replication.factor=1"), "--mirror", "dr"}
	run := func(args ...string) (int, string, string) { return command(t, append(at, args...)...) }
	if status, _, complaints := run("--create", "--mirror-config", writeFile(t, "dr.properties", "bootstrap.servers="+source.ListenAddrs()[0])); status != 0 {
		t.Fatal(complaints)
	}
	if status, _, complaints := run("--start", "--topics", "orders"); status != 0 {
		t.Fatal(complaints)
	}
	status, out, complaints := run("--reconcile", "--json")
	var r reconcile.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || status != 0 || r.Mirror != "dr" || r.SourceClusterID != sourceID || len(r.Partitions) != 0 {
		t.Errorf("exit status %d, %v\n%s%s", status, err, out, complaints)
	}
	if status, out, complaints := command(t, "--store", t.TempDir(), "--mirror", "dr", "--reconcile"); status != 2 {
		t.Errorf("exit status %d\n%s%s", status, out, complaints)
	}
	source.Close()
	if status, out, complaints := run("--reconcile", "--timeout", "2s"); status != 3 || !strings.Contains(complaints, "the old source, which has to be back for this") || out != "" {
		t.Errorf("exit status %d\n%s%s", status, out, complaints)
	}
}
