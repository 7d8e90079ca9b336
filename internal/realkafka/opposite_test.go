package realkafka_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// keptIn opens a store on the cluster's own topics, as a process that mirrors into the cluster does. The topics are deleted when the test ends: other tests may pause the
// brokers that lead them.
func keptIn(t *testing.T, c *kafkatest.Cluster) *kafkastore.Store {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		answers, err := c.Admin().DeleteTopics(ctx, kafkastore.Topics()...)
		for _, a := range answers {
			if a.Err != nil && !errors.Is(a.Err, kerr.UnknownTopicOrPartition) {
				err = errors.Join(err, a.Err)
			}
		}
		if err != nil {
			t.Errorf("deleting the store's topics: %v", err)
		}
	})
	s, err := kafkastore.Open(t.Context(), kafkastore.Config{Seeds: c.Bootstrap(), StatePartitions: 5})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return s
}

// sourceOf reads a cluster.
func sourceOf(t *testing.T, seeds ...string) *kafkasource.Source {
	t.Helper()
	s, err := kafkasource.New(kafkasource.Config{Seeds: seeds})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// standIn is memory in place of a real cluster's logs: with the cluster's id, and the topic with the id that it has there. It stands for the Kafka destination, so
// that all that a mirror records, and all that others read of that, is in the real cluster.
func standIn(t *testing.T, c *kafkatest.Cluster, topic string, id [16]byte) *memlog.Cluster {
	t.Helper()
	return inMemory(t, c.ID(), topic, id)
}

func inMemory(t *testing.T, clusterID, topic string, id [16]byte) *memlog.Cluster {
	t.Helper()
	m := memlog.New(memlog.Config{ClusterID: clusterID})
	t.Cleanup(func() { m.Close() })
	if _, err := m.CreateLocalTopic(memlog.LocalTopic{Name: topic, ID: id}); err != nil {
		t.Fatal(err)
	}
	return m
}

// between starts a mirror of any two clusters. Its states and its desired state are in store, or in memory where that is nil.
func between(t *testing.T, name string, source mirror.Source, dst *memlog.Cluster, store *kafkastore.Store) *running {
	t.Helper()
	r := &running{t: t, dst: dst}
	cfg := mirror.Config{
		Name: name, Owner: name, Source: source, Destination: dst, Store: dst.StateStore(), Control: dst.Control(), Sink: mirror.Discard, RefreshInterval: 500 * time.Millisecond,
		FetchBackoff: 100 * time.Millisecond, Fetch: mirror.FetchOptions{MaxWait: 100 * time.Millisecond},
		Retry: mirror.RetryPolicy{Initial: 200 * time.Millisecond, Max: time.Second}, Seed: 1,
		OnEvent: func(e mirror.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		},
	}
	if store != nil {
		cfg.Store, cfg.Control = keyedlog.NewStateStore(store), mirror.NewControl(store)
	}
	var err error
	if r.Mirror, err = mirror.Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("closing %s: %v", name, err)
		}
		if t.Failed() {
			for _, e := range r.told() {
				t.Logf("%s %v", e.Where().Time.Format("05.000"), e)
			}
		}
	})
	return r
}

