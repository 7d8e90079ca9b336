package memlog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// ErrClosed is what everything returns after Close.
var ErrClosed = errors.New("memlog: cluster is closed")

// Config says what a cluster is like. Zero values are the defaults in brackets.
type Config struct {
	// ClusterID of the cluster [memlog- and a running number].
	ClusterID string
	// Brokers is their number [1]; their ids are 1, 2, … Partitions are spread over them.
	Brokers int
	// Replicas of each partition, the leader included [1]. The others are simulated: each follows at once unless it is held back.
	Replicas int
	// MinInSync is the number of live replicas below which the high watermark stands still [1].
	MinInSync int
	// KeepSourceIDs makes CreateTopic take over TopicSpec.SourceID; stock Kafka cannot, and gives the copy an id of its own [false].
	KeepSourceIDs bool
	// MaxBatchBytes is the largest batch that is taken [any].
	MaxBatchBytes int
	// Discard makes logs check order and epochs of what is appended and keep offsets and epochs, but not the bytes: for measuring. Such a log cannot be read,
	// has no producer state, and can be cut at or below its start only.
	Discard bool
	// CutReplies fills a fetch reply up to its limit with the beginning of the next batch, as a broker does [whole batches only].
	CutReplies bool
	// NoShareGroups makes the cluster one from before KIP-932: share groups are mirror.ErrUnsupported.
	NoShareGroups bool
	// Now is the clock for timestamps of records and markers [time.Now].
	Now func() time.Time
}

// Cluster is one cluster in memory. Safe for concurrent use.
type Cluster struct {
	cfg   Config
	store statemachine.MemoryStore
	wants mirror.Control
	hooks atomic.Pointer[Hooks]
	done  chan struct{} // closed by Close

	maxBatch atomic.Int64
	quota    quota

	mu           sync.Mutex // taken after a log's, never before it
	topics       map[string]*topic
	generations  map[string]int // topics ever made under a name
	stopped      map[int32]bool // brokers
	unreachable  bool           // as a source
	groups       map[string]*group
	refused      map[string]string // settings, and the words
	defaults     map[string]string // settings of topics that say nothing themselves
	authorizer   bool
	rules        map[mirror.ACL]struct{}
	denied       map[mirror.Right]struct{}
	fetchers     map[*fetcher]struct{}
	nextProducer int64
	closed       bool
}

var (
	_ mirror.Destination           = (*Cluster)(nil)
	_ mirror.Source                = (*Cluster)(nil)
	_ mirror.LastMirrorEpochReader = (*Cluster)(nil)
	_ mirror.LocalStartReader      = (*Cluster)(nil)
	_ mirror.LogEndReader          = (*Cluster)(nil)
	_ mirror.GroupWriter           = (*Cluster)(nil)
	_ mirror.TopicConfigWriter     = (*Cluster)(nil)
	_ mirror.ACLWriter             = (*Cluster)(nil)
	_ mirror.RightsChecker         = (*Cluster)(nil)
	_ mirror.Log                   = (*partitionLog)(nil)
	_ mirror.ProducerIDSettler     = (*partitionLog)(nil)
	_ mirror.CutBounder            = (*partitionLog)(nil)
)

type topic struct {
	name    string
	id      mirror.TopicID
	local   bool // made for clients: its logs are open
	configs map[string]string
	logs    []*partitionLog
}

var unnamed atomic.Int64

// New returns a cluster without topics.
func New(cfg Config) *Cluster {
	if cfg.ClusterID == "" {
		cfg.ClusterID = fmt.Sprintf("memlog-%d", unnamed.Add(1))
	}
	cfg.Brokers, cfg.Replicas, cfg.MinInSync = max(cfg.Brokers, 1), max(cfg.Replicas, 1), max(cfg.MinInSync, 1)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Cluster{
		cfg: cfg, done: make(chan struct{}), topics: map[string]*topic{}, generations: map[string]int{}, stopped: map[int32]bool{},
		fetchers: map[*fetcher]struct{}{}, wants: mirror.NewMemoryControl(), groups: map[string]*group{}, refused: map[string]string{}, defaults: map[string]string{}, rules: map[mirror.ACL]struct{}{},
	}
	c.maxBatch.Store(int64(cfg.MaxBatchBytes))
	return c
}

// StateStore is where a mirror into this cluster keeps its states. The cluster answers LastMirrorEpochs and MirrorsOf from it.
func (c *Cluster) StateStore() statemachine.StateStore { return &c.store }

// Control is where the desired state of mirrors into this cluster may be kept, and what they report. MirrorsOf tells from it where their topics come from.
func (c *Cluster) Control() mirror.Control { return c.wants }

// Close ends every call under way. The cluster is of no use afterwards.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		close(c.done)
	}
	return nil
}

// SetMaxBatchBytes changes Config.MaxBatchBytes; 0 is no limit.
func (c *Cluster) SetMaxBatchBytes(n int) { c.maxBatch.Store(int64(n)) }

// LocalTopic asks for a topic that clients write to.
type LocalTopic struct {
	Name       string
	Partitions int32          // [1]
	ID         mirror.TopicID // zero: one is made up
	Configs    map[string]string
}

// CreateLocalTopic makes a topic whose logs are open for clients: what a source has. ErrTopicExists if there is one of that name.
func (c *Cluster) CreateLocalTopic(spec LocalTopic) (mirror.Topic, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.create(spec.Name, max(spec.Partitions, 1), spec.ID, spec.Configs, true)
}

