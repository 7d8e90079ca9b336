package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"sync/atomic"
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
				if _, err := m.b.StateStore().Open(t.Context(), "m"); err != nil {
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
	down *atomic.Bool
}

type heldSession struct {
	statemachine.Session
	down *atomic.Bool
}

func (s heldStore) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	session, err := s.StateStore.Open(ctx, owner)
	return heldSession{session, s.down}, err
}

func (s heldSession) Write(ctx context.Context, w []statemachine.Write) ([]statemachine.WriteResult, error) {
	if s.down.Load() {
		return nil, errors.New("no answer")
	}
	return s.Session.Write(ctx, w)
}

// A mirror that is awake goes on copying while its store is away; one that wakes up waits for the store's word.
func TestWithoutAStoreOnlyAProcessThatIsAwakeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "a"}), newSide(t, memlog.Config{ClusterID: "b"})
		a.local("t", 1)
		var down atomic.Bool
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Store = heldStore{c.Store, &down} })
		m.start("t")
		m.untilInStep()
		down.Store(true)
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
		down.Store(false)
		m.untilInStep()
		if got := b.log("t", 0).End(); got != 10 {
			t.Errorf("end %d after the store answered", got)
		}
		m.close()
	})
}

// dozingStore is asked whether the session holds, and the process is held up in the question for as long as doze says: no answer comes, and nobody runs meanwhile.
type dozingStore struct {
	statemachine.StateStore
	doze *atomic.Int64
}

type dozingSession struct {
	statemachine.Session
	doze *atomic.Int64
}

func (s dozingStore) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	session, err := s.StateStore.Open(ctx, owner)
	return dozingSession{session, s.doze}, err
}

func (s dozingSession) Write(ctx context.Context, w []statemachine.Write) ([]statemachine.WriteResult, error) {
	if doze := time.Duration(s.doze.Load()); len(w) == 0 && doze > 0 {
		time.Sleep(doze)
		return nil, errors.New("no answer")
	}
	return s.Session.Write(ctx, w)
}

// A heartbeat that fails is no sign of being awake when the process was held up in the middle of it.
func TestAHeartbeatThatWasHeldUpIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "a"}), newSide(t, memlog.Config{ClusterID: "b"})
		a.local("t", 1)
		const dozing = 20 * time.Second
		var doze atomic.Int64
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Store = dozingStore{c.Store, &doze} })
		m.start("t")
		m.untilInStep()
		doze.Store(int64(dozing))
		time.Sleep(dozing + 3*time.Second) // the first heartbeat from now begins within 3 s
		a.fill("t", 0, 5)
		synctest.Wait()
		if got := b.log("t", 0).End(); got != 0 {
			t.Errorf("end %d after a heartbeat that took %v, and the store has not answered", got, dozing)
		}
		doze.Store(0)
		m.untilInStep()
		time.Sleep(dozing) // a question that is under way comes to its end
		m.close()
	})
}

// A process that is fenced follows the desired state no more: it begins no topic, takes no request for its own, and reports nothing.
func TestAFencedProcessFollowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "a"}), newSide(t, memlog.Config{ClusterID: "b"})
		a.local("t", 1)
		a.local("u", 1)
		m := follow(t, "m", a, b)
		m.start("t")
		m.untilInStep()
		if _, err := b.StateStore().Open(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if m.Status().Fenced == nil {
			t.Fatal("the mirror does not know that it is fenced")
		}
		was, err := b.Control().Reports(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.start("u")
		if _, err := m.Admin().Recover(t.Context(), []string{"t"}, mirror.RecoverOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if _, err := b.Topic(t.Context(), "u"); !errors.Is(err, mirror.ErrUnknownTopic) {
			t.Errorf("a fenced process has made a topic: error %v", err)
		}
		now := wanted(t, b)
		if w, _ := now.Topic("t"); w.Recover != 1 {
			t.Errorf("a fenced process took a request to recover: %+v", w)
		}
		if is, err := b.Control().Reports(t.Context()); err != nil || !reflect.DeepEqual(is, was) {
			t.Errorf("a fenced process reports: %+v, was %+v; %v", is, was, err)
		}
		m.close()
	})
}

// slowStore answers the first question after a waking up only when told, and hands out an answer that is old by then.
type slowStore struct {
	statemachine.StateStore
	slow *atomic.Bool
}

type slowSession struct {
	statemachine.Session
	slow *atomic.Bool
}

func (s slowStore) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	session, err := s.StateStore.Open(ctx, owner)
	return slowSession{session, s.slow}, err
}

func (s slowSession) Write(ctx context.Context, w []statemachine.Write) ([]statemachine.WriteResult, error) {
	results, err := s.Session.Write(context.WithoutCancel(ctx), w)
	if len(w) == 0 && s.slow.Swap(false) {
		time.Sleep(time.Minute) // the process is held up with the answer in its hands
	}
	return results, err
}

func TestAnAnswerThatGrewOldIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "a"}), newSide(t, memlog.Config{ClusterID: "b"})
		a.local("t", 1)
		var slow atomic.Bool
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Store, c.RefreshInterval = slowStore{c.Store, &slow}, time.Hour })
		m.start("t")
		m.untilInStep()
		m.WakeUp()
		slow.Store(true)
		a.fill("t", 0, 5)
		time.Sleep(4 * time.Second)
		if _, err := b.StateStore().Open(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := b.log("t", 0).End(); got != 0 {
			t.Errorf("%d records written behind a takeover", got)
		}
		if m.Status().Fenced == nil {
			t.Error("not fenced")
		}
		m.close()
	})
}
