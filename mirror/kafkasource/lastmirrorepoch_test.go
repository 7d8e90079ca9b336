package kafkasource

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

func TestTheTopicsAreThoseOfTheRecords(t *testing.T) {
	if got := mirror.ControlTopic(70); got != originTopic {
		t.Errorf("origins are in %s, not in %s", got, originTopic)
	}
}

// records is a cluster, and a check that sources and writers leave nothing behind: it comes after their own cleanups.
func records(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c := cluster(t, opts...)
	t.Cleanup(func() {
		if left := leftBehind(5 * time.Second); left != "" {
			t.Errorf("goroutines left after Close:\n%s", left)
		}
	})
	return c
}

// sourceOf is a source of the cluster that is closed when the test ends.
func sourceOf(t *testing.T, c *kfake.Cluster, change ...func(*Config)) *Source {
	t.Helper()
	cfg := Config{Seeds: c.ListenAddrs(), Bound: testBound}
	for _, f := range change {
		f(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// recordWriter writes the records of mirrors into a cluster as their destination's own process does.
type recordWriter struct {
	t    *testing.T
	cl   *kgo.Client
	opts []kgo.Opt
}

func writerTo(t *testing.T, c *kfake.Cluster, more ...kgo.Opt) *recordWriter {
	t.Helper()
	w := &recordWriter{t: t, opts: append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(20 * time.Millisecond)}, more...)}
	w.connect()
	return w
}

func (w *recordWriter) connect() {
	w.t.Helper()
	var err error
	if w.cl, err = kgo.NewClient(w.opts...); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.cl.Close)
}

// create makes topics and returns their ids, in order.
func (w *recordWriter) create(partitions int32, names ...string) []mirror.TopicID {
	w.t.Helper()
	var ids []mirror.TopicID
	for _, name := range names {
		created, err := kadm.NewClient(w.cl).CreateTopic(w.t.Context(), partitions, -1, nil, name)
		if err != nil {
			w.t.Fatal(err)
		}
		ids = append(ids, mirror.TopicID(created.ID))
	}
	return ids
}

