package kraft

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clientlistener"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kraftclient"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/internal/replicareader"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// ClientListener makes mirrored topics readable while they are mirrored. This process registers the brokers' listener for clients too, so clients see it as the leader of mirrored partitions; it sends consumers on to stock
// followers (KIP-392), refuses producers, and passes everything else through to a stock broker, on a connection of each client's own: it is the broker that authenticates and authorizes. internal/clientlistener says
// what is done with which request, SECURITY.md what passes through this process's memory.
type ClientListener struct {
	// Name is what the brokers call their listener for clients (listeners, listener.security.protocol.map). All of them need one of that name, with one security protocol.
	Name string
	// Listen is where this process listens for clients: host:port, or a listener that was made already (Listener).
	Listen   string
	Listener net.Listener
	// Advertised is the host:port under which clients reach Listen; empty: Listener's own address.
	Advertised string
	// Protocol is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, as the brokers have it; empty: PLAINTEXT.
	Protocol string
	// TLS is what clients are shown, asked for each connection; BrokerTLS is what this process trusts of the brokers' listener, asked for each connection to it. Both are needed for SSL and SASL_SSL. Where the
	// brokers ask clients for certificates nothing can be passed through: Preflight refuses it.
	TLS, BrokerTLS func() (*tls.Config, error)
	// MaxConnections is how many clients may be connected; 0 is 4,000. MaxConnectionsPerAddress is how many of them may come from one IP address; 0 is half of MaxConnections. One more is closed at once.
	MaxConnections, MaxConnectionsPerAddress int
	// Observer is told what happens there.
	Observer ClientObserver
}

// ClientObserver holds functions that are told what happens at the listener for clients, for metrics. Any may be nil. They are called concurrently and must not block.
type ClientObserver struct {
	// Connections is told how many clients are connected: at the start, and after each change, in their order.
	Connections func(open int)
	// Redirected is told of each partition of a Fetch that was sent on to a follower, with its broker id.
	Redirected func(broker int32)
	// Refused is told of each connection that is closed for what it sent or is: one of RefusalReasons.
	Refused func(reason string)
}

// RefusalReasons are the words with which ClientObserver.Refused tells why. The slice is the caller's.
func RefusalReasons() []string { return slices.Clone(clientlistener.Reasons) }

// check says what is wrong with it.
func (l *ClientListener) check(c *Config, no func(format string, args ...any)) {
	if l.Name == "" {
		no("Clients.Name is empty; name the brokers' listener for clients, or leave Clients nil: mirrored topics are dark then")
	}
	if l.Name != "" && l.Name == c.ListenerName {
		no("Clients.Name and ListenerName are both %s; clients need another listener than the brokers", l.Name)
	}
	if l.Listen == "" && l.Listener == nil {
		no("neither Clients.Listen nor Clients.Listener is set; clients have to reach this process")
	}
	switch l.Protocol {
	case "":
		l.Protocol = "PLAINTEXT"
	case "PLAINTEXT", "SASL_PLAINTEXT":
	case "SSL", "SASL_SSL":
		if l.TLS == nil || l.BrokerTLS == nil {
			no("Clients.TLS and Clients.BrokerTLS are needed for %s: what clients are shown, and what is trusted of the brokers", l.Protocol)
		}
		return
	default:
		no("Clients.Protocol %q is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", l.Protocol)
	}
	if l.TLS != nil || l.BrokerTLS != nil {
		no("Clients.Protocol is %s, and Clients.TLS or Clients.BrokerTLS is set; leave them nil, or name SSL or SASL_SSL", l.Protocol)
	}
}

// protocolIDs are Kafka's security protocols, at their ids.
var protocolIDs = []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}

// serveClients starts the listener for clients that look has opened. Until the logs are known clients are put off.
func (d *Destination) serveClients(look *preflight) error {
	cl := d.cfg.Clients
	if cl == nil {
		return nil
	}
	if err := d.connectForClients(); err != nil {
		return err
	}
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port, l.SecurityProtocol = cl.Name, look.forClients.host, look.forClients.port, int16(slices.Index(protocolIDs, cl.Protocol))
	c := clientlistener.Config{
		Listener: look.clientListener, Topics: func() clientlistener.Topics { return d.readTopics() }, Brokers: d.clientsBrokers, SASL: l.SecurityProtocol >= 2, BrokerTLS: cl.BrokerTLS, Logger: d.cfg.Logger,
		MaxConnections: cl.MaxConnections, MaxConnectionsPerAddress: cl.MaxConnectionsPerAddress, Observer: clientlistener.Observer(cl.Observer),
	}
	if cl.TLS != nil {
		c.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return cl.TLS() }}
	}
	s, err := clientlistener.New(c)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.clients = s
	d.mu.Unlock()
	d.membership.clients = &l
	return nil
}

// reads is how followers are asked what clients want to know.
type reads struct {
	client *kraftclient.Client
	ends   gather[endsQuestion, replicareader.Ends]
}

