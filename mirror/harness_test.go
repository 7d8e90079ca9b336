package mirror_test

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Every test of a running mirror is a bubble of virtual time (testing/synctest). A bubble whose test is over while a goroutine of it still lives is a failed
// test: so each of them is also the check that Close leaves none.

// side is one cluster and, when it mirrors, its mirror with the events it told.
type side struct {
	*memlog.Cluster
	t *testing.T
}

func newSide(t *testing.T, cfg memlog.Config) *side {
	t.Helper()
	c := memlog.New(cfg)
	t.Cleanup(func() { c.Close() })
	return &side{c, t}
}

func (s *side) local(topic string, partitions int32) {
	s.t.Helper()
	if _, err := s.CreateLocalTopic(memlog.LocalTopic{Name: topic, Partitions: partitions}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) produce(topic string, partition int32, values ...string) {
	s.t.Helper()
	for _, v := range values {
		if _, err := s.Produce(s.t.Context(), topic, partition, memlog.Record{Value: []byte(v)}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// fill produces n batches of one record each.
func (s *side) fill(topic string, partition int32, n int) {
	s.t.Helper()
	for i := range n {
		s.produce(topic, partition, fmt.Sprintf("%s-%d/%d", topic, partition, i))
	}
}

// block produces n records as one batch.
func (s *side) block(topic string, partition int32, n int) {
	s.t.Helper()
	records := make([]memlog.Record, n)
	for i := range records {
		records[i].Value = fmt.Appendf(nil, "%d", i)
	}
	if _, err := s.Produce(s.t.Context(), topic, partition, records...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) raw(topic string, partition int32) []byte {
	s.t.Helper()
	b, err := s.RawLog(topic, partition)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (s *side) load(topic string, partition int32, start int64, epoch int32, batches ...[]byte) {
	s.t.Helper()
	if err := s.ImportLog(topic, partition, bytes.Join(batches, nil), start, epoch); err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) trim(topic string, partition int32, to int64) {
	s.t.Helper()
	if err := s.DeleteRecords(s.t.Context(), topic, partition, to); err != nil {
		s.t.Fatal(err)
	}
}

// offsets are those of the records that a consumer gets.
func (s *side) offsets(topic string, partition int32, from int64, isolation memlog.Isolation) []int64 {
	s.t.Helper()
	records, err := s.Consume(s.t.Context(), topic, partition, from, isolation)
	if err != nil {
		s.t.Fatal(err)
	}
	var offsets []int64
	for _, r := range records {
		offsets = append(offsets, r.Offset)
	}
	return offsets
}

func (s *side) log(topic string, partition int32) mirror.Log {
	s.t.Helper()
	l, err := s.OpenLog(s.t.Context(), mirror.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// running is a mirror under test with everything it told.
type running struct {
	*mirror.Mirror
	t      *testing.T
	mu     sync.Mutex
	events []mirror.Event
}

func config(name string, src mirror.Source, dst *side) mirror.Config {
	return mirror.Config{Name: name, Source: src, Destination: dst.Cluster, Store: dst.StateStore(), Sink: mirror.Discard, Seed: 1}
}

func open(t *testing.T, name string, src mirror.Source, dst *side, change ...func(*mirror.Config)) *running {
	t.Helper()
	r := &running{t: t}
	cfg := config(name, src, dst)
	cfg.OnEvent = func(e mirror.Event) {
		r.mu.Lock()
		r.events = append(r.events, e)
		r.mu.Unlock()
		t.Log(e)
	}
	for _, f := range change {
		f(&cfg)
	}
	m, err := mirror.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Mirror = m
	return r
}

func (r *running) close() {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Error(err)
	}
}

func (r *running) told() []mirror.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]mirror.Event(nil), r.events...)
}

func (r *running) start(topics ...string) {
	r.t.Helper()
	if _, err := r.Admin().Start(r.t.Context(), topics, mirror.StartOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// pause pauses topics and waits until they are.
func (r *running) pause(topics ...string) {
	r.t.Helper()
	if _, err := r.Admin().Pause(r.t.Context(), topics, mirror.PauseOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.until("paused", func(s mirror.Status) bool {
		return each(s, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Paused })
	})
}

func (r *running) resume(topics ...string) {
	r.t.Helper()
	if _, err := r.Admin().Resume(r.t.Context(), topics, mirror.ResumeOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// until waits for what is not a change of state too: it lets everything that can run do so, then some virtual time pass, and asks again.
func (r *running) until(what string, ok func(mirror.Status) bool) {
	r.t.Helper()
	for range 30_000 {
		synctest.Wait()
		if ok(r.Status()) {
			return
		}
		time.Sleep(50 * time.Millisecond) // virtual
	}
	r.t.Fatalf("never %s; status %s", what, show(r.Status()))
}

func (r *running) untilInStep() {
	r.t.Helper()
	r.until("in step", func(s mirror.Status) bool { return each(s, inStep) })
}

// untilOne waits for one partition.
func (r *running) untilOne(what, topic string, partition int32, ok func(mirror.PartitionStatus) bool) mirror.PartitionStatus {
	r.t.Helper()
	var p mirror.PartitionStatus
	r.until(what, func(s mirror.Status) bool {
		p = one(s, topic, partition)
		return ok(p)
	})
	return p
}

// untilFailed waits for FAILED and checks the words of its reason.
func (r *running) untilFailed(topic string, partition int32, words ...string) mirror.PartitionStatus {
	r.t.Helper()
	p := r.untilOne("failed", topic, partition, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Failed })
	expectWords(r.t, p.Reason, words...)
	return p
}

func (r *running) one(topic string, partition int32) mirror.PartitionStatus {
	synctest.Wait()
	return one(r.Status(), topic, partition)
}

func expectWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q lacks %q", text, w)
		}
	}
}

func show(s mirror.Status) string {
	var b bytes.Buffer
	for _, t := range s.Topics {
		fmt.Fprintf(&b, "\n%s %s err=%v", t.Topic, t.MirrorName, t.Err)
		for _, p := range t.Partitions {
			fmt.Fprintf(&b, "\n  %d %s %s [%d,%d) replicated=%d source=%d lag=%d reason=%q attempt=%d owner=%s", p.Partition, p.State, p.Step, p.Start, p.End, p.Replicated, p.SourceEnd, p.LagOffsets, p.Reason, p.RetryAttempt, p.Owner)
		}
	}
	return b.String()
}

func each(s mirror.Status, ok func(mirror.PartitionStatus) bool) bool {
	n := 0
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			if !ok(p) {
				return false
			}
			n++
		}
	}
	return n > 0
}

func inStep(p mirror.PartitionStatus) bool {
	return p.State == statemachine.Mirroring && p.LagOffsets == 0
}

// one returns the status of one partition.
func one(s mirror.Status, topic string, partition int32) mirror.PartitionStatus {
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			if p.Topic == topic && p.Partition == partition {
				return p
			}
		}
	}
	return mirror.PartitionStatus{State: statemachine.Unknown}
}

