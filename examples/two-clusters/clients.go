package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	orders   = "orders"   // three partitions, written by an idempotent producer
	payments = "payments" // one partition, written in transactions
	group    = "billing"  // reads both, committed records only
)

var topics = []topic{{orders, 3}, {payments, 1}}

// clients are the applications: two producers and a consumer group, at one of the clusters.
type clients struct {
	at      *side
	ledger  *ledger
	numbers *atomic.Int64 // of records, over all clusters

	ctx       context.Context
	stop      context.CancelFunc
	producing sync.WaitGroup
	quiet     context.CancelFunc // ends the producers
	consuming sync.WaitGroup
	closers   []*kgo.Client
	consumer  *kgo.Client

	mu       sync.Mutex
	err      error            // the first that nobody expected
	answered time.Time        // first
	first    map[string]int64 // offset that the consumer was given, by partition
}

// options are those of all clients: a cluster that is gone is noticed soon, and records can be found in the brokers' files.
func (c *clients) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{kgo.SeedBrokers(c.at.Bootstrap()...), kgo.MetadataMinAge(100 * time.Millisecond), kgo.DialTimeout(2 * time.Second), kgo.RetryTimeout(3 * time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(10 * time.Millisecond), kgo.RecordDeliveryTimeout(20 * time.Second), kgo.TransactionTimeout(time.Minute)}, more...)
}

func (c *clients) client(more ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(c.options(more...)...)
	if err == nil {
		c.closers = append(c.closers, cl)
	}
	return cl, err
}

// startClients puts the applications to work at a cluster.
func startClients(ctx context.Context, at *side, l *ledger, numbers *atomic.Int64) (*clients, error) {
	c := &clients{at: at, ledger: l, numbers: numbers, first: map[string]int64{}}
	c.ctx, c.stop = context.WithCancel(ctx)
	once, err := c.client()
	if err != nil {
		return c, err
	}
	transacting, err := c.client(kgo.TransactionalID("payments-service"))
	if err != nil {
		return c, err
	}
	if err := c.consume(); err != nil {
		return c, err
	}
	producing, quiet := context.WithCancel(c.ctx)
	c.quiet = quiet
	c.producing.Add(2)
	go func() {
		defer c.producing.Done()
		c.fail(c.writeOrders(producing, once))
	}()
	go func() {
		defer c.producing.Done()
		c.fail(c.writePayments(producing, transacting))
	}()
	return c, nil
}

// fail keeps what nobody expected. Clients that are told to stop end with errors.
func (c *clients) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.err == nil && c.ctx.Err() == nil {
		c.err = fmt.Errorf("a client of the %s: %w", c.at.name, err)
	}
}

// trouble is what went wrong with a client, nil if nothing did.
func (c *clients) trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// works says whether a record was written and one was read of every partition.
func (c *clients) works() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.answered.IsZero() && len(c.first) == partitions()
}

// begins notes where the consumer begins in a partition.
func (c *clients) begins(partition string, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, began := c.first[partition]; !began {
		c.first[partition] = offset
	}
}

// began is where it did.
func (c *clients) began() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.first)
}

// since is how long after begun the first record was written.
func (c *clients) since(begun time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered.Sub(begun)
}

// write writes records of a topic, and returns their ids when all are acknowledged.
func (c *clients) write(ctx context.Context, cl *kgo.Client, topic string, partition int32, n int) (map[string]position, error) {
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Value: value(fmt.Sprintf("%s-%06d", topic, c.numbers.Add(1)))}
	}
	done := map[string]position{}
	for _, r := range cl.ProduceSync(ctx, records...) {
		if r.Err != nil {
			c.ledger.unanswered(n - len(done))
			return done, r.Err
		}
		done[idOf(r.Record.Value)] = position{c.at.name, topic, partition, r.Record.Offset}
	}
	return done, nil
}

// acknowledged notes what is written for certain.
func (c *clients) acknowledged(done map[string]position) {
	for id, at := range done {
		c.ledger.wrote(id, at)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered.IsZero() && len(done) > 0 {
		c.answered = time.Now()
	}
}

// writeOrders writes some every 25 ms until ctx ends. What is under way then is finished, if the cluster lives.
func (c *clients) writeOrders(ctx context.Context, cl *kgo.Client) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for i := int32(0); ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		done, err := c.write(c.ctx, cl, orders, i%topics[0].partitions, 5)
		c.acknowledged(done)
		if err != nil {
			return err
		}
	}
}

// writePayments writes transactions of three records until ctx ends; each fifth is aborted.
func (c *clients) writePayments(ctx context.Context, cl *kgo.Client) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 1; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		done, err := c.write(c.ctx, cl, payments, 0, 3)
		if err != nil {
			c.ledger.unanswered(len(done))
			return err
		}
		if i%5 == 0 {
			if err := cl.EndTransaction(c.ctx, kgo.TryAbort); err != nil {
				return err
			}
			continue
		}
		if err := cl.EndTransaction(c.ctx, kgo.TryCommit); err != nil {
			c.ledger.unanswered(len(done))
			return err
		}
		c.acknowledged(done)
	}
}

// consume reads both topics as the group, and commits after each portion.
func (c *clients) consume() error {
	cl, err := c.client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(orders, payments), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.FetchMaxWait(200*time.Millisecond), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second))
	if err != nil {
		return err
	}
	c.consumer = cl
	c.consuming.Add(1)
	go func() {
		defer c.consuming.Done()
		for c.ctx.Err() == nil {
			fetches := cl.PollFetches(c.ctx)
			if fetches.Empty() {
				continue // or an error, which the client tries to heal
			}
			fetches.EachRecord(func(r *kgo.Record) {
				c.ledger.got(idOf(r.Value), position{c.at.name, r.Topic, r.Partition, r.Offset})
				c.begins(partitionName(r.Topic, r.Partition), r.Offset)
			})
			if err := cl.CommitUncommittedOffsets(c.ctx); err != nil && !errors.Is(err, context.Canceled) {
				continue // the next commit holds it too
			}
		}
	}()
	return nil
}

// stopProducing ends the producers when what they have begun is finished.
func (c *clients) stopProducing() {
	c.quiet()
	c.producing.Wait()
}

// close ends everything. A dead cluster, to which the clients try to say good-bye, is not waited for.
func (c *clients) close() {
	c.stop()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, cl := range c.closers {
			cl.CloseAllowingRebalance()
		}
		c.producing.Wait()
		c.consuming.Wait()
	}()
	select {
	case <-closed:
	case <-time.After(2 * time.Second):
	}
}

// committed is where the group stands at a cluster.
func committed(ctx context.Context, s *side) (map[string]int64, error) {
	bounded, stop := context.WithTimeout(ctx, bound)
	defer stop()
	all, err := s.Admin().FetchOffsets(bounded, group)
	if err != nil {
		return nil, err
	}
	at := map[string]int64{}
	all.Each(func(o kadm.OffsetResponse) {
		if o.Err != nil {
			err = o.Err
		}
		at[partitionName(o.Topic, o.Partition)] = o.At
	})
	return at, err
}
