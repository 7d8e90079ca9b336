package mirror_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// BenchmarkFailoverOfAThousandPartitions is the time from the call until every partition is open for clients, each with one open transaction, with a store that is a synced file; and what of it each step takes of the
// partition that is open last. Only the failovers are timed.
//
//	go test ./mirror -run XXX -bench FailoverOfAThousand -benchtime 10x
func BenchmarkFailoverOfAThousandPartitions(b *testing.B) {
	const topics, each = 10, 100
	steps := map[string]time.Duration{}
	for b.Loop() {
		b.StopTimer()
		source, standby := memlog.New(memlog.Config{ClusterID: "A"}), memlog.New(memlog.Config{ClusterID: "B"})
		names := make([]string, topics)
		for i := range names {
			names[i] = fmt.Sprintf("t%04d", i)
			if _, err := source.CreateLocalTopic(memlog.LocalTopic{Name: names[i], Partitions: each}); err != nil {
				b.Fatal(err)
			}
			for p := range each {
				beginTransaction(b, source, names[i], int32(p), int64(i*each+p))
			}
		}
		records, err := filestore.Open(b.TempDir(), filestore.Options{})
		if err != nil {
			b.Fatal(err)
		}
		m, err := mirror.Open(b.Context(), mirror.Config{Name: "m", Source: source, Destination: standby, Store: keyedlog.NewStateStore(records), Control: mirror.NewControl(records), Sink: mirror.Discard})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := m.Admin().Start(b.Context(), names, mirror.StartOptions{}); err != nil {
			b.Fatal(err)
		}
		if err := m.Await(b.Context(), func(s mirror.Status) bool { return copiedIn(s, topics*each) }); err != nil {
			b.Fatal(err)
		}
		source.SetUnreachable(true)
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
		b.StartTimer()
		report, err := m.ExecuteFailover(b.Context(), plan)
		b.StopTimer()
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range report.Steps {
			steps[s.Step] += s.Took
		}
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
		records.Close()
		source.Close()
		standby.Close()
		b.StartTimer()
	}
	for step, took := range steps {
		b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), step+"-ms")
	}
}

// copiedIn says that this many partitions have their one record.
func copiedIn(s mirror.Status, partitions int) bool {
	n := 0
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			if p.State == statemachine.Mirroring && p.Replicated == 1 {
				n++
			}
		}
	}
	return n == partitions
}
