package synclife_test

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

func lend(t *testing.T, name string) *kafkatest.Cluster {
	t.Helper()
	return lender.Lend(t, name, kafkatest.Options{Brokers: 3, HeapMB: 384, Authorizer: true, Config: map[string]string{"replica.fetch.wait.max.ms": "200"}})
}

// primary is the cluster that clients use at first, standby the one that is mirrored into.
func primary(t *testing.T) *kafkatest.Cluster { return lend(t, "the primary") }

func standby(t *testing.T) *kafkatest.Cluster { return lend(t, "the standby") }

// older is a source of an earlier version of Kafka, without an authorizer.
func older(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	return lender.Lend(t, "the older source", kafkatest.Options{Version: "3.9.1", HeapMB: 384})
}
