package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// within checks how much virtual time a call takes.
func within(t *testing.T, what string, bound time.Duration, call func()) {
	t.Helper()
	began := time.Now()
	call()
	if took := time.Since(began); took > bound {
		t.Errorf("%s took %s, the bound is %s", what, took, bound)
	}
}

// sourceCalls are the calls at which a source can swallow a request.
var sourceCalls = []string{"Source.Cluster", "Source.Topics", "Source.Offsets", "Source.EndOffsetForEpoch", "Source.OpenFetcher", "Fetcher.Fetch"}

func TestF72SourceAcceptsAndNeverAnswers(t *testing.T) {
	for _, phase := range sourceCalls {
		t.Run(phase, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newPair(t, 2)
				for p := range int32(2) {
					m.a.fill("t", p, 5)
				}
				m.start("t")
				m.inStepAndSame()
				m.pause("t")
				time.Sleep(2 * time.Minute) // the idle connection goes, so that the next one is opened anew
				q := &requests{}
				m.a.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
					q.count(c)
					if c.Operation == phase {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}})
				m.a.fill("t", 0, 5)
				m.resume("t")
				time.Sleep(10 * time.Minute)
				if q.of(phase) == 0 {
					t.Fatalf("%s was never called: %v", phase, q.n)
				}
				q.bounded(t)
				var s mirror.Status
				within(t, "Status", 0, func() { s = m.Status() })
				p := one(s, "t", 0)
				if p.Reason == "" || p.LagUnknown.IsZero() || p.LagOffsets == 0 {
					t.Errorf("shown as healthy: %s %q lag %d unknown since %s", p.State, p.Reason, p.LagOffsets, p.LagUnknown)
				}
				var report mirror.FailoverReport
				within(t, "Failover", time.Second, func() {
					var err error
					if report, err = m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
						t.Errorf("%v\n%s", err, report)
					}
				})
				expect(t, "final offset", report.Partitions[0].FinalOffset, 5)
				within(t, "Close", 0, func() { m.running.close() })
			})
		})
	}
	t.Run("from the beginning", func(t *testing.T) {
		for _, phase := range sourceCalls[:2] {
			synctest.Test(t, func(t *testing.T) {
				m := newPair(t, 1)
				q := &requests{}
				m.a.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
					q.count(c)
					if c.Operation == phase {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}})
				m.start("t")
				time.Sleep(10 * time.Minute)
				q.bounded(t)
				if s := m.Status(); len(s.Topics) != 1 || s.Topics[0].Err == nil {
					t.Errorf("%s: nothing is said: %s", phase, show(s))
				}
				ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
				defer stop()
				within(t, "Failover", 20*time.Second, func() {
					report, err := m.Failover(ctx, mirror.FailoverOptions{})
					if !errors.Is(err, mirror.ErrIncomplete) {
						t.Errorf("%s: a topic that does not exist here was failed over: %v\n%s", phase, err, report)
					}
				})
				within(t, "Close", 0, func() { m.running.close() })
			})
		}
	})
	t.Run("a call that ignores its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
			a.local("t", 1)
			never := make(chan struct{})
			src := &oddSource{at: a.Cluster, cluster: func(context.Context) (mirror.ClusterInfo, error) {
				<-never
				return mirror.ClusterInfo{}, errors.New("too late")
			}}
			m := open(t, "m", src, b)
			m.start("t")
			time.Sleep(time.Minute)
			within(t, "Close", 10*time.Second, func() {
				if err := m.Close(); err == nil || !strings.Contains(err.Error(), "did not return within 10s") {
					t.Errorf("Close says %v", err)
				}
			})
			close(never)
		})
	})
}

func TestF73LagIsUnknownWhenNothingIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 2)
		m.a.fill("t", 0, 100)
		m.a.fill("t", 1, 100)
		m.start("t")
		m.inStepAndSame()
		var denied atomic.Bool
		m.a.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
			for i := range reply {
				if denied.Load() && reply[i].Partition == 0 {
					reply[i].Records, reply[i].HighWatermark = nil, -1
					reply[i].Err = &mirror.SourceError{Code: mirror.SourceDenied, Operation: "fetch", Err: errors.New("topic authorization failed")}
				}
			}
			return reply
		}})
		denied.Store(true)
		lost := time.Now()
		for range 49 {
			m.a.block("t", 0, 100)
			time.Sleep(10 * time.Second)
			p := m.one("t", 0)
			if p.LagOffsets == 0 || p.LagOffsets == mirror.Unknown && p.LagUnknown.IsZero() || p.LagTime == 0 {
				t.Fatalf("%s after the rights went: lag %d, %s, unknown since %s", time.Since(lost), p.LagOffsets, p.LagTime, p.LagUnknown)
			}
		}
		p := m.untilFailed("t", 0, "denies reading", "grant the mirror's principal READ on topic t", "topic authorization failed")
		if p.LagUnknown.IsZero() || p.LagUnknown.After(lost.Add(time.Second)) || !p.LagUnknown.Equal(p.SourceSeen) {
			t.Errorf("lag unknown since %s, the source's end was last measured at %s", p.LagUnknown, p.SourceSeen)
		}
		if p.LagTime < 480*time.Second {
			t.Errorf("lag in time %s does not grow", p.LagTime)
		}
		expect(t, "neighbour's lag", m.one("t", 1).LagOffsets, 0)
		denied.Store(false)
		m.inStepAndSame()
		expect(t, "lag afterwards", m.one("t", 0).LagUnknown.IsZero(), true)
	})
}

