package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// failbackHash finds the name of a plan of a failback, which is short.
var failbackHash = regexp.MustCompile(`plan ([0-9a-f]{8})\b`)

// consentTopic finds the id of a topic in the history.
var consentTopic = regexp.MustCompile(`consents: [\w-]{22}-`)

// TestFailback: the process that runs the mirror is asked for the plan, it is shown, consented to by its hash, recorded, and carried out; what is dropped is in the sink.
func TestFailback(t *testing.T) {
	t.Parallel() // it waits most of the time
	source := startSource(t, "orders").ListenAddrs()[0]
	dir, dropped := filepath.Join(t.TempDir(), "states"), t.TempDir()
	config := writeFile(t, "dr.properties", "bootstrap.servers="+source)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, common: []string{"--store", dir, "--mirror", "dr"}, shown: strings.NewReplacer(source, "primary:9092", dir, "/var/lib/mirror", config, "dr.properties", host, "host-1")}
	s.run("--failback", "--topics", "orders", "--dry-run")
	s.run("--create", "--mirror-config", config)
	s.run("--failback", "--topics", "orders", "--dry-run", "--timeout", "1s")

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
	startMirrorInto(t, records, memory, mirror.FileSink(dropped), 0)
	s.await([]string{"--describe"}, "destination "+standbyID) // it was heard of
	s.run("--failback", "--all-topics", "--dry-run")
	s.run("--failback", "--topics", "orders,nosuch", "--dry-run")
	_, out := s.run("--failback", "--topics", "orders", "--dry-run")
	plan := failbackHash.FindStringSubmatch(out)
	if plan == nil {
		t.Fatal(s.text.String())
	}
	s.run("--failback", "--topics", "orders", "--plan", plan[1])
	s.run("--failback", "--topics", "orders", "--plan", plan[1], "--reason", "the primary is back", "--destination-cluster-id", sourceID)
	s.run("--failback", "--topics", "orders", "--plan", "00000000", "--reason", "the primary is back")
	s.run("--failback", "--topics", "orders,others", "--plan", plan[1], "--reason", "the primary is back")
	s.run("--failback", "--all-topics", "--plan", plan[1], "--reason", "the primary is back")
	s.run("--failback", "--topics", "orders", "--reason", "the primary is back")
	_, out = s.run("--failback", "--topics", "orders", "--dry-run")
	s.run("--failback", "--topics", "orders", "--plan", failbackHash.FindStringSubmatch(out)[1], "--reason", "the primary is back")
	s.await([]string{"--describe"}, "orders-0   MIRRORING  3, seen")
	s.run("--history")
	_, out = s.run("--abort-failback", "--all-topics", "--dry-run")
	s.run("--abort-failback", "--all-topics", "--reason", "not tonight", "--plan", lastHash(out))
	s.await([]string{"--describe"}, "orders-0   PAUSED")
	s.run("--abort-failback", "--topics", "orders", "--dry-run")
	text := failbackHash.ReplaceAllString(planHash.ReplaceAllString(byWhom.ReplaceAllString(s.text.String(), " by operator at host-1 "), "PLAN"), "plan HASH")
	golden(t, "failback.txt", masked(consentTopic.ReplaceAllString(text, "consents: TOPIC-ID-")))
	if kept, err := filepath.Glob(filepath.Join(dropped, "orders", "0", "*.log")); err != nil || len(kept) != 1 {
		t.Errorf("%v, %v", kept, err)
	}

	_, out, _ = command(t, "--store", dir, "--mirror", "dr", "--json", "--failback", "--all-topics", "--dry-run")
	var document struct {
		FailbackPlan mirror.FailbackPlan
		Plan         string
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil || len(document.FailbackPlan.Topics) != 1 || document.FailbackPlan.Dropped != 0 || document.Plan != document.FailbackPlan.Hash() {
		t.Errorf("%v\n%s", err, out)
	}
}

// lastHash is the hash in the last line of a dry run.
func lastHash(out string) string {
	words := strings.Fields(out)
	return words[len(words)-1]
}

// TestFailbackWaitsForTheFirstReport: a mirror that was created just now is taken up by its process within seconds, and the verb does not say meanwhile that nobody runs it.
func TestFailbackWaitsForTheFirstReport(t *testing.T) {
	t.Parallel()
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
	records, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	asked := make(chan string, 1)
	go func() {
		status, out, complaints := command(t, append(common, "--failback", "--topics", "orders", "--dry-run")...)
		asked <- fmt.Sprintf("exit status %d\n%s%s", status, out, complaints)
	}()
	select {
	case got := <-asked:
		t.Fatalf("it did not wait: %s", got)
	case <-time.After(time.Second): // it had to look by now; later is as well
	}
	startMirrorInto(t, records, memory, mirror.Discard, 0)
	if got := <-asked; !strings.HasPrefix(got, "exit status 0\n") || !strings.Contains(got, "orders: would be recorded") {
		t.Error(got)
	}
}
