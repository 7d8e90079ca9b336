package clientlistener

import (
	"context"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Partition is a partition that this process leads, as clients ask for it. Methods may be called concurrently; those without a context return at once.
type Partition interface {
	// Read says from which follower a consumer that asks for an offset reads on.
	Read(q ReadQuestion) ReadAnswer
	// Offset answers ListOffsets of a client. It may ask a follower, and returns when ctx ends.
	Offset(ctx context.Context, q OffsetQuestion) OffsetAnswer
	// EndOffsetFor answers OffsetForLeaderEpoch (KIP-101, KIP-279): Kafka's rule over the log; (-1, -1) undefined. The code is a Kafka error code.
	EndOffsetFor(leaderEpoch, epoch int32) (foundEpoch int32, endOffset int64, code int16)
}

// ReadQuestion is what a consumer asks of one partition.
type ReadQuestion struct {
	LeaderEpoch int32 // as the consumer knows it, -1 not told
	Offset      int64
	Rack        string // of the consumer, "" not told
	Spread      uint64 // of the consumer's connection: what spreads consumers over followers
}

// ReadAnswer says where to read.
type ReadAnswer struct {
	Code          int16 // a Kafka error code, 0: Replica holds
	Replica       int32 // the broker id of a live follower that has what was asked for
	HighWatermark int64 // what is replicated; -1 unknown
	LogStart      int64 // -1 unknown
}

// Timestamps of ListOffsets that are no times.
const (
	Latest        = -1
	Earliest      = -2
	MaxTimestamp  = -3 // KIP-734
	EarliestLocal = -4 // KIP-405
	LatestTiered  = -5 // KIP-1005
)

// OffsetQuestion is what a client asks by ListOffsets.
type OffsetQuestion struct {
	LeaderEpoch int32 // -1 not told
	Timestamp   int64 // milliseconds, or one of the names above
	Committed   bool  // read_committed: nothing from the last stable offset on
}

// OffsetAnswer is the answer, -1 for what was not found.
type OffsetAnswer struct {
	Code        int16
	Timestamp   int64
	Offset      int64
	LeaderEpoch int32 // of the batch there
}

// NoOffset is the answer with a code alone.
func NoOffset(code int16) OffsetAnswer {
	return OffsetAnswer{Code: code, Timestamp: -1, Offset: -1, LeaderEpoch: -1}
}

// Topics finds the partitions that are led here: those of which the cluster's metadata says so. All others are the stock brokers' business. It is used for one answer, by one goroutine; the Partitions that it finds by
// several.
type Topics interface {
	ByID(topic statemachine.TopicID, partition int32) (Partition, bool)
	ByName(topic string, partition int32) (Partition, bool)
}

// Broker is a stock broker that is alive.
type Broker struct {
	ID      int32
	Address string // host:port of its listener of the same name
}
