package mirror_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// BenchmarkPlanOfFiftyThousandTopics is a plan of as many topics as partitions: what it takes has to grow with them, and not with their product.
func BenchmarkPlanOfFiftyThousandTopics(b *testing.B) {
	for _, n := range []int{5_000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := mirror.Snapshot{Mirror: "m", Taken: time.Unix(1_700_000_000, 0)}
			for i := range n {
				name := fmt.Sprintf("t%06d", i)
				s.Topics = append(s.Topics, mirror.TopicSnapshot{Topic: name, MirrorName: "m"})
				s.Partitions = append(s.Partitions, mirror.PartitionStatus{Topic: name, State: statemachine.Mirroring, Replicated: 5, SourceEnd: 5, SourceSeen: s.Taken})
			}
			for b.Loop() {
				if p := mirror.PlanFailover(s, mirror.FailoverOptions{}); len(p.Partitions) != n {
					b.Fatal(len(p.Partitions))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/partition")
		})
	}
}
