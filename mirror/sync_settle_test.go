package mirror_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func TestF57APendingGroupKeepsNoOtherBeingTakenOver(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("eos", t(0), 10)
		m.a.PendingCommit("eos", t(0), true)
		m.a.commit("g", t(0), 400)
		refreshes(4)
		m.b.at("g", t(0), 400)
		m.b.JoinGroup("g") // a consumer at the destination reads on and leaves
		m.b.commit("g", t(0), 900)
		refreshes(2)
		m.b.LeaveGroup("g")
		refreshes(2)
		m.b.at("g", t(0), 900)
	})
}

func TestF57ADeniedGroupKeepsNoOtherBeingTakenOver(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("secret", t(0), 10)
		m.a.SetDenied(mirror.Right{Operation: "Describe", Resource: "Group", Name: "secret"})
		m.a.commit("g", t(0), 400)
		refreshes(4)
		m.b.at("g", t(0), 400)
		m.b.commit("g", t(0), 900) // a standalone consumer, or one that came and went between two looks
		refreshes(2)
		m.b.at("g", t(0), 900)
	})
}

func TestF59AnUnreadableRecordIsOneGroups(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 400)
		want(tt, m.b, func(s *mirror.ControlState) {
			s.Provenance = append(s.Provenance, mirror.Provenance{Mirror: "m", Kind: "group", Name: "zz", Value: `{"v":2}`})
		})
		refreshes(4)
		m.b.at("g", t(0), 400)
	})
}

func TestDecision17RetriesBehindAStopTouchNoGroupThatIsInItsPlace(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 400)
		m.a.commit("back", t(0), 400)
		m.a.commit("active", t(0), 400)
		m.a.commit("locked", t(0), 10)
		refreshes(2)
		m.b.JoinGroup("active")
		m.b.commit("active", t(0), 450)
		refreshes(2)
		m.b.SetDenied(mirror.Right{Operation: "Describe", Resource: "Group", Name: "locked"})
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.b.at("g", t(0), 400)
		before := wanted(tt, m.b).Version
		m.b.DeleteGroupOffsets("g") // the operator wants g to begin anew, at its reset rule
		time.Sleep(time.Hour)
		n := len(eventsOf[mirror.GroupLeft](m.running))
		tt.Logf("GroupLeft told %d times, the desired state written %d times, in the hour after the failover", n, wanted(tt, m.b).Version-before)
		if n > 1 {
			tt.Errorf("GroupLeft told %d times", n)
		}
		m.b.at("g", t(0), -1)
	})
}

func TestDecision17AResetAfterTheFailoverStays(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 400)
		m.a.commit("g", t(0), 500) // ahead of the copy
		m.a.commit("locked", t(0), 10)
		refreshes(2)
		m.b.at("g", t(0), 400)
		m.a.fill("t", 0, 100)
		m.untilInStep()
		m.b.SetDenied(mirror.Right{Operation: "Describe", Resource: "Group", Name: "locked"})
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.b.at("g", t(0), 500)
		m.b.commit("g", t(0), 400) // kafka-consumer-groups --reset-offsets
		time.Sleep(10 * time.Minute)
		m.b.at("g", t(0), 400)
	})
}

// partial wraps a destination: what the look of "share" gives is partial, with an error beside it, as GroupOffsets.Err allows.
// partial is a destination whose group "partial" cannot be read whole, and whose writes may be slow. It counts writes by partition.
type partial struct {
	*memlog.Cluster
	mu       sync.Mutex
	writes   map[mirror.TopicPartition]int
	onCommit func(group string)
	slow     time.Duration
}

func (d *partial) GroupOffsets(ctx context.Context, groups []mirror.Group) (map[string]mirror.GroupOffsets, error) {
	got, err := d.Cluster.GroupOffsets(ctx, groups)
	if o, ok := got["partial"]; ok {
		o.Err, o.Unread = fmt.Errorf("x-0: UNKNOWN_TOPIC_OR_PARTITION"), []mirror.TopicPartition{{Topic: "x"}}
		got["partial"] = o
	}
	return got, err
}

func (d *partial) WriteGroupOffsets(ctx context.Context, group mirror.Group, offsets map[mirror.TopicPartition]mirror.GroupOffset) (map[mirror.TopicPartition]error, error) {
	d.mu.Lock()
	for tp := range offsets {
		d.writes[tp]++
	}
	d.mu.Unlock()
	if d.onCommit != nil {
		d.onCommit(group.Name)
	}
	if d.slow > 0 {
		select {
		case <-time.After(d.slow):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return d.Cluster.WriteGroupOffsets(ctx, group, offsets)
}

func TestF59WhatCanBeReadOfAGroupIsFollowed(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		d := &partial{writes: map[mirror.TopicPartition]int{}}
		m := copying(tt, 1, 1000, func(c *mirror.Config) { d.Cluster = c.Destination.(*memlog.Cluster); c.Destination = d })
		m.a.commit("partial", t(0), 400)
		refreshes(4)
		m.b.at("partial", t(0), 400)
	})
}

