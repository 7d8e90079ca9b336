package asking

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
)

// cluster is three brokers in this process and a client of them; mute has one of them stand still, or go on.
func cluster(t *testing.T) (client *kgo.Client, mute func(broker int, still bool)) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	fronts := map[string]*proxy.Proxy{}
	for _, address := range c.ListenAddrs() {
		if fronts[address], err = proxy.Listen(address); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { fronts[address].Close() })
	}
	client, err = kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DisableClientMetrics(), kgo.RequestRetries(0), kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, fronts[address].Address())
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, func(broker int, still bool) { fronts[c.ListenAddrs()[broker]].SetLink(proxy.Link{BlackHole: still}) }
}

func metadata() kmsg.Request {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	return req
}

// far is below what a client waits by itself.
const far = 9 * time.Second

// Whoever is asked what any broker can tell is not held up by one or two that stand still, at the first connection either.
func TestAnyAsksPastBrokersThatStandStill(t *testing.T) {
	t.Parallel()
	client, mute := cluster(t)
	mute(0, true)
	mute(2, true)
	ctx, stop := context.WithTimeout(t.Context(), far)
	defer stop()
	for range 8 {
		resp, err := Any[*kmsg.MetadataResponse](ctx, client, metadata)
		if err != nil || len(resp.Brokers) != 3 {
			t.Fatalf("%v: %+v", err, resp)
		}
	}
}

// Where nobody answers the caller's context ends it, and where all refuse the refusal does.
func TestAnyEnds(t *testing.T) {
	t.Parallel()
	client, mute := cluster(t)
	for broker := range 3 {
		mute(broker, true)
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := Any[*kmsg.MetadataResponse](ctx, client, metadata); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if _, err := Any[*kmsg.MetadataResponse](ctx, client, metadata); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a context that has ended: %v", err)
	}
	refused, err := kgo.NewClient(kgo.SeedBrokers("h:1"), kgo.RequestRetries(0), kgo.DisableClientMetrics(), kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
		return nil, kerr.SaslAuthenticationFailed
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	if _, err := Any[*kmsg.MetadataResponse](t.Context(), refused, metadata); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("%v", err)
	}
}

// A broker that stands still is waited for until another one has its place, and one that only is slow as long as it takes.
func TestHolderWaitsForWhoHoldsIt(t *testing.T) {
	t.Parallel()
	client, mute := cluster(t)
	if _, err := Any[*kmsg.MetadataResponse](t.Context(), client, metadata); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), far)
	defer stop()
	mute(1, true)
	var asked atomic.Int32
	_, err := Holder(ctx, client, 1, metadata(), 0, func(context.Context) bool { return asked.Add(1) == 2 })
	var moved *MovedError
	if !errors.As(err, &moved) || moved.Broker != 1 || moved.Waited < 2*lookAfter || asked.Load() != 2 {
		t.Errorf("%v after %d questions", err, asked.Load())
	}
	asked.Store(0)
	resp, err := Holder(ctx, client, 1, metadata(), 0, func(context.Context) bool {
		asked.Add(1)
		mute(1, false)
		return false
	})
	if err != nil || resp == nil || asked.Load() != 1 {
		t.Errorf("%v after %d questions", err, asked.Load())
	}
	// The caller's end is no move.
	mute(1, true)
	ended, end := context.WithCancel(ctx)
	time.AfterFunc(10*time.Millisecond, end)
	if _, err := Holder(ended, client, 1, metadata(), 0, func(context.Context) bool { return true }); !errors.Is(err, context.Canceled) || errors.As(err, &moved) {
		t.Errorf("%v", err)
	}
}
