package kraft

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// lookedAt does something when it is read for the first time.
type lookedAt struct {
	keyedlog.Log
	once sync.Once
	do   func()
}

func (l *lookedAt) Read(ctx context.Context, f func(keyedlog.View) error) error {
	l.once.Do(l.do)
	return l.Log.Read(ctx, f)
}

// TestAFenceIsNoDeath: a process that raises leader epochs is fenced for a tenth of a second, again and again. It lives: nobody plans its end, and nobody unregisters it.
func TestAFenceIsNoDeath(t *testing.T) {
	a := abandon(t)
	// Looked at in the moment of a fence, it is let in again.
	a.cfg.Remember = &lookedAt{Log: a.cfg.Remember, do: func() { a.fence(pretendedNode, 30, false) }}
	if _, err := PlanForce(bounded(t), a.cfg, nil); err == nil || !strings.Contains(err.Error(), "is alive") {
		t.Errorf("planned: %v", err)
	}

	a.fence(pretendedNode, 30, true)
	a.change(func(p *clustermetadata.Partition) { p.Replicas = []int32{1, 2} })
	a.cfg.Remember = &lookedAt{Log: keyedlog.NewMemory(), do: func() { a.fence(pretendedNode, 30, false) }} // after the first look
	if _, err := Depart(bounded(t), a.cfg); err == nil || !strings.Contains(err.Error(), "is alive") || a.asked["UnregisterBroker"] != 0 {
		t.Errorf("departed: %v, asked %v", err, a.asked)
	}

	// And while it is watched; a session is long.
	a.fence(pretendedNode, 30, true)
	a.seen()
	a.d.cfg.SessionTimeout = time.Hour
	gone := make(chan error, 1)
	go func() { gone <- a.d.gone(bounded(t), true) }()
	a.fence(pretendedNode, 30, false)
	a.fence(pretendedNode, 30, true)
	a.broker(pretendedNode, 40, true) // another one comes, and is fenced still
	if err := <-gone; err == nil || !strings.Contains(err.Error(), "is alive") {
		t.Errorf("watched: %v", err)
	}
}

// TestGoneIsWatchedForASession: who acts watches the fence for a session, and takes away what was left to a successor. Who only looks changes nothing.
func TestGoneIsWatchedForASession(t *testing.T) {
	a := abandon(t)
	value, err := json.Marshal(resignation{Version: 1, Epoch: 30})
	if err == nil {
		err = a.d.cfg.Remember.Update(t.Context(), func(keyedlog.View) ([]keyedlog.Change, error) {
			return []keyedlog.Change{{Key: resignedKey(pretendedNode), Value: value}}, nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	a.d.cfg.SessionTimeout = 400 * time.Millisecond
	pending := func() (is bool) {
		if err := a.d.cfg.Remember.Read(t.Context(), func(v keyedlog.View) error {
			_, is = v.Get(resignedKey(pretendedNode))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return is
	}
	for _, toAct := range []bool{false, true} { // a successor may be under way: both watch
		began := time.Now()
		if err := a.d.gone(bounded(t), toAct); err != nil || time.Since(began) < a.d.cfg.SessionTimeout {
			t.Errorf("gone after %s: %v", time.Since(began), err)
		}
		if pending() == toAct {
			t.Errorf("acting: %v; what was left to a successor is there: %v", toAct, pending())
		}
	}
	began := time.Now()
	if err := a.d.gone(bounded(t), true); err != nil || time.Since(began) < a.d.cfg.SessionTimeout {
		t.Errorf("gone after %s: %v", time.Since(began), err)
	}
	a.broker(pretendedNode, 31, true)
	a.seen()
	if err := a.d.stillGone(); err == nil {
		t.Error("another process has registered, and is not let in yet: nobody is said to be there")
	}
}

// TestEarlierResignationIsForgotten: one that nobody took does not stay for ever; that of a later process does.
func TestEarlierResignationIsForgotten(t *testing.T) {
	f, d := startFake(t)
	for _, x := range []struct {
		epoch int64
		stays bool
	}{{6, false}, {7, true}} {
		value, _ := json.Marshal(resignation{Version: 1, Epoch: x.epoch})
		if err := d.cfg.Remember.Update(t.Context(), func(keyedlog.View) ([]keyedlog.Change, error) {
			return []keyedlog.Change{{Key: resignedKey(us), Value: value}}, nil
		}); err != nil {
			t.Fatal(err)
		}
		d.forgetEarlierResignation(within(t, 5*time.Second)) // it is registered under broker epoch 7
		stays := false
		if err := d.cfg.Remember.Read(t.Context(), func(v keyedlog.View) error {
			_, stays = v.Get(resignedKey(us))
			return nil
		}); err != nil || stays != x.stays {
			t.Errorf("left under broker epoch %d: it stays: %v, %v", x.epoch, stays, err)
		}
	}
	if f.count(kmsg.UnregisterBroker) != 0 {
		t.Error("unregistered")
	}
}
