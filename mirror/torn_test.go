package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// tornWorld mirrors topics of one partition each, with these batches, whose source is then lost.
func tornWorld(t *testing.T, topics map[string][][]byte) (*running, *side, *side) {
	t.Helper()
	a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
	var names []string
	for name, batches := range topics {
		a.local(name, 1)
		a.load(name, 0, 0, 0, batches...)
		names = append(names, name)
	}
	slices.Sort(names)
	m := open(t, "m", a.Cluster, b)
	t.Cleanup(m.close)
	m.start(names...)
	m.untilInStep()
	a.SetUnreachable(true)
	return m, a, b
}

// half is what two copies hold of a transaction of producer 7 over both: its COMMIT, with the epoch markerEpoch, is in orders and not in payments.
func half(markerEpoch int16) map[string][][]byte {
	return map[string][][]byte{
		"orders":   {data(0, 0, 4, 5, &producer{id: 7, epoch: 1, open: true}), data(0, 5, 5, 1, nil), marker(0, 6, 7, markerEpoch, batch.ControlCommit), data(0, 7, 7, 1, nil)},
		"payments": {data(0, 0, 0, 1, nil), data(0, 1, 2, 2, &producer{id: 7, epoch: 1, open: true})},
	}
}

func tornOfHalf(possibly bool) []mirror.TornTransaction {
	return []mirror.TornTransaction{{ProducerID: 7, ProducerEpoch: 1, Possibly: possibly,
		Committed: []mirror.TransactionPlace{{Topic: "orders", Partition: 0, Offset: 6}}, Aborted: []mirror.TransactionPlace{{Topic: "payments", Partition: 0, Offset: 1}}}}
}

// TestTornTransactionsAreInPlanAndReport: v2 says it for certain, v1 does not; what a plan says the report says too.
func TestTornTransactionsAreInPlanAndReport(t *testing.T) {
	for name, c := range map[string]struct {
		epoch int16
		word  string
	}{"v2": {2, "1 torn"}, "v1": {1, "1 possibly torn"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _, b := tornWorld(t, half(c.epoch))
				plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
				expect(t, "in the plan", plan.TornTransactions.Transactions, tornOfHalf(name == "v1"))
				expectWords(t, plan.String(), "TORN TRANSACTIONS: "+c.word+": committed in some partitions, aborted in others; see below", "orders-0 at 6", "payments-0 at 1")
				report, err := m.ExecuteFailover(t.Context(), plan)
				if err != nil {
					t.Fatal(err)
				}
				expect(t, "in the report", report.TornTransactions.Transactions, tornOfHalf(name == "v1"))
				expectWords(t, report.String(), "TORN TRANSACTIONS: "+c.word, "orders-0 at 6", "payments-0 at 1")
				// And so it is.
				expect(t, "committed in orders", b.offsets("orders", 0, 0, memlog.ReadCommitted), []int64{0, 1, 2, 3, 4, 5, 7})
				expect(t, "committed in payments", b.offsets("payments", 0, 0, memlog.ReadCommitted), []int64{0})
				again, err := m.Failover(t.Context(), mirror.FailoverOptions{})
				if err != nil {
					t.Fatal(err)
				}
				expect(t, "in the report of the same again", again.TornTransactions.Transactions, tornOfHalf(name == "v1"))
			})
		})
	}
}

// TestNoTornTransactions: a plan that finds none says so, and where nothing is open nothing is read.
func TestNoTornTransactions(t *testing.T) {
	both := half(2)
	both["payments"] = append(both["payments"], marker(0, 3, 7, 2, batch.ControlCommit))
	none := half(2)
	none["orders"] = none["orders"][:2]
	other := half(2)
	other["payments"][1] = data(0, 1, 2, 2, &producer{id: 7, epoch: 0, open: true})
	for name, c := range map[string]struct {
		topics map[string][][]byte
		look   bool
	}{"both COMMITs are there": {both, false}, "none is": {none, true}, "of another epoch": {other, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _, _ := tornWorld(t, c.topics)
				s := m.Snapshot()
				expect(t, "looked", s.Transactions != nil, c.look)
				plan := mirror.PlanFailover(s, mirror.FailoverOptions{Torn: mirror.TornRefuse})
				if len(plan.TornTransactions.Transactions) > 0 || plan.Severity == mirror.SeverityRefused {
					t.Errorf("%s", plan)
				}
				if says := strings.Contains(plan.String(), "TORN TRANSACTIONS: none seen; "); says != c.look {
					t.Errorf("%s", plan)
				}
				report, err := m.ExecuteFailover(t.Context(), plan)
				if err != nil || len(report.TornTransactions.Transactions) > 0 {
					t.Errorf("%v\n%s", err, report)
				}
			})
		})
	}
}

