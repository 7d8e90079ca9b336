package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// A refresh is 30 s: three of them have seen everything.
func refreshes(n int) {
	time.Sleep(time.Duration(n) * 30 * time.Second) // virtual
	synctest.Wait()
}

func t(partition int32) mirror.TopicPartition {
	return mirror.TopicPartition{Topic: "t", Partition: partition}
}

func (s *side) commit(group string, tp mirror.TopicPartition, offset int64) {
	s.t.Helper()
	if err := s.CommitOffset(group, tp, mirror.GroupOffset{Offset: offset, LeaderEpoch: mirror.Unknown}); err != nil {
		s.t.Fatal(err)
	}
}

// at checks where a group is; −1: nowhere.
func (s *side) at(group string, tp mirror.TopicPartition, offset int64) {
	s.t.Helper()
	got, ok := s.GroupOffset(group, tp)
	if !ok {
		got.Offset = -1
	}
	if got.Offset != offset {
		s.t.Fatalf("group %s is at %d in %s-%d, not %d", group, got.Offset, tp.Topic, tp.Partition, offset)
	}
}

// count counts the calls of one operation from here on.
func (s *side) count(operation string) *atomic.Int64 {
	var n atomic.Int64
	s.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
		if c.Operation == operation {
			n.Add(1)
		}
		return nil
	}})
	return &n
}

// hang has calls of one operation end with their context only.
func (s *side) hang(operation string) {
	s.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
		if c.Operation == operation {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}})
}

// copying makes a pair that mirrors partitions of n records each, its desired state kept by B, and in step.
func copying(t *testing.T, partitions int32, n int, change ...func(*mirror.Config)) *pair {
	t.Helper()
	a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
	a.local("t", partitions)
	for p := range partitions {
		a.fill("t", p, n)
	}
	m := &pair{a: a, b: b, running: follow(t, "m", a, b, change...)}
	t.Cleanup(func() { m.running.close() })
	m.start("t")
	m.inStepAndSame()
	return m
}

// rarely looks at the source every ten minutes: for tests of days.
func rarely(c *mirror.Config) { c.RefreshInterval, c.Fetch.MaxWait = 10*time.Minute, time.Minute }

// again ends the process and starts another one.
func (p *pair) again(t *testing.T, change ...func(*mirror.Config)) {
	t.Helper()
	p.close()
	p.running = follow(t, "m", p.a, p.b, change...)
}

func (p *pair) skipped(t *testing.T, words ...string) {
	t.Helper()
	line := strings.Join(p.Status().Metadata.Groups.Skipped, "\n")
	expectWords(t, line, words...)
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestF56GroupAheadOfTheMirrorOrBehindItsStart(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.trim("t", 0, 100)
		m.untilOne("trimmed", "t", 0, func(p mirror.PartitionStatus) bool { return p.Start == 100 })
		for group, at := range map[string]int64{"ahead": 1500, "end": 1000, "within": 500, "below": 50} {
			m.a.commit(group, t(0), at)
		}
		m.a.JoinGroup("none")
		refreshes(2)
		for group, at := range map[string]int64{"ahead": 1000, "end": 1000, "within": 500, "below": 100, "none": -1} {
			m.b.at(group, t(0), at)
		}
		m.a.fill("t", 0, 500)
		refreshes(2)
		m.b.at("ahead", t(0), 1500)
		m.b.at("end", t(0), 1000)
	})
}

