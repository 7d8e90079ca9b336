package mirrortest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

// BenchmarkFailoverAndFailback is one life: 4 partitions, 1,000 records, an open transaction and a tail that was never copied. It prints how long each part takes.
func BenchmarkFailoverAndFailback(b *testing.B) {
	var parts [4]time.Duration
	for range b.N {
		b.StopTimer()
		began := time.Now()
		dr := mirrortest.Start(b, mirrortest.Config{Topics: map[string]int32{"orders": 3, "payments": 1}})
		parts[0] += time.Since(began)
		ctx := bounded(b)
		cl := client(b, dr.Primary(), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
		var records []*kgo.Record
		for i := range 1000 {
			records = append(records, kgo.StringRecord(fmt.Sprint("order ", i)))
		}
		if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
			b.Fatal(err)
		}
		tx := client(b, dr.Primary(), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("payments"))
		if err := tx.BeginTransaction(); err != nil {
			b.Fatal(err)
		}
		produce(ctx, b, tx, "open")
		dr.AwaitCaughtUp()
		dr.Link().Cut()
		produce(ctx, b, cl, "behind the break")
		dr.Link().Heal()
		lap := func(i int) func() {
			began := time.Now()
			return func() { parts[i] += time.Since(began) }
		}
		dr.KillPrimary()
		b.StartTimer()
		end := lap(1)
		over := dr.Failover()
		end()
		end = lap(2)
		back := dr.Return()
		end()
		end = lap(3)
		dr.Home()
		end()
		b.StopTimer()
		if len(over.Partitions) != 4 || len(back.GivenUp) != len(over.NotCopied) {
			b.Fatalf("%s\n%s", over, back.FailbackReport)
		}
		dr.Verify()
		b.StartTimer()
	}
	for i, name := range []string{"ms/start", "ms/failover", "ms/return", "ms/home"} {
		b.ReportMetric(float64(parts[i].Microseconds())/1000/float64(b.N), name)
	}
}
