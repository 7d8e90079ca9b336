package kraft_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// countedListener is a listener that counts what passes through its connections.
type countedListener struct {
	net.Listener
	bytes atomic.Int64
}

func (l *countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{conn.(*net.TCPConn), l}, nil
}

func (l *countedListener) SetDeadline(t time.Time) error { return l.Listener.(*net.TCPListener).SetDeadline(t) }

type countedConn struct {
	*net.TCPConn
	listener *countedListener
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.listener.bytes.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.listener.bytes.Add(int64(n))
	return n, err
}

// readable joins with a listener for clients, and returns its address.
func readable(t *testing.T, c *kafkatest.Cluster, clients kraft.ClientListener, change ...func(*kraft.Config)) (*joined, *countedListener) {
	t.Helper()
	l := &countedListener{Listener: freeListener(t)}
	clients.Listener = l
	return join(t, c, append(change, func(cfg *kraft.Config) { cfg.Clients = &clients })...), l
}

// fill appends batches of records of about 1 KiB each.
func fill(t *testing.T, l mirror.Log, batches, records int) {
	t.Helper()
	for range batches {
		appendTo(t, l, data(l.End(), l.LeaderEpoch(), records, strings.Repeat("x", 1000)))
	}
	await(t, l)
}

// consume reads n records with franz-go.
func consume(t *testing.T, n int, options ...kgo.Opt) []*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(options...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	return consumeWith(t, cl, n)
}

func consumeWith(t *testing.T, cl *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx := bound(t)
	var got []*kgo.Record
	for len(got) < n {
		fetches := cl.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			t.Fatalf("after %d of %d records: %s-%d: %v", len(got), n, e.Topic, e.Partition, e.Err)
		}
		got = append(got, fetches.Records()...)
	}
	return got
}

// TestRealKafkaReadable: mirrored topics are read while they are mirrored, by clients that know this process alone, and no record passes through it.
func TestRealKafkaReadable(t *testing.T) {
	c := kafkatest.Shared(t)
	j, through := readable(t, c, kraft.ClientListener{Name: "CLIENT"})
	node := through.Addr().String()
	const topic, batches, records = "readable", 40, 50
	j.create(topic, 2)
	for p := range int32(2) {
		fill(t, j.open(topic, p), batches, records)
	}
	const all, size = 2 * batches * records, 2 * batches * records * 1000

	before := through.bytes.Load()
	got := consume(t, all, kgo.SeedBrokers(node), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if passed := through.bytes.Load() - before; passed > size/20 {
		t.Errorf("%d bytes passed through this process for %d bytes of records", passed, size)
	}
	if len(got) != all {
		t.Errorf("%d records of %d", len(got), all)
	}
}
