package mirrortest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

// TestProducersAndCodecs: producers of every kind work at the primary, at the standby after the failover and at the primary again, and what they wrote is read there.
func TestProducersAndCodecs(t *testing.T) {
	t.Parallel()
	kinds := []struct {
		name string
		opts []kgo.Opt
	}{
		{"idempotent", nil},
		{"plain", []kgo.Opt{kgo.DisableIdempotentWrite()}},
		{"acks of the leader", []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())}},
		{"no acks", []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck())}},
		{"gzip", []kgo.Opt{kgo.ProducerBatchCompression(kgo.GzipCompression())}},
		{"snappy", []kgo.Opt{kgo.ProducerBatchCompression(kgo.SnappyCompression())}},
		{"lz4", []kgo.Opt{kgo.ProducerBatchCompression(kgo.Lz4Compression())}},
		{"zstd", []kgo.Opt{kgo.ProducerBatchCompression(kgo.ZstdCompression())}},
	}
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 2}, Brokers: 2})
	ctx := bounded(t)
	var want []string
	write := func(where string) {
		for _, k := range kinds {
			cl := client(t, pair.Active(), append(k.opts, kgo.DefaultProduceTopic("orders"))...)
			for i := range 3 {
				v := fmt.Sprintf("%s %d %s %s", k.name, i, where, strings.Repeat("x", 200))
				produce(ctx, t, cl, v)
				want = append(want, v)
			}
		}
		slices.Sort(want)
		got := consume(ctx, t, pair.Active(), "orders", len(want))
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %d records read, %d written", where, len(got), len(want))
		}
	}
	write("primary")
	pair.AwaitCaughtUp()
	pair.KillPrimary()
	if r := pair.Failover(); len(r.NotCopied) > 0 {
		t.Errorf("not copied: %d records", len(r.NotCopied))
	}
	write("standby")
	pair.Failback()
	write("primary again")
	pair.Verify()
}

// TestTheCopyRefusesWrites: a producer at the standby gets a clear error at once while that is the copy, and so does one at the primary while that is.
func TestTheCopyRefusesWrites(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 1}})
	ctx := bounded(t)
	refused := func(c *mirrortest.Cluster) {
		t.Helper()
		for _, opts := range [][]kgo.Opt{nil, {kgo.DisableIdempotentWrite()}, {kgo.TransactionalID("tx")}} {
			cl := client(t, c, append(opts, kgo.DefaultProduceTopic("orders"))...)
			if len(opts) > 0 && cl.OptValue(kgo.TransactionalID) != "" {
				if err := cl.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
			}
			if err := cl.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
				t.Errorf("%s: %v, not %v", c.ID(), err, kerr.PolicyViolation)
			}
		}
	}
	refused(pair.Standby())
	pair.Failover()
	pair.Return()
	refused(pair.Primary())
	pair.Home()
	refused(pair.Standby())
	if n := pair.Verify(); n == 0 {
		t.Error("nothing was compared")
	}
}

// TestAnOldProducer ignores the fence: it goes on writing to the old primary, which was cut off and never died. Its records are named, by the failover as far as they were there then, and by the failback
// all of them.
func TestAnOldProducer(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 1}})
	ctx := bounded(t)
	old := client(t, pair.Primary(), kgo.DefaultProduceTopic("orders"))
	produce(ctx, t, old, "copied")
	pair.AwaitCaughtUp()
	pair.Link().BlackHole()
	produce(ctx, t, old, "behind the break")
	over := pair.Failover()
	if got := valuesOf(over.NotCopied); !slices.Equal(got, []string{"behind the break"}) {
		t.Errorf("not copied: %v", got)
	}
	produce(ctx, t, old, "after the failover", "and again")
	now := client(t, pair.Standby(), kgo.DefaultProduceTopic("orders"))
	produce(ctx, t, now, "at the new primary")
	pair.Link().Heal()
	back := pair.Failback()
	if got := valuesOf(back.Return.GivenUp); !slices.Equal(got, []string{"behind the break", "after the failover", "and again"}) {
		t.Errorf("given up: %v", got)
	}
	if got := consume(ctx, t, pair.Primary(), "orders", 2); !slices.Equal(got, []string{"copied", "at the new primary"}) {
		t.Errorf("records now: %v", got)
	}
	pair.Verify()
}

