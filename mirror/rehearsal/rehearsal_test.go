package rehearsal_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/mirror/rehearsal"
	"github.com/clustermirror/clustermirror/statemachine"
)

// world is a mirror of two topics, one of which is the canary, and what becomes of its records.
type world struct {
	t       *testing.T
	a, b    *memlog.Cluster
	m       *mirror.Mirror
	dropped atomic.Int64
	away    atomic.Bool // the source does not answer the mirror
}

const canary = "canary"

func newWorld(t *testing.T) *world {
	w := &world{t: t, a: memlog.New(memlog.Config{ClusterID: "A"}), b: memlog.New(memlog.Config{ClusterID: "B"})}
	t.Cleanup(func() { w.a.Close(); w.b.Close() })
	w.a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
		if w.away.Load() && (strings.HasPrefix(c.Operation, "Source.") || strings.HasPrefix(c.Operation, "Fetcher.")) {
			return &mirror.SourceError{Code: mirror.SourceUnreachable, Operation: c.Operation, Err: errors.New("no route")}
		}
		return nil
	}})
	for _, topic := range []string{canary, "orders"} {
		if _, err := w.a.CreateLocalTopic(memlog.LocalTopic{Name: topic, Partitions: 2}); err != nil {
			t.Fatal(err)
		}
		for p := range int32(2) {
			w.write(w.a, topic, p)
			w.write(w.a, topic, p)
		}
	}
	m, err := mirror.Open(t.Context(), mirror.Config{Name: "m", Source: w.a, Destination: w.b, Store: w.b.StateStore(), Seed: 1, OldSourceInterval: -1,
		Sink: w})
	if err != nil {
		t.Fatal(err)
	}
	w.m = m
	t.Cleanup(func() { m.Close() })
	if _, err := m.Admin().Start(t.Context(), []string{canary, "orders"}, mirror.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilInStep()
	return w
}

// Dropped is a Sink that counts.
func (w *world) Dropped(_ context.Context, _ mirror.TopicPartition, from, to int64, _ []byte) error {
	w.dropped.Add(to - from)
	return nil
}

func (w *world) write(c *memlog.Cluster, topic string, partition int32) {
	w.t.Helper()
	if _, err := c.Produce(w.t.Context(), topic, partition, memlog.Record{Value: []byte(topic)}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) untilInStep() {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.t.Context(), 10*time.Minute)
	defer stop()
	if err := w.m.Await(ctx, func(s mirror.Status) bool {
		if len(s.Topics) != 2 {
			return false
		}
		for _, topic := range s.Topics {
			for _, p := range topic.Partitions {
				if p.State != statemachine.Mirroring || p.LagOffsets != 0 {
					return false
				}
			}
			if len(topic.Partitions) != 2 {
				return false
			}
		}
		return true
	}); err != nil {
		w.t.Fatal(err)
	}
}

// state of the first partition of a topic.
func (w *world) state(topic string) statemachine.State {
	for _, t := range w.m.Status().Topics {
		if t.Topic == topic {
			return t.Partitions[0].State
		}
	}
	return statemachine.Unknown
}

func (w *world) options() rehearsal.Options {
	return rehearsal.Options{Mirror: w.m, Topic: canary, Write: func(ctx context.Context, topic string, p int32) error {
		_, err := w.b.Produce(ctx, topic, p, memlog.Record{Value: []byte("rehearsal")})
		return err
	}}
}

func (w *world) same(topic string) {
	w.t.Helper()
	for p := range int32(2) {
		a, err := w.a.RawLog(topic, p)
		b, err2 := w.b.RawLog(topic, p)
		if err != nil || err2 != nil || !bytes.Equal(a, b) {
			w.t.Errorf("%s-%d differs: %v %v", topic, p, err, err2)
		}
	}
}

// TestAcceptance4_12ARehearsalFailsTheCanaryOverAndBack: and leaves every byte as it was, of the canary and of the topic beside it; as often as one likes.
func TestAcceptance4_12ARehearsalFailsTheCanaryOverAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 3 {
			r, err := rehearsal.Rehearse(t.Context(), w.options())
			if err != nil || !r.Good() || r.Left != "" {
				t.Fatalf("%v\n%v", err, r)
			}
			var steps []rehearsal.Step
			for _, s := range r.Steps {
				steps = append(steps, s.Step)
			}
			if len(steps) != len(rehearsal.Steps()) || steps[4] != rehearsal.Failback || len(r.Failover.Partitions) != 2 || len(r.Failback.Partitions) != 2 {
				t.Errorf("%v", r)
			}
			if r.GivenUp != w.dropped.Swap(0) || r.GivenUp < 8 { // of each partition two records of the source, the reset, and the rehearsal's
				t.Errorf("%d offsets are told as given up", r.GivenUp)
			}
			for _, words := range []string{"REHEARSAL  mirror m  topic canary", "GOOD", "failover ", "plan failback ", "given up"} {
				if !strings.Contains(r.String(), words) {
					t.Errorf("%q lacks %q", r.String(), words)
				}
			}
			w.same(canary)
			w.same("orders")
			if w.state("orders") != statemachine.Mirroring {
				t.Error("the topic beside it was touched")
			}
			w.write(w.a, canary, int32(i%2))
			w.untilInStep()
		}
	})
}

