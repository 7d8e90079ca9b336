package mirror_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

func TestF28SourceTopicDeletedAndRecreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &memorySink{}
		m := newPair(t, 1, func(c *mirror.Config) { c.Sink = sink })
		m.a.fill("t", 0, 100)
		m.start("t")
		m.inStepAndSame()
		kept := m.b.raw("t", 0)
		if _, err := m.a.RecreateTopic("t", 1); err != nil {
			t.Fatal(err)
		}
		m.a.fill("t", 0, 10)
		p := m.untilFailed("t", 0, "source topic id", "→", "Nothing was changed", "[0, 100)")
		expect(t, "attempt", p.RetryAttempt, statemachine.NonRetryable)
		if p.NeedsConsent == nil || p.NeedsConsent.From != 0 || p.NeedsConsent.To != 100 {
			t.Fatalf("needs consent %v", p.NeedsConsent)
		}
		time.Sleep(time.Hour)
		if !bytes.Equal(kept, m.b.raw("t", 0)) {
			t.Fatal("the copy has changed without consent")
		}
		if _, err := m.Admin().Start(t.Context(), []string{"t"}, mirror.StartOptions{Consents: []mirror.Consent{*p.NeedsConsent}}); err != nil {
			t.Fatal(err)
		}
		m.untilOne("started over", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 10 && inStep(p) })
		m.same(0)
		if !bytes.Equal(kept, sink.bytes) {
			t.Error("what was dropped is not in the sink")
		}
	})
}

func TestF30LeftoverStateAfterTheDestinationWasRebuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		for range 50 {
			m.a.block("t", 0, 100)
		}
		m.start("t")
		m.inStepAndSame()
		m.running.close()
		rebuilt := newSide(t, memlog.Config{ClusterID: "B"}) // the same names, hence the same topic id: the worst case
		again := open(t, "m", m.a.Cluster, rebuilt, func(c *mirror.Config) { c.Store = m.b.StateStore() })
		defer again.close()
		again.start("t")
		again.untilOne("copied again", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 5000 && inStep(p) })
		if !bytes.Equal(m.a.raw("t", 0), rebuilt.raw("t", 0)) {
			t.Error("the new copy differs")
		}
	})
}

func TestF31ADeletedSourceTopicStaysDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 10)
		m.start("t")
		m.inStepAndSame()
		kept := m.b.raw("t", 0)
		if err := m.a.DeleteTopic("t"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * 30 * time.Second)
		found, err := m.a.Topics(t.Context())
		if err != nil || len(found) != 0 {
			t.Fatalf("the source has topics %v, %v", found, err)
		}
		p := m.untilFailed("t", 0, "deleted", "the copy is kept")
		expect(t, "attempt", p.RetryAttempt, statemachine.NonRetryable)
		if !bytes.Equal(kept, m.b.raw("t", 0)) {
			t.Error("the copy has changed")
		}
		// The copy is still good for a failover.
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestF33AddressLeadsToAnotherCluster(t *testing.T) {
	moved := func(t *testing.T, down bool) {
		a, b, other := newSide(t, memlog.Config{ClusterID: "X"}), newSide(t, memlog.Config{ClusterID: "B"}), newSide(t, memlog.Config{ClusterID: "Y"})
		for _, s := range []*side{a, other} {
			s.local("t", 1)
		}
		a.fill("t", 0, 10)
		other.block("t", 0, 50)
		q := &requests{}
		other.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error { q.count(c); return nil }})
		src := &oddSource{at: a.Cluster}
		m := open(t, "m", src, b)
		defer m.close()
		m.start("t")
		m.untilInStep()
		kept := b.raw("t", 0)
		src.move(other.Cluster)
		if down {
			a.SetUnreachable(true)
		}
		p := m.untilFailed("t", 0, "source cluster id X != Y", "correct the address")
		expect(t, "attempt", p.RetryAttempt, statemachine.NonRetryable)
		time.Sleep(10 * time.Minute)
		if n := q.of("Fetcher.Fetch"); n != 0 {
			t.Errorf("%d fetches from Y", n)
		}
		if !bytes.Equal(kept, b.raw("t", 0)) {
			t.Error("the copy has changed")
		}
	}
	t.Run("seen at a refresh", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { moved(t, false) }) })
	t.Run("seen at a new connection", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { moved(t, true) }) })
	t.Run("pinned", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 1, func(c *mirror.Config) { c.SourceClusterID = "Z" })
			m.a.fill("t", 0, 1)
			m.start("t")
			m.until("refused", func(s mirror.Status) bool { return len(s.Topics) == 1 && s.Topics[0].Err != nil })
			expectWords(t, m.Status().Topics[0].Err.Error(), "source cluster id Z != A", "correct the address")
		})
	})
	t.Run("the destination itself", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newSide(t, memlog.Config{ClusterID: "B"})
			b.local("t", 1)
			b.fill("t", 0, 3)
			kept := b.raw("t", 0)
			m := open(t, "m", b.Cluster, b)
			defer m.close()
			if _, err := m.PlanFailback(t.Context(), "t"); err == nil || !strings.Contains(err.Error(), "the source is the destination itself") {
				t.Errorf("a plan: %v", err)
			}
			m.start("t")
			p := m.untilFailed("t", 0, "the source is the destination itself", "cluster id B")
			expect(t, "attempt", p.RetryAttempt, statemachine.NonRetryable)
			expect(t, "owner", p.Owner, mirror.OwnerOpen)
			if !bytes.Equal(kept, b.raw("t", 0)) {
				t.Error("the log has changed")
			}
		})
	})
}

func TestF68SourceGainsPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 3)
		m.start("t")
		m.inStepAndSame()
		if _, err := m.a.GrowTopic(t.Context(), "t", 5); err != nil {
			t.Fatal(err)
		}
		for p := range int32(5) {
			m.a.fill("t", p, 100)
		}
		m.until("five partitions", func(s mirror.Status) bool { return len(s.Topics[0].Partitions) == 5 })
		m.inStepAndSame()
		for p := range int32(5) {
			expect(t, "start and end", []int64{m.one("t", p).Start, m.one("t", p).End}, []int64{0, 100})
		}
		// The other way round it is not ignored.
		if _, err := m.b.GrowTopic(t.Context(), "t", 7); err != nil {
			t.Fatal(err)
		}
		m.running.close()
		m.running = open(t, "m", m.a.Cluster, m.b)
		defer m.running.close()
		m.start("t")
		m.until("told", func(s mirror.Status) bool { return len(s.Topics) == 1 && s.Topics[0].Err != nil })
		expectWords(t, m.Status().Topics[0].Err.Error(), "partition counts differ: 5 at the source, 7 at the destination")
		m.untilFailed("t", 6, "partition counts differ")
		m.untilOne("the others go on", "t", 0, inStep)
	})
}