func TestDecision17EachPartitionIsRenewed(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		d := &partial{writes: map[mirror.TopicPartition]int{}}
		m := copying(tt, 2, 1000, func(c *mirror.Config) { d.Cluster = c.Destination.(*memlog.Cluster); c.Destination = d; rarely(c) })
		m.a.commit("g", t(1), 60)
		m.a.commit("g", t(0), 0)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		clear(d.writes)
		for i := range int64(48) {
			m.a.commit("g", t(0), i)
			time.Sleep(30 * time.Minute)
		}
		synctest.Wait()
		if d.writes[t(1)] < 2 {
			tt.Errorf("t-1 renewed %d times in a day, t-0 written %d times", d.writes[t(1)], d.writes[t(0)])
		}
	})
}

func (c *slowControl) Update(ctx context.Context, change func(*mirror.ControlState) error) error {
	if c.hook != nil {
		c.hook()
	}
	return c.Control.Update(ctx, change)
}

func TestF57AMemberThatCameAndWentIsSeen(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		var c *slowControl
		m := copying(tt, 1, 1000, func(cfg *mirror.Config) { cfg.Control = nil })
		m.close()
		m.running = open(tt, "m", m.a.Cluster, m.b, func(cfg *mirror.Config) { c = &slowControl{Control: m.b.Control()}; cfg.Control = c })
		m.start("t")
		m.untilInStep()
		m.a.commit("g", t(0), 400)
		refreshes(3)
		m.b.at("g", t(0), 400)
		done := false
		c.hook = func() { // the look has read 400 at the destination, and is about to remember that it writes 500
			if !done {
				done = true
				m.b.JoinGroup("g")
				m.b.commit("g", t(0), 900)
				m.b.LeaveGroup("g")
			}
		}
		m.a.commit("g", t(0), 500)
		refreshes(3)
		if !done {
			tt.Fatal("hook not reached")
		}
		m.b.at("g", t(0), 900)
	})
}

func TestDecision17AThousandStopsWaitOnceForADeadCoordinator(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1000, 1)
		for p := range int32(1000) {
			m.a.commit("g", t(p), 1)
		}
		refreshes(3)
		m.b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
			if strings.HasPrefix(c.Operation, "Metadata.Group") || c.Operation == "Destination.WriteGroupOffsets" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}})
		began := time.Now()
		_, err := m.Failover(tt.Context(), mirror.FailoverOptions{})
		tt.Logf("all open after %s, %v", time.Since(began), err)
		if time.Since(began) > 11*time.Second {
			tt.Errorf("took %s", time.Since(began))
		}
	})
}

func TestDecision17AStopDoesNotWaitForAnothersRetries(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1)
		m.a.local("u", 1)
		m.a.fill("u", 0, 5)
		m.start("u")
		m.untilInStep()
		m.a.commit("g", t(0), 1)
		m.a.commit("g", mirror.TopicPartition{Topic: "u"}, 1)
		refreshes(3)
		m.b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
			if strings.HasPrefix(c.Operation, "Metadata.Group") {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}})
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{Topics: []string{"t"}}); err != nil {
			tt.Fatal(err)
		}
		time.Sleep(3 * time.Second) // the first retry is under way
		began := time.Now()
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{Topics: []string{"u"}}); err != nil {
			tt.Fatal(err)
		}
		tt.Logf("open after %s", time.Since(began))
		if time.Since(began) > 11*time.Second {
			tt.Errorf("took %s", time.Since(began))
		}
	})
}

func TestDecision17GroupsOfAStopAreMovedTogether(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		d := &partial{writes: map[mirror.TopicPartition]int{}}
		m := copying(tt, 1, 400, func(c *mirror.Config) { d.Cluster = c.Destination.(*memlog.Cluster); c.Destination = d })
		for i := range 40 {
			m.a.commit(fmt.Sprintf("g%02d", i), t(0), 500)
		}
		refreshes(3)
		m.a.fill("t", 0, 100)
		m.untilInStep()
		d.slow = 500 * time.Millisecond
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		late := 0
		for i := range 40 {
			if at, _ := m.b.GroupOffset(fmt.Sprintf("g%02d", i), t(0)); at.Offset != 500 {
				late++
			}
		}
		if late > 0 {
			tt.Errorf("%d of 40 groups are not in their place when the log is open", late)
		}
	})
}

