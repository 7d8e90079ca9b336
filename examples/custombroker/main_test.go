package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/statemachine"
)

func startSource(t *testing.T, topic string, values ...string) *kfake.Cluster {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("primary"), kfake.SeedTopics(1, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	produce(t, fake, topic, values...)
	return fake
}

func client(t *testing.T, fake *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(fake.ListenAddrs()...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func produce(t *testing.T, fake *kfake.Cluster, topic string, values ...string) {
	t.Helper()
	cl := client(t, fake, kgo.DefaultProduceTopic(topic))
	for _, v := range values {
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord(v)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// runUntil runs what main runs until a line holds all of the texts, then interrupts it, and returns what it printed.
func runUntil(t *testing.T, fake *kfake.Cluster, dir, topic string, texts ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, w, dir, "files", inFolder(dir), fake.ListenAddrs(), []string{topic}, 10*time.Millisecond)
		w.Close()
		done <- err
	}()
	var said strings.Builder
	seen := false
	for lines := bufio.NewScanner(r); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(lines.Text(), text) }) {
			seen = true
			cancel()
		}
	}
	if err := <-done; err != nil || !seen {
		t.Fatalf("run ended with %v before it said %q:\n%s", err, texts, said.String())
	}
	return said.String()
}

// TestRunGoesOnWhereItWas: main's run mirrors a topic of a Kafka cluster, says so, ends when interrupted, and copies only what is new when it runs again.
func TestRunGoesOnWhereItWas(t *testing.T) {
	fake := startSource(t, "orders", "a", "b", "c")
	dir := t.TempDir()
	said := runUntil(t, fake, dir, "orders", "orders-0 MIRRORING [0, 3)", "lag 0 offsets")
	if !strings.Contains(said, "PREPARING → MIRRORING") {
		t.Errorf("the change to MIRRORING was not said:\n%s", said)
	}
	produce(t, fake, "orders", "d", "e")
	// A torn write is cut, and said.
	f, err := os.OpenFile(filepath.Join(dir, "topics", "orders", "0", "data-0"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(records(3, 1)[:30]); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	said = runUntil(t, fake, dir, "orders", "MIRRORING [0, 5)")
	if strings.Contains(said, "PREPARING") {
		t.Errorf("the second run began anew:\n%s", said)
	}
	if !strings.Contains(said, "orders-0: a process died while it wrote; the 30 bytes") {
		t.Errorf("the cut was not said:\n%s", said)
	}
	runUntil(t, fake, dir, "orders", "MIRRORING [0, 5)")
	held, err := OpenDestination(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := run(t.Context(), io.Discard, dir, "files", inFolder(dir), fake.ListenAddrs(), []string{"orders"}, time.Second); !errors.Is(err, errLocked) {
		t.Errorf("a second process on the same folder: error %v, want errLocked", err)
	}
}

// TestFailoverLetsClientsWrite: the source is lost, the copy is made writable, and the broker's clients go on behind its end, under a higher leader epoch. A restart keeps
// it so.
func TestFailoverLetsClientsWrite(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fake := startSource(t, "orders", "a", "b", "c")
	dir := t.TempDir()
	r, err := start(ctx, io.Discard, dir, "files", inFolder(dir), fake.ListenAddrs(), []string{"orders"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tp := mirror.TopicPartition{Topic: "orders"}
	if err := r.mirror.Await(ctx, func(s mirror.Status) bool {
		return len(s.Topics) > 0 && len(s.Topics[0].Partitions) > 0 && s.Topics[0].Partitions[0].State.String() == "MIRRORING"
	}); err != nil {
		t.Fatal(err)
	}
	opened, err := r.destination.OpenLog(ctx, tp)
	if err != nil {
		t.Fatal(err)
	}
	l := opened.(*Log)
	if err := l.AwaitReplicated(ctx, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Produce(ctx, records(0, 1)); !errors.Is(err, ErrNotOpen) {
		t.Errorf("a client wrote to a mirror: %v", err)
	}
	fake.Close()
	report, err := r.mirror.Failover(ctx, mirror.FailoverOptions{})
	if err != nil {
		t.Fatalf("%v\n%v", err, report)
	}
	end := l.End()
	base, err := l.Produce(ctx, records(0, 2))
	if err != nil || base != end || end <= 3 {
		t.Fatalf("a client's batch went to %d, error %v; the log ended at %d, behind what was mirrored, 0–2, and the reset", base, err, end)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenLog(filepath.Join(dir, "topics", "orders", strconv.Itoa(0)))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	owner, epoch, err := again.Owner(ctx)
	if err != nil || owner != mirror.OwnerOpen || again.End() != base+2 {
		t.Errorf("after a restart the log is %v up to %d, error %v; want open up to %d", owner, again.End(), err, base+2)
	}
	all, err := readAll(ctx, again)
	if err != nil {
		t.Fatal(err)
	}
	for info := range mirror.Batches(all) {
		if info.Base >= 3 && (info.LeaderEpoch != epoch || epoch < 1) || info.Base < 3 && info.LeaderEpoch >= epoch {
			t.Errorf("the batch at %d has leader epoch %d, the log's is %d", info.Base, info.LeaderEpoch, epoch)
		}
	}
}

// TestWhatIsWantedIsKeptInTheFolder: another process stops a topic while the broker runs, and it is stopped. It stays so in the next run, although -topic names it.
func TestWhatIsWantedIsKeptInTheFolder(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fake := startSource(t, "orders", "a", "b", "c")
	dir := t.TempDir()
	r, err := start(ctx, io.Discard, dir, "files", inFolder(dir), fake.ListenAddrs(), []string{"orders"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { r.close() }() // of the last run
	in := func(state statemachine.State) func(mirror.Status) bool {
		return func(s mirror.Status) bool {
			return len(s.Topics) > 0 && len(s.Topics[0].Partitions) > 0 && s.Topics[0].Partitions[0].State == state
		}
	}
	if err := r.mirror.Await(ctx, in(statemachine.Mirroring)); err != nil {
		t.Fatal(err)
	}
	other, err := filestore.Open(filepath.Join(dir, "states"), filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := mirror.NewControl(other).Update(ctx, func(s *mirror.ControlState) error {
		w, _ := s.Topic("orders")
		w.MirrorName = statemachine.MirrorNameValue("files", statemachine.WantStopped)
		s.Set(w)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.mirror.Await(ctx, in(statemachine.Stopped)); err != nil {
		t.Fatalf("the broker did not follow: %v; %+v", err, r.mirror.Status())
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(client(t, fake)).CreateTopic(ctx, 1, 1, nil, "payments"); err != nil {
		t.Fatal(err)
	}
	if r, err = start(ctx, io.Discard, dir, "files", inFolder(dir), fake.ListenAddrs(), []string{"orders", "payments"}, nil); err != nil {
		t.Fatal(err)
	}
	// What is new is begun, so the desired state was followed.
	if err := r.mirror.Await(ctx, func(s mirror.Status) bool {
		return len(s.Topics) == 2 && len(s.Topics[1].Partitions) > 0 && s.Topics[1].Partitions[0].State == statemachine.Mirroring
	}); err != nil {
		t.Fatal(err)
	}
	if s := r.mirror.Status(); !in(statemachine.Stopped)(s) {
		t.Errorf("a restart began the stopped topic again: %+v", s.Topics[0])
	}
}

func TestSplit(t *testing.T) {
	if got := strings.Join(split(" a:1,b:2, c "), "|"); got != "a:1|b:2|c" {
		t.Errorf("split gave %q", got)
	}
}

// TestReadFileSaysNo: a small file with one changed byte, or cut anywhere, is not read.
func TestReadFileSaysNo(t *testing.T) {
	path := t.TempDir()
	dir, err := openDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	want := meta{Start: 5, LeaderEpoch: 2, Open: true, Data: 1}
	if err := writeFile(dir, "meta", want); err != nil {
		t.Fatal(err)
	}
	var got meta
	if err := readFile(dir, "meta", &got); err != nil || got != want {
		t.Fatalf("read back %+v, error %v", got, err)
	}
	name := filepath.Join(path, "meta")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 1
		for what, content := range map[string][]byte{"changed at": changed, "cut at": whole[:i]} {
			if err := os.WriteFile(name, content, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := readFile(dir, "meta", &got); err == nil {
				t.Errorf("a file %s byte %d was read: %q", what, i, content)
			}
		}
	}
}
