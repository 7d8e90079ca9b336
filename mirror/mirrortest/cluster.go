package mirrortest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// Cluster is a cluster in memory that speaks the Kafka protocol on ports of the loopback interface: the primary or the standby of a Pair, with which it ends. Safe for concurrent use.
type Cluster struct {
	id     string
	memory *memlog.Cluster // the logs
	kfake  *kfake.Cluster  // everything else
	fronts []*front
	inner  *kgo.Client // to kfake, past the fronts

	transactions *coordinator
	changing     sync.Mutex // while topics are made, grown or deleted

	gate   sync.RWMutex // read-locked while a client writes
	fenced bool         // clients must not write

	mu      sync.Mutex
	life    context.Context // ends with Kill and Close
	end     context.CancelFunc
	dead    bool
	closed  bool
	running sync.WaitGroup // connections and timers; Add under mu
	serving sync.WaitGroup // fronts
}

// newCluster starts a cluster without topics, with at least one broker; they are numbered from 0. It listens when newCluster returns.
func newCluster(id string, brokers int) (*Cluster, error) {
	brokers = max(brokers, 1)
	c := &Cluster{id: id, memory: memlog.New(memlog.Config{ClusterID: id, Brokers: brokers, KeepSourceIDs: true, MaxBatchBytes: mostBatchBytes})}
	c.transactions = newCoordinator(c)
	c.life, c.end = context.WithCancel(context.Background())
	var err error
	c.kfake, err = kfake.NewCluster(
		kfake.ClusterID(id), kfake.NumBrokers(brokers), kfake.DefaultNumPartitions(1), kfake.GroupMinSessionTimeout(time.Millisecond),
		kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "100"}),
		kfake.ListenFn(func(string, string) (net.Listener, error) {
			f, err := newFront(c, int32(len(c.fronts)))
			if err == nil {
				c.fronts = append(c.fronts, f)
			}
			return f, err
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("mirrortest: cluster %s: %w", id, err)
	}
	c.inner, err = kgo.NewClient(kgo.SeedBrokers(c.Addresses()...), kgo.Dialer(c.dialInner), kgo.DisableClientMetrics(), kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }))
	if err != nil {
		c.close()
		return nil, fmt.Errorf("mirrortest: cluster %s: %w", id, err)
	}
	for _, f := range c.fronts {
		c.serving.Go(f.serve)
	}
	return c, nil
}

// mostBatchBytes is Kafka's default of message.max.bytes.
const mostBatchBytes = 1048588

// dialInner connects the cluster's own client to a kfake broker.
func (c *Cluster) dialInner(ctx context.Context, _, address string) (net.Conn, error) {
	for _, f := range c.fronts {
		if f.Addr().String() == address {
			return f.inner(ctx, f.Addr())
		}
	}
	return nil, fmt.Errorf("mirrortest: no broker listens on %s", address)
}

// ID is the cluster's id.
func (c *Cluster) ID() string { return c.id }

// Addresses are host:port of every broker: what a client's bootstrap.servers takes. They stay the same over Kill and Revive.
func (c *Cluster) Addresses() []string {
	var all []string
	for _, f := range c.fronts {
		all = append(all, f.Addr().String())
	}
	return all
}

// Memory is the cluster's logs, for what no client can do: elections, lost tails, retention, recreated topics, and to look at them, also while the cluster is killed. Topics are made by clients or by
// CreateTopic, not there, and the Pair closes it.
func (c *Cluster) Memory() *memlog.Cluster { return c.memory }

// CreateTopic makes a topic for clients, as CreateTopics does.
func (c *Cluster) CreateTopic(name string, partitions int32, configs map[string]string) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	if err := c.kfake.CreateTopic(name, partitions, settings(configs)); err != nil {
		return fmt.Errorf("mirrortest: cluster %s: %w", c.id, err)
	}
	_, err := c.memory.CreateLocalTopic(memlog.LocalTopic{Name: name, Partitions: partitions, ID: c.kfake.TopicInfo(name).TopicID})
	return err
}

