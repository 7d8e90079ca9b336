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

const refresh = 30 * time.Second

func refreshing(c *mirror.Config) { c.RefreshInterval = refresh }

// The destination's topic is deleted, or deleted and made again by somebody, while the source has nothing new: within one refresh its partitions are FAILED, and only a person goes on.
func TestADeletedDestinationTopicIsNoticed(t *testing.T) {
	for name, again := range map[string]bool{"deleted": false, "made again": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newPair(t, 2, refreshing)
				m.a.local("other", 1)
				m.a.fill("t", 0, 3)
				m.a.fill("other", 0, 3)
				m.start("t", "other")
				m.untilInStep()
				words := "the destination topic is deleted"
				if again {
					words = "the topic was deleted and created again"
					if _, err := m.b.RecreateTopic("t", 2); err != nil {
						t.Fatal(err)
					}
				} else if err := m.b.DeleteTopic("t"); err != nil {
					t.Fatal(err)
				}
				m.a.fill("t", 1, 1)               // an append that fails is tried again, until it is known that it cannot help
				time.Sleep(refresh + time.Second) // virtual
				for p := range int32(2) {
					got := m.one("t", p)
					if got.State != statemachine.Failed || got.RetryAttempt != statemachine.NonRetryable {
						t.Fatalf("partition %d is %v, attempt %d: %s", p, got.State, got.RetryAttempt, got.Reason)
					}
					expectWords(t, got.Reason, words, "start it")
				}
				if p := m.one("other", 0); p.State != statemachine.Mirroring {
					t.Errorf("another topic is %v: %s", p.State, p.Reason)
				}
				told := len(m.told())
				time.Sleep(10 * refresh)
				synctest.Wait()
				for _, e := range m.told()[told:] {
					if _, ok := e.(mirror.StateChanged); ok {
						t.Errorf("it is told again: %v", e)
					}
				}
				if again {
					if end := m.b.log("t", 0).End(); end != 0 {
						t.Errorf("the new topic's log ends at %d", end)
					}
					return
				}
				// As the reason says.
				if _, err := m.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				m.start("t")
				m.untilOne("copied anew", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 3 && inStep(p) })
				m.same(0)
			})
		})
	}
}

// A destination that does not answer is no sign of anything; one that answers wrongly once is asked again.
func TestADestinationThatDoesNotAnswerLosesNoTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1, refreshing)
		m.a.fill("t", 0, 3)
		m.start("t")
		m.untilInStep()
		var asked atomic.Int64
		m.b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
			if c.Operation != "Destination.Topic" {
				return nil
			}
			switch asked.Add(1) {
			case 1:
				return fmt.Errorf("a mistake: %w", mirror.ErrUnknownTopic)
			case 2:
				return nil
			case 3:
				<-ctx.Done()
				return ctx.Err()
			}
			return fmt.Errorf("unreachable")
		}})
		time.Sleep(10 * refresh)
		if p := m.one("t", 0); p.State != statemachine.Mirroring || asked.Load() < 5 {
			t.Errorf("%v after %d looks: %s", p.State, asked.Load(), p.Reason)
		}
		m.a.fill("t", 0, 3)
		m.untilOne("copied", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 6 })
		m.b.SetHooks(memlog.Hooks{})
	})
}

// A source topic that stays deleted is noticed again after a person has let its copy be tried once more.
func TestADeletedSourceTopicIsNoticedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1, refreshing)
		m.a.fill("t", 0, 3)
		m.start("t")
		m.untilInStep()
		if err := m.a.DeleteTopic("t"); err != nil {
			t.Fatal(err)
		}
		gone := func(p mirror.PartitionStatus) bool {
			return p.State == statemachine.Failed && p.RetryAttempt == statemachine.NonRetryable && strings.Contains(p.Reason, "the source topic is deleted")
		}
		m.untilOne("noticed", "t", 0, gone)
		if _, err := m.Admin().Recover(t.Context(), []string{"t"}, mirror.RecoverOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * refresh) // virtual; while nothing is fetched refreshes are rare
		if p := m.one("t", 0); !gone(p) {
			t.Errorf("%v, attempt %d: %s", p.State, p.RetryAttempt, p.Reason)
		}
	})
}
