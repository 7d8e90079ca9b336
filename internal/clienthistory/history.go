// Package clienthistory judges what clients saw of mirrored partitions, with the words of Jepsen's checker for logs (tests/kafka.clj): lost write, unseen, duplicate, inconsistent offset,
// aborted read, precommitted read, poll skip, non-monotonic poll, torn transaction. It is pure and knows no client: whoever runs clients notes their calls and answers in a History.
//
// # Lines
//
// A partition has one line of writing at a time. A Turn ends it: what lies below Turn.Offset belongs to the new line too, what lies at and above it does not. A failover is a turn from one
// cluster to another; an unclean election is a turn from a cluster to itself. A mirror is asynchronous, so an acknowledged record may be lost at a turn, but only by name: the turn names
// what was reported as lost and which transactions were aborted, a Rejoin names what a failback gave up, a Gone names what retention, deletion, compaction or a reported hole took.
// Everything else is an anomaly.
//
// # How clients note what they do
//
// Every write has a number of its own (Record), also when the same business record is sent again by the application. Each call has a Span: when it was called and when it was answered,
// in any measure that only grows and that all clients share (nanoseconds since the start, a counter). Each client can keep a History of its own; Merge puts them together.
package clienthistory

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Moment is a point in time in any measure that only grows and that all clients share.
type Moment int64

// Span is when a call was made and when its answer came.
type Span struct{ Start, End Moment }

// Record is the number of one write. No two writes have the same; 0 is none.
type Record uint64

// Transaction is the number of one transaction of one producer. 0 is none.
type Transaction uint64

// NewRecord is the n-th record of a writer. Its text form is writer.n.
func NewRecord(writer, n uint32) Record { return Record(uint64(writer)<<32 | uint64(n)) }

// NewTransaction is the n-th transaction of a writer. Its text form is writer.n.
func NewTransaction(writer, n uint32) Transaction { return Transaction(NewRecord(writer, n)) }

func (r Record) String() string      { return fmt.Sprintf("%d.%d", uint64(r)>>32, uint32(r)) }
func (t Transaction) String() string { return Record(t).String() }

// Partition is a partition of both clusters.
type Partition struct {
	Topic     string
	Partition int32
}

func (p Partition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) }

// Range is the offsets from From on and below To.
type Range struct{ From, To int64 }

// Above is all offsets from from on.
func Above(from int64) Range { return Range{from, math.MaxInt64} }

func (r Range) holds(offset int64) bool { return r.From <= offset && offset < r.To }

func (r Range) String() string {
	if r.To == math.MaxInt64 {
		return fmt.Sprintf("[%d, …)", r.From)
	}
	return fmt.Sprintf("[%d, %d)", r.From, r.To)
}

// Outcome is what a client knows of a call that changes something.
type Outcome uint8

// The outcomes.
const (
	Unknown Outcome = iota // no answer, or one that leaves it open: it may have happened, and may still happen
	OK
	Failed // refused, or never sent: it has not happened and never will
)

// Produce is one record that was sent.
type Produce struct {
	Span
	Cluster     string // that answered, or that was asked last
	Partition   Partition
	Record      Record
	Offset      int64       // of an OK; otherwise ignored
	Transaction Transaction // 0: none
	Outcome     Outcome
}

// End is the end of a transaction as its producer knows it. A transaction without an End is one whose outcome is unknown from Span.End of its last record on: not even a commit was called.
type End struct {
	Span
	Transaction Transaction
	Commit      bool // commit was called; otherwise abort
	Outcome     Outcome
}

// Seek is a consumer that starts somewhere else than where its last poll ended: it was assigned the partition, moved to another cluster, or was told to.
type Seek struct {
	Span
	Consumer  string
	Cluster   string
	Partition Partition
	Group     string // not empty: the position is the group's committed offset
	Offset    int64  // −1: not known, or a reset to the log's start or end
}

// Seen is one record that was read, or that lies in a log.
type Seen struct {
	Offset int64
	Record Record
}

// Poll is what one poll gave of one partition. Polls that gave nothing need not be noted. Polls of one consumer are in the History in the order in which they returned.
type Poll struct {
	Span
	Consumer  string
	Cluster   string
	Partition Partition
	Committed bool // read_committed
	Records   []Seen
}

// Commit is a group's offset that was committed.
type Commit struct {
	Span
	Group     string
	Cluster   string
	Partition Partition
	Offset    int64 // the next one to read
	Outcome   Outcome
}

