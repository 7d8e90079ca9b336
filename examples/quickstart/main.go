// Command quickstart is the whole life of a mirror in one run, and reads as a tutorial: a Kafka-protocol cluster in this process is mirrored while records arrive,
// dies in the middle of two transactions, the copy takes over, and the old cluster comes back as a mirror of it.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -source localhost:9092 -topic orders     # mirror a real topic into memory, reading only
//
// It exits with 0 only if every check held. -break spoils one thing in the copy, to show that the checks can fail.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func main() {
	spoil := flag.String("break", "", "spoil one thing, so that a check must fail: "+strings.Join(spoilers, ", "))
	real := realOptions{}
	flag.StringVar(&real.source, "source", "", "mirror a topic of this cluster (host:port) into memory until interrupted")
	flag.StringVar(&real.topic, "topic", "", "the topic, with -source")
	flag.StringVar(&real.from, "from", "recent", "with -source: recent (the last 10,000 offsets of each partition) or earliest")
	flag.Var(&real.memory, "memory", "with -source: keep at most this much, as in 256MiB")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if flag.NArg() > 0 || *spoil != "" && !slices.Contains(spoilers, *spoil) || (real.source == "") != (real.topic == "") {
		fmt.Fprintln(os.Stderr, "quickstart: -source and -topic go together; -break takes one of: "+strings.Join(spoilers, ", "))
		os.Exit(2)
	}
	var err error
	if real.source != "" {
		err = mirrorReal(ctx, real)
	} else {
		err = tell(ctx, *spoil)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "FAILED: %v\n", err)
		os.Exit(1)
	}
}

const (
	payments = "payments" // one partition, with the two transactions that the source's end will cut in half
	orders   = "orders"   // three partitions, plain records that keep arriving
	bound    = 20 * time.Second
)

