package clustermetadata

import (
	"errors"
	"fmt"
)

// ErrNewerRecord is what errors.Is finds in a RecordError of a known record in a version that is newer than what this package knows and does not read like the newest known one.
var ErrNewerRecord = errors.New("clustermetadata: record version is not known")

// RecordError is a record that cannot be applied: it cannot be read, or contradicts the image. The image is what it was before that record, and takes no more.
// It names nothing of the record's content.
type RecordError struct {
	Offset  int64
	Type    int    // Kafka's id of the record's type, -1 if even that could not be read
	Version int    // of the record
	Newest  int    // version that is known here
	Reason  string // for a person; starts with a lower-case word
}

func (e *RecordError) Error() string {
	if e.Version > e.Newest {
		return fmt.Sprintf("clustermetadata: record at offset %d: %s has version %d, the newest known here is %d, and it cannot be read as that (%s): "+
			"the cluster's metadata.version is newer than this program; use a newer program", e.Offset, typeName(e.Type), e.Version, e.Newest, e.Reason)
	}
	return fmt.Sprintf("clustermetadata: record at offset %d: %s version %d: %s: build the image anew from the cluster's newest snapshot", e.Offset, typeName(e.Type), e.Version, e.Reason)
}

// Is reports ErrNewerRecord.
func (e *RecordError) Is(target error) bool { return target == ErrNewerRecord && e.Version > e.Newest }

// BatchError is a batch that is no batch of a metadata log. Nothing of it was applied.
type BatchError struct {
	Offset int64
	Reason string // for a person; starts with a lower-case word
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("clustermetadata: batch at offset %d: %s: look whether this is the log of __cluster_metadata", e.Offset, e.Reason)
}

// GapError says that the offered bytes do not continue the image. Nothing of them was applied: fetch from Next, or, where the log begins above Next, take a snapshot.
type GapError struct {
	Next, Found int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("clustermetadata: the next batch to apply contains offset %d, the given one begins at %d: fetch from %d, or take a snapshot", e.Next, e.Found, e.Next)
}
