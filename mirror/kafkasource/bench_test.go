package kafkasource

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror"
)

// BenchmarkDrain fetches canned batches as fast as they come, server and client on the same processors:
//
//	go test -run '^$' -bench Drain -benchmem ./mirror/kafkasource/
func BenchmarkDrain(b *testing.B) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(10, "t"),
		kfake.SyntheticFetch(kfake.SyntheticBatch{Records: 9000, RandomFrac: 1, Compression: kgo.NoCompression()}))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	s, err := New(Config{Seeds: c.ListenAddrs()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	topics, err := s.Topics(b.Context(), "t")
	if err != nil {
		b.Fatal(err)
	}
	f, err := s.OpenFetcher(b.Context(), topics[0].Leaders[0].Leader, mirror.FetchOptions{PartitionMaxBytes: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	at := make([]int64, 10)
	for p := range at {
		f.Want(position(topics[0], int32(p), 0))
	}
	var bytes int64
	started := time.Now()
	for b.Loop() {
		got, err := f.Fetch(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for i := range got {
			if got[i].Err != nil {
				b.Fatal(got[i].Err)
			}
			bytes += int64(len(got[i].Records))
			at[got[i].Partition] += 9000
			f.Want(position(topics[0], got[i].Partition, at[got[i].Partition]))
		}
	}
	b.ReportMetric(float64(bytes)/1e9/time.Since(started).Seconds(), "GB/s")
	b.ReportMetric(float64(bytes)/1e6/float64(b.N), "MB/fetch")
}

// BenchmarkIdle is one idle request with 5,000 partitions in the session, without the wait.
func BenchmarkIdle(b *testing.B) {
	s := newSession()
	for p := range int32(5000) {
		s.want(mirror.FetchPosition{TopicPartition: mirror.TopicPartition{Topic: "t", Partition: p}, TopicID: mirror.TopicID{1}})
	}
	s.build(1 << 20)
	s.answered(1, s.lost)
	b.ReportAllocs()
	for b.Loop() {
		s.build(1 << 20)
		s.answered(1, s.lost)
	}
}
