package clustermetadata

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// applied makes an image of records, one batch each.
func applied(t *testing.T, records ...[]byte) *Image {
	t.Helper()
	im := New()
	for _, r := range records {
		apply(t, im, r)
	}
	return im
}

// apply applies one record at the image's end.
func apply(t *testing.T, im *Image, record []byte) []Change {
	t.Helper()
	before := im.Next()
	changes, err := im.Apply(pack(before, 3, record))
	if err != nil {
		t.Fatal(err)
	}
	if im.Next() != before+1 {
		t.Fatalf("next offset %d after %d", im.Next(), before)
	}
	checkIndex(t, im)
	return changes
}

func partition(t *testing.T, im *Image, topic string, number int32) Partition {
	t.Helper()
	p, ok := im.Partition(topic, number)
	if !ok {
		t.Fatalf("no partition %s-%d", topic, number)
	}
	return p
}

// checkIndex compares what the image says by two ways.
func checkIndex(t *testing.T, im *Image) {
	t.Helper()
	want := map[int32][]Partition{}
	partitions := 0
	for _, name := range im.Topics() {
		id, n, ok := im.Topic(name)
		if back, known := im.TopicName(id); !ok || !known || back != name {
			t.Fatalf("topic %q has id %x, which is %q", name, id, back)
		}
		partitions += n
		for number, p := range im.topics[id].partitions {
			if p.Topic != name || p.TopicID != id || p.Partition != number {
				t.Fatalf("%s-%d holds %+v", name, number, p)
			}
			for i, r := range p.Replicas {
				if !slices.Contains(p.Replicas[:i], r) {
					want[r] = append(want[r], p)
				}
			}
		}
	}
	for broker := range im.hosted {
		if len(want[broker]) == 0 {
			t.Fatalf("index names broker %d, which has nothing", broker)
		}
	}
	for broker, ps := range want {
		slices.SortFunc(ps, inOrder)
		if got := im.PartitionsOf(broker); !reflect.DeepEqual(got, ps) {
			t.Fatalf("partitions of broker %d:\n%+v, want\n%+v", broker, got, ps)
		}
	}
	if len(im.topics) != len(im.ids) {
		t.Fatalf("%d topics, %d ids", len(im.topics), len(im.ids))
	}
}

func TestTopicLivesAndGoes(t *testing.T) {
	im := applied(t, newTopic("a", 1), newTopic("b", 2), newPartition(1, 0, 1, 2), newPartition(1, 1, 2), config(TopicResource, "a", "k", "v"), newPartition(2, 0, 2))
	if got := im.Topics(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("topics %q", got)
	}
	if id, n, ok := im.Topic("a"); id != topicID(1) || n != 2 || !ok {
		t.Errorf("topic a: %x %d %v", id, n, ok)
	}
	want := Partition{Topic: "a", TopicID: topicID(1), Replicas: []int32{1, 2}, ISR: []int32{1, 2}, Leader: 1, Directories: [][16]byte{dir(1), dir(2)}}
	if got := partition(t, im, "a", 0); !reflect.DeepEqual(got, want) {
		t.Errorf("a-0: %+v", got)
	}
	if got := im.PartitionsOf(1); len(got) != 1 {
		t.Errorf("broker 1 has %+v", got)
	}
	changes := apply(t, im, frame(removeTopic, 0, body(nil).topic(1).tags()))
	if len(changes) != 4 || changes[0].Kind != PartitionChanged || !reflect.DeepEqual(changes[0].Before, want) || changes[0].After.Topic != "" || changes[1].Before.Partition != 1 ||
		!reflect.DeepEqual(changes[2], Change{Kind: ConfigChanged, Offset: 6, Resource: TopicResource, Name: "a", Key: "k"}) ||
		!reflect.DeepEqual(changes[3], Change{Kind: TopicDeleted, Offset: 6, Name: "a", TopicID: topicID(1)}) {
		t.Errorf("changes: %+v", changes)
	}
	if _, _, ok := im.Topic("a"); ok {
		t.Error("a is still there")
	}
	if _, ok := im.Config(TopicResource, "a", "k"); ok {
		t.Error("a's config is still there")
	}
	if got := im.PartitionsOf(1); got != nil {
		t.Errorf("broker 1 has %+v", got)
	}
	apply(t, im, newTopic("a", 3))
	if _, ok := im.Partition("a", 0); ok {
		t.Error("a new topic has an old one's partition")
	}
}

