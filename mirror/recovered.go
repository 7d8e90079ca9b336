package mirror

import "context"

// Recoverer is an optional ability of a Log, found by type assertion: it knows, without reading all of its batches, what follows from those below some offset. A mirror that
// begins with such a log (a restart, a cut far below the end) reads it from there on only, so the time until it can serve, and until it can be stopped, does not grow with the log.
// A Log without the ability, and one that gives its Start, is read whole.
type Recoverer interface {
	// Recovered says what is known of the log as it is now. It is asked anew after a cut that leaves less of the log than was replicated when it answered last, because such a cut
	// may take away the marker that had ended a transaction: then the answer is about the shorter log. It is called beside nothing that changes the log, except the writes of
	// clients to a log that is open, and within Config.CallBound. An error is retried, as that of a read is.
	//
	// The mirror checks what it can: From outside [Start, End] and Epochs that do not rise are reported, and the log is read whole. What it cannot check it believes, so a
	// Log that does not know for sure gives a lower From. logtest compares the answers with the batches.
	Recovered(ctx context.Context) (Recovered, error)
}

// Recovered is what a Log knows of its batches below From. The slice is the caller's.
type Recovered struct {
	// From is an offset of [Start, End], as these are when Recovered returns: every transaction with a batch below From has been ended by a marker below Replicated. The last stable
	// offset of a replica is one, as its high watermark is never above Replicated (Kafka: a transaction whose marker lies above the high watermark is not stable), and
	// every lower offset is one too. It may lie inside a batch or in a gap. Start promises nothing: the log is then read whole.
	From int64
	// Epochs are the leader epochs of all batches below From, each with where it starts; both rise strictly, no epoch is negative (Kafka: LeaderEpochFileCache). Batches that carry no
	// epoch (−1) have no entry. Of an epoch whose first batches compaction took, the first that is left may count. An entry may start below the log's Start, which then counts instead,
	// and entries that start at or above From may be there: they are passed over.
	Epochs []EpochStart
	// HighestProducerID is at least the highest producer id of any batch below From, −1 if there is none. It may be higher, and it may count batches that are no longer there:
	// a stop moves the destination's producer ids above it (ProducerIDSettler). A Log whose destination keeps its producer ids above every mirrored one may give
	// the highest id that is so protected.
	HighestProducerID int64
}

// EpochStart is the first offset of the log that was written under a leader epoch.
type EpochStart struct {
	Epoch int32
	Start int64
}
