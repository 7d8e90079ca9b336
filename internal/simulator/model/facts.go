// Package model says what a mirror may do. It is written from the specification and knows nothing of the code: it imports no package of this module, keeps its own copy of
// everything that it is told, and judges each fact when it is told. The simulator tells it what really happened to logs, records and clients, never what the code believes.
//
// Each rule is a call of must that names the section it comes from. A Violation names the rule.
package model

import "fmt"

// Kind is what a batch is.
type Kind uint8

// The kinds: records, the two markers of transactions, MIRROR_PID_RESET.
const Data, Commit, Abort, Reset Kind = 0, 1, 2, 3

// Batch is one batch as it lies in a log. Bytes tells equal bytes from different ones: two batches with one Bytes are the same bytes, their offsets and leader epoch included. ProducerID −1: none.
type Batch struct {
	Base, Last, ProducerID int64
	LeaderEpoch            int32
	ProducerEpoch          int16
	Kind                   Kind
	Transactional          bool
	Bytes                  uint64
}

// At names one copy of a partition: the log of a partition in one cluster.
type At struct {
	Cluster, Topic string
	Partition      int32
}

func (a At) String() string { return fmt.Sprintf("%s/%s-%d", a.Cluster, a.Topic, a.Partition) }

// Of names a partition of a mirror: Cluster is its destination.
type Of struct {
	Mirror string
	At
}

// Who did something to a log.
type Who uint8

// Those who change logs: producers, with the transaction coordinator of their cluster; a mirror's process; the cluster by itself or by its operator (elections, retention, compaction,
// DeleteRecords, a crash that loses what no replica had).
const Clients, Mirror, Cluster Who = 0, 1, 2

// Wish is what an operator wants of a partition of a mirror.
type Wish uint8

// The wishes.
const WantMirroring, WantPaused, WantStopped Wish = 0, 1, 2

// Record is a state record as it lies in the store, in the specification's numbers (decision 1). Attempt −1: only a person ends the failure. Topic: whom the log was copied from. Hole: where the source is known to end, by where the copy ended when that was found.
type Record struct {
	State, Previous     int8
	StateEpoch, Episode int32
	Attempt             int16
	Message, Topic      string
	FoundOpen           bool
	Hole                map[int64]int64
}

// End is a last-mirror-epoch record as it lies in the store (decision 2). LMO −1: not recorded (yet).
type End struct {
	LME           int32
	LMO           int64
	Episode       int32
	SourceCluster string
}

// Violation is a broken rule: its name, one word or two, the same for every seed; where the rule stands ("spec §5", "decision 15", "invariant 3"); and what happened, for a person.
type Violation struct{ Rule, Source, What string }

func (v Violation) String() string { return fmt.Sprintf("%s (%s): %s", v.Rule, v.Source, v.What) }
