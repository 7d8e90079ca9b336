package mirror_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Who reads the history of a failover finds why it was made, and of which plan.
func TestHistoryLeadsFromAFailoverToItsPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		for _, topic := range []string{"t", "u", "v"} {
			a.local(topic, 1)
			a.fill(topic, 0, 3)
		}
		m := open(t, "m", a.Cluster, b)
		defer m.close()
		m.start("t", "u", "v")
		m.untilInStep()
		last := func() mirror.HistoryEntry {
			t.Helper()
			all, err := m.Admin().History(t.Context())
			if err != nil || len(all) == 0 {
				t.Fatalf("%v %v", all, err)
			}
			return all[len(all)-1]
		}

		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{Topics: []string{"t"}, Reason: "the site is dark"})
		if _, err := m.ExecuteFailover(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		if e := last(); e.Verb != "stop" || e.Reason != "the site is dark" || e.Detail != "failover plan "+plan.Hash() {
			t.Errorf("%+v", e)
		}
		plan = mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{Topics: []string{"u"}})
		if _, err := m.ExecuteFailover(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		if e := last(); e.Reason != "failover of plan "+plan.Hash() || e.Detail != "failover plan "+plan.Hash() {
			t.Errorf("%+v", e)
		}
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{Topics: []string{"v"}, Reason: "at once"}); err != nil {
			t.Fatal(err)
		}
		if e := last(); e.Reason != "at once" || !strings.HasPrefix(e.Detail, "failover plan ") {
			t.Errorf("%+v", e)
		}

		b.produce("t", 0, "new") // drops nothing of it without consent
		back, err := m.PlanFailback(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		back.Reason = "the site is back"
		if _, err := m.ExecuteFailback(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		if e := last(); e.Verb != "failback" || e.Reason != "the site is back" || !strings.HasPrefix(e.Detail, "failback plan "+back.Hash()+" consents:") {
			t.Errorf("%+v", e)
		}
	})
}

func TestHashOfAPlan(t *testing.T) {
	var plan, other mirror.FailoverPlan
	if err := json.Unmarshal(stored(t, "failover-plan.json"), &plan); err != nil {
		t.Fatal(err)
	}
	other = plan
	other.Reason = "why"
	text, err := other.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var again mirror.FailoverPlan
	if err := json.Unmarshal(text, &again); err != nil || again.Reason != "why" {
		t.Fatalf("%v %+v", err, again)
	}
	if len(plan.Hash()) != 8 || again.Hash() != plan.Hash() {
		t.Errorf("%s, with a reason %s", plan.Hash(), again.Hash())
	}
	other.Unwanted++
	if other.Hash() == plan.Hash() {
		t.Error("another plan has the same hash")
	}
	var back mirror.FailbackPlan
	if err := json.Unmarshal(stored(t, "failback-plan.json"), &back); err != nil {
		t.Fatal(err)
	}
	if back.Hash() == plan.Hash() || len(back.Hash()) != 8 {
		t.Error(back.Hash())
	}
}

// TestPlanOfAnotherMirrorIsRefused: mirrors to two destinations have topics of the same names, and a plan opens, or cuts, those of its own only.
func TestPlanOfAnotherMirrorIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSide(t, memlog.Config{ClusterID: "A"})
		a.local("t", 1)
		a.fill("t", 0, 3)
		staging := open(t, "staging", a.Cluster, newSide(t, memlog.Config{ClusterID: "S"}))
		defer staging.close()
		prod := open(t, "prod", a.Cluster, newSide(t, memlog.Config{ClusterID: "P"}))
		defer prod.close()
		for _, m := range []*running{staging, prod} {
			m.start("t")
			m.untilInStep()
		}
		before, err := prod.Admin().History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		over := mirror.PlanFailover(staging.Snapshot(), mirror.FailoverOptions{})
		back, err := staging.PlanFailback(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		for what, change := range map[string]func(*mirror.FailoverPlan, *mirror.FailbackPlan){
			"mirror \"staging\"": func(*mirror.FailoverPlan, *mirror.FailbackPlan) {},
			"destination cluster \"S\"": func(over *mirror.FailoverPlan, back *mirror.FailbackPlan) {
				over.Mirror, back.Mirror = "prod", "prod"
			},
			"source cluster \"X\"": func(over *mirror.FailoverPlan, back *mirror.FailbackPlan) {
				over.Mirror, back.Mirror, over.SourceClusterID, back.SourceClusterID = "prod", "prod", "X", "X"
				over.DestinationClusterID, back.DestinationClusterID = "", "" // not known there: not compared
			},
			"mirror \"\"": func(over *mirror.FailoverPlan, back *mirror.FailbackPlan) { over.Mirror, back.Mirror = "", "" },
		} {
			over, back := over, back
			change(&over, &back)
			report, err := prod.ExecuteFailover(t.Context(), over)
			if !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) || !strings.Contains(err.Error(), what) || len(report.Partitions) > 0 || report.DestinationClusterID != "P" {
				t.Errorf("failover of %s: %v\n%s", what, err, report)
			}
			if report, err := prod.ExecuteFailback(t.Context(), back); !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) || !strings.Contains(err.Error(), what) || len(report.Partitions) > 0 {
				t.Errorf("failback of %s: %v\n%s", what, err, report)
			}
		}
		after, err := prod.Admin().History(t.Context())
		if err != nil || len(after) != len(before) || prod.one("t", 0).State != statemachine.Mirroring {
			t.Errorf("something was written: %v, %v", after, err)
		}
		over.Mirror, over.SourceClusterID, over.DestinationClusterID = "prod", "", ""
		if _, err := prod.ExecuteFailover(t.Context(), over); err != nil {
			t.Errorf("a plan that knew no cluster: %v", err)
		}
	})
}
