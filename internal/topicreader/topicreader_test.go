package topicreader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requests counts what a client asks, by the name of the API.
type requests struct {
	mu sync.Mutex
	n  map[string]int
}

func (r *requests) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == nil {
		r.n = make(map[string]int)
	}
	r.n[kmsg.NameForKey(key)]++
}

// since returns the counts and begins anew. What a new connection asks first is not counted.
func (r *requests) since() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.n, "ApiVersions")
	s := fmt.Sprint(r.n)
	r.n = nil
	return s
}

func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func client(t *testing.T, seeds []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(), kgo.RequestRetries(1),
		kgo.MetadataMinAge(20 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func produce(t *testing.T, cl *kgo.Client, topic string, partition int32, values ...string) {
	t.Helper()
	for _, v := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Key: []byte("k-" + v), Value: []byte(v)}
		r.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte(v)}}
		if v == "" {
			r.Value = nil
		}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// read reads to the end and returns "topic-partition@offset=value" of each record.
func read(t *testing.T, r *Reader) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got := make(map[string]string)
	if err := r.ReadToEnd(ctx, func(k Record) { got[fmt.Sprintf("%s-%d@%d", k.Topic, k.Partition, k.Offset)] = string(k.Value) }); err != nil {
		t.Fatal(err)
	}
	return got
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func TestReadToEndGoesOnFromItsPositions(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "a"), kfake.SeedTopics(1, "b"))
	cl := client(t, c.ListenAddrs())
	produce(t, cl, "a", 0, "x", "y")
	produce(t, cl, "a", 3, "z")
	produce(t, cl, "b", 0, "")
	r := New(cl, "b", "a", "a")
	same(t, "positions before", []int64{r.Total(), int64(r.Partitions("a"))}, []int64{0, 0})
	same(t, "first", read(t, r), map[string]string{"a-0@0": "x", "a-0@1": "y", "a-3@0": "z", "b-0@0": ""})
	same(t, "second", read(t, r), map[string]string{})
	produce(t, cl, "a", 3, "w")
	same(t, "third", read(t, r), map[string]string{"a-3@1": "w"})
	same(t, "positions", []int64{r.Total(), int64(r.Partitions("a")), r.Next("a", 3), r.Next("a", 1), r.Next("a", 9), r.Next("none", 0)}, []int64{5, 4, 2, 0, 0, 0})
	err := r.ReadToEnd(t.Context(), func(Record) { t.Error("a record that is not there") })
	if err != nil {
		t.Fatal(err)
	}
	var last Record
	if err := New(cl, "a").ReadToEnd(t.Context(), func(k Record) { last = k }); err != nil {
		t.Fatal(err)
	}
	h, ok := last.Header("h")
	if !ok || string(h) != string(last.Value) || string(last.Key) != "k-"+string(last.Value) || last.Timestamp.IsZero() {
		t.Errorf("record %+v, header %q", last, h)
	}
	if _, ok := last.Header("none"); ok {
		t.Error("a header that is not there")
	}
	r = New(cl, "b")
	if err := r.ReadToEnd(t.Context(), func(k Record) {
		if k.Value != nil {
			t.Errorf("a tombstone has value %q", k.Value)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// One request of each kind for each broker, whatever the number of partitions; where nothing is new no Fetch.
func TestRequestsGrowWithBrokersOnly(t *testing.T) {
	c := fake(t, kfake.NumBrokers(2), kfake.SeedTopics(40, "a"), kfake.SeedTopics(10, "b"))
	writer := client(t, c.ListenAddrs())
	for p := range int32(40) {
		produce(t, writer, "a", p, "v")
	}
	var n requests
	r := New(client(t, c.ListenAddrs(), kgo.WithHooks(&n)), "a", "b")
	if err := r.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first := n.since(); !strings.HasPrefix(first, "map[Metadata:") { // of one broker, and of the next one beside it while that one is silent
		t.Errorf("first look: %s", first)
	}
	if got := len(read(t, r)); got != 40 {
		t.Fatalf("%d records", got)
	}
	same(t, "first read", n.since(), "map[Fetch:2 ListOffsets:2]")
	read(t, r)
	same(t, "idle read", n.since(), "map[ListOffsets:2]")
	produce(t, writer, "a", 7, "w")
	if got := len(read(t, r)); got != 1 {
		t.Fatalf("%d records", got)
	}
	same(t, "one record", n.since(), "map[Fetch:1 ListOffsets:2]")
}

func TestLeaderChanges(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(2, "a"))
	cl := client(t, c.ListenAddrs())
	r := New(cl, "a")
	if err := r.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, "looked", []any{r.Partitions("a"), r.Total(), r.Leader("a", 2), r.Leader("none", 0)}, []any{2, 0, -1, -1})
	produce(t, cl, "a", 0, "x")
	same(t, "before", read(t, r), map[string]string{"a-0@0": "x"})
	for i := range int32(3) {
		if err := c.MoveTopicPartition("a", 0, i); err != nil {
			t.Fatal(err)
		}
		v := fmt.Sprint("v", i)
		produce(t, cl, "a", 0, v)
		same(t, "after", read(t, r), map[string]string{fmt.Sprintf("a-0@%d", i+1): v})
		same(t, "leader", r.Leader("a", 0), i)
	}
	if err := c.MoveTopicPartition("a", 1, (r.Leader("a", 1)+1)%3); err != nil {
		t.Fatal(err)
	}
	before := r.Leader("a", 1)
	r.Forget()
	if err := r.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, "leader asked for anew", r.Leader("a", 1), (before+1)%3)
}

