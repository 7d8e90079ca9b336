package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// failing has one operation of a side fail while the error that it returns is not nil.
func (s *side) failing(operation string, why func() error) {
	s.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
		if c.Operation == operation {
			return why()
		}
		return nil
	}})
}

// TestWhatIsLeftAloneIsToldOnce: however often it comes and goes, and whatever becomes of the looks in between. It is told again when it was not left alone for a while.
func TestWhatIsLeftAloneIsToldOnce(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("pending", t(0), 10)
		const groups = 50
		for i := range groups {
			g := fmt.Sprintf("active-%d", i)
			m.a.commit(g, t(0), 10)
			m.b.JoinGroup(g)
			m.b.commit(g, t(0), 20)
		}
		refreshes(4)
		told := func() int { return len(eventsOf[mirror.SyncSkipped](m.running)) }
		before := told()
		if before < groups {
			tt.Fatalf("told of %d only", before)
		}
		for i := range 40 {
			m.a.PendingCommit("pending", t(0), i%2 == 0)
			refreshes(1)
		}
		expect(tt, "told of what comes and goes", told()-before, 1)
		before = told()
		var fail atomic.Bool
		m.b.failing("Metadata.GroupOffsets", func() error {
			if fail.Load() {
				return context.DeadlineExceeded
			}
			return nil
		})
		for i := range 10 {
			fail.Store(i%2 == 0)
			refreshes(1)
			if n := len(m.Status().Metadata.Groups.Skipped); n != groups {
				tt.Fatalf("look %d: %d groups are left alone, not %d", i, n, groups)
			}
		}
		expect(tt, "told again when half of the looks failed", told()-before, 0)
		refreshes(25)
		m.a.PendingCommit("pending", t(0), true)
		refreshes(2)
		expect(tt, "told of what has come again", told()-before, 1)
	})
}

// TestWordsThatChangeWithEachLookAreNotTold of a group that cannot be read, and of a whole part.
func TestWordsThatChangeWithEachLookAreNotTold(tt *testing.T) {
	for _, operation := range []string{"Destination.WriteGroupOffsets", "Metadata.GroupOffsets"} {
		bubble(tt, func(tt *testing.T) {
			m := copying(tt, 1, 1000)
			m.a.commit("g", t(0), 10)
			m.a.SetAuthorizer(true)
			m.b.SetAuthorizer(true)
			refreshes(12)
			n := len(eventsOf[mirror.SyncSkipped](m.running)) + len(eventsOf[mirror.SyncTrouble](m.running))
			port, steady := 0, false
			m.b.failing(operation, func() error {
				if !steady {
					port++
				}
				return fmt.Errorf("read tcp 127.0.0.1:%d: connection reset", 40000+port)
			})
			told := func() (all []string) {
				for _, e := range eventsOf[mirror.SyncSkipped](m.running) {
					all = append(all, e.String())
				}
				for _, e := range eventsOf[mirror.SyncTrouble](m.running) {
					all = append(all, e.String())
				}
				return all[n:]
			}
			for i := range 60 {
				m.a.commit("g", t(0), int64(20+i))
				refreshes(1)
			}
			if port < 30 || len(told()) != 1 {
				tt.Errorf("%s: failed %d times, told %q", operation, port, told())
			}
			steady = true // these words last
			for i := range 10 {
				m.a.commit("g", t(0), int64(200+i))
				refreshes(1)
			}
			if len(told()) != 2 {
				tt.Errorf("%s: told %q", operation, told())
			}
		})
	}
}

// TestTroubleThatComesAndGoesIsToldOnceInAWhile: its beginning and its end at once, and then how it stands every ten minutes.
func TestTroubleThatComesAndGoesIsToldOnceInAWhile(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 10)
		refreshes(4)
		var fail atomic.Bool
		m.b.failing("Metadata.GroupOffsets", func() error {
			if fail.Load() {
				return errors.New("coordinators are gone")
			}
			return nil
		})
		look := func(failing bool) int {
			fail.Store(failing)
			refreshes(1)
			return len(eventsOf[mirror.SyncTrouble](m.running))
		}
		expect(tt, "told of the beginning", look(true), 1)
		expect(tt, "told of the end", look(false), 2)
		for i := range 16 { // eight minutes
			expect(tt, "told of what comes and goes", look(i%2 == 0), 2)
		}
		for range 5 {
			look(true)
		}
		expect(tt, "told that it lasts", look(true), 3)
		expect(tt, "told that it has ended", look(false), 4)
		events := eventsOf[mirror.SyncTrouble](m.running)
		for i, e := range events {
			if (e.Err != nil) != (i%2 == 0) {
				tt.Errorf("%d: %s", i, e)
			}
		}
	})
}

