package replicareader

import (
	"fmt"
	"strings"
)

// Reason says why a copy could not be read.
type Reason uint8

// The reasons.
const (
	Unreachable  Reason = iota // no answer: the connection, or the context ended
	NotReplica                 // the broker knows the partition and has no copy of it
	UnknownTopic               // the broker does not know the topic, or one of that name with another id
	NoAccess                   // READ or DESCRIBE on the topic is missing
	Offline                    // the disk under the copy failed
	Refused                    // any other error code
	BadAnswer                  // an answer that no Kafka broker gives
	Damaged                    // a batch that batch.Check refuses, twice read alike
	Changed                    // the copy was cut or replaced while it was looked at
)

func (r Reason) String() string {
	return [...]string{"unreachable", "not a replica", "unknown topic", "no access", "offline", "refused", "bad answer", "damaged", "changed"}[r]
}

// advice is what to do next.
func (r Reason) advice() string {
	return [...]string{
		"ask again once the broker is back",
		"ask a broker that the cluster's metadata lists as a replica",
		"look up the topic's id again; if the topic was made a moment ago, ask again",
		"grant READ and DESCRIBE on the topic",
		"look at the broker's log folder, or take another copy",
		"see Kafka's table of error codes",
		"take another copy, and see what stands between here and the broker",
		"take another copy",
		"ask again from the start",
	}[r]
}

// Error is one broker's copy that could not be read. It unwraps to what lies beneath: a *kerr.Error for a broker's code, a *batch.CorruptError or *batch.FormatError for
// Damaged, the Requester's error or the context's for Unreachable.
type Error struct {
	Broker int32
	Target Target // the zero value if a request for several failed
	Reason Reason
	Err    error
}

func (e *Error) Error() string {
	where := fmt.Sprintf("broker %d", e.Broker)
	if e.Target != (Target{}) {
		where += "'s copy of " + e.Target.String()
	}
	return fmt.Sprintf("%s: %s: %v; %s", where, e.Reason, e.Err, e.Reason.advice())
}

func (e *Error) Unwrap() error { return e.Err }

// RangeError: the copy does not hold the offset asked for. From below Start: the log start was raised (retention, DeleteRecords), read on from Start. From above End: the copy
// is shorter.
type RangeError struct {
	Broker           int32
	Target           Target
	From, Start, End int64
}

func (e *RangeError) Error() string {
	next := fmt.Sprintf("it starts above: go on from %d", e.Start)
	if e.From > e.End {
		next = "it ends below: take a longer copy"
	}
	return fmt.Sprintf("broker %d's copy of %s holds [%d,%d) and was asked for %d; %s", e.Broker, e.Target, e.Start, e.End, e.From, next)
}

// NoCopyError: Choose was given no copy that could be read.
type NoCopyError struct {
	Copies []Copy // each with its Err
}

func (e *NoCopyError) Error() string {
	if len(e.Copies) == 0 {
		return "no copy was given to choose from; look up the partition's replicas"
	}
	var s strings.Builder
	s.WriteString("no copy can be read: ")
	for i, c := range e.Copies {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "broker %d: %v", c.Broker, c.Err)
	}
	return s.String() + "; bring one of the brokers back"
}

// Unwrap lists the errors of the copies.
func (e *NoCopyError) Unwrap() []error {
	var all []error
	for _, c := range e.Copies {
		all = append(all, c.Err)
	}
	return all
}
