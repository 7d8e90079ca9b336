package keyedlog_test

import (
	"testing"

	"github.com/clustermirror/clustermirror/keyedlog"
	sm "github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/statemachine/storetest"
)

func TestStateStoreInMemoryPassesTheKit(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Fixture {
		log := keyedlog.NewMemory()
		return storetest.Fixture{
			Store: keyedlog.NewStateStore(log),
			// what the killed process holds goes on with the old handle
			Crash: func() (sm.StateStore, error) { return keyedlog.NewStateStore(log.Again()), nil },
		}
	})
}
