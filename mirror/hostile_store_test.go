package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// oddStore is a store that answers otherwise than it should. Nil functions ask the real one.
type oddStore struct {
	statemachine.StateStore
	write func(context.Context, statemachine.Session, []statemachine.Write) ([]statemachine.WriteResult, error)
	load  func(context.Context, statemachine.Session, func(statemachine.Entry) error) error
}

type oddSession struct {
	statemachine.Session
	s *oddStore
}

func (s *oddStore) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	session, err := s.StateStore.Open(ctx, owner)
	return &oddSession{session, s}, err
}

func (s *oddSession) Write(ctx context.Context, writes []statemachine.Write) ([]statemachine.WriteResult, error) {
	if s.s.write != nil {
		return s.s.write(ctx, s.Session, writes)
	}
	return s.Session.Write(ctx, writes)
}

func (s *oddSession) Load(ctx context.Context, each func(statemachine.Entry) error) error {
	if s.s.load != nil {
		return s.s.load(ctx, s.Session, each)
	}
	return s.Session.Load(ctx, each)
}

func TestStoreHiccupsDoNotFence(t *testing.T) {
	for name, loads := range map[string]int32{"the read behind it answers": 0, "the read behind it fails once": 1, "the read behind it fails often": 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var late atomic.Bool
				var failing, failed atomic.Int32
				store := &oddStore{
					write: func(ctx context.Context, s statemachine.Session, writes []statemachine.Write) ([]statemachine.WriteResult, error) {
						results, err := s.Write(ctx, writes)
						if err == nil && late.CompareAndSwap(true, false) {
							failing.Store(loads)
							return nil, errors.New("timed out after the effect")
						}
						return results, err
					},
					load: func(ctx context.Context, s statemachine.Session, each func(statemachine.Entry) error) error {
						if failing.Add(-1) >= 0 {
							failed.Add(1)
							return errors.New("timed out reading")
						}
						return s.Load(ctx, each)
					},
				}
				m := newPair(t, 2, func(c *mirror.Config) { store.StateStore, c.Store = c.Store, store })
				m.a.fill("t", 0, 5)
				m.start("t")
				m.inStepAndSame()
				m.a.SetUnreachable(true)
				late.Store(true)
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				if report, err := m.Failover(ctx, mirror.FailoverOptions{}); err != nil {
					t.Errorf("%v\n%s%s", err, report, show(m.Status()))
				}
				if late.Load() || failed.Load() != loads {
					t.Errorf("the store failed %d reads, want %d; the write has failed: %v", failed.Load(), loads, !late.Load())
				}
				s := m.Status()
				expect(t, "fenced", s.Fenced, nil)
				expect(t, "halted", one(s, "t", 0).Halted || one(s, "t", 1).Halted, false)
				expect(t, "events", len(eventsOf[mirror.Fenced](m.running)), 0)
			})
		})
	}
}

func TestStoreThatAnswersTooFewResultsIsAskedAgain(t *testing.T) {
	for name, cut := range map[string]func([]statemachine.WriteResult) []statemachine.WriteResult{
		"none":      func([]statemachine.WriteResult) []statemachine.WriteResult { return nil },
		"all but 1": func(r []statemachine.WriteResult) []statemachine.WriteResult { return r[:max(0, len(r)-1)] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var odd atomic.Bool
				odd.Store(true)
				var tries atomic.Int64
				store := &oddStore{write: func(ctx context.Context, s statemachine.Session, writes []statemachine.Write) ([]statemachine.WriteResult, error) {
					tries.Add(1)
					results, err := s.Write(ctx, writes)
					if err == nil && odd.Load() {
						results = cut(results)
					}
					return results, err
				}}
				m := newPair(t, 1, func(c *mirror.Config) { store.StateStore, c.Store = c.Store, store })
				m.a.fill("t", 0, 5)
				m.start("t")
				time.Sleep(time.Minute) // virtual
				p := m.one("t", 0)
				expectWords(t, p.Reason, "state store", "answered 0 of 1 writes")
				expect(t, "end", p.End, 0)
				if n := tries.Load(); n < 2 || n > 30 {
					t.Errorf("%d writes in a minute", n)
				}
				odd.Store(false)
				m.inStepAndSame()
				expect(t, "reason", m.one("t", 0).Reason, "")
				expect(t, "fenced", m.Status().Fenced, nil)
			})
		})
	}
}

// withRecord is a pair whose store claims to hold one more record, of partition 0 of "t".
func withRecord(t *testing.T, record statemachine.PartitionState) (m *running, a, b *side) {
	t.Helper()
	return withRefusal(t, record, nil)
}

// withRefusal is withRecord with a store that refuses every write of that record, if refusal is not nil.
func withRefusal(t *testing.T, record statemachine.PartitionState, refusal error) (m *running, a, b *side) {
	t.Helper()
	a, b = newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
	a.local("t", 1)
	a.fill("t", 0, 5)
	topic, err := b.CreateTopic(t.Context(), mirror.TopicSpec{Name: "t", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	store := &oddStore{
		StateStore: b.StateStore(),
		write: func(ctx context.Context, s statemachine.Session, writes []statemachine.Write) ([]statemachine.WriteResult, error) {
			for i := range writes {
				writes[i].ExpectedStateEpoch = -1 // the record is not really there
			}
			results, err := s.Write(ctx, writes)
			for i := range results {
				if refusal != nil && writes[i].Key.TopicID == topic.ID {
					results[i] = statemachine.WriteResult{Err: refusal}
				}
			}
			return results, err
		},
		load: func(ctx context.Context, s statemachine.Session, each func(statemachine.Entry) error) error {
			if err := s.Load(ctx, each); err != nil {
				return err
			}
			return each(statemachine.Entry{Key: statemachine.Key{Mirror: "m", TopicID: topic.ID}, Owner: "m", State: record})
		},
	}
	m = open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Store = store })
	t.Cleanup(m.close)
	m.start("t")
	time.Sleep(time.Minute) // virtual
	return m, a, b
}

