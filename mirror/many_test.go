package mirror_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// countedStore counts whole reads and writes of a store.
type countedStore struct {
	statemachine.StateStore
	loads, writes *atomic.Int64
}

type countedSession struct {
	statemachine.Session
	countedStore
}

func (s countedStore) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	session, err := s.StateStore.Open(ctx, owner)
	return countedSession{session, s}, err
}

func (s countedSession) Load(ctx context.Context, each func(statemachine.Entry) error) error {
	s.loads.Add(1)
	return s.Session.Load(ctx, each)
}

func (s countedSession) Write(ctx context.Context, w []statemachine.Write) ([]statemachine.WriteResult, error) {
	if len(w) > 0 {
		s.writes.Add(1)
	}
	return s.Session.Write(ctx, w)
}

func (s countedSession) Close() error { return s.Session.Close() }

// Five thousand topics of one partition are the worst shape for whatever is done per topic.
func TestFiveThousandPartitionsAreLoadedTogetherAndCostNothingWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 5000
		if testing.Short() {
			n = 1000 // the race detector is slow
		}
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("t%04d", i)
			a.local(names[i], 1)
		}
		var loads, writes atomic.Int64
		counted := func(c *mirror.Config) { c.Store = countedStore{c.Store, &loads, &writes} }
		quiet := func(c *mirror.Config) { c.OnEvent = nil }
		m := follow(t, "m", a, b, counted, quiet)
		m.start(names...)
		m.untilInStep()
		if got := loads.Load(); got > 20 {
			t.Errorf("the start read the store %d times", got)
		}
		m.close()

		// A restart goes on from the recorded states.
		loads.Store(0)
		writes.Store(0)
		m = follow(t, "m", a, b, counted, quiet)
		defer m.close()
		m.untilInStep()
		if got := loads.Load(); got > 20 {
			t.Errorf("the restart read the store %d times", got)
		}
		time.Sleep(5 * time.Minute)
		loads.Store(0)
		writes.Store(0)
		var named atomic.Int64
		a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation != "Fetcher.Fetch" && c.Partition.Topic != "" {
				named.Add(1)
			}
			return nil
		}})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if l, w, p := loads.Load(), writes.Load(), named.Load(); l != 0 || w != 0 || p != 0 {
			t.Errorf("ten idle minutes: %d reads and %d writes of the store, %d calls about a partition", l, w, p)
		}
	})
}
