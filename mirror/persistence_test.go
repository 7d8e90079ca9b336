package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// faultyStore is a store whose writes fail as its functions say: before they have an effect, or after.
type faultyStore struct {
	statemachine.StateStore
	mu            sync.Mutex
	before, after func() error
}

type faultySession struct {
	statemachine.Session
	s *faultyStore
}

func (s *faultyStore) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	session, err := s.StateStore.Open(ctx, owner)
	return &faultySession{session, s}, err
}

func (s *faultyStore) set(before, after func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

func (s *faultyStore) faults() (before, after func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.before, s.after
}

func (s *faultySession) Write(ctx context.Context, writes []statemachine.Write) ([]statemachine.WriteResult, error) {
	before, after := s.s.faults()
	if before != nil {
		if err := before(); err != nil {
			return nil, err
		}
	}
	results, err := s.Session.Write(ctx, writes)
	if err == nil && after != nil {
		if err := after(); err != nil {
			return nil, err
		}
	}
	return results, err
}

func TestStoreThatFailsBeforeOrAfterTheEffect(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("after the effect=", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faultyStore{}
				m := newPair(t, 2, func(c *mirror.Config) {
					store.StateStore = c.Store
					c.Store = store
				})
				m.a.fill("t", 0, 5)
				// Every other write fails, in the whole life.
				var n atomic.Int32
				fault := func() error {
					if n.Add(1)%2 == 1 {
						return errors.New("write timed out")
					}
					return nil
				}
				if late {
					store.set(nil, fault)
				} else {
					store.set(fault, nil)
				}
				m.start("t")
				m.inStepAndSame()
				m.pause("t")
				m.resume("t")
				m.untilInStep()
				if report, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
					t.Fatalf("%v\n%s", err, report)
				}
				var bad, good int
				for _, e := range eventsOf[mirror.StoreTrouble](m.running) {
					if e.Err != nil {
						bad++
						expectWords(t, e.String(), "state store: write timed out (trying again)")
					} else {
						good++
					}
				}
				if bad == 0 || bad != good {
					t.Errorf("told of trouble %d times and of its end %d times", bad, good)
				}
				if f := eventsOf[mirror.Fenced](m.running); len(f) > 0 {
					t.Errorf("fenced by ourselves: %v", f)
				}
			})
		})
	}
	t.Run("for an hour", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faultyStore{}
			m := newPair(t, 1, func(c *mirror.Config) {
				store.StateStore = c.Store
				c.Store = store
			})
			m.a.fill("t", 0, 5)
			var writes atomic.Int32
			store.set(func() error { writes.Add(1); return errors.New("down") }, nil)
			m.start("t")
			time.Sleep(time.Hour)
			expect(t, "state", m.one("t", 0).State, statemachine.Unknown)
			if n := writes.Load(); n > 380 {
				t.Errorf("%d writes in an hour", n)
			}
			store.set(nil, nil)
			m.inStepAndSame()
		})
	})
}

func TestASecondProcessFencesTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 5)
		m.start("t")
		m.inStepAndSame()
		control := mirror.NewMemoryControl()
		var appends atomic.Int32
		if _, err := m.b.StateStore().Open(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
		m.a.fill("t", 0, 5)
		time.Sleep(time.Second) // copying is going on: only a state write shows the fence
		if _, err := m.Admin().Pause(t.Context(), []string{"t"}, mirror.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		m.until("fenced", func(s mirror.Status) bool { return s.Fenced != nil })
		told := eventsOf[mirror.Fenced](m.running)
		if len(told) == 0 {
			t.Fatal("no event")
		}
		expectWords(t, told[0].String(), "m: fenced", "another process has it, this one has stopped serving it")
		m.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Log.Append" {
				appends.Add(1)
			}
			return nil
		}})
		kept := m.b.raw("t", 0)
		m.a.fill("t", 0, 5)
		time.Sleep(10 * time.Minute)
		if n := appends.Load(); n != 0 || !bytes.Equal(kept, m.b.raw("t", 0)) {
			t.Errorf("%d appends after the fence", n)
		}
		// Failing over here says so at once.
		began := time.Now()
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); !errors.Is(err, mirror.ErrIncomplete) {
			t.Errorf("failover of a fenced mirror: %v", err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("took %s", took)
		}
		again := open(t, "m", m.a.Cluster, m.b, func(c *mirror.Config) { c.Control = control })
		defer again.close()
		again.start("t")
		again.untilInStep()
		m.same(0)
	})
}

// stoppingCalls are the calls that a stop makes, in their order.
var stoppingCalls = []string{"Log.Owner", "Log.AwaitReplicated", "Destination.RaiseLeaderEpochs", "Log.Append", "Log.SettleProducerIDs", "Log.Open"}

