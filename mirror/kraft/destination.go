package kraft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clientlistener"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kafkametadata"
	"github.com/clustermirror/clustermirror/internal/kraftclient"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/internal/replicareader"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
	"github.com/clustermirror/clustermirror/mirror"
)

// Destination is a cluster that this process has joined. Safe for concurrent use.
type Destination struct {
	cfg        Config
	client     *kraftclient.Client
	beats      *kraftclient.Client // heartbeats only
	aside      *kraftclient.Client // what metadataClient asks: a coordinator that waits for a dead replica answers nothing else on that connection
	meta       *metadata
	membership *membership
	requests   *requests
	ends       gather[endsQuestion, replicareader.Ends]
	alive      gather[int32, error] // asks brokers by id whether they answer
	reader     *replicareader.Reader
	server     *replicaserver.Server
	clients    *clientlistener.Server // nil: mirrored topics are dark
	reads      reads                  // what clients have this process ask
	remembered *remembered
	producers  *producerIDs
	identity   *identity
	memory     *leaderlog.Memory
	peers      peers
	barrier    barrier
	works      works
	looking    chan struct{} // how many partitions' epochs are looked for at a time
	settings   topicSettings
	limits     topicLimits
	cluster    string
	lookAfter  time.Duration // see the constant
	goneEpoch  atomic.Int64  // of the registration whose process was found to be gone: see gone

	metadataClient *kafkametadata.Client // groups, topic settings and access rules

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	logs   map[mirror.TopicPartition]*Log
	closed bool
}

var (
	_ mirror.Destination    = (*Destination)(nil)
	_ mirror.CopyReadTeller = (*Destination)(nil)
)

// Join registers this process as a broker of the cluster and returns when the controllers do not fence it and every partition that it leads is known again. Nothing of the cluster
// is changed but the registration: partitions come by CreateTopic and by Log.CloseForWrites. What Preflight finds to be impossible is an error, and then nothing was registered.
func Join(ctx context.Context, cfg Config) (*Destination, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := newDestination(cfg)
	if err := d.join(ctx); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

func newDestination(cfg Config) *Destination {
	d := &Destination{cfg: cfg, logs: map[mirror.TopicPartition]*Log{}, memory: leaderlog.NewMemory(cfg.Window), looking: make(chan struct{}, 64), lookAfter: lookAfter}
	d.peers.named = cfg.Peers
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// connect begins to follow the cluster's metadata. The cluster does not notice.
func (d *Destination) connect() (err error) {
	client := kraftclient.Config{
		Controllers: d.cfg.Controllers, ControllerOptions: d.cfg.ControllerOptions, BrokerOptions: d.cfg.BrokerOptions, Address: d.address, AttemptBound: d.cfg.RequestTimeout / 2,
		Intercept: d.guarded,
	}
	if d.client, err = kraftclient.New(client); err != nil {
		return err
	}
	if d.beats, err = kraftclient.New(client); err != nil {
		return err
	}
	if d.aside, err = kraftclient.New(client); err != nil {
		return err
	}
	d.meta = newMetadata(d.client, d.beats, len(d.cfg.Controllers), d.cfg.RequestTimeout, d.follow)
	d.reader = replicareader.New(d.client)
	d.metadataClient = kafkametadata.New(brokers{d}, d.cfg.RequestTimeout/3) // two brokers that do not answer leave time for a third
	d.requests = newRequests(&d.cfg, d.client, func() int64 { return d.membership.brokerEpoch() })
	d.ends = gather[endsQuestion, replicareader.Ends]{send: d.askEnds, most: 10_000, bound: d.cfg.RequestTimeout}
	d.limits.asks = gather[string, limitAnswer]{send: d.askLimits, most: mostTopics, bound: 3 * d.cfg.RequestTimeout}
	d.alive = gather[int32, error]{send: d.askAlive, most: 10_000, bound: answerWait}
	d.remembered = newRemembered(d.cfg.Remember, 3*d.cfg.RequestTimeout)
	d.producers = newProducerIDs(d)
	d.membership = newMembership(&d.cfg, d.beats, d.meta, d.notice)
	d.membership.onLost = d.giveUp
	d.remembered.may = d.membership.inSession
	// Without the metadata nobody knows any more what this process leads.
	d.meta.onDead = func(err error) {
		d.membership.lose(Trouble, fmt.Errorf("kraft: broker %d leads nothing any more: %w", d.cfg.NodeID, err))
	}
	d.spawn(d.meta.run)
	return nil
}

func (d *Destination) join(ctx context.Context) (err error) {
	if d.identity, err = openIdentity(d.cfg.Folder); err != nil {
		return err
	}
	if err := d.connect(); err != nil {
		return err
	}
	if err := d.listen(ctx); err != nil {
		return err
	}
	before, err := d.register(ctx)
	if err != nil {
		return err
	}
	d.spawn(d.membership.run)
	if err := d.meta.wait(ctx, "this process's registration in the metadata", func(im *clustermetadata.Image) bool {
		b, ok := im.Broker(d.cfg.NodeID)
		return ok && b.Epoch == d.membership.brokerEpoch() && !b.Fenced
	}); err != nil {
		return err
	}
	d.lookAtRegistration()
	if err := d.regain(ctx); err != nil {
		return err
	}
	if d.moved(before) {
		if err := d.tellFollowers(ctx); err != nil {
			return err
		}
	}
	d.spawn(d.forgetEarlierResignation)
	d.spawn(d.tidyUp)
	d.spawn(d.producers.keepSettled)
	d.spawn(d.watchArrivals)
	at := fmt.Sprintf("broker %d of cluster %s, reached by its brokers at %s", d.cfg.NodeID, d.cluster, net.JoinHostPort(d.membership.host, strconv.Itoa(int(d.membership.port))))
	if l := d.membership.clients; l != nil {
		at += ", by clients at " + net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port)))
	}
	d.notice(Event{Kind: Joined, Text: at})
	return nil
}

