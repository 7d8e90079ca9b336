package realkafka_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

func TestF19RetentionOvertakesAPausedMirror(t *testing.T) {
	c := shared(t)
	topic := "f19-overtaken"
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	cl := lives.Client(c)
	for range 10 {
		lives.Produce(t, cl, topic, 0, lives.Values("ten", 10)...)
	}
	r := open(t, c)
	r.start(topic)
	r.same(topic, 0, 100)
	r.pause(topic)
	for range 20 {
		lives.Produce(t, cl, topic, 0, lives.Values("ten", 10)...)
	}
	c.DeleteRecords(topic, 0, 150)
	r.resume(topic)
	r.same(topic, 0, 300)
	p := lives.One(r.Status(), topic, 0)
	if p.LostFrom != 100 || p.LostTo != 150 || p.Start != 150 {
		t.Errorf("lost [%d,%d), start %d; want [100,150) and 150", p.LostFrom, p.LostTo, p.Start)
	}
	if lost := told[recordsLost](r); len(lost) != 1 || lost[0].From != 100 || lost[0].To != 150 {
		t.Errorf("%v", lost)
	}
}

func TestF21LogStartFollowedWithoutNewData(t *testing.T) {
	c := shared(t)
	topic := "f21-start"
	c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	cl := lives.Client(c)
	for range 10 {
		lives.Produce(t, cl, topic, 0, lives.Values("ten", 10)...)
	}
	r := open(t, c)
	r.start(topic)
	r.same(topic, 0, 100)
	c.DeleteRecords(topic, 0, 45)
	r.until("the start is followed", topic, 0, func(p mirror.PartitionStatus) bool { return p.Start == 45 })
	r.same(topic, 0, 100)
	if lost := told[recordsLost](r); len(lost) != 0 {
		t.Errorf("records that were copied are told as lost: %v", lost)
	}

	// Everything goes. The next record is at the end, not at 0.
	c.DeleteRecords(topic, 0, 100)
	r.until("the start is followed to the end", topic, 0, func(p mirror.PartitionStatus) bool { return p.Start == 100 && p.End == 100 })
	lives.Produce(t, cl, topic, 0, "next")
	if hs := lives.Headers(r.same(topic, 0, 101)); len(hs) != 1 || hs[0].BaseOffset != 100 {
		t.Errorf("%+v", hs)
	}
}

func deleteTopic(t *testing.T, c *kafkatest.Cluster, topic string) {
	t.Helper()
	if answer, err := c.Admin().DeleteTopic(t.Context(), topic); err != nil || answer.Err != nil {
		t.Fatal(err, answer.Err)
	}
	lives.Eventually(t, topic+" is gone", func() (bool, string) {
		found, err := c.Admin().ListTopics(t.Context())
		return err == nil && !found.Has(topic), fmt.Sprint(err)
	})
}

func TestF28RealTopicDeletedAndRecreated(t *testing.T) {
	c := shared(t)
	topic := "f28-recreated"
	first := c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	lives.Produce(t, lives.Client(c), topic, 0, lives.Values("of the first topic", 10)...)
	r := open(t, c)
	r.start(topic)
	copied := r.same(topic, 0, 10)
	deleteTopic(t, c, topic)
	second := c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	lives.Produce(t, lives.Client(c), topic, 0, lives.Values("of the second topic, which is longer", 20)...)
	r.untilFailed(topic, fmt.Sprint(statemachine.TopicID(first)), fmt.Sprint(statemachine.TopicID(second)))
	// It stays so through look-ups, and the copy is what it was.
	failures := len(told[stateChanged](r))
	refreshes := r.src.Counts().Metadata
	lives.Eventually(t, "three more look-ups", func() (bool, string) {
		n := r.src.Counts().Metadata
		return n >= refreshes+3, fmt.Sprintf("%d look-ups since", n-refreshes)
	})
	for _, e := range told[stateChanged](r)[failures:] {
		if e.To == statemachine.Mirroring {
			t.Errorf("%v", e)
		}
	}
	now, err := r.dst.RawLog(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(now, copied) {
		t.Errorf("the copy changed: %s", lives.Difference(now, copied))
	}
}

// Auto-creation is on at these brokers.
func TestF31LookUpsDoNotRecreateADeletedTopic(t *testing.T) {
	c := rough(t)
	topic := "f31-deleted"
	c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{2, 3}}})
	lives.Produce(t, lives.Client(c), topic, 0, lives.Values("kept", 10)...)
	r := open(t, c)
	r.start(topic)
	copied := r.same(topic, 0, 10)
	deleteTopic(t, c, topic)
	before := r.src.Counts().Metadata
	lives.Eventually(t, "ten look-ups", func() (bool, string) {
		n := r.src.Counts().Metadata
		return n >= before+10, fmt.Sprintf("%d look-ups since", n-before)
	})
	lives.Eventually(t, "the status says that the source is missing", func() (bool, string) {
		s := r.Status()
		p := lives.One(s, topic, 0)
		missing := len(s.Topics) == 1 && s.Topics[0].Err != nil || p.State == statemachine.Failed
		return missing && p.LagOffsets == mirror.Unknown, lives.Show(s)
	})
	found, err := c.Admin().ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found.Has(topic) {
		t.Error("the topic is there again")
	}
	now, err := r.dst.RawLog(topic, 0)
	if err != nil || !bytes.Equal(now, copied) {
		t.Errorf("the copy changed: %v, %s", err, lives.Difference(now, copied))
	}

	// The check can fail: a client that asks as consumers do brings it back.
	asker := lives.Client(c, kgo.AllowAutoTopicCreation())
	lives.Eventually(t, "auto-creation is on", func() (bool, string) {
		err := asker.ProduceSync(t.Context(), lives.RecordOf(topic+"-other")).FirstErr()
		return err == nil || errors.Is(err, kerr.TopicAlreadyExists), fmt.Sprint(err)
	})
}
