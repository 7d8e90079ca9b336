package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// memorySink keeps the ranges that it was handed.
type memorySink struct {
	ranges [][2]int64
	bytes  []byte
}

func (s *memorySink) Dropped(_ context.Context, _ mirror.TopicPartition, from, to int64, b []byte) error {
	s.ranges = append(s.ranges, [2]int64{from, to})
	s.bytes = append(s.bytes, b...)
	return nil
}

func TestF19RetentionOvertakesTheMirror(t *testing.T) {
	overtaken := func(t *testing.T, loss mirror.LossPolicy) (*pair, *memorySink, []byte) {
		sink := &memorySink{}
		m := newPair(t, 1, func(c *mirror.Config) { c.Loss, c.Sink = loss, sink })
		m.a.fill("t", 0, 100)
		m.start("t")
		m.inStepAndSame()
		m.pause("t")
		old := m.b.raw("t", 0)
		m.a.fill("t", 0, 200)
		m.a.trim("t", 0, 150)
		m.resume("t")
		return m, sink, old
	}
	lost := func(t *testing.T, m *pair) {
		t.Helper()
		told := eventsOf[mirror.RecordsLost](m.running)
		if len(told) != 1 || told[0].From != 100 || told[0].To != 150 {
			t.Fatalf("told of losses %v", told)
		}
		expectWords(t, told[0].String(), "m/t-0: lost [100,150), 50 offsets")
		p := m.one("t", 0)
		expect(t, "lost in the status", []int64{p.LostFrom, p.LostTo}, []int64{100, 150})
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
		expectWords(t, plan.String(), "[100,150) was gone at the source before it could be copied")
	}
	t.Run("restart", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, sink, _ := overtaken(t, mirror.LossRestart)
			m.inStepAndSame()
			p := m.one("t", 0)
			expect(t, "start and end", []int64{p.Start, p.End}, []int64{150, 300})
			lost(t, m)
			expect(t, "kept in the sink", sink.ranges, [][2]int64{{0, 100}})
		})
	})
	t.Run("fail", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, sink, _ := overtaken(t, mirror.LossFail)
			p := m.untilFailed("t", 0, "starts at 150", "[100, 150)", "The copy ends at 100")
			expect(t, "attempt", p.RetryAttempt, statemachine.NonRetryable)
			expect(t, "start and end", []int64{p.Start, p.End}, []int64{0, 100})
			lost(t, m)
			time.Sleep(time.Hour)
			expect(t, "state an hour later", m.one("t", 0).State, statemachine.Failed)
			expect(t, "kept in the sink", len(sink.ranges), 0)
		})
	})
	t.Run("keep", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, sink, old := overtaken(t, mirror.LossKeep)
			p := m.untilOne("at 300", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 300 && inStep(p) })
			expect(t, "start and end", []int64{p.Start, p.End}, []int64{0, 300})
			if !bytes.Equal(m.b.raw("t", 0), append(old, m.a.raw("t", 0)...)) {
				t.Error("the copy is not the old records and then the source's")
			}
			lost(t, m)
			expect(t, "kept in the sink", len(sink.ranges), 0)
		})
	})
}

func TestF20LossAndRecreationAreNotGuessedFromOffsets(t *testing.T) {
	at300 := func(t *testing.T) *pair {
		m := newPair(t, 1)
		m.a.load("t", 0, 0, 0, records(0, 0, 300))
		m.start("t")
		m.inStepAndSame()
		expect(t, "end", m.one("t", 0).End, 300)
		return m
	}
	quiet := func(t *testing.T, m *pair) {
		t.Helper()
		if l, d := eventsOf[mirror.RecordsLost](m.running), eventsOf[mirror.RecordsDropped](m.running); len(l)+len(d) > 0 {
			t.Errorf("false alarms %v %v", l, d)
		}
	}
	t.Run("(a) compacted: the next batch is at 305", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := at300(t)
			m.a.load("t", 0, 0, 0, records(0, 0, 300), data(0, 305, 305, 1, nil))
			m.untilOne("at 306", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 306 && inStep(p) })
			m.same(0)
			quiet(t, m)
		})
	})
	t.Run("(b) a marker at 300", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 1)
			m.a.load("t", 0, 0, 0, records(0, 0, 299))
			tx := m.a.NewProducer(memlog.ProducerOptions{})
			if err := errors.Join(tx.Begin(), second(tx.Produce(t.Context(), "t", 0, memlog.Record{Value: []byte("x")}))); err != nil {
				t.Fatal(err)
			}
			m.start("t")
			m.untilOne("at 300", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 300 })
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.a.fill("t", 0, 1)
			m.untilOne("at 302", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 302 && inStep(p) })
			m.same(0)
			quiet(t, m)
		})
	})
	t.Run("(c) trimmed to 310", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := at300(t)
			m.pause("t")
			m.a.fill("t", 0, 100)
			m.a.trim("t", 0, 310)
			m.resume("t")
			m.inStepAndSame()
			told := eventsOf[mirror.RecordsLost](m.running)
			if len(told) != 1 || told[0].From != 300 || told[0].To != 310 {
				t.Errorf("told of losses %v", told)
			}
		})
	})
	t.Run("(d) recreated, and 300 is a valid offset there", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := at300(t)
			kept := m.b.raw("t", 0)
			if _, err := m.a.RecreateTopic("t", 1); err != nil {
				t.Fatal(err)
			}
			m.a.load("t", 0, 0, 0, records(0, 0, 500))
			m.untilFailed("t", 0, "topic id", "deleted and created again")
			if !bytes.Equal(kept, m.b.raw("t", 0)) {
				t.Error("the copy has changed")
			}
			if l := eventsOf[mirror.RecordsLost](m.running); len(l) > 0 {
				t.Errorf("told of losses %v", l)
			}
		})
	})
}

