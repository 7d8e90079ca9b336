package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// heartbeatInterval is the longest time between two questions whether this process's session still holds; leaseAge is how old the newest question may be before something
// is changed in a log.
const (
	heartbeatInterval = 3 * time.Second
	leaseAge          = 3 * heartbeatInterval
)

// lease keeps a process that was held up (SIGSTOP, a paused machine, a long swap) from going on as if nothing had happened: another one may have taken its work over
// meanwhile. Heartbeats tell it so within heartbeatInterval, but a process that wakes up has other goroutines that run first. So whatever changes a log asks first
// when the newest heartbeat is too old, and does nothing until the store has answered. A process that is awake and cannot reach its store goes on: it knows nothing
// new, and a log whose leader epoch has moved on refuses it (ErrFenced).
type lease struct {
	m      *Mirror
	asking sync.Mutex // held during a question, so that a thousand partitions ask once

	mu    sync.Mutex
	asked time.Time // when the store was asked last, or answered a write
}

func (l *lease) note(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = at
}

// fresh says whether this process has been awake lately. The wall clock is looked at too: the monotonic one stands still while a machine is suspended.
func (l *lease) fresh() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	return now.Sub(l.asked) < leaseAge && now.Round(0).Sub(l.asked.Round(0)) < leaseAge
}

// hold returns nil if this process may change its logs. An error is ErrFenced, or says that the mirror was closed.
func (l *lease) hold() error {
	if l.fresh() {
		return nil
	}
	l.asking.Lock()
	defer l.asking.Unlock()
	for wait := 100 * time.Millisecond; !l.fresh(); wait = min(2*wait, maxStoreWait) {
		err := l.ask()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, statemachine.ErrFenced):
			return fmt.Errorf("%w: %v", ErrFenced, err)
		case !l.m.pause(l.m.ctx, wait):
			return ErrClosed
		}
	}
	return nil
}

// ask asks the store whether the session holds. A session that does not ends everything that is served here.
func (l *lease) ask() error {
	began := time.Now()
	ctx, stop := context.WithTimeout(l.m.ctx, l.m.cfg.CallBound)
	defer stop()
	_, err := l.m.session.Write(ctx, nil)
	switch {
	case err == nil:
		l.note(began)
	case errors.Is(err, statemachine.ErrFenced):
		l.m.stopServing(err)
	}
	return err
}

// run asks again and again: a partition in step writes nothing for days, and must learn all the same that another process has taken over.
func (l *lease) run() {
	tick := time.NewTicker(min(heartbeatInterval, l.m.cfg.RefreshInterval))
	defer tick.Stop()
	for {
		select {
		case <-l.m.ctx.Done():
			return
		case <-tick.C:
		}
		// The age is looked at before the question is noted: a process that slept must not take its own waking up for a heartbeat.
		awake := l.fresh()
		if awake && l.m.persister.busy() {
			l.note(time.Now()) // the write that is tried again and again will tell
			continue
		}
		if err := l.ask(); err != nil && awake && !errors.Is(err, statemachine.ErrFenced) {
			l.note(time.Now())
		}
	}
}
