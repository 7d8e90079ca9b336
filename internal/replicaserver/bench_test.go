package replicaserver

import (
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/statemachine"
)

// BenchmarkIncrementalFetch is one fetch in a session of 2,000 partitions, of which one has a new batch: client and server on the same processors, over loopback.
//
//	go test -run '^$' -bench . -benchmem ./internal/replicaserver/
func BenchmarkIncrementalFetch(b *testing.B) {
	topics, logs := topicOf(2000)
	c := dial(b, start(b, topics, func(c *Config) { c.Logger = quiet }))
	_ = c.conn.SetDeadline(time.Time{})
	id := begin(c, 2000).SessionID
	at := make([]int64, len(logs))
	req := next(id, 0, 0)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		p := n % len(logs)
		n++
		l := logs[p]
		l.change(func() { // one batch at a time, or the log of the test would grow
			l.batches, l.start = l.batches[:0], l.end()
			l.batches = append(l.batches, fakeBatch{l.start, 0, canned})
			l.high = l.end()
		})
		req.SessionEpoch++
		resp := c.ask(req).(*kmsg.FetchResponse)
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions[0].RecordBatches) != len(canned) {
			b.Fatalf("request %d: %s", n, in(resp))
		}
		at[p] = l.end()
		req.Topics = nil
		naming(req, int32(p), at[p])
	}
}

var canned = makeBatch(0, 0, 1000)

// BenchmarkIdleFetch is the same with nothing new.
func BenchmarkIdleFetch(b *testing.B) {
	topics, _ := topicOf(2000)
	c := dial(b, start(b, topics, func(c *Config) { c.Logger = quiet }))
	_ = c.conn.SetDeadline(time.Time{})
	req := next(begin(c, 2000).SessionID, 0, 0)
	b.ReportAllocs()
	for b.Loop() {
		req.SessionEpoch++
		c.ask(req)
	}
}

// endless is a partition that always has a mebibyte of batches in memory.
type endless struct {
	*fakeLog
	batches [][]byte
	size    int
}

func (e *endless) Fetch(FetchQuery) FetchAnswer {
	return FetchAnswer{HighWatermark: 1, LastStableOffset: -1, Batches: e.batches, Size: e.size}
}

type oneTopic []*endless

func (o oneTopic) ByID(_ statemachine.TopicID, partition int32) (Partition, int16) {
	return o[partition], 0
}

func (o oneTopic) ByName(string, int32) (Partition, int16) { return nil, codeUnknownTopicOrPartition }

// BenchmarkThroughput sends a mebibyte of each of four partitions over loopback to a reader that throws it away.
func BenchmarkThroughput(b *testing.B) {
	for name, size := range map[string]int{"batches of 16 KiB": 16 << 10, "batches of 1 KiB": 1 << 10, "batches of 200 B": 200} {
		b.Run(name, func(b *testing.B) {
			var topics oneTopic
			for range 4 {
				e := &endless{fakeLog: newFakeLog()}
				for e.size+size <= 1<<20 {
					e.batches, e.size = append(e.batches, makeBatch(0, 0, size)), e.size+size
				}
				topics = append(topics, e)
			}
			c := dial(b, start(b, topics, func(c *Config) { c.Logger = quiet }))
			_ = c.conn.SetDeadline(time.Time{})
			full := fetchOf(17, topicA, 0, 0, 0, 0)
			full.SessionEpoch = 0
			id := c.ask(full).(*kmsg.FetchResponse).SessionID
			b.SetBytes(int64(4 * topics[0].size))
			b.ReportAllocs()
			formatter := kmsg.NewRequestFormatter()
			var length [4]byte
			epoch := int32(0)
			for b.Loop() {
				epoch++
				if _, err := c.conn.Write(formatter.AppendRequest(nil, next(id, epoch, 0), epoch)); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c.conn, length[:]); err != nil {
					b.Fatal(err)
				}
				n := int64(length[0])<<24 | int64(length[1])<<16 | int64(length[2])<<8 | int64(length[3])
				if n < int64(4*topics[0].size) {
					b.Fatalf("only %d bytes", n)
				}
				if _, err := io.CopyN(io.Discard, c.conn, n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