func TestPartitionChanges(t *testing.T) {
	im := applied(t, newTopic("a", 1), newPartition(1, 0, 1, 2))
	old := partition(t, im, "a", 0)
	kept := partition(t, im, "a", 0)
	for i, c := range []struct {
		record []byte
		want   func(p *Partition)
	}{
		{change(1, 0), func(*Partition) {}},
		{change(1, 0, tag(0, body(nil).nodes(2))), func(p *Partition) { p.ISR = []int32{2} }},
		{change(1, 0, tag(0, body(nil).null())), func(*Partition) {}},
		{change(1, 0, tag(1, body(nil).i32(1))), func(p *Partition) { p.LeaderEpoch++ }}, // the same one: still a new epoch
		{change(1, 0, tag(1, body(nil).i32(-1)), tag(0, body(nil).nodes())), func(p *Partition) { p.Leader, p.ISR, p.LeaderEpoch = -1, nil, p.LeaderEpoch+1 }},
		{change(1, 0, tag(1, body(nil).i32(-2))), func(*Partition) {}},
		{change(1, 0, tag(1, body(nil).i32(2)), tag(5, body(nil).i8(1))), func(p *Partition) { p.Leader, p.Recovering, p.LeaderEpoch = 2, true, p.LeaderEpoch+1 }},
		{change(1, 0, tag(5, body(nil).i8(-1))), func(*Partition) {}},
		{change(1, 0, tag(5, body(nil).i8(0))), func(p *Partition) { p.Recovering = false }},
		{change(1, 0, tag(2, body(nil).nodes(9, 2, 1)), tag(4, body(nil).nodes(9)), tag(3, body(nil).nodes(1)), tag(8, body(nil).uuids(dir(9), dir(2), dir(1)))), func(p *Partition) {
			p.Replicas, p.Adding, p.Removing, p.Directories = []int32{9, 2, 1}, []int32{9}, []int32{1}, [][16]byte{dir(9), dir(2), dir(1)}
		}},
		{change(1, 0, tag(2, body(nil).nodes(2, 5)), tag(4, body(nil).nodes()), tag(3, body(nil).nodes())), func(p *Partition) { // directories not told
			p.Replicas, p.Adding, p.Removing, p.Directories = []int32{2, 5}, nil, nil, [][16]byte{dir(2), {}}
		}},
		{change(1, 0, tag(6, body(nil).nodes(5)), tag(7, body(nil).nodes(1))), func(p *Partition) { p.ELR, p.LastKnownELR = []int32{5}, []int32{1} }},
		{change(1, 0, tag(8, body(nil).uuids(dir(4), dir(3)))), func(p *Partition) { p.Directories = [][16]byte{dir(4), dir(3)} }},
		{change(1, 0, tag(99, body(nil).i64(1))), func(*Partition) {}}, // a tag of a later Kafka
		{frame(clearELR, 0, body(nil).text("a").tags()), func(p *Partition) { p.ELR, p.LastKnownELR = nil, nil }},
	} {
		want := partition(t, im, "a", 0)
		before := want
		c.want(&want)
		want.PartitionEpoch++
		changes := apply(t, im, c.record)
		if got := partition(t, im, "a", 0); !reflect.DeepEqual(got, want) {
			t.Errorf("%d: %+v,\nwant %+v", i, got, want)
		}
		if len(changes) != 1 || changes[0].Kind != PartitionChanged || !reflect.DeepEqual(changes[0].Before, before) || !reflect.DeepEqual(changes[0].After, want) || changes[0].Offset != im.Next()-1 {
			t.Errorf("%d: changes %+v", i, changes)
		}
	}
	if !reflect.DeepEqual(old, kept) {
		t.Errorf("a value handed out earlier was changed: %+v", old)
	}
	if got := im.PartitionsOf(1); got != nil {
		t.Errorf("broker 1, which was removed, has %+v", got)
	}
	if changes := apply(t, im, frame(clearELR, 0, body(nil).text("").tags())); changes != nil {
		t.Errorf("nothing to clear, and %+v", changes)
	}
}

