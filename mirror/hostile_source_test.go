package mirror_test

import (
	"bytes"
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

type (
	offsetsOf = map[mirror.TopicPartition]mirror.SourceOffsets
	fetched   = []mirror.FetchedPartition
)

// everyReply lets change alter what the source answers for partition 0 of "t".
func everyReply(change func(*mirror.FetchedPartition)) memlog.Hooks {
	return memlog.Hooks{Reply: func(_ int32, reply fetched) fetched {
		for i := range reply {
			if reply[i].Topic == "t" && reply[i].Partition == 0 {
				change(&reply[i])
			}
		}
		return reply
	}}
}

// oneReply alters the first reply that carries records.
func oneReply(done *atomic.Bool, change func(*mirror.FetchedPartition)) memlog.Hooks {
	return everyReply(func(p *mirror.FetchedPartition) {
		if len(p.Records) > 0 && done.CompareAndSwap(false, true) {
			p.Records = bytes.Clone(p.Records)
			change(p)
		}
	})
}

// After an election the source answers list-offsets with a log start above its high watermark.
func TestImpossibleLogStartDropsNothingAndIsNotAskedWithoutPause(t *testing.T) {
	for _, start := range []int64{100, 1 << 60, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
			a.local("t", 1)
			a.fill("t", 0, 10)
			var odd atomic.Bool
			var asked atomic.Int64
			src := &oddSource{at: a.Cluster, offsets: func(ctx context.Context, tps []mirror.TopicPartition) (offsetsOf, error) {
				answer, err := a.Offsets(ctx, tps)
				if odd.Load() {
					if asked.Add(1) == 10_000 {
						odd.Store(false) // ends a loop without a pause, which virtual time would not
					}
					for tp, o := range answer {
						o.LogStart = start
						answer[tp] = o
					}
				}
				return answer, err
			}}
			m := open(t, "m", src, b)
			defer m.close()
			m.start("t")
			m.untilInStep()
			odd.Store(true)
			if _, err := a.ElectLeader("t", 0); err != nil {
				t.Fatal(err)
			}
			a.fill("t", 0, 1)
			for range 90 {
				time.Sleep(time.Second) // virtual
				if p := m.one("t", 0); p.Start != 0 || p.End < 10 {
					t.Fatalf("the copy is [%d,%d) after an impossible log start %d", p.Start, p.End, start)
				}
			}
			if n := asked.Load(); n == 0 || n > 60 {
				t.Errorf("%d list-offsets requests in 90 s", n)
			}
			// The source dies while it answers so: the copy is what there is.
			a.SetUnreachable(true)
			if report, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
				t.Fatalf("%v\n%s", err, report)
			}
			if n := len(b.offsets("t", 0, 0, memlog.ReadUncommitted)); n < 10 {
				t.Errorf("%d of 10 records are left", n)
			}
		})
	}
}

func TestImpossibleLogStartIsForgottenWhenTheSourceIsWellAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 10)
		var odd atomic.Bool
		var asked atomic.Int64
		src := &oddSource{at: a.Cluster, offsets: func(ctx context.Context, tps []mirror.TopicPartition) (offsetsOf, error) {
			answer, err := a.Offsets(ctx, tps)
			for tp, o := range answer {
				if odd.Load() && asked.Add(1) < 10_000 { // ends a loop without a pause, which virtual time would not
					o.LogStart = 100
					answer[tp] = o
				}
			}
			return answer, err
		}}
		m := &pair{running: open(t, "m", src, b), a: a, b: b}
		defer m.close()
		m.start("t")
		m.inStepAndSame()
		odd.Store(true)
		if _, err := a.ElectLeader("t", 0); err != nil {
			t.Fatal(err)
		}
		a.fill("t", 0, 1)
		time.Sleep(time.Minute) // virtual
		if n := asked.Load(); n == 0 || n > 60 {
			t.Errorf("%d list-offsets requests in a minute", n)
		}
		odd.Store(false)
		m.until("all there", func(s mirror.Status) bool { return one(s, "t", 0).End == 11 })
		m.inStepAndSame()
	})
}

func TestLogStartAboveTheHighWatermarkInOneReplyMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 10)
		m.start("t")
		m.inStepAndSame()
		var done atomic.Bool
		m.a.SetHooks(everyReply(func(p *mirror.FetchedPartition) {
			if done.CompareAndSwap(false, true) {
				p.LogStart, p.HighWatermark = 9, 3
			}
		}))
		m.a.fill("t", 0, 1)
		time.Sleep(time.Minute) // virtual
		expect(t, "such a reply was given", done.Load(), true)
		expect(t, "start", m.one("t", 0).Start, 0)
		m.inStepAndSame()
	})
}

