package node

import (
	"testing"
	"testing/synctest"

	"github.com/clustermirror/clustermirror/mirror"
)

// TestF79MirrorsOfANodeShareItsLimit: the node's option is the limit of each of its mirrors, and the same one.
func TestF79MirrorsOfANodeShareItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for _, name := range []string{"dr", "other"} {
			c.create(t, name)
		}
		r := c.run(t, "9999", func(cfg *Config) { cfg.Options = mirror.NodeOptions{SharedRate: 4096} })
		until(t, "both run", func() bool {
			s := r.Status()
			return len(s.looks) == 2
		})
		for _, s := range r.Status().looks {
			if s.SharedRate != 4096 {
				t.Errorf("mirror %s keeps to %d bytes/s", s.Mirror, s.SharedRate)
			}
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}