func valuesOf(records []mirrortest.Record) (values []string) {
	for _, r := range records {
		values = append(values, string(r.Value))
	}
	return values
}

// TestTransactions: an open transaction is aborted by the failover and one that was committed behind the break is too; consumers of both isolation levels see that. Transactions work at the
// standby and, after the failback, at the primary.
func TestTransactions(t *testing.T) {
	t.Parallel()
	for name, opts := range protocols() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transactions(t, opts)
		})
	}
}

// TestALateCommit: a transaction that is open at the standby when clients go home is aborted at the primary. Its COMMIT at the standby comes too late: the coordinator there takes it, as Kafka's does, and
// finds no partition to mark.
func TestALateCommit(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"payments": 1}})
	ctx := bounded(t)
	pair.Failover()
	pair.Return()
	late := client(t, pair.Standby(), kgo.TransactionalID("late"), kgo.DefaultProduceTopic("payments"))
	if err := late.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(ctx, t, late, "late")
	home := pair.Home()
	if n := len(home.Partitions[0].Aborts); n != 1 || len(home.Again.GivenUp) > 0 {
		t.Errorf("%d aborted, given up %v\n%s", n, home.Again.GivenUp, home)
	}
	if err := late.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Errorf("the COMMIT: %v", err)
	}
	produce(ctx, t, client(t, pair.Primary(), kgo.DefaultProduceTopic("payments")), "after")
	for _, c := range []*mirrortest.Cluster{pair.Primary(), pair.Standby()} {
		pair.Verify()
		if got := consumeCommitted(ctx, t, c, 1); !slices.Equal(got, []string{"after"}) {
			t.Errorf("%s: read committed %v", c.ID(), got)
		}
	}
}

// protocols are those of transactions: the first one, and that of KIP-890.
func protocols() map[string][]kgo.Opt {
	return map[string][]kgo.Opt{"version 1": {kgo.MaxVersions(kversion.V3_9_0())}, "version 2": nil}
}

func transactions(t *testing.T, opts []kgo.Opt) {
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"payments": 1}})
	ctx := bounded(t)
	producer := func(c *mirrortest.Cluster, id string) *kgo.Client {
		return client(t, c, append(opts, kgo.TransactionalID(id), kgo.DefaultProduceTopic("payments"))...)
	}
	begin := func(cl *kgo.Client, values ...string) {
		t.Helper()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(ctx, t, cl, values...)
	}
	end := func(cl *kgo.Client, how kgo.TransactionEndTry) {
		t.Helper()
		if err := cl.EndTransaction(ctx, how); err != nil {
			t.Fatal(err)
		}
	}
	one, two, three := producer(pair.Primary(), "one"), producer(pair.Primary(), "two"), producer(pair.Primary(), "three")
	begin(one, "committed")
	end(one, kgo.TryCommit)
	begin(one, "aborted")
	end(one, kgo.TryAbort)
	begin(two, "open at the failover")
	begin(three, "committed behind the break")
	produce(ctx, t, client(t, pair.Primary(), kgo.DefaultProduceTopic("payments")), "plain")
	pair.AwaitCaughtUp()
	committed := consumeCommitted(ctx, t, pair.Primary(), 1)
	if !slices.Equal(committed, []string{"committed"}) { // the last stable offset is that of the open one
		t.Errorf("read committed at the primary: %v", committed)
	}
	pair.Link().Cut()
	end(three, kgo.TryCommit)
	pair.KillPrimary()

	over := pair.Failover()
	if n := len(over.Partitions[0].Aborts); n != 2 {
		t.Errorf("%d transactions aborted, not 2:\n%s", n, over)
	}
	four := producer(pair.Standby(), "four")
	begin(four, "at the standby")
	end(four, kgo.TryCommit)
	begin(four, "aborted at the standby")
	end(four, kgo.TryAbort)
	begin(four, "again at the standby")
	end(four, kgo.TryCommit)
	want := []string{"committed", "plain", "at the standby", "again at the standby"}
	if got := consumeCommitted(ctx, t, pair.Standby(), 4); !slices.Equal(got, want) {
		t.Errorf("read committed at the standby: %v", got)
	}
	want = []string{"committed", "aborted", "open at the failover", "committed behind the break", "plain", "at the standby", "aborted at the standby", "again at the standby"}
	if got := consume(ctx, t, pair.Standby(), "payments", 8); !slices.Equal(got, want) {
		t.Errorf("read uncommitted at the standby: %v", got)
	}

	pair.Link().Heal()
	back := pair.Failback()
	if n := len(back.Return.Plan.Partitions[0].Disagreements); n != 1 {
		t.Errorf("%d transactions were committed at the old primary and are aborted now, not 1:\n%s", n, back.Return.Plan)
	}
	five := producer(pair.Primary(), "two") // whose transaction was open at the old primary
	begin(five, "home")
	end(five, kgo.TryCommit)
	want = []string{"committed", "plain", "at the standby", "again at the standby", "home"}
	if got := consumeCommitted(ctx, t, pair.Primary(), 5); !slices.Equal(got, want) {
		t.Errorf("read committed at the primary again: %v", got)
	}
	pair.Verify()
}