func TestDecision17AMirrorMadeAgainKnowsNothingOfTheOldOne(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 400)
		refreshes(3)
		m.b.at("g", t(0), 400)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.b.commit("g", t(0), 990) // works here
		if _, err := m.Admin().Delete(tt.Context(), mirror.DeleteOptions{}); err != nil {
			tt.Fatal(err)
		}
		refreshes(4)
		if _, err := m.Admin().Create(tt.Context(), mirror.Settings{"bootstrap.servers": "a:1"}, mirror.CreateOptions{}); err != nil {
			tt.Log("create:", err)
		}
		if err := m.b.DeleteTopic("t"); err != nil {
			tt.Fatal(err)
		}
		refreshes(2)
		m.b.SetHooks(memlog.Hooks{})
		m.start("t")
		refreshes(6)
		tt.Log(m.Status().Topics, m.Status().Metadata.Groups)
		m.b.commit("h", t(0), 990)
		m.a.commit("h", t(0), 100)
		refreshes(4)
		m.b.at("g", t(0), 400)
	})
}

func TestDecision17TopicsThatAreGoneAreForgotten(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.a.commit("g", t(0), 3)
		for i := range 5 {
			name := fmt.Sprintf("day-%d", i)
			m.a.local(name, 1)
			m.a.configure(name, map[string]string{"retention.ms": "5"})
			m.start(name)
			refreshes(3)
			m.a.commit("g", mirror.TopicPartition{Topic: name}, 0)
			refreshes(2)
			if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{Topics: []string{name}}); err != nil {
				tt.Fatal(err)
			}
			if err := m.a.DeleteTopic(name); err != nil {
				tt.Fatal(err)
			}
			if err := m.b.DeleteTopic(name); err != nil {
				tt.Fatal(err)
			}
			refreshes(2)
		}
		m.again(tt, rarely)
		time.Sleep(60 * time.Hour)
		m.a.commit("g", t(0), 5)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		for _, p := range wanted(tt, m.b).Provenance {
			if strings.Contains(p.Name+p.Value, "day-0") {
				tt.Errorf("kept: %+v", p)
			}
		}
	})
}

func TestDecision17AMirrorMadeAgainTakesGroupsOver(tt *testing.T) {
	for _, restart := range []bool{true, false} {
		tt.Run(fmt.Sprintf("restart=%v", restart), func(tt *testing.T) {
			bubble(tt, func(tt *testing.T) {
				m := copying(tt, 1, 1000)
				m.a.commit("g", t(0), 400)
				refreshes(3)
				m.b.at("g", t(0), 400)
				if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
					tt.Fatal(err)
				}
				m.b.fill("t", 0, 200)
				m.b.commit("g", t(0), 1150) // works here, on records of its own
				if _, err := m.Admin().Delete(tt.Context(), mirror.DeleteOptions{Purge: true}); err != nil {
					tt.Fatal(err)
				}
				refreshes(4)
				set(tt, m.b, "bootstrap.servers", "a:1")
				if restart {
					m.again(tt)
				}
				plan, err := m.PlanFailback(tt.Context(), "t")
				if err != nil {
					tt.Fatal(err)
				}
				if _, err := m.ExecuteFailback(tt.Context(), plan); err != nil {
					tt.Log("start:", err)
				}
				refreshes(10)
				for _, topic := range m.Status().Topics {
					for _, p := range topic.Partitions {
						tt.Logf("%+v", p)
					}
				}
				tt.Log(m.Status().Metadata.Groups.Skipped)
				m.b.at("g", t(0), 400)
			})
		})
	}
}

func TestDecision17WhatIsUnsettledOutlivesTheProcess(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		m.a.commit("g", t(0), 500)
		refreshes(2)
		m.b.at("g", t(0), 100)
		m.a.fill("t", 0, 20)
		m.untilInStep()
		m.b.hang("Metadata.GroupOffsets")
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.b.SetHooks(memlog.Hooks{})
		m.again(tt)
		time.Sleep(time.Hour)
		m.b.at("g", t(0), 120)
	})
}

func TestDecision17ACommitUnderWayAtTheStopIsNotWrittenOver(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 400)
		refreshes(2)
		m.b.at("g", t(0), 400)
		m.b.commit("g", t(0), 900) // an application here
		refreshes(2)
		m.b.PendingCommit("g", t(0), true) // and its next transaction
		refreshes(2)
		m.b.at("g", t(0), 900)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.b.at("g", t(0), 900)
	})
}

