package kraft_test

import (
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// TestRealKafkaEndedMirrorIsNoBroker: a mirror process that has just ended is alive for the controllers until its session ends, and no broker that the next one misses.
func TestRealKafkaEndedMirrorIsNoBroker(t *testing.T) {
	c := kafkatest.Shared(t)
	a := join(t, c, func(cfg *kraft.Config) { cfg.NodeID = 8003 })
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := join(t, c, func(cfg *kraft.Config) { cfg.NodeID = 8004 })
	for _, e := range b.seen() {
		if strings.Contains(e.Text, "8003") {
			t.Errorf("told: %s", e.Text)
		}
	}
}
