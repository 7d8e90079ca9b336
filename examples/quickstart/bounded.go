package main

import (
	"context"
	"sync"

	"github.com/clustermirror/clustermirror/mirror"
)

// bounded is a Destination whose logs forget their oldest batches: each raises its own log start when it holds more than its share. It shows how to change
// what a Log does by wrapping it.
type bounded struct {
	mirror.Destination
	share int64 // bytes for each log

	mu   sync.Mutex
	logs map[mirror.TopicPartition]*boundedLog
}

// OpenLog wraps the log of one partition, and returns the same one each time.
func (d *bounded) OpenLog(ctx context.Context, tp mirror.TopicPartition) (mirror.Log, error) {
	log, err := d.Destination.OpenLog(ctx, tp)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs[tp] == nil {
		d.logs[tp] = &boundedLog{Log: log, share: d.share}
	}
	return d.logs[tp], nil
}

// kept is how many bytes all logs hold, and how many they have forgotten.
func (d *bounded) kept() (held, forgotten int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.logs {
		l.mu.Lock()
		held, forgotten = held+l.held, forgotten+l.forgotten
		l.mu.Unlock()
	}
	return held, forgotten
}

// boundedLog counts the bytes of the batches that it holds.
type boundedLog struct {
	mirror.Log
	share int64

	mu              sync.Mutex
	batches         []batchSize
	held, forgotten int64
}

type batchSize struct{ base, next, bytes int64 }

// Append adds batches, and makes room by raising the log start: never above what is replicated, and the newest batch stays.
func (l *boundedLog) Append(ctx context.Context, leaderEpoch int32, batches []byte) error {
	if err := l.Log.Append(ctx, leaderEpoch, batches); err != nil {
		return err
	}
	l.mu.Lock()
	for info, b := range mirror.Batches(batches) {
		l.batches = append(l.batches, batchSize{info.Base, info.Next(), int64(len(b))})
		l.held += int64(len(b))
	}
	start, excess := int64(0), l.held-l.share
	for _, b := range l.batches[:len(l.batches)-1] { // the newest batch stays
		if excess <= 0 {
			break
		}
		start, excess = b.next, excess-b.bytes
	}
	l.mu.Unlock()
	if start == 0 {
		return nil
	}
	return l.RaiseStart(ctx, start)
}

// RaiseStart forgets what lies below start.
func (l *boundedLog) RaiseStart(ctx context.Context, start int64) error {
	if err := l.Log.RaiseStart(ctx, start); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.batches) > 0 && l.batches[0].next <= l.Start() {
		l.held, l.forgotten = l.held-l.batches[0].bytes, l.forgotten+l.batches[0].bytes
		l.batches = l.batches[1:]
	}
	return nil
}

// TruncateTo is a cut at the end: the source's log parted from the copy.
func (l *boundedLog) TruncateTo(ctx context.Context, offset int64) (int64, error) {
	end, err := l.Log.TruncateTo(ctx, offset)
	l.endsAt(end, err)
	return end, err
}

// ResetTo drops everything.
func (l *boundedLog) ResetTo(ctx context.Context, start int64) error {
	err := l.Log.ResetTo(ctx, start)
	l.endsAt(0, err)
	return err
}

func (l *boundedLog) endsAt(end int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(l.batches); err == nil && n > 0 && l.batches[n-1].next > end; n-- {
		l.held -= l.batches[n-1].bytes
		l.batches = l.batches[:n-1]
	}
}
