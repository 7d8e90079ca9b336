package processes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
)

// TestTheStateIsAwayForAWhile: the only broker of the cluster that holds states and desired state is restarted in the middle of a running mirror. The mirror goes on copying
// meanwhile, a verb says that it does not know or has changed nothing, and afterwards all goes on by itself.
func TestTheStateIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	const m, topic = "outage", "outage-orders"
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 1})
	p := place{Seeds: c.Bootstrap()}
	src := startSource(t, "primary", topic)
	src.produce(topic, 5)
	worker, operator := begin(t, p, "worker"), begin(t, p, "operator")
	worker.do(order{Do: "open", Mirror: m, Owner: "outage-worker", Seeds: src.seeds()})
	control := mirror.NewControl(look(t, p))
	exists(t, control, m)
	operator.verb(m, "start", topic)
	worker.untilEnd(topic, 5)
	// Each verb looks at what the worker has recorded last.
	follow := func(verb, state string) {
		t.Helper()
		operator.verb(m, verb, topic)
		worker.untilState(topic, state)
		operator.untilDescribed(m, topic, state, func(p describedPartition) bool { return p.State == state })
	}
	operator.untilDescribed(m, topic, "MIRRORING", func(p describedPartition) bool { return p.State == "MIRRORING" })
	follow("pause", "PAUSED")
	follow("resume", "MIRRORING")

	want := int64(5)
	for _, end := range []func(int32){c.Stop, c.Kill} {
		end(1)
		operator.Send(order{Do: "verb", Verb: "pause", Mirror: m, Topics: []string{topic}, Bound: 3 * time.Second})
		src.produce(topic, 5)
		want += 5
		worker.untilEnd(topic, want)
		a := operator.Receive()
		t.Logf("while the cluster is away: %s", a.Err)
		if a.Err == "" || !strings.Contains(a.Err, "nothing has changed") && !strings.Contains(a.Err, "not known whether") {
			t.Errorf("a verb while the state is away says neither that nothing was changed nor that nobody knows: %+v", a)
		}
		c.StartBroker(1)
		c.WaitReady()
		began := time.Now()
		follow("pause", "PAUSED")
		follow("resume", "MIRRORING")
		t.Logf("paused and resumed %v after the broker was ready", time.Since(began).Round(time.Millisecond))
	}
	src.produce(topic, 5)
	worker.untilEnd(topic, want+5)
	if a := worker.do(order{Do: "status"}); a.Fenced != "" || a.Partitions[0].Halted {
		t.Errorf("after all that: %+v", a)
	}
}