func TestF57GroupThatWorksAtTheDestinationIsNotMoved(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		for _, group := range []string{"active", "joins", "standalone"} {
			m.a.commit(group, t(0), 400)
		}
		refreshes(2)
		// Active here; one that joins between the look and the commit; one that commits without being a member.
		m.b.JoinGroup("active")
		m.b.commit("active", t(0), 900)
		m.b.commit("standalone", t(0), 900)
		joined := false
		m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Destination.WriteGroupOffsets" && c.Group == "joins" && !joined {
				joined = true
				m.b.JoinGroup("joins")
			}
			return nil
		}})
		for _, group := range []string{"active", "joins", "standalone"} {
			m.a.commit(group, t(0), 500)
		}
		refreshes(3)
		if !joined {
			tt.Fatal("nothing was written of the group that joins")
		}
		m.b.at("active", t(0), 900)
		m.b.at("joins", t(0), 400)
		m.b.at("standalone", t(0), 900)
		m.skipped(tt, "group active: t-0 left where it is: active at the destination", "group joins: t-0 left where it is: active at the destination", "group standalone: t-0 left where it is: moved at the destination")
		// Told once each, however often it is looked at.
		refreshes(10)
		n := 0
		for _, e := range eventsOf[mirror.SyncSkipped](m.running) {
			if strings.Contains(e.Reason, "group active") {
				n++
			}
		}
		expect(tt, "times told", n, 1)
	})
}

// Somebody opens the log of a copy and writes to it, and the mirror has no occasion to see that: no group goes behind what they wrote, however far it is at the source.
func TestF57NoGroupGoesBehindWhatClientsWroteInATakenLog(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		m.a.commit("g", t(0), 50)
		refreshes(2)
		m.b.at("g", t(0), 50)
		if err := m.b.log("t", 0).Open(tt.Context()); err != nil {
			tt.Fatal(err)
		}
		m.b.produce("t", 0, "a client's", "another one")
		m.a.commit("g", t(0), 102)
		refreshes(3)
		m.b.at("g", t(0), 100)
	})
}

func TestF57NothingMovesAfterTheCutOver(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 2, 1000)
		m.a.commit("g", t(0), 500)
		m.a.commit("g", t(1), 500)
		refreshes(2)
		m.b.at("g", t(0), 500)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.b.commit("g", t(0), 900)
		m.a.commit("g", t(0), 600) // somebody who has not heard of it
		refreshes(3)
		m.again(tt)
		refreshes(3)
		m.b.at("g", t(0), 900)
		m.b.at("g", t(1), 500)
	})
}

func TestF58OffsetZeroIsAnOffset(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 2, 20)
		m.a.commit("g", t(0), 0)
		m.a.commit("g", t(1), 10)
		refreshes(2)
		m.b.at("g", t(0), 0)
		m.b.at("g", t(1), 10)
	})
}

// TestF58CommitOnAnEmptyPartition: everything is gone at the source, and the group's place is not 0 (KAFKA-12635). The copy has no record either, and the group is at its end, not at 0 and not
// beyond.
func TestF58CommitOnAnEmptyPartition(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		a.local("t", 2)
		for p := range int32(2) {
			a.fill("t", p, 20)
			a.trim("t", p, 20)
		}
		a.commit("g", t(0), 20)
		a.commit("g", t(1), 7)
		m := follow(tt, "m", a, b)
		defer m.close()
		m.start("t")
		m.untilInStep()
		refreshes(2)
		b.at("g", t(0), 20)
		b.at("g", t(1), 20)
		a.produce("t", 0, "the first one since")
		m.untilOne("copied", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 21 && inStep(p) })
		refreshes(2)
		b.at("g", t(0), 20)
	})
}

func TestF55PendingCommitIsWaitedFor(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		for _, group := range []string{"g1", "g2", "g3"} {
			m.a.commit(group, t(0), 100)
		}
		refreshes(2)
		m.a.PendingCommit("g1", t(0), true)
		m.a.commit("g2", t(0), 200)
		m.a.commit("g3", t(0), 200)
		refreshes(2)
		m.b.at("g1", t(0), 100)
		m.b.at("g2", t(0), 200)
		m.b.at("g3", t(0), 200)
		m.skipped(tt, "group g1: t-0 left where it is: a transaction is committing it")
		m.a.PendingCommit("g1", t(0), false)
		m.a.commit("g1", t(0), 300)
		refreshes(2)
		m.b.at("g1", t(0), 300)
		expect(tt, "skipped", len(m.Status().Metadata.Groups.Skipped), 0)
	})
}

