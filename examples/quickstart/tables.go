package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// table prints a log batch by batch.
func table(title string, log []byte) {
	fmt.Println(title + ":")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  offset\tepoch\twhat\tproducer id.epoch\tbytes")
	for info, b := range mirror.Batches(log) {
		producer := "-"
		if info.ProducerID >= 0 {
			producer = fmt.Sprintf("%d.%d", info.ProducerID, info.ProducerEpoch)
		}
		fmt.Fprintf(w, "  %s\t%d\t%s\t%s\t%d\n", offsets(info), info.LeaderEpoch, mirror.Kind(b), producer, len(b))
	}
	w.Flush()
	fmt.Println()
}

func offsets(info mirror.BatchInfo) string {
	if info.Base == info.Last {
		return fmt.Sprint(info.Base)
	}
	return fmt.Sprintf("%d-%d", info.Base, info.Last)
}

// readLog reads one partition of a cluster in memory as it is.
func readLog(ctx context.Context, c *memlog.Cluster, topic string, partition int32) ([]byte, error) {
	log, err := c.OpenLog(ctx, mirror.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		return nil, err
	}
	var all []byte
	for at := log.Start(); at < log.End(); {
		b, err := log.Read(ctx, at, 1<<20)
		if err != nil {
			return nil, err
		}
		next := at
		for info := range mirror.Batches(b) {
			next = info.Next()
		}
		if next <= at {
			return nil, fmt.Errorf("%s-%d: no whole batch at %d", topic, partition, at)
		}
		all, at = append(all, b...), next
	}
	return all, nil
}
