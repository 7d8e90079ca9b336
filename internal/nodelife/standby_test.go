package nodelife_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// writing writes to a topic's only partition until end is called, which returns how many records were acknowledged.
func writing(t *testing.T, c *kafkatest.Cluster, topic string) (end func() int64) {
	t.Helper()
	cl := lives.Client(c)
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		var n int64
		for {
			select {
			case <-stop:
				done <- n
				return
			default:
			}
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "record %d", n)}).FirstErr(); err != nil {
				t.Errorf("produce: %v", err)
				<-stop
				done <- n
				return
			}
			n++
		}
	}()
	return func() int64 {
		close(stop)
		return <-done
	}
}

// TestRollingUpgrade: the new process stands by, the old one is told to end and hands over in order, while records arrive. Nothing is missing and nothing is forgotten: the copy is the
// source's byte for byte, a paused topic is paused, a stopped one stopped. Then the new one is killed, and the old one comes back from its folder.
func TestRollingUpgrade(t *testing.T) {
	kafkatest.Require(t)
	from, to := primary(t), standby(t)
	topics := []string{"upgrade-live", "upgrade-paused", "upgrade-stopped"}
	for _, topic := range topics {
		from.CreateTopic(kafkatest.Topic{Name: topic, Partitions: 1, Replication: 1})
	}
	old := start(t, to, "old")
	old.ready()
	create(t, from, to, "upgrade-dr")
	verb(t, to, 0, "--start", "--mirror", "upgrade-dr", "--topics", strings.Join(topics, ","))
	until(t, to, "upgrade-dr", "upgrade-live-0     MIRRORING", "upgrade-paused-0   MIRRORING", "upgrade-stopped-0  MIRRORING")
	verb(t, to, 0, "--pause", "--mirror", "upgrade-dr", "--topics", "upgrade-paused")
	verb(t, to, 0, "--stop", "--mirror", "upgrade-dr", "--topics", "upgrade-stopped", "--reason", "a test", "--destination-cluster-id", to.ID(), "--yes")
	until(t, to, "upgrade-dr", "upgrade-paused-0   PAUSED", "upgrade-stopped-0  STOPPED")
	end := writing(t, from, "upgrade-live")
	fresh := start(t, to, "new")
	fresh.standsBy()
	if status := old.end(syscall.SIGTERM); status != 0 {
		t.Fatalf("the old process ended with status %d", status)
	}
	fresh.ready()
	as := until(t, to, "upgrade-dr", "upgrade-live-0     MIRRORING", "upgrade-paused-0   PAUSED", "upgrade-stopped-0  STOPPED")
	t.Logf("after the upgrade:\n%s", as)

	fresh.end(syscall.SIGKILL)
	old.start()
	old.ready()
	n := end()
	until(t, to, "upgrade-dr", fmt.Sprintf("upgrade-live-0     MIRRORING  %d, ", n), "upgrade-paused-0   PAUSED", "upgrade-stopped-0  STOPPED")
	verb(t, to, 0, "--stop", "--mirror", "upgrade-dr", "--all-topics", "--reason", "a test", "--destination-cluster-id", to.ID(), "--yes")
	until(t, to, "upgrade-dr", "upgrade-live-0     STOPPED", "upgrade-paused-0   STOPPED")
	source := lives.Fetch(t, from, "upgrade-live", 0, 0, n)
	for _, id := range to.Brokers() {
		lives.Eventually(t, fmt.Sprintf("the copy on broker %d is the source's", id), func() (bool, string) {
			copied := to.SegmentBytes("upgrade-live", 0, id)
			if len(copied) < len(source) {
				return false, "it is shorter"
			}
			d := lives.Difference(copied[:len(source)], source)
			return d == "", d
		})
	}
	if n == 0 {
		t.Error("nothing was written meanwhile")
	}
	t.Logf("%d records, %d bytes compared on each broker", n, len(source))
}
