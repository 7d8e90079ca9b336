package nodelife_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// TestNodeRunsWhatVerbsSay: a node before there is any mirror; one that is created, started, stopped and deleted while it runs.
func TestNodeRunsWhatVerbsSay(t *testing.T) {
	kafkatest.Require(t)
	from, to := primary(t), standby(t)
	const topic = "node-orders"
	from.CreateTopic(kafkatest.Topic{Name: topic, Partitions: 2, Replication: 1})
	from.Produce(topic, 0, lives.Values("first", 10)...)
	p := start(t, to, "a")
	p.ready()
	create(t, from, to, "node-dr")
	verb(t, to, 0, "--start", "--mirror", "node-dr", "--topics", topic)
	until(t, to, "node-dr", topic+"-0  MIRRORING  10", topic+"-1  MIRRORING  0")
	if status, body := p.get("/metrics"); status != http.StatusOK || !strings.Contains(body, `clustermirror_node_ready{node="9999"} 1`) {
		t.Errorf("/metrics: %d\n%s", status, body)
	}
	if status, body := p.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %s", status, body)
	}
	from.Produce(topic, 0, lives.Values("second", 5)...)
	until(t, to, "node-dr", topic+"-0  MIRRORING  15")
	verb(t, to, 0, "--stop", "--mirror", "node-dr", "--topics", topic, "--reason", "a test", "--destination-cluster-id", to.ID(), "--yes")
	until(t, to, "node-dr", topic+"-0  STOPPED", topic+"-1  STOPPED")
	to.Produce(topic, 0, "written here")
	verb(t, to, 0, "--delete", "--mirror", "node-dr", "--reason", "a test", "--destination-cluster-id", to.ID(), "--yes")
	if status := p.end(syscall.SIGTERM); status != 0 {
		t.Errorf("told to end it ended with status %d", status)
	}
	if !strings.Contains(p.printed(), "draining") {
		t.Error("it did not say that it drains")
	}
}
