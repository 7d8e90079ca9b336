package kraftlife_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/statemachine"
)

// set changes one setting of a topic.
func set(t *testing.T, c *kafkatest.Cluster, topic, name, value string) {
	t.Helper()
	answers, err := c.Admin().AlterTopicConfigs(lives.Limited(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
}

// deleteTopic deletes a topic and waits until no broker has it.
func deleteTopic(t *testing.T, c *kafkatest.Cluster, topic string) {
	t.Helper()
	if _, err := c.Admin().DeleteTopic(lives.Limited(t), topic); err != nil {
		t.Fatal(err)
	}
	lives.Eventually(t, topic+" is gone", func() (bool, string) {
		for _, id := range c.Brokers() {
			if dirs := c.LogDirs(topic, 0, id); slices.Contains(dirs, topic+"-0") {
				return false, fmt.Sprintf("broker %d has it", id)
			}
		}
		return !exists(t, c, topic), "the metadata has it"
	})
}

// exists looks without creating: all topics are listed.
func exists(t *testing.T, c *kafkatest.Cluster, topic string) bool {
	t.Helper()
	all, err := c.Admin().ListTopics(lives.Limited(t))
	if err != nil {
		t.Fatal(err)
	}
	return all.Has(topic)
}

// tenLookUps waits until the mirror has asked its source ten times more.
func tenLookUps(t *testing.T, r *lives.Running) {
	t.Helper()
	source, ok := r.Config.Source.(*kafkasource.Source)
	if !ok {
		t.Fatal("the source does not count")
	}
	before := source.Counts().Metadata
	lives.Eventually(t, "ten look-ups", func() (bool, string) {
		n := source.Counts().Metadata - before
		return n >= 10, fmt.Sprintf("%d look-ups", n)
	})
}

func TestF12BatchAboveWhatStockBrokersAllow(t *testing.T) {
	a, b := small(t), standby(t)
	topic := "f12-large"
	a.CreateTopic(kafkatest.Topic{Name: topic, Configs: map[string]string{"max.message.bytes": "10485760"}})
	cl := lives.Client(a, kgo.ProducerBatchMaxBytes(8<<20))
	big := make([]byte, 6<<20)
	rand.Read(big)
	lives.Produce(t, cl, topic, 0, lives.Values("small", 100)...) // 0..99
	lives.Produce(t, cl, topic, 0, string(big))                   // 100
	lives.Produce(t, cl, topic, 0, "after")                       // 101
	at := lives.Join(t, b)
	r := lives.Open(t, "f12", a, at)
	r.Set(ownSettings)
	r.Start(topic)
	refused := func(at int64) {
		t.Helper()
		p := r.UntilFailed(topic, fmt.Sprintf("batch at %d is 62915", at), "max.message.bytes is 1048588")
		if p.End != at {
			t.Errorf("the copy ends at %d, want %d", p.End, at)
		}
	}
	refused(100)
	set(t, b, topic, "max.message.bytes", "10485760")
	r.Same(topic, 0, 102)
	set(t, b, topic, "max.message.bytes", "1048588")
	if _, err := at.Topic(lives.Limited(t), topic); err != nil { // it is answered from all that was committed before
		t.Fatal(err)
	}
	lives.Produce(t, cl, topic, 0, string(big)) // 102
	refused(102)
	set(t, b, topic, "max.message.bytes", "10485760")
	r.Same(topic, 0, 103)
}

func TestF17StockFollowersTakeOddTimestamps(t *testing.T) {
	a, b := small(t), standby(t)
	topic := "f17-odd-timestamps"
	id := a.CreateTopic(kafkatest.Topic{Name: topic, Configs: map[string]string{"message.timestamp.after.max.ms": "9223372036854775807", "retention.ms": "-1"}})
	times := []int64{-1, 0, time.Date(1970, 3, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), math.MaxInt64}
	for _, at := range times {
		lives.ProduceRaw(t, a, topic, id, 0, batch.DataSpec{LeaderEpoch: -1, ProducerID: -1, BaseTimestamp: at, MaxTimestamp: at, Records: []batch.Record{{Value: []byte("odd")}}})
	}
	r := lives.Open(t, "f17", a, lives.Join(t, b))
	r.Start(topic)
	for i, h := range lives.Headers(r.Same(topic, 0, int64(len(times)))) {
		if h.MaxTimestamp != times[i] {
			t.Errorf("the record at %d has time %d, want %d", i, h.MaxTimestamp, times[i])
		}
	}
	r.Failover()
	for i, h := range lives.Headers(lives.Fetch(t, b, topic, 0, 0, 5))[:len(times)] { // the reset comes with them
		if h.MaxTimestamp != times[i] {
			t.Errorf("clients of the new primary read the record at %d with time %d, want %d", i, h.MaxTimestamp, times[i])
		}
	}
}

func TestF30StateIsLeftAndTheDestinationIsEmpty(t *testing.T) {
	a, b := small(t), standby(t)
	topic := "f30-wiped"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	lives.Produce(t, lives.Client(a), topic, 0, lives.Values("kept", 500)...)
	at := lives.Join(t, b)
	r := lives.Open(t, "f30", a, at)
	r.Start(topic)
	r.Same(topic, 0, 500)
	r.End()
	deleteTopic(t, b, topic)
	lives.Produce(t, lives.Client(a), topic, 0, lives.Values("later", 5)...)
	again := lives.Open(t, "f30", a, at)
	again.Start(topic)
	again.Same(topic, 0, 505)
}

// Topics are created by whoever asks for them, on both sides.
func TestF31LookUpsCreateNoTopicOnEitherSide(t *testing.T) {
	a, b := small(t), standby(t)
	gone, wiped := "f31-deleted-at-the-source", "f31-deleted-at-the-destination"
	for _, topic := range []string{gone, wiped} {
		a.CreateTopic(kafkatest.Topic{Name: topic})
		lives.Produce(t, lives.Client(a), topic, 0, lives.Values("kept", 10)...)
	}
	at := lives.Join(t, b)
	r := lives.Open(t, "f31", a, at)
	r.Start(gone, wiped)
	copied := r.Same(gone, 0, 10)
	r.Same(wiped, 0, 10)
	deleteTopic(t, a, gone)
	deleteTopic(t, b, wiped)
	tenLookUps(t, r)
	if _, err := at.Topic(lives.Limited(t), "f31-never-there"); !errors.Is(err, mirror.ErrUnknownTopic) {
		t.Errorf("a topic that never was: %v", err)
	}
	lives.Eventually(t, "the status says that the source is missing", func() (bool, string) {
		s := r.Status()
		p := lives.One(s, gone, 0)
		return p.State == statemachine.Failed && p.LagOffsets == mirror.Unknown, lives.Show(s)
	})
	lives.Produce(t, lives.Client(a), wiped, 0, "the mirror has to append it")
	r.UntilFailed(wiped, "destination", "deleted", "to copy it anew") // whoever notices first, the look at the topic or the append, says so
	tenLookUps(t, r)
	for topic, c := range map[string]*kafkatest.Cluster{gone: a, wiped: b, "f31-never-there": b} {
		if exists(t, c, topic) {
			t.Errorf("%s is there again", topic)
		}
	}
	if now := b.WaitSameSegments(gone, 0, 1, 2, 3); !bytes.Equal(now, copied) {
		t.Errorf("the copy changed: %s", lives.Difference(now, copied))
	}

	// The check can fail: a client that asks as consumers do brings a topic.
	for name, c := range map[string]*kafkatest.Cluster{"source": a, "destination": b} {
		asker := lives.Client(c, kgo.AllowAutoTopicCreation())
		lives.Eventually(t, "auto-creation is on at the "+name, func() (bool, string) {
			err := asker.ProduceSync(t.Context(), lives.RecordOf("f31-other")).FirstErr()
			return err == nil || errors.Is(err, kerr.TopicAlreadyExists), fmt.Sprint(err)
		})
	}
}

func TestF34TopicIDsDiffer(t *testing.T) {
	a, b := small(t), standby(t)
	topic := "f34-ids"
	id := a.CreateTopic(kafkatest.Topic{Name: topic})
	lives.Produce(t, lives.Client(a), topic, 0, lives.Values("on both", 10)...)
	r := lives.Open(t, "f34", a, lives.Join(t, b))
	r.Start(topic)
	r.Same(topic, 0, 10)
	p := lives.One(r.Status(), topic, 0)
	if p.SourceTopicID != mirror.TopicID(id) || p.TopicID != mirror.TopicID(lives.TopicID(t, b, topic)) || p.TopicID == p.SourceTopicID {
		t.Errorf("the status says %v and %v; the ids are %x at the source and %x at the destination", p.SourceTopicID, p.TopicID, id, lives.TopicID(t, b, topic))
	}
	r.Failover()
	// A client that was started with the other cluster has to be started anew; then it finds everything.
	if got := lives.Committed(t, b, topic, 0, 9); len(got) != 10 {
		t.Errorf("a new client reads %v", got)
	}
}

func TestF50FirstSequenceOnEmptyStockFollowers(t *testing.T) {
	a, b := small(t), standby(t)
	topic := "f50-trimmed"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	cl := lives.Client(a)
	lives.Produce(t, cl, topic, 0, lives.Values("deleted", 57)...)
	lives.Produce(t, cl, topic, 0, lives.Values("first", 5)...)
	lives.Produce(t, cl, topic, 0, lives.Values("second", 5)...)
	a.DeleteRecords(topic, 0, 57)
	r := lives.Open(t, "f50", a, lives.Join(t, b))
	r.Start(topic)
	hs := lives.Headers(r.Same(topic, 0, 67))
	if len(hs) != 2 || hs[0].BaseSequence != 57 || hs[1].BaseSequence != 62 {
		t.Fatalf("%+v", hs)
	}
	r.Failover()
	if ours, theirs := producers(t, b, topic), producers(t, a, topic); !slices.Equal(ours, theirs) || len(theirs) != 1 {
		t.Errorf("producers at the destination %q, at the source %q", ours, theirs)
	}
}

// producers are what a broker answers to DescribeProducers.
func producers(t *testing.T, c *kafkatest.Cluster, topic string) (all []string) {
	t.Helper()
	want := kadm.TopicsSet{}
	want.Add(topic, 0)
	answer, err := c.Admin().DescribeProducers(lives.Limited(t), want)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer[topic].Partitions[0].Err; err != nil {
		t.Fatal(err)
	}
	for _, p := range answer[topic].Partitions[0].ActiveProducers.Sorted() {
		all = append(all, fmt.Sprintf("%d: epoch %d, last sequence %d", p.ProducerID, p.ProducerEpoch, p.LastSequence))
	}
	return all
}

// nextProducerID takes an id of a broker, which gives the next one to whoever asks then.
func nextProducerID(t *testing.T, c *kafkatest.Cluster, broker int32) int64 {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = 60_000
	resp, err := lives.Ask[*kmsg.InitProducerIDResponse](t, c, broker, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	return resp.ProducerID
}

// A producer of the destination is given an id that lives in the mirrored log: its first record must not vanish. Without the step that settles ids it does, and it is told that all is well.
// TestF48ProducerIDOfBothSides: brokers give out no id of a mirrored producer, soon after it was first seen and after the stop. A producer that was given one before loses its first record:
// that is the loss, and what is not covered (go doc mirror/kraft).
func TestF48ProducerIDOfBothSides(t *testing.T) {
	a, b := small(t), standby(t)
	at := lives.Join(t, b)
	one := func(producer int64, text string) batch.DataSpec {
		return batch.DataSpec{LeaderEpoch: -1, ProducerID: producer, BaseTimestamp: time.Now().UnixMilli(), Records: []batch.Record{{Value: []byte(text)}}}
	}
	// life mirrors a producer and stops; then one of the destination writes, under the id that client says.
	life := func(topic string, mirrored int64, client func() int64) (stored bool) {
		t.Helper()
		id := a.CreateTopic(kafkatest.Topic{Name: topic})
		lives.ProduceRaw(t, a, topic, id, 0, one(mirrored, "of the source"))
		r := lives.Open(t, topic, a, at)
		r.Start(topic)
		r.Same(topic, 0, 1)
		given := client()
		r.Failover()
		r.End()
		end := lives.OffsetOf(t, b, lives.Latest, topic, 0)
		lives.ProduceRaw(t, b, topic, lives.TopicID(t, b, topic), 0, one(given, "of the destination")) // is answered with success
		now := lives.OffsetOf(t, b, lives.Latest, topic, 0)
		stored = bytes.Contains(b.WaitSameSegments(topic, 0, 1, 2, 3), []byte("of the destination"))
		if stored != (now == end+1) {
			t.Fatalf("stored %t, and the log ends at %d after %d", stored, now, end)
		}
		return stored
	}
	// An id that the broker will give out soon, from the thousand that it has. Others, such as the store, take some meanwhile.
	mirrored := nextProducerID(t, b, 2)
	for ; mirrored%1000 > 800; mirrored = nextProducerID(t, b, 2) {
	}
	mirrored += 100
	if !life("f48-settled", mirrored, func() (given int64) {
		asked := 0
		lives.Eventually(t, "broker 2 to give out ids above the mirrored one, without a stop", func() (bool, string) {
			given = nextProducerID(t, b, 2)
			asked++
			return given > mirrored, fmt.Sprintf("%d, %d is mirrored", given, mirrored)
		})
		if asked >= 100 {
			t.Error("nobody but this test has used up the broker's ids")
		}
		return given
	}) {
		t.Error("a producer that began while the topic was mirrored lost its record")
	}
	early := nextProducerID(t, b, 2)
	if life("f48-given-before", early, func() int64 { return early }) {
		t.Error("a producer that had a mirrored id before lost nothing; the loss that all this is for is not seen any more")
	}
}

func TestF82SomebodyElseWritesToTheMirrorTopic(t *testing.T) {
	a, b := small(t), standby(t)
	topic := "f82-written"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	lives.Produce(t, lives.Client(a), topic, 0, lives.Values("of the source", 100)...)
	at := lives.Join(t, b)
	r := lives.Open(t, "f82", a, at)
	r.Start(topic)
	r.Same(topic, 0, 100)
	w := b.WriteAlways(map[string][]int32{topic: {0}}, at.Address)
	w.WaitRounds(2)
	lives.Produce(t, lives.Client(a), topic, 0, lives.Values("of the source", 5)...) // 100..104
	copied := r.Same(topic, 0, 105)
	w.WaitRounds(2)
	w.Stop()
	if got := w.Successes(); len(got) != 0 {
		t.Errorf("somebody wrote while the topic is mirrored: %+v", got)
	}
	if found := w.FindIn(b.WaitSameSegments(topic, 0, 1, 2, 3)); len(found) != 0 {
		t.Errorf("somebody's records are in the copy: %+v", found)
	}

	// After the hand-over clients write; a mirror that is started again finds it, and takes nothing back without consent.
	opens := r.Failover().Partitions[0].OpensAt
	lives.Produce(t, lives.Client(b), topic, 0, lives.Values("of the destination", 3)...)
	lives.Produce(t, lives.Client(a), topic, 0, lives.Values("of the source", 5)...)
	r.Start(topic)
	p := r.UntilFailed(topic, fmt.Sprint(opens+3))
	if p.NeedsConsent == nil || p.NeedsConsent.To != opens+3 || p.Owner != mirror.OwnerOpen {
		t.Errorf("%+v", p)
	}
	now := b.WaitSameSegments(topic, 0, 1, 2, 3)
	if !bytes.HasPrefix(now, copied) || !bytes.Contains(now, []byte("of the destination 2")) {
		t.Errorf("the log changed: %s", lives.Difference(now, copied))
	}
	lives.Produce(t, lives.Client(b), topic, 0, "clients go on")
	if v := at.Noticed(kraft.Violation); len(v) != 0 {
		t.Errorf("%+v", v)
	}
}

// The process is gone, an operator elects a stock broker in spite of the topic's setting, and a client writes. The process that comes back takes nothing away from that client.
func TestF82ARecordWrittenAfterAViolation(t *testing.T) {
	a, b := small(t), standby(t)
	topic := "f82-violated"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	lives.Produce(t, lives.Client(a), topic, 0, lives.Values("of the source", 100)...)
	at := lives.Join(t, b)
	r := lives.Open(t, "f82-violated", a, at)
	r.Start(topic)
	copied := r.Same(topic, 0, 100)
	// Until then its leader epoch rises, by two, also while the process lives.
	led := r.Until("its leader epoch was raised", topic, 0, func(p mirror.PartitionStatus) bool { return p.LeaderEpoch >= 2 }).LeaderEpoch
	r.End()
	at.Die()
	// Clients see no leader while the process leads, either.
	b.WaitPartition(topic, 0, "no leader", func(p kafkatest.Partition) bool { return p.Leader < 0 && p.LeaderEpoch > led })
	b.UncleanElection(topic, 0)
	lives.Produce(t, lives.Client(b), topic, 0, "of the destination") // 100
	lives.Produce(t, lives.Client(a), topic, 0, lives.Values("of the source", 5)...)

	at = lives.Join(t, b)
	r = lives.Open(t, "f82-violated", a, at)
	p := r.UntilFailed(topic)
	t.Log(p.Reason)
	if p.Owner != mirror.OwnerOpen {
		t.Errorf("%+v", p)
	}
	tenLookUps(t, r)
	lives.Produce(t, lives.Client(b), topic, 0, "of the destination, later") // 101
	now := b.WaitSameSegments(topic, 0, 1, 2, 3)
	if hs := lives.Headers(now); !bytes.HasPrefix(now, copied) || hs[len(hs)-2].BaseOffset != 100 || hs[len(hs)-1].BaseOffset != 101 || !bytes.Contains(now, []byte("of the destination, later")) {
		t.Errorf("the log is %+v", hs)
	}
}
