package kraft_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/clustermirror/internal/batch"
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

func (l *countedListener) SetDeadline(t time.Time) error {
	return l.Listener.(*net.TCPListener).SetDeadline(t)
}

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

// tool runs one of Kafka's own command line tools.
func tool(t *testing.T, input, class string, args ...string) (string, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 40*time.Second)
	defer stop()
	cmd := toolCommand(t, ctx, class, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func toolCommand(t *testing.T, ctx context.Context, class string, args ...string) *exec.Cmd {
	t.Helper()
	libs, err := kafkatest.Libs(kafkatest.DefaultVersion)
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(ctx, "java", append([]string{"-cp", libs + "/*", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "org.apache.kafka.tools." + class}, args...)...)
}

// output is what a program has printed so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// startTool starts one of Kafka's own command line tools. It ends with the test.
func startTool(t *testing.T, class string, args ...string) *output {
	t.Helper()
	cmd, out := toolCommand(t, t.Context(), class, args...), new(output)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // its context has ended
		if t.Failed() {
			t.Logf("%s printed:\n%.4000s", class, strings.ReplaceAll(out.String(), strings.Repeat("x", 1000), "x"))
		}
	})
	return out
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

// readOnlyText is what producers are told.
const readOnlyText = "read-only here until its mirror is stopped"

