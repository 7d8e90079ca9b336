package main

import (
	"context"
	"sync"

	"github.com/clustermirror/clustermirror/mirror"
)

// memorySink keeps in memory what a failback gives up. mirror.FileSink is the one for real use.
type memorySink struct {
	mu      sync.Mutex
	offsets int64
	kept    map[mirror.TopicPartition]int64 // records
}

// Dropped is called before anything is cut.
func (s *memorySink) Dropped(_ context.Context, tp mirror.TopicPartition, from, to int64, batches []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[mirror.TopicPartition]int64{}
	}
	s.offsets += to - from
	s.kept[tp] += countRecords(batches)
	return nil
}

func (s *memorySink) records() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int64
	for _, records := range s.kept {
		n += records
	}
	return n
}

// countRecords counts what clients wrote, without markers.
func countRecords(batches []byte) int64 {
	var n int64
	for info := range mirror.Batches(batches) {
		if !info.Control {
			n += int64(info.Records)
		}
	}
	return n
}
