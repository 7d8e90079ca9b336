// Package producerstate keeps what one partition log knows of its producers and their transactions, as a replica of the log does
// (Kafka: ProducerStateManager, ProducerAppendInfo, TransactionIndex with AppendOrigin.REPLICATION).
//
// All of it is derived from the log: whoever loses it observes the log again. How the log is cut into calls of Observe makes no difference.
package producerstate

import "fmt"

// Producer is the state of one producer id.
type Producer struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // of its last data batch under this epoch, -1 if none
	LastOffset       int64 // of its last data batch under this epoch, -1 if none
	LastTimestamp    int64 // milliseconds
	CoordinatorEpoch int32 // of its last marker, -1 if none
	OpenSince        int64 // first offset of its open transaction, -1 if none
}

// Transaction is one in-flight transaction.
type Transaction struct {
	ProducerID       int64
	ProducerEpoch    int16
	FirstOffset      int64
	LastOffset       int64 // last data offset seen of it
	CoordinatorEpoch int32 // last known of the producer, -1 if none
	FirstTimestamp   int64 // milliseconds, as the record says
}

// Aborted is one entry of the aborted-transaction index.
type Aborted struct {
	ProducerID  int64
	FirstOffset int64
	LastOffset  int64 // of the ABORT marker
	LastStable  int64 // last stable offset when the marker was appended
}

// TransactionError refuses a batch that breaks a transaction: a non-transactional batch of a producer with an open one (Kafka: InvalidTxnStateException).
type TransactionError struct {
	ProducerID int64
	Offset     int64
	OpenSince  int64
}

func (e *TransactionError) Error() string {
	return fmt.Sprintf("batch at %d of producer %d is not transactional, but its transaction is open since %d", e.Offset, e.ProducerID, e.OpenSince)
}
