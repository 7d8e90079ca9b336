package mirror_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

func TestF01TrailingMarker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.load("t", 0, 0, 0, data(0, 0, 4, 5, &producer{id: 7, open: true}), marker(0, 5, 7, 0, batch.ControlCommit))
		var positions []int64
		var replies atomic.Int32
		m.a.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
			for _, p := range reply {
				positions = append(positions, p.Offset)
				if len(p.Records) > 0 {
					replies.Add(1)
				}
			}
			return reply
		}})
		m.start("t")
		m.inStepAndSame()
		time.Sleep(time.Minute)
		expect(t, "end", m.one("t", 0).End, 6)
		expect(t, "lag", m.one("t", 0).LagOffsets, 0)
		for i, at := range positions {
			if at != 0 && at != 6 {
				t.Errorf("fetch %d was at %d", i, at)
			}
		}
		expect(t, "replies with records", replies.Load(), 1)
		m.a.fill("t", 0, 1)
		m.untilOne("the later record", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 7 })
		m.same(0)
		expect(t, "a consumer's offsets", m.b.offsets("t", 0, 0, memlog.ReadCommitted), []int64{0, 1, 2, 3, 4, 6})
	})
}

func TestF05HoleAtTheVeryEnd(t *testing.T) {
	hole := func(t *testing.T) (*pair, *requests) {
		m := newPair(t, 1)
		m.a.load("t", 0, 10, 0, data(0, 10, 14, 5, nil))
		if err := m.a.LeaveHole("t", 0, 20); err != nil {
			t.Fatal(err)
		}
		q := &requests{}
		m.a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error { q.count(c); return nil }})
		m.start("t")
		p := m.untilOne("the hole is proved", "t", 0, func(p mirror.PartitionStatus) bool { return p.NothingLeft })
		expect(t, "ends and lag", []int64{p.End, p.SourceEnd, p.LagOffsets}, []int64{15, 20, 0})
		told := eventsOf[mirror.NothingLeft](m.running)
		if len(told) != 1 {
			t.Fatalf("told %d times", len(told))
		}
		expectWords(t, told[0].String(), "nothing left to read; source end 20, mirror end 15")
		return m, q
	}
	t.Run("(i) the next record lands behind it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, q := hole(t)
			q.reset()
			time.Sleep(10 * time.Minute)
			if n := q.of("Fetcher.Fetch"); n > 60 {
				t.Errorf("%d fetches in ten minutes with nothing to read", n)
			}
			if n := len(eventsOf[mirror.NothingLeft](m.running)); n != 1 {
				t.Errorf("told %d times", n)
			}
			m.a.fill("t", 0, 1)
			m.untilOne("the next record", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 21 && !p.NothingLeft })
			m.same(0)
		})
	})
	t.Run("(ii) a failover opens behind it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, _ := hole(t)
			report, err := m.Failover(t.Context(), mirror.FailoverOptions{})
			if err != nil {
				t.Fatal(err)
			}
			p := report.Partitions[0]
			expect(t, "final offset, reset and first offset", []int64{p.FinalOffset, p.ResetAt, p.OpensAt}, []int64{15, 20, 21})
			expect(t, "missing", p.Missing.String(), "unknown, none missing when last seen")
		})
	})
}

func TestF07LogStartInsideABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.block("t", 0, 10)
		m.a.block("t", 0, 10)
		m.a.trim("t", 0, 5)
		m.start("t")
		m.inStepAndSame()
		p := m.one("t", 0)
		expect(t, "start and end", []int64{p.Start, p.End}, []int64{5, 20})
		expect(t, "first record", m.b.offsets("t", 0, 5, memlog.ReadUncommitted)[0], 5)
	})
}

// flipAt breaks a bit of the batch at an offset of one partition, as long as on says so.
func flipAt(partition int32, offset int64, on func() bool) memlog.Hooks {
	return memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
		for i := range reply {
			for info, b := range mirror.Batches(reply[i].Records) {
				if reply[i].Partition == partition && info.Base == offset && on() {
					b[len(b)-3] ^= 4
				}
			}
		}
		return reply
	}}
}

func TestF11ChecksumFailure(t *testing.T) {
	source := func(m *pair) {
		for p := range int32(2) {
			m.a.load("t", p, 0, 0, data(0, 0, 9, 10, nil), data(0, 10, 19, 10, nil), data(0, 20, 20, 1, nil))
		}
	}
	t.Run("(a) once in transit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 2)
			source(m)
			var flipped atomic.Bool
			m.a.SetHooks(flipAt(0, 10, func() bool { return flipped.CompareAndSwap(false, true) }))
			m.start("t")
			m.inStepAndSame()
			told := eventsOf[mirror.BatchRefetched](m.running)
			if len(told) != 1 || len(eventsOf[mirror.RetryScheduled](m.running)) != 0 {
				t.Fatalf("refetched %v", told)
			}
			expectWords(t, told[0].String(), "m/t-0", "CRC at 10")
		})
	})
	t.Run("(b) at every read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 2)
			source(m)
			var healed atomic.Bool
			m.a.SetHooks(flipAt(0, 10, func() bool { return !healed.Load() }))
			m.start("t")
			p := m.untilFailed("t", 0, "CRC at 10", "at the source")
			expect(t, "end", p.End, 10)
			m.untilOne("the neighbour is in step", "t", 1, inStep)
			m.a.fill("t", 1, 5)
			m.untilOne("the neighbour goes on", "t", 1, func(p mirror.PartitionStatus) bool { return p.End == 26 && inStep(p) })
			expect(t, "end", m.one("t", 0).End, 10)
			healed.Store(true)
			m.inStepAndSame()
		})
	})
}

func TestF12BatchLargerThanTheDestinationAllows(t *testing.T) {
	const limit = 1 << 20
	big := func(m *pair) {
		m.a.fill("t", 0, 100)
		m.a.fill("t", 1, 3)
		if _, err := m.a.Produce(m.t.Context(), "t", 0, memlog.Record{Value: make([]byte, 6<<20)}); err != nil {
			m.t.Fatal(err)
		}
		m.a.fill("t", 0, 1)
		m.start("t")
	}
	t.Run("known to the mirror", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 2, func(c *mirror.Config) { c.MaxBatch = limit })
			big(m)
			p := m.untilFailed("t", 0, "batch at 100 is 6291", fmt.Sprint("limit ", limit), "max.message.bytes")
			expect(t, "end", p.End, 100)
			m.untilOne("the neighbour is in step", "t", 1, inStep)
			m.running.close()
			m.running = open(t, "m", m.a.Cluster, m.b, func(c *mirror.Config) { c.MaxBatch = 8 << 20 })
			defer m.running.close()
			m.start("t")
			m.inStepAndSame()
		})
	})
	t.Run("lowered while running", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 2)
			m.b.SetMaxBatchBytes(limit)
			big(m)
			p := m.untilFailed("t", 0, "batch 100", "6291", fmt.Sprint("the limit is ", limit))
			expect(t, "end", p.End, 100)
			if p.RetryAttempt == statemachine.NonRetryable || p.NextRetry.IsZero() {
				t.Errorf("%+v is not tried again", p)
			}
			m.b.SetMaxBatchBytes(0)
			m.inStepAndSame()
			if dropped := eventsOf[mirror.RecordsDropped](m.running); len(dropped) > 0 {
				t.Errorf("dropped %v", dropped)
			}
		})
	})
}