// moved says whether this process came back within its session at another address than it had. Then it leads what it led, under the same leader epochs.
func (d *Destination) moved(before clustermetadata.Broker) bool {
	m := d.membership
	return before.ID == d.cfg.NodeID && !before.Fenced && before.Incarnation == m.incarnation &&
		!slices.ContainsFunc(before.Listeners, func(l clustermetadata.Listener) bool {
			return l.Name == m.listener && l.Host == m.host && l.Port == m.port
		})
}

// tellFollowers makes the followers look where this process is. They stay with the address at which they found a leader until they hear of another leader epoch (Kafka:
// AbstractFetcherManager.addFetcherForPartitions); a changed registration alone tells them nothing.
func (d *Destination) tellFollowers(ctx context.Context) error {
	led := map[mirror.TopicPartition]int32{}
	d.meta.look(func(im *clustermetadata.Image) {
		for _, p := range im.PartitionsOf(d.cfg.NodeID) {
			if p.Leader == d.cfg.NodeID {
				led[mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p.LeaderEpoch + 1
			}
		}
	})
	if len(led) == 0 {
		return nil
	}
	if _, err := d.RaiseLeaderEpochs(ctx, led); err != nil {
		d.notice(Event{Kind: Trouble, Err: err, Text: "this process came back at another address, and brokers go on asking the old one until leader epochs are raised; start it again when the cause is gone"})
	}
	return ctx.Err()
}

// askCordons asks whether the controllers know cordoned log directories.
func (d *Destination) askCordons(ctx context.Context) error {
	versions, err := d.client.Controller(ctx, versionsRequest())
	if err == nil {
		err = kerr.ErrorForCode(versions.(*kmsg.ApiVersionsResponse).ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("asking the controller for its versions: %w", err)
	}
	for _, k := range versions.(*kmsg.ApiVersionsResponse).ApiKeys {
		if k.ApiKey == int16(kmsg.BrokerHeartbeat) {
			d.membership.cordon = k.MaxVersion >= 2
		}
	}
	return nil
}

// listen starts the server for the brokers, after Preflight had nothing against it. Every log is held until regain knows it.
func (d *Destination) listen(ctx context.Context) (err error) {
	l, advertised, finding := d.bind()
	look := &preflight{d: d, listener: l, advertised: advertised, patient: true}
	if finding != nil {
		look.add(*finding)
	}
	look.openClients()
	look.look(ctx)
	for _, f := range look.report.Of(Warns) {
		if f.Kind == AboutNodeID { // whoever is there is waited for, and told of then
			continue
		}
		d.notice(Event{Kind: Trouble, Text: f.Error()})
	}
	if err = cmp.Or(look.report.Err(), ctx.Err()); err != nil {
		if l != nil {
			l.Close()
		}
		look.closeClients()
		return err
	}
	d.cluster = look.report.ClusterID
	m := d.membership
	m.host, m.port = advertised.host, advertised.port
	d.meta.look(func(im *clustermetadata.Image) { m.listener, m.protocol, err = d.brokerListener(im) })
	if err == nil {
		var server *replicaserver.Server
		server, err = d.serve(l)
		d.mu.Lock()
		d.server = server
		d.mu.Unlock()
	}
	if err == nil {
		err = d.serveClients(look)
	}
	if err != nil {
		l.Close()
		look.closeClients()
	}
	return err
}

// brokerListener is the name and security protocol of the listener that brokers use among themselves.
func (d *Destination) brokerListener(im *clustermetadata.Image) (string, int16, error) {
	var stock []clustermetadata.Broker
	for _, b := range im.Brokers() {
		if b.ID != d.cfg.NodeID && !d.peers.mirror(im, b.ID) {
			stock = append(stock, b)
		}
	}
	return d.cfg.interBrokerListener(stock)
}

// address is where a broker's inter-broker listener is.
func (d *Destination) address(broker int32) (string, bool) {
	name := d.membership.listener
	var address string
	d.meta.look(func(im *clustermetadata.Image) {
		b, ok := im.Broker(broker)
		if !ok {
			return
		}
		if name == "" {
			name, _, _ = d.brokerListener(im)
		}
		for _, l := range b.Listeners {
			if l.Name == name {
				address = net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port)))
			}
		}
	})
	return address, address != ""
}

