//go:build long

package kraft_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
)

// set changes one setting of a topic or broker, as an operator; an empty value takes it back.
func set(t *testing.T, c *kafkatest.Cluster, kind kmsg.ConfigResourceType, name, key, value string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	s := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	s.Name, s.Value = key, &value
	if value == "" {
		s.Value, s.Op = nil, kmsg.IncrementalAlterConfigOpDelete
	}
	r.Configs = append(r.Configs, s)
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(bound(t), c.AdminClient())
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("setting %s of %s: %v", key, name, err)
	}
}

// large is a batch of one record of so many bytes.
func large(offset int64, bytes int) []byte {
	d := batch.DataSpec{BaseOffset: offset, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: []batch.Record{{Value: make([]byte, bytes)}}}
	return batch.AppendData(nil, d)
}

// TestRealKafkaFaultsQuotaSizeDisk are the rows of the fault table that are no step's: replication quotas at the destination, a follower that they make slow for ever, a batch above
// max.message.bytes, and a stock broker whose disk fails, which ends it as a full disk does. (A follower that stands still is in the table: paused.)
func TestRealKafkaFaultsQuotaSizeDisk(t *testing.T) {
	c := short(t, 1, nil)
	w := watched(t, c, "quota", "size", "disk")
	j := join(t, c)
	opened := func(l mirror.Log, topic string) {
		t.Helper()
		w.mayLead(topic)
		if err := l.Open(bound(t)); err != nil {
			t.Fatalf("open %s: %v", topic, err)
		}
	}
	inSync := func(topic string) {
		t.Helper()
		eventually(t, topic+" to be in sync on all", func() bool {
			p := w.partition(topic, 0)
			return slices.Equal(slices.Sorted(slices.Values(p.ISR)), c.Brokers()) && len(p.Replicas) == 3 && len(p.Adding)+len(p.Removing) == 0
		})
	}

	// Broker 3 may copy a thousand bytes a second: it is far behind, the others count, and the hand-over goes to them. Kafka throttles no follower that has caught up, so this one is made
	// to be behind first.
	l := j.create("quota", 1)
	set(t, c, kmsg.ConfigResourceTypeBroker, "3", "follower.replication.throttled.rate", "1000")
	set(t, c, kmsg.ConfigResourceTypeTopic, "quota", "follower.replication.throttled.replicas", "*")
	var all []byte
	c.Pause(3)
	for i := range 200 {
		b := large(int64(i), 50_000)
		all = append(all, b...)
		appendTo(t, l, b)
	}
	await(t, l)
	c.Resume(3)
	if got := len(c.SegmentBytes("quota", 0, 3)); got >= len(all) {
		t.Fatalf("the quota slows nobody down: broker 3 has %d bytes already", got)
	}
	opened(l, "quota")
	if p := w.partition("quota", 0); slices.Contains(p.ISR, 3) {
		t.Errorf("broker 3 has %d of %d bytes and is in sync: %v", len(c.SegmentBytes("quota", 0, 3)), len(all), p.ISR)
	}
	produce(t, c, "quota", 0, "while broker 3 is slow")
	set(t, c, kmsg.ConfigResourceTypeBroker, "3", "follower.replication.throttled.rate", "")
	inSync("quota")
	if got := c.WaitSameSegments("quota", 0, 1, 2, 3); !bytes.HasPrefix(got, all) {
		t.Error("the copies do not begin with what was appended")
	}

	// A batch above the limit: nothing of it is appended, the error says what to raise, and then it goes on.
	l = j.create("size", 1)
	set(t, c, kmsg.ConfigResourceTypeTopic, "size", "max.message.bytes", "100000")
	b := large(0, 200_000)
	eventually(t, "the limit to be known", func() bool {
		err := l.Append(bound(t), l.LeaderEpoch(), slices.Clone(b))
		if err == nil {
			t.Fatal("a batch above max.message.bytes was appended")
		}
		return errors.Is(err, mirror.ErrBatchTooLarge) && l.End() == 0
	})
	set(t, c, kmsg.ConfigResourceTypeTopic, "size", "max.message.bytes", "300000")
	eventually(t, "the new limit to be known", func() bool { return l.Append(bound(t), l.LeaderEpoch(), slices.Clone(b)) == nil })
	// A limit that is lowered afterwards holds no follower up: what is in the log is copied.
	set(t, c, kmsg.ConfigResourceTypeTopic, "size", "max.message.bytes", "1000")
	await(t, l)
	if got := c.WaitSameSegments("size", 0, 1, 2, 3); !bytes.Equal(got, b) {
		t.Errorf("the copies hold %d bytes, %d were appended", len(got), len(b))
	}
	opened(l, "size")

	// The folder of broker 3's copy goes away, so its next segment cannot be made: Kafka gives the log directory up, it was the only one, and the broker ends.
	l = j.create("disk", 1)
	set(t, c, kmsg.ConfigResourceTypeTopic, "disk", "segment.bytes", "1048576")
	appendTo(t, l, large(0, 10_000))
	all = large(0, 10_000)
	c.WaitSameSegments("disk", 0, 1, 2, 3)
	folder := filepath.Join(c.DataDir(3), "disk-0")
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 40; i++ {
		b := large(int64(i), 50_000)
		all = append(all, b...)
		appendTo(t, l, b)
	}
	await(t, l)
	eventually(t, "the end of broker 3", func() bool { b, _ := w.image().Broker(3); return b.Fenced })
	opened(l, "disk")
	produce(t, c, "disk", 0, "while broker 3 is gone")
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	c.Kill(3) // it has ended by itself
	c.StartBroker(3)
	inSync("disk")
	if got := c.WaitSameSegments("disk", 0, 1, 2, 3); !bytes.HasPrefix(got, all) {
		t.Error("the copies do not begin with what was appended")
	}
}
