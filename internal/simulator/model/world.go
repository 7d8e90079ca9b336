package model

import "time"

// World is all that was told so far. Not safe for concurrent use. Every method judges what it is told and then believes it, so that one fault is told once.
type World struct {
	broken []Violation
}

// New is a world in which nothing exists.
func New() *World { return &World{} }

// Violations are the rules that were broken, in the order in which they were.
func (w *World) Violations() []Violation { return w.broken }

// Now is the time of what is told next.
func (w *World) Now(t time.Time) {}

// Created: a partition exists, empty, from start on. open: clients write it; otherwise it was made to be a mirror's copy and its gate is closed.
func (w *World) Created(at At, start int64, leaderEpoch int32, open bool) {}

// Deleted: it exists no more. What is created under its name is another one.
func (w *World) Deleted(at At) {}

// Appended: whole batches now lie at the log's end, in this order. by names the process or client. accepted says that the writer was told so (a client's acknowledgement).
func (w *World) Appended(at At, who Who, by string, batches []Batch, accepted bool) {}

// Refused: a client's write was refused, and nothing was written.
func (w *World) Refused(at At, by string) {}

// Cut: the log now ends at end, and every batch that held an offset from end on is gone. For a cut by a mirror by is its process.
func (w *World) Cut(at At, who Who, by string, end int64) {}

// Restarted: the log is empty and its next offset is start.
func (w *World) Restarted(at At, who Who, by string, start int64) {}

// StartRaised: the log start moved up; the batch that holds it stays whole.
func (w *World) StartRaised(at At, who Who, by string, start int64) {}

// Compacted: these batches took the place of all that lay between the first and the last of them; offsets may be missing, none is new.
func (w *World) Compacted(at At, from, to int64, batches []Batch) {}

// Replicated: what lies below offset survives the loss of the process that leads the log.
func (w *World) Replicated(at At, offset int64) {}

// EpochRaised: the log's leader epoch is another one: an election, or a mirror's request.
func (w *World) EpochRaised(at At, who Who, by string, epoch int32) {}

// Gate: clients can write the log from now on, or no more.
func (w *World) Gate(at At, who Who, by string, open bool) {}

// Runs: a process took this partition of a mirror over; an earlier one must not change anything any more.
func (w *World) Runs(of Of, process string) {}

// Wished: what an operator wants from now on.
func (w *World) Wished(of Of, wish Wish) {}

// Consented: an operator allows dropping the records [from, to) of this copy in the episode that is to begin, or has begun (decision 7).
func (w *World) Consented(of Of, from, to int64, episode int32) {}

// Policy: what a mirror does when the source's log starts above the copy's end (decision 16), and the floor below which the log start is never followed up (0: none).
func (w *World) Policy(of Of, loss string, floor int64) {}

// Stored: this state record was written. Removed: there is none any more.
func (w *World) Stored(of Of, r Record) {}
func (w *World) Removed(of Of)          {}

// StoredEnd: this last-mirror-epoch record was written.
func (w *World) StoredEnd(of Of, e End) {}

// Asked: the mirror's process called the source about this partition (fetch, ends, epochs).
func (w *World) Asked(of Of, call string) {}

// Told: the mirror told its operator of records [from, to): "dropped", "lost" (gone at the source before they were copied), "hole".
func (w *World) Told(of Of, what string, from, to int64) {}

// Committed: a group's committed offset of a partition is now this; epoch −1: none.
func (w *World) Committed(at At, who Who, group string, offset int64, epoch int32) {}

// GivenID: the cluster gave a client this producer id. Settled: it gives none at or below highest any more.
func (w *World) GivenID(cluster string, id int64)      {}
func (w *World) Settled(cluster string, highest int64) {}

// SourceLost: nobody answers for this cluster from now on, or somebody does again.
func (w *World) SourceLost(cluster string, lost bool) {}

// Rest: every fault has been healed, and nothing moves any more. Every partition must have come to where its wish is, or say why a person is needed.
func (w *World) Rest(of Of) {}

// Stopped: faults were healed except that the source stays lost, a stop was wished, and bound has passed (invariant 8).
func (w *World) Stopped(of Of) {}

// Holds: the log is exactly this. What differs from what was told is a fault of who tells, and ends the run.
func (w *World) Holds(at At, start, end, replicated int64, leaderEpoch int32, open bool, batches []Batch) error {
	return nil
}
