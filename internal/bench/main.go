// Command bench measures a mirror beside its limit, in one run on one machine: the rate at which a bare fetcher drains a topic from a real broker (every batch's checksum
// verified), and the rate of a whole mirror of the same data. It prints ratios with their spread; absolute numbers belong to the machine.
//
//	go run ./internal/bench              # both record sizes, five interleaved pairs each, about three minutes
//	go run ./internal/bench -quick       # three pairs of less data
//	go run ./internal/bench -memory      # memory with 1,000 partitions
//	go run ./internal/bench -kraft all   # a joined KRaft cluster beside stock replication and MirrorMaker 2: see kraft.go
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"log"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func main() {
	quick := flag.Bool("quick", false, "three pairs of less data")
	memory := flag.Bool("memory", false, "measure memory with 1,000 partitions instead of rates")
	memoryOf := flag.String("memory-of", "", "used by -memory for the measured process")
	pairs := flag.Int("pairs", 5, "interleaved pairs per row")
	megabytes := flag.Int("mb", 1500, "megabytes per topic")
	flag.Parse()
	if *quick {
		*pairs, *megabytes = 3, 300
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	t := &program{ctx: ctx}
	err := t.do(func() {
		if *kraftMode != "" {
			measureKraft(ctx, t, *pairs)
			return
		}
		if *memoryOf != "" {
			measureSelf(ctx, t, strings.Split(*memoryOf, ","))
			return
		}
		if *memory {
			measureMemory(ctx, t)
			return
		}
		measureRates(ctx, t, *pairs, *megabytes)
	})
	if err != nil {
		log.Fatal(err)
	}
}

// run is one measured run.
type run struct {
	bytes int64
	wall  time.Duration
	cpu   time.Duration // of this process
}

func (r run) rate() float64     { return float64(r.bytes) / 1e6 / r.wall.Seconds() }
func (r run) cpuPerGB() float64 { return r.cpu.Seconds() / (float64(r.bytes) / 1e9) }

func measureRates(ctx context.Context, t *program, pairs, megabytes int) {
	c := kafkatest.Start(t, kafkatest.Options{HeapMB: 1024})
	fmt.Printf("machine: %d cores, %s %s/%s; Apache Kafka %s, one broker on loopback; %d MB a topic, 4 partitions, batches of about 64 KiB; %d interleaved pairs a row\n",
		runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, c.Version(), megabytes, pairs)
	fmt.Printf("command: %s\n\n", strings.Join(os.Args, " "))
	fmt.Println("| records | mirror into | raw drain MB/s | mirror MB/s | rate ratio (min … max) | raw CPU s/GB | mirror CPU s/GB | CPU ratio (min … max) |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	perMB := map[int][]float64{}
	for _, size := range []int{100, 10 << 10} {
		topic := fmt.Sprintf("bench-%d", size)
		total := fill(t, c, topic, 4, size, int64(megabytes)*1e6)
		drain(ctx, t, c, topic, 4, total) // the page cache and both runtimes are warm now
		for _, discard := range []bool{true, false} {
			var raws, mirrors []run
			for range pairs {
				raws = append(raws, drain(ctx, t, c, topic, 4, total))
				mirrors = append(mirrors, mirrorOnce(ctx, t, c, topic, discard, total))
			}
			into := "memlog, everything kept"
			if discard {
				into = "memlog, discarded after its checks"
				for _, m := range mirrors {
					perMB[size] = append(perMB[size], m.cpuPerGB())
				}
			}
			var rate, cpu []float64
			for i := range raws {
				rate = append(rate, mirrors[i].rate()/raws[i].rate())
				cpu = append(cpu, mirrors[i].cpuPerGB()/raws[i].cpuPerGB())
			}
			fmt.Printf("| %d B | %s | %.0f | %.0f | %s | %.2f | %.2f | %s |\n", size, into, median(values(raws, run.rate)), median(values(mirrors, run.rate)), spread(rate),
				median(values(raws, run.cpuPerGB)), median(values(mirrors, run.cpuPerGB)), spread(cpu))
		}
	}
	small, large := median(perMB[100]), median(perMB[10<<10])
	fmt.Printf("\ncost per MB, 100 B records against 10 KiB records (discarded): %.2f\n", small/large)
}

func values(runs []run, of func(run) float64) []float64 {
	var v []float64
	for _, r := range runs {
		v = append(v, of(r))
	}
	return v
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

func spread(v []float64) string {
	return fmt.Sprintf("%.2f (%.2f … %.2f)", median(v), slices.Min(v), slices.Max(v))
}

// fill produces whole batches of about 64 KiB, the same for both record sizes, and returns the bytes that a fetch will give back.
func fill(t *program, c *kafkatest.Cluster, topic string, partitions int32, size int, bytes int64) int64 {
	c.CreateTopic(kafkatest.Topic{Name: topic, Partitions: int(partitions), Replication: 1, Configs: map[string]string{"max.message.bytes": "2000000", "segment.bytes": "1073741824"}})
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte(i*7 + i>>8)
	}
	var records []batch.Record
	var one []byte
	for len(one) < 64<<10 {
		records = append(records, batch.Record{OffsetDelta: int32(len(records)), Value: payload})
		if size < 1000 && len(records)*size < 63<<10 {
			continue
		}
		one = batch.AppendData(nil, batch.DataSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, BaseTimestamp: time.Now().UnixMilli(), Records: records})
	}
	return produceRaw(t, c, topic, partitions, one, bytes)
}

// drain is the limit: fetch everything, verify every checksum, keep nothing.
func drain(ctx context.Context, t *program, c *kafkatest.Cluster, topic string, partitions int32, total int64) run {
	src := source(t, c)
	defer src.Close()
	f, tps := fetcher(ctx, t, src, topic, partitions)
	defer f.Close()
	table := crc32.MakeTable(crc32.Castagnoli)
	debug.FreeOSMemory()
	begin, cpu := time.Now(), cpuTime()
	var got int64
	for got < total {
		reply, err := f.Fetch(ctx)
		if err != nil {
			t.Fatalf("drain: %v", err)
		}
		for _, p := range reply {
			if p.Err != nil {
				t.Fatalf("drain: %v", p.Err)
			}
			b, next := p.Records, p.Offset
			for {
				h, n, err := batch.Next(b)
				if errors.Is(err, batch.ErrCut) {
					break
				}
				if err != nil {
					t.Fatalf("drain: %v", err)
				}
				if crc32.Checksum(b[21:n], table) != h.CRC {
					t.Fatalf("drain: bad checksum at %d", h.BaseOffset)
				}
				next, b, got = h.NextOffset(), b[n:], got+int64(n)
			}
			at := tps[p.TopicPartition]
			at.Offset = next
			f.Want(at)
		}
	}
	return run{got, time.Since(begin), cpuTime() - cpu}
}

// mirrorOnce mirrors the whole topic into a fresh memlog cluster.
func mirrorOnce(ctx context.Context, t *program, c *kafkatest.Cluster, topic string, discard bool, total int64) run {
	src := source(t, c)
	defer src.Close()
	dst := memlog.New(memlog.Config{ClusterID: "bench", Discard: discard})
	defer dst.Close()
	debug.FreeOSMemory()
	begin, cpu := time.Now(), cpuTime()
	m, err := mirror.Open(ctx, mirror.Config{Name: "bench", Source: src, Destination: dst, Store: dst.StateStore(), Sink: mirror.Discard,
		OnEvent: func(e mirror.Event) {
			if e.Level() >= 4 {
				log.Print(e)
			}
		}})
	if err != nil {
		t.Fatalf("mirror: %v", err)
	}
	if _, err := m.Admin().Start(ctx, []string{topic}, mirror.StartOptions{}); err != nil {
		t.Fatalf("mirror: %v", err)
	}
	ends := endsOf(ctx, t, src, topic)
	for !reached(m, ends) {
		select {
		case <-ctx.Done():
			t.Fatalf("mirror: %v", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
	r := run{total, time.Since(begin), cpuTime() - cpu}
	if err := m.Close(); err != nil {
		t.Fatalf("mirror: %v", err)
	}
	return r
}

func endsOf(ctx context.Context, t *program, src *kafkasource.Source, topic string) map[mirror.TopicPartition]int64 {
	topics, err := src.Topics(ctx, topic)
	if err != nil || len(topics) != 1 {
		t.Fatalf("topic %s: %v", topic, err)
	}
	var tps []mirror.TopicPartition
	for p := range topics[0].Partitions {
		tps = append(tps, mirror.TopicPartition{Topic: topic, Partition: p})
	}
	offsets, err := src.Offsets(ctx, tps)
	if err != nil {
		t.Fatalf("offsets of %s: %v", topic, err)
	}
	ends := map[mirror.TopicPartition]int64{}
	for tp, o := range offsets {
		if o.Err != nil {
			t.Fatalf("offsets of %s: %v", topic, o.Err)
		}
		ends[tp] = o.HighWatermark
	}
	return ends
}

func reached(m *mirror.Mirror, ends map[mirror.TopicPartition]int64) bool {
	n := 0
	for _, topic := range m.Status().Topics {
		for _, p := range topic.Partitions {
			if p.End >= ends[mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}] {
				n++
			}
		}
	}
	return n == len(ends)
}

func source(t *program, c *kafkatest.Cluster) *kafkasource.Source {
	src, err := kafkasource.New(kafkasource.Config{Seeds: c.Bootstrap()})
	if err != nil {
		t.Fatalf("source: %v", err)
	}
	return src
}

// fetcher opens the same fetch client that the mirror uses, for all partitions of a topic on the one broker.
func fetcher(ctx context.Context, t *program, src *kafkasource.Source, topic string, partitions int32) (mirror.Fetcher, map[mirror.TopicPartition]mirror.FetchPosition) {
	topics, err := src.Topics(ctx, topic)
	if err != nil || len(topics) != 1 || topics[0].Err != nil {
		t.Fatalf("topic %s: %v", topic, err)
	}
	f, err := src.OpenFetcher(ctx, topics[0].Leaders[0].Leader, mirror.FetchOptions{})
	if err != nil {
		t.Fatalf("fetcher: %v", err)
	}
	at := map[mirror.TopicPartition]mirror.FetchPosition{}
	for p := range partitions {
		tp := mirror.TopicPartition{Topic: topic, Partition: p}
		at[tp] = mirror.FetchPosition{TopicPartition: tp, TopicID: topics[0].ID, LeaderEpoch: topics[0].Leaders[p].LeaderEpoch, LastEpoch: -1}
		f.Want(at[tp])
	}
	return f, at
}

// cpuTime is what this process has used so far, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		log.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