// create makes a topic. Under mu.
func (c *Cluster) create(name string, partitions int32, id mirror.TopicID, configs map[string]string, local bool) (mirror.Topic, error) {
	if c.closed {
		return mirror.Topic{}, ErrClosed
	}
	if t := c.topics[name]; t != nil {
		return t.describe(), fmt.Errorf("memlog: %w: %s", mirror.ErrTopicExists, name)
	}
	if name == "" || partitions < 1 {
		return mirror.Topic{}, fmt.Errorf("memlog: a topic needs a name and at least one partition, not %q with %d", name, partitions)
	}
	if err := c.takes(name, configs); err != nil {
		return mirror.Topic{}, err
	}
	c.generations[name]++
	if id == (mirror.TopicID{}) {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", c.cfg.ClusterID, name, c.generations[name]))
		copy(id[:], sum[:])
	}
	t := &topic{name: name, id: id, local: local, configs: maps.Clone(configs)}
	c.topics[name] = t
	c.grow(t, partitions)
	return t.describe(), nil
}

// grow adds logs up to a count. Under mu.
func (c *Cluster) grow(t *topic, partitions int32) {
	for p := int32(len(t.logs)); p < partitions; p++ {
		t.logs = append(t.logs, newLog(c, mirror.TopicPartition{Topic: t.name, Partition: p}, t, c.broker(p)))
	}
}

// broker is the broker that leads the p-th partition of a topic at first: the first live one from its place on. −1: none lives. Under mu.
func (c *Cluster) broker(p int32) int32 {
	n := int32(c.cfg.Brokers)
	for i := range n {
		if id := (p+i)%n + 1; !c.stopped[id] {
			return id
		}
	}
	return -1
}

func (t *topic) describe() mirror.Topic {
	return mirror.Topic{
		Name: t.name, ID: t.id, Partitions: int32(len(t.logs)), Internal: t.name == "__consumer_offsets" || t.name == "__transaction_state",
	}
}

// DeleteTopic removes a topic and what groups keep of it. Its logs end: what is under way on them returns ErrUnknownTopic.
func (c *Cluster) DeleteTopic(name string) error {
	c.mu.Lock()
	t := c.topics[name]
	delete(c.topics, name)
	c.forgetTopic(name)
	c.mu.Unlock()
	if t == nil {
		return unknownTopic(name)
	}
	for _, l := range t.logs {
		l.mu.Lock()
		l.deleted = true
		l.notify()
		l.mu.Unlock()
	}
	return nil
}

// RecreateTopic deletes a topic and makes an empty one of the same name with another id; clients may write to it.
func (c *Cluster) RecreateTopic(name string, partitions int32) (mirror.Topic, error) {
	if err := c.DeleteTopic(name); err != nil {
		return mirror.Topic{}, err
	}
	return c.CreateLocalTopic(LocalTopic{Name: name, Partitions: partitions})
}

func unknownTopic(name string) error {
	return fmt.Errorf("memlog: %w: %s", mirror.ErrUnknownTopic, name)
}

// log finds a partition's log.
func (c *Cluster) log(tp mirror.TopicPartition) (*partitionLog, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	t := c.topics[tp.Topic]
	if t == nil {
		return nil, unknownTopic(tp.Topic)
	}
	if tp.Partition < 0 || int(tp.Partition) >= len(t.logs) {
		return nil, fmt.Errorf("memlog: %w: %s has no partition %d", mirror.ErrUnknownTopic, tp.Topic, tp.Partition)
	}
	return t.logs[tp.Partition], nil
}

// sorted returns partitions in order of topic and number.
func sorted[V any](m map[mirror.TopicPartition]V) []mirror.TopicPartition {
	return slices.SortedFunc(maps.Keys(m), func(a, b mirror.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// Call is one call that a hook sees.
type Call struct {
	// Operation is Log., Destination., Source., Fetcher. or Client. and the method's name: Log.Append, Source.Offsets, Fetcher.Fetch, Client.Produce …
	// What a mirror reads at both sides is Metadata.Groups, Metadata.GroupOffsets, Metadata.TopicConfigs, Metadata.ACLs and Metadata.MissingRights.
	Operation string
	// Partition is set when the call is about one partition.
	Partition mirror.TopicPartition
	// Broker is set for OpenFetcher and Fetch.
	Broker int32
	// Group is set for WriteGroupOffsets.
	Group string
}

// Hooks are called around calls. They may wait (until ctx ends at the latest) and may call the Cluster; they are called from many goroutines. Nil ones do nothing.
type Hooks struct {
	// Before is called in front of a call. With an error the call has no effect and returns the error.
	Before func(ctx context.Context, call Call) error
	// After is called when the call has had its effect. An error takes the place of success: done, but not known to be.
	After func(ctx context.Context, call Call) error
	// Reply may change what a Fetch returns: a broken byte, a missing partition. The slices are the caller's.
	Reply func(broker int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition
}

// SetHooks sets the hooks from here on.
func (c *Cluster) SetHooks(h Hooks) { c.hooks.Store(&h) }

// call runs f between the hooks.
func (c *Cluster) call(ctx context.Context, call Call, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-c.done:
		return ErrClosed
	default:
	}
	h := c.hooks.Load()
	if h != nil && h.Before != nil {
		if err := h.Before(ctx, call); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	if h != nil && h.After != nil {
		return h.After(ctx, call)
	}
	return nil
}
