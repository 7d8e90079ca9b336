package memlog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func TestProduceAndConsume(t *testing.T) {
	c, _ := source(t, memlog.Config{})
	when := time.UnixMilli(1_700_000_000_123)
	base, err := c.Produce(t.Context(), "orders", 0,
		memlog.Record{Key: []byte("k"), Value: []byte("v"), Headers: []memlog.Header{{Key: "h", Value: []byte("w")}}, Time: when}, memlog.Record{Time: when.Add(time.Second)})
	if err != nil || base != 0 {
		t.Fatal(base, err)
	}
	if base := produce(t, c, "x"); base != 2 {
		t.Errorf("base %d", base)
	}
	got, err := c.Consume(t.Context(), "orders", 0, 0, memlog.ReadCommitted)
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	r := got[0]
	if string(r.Key) != "k" || string(r.Value) != "v" || len(r.Headers) != 1 || r.Headers[0].Key != "h" || string(r.Headers[0].Value) != "w" || !r.Time.Equal(when) {
		t.Errorf("record %+v", r)
	}
	if got[1].Key != nil || got[1].Value != nil || !got[1].Time.Equal(when.Add(time.Second)) {
		t.Errorf("record %+v", got[1])
	}
	if got, err := c.Consume(t.Context(), "orders", 0, 1, memlog.ReadCommitted); err != nil || len(got) != 2 || got[0].Offset != 1 {
		t.Errorf("from inside a batch: %+v, %v", got, err)
	}
	if _, err := c.Consume(t.Context(), "orders", 0, 4, memlog.ReadCommitted); !errors.Is(err, mirror.ErrOffsetOutOfRange) {
		t.Errorf("beyond the end: %v", err)
	}
	raw, _ := c.RawLog("orders", 0)
	for _, b := range mirror.Batches(raw) {
		if err := mirror.CheckBatch(b); err != nil {
			t.Error(err)
		}
	}
}

func TestSpec111ClientsAreRefusedWhileTheGateIsClosed(t *testing.T) {
	ctx := t.Context()
	c, log := destination(t, memlog.Config{})
	readOnly := &mirror.Error{Code: mirror.ReadOnlyTopic}
	p := c.NewProducer(memlog.ProducerOptions{})
	refused := func() {
		t.Helper()
		if _, err := c.Produce(ctx, "orders", 0, records("a")...); !errors.Is(err, readOnly) {
			t.Errorf("produce: %v", err)
		}
		if _, err := p.Produce(ctx, "orders", 0, records("a")...); !errors.Is(err, readOnly) {
			t.Errorf("idempotent produce: %v", err)
		}
		if err := c.DeleteRecords(ctx, "orders", 0, 0); !errors.Is(err, &mirror.Error{Code: mirror.MirrorTopicNotStopped}) {
			t.Errorf("delete records: %v", err)
		}
	}
	refused()
	if err := log.Open(ctx); err != nil {
		t.Fatal(err)
	}
	produce(t, c, "a")
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Produce(ctx, "orders", 0, records("b")...); err != nil {
		t.Fatal(err)
	}
	if err := log.CloseForWrites(ctx); err != nil {
		t.Fatal(err)
	}
	refused()
	if err := p.Commit(ctx); !errors.Is(err, readOnly) { // WriteTxnMarkers too
		t.Errorf("commit: %v", err)
	}
	if log.End() != 2 {
		t.Errorf("end %d", log.End())
	}
	log.Open(ctx)
	if err := p.Commit(ctx); err != nil {
		t.Error(err)
	}
	if err := c.SetForeign("orders", 0, true); err != nil {
		t.Fatal(err)
	}
	refused()
	if owner, _, _ := log.Owner(ctx); owner != mirror.OwnerForeign {
		t.Errorf("owner %s", owner)
	}
	raw, _ := c.RawLog("orders", 0)
	if err := log.Append(ctx, 0, raw); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("append to a foreign log: %v", err)
	}
}