func TestDecision17AnOffsetDeletedAtTheSourceIsNotWrittenAgain(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 2, 100)
		m.a.commit("g", t(0), 40)
		m.a.commit("g", t(1), 40)
		refreshes(2)
		m.a.DeleteGroupOffsets("g", t(1))
		refreshes(4)
		for _, g := range m.Status().Metadata.FollowedGroups {
			for _, p := range g.Partitions {
				tt.Logf("%+v", p)
				if p.Partition == 1 && (p.Source != -1 || p.Skipped == "") {
					tt.Errorf("%+v", p)
				}
			}
		}
	})
}

func TestDecision17AStopWaitsOneBoundForItsGroups(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.a.local("u", 1)
		m.a.fill("u", 0, 10)
		u := mirror.TopicPartition{Topic: "u"}
		m.start("u")
		m.untilInStep()
		m.a.commit("g", t(0), 1)
		m.a.commit("g", u, 1)
		refreshes(3)
		var writing atomic.Bool
		m.b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
			if c.Operation == "Destination.WriteGroupOffsets" {
				writing.Store(true)
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}})
		m.a.commit("g", t(0), 2)
		m.a.commit("g", u, 2)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{Topics: []string{"t"}}); err != nil {
			tt.Fatal(err)
		}
		for writing.Store(false); !writing.Load(); {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		began := time.Now()
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{Topics: []string{"u"}}); err != nil {
			tt.Fatal(err)
		}
		tt.Logf("open after %s", time.Since(began))
		if time.Since(began) > 11*time.Second {
			tt.Errorf("took %s", time.Since(began))
		}
	})
}

func TestF59ARecordThatIsTooLargeIsOneGroups(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		var b strings.Builder
		b.WriteString(`{"v":1,"topics":{"gone":{`)
		for i, size := 0, 0; size < 999_880; i++ { // as it is stored, with its quotation marks escaped
			if i > 0 {
				b.WriteByte(',')
			}
			n, _ := fmt.Fprintf(&b, `"%d":[1,1,1,1]`, i)
			size += n + 3
		}
		b.WriteString("}}}")
		want(tt, m.b, func(s *mirror.ControlState) {
			s.Provenance = append(s.Provenance, mirror.Provenance{Mirror: "m", Kind: "group", Name: "big", Value: b.String()})
		})
		m.a.commit("big", t(0), 10)
		m.a.commit("g", t(0), 400)
		refreshes(4)
		if err := m.Status().Metadata.Groups.Err; err != nil {
			tt.Log(len(err.Error()), err.Error()[:min(300, len(err.Error()))])
		}
		m.b.at("g", t(0), 400)
	})
}

func TestDecision17AnUnreadableRecordIsNotAskedAfterForEver(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 20, 10)
		m.a.commit("g", t(0), 5)
		refreshes(3)
		want(tt, m.b, func(s *mirror.ControlState) {
			s.Provenance = append(s.Provenance, mirror.Provenance{Mirror: "m", Kind: "group", Name: "zz", Value: `{"v":2}`})
		})
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		for _, e := range eventsOf[mirror.GroupsNotSettled](m.running)[:1] {
			tt.Log(e)
		}
		var calls atomic.Int64
		m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if strings.HasPrefix(c.Operation, "Metadata.Group") {
				calls.Add(1)
			}
			return nil
		}})
		time.Sleep(24 * time.Hour)
		tt.Logf("%d GroupsNotSettled, %d requests about groups in the day after the failover", len(eventsOf[mirror.GroupsNotSettled](m.running)), calls.Load())
		if calls.Load() > 100 {
			tt.Errorf("%d requests", calls.Load())
		}
	})
}

func TestF59ARecordThatIsTooLargeKeepsNoOtherGroupFromItsPlace(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 999)
		m.a.commit("g", t(0), 1500)
		refreshes(3)
		m.b.at("g", t(0), 999)
		m.a.fill("t", 0, 100)
		m.untilInStep()
		if err := m.b.CommitOffset("big", t(0), mirror.GroupOffset{Offset: 999}); err != nil {
			tt.Fatal(err)
		}
		put := func(pad int) error {
			var b strings.Builder
			b.WriteString(`{"v":1,"topics":{"t":{"0":[1500,-1,999,999]},"` + strings.Repeat("x", pad) + `":{`)
			for i, size := 0, 0; size < 999_000; i++ {
				if i > 0 {
					b.WriteByte(',')
				}
				n, _ := fmt.Fprintf(&b, `"%d":[1,1,1,1]`, i)
				size += n + 3
			}
			b.WriteString("}}}")
			return m.b.Control().Update(tt.Context(), func(s *mirror.ControlState) error {
				s.Provenance = append([]mirror.Provenance(nil), s.Provenance...)
				for i, p := range s.Provenance {
					if p.Name == "big" {
						s.Provenance[i].Value = b.String()
						return nil
					}
				}
				s.Provenance = append(s.Provenance, mirror.Provenance{Mirror: "m", Kind: "group", Name: "big", Value: b.String()})
				return nil
			})
		}
		low, high := 1, 2000 // put(low) fits, put(high) does not
		for high-low > 1 {
			if mid := (low + high) / 2; put(mid) == nil {
				low = mid
			} else {
				high = mid
			}
		}
		if err := put(low); err != nil {
			tt.Fatal(err)
		}
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		for _, e := range eventsOf[mirror.GroupsNotSettled](m.running) {
			tt.Log(e)
		}
		m.b.at("g", t(0), 1099)
	})
}