// No checksum covers a base offset. One bit of it is flipped on the way: 10 becomes 26, and the high watermark is 11.
func TestF11BatchAboveTheHighWatermarkIsNotAppendedAndTheNextReplyHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 10)
		m.start("t")
		m.inStepAndSame()
		var done atomic.Bool
		m.a.SetHooks(oneReply(&done, func(p *mirror.FetchedPartition) { p.Records[7] ^= 16 }))
		m.a.fill("t", 0, 1)
		time.Sleep(10 * time.Second) // virtual
		expect(t, "flipped", done.Load(), true)
		expect(t, "end", m.one("t", 0).End, 11)
		m.a.fill("t", 0, 30)
		m.until("all there", func(s mirror.Status) bool { return one(s, "t", 0).End == 41 })
		m.inStepAndSame()
	})
}

// No checksum covers the magic byte either.
func TestF15MagicByteFlippedOnceHeals(t *testing.T) {
	for _, bit := range []byte{1, 2, 4, 128} {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 1)
			m.a.fill("t", 0, 10)
			m.start("t")
			m.inStepAndSame()
			var done atomic.Bool
			m.a.SetHooks(oneReply(&done, func(p *mirror.FetchedPartition) { p.Records[16] ^= bit }))
			m.a.fill("t", 0, 1)
			time.Sleep(10 * time.Minute) // virtual
			expect(t, "flipped", done.Load(), true)
			if p := m.one("t", 0); p.End != 11 {
				t.Errorf("bit %d: end %d, %s attempt %d: %s", bit, p.End, p.State, p.RetryAttempt, p.Reason)
			}
			m.inStepAndSame()
		})
	}
}

// Replies that nobody wants come at once, for ever. Fetching is bounded all the same: about two a second, and the partition beside is served.
func TestUnwantedRepliesAreNotAskedForWithoutPause(t *testing.T) {
	stray := func(p mirror.FetchedPartition, records []byte) fetched {
		p.HighWatermark, p.LastStable, p.Records = 6, 6, bytes.Clone(records)
		return fetched{p}
	}
	at := mirror.TopicPartition{Topic: "t"}
	for name, answer := range map[string]func(reply fetched, old []byte) fetched{
		"of a topic that was not asked for": func(_ fetched, old []byte) fetched {
			return stray(mirror.FetchedPartition{TopicPartition: mirror.TopicPartition{Topic: "other"}, Offset: 5}, old)
		},
		"of an offset that was not asked for": func(_ fetched, old []byte) fetched {
			return stray(mirror.FetchedPartition{TopicPartition: at, Offset: 3}, old)
		},
		"of a leader epoch that was not asked for": func(_ fetched, old []byte) fetched {
			return stray(mirror.FetchedPartition{TopicPartition: at, Offset: 5, LeaderEpoch: 77}, old)
		},
		"what is there already": func(_ fetched, old []byte) fetched {
			return stray(mirror.FetchedPartition{TopicPartition: at, Offset: 5}, old)
		},
		"what is there already, beside good ones": func(reply fetched, old []byte) fetched {
			for i := range reply {
				if reply[i].Partition == 0 {
					reply[i].Records = bytes.Clone(old)
				}
			}
			return reply
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newPair(t, 2)
				m.a.fill("t", 0, 5)
				m.a.fill("t", 1, 5)
				m.start("t")
				m.inStepAndSame()
				old := m.a.raw("t", 0)
				var replies atomic.Int64
				m.a.SetHooks(memlog.Hooks{Reply: func(_ int32, reply fetched) fetched {
					if replies.Add(1) > 10_000 {
						return reply // ends a loop without a pause, which virtual time would not
					}
					return answer(reply, old)
				}})
				m.a.fill("t", 0, 1)
				time.Sleep(time.Minute) // virtual
				if n := replies.Load(); n < 10 || n > 200 {
					t.Errorf("%d replies in a minute", n)
				}
				m.a.SetHooks(memlog.Hooks{})
				m.until("all there", func(s mirror.Status) bool { return one(s, "t", 0).End == 6 })
				m.inStepAndSame()
			})
		})
	}
}