// askClusterID asks a broker for the cluster's id; the controllers tell it only to who may alter the cluster.
func (d *Destination) askClusterID(ctx context.Context, broker int32) (string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := d.client.Broker(ctx, broker, req)
	if err != nil {
		return "", err
	}
	id := resp.(*kmsg.MetadataResponse).ClusterID
	if id == nil {
		return "", fmt.Errorf("broker %d does not tell its cluster's id", broker)
	}
	return *id, nil
}

// liveBrokers are the stock brokers that are not fenced, in order.
func (d *Destination) liveBrokers() []int32 {
	var ids []int32
	d.meta.look(func(im *clustermetadata.Image) { ids = d.live(im) })
	return ids
}

func (d *Destination) live(im *clustermetadata.Image) []int32 {
	var ids []int32
	for _, b := range im.Brokers() {
		if b.ID != d.cfg.NodeID && !d.peers.mirror(im, b.ID) && !b.Fenced && !b.InControlledShutdown {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

func (d *Destination) spawn(f func(context.Context)) {
	d.wg.Go(func() { f(d.ctx) })
}

func (d *Destination) notice(e Event) {
	level := d.cfg.Logger.Info
	switch e.Kind {
	case Joined, HandedOver, TakenOver, StandingBy:
	default:
		level = d.cfg.Logger.Warn
	}
	var attributes []any // those that there are: whoever greps for errors finds errors
	if e.Partition.Topic != "" {
		attributes = append(attributes, "topic", e.Partition.Topic, "partition", e.Partition.Partition)
	}
	if e.Text != "" {
		attributes = append(attributes, "text", e.Text)
	}
	if e.Err != nil {
		attributes = append(attributes, "error", e.Err)
	}
	level("kraft: "+e.Kind.String(), attributes...)
	if e.Err != nil && !strings.Contains(e.Text, e.Err.Error()) {
		e.Text += ": " + e.Err.Error()
	}
	d.cfg.Notice(e)
}

// errorf names the partition.
func (d *Destination) errorf(tp mirror.TopicPartition, format string, args ...any) error {
	return fmt.Errorf("kraft: %s-%d: "+format, append([]any{tp.Topic, tp.Partition}, args...)...)
}

// ErrClosed is what calls that need the cluster return when they begin after Close. Those that are under way then end too, with what cut them off: mirror.ErrFenced, or a context's error.
var ErrClosed = errors.New("kraft: destination is closed")

// usable is why nothing can be done any more, nil if it can.
func (d *Destination) usable() error {
	if err := d.ended(); err != nil {
		return err
	}
	return d.membership.registered()
}

// ended is ErrClosed after Close, nil before.
func (d *Destination) ended() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	return nil
}

// partition is what the metadata says of one.
func (d *Destination) partition(tp mirror.TopicPartition) (p clustermetadata.Partition, err error) {
	ok := false
	d.meta.look(func(im *clustermetadata.Image) { p, ok = im.Partition(tp.Topic, tp.Partition) })
	if !ok {
		return p, d.errorf(tp, "%w at the destination", mirror.ErrUnknownTopic)
	}
	return p, nil
}

// partitionOf is what the metadata says of a topic's partition, and an error if another topic has its name now. Without an id it is whichever topic has it.
func (d *Destination) partitionOf(tp mirror.TopicPartition, id mirror.TopicID) (clustermetadata.Partition, error) {
	p, err := d.partition(tp)
	if err == nil && id != (mirror.TopicID{}) && id != p.TopicID {
		err = d.errorf(tp, "%w at the destination: it was deleted, and another topic has its name", mirror.ErrUnknownTopic)
	}
	return p, err
}

// ClusterID is the cluster's id.
func (d *Destination) ClusterID(context.Context) (string, error) { return d.cluster, nil }

// CopiesAreRead says whether clients can read topics while they are mirrored (Config.Clients).
func (d *Destination) CopiesAreRead() bool { return d.cfg.Clients != nil }

// Topic looks a topic up in the metadata: looking never creates one (F-31).
func (d *Destination) Topic(ctx context.Context, name string) (mirror.Topic, error) {
	if err := d.usable(); err != nil {
		return mirror.Topic{}, err
	}
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	if err := d.meta.caughtUp(bounded); err != nil {
		return mirror.Topic{}, err
	}
	t, ok := d.topic(name)
	if !ok {
		return t, fmt.Errorf("kraft: topic %s: %w at the destination", name, mirror.ErrUnknownTopic)
	}
	return t, nil
}

func (d *Destination) topic(name string) (t mirror.Topic, ok bool) {
	d.meta.look(func(im *clustermetadata.Image) {
		var n int
		t.Name = name
		t.ID, n, ok = im.Topic(name)
		t.Partitions = int32(n)
	})
	return t, ok
}

func (d *Destination) all() []*Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	logs := make([]*Log, 0, len(d.logs))
	for _, l := range d.logs {
		logs = append(logs, l)
	}
	return logs
}

// follow brings the logs in line with what the metadata shows.
func (d *Destination) follow(changes []clustermetadata.Change) {
	// First of all, whatever else they say of this node id: it may be another process's by now.
	if slices.ContainsFunc(changes, func(c clustermetadata.Change) bool {
		return c.Kind == clustermetadata.BrokerChanged && c.Broker == d.cfg.NodeID
	}) {
		d.lookAtRegistration()
	}
	for _, c := range changes {
		switch c.Kind {
		case clustermetadata.PartitionChanged:
			p := c.After
			if p.Topic == "" {
				p = c.Before
			}
			l := d.known(mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition})
			if c.Before.Topic == "" && slices.Contains(c.After.Replicas, d.cfg.NodeID) && d.membership.brokerEpoch() >= 0 {
				d.foreignPlacement(c.After)
				continue
			}
			if l == nil && c.After.Leader == d.cfg.NodeID && d.membership.brokerEpoch() >= 0 {
				l = d.log(mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition})
			}
			if l != nil {
				l.metadataChanged(c)
			}
		case clustermetadata.ConfigChanged:
			switch {
			case c.Resource == clustermetadata.TopicResource:
				d.limits.forget(c.Name)
			default:
				d.limits.forget("")
			}
			if c.Resource == clustermetadata.TopicResource && (c.Key == uncleanElection || c.Key == minInSync) {
				d.holdSoon(c.Name)
			}
		case clustermetadata.BrokerChanged:
			d.producers.look()
			for _, l := range d.all() {
				l.followersChanged()
			}
		}
	}
}

