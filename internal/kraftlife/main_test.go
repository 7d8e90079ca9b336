package kraftlife_test

import (
	"os"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// bound is the longest that a test waits for any one thing. Nothing here is expected to take that long.
const bound = 40 * time.Second

func TestMain(m *testing.M) {
	lives.Bound = bound
	code := m.Run()
	lender.End()
	os.Exit(code)
}

var lender lives.Keeper

// lend is a cluster that tests share, by name. Its log cleaner looks every 100 ms for something to do, and topics are created by whoever asks for them, as many clusters in the field
// still do (F-31).
func lend(t *testing.T, name string, brokers int) *kafkatest.Cluster {
	t.Helper()
	return lender.Lend(t, name, kafkatest.Options{Brokers: brokers, HeapMB: 384, Config: map[string]string{
		"auto.create.topics.enable": "true",
		"log.cleaner.backoff.ms":    "100",
		"replica.fetch.wait.max.ms": "200",
	}})
}

// primary is the cluster that clients use at first, standby the one that is mirrored into: three brokers each, node 1 is the only controller. A test may pause the other ones, and lets them go on.
func primary(t *testing.T) *kafkatest.Cluster { return lend(t, "the primary", 3) }

func standby(t *testing.T) *kafkatest.Cluster { return lend(t, "the standby", 3) }

// small is a source for what needs one broker only.
func small(t *testing.T) *kafkatest.Cluster { return lend(t, "the small source", 1) }
