package realkafka_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// bound is the longest that a test waits for any one thing. Nothing here is expected to take that long.
const bound = 60 * time.Second

func TestMain(m *testing.M) {
	code := m.Run()
	lender.end()
	os.Exit(code)
}

// keeper is a kafkatest.T that outlives a test: its cleanups run when all tests are over; what goes wrong is the present test's.
type keeper struct {
	*testing.T
	cleanups []func()
}

func (k *keeper) Cleanup(f func()) { k.cleanups = append(k.cleanups, f) }

func (k *keeper) end() {
	for i := len(k.cleanups) - 1; i >= 0; i-- {
		k.cleanups[i]()
	}
}

// Failed is false: a cluster that is kept shows its brokers' logs in the test that failed (see rough), not at the end.
func (k *keeper) Failed() bool { return false }

// Context never ends, so that the cluster's own waits do not end with the first test.
func (k *keeper) Context() context.Context { return context.Background() }

var (
	lender keeper
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