// TestAcceptance4_12ACanaryThatIsNotInStepIsLeftAlone: and so is one that there is not.
func TestAcceptance4_12ACanaryThatIsNotInStepIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.options()
		o.Topic = "not there"
		if r, err := rehearsal.Rehearse(t.Context(), o); !errors.Is(err, rehearsal.ErrNotReady) || r.Failed != rehearsal.Plan || len(r.Steps) != 1 {
			t.Errorf("%v", r)
		}
		w.away.Store(true)
		time.Sleep(5 * time.Minute) // virtual
		r, err := rehearsal.Rehearse(t.Context(), w.options())
		if !errors.Is(err, rehearsal.ErrNotReady) || r.Good() || w.state(canary) == statemachine.Stopped {
			t.Errorf("a source that is away: %v, %v", r, w.state(canary))
		}
	})
}

// TestAcceptance4_12ACanaryThatCannotBeWrittenToIsBroughtBack: with the failure in the report.
func TestAcceptance4_12ACanaryThatCannotBeWrittenToIsBroughtBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o, denied := w.options(), errors.New("denied")
		o.Write = func(context.Context, string, int32) error { return denied }
		r, err := rehearsal.Rehearse(t.Context(), o)
		if !errors.Is(err, denied) || r.Failed != rehearsal.Write || r.Writable != 0 || r.Left != "" || len(r.Steps) != 5 {
			t.Errorf("%v", r)
		}
		w.untilInStep()
		w.same(canary)
	})
}

// TestAcceptance4_12ADisasterEndsARehearsal: the canary stays as the others are.
func TestAcceptance4_12ADisasterEndsARehearsal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.options()
		write := o.Write
		o.Write = func(ctx context.Context, topic string, p int32) error {
			if p == 0 {
				if _, err := w.m.Failover(ctx, mirror.FailoverOptions{Reason: "the source burns"}); err != nil {
					t.Error(err)
				}
			}
			return write(ctx, topic, p)
		}
		r, err := rehearsal.Rehearse(t.Context(), o)
		if !errors.Is(err, rehearsal.ErrDisaster) || r.Failed != rehearsal.PlanFailback || w.state(canary) != statemachine.Stopped || w.state("orders") != statemachine.Stopped || w.dropped.Load() > 0 {
			t.Errorf("%v", r)
		}
		if !strings.Contains(r.Left, "STOPPED") || !strings.Contains(r.String(), "stays so until it is started again") {
			t.Errorf("%v", r)
		}
		// The next one does not touch it.
		if _, err := rehearsal.Rehearse(t.Context(), w.options()); !errors.Is(err, rehearsal.ErrNotReady) || w.state(canary) != statemachine.Stopped {
			t.Errorf("%v, %v", err, w.state(canary))
		}
	})
}

// TestAcceptance4_12RecordsOfOthersAreNotDropped: somebody uses the canary.
func TestAcceptance4_12RecordsOfOthersAreNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.options()
		write := o.Write
		o.Write = func(ctx context.Context, topic string, p int32) error {
			return errors.Join(write(ctx, topic, p), write(ctx, topic, p))
		}
		r, err := rehearsal.Rehearse(t.Context(), o)
		if !errors.Is(err, rehearsal.ErrUsed) || w.dropped.Load() > 0 || w.state(canary) != statemachine.Stopped {
			t.Errorf("%v", r)
		}
	})
}

// TestAcceptance4_12AScheduleKeepsTheLastGoodRehearsal: when the source is gone no rehearsal is good, and the last good one grows old.
func TestAcceptance4_12AScheduleKeepsTheLastGoodRehearsal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		reports := 0
		s, err := rehearsal.NewSchedule(w.options(), time.Hour, func(*rehearsal.Report) { reports++ })
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		if last, good := s.Last(); last != nil || good != nil {
			t.Error("a report before the first one")
		}
		time.Sleep(130 * time.Minute) // virtual
		last, good := s.Last()
		if last == nil || last != good || time.Since(good.Ended()) > 11*time.Minute {
			t.Fatalf("%v %v", last, good)
		}
		w.away.Store(true)
		time.Sleep(3 * time.Hour) // virtual
		if last, still := s.Last(); last.Good() || still != good || time.Since(still.Ended()) < 3*time.Hour {
			t.Errorf("%v %v", last, still)
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if reports != 5 {
			t.Errorf("%d reports", reports)
		}
		if _, err := rehearsal.NewSchedule(rehearsal.Options{}, time.Hour, nil); err == nil {
			t.Error("a schedule of nothing")
		}
	})
}
