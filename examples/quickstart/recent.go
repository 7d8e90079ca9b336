package main

import (
	"context"

	"github.com/clustermirror/clustermirror/mirror"
)

// recent is a Source whose partitions begin later than they do, so that a newcomer's first minute does not copy all of a large topic.
type recent struct {
	mirror.Source
	starts map[mirror.TopicPartition]int64
}

// Offsets are the source's, with the log start moved up.
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
