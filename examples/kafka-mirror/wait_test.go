package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// TestWait: each verb with --wait returns when it has come about, and shows a line for each change and no line twice.
func TestWait(t *testing.T) {
	t.Parallel() // it waits most of the time
	source := startSource(t, "orders").ListenAddrs()[0]
	dir := filepath.Join(t.TempDir(), "states")
	config := writeFile(t, "dr.properties", "bootstrap.servers="+source)
	run := func(status int, last string, args ...string) string {
		t.Helper()
		got, out, complaints := command(t, append([]string{"--store", dir, "--mirror", "dr"}, args...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got != status || !strings.HasSuffix(lines[len(lines)-1], last) {
			t.Errorf("%v: exit status %d, want %d, and the last line ends in %q:\n%s%s", args, got, status, last, out, complaints)
		}
		for i, l := range lines {
			if _, now, ok := strings.Cut(l, "s  "); ok && i > 0 && strings.HasSuffix(lines[i-1], "s  "+now) {
				t.Errorf("%v: a line comes twice: %q", args, l)
			}
		}
		return complaints
	}
	run(4, "NO PROCESS runs this mirror (none has ever reported)", "--create", "--mirror-config", config, "--wait", "--timeout", "1s")
	if complaints := run(4, "orders: no process has taken it up yet", "--start", "--topics", "orders", "--wait", "--timeout", "1s"); complaints !=
		"kafka-mirror: mirror dr: not MIRRORING yet: no process has reported yet; orders: no process has taken it up yet: not in the 1s of --timeout. What is recorded stays; --describe shows how it goes on\n" {
		t.Error(complaints)
	}
	records, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	startMirror(t, records, standbyID)
	consent := []string{"--reason", "drill", "--destination-cluster-id", standbyID, "--yes", "--wait"}
	run(0, "orders: MIRRORING", "--start", "--topics", "orders", "--wait")
	run(0, "orders: PAUSED", "--pause", "--topics", "orders", "--wait")
	run(0, "orders: MIRRORING", "--resume", "--topics", "orders", "--wait")
	run(0, "orders: MIRRORING", "--recover", "--topics", "orders", "--wait")
	run(0, "orders: STOPPED", append([]string{"--stop", "--all-topics"}, consent...)...)
	run(0, "orders: STOPPED", append([]string{"--stop", "--all-topics"}, consent...)...) // it is so already
	if complaints := run(1, "orders: STOPPED", append([]string{"--stop", "--topics", "orders,nosuch"}, consent...)...); complaints != "" {
		t.Errorf("%q: the refused topic was shown", complaints)
	}
	run(0, "states that are still kept: 0", append([]string{"--delete"}, consent...)...)
	run(2, "", "--stop", "--all-topics", "--wait", "--dry-run")

	status, out, complaints := command(t, "--store", dir, "--mirror", "new", "--create", "--mirror-config", config, "--wait", "--timeout", "1s", "--json")
	var document struct{ Waited waitedJSON }
	if err := json.Unmarshal([]byte(out), &document); err != nil || status != 4 || document.Waited.Reached || document.Waited.For != "a process that runs it" || !strings.Contains(complaints, "  NO PROCESS runs") {
		t.Errorf("exit status %d, %v\n%s%s", status, err, out, complaints)
	}
}

// TestWaitForWhatDoesNotComeByItself: a topic that waits for a person is said to do so long before --timeout, with the reason.
func TestWaitForWhatDoesNotComeByItself(t *testing.T) {
	t.Parallel() // it takes as long as a process has to act
	source := startSource(t, "orders").ListenAddrs()[0]
	dir := filepath.Join(t.TempDir(), "states")
	common := []string{"--store", dir, "--mirror", "dr"}
	if status, _, complaints := command(t, append(common, "--create", "--mirror-config", writeFile(t, "dr.properties", "bootstrap.servers="+source))...); status != 0 {
		t.Fatal(complaints)
	}
	memory := memlog.New(memlog.Config{ClusterID: standbyID})
	t.Cleanup(func() { memory.Close() })
	if _, err := memory.CreateLocalTopic(memlog.LocalTopic{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := memory.Produce(t.Context(), "orders", 0, memlog.Record{Value: []byte("written here, and never copied")}); err != nil {
		t.Fatal(err)
	}
	records, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	startMirrorInto(t, records, memory, mirror.Discard, time.Second)
	began := time.Now()
	status, out, complaints := command(t, append(slices.Clone(common), "--start", "--topics", "orders", "--wait", "--json")...)
	var document struct{ Waited waitedJSON }
	if err := json.Unmarshal([]byte(out), &document); err != nil || status != 1 || !document.Waited.Stuck || len(document.Waited.Missing) != 1 || document.Waited.Missing[0].StateValue != "FAILED" ||
		!strings.Contains(document.Waited.Missing[0].Reason, "starting would drop the destination's records [0, 1)") || time.Since(began) > waitBound/2 {
		t.Errorf("exit status %d, %v\n%s%s", status, err, out, complaints)
	}
	if !strings.Contains(complaints, "a person has to act") {
		t.Errorf("%s", complaints)
	}
}
