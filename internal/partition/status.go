package partition

import (
	"time"

	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Status is a copy of what the core knows.
type Status struct {
	Record            statemachine.PartitionState
	Want              statemachine.Desired
	Step              string                        // of PREPARING or STOPPING, "" elsewhere
	Waiting           string                        // why nothing is copied just now although the partition has not failed, "" if nothing is waited for
	LME               *statemachine.LastMirrorEpoch // where the mirror ended; nil until a stop has recorded it
	Log               LogView
	Source            SourceView
	SourceSeen        time.Time // when Source's ends were last measured; zero: never
	Denied            bool      // lag cannot be measured (F-73)
	CaughtUp          time.Time // last moment at which our end was ≥ the source end known then; zero: never
	NothingLeft       bool      // F-05: an empty fetch proved that nothing is left to read up to the source's end as it is known now
	NoEpochs          bool
	Proved            bool  // what the log holds is known to be the source's
	UsedTo            int64 // where our own first batch would go at least, whatever becomes of this process: the log's end, or that of a hole that is recorded behind it
	LastStable        int64
	InFlight          []producerstate.Transaction
	Epochs            []logtrunc.Entry
	HighestProducerID int64
	LostFrom, LostTo  int64    // the last lost range; both 0: none
	Needs             *Consent // what a refused Start would drop
	Aborts            []Marker // written by the last STOPPING of this process
	ResetAt           int64    // −1: none
}

// Log is what is known of the log. It may be called between Steps only.
func (c *Core) Log() LogView { return c.log }

// Status copies; it may be called between Steps only.
func (c *Core) Status() Status {
	s := Status{
		Record: c.rec, Want: c.want, Step: c.step, Waiting: c.waiting, LME: copyLME(c.lme), Log: c.log,
		Source: c.src, SourceSeen: c.seen, Denied: c.denied, CaughtUp: c.caughtUp, NothingLeft: c.nothingLeft && c.provenEnd >= c.src.HighWatermark, UsedTo: max(c.log.End, c.keptHole()), NoEpochs: c.src.NoEpochs, Proved: c.proved(),
		LastStable: c.LastStable(c.log.Replicated), InFlight: c.producers.InFlight(), Epochs: c.epochs.Entries(),
		HighestProducerID: c.highestProducerID(), LostFrom: c.lostFrom, LostTo: c.lostTo,
		Aborts: append([]Marker(nil), c.aborts...), ResetAt: c.resetMade,
	}
	if c.needs != nil {
		n := *c.needs
		s.Needs = &n
	}
	return s
}

// proved says that what the log holds is known to be the source's: there never was anything in it, PREPARING has compared it, or MIRRORING was reached in this episode and nothing was begun anew since.
func (c *Core) proved() bool {
	at := c.rec.State
	if at == statemachine.Failed {
		at = c.rec.PreviousState
	}
	switch at {
	case statemachine.Unknown, statemachine.Preparing:
		return c.prefix || c.log.End == 0
	case statemachine.Stopping, statemachine.Stopped:
		return c.prefix || c.log.End == 0 || c.rec.Mirrored
	}
	return true
}

// LastStable is the copy's last stable offset if everything below replicated is; replicas may hold more by now than Status says (ReplicatedMoved). It may be called between Steps only.
func (c *Core) LastStable(replicated int64) int64 {
	return c.producers.LastStable(max(c.log.Replicated, min(replicated, c.log.End)))
}

// Where is the state that the partition is in, and the step of PREPARING or STOPPING; it may be called between Steps only, and copies nothing.
func (c *Core) Where() (state statemachine.State, step string) { return c.rec.State, c.step }
