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
	asking semaphore // of one: held during a question, so that a thousand partitions ask once

	mu    sync.Mutex
	asked time.Time // when the store was asked last, or answered a write
	lost  error     // that the session does not hold any more
}

func (l *lease) note(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = at
}

// lose notes that another process has the name.
func (l *lease) lose(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = err
}

// over is why this process has lost its session, nil as long as it does not know of that. Nothing is done here any more then.
func (l *lease) over() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		return nil
	}
	return fmt.Errorf("%w: %v", ErrFenced, l.lost)
}

// fresh says whether this process has been awake lately.
func (l *lease) fresh() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return within(l.asked, time.Now())
}

// within says that less than leaseAge lies between two moments. The wall clock is looked at too: the monotonic one stands still while a machine is suspended.
func within(then, now time.Time) bool {
	return now.Sub(then) < leaseAge && now.Round(0).Sub(then.Round(0)) < leaseAge
}

// hold returns nil if this process may change its logs and the desired state. An error is ErrFenced, or says that the mirror was closed.
func (l *lease) hold() error {
	if err := l.over(); err != nil {
		return err
	}
	if l.fresh() {
		return nil
	}
	if l.asking.acquire(l.m.ctx) != nil {
		return ErrClosed
	}
	defer l.asking.release()
	for wait := 100 * time.Millisecond; !l.fresh(); wait = min(2*wait, maxStoreWait) {
		if err := l.over(); err != nil {
			return err
		}
		// An answer counts from when it was asked for: this process may be held up again while it waits, so the age judges, and not the answer.
		switch err := l.ask(l.m.cfg.CallBound); {
		case errors.Is(err, statemachine.ErrFenced):
			return fmt.Errorf("%w: %v", ErrFenced, err)
		case err != nil && !l.m.pause(l.m.ctx, wait):
			return ErrClosed
		}
	}
	return l.over()
}

// ask asks the store whether the session holds. A session that does not ends everything that is served here.
func (l *lease) ask(bound time.Duration) error {
	began := time.Now()
	ctx, stop := context.WithTimeout(l.m.ctx, bound)
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
		if l.over() != nil {
			return
		}
		// The age is looked at before the question is noted: a process that slept must not take its own waking up for a heartbeat. It may sleep at any line here, in the
		// question too.
		now := time.Now()
		awake := l.fresh()
		if awake && l.m.persister.busy() {
			l.note(now) // the write that is tried again and again will tell
			continue
		}
		if err := l.ask(min(heartbeatInterval, l.m.cfg.CallBound)); err != nil && awake && !errors.Is(err, statemachine.ErrFenced) {
			if failed := time.Now(); within(now, failed) {
				l.note(failed)
			}
		}
	}
}