func TestMissingTopics(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "a"))
	cl := client(t, c.ListenAddrs())
	produce(t, cl, "a", 0, "x")
	var missing *MissingError
	if err := New(cl, "a", "b").ReadToEnd(t.Context(), func(Record) {}); !errors.As(err, &missing) || missing.Topic != "b" {
		t.Fatalf("%v", err)
	}
	r := New(cl, "a", "b").MissingIsEmpty()
	same(t, "without b", read(t, r), map[string]string{"a-0@0": "x"})
	same(t, "partitions", r.Partitions("b"), 0)
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 2, 1, nil, "b"); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, "b", 1, "y")
	same(t, "with b", read(t, r), map[string]string{"b-1@0": "y"})
	if _, err := kadm.NewClient(cl).DeleteTopics(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 2, 1, nil, "b"); err != nil {
		t.Fatal(err)
	}
	var replaced *ReplacedError
	if err := r.ReadToEnd(t.Context(), func(Record) {}); !errors.As(err, &replaced) || replaced.Topic != "b" {
		t.Fatalf("%v", err)
	}
}

func TestPartitionsThatAreAdded(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
	cl := client(t, c.ListenAddrs())
	r := New(cl, "a")
	read(t, r)
	if _, err := kadm.NewClient(cl).CreatePartitions(t.Context(), 3, "a"); err != nil {
		t.Fatal(err)
	}
	r.Forget()
	var grown *PartitionsError
	if err := r.ReadToEnd(t.Context(), func(Record) {}); !errors.As(err, &grown) || *grown != (PartitionsError{Topic: "a", Had: 2, Has: 5}) {
		t.Fatalf("%v", err)
	}
}

func TestLogStartMoves(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := client(t, c.ListenAddrs())
	produce(t, cl, "a", 0, "x", "y", "z")
	r := New(cl, "a")
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: "a", Partition: 0, At: 2})
	if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	same(t, "from the log's start", read(t, r), map[string]string{"a-0@2": "z"})
}

func TestLogThatGotShorter(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := client(t, c.ListenAddrs())
	produce(t, cl, "a", 0, "x", "y", "z")
	r := New(cl, "a")
	read(t, r)
	answerOffset(c, 0, 1)
	var replaced *ReplacedError
	if err := r.ReadToEnd(t.Context(), func(Record) {}); !errors.As(err, &replaced) || *replaced != (ReplacedError{Topic: "a", Next: 3, End: 1}) {
		t.Fatalf("%v", err)
	}
}

// answerOffset answers the next ListOffsets.
func answerOffset(c *kfake.Cluster, code int16, offset int64) {
	c.ControlKey(int16(kmsg.ListOffsets), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.ListOffsetsRequest)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, rt := range req.Topics {
			t := kmsg.NewListOffsetsResponseTopic()
			t.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Partition, p.ErrorCode, p.Offset = rp.Partition, code, offset
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, true
	})
}

// A new leader that does not know yet what was acknowledged says so, and is asked again (KIP-207).
func TestOffsetsThatAreNotReadyAreAskedForAgain(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := client(t, c.ListenAddrs())
	produce(t, cl, "a", 0, "x")
	answerOffset(c, kerr.OffsetNotAvailable.Code, -1)
	same(t, "read", read(t, New(cl, "a")), map[string]string{"a-0@0": "x"})
}

func TestRightsThatLack(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := client(t, c.ListenAddrs())
	produce(t, cl, "a", 0, "x")
	denied := func(right string) {
		t.Helper()
		var access *AccessError
		err := New(cl, "a").ReadToEnd(t.Context(), func(Record) { t.Error("read without the right") })
		if !errors.As(err, &access) || access.Topic != "a" || access.Right != right || !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("%v", err)
		}
	}
	answerOffset(c, kerr.TopicAuthorizationFailed.Code, -1)
	denied("DESCRIBE")
	c.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		p := kmsg.NewFetchResponseTopicPartition()
		p.ErrorCode = kerr.TopicAuthorizationFailed.Code
		t.Partitions = append(t.Partitions, p)
		resp.Topics = append(resp.Topics, t)
		return resp, nil, true
	})
	denied("READ")
}

func TestContextEndsAReadWithoutABroker(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := client(t, c.ListenAddrs(), kgo.DialTimeout(50*time.Millisecond))
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var wait *WaitError
	if err := New(cl, "a").ReadToEnd(ctx, func(Record) {}); !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// waiting runs Wait in the background.
func waiting(t *testing.T, r *Reader) <-chan error {
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	go func() { done <- r.Wait(ctx) }()
	return done
}

func TestWaitReturnsWithSomethingNew(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "a"))
	cl := client(t, c.ListenAddrs())
	produce(t, cl, "a", 0, "x")
	r := New(client(t, c.ListenAddrs()), "a", "b").MissingIsEmpty()
	if err := <-waiting(t, r); err != nil {
		t.Fatal(err)
	}
	if err := r.SkipToEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	for p := range int32(3) {
		done := waiting(t, r)
		produce(t, cl, "a", p, "y")
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := r.SkipToEnd(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	done := waiting(t, r)
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "b"); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, "b", 0, "z")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	same(t, "positions", r.Next("b", 0), 0)
}

// A broker that comes back tells of its partitions before it leads them. Wait asks again until somebody does.
func TestWaitSeesTheEndOfAnElection(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	cl := client(t, c.ListenAddrs())
	r := New(client(t, c.ListenAddrs()), "a")
	if err := r.SkipToEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	for p := range r.all {
		p.leader = -1 // as the broker said it then
	}
	done := waiting(t, r)
	produce(t, cl, "a", 0, "x")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
