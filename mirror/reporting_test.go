package mirror_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// countingReports counts what is reported.
type countingReports struct {
	mirror.Control
	mu                sync.Mutex
	nodes, partitions int
}

type countingReporter struct {
	mirror.Reporter
	c *countingReports
}

func (c *countingReports) OpenReporter(ctx context.Context, owner string) (mirror.Reporter, error) {
	r, err := c.Control.OpenReporter(ctx, owner)
	return countingReporter{r, c}, err
}

func (r countingReporter) Report(ctx context.Context, node mirror.NodeReport, partitions []mirror.PartitionReport) error {
	r.c.mu.Lock()
	r.c.nodes++
	r.c.partitions += len(partitions)
	r.c.mu.Unlock()
	return r.Reporter.Report(ctx, node, partitions)
}

func (c *countingReports) take() (nodes, partitions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes, partitions = c.nodes, c.partitions
	c.nodes, c.partitions = 0, 0
	return nodes, partitions
}

// A mirror in step says every five seconds that it lives, once for all its partitions, and what others see of a partition in which nothing happens is seconds old for hours.
func TestReportsOfAMirrorInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counting *countingReports
		m := newPair(t, 40, func(c *mirror.Config) {
			counting = &countingReports{Control: c.Destination.(*memlog.Cluster).Control()}
			c.Control, c.Node, c.Version = counting, "mirror-1", "v9"
		})
		m.a.fill("t", 0, 5)
		m.start("t")
		m.untilInStep()
		time.Sleep(time.Minute)
		counting.take()
		time.Sleep(time.Hour)
		nodes, partitions := counting.take()
		if nodes < 719 || nodes > 730 || partitions > 40 {
			t.Errorf("%d reports of the node and %d of partitions in an hour", nodes, partitions)
		}
		admin := from(t, m.b)
		d, err := admin.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Topics[0].Partitions {
			if age := d.Taken.Sub(p.SourceSeen); p.Lag != (mirror.Lag{Offsets: mirror.KnownNumber(0)}) || age > 10*time.Second || d.Taken.Sub(p.Reported) > 10*time.Second {
				t.Errorf("%d: lag %s, seen %s ago, reported %s ago", p.Partition, p.Lag, age, d.Taken.Sub(p.Reported))
			}
		}
		expect(t, "verdict", d.Protection(), mirror.Protection{Verdict: mirror.Protected})
		expectWords(t, d.String(), "mirror-1", "topic settings: ", "access rules: ")
		n := d.Nodes[0]
		expect(t, "node", []any{n.Node, n.Owner, n.Version, n.Interval, n.Refresh}, []any{"mirror-1", "m", "v9", 5 * time.Second, 30 * time.Second})
		if n.Settings == nil || n.AccessRules == nil || n.Groups == nil || n.Settings.At.IsZero() {
			t.Errorf("%+v", n.NodeReport)
		}

		// What moves is seen within ten seconds, by a record or two.
		counting.take()
		for i := range 12 {
			m.a.fill("t", 3, 1)
			time.Sleep(5 * time.Second)
			if d, err = admin.Describe(t.Context()); err != nil {
				t.Fatal(err)
			}
			if end, _ := d.Topics[0].Partitions[3].SourceEnd.Value(); int64(i)+1-end > 2 {
				t.Errorf("the source ends at %d, shown is %d", i+1, end)
			}
		}
		if _, partitions = counting.take(); partitions == 0 || partitions > 8 {
			t.Errorf("%d reports of one busy partition in a minute", partitions)
		}

		// The process dies: fifteen seconds later that is said.
		m.running.close()
		time.Sleep(16 * time.Second)
		if d, err = admin.Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
		expectWords(t, d.Head, "NO PROCESS was heard of for 1")
		if v := d.Protection(); v.Verdict != mirror.NotProtected || !strings.Contains(strings.Join(v.Reasons, "\n"), "NO PROCESS") {
			t.Errorf("%+v", v)
		}
		expect(t, "lag", d.Topics[0].Partitions[0].Lag.String(), "unknown, 0 when last seen")
	})
}

