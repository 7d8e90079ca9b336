package kafkasource

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkametadata"
)

// sourceCluster is how the source's brokers are asked for what it keeps beside its logs.
type sourceCluster struct{ s *Source }

var _ kafkametadata.Cluster = sourceCluster{}

// Brokers asks one broker for all of them, so that the client knows their addresses of now, and nothing is asked of another cluster that answers at the source's addresses.
func (c sourceCluster) Brokers(ctx context.Context) ([]int32, error) {
	resp, err := c.s.metadata(ctx, "metadata", []string{}, false)
	if err != nil {
		return nil, err
	}
	var ids []int32
	for _, b := range resp.Brokers {
		ids = append(ids, b.NodeID)
	}
	slices.Sort(ids)
	return ids, nil
}

// Ask sends one request to one broker.
func (c sourceCluster) Ask(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	return c.s.ask(ctx, broker, req)
}
