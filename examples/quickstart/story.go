package main

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/mirror/verify"
)

const (
	payments = "payments" // one partition, with the two transactions that the source's end will cut in half
	orders   = "orders"   // three partitions, plain records that keep arriving

	partitions = 4                // of both topics
	bound      = 20 * time.Second // for a failover, and for a failback
)

// story tells the six acts. With spoil it damages the copy after the failover.
func story(ctx context.Context, spoil string) error {
	ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	var checks checklist

	act(1, "A cluster with clients")
	fmt.Print("A Kafka-protocol cluster in this process is the source. A producer writes orders to it all the time.\n\n")
	source, err := startCluster(ctx)
	if err != nil {
		return err
	}
	defer source.kill()
	if err := source.produceOrders(ctx, 500); err != nil {
		return err
	}
	source.keepProducing(ctx)
	fmt.Printf("cluster %s at %s, topics %s and %s\n\n", source.id, source.address, orders, payments)

	act(2, "A mirror")
	fmt.Print("The standby is a cluster in memory. Clients cannot write to its copies of the topics; the mirror adds batches to them as they are.\n\n")
	link := &link{}
	src, err := kafkasource.New(kafkasource.Config{Seeds: []string{source.address}, ClientOptions: link.options(), Bound: 2 * time.Second})
	if err != nil {
		return err
	}
	defer src.Close()
	standby := memlog.New(memlog.Config{ClusterID: "standby", Replicas: 3})
	defer standby.Close()
	m, err := mirror.Open(ctx, mirror.Config{
		Name: "quickstart", Source: src, Destination: standby, Store: standby.StateStore(), Sink: mirror.Discard,
		Fetch: mirror.FetchOptions{MaxWait: 100 * time.Millisecond}, CallBound: 2 * time.Second,
	})
	if err != nil {
		return err
	}
	defer m.Close()
	if _, err := m.Admin().Start(ctx, []string{orders, payments}, mirror.StartOptions{}); err != nil {
		return err
	}
	if err := progress(ctx, m, "the copy is in step with the source", everyPartition(inStep)); err != nil {
		return err
	}

	act(3, "The source dies")
	one, two, err := source.openTransactions(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("Producers %d and %d (4001 and 4002 in KIP-1279's example) have open transactions on the source. Their three batches are copied; then the link breaks, "+
		"the first commits and the second aborts behind the break, some more orders arrive there, and the source is gone.\n\n", one.id, two.id)
	if err := progress(ctx, m, "the three batches are copied", func(s mirror.Status) bool { return at(s, payments, 0).End == 3 }); err != nil {
		return err
	}
	link.cut()
	if err := source.endTransactions(ctx, one, two); err != nil {
		return err
	}
	if err := source.produceOrders(ctx, 30); err != nil { // certainly behind the break
		return err
	}
	source.stopProducing()
	disks, err := source.disks(ctx) // nobody can read them until the source comes back
	if err != nil {
		return err
	}
	source.kill()
	table("source log of payments-0 at the failure", disks.log(payments, 0))
	if err := progress(ctx, m, "the mirror has noticed that the source does not answer", everyPartition(unmeasured)); err != nil {
		return err
	}

	act(4, "Failover")
	fmt.Printf("The copy of payments ends at offset 2, so producer %d's COMMIT at 3 is not in it: both transactions are open there and will be aborted. "+
		"First the plan says what is known without the source; then it is carried out.\n\n", one.id)
	plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
	fmt.Println(plan)
	before, err := readLog(ctx, standby, payments, 0)
	if err != nil {
		return err
	}
	table("destination log of payments-0 at failover", before)
	failoverCtx, done := context.WithTimeout(ctx, bound)
	report, err := m.ExecuteFailover(failoverCtx, plan)
	done()
	fmt.Println(report)
	if err != nil {
		return err
	}
	if err := spoilCopy(ctx, spoil, standby); err != nil {
		return err
	}
	after, err := readLog(ctx, standby, payments, 0)
	if err != nil {
		return err
	}
	table("destination log of payments-0 after STOPPING", after)
	fmt.Printf("Producer %d committed at the source and is aborted here; producer %d is aborted on both sides. This is KIP-1279's rule.\n\n", one.id, two.id)
	checks.copyIsSource(ctx, disks, standby, report)
	checks.markers(after, one, two)

	act(5, "Clients move")
	fmt.Printf("The standby is the primary now. A new producer starts with a new id, so nothing of %d or %d is in its way; offsets go on where the copy ended.\n\n", one.id, two.id)
	first, err := writeToPrimary(ctx, standby)
	if err != nil {
		return err
	}
	fmt.Printf("first new payment at offset %d\n\n", first)
	checks.firstRecord(first)
	checks.readCommitted(ctx, standby)

	act(6, "Failback")
	fmt.Printf("The old source is back, with the tail that was never copied: producer %d's COMMIT is in it. It becomes a mirror of the new primary: "+
		"a plan, consent to exactly that plan, the cut, and then it catches up. The report ends with a comparison of both logs: what was copied just now first, then what was there before.\n\n", one.id)
	old, err := disks.revive()
	if err != nil {
		return err
	}
	defer old.Close()
	var sink memorySink
	back, err := mirror.Open(ctx, mirror.Config{
		Name: "quickstart-back", Source: standby, Destination: old, Store: old.StateStore(), Sink: &sink, Verifier: verify.Verifier{},
		Fetch: mirror.FetchOptions{MaxWait: 50 * time.Millisecond}, CallBound: 2 * time.Second,
	})
	if err != nil {
		return err
	}
	defer back.Close()
	failback, err := back.PlanFailback(ctx, orders, payments)
	if err != nil {
		return err
	}
	fmt.Println(failback)
	failbackCtx, done := context.WithTimeout(ctx, bound)
	returned, err := back.ExecuteFailback(failbackCtx, failback)
	done()
	fmt.Println(returned)
	if err != nil {
		return err
	}
	compared := checks.identical(ctx, old, standby)
	checks.verified(returned.Verification)
	checks.asPlanned(failback, &sink)
	checks.nothingLost(ctx, disks, standby, report, &sink)

	fmt.Print(whatNext)
	fmt.Printf("\n%s\n", checks.String())
	if err := checks.err(); err != nil {
		return err
	}
	fmt.Printf("OK: %d batches compared, failover in %s, %d records given up\n", compared, report.Took.Round(10*time.Microsecond), sink.records())
	return nil
}

const whatNext = `
What next:
  go run ./examples/quickstart -source HOST:PORT -topic T    mirror a topic of yours into memory, reading only
  go run ./examples/custombroker -h                          a destination on plain files, as you would write it
  go doc github.com/clustermirror/clustermirror              the manual
In your own code:
  src, err := kafkasource.New(kafkasource.Config{Seeds: []string{"localhost:9092"}})
  dst := memlog.New(memlog.Config{ClusterID: "standby"})
  m, err := mirror.Open(ctx, mirror.Config{Name: "dr", Source: src, Destination: dst, Store: dst.StateStore(), Sink: mirror.Discard})
  _, err = m.Admin().Start(ctx, []string{"orders"}, mirror.StartOptions{})
  plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
  fmt.Println(plan)
  report, err := m.ExecuteFailover(ctx, plan)
`

func act(n int, title string) { fmt.Printf("── %d/6 %s ──\n", n, title) }
