package memlog_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// sent is a batch as a client sends it: offsets from 0, no leader epoch.
func sent(producer int64, sequence int32, transactional bool, values ...string) []byte {
	spec := batch.DataSpec{ProducerID: producer, BaseSequence: sequence, Transactional: transactional, BaseTimestamp: 1000, LeaderEpoch: -1}
	if producer < 0 {
		spec.ProducerEpoch, spec.BaseSequence = -1, -1
	}
	for i, v := range values {
		spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(i), TimestampDelta: int64(i), Value: []byte(v)})
	}
	return batch.AppendData(nil, spec)
}

func TestProduceBatch(t *testing.T) {
	c, _ := source(t, memlog.Config{})
	marker := batch.AppendControl(nil, batch.ControlSpec{ProducerID: 1, BaseSequence: -1, Transactional: true, Key: []byte{0, 0, 0, 1}, Value: make([]byte, 6)})
	flipped := sent(-1, 0, false, "x")
	flipped[len(flipped)-1] ^= 1
	for _, tc := range []struct {
		name  string
		batch []byte
		base  int64
		err   error
	}{
		{"plain", sent(-1, 0, false, "a", "b"), 0, nil},
		{"idempotent", sent(7, 0, false, "c"), 2, nil},
		{"the next", sent(7, 1, false, "d", "e"), 3, nil},
		{"again", sent(7, 1, false, "d", "e"), 3, nil},
		{"a gap", sent(7, 4, false, "x"), -1, memlog.ErrOutOfOrderSequence},
		{"transactional", sent(8, 0, true, "f"), 5, nil},
		{"outside of its transaction", sent(8, 1, false, "x"), -1, memlog.ErrInvalidTransaction},
		{"a marker", marker, -1, memlog.ErrInvalidBatch},
		{"damaged", flipped, -1, memlog.ErrInvalidBatch},
		{"cut", sent(-1, 0, false, "x")[:70], -1, memlog.ErrInvalidBatch},
		{"two", append(sent(-1, 0, false, "x"), sent(-1, 0, false, "y")...), -1, memlog.ErrInvalidBatch},
		{"none", nil, -1, memlog.ErrInvalidBatch},
	} {
		base, err := c.ProduceBatch(t.Context(), "orders", 0, bytes.Clone(tc.batch))
		if base != tc.base || !errors.Is(err, tc.err) {
			t.Errorf("%s: base %d, %v", tc.name, base, err)
		}
	}
	if got, want := values(t, c, memlog.ReadUncommitted), []string{"0=a", "1=b", "2=c", "3=d", "4=e", "5=f"}; !slices.Equal(got, want) {
		t.Errorf("the log has %v", got)
	}
	known, err := c.Producers(t.Context(), "orders", 0)
	if err != nil || len(known) != 2 || known[0].ID != 7 || known[0].LastSequence != 2 || known[1].OpenSince != 5 {
		t.Errorf("producers %+v, %v", known, err)
	}
	d, _ := destination(t, memlog.Config{})
	var refused *mirror.Error
	if _, err := d.ProduceBatch(t.Context(), "orders", 0, sent(-1, 0, false, "x")); !errors.As(err, &refused) || refused.Code != mirror.ReadOnlyTopic {
		t.Errorf("a mirror's copy: %v", err)
	}
	if err := d.WriteMarker(t.Context(), "orders", 0, memlog.ProducerID{ID: 7}, true); !errors.As(err, &refused) || refused.Code != mirror.ReadOnlyTopic {
		t.Errorf("a marker in a mirror's copy: %v", err)
	}
}

