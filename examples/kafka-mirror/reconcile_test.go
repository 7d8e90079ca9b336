package main

import (
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
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
	if status, out, complaints := run("--reconcile", "--json"); status != 1 || out != "" || !strings.Contains(complaints, "orders-0: nothing is listed: no last mirror offset is recorded") ||
		!strings.Contains(complaints, "nothing is listed of any partition") {
		t.Errorf("exit status %d\n%s%s", status, out, complaints)
	}
	if status, out, complaints := run("--reconcile", "--topics", "ordrs"); status != 2 || out != "" || !strings.Contains(complaints, "--topics ordrs: no topic of mirror dr") {
		t.Errorf("exit status %d\n%s%s", status, out, complaints)
	}
	if status, out, complaints := command(t, "--store", t.TempDir(), "--mirror", "dr", "--reconcile"); status != 2 {
		t.Errorf("exit status %d\n%s%s", status, out, complaints)
	}
	source.Close()
	if status, out, complaints := run("--reconcile", "--timeout", "2s"); status != 3 || !strings.Contains(complaints, "the old source, which has to be back for this") || out != "" {
		t.Errorf("exit status %d\n%s%s", status, out, complaints)
	}
}

// TestWithoutStatesNobodySaysThatNoneIsRecorded: a last mirror offset that is not there because nobody read it is told from one that is not recorded.
func TestWithoutStatesNobodySaysThatNoneIsRecorded(t *testing.T) {
	stopped := mirror.DescribedPartition{State: statemachine.Stopped.String()}
	if _, why := upTo(&mirror.Description{}, stopped); !strings.Contains(why, "no last mirror offset is recorded") {
		t.Error(why)
	}
	if _, why := upTo(&mirror.Description{StatesError: "no answer"}, stopped); strings.Contains(why, "recorded") || !strings.Contains(why, "no answer") {
		t.Error(why)
	}
}
