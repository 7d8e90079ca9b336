package keyedlog_test

import (
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/keyedlog/keyedlogtest"
)

func TestMemoryPassesTheKit(t *testing.T) {
	keyedlogtest.Run(t, func(testing.TB) keyedlogtest.Fixture {
		log := keyedlog.NewMemory()
		return keyedlogtest.Fixture{
			Log:   log,
			Again: func() keyedlog.Log { return log.Again() },
			// what the killed process holds goes on with the old handle
			Crash:   func() (keyedlog.Log, error) { return log.Again(), nil },
			Options: keyedlogtest.Options{Interference: time.Millisecond}, // decide runs under the lock: nobody comes in between
		}
	})
}
