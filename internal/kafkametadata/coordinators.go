package kafkametadata

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// mostKeys is how many groups one FindCoordinator asks about.
const mostKeys = 1000

// A cluster that has never had a group makes __consumer_offsets at the first look-up, and until then no group has a coordinator. A broker that becomes a coordinator is told of before it
// knows that itself, and says NOT_COORDINATOR (measured: Kafka 4.3.1), and then it loads the groups. Each is waited for this often, twice as long each time, 1.5 s in all.
const (
	mostPauses = 4
	firstPause = 100 * time.Millisecond
)

// coordinators remembers which broker coordinates a group. Share groups and groups with offsets have the same one (KIP-932).
type coordinators struct {
	mu       sync.Mutex
	of       map[string]int32
	answered int32 // the broker that answered a look-up last, if one did
	asked    bool
	mute     map[int32]bool // brokers that did not answer what they were asked last
}

// recall splits groups into those whose coordinator is known and those that must be looked up.
func (c *coordinators) recall(groups []string) (known map[string]int32, others []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known = make(map[string]int32, len(groups))
	for _, g := range groups {
		if broker, ok := c.of[g]; ok {
			known[g] = broker
		} else {
			others = append(others, g)
		}
	}
	return known, others
}

func (c *coordinators) remember(group string, broker int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int32{}
	}
	c.of[group] = broker
}

// forget drops what is remembered of a group, unless another coordinator is known meanwhile.
func (c *coordinators) forget(group string, broker int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[group] == broker {
		delete(c.of, group)
	}
}

// forgetBroker drops a broker that does not answer.
func (c *coordinators) forgetBroker(broker int32) {
	c.forgetIf(func(_ string, b int32) bool { return b == broker })
	c.isMute(broker)
}

// forgetIf drops groups.
func (c *coordinators) forgetIf(gone func(group string, broker int32) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for g, b := range c.of {
		if gone(g, b) {
			delete(c.of, g)
		}
	}
}

// inOrder puts the broker that answered last before the others, and behind them those that did not answer: each of these may cost a bound.
func (c *coordinators) inOrder(brokers []int32) []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	rank := func(broker int32) int {
		switch {
		case c.mute[broker]:
			return 2
		case c.asked && broker == c.answered:
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(brokers), func(a, b int32) int { return cmp.Compare(rank(a), rank(b)) })
}

func (c *coordinators) answeredBy(broker int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered, c.asked = broker, true
	delete(c.mute, broker)
}

func (c *coordinators) isMute(broker int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mute == nil {
		c.mute = map[int32]bool{}
	}
	c.mute[broker] = true
}

// empty says that no coordinator is known.
func (c *coordinators) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.of) == 0
}

// find says who coordinates these groups, and why that is not known of the others. An error is of the whole look-up: nobody answered; it is the reason of those that it left open too.
func (c *Client) find(ctx context.Context, groups []string) (found map[string]int32, unknown map[string]error, err error) {
	for pauses := 0; ; pauses++ {
		var others []string
		found, others = c.coordinators.recall(groups)
		unknown = make(map[string]error)
		for some := range slices.Chunk(others, mostKeys) {
			if err = c.lookUp(ctx, some, found, unknown); err != nil {
				for _, g := range others {
					if _, ok := found[g]; !ok {
						unknown[g] = cmp.Or(unknown[g], err)
					}
				}
				return found, unknown, err
			}
		}
		fresh := len(unknown) > 0 && c.coordinators.empty()
		for _, reason := range unknown {
			fresh = fresh && errors.Is(reason, kerr.CoordinatorNotAvailable)
		}
		if !fresh || pauses == mostPauses || !wait(ctx, firstPause<<pauses) {
			return found, unknown, nil
		}
	}
}

// wait returns after d, or when ctx ends, and then says no.
func wait(ctx context.Context, d time.Duration) bool {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// coordinator is find for one group.
func (c *Client) coordinator(ctx context.Context, group string) (int32, error) {
	found, unknown, _ := c.find(ctx, []string{group})
	return found[group], unknown[group]
}

// lookUp asks one broker after the other until one answers. A broker that knows many keys (KIP-699, version 4) is asked once, an older one once for each group.
func (c *Client) lookUp(ctx context.Context, groups []string, found map[string]int32, unknown map[string]error) error {
	brokers, err := c.cluster.Brokers(ctx)
	if err != nil {
		return err
	}
	var silent BrokersError
	for _, broker := range c.coordinators.inOrder(brokers) {
		for len(groups) > 0 {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKey, req.CoordinatorKeys = groups[0], groups
			resp, err := ask[*kmsg.FindCoordinatorResponse](ctx, c, broker, req)
			if err != nil {
				c.coordinators.isMute(broker)
				silent = append(silent, &BrokerError{Broker: broker, API: "FindCoordinator", Err: err})
				break
			}
			c.coordinators.answeredBy(broker)
			answers, asked := resp.Coordinators, groups
			if resp.Version < 4 {
				answers = []kmsg.FindCoordinatorResponseCoordinator{{Key: groups[0], NodeID: resp.NodeID, ErrorCode: resp.ErrorCode, ErrorMessage: resp.ErrorMessage}}
				asked = groups[:1]
			}
			for _, g := range asked {
				i := slices.IndexFunc(answers, func(a kmsg.FindCoordinatorResponseCoordinator) bool { return a.Key == g })
				reason := errLeftOut
				if i >= 0 {
					reason = refusal(answers[i].ErrorCode, answers[i].ErrorMessage)
				}
				if reason == nil {
					found[g] = answers[i].NodeID
					c.coordinators.remember(g, answers[i].NodeID)
				} else {
					unknown[g] = &BrokerError{Broker: broker, API: "FindCoordinator", Err: reason}
				}
			}
			groups = groups[len(asked):]
		}
		if len(groups) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return silent
}