// TestTornTransactionsOfAPartOfTheTopics: what is not stopped may get its COMMIT yet; what is stopped is aborted, also where the COMMIT is in a topic that goes on.
func TestTornTransactionsOfAPartOfTheTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := half(2)
		topics["audit"] = [][]byte{data(0, 0, 0, 1, &producer{id: 7, epoch: 1, open: true})}
		topics["other"] = [][]byte{data(0, 0, 0, 1, nil)}
		m, _, _ := tornWorld(t, topics)
		s := m.Snapshot()
		for _, c := range []struct {
			topics  []string
			aborted []mirror.TransactionPlace
		}{
			{nil, []mirror.TransactionPlace{{Topic: "audit"}, {Topic: "payments", Offset: 1}}},
			{[]string{"payments", "other"}, []mirror.TransactionPlace{{Topic: "payments", Offset: 1}}},
			{[]string{"orders", "other"}, nil},
		} {
			plan := mirror.PlanFailover(s, mirror.FailoverOptions{Topics: c.topics})
			var aborted []mirror.TransactionPlace
			for _, x := range plan.TornTransactions.Transactions {
				aborted = append(aborted, x.Aborted...)
			}
			expect(t, fmt.Sprint("aborted by a stop of ", c.topics), aborted, c.aborted)
		}
		// What was stopped before still counts: payments is torn by its stop, whatever happens to orders.
		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{Topics: []string{"payments"}}); err != nil {
			t.Fatal(err)
		}
		report, err := m.Failover(t.Context(), mirror.FailoverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "torn", len(report.TornTransactions.Transactions), 1)
		expect(t, "aborted", report.TornTransactions.Transactions[0].Aborted, []mirror.TransactionPlace{{Topic: "audit"}, {Topic: "payments", Offset: 1}})
	})
}

// TestRefusedBecauseTransactionsWouldBeTorn: nothing is stopped, the error has the list and says what to do, and with the other policy it is done.
func TestRefusedBecauseTransactionsWouldBeTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a, _ := tornWorld(t, half(2))
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{Torn: mirror.TornRefuse})
		expect(t, "severity", plan.Severity, mirror.SeverityRefused)
		expectWords(t, plan.String(), "REFUSED: 1 torn, and the policy is to refuse that; see below what to do", "What to do: ")
		_, err := m.ExecuteFailover(t.Context(), plan)
		var torn *mirror.TornTransactionsError
		if !errors.Is(err, mirror.ErrTornTransactions) || !errors.As(err, &torn) || !errors.Is(err, &mirror.Error{Code: mirror.InvalidClusterMirrorState}) {
			t.Fatal(err)
		}
		expect(t, "in the error", torn.Torn.Transactions, tornOfHalf(false))
		expectWords(t, err.Error(), "Nothing has changed", "stop with policy abort", "Promote", "producer 7 epoch 1, torn: committed in orders-0 at 6; aborted in payments-0 at 1")
		if state := m.one("payments", 0).State; state == statemachine.Stopped || state == statemachine.Stopping {
			t.Errorf("payments is %s", state)
		}
		// The plan is of then: when the rest has come, the same plan is carried out.
		a.load("payments", 0, 0, 0, append(half(2)["payments"], marker(0, 3, 7, 2, batch.ControlCommit))...)
		a.SetUnreachable(false)
		m.until("the COMMIT is there", func(s mirror.Status) bool { return one(s, "payments", 0).Replicated == 4 })
		report, err := m.ExecuteFailover(t.Context(), plan)
		if err != nil || len(report.TornTransactions.Transactions) > 0 {
			t.Fatalf("%v\n%s", err, report)
		}
		plan.TornPolicy = "cut everything"
		_, err = m.ExecuteFailover(t.Context(), plan)
		if !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) {
			t.Errorf("of a policy that is none: %v", err)
		}
	})
}