func consumeCommitted(ctx context.Context, t testing.TB, c *mirrortest.Cluster, n int) []string {
	t.Helper()
	return consume(ctx, t, c, "payments", n, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
}

// groupKinds are the protocols that a consumer may speak with its group.
var groupKinds = map[string][]kgo.Opt{
	"classic":  nil,
	"consumer": {kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()},
}

// TestGroups: a group goes on at the standby exactly where it had committed at the primary, and at the primary again where it had committed at the standby. Classic groups and those of KIP-848.
func TestGroups(t *testing.T) {
	t.Parallel()
	for kind, opts := range groupKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 2}})
			ctx := bounded(t)
			read := func(n int) (values []string) {
				t.Helper()
				cl := client(t, pair.Active(), append(opts, kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())...)
				defer cl.Close() // a group with members is never moved
				values = poll(ctx, t, cl, n)
				if err := cl.CommitUncommittedOffsets(ctx); err != nil {
					t.Fatal(err)
				}
				slices.Sort(values)
				return values
			}
			write := func(values ...string) []string {
				t.Helper()
				produce(ctx, t, client(t, pair.Active(), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner())), values...)
				return values
			}
			for round, where := range []string{"primary", "standby", "primary again", "standby again"} {
				values := write("a "+where, "b "+where, "c "+where)
				if got := read(3); !slices.Equal(got, values) {
					t.Errorf("at the %s: %v, not %v", where, got, values)
				}
				switch round {
				case 0, 2:
					pair.AwaitCaughtUp()
					pair.KillPrimary()
					pair.Failover()
				case 1:
					pair.Failback()
				}
			}
		})
	}
}

