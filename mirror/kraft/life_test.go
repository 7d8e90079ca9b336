package kraft_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// TestRealKafkaFirstLife: created, copied by three stock brokers, handed over, written by clients, taken over, cut to what was mirrored, copied on under higher leader epochs, handed over
// again; and when the process has left, nothing in the cluster tells of it.
func TestRealKafkaFirstLife(t *testing.T) {
	c := kafkatest.Shared(t)
	j := join(t, c, func(cfg *kraft.Config) { cfg.NodeID = 8001 })
	l := j.create("first", 1)
	expect := func(owner mirror.Ownership, end int64) {
		t.Helper()
		got, epoch, err := l.Owner(bound(t))
		if err != nil || got != owner || epoch != l.LeaderEpoch() || l.End() != end {
			t.Fatalf("the log is %v under leader epoch %d (%d), up to %d, %v; it should be %v, up to %d", got, epoch, l.LeaderEpoch(), l.End(), err, owner, end)
		}
	}
	same := func(want []byte) {
		t.Helper()
		if got := c.WaitSameSegments("first", 0, 1, 2, 3); !bytes.Equal(got, want) {
			t.Fatalf("the brokers hold %d bytes, %d were appended", len(got), len(want))
		}
	}
	var mirrored []byte
	for i := range 20 {
		b := data(int64(i*5), l.LeaderEpoch(), 5, "first")
		mirrored = append(mirrored, b...)
		appendTo(t, l, b)
	}
	await(t, l)
	expect(mirror.OwnerOurs, 100)
	same(mirrored)

	if err := l.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
	expect(mirror.OwnerOpen, 100)
	if last := produce(t, c, "first", 0, "a", "b", "c"); last != 102 {
		t.Fatalf("the last local record is at %d", last)
	}

	if err := l.CloseForWrites(bound(t)); err != nil {
		t.Fatal(err)
	}
	expect(mirror.OwnerOurs, 103)
	if end, err := l.TruncateTo(bound(t), 100); err != nil || end != 100 {
		t.Fatalf("cut to %d: %v", end, err)
	}
	if err := l.AwaitTruncated(bound(t)); err != nil {
		t.Fatal(err)
	}
	same(mirrored)
	tp, before := mirror.TopicPartition{Topic: "first"}, l.LeaderEpoch()
	if got, err := j.RaiseLeaderEpochs(bound(t), map[mirror.TopicPartition]int32{tp: before + 3}); err != nil || got[tp] != before+4 {
		t.Fatalf("leader epoch %d was raised to %v, it should be %d: %v", before, got, before+4, err)
	}
	b := data(100, l.LeaderEpoch(), 5, "second")
	mirrored = append(mirrored, b...)
	appendTo(t, l, b)
	await(t, l)
	same(mirrored)
	if err := l.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
	expect(mirror.OwnerOpen, 105)
	same(mirrored)

	if err := j.Leave(bound(t)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"min.insync.replicas", "unclean.leader.election.enable"} {
		if v, ok := topicConfig(t, c, "first", name); ok {
			t.Errorf("%s=%s is left behind", name, v)
		}
	}
	if p := c.Describe("first", 0); !slices.Equal(sortedIDs(p.Replicas), []int32{1, 2, 3}) || !slices.Equal(sortedIDs(p.ISR), []int32{1, 2, 3}) {
		t.Errorf("it is left as %+v", p)
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers = true
	resp, err := req.RequestWith(bound(t), c.AdminClient())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range resp.Brokers {
		if b.NodeID == 8001 {
			t.Error("its registration is left behind")
		}
	}
}

func sortedIDs(ids []int32) []int32 {
	s := slices.Clone(ids)
	slices.Sort(s)
	return s
}
