package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// recentOffsets is how much of each partition's end is copied unless -from=earliest.
const recentOffsets = 10_000

// mirrorReal mirrors a topic of a real cluster into memory until the context ends. It only reads from that cluster.
func mirrorReal(ctx context.Context, o options) error {
	fmt.Printf("Asking %s for topic %s. Nothing will be written there.\n", o.source, o.topic)
	web := &webServer{}
	src, err := kafkasource.New(kafkasource.Config{Seeds: []string{o.source}, Bound: 5 * time.Second, ClientOptions: []kgo.Opt{kgo.WithHooks(web)}})
	if err != nil {
		return err
	}
	defer src.Close()
	found, err := look(ctx, src, o)
	if ctx.Err() != nil {
		fmt.Println("\nInterrupted before anything was copied.")
		return nil
	}
	if err != nil {
		return web.explain(err, o.source)
	}
	fmt.Println(found.text)

	memory := memlog.New(memlog.Config{ClusterID: "memory"})
	defer memory.Close()
	copies := &bounded{Destination: memory, share: max(1, int64(o.memory)/int64(len(found.starts))), logs: map[mirror.TopicPartition]*boundedLog{}}
	m, err := mirror.Open(ctx, mirror.Config{
		Name: "quickstart", Source: &recent{Source: src, starts: found.starts}, Destination: copies, Store: memory.StateStore(), Sink: mirror.Discard,
		OnEvent: func(e mirror.Event) {
			if e.Level() > slog.LevelInfo {
				fmt.Println(e)
			}
		},
	})
	if err != nil {
		return err
	}
	defer m.Close()
	if _, err := m.Admin().Start(ctx, []string{o.topic}, mirror.StartOptions{}); err != nil && ctx.Err() == nil {
		return err
	}
	fmt.Println("Mirroring; stop with ctrl-C.")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Println(progressLine(m.Status()) + "; " + memoryText(copies, o.memory))
		case <-ctx.Done():
			fmt.Println("\nInterrupted. This is the failover that would have been made:")
			fmt.Println(mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{}))
			return nil
		}
	}
}

func memoryText(d *bounded, limit size) string {
	held, forgotten := d.kept()
	s := fmt.Sprintf("%s kept, at most %s", bytesText(held), limit.String())
	if forgotten > 0 {
		s += fmt.Sprintf(": the copy's log start was raised, its oldest %s are gone", bytesText(forgotten))
	}
	return s
}

// finding is what look saw: where to begin, and what to tell.
type finding struct {
	starts map[mirror.TopicPartition]int64
	text   string
}

// look asks the source for the cluster, the topic, its size, and for one reply of each leader, which shows that this client may read.
func look(ctx context.Context, src mirror.Source, o options) (finding, error) {
	f := finding{starts: map[mirror.TopicPartition]int64{}}
	cluster, err := src.Cluster(ctx)
	if err != nil {
		return f, err
	}
	topics, err := src.Topics(ctx, o.topic)
	if err != nil {
		return f, err
	}
	if len(topics) == 0 {
		return f, fmt.Errorf("cluster %s has no topic %q that this client may describe: check the name, or give the client the right to describe it", cluster.ID, o.topic)
	}
	topic := topics[0]
	if topic.Err != nil {
		return f, topic.Err
	}
	var tps []mirror.TopicPartition
	for p := range topic.Partitions {
		tps = append(tps, mirror.TopicPartition{Topic: o.topic, Partition: p})
	}
	offsets, err := src.Offsets(ctx, tps)
	if err != nil {
		return f, err
	}
	var held, sampled, sampledBytes int64
	asked := map[int32]bool{}
	for _, leader := range topic.Leaders {
		tp := mirror.TopicPartition{Topic: o.topic, Partition: leader.Partition}
		at := offsets[tp]
		if at.Err != nil {
			return f, at.Err
		}
		held += at.HighWatermark - at.LogStart
		f.starts[tp] = at.LogStart
		if o.from == "recent" {
			f.starts[tp] = max(at.LogStart, at.HighWatermark-recentOffsets)
		}
		if asked[leader.Leader] {
			continue
		}
		asked[leader.Leader] = true
		records, err := sample(ctx, src, topic, leader, f.starts[tp])
		if err != nil {
			return f, err
		}
		for info, b := range mirror.Batches(records) {
			sampled, sampledBytes = sampled+info.Next()-info.Base, sampledBytes+int64(len(b))
		}
	}
	amount := "empty"
	if held > 0 {
		amount = fmt.Sprintf("%d offsets", held)
	}
	if sampled > 0 {
		amount += fmt.Sprintf(", about %s on each replica (judged by the first ones read)", bytesText(int64(float64(held)*float64(sampledBytes)/float64(sampled))))
	}
	from := "all of it"
	if o.from == "recent" {
		from = fmt.Sprintf("the last %d offsets of each partition (-from earliest for all)", recentOffsets)
	}
	f.text = fmt.Sprintf("cluster  %s, %s\ntopic    %s, %s\nsize     %s\nrights   this client may describe and read it\ncopying  %s",
		cluster.ID, count(len(cluster.Brokers), "broker"), o.topic, count(int(topic.Partitions), "partition"), amount, from)
	return f, nil
}

// sample fetches once from one partition.
func sample(ctx context.Context, src mirror.Source, topic mirror.SourceTopic, p mirror.SourcePartition, offset int64) ([]byte, error) {
	fetcher, err := src.OpenFetcher(ctx, p.Leader, mirror.FetchOptions{MaxWait: 100 * time.Millisecond, MaxBytes: 64 << 10, PartitionMaxBytes: 64 << 10})
	if err != nil {
		return nil, err
	}
	defer fetcher.Close()
	fetcher.Want(mirror.FetchPosition{
		TopicPartition: mirror.TopicPartition{Topic: topic.Name, Partition: p.Partition}, TopicID: topic.ID,
		Offset: offset, LeaderEpoch: p.LeaderEpoch, LastEpoch: mirror.Unknown,
	})
	reply, err := fetcher.Fetch(ctx)
	if err != nil {
		return nil, err
	}
	var records []byte
	for _, r := range reply {
		if r.Err != nil {
			return nil, r.Err
		}
		records = append(records, r.Records...)
	}
	return records, nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