// tell runs the six acts.
func tell(ctx context.Context, spoil string) error {
	ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	var checks checklist

	act(1, "A cluster with clients", "An embedded Kafka-protocol cluster; a producer writes orders all the time, two others write payments in transactions.")
	source, err := startCluster(ctx)
	if err != nil {
		return err
	}
	defer source.kill()
	if err := source.produceOrders(ctx, 500); err != nil {
		return err
	}
	source.keepProducing(ctx)
	fmt.Printf("cluster %s at %s, topics %s and %s\n", source.id, source.address, orders, payments)

	act(2, "A mirror", "The standby here is a cluster in memory. Its topics cannot be written by clients; the mirror copies batches as they are.")
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
	if err := progress(ctx, m, "in step", func(s mirror.Status) bool { return everyPartition(s, inStep, 4) }); err != nil {
		return err
	}

	act(3, "The source dies", "Transactions 4001 and 4002 of the KIP's example are open (with this run's producer ids). Three batches of them are copied; then the link breaks, "+
		"one commits and one aborts on the source, orders keep arriving for a moment, and the source is gone.")
	one, two, err := source.openTransactions(ctx)
	if err != nil {
		return err
	}
	if err := progress(ctx, m, "the three batches are copied", func(s mirror.Status) bool { return at(s, payments, 0).End == 3 }); err != nil {
		return err
	}
	link.cut()
	copied := m.Status()
	if err := source.endTransactions(ctx, one, two); err != nil {
		return err
	}
	if err := source.produceOrders(ctx, 30); err != nil { // certainly behind the break
		return err
	}
	source.stopProducing()
	disks, err := source.disks(ctx) // what is on the source's disks; nobody can read them until it comes back
	if err != nil {
		return err
	}
	source.kill()
	table("source log of "+payments+"-0 at the failure", disks.of(payments, 0))

	if err := progress(ctx, m, "the mirror has noticed that the source does not answer", func(s mirror.Status) bool { return everyPartition(s, unmeasured, 4) }); err != nil {
		return err
	}

	act(4, "Failover", "Nobody has to reach the source for this. The plan first: what is known, how old it is, what will be aborted.")
	plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
	fmt.Println(plan)
	before, err := readLog(ctx, standby, payments, 0)
	if err != nil {
		return err
	}
	table("destination log of "+payments+"-0 at failover", before)
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
	table("destination log of "+payments+"-0 after the abort markers", after)
	fmt.Printf("Producer %d committed at the source, and is aborted here: its COMMIT had not been copied. Producer %d is aborted on both sides. This is KIP-1279's rule.\n\n", one.id, two.id)
	checks.copyIsSource(ctx, disks, standby, report)
	checks.markers(after, one, two)
	checks.lossIsKnown(disks, copied, report)

	act(5, "Clients move", "The standby is the primary now. New producers start with new ids; offsets go on where the copy ended.")
	first, err := writeToPrimary(ctx, standby)
	if err != nil {
		return err
	}
	fmt.Printf("first new payment at offset %d\n\n", first)
	checks.firstRecord(first)
	checks.readCommitted(ctx, standby)

	act(6, "Failback", "The old source is back, with the tail that was never copied. It becomes a mirror of the new primary: plan, consent to exactly that plan, cut, catch up.")
	old, err := disks.revive()
	if err != nil {
		return err
	}
	defer old.Close()
	var sink rescued
	back, err := mirror.Open(ctx, mirror.Config{
		Name: "quickstart-back", Source: standby, Destination: old, Store: old.StateStore(), Sink: &sink,
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
	checks.nothingThrownAway(failback, &sink)
	fmt.Printf("\n%s\n", checks.String())
	if err := checks.err(); err != nil {
		return err
	}
	fmt.Print(next)
	fmt.Printf("OK: %d batches compared, failover in %s, %d records given up\n", compared, report.Took.Round(10*time.Microsecond), sink.records())
	return nil
}

const next = `
What next:
  go run ./examples/quickstart -source HOST:PORT -topic T    mirror a topic of yours into memory, reading only
  go run ./examples/custombroker -h                          a destination on plain files, as you would write it
  go doc github.com/clustermirror/clustermirror              the manual
In your own code:
  src, err := kafkasource.New(kafkasource.Config{Seeds: []string{"localhost:9092"}})
  dst := memlog.New(memlog.Config{ClusterID: "standby"})
  m, err := mirror.Open(ctx, mirror.Config{Name: "dr", Source: src, Destination: dst, Store: dst.StateStore(), Sink: mirror.Discard})
  _, err = m.Admin().Start(ctx, []string{"orders"}, mirror.StartOptions{})
  fmt.Println(mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{}))
  report, err := m.Failover(ctx, mirror.FailoverOptions{})
`

func act(n int, title, why string) {
	fmt.Printf("── %d/6 %s ──\n%s\n\n", n, title, why)
}

// progress prints one line a second for each topic until done says so.
func progress(ctx context.Context, m *mirror.Mirror, what string, done func(mirror.Status) bool) error {
	last := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s := m.Status()
		finished := done(s)
		if finished || time.Since(last) >= time.Second {
			last = time.Now()
			for _, t := range s.Topics {
				fmt.Println(progressLine(t))
			}
		}
		if finished {
			fmt.Printf("%s\n\n", what)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

func progressLine(t mirror.TopicStatus) string {
	if t.Err != nil {
		return fmt.Sprintf("  %-10s %v", t.Topic, t.Err)
	}
	var copied, lag int64
	states := map[string]int{}
	unknown := false
	for _, p := range t.Partitions {
		copied += p.End - p.Start
		lag += max(0, p.LagOffsets)
		unknown = unknown || p.LagOffsets == mirror.Unknown
		states[p.State.String()]++
		if p.Reason != "" {
			return fmt.Sprintf("  %-10s %s: %s", t.Topic, p.State, p.Reason)
		}
	}
	var names []string
	for name, n := range states {
		names = append(names, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(names)
	behind := fmt.Sprint(lag)
	if unknown {
		behind = "unknown"
	}
	return fmt.Sprintf("  %-10s %-22s %7d offsets copied, lag %s", t.Topic, strings.Join(names, ", "), copied, behind)
}

func inStep(p mirror.PartitionStatus) bool {
	return p.State.String() == "MIRRORING" && p.LagOffsets == 0
}

func unmeasured(p mirror.PartitionStatus) bool { return p.LagOffsets == mirror.Unknown }

func everyPartition(s mirror.Status, ok func(mirror.PartitionStatus) bool, n int) bool {
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			if !ok(p) {
				return false
			}
			n--
		}
	}
	return n == 0
}

func at(s mirror.Status, topic string, partition int32) mirror.PartitionStatus {
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			if p.Topic == topic && p.Partition == partition {
				return p
			}
		}
	}
	return mirror.PartitionStatus{End: mirror.Unknown}
}