// settings is a map that kfake may keep.
func settings(configs map[string]string) map[string]string {
	own := make(map[string]string, len(configs))
	for k, v := range configs {
		own[k] = v
	}
	return own
}

// admit counts something that is to run in the cluster until its context ends. false: the cluster is dead. The caller calls running.Done.
func (c *Cluster) admit() (context.Context, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || c.closed {
		return nil, false
	}
	c.running.Add(1)
	return c.life, true
}

// errDead is what a killed cluster answers where it is asked in memory.
var errDead = errors.New("mirrortest: the cluster is killed")

// alive is an error while the cluster is dead.
func (c *Cluster) alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || c.closed {
		return fmt.Errorf("%w: %s", errDead, c.id)
	}
	return nil
}

// call runs f as something that the cluster does, unless it is dead: Kill ends f's context and waits for f.
func (c *Cluster) call(ctx context.Context, f func(context.Context) error) error {
	life, ok := c.admit()
	if !ok {
		return c.alive()
	}
	defer c.running.Done()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(life, func() { end(fmt.Errorf("%w: %s", errDead, c.id)) })()
	err := f(ctx)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errDead) {
		return cause
	}
	return err
}

func (c *Cluster) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Kill ends the cluster as kill -9 of every broker does: connections break, nothing is said to anybody, and whoever connects is turned away. What it holds stays, as on disks: logs, groups'
// offsets, open transactions. Members of groups are gone at once, where Kafka would wait for their sessions to end. A mirror into a cluster that is killed fails, and tries again until it is revived;
// what asks a killed cluster for something (Failover of a killed standby) fails the test. A cluster that is dead stays dead.
func (c *Cluster) Kill() {
	c.mu.Lock()
	if c.dead || c.closed {
		c.mu.Unlock()
		return
	}
	c.dead = true
	c.end()
	c.mu.Unlock()
	c.running.Wait()
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	_ = c.removeMembers(ctx) // a member that is not removed leaves when its session ends
}

// Revive brings a killed cluster back, on the same addresses.
func (c *Cluster) Revive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead && !c.closed {
		c.dead = false
		c.life, c.end = context.WithCancel(context.Background())
	}
}

// fence refuses clients' writes from here on, or takes them again. No write is under way when it returns.
func (c *Cluster) fence(fenced bool) {
	c.gate.Lock()
	defer c.gate.Unlock()
	c.fenced = fenced
}

// removeMembers makes every group empty.
func (c *Cluster) removeMembers(ctx context.Context) error {
	listed, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, c.inner)
	if err != nil {
		return err
	}
	var failed []error
	for _, g := range listed.Groups {
		info := c.kfake.GroupInfo(g.Group)
		if info == nil {
			continue
		}
		for _, m := range info.Members {
			switch g.GroupType {
			case "consumer": // KIP-848
				req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
				req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = g.Group, m.MemberID, -1, m.InstanceID
				_, err = req.RequestWith(ctx, c.inner)
			default:
				req := kmsg.NewPtrLeaveGroupRequest()
				req.Group = g.Group
				member := kmsg.NewLeaveGroupRequestMember()
				member.MemberID, member.InstanceID = m.MemberID, m.InstanceID
				req.Members = append(req.Members, member)
				_, err = req.RequestWith(ctx, c.inner)
			}
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// close ends the cluster and waits for its connections. Its ports are free afterwards.
func (c *Cluster) close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.end()
	c.mu.Unlock()
	var failed []error
	for _, f := range c.fronts {
		failed = append(failed, f.Close())
	}
	c.running.Wait()
	c.serving.Wait()
	c.transactions.close()
	if c.inner != nil {
		c.inner.Close()
	}
	if c.kfake != nil {
		c.kfake.Close()
	}
	return errors.Join(append(failed, c.memory.Close())...)
}