func TestF74WatchdogOfAPartitionThatIsNotFetched(t *testing.T) {
	for _, again := range []bool{true, false} {
		t.Run(fmt.Sprint("again=", again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newPair(t, 8)
				var lost atomic.Int32
				if again {
					m.start("t")
					m.inStepAndSame()
				}
				m.LoseFetches(func(tp mirror.TopicPartition, next bool) bool {
					return tp.Partition == 7 && next == again && lost.CompareAndSwap(0, 1)
				})
				if !again {
					m.start("t")
				}
				for p := range int32(8) {
					m.a.fill("t", p, 1)
				}
				time.Sleep(10 * time.Second)
				for p := range int32(8) {
					m.a.fill("t", p, 1)
				}
				expect(t, "lost", lost.Load(), 1)
				p := m.untilFailed("t", 7, "no progress for", "while the source is ahead", "source end 2")
				if p.LagOffsets == 0 {
					t.Error("shown without lag")
				}
				m.inStepAndSame()
				for _, e := range eventsOf[mirror.StateChanged](m.running) {
					if e.To == statemachine.Failed && e.Partition != 7 {
						t.Errorf("a neighbour failed: %s", e)
					}
				}
			})
		})
	}
}

func TestF75OneBadPartitionDoesNotHarmTheOthers(t *testing.T) {
	// What partitions 3 to 9 get is counted in fetches that carry records, with and without bad neighbours.
	fetches := func(bad bool) (n [10]int) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 10)
			for p := range int32(10) {
				m.a.load("t", p, 0, 0, data(0, 0, 9, 10, nil))
			}
			m.start("t")
			m.inStepAndSame()
			m.b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
				if bad && c.Operation == "Log.Append" && c.Partition.Partition == 1 {
					select {
					case <-time.After(3 * time.Second):
					case <-ctx.Done():
					}
				}
				return ctx.Err()
			}})
			m.a.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
				for i := range reply {
					if len(reply[i].Records) > 0 {
						n[reply[i].Partition]++
					}
					if bad && reply[i].Partition == 0 && len(reply[i].Records) > 0 {
						reply[i].Records[len(reply[i].Records)-1] ^= 1
					}
				}
				return reply
			}})
			worst := time.Duration(0)
			for range 60 {
				for p := range int32(10) {
					m.a.fill("t", p, 1)
				}
				if bad {
					m.a.fill("t", 2, 100)
				}
				began := time.Now()
				m.until("3 to 9 are in step", func(s mirror.Status) bool {
					for p := int32(3); p < 10; p++ {
						if !inStep(one(s, "t", p)) || !bytes.Equal(m.a.raw("t", p), m.b.raw("t", p)) {
							return false
						}
					}
					return true
				})
				worst = max(worst, time.Since(began))
				time.Sleep(time.Second)
			}
			if worst > 100*time.Millisecond {
				t.Errorf("bad=%v: a good partition was %s late", bad, worst)
			}
			if bad {
				m.untilFailed("t", 0, "CRC at")
				m.untilOne("the slow one and the busy one go on", "t", 2, inStep)
				if p := m.one("t", 1); p.State != statemachine.Mirroring || p.End == 10 {
					t.Errorf("the slow one: %s, end %d", p.State, p.End)
				}
			}
		})
		return n
	}
	good, bad := fetches(false), fetches(true)
	for p := 3; p < 10; p++ {
		if bad[p] < good[p]*8/10 || bad[p] > good[p]*12/10 {
			t.Errorf("partition %d: %d fetches beside bad neighbours, %d without", p, bad[p], good[p])
		}
	}
}

func TestF81CrashAtAnyMoment(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	synctest.Test(t, func(t *testing.T) {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 81))
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		control := mirror.NewMemoryControl()
		for range 2000 {
			a.block("t", 0, 1+rng.IntN(3))
		}
		// Crashes lie at calls of the log and of the source, before or after they took effect.
		var crash atomic.Int64
		var after atomic.Bool
		fault := errors.New("the process is gone")
		ends := map[int]bool{}
		var down func()
		step := func(late bool) func(context.Context, memlog.Call) error {
			return func(ctx context.Context, c memlog.Call) error {
				if strings.HasPrefix(c.Operation, "Client.") || after.Load() != late {
					return nil
				}
				switch n := crash.Add(-1); {
				case n == 0:
					down()
					return fault
				case n < 0:
					return fault
				}
				return nil
			}
		}
		hooks := memlog.Hooks{Before: step(false), After: step(true)}
		a.SetHooks(hooks)
		b.SetHooks(hooks)
		for range 200 {
			crash.Store(1 + rng.Int64N(60))
			after.Store(rng.IntN(2) == 0)
			gone := make(chan struct{})
			down = func() { close(gone) }
			m, err := mirror.Open(t.Context(), mirror.Config{Name: "m", Source: a.Cluster, Destination: b.Cluster, Store: b.StateStore(), Sink: mirror.Discard, Seed: seed,
				Control: control, Fetch: mirror.FetchOptions{PartitionMaxBytes: 200}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Admin().Start(t.Context(), []string{"t"}, mirror.StartOptions{}); err != nil && crash.Load() > 0 {
				t.Fatal(err)
			}
			select {
			case <-gone:
			case <-time.After(time.Minute):
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			if raw, err := b.RawLog("t", 0); err == nil {
				ends[len(raw)] = true
			}
		}
		if len(ends) < 30 {
			t.Errorf("the crashes met the copy at %d ends only", len(ends))
		}
		a.SetHooks(memlog.Hooks{})
		b.SetHooks(memlog.Hooks{})
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = control })
		defer m.close()
		m.start("t")
		m.untilInStep()
		if !bytes.Equal(a.raw("t", 0), b.raw("t", 0)) {
			t.Error("the copy differs")
		}
	})
}