func TestF59DeadCoordinatorHarmsItsOwnGroupsOnly(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B", Brokers: 3})
		a.local("t", 3)
		for p := range int32(3) {
			a.fill("t", p, 1000)
		}
		m := &pair{a: a, b: b, running: follow(tt, "m", a, b)}
		tt.Cleanup(m.running.close)
		m.start("t")
		m.untilInStep()
		var g2, g3 string // with coordinators of their own
		for i := 0; g3 == ""; i++ {
			name := fmt.Sprintf("g%d", i)
			switch {
			case g2 == "":
				g2 = name
			case b.GroupCoordinator(name) != b.GroupCoordinator(g2):
				g3 = name
			}
		}
		a.commit(g2, t(0), 100)
		a.commit(g3, t(0), 100)
		refreshes(2)
		if err := b.StopBroker(b.GroupCoordinator(g2)); err != nil {
			tt.Fatal(err)
		}
		for i := range int64(60) { // half an hour
			a.commit(g2, t(0), 200+i)
			a.commit(g3, t(0), 200+i)
			refreshes(1)
		}
		refreshes(1)
		b.at(g2, t(0), 100)
		b.at(g3, t(0), 259)
		m.skipped(tt, "group "+g2+": at the destination")
		if n := len(eventsOf[mirror.SyncSkipped](m.running)); n > 5 {
			tt.Errorf("told of it %d times", n)
		}
		if err := b.StartBroker(b.GroupCoordinator(g2)); err != nil {
			tt.Fatal(err)
		}
		refreshes(2)
		b.at(g2, t(0), 259)
	})
}

func TestF62DeliberateRewindIsFollowedAndARestartMovesNothing(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 900)
		m.a.commit("still", t(0), 900)
		refreshes(2)
		m.b.at("g", t(0), 900)
		writes := m.b.count("Destination.WriteGroupOffsets")
		m.again(tt)
		refreshes(3)
		expect(tt, "writes after a restart", writes.Load(), 0)
		m.close()
		m.a.commit("g", t(0), 100) // while no process runs
		m.running = follow(tt, "m", m.a, m.b)
		refreshes(3)
		m.b.at("g", t(0), 100)
		m.b.at("still", t(0), 900)
		expect(tt, "writes after a rewind", writes.Load(), 1)
		back := eventsOf[mirror.GroupMovedBack](m.running)
		if len(back) != 1 || back[0].From != 900 || back[0].To != 100 {
			tt.Errorf("%v", back)
		}
	})
}

// A crash between what is remembered and what is written: the group is the mirror's own all the same.
func TestDecision17ACrashAroundACommitLeavesTheGroupTheMirrorsOwn(tt *testing.T) {
	for _, lost := range []string{"request", "answer"} {
		tt.Run(lost, func(tt *testing.T) {
			bubble(tt, func(tt *testing.T) {
				m := copying(tt, 1, 1000)
				m.a.commit("g", t(0), 100)
				refreshes(2)
				gone := errors.New("connection reset")
				hook := func(_ context.Context, c memlog.Call) error {
					if c.Operation == "Destination.WriteGroupOffsets" {
						return gone
					}
					return nil
				}
				if lost == "request" {
					m.b.SetHooks(memlog.Hooks{Before: hook})
				} else {
					m.b.SetHooks(memlog.Hooks{After: hook})
				}
				m.a.commit("g", t(0), 500)
				refreshes(1)
				m.skipped(tt, "connection reset")
				m.b.SetHooks(memlog.Hooks{})
				m.a.commit("g", t(0), 50) // and back: only what is the mirror's own follows
				m.again(tt)
				refreshes(3)
				m.b.at("g", t(0), 50)
			})
		})
	}
}

// A write was lost, the next look sees that, and is overtaken by a consumer that brings the group to just where the lost write was to bring it: it is that consumer's.
func TestF57WhoBringsAGroupToWhereALostWriteWasToBringItIsSomebodyElse(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 100)
		refreshes(2)
		m.b.at("g", t(0), 100)
		m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Destination.WriteGroupOffsets" {
				return errors.New("connection reset")
			}
			return nil
		}})
		m.a.commit("g", t(0), 500)
		refreshes(1)
		m.skipped(tt, "connection reset")
		reads := 0
		m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Metadata.GroupOffsets" {
				if reads++; reads == 2 { // where it is, and where it is in the moment of the write
					m.b.commit("g", t(0), 500)
				}
			}
			return nil
		}})
		m.a.commit("g", t(0), 600)
		refreshes(1)
		m.skipped(tt, "moved at the destination in this moment")
		m.a.commit("g", t(0), 50)
		refreshes(3)
		m.b.at("g", t(0), 500)
		m.skipped(tt, "group g: t-0 left where it is: moved at the destination")
	})
}

