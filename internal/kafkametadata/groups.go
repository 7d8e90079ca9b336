package kafkametadata

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// BrokerError is why one broker did not do what it was asked.
type BrokerError struct {
	Broker int32
	API    string // Kafka's name of the request
	Err    error  // of the connection, or the broker's own code (*kerr.Error), with its words if it has any
}

func (e *BrokerError) Error() string { return fmt.Sprintf("broker %d: %s: %v", e.Broker, e.API, e.Err) }
func (e *BrokerError) Unwrap() error { return e.Err }

// BrokersError is why brokers did not answer, or not in full; what else was answered holds.
type BrokersError []*BrokerError

func (e BrokersError) Error() string {
	texts := make([]string, len(e))
	for i, b := range e {
		texts[i] = b.Error()
	}
	return strings.Join(texts, "; ")
}

// orNil is no error if there is none.
func (e BrokersError) orNil() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Unwrap are the errors of the single brokers.
func (e BrokersError) Unwrap() []error {
	errs := make([]error, len(e))
	for i, b := range e {
		errs[i] = b
	}
	return errs
}

// pinned is a request that is sent in no newer version than most.
type pinned struct {
	kmsg.Request
	most int16
}

// MaxVersion is the newest version that may be sent.
func (p pinned) MaxVersion() int16 { return min(p.Request.MaxVersion(), p.most) }

// Groups is mirror.GroupReader's: one ListGroups for each broker, which knows the groups that it coordinates (KIP-518, KIP-848: states and types). Sorted by name. The
// error is BrokersError if single brokers did not answer.
func (c *Client) Groups(ctx context.Context) ([]mirror.Group, error) {
	brokers, err := c.cluster.Brokers(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var silent BrokersError
	of := map[string]mirror.Group{}
	var all sync.WaitGroup
	for _, broker := range brokers {
		all.Go(func() {
			listed, err := c.listGroups(ctx, broker)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, &BrokerError{Broker: broker, API: "ListGroups", Err: err})
			}
			for _, g := range listed {
				// While a coordinator moves, two brokers may list a group. The one that sees members is right often enough: who moves a group asks the cluster again.
				if before, ok := of[g.Name]; !ok || !before.Active {
					of[g.Name] = g
				}
			}
		})
	}
	all.Wait()
	groups := slices.SortedFunc(maps.Values(of), func(a, b mirror.Group) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(silent, func(a, b *BrokerError) int { return cmp.Compare(a.Broker, b.Broker) })
	if len(silent) == 0 {
		// Groups come and go for years; only those that exist are worth remembering.
		c.coordinators.forgetIf(func(group string, _ int32) bool { _, ok := of[group]; return !ok })
	}
	return groups, silent.orNil()
}

// listGroups asks one broker. A broker that still loads some of its groups says so, and names the others beside it.
func (c *Client) listGroups(ctx context.Context, broker int32) ([]mirror.Group, error) {
	resp, err := ask[*kmsg.ListGroupsResponse](ctx, c, broker, kmsg.NewPtrListGroupsRequest())
	if err != nil {
		return nil, err
	}
	groups := make([]mirror.Group, 0, len(resp.Groups))
	for _, g := range resp.Groups {
		kind := mirror.OffsetGroup
		if strings.EqualFold(cmp.Or(g.GroupType, g.ProtocolType), "share") {
			kind = mirror.ShareGroup
		}
		groups = append(groups, mirror.Group{Name: g.Group, Kind: kind, State: g.GroupState, Active: hasMembers(g.GroupState)})
	}
	return groups, kerr.ErrorForCode(resp.ErrorCode)
}

// hasMembers is what a state says (Kafka: ClassicGroupState, ConsumerGroup, ShareGroup, StreamsGroup). Brokers before 2.6 do not tell states, and then nothing is known of members.
func hasMembers(state string) bool {
	return state != "" && !strings.EqualFold(state, "Empty") && !strings.EqualFold(state, "Dead")
}

// The groups that one request asks about, so that no answer grows without limit: 100 MiB, the most that is read of one, are some 8,000 partitions for each of them.
const mostGroups = 250

// answer is what a coordinator said of a group.
type answer struct {
	mirror.GroupOffsets
	broker int32
	silent bool // the broker did not answer
	again  bool // it is not the group's coordinator any more, or not yet
}

// GroupOffsets is mirror.GroupReader's: one OffsetFetch for each coordinator and mostGroups of its groups (KIP-709), with stable offsets only (KIP-447), and one DescribeShareGroupOffsets for
// its share groups (KIP-932). A coordinator that is none any more, or does not answer, is looked up anew and the new one asked within the same call; one that is none yet is waited for.
func (c *Client) GroupOffsets(ctx context.Context, groups []mirror.Group) (map[string]mirror.GroupOffsets, error) {
	answers := make(map[string]answer, len(groups))
	kinds := make(map[string]mirror.GroupKind, len(groups))
	for _, g := range groups {
		kinds[g.Name] = g.Kind
	}
	open := slices.Sorted(maps.Keys(kinds))
	var failed error
	for try := 0; len(open) > 0 && try <= mostPauses; try++ {
		found, unknown, err := c.find(ctx, open)
		for g, reason := range unknown {
			if before := answers[g]; !before.silent { // that its coordinator is silent says more
				answers[g] = answer{GroupOffsets: mirror.GroupOffsets{Err: reason}}
			}
		}
		if err != nil && len(found) == 0 && try == 0 {
			failed = err
		}
		type place struct {
			broker int32
			kind   mirror.GroupKind
		}
		at := map[place][]string{}
		same := false
		for _, g := range open {
			broker, ok := found[g]
			before := answers[g]
			if !ok || before.silent && before.broker == broker {
				continue
			}
			same = same || before.again && before.broker == broker
			p := place{broker, kinds[g]}
			at[p] = append(at[p], g)
		}
		if same && !wait(ctx, firstPause<<(try-1)) {
			break
		}
		var mu sync.Mutex
		var all sync.WaitGroup
		open = nil
		for p, names := range at {
			all.Go(func() {
				read := c.fetchOffsets
				if p.kind == mirror.ShareGroup {
					read = c.describeShareOffsets
				}
				got := read(ctx, p.broker, names)
				mu.Lock()
				defer mu.Unlock()
				for _, g := range names {
					a, ok := got[g]
					if !ok {
						a.Err = &BrokerError{Broker: p.broker, API: "group offsets", Err: errLeftOut}
					}
					a.broker = p.broker
					answers[g] = a
					switch {
					case a.silent:
						c.coordinators.forgetBroker(p.broker)
						open = append(open, g)
					case a.again:
						c.coordinators.forget(g, p.broker)
						open = append(open, g)
					}
				}
			})
		}
		all.Wait()
		slices.Sort(open)
	}
	result := make(map[string]mirror.GroupOffsets, len(answers))
	for g, a := range answers {
		result[g] = a.GroupOffsets
	}
	return result, failed
}

// isAgain says that a broker is not the coordinator that it was taken for, or not yet.
func isAgain(code int16) bool {
	return code == kerr.NotCoordinator.Code || code == kerr.CoordinatorNotAvailable.Code || code == kerr.CoordinatorLoadInProgress.Code
}

// unanswered is the same reason for all groups of a request.
func unanswered(into map[string]answer, groups []string, broker int32, api string, err error, silent bool) {
	for _, g := range groups {
		into[g] = answer{GroupOffsets: mirror.GroupOffsets{Err: &BrokerError{Broker: broker, API: api, Err: err}}, silent: silent}
	}
}