// While the source does not answer, nobody is told that anything was measured, and hundreds of partitions are not reported again and again.
func TestReportsWhileTheSourceIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counting *countingReports
		m := newPair(t, 40, func(c *mirror.Config) {
			counting = &countingReports{Control: c.Destination.(*memlog.Cluster).Control()}
			c.Control = counting
		})
		m.start("t")
		m.untilInStep()
		time.Sleep(time.Minute)
		m.a.SetUnreachable(true)
		dead := time.Now()
		time.Sleep(5 * time.Minute)
		d, err := from(t, m.b).Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Topics[0].Partitions {
			if p.SourceSeen.After(dead.Add(time.Second)) || p.SourceSeen.Before(dead.Add(-10*time.Second)) || !p.Lag.AtLeast {
				t.Errorf("%d: seen at %s, and the source is silent since %s; lag %s", p.Partition, p.SourceSeen, dead, p.Lag)
			}
		}
		if v := d.Protection(); v.Verdict != mirror.NotProtected || !strings.Contains(fmt.Sprint(v.Reasons), "not seen at the source for 1m0s: t-0, t-1") {
			t.Errorf("%+v", v)
		}
		counting.take()
		time.Sleep(time.Hour)
		if _, partitions := counting.take(); partitions > 40 {
			t.Errorf("%d reports of partitions in an hour", partitions)
		}
	})
}

// A process that is started while the source is dead keeps what the one before it knew of the source's end, with its age.
func TestARestartDoesNotForgetWhereTheSourceEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("orders", 1)
		a.fill("orders", 0, 14)
		m := open(t, "m", a.Cluster, b, shared)
		m.start("orders")
		m.until("in step", func(s mirror.Status) bool { return each(s, inStep) })
		time.Sleep(time.Minute) // virtual
		a.SetUnreachable(true)
		dead := time.Now()
		time.Sleep(time.Minute)
		m.close()
		m = open(t, "m", a.Cluster, b, shared)
		defer m.close()
		time.Sleep(10 * time.Minute)
		d, err := from(t, b).Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := d.Topics[0].Partitions[0]
		if end, ok := p.SourceEnd.Value(); !ok || end != 14 || p.SourceSeen.After(dead.Add(time.Second)) || p.SourceSeen.Before(dead.Add(-time.Minute)) {
			t.Errorf("source end %s, seen %s before it died", p.SourceEnd, dead.Sub(p.SourceSeen))
		}
		expect(t, "lag", p.Lag.String(), "unknown, 0 when last seen")
		a.SetUnreachable(false)
		a.fill("orders", 0, 1)
		m.until("in step again", func(s mirror.Status) bool {
			return each(s, func(p mirror.PartitionStatus) bool { return inStep(p) && p.End == 15 })
		})
		time.Sleep(time.Minute)
		if d, err = from(t, b).Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, "source end then", d.Topics[0].Partitions[0].SourceEnd.String(), "15")
	})
}

// One broker of the source is down: of the partitions that it leads no lag is shown (F-73's kind), of the others it is.
func TestNoLagIsShownOfAPartitionWhoseLeaderIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A", Brokers: 2}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("orders", 2)
		m := open(t, "m", a.Cluster, b, shared)
		defer m.close()
		m.start("orders")
		m.until("in step", func(s mirror.Status) bool { return each(s, inStep) })
		time.Sleep(time.Minute) // virtual
		if err := a.StopBroker(2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(33 * time.Second)
		d, err := from(t, b).Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expectWords(t, d.Head, "the source does not answer for 1 of 2 partitions")
		expect(t, "lag of the one that is led", d.Topics[0].Partitions[0].Lag.String(), "0")
		expect(t, "lag of the one that is not", d.Topics[0].Partitions[1].Lag.String(), "unknown, 0 when last seen")
	})
}

// A stop's dry run says which transactions it will abort.
func TestStopSaysWhichTransactionsItAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1, shared)
		m.a.load("t", 0, 0, 0, records(0, 0, 3), data(0, 3, 3, 1, &producer{id: 7, open: true}), data(0, 4, 4, 1, &producer{id: 8, open: true}), records(0, 5, 9))
		m.start("t")
		m.untilInStep()
		time.Sleep(10 * time.Second)
		admin := from(t, m.b)
		r, err := admin.Stop(t.Context(), []string{"t"}, mirror.StopOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		expectWords(t, r.String(), "note: t-0: 2 open transactions will be aborted, from offset 3 (as reported ")
		d, err := admin.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expectWords(t, d.String(), "t-0: 2 transactions from offset 3 are open; a stop aborts them")
		if _, err := admin.Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Await(bounded(t, time.Minute), mirror.AwaitOptions{Until: mirror.ReachedStopped}, nil); err != nil {
			t.Fatal(err)
		}
		expect(t, "aborted", len(m.one("t", 0).Aborts), 2)
		time.Sleep(10 * time.Second)
		if r, err = admin.Stop(t.Context(), []string{"t"}, mirror.StopOptions{DryRun: true}); err != nil || strings.Contains(r.String(), "aborted") {
			t.Errorf("%v\n%s", err, r)
		}
	})
}
