package replicareader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// wire is a Requester with one client a broker.
type wire struct {
	c       *kafkatest.Cluster
	options []kgo.Opt
	mu      sync.Mutex
	clients map[int32]*kgo.Client
	fetches int
}

func newWire(t *testing.T, c *kafkatest.Cluster, options ...kgo.Opt) *wire {
	w := &wire{c: c, options: options, clients: map[int32]*kgo.Client{}}
	t.Cleanup(func() {
		for _, cl := range w.clients {
			cl.Close()
		}
	})
	return w
}

func (w *wire) Broker(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	w.mu.Lock()
	cl := w.clients[id]
	if cl == nil {
		var err error
		if cl, err = kgo.NewClient(append(w.options, kgo.SeedBrokers(w.c.InternalAddress(id)), kgo.RequestRetries(2))...); err != nil {
			w.mu.Unlock()
			return nil, err
		}
		w.clients[id] = cl
	}
	if req.Key() == kmsg.Fetch.Int16() {
		w.fetches++
	}
	w.mu.Unlock()
	return cl.SeedBrokers()[0].RetriableRequest(ctx, req)
}

// fetchUpTo makes a client that speaks Fetch up to a version.
func fetchUpTo(version int16) kgo.Opt {
	v := kversion.Stable()
	v.SetMaxKeyVersion(kmsg.Fetch.Int16(), version)
	return kgo.MaxVersions(v)
}