func TestDecision17ClampAtTheStopAndNeverAMoveAfterIt(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("ahead", t(0), 5000)
		refreshes(2)
		m.b.at("ahead", t(0), 1000)
		m.a.fill("t", 0, 200)
		m.untilInStep()
		m.a.SetUnreachable(true)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.b.at("ahead", t(0), 1200) // as far as the mirror came since the last look, without the source
		expect(tt, "last mirror offset", m.one("t", 0).LME.Offset, 1200)
	})
}

// A cut while mirroring leaves a group behind the end; the stop puts it back before anybody writes there.
func TestDecision17AStopPutsGroupsBackThatACutHasLeftBehind(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		m.a.commit("g", t(0), 100)
		refreshes(2)
		m.b.at("g", t(0), 100)
		if _, err := m.a.ElectUnclean("t", 0, 90); err != nil {
			tt.Fatal(err)
		}
		m.untilOne("cut", "t", 0, func(p mirror.PartitionStatus) bool { return p.Replicated == 90 })
		m.a.SetUnreachable(true)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.b.at("g", t(0), 90)
	})
}

func TestDecision17AStopWaitsForTheCommitUnderWayAndNoneFollows(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 100)
		refreshes(2)
		held, release := make(chan struct{}), make(chan struct{})
		first := true
		m.b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
			if c.Operation == "Destination.WriteGroupOffsets" && first {
				first = false
				close(held)
				<-release
			}
			return nil
		}})
		m.a.commit("g", t(0), 500)
		<-held
		if _, err := m.Admin().Stop(tt.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			tt.Fatal(err)
		}
		synctest.Wait()
		if p := m.one("t", 0); p.State != statemachine.Stopping || p.Owner != mirror.OwnerOurs {
			tt.Fatalf("%s, %s", p.State, p.Owner)
		}
		close(release)
		m.untilOne("stopped", "t", 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
		m.b.at("g", t(0), 500)
	})
}

// A destination whose groups do not answer must not hold a failover up.
func TestDecision17AFailoverGoesOnWithoutTheGroups(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		m.a.commit("g", t(0), 500)
		refreshes(2)
		m.b.at("g", t(0), 100)
		m.a.fill("t", 0, 20)
		m.untilInStep()
		m.b.hang("Metadata.GroupOffsets")
		within(tt, "Failover", 11*time.Second, func() {
			if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
				tt.Error(err)
			}
		})
		told := eventsOf[mirror.GroupsNotSettled](m.running)
		if len(told) != 1 || told[0].End != 120 {
			tt.Fatalf("%v", told)
		}
		expectWords(tt, told[0].String(), "the stop went on", "--to-offset 120 --topic t:0")
		m.b.at("g", t(0), 100)
		m.b.SetHooks(memlog.Hooks{})
		time.Sleep(2 * time.Minute)
		m.b.at("g", t(0), 120)
	})
}

// F-88: g reads t1 and t2; t1 fails over, g moves; an hour later t2 fails over.
func TestF88GroupOnBothSidesEndsWhereTheSourceHadItLast(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		t1, t2 := mirror.TopicPartition{Topic: "t1"}, mirror.TopicPartition{Topic: "t2"}
		for _, topic := range []string{"t1", "t2"} {
			a.local(topic, 1)
			a.fill(topic, 0, 1000)
		}
		m := follow(tt, "m", a, b)
		defer m.close()
		m.start("t1", "t2")
		m.untilInStep()
		a.commit("g", t1, 300)
		a.commit("g", t2, 300)
		refreshes(2)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{Topics: []string{"t1"}}); err != nil {
			tt.Fatal(err)
		}
		b.JoinGroup("g") // for t1
		b.commit("g", t1, 320)
		a.commit("g", t2, 700) // who reads t2 still does so at the source
		time.Sleep(time.Hour)
		b.at("g", t2, 300)
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{Topics: []string{"t2"}})
		expectWords(tt, plan.String(), "g", "t1", "t2", "400")
		a.SetUnreachable(true)
		b.LeaveGroup("g") // its members are moved
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{Topics: []string{"t2"}}); err != nil {
			tt.Fatal(err)
		}
		b.at("g", t2, 700)
		b.at("g", t1, 320)
	})
}

