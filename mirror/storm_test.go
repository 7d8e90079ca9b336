package mirror_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

var stormPartitions = flag.Int("storm.partitions", 0, "partitions of the tests of request storms [5,000 that resume, 5,000 that flap]")

const (
	stormBrokers = 3
	stormTrip    = 2 * time.Millisecond // what every call takes
	stormRate    = 20_000_000           // bytes per second that a broker sends
)

// traffic is what a source is asked, in virtual time.
type traffic struct {
	mu       sync.Mutex
	open     int
	mostOpen int
	calls    map[string]int
	seconds  map[int64]int // calls by second
	first    time.Time

	turns map[int32][]mirror.TopicPartition // by broker: who got something, in this order
}

// listen counts from now on. Every call takes stormTrip, and a broker sends its replies one after the other.
func (s *side) listen() *traffic {
	x := &traffic{calls: map[string]int{}, seconds: map[int64]int{}, first: time.Now(), turns: map[int32][]mirror.TopicPartition{}}
	s.SetHooks(memlog.Hooks{
		Before: func(ctx context.Context, c memlog.Call) error {
			if strings.HasPrefix(c.Operation, "Client.") {
				return nil
			}
			x.mu.Lock()
			x.open++
			x.mostOpen = max(x.mostOpen, x.open)
			x.calls[c.Operation]++
			x.seconds[int64(time.Since(x.first)/time.Second)]++
			x.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(stormTrip):
			}
			x.mu.Lock()
			x.open--
			x.mu.Unlock()
			return ctx.Err()
		},
		Reply: func(broker int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
			bytes := 0
			x.mu.Lock()
			for _, p := range reply {
				if bytes += len(p.Records); len(p.Records) > 0 {
					x.turns[broker] = append(x.turns[broker], p.TopicPartition)
				}
			}
			x.mu.Unlock()
			time.Sleep(time.Duration(bytes) * time.Second / stormRate)
			return reply
		},
	})
	return x
}

// uneven is the most turns that a partition was ahead of another one of its broker when it had one more: all of them had the same to get.
func (x *traffic) uneven() (most int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, order := range x.turns {
		turns := map[mirror.TopicPartition]int{}
		for _, tp := range order {
			turns[tp] = 0
		}
		having := map[int]int{0: len(turns)} // partitions by their turns
		least := 0
		for _, tp := range order {
			most = max(most, turns[tp]-least)
			having[turns[tp]]--
			turns[tp]++
			having[turns[tp]]++
			for having[least] == 0 {
				least++
			}
		}
	}
	return most
}

func (x *traffic) sums() (total, busiest, mostOpen int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range x.seconds {
		total, busiest = total+n, max(busiest, n)
	}
	return total, busiest, x.mostOpen
}

func (x *traffic) String() string {
	total, busiest, _ := x.sums()
	x.mu.Lock()
	defer x.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d calls in %v, %d in the busiest second, %d at once at most:", total, time.Since(x.first).Round(time.Millisecond), busiest, x.mostOpen)
	for _, op := range slices.Sorted(maps.Keys(x.calls)) {
		fmt.Fprintf(&b, " %s %d", op, x.calls[op])
	}
	return b.String()
}

// partitionsOf is how many partitions a test of request storms has: -storm.partitions, or few enough for every run.
func partitionsOf() int {
	switch {
	case *stormPartitions > 0:
		return *stormPartitions
	case testing.Short():
		return 200
	}
	return 500
}