func TestOlderVersionsOfPartition(t *testing.T) {
	old := body(nil).i32(0).topic(1).nodes(1, 2).nodes(1).nodes().nodes(2).i32(1).i32(4).i32(7)
	for version, b := range map[uint32]body{
		0: slices.Clone(old).tags(tag(0, body(nil).i8(1))),
		1: slices.Clone(old).uuids(dir(1), dir(2)).tags(),
		2: slices.Clone(old).uuids(dir(1), dir(2)).tags(tag(1, body(nil).nodes(2)), tag(2, body(nil).nodes(3))),
	} {
		im := applied(t, newTopic("a", 1), frame(partitionRecord, version, b))
		want := Partition{Topic: "a", TopicID: topicID(1), Replicas: []int32{1, 2}, ISR: []int32{1}, Adding: []int32{2}, Leader: 1, LeaderEpoch: 4, PartitionEpoch: 7, Recovering: version == 0}
		if version > 0 {
			want.Directories = [][16]byte{dir(1), dir(2)}
		}
		if version > 1 {
			want.ELR, want.LastKnownELR = []int32{2}, []int32{3}
		}
		if got := partition(t, im, "a", 0); !reflect.DeepEqual(got, want) {
			t.Errorf("version %d: %+v", version, got)
		}
	}
}

func TestBrokers(t *testing.T) {
	im := applied(t, newBroker(2, 50), newBroker(1, 40))
	want := Broker{ID: 1, Epoch: 40, Incarnation: dir(1), Listeners: []Listener{{Name: "INTERNAL", Host: "host", Port: 9092}}, Features: map[string][2]int16{"metadata.version": {1, 30}},
		Rack: "rack", LogDirs: [][16]byte{dir(7)}, Fenced: true}
	if all := im.Brokers(); len(all) != 2 || !reflect.DeepEqual(all[0], want) || all[1].ID != 2 {
		t.Fatalf("brokers %+v", all)
	}
	shifted := func(tags ...body) []byte {
		return frame(brokerRegistrationChange, 3, body(nil).i32(1).i64(40).tags(tags...))
	}
	for i, c := range []struct {
		record []byte
		want   func(b *Broker)
	}{
		{shifted(tag(0, body(nil).i8(-1))), func(b *Broker) { b.Fenced = false }},
		{shifted(tag(1, body(nil).i8(1))), func(b *Broker) { b.InControlledShutdown = true }},
		{shifted(tag(0, body(nil).i8(1)), tag(1, body(nil).i8(0))), func(b *Broker) { b.Fenced = true }},
		{shifted(tag(3, body(nil).uuids(dir(7)))), func(b *Broker) { b.CordonedLogDirs = [][16]byte{dir(7)} }},
		{shifted(tag(3, body(nil).uuids())), func(b *Broker) { b.CordonedLogDirs = nil }},
		{shifted(tag(2, body(nil).uuids(dir(8), dir(9)))), func(b *Broker) { b.LogDirs = [][16]byte{dir(8), dir(9)} }},
		{frame(unfenceBroker, 0, body(nil).i32(1).i64(40).tags()), func(b *Broker) { b.Fenced = false }},
		{frame(fenceBroker, 0, body(nil).i32(1).i64(40).tags()), func(b *Broker) { b.Fenced = true }},
	} {
		want, _ := im.Broker(1)
		c.want(&want)
		changes := apply(t, im, c.record)
		if got, _ := im.Broker(1); !reflect.DeepEqual(got, want) {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}
		if len(changes) != 1 || changes[0].Kind != BrokerChanged || changes[0].Broker != 1 {
			t.Errorf("%d: changes %+v", i, changes)
		}
	}
	for _, none := range [][]byte{shifted(), shifted(tag(0, body(nil).i8(1))), shifted(tag(2, body(nil).uuids())), shifted(tag(3, body(nil).null()))} {
		if changes := apply(t, im, none); changes != nil {
			t.Errorf("nothing changes, and %+v", changes)
		}
	}
	apply(t, im, newBroker(1, 60))
	if b, _ := im.Broker(1); b.Epoch != 60 || b.InControlledShutdown || !b.Fenced {
		t.Errorf("registered again: %+v", b)
	}
	apply(t, im, frame(unregisterBroker, 0, body(nil).i32(1).i64(60).tags()))
	if _, ok := im.Broker(1); ok {
		t.Error("an unregistered broker is there")
	}
}

func TestOlderVersionsOfBroker(t *testing.T) {
	for version := uint32(0); version <= 3; version++ {
		b := body(nil).i32(1)
		if version >= 2 {
			b = b.i8(0)
		}
		b = b.uuid(dir(1)).i64(40).count(0).count(0).null().i8(0)
		if version >= 1 {
			b = b.i8(1)
		}
		im := applied(t, frame(registerBroker, version, b.tags()))
		if got, ok := im.Broker(1); !ok || got.Epoch != 40 || got.Incarnation != dir(1) || got.Rack != "" || got.Fenced || got.InControlledShutdown != (version >= 1) {
			t.Errorf("version %d: %+v", version, got)
		}
	}
}

