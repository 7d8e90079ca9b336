package kafkasource

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
	"github.com/clustermirror/clustermirror/mirror"
)

// aheadTest is a fetcher over a link with a round trip, small requests ahead, and what the log of each partition of topic t holds.
type aheadTest struct {
	t       *testing.T
	cluster *kfake.Cluster
	dialer  *proxy.Dialer
	source  *Source
	topic   mirror.SourceTopic
	fetcher *fetcher
	epochs  bool // the leader's epoch is known
	at      map[int32]int64
	got     map[int32][]byte
}

func readingAhead(t *testing.T, partitions int32, delay time.Duration) *aheadTest {
	t.Helper()
	a := &aheadTest{t: t, cluster: cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(partitions, "t")), dialer: &proxy.Dialer{}, epochs: true, at: map[int32]int64{}, got: map[int32][]byte{}}
	t.Cleanup(func() { a.dialer.Close() })
	for p := range partitions {
		if err := a.cluster.MoveTopicPartition("t", p, 0); err != nil {
			t.Fatal(err)
		}
	}
	a.dialer.SetLink(a.cluster.ListenAddrs()[0], proxy.Link{Delay: delay})
	a.source = open(t, Config{Seeds: a.cluster.ListenAddrs(), ClientOptions: []kgo.Opt{kgo.Dialer(a.dialer.DialContext)}})
	return a
}

// write writes batches of such sizes.
func (a *aheadTest) write(partition int32, sizes ...int) {
	a.t.Helper()
	values := make([]string, len(sizes))
	for i, n := range sizes {
		values[i] = strings.Repeat(string(rune('a'+i%26)), n)
	}
	produce(a.t, a.cluster, "t", partition, values...)
}

func (a *aheadTest) open(wanted ...int32) {
	a.t.Helper()
	a.topic = topicOf(a.t, a.source, "t")
	a.fetcher = fetcherOf(a.t, a.source, a.topic.Leaders[0].Leader, mirror.FetchOptions{MaxWait: 5 * time.Millisecond, PartitionMaxBytes: 4 << 10}).(*fetcher)
	a.fetcher.ahead.chunk, a.fetcher.ahead.worth = 4<<10, 2*time.Millisecond
	for _, p := range wanted {
		a.fetcher.Want(position(a.topic, p, 0))
	}
}

// step is one fetch, with everybody who got records moved on.
func (a *aheadTest) step() []mirror.FetchedPartition {
	a.t.Helper()
	reply := mustFetch(a.t, a.fetcher)
	for i := range reply {
		p := &reply[i]
		if p.Offset != a.at[p.Partition] {
			a.t.Fatalf("partition %d answers for %d, wanted at %d", p.Partition, p.Offset, a.at[p.Partition])
		}
		for h, b := range batch.All(p.Records) {
			if h.NextOffset() <= a.at[p.Partition] {
				continue
			}
			a.got[p.Partition] = append(a.got[p.Partition], b...)
			a.at[p.Partition] = h.NextOffset()
		}
		a.want(p.Partition)
	}
	return reply
}

func (a *aheadTest) want(partition int32) {
	where := position(a.topic, partition, a.at[partition])
	if !a.epochs {
		where.LeaderEpoch = -1
	}
	a.fetcher.Want(where)
}

// until fetches until a partition has come to that offset.
func (a *aheadTest) until(partition int32, end int64) {
	a.t.Helper()
	for a.at[partition] < end {
		a.step()
	}
}

// same compares what was fetched with what a fetcher next to the broker reads.
func (a *aheadTest) same(partition int32) {
	a.t.Helper()
	near, err := New(Config{Seeds: a.cluster.ListenAddrs(), Bound: testBound})
	if err != nil {
		a.t.Fatal(err)
	}
	defer near.Close()
	f := fetcherOf(a.t, near, a.topic.Leaders[partition].Leader, mirror.FetchOptions{MaxWait: time.Millisecond, PartitionMaxBytes: 64 << 20, MaxBytes: 64 << 20})
	var whole []byte
	for at := int64(0); at < a.at[partition]; {
		where := position(a.topic, partition, at)
		where.LeaderEpoch = -1
		f.Want(where)
		for _, p := range fetchUntil(a.t, f) {
			for h, b := range batch.All(p.Records) {
				whole, at = append(whole, b...), h.NextOffset()
			}
		}
	}
	if !bytes.Equal(whole[:min(len(whole), len(a.got[partition]))], a.got[partition]) {
		a.t.Errorf("partition %d: %d bytes fetched, %d in the log, not the same", partition, len(a.got[partition]), len(whole))
	}
}

