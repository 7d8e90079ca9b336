package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"github.com/clustermirror/clustermirror/mirror"
)

// ErrNotOpen is a client's write to a log that is closed for clients.
var ErrNotOpen = errors.New("custombroker: the partition is a mirror and read-only; write to the source, or fail over first")

// Produce is the broker's own side: what its handler of a Produce request calls while clients may write. The batches get the next offsets and the leader epoch, which a batch's
// checksum does not cover. It returns the first offset. While the gate is closed: ErrNotOpen. (A real broker also checks producer ids, epochs and sequences here.)
func (l *Log) Produce(ctx context.Context, batches []byte) (int64, error) {
	if err := l.lock(ctx); err != nil {
		return 0, err
	}
	defer l.unlock()
	if !l.meta.Open {
		return 0, ErrNotOpen
	}
	batches = bytes.Clone(batches) // they are the client's, and are about to be changed
	base, next := l.end, l.end
	for b, raw := range mirror.Batches(batches) {
		if err := mirror.CheckBatch(raw); err != nil {
			return 0, err
		}
		binary.BigEndian.PutUint64(raw, uint64(next))
		binary.BigEndian.PutUint32(raw[12:], uint32(l.meta.LeaderEpoch))
		next += b.Next() - b.Base
	}
	return base, l.write(batches)
}

// RaiseLeaderEpoch raises the leader epoch to at least this one and returns what it is. A broker calls it at each election; a mirror through its Destination.
func (l *Log) RaiseLeaderEpoch(ctx context.Context, atLeast int32) (int32, error) {
	if err := l.lock(ctx); err != nil {
		return 0, err
	}
	defer l.unlock()
	next := l.meta
	next.LeaderEpoch = max(next.LeaderEpoch, atLeast)
	err := l.change(next)
	return l.meta.LeaderEpoch, err
}
