package mirror_test

import (
	"context"
	"errors"
	"strings"
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

// The source dies before the first look at groups: whoever stops then is told that nobody knows where they go on, before, with and after the stop.
func TestAStopBeforeTheFirstLookSaysSo(t *testing.T) {
	for name, followed := range map[string]bool{"followed": true, "none followed": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const never = "GROUPS: NEVER LOOKED AT: where groups go on is not known; they start by auto.offset.reset\n"
				a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
				a.local("t", 1)
				a.fill("t", 0, 10)
				a.commit("g", mirror.TopicPartition{Topic: "t"}, 5)
				a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
					if c.Operation == "Metadata.Groups" {
						return errors.New("it dies")
					}
					return nil
				}})
				m := follow(t, "m", a, b)
				defer func() { m.close() }()
				if !followed {
					if _, err := m.Admin().AlterConfig(t.Context(), mirror.Settings{"mirror.groups.exclude": ".*"}, nil, mirror.AlterConfigOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				m.start("t")
				m.untilInStep()
				a.SetUnreachable(true)
				time.Sleep(10 * time.Second)
				if m.one("t", 0).GroupsUnlooked != followed {
					t.Error(m.one("t", 0).GroupsUnlooked)
				}
				admin := from(t, b)
				d, err := admin.Describe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				r, err := admin.Stop(t.Context(), []string{"t"}, mirror.StopOptions{DryRun: true})
				if err != nil {
					t.Fatal(err)
				}
				plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{}).String()
				if followed {
					expect(t, "groups", d.GroupsOf("t"), never)
					expectWords(t, r.String(), "note: "+never)
					expectWords(t, plan, strings.TrimSuffix(never, "\n"))
				} else {
					expect(t, "groups", d.GroupsOf("t"), "")
					expect(t, "in the result and the plan", strings.Contains(r.String()+plan, "NEVER LOOKED AT"), false)
				}
				if r, err = admin.Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil || strings.Contains(r.String(), "note: "+never) != followed {
					t.Errorf("%v\n%s", err, r)
				}
				if _, err := admin.Await(bounded(t, time.Minute), mirror.AwaitOptions{Until: mirror.ReachedStopped}, nil); err != nil {
					t.Fatal(err)
				}
				if d, err = admin.Describe(t.Context()); err != nil {
					t.Fatal(err)
				}
				expectWords(t, d.GroupTable(), "groups: 0 followed, never followed before the stop\n")
				expect(t, "groups of what is stopped", d.GroupsOf("t"), "")
			})
		})
	}
}

// Groups are looked at when mirroring has begun, and not only at the next refresh: the source may die before. One look is made for all partitions that begin together, and none when they go on.
func TestGroupsAreLookedAtWhenMirroringBegins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 20)
		a.fill("t", 0, 10)
		a.commit("g", mirror.TopicPartition{Topic: "t"}, 5)
		looks := a.count("Metadata.Groups")
		m := follow(t, "m", a, b)
		defer m.close()
		m.start("t")
		m.untilInStep()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if m.one("t", 0).GroupsUnlooked {
			t.Error("not looked at")
		}
		b.at("g", mirror.TopicPartition{Topic: "t"}, 5)
		if n := looks.Load(); n < 1 || n > 3 {
			t.Errorf("%d looks", n)
		}
		refreshes(2)
		before := looks.Load()
		m.pause("t")
		m.resume("t")
		m.untilInStep()
		time.Sleep(3 * time.Second)
		if n := looks.Load(); n > before+1 { // a refresh
			t.Errorf("%d looks after the pause", n-before)
		}
	})
}

// Where groups were looked at, a stop says nothing of the kind, also not after a restart.
func TestAStopAfterTheFirstLookSaysNothingOfIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := copying(t, 1, 10)
		refreshes(2)
		m.a.SetUnreachable(true)
		m.again(t)
		time.Sleep(10 * time.Second)
		admin := from(t, m.b)
		r, err := admin.Stop(t.Context(), []string{"t"}, mirror.StopOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		d, err := admin.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "said", strings.Contains(r.String()+d.GroupsOf("t"), "NEVER LOOKED AT"), false)
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
