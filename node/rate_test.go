package node

import (
	"testing"
	"testing/synctest"

	"github.com/clustermirror/clustermirror/mirror"
)

// TestF79MirrorsOfANodeShareItsLimit: the node's option is the limit of its mirrors.
func TestF79MirrorsOfANodeShareItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.create(t, "dr")
		r := c.run(t, "9999", func(cfg *Config) { cfg.Options = mirror.NodeOptions{SharedRate: 4096} })
		until(t, "it runs", func() bool {
			s := r.Status()
			return len(s.looks) == 1
		})
		if s := r.Status().looks[0]; s.SharedRate != 4096 {
			t.Errorf("mirror %s keeps to %d bytes/s", s.Mirror, s.SharedRate)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}
