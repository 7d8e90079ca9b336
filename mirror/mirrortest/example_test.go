package mirrortest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

// Service is the service under test: it books orders in transactions, and adds up what was booked. It has a client of its own, and knows nothing of mirrors.
type Service struct {
	client *kgo.Client
}

func NewService(ctx context.Context, brokers []string) (*Service, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.TransactionalID("bookkeeper"), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ConsumerGroup("bookkeeper"), kgo.ConsumeTopics("orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	return &Service{client}, err
}

// Book writes one order's items, all of them or none.
func (s *Service) Book(ctx context.Context, order string, items ...string) error {
	if err := s.begin(ctx, order, items...); err != nil {
		return err
	}
	return s.client.EndTransaction(ctx, kgo.TryCommit)
}

func (s *Service) begin(ctx context.Context, order string, items ...string) error {
	if err := s.client.BeginTransaction(); err != nil {
		return err
	}
	for _, item := range items {
		if err := s.client.ProduceSync(ctx, kgo.KeyStringRecord(order, order+": "+item)).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// Read returns the next n items, in order of their text, and remembers that they were read.
func (s *Service) Read(ctx context.Context, n int) (items []string, err error) {
	for len(items) < n {
		fetches := s.client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) { items = append(items, string(r.Value)) })
	}
	slices.Sort(items)
	return items, s.client.CommitUncommittedOffsets(ctx)
}

func (s *Service) Close() { s.client.Close() }

// A service that books orders in transactions loses its cluster in the middle of one, goes on at the standby, and comes home. In a test, t is the test's own.
func Example() {
	err := mirrortest.Run("bookkeeper", func(t testing.TB) {
		ctx := t.Context()
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 4}})
		start := func(where *mirrortest.Cluster) *Service {
			t.Helper()
			svc, err := NewService(ctx, where.Addresses())
			check(err)
			return svc
		}
		svc := start(pair.Primary())
		check(svc.Book(ctx, "order 1", "anvil", "rocket"))
		items, err := svc.Read(ctx, 2)
		check(err)
		fmt.Println("at the primary:", items)
		check(svc.begin(ctx, "order 2", "magnet")) // and it never comes to an end
		pair.AwaitCaughtUp()
		pair.Link().Cut()
		late := start(pair.Primary())
		check(late.Book(ctx, "order 3", "tunnel")) // nobody copies this
		svc.Close()
		late.Close()
		pair.KillPrimary()

		over := pair.Failover()
		for _, p := range over.Partitions {
			for range p.Aborts {
				fmt.Printf("failover: a transaction in %s-%d is aborted\n", p.Topic, p.Partition)
			}
		}
		for _, r := range over.NotCopied {
			fmt.Printf("failover: the standby never got %q\n", r.Value)
		}
		svc = start(pair.Standby())
		check(svc.Book(ctx, "order 4", "catapult"))
		items, err = svc.Read(ctx, 1)
		check(err)
		fmt.Println("at the standby:", items)
		svc.Close()

		pair.Link().Heal()
		back := pair.Failback()
		for _, r := range back.Return.GivenUp {
			fmt.Printf("failback: the old primary gives up %q\n", r.Value)
		}
		svc = start(pair.Primary())
		check(svc.Book(ctx, "order 5", "roller skates"))
		items, err = svc.Read(ctx, 1)
		check(err)
		fmt.Println("at the primary again:", items)
		svc.Close()
		pair.Verify()
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// at the primary: [order 1: anvil order 1: rocket]
	// failover: a transaction in orders-1 is aborted
	// failover: the standby never got "order 3: tunnel"
	// at the standby: [order 4: catapult]
	// failback: the old primary gives up "order 3: tunnel"
	// at the primary again: [order 5: roller skates]
}