func TestConfigsFeaturesUsersAndTheRest(t *testing.T) {
	im := applied(t, config(TopicResource, "a", "k", "v"), config(TopicResource, "a", "l", ""), config(BrokerResource, "", "k", "w"), config(8, "1", "k", "x"))
	if v, ok := im.Config(TopicResource, "a", "k"); v != "v" || !ok {
		t.Errorf("%q %v", v, ok)
	}
	if v, ok := im.Config(TopicResource, "a", "l"); v != "" || !ok {
		t.Errorf("%q %v", v, ok)
	}
	mine := im.Configs(TopicResource, "a")
	if mine["k"] = "changed"; im.Configs(TopicResource, "a")["k"] != "v" {
		t.Error("a copy is none")
	}
	if got := im.Configs(8, "1"); got != nil {
		t.Errorf("a broker logger's level: %v", got)
	}
	if changes := apply(t, im, config(TopicResource, "a", "k", "v")); changes != nil {
		t.Errorf("the same value again, and %+v", changes)
	}
	if changes := apply(t, im, noConfig(TopicResource, "a", "k")); len(changes) != 1 || changes[0].Key != "k" {
		t.Errorf("changes %+v", changes)
	}
	if _, ok := im.Config(TopicResource, "a", "k"); ok {
		t.Error("a deleted key is there")
	}

	feature := func(name string, level int16) []byte {
		return frame(featureLevel, 0, body(nil).text(name).i16(level).tags())
	}
	apply(t, im, feature("metadata.version", 30))
	apply(t, im, feature("group.version", 1))
	if changes := apply(t, im, feature("group.version", 0)); len(changes) != 1 || changes[0].Kind != FeatureChanged || changes[0].Name != "group.version" {
		t.Errorf("changes %+v", changes)
	}
	if got := im.Features(); len(got) != 1 || got["metadata.version"] != 30 {
		t.Errorf("features %v", got)
	}
	if level, ok := im.Feature("group.version"); ok || level != 0 {
		t.Errorf("level %d", level)
	}

	changes := apply(t, im, frame(userScramCredential, 0, body(nil).text("alice").i8(2).blob("salt").blob("stored").blob("server").i32(4096).tags()))
	if len(changes) != 1 || changes[0].Kind != ScramChanged || changes[0].Name != "alice" || changes[0].Mechanism != 2 {
		t.Errorf("changes %+v", changes)
	}
	if c, ok := im.Scram(2, "alice"); !ok || string(c.Salt) != "salt" || string(c.StoredKey) != "stored" || string(c.ServerKey) != "server" || c.Iterations != 4096 {
		t.Error("not alice's credential")
	}
	if _, ok := im.Scram(1, "alice"); ok {
		t.Error("a credential of the other mechanism")
	}
	apply(t, im, frame(removeUserScram, 0, body(nil).text("alice").i8(2).tags()))
	if _, ok := im.Scram(2, "alice"); ok {
		t.Error("a removed credential is there")
	}

	if changes := apply(t, im, frame(producerIDs, 0, body(nil).i32(1).i64(2).i64(3000).tags())); im.NextProducerID() != 3000 || len(changes) != 1 || changes[0].Kind != ProducerIDsChanged {
		t.Errorf("%d %+v", im.NextProducerID(), changes)
	}

	apply(t, im, frame(registerController, 0, body(nil).i32(5).uuid(dir(1)).i8(0).count(1).text("CONTROLLER").text("h").i16(-1).i16(3).tags().count(1).text("f").i16(0).i16(1).tags().tags()))
	if got := im.Controllers(); !reflect.DeepEqual(got, []Controller{{ID: 5, Listeners: []Listener{{"CONTROLLER", "h", 65535, 3}}}}) {
		t.Errorf("controllers %+v", got)
	}
	apply(t, im, frame(unregisterController, 0, body(nil).i32(5).tags()))
	if got := im.Controllers(); got != nil {
		t.Errorf("controllers %+v", got)
	}
	for _, skipped := range []uint32{6, 10, 13, 14, 16, 18, 19, 20, 21, 26, 30, 700} {
		if changes := apply(t, im, frame(skipped, 9, body("anything"))); changes != nil {
			t.Errorf("type %d: %+v", skipped, changes)
		}
	}
}

