package mirror_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// dropped are the ranges that were cut.
func dropped(m *running) [][2]int64 {
	var ranges [][2]int64
	for _, e := range eventsOf[mirror.RecordsDropped](m) {
		ranges = append(ranges, [2]int64{e.From, e.To})
	}
	return ranges
}

func TestF35UncleanElectionLeavesEqualLengthAndOtherBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.load("t", 0, 0, 5, records(5, 0, 100))
		m.start("t")
		m.inStepAndSame()
		if _, err := m.a.ElectUnclean("t", 0, 90); err != nil {
			t.Fatal(err)
		}
		m.a.fill("t", 0, 20)
		m.untilOne("at 110", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 110 && inStep(p) })
		m.same(0)
		expect(t, "dropped", dropped(m.running), [][2]int64{{90, 100}})
		expectWords(t, eventsOf[mirror.RecordsDropped](m.running)[0].String(), "dropped [90,100), 10 offsets", "part at 90")
	})
}

func TestF36TwoQuickElectionsNeedTwoRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.load("t", 0, 0, 4, records(1, 0, 10), records(2, 10, 15), records(4, 15, 20))
		m.start("t")
		m.inStepAndSame()
		m.pause("t")
		m.a.load("t", 0, 0, 5, records(1, 0, 10), records(2, 10, 13), records(3, 13, 21))
		m.resume("t")
		m.untilOne("at 21", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 21 && inStep(p) })
		m.same(0)
		expect(t, "dropped", dropped(m.running), [][2]int64{{13, 20}})
	})
}

func TestF38StaleRepliesAreNotUsed(t *testing.T) {
	t.Run("(a) an old reply and an old divergence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSide(t, memlog.Config{ClusterID: "A", Brokers: 2}), newSide(t, memlog.Config{ClusterID: "B"})
			a.local("t", 1)
			a.load("t", 0, 0, 5, records(5, 0, 100))
			m := open(t, "m", a.Cluster, b)
			defer m.close()
			m.start("t")
			m.untilInStep()

			// The reply with 100..109 is under way while the leader changes and the log is cut to 90.
			release := make(chan struct{})
			var held, late atomic.Bool
			a.SetHooks(memlog.Hooks{Reply: func(broker int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
				if broker != 1 || len(reply) == 0 || len(reply[0].Records) == 0 || !held.CompareAndSwap(false, true) {
					return reply
				}
				<-release
				late.Store(true)
				diverges := reply[0]
				diverges.Records, diverges.Diverging = nil, &mirror.EpochEnd{Epoch: 5, End: 80}
				return append(reply, diverges)
			}})
			a.block("t", 0, 10)
			time.Sleep(time.Second)
			if !held.Load() {
				t.Fatal("no reply is held")
			}
			if _, err := a.ElectUnclean("t", 0, 90); err != nil {
				t.Fatal(err)
			}
			a.fill("t", 0, 3)
			m.untilOne("the new leader's log is copied", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 93 && inStep(p) })
			close(release)
			time.Sleep(time.Minute)
			if !late.Load() {
				t.Fatal("the old reply never came")
			}
			expect(t, "end", m.one("t", 0).End, 93)
			expect(t, "dropped", dropped(m), [][2]int64{{90, 100}})
			if string(a.raw("t", 0)) != string(b.raw("t", 0)) {
				t.Error("the copy differs")
			}
		})
	})
	t.Run("(b) a batch of a newer epoch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 1)
			m.a.load("t", 0, 0, 6, records(6, 0, 5))
			m.start("t")
			m.inStepAndSame()
			var once atomic.Bool
			var atElection int64
			m.a.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
				if len(reply) == 1 && len(reply[0].Records) > 0 && once.CompareAndSwap(false, true) {
					// The leader is elected anew while it answers, and what it writes then is in the reply.
					if _, err := m.a.ElectLeader("t", 0); err != nil {
						panic(err)
					}
					if _, err := m.a.Produce(context.Background(), "t", 0, memlog.Record{Value: []byte("under epoch 7")}); err != nil {
						panic(err)
					}
					b, _ := m.a.RawLog("t", 0)
					for info, one := range mirror.Batches(b) {
						if info.LeaderEpoch == 7 {
							reply[0].Records = append(reply[0].Records, one...)
							atElection = info.Base
						}
					}
				}
				return reply
			}})
			m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
				if c.Operation == "Log.Append" {
					if end := m.b.log("t", 0).End(); end != 5 && end != 6 {
						t.Errorf("append at %d", end)
					}
				}
				return nil
			}})
			m.a.fill("t", 0, 1)
			m.untilOne("both are there", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 7 && inStep(p) })
			m.same(0)
			expect(t, "the newer batch's offset", atElection, 6)
			expect(t, "dropped", len(dropped(m.running)), 0)
		})
	})
}

