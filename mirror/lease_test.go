package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// A process that was stopped (SIGSTOP) wakes up with replies in its sockets and work in its queues. Another one may have its owner's name by then.
func TestAProcessThatWakesUpAsksBeforeItsNextByte(t *testing.T) {
	for _, taken := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m := newPair(t, 1)
			m.a.fill("t", 0, 5)
			m.start("t")
			m.inStepAndSame()
			synctest.Wait()
			if taken {
				if _, err := m.b.StateStore().Open(t.Context(), "mirror"); err != nil {
					t.Fatal(err)
				}
			}
			kept := m.b.raw("t", 0)
			m.WakeUp()
			m.a.fill("t", 0, 5)
			synctest.Wait() // no time passes: what can be done now is done, before any heartbeat
			if same := bytes.Equal(kept, m.b.raw("t", 0)); same != taken {
				t.Errorf("taken over: %t, unchanged: %t", taken, same)
			}
			if fenced := m.Status().Fenced != nil; fenced != taken {
				t.Errorf("taken over: %t, fenced: %t", taken, fenced)
			}
			m.close()
		})
	}
}

// heldStore does not answer while held.
type heldStore struct {
	statemachine.StateStore
	down *bool
}

type heldSession struct {
	statemachine.Session
	down *bool
}

func (s heldStore) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	session, err := s.StateStore.Open(ctx, owner)
	return heldSession{session, s.down}, err
}

func (s heldSession) Write(ctx context.Context, w []statemachine.Write) ([]statemachine.WriteResult, error) {
	if *s.down {
		return nil, errors.New("no answer")
	}
	return s.Session.Write(ctx, w)
}

// A mirror that is awake goes on copying while its store is away; one that wakes up waits for the store's word.
func TestWithoutAStoreOnlyAProcessThatIsAwakeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "a"}), newSide(t, memlog.Config{ClusterID: "b"})
		a.local("t", 1)
		down := false
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Store = heldStore{c.Store, &down} })
		m.start("t")
		m.untilInStep()
		down = true
		time.Sleep(10 * time.Minute)
		a.fill("t", 0, 5)
		m.untilInStep()
		if got := b.log("t", 0).End(); got != 5 {
			t.Fatalf("end %d while awake", got)
		}
		m.WakeUp()
		a.fill("t", 0, 5)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.log("t", 0).End(); got != 5 {
			t.Errorf("end %d after waking up, the store has not answered", got)
		}
		down = false
		m.untilInStep()
		if got := b.log("t", 0).End(); got != 10 {
			t.Errorf("end %d after the store answered", got)
		}
		m.close()
	})
}
