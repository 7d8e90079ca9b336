package lives

import (
	"context"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// Keeper is a kafkatest.T that outlives a test: its cleanups run when all tests are over; what goes wrong is the present test's.
type Keeper struct {
	kafkatest.T
	cleanups []func()
}

// Cleanup keeps f for End.
func (k *Keeper) Cleanup(f func()) { k.cleanups = append(k.cleanups, f) }

// End runs the cleanups, the last one first.
func (k *Keeper) End() {
	for i := len(k.cleanups) - 1; i >= 0; i-- {
		k.cleanups[i]()
	}
}

// Failed is false: a cluster that is kept shows its brokers' logs in the test that failed itself, not at the end.
func (k *Keeper) Failed() bool { return false }

// Context never ends, so that the cluster's own waits do not end with the first test.
func (k *Keeper) Context() context.Context { return context.Background() }