// Turn ends a partition's line and begins another: a failover (From and To are two clusters), or an election or a crash that lost records (one cluster twice).
type Turn struct {
	At        Moment // before this, To answered no write of the new line
	Partition Partition
	From, To  string
	Offset    int64 // records below it are in both lines; of a failover LMO
	// Lost is what the plan or report named as lost of what From's log had before At, whoever had acknowledged it. The zero Range: nothing was named.
	Lost Range
	// Aborted and AbortedAt are the transactions that the report named as aborted in this partition: by number, or by the offset of any record that was acknowledged in the line that ended.
	Aborted   []Transaction
	AbortedAt []int64
}

// Rejoin is a cluster that was turned away from and follows the line again: a failback. What it acknowledged outside the line until At must have been given up by name.
type Rejoin struct {
	At        Moment
	Partition Partition
	Cluster   string
	GivenUp   Range // that was consented to and reported; From = To when there was nothing
}

// Gone is what was taken out of a log in a way that is no loss, or was reported: retention, DeleteRecords, compaction, a hole. Noted at the latest when it happened.
type Gone struct {
	At        Moment
	Partition Partition
	Cluster   string // "": in every cluster
	Range     Range
	Why       string
}

// History is everything that clients and operators noted. The order inside a slice matters for Polls and Turns only.
type History struct {
	First    map[Partition]string // the cluster that clients write first
	Produces []Produce
	Ends     []End
	Seeks    []Seek
	Polls    []Poll
	Commits  []Commit
	Turns    []Turn // of one partition in the order in which they happened
	Rejoins  []Rejoin
	Gone     []Gone
}

// Log is one partition of one cluster as a new consumer read it with read_committed after everything had come to rest: from its start on, below End.
type Log struct {
	Cluster   string
	Partition Partition
	Records   []Seen
	End       int64
}

// Final is the logs at the end, of every cluster that is to be judged: the one that clients write, copies, and a cluster that was turned away from and has not rejoined.
type Final struct{ Logs []Log }

// Merge puts the histories of several clients together. Polls of one consumer must be in one of them.
func Merge(all ...History) History {
	m := History{First: map[Partition]string{}}
	for _, h := range all {
		for p, c := range h.First {
			m.First[p] = c
		}
		m.Produces = append(m.Produces, h.Produces...)
		m.Ends = append(m.Ends, h.Ends...)
		m.Seeks = append(m.Seeks, h.Seeks...)
		m.Polls = append(m.Polls, h.Polls...)
		m.Commits = append(m.Commits, h.Commits...)
		m.Turns = append(m.Turns, h.Turns...)
		m.Rejoins = append(m.Rejoins, h.Rejoins...)
		m.Gone = append(m.Gone, h.Gone...)
	}
	slices.SortStableFunc(m.Turns, func(a, b Turn) int { return cmp.Compare(a.At, b.At) })
	return m
}

// Kind is an anomaly's name.
type Kind string

// The anomalies.
const (
	LostWrite          Kind = "lost write"          // acknowledged and committed, not in the log although later records are, and not named
	Unseen             Kind = "unseen"              // acknowledged and committed, not named, and the log's readers end before it
	Duplicate          Kind = "duplicate"           // one write at two offsets of one line
	InconsistentOffset Kind = "inconsistent offset" // two writes at one offset of one line, or a write at another offset than the acknowledged one
	AbortedRead        Kind = "aborted read"        // a record of an aborted transaction or of a write that failed was read
	PrecommittedRead   Kind = "precommitted read"   // a read_committed consumer saw a record before its commit was called
	PollSkip           Kind = "poll skip"           // a consumer went over a record that it should have been given
	NonMonotonicPoll   Kind = "non-monotonic poll"  // a consumer went back without having been told to
	TornTransaction    Kind = "torn transaction"    // some records of a transaction are there and some are not
	NeverWritten       Kind = "never written"       // a record that nobody wrote was read
)

// Anomaly is something that no client should see.
type Anomaly struct {
	Kind      Kind
	Partition Partition
	Offsets   []int64  // beside Records
	Records   []Record // that the anomaly is about
	What      string   // for a person: who, where, and what was to be expected
}

func (a Anomaly) String() string {
	return fmt.Sprintf("%s: %s: %s (records %v at %v)", a.Kind, a.Partition, a.What, a.Records, a.Offsets)
}
