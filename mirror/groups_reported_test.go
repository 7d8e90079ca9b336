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
