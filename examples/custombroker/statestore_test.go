package main

import (
	"context"
	"errors"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/statemachine/storetest"
)

// TestStateStore runs the conformance kit. After a crash another process has nothing but the folder; the old one's store goes on trying.
func TestStateStore(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Fixture {
		path := tb.TempDir()
		open := func() (statemachine.StateStore, error) { return OpenStateStore(path) }
		store, err := open()
		if err != nil {
			tb.Fatal(err)
		}
		return storetest.Fixture{Store: store, Crash: open}
	})
}

// TestStateStoreWaitsForTheLockUntilItsContextEnds: a process that hangs with the lock held must not hang the others for ever.
func TestStateStoreWaitsForTheLockUntilItsContextEnds(t *testing.T) {
	path := t.TempDir()
	store, err := OpenStateStore(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := openDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Lock(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error)
	go func() {
		_, err := store.Open(ctx, "node-1")
		opened <- err
	}()
	cancel()
	if err := <-opened; !errors.Is(err, context.Canceled) {
		t.Errorf("Open while another process holds the lock: %v, want context.Canceled", err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), "node-1"); err != nil {
		t.Errorf("Open after the other process let go: %v", err)
	}
}
