package mirror

import (
	"context"
	"fmt"
)

// FenceCluster is an optional ability of a Fence and of a TransactionEnder: it tells on which cluster it works. One of another cluster than the source is refused before it changes anything there
// (FenceElsewhereError). Of one without the ability, as a hook of the caller's, that is the caller's word.
type FenceCluster interface {
	ClusterID(ctx context.Context) (string, error)
}

// FenceElsewhereError: a fence, or what aborts transactions, works on another cluster than the mirror's source. It would keep out the clients of that one, and nobody at the source.
type FenceElsewhereError struct {
	What            string // which of the two
	ClusterID       string // where it works
	SourceClusterID string
}

func (e *FenceElsewhereError) Error() string {
	return fmt.Sprintf("%s works on cluster %s, and the source of the mirror is cluster %s: give it a client of the source", e.What, e.ClusterID, e.SourceClusterID)
}

const theFence, theEnder = "the fence", "what aborts transactions"

// atSource refuses a fence, or what aborts transactions, of another cluster than the source; neither being there is fine, and so is a source that nobody knows.
func atSource(ctx context.Context, what string, it any, sourceID string) error {
	tells, ok := it.(FenceCluster)
	if !ok || sourceID == "" {
		return nil
	}
	bounded, stop := context.WithTimeout(ctx, askBound)
	defer stop()
	id, err := tells.ClusterID(bounded)
	if err != nil {
		return fmt.Errorf("on which cluster %s works is not known: %w", what, err)
	}
	if id != sourceID {
		return &FenceElsewhereError{what, id, sourceID}
	}
	return nil
}
