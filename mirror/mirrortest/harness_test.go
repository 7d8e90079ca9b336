package mirrortest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

func client(t testing.TB, c *mirrortest.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.Addresses()...), kgo.ProducerLinger(0)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func bounded(t testing.TB) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(stop)
	return ctx
}

// TestFailoverAndFailback is the whole story with plain producers: a tail that was never copied is named by the failover and given up by the failback.
func TestFailoverAndFailback(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 3, "payments": 1}})
	ctx := bounded(t)
	old := client(t, pair.Primary(), kgo.DefaultProduceTopic("payments"))
	for i := range 10 {
		produce(ctx, t, old, fmt.Sprint("payment ", i))
	}
	pair.AwaitCaughtUp()
	if n := pair.Verify(); n != 10 {
		t.Errorf("%d batches compared, not 10", n)
	}
	pair.Link().Cut()
	produce(ctx, t, old, "lost")
	pair.KillPrimary()

	over := pair.Failover()
	if len(over.NotCopied) != 1 || string(over.NotCopied[0].Value) != "lost" || over.NotCopied[0].Offset != 10 || over.NotCopied[0].String() != `payments-0 offset 10: "lost"` {
		t.Errorf("not copied: %v", over.NotCopied)
	}
	if n := pair.Verify(); n != 10 {
		t.Errorf("%d batches compared after the failover, not 10", n)
	}
	now := client(t, pair.Active(), kgo.DefaultProduceTopic("payments"))
	produce(ctx, t, now, "new")

	pair.Link().Heal()
	back := pair.Return()
	if len(back.GivenUp) != 1 || string(back.GivenUp[0].Value) != "lost" || back.Plan.Dropped != 1 {
		t.Errorf("given up: %v by plan %s", back.GivenUp, back.Plan)
	}
	pair.Verify()
	produce(ctx, t, now, "while the primary is the copy")
	home := pair.Home()
	if len(home.Again.GivenUp) > 0 {
		t.Errorf("the standby gave up %v", home.Again.GivenUp)
	}
	if pair.Active() != pair.Primary() {
		t.Error("clients do not belong at the primary")
	}
	pair.Verify()
	got := consume(ctx, t, pair.Primary(), "payments", 12)
	for i, want := range []string{"payment 9", "new", "while the primary is the copy"} {
		if got[9+i] != want {
			t.Errorf("record %d is %q, not %q", 9+i, got[9+i], want)
		}
	}
}

func produce(ctx context.Context, t testing.TB, cl *kgo.Client, values ...string) {
	t.Helper()
	for _, v := range values {
		if err := cl.ProduceSync(ctx, kgo.StringRecord(v)).FirstErr(); err != nil {
			t.Fatalf("producing %q: %v", v, err)
		}
	}
}

// consume reads n records of a topic from its beginning, in the order of their partitions' arrival.
func consume(ctx context.Context, t testing.TB, c *mirrortest.Cluster, topic string, n int, opts ...kgo.Opt) (values []string) {
	t.Helper()
	cl := client(t, c, append([]kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, opts...)...)
	return poll(ctx, t, cl, n)
}

// poll waits for n records.
func poll(ctx context.Context, t testing.TB, cl *kgo.Client, n int) (values []string) {
	t.Helper()
	for len(values) < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(values), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}
