package kafkasource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// testBound is the bound of calls in tests that expect an answer.
const testBound = 20 * time.Second

func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.ClusterID("source-one")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// open returns a source that must leave no goroutine behind.
func open(t *testing.T, cfg Config) *Source {
	t.Helper()
	if cfg.Bound == 0 {
		cfg.Bound = testBound
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		started := time.Now()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(started); took > 3*time.Second {
			t.Errorf("Close took %v", took)
		}
		if left := leftBehind(5 * time.Second); left != "" {
			t.Errorf("goroutines left after Close:\n%s", left)
		}
	})
	return s
}

func openTo(t *testing.T, c *kfake.Cluster) *Source {
	t.Helper()
	return open(t, Config{Seeds: c.ListenAddrs()})
}

// leftBehind is the stacks of goroutines of this package or the client, once patience is over; "" as soon as there are none.
// Goroutines of producers that a test uses must have ended before.
func leftBehind(patience time.Duration) string {
	deadline := time.Now().Add(patience)
	for {
		buf := make([]byte, 4<<20)
		buf = buf[:runtime.Stack(buf, true)]
		var left []string
		for i, g := range strings.Split(string(buf), "\n\n") {
			ours := strings.Contains(g, "franz-go/pkg/kgo.") || strings.Contains(g, "kafkasource.")
			if i > 0 && ours && !strings.Contains(g, "testing.tRunner") { // the first one is ours; tests that wait for this one run beside
				left = append(left, g)
			}
		}
		if len(left) == 0 {
			return ""
		}
		if time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
		runtime.Gosched()
	}
}

func TestLeftBehindSaysNo(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { parked(started, release) })
	<-started
	noticed := leftBehind(50 * time.Millisecond)
	close(release)
	running.Wait()
	if noticed == "" {
		t.Fatal("a goroutine of this package was not noticed")
	}
	if left := leftBehind(5 * time.Second); left != "" {
		t.Fatal(left)
	}
}

//go:noinline
func parked(started, release chan struct{}) {
	close(started)
	<-release
}

// produce writes records one batch each and returns the batches as the broker stores them.
func produce(t *testing.T, c *kfake.Cluster, topic string, partition int32, values ...string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, v := range values {
		if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v), Timestamp: stamp(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

var epochStart = time.UnixMilli(1_700_000_000_000)

// stamp gives the value "N…" the time N seconds after epochStart.
func stamp(v string) time.Time {
	var n int
	fmt.Sscanf(v, "%d", &n)
	return epochStart.Add(time.Duration(n) * time.Second)
}

func fetcherOf(t *testing.T, s *Source, broker int32, o mirror.FetchOptions) mirror.Fetcher {
	t.Helper()
	f, err := s.OpenFetcher(t.Context(), broker, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func topicOf(t *testing.T, s *Source, name string) mirror.SourceTopic {
	t.Helper()
	topics, err := s.Topics(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if len(topics) != 1 {
		t.Fatalf("topic %s: %d answers", name, len(topics))
	}
	return topics[0]
}

func position(topic mirror.SourceTopic, partition int32, offset int64) mirror.FetchPosition {
	return mirror.FetchPosition{
		TopicPartition: mirror.TopicPartition{Topic: topic.Name, Partition: partition}, TopicID: topic.ID,
		Offset: offset, LeaderEpoch: topic.Leaders[partition].LeaderEpoch, LastEpoch: -1,
	}
}

// fetchUntil fetches until a reply has partitions.
func fetchUntil(t *testing.T, f mirror.Fetcher) []mirror.FetchedPartition {
	t.Helper()
	for range 100 {
		got, err := f.Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(got) > 0 {
			return got
		}
	}
	t.Fatal("nothing fetched in 100 replies")
	return nil
}

// sourceError insists on a SourceError of a code, with advice if wanted.
func sourceError(t *testing.T, err error, code mirror.SourceCode, advice bool) *mirror.SourceError {
	t.Helper()
	var e *mirror.SourceError
	if !errors.As(err, &e) {
		t.Fatalf("not a SourceError: %v", err)
	}
	if e.Code != code {
		t.Fatalf("code %d, want %d: %v", e.Code, code, err)
	}
	if advice && e.Advice == "" {
		t.Fatalf("no advice: %v", err)
	}
	return e
}

// recorder keeps copies of the fetch requests that a cluster sees.
type recorder struct {
	mu       sync.Mutex
	requests []kmsg.FetchRequest
}

func recordFetches(c *kfake.Cluster) *recorder {
	r := &recorder{}
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests = append(r.requests, *req.(*kmsg.FetchRequest))
		return nil, nil, false
	})
	return r
}

func (r *recorder) all() []kmsg.FetchRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]kmsg.FetchRequest(nil), r.requests...)
}

