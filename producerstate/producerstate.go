// Package producerstate keeps what one partition log knows of its producers and their transactions, as a replica of the log does
// (Kafka: ProducerStateManager, ProducerAppendInfo, TransactionIndex with AppendOrigin.REPLICATION).
package producerstate

import "fmt"

// Producer is the state of one producer id.
type Producer struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // -1 if unknown
	LastOffset       int64 // of its last data batch, -1 if none
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

// Manager is the state of one log. Not safe for concurrent use. Pure: no clock, no I/O.
type Manager struct {
	_ int // contract
}

// New returns the state of an empty log.
func New() *Manager { panic("contract") }

// Observe applies whole, checked batches in log order, as replication does: no sequence and no duplicate check, an older producer epoch is taken as it is;
// markers of both transaction versions close what is open (a v2 marker carries a higher epoch than the data, KIP-890).
// MIRROR_PID_RESET empties the producer map, producers seen earlier in the same call included; open transactions are not touched by it (spec §5).
// Errors: *TransactionError, batch.CorruptError for a control batch that cannot be read. On an error batches before the bad one are applied and Next says where it stands.
func (m *Manager) Observe(batches []byte) error { panic("contract") }

// Next is the offset after the last batch that was observed (or the offset given to Restore, TruncateTo's result …); 0 for New.
func (m *Manager) Next() int64 { panic("contract") }

// LastStable is the last stable offset below end: the first offset of the oldest open transaction, or end.
func (m *Manager) LastStable(end int64) int64 { panic("contract") }

// InFlight lists the open transactions in order of first offset. The slice is the caller's.
func (m *Manager) InFlight() []Transaction { panic("contract") }

// Aborted lists the aborted transactions that overlap [from, to), in order of LastOffset. The slice is the caller's.
func (m *Manager) Aborted(from, to int64) []Aborted { panic("contract") }

// Producers lists the producers in order of id. The slice is the caller's.
func (m *Manager) Producers() []Producer { panic("contract") }

// HighestProducerID is the greatest id ever observed in the log (resets and truncation do not lower it), -1 if none.
func (m *Manager) HighestProducerID() int64 { panic("contract") }

// LastIsReset says that the last observed batch is a MIRROR_PID_RESET.
func (m *Manager) LastIsReset() bool { panic("contract") }

// TruncateTo goes back to a state at or before offset that it still knows and returns where that is: the caller observes the batches in [returned, offset) again.
// It keeps a bounded number of such points by itself; the oldest is the empty log at RaiseStart's offset.
func (m *Manager) TruncateTo(offset int64) int64 { panic("contract") }

// RaiseStart forgets what lies wholly below the log's new start.
func (m *Manager) RaiseStart(start int64) { panic("contract") }

// Reset is the state of an empty log that starts at offset. HighestProducerID is kept.
func (m *Manager) Reset(offset int64) { panic("contract") }

// Snapshot is the whole state in a versioned, checksummed form of our own.
func (m *Manager) Snapshot() []byte { panic("contract") }

// Restore reads a Snapshot. Errors when it is damaged or of an unknown version; the manager is then unchanged.
func (m *Manager) Restore(snapshot []byte) error { panic("contract") }
