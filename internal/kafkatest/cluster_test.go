package kafkatest

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
)

// A kill -9 of the leader moves the leader; what the old one alone had is gone after an unclean election, and it truncates itself when it comes back.
func TestKillLeaderAndUncleanElection(t *testing.T) {
	c := Start(t, Options{Brokers: 3, Config: map[string]string{"broker.session.timeout.ms": "6000"}})
	c.CreateTopic(Topic{Name: "clean", Assignment: [][]int32{{2, 3}}})
	c.Produce("clean", 0, "kept")
	c.WaitISR("clean", 0, 2, 3)

	// In "unclean" broker 2 leads, and broker 3 stops following before the last record.
	c.CreateTopic(Topic{Name: "unclean", Assignment: [][]int32{{2, 3}}, Configs: map[string]string{"min.insync.replicas": "1"}})
	c.Produce("unclean", 0, "both have it")
	c.WaitSameSegments("unclean", 0, 2, 3)
	c.Kill(3)
	c.WaitISR("unclean", 0, 2)
	c.Produce("unclean", 0, "only broker 2 has it")
	c.Kill(2)
	c.WaitPartition("unclean", 0, "no leader", func(p Partition) bool { return p.Leader == -1 })
	c.LaunchBroker(3)
	after := c.UncleanElection("unclean", 0)
	if after.Leader != 3 {
		t.Fatalf("leader after the unclean election is %d, want 3", after.Leader)
	}
	c.Produce("unclean", 0, "written after the election")
	c.StartBroker(2)
	c.WaitISR("unclean", 0, 2, 3)
	got := c.WaitSameSegments("unclean", 0, 2, 3)
	if bytes.Contains(got, []byte("only broker 2 has it")) || !bytes.Contains(got, []byte("written after the election")) || !bytes.Contains(got, []byte("both have it")) {
		t.Errorf("segments after the election are wrong: %q", got)
	}

	c.WaitISR("clean", 0, 2, 3)
	c.MoveLeader("clean", 0, 2)
	c.Kill(2)
	p := c.WaitPartition("clean", 0, "leader 3", func(p Partition) bool { return p.Leader == 3 })
	if p.LeaderEpoch < 1 {
		t.Errorf("leader epoch %d did not rise with the new leader", p.LeaderEpoch)
	}
	if last := c.Produce("clean", 0, "after"); last != 1 {
		t.Errorf("offset %d after the failover, want 1", last)
	}
	// broker 1 was no replica: a reassignment brings it in
	if p := c.MoveLeader("clean", 0, 1); p.Leader != 1 {
		t.Errorf("leader %d, want 1", p.Leader)
	}
}

func TestPauseAndResume(t *testing.T) {
	c := Start(t, Options{Brokers: 2})
	c.CreateTopic(Topic{Name: "t", Assignment: [][]int32{{2}}})
	c.Pause(2)
	if ok, _ := c.node(2).alive(); !ok {
		t.Fatal("a paused broker counts as ended")
	}
	state := func() string {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(c.node(2).cmd.Process.Pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[0]
	}
	if s := state(); s != "T" {
		t.Errorf("state of the paused process is %s, want T", s)
	}
	c.Resume(2)
	c.WaitReady()
	if last := c.Produce("t", 0, "x"); last != 0 {
		t.Errorf("offset %d, want 0", last)
	}
	c.Stop(2)
	c.StartBroker(2)
	if last := c.Produce("t", 0, "y"); last != 1 {
		t.Errorf("offset %d after a clean restart, want 1", last)
	}
	c.DeleteRecords("t", 0, 1)
}

func TestSharedIsOneCluster(t *testing.T) {
	a, b := Shared(t), Shared(t)
	if a.ID() != b.ID() || len(a.Bootstrap()) != 3 {
		t.Errorf("ids %s and %s, %d brokers", a.ID(), b.ID(), len(a.Bootstrap()))
	}
}
