package verify

import (
	"context"
	"errors"

	"github.com/clustermirror/clustermirror/mirror"
)

// ErrRemote is in the error of a Side that cannot read an offset because it is in remote storage (tiered storage, KIP-405) and does not come. Bounds.Local then says from where on it can.
var ErrRemote = errors.New("verify: in remote storage")

// Bounds are what one side holds of a partition.
type Bounds struct {
	Start int64 // log start offset
	End   int64 // what is below it survives: the high watermark, a Log's Replicated. Never the log end offset.
	Shown int64 // Read shows nothing at or above it; at or below End: it shows nothing at or above that
	Local int64 // the first offset that is not in remote storage alone; at or below Start: nothing is, or it is not known
}

// Side is one of the two logs that are compared: one partition of one cluster. Verify uses a side from one goroutine at a time. Every method returns when its context ends.
type Side interface {
	// Partition is which partition it is. Both sides of a comparison have the same name and number.
	Partition() mirror.TopicPartition
	// Bounds are asked anew with each call.
	Bounds(ctx context.Context) (Bounds, error)
	// Read returns whole batches beginning with the one that contains from (or the first one after it), about max bytes but at least one batch; nothing where there is none below the end.
	// The bytes are as they lie there, damaged ones too, and stay valid; they are not changed. from outside [Start, End]: an error with mirror.ErrOffsetOutOfRange in it;
	// out of reach in remote storage: one with ErrRemote in it.
	Read(ctx context.Context, from int64, max int) ([]byte, error)
}

// Digester is an optional ability of a Side, found by type assertion: it computes digests where the data is, so that the data does not travel. DigestOf is how. It may stop early where
// the range has about most bytes (above 0), behind a batch; Digest.To then says where. Errors as Read's.
type Digester interface {
	Digest(ctx context.Context, from, to, most int64) (Digest, error)
}

// Log is what LogSide needs of a destination's log. Every mirror.Log has it.
type Log interface {
	mirror.LogReader
	Replicated() int64
}

type logSide struct {
	partition mirror.TopicPartition
	log       Log
}

// LogSide is a side over a destination's log: it ends at Replicated. The log may be written, opened, cut and closed meanwhile.
func LogSide(partition mirror.TopicPartition, log Log) Side { return logSide{partition, log} }

func (s logSide) Partition() mirror.TopicPartition { return s.partition }

func (s logSide) Bounds(ctx context.Context) (Bounds, error) {
	return Bounds{Start: s.log.Start(), End: s.log.Replicated(), Shown: s.log.End()}, ctx.Err()
}

func (s logSide) Read(ctx context.Context, from int64, max int) ([]byte, error) {
	b, err := s.log.Read(ctx, from, max)
	if errors.Is(err, mirror.ErrRemoteStorage) {
		err = errors.Join(ErrRemote, err)
	}
	return b, err
}