func sizes(n int, of func(i int) int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = of(i)
	}
	return s
}

// TestItem3ALongLinkIsReadAhead: over a link with a round trip, a partition that is far behind is asked for several times at once, and what comes is the log.
func TestItem3ALongLinkIsReadAhead(t *testing.T) {
	for _, x := range []struct {
		name string
		of   func(i int) int
	}{
		{"even", func(int) int { return 300 }},
		{"growing", func(i int) int { return 10 + i*2 }},
		{"shrinking", func(i int) int { return 1210 - i*2 }},
		{"random", func(i int) int { return rand.New(rand.NewPCG(7, uint64(i))).IntN(1500) }},
		{"a batch larger than a request", func(i int) int {
			if i%97 == 96 {
				return 9000
			}
			return 200
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			a := readingAhead(t, 1, 5*time.Millisecond)
			a.write(0, sizes(600, x.of)...)
			a.open(0)
			a.until(0, 600)
			a.same(0)
			c := a.source.Counts()
			t.Logf("fetches %d, ahead %d, of no use %d", c.Fetches, c.Ahead, c.AheadLost)
			if c.Ahead < 20 {
				t.Errorf("%d requests ahead", c.Ahead)
			}
			for range 3 { // at the end of the log it is an ordinary fetcher again
				if got := a.step(); len(got) > 0 && len(got[0].Records) > 0 {
					t.Errorf("%+v", got)
				}
			}
			if a.fetcher.readsAhead() {
				t.Error("still reading ahead")
			}
			a.write(0, 5)
			a.until(0, 601)
			a.same(0)
		})
	}
}

// TestItem3AShortLinkIsNot: off where it is of no use.
func TestItem3AShortLinkIsNot(t *testing.T) {
	for name, set := range map[string]func(a *aheadTest){
		"short link": func(a *aheadTest) { a.fetcher.ahead.worth = time.Minute },
		"no bytes":   func(a *aheadTest) { a.source.cfg.ReadAheadBytes = -1 },
		"no epoch": func(a *aheadTest) {
			a.epochs = false
			a.want(0)
		},
		"limited reply": func(a *aheadTest) { a.fetcher.LimitReply(4 << 10) },
	} {
		t.Run(name, func(t *testing.T) {
			a := readingAhead(t, 1, 2*time.Millisecond)
			a.write(0, sizes(300, func(int) int { return 300 })...)
			a.open(0)
			set(a)
			a.until(0, 300)
			a.same(0)
			if c := a.source.Counts(); c.Ahead != 0 {
				t.Errorf("%d requests ahead", c.Ahead)
			}
		})
	}
}

// TestItem3OthersAreServedMeanwhile: records and errors of partitions that are not read ahead arrive while another is, and nobody is told that they have nothing.
func TestItem3OthersAreServedMeanwhile(t *testing.T) {
	a := readingAhead(t, 3, 5*time.Millisecond)
	a.write(0, sizes(2000, func(int) int { return 300 })...)
	a.open(0, 1, 2)
	for !a.fetcher.readsAhead() {
		a.step()
	}
	a.write(1, 10, 10)
	var bad error
	a.fetcher.Want(mirror.FetchPosition{TopicPartition: mirror.TopicPartition{Topic: "t", Partition: 2}, TopicID: a.topic.ID, Offset: 99, LeaderEpoch: -1, LastEpoch: -1})
	a.at[2] = 99
	for a.at[0] < 2000 && (a.at[1] < 2 || bad == nil) {
		for _, p := range a.step() {
			if p.Partition == 2 && p.Err != nil {
				bad = p.Err
			}
		}
	}
	if a.at[1] != 2 || bad == nil || a.at[0] == 2000 {
		t.Errorf("partition 1 at %d, error of 2: %v, partition 0 at %d", a.at[1], bad, a.at[0])
	}
	sourceError(t, bad, mirror.SourceOffsetRange, false)
	a.same(1)
	// A partition that is read ahead is moved and taken away: what comes is about where it is wanted.
	a.at[0], a.got[0] = 0, nil
	a.fetcher.Want(position(a.topic, 0, 0))
	a.until(0, 100)
	a.fetcher.Forget(mirror.TopicPartition{Topic: "t"})
	for range 5 {
		for _, p := range a.step() {
			if p.Partition == 0 {
				t.Errorf("partition 0 answers: %+v", p)
			}
		}
	}
	a.fetcher.Want(position(a.topic, 0, a.at[0]))
	a.until(0, 2000)
	a.same(0)
}