// connectForClients makes the client for it: however much clients want to know, nothing that this process has to do in the cluster waits behind them.
func (d *Destination) connectForClients() (err error) {
	if d.reads.client, err = d.client.Again(); err != nil {
		return err
	}
	reader := replicareader.New(d.reads.client)
	d.reads.ends = gather[endsQuestion, replicareader.Ends]{send: func(ctx context.Context, qs []endsQuestion) ([]replicareader.Ends, error) {
		return askEnds(ctx, reader, qs)
	}, most: 10_000, bound: d.cfg.RequestTimeout}
	return nil
}

// clientsBrokers are the stock brokers that clients can be passed on to.
func (d *Destination) clientsBrokers() (all []clientlistener.Broker) {
	d.meta.look(func(im *clustermetadata.Image) {
		for _, id := range d.live(im) {
			b, _ := im.Broker(id)
			if l, ok := listenerOf(b, d.cfg.Clients.Name); ok {
				all = append(all, clientlistener.Broker{ID: id, Address: net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port)))})
			}
		}
	})
	return all
}

func listenerOf(b clustermetadata.Broker, name string) (clustermetadata.Listener, bool) {
	for _, l := range b.Listeners {
		if l.Name == name {
			return l, true
		}
	}
	return clustermetadata.Listener{}, false
}

// readTopics is the Destination as the listener for clients asks it for one answer.
type readTopics struct {
	d     *Destination
	racks func() map[int32]string // Destination.clientsRacks, found at most once
}

func (d *Destination) readTopics() *readTopics {
	return &readTopics{d, sync.OnceValue(d.clientsRacks)}
}

func (t *readTopics) ByID(id statemachine.TopicID, partition int32) (clientlistener.Partition, bool) {
	var name string
	var ok bool
	t.d.meta.look(func(im *clustermetadata.Image) { name, ok = im.TopicName(id) })
	if !ok {
		return nil, false
	}
	return t.ByName(name, partition)
}

func (t *readTopics) ByName(topic string, partition int32) (clientlistener.Partition, bool) {
	d := t.d
	tp := mirror.TopicPartition{Topic: topic, Partition: partition}
	l := d.known(tp)
	if l == nil || d.usable() != nil {
		return nil, false
	}
	// What is being opened is still ours, and a stock broker's when the metadata says so.
	if p, err := d.partition(tp); err != nil || p.TopicID != l.id || p.Leader != d.cfg.NodeID {
		return nil, false
	}
	return &readLog{l, t.racks}, true
}

// readLog is a Log as clients ask for it.
type readLog struct {
	*Log
	racks func() map[int32]string
}

func (r *readLog) EndOffsetFor(leaderEpoch, epoch int32) (foundEpoch int32, endOffset int64, code int16) {
	return r.served.EndOffsetFor(leaderEpoch, epoch)
}

// Read chooses a follower: one that lives, has what is replicated and what is asked for, and is in the consumer's rack if one of them is (KIP-392). None: REPLICA_NOT_AVAILABLE, and the consumer asks again.
func (r *readLog) Read(q clientlistener.ReadQuestion) clientlistener.ReadAnswer {
	a := r.served.Offsets(q.LeaderEpoch)
	answer := clientlistener.ReadAnswer{Code: a.Code, Replica: -1, HighWatermark: a.HighWatermark, LogStart: a.Start}
	if a.Code != 0 {
		return answer
	}
	if q.Offset < a.Start || q.Offset > a.End {
		answer.Code = kerr.OffsetOutOfRange.Code
		return answer
	}
	var ok bool
	if answer.Replica, ok = chooseFollower(r.log.Followers(), r.racks(), a.HighWatermark, q, time.Now()); !ok {
		answer.Code = kerr.ReplicaNotAvailable.Code
	}
	return answer
}

// inStepWithin is how long ago a follower may have had all that is replicated. At any one moment those that copy as fast as records come lack the newest; Kafka has 30 s (replica.lag.time.max.ms).
const inStepWithin = 10 * time.Second

// chooseFollower chooses one of the followers. racks are those of the brokers that live and that clients can reach.
func chooseFollower(followers []leaderlog.Follower, racks map[int32]string, replicated int64, q clientlistener.ReadQuestion, now time.Time) (int32, bool) {
	var ids, near []int32
	for _, f := range inStep(followers, racks, q.Offset) {
		if f.Position < replicated && now.Sub(f.InStep) > inStepWithin {
			continue
		}
		if f.LogStart > q.Offset {
			continue // its retention went further
		}
		ids = append(ids, f.Broker)
		if rack := racks[f.Broker]; rack != "" && rack == q.Rack {
			near = append(near, f.Broker)
		}
	}
	if len(near) > 0 {
		ids = near
	}
	if len(ids) == 0 {
		return -1, false
	}
	return ids[q.Spread%uint64(len(ids))], true
}

