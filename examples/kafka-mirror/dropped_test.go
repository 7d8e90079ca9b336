package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// gaveUp is a folder with what a failback gave up: two plain records, three of a transaction that was committed, one of an aborted one, two of one that was open, and the COMMIT of one that lies below.
func gaveUp(t *testing.T) string {
	t.Helper()
	at := int64(880)
	var b []byte
	data := func(pid int64, values ...string) {
		spec := batch.DataSpec{BaseOffset: at, LeaderEpoch: 5, ProducerID: pid, ProducerEpoch: 2, Transactional: pid >= 0, BaseTimestamp: 1_700_000_000_000}
		for i, v := range values {
			spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(i), Key: []byte("key of " + v), Value: []byte(v), Headers: []batch.RecordHeader{{Key: "h", Value: []byte("x")}}})
		}
		spec.Records[0].Key = nil
		b, at = batch.AppendData(b, spec), at+int64(len(values))
	}
	marker := func(pid int64, kind batch.ControlType) {
		b = batch.AppendControl(b, batch.ControlSpec{BaseOffset: at, LeaderEpoch: 5, ProducerID: pid, ProducerEpoch: 2, BaseSequence: -1, Transactional: true, Timestamp: 1_700_000_000_000, Key: []byte{0, 0, 0, byte(kind)}, Value: make([]byte, 6)})
		at++
	}
	marker(4001, batch.ControlCommit)
	data(-1, "plain 1", "plain 2")
	data(7, "committed 1", "committed 2", "committed 3")
	data(8, "aborted")
	marker(7, batch.ControlCommit)
	data(9, "open 1", "open 2")
	marker(8, batch.ControlAbort)
	dir := t.TempDir()
	if err := mirror.FileSink(dir).Dropped(t.Context(), mirror.TopicPartition{Topic: "orders", Partition: 1}, 880, at, b); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startStandby is a cluster in this process with a topic of two partitions.
func startStandby(t *testing.T, topic string) *kfake.Cluster {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(standbyID), kfake.SeedTopics(2, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return fake
}

// TestDropped: what was given up is listed, printed, and written into a topic: only what was committed or never in a transaction, unless told otherwise, and only with --yes.
func TestDropped(t *testing.T) {
	dir, fake := gaveUp(t), startStandby(t, "orders-recovered")
	at := fake.ListenAddrs()[0]
	s := &session{t: t, shown: strings.NewReplacer(at, "standby:9092", dir, "/dropped")}
	into := []string{"--dropped", dir, "--replay", "--bootstrap-server", at, "--into", "orders-recovered"}
	s.run("--dropped", dir)
	s.run("--dropped", dir, "--print")
	s.run("--dropped", dir, "--topics", "payments")
	s.run(into...)
	s.run(append(into, "--yes")...)
	s.run(append(into, "--yes", "--every", "--skip", "7")...)
	s.run("--dropped", dir, "--replay", "--bootstrap-server", at, "--into", "nosuch", "--yes")
	s.run("--dropped", dir, "--replay", "--into", "orders")
	s.run("--dropped", dir, "--print", "--yes")
	s.run("--dropped", dir+"/nowhere")
	s.run("--dropped", filepath.Join(dir, "orders", "1", fmt.Sprintf("%020d.%020d.0.log", 880, 891)))
	golden(t, "dropped.txt", s.text.String())

	cl, err := kgo.NewClient(kgo.SeedBrokers(at), kgo.ConsumeTopics("orders-recovered"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var got []string
	for len(got) < 6 {
		cl.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) {
			line := fmt.Sprintf("%q %s", r.Value, r.Timestamp.UTC().Format("15:04:05"))
			for _, h := range r.Headers {
				line += fmt.Sprintf(" %s=%s", h.Key, h.Value)
			}
			if r.Key == nil && r.Partition != 1 {
				t.Errorf("%s has no key, and is in partition %d", line, r.Partition)
			}
			got = append(got, line)
		})
	}
	slices.Sort(got)
	origin := "h=x dropped.topic=orders dropped.partition=1 dropped.offset="
	want := []string{
		`"committed 1" 22:13:20 ` + origin + "883", `"committed 2" 22:13:20 ` + origin + "884", `"committed 3" 22:13:20 ` + origin + "885",
		`"open 2" 22:13:20 ` + origin + "889 dropped.transaction=open", `"plain 1" 22:13:20 ` + origin + "881", `"plain 2" 22:13:20 ` + origin + "882",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestDroppedReplayIsRefused: an error of the brokers ends it, and says how far it came, and what is not known.
func TestDroppedReplayIsRefused(t *testing.T) {
	dir, fake := gaveUp(t), startStandby(t, "orders-recovered")
	fake.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		req := r.(*kmsg.ProduceRequest)
		answer := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range req.Topics {
			t := kmsg.NewProduceResponseTopic()
			t.Topic, t.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				x := kmsg.NewProduceResponseTopicPartition()
				x.Partition, x.ErrorCode = p.Partition, kerr.MessageTooLarge.Code
				t.Partitions = append(t.Partitions, x)
			}
			answer.Topics = append(answer.Topics, t)
		}
		return answer, nil, true
	})
	status, out, complaints := command(t, "--dropped", dir, "--replay", "--bootstrap-server", fake.ListenAddrs()[0], "--into", "orders-recovered", "--yes")
	if status != 3 || !strings.Contains(complaints, "MESSAGE_TOO_LARGE") || !strings.Contains(out, "0 records written") || !strings.Contains(out, "of the next 5, from orders-1 at 881 on, it is not known which are there") {
		t.Errorf("exit status %d\n%s%s", status, out, complaints)
	}
}

// TestDroppedOfAHalfFile: what is before the damage is listed, printed and counted, and the exit status says that it is not all.
func TestDroppedOfAHalfFile(t *testing.T) {
	dir := gaveUp(t)
	path := filepath.Join(dir, "orders", "1", fmt.Sprintf("%020d.%020d.0.log", 880, 891))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b[:len(b)-100], 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, complaints := command(t, "--dropped", dir); status != 1 || !strings.Contains(out, "is damaged at byte ") || complaints != "" {
		t.Errorf("exit status %d\n%s%s", status, out, complaints)
	}
	status, out, complaints := command(t, "--dropped", dir, "--print", "--json")
	var shown struct{ Records []recordJSON }
	if err := json.Unmarshal([]byte(out), &shown); err != nil || status != 1 || len(shown.Records) != 8 || !strings.Contains(complaints, "the file ends inside a batch") {
		t.Errorf("exit status %d, %v\n%s%s", status, err, out, complaints)
	}
}
