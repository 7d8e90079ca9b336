package mirror

import (
	"context"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TopicID is a topic's 16-byte id.
type TopicID = statemachine.TopicID

// TopicPartition names one partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Topic is what a cluster says of one topic.
type Topic struct {
	Name       string
	ID         TopicID // zero: the cluster has no topic ids
	Partitions int32
	Internal   bool
}

// TopicSpec asks for a new topic.
type TopicSpec struct {
	Name       string
	Partitions int32
	SourceID   TopicID           // the source's id, for destinations that can take it over
	Configs    map[string]string // settings in the create call itself (F-64)
}

// Destination is one cluster written to. Safe for concurrent use. Every call ends with its context.
type Destination interface {
	// ClusterID is the destination's cluster id.
	ClusterID(ctx context.Context) (string, error)
	// Topic looks one topic up. ErrUnknownTopic if it does not exist; looking never creates it.
	Topic(ctx context.Context, name string) (Topic, error)
	// CreateTopic creates a topic, its logs closed for writes from the first moment. An existing one: ErrTopicExists, and the topic as it is.
	CreateTopic(ctx context.Context, spec TopicSpec) (Topic, error)
	// GrowTopic adds partitions up to a count. Fewer than there are: an error; as many: nothing happens.
	GrowTopic(ctx context.Context, name string, partitions int32) (Topic, error)
	// OpenLog returns the log of one partition: the same Log for the same partition as long as the Destination lives.
	OpenLog(ctx context.Context, tp TopicPartition) (Log, error)
	// RaiseLeaderEpochs raises leader epochs to at least these and returns what they are. One call may be as expensive as one raise, so callers batch.
	// Partitions that failed are missing in the result; the error names them.
	RaiseLeaderEpochs(ctx context.Context, atLeast map[TopicPartition]int32) (map[TopicPartition]int32, error)
	// Close releases what the Destination holds. It waits for no source.
	Close() error
}