func TestF74NoProgressGetsAReasonAfterTheWatchdogsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = 2 * time.Minute
		m := newPair(t, 2, func(c *mirror.Config) { c.WatchdogAfter = after })
		m.a.fill("t", 0, 5)
		m.a.fill("t", 1, 5)
		m.start("t")
		m.inStepAndSame()
		old := m.a.raw("t", 0)
		m.a.SetHooks(everyReply(func(p *mirror.FetchedPartition) { p.Records = bytes.Clone(old) }))
		m.a.fill("t", 0, 1)
		began := time.Now()
		p := m.untilOne("with a reason", "t", 0, func(p mirror.PartitionStatus) bool {
			m.a.fill("t", 1, 1)
			return p.Reason != ""
		})
		if took := time.Since(began); took < after || took > 2*after {
			t.Errorf("%q after %s", p.Reason, took)
		}
		expect(t, "end", p.End, 5)
		m.a.SetHooks(memlog.Hooks{})
		m.until("all there", func(s mirror.Status) bool { return one(s, "t", 0).End == 6 })
		m.inStepAndSame()
		expect(t, "reason", m.one("t", 0).Reason, "")
	})
}

// Behind an offset near 2^63 there is no room for the markers of a stop. Such a batch is refused with a reason, and the stop ends.
func TestOffsetsNearTheHighestAreRefusedAndTheStopStillEnds(t *testing.T) {
	for below := int64(1); below < 6; below++ {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 1)
			at := math.MaxInt64 - below
			m.a.load("t", 0, at, 4, data(4, at, at, 1, &producer{id: 7, open: true}))
			m.start("t")
			m.until("with a reason", func(s mirror.Status) bool { return one(s, "t", 0).Reason != "" })
			expectWords(t, m.one("t", 0).Reason, "no offset left for the markers that end a mirror", "look at the partition at the source")
			m.a.SetUnreachable(true)
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
			defer stop()
			report, err := m.Failover(ctx, mirror.FailoverOptions{})
			if err != nil {
				t.Fatalf("%v\n%s", err, report)
			}
			next := at
			for info, b := range mirror.Batches(m.b.raw("t", 0)) {
				if info.Base < next || info.Last < info.Base {
					t.Errorf("%s at %d … %d, behind %d", mirror.Kind(b), info.Base, info.Last, next)
				}
				next = info.Last
			}
		})
	}
}

// A leader epoch at the very end of its range leaves no higher one for the markers: the log's epochs must not fall even then.
func TestSpec4HighestLeaderEpochsDoNotFall(t *testing.T) {
	for below := int32(0); below < 4; below++ {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 1)
			epoch := math.MaxInt32 - below
			m.a.load("t", 0, 0, epoch, data(epoch, 0, 0, 1, &producer{id: 7, open: true}))
			m.start("t")
			m.untilInStep()
			m.a.SetUnreachable(true)
			if report, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
				t.Fatalf("%v\n%s", err, report)
			}
			last, markers := epoch, 0
			for info := range mirror.Batches(m.b.raw("t", 0)) {
				if info.LeaderEpoch < last {
					t.Errorf("leader epoch %d at %d behind %d", info.LeaderEpoch, info.Base, last)
				}
				if last = info.LeaderEpoch; info.Control {
					markers++
				}
			}
			expect(t, "markers", markers, 2)
		})
	}
}

