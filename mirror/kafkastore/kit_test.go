package kafkastore

import (
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/keyedlog/keyedlogtest"
	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/statemachine/storetest"
)

func TestRealKeyedLog(t *testing.T) {
	t.Parallel()
	keyedlogtest.Run(t, func(tb testing.TB) keyedlogtest.Fixture {
		cfg := sharedConfig(tb, newPrefix())
		s, l := process(tb, cfg)
		return keyedlogtest.Fixture{
			Log:   s,
			Again: func() keyedlog.Log { return open(tb, cfg) },
			Crash: func() (keyedlog.Log, error) {
				kill(s, l)
				s, l = process(tb, cfg)
				return s, nil
			},
			Options: keyedlogtest.Options{Writers: 2, Rounds: 3, Records: 200, Interference: 500 * time.Millisecond, Timeout: time.Minute},
		}
	})
}

func TestRealStateStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) storetest.Fixture {
		cfg := sharedConfig(tb, newPrefix())
		s, l := process(tb, cfg)
		return storetest.Fixture{
			Store: keyedlog.NewStateStore(s),
			Crash: func() (statemachine.StateStore, error) {
				kill(s, l)
				s, l = process(tb, cfg)
				return keyedlog.NewStateStore(s), nil
			},
		}
	})
}