// remove deletes topics. A client that produced to one of them would not produce to another one of its name.
func (w *recordWriter) remove(names ...string) {
	w.t.Helper()
	defer w.connect()
	for _, name := range names {
		if _, err := kadm.NewClient(w.cl).DeleteTopic(w.t.Context(), name); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *recordWriter) write(topic string, partition int32, key, value []byte) {
	w.t.Helper()
	r := &kgo.Record{Topic: topic, Partition: partition, Key: key, Value: value}
	if err := w.cl.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// home is the partition in which a key's records count.
func (w *recordWriter) home(k statemachine.Key) int32 {
	w.t.Helper()
	topics, err := kadm.NewClient(w.cl).ListTopics(w.t.Context(), stateTopic)
	if err != nil {
		w.t.Fatal(err)
	}
	return statemachine.StatePartition(k, int32(len(topics[stateTopic].Partitions)))
}

func (w *recordWriter) state(k statemachine.Key, s statemachine.PartitionState) {
	w.t.Helper()
	w.write(stateTopic, w.home(k), statemachine.AppendKey(nil, statemachine.PartitionStateType, k), statemachine.AppendPartitionState(nil, s))
}

func (w *recordWriter) lme(k statemachine.Key, e statemachine.LastMirrorEpoch) {
	w.t.Helper()
	w.write(stateTopic, w.home(k), statemachine.AppendKey(nil, statemachine.LastMirrorEpochsType, k), statemachine.AppendLastMirrorEpoch(nil, e))
}

// bury writes the tombstones of a key, state first.
func (w *recordWriter) bury(k statemachine.Key, types ...statemachine.RecordType) {
	w.t.Helper()
	for _, rt := range types {
		w.write(stateTopic, w.home(k), statemachine.AppendKey(nil, rt, k), nil)
	}
}

func stopped(cluster string) statemachine.PartitionState {
	s := statemachine.NewPartitionState()
	s.State, s.SourceClusterID = statemachine.Stopped, cluster
	return s
}

func active(cluster string) statemachine.PartitionState {
	s := stopped(cluster)
	s.State = statemachine.Mirroring
	return s
}

func recordHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var orders = mirror.TopicPartition{Topic: "orders"}

func lastMirrorEpochs(t *testing.T, s *Source, cluster string, tps ...mirror.TopicPartition) map[mirror.TopicPartition]statemachine.LastMirrorEpoch {
	t.Helper()
	got, err := s.LastMirrorEpochs(t.Context(), cluster, tps)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func mirrorsOf(t *testing.T, s *Source, tps ...mirror.TopicPartition) []mirror.SourceMirror {
	t.Helper()
	got, err := s.MirrorsOf(t.Context(), tps)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func expectEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// The golden bytes of spec §8, under the id that the topic has in this cluster.
func TestSpec8GoldenRecordsAreRead(t *testing.T) {
	c := records(t)
	w := writerTo(t, c)
	id := w.create(1, "orders", stateTopic)[0]
	name := append(recordHex(t, "00096d792d6d6972726f72"), id[:]...)
	key := func(recordType byte, partition byte) []byte {
		return append(append([]byte{0, recordType}, name...), 0, 0, 0, partition)
	}
	w.write(stateTopic, 0, key(2, 0), recordHex(t, "00000200000004000000020000001000"))
	w.write(stateTopic, 0, key(1, 0), recordHex(t, "000000000003 02 00 08 0000000000000006 01 05 05 77657374")) // west
	w.write(stateTopic, 0, key(1, 1), recordHex(t, "00000000000300"))                                           // the page alone: it does not say whose
	w.write(stateTopic, 0, key(1, 2), recordHex(t, "000000000003000000000000000600"))                           // a later draft: neither does that
	s := sourceOf(t, c)
	all := []mirror.TopicPartition{orders, {Topic: "orders", Partition: 1}, {Topic: "orders", Partition: 2}, {Topic: "orders", Partition: 9}, {Topic: "none"}}
	expectEqual(t, "for west", lastMirrorEpochs(t, s, "west", all...), map[mirror.TopicPartition]statemachine.LastMirrorEpoch{
		orders: {Epoch: 3, Offset: 6, SourceClusterID: "west"},
	})
	for _, cluster := range []string{"", "wes", "my-mirror"} {
		if got := lastMirrorEpochs(t, s, cluster, all...); len(got) != 0 {
			t.Errorf("for %q: %+v", cluster, got)
		}
	}
	expectEqual(t, "mirrors", mirrorsOf(t, s, all...), []mirror.SourceMirror{{Mirror: "my-mirror", Partition: orders, State: statemachine.Mirroring}})
}

func TestDecision2GreatestLastMirrorEpochOfThatClusterUnderAnyName(t *testing.T) {
	c := records(t, kfake.NumBrokers(3))
	w := writerTo(t, c)
	ids := w.create(3, "orders", "other", stateTopic)
	key := func(name string) statemachine.Key { return statemachine.Key{Mirror: name, TopicID: ids[0]} }
	e := func(epoch int32, offset int64, cluster string) statemachine.LastMirrorEpoch {
		return statemachine.LastMirrorEpoch{Epoch: epoch, Offset: offset, SourceClusterID: cluster, Episode: 1}
	}
	s := sourceOf(t, c)
	expect := func(what string, want ...statemachine.LastMirrorEpoch) {
		t.Helper()
		got, ok := lastMirrorEpochs(t, s, "west", orders)[orders]
		if ok != (len(want) == 1) || ok && got != want[0] {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	expect("at first")
	w.lme(key("b"), e(-1, 0, "west"))
	expect("one that knew no epoch", e(-1, 0, "west"))
	w.lme(key("a"), e(7, 10, "west"))
	w.lme(key("c"), e(7, 12, "west"))
	w.lme(key("d"), e(6, 99, "west"))
	w.lme(key("e"), e(9, 99, "east"))
	w.lme(statemachine.Key{Mirror: "a", TopicID: ids[1]}, e(50, 1, "west"))
	w.lme(statemachine.Key{Mirror: "a", TopicID: ids[0], Partition: 1}, e(50, 1, "west"))
	w.lme(statemachine.Key{Mirror: "a", TopicID: mirror.TopicID{1}}, e(50, 1, "west"))
	w.lme(statemachine.Key{Mirror: "a"}, e(50, 1, "west"))
	expect("greatest epoch, then offset", e(7, 12, "west"))
	w.lme(key("c"), e(5, 1, "west")) // a later episode
	expect("a record that was replaced", e(7, 10, "west"))
	w.bury(key("a"), statemachine.PartitionStateType, statemachine.LastMirrorEpochsType)
	expect("a tombstone", e(6, 99, "west"))
	w.bury(key("d"), statemachine.PartitionStateType)
	expect("a state's tombstone leaves the last mirror epoch", e(6, 99, "west"))

	aborted := writerTo(t, c, kgo.TransactionalID("b"))
	if err := aborted.cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	aborted.lme(key("a"), e(60, 1, "west"))
	if err := aborted.cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	expect("an aborted transaction", e(6, 99, "west"))
	if err := aborted.cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	aborted.lme(key("a"), e(61, 1, "west"))
	if err := aborted.cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	expect("a committed transaction", e(61, 1, "west"))
}

func TestMirrorsOfListsAllStatesInOrder(t *testing.T) {
	c := records(t, kfake.NumBrokers(2))
	w := writerTo(t, c)
	ids := w.create(2, "orders", "other", stateTopic)
	second, other := mirror.TopicPartition{Topic: "orders", Partition: 1}, mirror.TopicPartition{Topic: "other"}
	w.state(statemachine.Key{Mirror: "two", TopicID: ids[0]}, stopped("west"))
	w.state(statemachine.Key{Mirror: "one", TopicID: ids[0]}, active("east"))
	w.state(statemachine.Key{Mirror: "one", TopicID: ids[0], Partition: 1}, statemachine.PartitionState{State: statemachine.Preparing})
	w.state(statemachine.Key{Mirror: "gone", TopicID: ids[0]}, active("west"))
	w.lme(statemachine.Key{Mirror: "gone", TopicID: ids[0]}, statemachine.LastMirrorEpoch{Epoch: 1, SourceClusterID: "west"})
	w.bury(statemachine.Key{Mirror: "gone", TopicID: ids[0]}, statemachine.PartitionStateType)
	w.state(statemachine.Key{Mirror: "one", TopicID: ids[1]}, active("west"))
	s := sourceOf(t, c)
	expectEqual(t, "of orders", mirrorsOf(t, s, second, orders, second), []mirror.SourceMirror{
		{Mirror: "one", Partition: second, State: statemachine.Preparing},
		{Mirror: "one", SourceClusterID: "east", Partition: orders, State: statemachine.Mirroring},
		{Mirror: "two", SourceClusterID: "west", Partition: orders, State: statemachine.Stopped},
	})
	expectEqual(t, "of other", mirrorsOf(t, s, other), []mirror.SourceMirror{{Mirror: "one", SourceClusterID: "west", Partition: other, State: statemachine.Mirroring}})
	if got := mirrorsOf(t, s, mirror.TopicPartition{Topic: "none"}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// originsOf are the records that a Control keeps of origins: key → value.
func originsOf(t *testing.T, origins ...mirror.TopicOrigin) [][2][]byte {
	t.Helper()
	log := keyedlog.NewMemory()
	err := mirror.NewControl(log).Update(t.Context(), func(s *mirror.ControlState) error {
		for _, o := range origins {
			s.SetMirror(mirror.MirrorEntry{Name: o.Mirror})
			s.Set(mirror.TopicWish{Topic: o.Topic, MirrorName: o.Mirror})
			s.SetOrigin(o)
		}
		return nil
	})
	var records [][2][]byte
	if err == nil {
		err = log.Read(t.Context(), func(v keyedlog.View) error {
			return v.Each(nil, func(r keyedlog.Record) error {
				records = append(records, [2][]byte{bytes.Clone(r.Key), bytes.Clone(r.Value)})
				return nil
			})
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(records) < 2*len(origins) {
		t.Fatalf("only %d records", len(records))
	}
	return records
}

func TestF71UpstreamIsTheOriginOfThatMirrorAndTopic(t *testing.T) {
	c := records(t, kfake.NumBrokers(2))
	w := writerTo(t, c)
	ids := w.create(2, "orders", stateTopic)
	for name, s := range map[string]statemachine.PartitionState{"chain": active("west"), "moved": active("west"), "still": stopped("west"), "young": active("west")} {
		w.state(statemachine.Key{Mirror: name, TopicID: ids[0]}, s)
	}
	s := sourceOf(t, c)
	expect := func(what string, chain ...string) {
		t.Helper()
		for _, m := range mirrorsOf(t, s, orders) {
			want := []string(nil)
			if m.Mirror == "chain" {
				want = chain
			}
			expectEqual(t, what+": "+m.Mirror, m.Upstream, want)
		}
	}
	expect("no control topic")
	w.create(1, originTopic)
	expect("an empty one")
	written := originsOf(t, mirror.TopicOrigin{Mirror: "chain", Topic: "orders", SourceClusterID: "west", Upstream: []string{"north", "east"}})
	written = append(written, originsOf(t, mirror.TopicOrigin{Mirror: "moved", Topic: "orders", SourceClusterID: "elsewhere", Upstream: []string{"north"}})...)
	written = append(written, originsOf(t, mirror.TopicOrigin{Mirror: "still", Topic: "orders", SourceClusterID: "west", Upstream: []string{"north"}})...)
	written = append(written, originsOf(t, mirror.TopicOrigin{Mirror: "young", Topic: "others", SourceClusterID: "west", Upstream: []string{"north"}})...)
	var chain []byte
	for _, r := range written {
		w.write(originTopic, 0, r[0], r[1])
		if o, ok, _ := mirror.DecodeTopicOrigin(r[0], r[1]); ok && o.Mirror == "chain" {
			chain = r[0]
		}
	}
	expect("with origins", "north", "east")

	w.write(originTopic, 0, chain, []byte(`{"version":2}`))
	_, err := s.MirrorsOf(t.Context(), []mirror.TopicPartition{orders})
	e := sourceError(t, err, mirror.SourceOther, true)
	if !errors.Is(err, mirror.ErrNewerRecord) || e.Partition != orders || !strings.Contains(err.Error(), `origin in mirror "chain" of topic "orders"`) {
		t.Errorf("%v", err)
	}
	w.write(originTopic, 0, chain, nil)
	expect("after its tombstone")
	w.write(originTopic, 0, []byte{0, 70, 0}, []byte("{}"))
	_, err = s.MirrorsOf(t.Context(), []mirror.TopicPartition{orders})
	sourceError(t, err, mirror.SourceOther, true)
	w.write(originTopic, 0, []byte{0, 70, 0}, nil)
	w.write(originTopic, 0, []byte{0, 99}, []byte("no origin: others read it"))
	expect("after its tombstone")

	w.remove(originTopic)
	w.create(1, originTopic)
	w.write(originTopic, 0, chain, []byte("no JSON")) // unreadable, so that it is known to be read
	_, err = s.MirrorsOf(t.Context(), []mirror.TopicPartition{orders})
	sourceError(t, err, mirror.SourceOther, true)
}

// requestsOf counts the requests of a call, after connections are open.
func requestsOf(t *testing.T, s *Source, call func()) Counts {
	t.Helper()
	before := s.Counts()
	call()
	after := s.Counts()
	return Counts{Connects: after.Connects - before.Connects, Requests: after.Requests - before.Requests, Fetches: after.Fetches - before.Fetches, Metadata: after.Metadata - before.Metadata}
}

func TestAClusterThatIsNoDestinationCostsTwoRequestsAtMost(t *testing.T) {
	c := records(t, kfake.NumBrokers(3), kfake.SeedTopics(10, "orders"))
	s := sourceOf(t, c)
	ask := func() {
		if got := lastMirrorEpochs(t, s, "west", orders); got == nil || len(got) != 0 {
			t.Errorf("%+v", got)
		}
		if got := mirrorsOf(t, s, orders); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	}
	for range 10 { // until every broker was asked once
		ask()
	}
	got := requestsOf(t, s, ask)
	if got.Requests > 4 || got.Requests != got.Metadata+got.Connects || got.Fetches != 0 {
		t.Errorf("two calls cost %+v", got)
	}
	if topics, err := s.Topics(t.Context(), stateTopic, originTopic); err != nil || len(topics) != 0 {
		t.Errorf("the look-up created topics: %+v, %v", topics, err)
	}
	if got := requestsOf(t, s, func() { lastMirrorEpochs(t, s, "west"); mirrorsOf(t, s) }); got.Requests != 0 {
		t.Errorf("nothing was asked, at the cost of %+v", got)
	}
}

// Five thousand partitions ask at once and again: what is read is only what is new.
func TestFiveThousandPartitionsAskWithFewRequests(t *testing.T) {
	const partitions = 5000
	c := records(t, kfake.NumBrokers(3))
	w := writerTo(t, c)
	id := w.create(partitions, "orders")[0]
	w.create(6, stateTopic)
	var batch []*kgo.Record
	var all []mirror.TopicPartition
	for p := range int32(partitions) {
		all = append(all, mirror.TopicPartition{Topic: "orders", Partition: p})
		k := statemachine.Key{Mirror: "m", TopicID: id, Partition: p}
		batch = append(batch,
			&kgo.Record{Topic: stateTopic, Partition: statemachine.StatePartition(k, 6), Key: statemachine.AppendKey(nil, statemachine.PartitionStateType, k), Value: statemachine.AppendPartitionState(nil, stopped("west"))},
			&kgo.Record{Topic: stateTopic, Partition: statemachine.StatePartition(k, 6), Key: statemachine.AppendKey(nil, statemachine.LastMirrorEpochsType, k),
				Value: statemachine.AppendLastMirrorEpoch(nil, statemachine.LastMirrorEpoch{Epoch: p, Offset: int64(p), SourceClusterID: "west"})})
	}
	if err := w.cl.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	s := sourceOf(t, c)
	ask := func() {
		t.Helper()
		found := lastMirrorEpochs(t, s, "west", all...)
		if len(found) != partitions || found[all[4321]].Epoch != 4321 {
			t.Errorf("%d found", len(found))
		}
		if n := len(mirrorsOf(t, s, all...)); n != partitions {
			t.Errorf("%d mirrors", n)
		}
	}
	if got := requestsOf(t, s, ask); got.Requests > 40 {
		t.Errorf("the first two calls cost %+v", got)
	}
	// A call is one metadata request and one question for the ends for each broker.
	if got := requestsOf(t, s, ask); got.Requests > 2*(1+3) || got.Fetches != 0 {
		t.Errorf("two more cost %+v", got)
	}
	w.lme(statemachine.Key{Mirror: "m", TopicID: id, Partition: 1}, statemachine.LastMirrorEpoch{Epoch: 9999, SourceClusterID: "west"})
	var found map[mirror.TopicPartition]statemachine.LastMirrorEpoch
	got := requestsOf(t, s, func() { found = lastMirrorEpochs(t, s, "west", all...) })
	if got.Requests > 1+3+2 || got.Fetches < 1 || found[all[1]].Epoch != 9999 {
		t.Errorf("one new record cost %+v: %+v", got, found[all[1]])
	}
}

func TestARecreatedTopicHasNoRecords(t *testing.T) {
	c := records(t, kfake.NumBrokers(2))
	w := writerTo(t, c)
	record := func(id mirror.TopicID, epoch int32) {
		t.Helper()
		w.lme(statemachine.Key{Mirror: "m", TopicID: id}, statemachine.LastMirrorEpoch{Epoch: epoch, SourceClusterID: "west"})
	}
	id := w.create(1, "orders")[0]
	w.create(2, stateTopic)
	record(id, 3)
	s := sourceOf(t, c)
	expect := func(what string, epoch int32) {
		t.Helper()
		got, ok := lastMirrorEpochs(t, s, "west", orders)[orders]
		if ok != (epoch >= 0) || ok && got.Epoch != epoch {
			t.Errorf("%s: %+v, %v; want epoch %d", what, got, ok, epoch)
		}
	}
	expect("at first", 3)
	w.remove("orders")
	expect("while the topic is gone", -1)
	id = w.create(1, "orders")[0]
	expect("the topic is another one", -1)
	record(id, 4)
	expect("and has a record of its own", 4)

	w.remove(stateTopic)
	expect("without the state topic", -1)
	w.create(4, stateTopic)
	expect("an empty one", -1)
	record(id, 1)
	record(id, 2)
	record(id, 5)
	expect("with a record", 5)
	// Deleted and created again between two calls, and longer than before.
	w.remove(stateTopic)
	w.create(4, stateTopic)
	record(id, 6)
	expect("created again unseen", 6)
}

// Whoever may write to one topic or partition says nothing about what belongs into another, and takes nothing back there.
func TestRecordsOutOfPlaceDoNotCount(t *testing.T) {
	c := records(t)
	w := writerTo(t, c)
	id := w.create(1, "orders")[0]
	w.create(2, stateTopic, originTopic)
	key := statemachine.Key{Mirror: "m", TopicID: id}
	place := w.home(key)
	w.lme(key, statemachine.LastMirrorEpoch{Epoch: 3, SourceClusterID: "west"})
	w.state(key, active("west"))
	origin := originsOf(t, mirror.TopicOrigin{Mirror: "m", Topic: "orders", SourceClusterID: "west", Upstream: []string{"far"}})
	for _, r := range origin {
		w.write(originTopic, 0, r[0], r[1])
	}
	s := sourceOf(t, c)
	check := func(what string) {
		t.Helper()
		for _, s := range []*Source{s, sourceOf(t, c)} {
			expectEqual(t, what, lastMirrorEpochs(t, s, "west", orders), map[mirror.TopicPartition]statemachine.LastMirrorEpoch{orders: {Epoch: 3, SourceClusterID: "west"}})
			expectEqual(t, what, mirrorsOf(t, s, orders), []mirror.SourceMirror{
				{Mirror: "m", SourceClusterID: "west", Upstream: []string{"far"}, Partition: orders, State: statemachine.Mirroring},
			})
		}
	}
	check("at first")
	for _, rt := range []statemachine.RecordType{statemachine.LastMirrorEpochsType, statemachine.PartitionStateType} {
		w.write(stateTopic, 1-place, statemachine.AppendKey(nil, rt, key), nil)
	}
	forged := statemachine.AppendKey(nil, statemachine.LastMirrorEpochsType, statemachine.Key{Mirror: "x", TopicID: id})
	other := 1 - w.home(statemachine.Key{Mirror: "x", TopicID: id})
	w.write(stateTopic, other, forged, statemachine.AppendLastMirrorEpoch(nil, statemachine.LastMirrorEpoch{Epoch: 9, SourceClusterID: "west"}))
	for _, r := range origin {
		w.write(stateTopic, 0, r[0], []byte("no JSON"))
		w.write(originTopic, 1, r[0], nil)
	}
	check("what is elsewhere")

	// Partitions that were added are not used, as the topic's own record says.
	layoutKey, layout := topicreader.StateLayoutRecord(2)
	w.write(stateTopic, 0, layoutKey, layout)
	check("with its layout")
	more := int32(3)
	for statemachine.StatePartition(key, more) == place {
		more++
	}
	if _, err := kadm.NewClient(w.cl).CreatePartitions(t.Context(), int(more)-2, stateTopic); err != nil {
		t.Fatal(err)
	}
	w.connect()
	check("with more partitions")
	w.write(stateTopic, w.home(key), statemachine.AppendKey(nil, statemachine.PartitionStateType, key), statemachine.AppendPartitionState(nil, stopped("west")))
	check("and a record where its key would be")
}

// A tombstone that compaction has taken away was never seen: what is long since it was read is read anew.
func TestRecordsAreReadAnewBeforeTombstonesVanish(t *testing.T) {
	c := records(t)
	w := writerTo(t, c)
	id := w.create(1, "orders")[0]
	w.create(2, stateTopic)
	key := statemachine.Key{Mirror: "m", TopicID: id}
	w.lme(key, statemachine.LastMirrorEpoch{Epoch: 1, SourceClusterID: "west"})
	s := sourceOf(t, c)
	lastMirrorEpochs(t, s, "west", orders)
	// As compaction leaves the log: neither the record nor its tombstone.
	if _, err := kadm.NewClient(w.cl).DeleteRecords(t.Context(), kadm.Offsets{stateTopic: {w.home(key): {Topic: stateTopic, Partition: w.home(key), At: 1}}}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		ago   time.Duration
		found int
	}{{readAnewAfter - time.Hour, 1}, {readAnewAfter + time.Hour, 0}} {
		s.mirrors.states.readAt = time.Now().Add(-tt.ago)
		if got := lastMirrorEpochs(t, s, "west", orders); len(got) != tt.found {
			t.Errorf("%v after the last reading: %+v", tt.ago, got)
		}
	}
}

func TestANewerRecordIsAnErrorForItsPartition(t *testing.T) {
	c := records(t)
	w := writerTo(t, c)
	ids := w.create(2, "orders", "other", stateTopic)
	other := mirror.TopicPartition{Topic: "other"}
	good, bad := statemachine.Key{Mirror: "m", TopicID: ids[1]}, statemachine.Key{Mirror: "m", TopicID: ids[0]}
	west := statemachine.LastMirrorEpoch{Epoch: 3, Offset: 6, SourceClusterID: "west"}
	w.lme(good, west)
	w.lme(bad, west)
	w.state(bad, stopped("west"))
	s := sourceOf(t, c)
	epochs := func(tp mirror.TopicPartition) error {
		_, err := s.LastMirrorEpochs(t.Context(), "west", []mirror.TopicPartition{tp})
		return err
	}
	mirrors := func(tp mirror.TopicPartition) error {
		_, err := s.MirrorsOf(t.Context(), []mirror.TopicPartition{tp})
		return err
	}
	fine := func(what string, errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	named := func(err error, tp mirror.TopicPartition, words ...string) {
		t.Helper()
		e := sourceError(t, err, mirror.SourceOther, true)
		var record *statemachine.RecordError
		if e.Partition != tp || !errors.As(err, &record) {
			t.Errorf("%v", err)
		}
		for _, word := range append(words, stateTopic) {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%v: no word of %q", err, word)
			}
		}
	}
	fine("at first", epochs(orders), mirrors(orders), epochs(other), mirrors(other))
	key := statemachine.AppendKey(nil, statemachine.LastMirrorEpochsType, bad)
	w.write(stateTopic, w.home(bad), key, recordHex(t, "0001 00000003 00"))
	named(epochs(orders), orders, "last mirror epoch of m:", "offset")
	fine("others", mirrors(orders), epochs(other), mirrors(other))
	w.lme(bad, west)
	fine("written anew", epochs(orders))
	key = statemachine.AppendKey(nil, statemachine.PartitionStateType, bad)
	w.write(stateTopic, w.home(bad), key, recordHex(t, "0001 02"))
	named(mirrors(orders), orders, "state of m:", "offset")
	fine("others", epochs(orders), epochs(other), mirrors(other))
	w.write(stateTopic, w.home(bad), key, nil)
	fine("after its tombstone", mirrors(orders))

	// A key that does not say what it is about may be anybody's.
	w.write(stateTopic, 0, []byte{0, 2, 0}, []byte("x"))
	named(epochs(other), mirror.TopicPartition{}, "key")
	named(mirrors(other), mirror.TopicPartition{}, "key")
	w.write(stateTopic, 0, []byte{0, 2, 0}, nil)
	w.write(stateTopic, 0, []byte{0, 64, 1}, []byte("of a type that says nothing of mirrors"))
	fine("after its tombstone", epochs(other), mirrors(other), epochs(orders))
	expectEqual(t, "what is there", lastMirrorEpochs(t, s, "west", orders, other), map[mirror.TopicPartition]statemachine.LastMirrorEpoch{orders: west, other: west})
}

// Who may do what is decided so that a one-way mirror needs no right on topics that the source may not even have, and nothing that is there is overlooked.
func TestRightsOnTheRecordsOfMirrors(t *testing.T) {
	acl := func(topic string, operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
	}
	describes := acl(stateTopic, kmsg.ACLOperationDescribe)
	user := func(name string, acls ...kfake.ACL) kfake.Opt {
		return kfake.User("PLAIN", name, "secret-word", append(acls, acl("orders", kmsg.ACLOperationRead))...)
	}
	c := records(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"),
		user("nothing"), user("describes", describes), user("reads", acl(stateTopic, kmsg.ACLOperationRead)),
		user("all", acl(stateTopic, kmsg.ACLOperationRead), acl(originTopic, kmsg.ACLOperationRead)))
	as := func(name, password string) kgo.Opt {
		return kgo.SASL(plain.Auth{User: name, Pass: password}.AsMechanism())
	}
	w := writerTo(t, c, as("admin", "admin"))
	id := w.create(1, "orders")[0]
	type answer struct {
		epochs  map[mirror.TopicPartition]statemachine.LastMirrorEpoch
		mirrors []mirror.SourceMirror
		errs    [2]error
	}
	sources := map[string]*Source{}
	for _, name := range []string{"nothing", "describes", "reads", "all"} {
		sources[name] = sourceOf(t, c, func(cfg *Config) { cfg.ClientOptions = []kgo.Opt{as(name, "secret-word")} })
	}
	ask := func(name string) (a answer) {
		s := sources[name]
		a.epochs, a.errs[0] = s.LastMirrorEpochs(t.Context(), "west", []mirror.TopicPartition{orders})
		a.mirrors, a.errs[1] = s.MirrorsOf(t.Context(), []mirror.TopicPartition{orders})
		return a
	}
	answers := func(when, name string) answer {
		t.Helper()
		a := ask(name)
		if err := errors.Join(a.errs[0], a.errs[1]); err != nil {
			t.Errorf("%s, %s: %v", when, name, err)
		}
		return a
	}
	denied := func(when string, err error, topic string, unseen bool) {
		t.Helper()
		e := sourceError(t, err, mirror.SourceDenied, true)
		if errors.Is(err, mirror.ErrUnsupported) != unseen {
			t.Errorf("%s: ErrUnsupported is to be found: %v, in %v", when, unseen, err)
		}
		line := "kafka-acls.sh --bootstrap-server " + c.ListenAddrs()[0] + " --add --allow-principal User:NAME --operation READ --topic " + topic
		if !strings.Contains(e.Advice, line) || strings.Contains(err.Error(), "secret-word") {
			t.Errorf("%s: %v", when, err)
		}
	}

	const none = "no state topic"
	for _, err := range ask("nothing").errs {
		denied(none, err, stateTopic, true)
	}
	for _, name := range []string{"describes", "reads", "all"} {
		if a := answers(none, name); len(a.epochs) != 0 || len(a.mirrors) != 0 {
			t.Errorf("%s, %s: %+v", none, name, a)
		}
	}

	w.create(1, stateTopic)
	west := statemachine.LastMirrorEpoch{Epoch: 3, SourceClusterID: "west"}
	key := statemachine.Key{Mirror: "m", TopicID: id}
	w.lme(key, west)
	w.state(key, stopped("west"))
	const stops = "a stopped mirror"
	for _, err := range ask("nothing").errs {
		denied(stops, err, stateTopic, true)
	}
	for _, err := range ask("describes").errs {
		denied(stops, err, stateTopic, false)
	}
	for _, name := range []string{"reads", "all"} {
		if a := answers(stops, name); a.epochs[orders] != west || len(a.mirrors) != 1 {
			t.Errorf("%s, %s: %+v", stops, name, a)
		}
	}

	w.state(key, active("west"))
	const runs = "a mirror that runs"
	a := ask("reads")
	if a.errs[0] != nil || a.epochs[orders] != west {
		t.Errorf("%s: %+v", runs, a)
	}
	denied(runs, a.errs[1], originTopic, false)
	if a := answers(runs, "all"); len(a.mirrors) != 1 || a.mirrors[0].State != statemachine.Mirroring {
		t.Errorf("%s: %+v", runs, a)
	}
}

// What hides the end of the records is told, and within the bound.
func TestAnOpenTransactionInTheRecordsIsWaitedForWithinTheBound(t *testing.T) {
	c := records(t)
	w := writerTo(t, c)
	id := w.create(1, "orders")[0]
	w.create(2, stateTopic)
	key := statemachine.Key{Mirror: "m", TopicID: id}
	w.lme(key, statemachine.LastMirrorEpoch{Epoch: 1, SourceClusterID: "west"})
	slow := writerTo(t, c, kgo.TransactionalID("slow"))
	if err := slow.cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	slow.lme(key, statemachine.LastMirrorEpoch{Epoch: 2, SourceClusterID: "west"})
	s := sourceOf(t, c, func(cfg *Config) { cfg.Bound = 700 * time.Millisecond })
	_, err := s.LastMirrorEpochs(t.Context(), "west", []mirror.TopicPartition{orders})
	sourceError(t, err, mirror.SourceOther, false)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), stateTopic) || !strings.Contains(err.Error(), "transaction") {
		t.Errorf("%v", err)
	}
	if err := slow.cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	patient := sourceOf(t, c)
	if got := lastMirrorEpochs(t, patient, "west", orders)[orders]; got.Epoch != 2 {
		t.Errorf("%+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := patient.MirrorsOf(ctx, []mirror.TopicPartition{orders}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Each call sees what was written before it, whoever else asks.
func TestRecordsAreReadByManyAtOnce(t *testing.T) {
	c := records(t, kfake.NumBrokers(2))
	w := writerTo(t, c)
	const askers, rounds = 8, 15
	id := w.create(askers, "orders")[0]
	w.create(2, stateTopic)
	s := sourceOf(t, c)
	var running sync.WaitGroup
	failures := make(chan string, 2*askers)
	for p := range int32(askers) {
		running.Go(func() {
			tp, key := mirror.TopicPartition{Topic: "orders", Partition: p}, statemachine.Key{Mirror: "m", TopicID: id, Partition: p}
			for n := range int32(rounds) {
				r := &kgo.Record{Topic: stateTopic, Partition: statemachine.StatePartition(key, 2), Key: statemachine.AppendKey(nil, statemachine.LastMirrorEpochsType, key),
					Value: statemachine.AppendLastMirrorEpoch(nil, statemachine.LastMirrorEpoch{Epoch: n, SourceClusterID: "west"})}
				if err := w.cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					failures <- err.Error()
					return
				}
				got, err := s.LastMirrorEpochs(t.Context(), "west", []mirror.TopicPartition{tp})
				if err != nil || got[tp].Epoch != n {
					failures <- fmt.Sprintf("%v after %d: %+v, %v", tp, n, got, err)
					return
				}
				if _, err := s.MirrorsOf(t.Context(), []mirror.TopicPartition{tp}); err != nil {
					failures <- err.Error()
					return
				}
			}
		})
	}
	running.Wait()
	close(failures)
	for f := range failures {
		t.Error(f)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.LastMirrorEpochs(t.Context(), "west", []mirror.TopicPartition{orders}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