func second[T any](_ T, err error) error { return err }

func TestF21LogStartIsFollowedWithoutNewData(t *testing.T) {
	t.Run("(i) within one refresh", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 1)
			for range 50 {
				m.a.block("t", 0, 100)
			}
			m.start("t")
			m.inStepAndSame()
			m.a.trim("t", 0, 1000)
			time.Sleep(30 * time.Second)
			expect(t, "start", m.one("t", 0).Start, 1000)
			m.same(0)
		})
	})
	t.Run("(ii) put off until it can be", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B", Replicas: 2})
			a.local("t", 1)
			for range 30 {
				a.block("t", 0, 100)
			}
			m := open(t, "m", a.Cluster, b)
			defer m.close()
			m.start("t")
			m.untilInStep()
			if err := b.HoldReplica("t", 0, 1); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				a.block("t", 0, 100)
			}
			m.untilOne("all is copied", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 5000 })
			a.trim("t", 0, 4000)
			time.Sleep(time.Minute)
			expect(t, "start while 3000 are replicated", m.one("t", 0).Start, 3000)
			if err := b.ReleaseReplica("t", 0, 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second)
			expect(t, "start", m.one("t", 0).Start, 4000)
			expect(t, "end", m.one("t", 0).End, 5000)
		})
	})
}

func TestF23SourceStartsBeyondTheMirrorsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 100)
		m.start("t")
		m.inStepAndSame()
		m.a.load("t", 0, 400, 0, records(0, 400, 500))
		m.untilOne("there", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 500 && inStep(p) })
		m.same(0)
		expect(t, "start", m.one("t", 0).Start, 400)
		told := eventsOf[mirror.RecordsLost](m.running)
		if len(told) != 1 || told[0].From != 100 || told[0].To != 400 {
			t.Errorf("told of losses %v", told)
		}
		if got := m.b.offsets("t", 0, 400, memlog.ReadUncommitted); got[0] != 400 || len(got) != 100 {
			t.Errorf("a consumer gets %v", got)
		}
	})
}

func TestF24LookUpByTimeBeyondTheLastRecordIsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide(t, memlog.Config{ClusterID: "A"})
		a.local("t", 2)
		a.fill("t", 0, 7)
		tps := []mirror.TopicPartition{{Topic: "t"}, {Topic: "t", Partition: 1}, {Topic: "t", Partition: 2}}
		found, err := a.OffsetsAt(t.Context(), time.Now().Add(time.Hour), tps)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "offsets", []int64{found[tps[0]].HighWatermark, found[tps[1]].HighWatermark, found[tps[2]].HighWatermark}, []int64{7, 0, mirror.Unknown})
		var wrong *mirror.SourceError
		if !errors.As(found[tps[2]].Err, &wrong) || wrong.Code != mirror.SourceUnknownTopic {
			t.Errorf("a partition that does not exist answers %v", found[tps[2]].Err)
		}
	})
}

func TestF26ElectionAnswersAreNotTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 50)
		m.start("t")
		m.inStepAndSame()
		var phase, fetches atomic.Int32
		m.a.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
			fetches.Add(1)
			for i := range reply {
				p := &reply[i]
				switch phase.Load() {
				case 1:
					*p = mirror.FetchedPartition{TopicPartition: p.TopicPartition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, HighWatermark: -1, LastStable: -1, LogStart: -1,
						Err: &mirror.SourceError{Code: mirror.SourceNotLeader, Operation: "fetch", Err: errors.New("not leader or follower")}}
				case 2:
					*p = mirror.FetchedPartition{TopicPartition: p.TopicPartition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, HighWatermark: -1, LastStable: -1, LogStart: -1,
						Err: &mirror.SourceError{Code: mirror.SourceOffsetsNotReady, Operation: "fetch", Err: errors.New("offset not available")}}
				case 3:
					p.HighWatermark, p.LastStable, p.Records = 35, 35, nil
				}
			}
			return reply
		}})
		phase.Store(1)
		m.a.fill("t", 0, 10)
		time.Sleep(2 * time.Second)
		phase.Store(2)
		time.Sleep(2 * time.Second)
		phase.Store(3)
		m.a.fill("t", 0, 1)
		fetches.Store(0)
		time.Sleep(2 * time.Second)
		if n := fetches.Load(); n > 40 {
			t.Errorf("%d fetches in two seconds", n)
		}
		if p := m.one("t", 0); p.End < 50 {
			t.Fatalf("cut to %d", p.End)
		}
		phase.Store(0)
		m.untilOne("all", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 61 && inStep(p) })
		m.same(0)
		if l, d := eventsOf[mirror.RecordsLost](m.running), eventsOf[mirror.RecordsDropped](m.running); len(l)+len(d) > 0 {
			t.Errorf("false alarms %v %v", l, d)
		}
	})
}
