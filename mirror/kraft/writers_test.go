package kraft_test

import (
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// mirrored is a topic that is created, copied, and survives the death of its process: once it comes back within its session, once after it, while nobody leads. Clients try to write to
// it on the brokers' own listener all the time.
func mirrored(t *testing.T) (*watch, *kafkatest.Writer, *kafkatest.Cluster) {
	c := short(t, 1, nil)
	w := watchOf(t, c, "t")
	writer := c.WriteAlways(map[string][]int32{"t": {0}})
	cfg := config(t, c)
	cfg.SessionTimeout, cfg.HeartbeatInterval = session, 500*time.Millisecond
	own := freeListener(t) // followers look for it at the same address again
	cfg.Listen = own.Addr().String()
	own.Close()
	j := joinWith(t, c, cfg)
	l := j.create("t", 1)
	appendTo(t, l, data(0, 0, 5, "t"))
	await(t, l)
	j.Close()
	j = joinWith(t, c, cfg)
	await(t, j.open("t", 0))
	j.Close()
	eventually(t, "the end of the session", func() bool { b, _ := w.image().Broker(nodeID); return b.Fenced })
	writer.WaitRounds(2)
	return w, writer, c
}

// TestF82RealKafkaNoOtherLeader looks at every leader that the metadata log names.
func TestF82RealKafkaNoOtherLeader(t *testing.T) {
	w, _, _ := mirrored(t)
	for _, v := range w.violations() {
		t.Error(v)
	}
}

// TestF82RealKafkaNoOtherWriter looks at what clients got through, by the answers and by what lies on the brokers' disks.
func TestF82RealKafkaNoOtherWriter(t *testing.T) {
	_, writer, c := mirrored(t)
	for _, s := range writer.Successes() {
		t.Errorf("a client has written: %+v", s)
	}
	for _, broker := range c.Brokers() {
		if got := writer.FindIn(c.SegmentBytes("t", 0, broker)); len(got) > 0 {
			t.Errorf("broker %d holds %d records of clients", broker, len(got))
		}
	}
}