func TestF88GroupThatIsActiveAtTheStopIsNamed(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 300)
		refreshes(2)
		m.b.JoinGroup("g")
		m.a.commit("g", t(0), 700)
		refreshes(2)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		left := eventsOf[mirror.GroupLeft](m.running)
		if len(left) != 1 {
			tt.Fatalf("%v", left)
		}
		expectWords(tt, left[0].String(), "group g is left where it is", "it has members at the destination", "t-0 is at 300 at the destination and was at 700 at the source")
	})
}

// What a failback finds at the old source is from before: offsets of records that are no more.
func TestSection6AFailbackTakesGroupsOver(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 1000)
		out := follow(tt, "a-b", a, b)
		defer out.close()
		out.start("t")
		out.untilInStep()
		a.commit("g", t(0), 900)
		a.commit("gone", t(0), 1000)
		refreshes(2)
		if _, err := out.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		a.fill("t", 0, 50) // nobody will have seen these
		a.commit("g", t(0), 1040)
		b.fill("t", 0, 500)
		b.commit("g", t(0), 700)     // rewound there
		b.commit("gone", t(0), 1300) // gone on there
		home := follow(tt, "b-a", b, a)
		defer home.close()
		plan, err := home.PlanFailback(tt.Context(), "t")
		if err != nil {
			tt.Fatal(err)
		}
		if _, err := home.ExecuteFailback(tt.Context(), plan); err != nil {
			tt.Fatal(err)
		}
		home.untilInStep()
		refreshes(2)
		a.at("g", t(0), 700)
		a.at("gone", t(0), 1300)
		// From here on what somebody does at the destination is his.
		a.commit("g", t(0), 1100)
		b.commit("g", t(0), 710)
		refreshes(3)
		a.at("g", t(0), 1100)
		b.commit("g", t(0), 1200) // the group has come past it
		refreshes(2)
		a.at("g", t(0), 1200)
	})
}

func TestDecision17OffsetsThatStandStillAreRenewed(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		m.a.commit("g", t(0), 60)
		refreshes(2)
		m.b.DeleteGroupOffsets("g") // offsets.retention.minutes
		refreshes(2)
		m.b.at("g", t(0), 60)
		writes := m.b.count("Destination.WriteGroupOffsets")
		m.again(tt, rarely)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if writes.Load() < 3 || writes.Load() > 5 {
			tt.Errorf("written %d times in a day", writes.Load())
		}
	})
}

func TestF42NoEpochThatTheDestinationHasNotReached(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		if err := m.a.CommitOffset("g", t(0), mirror.GroupOffset{Offset: 40, LeaderEpoch: 12, Metadata: "mine"}); err != nil {
			tt.Fatal(err)
		}
		refreshes(2)
		got, _ := m.b.GroupOffset("g", t(0))
		expect(tt, "commit", got, mirror.GroupOffset{Offset: 40, LeaderEpoch: mirror.Unknown, Metadata: "mine"})
		for range 13 {
			if _, err := m.a.ElectLeader("t", 0); err != nil {
				tt.Fatal(err)
			}
		}
		m.a.fill("t", 0, 1)
		m.untilInStep()
		if err := m.a.CommitOffset("g", t(0), mirror.GroupOffset{Offset: 41, LeaderEpoch: 0, Metadata: "mine"}); err != nil {
			tt.Fatal(err)
		}
		refreshes(2)
		got, _ = m.b.GroupOffset("g", t(0))
		expect(tt, "commit", got, mirror.GroupOffset{Offset: 41, LeaderEpoch: 0, Metadata: "mine"})
	})
}

