package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

const (
	partitions = 1000
	reply      = 10 << 20
	each       = 4 << 10
)

// measureMemory mirrors 1,000 partitions full of data into logs that take their time, and compares the process's resident memory with the bound of the design:
// what fetchers may hold (two replies each: one being worked on, one being received) and a fixed part for each partition.
func measureMemory(ctx context.Context, t *program) {
	c := kafkatest.Start(t, kafkatest.Options{HeapMB: 1536})
	c.CreateTopic(kafkatest.Topic{Name: "wide", Partitions: partitions, Replication: 1, Configs: map[string]string{"max.message.bytes": "2000000", "segment.bytes": "16777216"}})
	var records []batch.Record
	for len(records) < 64 {
		records = append(records, batch.Record{OffsetDelta: int32(len(records)), Value: make([]byte, 1024)})
	}
	one := batch.AppendData(nil, batch.DataSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, BaseTimestamp: time.Now().UnixMilli(), Records: records})
	total := produceRaw(t, c, "wide", partitions, one, 2000e6)
	fmt.Printf("1,000 partitions, %d MB, a log that takes a second for each append; one fetcher, replies of at most %d MiB\n", total/1e6, reply>>20)

	// The measured process does nothing but mirror.
	self := exec.CommandContext(ctx, os.Args[0], "-memory-of", strings.Join(c.Bootstrap(), ","))
	self.Stdout, self.Stderr = os.Stdout, os.Stderr
	if err := self.Run(); err != nil {
		t.Fatalf("memory: %v", err)
	}
}

// measureSelf mirrors and watches this process's memory.
func measureSelf(ctx context.Context, t *program, seeds []string) {
	src, err := kafkasource.New(kafkasource.Config{Seeds: seeds})
	if err != nil {
		t.Fatalf("source: %v", err)
	}
	defer src.Close()
	dst := memlog.New(memlog.Config{ClusterID: "bench", Discard: true})
	defer dst.Close()
	dst.SetHooks(memlog.Hooks{Before: func(ctx context.Context, call memlog.Call) error {
		if call.Operation == "Log.Append" {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		return nil
	}})
	debug.FreeOSMemory()
	base := resident(t)
	m, err := mirror.Open(ctx, mirror.Config{Name: "bench", Source: src, Destination: dst, Store: dst.StateStore(), Sink: mirror.Discard})
	if err != nil {
		t.Fatalf("mirror: %v", err)
	}
	defer m.Close()
	if _, err := m.Admin().Start(ctx, []string{"wide"}, mirror.StartOptions{}); err != nil {
		t.Fatalf("mirror: %v", err)
	}
	bound := int64(2*reply + partitions*each)
	ends := endsOf(ctx, t, src, "wide")
	var peak, early, late, live int64
	begin := time.Now()
	for tick := time.NewTicker(250 * time.Millisecond); late == 0; {
		select {
		case <-ctx.Done():
			t.Fatalf("memory: %v", ctx.Err())
		case <-tick.C:
		}
		now, at := resident(t)-base, time.Since(begin)
		peak = max(peak, now)
		if at > 10*time.Second && early == 0 {
			early = now
		}
		if at > 60*time.Second {
			late = now
			var stats runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&stats)
			live = int64(stats.HeapAlloc)
		}
	}
	done := "still copying"
	if reached(m, ends) {
		done = "all copied"
	}
	fmt.Printf("live heap after 60 s (%s): %.1f MiB; bound: two replies and %d KiB for each partition, %.1f MiB; live / bound: %.2f\n",
		done, mib(live), each>>10, mib(bound), float64(live)/float64(bound))
	fmt.Printf("resident beyond base with GOGC=%s: %.1f MiB after 10 s, %.1f MiB after 60 s, peak %.1f MiB; peak / bound: %.2f; 60 s / 10 s: %.2f\n",
		cmp.Or(os.Getenv("GOGC"), "100"), mib(early), mib(late), mib(peak), float64(peak)/float64(bound), float64(late)/float64(early))
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// resident is the process's resident set, in bytes.
func resident(t *program) int64 {
	n, err := processMemory("self", "VmRSS")
	if err != nil {
		t.Fatalf("memory: %v", err)
	}
	return n
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
