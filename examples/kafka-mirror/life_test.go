package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror/filestore"
)

// TestLifeOfAMirror: create, start, describe and stop on a folder, while a mirror runs in another handle of it; then pause, refusals, history and deletion.
func TestLifeOfAMirror(t *testing.T) {
	source := startSource(t, "orders", "payments").ListenAddrs()[0]
	dir := filepath.Join(t.TempDir(), "states")
	config := writeFile(t, "dr.properties", "bootstrap.servers="+source)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	filters := writeFile(t, "filters.properties", "mirror.groups.exclude=console-.*")
	s := &session{t: t, common: []string{"--store", dir}, shown: strings.NewReplacer(source, "primary:9092", dir, "/var/lib/mirror", config, "dr.properties", filters, "filters.properties", " by "+who.Username+" at "+host, " by operator at host-1", host, "host-1")}
	s.run("--create", "--mirror", "dr", "--mirror-config", config)
	records, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	startMirror(t, records, standbyID)
	describe := []string{"--describe", "--mirror", "dr"}
	s.await(describe, "destination "+standbyID) // it was heard of
	s.run("--start", "--mirror", "dr", "--topics", "orders,payments")
	s.await(describe, "orders-0    MIRRORING  3, seen", "payments-0  MIRRORING  3, seen", "  0    -")
	s.await([]string{"--groups", "--mirror", "dr"}, "groups: 0 followed, looked at ")                  // a second after the beginning: a stop before says that nobody has
	s.await([]string{"--stop", "--mirror", "dr", "--topics", "orders", "--dry-run"}, "NOT MIRRORED: ") // a plan is kept: a stop before shows none
	s.run(describe...)
	s.run("--pause", "--mirror", "dr", "--topics-pattern", "pay.*")
	s.await(describe, "payments-0  PAUSED")
	s.run("--alter", "--mirror", "dr", "--mirror-config", filters, "--dry-run")
	s.run("--alter", "--mirror", "dr", "--mirror-config", filters)
	s.run("--stop", "--mirror", "dr", "--topics", "orders,nosuch", "--reason", "primary is down", "--destination-cluster-id", standbyID, "--yes")
	s.await(describe, "orders-0    STOPPED")
	s.run("--list")
	s.run("--delete", "--mirror", "dr", "--dry-run")
	_, out := s.run("--stop", "--mirror", "dr", "--all-topics", "--dry-run")
	plan := planHash.FindString(out)
	s.run("--stop", "--mirror", "dr", "--all-topics", "--reason", "the rest", "--plan", plan)
	s.await(describe, "payments-0  STOPPED", "FAILED OVER: 2 topics\n")
	s.run("--stop", "--mirror", "dr", "--all-topics", "--reason", "the rest", "--plan", plan) // once more, for whoever is not sure
	s.run("--delete", "--mirror", "dr", "--reason", "done", "--destination-cluster-id", standbyID, "--yes")
	s.run("--list")
	s.run("--history", "--mirror", "dr")
	golden(t, "life.txt", masked(s.text.String()))
}
