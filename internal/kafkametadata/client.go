package kafkametadata

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// errLeftOut is why a broker that answered said nothing of what it was asked about.
var errLeftOut = errors.New("the broker left this out of its answer")

// Cluster is how the brokers of one cluster are reached. Safe for concurrent use.
type Cluster interface {
	// Brokers are the ids of the brokers that may be asked, in any order; at least one. It may ask the cluster.
	Brokers(ctx context.Context) ([]int32, error)
	// Ask sends one request to one broker. The request is not shared with another call.
	Ask(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error)
}

// Client reads and writes groups, topic settings and access rules of one cluster. Safe for concurrent use.
type Client struct {
	cluster Cluster
	bound   time.Duration

	coordinators coordinators
}

// New returns a Client. bound is the longest time of one request, so that one silent broker does not use up a call that others answer; a call as a whole is bounded by its context.
func New(cluster Cluster, bound time.Duration) *Client {
	return &Client{cluster: cluster, bound: bound}
}

// ask sends one request within the bound.
func ask[R any](ctx context.Context, c *Client, broker int32, req kmsg.Request) (resp R, err error) {
	return askWithin[R](ctx, c, c.bound, broker, req)
}

// askWithin is ask for a request whose answer may take longer.
func askWithin[R any](ctx context.Context, c *Client, bound time.Duration, broker int32, req kmsg.Request) (resp R, err error) {
	ctx, stop := context.WithTimeout(ctx, bound)
	defer stop()
	r, err := c.cluster.Ask(ctx, broker, req)
	if err != nil {
		return resp, err
	}
	return r.(R), nil
}
