package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// spoilers are what -break can do to the copy right after the failover. Each must make a check fail, or the checks are worth nothing.
var spoilers = []string{"byte", "missing", "offset", "marker", "loss"}

func spoilCopy(ctx context.Context, how string, copy *memlog.Cluster) error {
	if how == "" {
		return nil
	}
	tp := mirror.TopicPartition{Topic: orders}
	if how == "marker" {
		tp.Topic = payments
	}
	log, err := copy.OpenLog(ctx, tp)
	if err != nil {
		return err
	}
	whole, err := readLog(ctx, copy, tp.Topic, tp.Partition)
	if err != nil {
		return err
	}
	var kept [][]byte
	for _, b := range mirror.Batches(whole) {
		kept = append(kept, b)
	}
	middle := len(kept) / 2
	switch how {
	case "byte": // one byte of a record
		kept[middle][len(kept[middle])-1] ^= 1
	case "missing": // one batch in the middle
		kept = append(kept[:middle], kept[middle+1:]...)
	case "offset": // everything behind the middle is one offset later
		for _, b := range kept[middle:] {
			binary.BigEndian.PutUint64(b, binary.BigEndian.Uint64(b)+1)
		}
	case "marker": // the first ABORT
		for i, b := range kept {
			if mirror.Kind(b) == "ABORT" {
				kept = append(kept[:i], kept[i+1:]...)
				break
			}
		}
	case "loss": // the last copied batch, in front of the reset
		kept = append(kept[:len(kept)-2], kept[len(kept)-1])
	}
	var spoiled []byte
	for _, b := range kept {
		spoiled = append(spoiled, b...)
	}
	fmt.Printf("-break=%s: spoiled the copy of %s-%d\n\n", how, tp.Topic, tp.Partition)
	return copy.ImportLog(tp.Topic, tp.Partition, spoiled, 0, log.LeaderEpoch())
}
