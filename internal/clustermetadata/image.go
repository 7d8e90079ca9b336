package clustermetadata

import "github.com/clustermirror/clustermirror/statemachine"

// Listener is where a broker is reached.
type Listener struct {
	Name             string // such as "INTERNAL"
	Host             string
	Port             uint16
	SecurityProtocol int16 // Kafka's ids: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
}

// Broker is one registered broker.
type Broker struct {
	ID                   int32
	Epoch                int64
	Incarnation          [16]byte
	Listeners            []Listener
	Features             map[string][2]int16 // lowest and highest level it supports
	Rack                 string
	LogDirs              [][16]byte
	CordonedLogDirs      [][16]byte
	Fenced               bool
	InControlledShutdown bool
}

// Partition is one partition. Its slices are never changed: a change makes a new Partition.
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
	Directories    [][16]byte // of the replicas, in their order
}

// ResourceType is what a config belongs to (Kafka: ConfigResource.Type).
type ResourceType int8

// The resource types that configs are kept for here.
const (
	TopicResource  ResourceType = 2
	BrokerResource ResourceType = 4 // name "" is the cluster-wide default
)

// ScramCredential is what the cluster stores of a SCRAM user (KIP-554, KIP-900).
type ScramCredential struct {
	Salt, StoredKey, ServerKey []byte
	Iterations                 int32
}

// Change is one thing that a record changed, in the order of the records.
type Change struct {
	Kind   ChangeKind
	Offset int64 // of the record in the metadata log; of a snapshot's end for what a snapshot changed

	Before, After Partition    // PartitionChanged; Before.Topic is "" for a new one, After.Topic for one that is gone
	Broker        int32        // BrokerChanged
	Resource      ResourceType // ConfigChanged
	Name          string       // ConfigChanged: the resource's name; FeatureChanged: the feature's; TopicCreated, TopicDeleted
	Key           string       // ConfigChanged
	TopicID       statemachine.TopicID
}

// ChangeKind says what a Change is about.
type ChangeKind uint8

// The kinds.
const (
	TopicCreated ChangeKind = iota
	TopicDeleted
	PartitionChanged
	BrokerChanged // registered, unregistered, fenced, unfenced, cordoned …
	ConfigChanged
	FeatureChanged
	ProducerIDsChanged
	ScramChanged
)
