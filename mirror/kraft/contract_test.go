package kraft_test

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/logtest"
)

// TestRealKafkaLogContract runs the contract's own tests on partitions that stock brokers follow.
func TestRealKafkaLogContract(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	if err := checks.Value.Set("3"); err != nil { // each makes a topic
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checks.Value.Set(before) })
	c := kafkatest.Shared(t)
	j := join(t, c)
	var n atomic.Int64
	// The kit's timestamps are of long ago: with a retention, brokers would delete what it wrote.
	logtest.Run(t, func(t testing.TB) logtest.Subject {
		name := fmt.Sprintf("contract-%d", n.Add(1))
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		if _, err := j.CreateTopic(ctx, mirror.TopicSpec{Name: name, Partitions: 1, Configs: map[string]string{"retention.ms": "-1"}}); err != nil {
			t.Fatal(err)
		}
		l, err := j.OpenLog(ctx, mirror.TopicPartition{Topic: name})
		if err != nil {
			t.Fatal(err)
		}
		return logtest.Subject{Log: l}
	})
}
