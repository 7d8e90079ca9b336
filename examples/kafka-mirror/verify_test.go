package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/verify"
)

// appendRaw writes batches as they are to partition 0 of orders.
func appendRaw(t *testing.T, to *kfake.Cluster, batches ...[]byte) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(to.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	found, err := kadm.NewClient(cl).ListTopics(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		part := kmsg.NewProduceRequestTopicPartition()
		part.Records = append(make([]byte, 8), b[8:]...) // the base offset is the broker's to set
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.TopicID, topic.Partitions = "orders", found["orders"].ID, append(topic.Partitions, part)
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis, req.Topics = -1, 10_000, append(req.Topics, topic)
		resp, err := cl.Broker(int(found["orders"].Partitions[0].Leader)).RetriableRequest(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if err := kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode); err != nil {
			t.Fatal(err)
		}
	}
}

// batchesOf are those of partition 0 of orders.
func batchesOf(t *testing.T, from *kfake.Cluster) (all [][]byte) {
	t.Helper()
	source, err := kafkasource.New(kafkasource.Config{Seeds: from.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	side := verify.SourceSide(source, mirror.TopicPartition{Topic: "orders"}, verify.SourceOptions{})
	defer side.Close()
	b, err := side.Read(t.Context(), 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, whole := range mirror.Batches(b) {
		all = append(all, whole)
	}
	return all
}

// TestVerify: a copy that is the source's is told from one that differs, one that lacks something, and one of which that cannot be said; each has its own exit status.
func TestVerify(t *testing.T) {
	source := startSource(t, "orders")
	whole := batchesOf(t, source)
	other := batch.AppendData(nil, batch.DataSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, BaseTimestamp: 1_700_000_000_000, Records: []batch.Record{{Value: []byte("2 stones")}}})
	deleteUpTo := func(c *kfake.Cluster, at int64) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), kadm.Offsets{"orders": {0: {Topic: "orders", Partition: 0, At: at}}}); err != nil {
			t.Fatal(err)
		}
	}
	s := &session{t: t}
	for _, c := range []struct {
		name   string
		copied [][]byte
		change func(copy *kfake.Cluster)
		state  standing
		status int
	}{
		{name: "identical", copied: whole},
		{name: "behind", copied: whole[:2]},
		{name: "empty", status: 9},
		{name: "different", copied: [][]byte{whole[0], other, whole[2]}, status: 8},
		{name: "shorter by retention", copied: whole, change: func(copy *kfake.Cluster) { deleteUpTo(copy, 2) }, status: 9},
		{name: "stopped, with records of its own behind", copied: append(append([][]byte{}, whole...), whole[0]), state: standings[7]},
		{name: "failed", copied: whole, state: standings[8], status: 9},
	} {
		standby := startStandby(t, "orders")
		appendRaw(t, standby, c.copied...)
		if c.change != nil {
			c.change(standby)
		}
		at := standby.ListenAddrs()[0]
		records, err := kafkastore.Open(t.Context(), kafkastore.Config{Seeds: standby.ListenAddrs(), ReplicationFactor: 1})
		if err != nil {
			t.Fatal(err)
		}
		if c.state.name == "" {
			c.state = standings[3]
		}
		fill(t, records, source.ListenAddrs()[0], c.state, standbyID, time.Now())
		records.Close()
		s.shown = strings.NewReplacer(at, "standby:9092")
		s.text.WriteString("-- " + c.name + "\n")
		args := []string{"--bootstrap-server", at, "--verify", "--mirror", "dr"}
		if status, out := s.run(args...); status != c.status {
			t.Errorf("%s: exit status %d, want %d\n%s", c.name, status, c.status, out)
		}
		status, out, complaints := command(t, append(args, "--json", "--topics", "orders", "--throttle", "1000000")...)
		var v mirror.Verification
		if err := json.Unmarshal([]byte(out), &v); err != nil || status != c.status || len(v.Ranges) != 1 || v.Mirror != "dr" {
			t.Errorf("%s: exit status %d, %v\n%s%s", c.name, status, err, out, complaints)
		}
		if status, out, complaints := command(t, append(args, "--topics", "nosuch")...); status != 2 || out != "" || !strings.Contains(complaints, "no topic of mirror dr") {
			t.Errorf("exit status %d\n%s%s", status, out, complaints)
		}
	}
	golden(t, "verify.txt", masked(regexp.MustCompile(`took \S+`).ReplaceAllString(s.text.String(), "took 1s")))
	if status, out, complaints := command(t, "--store", t.TempDir(), "--mirror", "dr", "--verify"); status != 2 {
		t.Errorf("exit status %d\n%s%s", status, out, complaints)
	}
}