func TestTransactionsV1(t *testing.T) {
	ctx := t.Context()
	c, _ := source(t, memlog.Config{})
	c.ElectLeader("orders", 0) // epoch 1
	p := c.NewProducer(memlog.ProducerOptions{})
	run := func(end func(context.Context) error, values ...string) {
		t.Helper()
		if err := p.Begin(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Produce(ctx, "orders", 0, records(values...)...); err != nil {
			t.Fatal(err)
		}
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
	}
	run(p.Commit, "a", "b") // 0, 1; marker 2
	run(p.Abort, "gone")    // 3; marker 4
	produce(t, c, "plain")  // 5
	if p.Begin() != nil {
		t.Fatal("begin")
	}
	p.Produce(ctx, "orders", 0, records("open")...) // 6
	produce(t, c, "behind")                         // 7
	if got := values(t, c, memlog.ReadUncommitted); !slices.Equal(got, []string{"0=a", "1=b", "3=gone", "5=plain", "6=open", "7=behind"}) {
		t.Errorf("uncommitted %v", got)
	}
	if got := values(t, c, memlog.ReadCommitted); !slices.Equal(got, []string{"0=a", "1=b", "5=plain"}) {
		t.Errorf("committed %v", got)
	}
	if err := p.Commit(ctx); err != nil { // 8
		t.Fatal(err)
	}
	if got := values(t, c, memlog.ReadCommitted); !slices.Equal(got, []string{"0=a", "1=b", "5=plain", "6=open", "7=behind"}) {
		t.Errorf("committed %v", got)
	}
	if p.Commit(ctx) == nil {
		t.Error("commit without a transaction")
	}
	raw, _ := c.RawLog("orders", 0)
	var markers []int64
	for info, b := range mirror.Batches(raw) {
		if err := mirror.CheckBatch(b); err != nil {
			t.Error(err)
		}
		if info.LeaderEpoch != 1 {
			t.Errorf("batch %d has leader epoch %d", info.Base, info.LeaderEpoch)
		}
		if info.Control {
			markers = append(markers, info.Base)
			if info.ProducerEpoch != 0 || info.ProducerID != p.ID().ID || !info.Transactional || len(b) != 78 {
				t.Errorf("marker %+v, %d bytes", info, len(b))
			}
		}
	}
	if !slices.Equal(markers, []int64{2, 4, 8}) {
		t.Errorf("markers at %v", markers)
	}
}

func TestF52TransactionsV2BumpTheEpochInTheMarker(t *testing.T) {
	ctx := t.Context()
	c, _ := source(t, memlog.Config{})
	p := c.NewProducer(memlog.ProducerOptions{Transactions: memlog.TransactionV2, As: &memlog.ProducerID{ID: 7, Epoch: 3}})
	for i, end := range []func(context.Context) error{p.Commit, p.Abort} {
		p.Begin()
		if _, err := p.Produce(ctx, "orders", 0, records("x")...); err != nil {
			t.Fatal(err)
		}
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
		if p.ID() != (memlog.ProducerID{ID: 7, Epoch: int16(4 + i)}) {
			t.Errorf("identity %+v", p.ID())
		}
	}
	raw, _ := c.RawLog("orders", 0)
	var epochs []int16
	for info := range mirror.Batches(raw) {
		epochs = append(epochs, info.ProducerEpoch)
	}
	if !slices.Equal(epochs, []int16{3, 4, 4, 5}) {
		t.Errorf("epochs %v", epochs)
	}
	if got := values(t, c, memlog.ReadCommitted); !slices.Equal(got, []string{"0=x"}) {
		t.Errorf("committed %v", got)
	}
	offsets, _ := c.Offsets(ctx, []mirror.TopicPartition{orders})
	if offsets[orders].HighWatermark != 4 {
		t.Errorf("high watermark %d", offsets[orders].HighWatermark)
	}
}

func TestSequences(t *testing.T) {
	ctx := t.Context()
	c, _ := source(t, memlog.Config{})
	p := c.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 5}})
	for range 2 {
		if _, err := p.Produce(ctx, "orders", 0, records("a", "b", "c", "d", "e")...); err != nil {
			t.Fatal(err)
		}
	}
	again := c.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 5}})
	if _, err := again.Produce(ctx, "orders", 0, records("a")...); !errors.Is(err, memlog.ErrDuplicateSequence) {
		t.Errorf("old sequences: %v", err)
	}
	if _, err := again.Produce(ctx, "orders", 0, records(slices.Repeat([]string{"x"}, 11)...)...); !errors.Is(err, memlog.ErrOutOfOrderSequence) {
		t.Errorf("sequences that overlap the end: %v", err)
	}
	newer := c.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 5, Epoch: 1}})
	if _, err := newer.Produce(ctx, "orders", 0, records("n")...); err != nil {
		t.Error(err)
	}
	if _, err := p.Produce(ctx, "orders", 0, records("x")...); !errors.Is(err, memlog.ErrProducerFenced) {
		t.Errorf("older epoch: %v", err)
	}
	if len(values(t, c, memlog.ReadUncommitted)) != 11 {
		t.Error("what was refused is in the log")
	}
}

