package realkafka_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/producerstate"
)

// sameProducers compares what producerstate makes of the copy with what the broker answers to DescribeProducers.
func sameProducers(t *testing.T, c *kafkatest.Cluster, topic string, copied []byte) *producerstate.Manager {
	t.Helper()
	m := producerstate.New()
	if err := m.Observe(copied); err != nil {
		t.Fatal(err)
	}
	var ours []string
	for _, p := range m.Producers() {
		ours = append(ours, fmt.Sprintf("%d: epoch %d, last sequence %d, coordinator epoch %d, open since %d", p.ID, p.Epoch, p.LastSequence, p.CoordinatorEpoch, p.OpenSince))
	}
	set := kadm.TopicsSet{}
	set.Add(topic, 0)
	answer, err := c.Admin().DescribeProducers(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer[topic].Partitions[0].Err; err != nil {
		t.Fatal(err)
	}
	var brokers []string
	for _, p := range answer[topic].Partitions[0].ActiveProducers.Sorted() {
		brokers = append(brokers, fmt.Sprintf("%d: epoch %d, last sequence %d, coordinator epoch %d, open since %d", p.ProducerID, p.ProducerEpoch, p.LastSequence, p.CoordinatorEpoch, p.CurrentTxnStartOffset))
	}
	slices.Sort(ours)
	slices.Sort(brokers)
	if !slices.Equal(ours, brokers) {
		t.Errorf("producers of %s\nof the copy   %q\nof the broker %q", topic, ours, brokers)
	}
	if len(ours) == 0 {
		t.Errorf("%s knows no producer", topic)
	}
	return m
}

// sameLastStable compares the copy's last stable offset with what the broker answers to a read_committed look-up of the end.
func (r *running) sameLastStable(topic string) int64 {
	r.t.Helper()
	want := lives.OffsetOf(r.t, r.c, lives.LastStable, topic, 0)
	return r.until("the last stable offset is the source's", topic, 0, func(p mirror.PartitionStatus) bool { return p.LastStable == want }).LastStable
}

func TestF50FirstBatchOfATrimmedLog(t *testing.T) {
	c := shared(t)
	topic := "f50-trimmed"
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	cl := lives.Client(c)
	lives.Produce(t, cl, topic, 0, lives.Values("deleted", 57)...)
	lives.Produce(t, cl, topic, 0, lives.Values("first", 5)...)
	lives.Produce(t, cl, topic, 0, lives.Values("second", 5)...)
	c.DeleteRecords(topic, 0, 57)
	r := open(t, c)
	r.start(topic)
	copied := r.same(topic, 0, 67)
	hs := lives.Headers(copied)
	if len(hs) != 2 || hs[0].BaseSequence != 57 || hs[1].BaseSequence != 62 {
		t.Errorf("%+v", hs)
	}
	sameProducers(t, c, topic, copied)
}

func TestF52MarkersWithARaisedEpoch(t *testing.T) {
	c := shared(t)
	topic := "f52-raised-epoch"
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	r := open(t, c)
	r.start(topic)
	cl := lives.Client(c, kgo.TransactionalID(topic))

	lives.Begin(t, cl)
	lives.Produce(t, cl, topic, 0, lives.Values("committed", 5)...)
	m := sameProducers(t, c, topic, r.same(topic, 0, 5))
	if open := m.InFlight(); len(open) != 1 || open[0].FirstOffset != 0 {
		t.Errorf("open: %+v", open)
	}
	if at := r.sameLastStable(topic); at != 0 {
		t.Errorf("last stable offset %d with a transaction open from 0", at)
	}
	lives.Finish(t, c, cl, kgo.TryCommit, topic, 0)
	sameProducers(t, c, topic, r.same(topic, 0, 6))
	if at := r.sameLastStable(topic); at != 6 {
		t.Errorf("last stable offset %d after the first marker", at)
	}

	lives.Begin(t, cl)
	lives.Produce(t, cl, topic, 0, lives.Values("aborted", 4)...)
	r.same(topic, 0, 10)
	if at := r.sameLastStable(topic); at != 6 {
		t.Errorf("last stable offset %d with a transaction open from 6", at)
	}
	lives.Finish(t, c, cl, kgo.TryAbort, topic, 0)
	copied := r.same(topic, 0, 11)
	m = sameProducers(t, c, topic, copied)
	if at := r.sameLastStable(topic); at != 11 {
		t.Errorf("last stable offset %d after the second marker", at)
	}
	hs := lives.Headers(copied)
	if len(hs) != 4 || hs[1].ProducerEpoch != hs[0].ProducerEpoch+1 || hs[3].ProducerEpoch != hs[2].ProducerEpoch+1 {
		t.Errorf("the client did not speak transactions v2: %+v", hs)
	}
	if a := m.Aborted(0, 11); len(a) != 1 || a[0].FirstOffset != 6 || a[0].LastOffset != 10 {
		t.Errorf("aborted: %+v", a)
	}
	if len(m.InFlight()) != 0 {
		t.Errorf("open: %+v", m.InFlight())
	}
}

// Several producers at once, of both transaction versions and without transactions, some of them open: every answer is the broker's.
func TestSpec4ProducersAreThoseOfTheBroker(t *testing.T) {
	c := shared(t)
	topic := "many-producers"
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	r := open(t, c)
	r.start(topic)
	one, two := lives.Client(c, kgo.TransactionalID(topic+"-v1"), lives.OldProtocol), lives.Client(c, kgo.TransactionalID(topic+"-v2"))
	third := lives.Client(c)
	end := int64(0)
	for round := range 3 {
		how := []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort}[round%2]
		lives.Begin(t, one)
		lives.Begin(t, two)
		lives.Produce(t, one, topic, 0, lives.Values("v1", 2)...)
		lives.Produce(t, third, topic, 0, lives.Values("plain", 3)...)
		lives.Produce(t, two, topic, 0, lives.Values("v2", 4)...)
		end += 9
		sameProducers(t, c, topic, r.same(topic, 0, end))
		r.sameLastStable(topic)
		lives.Finish(t, c, one, how, topic, 0)
		sameProducers(t, c, topic, r.same(topic, 0, end+1))
		r.sameLastStable(topic)
		lives.Finish(t, c, two, how, topic, 0)
		end += 2
		m := sameProducers(t, c, topic, r.same(topic, 0, end))
		if at := r.sameLastStable(topic); at != end || len(m.InFlight()) != 0 {
			t.Errorf("round %d: last stable offset %d, open %+v", round, at, m.InFlight())
		}
	}
}
