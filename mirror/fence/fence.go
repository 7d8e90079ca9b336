// Package fence keeps clients from writing to topics of a Kafka cluster while a mirror is promoted (mirror.Promote), and aborts the transactions that they leave open there.
//
// A fence is no better than what it is made of, and says so (mirror.FenceAdvice). ACL is the strong one, where the brokers have an authorizer; Quota slows producers down to almost nothing, and proves nothing; Hook is
// whatever the caller has in front of the brokers: a gateway, the deployment of the applications.
package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// Hook is a fence of two functions of the caller's. Both are called again after a crash, and must bear that. It does not tell on which cluster it works, so a promotion cannot compare that with the
// source, as it does with the other fences; its report says so.
type Hook struct {
	Name           string // one line, without secrets, the same in each process, not empty
	RaiseF, LowerF func(ctx context.Context, topics []string) error
}

var _ mirror.Fence = Hook{}

// Raise calls RaiseF. Without a LowerF nothing is raised that nobody could lower.
func (h Hook) Raise(ctx context.Context, topics []string) error {
	if h.RaiseF == nil || h.LowerF == nil {
		return fmt.Errorf("fence.Hook %q: it was not raised: it needs both RaiseF and LowerF", h.Name)
	}
	return h.RaiseF(ctx, topics)
}

// Lower calls LowerF.
func (h Hook) Lower(ctx context.Context, topics []string) error {
	if h.LowerF == nil {
		return fmt.Errorf("fence.Hook %q: it cannot be lowered without a LowerF; if an earlier process has raised it, take it down by hand", h.Name)
	}
	return h.LowerF(ctx, topics)
}

func (h Hook) String() string { return h.Name }

// onCluster is what is made of a client.
type onCluster struct{ client *kgo.Client }

// ClusterID is that of the client's cluster.
func (c onCluster) ClusterID(ctx context.Context) (string, error) {
	ctx, stop := context.WithTimeout(ctx, requestBound)
	defer stop()
	m, err := kadm.NewClient(c.client).BrokerMetadata(ctx)
	if err != nil {
		return "", fmt.Errorf("asking for the cluster's id: %w", err)
	}
	return m.Cluster, nil
}

// requestBound is the longest time of one request.
const requestBound = 5 * time.Second

// brokers are those of a client's cluster.
type brokers struct{ client *kgo.Client }

func (b brokers) Brokers(ctx context.Context) ([]int32, error) {
	ctx, stop := context.WithTimeout(ctx, requestBound)
	defer stop()
	m, err := kadm.NewClient(b.client).BrokerMetadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the brokers: %w", err)
	}
	if len(m.Brokers) == 0 {
		return nil, errors.New("the cluster names no broker")
	}
	return m.Brokers.NodeIDs(), nil
}

func (b brokers) Ask(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	return b.client.Broker(int(broker)).RetriableRequest(ctx, req)
}

// pause waits; false: ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
