package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
)

// output collects what the program prints.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) await(t *testing.T, what string) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !strings.Contains(o.String(), what); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the program did not say %q:\n%s", what, o)
		}
	}
}

// TestRealKafkaReadmeShowsARealRun: a topic is mirrored into an unmodified Kafka, stopped from elsewhere, and written by the cluster's own clients behind the mirrored records; what the
// program prints on the way is what the README shows.
func TestRealKafkaReadmeShowsARealRun(t *testing.T) {
	kafka := kafkatest.Start(t, kafkatest.Options{Brokers: 3})
	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	producer, err := kgo.NewClient(kgo.SeedBrokers(source.ListenAddrs()...), kgo.DisableIdempotentWrite()) // the fake gives out producer ids that no cluster reaches
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for _, value := range []string{"1 apple", "2 pears", "3 plums"} {
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	l.Close()
	o := options{
		source: source.ListenAddrs(), topics: []string{"orders"}, controllers: kafka.ControllerAddresses(), state: kafka.Bootstrap(), listen: listen, folder: t.TempDir(),
		name: "dr", node: 9999, replicas: 3,
	}
	looked := &output{}
	if err := preflight(t.Context(), looked, o); err != nil || strings.Contains(looked.String(), "\nblocks ") || !strings.Contains(looked.String(), "destination, topics: 1 topic will be created (orders)") {
		t.Errorf("before it joins: %v\n%s", err, looked)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, ended := &output{}, make(chan error, 1)
	go func() { ended <- run(ctx, out, o) }()
	out.await(t, "the brokers hold it up to 3")

	records, err := kafkastore.Open(t.Context(), kafkastore.Config{Seeds: kafka.Bootstrap()})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	admin, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "dr", Control: mirror.NewControl(records), States: keyedlog.NewStateStore(records), OpenSource: kafkasource.Open})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Stop(t.Context(), []string{"orders"}, mirror.StopOptions{Intent: mirror.Intent{Reason: "primary is down", DestinationClusterID: kafka.ID()}}); err != nil {
		t.Fatal(err)
	}
	out.await(t, "handed over: orders-0")
	out.await(t, "→ STOPPED")

	client := kafka.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().AtStart()}}))
	bounded, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()
	if err := client.ProduceSync(bounded, &kgo.Record{Topic: "orders", Value: []byte("4 local")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	var read []string
	for len(read) < 4 {
		fetches := client.PollFetches(bounded)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { read = append(read, fmt.Sprint(r.Offset, ":", string(r.Value))) })
	}
	if want := []string{"0:1 apple", "1:2 pears", "2:3 plums", "4:4 local"}; !slices.Equal(read, want) { // 3 is MIRROR_PID_RESET
		t.Errorf("a client of the destination reads %q, want %q", read, want)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "$ go run ./examples/joinkafka")
	block, _, ok2 := strings.Cut(rest, "\n```\n")
	if !ok || !ok2 {
		t.Fatalf("README.md has no transcript of joinkafka; a run gives\n%s", masked(out.String()))
	}
	printed := masked(out.String())
	_, lines, _ := strings.Cut(block, "-folder /var/lib/mirror\n")
	for _, line := range strings.Split(lines, "\n") {
		if line != "…" && !strings.Contains(printed, masked(line)) {
			t.Errorf("README.md shows\n%s\nand a run gave\n%s", line, printed)
		}
	}
}

// masked takes out what differs from run to run.
func masked(s string) string {
	s = regexp.MustCompile(`\d\d:\d\d:\d\d(\.\d+)?`).ReplaceAllString(s, "T")
	s = regexp.MustCompile(`[A-Za-z0-9_-]{22}`).ReplaceAllString(s, "ID")
	return regexp.MustCompile(`\d+(\.\d+)?(ms|µs|s)\b`).ReplaceAllString(s, "TIME")
}
