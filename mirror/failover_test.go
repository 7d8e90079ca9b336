package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func TestF83FailoverOfFiftyTopicsWithTheSourceGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		var topics []string
		for i := range 49 {
			name := fmt.Sprintf("t%02d", i)
			topics = append(topics, name)
			a.local(name, 1)
			a.fill(name, 0, 3)
		}
		b.local("other", 1)
		m := open(t, "m", a.Cluster, b)
		defer m.close()
		m.start(topics...)
		m.untilInStep()
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{Topics: topics[:1]}); err != nil {
			t.Fatal(err)
		}
		a.SetUnreachable(true)
		time.Sleep(5 * time.Second)
		var hangs atomic.Bool
		hangs.Store(true)
		b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
			if hangs.Load() && c.Partition.Topic == "t07" && strings.HasPrefix(c.Operation, "Log.") {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}})
		all := append([]string{"other"}, topics...)
		run := func() (mirror.FailoverReport, error) {
			ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
			defer stop()
			began := time.Now()
			report, err := m.Failover(ctx, mirror.FailoverOptions{Topics: all})
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("took %s", took)
			}
			return report, err
		}
		for attempt := range 3 {
			report, err := run()
			if !errors.Is(err, mirror.ErrIncomplete) {
				t.Fatalf("attempt %d: %v\n%s", attempt, err, report)
			}
			// The one that is not mirrored is named by an error of its own.
			if len(report.Topics) != 1 || report.Topics[0].Topic != "other" || !errors.Is(report.Topics[0].Err, &mirror.Error{Code: mirror.TopicNotInClusterMirror}) {
				t.Fatalf("attempt %d: refused %v", attempt, report.Topics)
			}
			open := 0
			for _, p := range report.Partitions {
				switch {
				case p.Topic == "t07" && attempt < 2:
					if p.Err == nil {
						t.Error("the hanging one is open")
					}
					expectWords(t, report.String(), "t07-0", "NOT OPEN", "t07-0: m/t07-0: INVALID_CLUSTER_MIRROR_STATE")
				case p.Err != nil:
					t.Errorf("attempt %d: %s: %v", attempt, p.Topic, p.Err)
				default:
					open++
					expect(t, "already done", p.AlreadyDone, p.Topic == "t00" || attempt > 0)
					expect(t, "final offset", p.FinalOffset, 3)
					if attempt == 0 && p.Topic != "t00" {
						expect(t, "loss", p.Missing.String(), "unknown, none missing when last seen")
					}
				}
			}
			if attempt < 2 {
				expect(t, "open", open, 48)
				expectWords(t, report.String(), "48 of 49 partitions open for clients; 1 topic refused")
			} else {
				expect(t, "open", open, 49)
			}
			if attempt == 1 {
				hangs.Store(false)
				time.Sleep(10 * time.Minute) // the stop is tried again by itself
			}
		}
		b.produce("t07", 0, "a client writes")
	})
}

// mute is a Control that tells of no change and cannot be read by the mirror, while it is mute.
type mute struct {
	mirror.Control
	on atomic.Bool
}

func (c *mute) Changed() <-chan struct{} {
	if c.on.Load() {
		return nil
	}
	return c.Control.Changed()
}

func TestFailoverAndFailbackAreNotCompleteBeforeTheMirrorKnowsTheTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := &mute{Control: mirror.NewMemoryControl()}
		control.on.Store(true)
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = control })
		defer m.close()
		synctest.Wait() // the reconciler has read an empty state and is told of no change
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		plan, err := m.PlanFailback(ctx, "t")
		if err != nil {
			t.Fatal(err)
		}
		back, err := m.ExecuteFailback(ctx, plan)
		if !errors.Is(err, mirror.ErrIncomplete) || !errors.Is(err, context.DeadlineExceeded) || len(back.Topics) != 1 {
			t.Errorf("failback: %v %+v", err, back)
		}
		ctx, stop = context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		over, err := m.ExecuteFailover(ctx, mirror.FailoverPlan{Mirror: "m", Topics: []mirror.PlanTopic{{Topic: "t"}}})
		if !errors.Is(err, mirror.ErrIncomplete) || !errors.Is(err, context.DeadlineExceeded) || len(over.Topics) != 1 {
			t.Errorf("failover: %v %+v", err, over)
		}
		expectWords(t, over.String(), "t: m/t: UNKNOWN_TOPIC_OR_PARTITION: its logs are not open here yet; run the same again")
	})
}

func TestAcceptance2_11FailoverOfPartOfASetIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		for _, topic := range []string{"bills", "carts", "invoices"} {
			a.local(topic, 1)
			a.fill(topic, 0, 3)
		}
		m := open(t, "m", a.Cluster, b)
		defer m.close()
		m.start("bills", "carts", "invoices")
		m.untilInStep()
		if _, err := m.Admin().AlterConfig(t.Context(), mirror.Settings{"mirror.topic.set.billing": "bill.*,invoices"}, nil, mirror.AlterConfigOptions{}); err != nil {
			t.Fatal(err)
		}
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{Topics: []string{"bills"}})
		report, err := m.ExecuteFailover(t.Context(), plan)
		if !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) || len(report.Partitions) > 0 || plan.Severity != mirror.SeverityRefused {
			t.Fatalf("%v\n%s\n%s", err, plan, report)
		}
		expectWords(t, err.Error(), "billing", "invoices", "Partial")
		if !each(m.Status(), inStep) {
			t.Fatalf("something was stopped: %s", show(m.Status()))
		}
		if report, err = m.Failover(t.Context(), mirror.FailoverOptions{Topics: []string{"bills"}, Partial: true}); err != nil || len(report.Partitions) != 1 {
			t.Fatalf("%v\n%s", err, report)
		}
		d, err := m.Admin().Describe(t.Context())
		if err != nil || !strings.HasPrefix(d.Head, "PARTIALLY FAILED OVER: 1 of 2 topics of set billing (STOPPED bills; MIRRORING invoices)") {
			t.Fatalf("%v %q", err, d.Head)
		}
		if report, err = m.Failover(t.Context(), mirror.FailoverOptions{Topics: []string{"bills", "invoices"}}); err != nil || len(report.Partitions) != 2 {
			t.Fatalf("%v\n%s", err, report)
		}
		if d, err = m.Admin().Describe(t.Context()); err != nil || d.Partial || !d.Alive {
			t.Errorf("%v %q, alive %v", err, d.Head, d.Alive)
		}
	})
}
