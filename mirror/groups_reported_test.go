package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// TestGroupsAreShownWithoutTheirProcess: what a process that has ended knew of groups, and when it looked at them, is told by the Control.
func TestGroupsAreShownWithoutTheirProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 1000)
		m := follow(t, "m", a, b)
		m.start("t")
		m.untilInStep()
		if err := a.CommitOffset("g", mirror.TopicPartition{Topic: "t"}, mirror.GroupOffset{Offset: 700, LeaderEpoch: mirror.Unknown}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
		if plan.GroupsInStep != 1 || len(plan.Groups) != 0 || plan.GroupsError != "" {
			t.Errorf("%s", plan)
		}
		m.close()
		ended := time.Now()
		time.Sleep(time.Hour)

		admin, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "m", Control: b.Control(), States: b.StateStore(), Destination: b})
		if err != nil {
			t.Fatal(err)
		}
		d, err := admin.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.GroupsSeen.IsZero() || ended.Sub(d.GroupsSeen) > 2*time.Minute {
			t.Errorf("looked at %s, ended %s", d.GroupsSeen, ended)
		}
		expectWords(t, d.String(), "groups: 1 followed, looked at ")
		expectWords(t, d.GroupTable(), "g      t-0        700            700             700      none        ")
	})
}

// TestPlanNamesATopicThatHasJustComeIn: its groups were never looked at, so none of them is in a plan, and that must not look as if it had none.
func TestPlanNamesATopicThatHasJustComeIn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := copying(t, 1, 10)
		refreshes(2)
		if m.one("t", 0).GroupsUnlooked {
			t.Error("it was looked at")
		}
		m.a.local("fresh", 1)
		m.a.fill("fresh", 0, 10)
		m.a.commit("g", mirror.TopicPartition{Topic: "fresh"}, 7)
		m.start("fresh")
		m.untilOne("copied", "fresh", 0, func(p mirror.PartitionStatus) bool { return p.Replicated == 10 })
		if !m.one("fresh", 0).GroupsUnlooked || m.one("t", 0).GroupsUnlooked {
			t.Error("what has just come in was not looked at")
		}
		expectWords(t, mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{}).String(), "of fresh-0 groups were not looked at since mirroring began")
		refreshes(2)
		if m.one("fresh", 0).GroupsUnlooked {
			t.Error("it was looked at")
		}
		expectWords(t, mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{}).String(), "g fresh-0 goes on at 7 (as at the source ")
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		if m.one("fresh", 0).GroupsUnlooked {
			t.Error("a stopped partition waits for no look")
		}
	})
}
