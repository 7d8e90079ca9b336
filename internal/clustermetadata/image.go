package clustermetadata

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Listener is where a broker or a controller is reached.
type Listener struct {
	Name             string // such as "INTERNAL"
	Host             string
	Port             uint16
	SecurityProtocol int16 // Kafka's ids: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
}

// Broker is one registered broker. Its slices and its map are never changed: a change makes a new Broker. Whoever gets one must not change them either.
type Broker struct {
	ID                   int32
	Epoch                int64
	Incarnation          [16]byte
	Listeners            []Listener
	Features             map[string][2]int16 // lowest and highest level it supports
	Rack                 string              // "" for none
	LogDirs              [][16]byte
	CordonedLogDirs      [][16]byte // none also for a broker that has not said yet
	Fenced               bool
	InControlledShutdown bool
}

func (b Broker) equal(o Broker) bool {
	return b.ID == o.ID && b.Epoch == o.Epoch && b.Incarnation == o.Incarnation && b.Rack == o.Rack && b.Fenced == o.Fenced && b.InControlledShutdown == o.InControlledShutdown &&
		slices.Equal(b.Listeners, o.Listeners) && maps.Equal(b.Features, o.Features) && slices.Equal(b.LogDirs, o.LogDirs) && slices.Equal(b.CordonedLogDirs, o.CordonedLogDirs)
}

// Partition is one partition. Its slices are never changed: a change makes a new Partition. Whoever gets one must not change them either.
type Partition struct {
	Topic          string
	TopicID        statemachine.TopicID
	Partition      int32
	Replicas       []int32
	ISR            []int32
	Removing       []int32
	Adding         []int32
	Leader         int32 // -1 none
	LeaderEpoch    int32
	PartitionEpoch int32
	Recovering     bool // leader recovery state RECOVERING: elected uncleanly
	ELR            []int32
	LastKnownELR   []int32
	Directories    [][16]byte // of the replicas, in their order; none where the cluster's metadata.version is older than KIP-858
}

func (p Partition) equal(o Partition) bool {
	return p.Topic == o.Topic && p.TopicID == o.TopicID && p.Partition == o.Partition && p.Leader == o.Leader && p.LeaderEpoch == o.LeaderEpoch &&
		p.PartitionEpoch == o.PartitionEpoch && p.Recovering == o.Recovering && slices.Equal(p.Replicas, o.Replicas) && slices.Equal(p.ISR, o.ISR) &&
		slices.Equal(p.Removing, o.Removing) && slices.Equal(p.Adding, o.Adding) && slices.Equal(p.ELR, o.ELR) && slices.Equal(p.LastKnownELR, o.LastKnownELR) &&
		slices.Equal(p.Directories, o.Directories)
}

// ResourceType is what a config belongs to (Kafka: ConfigResource.Type).
type ResourceType int8

// The resource types that configs are kept for here.
const (
	TopicResource  ResourceType = 2
	BrokerResource ResourceType = 4 // name "" is the cluster-wide default
)

// ScramCredential is what the cluster stores of a SCRAM user (KIP-554, KIP-900). Its slices are never changed.
type ScramCredential struct {
	Salt, StoredKey, ServerKey []byte
	Iterations                 int32
}

// String tells nothing that must stay secret.
func (c ScramCredential) String() string {
	return fmt.Sprintf("SCRAM credential (%d iterations)", c.Iterations)
}

// GoString is String.
func (c ScramCredential) GoString() string { return c.String() }

func (c ScramCredential) equal(o ScramCredential) bool {
	return c.Iterations == o.Iterations && slices.Equal(c.Salt, o.Salt) && slices.Equal(c.StoredKey, o.StoredKey) && slices.Equal(c.ServerKey, o.ServerKey)
}

// Controller is one controller of the quorum, as it registered (KIP-919).
type Controller struct {
	ID        int32
	Listeners []Listener // never changed
}

func (c Controller) equal(o Controller) bool {
	return c.ID == o.ID && slices.Equal(c.Listeners, o.Listeners)
}

// Change is one thing that a record changed, in the order of the records. It never holds a config's value or a credential.
type Change struct {
	Kind   ChangeKind
	Offset int64 // of the record in the metadata log; of a snapshot's end for what a snapshot changed

	Before, After Partition    // PartitionChanged; Before.Topic is "" for a new one, After.Topic for one that is gone
	Broker        int32        // BrokerChanged, ControllerChanged: the node's id
	Resource      ResourceType // ConfigChanged
	Name          string       // ConfigChanged: the resource's name; FeatureChanged: the feature's; TopicCreated, TopicDeleted; ScramChanged: the user's
	Key           string       // ConfigChanged
	Mechanism     int8         // ScramChanged: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
	TopicID       statemachine.TopicID
}

// ChangeKind says what a Change is about.
type ChangeKind uint8

// The kinds.
const (
	TopicCreated ChangeKind = iota // its partitions follow
	TopicDeleted                   // its partitions and configs came before
	PartitionChanged
	BrokerChanged // registered, unregistered, fenced, unfenced, cordoned …
	ConfigChanged
	FeatureChanged
	ProducerIDsChanged
	ScramChanged
	ControllerChanged // registered or unregistered
)

