// Package partition is the core of one mirrored partition: Step(event) → effects. Single-threaded, no goroutine, clock, channel or map iteration, no client.
// mirror runs it with goroutines and a network; the simulator runs the same code without either.
package partition

import (
	"time"

	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/statemachine"
)

// LossPolicy is what happens when the source's log starts beyond our end (decision 16).
type LossPolicy uint8

// The loss policies.
const (
	LossRestart LossPolicy = iota // the copy starts where the source's log now starts
	LossFail                      // FAILED there
	LossKeep                      // older records stay; a reported hole. The source's log start is then never followed, or a restart would drop what was to be kept
)

// Config is what a partition is told once. Durations of 0 mean the default in brackets.
type Config struct {
	Mirror        string
	Topic         string
	Partition     int32
	TopicID       statemachine.TopicID // the destination's
	SourceCluster string               // expected cluster id; "" accepts the first one seen
	Retry         statemachine.RetryPolicy
	Loss          LossPolicy
	StartFloor    int64         // the log start is never raised above it by following; 0: no floor is set
	FetchBackoff  time.Duration // [1 s]
	ReplicaWait   time.Duration // bound of StopAwaitReplicated [10 s]
	MaxBatch      int32         // the destination's limit for one batch in bytes; 0: none (F-12)
	Refetches     int           // of a batch with a bad checksum before FAILED [3]
	Seed          uint64        // of the jitter
}

// Core is one partition. Not safe for concurrent use.
type Core struct {
	_ int // contract
}

// New returns the core of a partition that has not been Loaded.
func New(cfg Config) *Core { panic("contract") }

// Step takes one event at a time now and returns what is to be done. The slice is reused by the next Step. While a Persist is unanswered, events queue inside.
func (c *Core) Step(now time.Time, ev Event) []Effect { panic("contract") }

// Status is a copy of what the core knows.
type Status struct {
	Record            statemachine.PartitionState
	Want              statemachine.Desired
	Step              string // of PREPARING or STOPPING, "" elsewhere
	LME               *statemachine.LastMirrorEpoch
	Log               LogView
	Source            SourceView
	SourceSeen        time.Time // when Source's ends were last measured; zero: never
	Denied            bool      // lag cannot be measured (F-73)
	CaughtUp          time.Time // last moment at which our end was ≥ the source end known then; zero: never
	NothingLeft       bool      // F-05: an empty fetch proved that nothing is left to read
	NoEpochs          bool
	LastStable        int64
	InFlight          []producerstate.Transaction
	Epochs            []logtrunc.Entry
	HighestProducerID int64
	LostFrom, LostTo  int64    // the last lost range; both 0: none
	Needs             *Consent // what a refused Start would drop
	Aborts            []Marker // written by the last STOPPING of this process
	ResetAt           int64    // −1: none
}

// Status copies; it may be called between Steps only.
func (c *Core) Status() Status { panic("contract") }
