package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// TestItem6FetchesAreCounted: what was received, copied and waited for, by what came of it.
func TestItem6FetchesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("orders", 1)
		a.fill("orders", 0, 3)
		a.block("orders", 0, 10)
		m := follow(t, "m", a, b)
		defer m.close()
		m.start("orders")
		m.untilInStep()
		bytes := int64(len(a.raw("orders", 0)))
		f := m.Status().Fetches
		if f.CopiedBytes != bytes || f.ReceivedBytes != bytes || f.CopiedBatches != 4 || f.Records.Count == 0 {
			t.Errorf("%d bytes in 4 batches, and counted are %+v", bytes, f)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := f
		f = m.Status().Fetches
		// An idle source answers when its time of waiting is over.
		if n := f.Empty.Count - before.Empty.Count; n < 10 || f.Empty.Total < time.Duration(n)*400*time.Millisecond {
			t.Errorf("ten idle seconds: %+v", f.Empty)
		}
		last := len(mirror.FetchBounds()) - 1
		for i, bound := range mirror.FetchBounds() {
			if bound < 500*time.Millisecond && f.Empty.Within[i] > before.Empty.Count || i > 0 && f.Empty.Within[i] < f.Empty.Within[i-1] || i == last && f.Empty.Within[i] != f.Empty.Count {
				t.Errorf("within %v: %+v", bound, f.Empty)
			}
		}
		a.SetUnreachable(true)
		time.Sleep(10 * time.Second)
		if f := m.Status().Fetches; f.Failed.Count == 0 || f.ReceivedBytes != bytes {
			t.Errorf("the source is away: %+v", f)
		}
	})
}