// slowControl takes its time, or does something, at each update.
type slowControl struct {
	mirror.Control
	hook func()
}

// What the old primary's group has read behind the common point is no more, and what lies there now it has not read: it goes back to where the records were cut.
func TestSection6AFailbackPutsGroupsBackThatOnlyTheOldPrimaryHas(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 100)
		out := follow(tt, "a-b", a, b)
		defer out.close()
		out.start("t")
		out.untilInStep()
		if _, err := out.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		a.fill("t", 0, 20)
		a.commit("x", t(0), 115)
		a.commit("low", t(0), 60)
		b.fill("t", 0, 50)
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
		refreshes(3)
		a.at("x", t(0), 100)
		a.at("low", t(0), 60)
		back := eventsOf[mirror.GroupMovedBack](home)
		if len(back) != 1 || back[0].Group != "x" {
			tt.Errorf("%v", back)
		}
	})
}

// A group that was never the mirror's and lies beyond its end is named when clients get the log.
func TestDecision17AGroupBeyondTheEndIsNamed(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		refreshes(2)
		m.b.commit("odd", t(0), 5000)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		left := eventsOf[mirror.GroupLeft](m.running)
		if len(left) != 1 {
			tt.Fatalf("%v", left)
		}
		expectWords(tt, left[0].String(), "odd", "t-0 is at 5000", "the mirror ended at 100")
		m.b.at("odd", t(0), 5000)
	})
}

// While the destination does not say where a group is, where the source has it is remembered: the stop needs it.
func TestF59WhereTheSourceHasAGroupIsKnownWithoutTheDestination(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 100)
		refreshes(2)
		m.b.SetDenied(mirror.Right{Operation: "Describe", Resource: "Group", Name: "g"})
		m.a.commit("g", t(0), 900)
		refreshes(2)
		g := m.Status().Metadata.FollowedGroups
		if len(g) != 1 || g[0].Partitions[0].Source != 900 || g[0].Partitions[0].Skipped == "" {
			tt.Fatalf("%+v", g)
		}
		m.a.SetUnreachable(true)
		m.b.SetDenied()
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.b.at("g", t(0), 900)
	})
}

func TestF59WhatIsRefusedIsNotShownAsWritten(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 100)
		refreshes(2)
		m.b.SetDenied(mirror.Right{Operation: "Read", Resource: "Group", Name: "g"})
		m.a.commit("g", t(0), 900)
		refreshes(3)
		g := m.Status().Metadata.FollowedGroups
		if len(g) != 1 || g[0].Partitions[0].Written == 900 || g[0].Partitions[0].Skipped == "" {
			tt.Fatalf("%+v", g)
		}
		m.b.SetDenied()
		refreshes(2)
		m.b.at("g", t(0), 900)
		if g := m.Status().Metadata.FollowedGroups[0].Partitions[0]; g.Written != 900 || g.Skipped != "" {
			tt.Errorf("%+v", g)
		}
	})
}

func TestDecision17APausedPartitionsGroupsAreNotSaidToBeInStep(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 100)
		m.a.local("u", 1)
		m.a.fill("u", 0, 100)
		u := mirror.TopicPartition{Topic: "u"}
		m.start("u")
		m.untilInStep()
		m.a.commit("g", t(0), 10)
		m.a.commit("g", u, 10)
		refreshes(2)
		if _, err := m.Admin().Pause(tt.Context(), []string{"u"}, mirror.PauseOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.a.commit("g", t(0), 90)
		m.a.commit("g", u, 90)
		refreshes(3)
		for _, p := range m.Status().Metadata.FollowedGroups[0].Partitions {
			if (p.Topic == "u") != (p.Skipped != "") {
				tt.Errorf("%+v", p)
			}
		}
	})
}
