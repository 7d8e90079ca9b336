package keyedlog_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// Whoever waits for another call's callback gives up with its context, and neither Changed nor Close waits for one.
func TestMemoryCallsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := keyedlog.NewMemory()
		session, err := m.Open(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		nothing := func(keyedlog.View) error { return nil }
		none := func(keyedlog.View) ([]keyedlog.Change, error) { return nil, nil }
		err = m.Read(t.Context(), func(keyedlog.View) error {
			for call, do := range map[string]func(context.Context) error{
				"Open":           func(ctx context.Context) error { _, err := m.Open(ctx, "v"); return err },
				"Update":         func(ctx context.Context) error { return m.Update(ctx, none) },
				"Read":           func(ctx context.Context) error { return m.Read(ctx, nothing) },
				"Session.Update": func(ctx context.Context) error { return session.Update(ctx, nil, none) },
				"Session.Check":  session.Check,
				"Session.Read":   func(ctx context.Context) error { return session.Read(ctx, nothing) },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s while a callback runs: error %v, want %v", call, err, context.DeadlineExceeded)
				}
				cancel()
			}
			m.Changed()
			return errors.Join(session.Close(), m.Close())
		})
		if err != nil {
			t.Error(err)
		}
	})
}
