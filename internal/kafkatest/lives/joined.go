package lives

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// NodeID is the node id of the process that joins.
const NodeID = 9999

// Limited is a context that ends with Bound, or with the test.
func Limited(t testing.TB) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), Bound)
	t.Cleanup(stop)
	return ctx
}

// Joined is a process that has joined a cluster, with the store that it keeps there.
type Joined struct {
	*kraft.Destination
	// Cluster is what it has joined, Store what it keeps there, Address where it serves the brokers.
	Cluster *kafkatest.Cluster
	Store   *kafkastore.Store
	Address string

	t    testing.TB
	gone bool

	mu     sync.Mutex
	events []kraft.Event
}

// Join joins a cluster. What the process keeps is in that cluster. When the test ends it leaves, if it leads nothing.
func Join(t testing.TB, c *kafkatest.Cluster, change ...func(*kraft.Config)) *Joined {
	t.Helper()
	j := &Joined{t: t, Cluster: c}
	brokers := len(c.Brokers())
	var err error
	// The store's topics come first: they must not be placed on the process that joins.
	if j.Store, err = kafkastore.Open(Limited(t), kafkastore.Config{Seeds: c.Bootstrap(), StatePartitions: 3, ReplicationFactor: int16(brokers)}); err != nil {
		t.Fatal(err)
	}
	first, err := j.Store.Open(Limited(t), "topics are made")
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
	j.Address = listener.Addr().String()
	cfg := kraft.Config{
		NodeID: NodeID, Controllers: c.ControllerAddresses(), Listener: listener, Folder: t.TempDir(), Remember: j.Store, ReplicationFactor: brokers,
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
	if j.Destination, err = kraft.Join(Limited(t), cfg); err != nil {
		t.Fatalf("join: %v", err)
	}
	t.Cleanup(j.End)
	return j
}

// End ends the process if the test has not; if the test failed it shows what was noticed.
func (j *Joined) End() {
	if j.t.Failed() {
		for _, e := range j.Noticed() {
			j.t.Logf("noticed: %v %v %s %v", e.Kind, e.Partition, e.Text, e.Err)
		}
	}
	j.Leave()
}

// Die ends the process without a word to the cluster.
func (j *Joined) Die() {
	j.t.Helper()
	j.gone = true
	if err := errors.Join(j.Destination.Close(), j.Store.Close()); err != nil {
		j.t.Errorf("closing: %v", err)
	}
}

// Leave ends the process. Topics that it still leads are deleted first: the cluster goes on without it.
func (j *Joined) Leave() {
	j.t.Helper()
	if j.gone {
		return
	}
	j.gone = true
	ctx, stop := context.WithTimeout(context.Background(), Bound)
	defer stop()
	listed, err := j.Cluster.Admin().ListTopics(ctx)
	if err != nil {
		j.t.Errorf("topics: %v", err)
	}
	var led []string
	for _, topic := range listed.Sorted() {
		for _, p := range topic.Partitions {
			for _, id := range p.Replicas {
				if id == NodeID && (len(led) == 0 || led[len(led)-1] != topic.Topic) {
					led = append(led, topic.Topic)
				}
			}
		}
	}
	if len(led) > 0 {
		if _, err := j.Cluster.Admin().DeleteTopics(ctx, led...); err != nil {
			j.t.Errorf("deleting %v: %v", led, err)
		}
	}
	for {
		err = j.Destination.Leave(ctx)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "still has") {
			break
		}
	}
	if err != nil {
		j.t.Errorf("leaving: %v", err)
	}
	if err := errors.Join(j.Destination.Close(), j.Store.Close()); err != nil {
		j.t.Errorf("closing: %v", err)
	}
}

// NoTrace: after the process has left, the cluster's own brokers have all replicas of the topics, in sync, and no setting of theirs is left behind.
func NoTrace(t testing.TB, c *kafkatest.Cluster, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		listed, err := c.Admin().ListTopics(Limited(t), topic)
		if err != nil {
			t.Fatal(err)
		}
		for p := range listed[topic].Partitions {
			c.WaitISR(topic, p, c.Brokers()...)
		}
	}
	all, err := c.Admin().DescribeTopicConfigs(Limited(t), topics...)
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
	resp, err := Ask[*kmsg.DescribeClusterResponse](t, c, c.Brokers()[0], req)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range resp.Brokers {
		if b.NodeID == NodeID {
			t.Errorf("broker %d is still registered", NodeID)
		}
	}
}

// Noticed are the events of some kinds so far; of all kinds if none is named.
func (j *Joined) Noticed(kinds ...kraft.EventKind) []kraft.Event {
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