func (d *Destination) known(tp mirror.TopicPartition) *Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.logs[tp]
}

// unsafeTopic is why nothing may be appended to a topic now, "" if it may.
func (d *Destination) unsafeTopic(topic string) (reason string) {
	d.meta.look(func(im *clustermetadata.Image) { reason = unsafeConfig(im, topic) })
	return reason
}

// Close ends everything that this process does in the cluster, and waits for nobody. The registration stays: the controllers fence it when its session ends, the partitions that it
// leads have no leader then, and a process that comes under the same node id goes on with them. See Resign and Leave.
func (d *Destination) Close() error {
	if d.halt() {
		d.letGo()
	}
	return nil
}

// letGo ends what keeps other processes out of this one's folder.
func (d *Destination) letGo() {
	if d.identity != nil {
		d.identity.close()
	}
}

// halt ends everything but the lock on the folder, the first time.
func (d *Destination) halt() bool {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return false
	}
	d.closed = true
	d.mu.Unlock()
	d.stop()
	for _, l := range d.all() {
		l.log.Resign()
	}
	if d.clients != nil {
		_ = d.clients.Close()
	}
	if d.server != nil {
		ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
		_ = d.server.Close(ctx)
		stop()
	}
	for _, c := range []*kraftclient.Client{d.client, d.beats, d.aside, d.reads.client} {
		if c != nil {
			c.Close()
		}
	}
	if d.producers != nil {
		d.producers.close()
	}
	d.wg.Wait()
	return true
}

