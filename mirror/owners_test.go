package mirror_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

func owner(name string, takes ...string) func(*mirror.Config) {
	return func(c *mirror.Config) { c.Owner, c.TakeFrom = name, takes }
}

// trouble is why a topic is not served.
func (r *running) trouble(topic string) string {
	for _, t := range r.Status().Topics {
		if t.Topic == topic && t.Err != nil {
			return t.Err.Error()
		}
	}
	return ""
}

func TestPartitionsOfAnotherOwnerAreNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		one := follow(t, "m", a, b, owner("pod-1"))
		one.start("t")
		one.untilInStep()
		two := follow(t, "m", a, b, owner("pod-2"))
		two.until("refused", func(mirror.Status) bool { return two.trouble("t") != "" })
		expectWords(t, two.trouble("t"), `partition 0 belongs to owner "pod-1", and this process is "pod-2"`, `run it as "pod-1"`, "Config.TakeFrom")
		a.fill("t", 0, 200)
		one.untilInStep()
		if got := b.log("t", 0).End(); got != 203 {
			t.Errorf("end %d", got)
		}
		two.close()
		one.close()

		// It is gone for good: somebody says so, and its partitions go on where they were, fail over included.
		three := follow(t, "m", a, b, owner("pod-3", "pod-1"))
		defer three.close()
		a.fill("t", 0, 7)
		three.untilInStep()
		report, err := three.Failover(t.Context(), mirror.FailoverOptions{})
		if err != nil {
			t.Fatalf("%v\n%s", err, report)
		}
		if p := report.Partitions[0]; p.FinalOffset != 210 {
			t.Errorf("final offset %d", p.FinalOffset)
		}
		if err := b.StateStore().Load(t.Context(), func(e statemachine.Entry) error {
			if e.Owner != "pod-3" {
				t.Errorf("owner %q", e.Owner)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTakingFromAnOwnerFencesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		one := follow(t, "m", a, b, owner("pod-1"))
		defer one.close()
		one.start("t")
		one.untilInStep()
		two := follow(t, "m", a, b, owner("pod-2", "pod-1"))
		defer two.close()
		two.untilInStep()
		one.until("fenced", func(s mirror.Status) bool { return s.Fenced != nil })
	})
}

func TestTwoMirrorsWithDefaultsDoNotFenceEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := three(t)
		c.local("u", 1)
		c.fill("u", 0, 4)
		one, two := follow(t, "from-a", a, b), follow(t, "from-c", c, b)
		defer one.close()
		defer two.close()
		one.start("t")
		two.start("u")
		one.untilInStep()
		two.untilInStep()
		time.Sleep(time.Minute)
		if one.Status().Fenced != nil || two.Status().Fenced != nil {
			t.Errorf("fenced: %v, %v", one.Status().Fenced, two.Status().Fenced)
		}
	})
}

func TestPinsHoldARunningMirrorToo(t *testing.T) {
	for name, says := range map[string]string{"source.cluster.id": "source cluster id", "mirror.destination.cluster.id": "names PROD"} {
		synctest.Test(t, func(t *testing.T) {
			a, b, _ := three(t)
			m := follow(t, "m", a, b)
			defer m.close()
			set(t, b, name, "PROD")
			want(t, b, func(s *mirror.ControlState) { s.Set(mirror.TopicWish{Topic: "t", MirrorName: "m"}) })
			time.Sleep(time.Hour)
			words := m.trouble("t")
			for _, topic := range m.Status().Topics {
				for _, p := range topic.Partitions {
					words += p.Reason
				}
			}
			if !strings.Contains(words, says) || !strings.Contains(words, "PROD") {
				t.Errorf("%s: %q", name, words)
			}
			if l, err := b.OpenLog(t.Context(), mirror.TopicPartition{Topic: "t"}); err == nil && l.End() != 0 {
				t.Errorf("%s: %d records were copied", name, l.End())
			}
		})
	}
}

// unsaying is a Control that does not say when something has changed.
type unsaying struct{ mirror.Control }

func (unsaying) Changed() <-chan struct{} { return nil }

func TestADesiredStateThatSaysNothingIsReadAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = unsaying{b.Control()} })
		defer m.close()
		m.start("t")
		m.untilInStep()
		want(t, b, func(s *mirror.ControlState) { s.Set(mirror.TopicWish{Topic: "t", MirrorName: "m.stopped"}) })
		began := time.Now()
		m.until("stopped", func(s mirror.Status) bool { return one(s, "t", 0).State == statemachine.Stopped })
		if took := time.Since(began); took > time.Minute {
			t.Errorf("after %s", took)
		}
	})
}

