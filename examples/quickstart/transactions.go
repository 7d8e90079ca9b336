package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transaction is one open transaction of a producer.
type transaction struct {
	client *kgo.Client
	id     int64
	epoch  int16
}

// openTransactions writes 0: data of the first, 1: data of the second, 2: data of the first again.
func (c *cluster) openTransactions(ctx context.Context) (one, two *transaction, err error) {
	begin := func(name string) (*transaction, error) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.address), kgo.TransactionalID(name), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
		if err != nil {
			return nil, err
		}
		return &transaction{client: cl}, cl.BeginTransaction()
	}
	write := func(t *transaction, value string) error {
		if err := t.client.ProduceSync(ctx, &kgo.Record{Topic: payments, Value: []byte(value)}).FirstErr(); err != nil {
			return err
		}
		t.id, t.epoch, err = t.client.ProducerID(ctx)
		return err
	}
	if one, err = begin("payments-4001"); err != nil {
		return nil, nil, err
	}
	if two, err = begin("payments-4002"); err != nil {
		return nil, nil, err
	}
	for _, step := range []struct {
		t     *transaction
		value string
	}{{one, "4001 pays 10"}, {two, "4002 pays 99"}, {one, "4001 pays 20"}} {
		if err := write(step.t, step.value); err != nil {
			return nil, nil, err
		}
	}
	return one, two, nil
}

// endTransactions writes 3: COMMIT of the first, 4: ABORT of the second.
func (c *cluster) endTransactions(ctx context.Context, one, two *transaction) error {
	if err := one.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	if err := two.client.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return err
	}
	one.client.Close()
	two.client.Close()
	return nil
}