// TestItem3AnElectionEndsIt: requests ahead carry the leader epoch, so nothing of another epoch's log is taken for a continuation; the caller hears of the election.
func TestItem3AnElectionEndsIt(t *testing.T) {
	a := readingAhead(t, 1, 5*time.Millisecond)
	a.write(0, sizes(2000, func(int) int { return 300 })...)
	a.open(0)
	for !a.fetcher.readsAhead() {
		a.step()
	}
	a.step()
	for _, to := range []int32{1, 0} {
		if err := a.cluster.MoveTopicPartition("t", 0, to); err != nil {
			t.Fatal(err)
		}
	}
	for {
		p := a.step()
		if len(p) == 1 && p[0].Err != nil {
			sourceError(t, p[0].Err, mirror.SourceFencedEpoch, false)
			break
		}
		if a.at[0] == 2000 {
			t.Fatal("an election was not noticed")
		}
	}
	a.same(0)
}

// TestItem3ALineThatBreaks: the fetch ends with an error within its bound, and nothing is left behind.
func TestItem3ALineThatBreaks(t *testing.T) {
	for name, cut := range map[string]proxy.Cut{"broken": proxy.Break, "silent": proxy.Hang} {
		t.Run(name, func(t *testing.T) {
			a := readingAhead(t, 1, 5*time.Millisecond)
			a.write(0, sizes(2000, func(int) int { return 300 })...)
			a.open(0)
			for !a.fetcher.readsAhead() {
				a.step()
			}
			a.source.cfg.Bound = time.Second
			a.dialer.Cut(a.cluster.ListenAddrs()[0], cut)
			for {
				reply, err := a.fetcher.Fetch(t.Context())
				if err != nil {
					t.Log(err)
					break
				}
				for _, p := range reply {
					_, end := mustEnd(p.Records)
					a.fetcher.Want(position(a.topic, 0, end))
				}
			}
			if n := len(a.fetcher.ahead.lanes); n != 0 {
				t.Errorf("%d partitions are still read ahead", n)
			}
		})
	}
	a := readingAhead(t, 1, 5*time.Millisecond)
	a.write(0, sizes(2000, func(int) int { return 300 })...)
	a.open(0)
	for !a.fetcher.readsAhead() {
		a.step()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.fetcher.Fetch(ctx); err == nil {
		t.Error("a fetch whose context has ended went on")
	}
	a.fetcher.Close()
	if _, err := a.fetcher.Fetch(t.Context()); err == nil {
		t.Error("a closed fetcher fetches")
	}
}

func mustEnd(records []byte) (first, end int64) {
	first = -1
	for h := range batch.All(records) {
		if first < 0 {
			first = h.BaseOffset
		}
		end = h.NextOffset()
	}
	return first, end
}

// TestItem3Continuation: whatever log with holes, whatever guesses: what continues a lane is the log, batch by batch, and a hole is only passed where the log has it.
func TestItem3Continuation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type one struct {
			base, next int64
			bytes      []byte
		}
		var log []one
		end := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			end += int64(rapid.SampledFrom([]int{0, 0, 0, 1, 7}).Draw(t, "hole"))
			n := rapid.IntRange(1, 5).Draw(t, "records")
			records := make([]batch.Record, n)
			for i := range records {
				records[i].OffsetDelta = int32(i)
			}
			b := batch.AppendData(nil, batch.DataSpec{BaseOffset: end, ProducerID: -1, Records: records})
			log = append(log, one{end, end + int64(n), b})
			end += int64(n)
		}
		// reply is what a broker answers to a request for an offset: whole batches from the one that holds it, or is behind it, and a part of the last one.
		reply := func(at int64, batches int) (b []byte) {
			for _, o := range log {
				if o.next <= at {
					continue
				}
				if batches == 0 {
					return append(b, o.bytes[:rapid.IntRange(0, len(o.bytes)-1).Draw(t, "part")]...)
				}
				b = append(b, o.bytes...)
				batches--
			}
			return b
		}
		l := &lane{}
		k := 0 // batches passed on
		for range 60 {
			at := max(0, l.want.Offset+int64(rapid.IntRange(-4, 6).Draw(t, "guess")))
			records, found := l.continuation(at, reply(at, rapid.IntRange(0, 4).Draw(t, "length")))
			if found != continues {
				continue
			}
			for h, b := range batch.All(records) {
				if h.BaseOffset != log[k].base || !bytes.Equal(b, log[k].bytes) {
					t.Fatalf("passed on: batch at %d, wanted %d", h.BaseOffset, log[k].base)
				}
				k++
			}
			if l.want.Offset = l.learn(records); l.want.Offset != log[k-1].next {
				t.Fatalf("ends at %d, not %d", l.want.Offset, log[k-1].next)
			}
		}
	})
}
