package mirror_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

func TestDecision14OppositeMirrorsOfAnEmptyTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		for _, s := range []*side{a, b} {
			s.local("t", 1)
		}
		there, back := open(t, "a-to-b", a.Cluster, b), open(t, "b-to-a", b.Cluster, a)
		defer there.close()
		defer back.close()
		there.start("t")
		back.start("t")
		for range 20 {
			time.Sleep(10 * time.Second)
			p, q := there.one("t", 0), back.one("t", 0)
			if p.State == statemachine.Mirroring && q.State == statemachine.Mirroring {
				t.Fatal("each mirrors the other")
			}
		}
		expectWords(t, there.one("t", 0).Reason+back.one("t", 0).Reason, "detected mirror loop for mirror")
	})
}

func TestDecision14OppositeMirrorsStartedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		for _, s := range []*side{a, b} {
			s.local("t", 1)
		}
		a.fill("t", 0, 3)
		b.fill("t", 0, 5)
		keptA, keptB := a.raw("t", 0), b.raw("t", 0)
		there, back := open(t, "a-to-b", a.Cluster, b), open(t, "b-to-a", b.Cluster, a)
		defer there.close()
		defer back.close()
		there.start("t")
		back.start("t")
		refused := 0
		for range 20 {
			time.Sleep(10 * time.Second)
			p, q := there.one("t", 0), back.one("t", 0)
			if p.State == statemachine.Mirroring && q.State == statemachine.Mirroring {
				t.Fatal("each mirrors the other")
			}
			if p.Owner != mirror.OwnerOpen || q.Owner != mirror.OwnerOpen {
				t.Fatalf("a gate was closed: %s, %s", p.Owner, q.Owner)
			}
			if !bytes.Equal(keptA, a.raw("t", 0)) || !bytes.Equal(keptB, b.raw("t", 0)) {
				t.Fatal("a log has changed")
			}
			if p.State == statemachine.Failed && q.State == statemachine.Failed {
				refused++
			}
		}
		if refused == 0 {
			t.Fatalf("nobody backed off%s%s", show(there.Status()), show(back.Status()))
		}
		a.produce("t", 0, "clients go on")
		b.produce("t", 0, "clients go on")
	})
}

func TestALoopIsRefusedWhileTheOtherDirectionRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 3)
		m.start("t")
		m.inStepAndSame()
		back := open(t, "back", m.b.Cluster, m.a)
		defer back.close()
		plan, err := back.PlanFailback(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "severity", plan.Severity, mirror.SeverityRefused)
		expectWords(t, plan.String(), "detected mirror loop for mirror: m", "MIRRORING", "stop that mirror first")
		if _, err := back.ExecuteFailback(t.Context(), plan); err != mirror.ErrPlanRefused {
			t.Errorf("a refused plan was carried out: %v", err)
		}
		back.start("t")
		p := back.untilFailed("t", 0, "detected mirror loop for mirror: m", "stop that mirror first")
		expect(t, "owner", p.Owner, mirror.OwnerOpen)
		m.a.produce("t", 0, "clients go on")
		m.untilOne("copied", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 4 && inStep(p) })
		// Once the other direction has been stopped, the refused one goes on by itself.
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		back.untilInStep()
		m.same(0)
	})
}
