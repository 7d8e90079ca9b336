package kraftlife_test

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
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

// Out and home again: everything that a log may hold is mirrored, the primary is given up with a transaction open and records that nobody copied, clients write at the standby, the
// old primary is mirrored into and loses what only it had, and clients write there again.
func TestWholeLife(t *testing.T) {
	a, b := primary(t), standby(t)
	topic, keyed := "life", "life-compacted"
	a.CreateTopic(kafkatest.Topic{Name: topic, Partitions: partitions, Replication: 3})
	a.CreateTopic(kafkatest.Topic{Name: keyed, Assignment: [][]int32{{2, 1, 3}}, Configs: compacted})
	at := join(t, b)
	there := open(t, "there", a, at)

	// One part before the mirror starts, one while it runs.
	plainly, once := client(a, plain...), client(a)
	transacting, left := client(a, kgo.TransactionalID("life")), client(a, oldProtocol, kgo.TransactionalID("life-left"))
	put(t, plainly, keyed, "a")                // 0
	put(t, plainly, keyed, "b", "c")           // 1..2: goes
	put(t, plainly, keyed, "b", "c", "d", "e") // 3..6: becomes d alone
	put(t, plainly, keyed, "b", "c", "e", "x") // 7..10
	put(t, plainly, keyed, "active")           // 11
	put(t, plainly, keyed, "still active")     // 12
	produce(t, once, topic, pTrimmed, values("deleted", 57)...)
	produce(t, once, topic, pTrimmed, values("first", 5)...)
	produce(t, once, topic, pTrimmed, values("second", 5)...) // ..66
	a.DeleteRecords(topic, pTrimmed, 57)
	moved := a.Describe(topic, pEpochs).Replicas
	for i := range 4 {
		produce(t, once, topic, pEpochs, values("before a move", 3)...) // 0..11
		a.MoveLeader(topic, pEpochs, moved[(i+1)%3])
	}
	there.start(topic, keyed)
	produce(t, plainly, topic, pPlain, values("plain", 5)...) // 0..9
	produce(t, plainly, topic, pPlain, values("plain", 5)...)
	produce(t, once, topic, pIdempotent, values("first", 3)...) // 0..6
	produce(t, once, topic, pIdempotent, values("second", 4)...)
	transaction(t, a, transacting, kgo.TryCommit, topic, pTransactions, values("committed", 3)...) // 0..3
	transaction(t, a, transacting, kgo.TryAbort, topic, pTransactions, values("aborted", 3)...)    // 4..7
	produce(t, plainly, topic, pTransactions, "plain")                                             // 8
	begin(t, left)
	produce(t, left, topic, pTransactions, values("open", 2)...) // 9..10
	produce(t, plainly, topic, pTransactions, "plain")           // 11
	for p, x := range codecs {
		cl := client(a, kgo.ProducerBatchCompression(x.codec))
		produce(t, cl, topic, p, values("the same words again and again", 20)...) // 0..39
		produce(t, cl, topic, p, values("the same words again and again", 20)...)
	}
	produce(t, once, topic, pEpochs, values("after the moves", 3)...) // 12..14
	gap := func(hs []batch.Header) bool {
		return len(hs) > 2 && hs[0].NextOffset() == 1 && hs[1].BaseOffset == 3 && hs[1].RecordCount == 1
	}
	cleaned(t, a, keyed, []int32{1, 2, 3}, gap)

	ends := [partitions]int64{pPlain: 10, pIdempotent: 7, pTransactions: 12, pNone: 40, pGzip: 40, pSnappy: 40, pLZ4: 40, pZstd: 40, pTrimmed: 67, pEpochs: 15}
	var copied [partitions][]byte
	for p, end := range ends {
		if p == pEmpty {
			there.inStep(topic, pEmpty, 0)
			continue
		}
		copied[p] = there.same(topic, int32(p), end)
	}
	for p, x := range codecs {
		for _, h := range headers(copied[p]) {
			if h.Codec() != x.want {
				t.Errorf("partition %d: codec %d, want %d", p, h.Codec(), x.want)
			}
		}
	}
	if h := headers(copied[pTrimmed])[0]; h.BaseOffset != 57 || h.BaseSequence != 57 {
		t.Errorf("the trimmed log begins with %+v", h)
	}
	if hs := headers(copied[pEpochs]); hs[len(hs)-1].LeaderEpoch < 4 || one(there.Status(), topic, pEpochs).LeaderEpoch < hs[len(hs)-1].LeaderEpoch {
		t.Errorf("the source's epoch is %d, ours is %d", hs[len(hs)-1].LeaderEpoch, one(there.Status(), topic, pEpochs).LeaderEpoch)
	}
	if hs := headers(there.same(keyed, 0, 13)); !gap(hs) {
		t.Errorf("the compacted log: %+v", hs)
	}

	// The mirror loses sight of the primary, where work goes on.
	there.link.cut()
	lost := map[int32]int64{pPlain: 15, pIdempotent: 4, pTransactions: 3, pGzip: 20, pTrimmed: 5, pEpochs: 6, pEmpty: 2}
	produce(t, plainly, topic, pPlain, values("never copied", 15)...)
	produce(t, once, topic, pIdempotent, values("never copied", 4)...)
	finish(t, a, left, kgo.TryCommit, topic, pTransactions) // 12
	produce(t, plainly, topic, pTransactions, values("never copied", 2)...)
	produce(t, client(a, kgo.ProducerBatchCompression(kgo.GzipCompression())), topic, pGzip, values("never copied", 20)...)
	produce(t, once, topic, pTrimmed, values("never copied", 5)...)
	produce(t, once, topic, pEpochs, values("never copied", 3)...)
	a.MoveLeader(topic, pEpochs, moved[0])
	produce(t, once, topic, pEpochs, values("never copied", 3)...)
	produce(t, once, topic, pEmpty, values("never copied", 2)...)

	opens := [partitions]int64{}
	for _, x := range there.failover().Partitions {
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
	there.end()
	at.leave()
	noTrace(t, b, topic, keyed)

	// Clients write at the new primary.
	writes(t, b, topic, "at the standby", opens)
	javaProducer(t, b, keyed, "at the standby")
	if last := committed(t, b, keyed, 0, 14); last[len(last)-1] != 14 { // behind the reset
		t.Errorf("the record of Kafka's own producer: %v", last)
	}
	sameCommitted(t, b, topic, pTransactions, 0, 1, 2, 8, 11, 14, 15, 16, 17)
	for p := range copied {
		if now := b.WaitSameSegments(topic, int32(p), 1, 2, 3); !bytes.HasPrefix(now, copied[p]) {
			t.Errorf("partition %d: what was mirrored changed: %s", p, difference(now, copied[p]))
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
		tail, err := since(a.SegmentBytes(topic, p, a.LeaderOf(topic, p)), ends[p])
		if err != nil {
			t.Fatal(err)
		}
		tails[p], total = tail, total+n
	}
	old := join(t, a)
	back := open(t, "back", b, old)
	plan := back.failback(topic, keyed)
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
		if from, to, batches := back.sink.of(topic, p); from != ends[p] || to != ends[p]+lost[p] || !bytes.Equal(batches, tail) {
			t.Errorf("partition %d: [%d,%d) and %d bytes were handed out, want [%d,%d) and the %d bytes on disk", p, from, to, len(batches), ends[p], ends[p]+lost[p], len(tail))
		}
	}
	for p := range int32(partitions) {
		now := back.same(topic, p, offsetOf(t, b, latest, topic, p))
		if !bytes.HasPrefix(now, copied[p]) {
			t.Errorf("partition %d: what both had was not kept: %s", p, difference(now, copied[p]))
		}
	}
	back.same(keyed, 0, offsetOf(t, b, latest, keyed, 0))

	for _, x := range back.failover().Partitions {
		if x.Topic == topic {
			opens[x.Partition] = x.OpensAt
		}
	}
	back.end()
	old.leave()
	noTrace(t, a, topic, keyed)
	writes(t, a, topic, "home again", opens)
	javaProducer(t, a, keyed, "home again")
	if last := committed(t, a, keyed, 0, 16); last[len(last)-1] != 16 {
		t.Errorf("the record of Kafka's own producer: %v", last)
	}
	sameCommitted(t, a, topic, pTransactions, 0, 1, 2, 8, 11, 14, 15, 16, 17, 22, 23, 24, 25)
	for p := range int32(partitions) {
		a.WaitSameSegments(topic, p, 1, 2, 3)
	}
}

// writes are those of new clients: plain ones, idempotent ones, a transaction that is committed and, behind it, one that is aborted. Each finds the partition open at opens.
func writes(t *testing.T, c *kafkatest.Cluster, topic, text string, opens [partitions]int64) {
	t.Helper()
	once := client(c)
	for p := range int32(partitions) {
		if p == pTransactions {
			continue
		}
		if at := offsetOf(t, c, latest, topic, p); at != opens[p] {
			t.Errorf("partition %d is opened at %d, and ends at %d", p, opens[p], at)
		}
		produce(t, once, topic, p, values(text, 3)...)
		if end := offsetOf(t, c, latest, topic, p); end != opens[p]+3 {
			t.Errorf("partition %d ends at %d after 3 records behind %d: a record was swallowed", p, end, opens[p])
		}
	}
	cl := client(c, kgo.TransactionalID(text))
	produce(t, client(c, plain...), topic, pTransactions, text)
	transaction(t, c, cl, kgo.TryCommit, topic, pTransactions, values(text, 3)...)
	transaction(t, c, cl, kgo.TryAbort, topic, pTransactions, text)
}