func stormWorld(t *testing.T, n int) (m *running, a *side, each func(func(topic string, partition int32))) {
	const perTopic = 50
	a, b := newSide(t, memlog.Config{ClusterID: "A", Brokers: stormBrokers}), newSide(t, memlog.Config{ClusterID: "B", Discard: true})
	var names []string
	for i := range n / perTopic {
		names = append(names, fmt.Sprintf("t%04d", i))
		a.local(names[i], perTopic)
	}
	each = func(f func(string, int32)) {
		for _, name := range names {
			for p := range int32(perTopic) {
				f(name, p)
			}
		}
	}
	each(func(topic string, p int32) { a.produce(topic, p, "first") })
	m = follow(t, "m", a, b, func(c *mirror.Config) {
		c.OnEvent = nil
		c.Fetch.MaxBytes, c.Fetch.PartitionMaxBytes = 1<<20, 10_000
	})
	m.start(names...)
	m.untilInStep()
	return m, a, each
}

// TestItem4PartitionsResumeAfterSixHoursWithoutAStorm: while the source is away its brokers are tried now and then, not by every partition, and when it is back, whoever is behind gets its turn.
// 5,000 partitions: go test ./mirror -run TestItem4Part -v -storm.partitions 5000
func TestItem4PartitionsResumeAfterSixHoursWithoutAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batches = 10
		n := partitionsOf()
		m, a, each := stormWorld(t, n)
		defer m.close()
		away := a.listen()
		a.SetUnreachable(true)
		value := strings.Repeat("x", 4000)
		each(func(topic string, p int32) {
			for range batches {
				a.produce(topic, p, value)
			}
		})
		const outage = 6 * time.Hour
		time.Sleep(outage)
		t.Logf("away: %v", away)
		// Two calls a minute and broker, besides what looks after groups and settings.
		if total, _, open := away.sums(); total > 2*stormBrokers*int(outage/time.Minute) || open > stormBrokers+2 {
			t.Errorf("an outage is a storm: %v", away)
		}

		back := a.listen()
		a.SetUnreachable(false)
		begin := time.Now()
		m.until("in step", func(s mirror.Status) bool {
			ok := true
			for _, x := range s.Topics {
				for _, p := range x.Partitions {
					ok = ok && p.End == batches+1 && p.State == statemachine.Mirroring
				}
			}
			return ok
		})
		took := time.Since(begin)
		t.Logf("back: in step after %v, of which the link took %v; turns differ by %d: %v", took, time.Duration(n*batches*4100)*time.Second/(stormBrokers*stormRate), back.uneven(), back)
		if _, busiest, open := back.sums(); busiest > 200*stormBrokers || open > 32+2*stormBrokers {
			t.Errorf("a return is a storm: %v", back)
		}
		if uneven := back.uneven(); uneven > 1 {
			t.Errorf("a partition had %d turns more than another of its broker", uneven)
		}
		if took > 2*time.Minute+time.Duration(n*batches*4100)*time.Second/stormRate {
			t.Errorf("in step only after %v", took)
		}
	})
}

// TestItem4PartitionsFlapWithoutAStorm: all partitions have a new leader every ten seconds. 50,000: go test ./mirror -run TestItem4Part -v -timeout 60m -storm.partitions 50000
func TestItem4PartitionsFlapWithoutAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const elections = 10
		n := partitionsOf()
		m, a, each := stormWorld(t, n)
		defer m.close()
		x := a.listen()
		for range elections {
			each(func(topic string, p int32) {
				if _, err := a.ElectLeader(topic, p); err != nil {
					t.Fatal(err)
				}
			})
			time.Sleep(10 * time.Second)
		}
		begin := time.Now()
		m.untilInStep()
		t.Logf("flapping: in step %v after the last election: %v", time.Since(begin)+10*time.Second, x)
		_, _, open := x.sums()
		if open > 32+2*stormBrokers {
			t.Errorf("%d questions at once", open)
		}
		// A partition asks for the end of its epoch once per election, what it asks else is asked for many together.
		if x.calls["Source.EndOffsetForEpoch"] > n*elections {
			t.Errorf("more than a question per partition and election: %v", x)
		}
		if others := x.calls["Source.Offsets"] + x.calls["Source.Topics"] + x.calls["Source.Cluster"]; others > 20*elections {
			t.Errorf("%d look-ups for %d elections: %v", others, elections, x)
		}
	})
}
