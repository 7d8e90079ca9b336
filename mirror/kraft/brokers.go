package kraft

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkametadata"
)

// brokers is how the stock brokers are asked for what the cluster keeps beside its logs. Mirror processes answer no such request.
type brokers struct{ d *Destination }

var _ kafkametadata.Cluster = brokers{}

var errNoLiveBroker = errors.New("kraft: no broker of the cluster is alive that could be asked; start one")

// Brokers are those that are not fenced, by the metadata that this process follows.
func (b brokers) Brokers(context.Context) ([]int32, error) {
	ids := b.d.liveBrokers()
	if len(ids) == 0 {
		return nil, errNoLiveBroker
	}
	return ids, nil
}

// Ask sends one request to one broker.
func (b brokers) Ask(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	return b.d.client.Broker(ctx, broker, req)
}