func (r *running) stop(topic string) {
	r.t.Helper()
	if _, err := r.Admin().Stop(r.t.Context(), []string{topic}, mirror.StopOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.until("stopped", topic, 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
}

func rawLog(t *testing.T, c *memlog.Cluster, topic string) []byte {
	t.Helper()
	b, err := c.RawLog(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The old source returns to a real cluster that took over. That cluster's log begins with the very bytes that the mirror copied; where the mirror stopped is in the cluster's
// __mirror_state, written there by the mirror itself.
func TestF84FailbackFromARealPrimary(t *testing.T) {
	c := shared(t)
	topic := "f84-primary"
	id := c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	produceTens(t, c, topic, "on both", 100) // 0..999
	before := c.Describe(topic, 0)
	both := c.SegmentBytes(topic, 0, before.Leader)

	old := inMemory(t, "old source", topic, [16]byte{})
	if err := old.ImportLog(topic, 0, bytes.Clone(both), 0, before.LeaderEpoch); err != nil {
		t.Fatal(err)
	}
	store := keptIn(t, c)
	twin := standIn(t, c, topic, id)
	there := between(t, "a-to-b", old, twin, store)
	there.start(topic)
	there.inStep(topic, 0, 1000)
	if d := lives.Difference(rawLog(t, twin, topic), both); d != "" {
		t.Fatalf("the copy and the real log: %s", d)
	}

	source := sourceOf(t, c.Bootstrap()...)
	back := between(t, "back", source, old, nil)
	plan := func() mirror.FailbackPlan {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		p, err := back.PlanFailback(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Partitions) != 1 {
			t.Fatalf("%+v", p)
		}
		return p
	}
	loop := plan()
	if loop.Severity != mirror.SeverityRefused || len(loop.Consents()) != 0 || !strings.Contains(loop.String(), "detected mirror loop for mirror: a-to-b") {
		t.Errorf("while the mirror runs:\n%s", loop)
	}
	back.start(topic)
	back.untilFailed(topic, "detected mirror loop for mirror: a-to-b", "MIRRORING", "stop that mirror first")

	if got := there.failover().Partitions[0]; got.LME != before.LeaderEpoch || got.FinalOffset != 1000 {
		t.Fatalf("%+v", got)
	}
	writeTo(t, old, topic, lives.Values("never copied", 25)...) // 1000..1024

	// The real log goes on above the last mirror epoch, as the new primary's does.
	c.MoveLeader(topic, 0, before.Replicas[1])
	produceTens(t, c, topic, "new primary", 30) // 1000..1299

	p := plan()
	t.Log(p)
	if x := p.Partitions[0]; x.LME != mirror.KnownNumber(int64(before.LeaderEpoch)) || x.LMO != mirror.KnownNumber(1000) || x.CommonPoint != mirror.KnownNumber(1000) || p.Dropped != 25 {
		t.Fatalf("last mirror epoch %s, offset %s, common point %s, %d dropped; want %d, 1000, 1000 and 25", x.LME, x.LMO, x.CommonPoint, p.Dropped, before.LeaderEpoch)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done, err := back.ExecuteFailback(ctx, p)
	if err != nil {
		t.Fatalf("%v\n%s", err, done)
	}
	back.inStep(topic, 0, 1300)
	if d := lives.Difference(rawLog(t, old, topic), c.SegmentBytes(topic, 0, c.LeaderOf(topic, 0))); d != "" {
		t.Fatalf("after the failback: %s", d)
	}

	// The same name, another topic: its log was never mirrored, whatever is recorded for the one before.
	c.Admin().DeleteTopics(t.Context(), topic)
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	tp := mirror.TopicPartition{Topic: topic}
	found, err := source.LastMirrorEpochs(t.Context(), "old source", []mirror.TopicPartition{tp})
	if err != nil || len(found) != 0 {
		t.Errorf("of the topic before: %+v, %v", found, err)
	}
}

// Two real clusters, one topic, both directions.
func TestF71OppositeDirectionsBetweenRealClusters(t *testing.T) {
	a, b := rough(t), shared(t)
	topic := "f71-orders"
	idA := a.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	idB := b.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	storeA, storeB := keptIn(t, a), keptIn(t, b)
	atA, atB := standIn(t, a, topic, idA), standIn(t, b, topic, idB)
	lives.Produce(t, lives.Client(a), topic, 0, lives.Values("of A", 3)...)

	there := between(t, "a-to-b", sourceOf(t, a.Bootstrap()...), atB, storeB)
	there.start(topic)
	there.inStep(topic, 0, 3)
	back := between(t, "b-to-a", sourceOf(t, b.Bootstrap()...), atA, storeA)
	back.start(topic)
	p := back.untilFailed(topic, "detected mirror loop for mirror: a-to-b", topic+"-0 from this cluster and is MIRRORING there; stop that mirror first")
	if p.Owner != mirror.OwnerOpen || p.End != 0 {
		t.Errorf("the refused start touched the log: %+v", p)
	}
	writeTo(t, atA, topic, "clients go on")
	lives.Produce(t, lives.Client(a), topic, 0, "of A")
	there.inStep(topic, 0, 4)

	there.stop(topic)
	p = back.until("no longer refused", topic, 0, func(p mirror.PartitionStatus) bool { return !strings.Contains(p.Reason, "loop") })
	if p.State == statemachine.Mirroring {
		t.Errorf("a record of clients was given up without consent: %+v", p)
	}
	// Now the first direction is the refused one, as long as the other one tries.
	there.start(topic)
	there.until("refused", topic, 0, func(p mirror.PartitionStatus) bool {
		return p.State == statemachine.Failed && strings.Contains(p.Reason, "detected mirror loop for mirror: b-to-a")
	})
}

// Both directions are started at the same moment, when neither cluster has a state topic yet: at least one sees the other one's record (spec decision 14).
func TestDecision14OppositeMirrorsBetweenRealClustersStartedAtOnce(t *testing.T) {
	a, b := rough(t), shared(t)
	topic := "d14-at-once"
	idA := a.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	idB := b.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	storeA, storeB := keptIn(t, a), keptIn(t, b)
	there := between(t, "a-to-b", sourceOf(t, a.Bootstrap()...), standIn(t, b, topic, idB), storeB)
	back := between(t, "b-to-a", sourceOf(t, b.Bootstrap()...), standIn(t, a, topic, idA), storeA)
	there.start(topic)
	back.start(topic)
	const loop = "loop for mirror"
	lives.Eventually(t, "somebody backed off, and tried again", func() (bool, string) {
		p, q := lives.One(there.Status(), topic, 0), lives.One(back.Status(), topic, 0)
		if p.State == statemachine.Mirroring && q.State == statemachine.Mirroring {
			t.Fatalf("each mirrors the other%s%s", lives.Show(there.Status()), lives.Show(back.Status()))
		}
		tries := len(told[mirror.RetryScheduled](there)) + len(told[mirror.RetryScheduled](back))
		return tries >= 3 && strings.Contains(p.Reason+q.Reason, loop), lives.Show(there.Status()) + lives.Show(back.Status())
	})
}

// A ring over two real clusters: the one that closes it learns from their records where the topic comes from.
func TestF71RingOverRealClusters(t *testing.T) {
	b, c := shared(t), rough(t)
	topic := "f71-ring"
	idB := b.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	idC := c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	storeB, storeC := keptIn(t, b), keptIn(t, c)
	atA := inMemory(t, "ring A", topic, [16]byte{})
	writeTo(t, atA, topic, lives.Values("of A", 3)...)

	first := between(t, "a-to-b", atA, standIn(t, b, topic, idB), storeB)
	first.start(topic)
	first.inStep(topic, 0, 3)
	second := between(t, "b-to-c", sourceOf(t, b.Bootstrap()...), standIn(t, c, topic, idC), storeC)
	second.start(topic)
	second.until("copies", topic, 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Mirroring })
	control := mirror.NewControl(storeC)
	lives.Eventually(t, "the origin is recorded in C", func() (bool, string) {
		s, err := control.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o, ok := s.Origin("b-to-c", topic)
		return ok && o.SourceClusterID == b.ID() && slices.Equal(o.Upstream, []string{"ring A"}), lives.Show(second.Status())
	})

	third := between(t, "c-to-a", sourceOf(t, c.Bootstrap()...), atA, nil)
	third.start(topic)
	p := third.untilFailed(topic, "detected mirror loop for mirror: b-to-c", topic+"-0 from "+b.ID(), "which has it from this cluster; stop one mirror of the ring first")
	if p.Owner != mirror.OwnerOpen || p.End != 3 {
		t.Errorf("the refused start touched the log: %+v", p)
	}
	writeTo(t, atA, topic, "clients go on")
	first.inStep(topic, 0, 4)
	second.stop(topic)
	third.until("no longer refused", topic, 0, func(p mirror.PartitionStatus) bool { return !strings.Contains(p.Reason, "loop") })
}

func TestF71OneClusterByAnotherAddressIsNoSource(t *testing.T) {
	c := shared(t)
	topic := "f71-self"
	id := c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	lives.Produce(t, lives.Client(c), topic, 0, lives.Values("ten", 10)...)
	own, err := sourceOf(t, c.Bootstrap()...).Cluster(t.Context())
	if err != nil || own.ID != c.ID() {
		t.Fatal(own, err)
	}
	for what, address := range map[string]string{
		"another name":     strings.Replace(c.Bootstrap()[0], "127.0.0.1", "localhost", 1),
		"another listener": c.InternalAddress(c.Brokers()[1]),
	} {
		if slices.Contains(c.Bootstrap(), address) {
			t.Fatalf("%s: %s is the same address", what, address)
		}
		atC := standIn(t, c, topic, id)
		r := between(t, "self", sourceOf(t, address), atC, nil)
		r.start(topic)
		p := r.untilFailed(topic, "the source is the destination itself: cluster id "+own.ID)
		if p.End != 0 || p.Owner != mirror.OwnerOpen || p.RetryAttempt != -1 {
			t.Errorf("%s: %+v", what, p)
		}
	}
}

// What a real cluster lists of itself, filtered: nothing internal is ever a topic to mirror.
func TestF71EverythingMatchesNoInternalTopic(t *testing.T) {
	c := shared(t)
	topic := "f71-orders-everything"
	id := c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	store := keptIn(t, c)
	source := sourceOf(t, c.Bootstrap()...)
	m := between(t, "everything", inMemory(t, "elsewhere", topic, [16]byte{}), standIn(t, c, topic, id), store)
	m.start(topic)
	m.until("copies", topic, 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Mirroring })
	listed, err := source.Topics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range listed {
		names = append(names, x.Name)
	}
	for _, name := range []string{topic, "__mirror_state", "__mirror_control", "__transaction_state"} {
		if !slices.Contains(names, name) {
			t.Fatalf("the cluster does not list %s: %v", name, names)
		}
	}
	for _, settings := range []mirror.Settings{
		{"mirror.topics.include": ".*"},
		{"mirror.topics.include": ".*", "mirror.topics.exclude": ""},
		{"mirror.topics.include": ".*,__.*,__mirror_state", "mirror.topics.exclude": "none"},
	} {
		filter, err := settings.TopicFilter()
		if err != nil {
			t.Fatal(err)
		}
		if !filter.Matches(topic) {
			t.Errorf("%v does not match %s", settings, topic)
		}
		for _, name := range names {
			if strings.HasPrefix(name, "__") && filter.Matches(name) {
				t.Errorf("%v matches %s", settings, name)
			}
		}
	}
}

// A foreign cluster grants nothing but its topic. That is enough for a one-way mirror; a failback that needs what may be recorded there says what to grant.
func TestF73NoRightToSeeWhatTheSourceRecorded(t *testing.T) {
	c := secured(t)
	topic := "f73-records"
	c.CreateTopic(kafkatest.Topic{Name: topic})
	lives.Produce(t, lives.Client(c), topic, 0, lives.Values("allowed", 10)...) // the user admin
	r := open(t, c, as("right"))
	c.Allow("User:mirror", []string{topic}, kadm.OpRead, kadm.OpDescribeConfigs)
	r.start(topic)
	r.same(topic, 0, 10)

	expect := func(what string, denied bool) {
		t.Helper()
		plan, err := r.PlanFailback(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		said := plan.String()
		named := strings.Contains(said, "__mirror_state") && strings.Contains(said, "--operation READ --topic __mirror_state")
		if named != denied || denied && (plan.Severity != mirror.SeverityRefused || len(plan.Consents()) != 0) {
			t.Errorf("%s:\n%s", what, said)
		}
	}
	expect("without a right", true)
	c.Allow("User:mirror", []string{"__mirror_state"}, kadm.OpRead)
	lives.Eventually(t, "the right is known", func() (bool, string) {
		_, err := r.src.LastMirrorEpochs(t.Context(), "memory", []mirror.TopicPartition{{Topic: topic}})
		var e *mirror.SourceError
		if errors.As(err, &e) && e.Code == mirror.SourceDenied {
			return false, err.Error()
		}
		return err == nil, ""
	})
	expect("with it", false)
}
