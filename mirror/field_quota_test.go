package mirror_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// quotaPair is a pair whose source has two brokers, a partition on each, and that many batches of about 10 KiB in each partition.
func quotaPair(t *testing.T, batches int, change ...func(*mirror.Config)) *pair {
	t.Helper()
	a, b := newSide(t, memlog.Config{ClusterID: "A", Brokers: 2}), newSide(t, memlog.Config{ClusterID: "B"})
	a.local("t", 2)
	for p := range int32(2) {
		for i := range batches {
			a.produce("t", p, fmt.Sprintf("%d/%d %s", p, i, strings.Repeat("x", 10_000)))
		}
	}
	p := &pair{a: a, b: b}
	p.running = open(t, "m", a.Cluster, b, change...)
	t.Cleanup(p.running.close)
	return p
}

// copied is how many bytes of both partitions are at the destination.
func (p *pair) copied() (n int) {
	synctest.Wait()
	for i := range int32(2) {
		n += len(p.b.raw("t", i))
	}
	return n
}

// neverFailed checks that being slow was not taken for a failure.
func (p *pair) neverFailed() {
	p.t.Helper()
	for _, e := range eventsOf[mirror.StateChanged](p.running) {
		if e.To == statemachine.Failed {
			p.t.Errorf("a copy that is slowed down is shown as failed: %s", e)
		}
	}
}

// limit alters mirror.replication.throttled.rate; "" takes it away.
func (p *pair) limit(rate string) {
	p.t.Helper()
	const name = "mirror.replication.throttled.rate"
	set, unset := mirror.Settings{name: rate}, []string(nil)
	if rate == "" {
		set, unset = nil, []string{name}
	}
	if _, err := p.Admin().AlterConfig(p.t.Context(), set, unset, mirror.AlterConfigOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

// rate lets time pass and checks how much of it was copied: within a tenth of what is allowed.
func (p *pair) rate(over time.Duration, bytesPerSecond int) {
	p.t.Helper()
	before := p.copied()
	time.Sleep(over) // virtual
	got, want := float64(p.copied()-before), over.Seconds()*float64(bytesPerSecond)
	if got < 0.9*want || got > 1.1*want {
		p.t.Errorf("%.0f bytes in %s, %.0f are allowed%s", got, over, want, show(p.Status()))
	}
}

// TestF79OwnRateLimit: bytes per second are kept within a tenth over all brokers, are altered without a new connection, and are shown; nothing else waits for them.
func TestF79OwnRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked requests
		p := quotaPair(t, 800, func(c *mirror.Config) { c.FetchRate = 64 << 10 })
		p.a.SetHooks(memlog.Hooks{Before: func(_ context.Context, call memlog.Call) error { asked.count(call); return nil }})
		p.start("t")
		p.until("copying", func(s mirror.Status) bool { return p.copied() > 0 })
		p.rate(30*time.Second, 64<<10)
		for i := range int32(2) {
			x := p.one("t", i)
			expect(t, "state", x.State, statemachine.Mirroring)
			expectWords(t, x.Reason, "limited to 65536 bytes/s", "mirror.replication.throttled.rate")
		}
		expect(t, "Status.FetchRate", p.Status().FetchRate, 64<<10)
		connections := asked.of("Source.OpenFetcher")

		p.limit("262144")
		time.Sleep(time.Second) // virtual: it is taken up, and what is owed is paid off
		p.rate(20*time.Second, 256<<10)
		d, err := p.Admin().Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expectWords(t, d.String(), "limited to 262144 bytes/s")

		// A limit that hardly lets anything through, and everything else goes on: a status, and a stop that gives up what is not copied.
		p.limit("1")
		time.Sleep(10 * time.Minute) // virtual: longer than the watchdog's time
		p.neverFailed()
		began := time.Now()
		report, err := p.Failover(t.Context(), mirror.FailoverOptions{})
		if err != nil || time.Since(began) > 10*time.Second {
			t.Fatalf("failover took %s: %v\n%s", time.Since(began), err, report)
		}
		expect(t, "connections", asked.of("Source.OpenFetcher"), connections)
		if n := len(eventsOf[mirror.SourceTrouble](p.running)) + len(eventsOf[mirror.SourceThrottled](p.running)); n > 0 {
			t.Errorf("%d events of trouble at the source: %v", n, p.told())
		}
	})
}

// TestF79LimitIsLifted: what was owed under a tight limit keeps nothing back when the limit is taken away.
func TestF79LimitIsLifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := quotaPair(t, 50, func(c *mirror.Config) { c.FetchRate = 1 })
		p.start("t")
		p.until("owing", func(s mirror.Status) bool { return p.copied() > 0 })
		time.Sleep(time.Hour) // virtual
		if got := p.copied(); got > 64<<10 {
			t.Errorf("%d bytes in an hour at 1 byte/s", got)
		}
		p.limit("9223372036854775807") // the KIP's word for no limit
		p.neverFailed()
		began := time.Now()
		p.inStepAndSame()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("in step %s after the limit was lifted", took)
		}
		if x := p.one("t", 0); x.Reason != "" {
			t.Errorf("in step, and %q", x.Reason)
		}
	})
}

// TestF79SourceThrottles: a quota at the source slows the copy down and is shown as that. It is no failure, is not retried, and a start under it comes to its end.
func TestF79SourceThrottles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := quotaPair(t, 300)
		p.a.SetFetchQuota(64 << 10)
		p.start("t")
		p.until("throttled", func(s mirror.Status) bool { return strings.Contains(one(s, "t", 0).Reason, "throttled by the source") })
		expect(t, "state", p.one("t", 0).State, statemachine.Mirroring)
		p.inStepAndSame()
		p.neverFailed()
		told := eventsOf[mirror.SourceThrottled](p.running)
		if len(told) == 0 || len(told) > 6 || told[0].Pause <= 0 {
			t.Errorf("told %d times: %v", len(told), told)
		}
		expectWords(t, told[0].String(), "throttled by the source, ", " ms")
		if got := p.Status().Throttled; got < 60*time.Second || got > 200*time.Second {
			t.Errorf("throttled for %s in all; 6 MB at 64 KiB/s are about 90 s", got)
		}
		if n := len(eventsOf[mirror.SourceTrouble](p.running)) + len(eventsOf[mirror.RetryScheduled](p.running)); n > 0 {
			t.Errorf("%d events of trouble", n)
		}

		// It says when it is over.
		p.a.SetFetchQuota(0)
		p.until("over", func(s mirror.Status) bool {
			told = eventsOf[mirror.SourceThrottled](p.running)
			return told[len(told)-1].Pause == 0
		})
		expectWords(t, told[len(told)-1].String(), "throttles no more")
	})
}
