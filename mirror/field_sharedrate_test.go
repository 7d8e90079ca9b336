package mirror_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// TestF79MirrorsShareOneLimit: two mirrors, with two fetchers each, that are given one limit keep it together within a tenth, and each has its part of it. It is shown as what it is, and what it costs in
// time; what one of them does not need the other has.
func TestF79MirrorsShareOneLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 256 << 10
		shared := mirror.NewSharedRate(rate)
		share := func(c *mirror.Config) { c.SharedRate = shared }
		one, two := quotaPair(t, 2000, share), quotaPair(t, 2000, share)
		one.start("t")
		two.start("t")
		one.until("copying", func(mirror.Status) bool { return one.copied() > 0 && two.copied() > 0 })
		time.Sleep(5 * time.Second) // virtual: what the start had left over is used up
		const over = 60 * time.Second
		first, second := one.copied(), two.copied()
		time.Sleep(over) // virtual
		first, second = one.copied()-first, two.copied()-second
		want := over.Seconds() * rate
		t.Logf("configured %d bytes/s, measured %.0f", rate, float64(first+second)/over.Seconds())
		if got := float64(first + second); got < 0.9*want || got > 1.1*want {
			t.Errorf("%.0f bytes in %s, %.0f are allowed to both", got, over, want)
		}
		for _, got := range []int{first, second} {
			if float64(got) < want/4 {
				t.Errorf("%d and %d bytes: one of the mirrors has less than half of its part", first, second)
			}
		}
		for _, p := range []*pair{one, two} {
			p.neverFailed()
			expectWords(t, p.one("t", 0).Reason, "limited to 262144 bytes/s", "mirror.node.throttled.rate")
			s := p.Status()
			expect(t, "Status.SharedRate", s.SharedRate, rate)
			if s.HeldBack < over/2 || s.HeldBack > 2*(over+10*time.Second) {
				t.Errorf("held back for %s in all, by two connections in %s", s.HeldBack, over)
			}
		}

		// The other has all of it when one has gone, and a limit of its own holds besides.
		two.running.close()
		one.rate(20*time.Second, rate)
		one.limit("65536")
		time.Sleep(5 * time.Second) // virtual
		one.rate(20*time.Second, 65536)
		expectWords(t, one.one("t", 0).Reason, "limited to 65536 bytes/s by mirror.replication.throttled.rate")

		one.limit("")
		shared.Set(0)
		one.inStepAndSame()
		if why := one.one("t", 0).Reason; strings.Contains(why, "limited") {
			t.Errorf("in step, and %q", why)
		}
	})
}
