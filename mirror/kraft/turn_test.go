package kraft

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// blockedLog is a keyed log whose reads do not end before their context does, while it is shut.
type blockedLog struct {
	keyedlog.Log
	shut chan struct{} // closed to let reads through
	in   chan struct{} // gets one for each read that begins
}

func (b *blockedLog) Read(ctx context.Context, f func(keyedlog.View) error) error {
	b.in <- struct{}{}
	select {
	case <-b.shut:
		return b.Log.Read(ctx, f)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestTurnEndsWithItsContext: whoever waits for another one's procedure, the settings of a topic, a push of producer ids or a slow keyed log gets back when its own context ends.
func TestTurnEndsWithItsContext(t *testing.T) {
	ended, stop := context.WithCancel(t.Context())
	stop()
	d := newDestination(Config{NodeID: 9999, HeartbeatInterval: time.Second, SessionTimeout: time.Minute, RequestTimeout: time.Minute})
	d.membership = newMembership(&d.cfg, nil, nil, func(Event) {})
	d.producers = newProducerIDs(d)
	l := &Log{d: d, tp: mirror.TopicPartition{Topic: "orders"}, work: newTurn()}
	for _, taken := range []turn{l.work, d.settingsLock("orders"), d.producers.settling} {
		if err := taken.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		if taken.tryTake() {
			t.Fatal("it was taken twice")
		}
	}
	for what, f := range map[string]func() error{
		"Open":           func() error { return l.Open(ended) },
		"CloseForWrites": func() error { return l.CloseForWrites(ended) },
		"bringBack":      func() error { return l.bringBack(ended) },
		"guard":          func() error { return d.guard(ended, "orders", l.id) },
		"putBack":        func() error { return d.putBack(ended, "orders") },
		"burnAll":        func() error { return d.producers.burnAll(ended, 5) },
	} {
		done := make(chan error, 1)
		go func() { done <- f() }()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s does not end with its context", what)
		}
	}

	log := &blockedLog{Log: keyedlog.NewMemory(), shut: make(chan struct{}), in: make(chan struct{}, 10)}
	r := newRemembered(log, time.Minute)
	first := make(chan error, 1)
	go func() { _, err := r.all(t.Context()); first <- err }()
	<-log.in
	second := make(chan error, 1)
	go func() { _, err := r.of(ended, "orders", l.id); second <- err }()
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("beside a read that hangs: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a reader waits for another one's read, beyond its context")
	}
	close(log.shut)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