// eventsOf are the events of one type, in order.
func eventsOf[E mirror.Event](r *running) []E {
	var some []E
	for _, e := range r.told() {
		if x, ok := e.(E); ok {
			some = append(some, x)
		}
	}
	return some
}

// pair is a source A and a destination B with a mirror "m" from one to the other, that has not been started.
type pair struct {
	*running
	a, b *side
}

// newPair makes a pair. A has a topic "t" with that many partitions.
func newPair(t *testing.T, partitions int32, change ...func(*mirror.Config)) *pair {
	t.Helper()
	a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
	a.local("t", partitions)
	p := &pair{a: a, b: b}
	p.running = open(t, "m", a.Cluster, b, change...)
	t.Cleanup(p.running.close)
	return p
}

// same checks that one partition of "t" is the source's, byte for byte.
func (p *pair) same(partition int32) {
	p.t.Helper()
	if a, b := p.a.raw("t", partition), p.b.raw("t", partition); !bytes.Equal(a, b) {
		p.t.Fatalf("partition %d differs: %d bytes at the source, %d in the copy%s", partition, len(a), len(b), show(p.Status()))
	}
}

// inStepAndSame waits for every partition and compares all of them.
func (p *pair) inStepAndSame() {
	p.t.Helper()
	p.untilInStep()
	for _, t := range p.Status().Topics {
		for _, x := range t.Partitions {
			p.same(x.Partition)
		}
	}
}

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// producer says whose batch it is; nil: nobody's in particular.
type producer struct {
	id       int64
	epoch    int16
	sequence int32
	open     bool // in a transaction
}

// data is one batch with the given offsets. n records lie at its first n offsets.
func data(epoch int32, base, last int64, n int, p *producer) []byte {
	spec := batch.DataSpec{BaseOffset: base, LeaderEpoch: epoch, LastOffsetDelta: int32(last - base), ProducerID: -1, BaseTimestamp: 1_700_000_000_000}
	if p != nil {
		spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence, spec.Transactional = p.id, p.epoch, p.sequence, p.open
	}
	for i := range n {
		spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(i), Value: fmt.Appendf(nil, "e%d/%d", epoch, base+int64(i))})
	}
	return batch.AppendData(nil, spec)
}