func TestTransactions(t *testing.T) {
	begin, end, abort := frame(beginTransaction, 0, body(nil).tags(tag(0, body(nil).text("why")))), frame(endTransaction, 0, body(nil).tags()), frame(abortTransaction, 0, body(nil).tags())
	im := New()
	for i, r := range [][]byte{begin, newTopic("a", 1), newPartition(1, 0, 1), frame(20, 0, nil)} {
		if changes := apply(t, im, r); changes != nil || len(im.Topics()) != 0 {
			t.Fatalf("%d: %+v shows before the end", i, changes)
		}
	}
	changes := apply(t, im, end)
	if len(changes) != 2 || changes[0].Kind != TopicCreated || changes[0].Offset != 1 || changes[1].Offset != 2 || len(im.Topics()) != 1 {
		t.Errorf("changes %+v", changes)
	}
	apply(t, im, begin)
	apply(t, im, newTopic("b", 2))
	if changes := apply(t, im, abort); changes != nil || len(im.Topics()) != 1 {
		t.Errorf("aborted, and %+v", changes)
	}
	apply(t, im, newTopic("c", 3))

	for _, wrong := range [][][]byte{{end}, {abort}, {begin, begin}, {begin, newPartition(9, 0, 1), end}, {begin, frame(topicRecord, 0, body("x")), end}} {
		if _, err := New().Apply(pack(0, 0, wrong...)); !isRecordError(err) {
			t.Errorf("%v", err)
		}
	}
}

func isRecordError(err error) bool {
	var e *RecordError
	return errors.As(err, &e)
}

func TestWhereItGoesOn(t *testing.T) {
	im := New()
	log := slices.Concat(control(0, 1), pack(1, 1, newTopic("a", 1), newPartition(1, 0, 1), change(1, 0)), control(4, 2), pack(5, 2, change(1, 0)))
	if _, err := im.Apply(log[:len(log)-1]); !errors.Is(err, batch.ErrCut) || im.Next() != 5 || im.LastEpoch() != 2 {
		t.Errorf("%v, next %d", err, im.Next())
	}
	if _, err := im.Apply(log); err != nil || im.Next() != 6 || partition(t, im, "a", 0).PartitionEpoch != 2 {
		t.Errorf("the whole log again: %v, next %d, %+v", err, im.Next(), partition(t, im, "a", 0))
	}
	im.next, im.epoch = 3, 1 // inside of the first batch
	if _, err := im.Apply(log); err != nil || im.Next() != 6 || partition(t, im, "a", 0).PartitionEpoch != 4 {
		t.Errorf("from 3: %v, next %d, %+v", err, im.Next(), partition(t, im, "a", 0))
	}
	var gap *GapError
	if _, err := im.Apply(pack(7, 2, change(1, 0))); !errors.As(err, &gap) || gap.Next != 6 || gap.Found != 7 || im.Next() != 6 {
		t.Errorf("a gap: %v", err)
	}
	damaged := pack(6, 2, change(1, 0))
	damaged[len(damaged)-1] ^= 1
	if _, err := im.Apply(damaged); !errors.Is(err, batch.ErrCorrupt) || im.Next() != 6 {
		t.Errorf("damaged: %v", err)
	}
	compressed := pack(6, 2, change(1, 0))
	compressed[22] |= batch.CodecZstd
	batch.Seal(compressed)
	var wrong *BatchError
	if _, err := im.Apply(compressed); !errors.As(err, &wrong) || wrong.Offset != 6 || im.Next() != 6 {
		t.Errorf("compressed: %v", err)
	}
	if _, err := im.Apply(pack(6, 2, change(1, 0))); err != nil || im.Next() != 7 {
		t.Errorf("after errors that can be healed: %v", err)
	}

	for end, want := range map[int64]int64{0: 0, 1: 1, 3: 1, 4: 4, 5: 5, math.MaxInt64: 5} { // the last batch is cut
		im := New()
		if _, err := im.Apply(Whole(log[:len(log)-1], end)); err != nil || im.Next() != want {
			t.Errorf("below %d: %v, next %d", end, err, im.Next())
		}
	}
}