func TestSection6FiltersAndShareGroups(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		set(tt, m.b, "mirror.groups.exclude", "test-.*")
		m.a.commit("test-1", t(0), 10)
		m.a.commit("g", t(0), 10)
		if err := m.a.SetShareOffset("shared", t(0), 30); err != nil {
			tt.Fatal(err)
		}
		refreshes(2)
		m.b.at("test-1", t(0), -1)
		m.b.at("g", t(0), 10)
		m.b.at("shared", t(0), 30)
		// A share group here that is an ordinary group at the source is nobody's to move.
		if err := m.b.SetShareOffset("odd", t(0), 5); err != nil {
			tt.Fatal(err)
		}
		m.a.commit("odd", t(0), 50)
		refreshes(2)
		m.b.at("odd", t(0), 5)
		m.skipped(tt, "group odd", "it is a share group at the destination")
	})
}

func TestSection6PausedTopicsTakeNoPart(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		m.a.commit("g", t(0), 10)
		refreshes(2)
		m.pause("t")
		m.a.commit("g", t(0), 20)
		refreshes(3)
		m.b.at("g", t(0), 10)
		m.resume("t")
		m.untilInStep()
		refreshes(2)
		m.b.at("g", t(0), 20)
	})
}

// The offsets of a topic that was made again under its name say nothing of the copy (F-28).
func TestF28OffsetsOfARecreatedTopicAreNotTheCopys(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		m.a.commit("g", t(0), 90)
		refreshes(2)
		read := make(chan struct{})
		m.a.SetHooks(memlog.Hooks{After: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Metadata.Groups" { // recreated inside the look, behind the refresh
				select {
				case <-read:
				default:
					close(read)
					if err := m.a.DeleteTopic("t"); err != nil {
						tt.Error(err)
					}
					m.a.local("t", 1)
					m.a.fill("t", 0, 10)
					m.a.commit("g", t(0), 5)
				}
			}
			return nil
		}})
		refreshes(5)
		<-read
		m.b.at("g", t(0), 90)
	})
}

// recreated is a group that both sides have at 90 of a topic that is made again then, with ten records; the copy has started over.
func recreated(tt *testing.T, before func(m *pair)) *pair {
	m := copying(tt, 1, 100)
	m.a.commit("g", t(0), 90)
	refreshes(2)
	m.b.at("g", t(0), 90)
	before(m)
	if _, err := m.a.RecreateTopic("t", 1); err != nil {
		tt.Fatal(err)
	}
	m.a.DeleteGroupOffsets("g") // as a cluster does with those of a topic that is deleted
	m.a.fill("t", 0, 10)
	p := m.untilFailed("t", 0, "source topic id")
	if _, err := m.Admin().Start(tt.Context(), []string{"t"}, mirror.StartOptions{Consents: []mirror.Consent{*p.NeedsConsent}}); err != nil {
		tt.Fatal(err)
	}
	m.untilOne("started over", "t", 0, func(p mirror.PartitionStatus) bool { return p.Replicated == 10 && inStep(p) })
	return m
}

// A stop that comes before the groups of a topic that was made again were looked at does not put them to their place in the old one: what lies below it they have not read.
func TestF28AStopPutsNoGroupToItsPlaceInATopicThatIsNoMore(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := recreated(tt, func(m *pair) {
			m.a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
				if c.Operation == "Metadata.Groups" {
					return errors.New("not now")
				}
				return nil
			}})
		})
		m.a.commit("g", t(0), 5)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.b.at("g", t(0), 0)
	})
}

// What the destination has of a topic that was made again is from before, also what somebody moved there; a restart in between changes nothing.
func TestF28GroupsAreTakenOverWhenTheTopicWasMadeAgain(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := recreated(tt, func(m *pair) {
			m.b.commit("g", t(0), 70)
			refreshes(2)
			m.b.at("g", t(0), 70)
		})
		m.a.commit("g", t(0), 5)
		refreshes(3)
		m.b.at("g", t(0), 5)
		m.b.commit("g", t(0), 7) // in this topic it is theirs
		refreshes(3)
		m.b.at("g", t(0), 7)
	})
}

