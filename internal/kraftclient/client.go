// Package kraftclient sends single requests to the controllers and, by id, to the brokers of a KRaft cluster. It finds the active controller and nothing else: what an
// answer means, and whether a request may be sent again, is its callers' business. Connections, security and the encoding are kgo's.
package kraftclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Config says how a Client reaches the cluster.
type Config struct {
	Controllers       []string  // host:port of every controller's listener
	ControllerOptions []kgo.Opt // security of that listener
	BrokerOptions     []kgo.Opt // security of the listener that Address leads to
	// Address is where a broker is reached now; false: it is not registered. It must not block.
	Address func(broker int32) (hostPort string, ok bool)
	// AttemptBound is how long one controller is waited for before the next one is asked; 0 is 5 s.
	AttemptBound time.Duration
	// Intercept, if set, stands around every request: it calls send, or not, and may say something else than send did. It is how tests lose requests and answers.
	Intercept func(ctx context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error)
}

// Client is safe for concurrent use. Requests to one node go over one connection, one after the other, except Fetch, which has its own: a long poll holds nobody up.
type Client struct {
	cfg         Config
	controllers []*kgo.Client

	mu      sync.Mutex
	active  int // index of the controller that answered last
	brokers map[string]*kgo.Client
	closed  bool
}

// ErrUnknownBroker: the broker is not registered.
var ErrUnknownBroker = errors.New("kraftclient: no such broker in the cluster's metadata")

// ErrClosed: the client was closed.
var ErrClosed = errors.New("kraftclient: closed")

// New makes a Client. It does not connect yet.
func New(cfg Config) (*Client, error) {
	if len(cfg.Controllers) == 0 {
		return nil, errors.New("kraftclient: no controller's address is given")
	}
	if cfg.AttemptBound == 0 {
		cfg.AttemptBound = 5 * time.Second
	}
	c := &Client{cfg: cfg, brokers: map[string]*kgo.Client{}}
	for _, address := range cfg.Controllers {
		k, err := kgo.NewClient(append(append([]kgo.Opt{}, cfg.ControllerOptions...), kgo.SeedBrokers(address))...)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("kraftclient: controller %s: %w", address, err)
		}
		c.controllers = append(c.controllers, k)
	}
	return c, nil
}

// Again is a Client of its own connections to the same cluster.
func (c *Client) Again() (*Client, error) { return New(c.cfg) }

// Controller sends req to the active controller and returns its answer. A controller that is not the active one, or does not answer within AttemptBound, makes it ask the next
// one, until ctx ends: so a request may reach the cluster more than once, and an error does not say that it did not.
func (c *Client) Controller(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	var last error
	for asked := 0; ; asked++ {
		if asked > 0 && asked%len(c.controllers) == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
		if ctx.Err() != nil {
			if last == nil {
				last = ctx.Err()
			}
			return nil, fmt.Errorf("none of %v is the active controller and answers %s; if they are not all of the controllers, name the others too: %w", c.cfg.Controllers, kmsg.NameForKey(req.Key()), errors.Join(last, ctx.Err()))
		}
		c.mu.Lock()
		at, closed := c.active, c.closed
		c.mu.Unlock()
		if closed {
			return nil, ErrClosed
		}
		bounded, stop := context.WithTimeout(ctx, c.cfg.AttemptBound)
		resp, err := c.send(bounded, req, func() (kmsg.Response, error) { return c.controllers[at].SeedBrokers()[0].Request(bounded, req) })
		stop()
		if err == nil && !notController(resp) {
			return resp, nil
		}
		last = err
		if err == nil {
			last = kerr.NotController
		}
		c.mu.Lock()
		if c.active == at {
			c.active = (at + 1) % len(c.controllers)
		}
		c.mu.Unlock()
	}
}

// At sends req to the controller with this index of Config.Controllers, active or not.
func (c *Client) At(ctx context.Context, controller int, req kmsg.Request) (kmsg.Response, error) {
	return c.send(ctx, req, func() (kmsg.Response, error) { return c.controllers[controller].SeedBrokers()[0].Request(ctx, req) })
}

func (c *Client) send(ctx context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error) {
	if c.cfg.Intercept == nil {
		return send()
	}
	return c.cfg.Intercept(ctx, req, send)
}

// Broker sends req to one broker and returns its answer.
func (c *Client) Broker(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	address, ok := c.cfg.Address(id)
	if !ok {
		return nil, fmt.Errorf("broker %d: %w", id, ErrUnknownBroker)
	}
	k, err := c.to(address)
	if err != nil {
		return nil, fmt.Errorf("broker %d at %s: %w", id, address, err)
	}
	resp, err := c.send(ctx, req, func() (kmsg.Response, error) { return k.SeedBrokers()[0].RetriableRequest(ctx, req) })
	if err != nil {
		return nil, fmt.Errorf("broker %d at %s: %s: %w", id, address, kmsg.NameForKey(req.Key()), err)
	}
	return resp, nil
}

func (c *Client) to(address string) (*kgo.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if k := c.brokers[address]; k != nil {
		return k, nil
	}
	k, err := kgo.NewClient(append(append([]kgo.Opt{}, c.cfg.BrokerOptions...), kgo.SeedBrokers(address), kgo.RequestRetries(2))...)
	if err == nil {
		c.brokers[address] = k
	}
	return k, err
}

// Close ends all connections; what is under way fails.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, k := range c.controllers {
		k.Close()
	}
	for _, k := range c.brokers {
		k.Close()
	}
}

// notController says that the node that answered is not the active controller.
func notController(resp kmsg.Response) bool {
	const code = 41 // NOT_CONTROLLER
	switch r := resp.(type) {
	case *kmsg.BrokerRegistrationResponse:
		return r.ErrorCode == code
	case *kmsg.BrokerHeartbeatResponse:
		return r.ErrorCode == code
	case *kmsg.UnregisterBrokerResponse:
		return r.ErrorCode == code
	case *kmsg.AllocateProducerIDsResponse:
		return r.ErrorCode == code
	case *kmsg.AlterPartitionResponse:
		return r.ErrorCode == code
	case *kmsg.AlterPartitionAssignmentsResponse:
		return r.ErrorCode == code
	case *kmsg.ElectLeadersResponse:
		return r.ErrorCode == code
	case *kmsg.CreateTopicsResponse:
		return len(r.Topics) > 0 && r.Topics[0].ErrorCode == code
	case *kmsg.CreatePartitionsResponse:
		return len(r.Topics) > 0 && r.Topics[0].ErrorCode == code
	case *kmsg.IncrementalAlterConfigsResponse:
		return len(r.Resources) > 0 && r.Resources[0].ErrorCode == code
	}
	return false
}
