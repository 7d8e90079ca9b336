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
	b.StopTimer()
	for range b.N {
		if err := mirrortest.Run(b.Name(), func(t testing.TB) { oneLife(b, t, &parts) }); err != nil {
			b.Fatal(err)
		}
	}
	for i, name := range []string{"ms/start", "ms/failover", "ms/return", "ms/home"} {
		b.ReportMetric(float64(parts[i].Microseconds())/1000/float64(b.N), name)
	}
}

// oneLife measures failover and failback.
func oneLife(b *testing.B, t testing.TB, parts *[4]time.Duration) {
	lap := func(i int) func() {
		began := time.Now()
		return func() { parts[i] += time.Since(began) }
	}
	end := lap(0)
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 3, "payments": 1}})
	end()
	ctx := bounded(t)
	cl := client(t, pair.Primary(), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	var records []*kgo.Record
	for i := range 1000 {
		records = append(records, kgo.StringRecord(fmt.Sprint("order ", i)))
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	tx := client(t, pair.Primary(), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("payments"))
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(ctx, t, tx, "open")
	pair.AwaitCaughtUp()
	pair.Link().Cut()
	produce(ctx, t, cl, "behind the break")
	pair.KillPrimary()
	cl.Close()
	tx.Close()
	pair.Link().Heal()

	b.StartTimer()
	end = lap(1)
	over := pair.Failover()
	end()
	end = lap(2)
	back := pair.Return()
	end()
	end = lap(3)
	pair.Home()
	end()
	b.StopTimer()
	if len(over.Partitions) != 4 || len(over.NotCopied) != 1 || len(back.GivenUp) != 1 {
		t.Fatalf("%s\n%s", over, back.FailbackReport)
	}
	if aborts := over.Partitions[3].Aborts; len(aborts) != 1 {
		t.Fatalf("aborts %v", aborts)
	}
	pair.Verify()
}