// records is a run of batches of one record each: [from, to).
func records(epoch int32, from, to int64) []byte {
	var b []byte
	for o := from; o < to; o++ {
		b = append(b, data(epoch, o, o, 1, nil)...)
	}
	return b
}

// marker is a transaction's end.
func marker(epoch int32, at, id int64, producerEpoch int16, kind batch.ControlType) []byte {
	return batch.AppendControl(nil, batch.ControlSpec{
		BaseOffset: at, LeaderEpoch: epoch, ProducerID: id, ProducerEpoch: producerEpoch, BaseSequence: -1, Transactional: true, Timestamp: 1_700_000_000_000,
		Key: []byte{0, 0, 0, byte(kind)}, Value: make([]byte, 6),
	})
}

// requests counts what a source is asked.
type requests struct {
	mu sync.Mutex
	n  map[string]int
}

// count is a hook that counts every call of the source and its fetchers.
func (q *requests) count(call memlog.Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n == nil {
		q.n = map[string]int{}
	}
	if strings.HasPrefix(call.Operation, "Source.") || strings.HasPrefix(call.Operation, "Fetcher.") {
		q.n[call.Operation]++
	}
}

func (q *requests) of(operation string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n[operation]
}

func (q *requests) total() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, k := range q.n {
		n += k
	}
	return n
}

// bounded checks what is the rule for each failure: in its first ten minutes a broker gets at most 20 requests of a kind and as many connections. The clusters here
// have one broker, which gets the metadata requests too: 30 in all.
func (q *requests) bounded(t *testing.T) {
	t.Helper()
	connections := q.of("Source.OpenFetcher")
	n := q.total() - connections
	if n > 30 || n+connections == 0 {
		t.Errorf("%d requests and %d connections in ten minutes", n, connections)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for operation, n := range q.n {
		if n > 20 {
			t.Errorf("%s: %d times in ten minutes", operation, n)
		}
	}
}

func (q *requests) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.n = nil
}

// oddSource is a source that answers some questions otherwise than its cluster would. Nil functions ask the cluster. at may be exchanged while it is used: an
// address that leads to another cluster.
type oddSource struct {
	mu       sync.Mutex
	at       *memlog.Cluster
	cluster  func(context.Context) (mirror.ClusterInfo, error)
	topics   func(context.Context, ...string) ([]mirror.SourceTopic, error)
	offsets  func(context.Context, []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error)
	epochEnd func(context.Context, mirror.TopicPartition, int32, int32) (mirror.EpochEnd, error)
	fetcher  func(context.Context, int32, mirror.FetchOptions) (mirror.Fetcher, error)
}

var _ mirror.LastMirrorEpochReader = (*oddSource)(nil)

func (s *oddSource) now() *memlog.Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *oddSource) move(to *memlog.Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = to
}

func (s *oddSource) Cluster(ctx context.Context) (mirror.ClusterInfo, error) {
	if s.cluster != nil {
		return s.cluster(ctx)
	}
	return s.now().Cluster(ctx)
}

func (s *oddSource) Topics(ctx context.Context, names ...string) ([]mirror.SourceTopic, error) {
	if s.topics != nil {
		return s.topics(ctx, names...)
	}
	return s.now().Topics(ctx, names...)
}

func (s *oddSource) Offsets(ctx context.Context, tps []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	if s.offsets != nil {
		return s.offsets(ctx, tps)
	}
	return s.now().Offsets(ctx, tps)
}

func (s *oddSource) OffsetsAt(ctx context.Context, at time.Time, tps []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	return s.now().OffsetsAt(ctx, at, tps)
}

func (s *oddSource) EndOffsetForEpoch(ctx context.Context, tp mirror.TopicPartition, leaderEpoch, epoch int32) (mirror.EpochEnd, error) {
	if s.epochEnd != nil {
		return s.epochEnd(ctx, tp, leaderEpoch, epoch)
	}
	return s.now().EndOffsetForEpoch(ctx, tp, leaderEpoch, epoch)
}

func (s *oddSource) OpenFetcher(ctx context.Context, broker int32, o mirror.FetchOptions) (mirror.Fetcher, error) {
	if s.fetcher != nil {
		return s.fetcher(ctx, broker, o)
	}
	return s.now().OpenFetcher(ctx, broker, o)
}

func (s *oddSource) LastMirrorEpochs(ctx context.Context, id string, tps []mirror.TopicPartition) (map[mirror.TopicPartition]statemachine.LastMirrorEpoch, error) {
	return s.now().LastMirrorEpochs(ctx, id, tps)
}

func (s *oddSource) MirrorsOf(ctx context.Context, tps []mirror.TopicPartition) ([]mirror.SourceMirror, error) {
	return s.now().MirrorsOf(ctx, tps)
}

func (s *oddSource) Close() error { return nil }
