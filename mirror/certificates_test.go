package mirror_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// certified is a source that knows of certificates; reading them waits for release.
type certified struct {
	mirror.Source
	all     []mirror.Certificate
	release chan struct{}
}

func (c certified) Certificates() []mirror.Certificate {
	<-c.release
	return slices.Clone(c.all)
}

// TestAcceptance6_6CertificatesAreShownAndNeverWaitedFor: they are in the status in a fixed order, and a file that does not answer holds nothing back.
func TestAcceptance6_6CertificatesAreShownAndNeverWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("orders", 1)
		a.produce("orders", 0, "x")
		src := certified{a.Cluster, []mirror.Certificate{{Of: "b:1", Ends: time.Unix(2, 0)}, {Own: true, Of: "a", Ends: time.Unix(1, 0)}}, make(chan struct{})}
		m := open(t, "m", src, b)
		m.start("orders")
		m.untilInStep()
		time.Sleep(time.Hour)
		if got := m.Status().Certificates; got != nil {
			t.Errorf("not read yet: %v", got)
		}
		close(src.release)
		synctest.Wait()
		if got := m.Status().Certificates; len(got) != 2 || !got[0].Own || got[1].Of != "b:1" {
			t.Errorf("%v", got)
		}
		m.close()
	})
}
