package lives

import (
	"context"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// Keeper is a kafkatest.T that outlives a test: its cleanups run when all tests are over; what goes wrong is the present test's.
type Keeper struct {
	kafkatest.T
	cleanups []func()
	lent     map[string]*kafkatest.Cluster
}

// Lend is a cluster that the tests of a package share, by name; the first one starts it. A test that fails shows the end of its brokers' logs.
func (k *Keeper) Lend(t testing.TB, name string, o kafkatest.Options) *kafkatest.Cluster {
	t.Helper()
	kafkatest.Require(t)
	k.T = t
	c := k.lent[name]
	if c == nil {
		c = kafkatest.Start(k, o)
		if k.lent == nil {
			k.lent = map[string]*kafkatest.Cluster{}
		}
		k.lent[name] = c
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, id := range c.Brokers() {
			log := c.Log(id)
			t.Logf("end of the log of broker %d of %s:\n%s", id, name, log[max(0, len(log)-4000):])
		}
	})
	return c
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
