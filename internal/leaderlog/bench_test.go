package leaderlog

import (
	"context"
	"fmt"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
)

// BenchmarkAppendAndFetch appends chunks and has two followers fetch each: what one batch costs the leader, over the sending. The memory holds 64 MiB, and lets go all the time.
func BenchmarkAppendAndFetch(b *testing.B) {
	for _, c := range []struct{ bytes, batches int }{{100, 1}, {16 << 10, 1}, {16 << 10, 64}, {1 << 10, 1000}} {
		b.Run(fmt.Sprintf("%d batches of %d bytes", c.batches, c.bytes), func(b *testing.B) {
			l := New(Options{Memory: NewMemory(64 << 20)})
			l.SetFollowers([]int32{1, 2}, []int32{1, 2}, nil, 2)
			l.Begin(Found{})
			l.Lead(5)
			l.Release()
			defer l.Subscribe(func() {})()
			one := data(0, 1, 1, string(make([]byte, c.bytes)))
			var chunk []byte
			for range c.batches {
				chunk = append(chunk, one...)
			}
			ctx := context.Background()
			q := replicaserver.FetchQuery{BrokerEpoch: -1, LeaderEpoch: 5, LastFetchedEpoch: -1, MaxBytes: 1 << 20}
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			next := int64(0)
			for b.Loop() {
				for at := 0; at < len(chunk); at += len(one) { // the followers are done with the bytes
					batch.SetBaseOffset(chunk[at:], next)
					next++
				}
				if err := l.Append(ctx, 5, chunk); err != nil {
					b.Fatal(err)
				}
				for q.Broker = 1; q.Broker <= 2; q.Broker++ {
					if a := l.Fetch(q); len(a.Batches) != 1 {
						b.Fatalf("%+v", a)
					}
				}
				q.Offset, q.LastFetchedEpoch = next, 1
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.batches), "ns/batch")
		})
	}
}

// BenchmarkFetchBehind fetches in the middle of 100,000 chunks.
func BenchmarkFetchBehind(b *testing.B) {
	l := New(Options{Memory: NewMemory(1 << 30)})
	l.SetFollowers([]int32{1}, []int32{1}, nil, 1)
	l.Begin(Found{})
	l.Lead(5)
	l.Release()
	for i := range int64(100000) {
		if err := l.Append(context.Background(), 5, data(i, 1, 1, "value")); err != nil {
			b.Fatal(err)
		}
	}
	l.Fetch(replicaserver.FetchQuery{Broker: 1, BrokerEpoch: -1, LeaderEpoch: 5, LastFetchedEpoch: -1})
	q := replicaserver.FetchQuery{Broker: 1, BrokerEpoch: -1, LeaderEpoch: 5, Offset: 50000, LastFetchedEpoch: 1, MaxBytes: 100}
	b.ReportAllocs()
	for b.Loop() {
		if a := l.Fetch(q); a.Size == 0 {
			b.Fatalf("%+v", a)
		}
	}
}
