package main

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// TestRealKafkaGivingUpAndLeaving: a node whose registration is taken away ends with status 7, what it led is given up from its brokers' copies, and it leaves the cluster with its topics.
// Nothing of it happens without the plan being shown and consented to.
func TestRealKafkaGivingUpAndLeaving(t *testing.T) {
	kafka := kafkatest.Start(t, kafkatest.Options{Brokers: 2, HeapMB: 320})
	source := startSource(t, "orders").ListenAddrs()[0]
	folder := t.TempDir()
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	file := writeFile(t, "node.properties", "node.id=9999", "bootstrap.servers="+kafka.Bootstrap()[0], "controller.quorum.bootstrap.servers="+strings.Join(kafka.ControllerAddresses(), ","),
		"listeners=INTERNAL://"+free(), "mirror.node.folder="+filepath.Join(folder, "identity"), "default.replication.factor=2", "min.insync.replicas=1", "mirror.state.topic.replication.factor=1",
		"mirror.state.topic.num.partitions=2", "mirror.metadata.refresh.interval.ms=1000")
	client := writeFile(t, "client.properties", "mirror.state.topic.replication.factor=1", "mirror.state.topic.num.partitions=2")
	s := &session{t: t, common: []string{"--bootstrap-server", kafka.Bootstrap()[0], "--command-config", client, "--mirror", "dr"}}
	var seen strings.Builder
	try := func(want int, says string, args ...string) string {
		t.Helper()
		status, out, complaints := command(t, args...)
		seen.WriteString("$ kafka-mirror " + strings.Join(args, " ") + "\n" + out + complaints)
		if status != want || !strings.Contains(out+complaints, says) {
			t.Errorf("%v: exit status %d, want %d, with %q\n%s%s", args, status, want, says, out, complaints)
		}
		return out
	}
	verb := func(want int, says string, args ...string) {
		t.Helper()
		try(want, says, append(args, s.common...)...)
	}
	try(0, "not registered", "leave", "--config", file, "--report")
	try(2, "needs --reason", "leave", "--config", file)
	why := []string{"--reason", "drill"}
	meant := append(why, "--destination-cluster-id", kafka.ID(), "--yes")
	leave := func(want int, says string, args ...string) {
		t.Helper()
		try(want, says, append([]string{"leave", "--config", file}, args...)...)
	}
	leave(0, "there is nothing to do", why...)

	ctx, end := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var printed lockedBuffer
	go func() {
		p := &program{out: &printed, complaints: &printed}
		ended <- p.run(ctx, []string{"run", "--config", file})
	}()
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Logf("the node printed\n%s\nand commands\n%s", printed.String(), seen.String())
		}
	})
	verb(0, "a process runs it", "--create", "--mirror-config", writeFile(t, "dr.properties", "bootstrap.servers="+source), "--wait", "--timeout", "60s")
	verb(0, "orders: MIRRORING", "--start", "--topics", "orders", "--wait", "--timeout", "60s")
	leave(1, "is alive: end it first", meant...)
	try(1, "is alive", "give-up", "--config", file, "--mirror", "dr", "--dry-run")
	leave(2, "needs --reason", "--now", "--yes", "--destination-cluster-id", kafka.ID())
	leave(2, "--yes needs --destination-cluster-id", append(why, "--now", "--yes")...)
	leave(2, "add --destination-cluster-id ID and --yes", append(why, "--now")...)
	leave(2, "correct the one that is wrong", append(why, "--now", "--yes", "--destination-cluster-id", sourceID)...)
	leave(0, "broker 9999 is unregistered", append(meant, "--now")...)
	verb(0, "leave now", "--history")
	select {
	case status := <-ended:
		if status != 7 {
			t.Errorf("the node ended with status %d, want 7", status)
		}
	case <-time.After(time.Minute):
		t.Fatal("the node did not end")
	}
	leave(1, "still has 1 partition", meant...)

	try(1, "there is no mirror rd", "give-up", "--config", file, "--mirror", "rd", "--dry-run")
	try(1, "topic ordres is not in mirror dr", "give-up", "--config", file, "--mirror", "dr", "--topics", "ordres", "--dry-run")
	try(2, "needs --reason", "give-up", "--config", file, "--mirror", "dr")
	try(2, "add --plan", "give-up", "--config", file, "--mirror", "dr", "--reason", "the node is gone", "--yes")
	try(1, "does not fit any more", "give-up", "--config", file, "--mirror", "dr", "--reason", "the node is gone", "--plan", "000000000000")
	try(2, "correct the one that is wrong", "give-up", "--config", file, "--mirror", "dr", "--reason", "the node is gone", "--destination-cluster-id", sourceID, "--yes")
	out := try(0, "would be elected", "give-up", "--config", file, "--dry-run") // everything that the node led
	_, plan, _ := strings.Cut(out, "\nplan ")
	try(0, "leads it, the mirror ended at 3", "give-up", "--config", file, "--reason", "the node is gone", "--plan", strings.TrimSpace(plan), "--timeout", "60s")
	verb(0, "FAILED OVER: 1 topic", "--describe")
	if at := kafka.Produce("orders", 0, "written here"); at < 3 {
		t.Errorf("the first record of clients is at %d, and the copy had three", at)
	}
	verb(0, "orders: recorded", "--delete", "--reason", "drill", "--destination-cluster-id", kafka.ID(), "--yes")
	leave(2, "DELETED FOR GOOD: __mirror_control", append(why, "--purge")...)
	leave(2, "--yes needs --destination-cluster-id", append(why, "--purge", "--yes")...)
	leave(0, "deleted: __mirror_control, __mirror_history", append(meant, "--purge")...)
	if t.Failed() || testing.Verbose() {
		t.Log(seen.String())
	}
}

// lockedBuffer is written by a node and read by its test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