// pidReset is the control batch that ends a mirror.
func pidReset(base int64, leaderEpoch int32) []byte {
	return batch.AppendControl(nil, batch.ControlSpec{
		BaseOffset: base, LeaderEpoch: leaderEpoch, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Timestamp: 1, Key: []byte{0, 0, 0, 7}, Value: []byte{0, 0, 0},
	})
}

func TestF48FreshProducerWithAMirroredID(t *testing.T) {
	ctx := t.Context()
	from, _ := source(t, memlog.Config{})
	p := from.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 5}})
	for range 10 {
		if _, err := p.Produce(ctx, "orders", 0, records("x")...); err != nil {
			t.Fatal(err)
		}
	}
	fresh := func(reset bool) error {
		to, log := destination(t, memlog.Config{})
		copyLog(t, from, log)
		if reset {
			if err := log.Append(ctx, 0, pidReset(10, 0)); err != nil {
				t.Fatal(err)
			}
		}
		log.Open(ctx)
		_, err := to.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 5}}).Produce(ctx, "orders", 0, records("fresh")...)
		return err
	}
	if err := fresh(false); !errors.Is(err, memlog.ErrDuplicateSequence) {
		t.Errorf("without a reset: %v, a duplicate it should seem", err)
	}
	if err := fresh(true); err != nil {
		t.Errorf("after a reset: %v", err)
	}
}

func TestF48SettledProducerIDsAreNotGivenOut(t *testing.T) {
	c, log := destination(t, memlog.Config{})
	if id := c.NewProducer(memlog.ProducerOptions{}).ID(); id != (memlog.ProducerID{}) {
		t.Errorf("first id %+v", id)
	}
	if err := log.(mirror.ProducerIDSettler).SettleProducerIDs(t.Context(), 41); err != nil {
		t.Fatal(err)
	}
	if id := c.NewProducer(memlog.ProducerOptions{}).ID(); id.ID != 42 {
		t.Errorf("id %+v after all up to 41 were settled", id)
	}
	log.(mirror.ProducerIDSettler).SettleProducerIDs(t.Context(), 3)
	if id := c.NewProducer(memlog.ProducerOptions{}).ID(); id.ID != 43 {
		t.Errorf("id %+v", id)
	}
}

func TestProducerStateFollowsTruncation(t *testing.T) {
	ctx := t.Context()
	from, _ := source(t, memlog.Config{})
	p := from.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 5}})
	for range 4 {
		p.Begin()
		p.Produce(ctx, "orders", 0, records("x")...)
		p.Commit(ctx)
	}
	to, log := destination(t, memlog.Config{})
	copyLog(t, from, log)
	if _, err := log.TruncateTo(ctx, 5); err != nil { // inside the third transaction: its marker goes
		t.Fatal(err)
	}
	log.Open(ctx)
	if got := values(t, to, memlog.ReadCommitted); !slices.Equal(got, []string{"0=x", "2=x"}) {
		t.Errorf("committed %v", got)
	}
	next := to.NewProducer(memlog.ProducerOptions{As: &memlog.ProducerID{ID: 5}})
	if _, err := next.Produce(ctx, "orders", 0, records("a", "b", "c")...); !errors.Is(err, memlog.ErrDuplicateSequence) {
		t.Errorf("sequences 0 to 2 are in the log: %v", err)
	}
}