// TestAPartThatIsOffLooksWhenTheSettingsChange and does not wait for its rest to be over.
func TestAPartThatIsOffLooksWhenTheSettingsChange(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		set(tt, m.b, "mirror.topic.properties.exclude", ".*")
		m.a.configure("t", map[string]string{"retention.ms": "5"})
		refreshes(3)
		if m.Status().Metadata.Configs.Off == "" {
			tt.Fatal("it is not off")
		}
		set(tt, m.b, "mirror.topic.properties.exclude", "segment.ms")
		refreshes(2)
		m.b.configured("t", map[string]string{"retention.ms": "5"})
	})
}

// TestWhatARefreshAsksWithNothingToDo: each part of metadata sync makes sure whose answers it has, and access rules need no topic for that.
func TestWhatARefreshAsksWithNothingToDo(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 2, 10)
		m.a.SetAuthorizer(true)
		m.b.SetAuthorizer(true)
		m.a.commit("g", t(0), 5)
		refreshes(14)
		calls := map[string]int{}
		var mu sync.Mutex
		m.a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			mu.Lock()
			defer mu.Unlock()
			calls[c.Operation]++
			return nil
		}})
		const n = 10
		refreshes(n)
		mu.Lock()
		defer mu.Unlock()
		for operation, most := range map[string]int{"Source.Cluster": 4 * n, "Source.Topics": 3*n + 1, "Metadata.Groups": n, "Metadata.GroupOffsets": n, "Metadata.TopicConfigs": n, "Metadata.ACLs": n} {
			if calls[operation] < n || calls[operation] > most {
				tt.Errorf("%s: %d in %d refreshes", operation, calls[operation], n)
			}
		}
	})
}

// TestAConfirmationThatFailsIsNoTroubleOfTheCopying: it is not the source's error, and nothing waits for it.
func TestAConfirmationThatFailsIsNoTroubleOfTheCopying(tt *testing.T) {
	for _, operation := range []string{"Source.Topics", "Source.Cluster"} {
		bubble(tt, func(tt *testing.T) {
			m := copying(tt, 1, 10)
			m.a.commit("g", t(0), 1)
			refreshes(2)
			m.b.at("g", t(0), 1)
			m.a.commit("g", t(0), 5)
			var read atomic.Bool
			failed, opened := 0, 0
			m.a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
				switch {
				case c.Operation == "Metadata.GroupOffsets":
					read.Store(true)
				case c.Operation == operation && read.CompareAndSwap(true, false):
					failed++
					return context.DeadlineExceeded
				case strings.HasSuffix(c.Operation, "OpenFetcher"):
					opened++
				}
				return nil
			}})
			for range 20 {
				refreshes(1)
				if why := m.Snapshot().SourceError; why != "" {
					tt.Errorf("%s: the source's error is %q", operation, why)
					break
				}
			}
			if failed == 0 || opened > 0 {
				tt.Errorf("%s: failed %d times, %d fetchers opened", operation, failed, opened)
			}
			m.a.SetHooks(memlog.Hooks{})
			refreshes(2)
			m.b.at("g", t(0), 5)
		})
	}
}

// TestNothingIsKnownOfAMirrorThatWasDeleted: one that is made under its name begins with nothing.
func TestNothingIsKnownOfAMirrorThatWasDeleted(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 1000)
		m.a.commit("g", t(0), 10)
		m.b.JoinGroup("g")
		m.b.commit("g", t(0), 20)
		refreshes(4)
		m.skipped(tt, "group g: t-0 left where it is")
		if _, err := m.Admin().Stop(tt.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.until("stopped", func(s mirror.Status) bool {
			return each(s, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
		})
		want(tt, m.b, func(s *mirror.ControlState) {
			s.Remove("t")
			s.RemoveMirror(mirror.DeletedMirror{Name: "m", At: time.Now()})
		})
		m.until("buried", func(mirror.Status) bool { return len(eventsOf[mirror.MirrorDeleted](m.running)) > 0 })
		got := m.Status().Metadata
		for part, s := range map[string]mirror.SyncStatus{"groups": got.Groups, "topic settings": got.Configs, "access rules": got.ACLs} {
			if !s.At.IsZero() || s.Err != nil || s.Off != "" || len(s.Skipped) > 0 {
				tt.Errorf("%s of a mirror that was deleted: %+v", part, s)
			}
		}
	})
}
