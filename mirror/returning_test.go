package mirror_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// away has the source answer nothing to the mirror while it says so; clients reach it all the same. It counts what the mirror asked.
type away struct {
	yes   atomic.Bool
	calls atomic.Int64
}

func (a *away) hook(s *side) {
	s.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
		if !strings.HasPrefix(c.Operation, "Source.") && !strings.HasPrefix(c.Operation, "Fetcher.") {
			return nil
		}
		a.calls.Add(1)
		if a.yes.Load() {
			return &mirror.SourceError{Code: mirror.SourceUnreachable, Operation: c.Operation, Err: errors.New("no route")}
		}
		return nil
	}})
}

// TestAcceptance4_3AnOldSourceThatComesBackIsTold: a failover of a dead source, which comes back with clients that still write to it.
func TestAcceptance4_3AnOldSourceThatComesBackIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 2)
		var a away
		a.hook(m.a)
		m.a.fill("t", 0, 5)
		m.a.fill("t", 1, 3)
		m.start("t")
		m.untilInStep()
		time.Sleep(time.Second) // virtual
		if s := m.Status(); s.OldSource != nil {
			t.Errorf("nothing is stopped: %+v", s.OldSource)
		}
		a.yes.Store(true)
		time.Sleep(5 * time.Minute) // virtual
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // virtual
		s := m.Status()
		if s.OldSource == nil || s.OldSource.Err == nil || time.Since(s.OldSource.Silent) < 4*time.Minute || !s.OldSource.Returned.IsZero() {
			t.Errorf("while it is away: %+v", s.OldSource)
		}
		before := a.calls.Load()
		time.Sleep(10 * time.Minute) // virtual
		if n := a.calls.Load() - before; n < 19 || n > 21 {
			t.Errorf("%d requests to a silent source in 10 minutes, not one each 30 s", n)
		}
		if n := len(eventsOf[mirror.SourceReturned](m.running)) + len(eventsOf[mirror.SplitBrainSeen](m.running)); n > 0 {
			t.Errorf("%d were told of a source that is away", n)
		}

		a.yes.Store(false)
		time.Sleep(time.Minute) // virtual
		back := eventsOf[mirror.SourceReturned](m.running)
		if len(back) != 1 || back[0].ClusterID != "A" || len(back[0].Topics) != 1 || back[0].Silent != s.OldSource.Silent {
			t.Fatalf("its return: %+v", back)
		}
		expectWords(t, back[0].String(), "cluster A", "answers again", "topics t ", "keep its clients from it", "failback")
		if s := m.Status(); s.OldSource.Err != nil || !s.OldSource.Silent.IsZero() || time.Since(s.OldSource.Returned) > time.Minute || len(s.Topics[0].SplitBrain) > 0 {
			t.Errorf("after its return: %+v %+v", s.OldSource, s.Topics[0].SplitBrain)
		}

		p := m.a.NewProducer(memlog.ProducerOptions{})
		if _, err := p.Produce(t.Context(), "t", 1, memlog.Record{Value: []byte("elsewhere")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // virtual
		seen := eventsOf[mirror.SplitBrainSeen](m.running)
		if len(seen) != 1 || seen[0].Topic != "t" || seen[0].Partition != 1 {
			t.Fatalf("its clients: %+v", seen)
		}
		b := seen[0].SplitBrain
		if b.From != 3 || b.To != 4 || len(b.Producers) != 1 || b.Since.IsZero() || time.Since(b.Since) < 15*time.Minute {
			t.Errorf("%+v", b)
		}
		expectWords(t, seen[0].String(), "m/t-1: split brain", "[3,4)", "1 offsets", "producers ", "hands it to the sink")

		// Each record is not told of, but the status is as of the last look.
		for range 5 {
			m.a.fill("t", 1, 1)
			time.Sleep(time.Minute) // virtual
		}
		if n := len(eventsOf[mirror.SplitBrainSeen](m.running)); n != 1 {
			t.Errorf("told %d times in six minutes", n)
		}
		if s := m.Status().Topics[0].SplitBrain; len(s) != 1 || s[0].To != 9 {
			t.Errorf("%+v", s)
		}
		m.a.fill("t", 1, 1)
		time.Sleep(10 * time.Minute) // virtual
		if n := len(eventsOf[mirror.SplitBrainSeen](m.running)); n != 2 {
			t.Errorf("told %d times in a quarter of an hour", n)
		}
		d, err := m.Admin().Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expectWords(t, d.String(), "split brain of topic t: partition 1: the source has [3,10), 7 offsets")
		if len(eventsOf[mirror.SourceReturned](m.running)) != 1 {
			t.Error("its return is told more than once")
		}
		m.close()
	})
}