func named(r kmsg.FetchRequest) int {
	n := 0
	for _, t := range r.Topics {
		n += len(t.Partitions)
	}
	return n
}

// TestSpec4FetchedBytesAreTheProducedBytes compares fetched batches with those that another client sent.
func TestSpec4FetchedBytesAreTheProducedBytes(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "t"))
	var sent [][]byte
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		for _, t := range req.(*kmsg.ProduceRequest).Topics {
			for _, p := range t.Partitions {
				sent = append(sent, bytes.Clone(p.Records))
			}
		}
		return nil, nil, false
	})
	produce(t, c, "t", 0, "1", "2", "3")
	s := openTo(t, c)
	topic := topicOf(t, s, "t")
	f := fetcherOf(t, s, topic.Leaders[0].Leader, mirror.FetchOptions{})
	f.Want(position(topic, 0, 0))
	got := fetchUntil(t, f)
	if len(got) != 1 || got[0].Err != nil || got[0].HighWatermark != 3 || got[0].LogStart != 0 || got[0].LastStable != 3 {
		t.Fatalf("%+v", got)
	}
	rest := got[0].Records
	for i, want := range sent {
		if len(rest) < len(want) {
			t.Fatalf("batch %d: %d bytes left, want %d", i, len(rest), len(want))
		}
		// The broker sets base offset (8 bytes) and leader epoch (4 bytes at 12); everything else is the producer's.
		if base := rest[7]; base != byte(i) {
			t.Errorf("batch %d: base offset %d", i, base)
		}
		if !bytes.Equal(rest[8:12], want[8:12]) || !bytes.Equal(rest[16:len(want)], want[16:]) {
			t.Errorf("batch %d differs from what was produced", i)
		}
		rest = rest[len(want):]
	}
	if len(sent) != 3 || len(rest) != 0 {
		t.Errorf("%d batches sent, %d bytes too many fetched", len(sent), len(rest))
	}
}

func TestIdleFetchNamesNoPartition(t *testing.T) {
	const partitions = 1000
	c := cluster(t, kfake.SeedTopics(partitions, "t"))
	seen := recordFetches(c)
	s := openTo(t, c)
	topic := topicOf(t, s, "t")
	f := fetcherOf(t, s, topic.Leaders[0].Leader, mirror.FetchOptions{MaxWait: 10 * time.Millisecond})
	for p := range int32(partitions) {
		f.Want(position(topic, p, 0))
	}
	for range 3 {
		if _, err := f.Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.Want(position(topic, 7, 0)) // no change
	if _, err := f.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	moved := position(topic, 7, 0)
	moved.MaxBytes = 5 << 20
	f.Want(moved)
	f.Forget(mirror.TopicPartition{Topic: "t", Partition: 8})
	if _, err := f.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, r := range seen.all() {
		got = append(got, named(r))
	}
	if fmt.Sprint(got) != "[1000 0 0 0 1]" {
		t.Fatalf("partitions named per request: %v", got)
	}
	last := seen.all()[4]
	if p := last.Topics[0].Partitions[0]; p.Partition != 7 || p.PartitionMaxBytes != 5<<20 {
		t.Errorf("changed partition: %+v", p)
	}
	if len(last.ForgottenTopics) != 1 || fmt.Sprint(last.ForgottenTopics[0].Partitions) != "[8]" {
		t.Errorf("forgotten: %+v", last.ForgottenTopics)
	}
	if first := seen.all()[0]; first.ReplicaID != -1 || first.IsolationLevel != 0 {
		t.Errorf("not a consumer's READ_UNCOMMITTED fetch: replica %d, isolation %d", first.ReplicaID, first.IsolationLevel)
	}
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func hostPort(address string) (string, int32) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	return host, int32(n)
}