// TestTornTransactionsAreReportedWhileTheSourceIsSilent: whoever stops from elsewhere cannot read the copies, so the process says what it sees; while the source answers it does not look.
func TestTornTransactionsAreReportedWhileTheSourceIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		for name, batches := range half(2) {
			a.local(name, 1)
			a.load(name, 0, 0, 0, batches...)
		}
		control := mirror.NewMemoryControl()
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = control })
		defer m.close()
		m.start("orders", "payments")
		m.untilInStep()
		time.Sleep(time.Minute)
		admin, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "m", Control: control, States: b.StateStore(), Destination: b.Cluster})
		if err != nil {
			t.Fatal(err)
		}
		stop := func(policy mirror.TornPolicy) (mirror.Result, error) {
			return admin.Stop(t.Context(), []string{"orders", "payments"}, mirror.StopOptions{DryRun: true, Torn: policy})
		}
		r, err := stop(mirror.TornAbort)
		if err != nil || len(r.TornTransactions) > 0 {
			t.Errorf("while the source answers: %v\n%s", err, r)
		}
		_, err = stop(mirror.TornRefuse)
		if !errors.Is(err, mirror.ErrTornTransactions) {
			t.Error(err)
		}
		expectWords(t, fmt.Sprint(err), "not known whether", "payments-0 has open transactions", "it does while the source does not answer", "Promote")
		a.SetUnreachable(true)
		time.Sleep(2 * time.Minute)
		if r, err = stop(mirror.TornAbort); err != nil {
			t.Fatal(err)
		}
		expect(t, "in the result", r.TornTransactions, tornOfHalf(false))
		expectWords(t, r.String(), "note: TORN TRANSACTIONS: 1 torn: committed in some partitions, and aborted in others by the stop", "note: producer 7 epoch 1, torn: committed in orders-0 at 6; aborted in payments-0 at 1")
		before := r.Plan
		_, err = stop(mirror.TornRefuse)
		if !errors.Is(err, mirror.ErrTornTransactions) {
			t.Error(err)
		}
		expectWords(t, fmt.Sprint(err), "committed in orders-0 at 6", "stop with policy abort")
		if r, err = stop(""); err != nil || r.Plan != before {
			t.Errorf("no policy is the default: %v %s %s", err, r.Plan, before)
		}
		if _, err = stop("cut everything"); !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) {
			t.Errorf("of a policy that is none: %v", err)
		}
	})
}

// slowReads is a destination whose logs are not read in time.
type slowReads struct{ *memlog.Cluster }

type slowLog struct{ mirror.Log }

func (d slowReads) OpenLog(ctx context.Context, tp mirror.TopicPartition) (mirror.Log, error) {
	l, err := d.Cluster.OpenLog(ctx, tp)
	return slowLog{l}, err
}

func (l slowLog) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Hour):
		return l.Log.Read(ctx, from, most)
	}
}

// TestALookAtTransactionsIsBoundedInTime: a copy that is not read in time is said not to have been, and holds up no failover but one that is to be refused.
func TestALookAtTransactionsIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		for name, batches := range half(2) {
			a.local(name, 1)
			a.load(name, 0, 0, 0, batches...)
		}
		m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Destination = slowReads{b.Cluster} })
		defer m.close()
		m.start("orders", "payments")
		m.untilInStep()
		a.SetUnreachable(true)
		began := time.Now()
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{Torn: mirror.TornRefuse})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		expectWords(t, plan.String(), "REFUSED: whether transactions are torn is not known (orders-0 was not read: not read within 2s)", "payments-0 not looked at below offset 3 (not read within 2s)")
		if _, err := m.ExecuteFailover(t.Context(), plan); !errors.Is(err, mirror.ErrTornTransactions) {
			t.Error(err)
		}
		report, err := m.Failover(t.Context(), mirror.FailoverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expectWords(t, report.String(), "TORN TRANSACTIONS: not known: orders-0 was not read: not read within 2s", "2 of 2 partitions open for clients")
	})
}