func TestCrashAtEachStepOfAStop(t *testing.T) {
	var want []byte
	for _, call := range append([]string{""}, stoppingCalls...) {
		for _, late := range []bool{false, true} {
			for nth := int32(1); nth <= 2; nth++ {
				name := fmt.Sprintf("%s #%d late=%v", call, nth, late)
				synctest.Test(t, func(t *testing.T) {
					control := mirror.NewMemoryControl()
					m := newPair(t, 1, func(c *mirror.Config) { c.Control = control })
					m.a.load("t", 0, 0, 4, data(4, 0, 4, 5, &producer{id: 7, open: true}), data(4, 5, 5, 1, &producer{id: 8, open: true}))
					m.start("t")
					m.inStepAndSame()
					m.a.SetUnreachable(true)
					var calls atomic.Int32
					crash := func(_ context.Context, c memlog.Call) error {
						if c.Operation != call || calls.Add(1) < nth {
							return nil
						}
						return errors.New("the process is gone")
					}
					if late {
						m.b.SetHooks(memlog.Hooks{After: crash})
					} else {
						m.b.SetHooks(memlog.Hooks{Before: crash})
					}
					ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
					_, _ = m.Failover(ctx, mirror.FailoverOptions{})
					stop()
					m.running.close()
					m.b.SetHooks(memlog.Hooks{})
					again := open(t, "m", m.a.Cluster, m.b, func(c *mirror.Config) { c.Control = control })
					defer again.close()
					ctx, stop = context.WithTimeout(t.Context(), time.Minute)
					defer stop()
					report, err := again.Failover(ctx, mirror.FailoverOptions{Topics: []string{"t"}})
					if err != nil {
						t.Fatalf("%s: %v\n%s", name, err, report)
					}
					p := again.one("t", 0)
					if p.LME == nil || p.LME.Epoch != 4 || p.LME.Offset != 6 || p.LME.SourceClusterID != "A" {
						t.Errorf("%s: recorded %+v", name, p.LME)
					}
					var shape []string
					for info, b := range mirror.Batches(m.b.raw("t", 0)) {
						shape = append(shape, fmt.Sprintf("%d %s %d epoch %d", info.Base, mirror.Kind(b), info.ProducerID, info.LeaderEpoch))
					}
					got := []byte(strings.Join(shape, "\n"))
					if want == nil {
						want = got
						expect(t, "the log of an undisturbed stop", strings.Count(string(got), "ABORT"), 2)
						expect(t, "the log of an undisturbed stop", strings.Count(string(got), "MIRROR_PID_RESET"), 1)
					}
					if !bytes.Equal(want, got) {
						t.Errorf("%s: the log is\n%s\nwithout a crash it is\n%s", name, got, want)
					}
					m.b.produce("t", 0, "a client writes")
				})
			}
		}
	}
}

func TestConsentsAreUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := mirror.NewMemoryControl()
		m := newPair(t, 1, func(c *mirror.Config) { c.Control = control })
		m.b.local("t", 1)
		m.b.fill("t", 0, 4)
		m.a.fill("t", 0, 2)
		m.start("t")
		p := m.untilFailed("t", 0, "would drop", "[0, 4)")
		if _, err := m.Admin().Start(t.Context(), []string{"t"}, mirror.StartOptions{Consents: []mirror.Consent{*p.NeedsConsent}}); err != nil {
			t.Fatal(err)
		}
		m.inStepAndSame()
		time.Sleep(time.Second)
		s, err := control.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "consents left", len(s.Topics[0].Consents), 0)
		expect(t, "need left", m.one("t", 0).NeedsConsent == nil, true)
	})
}

func TestDecision21AdoptedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := mirror.NewMemoryControl()
		own := func(c *mirror.Config) { c.Control, c.Owner = control, "node" } // the same Owner: only who owns a record may delete it
		m := newPair(t, 1, own)
		m.a.fill("t", 0, 5)
		m.start("t")
		m.inStepAndSame()
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		m.running.close()
		// The same topic in another mirror: what was written since the stop has to be consented to.
		m2 := open(t, "m2", m.a.Cluster, m.b, own)
		defer m2.close()
		m2.start("t")
		p := m2.untilFailed("t", 0, "would drop")
		if _, err := m2.Admin().Start(t.Context(), []string{"t"}, mirror.StartOptions{Consents: []mirror.Consent{*p.NeedsConsent}}); err != nil {
			t.Fatal(err)
		}
		m2.untilInStep()
		m.same(0)
		found := map[string]statemachine.Entry{}
		if err := m.b.StateStore().Load(t.Context(), func(e statemachine.Entry) error {
			found[e.Key.Mirror] = e
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		expect(t, "state of the old mirror's record", found["m"].State, statemachine.NewPartitionState())
		if found["m"].LME == nil || found["m"].LME.Offset != 5 {
			t.Errorf("the old mirror's last mirror epoch is %+v", found["m"].LME)
		}
		expect(t, "state of the new mirror's record", found["m2"].State.State, statemachine.Mirroring)
	})
}
