package kafkametadata

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// TransactionalIDs is mirror.TransactionLister's: one ListTransactions (KIP-664) for each broker, which knows those that it coordinates, and names those that the user may describe. The error is
// BrokersError if single brokers did not answer: what is known of all is not known then.
func (c *Client) TransactionalIDs(ctx context.Context) ([]mirror.TransactionalID, error) {
	brokers, err := c.cluster.Brokers(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var silent BrokersError
	var ids []mirror.TransactionalID
	var all sync.WaitGroup
	for _, broker := range brokers {
		all.Go(func() {
			resp, err := ask[*kmsg.ListTransactionsResponse](ctx, c, broker, kmsg.NewPtrListTransactionsRequest())
			if err == nil {
				err = kerr.ErrorForCode(resp.ErrorCode)
			} else {
				err = c.unsupported(ctx, broker, kmsg.ListTransactions, "3.0", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, &BrokerError{Broker: broker, API: "ListTransactions", Err: err})
				return
			}
			for _, t := range resp.TransactionStates {
				ids = append(ids, mirror.TransactionalID{Name: t.TransactionalID, ProducerID: t.ProducerID, State: t.TransactionState})
			}
		})
	}
	all.Wait()
	slices.SortFunc(silent, func(a, b *BrokerError) int { return cmp.Compare(a.Broker, b.Broker) })
	slices.SortFunc(ids, func(a, b mirror.TransactionalID) int { return cmp.Compare(a.Name, b.Name) })
	return ids, silent.orNil()
}