// failing is a Control whose reads fail, each time in other words.
type failing struct {
	mirror.Control
	reads *atomic.Int64
}

func (f failing) Changed() <-chan struct{} { return nil }

func TestTroubleWhoseWordsChangeIsNotToldOfEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		var reads atomic.Int64
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = wordy{failing{b.Control(), &reads}} })
		defer m.close()
		time.Sleep(time.Hour)
		if n := len(eventsOf[mirror.TopicTrouble](m)); n == 0 || n > 10 {
			t.Errorf("%d events for %d reads", n, reads.Load())
		}
	})
}

type wordy struct{ failing }

func (w wordy) Read(context.Context) (mirror.ControlState, error) {
	return mirror.ControlState{}, fmt.Errorf("port %d", 40000+w.reads.Add(1))
}

func TestAPurgeIsNotForgottenBecauseTheMirrorWasCreatedAgain(t *testing.T) {
	for _, running := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, b, c := three(t)
			c.local("t", 1)
			c.fill("t", 0, 4)
			m := follow(t, "m", a, b)
			m.start("t")
			m.untilInStep()
			if _, err := m.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
				t.Fatal(err)
			}
			m.until("stopped", func(s mirror.Status) bool { return one(s, "t", 0).State == statemachine.Stopped })
			if !running {
				m.close()
			}
			// Deleted and created again, both before any process has looked.
			want(t, b, func(s *mirror.ControlState) {
				s.Remove("t")
				s.RemoveMirror(mirror.DeletedMirror{Name: "m", Purge: true, At: time.Now()})
				s.SetMirror(mirror.MirrorEntry{Name: "m", Settings: mirror.Settings{}, Created: time.Now()})
			})
			if !running {
				m = follow(t, "m", a, b)
			}
			m.until("purged", func(mirror.Status) bool {
				left := 0
				if err := b.StateStore().Load(t.Context(), func(statemachine.Entry) error {
					left++
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				s := wanted(t, b)
				return left == 0 && len(s.Deleted) == 0
			})
			if s := wanted(t, b); len(s.Mirrors) != 1 {
				t.Errorf("mirrors %+v", s.Mirrors)
			}
			m.close()
		})
	}
}

func TestRecoverTriesATopicThatCouldNotBeSetUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := three(t)
		m := follow(t, "m", a, b)
		defer m.close()
		m.start("later")
		time.Sleep(3 * time.Hour)
		a.local("later", 1)
		a.fill("later", 0, 2)
		if _, err := m.Admin().Recover(t.Context(), []string{"later"}, mirror.RecoverOptions{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		m.untilInStep()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("after %s", took)
		}
	})
}

// What the reason of a deleted source topic advises: stop it, delete it here, start again (spec §1.11 allows it).
func TestATopicThatWasDeletedHereIsStartedAnew(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b, _ := three(t)
			m := follow(t, "m", a, b)
			defer m.close()
			m.start("t")
			m.untilInStep()
			if _, err := m.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
				t.Fatal(err)
			}
			m.until("stopped", func(s mirror.Status) bool { return one(s, "t", 0).State == statemachine.Stopped })
			if err := b.DeleteTopic("t"); err != nil {
				t.Fatal(err)
			}
			if again { // by somebody
				if _, err := b.CreateLocalTopic(memlog.LocalTopic{Name: "t", Partitions: 1}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			m.start("t")
			m.untilInStep()
			if got := b.log("t", 0).End(); got != 3 {
				t.Errorf("made again %t: end %d", again, got)
			}
		})
	}
}

// A topic that is made here while its mirror is being deleted is in no mirror afterwards. Somebody has to hear of it.
func TestATopicMadeDuringADeletionIsToldOf(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b, _ := three(t)
			b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
				if c.Operation == "Destination.CreateTopic" {
					time.Sleep(5 * time.Second)
				}
				return nil
			}})
			m := follow(t, "m", a, b)
			defer m.close()
			m.start("t")
			time.Sleep(2 * time.Second)
			want(t, b, func(s *mirror.ControlState) {
				if stopped {
					s.Set(mirror.TopicWish{Topic: "t", MirrorName: "m.stopped"})
					return
				}
				s.Remove("t")
			})
			if stopped {
				m.until("open", func(s mirror.Status) bool { return one(s, "t", 0).State == statemachine.Stopped })
				b.produce("t", 0, "a client's")
				return
			}
			m.until("told", func(mirror.Status) bool {
				for _, e := range eventsOf[mirror.TopicTrouble](m) {
					if e.Err != nil && strings.Contains(e.Err.Error(), "stays closed for clients") {
						return true
					}
				}
				return false
			})
		})
	}
}
