package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// realOptions are those of -source.
type realOptions struct {
	source, topic, from string
	memory              size
}

// size is a number of bytes as in 256MiB.
type size int64

func (s *size) String() string {
	if *s == 0 {
		*s = 256 << 20
	}
	return fmt.Sprintf("%dMiB", *s>>20)
}

func (s *size) Set(text string) error {
	number, shift := text, 0
	for unit, by := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			number, shift = n, by
		}
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n <= 0 {
		return errors.New("not a size; write it as in 256MiB")
	}
	*s = size(n << shift)
	return nil
}

// recentOffsets is how much of each partition's end is copied unless -from=earliest.
const recentOffsets = 10_000

// mirrorReal mirrors a topic of a real cluster into memory until the context ends. It only reads from that cluster.
func mirrorReal(ctx context.Context, o realOptions) error {
	if o.from != "recent" && o.from != "earliest" {
		return fmt.Errorf("-from is recent or earliest, not %q", o.from)
	}
	_ = o.memory.String() // the default
	src, err := kafkasource.New(kafkasource.Config{Seeds: []string{o.source}, Bound: 5 * time.Second})
	if err != nil {
		return err
	}
	defer src.Close()

	// First say what is there.
	info, err := src.Cluster(ctx)
	if err != nil {
		return err
	}
	topics, err := src.Topics(ctx, o.topic)
	if err != nil {
		return err
	}
	if len(topics) == 0 {
		return fmt.Errorf("cluster %s has no topic %q that this client may describe; check the name", info.ID, o.topic)
	}
	if topics[0].Err != nil {
		return topics[0].Err
	}
	var tps []mirror.TopicPartition
	for p := range topics[0].Partitions {
		tps = append(tps, mirror.TopicPartition{Topic: o.topic, Partition: p})
	}
	offsets, err := src.Offsets(ctx, tps)
	if err != nil {
		return err
	}
	var held int64
	starts := map[mirror.TopicPartition]int64{}
	for _, tp := range tps {
		at := offsets[tp]
		if at.Err != nil {
			return at.Err
		}
		held += at.HighWatermark - at.LogStart
		starts[tp] = at.LogStart
		if o.from == "recent" {
			starts[tp] = max(at.LogStart, at.HighWatermark-recentOffsets)
		}
	}
	fmt.Printf("cluster %s, %d brokers; topic %s, %d partitions, %d offsets held; this client may describe it. Nothing is written there.\n",
		info.ID, len(info.Brokers), o.topic, len(tps), held)

	standby := memlog.New(memlog.Config{ClusterID: "memory"})
	defer standby.Close()
	bounded := &recent{Source: src, starts: starts}
	m, err := mirror.Open(ctx, mirror.Config{
		Name: "quickstart", Source: bounded, Destination: standby, Store: standby.StateStore(), Sink: mirror.Discard,
		OnEvent: func(e mirror.Event) {
			if e.Level() > 0 {
				fmt.Println(e)
			}
		},
	})
	if err != nil {
		return err
	}
	defer m.Close()
	if _, err := m.Admin().Start(ctx, []string{o.topic}, mirror.StartOptions{}); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			fmt.Println("\nInterrupted. This is the failover that would have been made:")
			fmt.Println(mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{}))
			return nil
		case <-tick.C:
			kept, err := keepBelow(context.WithoutCancel(ctx), standby, bounded, tps, int64(o.memory))
			if err != nil {
				return err
			}
			for _, t := range m.Status().Topics {
				fmt.Printf("%s; %d MiB kept, at most %d\n", progressLine(t), kept>>20, o.memory>>20)
			}
		}
	}
}

// keepBelow raises the log start of partitions that hold more than their share of the limit. It returns the bytes kept.
func keepBelow(ctx context.Context, c *memlog.Cluster, bounded *recent, tps []mirror.TopicPartition, limit int64) (int64, error) {
	var kept int64
	for _, tp := range tps {
		log, err := c.OpenLog(ctx, tp)
		if errors.Is(err, mirror.ErrUnknownTopic) {
			return 0, nil // not made yet
		}
		if err != nil {
			return 0, err
		}
		whole, err := c.RawLog(tp.Topic, tp.Partition)
		if err != nil {
			return 0, err
		}
		excess := int64(len(whole)) - limit/int64(len(tps))
		for info, b := range mirror.Batches(whole) {
			if excess <= 0 {
				break
			}
			excess -= int64(len(b))
			if err := log.RaiseStart(ctx, info.Next()); err != nil {
				return 0, err
			}
		}
		kept += min(int64(len(whole)), limit/int64(len(tps)))
	}
	return kept, nil
}

// recent is a Source whose partitions begin later than they do, so that a newcomer's first minute does not copy all of a large topic.
type recent struct {
	mirror.Source
	starts map[mirror.TopicPartition]int64
}

func (r *recent) Offsets(ctx context.Context, tps []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	offsets, err := r.Source.Offsets(ctx, tps)
	for tp, o := range offsets {
		if o.Err == nil {
			o.LogStart = max(o.LogStart, r.starts[tp])
			offsets[tp] = o
		}
	}
	return offsets, err
}