// refusedAtOnce sends one record and expects the refusal long before a delivery timeout.
func refusedAtOnce(t *testing.T, topic string, options ...kgo.Opt) {
	t.Helper()
	cl, err := kgo.NewClient(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	refusedTo(t, cl, topic)
}

func refusedTo(t *testing.T, cl *kgo.Client, topic string) {
	t.Helper()
	began := time.Now()
	_, err := cl.ProduceSync(bound(t), &kgo.Record{Topic: topic, Value: []byte("x")}).First()
	if took := time.Since(began); !errors.Is(err, kerr.PolicyViolation) || took > 20*time.Second {
		t.Errorf("after %s: %v", took, err)
	}
}

// refusedInTransaction is the same in a transaction. It is aborted, and the producer's next one, to a topic of the cluster's own, goes on.
func refusedInTransaction(t *testing.T, topic, own string, options ...kgo.Opt) {
	t.Helper()
	cl, err := kgo.NewClient(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	refusedTo(t, cl, topic)
	if err := cl.EndTransaction(bound(t), kgo.TryAbort); err != nil {
		t.Fatalf("aborting the transaction: %v", err)
	}
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if _, err := cl.ProduceSync(bound(t), &kgo.Record{Topic: own, Value: []byte("own")}).First(); err != nil {
		t.Errorf("the next transaction: %v", err)
	}
	if err := cl.EndTransaction(bound(t), kgo.TryCommit); err != nil {
		t.Errorf("committing the next transaction: %v", err)
	}
}

// TestRealKafkaReadable: mirrored topics are read while they are mirrored, by clients that know this process alone, and no record passes through it. Producers fail at once. A group goes on over the failover.
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
	// small says that f moves the records, and this process not a twentieth of them.
	small := func(what string, f func()) {
		t.Helper()
		before := through.bytes.Load()
		f()
		passed := through.bytes.Load() - before
		t.Logf("%s: %d bytes through this process, %d bytes of records", what, passed, size)
		if passed > size/20 {
			t.Errorf("%s: %d bytes passed through this process for %d bytes of records", what, passed, size)
		}
	}

	small("franz-go", func() {
		consume(t, all, kgo.SeedBrokers(node), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	})
	small("Java, a group", func() {
		out, err := tool(t, "", "consumer.ConsoleConsumer", "--bootstrap-server", node, "--topic", topic, "--from-beginning", "--max-messages", fmt.Sprint(all), "--timeout-ms", "20000", "--group", "readable-java")
		if n := strings.Count(out, "xxxx-"); err != nil || n != all {
			t.Errorf("%d of %d records: %v\n%.2000s", n, all, err, strings.ReplaceAll(out, strings.Repeat("x", 1000), "x"))
		}
	})
	small("Java, read_committed", func() {
		out, err := tool(t, "", "consumer.ConsoleConsumer", "--bootstrap-server", node, "--topic", topic, "--partition", "1", "--offset", "earliest", "--isolation-level", "read_committed", "--max-messages", fmt.Sprint(all/2), "--timeout-ms", "20000")
		if n := strings.Count(out, "xxxx-"); err != nil || n != all/2 {
			t.Errorf("%d of %d records: %v\n%.2000s", n, all/2, err, strings.ReplaceAll(out, strings.Repeat("x", 1000), "x"))
		}
	})

	t.Run("producers", func(t *testing.T) {
		began := time.Now()
		out, err := tool(t, "one record\n", "ConsoleProducer", "--bootstrap-server", node, "--topic", topic)
		if took := time.Since(began); took > 30*time.Second || !strings.Contains(out, readOnlyText) || !strings.Contains(out, "PolicyViolation") {
			t.Errorf("after %s: %v\n%s", took, err, out)
		}
		began = time.Now()
		out, err = tool(t, "", "ProducerPerformance", "--topic", topic, "--num-records", "1", "--record-size", "10", "--throughput", "-1", "--transactional-id", "readable-java", "--transaction-duration-ms", "1000", "--bootstrap-server", node)
		if took := time.Since(began); took > 30*time.Second || !strings.Contains(out, readOnlyText) {
			t.Errorf("transactional, after %s: %v\n%s", took, err, out)
		}
		refusedAtOnce(t, topic, kgo.SeedBrokers(node))
		refusedAtOnce(t, topic, kgo.SeedBrokers(node), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
		c.CreateTopic(kafkatest.Topic{Name: "readable-own", Replication: 3})
		refusedInTransaction(t, topic, "readable-own", kgo.SeedBrokers(node), kgo.TransactionalID("readable-franz"))
		refusedInTransaction(t, topic, "readable-own", kgo.SeedBrokers(node), kgo.TransactionalID("readable-franz-old"), kgo.MaxVersions(kversion.V3_5_0()))

		conn, err := net.Dial("tcp", node) // acks=0 is never answered; Kafka ends the connection instead
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.TimeoutMillis = 9, 5000
		pt := kmsg.NewProduceRequestTopic()
		pp := kmsg.NewProduceRequestTopicPartition()
		pt.Topic, pp.Records = topic, data(0, 0, 1, "x")
		pt.Partitions = append(pt.Partitions, pp)
		req.Topics = append(req.Topics, pt)
		if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a Produce with acks=0 gets %d bytes and %v", n, err)
		}
	})

	t.Run("admin", func(t *testing.T) {
		if out, err := tool(t, "", "TopicCommand", "--bootstrap-server", node, "--create", "--topic", "readable-made", "--partitions", "1", "--replication-factor", "2"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(node))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		admin := kadm.NewClient(cl)
		if _, err := admin.DeleteRecords(bound(t), kadm.Offsets{topic: {0: {Topic: topic, Partition: 0, At: 1}}}); !errors.Is(err, kerr.PolicyViolation) {
			got, err := admin.DeleteRecords(bound(t), kadm.Offsets{topic: {0: {Topic: topic, Partition: 0, At: 1}}})
			if err != nil || !errors.Is(got[topic][0].Err, kerr.PolicyViolation) {
				t.Errorf("DeleteRecords: %v, %v", got, err)
			}
		}
		dirs, err := admin.DescribeBrokerLogDirs(bound(t), nodeID, nil)
		if err != nil || len(dirs) > 0 {
			t.Errorf("this process has folders: %v, %v", dirs, err)
		}
	})

	t.Run("offsets", func(t *testing.T) { readableOffsets(t, j, node) })

	t.Run("failover", func(t *testing.T) {
		l := j.create("readable-over", 1)
		fill(t, l, 5, 10)
		cl, err := kgo.NewClient(kgo.SeedBrokers(node), kgo.ConsumerGroup("readable-franz"), kgo.ConsumeTopics("readable-over"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(200*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if got := consumeWith(t, cl, 50); len(got) != 50 {
			t.Errorf("%d records of 50", len(got))
		}
		if err := cl.CommitUncommittedOffsets(bound(t)); err != nil {
			t.Fatal(err)
		}
		java := startTool(t, "consumer.ConsoleConsumer", "--bootstrap-server", node, "--topic", "readable-over", "--from-beginning", "--group", "readable-java-over", "--max-messages", "55", "--command-property", "metadata.max.age.ms=300") // comes back here again and again
		eventually(t, "the Java group to have the first records", func() bool { return strings.Count(java.String(), "xxxx-") == 50 })
		if err := l.Open(bound(t)); err != nil {
			t.Fatal(err)
		}
		writer, err := kgo.NewClient(kgo.SeedBrokers(node), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		for i := range 5 {
			if _, err := writer.ProduceSync(bound(t), &kgo.Record{Topic: "readable-over", Value: fmt.Appendf(nil, "after-%d", i)}).First(); err != nil {
				t.Fatalf("a writer that knows this process alone, after the failover: %v", err)
			}
		}
		after := consumeWith(t, cl, 5)
		if len(after) != 5 || after[0].Offset != 50 || string(after[4].Value) != "after-4" {
			t.Errorf("the group went on with %d records from %d on", len(after), after[0].Offset)
		}
		eventually(t, "the Java group to go on", func() bool { return strings.Contains(java.String(), "after-4\nProcessed a total of 55 messages") })
	})

	t.Run("restart", func(t *testing.T) {
		l := j.open(topic, 0)
		end := l.End()
		cl, err := kgo.NewClient(kgo.SeedBrokers(node), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(end - 10)}}), kgo.MetadataMinAge(200*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		consumeWith(t, cl, 10)
		j.Close()
		cfg, clients := j.cfg, *j.cfg.Clients
		again := freeListener(t) // a client finds it by the metadata
		clients.Listener, cfg.Clients = again, &clients
		l = joinWith(t, c, cfg).open(topic, 0)
		if got := consume(t, 10, kgo.SeedBrokers(again.Addr().String()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(end - 10)}})); got[0].Offset != end-10 {
			t.Errorf("after the restart a consumer begins at %d, not %d", got[0].Offset, end-10)
		}
		fill(t, l, 1, 10)
		if got := consumeWith(t, cl, 10); got[0].Offset != end || len(got) != 10 {
			t.Errorf("after the restart the consumer goes on with %d records from %d on, not %d", len(got), got[0].Offset, end)
		}
	})
}

// readableOffsets: what ListOffsets and OffsetForLeaderEpoch say, with a transaction that is open.
func readableOffsets(t *testing.T, j *joined, node string) {
	const topic = "readable-offsets"
	l := j.create(topic, 1)
	base := time.Now().UnixMilli() - 100_000
	spec := func(offset int64, id int64, sequence int32, stamp int64) batch.DataSpec {
		d := batch.DataSpec{BaseOffset: offset, LeaderEpoch: l.LeaderEpoch(), ProducerID: id, BaseSequence: sequence, BaseTimestamp: stamp}
		if id < 0 {
			d.ProducerEpoch = -1
		}
		for i := range 5 {
			d.Records = append(d.Records, batch.Record{OffsetDelta: int32(i), TimestampDelta: int64(i), Value: fmt.Appendf(nil, "r%d", offset+int64(i))})
		}
		return d
	}
	appendTo(t, l, batch.AppendData(nil, spec(0, -1, -1, base)))
	open := spec(5, 70, 0, base+1000)
	open.Transactional = true
	appendTo(t, l, batch.AppendData(nil, open))
	appendTo(t, l, batch.AppendData(nil, spec(10, -1, -1, base+2000)))
	await(t, l)

	cl, err := kgo.NewClient(kgo.SeedBrokers(node), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	is := func(what string, want int64, list func() (kadm.ListedOffsets, error)) {
		t.Helper()
		var got kadm.ListedOffset
		eventually(t, fmt.Sprintf("%s to be %d", what, want), func() bool { // a follower learns of the high watermark, and of what is stable below it, with its next fetch
			listed, err := list()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			got, _ = listed.Lookup(topic, 0)
			return got.Err == nil && got.Offset == want
		})
	}
	is("the start", 0, func() (kadm.ListedOffsets, error) { return admin.ListStartOffsets(bound(t), topic) })
	is("the end", 15, func() (kadm.ListedOffsets, error) { return admin.ListEndOffsets(bound(t), topic) })
	is("the last stable offset", 5, func() (kadm.ListedOffsets, error) { return admin.ListCommittedOffsets(bound(t), topic) })
	is("a time", 10, func() (kadm.ListedOffsets, error) { return admin.ListOffsetsAfterMilli(bound(t), base+1500, topic) })
	is("the highest timestamp", 14, func() (kadm.ListedOffsets, error) { return admin.ListMaxTimestampOffsets(bound(t), topic) })

	committed := consume(t, 5, kgo.SeedBrokers(node), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if len(committed) != 5 {
		t.Errorf("read_committed read %d records before an open transaction of 5", len(committed))
	}
	appendTo(t, l, batch.AppendControl(nil, batch.ControlSpec{BaseOffset: 15, LeaderEpoch: l.LeaderEpoch(), ProducerID: 70, BaseSequence: -1, Transactional: true, Key: make([]byte, 4), Value: make([]byte, 6), Timestamp: base + 3000}))
	await(t, l)
	is("the last stable offset", 16, func() (kadm.ListedOffsets, error) { return admin.ListCommittedOffsets(bound(t), topic) })
	committed = consume(t, 10, kgo.SeedBrokers(node), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	for _, r := range committed {
		if r.Offset >= 5 && r.Offset < 10 {
			t.Errorf("read_committed read offset %d, which was aborted", r.Offset)
		}
	}

	req := kadm.OffsetForLeaderEpochRequest{}
	req.Add(topic, 0, l.LeaderEpoch())
	ends, err := admin.OffsetForLeaderEpoch(bound(t), req)
	if err != nil || ends[topic][0].Err != nil || ends[topic][0].EndOffset != 16 {
		t.Errorf("where the leader epoch ends: %+v, %v", ends, err)
	}
}