// Each of these sources answers one question otherwise than it should, for five minutes. It is not flooded, a reason is shown where nothing can be copied, and
// mirroring begins or goes on by itself as soon as it answers well.
func TestHostileSourceAnswers(t *testing.T) {
	topics := func(change func([]mirror.SourceTopic) []mirror.SourceTopic) func(*oddSource, *memlog.Cluster, *atomic.Bool) {
		return func(o *oddSource, a *memlog.Cluster, odd *atomic.Bool) {
			o.topics = func(ctx context.Context, names ...string) ([]mirror.SourceTopic, error) {
				found, err := a.Topics(ctx, names...)
				if err == nil && odd.Load() {
					found = change(found)
				}
				return found, err
			}
		}
	}
	offsets := func(answer offsetsOf) func(*oddSource, *memlog.Cluster, *atomic.Bool) {
		return func(o *oddSource, a *memlog.Cluster, odd *atomic.Bool) {
			o.offsets = func(ctx context.Context, tps []mirror.TopicPartition) (offsetsOf, error) {
				if odd.Load() {
					return answer, nil
				}
				return a.Offsets(ctx, tps)
			}
		}
	}
	epochEnds := func(answer func(epoch int32) mirror.EpochEnd) func(*oddSource, *memlog.Cluster, *atomic.Bool) {
		return func(o *oddSource, a *memlog.Cluster, odd *atomic.Bool) {
			o.epochEnd = func(ctx context.Context, tp mirror.TopicPartition, leaderEpoch, epoch int32) (mirror.EpochEnd, error) {
				if odd.Load() {
					return answer(epoch), nil
				}
				return a.EndOffsetForEpoch(ctx, tp, leaderEpoch, epoch)
			}
		}
	}
	for name, c := range map[string]struct {
		set    func(*oddSource, *memlog.Cluster, *atomic.Bool)
		reason []string // of the topic or its partition; nil: it mirrors
	}{
		"negative partition count": {topics(func(found []mirror.SourceTopic) []mirror.SourceTopic {
			return []mirror.SourceTopic{{Topic: mirror.Topic{Name: "t", Partitions: -3}}}
		}), []string{"with -3"}},
		"no partitions": {topics(func(found []mirror.SourceTopic) []mirror.SourceTopic {
			return []mirror.SourceTopic{{Topic: mirror.Topic{Name: "t"}}}
		}), []string{"at least one partition"}},
		"another topic": {topics(func(found []mirror.SourceTopic) []mirror.SourceTopic {
			return []mirror.SourceTopic{{Topic: mirror.Topic{Name: "u", Partitions: 1}}}
		}), []string{`unknown topic "t"`}},
		"no leaders": {topics(func(found []mirror.SourceTopic) []mirror.SourceTopic {
			for i := range found {
				found[i].Leaders = nil
			}
			return found
		}), []string{"no such partition at the source"}},
		"leaders of partitions that do not exist": {topics(func(found []mirror.SourceTopic) []mirror.SourceTopic {
			for i := range found {
				found[i].Leaders = append([]mirror.SourcePartition{{Partition: -7, Leader: 1}, {Partition: 99, Leader: 1}}, found[i].Leaders...)
			}
			return found
		}), nil},
		"no offsets": {offsets(nil), []string{"no answer for this partition"}},
		"negative offsets": {offsets(offsetsOf{{Topic: "t"}: {LogStart: -5, HighWatermark: math.MinInt64, LeaderEpoch: -8}}),
			[]string{"does not tell where its log starts"}},
		"negative end of an epoch":       {epochEnds(func(epoch int32) mirror.EpochEnd { return mirror.EpochEnd{Epoch: epoch, End: math.MinInt64} }), nil},
		"epoch that was not asked about": {epochEnds(func(epoch int32) mirror.EpochEnd { return mirror.EpochEnd{Epoch: epoch + 1, End: 3} }), nil},
		"no cluster id": {func(o *oddSource, a *memlog.Cluster, odd *atomic.Bool) {
			o.cluster = func(ctx context.Context) (mirror.ClusterInfo, error) {
				info, err := a.Cluster(ctx)
				if odd.Load() {
					info = mirror.ClusterInfo{}
				}
				return info, err
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
				q := &requests{}
				a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error { q.count(c); return nil }})
				a.local("t", 1)
				a.fill("t", 0, 10)
				var odd atomic.Bool
				odd.Store(true)
				src := &oddSource{at: a.Cluster}
				c.set(src, a.Cluster, &odd)
				m := &pair{running: open(t, "m", src, b), a: a, b: b}
				defer m.close()
				m.start("t")
				time.Sleep(5 * time.Minute) // virtual
				s := m.Status()
				if c.reason == nil {
					expect(t, "end", one(s, "t", 0).End, 10)
				} else if s.Topics[0].Err != nil {
					expectWords(t, s.Topics[0].Err.Error(), c.reason...)
				} else {
					expectWords(t, one(s, "t", 0).Reason, c.reason...)
				}
				// An election, so that epochs are asked about too.
				if _, err := a.ElectLeader("t", 0); err != nil {
					t.Fatal(err)
				}
				a.fill("t", 0, 1)
				q.reset()
				time.Sleep(5 * time.Minute) // virtual
				for _, operation := range []string{"Source.Topics", "Source.Offsets", "Source.EndOffsetForEpoch", "Source.OpenFetcher"} {
					if n := q.of(operation); n > 40 {
						t.Errorf("%s: %d times in five minutes", operation, n)
					}
				}
				odd.Store(false)
				m.until("all there", func(s mirror.Status) bool { return one(s, "t", 0).End == 11 })
				m.inStepAndSame()
			})
		})
	}
}
