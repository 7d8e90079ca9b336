package runbook

import (
	"bytes"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/statemachine"
)

// What a page promises is looked at by other means than kafka-mirror: the state records, stock clients, files on the brokers' disks.

// entries are the state records of a mirror, by topic; pages have topics of one partition. A topic's records are by its id.
func (f *follower) entries(at, mirror string, topics ...string) map[string]statemachine.Entry {
	f.t.Helper()
	c := f.clusters[at]
	store, err := kafkastore.Open(f.t.Context(), kafkastore.Config{Seeds: c.Bootstrap()})
	if err != nil {
		f.t.Fatal(err)
	}
	defer store.Close()
	names := map[statemachine.TopicID]string{}
	for _, topic := range topics {
		names[lives.TopicID(f.t, c, f.names.inRun(topic))] = topic
	}
	all := map[string]statemachine.Entry{}
	if err := keyedlog.NewStateStore(store).Load(lives.Limited(f.t), func(e statemachine.Entry) error {
		if name, ok := names[e.Key.TopicID]; ok && e.Key.Mirror == f.names.inRun(mirror) {
			all[name] = e
		}
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
	return all
}

// isStopped: the records have these topics STOPPED, with a last mirror offset.
func (f *follower) isStopped(at, mirror string, lmo map[string]int64) {
	f.t.Helper()
	topics := slices.Sorted(maps.Keys(lmo))
	all := f.entries(at, mirror, topics...)
	for _, topic := range topics {
		switch e, ok := all[topic]; {
		case !ok || e.LME == nil:
			f.t.Errorf("%s/%s at %s: no last mirror epoch is recorded: %+v", mirror, topic, at, e)
		case e.State.State != statemachine.Stopped || e.LME.Offset != lmo[topic]:
			f.t.Errorf("%s/%s at %s is %v, last mirror offset %d, want STOPPED and %d", mirror, topic, at, e.State.State, e.LME.Offset, lmo[topic])
		}
	}
}

// isIn: the records have these topics in a state.
func (f *follower) isIn(at, mirror string, want statemachine.State, topics ...string) {
	f.t.Helper()
	all := f.entries(at, mirror, topics...)
	for _, topic := range topics {
		if e, ok := all[topic]; !ok || e.State.State != want {
			f.t.Errorf("%s/%s at %s: %+v, want %v", mirror, topic, at, e.State, want)
		}
	}
}

// isCopyOf: below end the log of a topic is, byte for byte, on the disks of all brokers that hold it at one cluster, what it is at the other one.
func (f *follower) isCopyOf(copied, from, topic string, end int64) {
	f.t.Helper()
	topic = f.names.inRun(topic)
	below := func(c *kafkatest.Cluster, broker int32) []byte {
		log := c.SegmentBytes(topic, 0, broker)
		rest, err := lives.Since(log, end)
		if err != nil {
			f.t.Fatalf("%s-0 on broker %d: %v", topic, broker, err)
		}
		return log[:len(log)-len(rest)]
	}
	a, b := f.clusters[copied], f.clusters[from]
	want := below(b, b.Brokers()[0])
	for _, id := range a.Brokers() {
		if got := below(a, id); !bytes.Equal(got, want) || len(got) == 0 {
			f.t.Errorf("%s-0 below %d on broker %d of %s is not that of %s: %s", topic, end, id, copied, from, lives.Difference(got, want))
		}
	}
}

// isWritable: an application writes a record and reads it back.
func (f *follower) isWritable(at, topic string) {
	f.t.Helper()
	c, name := f.clusters[at], f.names.inRun(topic)
	cl, err := kgo.NewClient(append(f.asApp(c), kgo.DefaultProduceTopic(name))...)
	if err != nil {
		f.t.Fatal(err)
	}
	defer cl.Close()
	r, err := cl.ProduceSync(lives.Limited(f.t), kgo.StringRecord("looked at")).First()
	if err != nil {
		f.t.Errorf("%s at %s cannot be written: %v", topic, at, err)
		return
	}
	if values := f.values(at, topic, r.Offset); len(values) == 0 || values[len(values)-1] != "looked at" {
		f.t.Errorf("%s at %s: what was written at %d is not read: %v", topic, at, r.Offset, values)
	}
}

// values are those of a topic's partition 0 up to an offset, as a consumer that reads what is committed gets them.
func (f *follower) values(at, topic string, last int64) (values []string) {
	f.t.Helper()
	c, name := f.clusters[at], f.names.inRun(topic)
	cl := c.Client(kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: {0: kgo.NewOffset().AtStart()}}))
	defer cl.Close()
	for at := int64(-1); at < last; {
		fs := cl.PollFetches(lives.Limited(f.t))
		if err := fs.Err(); err != nil {
			f.t.Fatalf("%s: read up to %d of %d: %v", name, at, last, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			at = r.Offset
			if at <= last && !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
		})
	}
	return values
}

// hasAll: each of these values is in a topic, none twice.
func (f *follower) hasAll(at, topic string, want []string) {
	f.t.Helper()
	times := map[string]int{}
	for _, v := range f.values(at, topic, f.endOf(at, topic)-1) {
		times[v]++
	}
	missing := slices.DeleteFunc(slices.Clone(want), func(v string) bool { return times[v] == 1 })
	if len(missing) > 0 || len(want) == 0 {
		f.t.Errorf("of %d records that were acknowledged %s at %s does not have once: %v", len(want), topic, at, missing)
	}
}

// endOf is where a topic's partition 0 ends.
func (f *follower) endOf(at, topic string) int64 {
	f.t.Helper()
	return lives.OffsetOf(f.t, f.clusters[at], lives.Latest, f.names.inRun(topic), 0)
}

// isAt: a group's committed offset of partition 0.
func (f *follower) isAt(at, group, topic string, want int64) {
	f.t.Helper()
	if got := lives.CommittedAt(f.t, f.clusters[at], f.names.inRun(group), f.names.inRun(topic), 0); got != want {
		f.t.Errorf("group %s is at %d of %s at %s, want %d", group, got, topic, at, want)
	}
}

// asApp are options of a client that is the user app.
func (f *follower) asApp(c *kafkatest.Cluster) []kgo.Opt {
	return append(c.ListenerOptions("LOGIN", kafkatest.Credentials{User: "app", Password: appPassword}, nil), kgo.SeedBrokers(c.Listener("LOGIN")...))
}
