package kafkasource

import (
	"context"

	"github.com/clustermirror/clustermirror/mirror"
)

var _ mirror.TransactionLister = (*Source)(nil)

const listTransactionsOperation = "list transactions"

// TransactionalIDs asks each broker for those that it coordinates (KIP-664, Kafka 3.0 and newer). A broker names those only that the user may describe.
func (s *Source) TransactionalIDs(ctx context.Context) ([]mirror.TransactionalID, error) {
	ctx, end, err := s.begin(ctx, listTransactionsOperation)
	if err != nil {
		return nil, err
	}
	defer end()
	ids, err := s.metadataClient.TransactionalIDs(ctx)
	return ids, s.groupFailure(listTransactionsOperation, err)
}
