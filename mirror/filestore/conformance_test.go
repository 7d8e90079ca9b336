package filestore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/keyedlog/keyedlogtest"
	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/statemachine/storetest"
)

// alternating takes another handle for each call, so that every rule is held between processes too. Sessions stay on the handle that opened them.
type alternating struct {
	handles []*Store
	calls   atomic.Int64
}

func (a *alternating) next() *Store { return a.handles[int(a.calls.Add(1))%len(a.handles)] }

func (a *alternating) Open(ctx context.Context, writer string) (keyedlog.Session, error) {
	return a.next().Open(ctx, writer)
}

func (a *alternating) Update(ctx context.Context, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	return a.next().Update(ctx, decide)
}

func (a *alternating) Read(ctx context.Context, read func(keyedlog.View) error) error {
	return a.next().Read(ctx, read)
}

func (a *alternating) Changed() <-chan struct{} { return a.next().Changed() }

func (a *alternating) Close() error {
	var err error
	for _, s := range a.handles {
		err = errors.Join(err, s.Close())
	}
	return err
}

func TestKeyedLogKit(t *testing.T) {
	keyedlogtest.Run(t, func(tb testing.TB) keyedlogtest.Fixture {
		dir, o := tb.TempDir(), Options{CompactAbove: 2048}
		return keyedlogtest.Fixture{
			Log:     opened(tb, dir, o),
			Again:   func() keyedlog.Log { return opened(tb, dir, o) },
			Crash:   func() (keyedlog.Log, error) { return opened(tb, dir, o), nil }, // the killed process goes on with its handle
			Options: keyedlogtest.Options{Interference: 10 * time.Millisecond},       // nobody comes in between: the folder is locked
		}
	})
}

func TestStateStoreKit(t *testing.T) {
	small := Options{CompactAbove: 2048} // so that compactions happen in the middle of rules
	t.Run("one handle", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) storetest.Fixture {
			dir := tb.TempDir()
			return storetest.Fixture{
				Store: keyedlog.NewStateStore(opened(tb, dir, small)),
				// the killed process goes on with its handle
				Crash: func() (statemachine.StateStore, error) { return keyedlog.NewStateStore(opened(tb, dir, small)), nil },
			}
		})
	})
	t.Run("two handles", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) storetest.Fixture {
			dir := tb.TempDir()
			two := func() statemachine.StateStore {
				return keyedlog.NewStateStore(&alternating{handles: []*Store{opened(tb, dir, small), opened(tb, dir, small)}})
			}
			return storetest.Fixture{Store: two(), Crash: func() (statemachine.StateStore, error) { return two(), nil }}
		})
	})
}