func TestF40UnknownEpochsCutNothing(t *testing.T) {
	t.Run("(a) the source answers undefined", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
			a.local("t", 1)
			a.load("t", 0, 0, 3, records(3, 0, 50))
			var blind atomic.Bool
			src := &oddSource{at: a.Cluster}
			src.epochEnd = func(ctx context.Context, tp mirror.TopicPartition, leader, epoch int32) (mirror.EpochEnd, error) {
				if blind.Load() {
					return mirror.EpochEnd{Epoch: mirror.Unknown, End: mirror.Unknown}, nil
				}
				return a.EndOffsetForEpoch(ctx, tp, leader, epoch)
			}
			m := open(t, "m", src, b)
			defer m.close()
			m.start("t")
			m.untilInStep()
			m.pause("t")
			blind.Store(true)
			a.fill("t", 0, 5)
			m.resume("t")
			p := m.untilFailed("t", 0, "cannot prove common history", "epoch -1", "Nothing was cut")
			expect(t, "end", p.End, 50)
			blind.Store(false)
			m.untilOne("goes on by itself", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 55 && inStep(p) })
			expect(t, "dropped", len(dropped(m)), 0)
		})
	})
	t.Run("(b) the copy's last batch carries none", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 1)
			m.a.load("t", 0, 0, 0, records(-1, 0, 20))
			m.start("t")
			m.inStepAndSame()
			m.pause("t")
			m.resume("t")
			p := m.untilFailed("t", 0, "cannot prove common history", "no leader epochs", "Nothing was cut")
			expect(t, "end", p.End, 20)
		})
	})
	t.Run("(c) the source's epochs begin above ours", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 1)
			m.a.load("t", 0, 0, 7, records(7, 0, 100))
			m.start("t")
			m.inStepAndSame()
			m.pause("t")
			m.a.load("t", 0, 50, 9, records(9, 50, 200))
			m.resume("t")
			// A broker answers for an epoch below all that it knows with the start of the first one it knows (Kafka: LeaderEpochFileCache), so 50 is proved: epoch 7 had ended there.
			m.untilOne("at 200", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 200 && inStep(p) })
			m.same(0)
			expect(t, "dropped", dropped(m.running), [][2]int64{{50, 100}})
		})
	})
}

func TestF41FalseDataLoss(t *testing.T) {
	t.Run("one answer lags behind", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
			a.local("t", 1)
			a.load("t", 0, 0, 3, records(3, 0, 219))
			var lagging atomic.Bool
			src := &oddSource{at: a.Cluster}
			src.epochEnd = func(ctx context.Context, tp mirror.TopicPartition, leader, epoch int32) (mirror.EpochEnd, error) {
				if lagging.CompareAndSwap(true, false) {
					return mirror.EpochEnd{Epoch: 3, End: 163}, nil
				}
				return a.EndOffsetForEpoch(ctx, tp, leader, epoch)
			}
			m := open(t, "m", src, b)
			defer m.close()
			m.start("t")
			m.untilInStep()
			m.pause("t")
			a.fill("t", 0, 11)
			lagging.Store(true)
			m.resume("t")
			m.untilOne("at 230", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 230 && inStep(p) })
			expect(t, "the lagging answer was given", lagging.Load(), false)
			expect(t, "dropped and lost", len(dropped(m))+len(eventsOf[mirror.RecordsLost](m)), 0)
		})
	})
	t.Run("the question is not supported", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
			a.local("t", 1)
			a.fill("t", 0, 9)
			src := &oddSource{at: a.Cluster}
			src.epochEnd = func(context.Context, mirror.TopicPartition, int32, int32) (mirror.EpochEnd, error) {
				return mirror.EpochEnd{Epoch: mirror.Unknown, End: mirror.Unknown}, mirror.ErrUnsupported
			}
			m := open(t, "m", src, b)
			defer m.close()
			m.start("t")
			m.untilInStep()
			m.pause("t")
			a.fill("t", 0, 1)
			m.resume("t")
			m.untilInStep()
			p := m.one("t", 0)
			expect(t, "marked", p.NoEpochChecks, true)
			expectWords(t, mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{}).String(), "no divergence checks")
		})
	})
}