// TestAGroupOfTheStandby: who commits at the standby keeps his place there as long as the group at the primary is behind it; nobody waits for what will not come.
func TestAGroupOfTheStandby(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 1}})
	ctx := bounded(t)
	produce(ctx, t, client(t, pair.Primary(), kgo.DefaultProduceTopic("orders")), "a", "b", "c")
	commit := func(c *mirrortest.Cluster, at int64) {
		t.Helper()
		var offsets kadm.Offsets
		offsets.AddOffset("orders", 0, at, -1)
		if err := kadm.NewClient(client(t, c)).CommitAllOffsets(ctx, "billing", offsets); err != nil {
			t.Fatal(err)
		}
	}
	at := func(c *mirrortest.Cluster) int64 {
		t.Helper()
		offsets, err := kadm.NewClient(client(t, c)).FetchOffsets(ctx, "billing")
		if err != nil {
			t.Fatal(err)
		}
		o, _ := offsets.Lookup("orders", 0)
		return o.At
	}
	commit(pair.Primary(), 1)
	pair.AwaitCaughtUp()
	if got := at(pair.Standby()); got != 1 {
		t.Errorf("the mirror put it to %d, not 1", got)
	}
	commit(pair.Standby(), 2)
	until(ctx, t, "it is left alone", func() bool { pair.AwaitCaughtUp(); return at(pair.Standby()) == 2 })
	commit(pair.Primary(), 3)
	pair.AwaitCaughtUp()
	if got := at(pair.Standby()); got != 3 {
		t.Errorf("it is at %d, not 3, where the primary has passed it", got)
	}
}

// TestTransactionsWithOffsets: a service that reads, writes and commits in transactions (KIP-447) does each record exactly once within a cluster, and goes on after a failover.
func TestTransactionsWithOffsets(t *testing.T) {
	t.Parallel()
	for name, opts := range protocols() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transactionsWithOffsets(t, opts)
		})
	}
}

func transactionsWithOffsets(t *testing.T, opts []kgo.Opt) {
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 1, "invoices": 1}})
	ctx := bounded(t)
	work := func(n int, how kgo.TransactionEndTry) {
		t.Helper()
		s, err := kgo.NewGroupTransactSession(append(opts,
			kgo.SeedBrokers(pair.Active().Addresses()...), kgo.TransactionalID("invoicer"), kgo.ConsumerGroup("invoicer"), kgo.ConsumeTopics("orders"), kgo.ProducerLinger(0),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic("invoices"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		)...)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Begin(); err != nil {
			t.Fatal(err)
		}
		for done := 0; done < n; {
			fetches := s.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				s.Produce(ctx, kgo.StringRecord("invoice for "+string(r.Value)), nil)
				done++
			})
		}
		if committed, err := s.End(ctx, how); err != nil || committed != (how == kgo.TryCommit) {
			t.Fatalf("end: %v, %v", committed, err)
		}
	}
	invoices := func(n int) []string {
		t.Helper()
		return consume(ctx, t, pair.Active(), "invoices", n, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	produce(ctx, t, client(t, pair.Active(), kgo.DefaultProduceTopic("orders")), "1", "2")
	work(2, kgo.TryAbort)
	work(2, kgo.TryCommit) // the same two: the first try's offsets went with it
	pair.AwaitCaughtUp()
	pair.KillPrimary()
	pair.Failover()
	produce(ctx, t, client(t, pair.Active(), kgo.DefaultProduceTopic("orders")), "3")
	work(1, kgo.TryCommit)
	if got, want := invoices(3), []string{"invoice for 1", "invoice for 2", "invoice for 3"}; !slices.Equal(got, want) {
		t.Errorf("invoices at the standby: %v", got)
	}
	pair.Failback()
	produce(ctx, t, client(t, pair.Active(), kgo.DefaultProduceTopic("orders")), "4")
	work(1, kgo.TryCommit)
	if got, want := invoices(4), []string{"invoice for 1", "invoice for 2", "invoice for 3", "invoice for 4"}; !slices.Equal(got, want) {
		t.Errorf("invoices at the primary: %v", got)
	}
	pair.Verify()
}

// TestAgainAndAgain: failovers and failbacks one after the other, with clients all the time.
func TestAgainAndAgain(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 3}})
	ctx := bounded(t)
	var want []string
	for round := range 4 {
		for _, what := range []string{"before", "after"} {
			cl := client(t, pair.Active(), kgo.DefaultProduceTopic("orders"))
			for i := range 5 {
				v := fmt.Sprintf("round %d %s %d", round, what, i)
				produce(ctx, t, cl, v)
				want = append(want, v)
			}
			if what == "after" {
				if r := pair.Failback(); len(r.Return.GivenUp) != 1 || string(r.Return.GivenUp[0].Value) != fmt.Sprint("lost ", round) || len(r.Home.Again.GivenUp) > 0 {
					t.Errorf("round %d: given up %v and %v", round, valuesOf(r.Return.GivenUp), valuesOf(r.Home.Again.GivenUp))
				}
				continue
			}
			pair.AwaitCaughtUp()
			pair.Link().Cut()
			produce(ctx, t, cl, fmt.Sprint("lost ", round))
			if round%2 == 0 {
				pair.KillPrimary()
			}
			pair.Failover()
			pair.Link().Heal()
		}
	}
	got := consume(ctx, t, pair.Active(), "orders", len(want))
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("%d records, not %d", len(got), len(want))
	}
	pair.Verify()
}

