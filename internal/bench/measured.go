package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// measured is the process that carries out an order.
type measured struct {
	ctx  context.Context
	t    *program
	o    order
	late *lateness // nil unless lag is measured

	mu       sync.Mutex
	warnings []string // of the mirror
}

func (m *measured) warn(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warnings = append(m.warnings, text)
	if m.late != nil { // there is no run to show them with
		log.Print(text)
	}
}

func obey(ctx context.Context, t *program, text string) {
	m := &measured{ctx: ctx, t: t}
	if err := json.Unmarshal([]byte(text), &m.o); err != nil {
		t.Fatalf("order: %v", err)
	}
	if m.o.Lag {
		m.late = &lateness{}
	}
	switch m.o.System {
	case raw:
		m.drain()
	case memlogged, memlogKept:
		m.mirrorIntoMemlog()
	case kafka:
		m.mirrorIntoKafka()
	case copier:
		m.copyRecords()
	case idle:
		m.idleSelf()
	default:
		t.Fatalf("no system %q", m.o.System)
	}
}

// report measures what is under way, or its lag, and prints it for the process that gave the order.
func (m *measured) report(have func() int64) {
	if m.late != nil {
		m.follow(have)
		return
	}
	watched, end := m.profiled(have)
	r, err := (&meter{client: cpuTime, o: &m.o, own: true}).measure(m.ctx, 2*time.Millisecond, watched, nil)
	err = errors.Join(err, end())
	if err == nil {
		r.PeakBytes, err = processMemory("self", "VmHWM")
	}
	m.mu.Lock()
	if r.Warnings = len(m.warnings); r.Warnings > 0 {
		r.FirstWarning = m.warnings[0]
	}
	m.mu.Unlock()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		m.t.Fatalf("%s: %v (%d warnings, the first: %s)", m.o.System, err, r.Warnings, r.FirstWarning)
	}
}

// profiled writes a CPU profile until end is called, and one of the heap when half of the topic is there, where they are wanted.
func (m *measured) profiled(have func() int64) (watched func() (int64, error), end func() error) {
	watched, end = func() (int64, error) { return have(), nil }, func() error { return nil }
	if m.o.Profile == "" {
		return watched, end
	}
	cpu, err := os.Create(m.o.Profile + ".cpu")
	if err == nil {
		err = pprof.StartCPUProfile(cpu)
	}
	if err != nil {
		m.t.Fatalf("profile: %v", err)
	}
	written := false
	watched = func() (int64, error) {
		n := have()
		if written || n < m.o.Records/2 {
			return n, nil
		}
		written = true
		heap, err := os.Create(m.o.Profile + ".heap")
		if err != nil {
			return n, err
		}
		return n, errors.Join(pprof.WriteHeapProfile(heap), heap.Close())
	}
	return watched, func() error {
		pprof.StopCPUProfile()
		return cpu.Close()
	}
}

// progress is a line that a process prints while it follows, and, with Late, the last one.
type progress struct {
	Have int64
	Late *lag `json:",omitempty"`
}

// follow tells how far the process is, until it is asked for the lag of the batches that were sent between two times.
func (m *measured) follow(have func() int64) {
	asked := make(chan [2]int64, 1)
	go func() {
		var window [2]int64
		in := bufio.NewScanner(os.Stdin)
		if in.Scan() {
			if _, err := fmt.Sscan(in.Text(), &window[0], &window[1]); err == nil {
				asked <- window
			}
		}
	}()
	out := json.NewEncoder(os.Stdout)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		p := progress{Have: have()}
		ended := false
		select {
		case <-m.ctx.Done():
			m.t.Fatalf("%v", m.ctx.Err())
		case w := <-asked:
			l := m.late.between(w[0], w[1])
			l.System, p.Late, ended = m.o.System, &l, true
		case <-tick.C:
		}
		if err := out.Encode(p); err != nil {
			m.t.Fatalf("%v", err)
		}
		if ended {
			return
		}
	}
}