// endsOrHalts checks that a failover completes within a bound, or that the partition is halted and the report says so.
func (r *running) endsOrHalts() {
	r.t.Helper()
	ctx, stop := context.WithTimeout(r.t.Context(), 5*time.Minute)
	defer stop()
	report, err := r.Failover(ctx, mirror.FailoverOptions{})
	if err == nil {
		return
	}
	p := r.one("t", 0)
	if !p.Halted || ctx.Err() != nil {
		r.t.Errorf("halted %v: %v\n%s%s", p.Halted, err, report, show(r.Status()))
	}
	expectWords(r.t, report.String(), "not served by this process any more", "NOT OPEN")
}

func TestStrangeStateRecordsDoNotPreventAFailover(t *testing.T) {
	for name, record := range map[string]statemachine.PartitionState{
		"failed out of failed":  {State: statemachine.Failed, StateEpoch: 1, Episode: 1, PreviousState: statemachine.Failed, RetryAttempt: 3},
		"failed out of stopped": {State: statemachine.Failed, StateEpoch: 1, Episode: 1, PreviousState: statemachine.Stopped, RetryAttempt: 3},
		"lowest attempt":        {State: statemachine.Failed, StateEpoch: 1, Episode: 1, PreviousState: statemachine.Mirroring, RetryAttempt: math.MinInt16},
		"highest attempt":       {State: statemachine.Failed, StateEpoch: 1, Episode: 1, PreviousState: statemachine.Mirroring, RetryAttempt: math.MaxInt16},
		"no known state":        {State: 99, StateEpoch: 1, Episode: 1, PreviousState: 77},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, a, b := withRecord(t, record)
				a.SetUnreachable(true)
				ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
				defer stop()
				if report, err := m.Failover(ctx, mirror.FailoverOptions{}); err != nil {
					t.Fatalf("%v\n%s%s", err, report, show(m.Status()))
				}
				b.produce("t", 0, "a client's")
			})
		})
	}
}

func TestAHaltedPartitionIsShownAndReportedAndFencesNotTheWholeMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The store has taken a write of a higher leader epoch than this process has had the log under: somebody else serves this partition.
		record := statemachine.PartitionState{State: statemachine.Mirroring, LeaderEpoch: -1, StateEpoch: 1, Episode: 1, PreviousState: statemachine.Unknown}
		m, a, b := withRefusal(t, record, fmt.Errorf("%w: leader epoch 2, but 2147483647 has written", statemachine.ErrFenced))
		a.local("u", 1)
		a.fill("u", 0, 3)
		m.start("u")
		m.until("u in step", func(s mirror.Status) bool { return inStep(one(s, "u", 0)) })
		a.SetUnreachable(true)
		began := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		report, err := m.Failover(ctx, mirror.FailoverOptions{})
		if !errors.Is(err, mirror.ErrIncomplete) || time.Since(began) > time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		p := m.one("t", 0)
		expect(t, "halted", p.Halted, true)
		expectWords(t, p.Reason, "not served by this process any more", "leader epoch 2, but 2147483647 has written")
		for _, r := range report.Partitions {
			if r.Topic == "t" {
				if r.Err == nil {
					t.Fatalf("the report calls it open\n%s", report)
				}
				expectWords(t, r.Err.Error(), "t-0", "not served by this process any more")
			} else if r.Err != nil {
				t.Errorf("u is harmed: %v", r.Err)
			}
		}
		expectWords(t, report.String(), "1 of 2 partitions open for clients", "NOT OPEN", "not served by this process any more")
		expect(t, "the whole mirror is fenced", m.Status().Fenced, nil)
		expect(t, "u halted", m.one("u", 0).Halted, false)
		if _, err := b.Produce(t.Context(), "t", 0, memlog.Record{Value: []byte("x")}); err == nil {
			t.Error("a client could write into the halted partition")
		}
		b.produce("u", 0, "a client's")
	})
}

func TestRandomStateRecordsEndInAFailoverOrAHalt(t *testing.T) {
	seeded(t, func(t *testing.T, rng *rand.Rand) {
		odd := func() int32 {
			return []int32{-1, 0, 1, 3, math.MaxInt32, math.MinInt32, int32(rng.IntN(200)) - 100}[rng.IntN(7)]
		}
		record := statemachine.PartitionState{
			State: statemachine.State(rng.IntN(12)), PreviousState: statemachine.State(rng.IntN(12)), LeaderEpoch: odd(), StateEpoch: odd(), Episode: odd(), RetryAttempt: int16(odd()),
		}
		t.Logf("%+v", record)
		m, a, _ := withRecord(t, record)
		a.SetUnreachable(true)
		m.endsOrHalts()
	})
}