// Image is a cluster's metadata as of one offset of the metadata log. It is not safe for concurrent use. The values that it returns stay valid and are never changed.
type Image struct {
	next        int64
	epoch       int32
	failed      error        // of the record that could not be applied
	transaction *transaction // the one that is open

	topics      map[statemachine.TopicID]*topic
	ids         map[string]statemachine.TopicID
	hosted      map[int32]map[place]bool // by broker: the partitions that it is a replica of
	brokers     map[int32]Broker
	controllers map[int32]Controller
	configs     map[resource]map[string]string
	features    map[string]int16
	scram       map[scramUser]ScramCredential
	producerID  int64
}

type topic struct {
	name       string
	id         statemachine.TopicID
	partitions map[int32]Partition
}

type place struct {
	topic     statemachine.TopicID
	partition int32
}

type resource struct {
	kind ResourceType
	name string
}

type scramUser struct {
	mechanism int8
	name      string
}

// New makes the image of an empty metadata log: the first batch to apply is the one at offset 0.
func New() *Image {
	return &Image{
		topics:      map[statemachine.TopicID]*topic{},
		ids:         map[string]statemachine.TopicID{},
		hosted:      map[int32]map[place]bool{},
		brokers:     map[int32]Broker{},
		controllers: map[int32]Controller{},
		configs:     map[resource]map[string]string{},
		features:    map[string]int16{},
		scram:       map[scramUser]ScramCredential{},
	}
}

// String says how far the image is and how much is in it, and nothing that must stay secret.
func (im *Image) String() string {
	return fmt.Sprintf("cluster metadata before offset %d: %d topics, %d brokers", im.next, len(im.topics), len(im.brokers))
}

// GoString is String.
func (im *Image) GoString() string { return im.String() }

// Next is the offset of the metadata log from which to fetch.
func (im *Image) Next() int64 { return im.next }

// LastEpoch is the leader epoch of the last batch applied, 0 before the first: the LastFetchedEpoch of the next Fetch.
func (im *Image) LastEpoch() int32 { return im.epoch }

// Broker is a registered broker, fenced or not.
func (im *Image) Broker(id int32) (Broker, bool) {
	b, ok := im.brokers[id]
	return b, ok
}

// Brokers are all registered brokers by id.
func (im *Image) Brokers() []Broker {
	var all []Broker
	for _, id := range slices.Sorted(maps.Keys(im.brokers)) {
		all = append(all, im.brokers[id])
	}
	return all
}

// Controllers are the controllers that registered, by id. Clusters whose metadata.version is older than 3.7 have none here.
func (im *Image) Controllers() []Controller {
	var all []Controller
	for _, id := range slices.Sorted(maps.Keys(im.controllers)) {
		all = append(all, im.controllers[id])
	}
	return all
}

// Topic is a topic's id and number of partitions.
func (im *Image) Topic(name string) (id statemachine.TopicID, partitions int, ok bool) {
	id, ok = im.ids[name]
	if !ok {
		return id, 0, false
	}
	return id, len(im.topics[id].partitions), true
}

// TopicName is the name of the topic with this id.
func (im *Image) TopicName(id statemachine.TopicID) (string, bool) {
	if t := im.topics[id]; t != nil {
		return t.name, true
	}
	return "", false
}

// Topics are the names of all topics, sorted.
func (im *Image) Topics() []string { return slices.Sorted(maps.Keys(im.ids)) }

// Partition is one partition of a topic.
func (im *Image) Partition(topic string, p int32) (Partition, bool) {
	id, ok := im.ids[topic]
	if !ok {
		return Partition{}, false
	}
	found, ok := im.topics[id].partitions[p]
	return found, ok
}

// PartitionsOf are the partitions that have the broker among their replicas, by topic name and number. It costs what this broker has, not what the cluster has.
func (im *Image) PartitionsOf(broker int32) []Partition {
	var all []Partition
	for at := range im.hosted[broker] {
		all = append(all, im.topics[at.topic].partitions[at.partition])
	}
	slices.SortFunc(all, inOrder)
	return all
}

// Config is what is set for one key of a resource itself: defaults, and what a topic takes from its brokers, are not looked at.
// A value may be secret: the log holds those of password keys as they are.
func (im *Image) Config(kind ResourceType, name, key string) (value string, ok bool) {
	value, ok = im.configs[resource{kind, name}][key]
	return value, ok
}

// Configs is a copy of all that is set for a resource; see Config. Nil if nothing is.
func (im *Image) Configs(kind ResourceType, name string) map[string]string {
	return maps.Clone(im.configs[resource{kind, name}])
}

// NextProducerID is the first producer id of the next block that AllocateProducerIds will give out.
func (im *Image) NextProducerID() int64 { return im.producerID }

// Feature is a finalized feature's level; "metadata.version" is one. "kraft.version" is not: Kafka keeps it in control records.
func (im *Image) Feature(name string) (level int16, ok bool) {
	level, ok = im.features[name]
	return level, ok
}

// Features is a copy of all finalized features; see Feature.
func (im *Image) Features() map[string]int16 { return maps.Clone(im.features) }

// Scram is a user's credential. Mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
func (im *Image) Scram(mechanism int8, user string) (ScramCredential, bool) {
	c, ok := im.scram[scramUser{mechanism, user}]
	return c, ok
}

// inOrder is the order of partitions: by topic name and number.
func inOrder(a, b Partition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
