package mirror_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// follow opens a mirror whose desired state is kept by its destination.
func follow(t *testing.T, name string, src, dst *side, change ...func(*mirror.Config)) *running {
	t.Helper()
	return open(t, name, src.Cluster, dst, append(change, func(c *mirror.Config) { c.Control = dst.Control() })...)
}

func wanted(t *testing.T, s *side) mirror.ControlState {
	t.Helper()
	state, err := s.Control().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func want(t *testing.T, s *side, change func(*mirror.ControlState)) {
	t.Helper()
	if err := s.Control().Update(t.Context(), func(state *mirror.ControlState) error {
		change(state)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// three makes clusters A, B and C; A has topic t.
func three(t *testing.T) (a, b, c *side) {
	t.Helper()
	a, b, c = newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"}), newSide(t, memlog.Config{ClusterID: "C"})
	a.local("t", 1)
	a.fill("t", 0, 3)
	return a, b, c
}

func TestF71AChainIsFineAndARingIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := three(t)
		first := follow(t, "a-b", a, b)
		defer first.close()
		first.start("t")
		first.untilInStep()
		synctest.Wait()
		second := follow(t, "b-c", b, c)
		defer second.close()
		second.start("t")
		second.untilInStep()
		synctest.Wait()
		o, ok := func() (mirror.TopicOrigin, bool) { s := wanted(t, c); return s.Origin("b-c", "t") }()
		if !ok || o.SourceClusterID != "B" || !slices.Equal(o.Upstream, []string{"A"}) {
			t.Fatalf("origin at C: %+v, %t", o, ok)
		}
		// C does not mirror from A, yet what it has is A's.
		third := follow(t, "c-a", c, a)
		defer third.close()
		third.start("t")
		third.untilFailed("t", 0, "detected mirror loop for mirror: b-c", "t-0 from B", "which has it from this cluster", "stop one mirror of the ring first")
		if got := a.log("t", 0).End(); got != 3 {
			t.Errorf("A ends at %d", got)
		}
		// Once the ring is broken it goes on by itself.
		if _, err := second.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		second.until("stopped", func(s mirror.Status) bool {
			return each(s, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
		})
		third.untilOne("out of the ring", "t", 0, func(p mirror.PartitionStatus) bool { return p.State != statemachine.Failed || p.NeedsConsent != nil })
	})
}

func TestSpec1_1ARunningMirrorExistsWithTheClusterItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		m := follow(t, "m", a, b)
		defer m.close()
		synctest.Wait()
		s := wanted(t, b)
		if e, ok := s.Mirror("m"); !ok || e.SourceClusterID != "" || e.Created.IsZero() {
			t.Errorf("before the source was asked: %+v %t", e, ok)
		}
		m.start("t")
		m.untilInStep()
		s = wanted(t, b)
		if e, _ := s.Mirror("m"); e.SourceClusterID != "A" {
			t.Errorf("entry %+v", e)
		}
	})
}

func TestSpec1_10RecoverIsAskedForByAnotherProcess(t *testing.T) {
	for name, running := range map[string]bool{"while the mirror runs": true, "while no process runs": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, _ := three(t)
				m := follow(t, "m", a, b)
				m.start("t")
				m.untilInStep()
				if err := a.DeleteTopic("t"); err != nil {
					t.Fatal(err)
				}
				m.untilOne("failed for good", "t", 0, func(p mirror.PartitionStatus) bool { return p.RetryAttempt == statemachine.NonRetryable })
				if !running {
					m.close()
				}
				want(t, b, func(s *mirror.ControlState) {
					w, _ := s.Topic("t")
					w.Recover++
					s.Set(w)
				})
				if !running {
					m = follow(t, "m", a, b)
				}
				m.until("taken out", func(mirror.Status) bool {
					s := wanted(t, b)
					w, _ := s.Topic("t")
					return w.Recover == 0
				})
				tried := 0
				for _, e := range m.told() {
					if s, ok := e.(mirror.StateChanged); ok && s.From == statemachine.Failed {
						tried++
					}
				}
				if tried == 0 {
					t.Errorf("not tried again")
				}
				m.close()
			})
		})
	}
}

func TestSpec1_4WhatADeletedMirrorLeaves(t *testing.T) {
	for _, purge := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b, _ := three(t)
			m := follow(t, "m", a, b)
			m.start("t")
			m.untilInStep()
			if _, err := m.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
				t.Fatal(err)
			}
			m.until("stopped", func(s mirror.Status) bool {
				return each(s, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
			})
			want(t, b, func(s *mirror.ControlState) {
				s.Remove("t")
				s.RemoveMirror(mirror.DeletedMirror{Name: "m", Purge: purge, At: time.Now()})
			})
			m.until("buried", func(mirror.Status) bool { return len(eventsOf[mirror.MirrorDeleted](m)) > 0 })
			states, lmes := 0, 0
			if err := b.StateStore().Load(t.Context(), func(e statemachine.Entry) error {
				if e.State != statemachine.NewPartitionState() {
					states++
				}
				if e.LME != nil {
					lmes++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if states != 0 || (lmes == 0) != purge {
				t.Errorf("purge %t: %d states, %d last mirror epochs are left", purge, states, lmes)
			}
			if n := len(m.Status().Topics); n != 0 {
				t.Errorf("%d topics are still served", n)
			}
			// It does not come back by itself, neither now nor with the next process.
			time.Sleep(10 * time.Minute)
			m.close()
			m = follow(t, "m", a, b)
			time.Sleep(10 * time.Minute)
			m.close()
			s := wanted(t, b)
			if _, ok := s.Mirror("m"); ok {
				t.Error("the mirror is back")
			}
		})
	}
}

func TestReportsOutliveTheirProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		m := follow(t, "m", a, b)
		m.start("t")
		m.untilInStep()
		time.Sleep(2 * time.Minute)
		last := time.Now()
		m.close()
		time.Sleep(time.Hour)
		r, err := b.Control().Reports(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Nodes) != 1 || len(r.Partitions) != 1 {
			t.Fatalf("%+v", r)
		}
		n, p := r.Nodes[0], r.Partitions[0]
		if n.Mirror != "m" || n.Owner != "m" || n.DestinationID != "B" || last.Sub(n.Seen) > time.Minute || n.Seen.After(last) {
			t.Errorf("node %+v, the process ended at %s", n, last)
		}
		if p.State != statemachine.Mirroring || p.SourceEnd != 3 || p.DestinationEnd != 3 || p.InStep.IsZero() || p.At.After(last) || last.Sub(p.At) > 10*time.Minute {
			t.Errorf("partition %+v", p)
		}
	})
}

func TestOneTroubleWithReportsIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = deaf{b.Control()} })
		defer m.close()
		m.start("t")
		m.untilInStep()
		time.Sleep(time.Hour)
		if told := eventsOf[mirror.TopicTrouble](m); len(told) != 1 {
			t.Errorf("%d events: %v", len(told), told)
		}
	})
}

// deaf is a Control that takes no reports.
type deaf struct{ mirror.Control }

func (deaf) OpenReporter(ctx context.Context, _ string) (mirror.Reporter, error) {
	return nil, context.DeadlineExceeded
}
