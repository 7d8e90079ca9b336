package mirror_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// The old source has 1000 records, of which 900 are those of the new primary, which has 951, and dies before PREPARING has compared them. By their ends nothing is missing, and 51 offsets are: neither the
// plan nor the report of making the old source writable again has a number, and no status has a lag.
func TestOfACopyThatWasNotComparedNoCountIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := pairToFailBack(t)
		m.a.load("t", 0, 0, 5, records(5, 0, 1000))
		var dead atomic.Bool
		src := &oddSource{at: m.b.Cluster, epochEnd: func(ctx context.Context, tp mirror.TopicPartition, leader, epoch int32) (mirror.EpochEnd, error) {
			if dead.Load() {
				<-ctx.Done()
				return mirror.EpochEnd{}, ctx.Err()
			}
			return m.b.EndOffsetForEpoch(ctx, tp, leader, epoch)
		}}
		back := open(t, "back", src, m.a)
		t.Cleanup(back.close)
		plan, err := back.PlanFailback(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		dead.Store(true)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if report, err := back.ExecuteFailback(ctx, plan); err == nil {
			t.Fatal(report)
		}
		p := back.one("t", 0)
		if proved := p.State != statemachine.Preparing && p.State != statemachine.Failed; proved || p.SourceEnd < 951 || p.End != 1000 {
			t.Fatalf("%+v", p)
		}
		expect(t, "lag", p.LagOffsets, int64(mirror.Unknown))
		failover := mirror.PlanFailover(back.Snapshot(), mirror.FailoverOptions{})
		x := failover.Partitions[0]
		expect(t, "loss, mirror end, first offset", []string{x.Loss.String(), failover.Loss.String(), x.MirrorEnd.String(), x.OpensAt.String()}, []string{"unknown", "unknown", "unknown", "unknown"})
		expectWords(t, failover.String(), "LOSS UNKNOWN; 1 partition to stop, 1 copy not compared with the source", "what is missing cannot be known")
		report, err := back.ExecuteFailover(t.Context(), failover)
		if err != nil {
			t.Fatalf("%v\n%s", err, report)
		}
		expect(t, "missing", report.Partitions[0].Missing.String(), "unknown")
		expectWords(t, report.String(), "1 of 1 partition open for clients; not mirrored: unknown\n")
	})
}