// stampBits are what a stamp has of the microsecond in which a batch was sent: enough to tell 50 days apart, few enough for clients that keep timestamps in nanoseconds. The bit above is always set, so
// that no broker finds a batch old and deletes it.
const stampBits = 42

// stamp is what a batch has as its base timestamp, whatever its codec.
func stamp(micros int64) int64 { return micros&(1<<stampBits-1) | 1<<stampBits }

// sinceStamp is how many microseconds before now a stamp was made.
func sinceStamp(now, stamp int64) int64 { return (now - stamp) & (1<<stampBits - 1) }

// lateness collects how late batches came.
type lateness struct {
	mu   sync.Mutex
	sent []int64 // microseconds since the Unix epoch
	late []int64 // microseconds
}

// came says that batches with these stamps came now, in microseconds since the Unix epoch.
func (l *lateness) came(now int64, stamps ...int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range stamps {
		late := sinceStamp(now, s)
		l.sent, l.late = append(l.sent, now-late), append(l.late, late)
	}
}

func (l *lateness) between(from, to int64) lag {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ms []float64
	for i, s := range l.sent {
		if s >= from && s < to {
			ms = append(ms, float64(l.late[i])/1000)
		}
	}
	return lagOf(ms)
}

func (m *measured) source() *kafkasource.Source {
	cfg := kafkasource.Config{Seeds: m.o.Source.Bootstrap}
	if l := m.o.Link; l.RoundTrip > 0 {
		d := l.dialer(m.o.Source.Bootstrap...)
		m.t.Cleanup(func() { d.Close() })
		cfg.ClientOptions = append(cfg.ClientOptions, kgo.Dialer(d.DialContext))
		if l.OneAtATime {
			cfg.ReadAheadBytes = -1
		}
	}
	src, err := kafkasource.New(cfg)
	if err != nil {
		m.t.Fatalf("source: %v", err)
	}
	m.t.Cleanup(func() { src.Close() })
	return src
}

// drain is the limit: fetch everything with the fetch client that the mirror uses, verify every checksum, keep nothing.
func (m *measured) drain() {
	src := m.source()
	topics, err := src.Topics(m.ctx, m.o.Topic)
	if err != nil || len(topics) != 1 || topics[0].Err != nil {
		m.t.Fatalf("topic %s: %v", m.o.Topic, err)
	}
	f, err := src.OpenFetcher(m.ctx, topics[0].Leaders[0].Leader, mirror.FetchOptions{})
	if err != nil {
		m.t.Fatalf("fetcher: %v", err)
	}
	m.t.Cleanup(func() { f.Close() })
	at := map[mirror.TopicPartition]mirror.FetchPosition{}
	for p := range m.o.Partitions {
		tp := mirror.TopicPartition{Topic: m.o.Topic, Partition: p}
		at[tp] = mirror.FetchPosition{TopicPartition: tp, TopicID: topics[0].ID, LeaderEpoch: topics[0].Leaders[p].LeaderEpoch, LastEpoch: -1}
		f.Want(at[tp])
	}
	var have atomic.Int64
	ctx, stop := context.WithCancel(m.ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.drainLoop(ctx, f, at, &have) }()
	m.t.Cleanup(func() {
		stop()
		<-ended
	})
	go m.watch(ctx, ended)
	m.report(have.Load)
}

// watch ends the process when what it measures has failed: nobody waits for what cannot come.
func (m *measured) watch(ctx context.Context, ended chan error) {
	err := <-ended
	ended <- err
	if err != nil && ctx.Err() == nil {
		log.Fatalf("%s: %v", m.o.System, err)
	}
}

func (m *measured) drainLoop(ctx context.Context, f mirror.Fetcher, at map[mirror.TopicPartition]mirror.FetchPosition, have *atomic.Int64) error {
	table := crc32.MakeTable(crc32.Castagnoli)
	for {
		reply, err := f.Fetch(ctx)
		if err != nil {
			return err
		}
		for _, p := range reply {
			if p.Err != nil {
				return p.Err
			}
			position := at[p.TopicPartition]
			b, from := p.Records, position.Offset
			for {
				h, n, err := batch.Next(b)
				if errors.Is(err, batch.ErrCut) {
					break
				}
				if err != nil {
					return err
				}
				if crc32.Checksum(b[21:n], table) != h.CRC {
					return fmt.Errorf("bad checksum at %d", h.BaseOffset)
				}
				position.Offset, b = h.NextOffset(), b[n:]
				if m.late != nil {
					m.late.came(time.Now().UnixMicro(), h.BaseTimestamp)
				}
			}
			have.Add(position.Offset - from)
			at[p.TopicPartition] = position
			f.Want(position)
		}
	}
}

