package kraftlife_test

import (
	"bufio"
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

// committed are the offsets that a read_committed consumer of franz-go gets from the log's start up to last.
func committed(t *testing.T, c *kafkatest.Cluster, topic string, partition int32, last int64) []int64 {
	t.Helper()
	cl := c.Client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	defer cl.Close()
	var offsets []int64
	for len(offsets) == 0 || offsets[len(offsets)-1] < last {
		fs := cl.PollFetches(limited(t))
		if err := fs.Err(); err != nil {
			t.Fatalf("read_committed consumer of %s-%d has %v and wants up to %d: %v", topic, partition, offsets, last, err)
		}
		fs.EachRecord(func(r *kgo.Record) { offsets = append(offsets, r.Offset) })
	}
	return offsets
}

// javaConsumer runs Kafka's own console consumer until it has n records, and returns their offsets and values.
func javaConsumer(t *testing.T, c *kafkatest.Cluster, n int, more ...string) (offsets []int64, values []string) {
	t.Helper()
	libs, err := kafkatest.Libs(c.Version())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(libs, "*"), "org.apache.kafka.tools.consumer.ConsoleConsumer",
		"--bootstrap-server", strings.Join(c.Bootstrap(), ","), "--isolation-level", "read_committed", "--formatter-property", "print.offset=true",
		"--max-messages", strconv.Itoa(n), "--timeout-ms", "30000"}, more...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("console consumer: %v\n%s", err, said.String())
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		at, value, ok := strings.Cut(lines.Text(), "\t")
		number, is := strings.CutPrefix(at, "Offset:")
		offset, err := strconv.ParseInt(number, 10, 64)
		if ok && is && err == nil {
			offsets, values = append(offsets, offset), append(values, value)
		}
	}
	if len(offsets) != n {
		t.Fatalf("console consumer: %d records, want %d:\n%s\n%s", len(offsets), n, out, said.String())
	}
	return offsets, values
}

// javaProducer writes one record with Kafka's own console producer, which is an idempotent one.
func javaProducer(t *testing.T, c *kafkatest.Cluster, topic, value string) {
	t.Helper()
	libs, err := kafkatest.Libs(c.Version())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	cmd := exec.CommandContext(ctx, "java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(libs, "*"), "org.apache.kafka.tools.ConsoleProducer",
		"--bootstrap-server", strings.Join(c.Bootstrap(), ","), "--topic", topic)
	cmd.Stdin = strings.NewReader(value + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("console producer: %v\n%s", err, out)
	}
}

// sameCommitted: franz-go's and Kafka's own consumer get these offsets.
func sameCommitted(t *testing.T, c *kafkatest.Cluster, topic string, partition int32, want ...int64) {
	t.Helper()
	if got := committed(t, c, topic, partition, want[len(want)-1]); !slices.Equal(got, want) {
		t.Errorf("franz-go's read_committed consumer of %s-%d gets %v, want %v", topic, partition, got, want)
	}
	got, _ := javaConsumer(t, c, len(want), "--topic", topic, "--partition", strconv.Itoa(int(partition)), "--offset", "earliest")
	if !slices.Equal(got, want) {
		t.Errorf("Kafka's read_committed consumer of %s-%d gets %v, want %v", topic, partition, got, want)
	}
}