// eventually asks until is says yes, for at most 30 s.
func eventually(t *testing.T, what string, is func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		ok, state := is()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s: %s", what, state)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// stand waits until a broker's copy has these ends.
func stand(t *testing.T, r *Reader, broker int32, o Target, want Ends) {
	t.Helper()
	eventually(t, fmt.Sprintf("broker %d's copy is %+v", broker, want), func() (bool, string) {
		all, err := r.Ends(t.Context(), broker, []Target{o})
		return err == nil && all[o] == want, fmt.Sprintf("%+v, %v", all[o], err)
	})
}

// wholeCopy reads a copy from start to end.
func wholeCopy(t *testing.T, r *Reader, broker int32, o Target, start int64, max int) (raw []byte) {
	t.Helper()
	for at := start; ; {
		part, err := r.Read(t.Context(), broker, o, at, max)
		if err != nil {
			t.Fatalf("broker %d, at %d: %v", broker, at, err)
		}
		if len(part) == 0 {
			return raw
		}
		for h := range batch.All(part) {
			at = h.NextOffset()
		}
		raw = append(raw, part...)
	}
}

// cutBatches are the batches of a file that end at or above start.
func cutBatches(segments []byte, start int64) (batches [][]byte) {
	for h, raw := range batch.All(segments) {
		if h.LastOffset() >= start {
			batches = append(batches, raw)
		}
	}
	return batches
}

// answers asks one broker everything that might tell of a copy, and returns one line an answer: the code, and what came with it.
func answers(t *testing.T, w *wire, broker int32, o Target, end int64, epoch int32) map[string]string {
	t.Helper()
	all := map[string]string{}
	send := func(req kmsg.Request) kmsg.Response {
		resp, err := w.Broker(t.Context(), broker, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	text := func(code int16, format string, args ...any) string {
		if code != 0 {
			return kerr.ErrorForCode(code).(*kerr.Error).Message
		}
		return fmt.Sprintf(format, args...)
	}
	for _, replica := range []int32{-3, -2, -1} {
		for name, from := range map[string]int64{"of the last batch": end - 1, "at the end": end, "beyond": end + 1} {
			req := fetchRequest([]Target{o}, func(Target) int64 { return from }, 1)
			req.ReplicaID, req.ReplicaState.ID = replica, replica
			f := send(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			all[fmt.Sprintf("Fetch %d %s", replica, name)] = text(f.ErrorCode, "batch %t", len(f.RecordBatches) > 0)
			if from == end {
				all[fmt.Sprintf("Fetch %d last stable offset", replica)] = text(f.ErrorCode, "%d", f.LastStableOffset)
				req.Topics[0].Partitions[0].LastFetchedEpoch = epoch
				f := send(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
				all[fmt.Sprintf("Fetch %d with a last fetched epoch", replica)] = text(f.ErrorCode, "diverging %d until %d", f.DivergingEpoch.Epoch, f.DivergingEpoch.EndOffset)
			}
		}
		if replica == -3 {
			continue
		}
		for _, isolation := range []int8{0, 1} {
			req := kmsg.NewPtrListOffsetsRequest()
			req.ReplicaID, req.IsolationLevel = replica, isolation
			rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = o.Partition, -1
			rt.Topic, rt.Partitions = o.Topic, append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			p := send(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
			all[fmt.Sprintf("ListOffsets %d isolation %d", replica, isolation)] = text(p.ErrorCode, "%d", p.Offset)
		}
		ask := kmsg.NewPtrOffsetForLeaderEpochRequest()
		ask.ReplicaID = replica
		et, ep := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		ep.Partition, ep.LeaderEpoch = o.Partition, epoch
		et.Topic, et.Partitions = o.Topic, append(et.Partitions, ep)
		ask.Topics = append(ask.Topics, et)
		p := send(ask).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
		all[fmt.Sprintf("OffsetForLeaderEpoch %d", replica)] = text(p.ErrorCode, "%d until %d", p.LeaderEpoch, p.EndOffset)
	}
	return all
}

// want compares the answers that are expected; of the others any will do.
func want(t *testing.T, broker string, got map[string]string, want map[string]string) {
	t.Helper()
	for name := range want {
		if got[name] == "" {
			t.Errorf("%s: nothing was asked as %s", broker, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		t.Logf("%s: %s: %s", broker, name, got[name])
		if w := want[name]; w != "" && got[name] != w {
			t.Errorf("%s: %s: %s, want %s", broker, name, got[name], want[name])
		}
	}
}

// TestRealKafkaCopiesOfFollowersAndWithoutLeader holds doc.go's table. Brokers 2 and 3 have the copies, broker 1 (the controller) has none.
func TestRealKafkaCopiesOfFollowersAndWithoutLeader(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3})
	topic := "copies"
	o := Target{Topic: topic, ID: c.CreateTopic(kafkatest.Topic{Name: topic, Assignment: [][]int32{{2, 3}}})}
	r := New(newWire(t, c))
	produce := func(records, size int) {
		t.Helper()
		cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(50*time.Millisecond))
		defer cl.Close()
		var rs []*kgo.Record
		for range records {
			rs = append(rs, &kgo.Record{Value: bytes.Repeat([]byte("v"), size)})
		}
		if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	// 0..4 epoch of leader 2; 5..7 of leader 3; 8 large; nothing of another; 9 again of leader 2; 10, 11 in an open transaction; 12 behind it
	produce(5, 10)
	c.MoveLeader(topic, 0, 3)
	produce(3, 10)
	c.MoveLeader(topic, 0, 2)
	produce(1, 20_000)
	c.MoveLeader(topic, 0, 3)
	c.MoveLeader(topic, 0, 2)
	produce(1, 10)
	open := c.Client(kgo.TransactionalID("open"), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(10*time.Minute))
	if err := open.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := open.ProduceSync(t.Context(), kgo.StringRecord("one"), kgo.StringRecord("two")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	produce(1, 10)
	c.DeleteRecords(topic, 0, 2)

	ends := Ends{Start: 2, End: 13, LastStable: 10}
	for _, broker := range []int32{2, 3} {
		stand(t, r, broker, o, ends)
	}
	segments := c.WaitSameSegments(topic, 0, 2, 3)
	batches := cutBatches(segments, ends.Start)
	epochs := scanned(batches, ends.Start, ends.End)
	if len(epochs) != 4 || epochs[0].Start != 0 || epochs[3].Start != 9 {
		t.Fatalf("epochs in the files: %v", epochs)
	}
	for _, version := range []int16{4, 11, 15, 17, 18} {
		r := New(newWire(t, c, fetchUpTo(version)))
		for _, broker := range []int32{2, 3} {
			stand(t, r, broker, o, ends)
			for _, max := range []int{1, 200, 1 << 20} {
				if got := wholeCopy(t, r, broker, o, ends.Start, max); !bytes.Equal(got, joined(batches...)) {
					t.Errorf("Fetch %d, broker %d, %d bytes at once: %d bytes are not the %d in its files", version, broker, max, len(got), len(segments))
				}
			}
		}
	}
	for _, broker := range []int32{2, 3} {
		w := newWire(t, c)
		got, err := New(w).Epochs(t.Context(), broker, o, ends.Start, ends.End)
		if err != nil {
			t.Fatal(err)
		}
		wantEpochs(t, got, epochs...)
		t.Logf("broker %d: %v in %d reads", broker, got, w.fetches)
		for from, want := range map[int64]RangeError{1: {broker, o, 1, 2, 13}, 14: {broker, o, 14, 2, 13}} {
			var e *RangeError
			if _, err := r.Read(t.Context(), broker, o, from, 100); !errors.As(err, &e) || *e != want {
				t.Errorf("from %d: %v", from, err)
			}
		}
	}
	_, err := r.Read(t.Context(), 1, o, 5, 100)
	wantReason(t, err, NotReplica)
	all, err := r.Ends(t.Context(), 1, []Target{o, {Topic: "nobody", ID: [16]byte{1}}})
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, all[o].Err, NotReplica)
	wantReason(t, all[Target{Topic: "nobody", ID: [16]byte{1}}].Err, UnknownTopic)
	_, err = r.Read(t.Context(), 2, Target{Topic: topic, ID: [16]byte{1}}, 5, 100)
	wantReason(t, err, UnknownTopic)
	all, err = r.Ends(t.Context(), 2, []Target{o, {Topic: topic, ID: [16]byte{1}}})
	if err != nil || all[o] != ends {
		t.Errorf("%v, %v", all, err)
	}
	wantReason(t, all[Target{Topic: topic, ID: [16]byte{1}}].Err, UnknownTopic)

	asked := epochs[1]
	middle := fmt.Sprintf("%d until %d", asked.Epoch, epochs[2].Start)
	const notLeader, outOfRange = "NOT_LEADER_FOR_PARTITION", "OFFSET_OUT_OF_RANGE"
	leading := map[string]string{
		"ListOffsets -2 isolation 0": "13", "ListOffsets -2 isolation 1": "13", "ListOffsets -1 isolation 0": "13", "ListOffsets -1 isolation 1": "10",
		"OffsetForLeaderEpoch -2": middle, "OffsetForLeaderEpoch -1": middle,
	}
	for _, replica := range []string{"-3", "-2", "-1"} {
		leading["Fetch "+replica+" of the last batch"] = "batch true"
		leading["Fetch "+replica+" at the end"] = "batch false"
		leading["Fetch "+replica+" last stable offset"] = "10"
		leading["Fetch "+replica+" beyond"] = outOfRange
		leading["Fetch "+replica+" with a last fetched epoch"] = "diverging " + middle
	}
	following := maps.Clone(leading)
	for _, name := range []string{"ListOffsets -1 isolation 0", "ListOffsets -1 isolation 1", "OffsetForLeaderEpoch -2", "OffsetForLeaderEpoch -1"} {
		following[name] = notLeader
	}
	// A broker that starts without a leader to tell it knows the high watermark that it wrote down; here it lost that too. Only -3 reads what is above.
	orphaned := maps.Clone(following)
	for _, replica := range []string{"-2", "-1"} {
		orphaned["Fetch "+replica+" of the last batch"] = "batch false"
	}
	for _, replica := range []string{"-3", "-2", "-1"} {
		delete(orphaned, "Fetch "+replica+" last stable offset") // the high watermark or the log start, as it comes
	}
	raw := newWire(t, c)
	want(t, "leader", answers(t, raw, 2, o, 13, asked.Epoch), leading)
	want(t, "follower", answers(t, raw, 3, o, 13, asked.Epoch), following)

	compared, err := r.Compare(t.Context(), o, 2, 3)
	if err != nil || len(compared) != 1 || !compared[0].Equal() || compared[0].Batches != int64(len(batches)) {
		t.Errorf("%v, %v", compared, err)
	}

	// Broker 3 misses two records, then the leader dies: nobody may lead, and broker 3's copy is the one that is left.
	c.Stop(3)
	produce(2, 10)
	c.Kill(2)
	if err := os.Remove(filepath.Join(c.DataDir(3), "replication-offset-checkpoint")); err != nil {
		t.Fatal(err)
	}
	c.StartBroker(3)
	c.WaitPartition(topic, 0, "no leader", func(p kafkatest.Partition) bool { return p.Leader == -1 })
	stand(t, r, 3, o, Ends{Start: 2, End: 13, LastStable: 2})
	if got := wholeCopy(t, r, 3, o, ends.Start, 1<<20); !bytes.Equal(got, joined(batches...)) {
		t.Errorf("without a leader: %d bytes", len(got))
	}
	got, err := r.Epochs(t.Context(), 3, o, ends.Start, ends.End)
	if err != nil {
		t.Fatal(err)
	}
	wantEpochs(t, got, epochs...)
	want(t, "without leader", answers(t, raw, 3, o, 13, asked.Epoch), orphaned)

	copies := []Copy{{Broker: 2}, {Broker: 3, Start: ends.Start, End: ends.End, Epochs: got}}
	dead, err := r.Ends(t.Context(), 2, []Target{o})
	wantReason(t, err, Unreachable)
	copies[0].Err = dead[o].Err
	wantReason(t, copies[0].Err, Unreachable)
	if choice, err := Choose(copies); err != nil || choice.Broker != 3 || choice.End != 13 || choice.Failed() == nil {
		t.Errorf("%+v, %v", choice, err)
	}
	t.Log(copies[0].Err)

	c.StartBroker(2)
	c.WaitISR(topic, 0, 2, 3)
	for _, broker := range []int32{2, 3} {
		eventually(t, "the copy is whole again", func() (bool, string) {
			all, err := r.Ends(t.Context(), broker, []Target{o})
			return err == nil && all[o].End == 15 && all[o].LastStable == 10, fmt.Sprintf("%+v, %v", all, err)
		})
	}
	// A broker that was killed may have its old log start back, until somebody raises it again: that is no difference.
	compared, err = r.Compare(t.Context(), o, 2, 3)
	if err != nil || len(compared) != 1 || compared[0].First != nil || compared[0].To != 15 || compared[0].Batches <= int64(len(batches)) {
		t.Errorf("%v, %v", compared, err)
	}
	for _, outside := range compared[0].Outside {
		if outside.To != 2 {
			t.Errorf("%v", compared)
		}
	}
	t.Log(compared)
	if log := c.Log(2) + c.Log(3); strings.Contains(log, "marked as failed") {
		t.Error("a broker took a partition out of use")
	}
}
