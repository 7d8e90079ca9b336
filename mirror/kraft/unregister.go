package kraft

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// IfUnregistered is what Unregister would do now, for people, several lines.
func (r Remains) IfUnregistered() string {
	var b strings.Builder
	if r.Registration == NotRegistered {
		fmt.Fprintf(&b, "broker %d is not registered: nothing is changed\n", r.NodeID)
		return b.String()
	}
	if r.Stranger {
		fmt.Fprintf(&b, "WARNING: broker %d is no process of this kind. A stock broker that is unregistered while it lives loses its place until it is restarted\n", r.NodeID)
	}
	fmt.Fprintf(&b, "broker %d is unregistered: its process notices at once, ends, and does not come back by itself; nor does one that stands by\n", r.NodeID)
	offline, elected, led := 0, 0, 0
	var which strings.Builder
	for _, p := range r.Partitions {
		switch {
		case p.Leader >= 0 && p.Leader != r.NodeID:
			led++
		case p.Elects >= 0:
			elected++
			fmt.Fprintf(&which, "WARNING: %s-%d: broker %d may be elected (in sync %v): it is in sync, may be the leader (ELR), or the topic does not say %s=false for itself; clients could write into it although it was not stopped\n",
				p.Topic, p.Partition, p.Elects, p.ISR, uncleanElection)
		default:
			offline++
		}
	}
	promise := ", nothing becomes writable"
	if elected > 0 {
		promise = ""
	}
	fmt.Fprintf(&b, "%d partitions have no leader from then on: nobody reads or writes them, their copies stay%s\n", offline, promise)
	if led > 0 {
		fmt.Fprintf(&b, "%d partitions are led by stock brokers already, and stay so\n", led)
	}
	b.WriteString(which.String())
	if elected == 0 {
		fmt.Fprintf(&b, "to undo it start a process under node id %d: it leads them again, with all that they hold\n", r.NodeID)
	}
	return b.String()
}

// Unregister is the kill switch: it takes a node id's registration away, at once, whatever its process does or is. Its partitions have no leader then: nobody reads, nobody writes, their copies
// stay, and nothing becomes writable. Starting a process under the node id undoes it. It refuses nothing: PlanUnregister(…).IfUnregistered() says before what it will do, and names partitions of
// which that is not true because a stock broker may be elected. It returns what there was before. cfg is the node's Config; Folder, Listen and Remember are not used: only the controllers are.
//
// A living process gets STALE_BROKER_EPOCH for its next heartbeat, or sees it in the metadata before: it ends with an Event Unregistered, and so do those that stand by for it. The leader comes back as RECOVERING from the last known
// leader, where eligible leaders are on (KIP-966); elsewhere it is the in-sync replica that it was (Kafka: ReplicationControlManager.handleBrokerUnregistered).
func Unregister(ctx context.Context, cfg Config) (Remains, error) {
	d, r, err := killing(ctx, cfg)
	if err != nil {
		return r, err
	}
	defer d.Close()
	if err := d.unregister(ctx); err != nil {
		return r, err
	}
	return r, d.meta.wait(ctx, fmt.Sprintf("broker %d to be unregistered", d.cfg.NodeID), func(im *clustermetadata.Image) bool {
		_, ok := im.Broker(d.cfg.NodeID)
		return !ok
	})
}

// PlanUnregister is what there is of a node id before Unregister, as the controllers tell it, and changes nothing: Kept and Resigned, which are in the storage, are left out. Needs what
// Unregister needs.
func PlanUnregister(ctx context.Context, cfg Config) (Remains, error) {
	d, r, err := killing(ctx, cfg)
	if err == nil {
		d.Close()
	}
	return r, err
}

// killing is the look before a registration is taken away. No broker and no storage is waited for.
func killing(ctx context.Context, cfg Config) (*Destination, Remains, error) {
	cfg.Remember = keyedlog.NewMemory()
	d, err := observe(ctx, cfg)
	if err != nil {
		return nil, Remains{}, err
	}
	id := d.clusterOfControllers(ctx)
	if id != "" {
		d.peers.cluster.Store(&id)
		d.cluster = id
	}
	return d, d.shown(id, d.registration()), nil
}

// clusterOfControllers is the cluster's id as its active controller tells it (KIP-919) to who may alter the cluster, as whoever unregisters a broker has to; "" if it does not.
func (d *Destination) clusterOfControllers(ctx context.Context) string {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = 2 // controllers
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	resp, err := d.client.Controller(bounded, req)
	if err != nil {
		return ""
	}
	return resp.(*kmsg.DescribeClusterResponse).ClusterID
}

// unregister takes this node id's registration away. One that there is not is fine.
func (d *Destination) unregister(ctx context.Context) error {
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = d.cfg.NodeID
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	resp, err := d.client.Controller(bounded, req)
	if err != nil {
		return fmt.Errorf("kraft: unregistering broker %d: %w", d.cfg.NodeID, err)
	}
	r := resp.(*kmsg.UnregisterBrokerResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil && !errors.Is(err, kerr.BrokerIDNotRegistered) {
		return fmt.Errorf("kraft: unregistering broker %d: %w%s", d.cfg.NodeID, err, said(r.ErrorMessage))
	}
	return nil
}
