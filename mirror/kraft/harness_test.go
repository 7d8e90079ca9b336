package kraft_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

const nodeID = 9999

// joined is a process that has joined a test's cluster.
type joined struct {
	*kraft.Destination
	t   *testing.T
	c   *kafkatest.Cluster
	cfg kraft.Config

	mu     sync.Mutex
	events []kraft.Event
}

// config is how a process joins c with the defaults of tests.
func config(t *testing.T, c *kafkatest.Cluster) kraft.Config {
	return kraft.Config{
		NodeID: nodeID, Controllers: c.ControllerAddresses(), Listen: "127.0.0.1:0", Folder: t.TempDir(), Remember: keyedlog.NewMemory(),
		ReplicationFactor: len(c.Brokers()), MinInSyncReplicas: min(2, len(c.Brokers())),
	}
}

func join(t *testing.T, c *kafkatest.Cluster, change ...func(*kraft.Config)) *joined {
	t.Helper()
	cfg := config(t, c)
	for _, f := range change {
		f(&cfg)
	}
	return joinWith(t, c, cfg)
}

func joinWith(t *testing.T, c *kafkatest.Cluster, cfg kraft.Config) *joined {
	t.Helper()
	j := &joined{t: t, c: c, cfg: cfg}
	notice := cfg.Notice
	cfg.Notice = func(e kraft.Event) {
		j.mu.Lock()
		j.events = append(j.events, e)
		j.mu.Unlock()
		if notice != nil {
			notice(e)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 40*time.Second)
	defer stop()
	d, err := kraft.Join(ctx, cfg)
	if err != nil {
		t.Fatalf("join: %v", err)
	}
	j.Destination = d
	t.Cleanup(func() {
		d.Close()
		if t.Failed() {
			for _, e := range j.seen() {
				t.Logf("event: %v %v %s", e.Kind, e.Partition, e.Text)
			}
		}
	})
	return j
}

func (j *joined) seen() []kraft.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.events)
}

// saw waits until an event of this kind was told.
func (j *joined) saw(kind kraft.EventKind) kraft.Event {
	j.t.Helper()
	var found kraft.Event
	eventually(j.t, fmt.Sprintf("an event %v", kind), func() bool {
		for _, e := range j.seen() {
			if e.Kind == kind {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

func bound(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(stop)
	return ctx
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(40 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// create makes a mirrored topic and returns its first log.
func (j *joined) create(name string, partitions int32) mirror.Log {
	j.t.Helper()
	if _, err := j.CreateTopic(bound(j.t), mirror.TopicSpec{Name: name, Partitions: partitions}); err != nil {
		j.t.Fatalf("create: %v", err)
	}
	return j.open(name, 0)
}

func (j *joined) open(topic string, p int32) mirror.Log {
	j.t.Helper()
	l, err := j.OpenLog(bound(j.t), mirror.TopicPartition{Topic: topic, Partition: p})
	if err != nil {
		j.t.Fatalf("open log: %v", err)
	}
	return l
}

// data is one batch of n records at an offset.
func data(offset int64, epoch int32, n int, text string) []byte {
	d := batch.DataSpec{BaseOffset: offset, LeaderEpoch: epoch, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, BaseTimestamp: time.Now().UnixMilli()}
	for i := range n {
		d.Records = append(d.Records, batch.Record{OffsetDelta: int32(i), Value: fmt.Appendf(nil, "%s-%d", text, i)})
	}
	return batch.AppendData(nil, d)
}

func appendTo(t *testing.T, l mirror.Log, b []byte) {
	t.Helper()
	if err := l.Append(bound(t), l.LeaderEpoch(), b); err != nil {
		t.Fatalf("append: %v", err)
	}
}

func await(t *testing.T, l mirror.Log) {
	t.Helper()
	if err := l.AwaitReplicated(bound(t), l.End()); err != nil {
		t.Fatalf("await replicated: %v", err)
	}
}

func freeListener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// produce writes one record after the other, as a client of the brokers' own listener for clients.
func produce(t *testing.T, c *kafkatest.Cluster, topic string, partition int32, values ...string) int64 {
	t.Helper()
	cl := c.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	last := int64(-1)
	for _, v := range values {
		r, err := cl.ProduceSync(bound(t), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}).First()
		if err != nil {
			t.Fatalf("produce to %s-%d: %v", topic, partition, err)
		}
		last = r.Offset
	}
	return last
}
