package mirror_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// TestAcceptance4_6AForcedFailoverNeverRefusesAndReportsEveryDifference: more came in, other transactions are open, a partition is new. It is all stopped, with less loss than planned, and said.
func TestAcceptance4_6AForcedFailoverNeverRefusesAndReportsEveryDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 2)
		m.a.fill("t", 0, 3)
		m.a.fill("t", 1, 3)
		m.start("t")
		m.inStepAndSame()
		open := func() *memlog.Producer {
			p := m.a.NewProducer(memlog.ProducerOptions{})
			if err := p.Begin(); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Produce(t.Context(), "t", 0, memlog.Record{Value: []byte("in a transaction")}); err != nil {
				t.Fatal(err)
			}
			return p
		}
		first := open()
		m.inStepAndSame()
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
		expect(t, "planned aborts", len(plan.Partitions[0].Aborts), 1)
		expect(t, "planned end", plan.Partitions[0].MirrorEnd, mirror.KnownNumber(4))

		// The world goes on: the transaction ends, another one begins, and there is less loss.
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := open()
		m.untilOne("copied", "t", 0, func(p mirror.PartitionStatus) bool { return p.End == 6 })
		m.a.SetUnreachable(true)
		time.Sleep(time.Second)
		forgotten := plan
		forgotten.Partitions = plan.Partitions[:1] // as where the topic has got one more since
		report, err := m.ExecuteFailover(t.Context(), forgotten)
		if err != nil {
			t.Fatalf("%v\n%s", err, report)
		}
		expect(t, "final offset", report.Partitions[0].FinalOffset, 6)
		expect(t, "aborted", report.Partitions[0].Aborts[0].ProducerID, second.ID().ID)
		expectWords(t, strings.Join(report.Partitions[0].Differences, "; "), "the plan saw the mirror end at 4, the final offset is 6", "aborted, and not open when the plan was made: producer ")
		expectWords(t, strings.Join(report.Partitions[1].Differences, "; "), "the plan did not know this partition")
		expectWords(t, report.String(), "the plan saw the mirror end at 4", "not open when the plan was made", "did not know this partition")
		for p := range int32(2) {
			m.b.produce("t", p, "a client")
		}
	})
}