// TestClientsAllTheTime: producers that never stop, over a failover and a failback; each acknowledged record is read at the end or was named as given up.
func TestClientsAllTheTime(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 2}})
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	keepWriting := func(c *mirrortest.Cluster, name string) (stop func()) {
		ctx, end := context.WithCancel(t.Context())
		cl := client(t, c, kgo.DefaultProduceTopic("orders"))
		var done sync.WaitGroup
		done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				v := fmt.Sprintf("%s %d", name, i)
				if cl.ProduceSync(ctx, kgo.StringRecord(v)).FirstErr() == nil {
					mu.Lock()
					acknowledged[v] = true
					mu.Unlock()
				}
			}
		})
		return func() { end(); done.Wait() }
	}
	wait := func(name string) {
		t.Helper()
		until(bounded(t), t, name+" has written", func() bool {
			mu.Lock()
			defer mu.Unlock()
			n := 0
			for v := range acknowledged {
				if strings.HasPrefix(v, name) {
					n++
				}
			}
			return n >= 20
		})
	}
	stopFirst := keepWriting(pair.Primary(), "first")
	wait("first")
	over := pair.Failover() // the primary lives, and its clients write on
	stopSecond := keepWriting(pair.Standby(), "second")
	wait("second")
	stopFirst()
	back := pair.Return()
	wait("second")
	home := pair.Home() // the standby's producers are refused from here on
	stopSecond()
	stopThird := keepWriting(pair.Primary(), "third")
	wait("third")
	stopThird()
	pair.Verify()

	seen := map[string]bool{}
	for _, c := range []*mirrortest.Cluster{pair.Primary(), pair.Standby()} {
		for p := range int32(2) {
			records, err := c.Memory().Consume(t.Context(), "orders", p, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				seen[string(r.Value)] = true
			}
		}
	}
	for _, r := range append(back.GivenUp, home.Again.GivenUp...) {
		seen[string(r.Value)] = true
	}
	for v := range acknowledged {
		if !seen[v] {
			t.Errorf("%q was acknowledged, and is neither there nor given up", v)
		}
	}
	for _, r := range over.NotCopied {
		if !slices.Contains(valuesOf(back.GivenUp), string(r.Value)) {
			t.Errorf("%q was not copied, and was not given up either", r.Value)
		}
	}
}

// TestReportsAreMirrors: the reports are the mirror's own, so that a service's alarms and tools can be tested with them.
func TestReportsAreMirrors(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 1}})
	over := pair.Failover()
	if over.Plan.SourceClusterID != "primary" || over.Plan.Severity == mirror.SeverityRefused || len(over.Partitions) != 1 || over.Partitions[0].Err != nil {
		t.Errorf("plan %s\nreport %s", over.Plan, over)
	}
	back := pair.Failback()
	if back.Return.Plan.Dropped != 0 || back.Return.Plan.SourceClusterID != "standby" || back.Home.SourceClusterID != "standby" || back.Home.Again.Plan.SourceClusterID != "primary" {
		t.Errorf("%s\n%s\n%s", back.Return.Plan, back.Home, back.Home.Again.Plan)
	}
}
