package mirror_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
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
		if e := last(); e.Verb != "start" || e.Reason != "the site is back" || !strings.HasPrefix(e.Detail, "failback plan "+back.Hash()+" consents:") {
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
