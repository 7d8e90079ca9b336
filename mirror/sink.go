package mirror

import "context"

// Sink is handed the records that a truncation is about to drop. Safe for concurrent use.
type Sink interface {
	// Dropped is called before the truncation, once or more for a range, in order: batches are the whole batches of [from, to), bytes verbatim. A batch that lies only
	// partly in the range that is cut is handed whole, because it is dropped whole. The bytes are read-only and valid until Dropped returns.
	// When Dropped returns nil, what it was given is safe; on an error nothing is cut. The same range may come again after a crash or a retry.
	Dropped(ctx context.Context, tp TopicPartition, from, to int64, batches []byte) error
}

// Discard is the Sink that keeps nothing. There is no default: whoever does not want the dropped records says so by this name.
var Discard Sink = discard{}

type discard struct{}

func (discard) Dropped(context.Context, TopicPartition, int64, int64, []byte) error { return nil }
