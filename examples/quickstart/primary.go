package main

import (
	"context"
	"fmt"

	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// writeToPrimary writes two payments and some orders to the new primary, as its clients do. It returns the offset of the first payment.
func writeToPrimary(ctx context.Context, primary *memlog.Cluster) (int64, error) {
	p := primary.NewProducer(memlog.ProducerOptions{})
	if err := p.Begin(); err != nil {
		return 0, err
	}
	first, err := p.Produce(ctx, payments, 0, memlog.Record{Value: []byte("new payment 1")}, memlog.Record{Value: []byte("new payment 2")})
	if err != nil {
		return 0, err
	}
	if err := p.Commit(ctx); err != nil {
		return 0, err
	}
	for i := range 30 {
		if _, err := primary.Produce(ctx, orders, int32(i%3), memlog.Record{Value: fmt.Appendf(nil, "new order %d", i)}); err != nil {
			return 0, err
		}
	}
	return first, nil
}