// A committed offset carries the leader epoch of the record before it. Where an election has put other records in that one's place, the group goes on where they begin, as its clients would (KIP-320).
func TestF56AGroupOfALineThatAnElectionEndedGoesOnWhereItParts(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		if err := m.a.CommitOffset("g", t(0), mirror.GroupOffset{Offset: 100, LeaderEpoch: m.one("t", 0).SourceLeaderEpoch}); err != nil {
			tt.Fatal(err)
		}
		refreshes(2)
		m.b.at("g", t(0), 100)
		if _, err := m.a.ElectUnclean("t", 0, 90); err != nil {
			tt.Fatal(err)
		}
		m.a.fill("t", 0, 20)
		m.untilOne("cut and copied", "t", 0, func(p mirror.PartitionStatus) bool { return p.Replicated == 110 })
		refreshes(2)
		m.b.at("g", t(0), 90)
		n := m.b.count("Destination.WriteGroupOffsets")
		refreshes(5)
		m.b.at("g", t(0), 90)
		expect(tt, "writes of a group that rests", n.Load(), 0)
	})
}

// Two processes have different topics of one mirror: each moves groups on its own, and neither forgets what the other remembers.
func TestDecision17TwoProcessesCommitForTheirOwnPartitions(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 2, 100)
		m.a.local("u", 1)
		m.a.fill("u", 0, 50)
		u := mirror.TopicPartition{Topic: "u"}
		other := follow(tt, "n", m.a, m.b)
		defer other.close()
		other.start("u")
		other.untilInStep()
		m.a.commit("g", t(0), 10)
		m.a.commit("g", t(1), 20)
		m.a.commit("g", u, 30)
		refreshes(2)
		m.b.at("g", t(0), 10)
		m.b.at("g", t(1), 20)
		m.b.at("g", u, 30)
		m.a.commit("g", u, 5)
		m.a.commit("g", t(1), 7)
		refreshes(2)
		m.b.at("g", u, 5)
		m.b.at("g", t(1), 7)
		names := func(s mirror.Status) (names []string) {
			for _, g := range s.Metadata.FollowedGroups {
				for _, p := range g.Partitions {
					names = append(names, fmt.Sprintf("%s %s-%d %d", g.Group, p.Topic, p.Partition, p.Written))
				}
			}
			return names
		}
		if got := names(m.Status()); !slices.Equal(got, []string{"g t-0 10", "g t-1 7"}) {
			tt.Errorf("%q", got)
		}
		if got := names(other.Status()); !slices.Equal(got, []string{"g u-0 5"}) {
			tt.Errorf("%q", got)
		}
	})
}

func TestSection6GroupsThatAreNotFollowedAnyMoreAreForgotten(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		for _, group := range []string{"g", "console", "excluded"} {
			m.a.commit(group, t(0), 10)
		}
		refreshes(2)
		remembered := func() (names []string) {
			for _, g := range m.Status().Metadata.FollowedGroups {
				names = append(names, g.Group)
			}
			return names
		}
		expect(tt, "remembered", remembered(), []string{"console", "excluded", "g"})
		m.a.DeleteGroupOffsets("console")
		set(tt, m.b, "mirror.groups.exclude", "excluded")
		m.a.commit("excluded", t(0), 90)
		refreshes(3)
		expect(tt, "remembered", remembered(), []string{"console", "g"})
		m.b.at("excluded", t(0), 10)
		// It is still the mirror's own when it is included again: forwards and back.
		m.a.commit("excluded", t(0), 3)
		set(tt, m.b, "mirror.groups.exclude", "")
		refreshes(2)
		m.b.at("excluded", t(0), 3)
		set(tt, m.b, "mirror.groups.exclude", "excluded")
		m.b.at("console", t(0), 10)
		m.again(tt, rarely)
		time.Sleep(72 * time.Hour)
		synctest.Wait()
		expect(tt, "remembered", remembered(), []string{"g"})
	})
}