// TestAcceptance4_3ARestartDoesNotTakeOldRecordsForNewOnes: what the source has at the first look of a process that knows nothing of it may be from before the failover.
func TestAcceptance4_3ARestartDoesNotTakeOldRecordsForNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := mirror.NewMemoryControl()
		shared := func(c *mirror.Config) { c.Control = control }
		m := newPair(t, 1, shared)
		var a away
		a.hook(m.a)
		m.a.fill("t", 0, 5)
		m.start("t")
		m.untilInStep()
		a.yes.Store(true)
		m.a.fill("t", 0, 2) // acknowledged, and lost by the failover
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		m.close()
		a.yes.Store(false)
		again := open(t, "m", m.a.Cluster, m.b, shared)
		time.Sleep(2 * time.Minute) // virtual
		if s := again.Status(); s.OldSource == nil || s.OldSource.Err != nil || len(s.Topics[0].SplitBrain) > 0 || len(eventsOf[mirror.SourceReturned](again)) > 0 {
			t.Errorf("%+v %+v", s.OldSource, s.Topics[0].SplitBrain)
		}
		m.a.fill("t", 0, 1)
		time.Sleep(time.Minute) // virtual
		if s := again.Status().Topics[0].SplitBrain; len(s) != 1 || s[0].From != 7 || s[0].To != 8 {
			t.Errorf("%+v", s)
		}
		again.close()
	})
}

// TestAcceptance4_3AnotherTopicOfThatNameSaysNothing: neither does another cluster, and nobody asks when it is switched off.
func TestAcceptance4_3AnotherTopicOfThatNameSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := mirror.NewMemoryControl()
		shared := func(c *mirror.Config) { c.Control = control }
		m := newPair(t, 1, shared)
		m.a.fill("t", 0, 5)
		m.start("t")
		m.untilInStep()
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := m.a.DeleteTopic("t"); err != nil {
			t.Fatal(err)
		}
		m.a.local("t", 1)
		m.a.fill("t", 0, 9)
		time.Sleep(2 * time.Minute) // virtual
		if s := m.Status(); s.OldSource == nil || s.OldSource.Err != nil || len(s.Topics[0].SplitBrain) > 0 {
			t.Errorf("%+v %+v", s.OldSource, s.Topics[0].SplitBrain)
		}
		m.close()

		other := newSide(t, memlog.Config{ClusterID: "C"})
		other.local("t", 1)
		other.fill("t", 0, 9)
		again := open(t, "m", other.Cluster, m.b, shared)
		time.Sleep(2 * time.Minute) // virtual
		s := again.Status()
		if s.OldSource == nil || s.OldSource.Err == nil || len(s.Topics[0].SplitBrain) > 0 {
			t.Fatalf("%+v %+v", s.OldSource, s.Topics[0].SplitBrain)
		}
		expectWords(t, s.OldSource.Err.Error(), "A != C", "another cluster")
		again.close()

		var a away
		a.hook(m.a)
		off := open(t, "m", m.a.Cluster, m.b, shared, func(c *mirror.Config) { c.OldSourceInterval = -1 })
		time.Sleep(time.Hour) // virtual
		if n := a.calls.Load(); n > 0 || off.Status().OldSource != nil {
			t.Errorf("switched off, and asked %d times", n)
		}
		off.close()
	})
}
