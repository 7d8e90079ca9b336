package replicaserver

import (
	"context"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Partition is a partition that this process leads, as its followers ask for it. Methods may be called concurrently and return at once, except ReadBack.
// Two of them are compared with ==: an implementation is a pointer.
type Partition interface {
	// Fetch takes what a follower's Fetch says of it, notes its position, and answers. It never waits.
	Fetch(q FetchQuery) FetchAnswer
	// ReadBack reads batches that Fetch said are not in memory (FetchAnswer.Back): at most max bytes, but at least one batch; the first one contains from, or is the first after it.
	// Nothing at the end. The bytes are read-only and stay valid.
	ReadBack(ctx context.Context, from int64, max int) ([]byte, error)
	// Offsets answers ListOffsets of a follower: where the log starts and ends, and the leader epoch of the last batch below each (-1 unknown).
	Offsets(leaderEpoch int32) OffsetsAnswer
	// EndOffsetFor answers OffsetForLeaderEpoch (KIP-101, KIP-279): Kafka's rule over this log; (-1, -1) undefined. The code is a Kafka error code.
	EndOffsetFor(leaderEpoch, epoch int32) (foundEpoch int32, endOffset int64, code int16)
	// Subscribe has wake called after everything that may change a Fetch's answer: an append, a truncation, a raised start, another high watermark, another leader epoch or gate.
	// wake must not block and may be called with locks held: it must not call the Partition. The returned function ends it.
	Subscribe(wake func()) (unsubscribe func())
}

// FetchQuery is what a follower asks of one partition.
type FetchQuery struct {
	Broker           int32
	BrokerEpoch      int64 // -1: not told
	LeaderEpoch      int32 // CurrentLeaderEpoch: as the follower knows it; -1 not told
	Offset           int64 // the follower's log end offset
	LastFetchedEpoch int32 // leader epoch of its last batch, -1 none
	LogStart         int64 // the follower's
	MaxBytes         int
}

// FetchAnswer is the answer for one partition.
type FetchAnswer struct {
	Code             int16 // a Kafka error code, 0 none
	LeaderEpoch      int32 // ours
	HighWatermark    int64
	LastStableOffset int64 // -1: not known (followers do not look at it)
	LogStart         int64
	// Diverging says that the follower's log parts from ours: it truncates to the smaller of its own and this end offset and asks again (KIP-595's field in Fetch).
	Diverging      bool
	DivergingEpoch int32
	DivergingEnd   int64
	// Batches are whole batches in order, from the one that contains Offset on; read-only, valid for ever. At most MaxBytes, but at least one batch if there is any.
	Batches [][]byte
	Size    int // bytes in Batches
	// Back says that there are batches from Offset on, but not in memory: ReadBack.
	Back bool
}

// OffsetsAnswer is where a log starts and ends.
type OffsetsAnswer struct {
	Code                 int16
	Start, End           int64
	HighWatermark        int64
	StartEpoch, EndEpoch int32 // of the first batch, of the last one; -1 unknown or none
}

// Topics finds partitions that are led here.
type Topics interface {
	// ByID finds a partition by its topic's id. The code, when there is none: UNKNOWN_TOPIC_ID (100) for a topic that nobody knows, NOT_LEADER_OR_FOLLOWER (6) for one that is not led here.
	ByID(topic statemachine.TopicID, partition int32) (Partition, int16)
	// ByName is the same for requests that name topics (ListOffsets, OffsetForLeaderEpoch); UNKNOWN_TOPIC_OR_PARTITION (3) or 6.
	ByName(topic string, partition int32) (Partition, int16)
}