// opened are the logs that a mirror has opened at its destination.
type opened struct {
	mu   sync.Mutex
	logs []mirror.Log
	late *lateness
}

func (o *opened) add(l mirror.Log, err error) (mirror.Log, error) {
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.logs, l) {
		o.logs = append(o.logs, l)
	}
	if o.late != nil {
		return &timedLog{l, o.late}, nil
	}
	return l, nil
}

// have is how many records survive the loss of this process. Topics begin at offset 0 and have no gaps.
func (o *opened) have() (n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.logs {
		n += l.Replicated()
	}
	return n
}

// timedLog notes when what was appended survives the loss of this process.
type timedLog struct {
	mirror.Log
	late *lateness
}

func (l *timedLog) Append(ctx context.Context, leaderEpoch int32, batches []byte) error {
	var sent []int64
	var next int64
	for h := range batch.All(batches) {
		sent, next = append(sent, h.BaseTimestamp), h.NextOffset()
	}
	if err := l.Log.Append(ctx, leaderEpoch, batches); err != nil {
		return err
	}
	if l.Replicated() >= next {
		l.late.came(time.Now().UnixMicro(), sent...)
		return nil
	}
	go func() {
		if l.AwaitReplicated(context.WithoutCancel(ctx), next) == nil {
			l.late.came(time.Now().UnixMicro(), sent...)
		}
	}()
	return nil
}

type memlogDestination struct {
	*memlog.Cluster
	opened *opened
}

func (d memlogDestination) OpenLog(ctx context.Context, tp mirror.TopicPartition) (mirror.Log, error) {
	return d.opened.add(d.Cluster.OpenLog(ctx, tp))
}

type kafkaDestination struct {
	*kraft.Destination
	opened *opened
}

func (d kafkaDestination) OpenLog(ctx context.Context, tp mirror.TopicPartition) (mirror.Log, error) {
	return d.opened.add(d.Destination.OpenLog(ctx, tp))
}

// mirrorInto runs a whole mirror and measures it.
func (m *measured) mirrorInto(d mirror.Destination, opened *opened) {
	running, err := mirror.Open(m.ctx, mirror.Config{Name: "bench", Source: m.source(), Destination: d, Store: keyedlog.NewStateStore(keyedlog.NewMemory()), Sink: mirror.Discard,
		OnEvent: func(e mirror.Event) {
			if e.Level() >= 4 {
				m.warn(fmt.Sprint(e))
			}
		}})
	if err != nil {
		m.t.Fatalf("mirror: %v", err)
	}
	if _, err := running.Admin().Start(m.ctx, []string{m.o.Topic}, mirror.StartOptions{}); err != nil {
		m.t.Fatalf("mirror: %v", err)
	}
	m.report(opened.have)
	if err := running.Close(); err != nil {
		m.t.Fatalf("mirror: %v", err)
	}
}

func (m *measured) mirrorIntoMemlog() {
	c := memlog.New(memlog.Config{ClusterID: "bench", Discard: m.o.System == memlogged})
	m.t.Cleanup(func() { c.Close() })
	opened := &opened{late: m.late}
	m.mirrorInto(memlogDestination{c, opened}, opened)
}

