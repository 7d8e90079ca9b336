package kraft_test

import (
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// TestRealKafkaReturnElsewhere: a process comes back within its session at another address. It leads what it led, under the same broker epoch, and stock followers would ask the old address
// for ever.
func TestRealKafkaReturnElsewhere(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 2})
	j := join(t, c)
	l := j.create("elsewhere", 1)
	appendTo(t, l, data(0, l.LeaderEpoch(), 5, "before"))
	await(t, l)
	epoch := l.LeaderEpoch()
	j.Close()
	cfg := j.cfg
	cfg.Listener = freeListener(t)
	j = joinWith(t, c, cfg)
	l = j.open("elsewhere", 0)
	if l.End() != 5 || l.LeaderEpoch() <= epoch {
		t.Fatalf("it ends at %d under leader epoch %d, before it was %d", l.End(), l.LeaderEpoch(), epoch)
	}
	appendTo(t, l, data(5, l.LeaderEpoch(), 5, "after"))
	await(t, l)
}