func TestRecordsThatCannotBe(t *testing.T) {
	start := [][]byte{newTopic("a", 1), newPartition(1, 0, 1, 2), newBroker(1, 40), config(TopicResource, "a", "k", "secret-value")}
	for name, record := range map[string][]byte{
		"no value":                      nil,
		"frame version":                 {2, 3, 0},
		"frame cut":                     {1},
		"varint":                        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"topic again":                   newTopic("a", 9),
		"topic id again":                newTopic("z", 1),
		"partition of no topic":         newPartition(5, 0, 1),
		"negative partition":            newPartition(1, -1, 1),
		"change of no topic":            change(5, 0),
		"change of no partition":        change(1, 7),
		"leader":                        change(1, 0, tag(1, body(nil).i32(-3))),
		"recovery state":                change(1, 0, tag(5, body(nil).i8(2))),
		"directories":                   change(1, 0, tag(8, body(nil).uuids(dir(1)))),
		"tag too long":                  change(1, 0, tag(1, body(nil).i64(1))),
		"tag cut":                       frame(partitionChange, 2, body(nil).i32(0).topic(1).varint(1).varint(0).varint(9)),
		"remove no topic":               frame(removeTopic, 0, body(nil).topic(7).tags()),
		"clear no topic":                frame(clearELR, 0, body(nil).text("zz").tags()),
		"broker epoch":                  frame(fenceBroker, 0, body(nil).i32(1).i64(41).tags()),
		"no such broker":                frame(brokerRegistrationChange, 1, body(nil).i32(2).i64(40).tags()),
		"fenced 2":                      frame(brokerRegistrationChange, 1, body(nil).i32(1).i64(40).tags(tag(0, body(nil).i8(2)))),
		"shutdown -1":                   frame(brokerRegistrationChange, 1, body(nil).i32(1).i64(40).tags(tag(1, body(nil).i8(-1)))),
		"garbage after it":              append(config(TopicResource, "a", "k", "secret-value"), 0),
		"ends early":                    config(TopicResource, "a", "k", "secret-value")[:20],
		"length beyond":                 frame(configRecord, 0, body(nil).i8(2).text("a").text("secret-value").varint(1<<20)),
		"null name":                     frame(topicRecord, 0, body(nil).null().topic(2).tags()),
		"newer, a field at the end":     frame(configRecord, 1, body(nil).i8(2).text("a").text("k").text("secret-value").i32(5).tags()),
		"newer, a field in between":     frame(topicRecord, 1, body(nil).i8(1).text("b").topic(3).tags()),
		"newer partition with a string": frame(partitionRecord, 3, append(newPartition(1, 0, 1)[3:], body(nil).text("x")...)),
	} {
		im := applied(t, start...)
		before := picture(im)
		changes, err := im.Apply(pack(4, 9, config(TopicResource, "a", "k", "other"), record, newTopic("never", 8)))
		var e *RecordError
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e.Offset != 5 || im.Next() != 5 || len(changes) != 1 || changes[0].Offset != 4 {
			t.Errorf("%s: %v, next %d, changes %+v", name, err, im.Next(), changes)
		}
		if errors.Is(err, ErrNewerRecord) != strings.HasPrefix(name, "newer") {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells a value: %v", name, err)
		}
		if want := strings.Replace(before, `"secret-value"`, `"other"`, 1); picture(im) != want {
			t.Errorf("%s: the bad record changed the image:\n%s\nwant\n%s", name, picture(im), want)
		}
		if _, again := im.Apply(pack(6, 9, newTopic("x", 8))); again != err {
			t.Errorf("%s: then %v", name, again)
		}
		checkIndex(t, im)
	}
}

// A newer version that only has more tags is read.
func TestNewerVersionsWithTags(t *testing.T) {
	im := applied(t, frame(topicRecord, 7, body(nil).text("a").topic(1).tags(tag(0, body("new")))), frame(partitionRecord, 3, newPartition(1, 0, 1)[3:]))
	if p := partition(t, im, "a", 0); p.Leader != 1 {
		t.Errorf("%+v", p)
	}
}

func TestNothingSecretIsPrinted(t *testing.T) {
	im := applied(t, config(BrokerResource, "", "ssl.key.password", "hidden-1"), frame(userScramCredential, 0, body(nil).text("u").i8(1).blob("hidden-2").blob("hidden-3").blob("hidden-4").i32(4096).tags()))
	c, _ := im.Scram(1, "u")
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format+format+format, im, c, &c); strings.Contains(text, "hidden") || strings.Contains(text, "104, 105, 100") {
			t.Errorf("%s: %s", format, text)
		}
	}
}
