package kraftlife_test

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
)

// The partitions of the topic of the whole life.
const (
	pPlain = iota
	pIdempotent
	pTransactions
	pNone
	pGzip
	pSnappy
	pLZ4
	pZstd
	pTrimmed // its log starts above 0, and its first batch does not have its producer's first sequence
	pEpochs  // its leader has moved several times, so the source's leader epochs are above ours
	pEmpty
	partitions
)

var codecs = map[int32]struct {
	codec kgo.CompressionCodec
	want  int8
}{
	pNone: {kgo.NoCompression(), batch.CodecNone}, pGzip: {kgo.GzipCompression(), batch.CodecGzip}, pSnappy: {kgo.SnappyCompression(), batch.CodecSnappy},
	pLZ4: {kgo.Lz4Compression(), batch.CodecLZ4}, pZstd: {kgo.ZstdCompression(), batch.CodecZstd},
}

// ownSettings leave topics with the settings of the cluster that they are mirrored into.
var ownSettings = mirror.Settings{"mirror.topic.properties.exclude": ".*"}

// Out and home again: everything that a log may hold is mirrored, the primary is given up with a transaction open and records that nobody copied, clients write at the standby, the
// old primary is mirrored into and loses what only it had, and clients write there again.
func TestWholeLife(t *testing.T) {
	a, b := primary(t), standby(t)
	topic, keyed := "life", "life-compacted"
	a.CreateTopic(kafkatest.Topic{Name: topic, Partitions: partitions, Replication: 3})
	a.CreateTopic(kafkatest.Topic{Name: keyed, Assignment: [][]int32{{2, 1, 3}}, Configs: lives.Compacted})
	at := lives.Join(t, b)
	there := lives.Open(t, "there", a, at)
	there.Set(ownSettings) // the standby's own cleaner would rewrite what is compared

	// One part before the mirror starts, one while it runs.
	plainly, once := lives.Client(a, lives.Plain...), lives.Client(a)
	transacting, left := lives.Client(a, kgo.TransactionalID("life")), lives.Client(a, lives.OldProtocol, kgo.TransactionalID("life-left"))
	lives.Put(t, plainly, keyed, "a")                // 0
	lives.Put(t, plainly, keyed, "b", "c")           // 1..2: goes
	lives.Put(t, plainly, keyed, "b", "c", "d", "e") // 3..6: becomes d alone
	lives.Put(t, plainly, keyed, "b", "c", "e", "x") // 7..10
	lives.Put(t, plainly, keyed, "active")           // 11
	lives.Put(t, plainly, keyed, "still active")     // 12
	lives.Produce(t, once, topic, pTrimmed, lives.Values("deleted", 57)...)
	lives.Produce(t, once, topic, pTrimmed, lives.Values("first", 5)...)
	lives.Produce(t, once, topic, pTrimmed, lives.Values("second", 5)...) // ..66
	a.DeleteRecords(topic, pTrimmed, 57)
	moved := a.Describe(topic, pEpochs).Replicas
	for i := range 4 {
		lives.Produce(t, once, topic, pEpochs, lives.Values("before a move", 3)...) // 0..11
		a.MoveLeader(topic, pEpochs, moved[(i+1)%3])
	}
	there.Start(topic, keyed)
	lives.Produce(t, plainly, topic, pPlain, lives.Values("plain", 5)...) // 0..9
	lives.Produce(t, plainly, topic, pPlain, lives.Values("plain", 5)...)
	lives.Produce(t, once, topic, pIdempotent, lives.Values("first", 3)...) // 0..6
	lives.Produce(t, once, topic, pIdempotent, lives.Values("second", 4)...)
	lives.Transaction(t, a, transacting, kgo.TryCommit, topic, pTransactions, lives.Values("committed", 3)...) // 0..3
	lives.Transaction(t, a, transacting, kgo.TryAbort, topic, pTransactions, lives.Values("aborted", 3)...)    // 4..7
	lives.Produce(t, plainly, topic, pTransactions, "plain")                                                   // 8
	lives.Begin(t, left)
	lives.Produce(t, left, topic, pTransactions, lives.Values("open", 2)...) // 9..10
	lives.Produce(t, plainly, topic, pTransactions, "plain")                 // 11
	for p, x := range codecs {
		cl := lives.Client(a, kgo.ProducerBatchCompression(x.codec))
		lives.Produce(t, cl, topic, p, lives.Values("the same words again and again", 20)...) // 0..39
		lives.Produce(t, cl, topic, p, lives.Values("the same words again and again", 20)...)
	}
	lives.Produce(t, once, topic, pEpochs, lives.Values("after the moves", 3)...) // 12..14
	gap := func(hs []batch.Header) bool {
		return len(hs) > 2 && hs[0].NextOffset() == 1 && hs[1].BaseOffset == 3 && hs[1].RecordCount == 1
	}
	lives.Cleaned(t, a, keyed, []int32{1, 2, 3}, gap)

	ends := [partitions]int64{pPlain: 10, pIdempotent: 7, pTransactions: 12, pNone: 40, pGzip: 40, pSnappy: 40, pLZ4: 40, pZstd: 40, pTrimmed: 67, pEpochs: 15}
	var copied [partitions][]byte
	for p, end := range ends {
		if p == pEmpty {
			there.InStep(topic, pEmpty, 0)
			continue
		}
		copied[p] = there.Same(topic, int32(p), end)
	}
	for p, x := range codecs {
		for _, h := range lives.Headers(copied[p]) {
			if h.Codec() != x.want {
				t.Errorf("partition %d: codec %d, want %d", p, h.Codec(), x.want)
			}
		}
	}
	if h := lives.Headers(copied[pTrimmed])[0]; h.BaseOffset != 57 || h.BaseSequence != 57 {
		t.Errorf("the trimmed log begins with %+v", h)
	}
	if hs := lives.Headers(copied[pEpochs]); hs[len(hs)-1].LeaderEpoch < 4 || lives.One(there.Status(), topic, pEpochs).LeaderEpoch < hs[len(hs)-1].LeaderEpoch {
		t.Errorf("the source's epoch is %d, ours is %d", hs[len(hs)-1].LeaderEpoch, lives.One(there.Status(), topic, pEpochs).LeaderEpoch)
	}
	if hs := lives.Headers(there.Same(keyed, 0, 13)); !gap(hs) {
		t.Errorf("the compacted log: %+v", hs)
	}

	// The mirror loses sight of the primary, where work goes on.
	there.Link.Cut()
	lost := map[int32]int64{pPlain: 15, pIdempotent: 4, pTransactions: 3, pGzip: 20, pTrimmed: 5, pEpochs: 6, pEmpty: 2}
	lives.Produce(t, plainly, topic, pPlain, lives.Values("never copied", 15)...)
	lives.Produce(t, once, topic, pIdempotent, lives.Values("never copied", 4)...)
	lives.Finish(t, a, left, kgo.TryCommit, topic, pTransactions) // 12
	lives.Produce(t, plainly, topic, pTransactions, lives.Values("never copied", 2)...)
	lives.Produce(t, lives.Client(a, kgo.ProducerBatchCompression(kgo.GzipCompression())), topic, pGzip, lives.Values("never copied", 20)...)
	lives.Produce(t, once, topic, pTrimmed, lives.Values("never copied", 5)...)
	lives.Produce(t, once, topic, pEpochs, lives.Values("never copied", 3)...)
	a.MoveLeader(topic, pEpochs, moved[0])
	lives.Produce(t, once, topic, pEpochs, lives.Values("never copied", 3)...)
	lives.Produce(t, once, topic, pEmpty, lives.Values("never copied", 2)...)

	opens := [partitions]int64{}
	for _, x := range there.Failover().Partitions {
		if x.Topic != topic {
			continue
		}
		opens[x.Partition] = x.OpensAt
		if x.FinalOffset != ends[x.Partition] || (len(x.Aborts) == 1) != (x.Partition == pTransactions) {
			t.Errorf("%+v", x)
		}
	}
	if opens[pTransactions] != 14 { // behind the ABORT and the reset
		t.Errorf("the transactional partition opens at %d", opens[pTransactions])
	}
	there.End()
	at.Leave()
	lives.NoTrace(t, b, topic, keyed)

	// Clients write at the new primary.
	writes(t, b, topic, "at the standby", opens)
	lives.JavaProducer(t, b, keyed, "at the standby")
	if last := lives.Committed(t, b, keyed, 0, 14); last[len(last)-1] != 14 { // behind the reset
		t.Errorf("the record of Kafka's own producer: %v", last)
	}
	lives.SameCommitted(t, b, topic, pTransactions, 0, 1, 2, 8, 11, 14, 15, 16, 17)
	for p := range copied {
		if now := b.WaitSameSegments(topic, int32(p), 1, 2, 3); !bytes.HasPrefix(now, copied[p]) {
			t.Errorf("partition %d: what was mirrored changed: %s", p, lives.Difference(now, copied[p]))
		}
	}

	// Home again. Its own cleaner would rewrite what is mirrored.
	policy := "delete"
	if _, err := a.Admin().AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &policy}}, keyed); err != nil {
		t.Fatal(err)
	}
	tails := map[int32][]byte{}
	total := int64(0)
	for p, n := range lost {
		tail, err := lives.Since(a.SegmentBytes(topic, p, a.LeaderOf(topic, p)), ends[p])
		if err != nil {
			t.Fatal(err)
		}
		tails[p], total = tail, total+n
	}
	old := lives.Join(t, a)
	back := lives.Open(t, "back", b, old)
	back.Set(ownSettings)
	plan := back.Failback(topic, keyed)
	if plan.Dropped != total {
		t.Errorf("the plan drops %d, want %d", plan.Dropped, total)
	}
	for _, x := range plan.Partitions {
		want := mirror.KnownNumber(ends[x.Partition])
		if x.Partition == pEmpty { // nothing was copied, so there is no last mirror epoch to start from
			want = mirror.Number{}
		}
		if x.Topic == topic && x.CommonPoint != want {
			t.Errorf("the common point of partition %d is %s, want %s", x.Partition, x.CommonPoint, want)
		}
		if d := x.Disagreements; (len(d) == 1) != (x.Topic == topic && x.Partition == pTransactions) || len(d) == 1 && d[0].CommitAt != 12 {
			t.Errorf("transactions of %s-%d that ended differently: %+v", x.Topic, x.Partition, d)
		}
	}
	for p, tail := range tails {
		if from, to, batches := back.Sink.Of(topic, p); from != ends[p] || to != ends[p]+lost[p] || !bytes.Equal(batches, tail) {
			t.Errorf("partition %d: [%d,%d) and %d bytes were handed out, want [%d,%d) and the %d bytes on disk", p, from, to, len(batches), ends[p], ends[p]+lost[p], len(tail))
		}
	}
	for p := range int32(partitions) {
		now := back.Same(topic, p, lives.OffsetOf(t, b, lives.Latest, topic, p))
		if !bytes.HasPrefix(now, copied[p]) {
			t.Errorf("partition %d: what both had was not kept: %s", p, lives.Difference(now, copied[p]))
		}
	}
	back.Same(keyed, 0, lives.OffsetOf(t, b, lives.Latest, keyed, 0))

	for _, x := range back.Failover().Partitions {
		if x.Topic == topic {
			opens[x.Partition] = x.OpensAt
		}
	}
	back.End()
	old.Leave()
	lives.NoTrace(t, a, topic, keyed)
	writes(t, a, topic, "home again", opens)
	lives.JavaProducer(t, a, keyed, "home again")
	if last := lives.Committed(t, a, keyed, 0, 16); last[len(last)-1] != 16 {
		t.Errorf("the record of Kafka's own producer: %v", last)
	}
	lives.SameCommitted(t, a, topic, pTransactions, 0, 1, 2, 8, 11, 14, 15, 16, 17, 22, 23, 24, 25)
	for p := range int32(partitions) {
		a.WaitSameSegments(topic, p, 1, 2, 3)
	}
}

// writes are those of new clients: plain ones, idempotent ones, a transaction that is committed and, behind it, one that is aborted. Each finds the partition open at opens.
func writes(t *testing.T, c *kafkatest.Cluster, topic, text string, opens [partitions]int64) {
	t.Helper()
	once := lives.Client(c)
	for p := range int32(partitions) {
		if p == pTransactions {
			continue
		}
		if at := lives.OffsetOf(t, c, lives.Latest, topic, p); at != opens[p] {
			t.Errorf("partition %d is opened at %d, and ends at %d", p, opens[p], at)
		}
		lives.Produce(t, once, topic, p, lives.Values(text, 3)...)
		if end := lives.OffsetOf(t, c, lives.Latest, topic, p); end != opens[p]+3 {
			t.Errorf("partition %d ends at %d after 3 records behind %d: a record was swallowed", p, end, opens[p])
		}
	}
	cl := lives.Client(c, kgo.TransactionalID(text))
	lives.Produce(t, lives.Client(c, lives.Plain...), topic, pTransactions, text)
	lives.Transaction(t, c, cl, kgo.TryCommit, topic, pTransactions, lives.Values(text, 3)...)
	lives.Transaction(t, c, cl, kgo.TryAbort, topic, pTransactions, text)
}
