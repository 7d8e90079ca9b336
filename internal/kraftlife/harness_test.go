package kraftlife_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/statemachine"
)

const nodeID = 9999

func limited(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), bound)
	t.Cleanup(stop)
	return ctx
}

// joined is a process that has joined a cluster, with the store that it keeps there.
type joined struct {
	*kraft.Destination
	t     *testing.T
	c     *kafkatest.Cluster
	store *kafkastore.Store
	// address is where the process serves the brokers.
	address string
	gone    bool

	mu     sync.Mutex
	events []kraft.Event
}

// join joins a cluster. What the process keeps is in that cluster. When the test ends it leaves, if it leads nothing.
func join(t *testing.T, c *kafkatest.Cluster, change ...func(*kraft.Config)) *joined {
	t.Helper()
	j := &joined{t: t, c: c}
	brokers := len(c.Brokers())
	var err error
	// The store's topics come first: they must not be placed on the process that joins.
	if j.store, err = kafkastore.Open(limited(t), kafkastore.Config{Seeds: c.Bootstrap(), StatePartitions: 3, ReplicationFactor: int16(brokers)}); err != nil {
		t.Fatal(err)
	}
	first, err := j.store.Open(limited(t), "topics are made")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j.address = listener.Addr().String()
	cfg := kraft.Config{
		NodeID: nodeID, Controllers: c.ControllerAddresses(), Listener: listener, Folder: t.TempDir(), Remember: j.store, ReplicationFactor: brokers,
		MinInSyncReplicas: min(2, brokers),
		Notice: func(e kraft.Event) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.events = append(j.events, e)
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	if j.Destination, err = kraft.Join(limited(t), cfg); err != nil {
		t.Fatalf("join: %v", err)
	}
	t.Cleanup(j.end)
	return j
}

func (j *joined) end() {
	if j.t.Failed() {
		for _, e := range j.noticed() {
			j.t.Logf("noticed: %v %v %s %v", e.Kind, e.Partition, e.Text, e.Err)
		}
	}
	j.leave()
}

// die ends the process without a word to the cluster.
func (j *joined) die() {
	j.t.Helper()
	j.gone = true
	if err := errors.Join(j.Destination.Close(), j.store.Close()); err != nil {
		j.t.Errorf("closing: %v", err)
	}
}

// leave ends the process. Topics that it still leads are deleted first: the cluster goes on without it.
func (j *joined) leave() {
	j.t.Helper()
	if j.gone {
		return
	}
	j.gone = true
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	listed, err := j.c.Admin().ListTopics(ctx)
	if err != nil {
		j.t.Errorf("topics: %v", err)
	}
	var led []string
	for _, topic := range listed.Sorted() {
		for _, p := range topic.Partitions {
			for _, id := range p.Replicas {
				if id == nodeID && (len(led) == 0 || led[len(led)-1] != topic.Topic) {
					led = append(led, topic.Topic)
				}
			}
		}
	}
	if len(led) > 0 {
		if _, err := j.c.Admin().DeleteTopics(ctx, led...); err != nil {
			j.t.Errorf("deleting %v: %v", led, err)
		}
	}
	for {
		err = j.Leave(ctx)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "still has") {
			break
		}
	}
	if err != nil {
		j.t.Errorf("leaving: %v", err)
	}
	if err := errors.Join(j.Destination.Close(), j.store.Close()); err != nil {
		j.t.Errorf("closing: %v", err)
	}
}

// noTrace: after the process has left, the cluster's own brokers have all replicas of the topics, in sync, and no setting of theirs is left behind.
func noTrace(t *testing.T, c *kafkatest.Cluster, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		listed, err := c.Admin().ListTopics(limited(t), topic)
		if err != nil {
			t.Fatal(err)
		}
		for p := range listed[topic].Partitions {
			c.WaitISR(topic, p, c.Brokers()...)
		}
	}
	all, err := c.Admin().DescribeTopicConfigs(limited(t), topics...)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range all {
		for _, x := range topic.Configs {
			if x.Source == kmsg.ConfigSourceDynamicTopicConfig && (x.Key == "min.insync.replicas" || x.Key == "unclean.leader.election.enable") {
				t.Errorf("topic %s has %s=%s for itself", topic.Name, x.Key, x.MaybeValue())
			}
		}
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers = true
	resp, err := lives.Ask[*kmsg.DescribeClusterResponse](t, c, c.Brokers()[0], req)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range resp.Brokers {
		if b.NodeID == nodeID {
			t.Errorf("broker %d is still registered", nodeID)
		}
	}
}

func (j *joined) noticed(kinds ...kraft.EventKind) []kraft.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	var some []kraft.Event
	for _, e := range j.events {
		wanted := len(kinds) == 0
		for _, k := range kinds {
			wanted = wanted || e.Kind == k
		}
		if wanted {
			some = append(some, e)
		}
	}
	return some
}

// running is a mirror between two real clusters, with everything it told.
type running struct {
	*mirror.Mirror
	t    *testing.T
	from *kafkatest.Cluster
	to   *joined
	link *lives.Link
	cfg  mirror.Config
	done bool
	sink *dropped

	mu     sync.Mutex
	events []mirror.Event
}