// inStep are the live followers whose copies are ours up to an offset, and that clients can reach.
func inStep(followers []leaderlog.Follower, racks map[int32]string, offset int64) []leaderlog.Follower {
	return slices.DeleteFunc(followers, func(f leaderlog.Follower) bool {
		_, reached := racks[f.Broker]
		return !f.Live || !f.Has(offset) || !reached
	})
}

// clientsRacks are the racks of the stock brokers that are alive and have the listener for clients, "" for none.
func (d *Destination) clientsRacks() map[int32]string {
	racks := map[int32]string{}
	d.meta.look(func(im *clustermetadata.Image) {
		for _, id := range d.live(im) {
			b, _ := im.Broker(id)
			if _, ok := listenerOf(b, d.cfg.Clients.Name); ok {
				racks[id] = b.Rack
			}
		}
	})
	return racks
}

func (r *readLog) inStep(offset int64) []leaderlog.Follower {
	return inStep(r.log.Followers(), r.racks(), offset)
}

// Offset answers with what is replicated: what is only here may be lost with this process, and no consumer is to begin beyond it.
func (r *readLog) Offset(ctx context.Context, q clientlistener.OffsetQuestion) clientlistener.OffsetAnswer {
	a := r.served.Offsets(q.LeaderEpoch)
	if a.Code != 0 {
		return clientlistener.NoOffset(a.Code)
	}
	found := func(offset int64, epoch int32) clientlistener.OffsetAnswer {
		return clientlistener.OffsetAnswer{Timestamp: -1, Offset: offset, LeaderEpoch: epoch}
	}
	switch q.Timestamp {
	case clientlistener.Earliest, clientlistener.EarliestLocal:
		return found(a.Start, a.StartEpoch)
	case clientlistener.LatestTiered:
		return found(-1, -1)
	case clientlistener.Latest:
		if !r.settled() {
			return clientlistener.NoOffset(kerr.OffsetNotAvailable.Code)
		}
		if !q.Committed {
			return found(a.HighWatermark, a.EndEpoch)
		}
		stable, ok := r.lastStable(ctx, a.HighWatermark)
		if !ok {
			return clientlistener.NoOffset(kerr.OffsetNotAvailable.Code)
		}
		return found(max(a.Start, min(stable, a.HighWatermark)), a.EndEpoch)
	}
	if q.Timestamp < 0 && q.Timestamp != clientlistener.MaxTimestamp {
		return clientlistener.NoOffset(kerr.UnsupportedVersion.Code)
	}
	return r.atTime(ctx, q, a.HighWatermark)
}

// settled says that as many followers have fetched as say what is replicated. A moment after a restart it is known of none, and the end would seem to be at the start (Kafka: a leader whose high watermark lags, KIP-207).
func (r *readLog) settled() bool {
	live, heard := 0, 0
	for _, f := range r.log.Followers() {
		if f.Live {
			live++
			if f.Position >= 0 {
				heard++
			}
		}
	}
	return heard > 0 && heard >= min(r.d.cfg.MinInSyncReplicas, live)
}

// lastStable asks a follower in step for its last stable offset.
func (r *readLog) lastStable(ctx context.Context, replicated int64) (int64, bool) {
	for _, f := range r.inStep(replicated) {
		ends, err := r.d.reads.ends.do(ctx, endsQuestion{f.Broker, replicareader.Target{Topic: r.tp.Topic, ID: r.id, Partition: r.tp.Partition}})
		if err == nil && ends.Err == nil && ends.LastStable >= 0 {
			return ends.LastStable, true
		}
	}
	return 0, false
}

// atTime asks a follower in step for the offset of a time. Its copy may reach beyond what is replicated; what it finds there does not count, as on a Kafka leader what lies above the high watermark.
func (r *readLog) atTime(ctx context.Context, q clientlistener.OffsetQuestion, replicated int64) clientlistener.OffsetAnswer {
	limit := replicated
	if q.Committed {
		stable, ok := r.lastStable(ctx, replicated)
		if !ok {
			return clientlistener.NoOffset(kerr.OffsetNotAvailable.Code)
		}
		limit = min(limit, stable)
	}
	for _, f := range r.inStep(replicated) {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -2
		t := kmsg.NewListOffsetsRequestTopic()
		p := kmsg.NewListOffsetsRequestTopicPartition()
		t.Topic, p.Partition, p.Timestamp = r.tp.Topic, r.tp.Partition, q.Timestamp
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		raw, err := r.d.reads.client.Broker(ctx, f.Broker, req)
		if err != nil {
			continue
		}
		resp := raw.(*kmsg.ListOffsetsResponse)
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			continue
		}
		found := resp.Topics[0].Partitions[0]
		if found.Offset < 0 || found.Offset >= limit {
			return clientlistener.NoOffset(0)
		}
		return clientlistener.OffsetAnswer{Timestamp: found.Timestamp, Offset: found.Offset, LeaderEpoch: found.LeaderEpoch}
	}
	return clientlistener.NoOffset(kerr.OffsetNotAvailable.Code)
}
