package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// pair is a source in memory with a topic of many batches, and its copy.
type pair struct {
	t    *testing.T
	src  *memlog.Cluster
	dst  *memlog.Cluster
	copy mirror.Log
	side *FetchSide
}

func newPair(t *testing.T, batches int, change ...func(*memlog.Config)) *pair {
	t.Helper()
	cfg := memlog.Config{Brokers: 3}
	for _, f := range change {
		f(&cfg)
	}
	p := &pair{t: t, src: memlog.New(cfg), dst: memlog.New(memlog.Config{})}
	if _, err := p.src.CreateLocalTopic(memlog.LocalTopic{Name: tp.Topic, Partitions: tp.Partition + 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.dst.CreateTopic(t.Context(), mirror.TopicSpec{Name: tp.Topic, Partitions: tp.Partition + 1}); err != nil {
		t.Fatal(err)
	}
	p.write(batches)
	var err error
	if p.copy, err = p.dst.OpenLog(t.Context(), tp); err != nil {
		t.Fatal(err)
	}
	p.side = SourceSide(p.src, tp, SourceOptions{Fetch: mirror.FetchOptions{MaxWait: time.Millisecond}, Pause: time.Microsecond, Attempts: 3})
	t.Cleanup(func() { p.side.Close(); p.src.Close(); p.dst.Close() })
	p.mirror(nil)
	return p
}

func (p *pair) write(batches int) {
	p.t.Helper()
	for i := range batches {
		if _, err := p.src.Produce(p.t.Context(), tp.Topic, tp.Partition, memlog.Record{Key: fmt.Append(nil, i), Value: make([]byte, 100)}, memlog.Record{Value: []byte("b")}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// mirror copies what is missing, as change leaves it.
func (p *pair) mirror(change func([]byte)) {
	p.t.Helper()
	source, err := p.src.OpenLog(p.t.Context(), tp)
	if err != nil {
		p.t.Fatal(err)
	}
	for p.copy.End() < source.End() {
		b, err := source.Read(p.t.Context(), p.copy.End(), 2000)
		if err != nil {
			p.t.Fatal(err)
		}
		b = slices.Clone(b)
		if change != nil {
			change(b)
		}
		epochs, err := p.dst.RaiseLeaderEpochs(p.t.Context(), map[mirror.TopicPartition]int32{tp: source.LeaderEpoch()})
		if err != nil {
			p.t.Fatal(err)
		}
		if err := p.copy.Append(p.t.Context(), epochs[tp], b); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *pair) verify() Report {
	p.t.Helper()
	return look(p.t, p.side, LogSide(tp, p.copy), Options{Chunk: 3000, Piece: 10000})
}

func TestASourceAndItsCopyAreEqual(t *testing.T) {
	for _, cut := range []bool{false, true} {
		p := newPair(t, 300, func(c *memlog.Config) { c.CutReplies = cut })
		if r := p.verify(); !r.Equal() || r.Bytewise.Batches != 300 || r.To != 600 {
			t.Errorf("%s", &r)
		}
		p.write(10) // the mirror is behind
		if r := p.verify(); !r.Equal() || r.Bytewise.Batches != 300 || r.To != 600 || r.A.End != 620 {
			t.Errorf("%s", &r)
		}
		p.mirror(nil)
		if _, err := p.src.ElectLeader(tp.Topic, tp.Partition); err != nil {
			t.Fatal(err)
		}
		p.write(10)
		p.mirror(func(b []byte) { b[15]-- }) // the leader epoch of a batch
		if r := p.verify(); r.Mismatch == nil || r.Mismatch.Offset != 620 || r.Mismatch.Field != "leader epoch" {
			t.Errorf("%s", &r)
		}
	}
}

func TestNothingAtOrAboveTheReplicatedEndIsCompared(t *testing.T) {
	p := newPair(t, 20, func(c *memlog.Config) { c.Replicas = 2 })
	if err := p.src.HoldReplica(tp.Topic, tp.Partition, 1); err != nil {
		t.Fatal(err)
	}
	p.write(5)
	if b, err := p.side.Bounds(t.Context()); err != nil || b.End != 40 {
		t.Fatalf("%+v, %v", b, err)
	}
	p.mirror(nil)
	if r := p.verify(); !r.Equal() || r.To != 40 {
		t.Errorf("%s", &r)
	}
	log := &held2{Log: p.copy, replicated: 30}
	if r := look(t, p.side, LogSide(tp, log), Options{}); !r.Equal() || r.To != 30 || r.Bytewise.Batches != 15 {
		t.Errorf("%s", &r)
	}
}

// held2 is a log of which less is replicated.
type held2 struct {
	mirror.Log
	replicated int64
}

func (h *held2) Replicated() int64 { return h.replicated }

func TestASourceSideFollowsItsLeader(t *testing.T) {
	p := newPair(t, 200)
	for i := range 5 {
		if _, err := p.src.ElectLeader(tp.Topic, tp.Partition); err != nil {
			t.Fatal(err)
		}
		p.write(1)
		p.mirror(nil)
		if r := p.verify(); !r.Equal() || r.Bytewise.Batches != int64(201+i) {
			t.Errorf("%s", &r)
		}
	}
}

func TestASourceThatIsGoneIsAnErrorAfterSomeAttempts(t *testing.T) {
	p := newPair(t, 20)
	clock := &slept{now: time.Unix(0, 0)}
	side := SourceSide(p.src, tp, SourceOptions{Attempts: 4, Pause: time.Second, Clock: clock})
	p.src.SetUnreachable(true)
	_, err := Verify(t.Context(), side, LogSide(tp, p.copy), Options{})
	var of *mirror.SourceError
	if !errors.As(err, &of) || of.Code != mirror.SourceUnreachable || clock.slept != 7*time.Second {
		t.Errorf("%v after %v", err, clock.slept)
	}
	p.src.SetUnreachable(false)
	if r := look(t, side, LogSide(tp, p.copy), Options{}); !r.Equal() {
		t.Errorf("%s", &r)
	}
}

func TestATopicThatIsNotThereOrAnotherOneIsAnError(t *testing.T) {
	p := newPair(t, 20)
	if r := p.verify(); !r.Equal() {
		t.Fatalf("%s", &r)
	}
	if _, err := p.src.RecreateTopic(tp.Topic, tp.Partition+1); err != nil {
		t.Fatal(err)
	}
	p.write(20)
	p.side.Close()
	var of *mirror.SourceError
	if _, err := p.side.Read(t.Context(), 0, 100); !errors.As(err, &of) || of.Code != mirror.SourceTopicIDChanged {
		t.Errorf("%v", err)
	}
	if err := p.src.DeleteTopic(tp.Topic); err != nil {
		t.Fatal(err)
	}
	if _, err := p.side.Read(t.Context(), 0, 100); !errors.As(err, &of) || of.Code != mirror.SourceUnknownTopic {
		t.Errorf("%v", err)
	}
}

func TestRetentionAtTheSourceIsNoFinding(t *testing.T) {
	p := newPair(t, 200)
	if err := p.src.DeleteRecords(t.Context(), tp.Topic, tp.Partition, 101); err != nil {
		t.Fatal(err)
	}
	if _, err := p.side.Read(t.Context(), 50, 100); !errors.Is(err, mirror.ErrOffsetOutOfRange) {
		t.Errorf("%v", err)
	}
	r := p.verify()
	if want := []Uncomparable{{Retention, "a", 0, 101}}; r.Wrong() || !slices.Equal(r.Uncomparable, want) || r.Bytewise.Batches != 150 {
		t.Errorf("%s", &r)
	}
}

func TestAnUncleanElectionWhileItIsComparedIsNoMismatch(t *testing.T) {
	p := newPair(t, 200)
	cut := &cutting{FetchSide: p.side, when: 4, cut: func() {
		if _, err := p.src.ElectUnclean(tp.Topic, tp.Partition, 300); err != nil {
			t.Error(err)
		}
	}}
	r := look(t, cut, LogSide(tp, p.copy), Options{Chunk: 3000, Piece: 5000})
	if want := []Uncomparable{{Cut, "a", 300, 400}}; r.Wrong() || !slices.Equal(r.Uncomparable, want) || r.To != 300 || r.Bytewise.Batches != 150 {
		t.Errorf("%s", &r)
	}
}

// cutting is a side whose log is cut at a read.
type cutting struct {
	*FetchSide
	when int
	cut  func()
}

func (c *cutting) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	if c.when--; c.when == 0 {
		c.cut()
	}
	return c.FetchSide.Read(ctx, from, most)
}

func TestWhatARemoteStorageDoesNotBringIsPassedOver(t *testing.T) {
	p := newPair(t, 200)
	if err := p.src.SetRemote(tp.Topic, tp.Partition, 200, time.Hour); err != nil {
		t.Fatal(err)
	}
	if b, err := p.side.Bounds(t.Context()); err != nil || b.Local != 200 {
		t.Errorf("%+v, %v", b, err)
	}
	r := p.verify()
	if want := []Uncomparable{{Remote, "a", 0, 200}}; r.Wrong() || !slices.Equal(r.Uncomparable, want) || r.Bytewise.Batches != 100 {
		t.Errorf("%s", &r)
	}
	// What it brings late is compared.
	if err := p.src.SetRemote(tp.Topic, tp.Partition, 200, 0); err != nil {
		t.Fatal(err)
	}
	if r := p.verify(); !r.Equal() {
		t.Errorf("%s", &r)
	}
}

// A source whose connection damages a length: what came is shown, and nothing waits for the rest of a batch that is none.
func TestABatchThatNoReplyFillsIsShownAsItCame(t *testing.T) {
	p := newPair(t, 20)
	p.src.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
		for i := range reply {
			if len(reply[i].Records) > 9 {
				reply[i].Records[9] = 0x70 // the length of the first batch
			}
		}
		return reply
	}})
	if b, err := p.side.Read(t.Context(), 0, 100); err != nil || len(b) < 61 || b[9] != 0x70 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if r := p.verify(); r.Mismatch == nil || r.Mismatch.Offset != 0 || r.Mismatch.Field != "length" {
		t.Errorf("%s", &r)
	}
}

func TestAReadThatDoesNotEndEndsWithItsContext(t *testing.T) {
	p := newPair(t, 20)
	ctx, cancel := context.WithCancel(t.Context())
	p.src.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
		cancel()
		return nil
	}})
	if r, err := Verify(ctx, p.side, LogSide(tp, p.copy), Options{}); !errors.Is(err, context.Canceled) || r.Complete {
		t.Errorf("%v: %s", err, &r)
	}
}