// open starts a mirror of a cluster into the one that was joined; from is nil where change names another source. It is closed when the test ends.
func open(t *testing.T, name string, from *kafkatest.Cluster, to *joined, change ...func(*mirror.Config)) *running {
	t.Helper()
	r := &running{t: t, from: from, to: to, link: lives.NewLink(), sink: &dropped{}}
	r.cfg = mirror.Config{
		Name: name, Owner: name, Destination: to, Store: keyedlog.NewStateStore(to.store), Control: mirror.NewControl(to.store), Sink: r.sink,
		RefreshInterval: 500 * time.Millisecond, FetchBackoff: 100 * time.Millisecond, CallBound: 10 * time.Second, Fetch: mirror.FetchOptions{MaxWait: 100 * time.Millisecond},
		Retry: mirror.RetryPolicy{Initial: 200 * time.Millisecond, Max: time.Second}, Seed: 1,
		OnEvent: func(e mirror.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		},
	}
	for _, f := range change {
		f(&r.cfg)
	}
	var err error
	if r.cfg.Source == nil {
		if r.cfg.Source, err = kafkasource.New(kafkasource.Config{Seeds: from.Bootstrap(), Bound: 3 * time.Second, ClientOptions: []kgo.Opt{kgo.Dialer(r.link.Dial)}}); err != nil {
			t.Fatal(err)
		}
	}
	if r.Mirror, err = mirror.Open(limited(t), r.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	return r
}

func (r *running) end() {
	if r.done {
		return
	}
	r.done = true
	if err := errors.Join(r.Close(), r.cfg.Source.Close()); err != nil {
		r.t.Errorf("closing: %v", err)
	}
	if r.t.Failed() {
		for _, e := range r.told() {
			r.t.Logf("%s %v", e.Where().Time.Format("05.000"), e)
		}
	}
}

func (r *running) told() []mirror.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]mirror.Event(nil), r.events...)
}

func (r *running) start(topics ...string) {
	r.t.Helper()
	if _, err := r.Admin().Start(limited(r.t), topics, mirror.StartOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) pause(topic string) {
	r.t.Helper()
	if _, err := r.Admin().Pause(limited(r.t), []string{topic}, mirror.PauseOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.until("paused", topic, 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Paused })
}

func (r *running) resume(topic string) {
	r.t.Helper()
	if _, err := r.Admin().Resume(limited(r.t), []string{topic}, mirror.ResumeOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) failover() mirror.FailoverReport {
	r.t.Helper()
	report, err := r.Failover(limited(r.t), mirror.FailoverOptions{})
	r.t.Log(report)
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

// failback plans, and does what was planned.
func (r *running) failback(topics ...string) mirror.FailbackPlan {
	r.t.Helper()
	plan, err := r.PlanFailback(limited(r.t), topics...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Log(plan)
	report, err := r.ExecuteFailback(limited(r.t), plan)
	r.t.Log(report)
	if err != nil {
		r.t.Fatal(err)
	}
	return plan
}

// until waits for one partition.
func (r *running) until(what, topic string, partition int32, ok func(mirror.PartitionStatus) bool) mirror.PartitionStatus {
	r.t.Helper()
	var p mirror.PartitionStatus
	lives.Eventually(r.t, what, func() (bool, string) {
		s := r.Status()
		p = lives.One(s, topic, partition)
		return ok(p), lives.Show(s)
	})
	return p
}

// inStep waits until the copy of a partition ends at end, enough brokers have it, and nothing is missing.
func (r *running) inStep(topic string, partition int32, end int64) mirror.PartitionStatus {
	r.t.Helper()
	return r.until(fmt.Sprintf("%s-%d is copied up to %d", topic, partition, end), topic, partition, func(p mirror.PartitionStatus) bool {
		return p.State == statemachine.Mirroring && p.End == end && p.Replicated == end && p.LagOffsets == 0 && p.SourceEnd == end
	})
}

func (r *running) untilFailed(topic string, words ...string) mirror.PartitionStatus {
	r.t.Helper()
	p := r.until("failed", topic, 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Failed })
	for _, w := range words {
		if !strings.Contains(p.Reason, w) {
			r.t.Errorf("the reason %q does not say %q", p.Reason, w)
		}
	}
	return p
}

// dropped is a Sink that keeps what it is handed, by partition.
type dropped struct {
	mu      sync.Mutex
	ranges  map[mirror.TopicPartition][2]int64
	batches map[mirror.TopicPartition][]byte
}

func (d *dropped) Dropped(_ context.Context, tp mirror.TopicPartition, from, to int64, batches []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ranges == nil {
		d.ranges, d.batches = map[mirror.TopicPartition][2]int64{}, map[mirror.TopicPartition][]byte{}
	}
	d.ranges[tp] = [2]int64{from, to}
	d.batches[tp] = append(d.batches[tp], batches...)
	return nil
}

// of is what was dropped of a partition.
func (d *dropped) of(topic string, partition int32) (from, to int64, batches []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tp := mirror.TopicPartition{Topic: topic, Partition: partition}
	return d.ranges[tp][0], d.ranges[tp][1], d.batches[tp]
}
