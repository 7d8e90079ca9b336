package kraft_test

import (
	"bytes"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
)

// TestRealKafkaFirstLife: created, copied by three stock brokers, handed over, written by clients, taken over, cut, handed over again.
func TestRealKafkaFirstLife(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Controllers: 3})
	j := join(t, c)
	l := j.create("first", 1)
	var all []byte
	for i := range 20 {
		b := data(int64(i*5), l.LeaderEpoch(), 5, "first")
		all = append(all, b...)
		appendTo(t, l, b)
	}
	await(t, l)
	if got := c.WaitSameSegments("first", 0, 1, 2, 3); !bytes.Equal(got, all) {
		t.Fatalf("the followers hold %d bytes, %d were appended", len(got), len(all))
	}
	if err := l.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
	owner, epoch, err := l.Owner(bound(t))
	t.Log(owner, epoch, err, l.End())
	if owner != mirror.OwnerOpen || err != nil {
		t.Fatal("not open")
	}
	last := produce(t, c, "first", 0, "a", "b", "c")
	t.Log("local records up to", last)
	if err := l.CloseForWrites(bound(t)); err != nil {
		t.Fatal(err)
	}
	owner, epoch, err = l.Owner(bound(t))
	t.Log(owner, epoch, err, l.Start(), l.End(), l.LeaderEpoch())
	if owner != mirror.OwnerOurs || l.End() != 103 {
		t.Fatal("not taken over")
	}
	if _, err := l.TruncateTo(bound(t), 100); err != nil {
		t.Fatal(err)
	}
	if err := l.AwaitTruncated(bound(t)); err != nil {
		t.Fatal(err)
	}
	got, err := j.RaiseLeaderEpochs(bound(t), map[mirror.TopicPartition]int32{{Topic: "first"}: l.LeaderEpoch() + 3})
	t.Log(got, err, l.LeaderEpoch())
	if err != nil {
		t.Fatal(err)
	}
	b := data(100, l.LeaderEpoch(), 5, "second")
	all = append(all, b...)
	appendTo(t, l, b)
	await(t, l)
	if got := c.WaitSameSegments("first", 0, 1, 2, 3); !bytes.Equal(got, all) {
		t.Fatalf("the followers hold %d bytes, %d were appended", len(got), len(all))
	}
	if err := l.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
	if err := j.Leave(bound(t)); err != nil {
		t.Fatal(err)
	}
}
