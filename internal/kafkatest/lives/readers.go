package lives

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// Committed are the offsets that a read_committed consumer of franz-go gets from the log's start up to last.
func Committed(t testing.TB, c *kafkatest.Cluster, topic string, partition int32, last int64) []int64 {
	t.Helper()
	cl := c.Client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	defer cl.Close()
	var offsets []int64
	for len(offsets) == 0 || offsets[len(offsets)-1] < last {
		fs := cl.PollFetches(Limited(t))
		if err := fs.Err(); err != nil {
			t.Fatalf("read_committed consumer of %s-%d has %v and wants up to %d: %v", topic, partition, offsets, last, err)
		}
		fs.EachRecord(func(r *kgo.Record) { offsets = append(offsets, r.Offset) })
	}
	return offsets
}

// JavaConsumer runs Kafka's own console consumer until it has n records, and returns their offsets and values.
func JavaConsumer(t testing.TB, c *kafkatest.Cluster, n int, more ...string) (offsets []int64, values []string) {
	t.Helper()
	out := javaTool(t, c, "", "org.apache.kafka.tools.consumer.ConsoleConsumer", append([]string{"--isolation-level", "read_committed", "--formatter-property", "print.offset=true",
		"--max-messages", strconv.Itoa(n), "--timeout-ms", "30000"}, more...)...)
	for line := range strings.Lines(out) {
		at, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		number, is := strings.CutPrefix(at, "Offset:")
		offset, err := strconv.ParseInt(number, 10, 64)
		if ok && is && err == nil {
			offsets, values = append(offsets, offset), append(values, value)
		}
	}
	if len(offsets) != n {
		t.Fatalf("console consumer: %d records, want %d:\n%s", len(offsets), n, out)
	}
	return offsets, values
}

// JavaProducer writes one record with Kafka's own console producer, which is an idempotent one.
func JavaProducer(t testing.TB, c *kafkatest.Cluster, topic, value string) {
	t.Helper()
	javaTool(t, c, value+"\n", "org.apache.kafka.tools.ConsoleProducer", "--topic", topic)
}

// javaTool runs one of Kafka's tools against a cluster, with what it reads, and returns what it wrote.
func javaTool(t testing.TB, c *kafkatest.Cluster, reads, class string, args ...string) string {
	t.Helper()
	libs, err := kafkatest.Libs(c.Version())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), Bound)
	defer stop()
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(libs, "*"), class, "--bootstrap-server", strings.Join(c.Bootstrap(), ",")}, args...)...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(reads), &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", class, err, out, said.String())
	}
	return string(out)
}

// SameCommitted: franz-go's and Kafka's own consumer get these offsets.
func SameCommitted(t testing.TB, c *kafkatest.Cluster, topic string, partition int32, want ...int64) {
	t.Helper()
	if got := Committed(t, c, topic, partition, want[len(want)-1]); !slices.Equal(got, want) {
		t.Errorf("franz-go's read_committed consumer of %s-%d gets %v, want %v", topic, partition, got, want)
	}
	got, _ := JavaConsumer(t, c, len(want), "--topic", topic, "--partition", strconv.Itoa(int(partition)), "--offset", "earliest")
	if !slices.Equal(got, want) {
		t.Errorf("Kafka's read_committed consumer of %s-%d gets %v, want %v", topic, partition, got, want)
	}
}
