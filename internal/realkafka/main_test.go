package realkafka_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// bound is the longest that a test waits for any one thing. Nothing here is expected to take that long.
const bound = 60 * time.Second

func TestMain(m *testing.M) {
	lives.Bound = bound
	code := m.Run()
	lender.End()
	os.Exit(code)
}

var (
	lender lives.Keeper
	kept   *kafkatest.Cluster
)

// rough is the cluster whose brokers may be paused, stopped and killed: three brokers, node 1 is the only controller and is left alone. A broker that does not
// answer is fenced after three seconds. Topics are created by whoever asks for them, as many clusters in the field still do (F-31).
func rough(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	kafkatest.Require(t)
	lender.T = t
	if kept == nil {
		kept = kafkatest.Start(&lender, kafkatest.Options{Brokers: 3, Config: map[string]string{
			"broker.session.timeout.ms":    "3000",
			"broker.heartbeat.interval.ms": "700",
			"auto.create.topics.enable":    "true",
			"replica.lag.time.max.ms":      "3000",
			"replica.fetch.wait.max.ms":    "200",
		}})
	}
	kept.WaitReady()
	t.Cleanup(func() {
		if t.Failed() {
			for _, id := range kept.Brokers() {
				log := kept.Log(id)
				t.Logf("end of the log of broker %d:\n%s", id, log[max(0, len(log)-6000):])
			}
		}
	})
	return kept
}

var fastCleaner sync.Once

// shared is the cluster of tests that leave brokers alone. Its log cleaner looks every 100 ms for something to do.
func shared(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	c := kafkatest.Shared(t)
	fastCleaner.Do(func() {
		backoff := "100"
		answers, err := c.Admin().AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "log.cleaner.backoff.ms", Value: &backoff}})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	})
	return c
}