func (m *measured) mirrorIntoKafka() {
	folder, err := os.MkdirTemp("", "bench-kafka-")
	if err != nil {
		m.t.Fatalf("%v", err)
	}
	m.t.Cleanup(func() { os.RemoveAll(folder) })
	d, err := kraft.Join(m.ctx, kraft.Config{
		NodeID: kraftNode, Controllers: m.o.Destination.Controllers, Listen: "127.0.0.1:0", Folder: folder, Remember: keyedlog.NewMemory(), ReplicationFactor: 1, MinInSyncReplicas: 1,
		Notice: func(e kraft.Event) {
			if e.Kind != kraft.Joined && e.Kind != kraft.TopicGone {
				m.warn(fmt.Sprintf("%v %v %s %v", e.Kind, e.Partition, e.Text, e.Err))
			}
		},
	})
	if err != nil {
		m.t.Fatalf("join: %v", err)
	}
	opened := &opened{late: m.late}
	m.mirrorInto(kafkaDestination{d, opened}, opened)
	m.removeTopic()
	if err := d.Leave(m.ctx); err != nil {
		m.t.Fatalf("leave: %v", err)
	}
}

// removeTopic deletes the copy and waits until its folders are gone: the node id leaves the cluster only then.
func (m *measured) removeTopic() {
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.o.Destination.Bootstrap...))
	if err != nil {
		m.t.Fatalf("%v", err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).DeleteTopics(m.ctx, m.o.Topic); err != nil {
		m.t.Fatalf("deleting topic %s: %v", m.o.Topic, err)
	}
	awaitGone(m.ctx, m.t, m.o.Topic, m.o.Destination.Folders...)
}

// awaitGone waits until brokers have no folder of a topic's any more.
func awaitGone(ctx context.Context, t *program, topic string, folders ...string) {
	poll(ctx, t, "topic "+topic+" to go", 20*time.Millisecond, func() bool {
		for _, f := range folders {
			left, err := filepath.Glob(filepath.Join(f, topic+"-*"))
			if err != nil {
				t.Fatalf("%v", err)
			}
			if len(left) > 0 {
				return false
			}
		}
		return true
	})
}

// poll waits, two minutes at most.
func poll(ctx context.Context, t *program, what string, every time.Duration, is func() bool) {
	deadline := time.Now().Add(2 * time.Minute)
	for !is() {
		if ctx.Err() != nil || time.Now().After(deadline) {
			t.Fatalf("waited too long for %s: %v", what, ctx.Err())
		}
		time.Sleep(every)
	}
}

// copyRecords is what one writes with a client library in half an hour: records are consumed and produced to the same partition, in large batches, compressed as at the source.
func (m *measured) copyRecords() {
	from := map[string]map[int32]kgo.Offset{m.o.Topic: {}}
	for p := range m.o.Partitions {
		from[m.o.Topic][p] = kgo.NewOffset().AtStart()
	}
	in, err := kgo.NewClient(kgo.SeedBrokers(m.o.Source.Bootstrap...), kgo.ConsumePartitions(from))
	if err != nil {
		m.t.Fatalf("consumer: %v", err)
	}
	m.t.Cleanup(in.Close)
	codec := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[m.o.Codec]
	out, err := kgo.NewClient(kgo.SeedBrokers(m.o.Destination.Bootstrap...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec))
	if err != nil {
		m.t.Fatalf("producer: %v", err)
	}
	m.t.Cleanup(out.Close)
	ctx, stop := context.WithCancel(m.ctx)
	m.t.Cleanup(stop)
	var have atomic.Int64
	last := make([]atomic.Int64, m.o.Partitions) // timestamp of the last record: those of a batch have one in common
	arrived := func(r *kgo.Record, err error) {
		if err != nil {
			if ctx.Err() == nil {
				log.Fatalf("producer: %v", err)
			}
			return
		}
		have.Add(1)
		if m.late != nil {
			if sent := r.Timestamp.UnixMilli(); last[r.Partition].Swap(sent) != sent {
				m.late.came(time.Now().UnixMicro(), sent)
			}
		}
	}
	go func() {
		for {
			fetches := in.PollFetches(ctx)
			if ctx.Err() != nil {
				return
			}
			if err := fetches.Err(); err != nil {
				log.Fatalf("consumer: %v", err)
			}
			for r := range fetches.RecordsAll() {
				out.Produce(ctx, r, arrived)
			}
		}
	}()
	m.report(have.Load)
}