func TestRetention(t *testing.T) {
	ctx := t.Context()
	c, _ := source(t, memlog.Config{Replicas: 2})
	for s := range int64(4) {
		c.Produce(ctx, "orders", 0, memlog.Record{Time: time.Unix(s, 0), Value: []byte("x")}, memlog.Record{Time: time.Unix(s, 0), Value: []byte("y")})
	}
	if start, err := c.Expire(ctx, "orders", 0, time.Unix(2, 0)); err != nil || start != 4 {
		t.Errorf("start %d, %v", start, err)
	}
	if err := c.DeleteRecords(ctx, "orders", 0, 5); err != nil { // inside a batch
		t.Fatal(err)
	}
	if got := values(t, c, memlog.ReadUncommitted); !slices.Equal(got, []string{"5=y", "6=x", "7=y"}) {
		t.Errorf("log %v", got)
	}
	if err := c.DeleteRecords(ctx, "orders", 0, 9); !errors.Is(err, mirror.ErrOffsetOutOfRange) {
		t.Errorf("delete beyond the end: %v", err)
	}
	if err := c.DeleteRecords(ctx, "orders", 0, -1); err != nil {
		t.Fatal(err)
	}
	if got := values(t, c, memlog.ReadUncommitted); len(got) > 0 {
		t.Errorf("log %v", got)
	}
	if base := produce(t, c, "z"); base != 8 {
		t.Errorf("base %d", base)
	}
}

func TestCompressedBatchesAreConsumed(t *testing.T) {
	plain := batch.AppendData(nil, batch.DataSpec{ProducerID: -1, BaseTimestamp: 5000, Records: []batch.Record{
		{Value: []byte("a")}, {OffsetDelta: 1, TimestampDelta: 7000, Value: []byte("b")}, {OffsetDelta: 2, TimestampDelta: 8000, Value: []byte("c")},
	}})
	for codec, option := range map[int16]kgo.CompressionCodec{1: kgo.GzipCompression(), 2: kgo.SnappyCompression(), 3: kgo.Lz4Compression(), 4: kgo.ZstdCompression()} {
		compressor, err := kgo.DefaultCompressor(option)
		if err != nil {
			t.Fatal(err)
		}
		squeezed, _ := compressor.Compress(&bytes.Buffer{}, plain[batch.HeaderSize:])
		b := append(slices.Clone(plain[:batch.HeaderSize]), squeezed...)
		binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
		binary.BigEndian.PutUint16(b[21:], uint16(codec))
		binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
		if err := mirror.CheckBatch(b); err != nil {
			t.Fatal(err)
		}
		c, _ := source(t, memlog.Config{})
		if err := c.ImportLog("orders", 0, b, 0, 0); err != nil {
			t.Fatal(err)
		}
		if got := values(t, c, memlog.ReadCommitted); !slices.Equal(got, []string{"0=a", "1=b", "2=c"}) {
			t.Errorf("codec %d: %v", codec, got)
		}
		if at, _ := c.OffsetsAt(t.Context(), time.Unix(12, 0), []mirror.TopicPartition{orders}); at[orders].HighWatermark != 1 {
			t.Errorf("codec %d: offset by time %+v", codec, at[orders])
		}
	}
}

func TestImportLogBringsBackAnOldCluster(t *testing.T) {
	ctx := t.Context()
	old, topic := source(t, memlog.Config{ClusterID: "west"})
	produce(t, old, "a", "b")
	old.ElectLeader("orders", 0)
	produce(t, old, "c")
	raw, _ := old.RawLog("orders", 0)

	back := memlog.New(memlog.Config{ClusterID: "west"})
	defer back.Close()
	if _, err := back.CreateLocalTopic(memlog.LocalTopic{Name: "orders", ID: topic.ID}); err != nil {
		t.Fatal(err)
	}
	if err := back.ImportLog("orders", 0, raw, 1, 3); err != nil {
		t.Fatal(err)
	}
	if got := values(t, back, memlog.ReadCommitted); !slices.Equal(got, []string{"1=b", "2=c"}) {
		t.Errorf("log %v", got)
	}
	if end, err := back.EndOffsetForEpoch(ctx, orders, 3, 0); err != nil || end != (mirror.EpochEnd{Epoch: 0, End: 2}) {
		t.Errorf("end of epoch 0: %+v, %v", end, err)
	}
	if end, err := back.EndOffsetForEpoch(ctx, orders, 3, 3); err != nil || end != (mirror.EpochEnd{Epoch: 3, End: 3}) {
		t.Errorf("end of epoch 3: %+v, %v", end, err)
	}
	if base := produce(t, back, "d"); base != 3 {
		t.Errorf("base %d", base)
	}
	if err := back.LeaveHole("orders", 0, 10); err != nil {
		t.Fatal(err)
	}
	if base := produce(t, back, "e"); base != 10 {
		t.Errorf("base %d after a hole", base)
	}
	if err := back.ImportLog("orders", 0, raw, 0, 0); err == nil {
		t.Error("batches of epoch 1 were imported under leader epoch 0")
	}
}

func TestReplicasHeldAndKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c, log := destination(t, memlog.Config{Replicas: 3, MinInSync: 2})
		from, _ := source(t, memlog.Config{})
		for range 3 {
			produce(t, from, "x")
		}
		c.HoldReplica("orders", 0, 1)
		copyLog(t, from, log)
		if log.Replicated() != 0 {
			t.Errorf("replicated %d with a replica held at 0", log.Replicated())
		}
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		began := time.Now()
		if err := log.AwaitReplicated(short, 3); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 10*time.Second {
			t.Errorf("waited %s, %v", time.Since(began), err)
		}
		go func() {
			time.Sleep(time.Second)
			c.KillReplica("orders", 0, 1)
		}()
		if err := log.AwaitReplicated(ctx, 3); err != nil || log.Replicated() != 3 {
			t.Errorf("replicated %d, %v", log.Replicated(), err)
		}
		// Two of three are dead: fewer than MinInSync, the high watermark stands.
		c.KillReplica("orders", 0, 2)
		produce(t, from, "y")
		tail, _ := from.RawLog("orders", 0)
		for info, b := range mirror.Batches(tail) {
			if info.Base == 3 {
				log.Append(ctx, 0, b)
			}
		}
		if log.End() != 4 || log.Replicated() != 3 {
			t.Errorf("end %d, replicated %d", log.End(), log.Replicated())
		}
		// Both missed the cut; only the second has what was cut, and is waited for.
		if _, err := log.TruncateTo(ctx, 1); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Second)
			c.ReviveReplica("orders", 0, 2)
		}()
		began = time.Now()
		if err := log.AwaitTruncated(ctx); err != nil || log.Replicated() != 1 || time.Since(began) != time.Second {
			t.Errorf("replicated %d, %v after %s", log.Replicated(), err, time.Since(began))
		}
		if err := c.HoldReplica("orders", 0, 3); err == nil {
			t.Error("there is no replica 3")
		}
	})
}

// TestStartOfAnOpenLogMovesForItsClientsOnly: retention and DeleteRecords go on where the mirror is fenced.
func TestStartOfAnOpenLogMovesForItsClientsOnly(t *testing.T) {
	ctx := t.Context()
	c, log := destination(t, memlog.Config{})
	if err := log.Open(ctx); err != nil {
		t.Fatal(err)
	}
	old := time.UnixMilli(1_700_000_000_000)
	for _, at := range []time.Time{old, old, old.Add(time.Hour)} {
		if _, err := c.Produce(ctx, "orders", 0, memlog.Record{Time: at}); err != nil {
			t.Fatal(err)
		}
	}
	fenced := func(start int64) {
		t.Helper()
		if err := log.RaiseStart(ctx, 3); !errors.Is(err, mirror.ErrFenced) || log.Start() != start {
			t.Errorf("error %v, start %d; it should be fenced at %d", err, log.Start(), start)
		}
	}
	fenced(0)
	if err := c.DeleteRecords(ctx, "orders", 0, 1); err != nil {
		t.Error(err)
	}
	fenced(1)
	if start, err := c.Expire(ctx, "orders", 0, old.Add(time.Minute)); err != nil || start != 2 {
		t.Errorf("start %d, %v", start, err)
	}
	fenced(2)
}
