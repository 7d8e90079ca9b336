package mirrortest_test

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

// tool runs one of Kafka's own tools to its end and returns what it said on its standard output, and on both.
func tool(t *testing.T, in, class string, args ...string) (out, all string, err error) {
	t.Helper()
	libs, err := kafkatest.Libs(kafkatest.DefaultVersion)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(libs, "*"), class}, args...)...)
	var stdout, both bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &stdout, &both
	err = cmd.Run()
	return stdout.String(), stdout.String() + both.String(), err
}

// TestRealKafkaJavaClients: Kafka's own producers, one of them with transactions, and consumers of both group protocols work at the primary, at the standby after the failover, and at the primary again.
func TestRealKafkaJavaClients(t *testing.T) {
	kafkatest.Require(t)
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 2, "bulk": 1}, Bound: time.Minute})
	at := func(c *mirrortest.Cluster) string { return strings.Join(c.Addresses(), ",") }
	write := func(where *mirrortest.Cluster, values ...string) string {
		t.Helper()
		_, all, err := tool(t, strings.Join(values, "\n")+"\n", "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", at(where), "--topic", "orders")
		if err != nil {
			t.Fatalf("producer: %v\n%s", err, all)
		}
		return all
	}
	read := func(protocol string, want ...string) {
		t.Helper()
		out, all, err := tool(t, "", "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", at(pair.Active()), "--topic", "orders", "--group", protocol, "--from-beginning",
			"--max-messages", "2", "--timeout-ms", "30000", "--command-property", "group.protocol="+protocol, "--command-property", "isolation.level=read_committed")
		got := strings.Fields(out)
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s consumer: %q, %v, not %q\n%s", protocol, got, err, want, all)
		}
	}
	bulk := func() {
		t.Helper()
		_, all, err := tool(t, "", "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", at(pair.Active()), "--topic", "bulk", "--num-records", "200", "--record-size", "50",
			"--throughput", "-1", "--transactional-id", "bulk", "--transaction-duration-ms", "10")
		if err != nil || !strings.Contains(all, "200 records sent") {
			t.Errorf("transactional producer: %v\n%s", err, all)
		}
	}
	committed := func(n int) {
		t.Helper()
		records, err := pair.Active().Memory().Consume(t.Context(), "bulk", 0, 0, memlog.ReadCommitted)
		if err != nil || len(records) != n {
			t.Errorf("%d committed records of the transactional producer, not %d (%v)", len(records), n, err)
		}
	}
	write(pair.Primary(), "a", "b")
	read("classic", "a", "b")
	read("consumer", "a", "b")
	pair.AwaitCaughtUp()
	if said := write(pair.Standby(), "refused"); !strings.Contains(said, "PolicyViolationException") {
		t.Errorf("a producer at the copy was told\n%s", said)
	}
	pair.KillPrimary()
	pair.Failover()
	write(pair.Standby(), "c", "d")
	bulk()
	read("consumer", "c", "d")
	committed(200)
	pair.Failback()
	read("classic", "c", "d")
	committed(200)
	pair.Verify()
}