// TestReadBatches: a reader of committed records stops where the oldest transaction is open, and is told what was aborted below.
func TestReadBatches(t *testing.T) {
	c, topic := source(t, memlog.Config{})
	one, two := c.NewProducerID(), c.NewProducerID()
	if two.ID != one.ID+1 {
		t.Errorf("producer ids %v and %v", one, two)
	}
	for _, b := range [][]byte{sent(one.ID, 0, true, "a"), sent(two.ID, 0, true, "b")} {
		if _, err := c.ProduceBatch(t.Context(), "orders", 0, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.WriteMarker(t.Context(), "orders", 0, one, false); err != nil {
		t.Fatal(err)
	}
	read := func(r memlog.ReadRequest) memlog.ReadReply {
		t.Helper()
		r.MaxBytes, r.AtLeastOne = 1<<20, true
		got, err := c.ReadBatches(t.Context(), orders, r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	bases := func(b []byte) (at []int64) {
		for info := range mirror.Batches(b) {
			at = append(at, info.Base)
		}
		return at
	}
	got := read(memlog.ReadRequest{LeaderEpoch: 0, LastEpoch: -1, Isolation: memlog.ReadCommitted})
	if !slices.Equal(bases(got.Records), []int64{0}) || got.LastStable != 1 || got.HighWatermark != 3 || len(got.Aborted) != 1 || got.Aborted[0].ProducerID != one.ID {
		t.Errorf("committed: %+v", got)
	}
	got = read(memlog.ReadRequest{LeaderEpoch: -1, LastEpoch: -1})
	if !slices.Equal(bases(got.Records), []int64{0, 1, 2}) || got.Aborted != nil {
		t.Errorf("uncommitted: %+v", got)
	}
	if _, err := c.ElectUnclean("orders", 0, 2); err != nil {
		t.Fatal(err)
	}
	got = read(memlog.ReadRequest{Offset: 3, LeaderEpoch: 1, LastEpoch: 0})
	if got.Diverging == nil || *got.Diverging != (mirror.EpochEnd{Epoch: 0, End: 2}) || len(got.Records) > 0 {
		t.Errorf("diverging: %+v", got)
	}
	for want, r := range map[mirror.SourceCode]memlog.ReadRequest{
		mirror.SourceFencedEpoch:  {LeaderEpoch: 0, LastEpoch: -1},
		mirror.SourceUnknownEpoch: {LeaderEpoch: 2, LastEpoch: -1},
		mirror.SourceOffsetRange:  {Offset: 3, LeaderEpoch: -1, LastEpoch: -1},
	} {
		var e *mirror.SourceError
		if _, err := c.ReadBatches(t.Context(), orders, r); !errors.As(err, &e) || e.Code != want {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if leader, err := c.Leader(t.Context(), orders); err != nil || leader != (mirror.SourcePartition{Leader: 1, LeaderEpoch: 1}) {
		t.Errorf("leader %+v, %v", leader, err)
	}
	if found, ok := c.TopicByID(topic.ID); !ok || found.Name != "orders" {
		t.Errorf("%+v, %v", found, ok)
	}
	if _, ok := c.TopicByID(mirror.TopicID{1}); ok {
		t.Error("a topic that is not there was found")
	}
}

func TestListOffset(t *testing.T) {
	c, _ := source(t, memlog.Config{})
	for i, v := range []string{"a", "b", "c"} {
		if _, err := c.Produce(t.Context(), "orders", 0, memlog.Record{Value: []byte(v), Time: time.UnixMilli([]int64{10, 30, 20}[i])}); err != nil {
			t.Fatal(err)
		}
	}
	p := c.NewProducer(memlog.ProducerOptions{})
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Produce(t.Context(), "orders", 0, memlog.Record{Value: []byte("open"), Time: time.UnixMilli(40)}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		at                int64
		isolation         memlog.Isolation
		offset, timestamp int64
	}{
		{memlog.TimeLatest, memlog.ReadUncommitted, 4, -1}, {memlog.TimeLatest, memlog.ReadCommitted, 3, -1}, {memlog.TimeEarliest, memlog.ReadUncommitted, 0, -1},
		{memlog.TimeMax, memlog.ReadUncommitted, 3, 40}, {memlog.TimeMax, memlog.ReadCommitted, 1, 30},
		{0, memlog.ReadUncommitted, 0, 10}, {11, memlog.ReadUncommitted, 1, 30}, {31, memlog.ReadUncommitted, 3, 40}, {31, memlog.ReadCommitted, -1, -1}, {41, memlog.ReadUncommitted, -1, -1},
	} {
		offset, timestamp, _, err := c.ListOffset(t.Context(), orders, tc.at, tc.isolation)
		if err != nil || offset != tc.offset || timestamp != tc.timestamp {
			t.Errorf("%+v: offset %d, timestamp %d, %v", tc, offset, timestamp, err)
		}
	}
	raw, err := c.RawLog("orders", 0)
	if err != nil {
		t.Fatal(err)
	}
	if decoded, err := memlog.DecodeRecords(raw); err != nil || len(decoded) != 4 || string(decoded[3].Value) != "open" || decoded[3].Offset != 3 {
		t.Errorf("%+v, %v", decoded, err)
	}
}

// TestWatch: what happens is told, also to whoever was not receiving, until the watch is stopped.
func TestWatch(t *testing.T) {
	c, _ := source(t, memlog.Config{})
	changed, stop := c.Watch([]mirror.TopicPartition{orders, {Topic: "nowhere"}})
	select {
	case <-changed:
		t.Error("told before anything happened")
	default:
	}
	produce(t, c, "a")
	produce(t, c, "b")
	select {
	case <-changed:
	default:
		t.Error("not told of a batch")
	}
	stop()
	produce(t, c, "c")
	select {
	case <-changed:
		t.Error("told after the end")
	default:
	}
}