// Leave ends the registration: it is for a process that leads nothing any more. While it leads something it refuses and names it. What stays in the cluster is in Remains.Stays.
func (d *Destination) Leave(ctx context.Context) error {
	if err := d.usable(); err != nil {
		return err
	}
	if err := d.meta.caughtUp(ctx); err != nil {
		return err
	}
	var held []string
	d.meta.look(func(im *clustermetadata.Image) {
		for _, p := range im.PartitionsOf(d.cfg.NodeID) {
			held = append(held, fmt.Sprintf("%s-%d", p.Topic, p.Partition))
		}
	})
	if len(held) > 0 {
		return fmt.Errorf("kraft: broker %d still has %d partitions (%s); stop or delete their topics first", d.cfg.NodeID, len(held), shortList(held))
	}
	tidying, done := d.cfg.bounded(ctx)
	d.tidyOnce(tidying)
	done()
	left, err := d.leftBehind(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("kraft: broker %d has still to put back what it changed: %s; it tries again every few seconds", d.cfg.NodeID, shortList(left))
	}
	if err := d.forgetResignation(ctx, math.MaxInt64); err != nil {
		return err
	}
	leaving := func(is bool) {
		d.membership.mu.Lock()
		defer d.membership.mu.Unlock()
		d.membership.leaving = is
	}
	leaving(true)
	gone := false
	defer func() { leaving(gone) }()
	if err := d.unregister(ctx); err != nil {
		return err
	}
	gone = true
	return errors.Join(d.identity.forget(), d.Close())
}

// leftBehind names what is remembered of topics that no mirror process has any more, and was not put back.
func (d *Destination) leftBehind(ctx context.Context) ([]string, error) {
	d.remembered.lookAnew()
	all, err := d.remembered.all(ctx)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, topic := range slices.Sorted(maps.Keys(all)) {
		m := all[topic]
		t, ok := d.topic(topic)
		if !ok || t.ID != m.TopicID || len(d.otherTakers(m)) > 0 {
			continue
		}
		mirrored := false
		for n := range t.Partitions {
			p, err := d.partition(mirror.TopicPartition{Topic: topic, Partition: n})
			mirrored = mirrored || err == nil && d.mirrored(p.Replicas)
		}
		if m.Configs != nil && !mirrored {
			left = append(left, "settings of topic "+topic)
		}
		for _, n := range slices.Sorted(maps.Keys(m.LeftOut)) {
			if p, err := d.partition(mirror.TopicPartition{Topic: topic, Partition: n}); err == nil && !d.mirrored(p.Replicas) {
				left = append(left, fmt.Sprintf("replicas %v of %s-%d", m.LeftOut[n], topic, n))
			}
		}
	}
	return left, nil
}

func shortList(names []string) string {
	const most = 5
	s := ""
	for i, n := range names {
		if i == most {
			return s + fmt.Sprintf(" and %d more", len(names)-most)
		}
		if i > 0 {
			s += ", "
		}
		s += n
	}
	return s
}
