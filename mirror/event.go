package mirror

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Event is something that happened in the background. The concrete types are in this file. String is one line for a person; logs, metrics and status say the same.
type Event interface {
	fmt.Stringer
	// Where names the mirror and the partition (Partition −1: the whole topic; Topic "": the whole mirror), and when it happened.
	Where() EventMeta
	// Level is how loud the event is in a log.
	Level() slog.Level
}

// EventMeta is common to all events.
type EventMeta struct {
	Time      time.Time
	Mirror    string
	Topic     string
	Partition int32
}

// Where returns the meta data itself, so that every event has it.
func (m EventMeta) Where() EventMeta { return m }

// Level is Info unless an event says otherwise.
func (m EventMeta) Level() slog.Level { return slog.LevelInfo }

func (m EventMeta) at() string {
	switch {
	case m.Topic == "":
		return m.Mirror
	case m.Partition < 0:
		return m.Mirror + "/" + m.Topic
	}
	return fmt.Sprintf("%s/%s-%d", m.Mirror, m.Topic, m.Partition)
}

// StateChanged: a partition went from one state to another, durably.
type StateChanged struct {
	EventMeta
	From, To     statemachine.State
	Reason       string // of FAILED, and of a STOPPED log that clients could write before it was stopped
	NonRetryable bool
}

func (e StateChanged) String() string {
	s := fmt.Sprintf("%s: %s → %s", e.at(), e.From, e.To)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.NonRetryable {
		s += " (not retried: needs a person)"
	}
	return s
}

// Level is Error for FAILED, and Warn for a STOPPED with a reason.
func (e StateChanged) Level() slog.Level {
	switch {
	case e.To == statemachine.Failed:
		return slog.LevelError
	case e.To == statemachine.Stopped && e.Reason != "":
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// RetryScheduled: a failed partition will be tried again.
type RetryScheduled struct {
	EventMeta
	Attempt int16
	After   time.Duration
	Reason  string
}

func (e RetryScheduled) String() string {
	return fmt.Sprintf("%s: retry %d in %s: %s", e.at(), e.Attempt, e.After.Round(time.Millisecond), e.Reason)
}

// Level is Warn.
func (e RetryScheduled) Level() slog.Level { return slog.LevelWarn }

// RecordsDropped: records [From, To) of the copy were cut. Records counts offsets.
type RecordsDropped struct {
	EventMeta
	From, To int64
	Reason   string
}

func (e RecordsDropped) String() string {
	return fmt.Sprintf("%s: dropped [%d,%d), %d offsets: %s", e.at(), e.From, e.To, e.To-e.From, e.Reason)
}

// Level is Warn.
func (e RecordsDropped) Level() slog.Level { return slog.LevelWarn }

// RecordsLost: the source removed [From, To) before it was copied (F-19).
type RecordsLost struct {
	EventMeta
	From, To int64
	Reason   string
}

func (e RecordsLost) String() string {
	return fmt.Sprintf("%s: lost [%d,%d), %d offsets: %s", e.at(), e.From, e.To, e.To-e.From, e.Reason)
}

// Level is Error.
func (e RecordsLost) Level() slog.Level { return slog.LevelError }

// BatchRefetched: a damaged batch is fetched again.
type BatchRefetched struct {
	EventMeta
	Reason string
}

func (e BatchRefetched) String() string {
	return fmt.Sprintf("%s: fetched again: %s", e.at(), e.Reason)
}

// Level is Warn.
func (e BatchRefetched) Level() slog.Level { return slog.LevelWarn }

// EpochRaised: the destination's leader epoch was raised.
type EpochRaised struct {
	EventMeta
	Epoch int32
}

func (e EpochRaised) String() string {
	return fmt.Sprintf("%s: destination leader epoch raised to %d", e.at(), e.Epoch)
}

// StartRaised: the copy's log start followed the source's.
type StartRaised struct {
	EventMeta
	Offset int64
}

func (e StartRaised) String() string {
	return fmt.Sprintf("%s: log start raised to %d", e.at(), e.Offset)
}

// NothingLeft: the source's end lies above the copy's, but there is nothing to read in between (F-05).
type NothingLeft struct {
	EventMeta
	End       int64
	SourceEnd int64
}

func (e NothingLeft) String() string {
	return fmt.Sprintf("%s: nothing left to read; source end %d, mirror end %d", e.at(), e.SourceEnd, e.End)
}

// MarkersWritten: the markers that end a mirror are in the log.
type MarkersWritten struct {
	EventMeta
	Aborts  []AbortMarker
	ResetAt int64
}

func (e MarkersWritten) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", e.at())
	for _, a := range e.Aborts {
		fmt.Fprintf(&b, "ABORT of producer %d (open since %d) at %d, ", a.ProducerID, a.FirstOffset, a.Offset)
	}
	fmt.Fprintf(&b, "MIRROR_PID_RESET at %d", e.ResetAt)
	return b.String()
}

// LastEpochRecorded: LME and LMO of this episode are durable.
type LastEpochRecorded struct {
	EventMeta
	Epoch  int32
	Offset int64
}

func (e LastEpochRecorded) String() string {
	return fmt.Sprintf("%s: recorded last mirror epoch %d, last mirror offset %d", e.at(), e.Epoch, e.Offset)
}

// LeaderMoved: another broker leads the partition at the source.
type LeaderMoved struct {
	EventMeta
	Leader int32
	Epoch  int32
}

func (e LeaderMoved) String() string {
	return fmt.Sprintf("%s: source leader is broker %d, leader epoch %d", e.at(), e.Leader, e.Epoch)
}

// LogDoubted: what a destination log says of itself (Recoverer) contradicts it, so it was read whole.
type LogDoubted struct {
	EventMeta
	Reason string
}

func (e LogDoubted) String() string {
	return fmt.Sprintf("%s: %s", e.at(), e.Reason)
}

// Level is Error: the destination's Log is wrong.
func (e LogDoubted) Level() slog.Level { return slog.LevelError }

// SourceTrouble: a call to the source failed as a whole, or works again (Err nil).
type SourceTrouble struct {
	EventMeta
	Broker int32 // −1: no single broker
	Err    error
}

func (e SourceTrouble) String() string {
	where := "source"
	if e.Broker >= 0 {
		where = fmt.Sprintf("source broker %d", e.Broker)
	}
	if e.Err == nil {
		return fmt.Sprintf("%s: %s answers again", e.at(), where)
	}
	return fmt.Sprintf("%s: %s: %v", e.at(), where, e.Err)
}

// Level is Warn while it lasts.
func (e SourceTrouble) Level() slog.Level {
	if e.Err == nil {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// TopicTrouble: a topic cannot be mirrored as it is (missing at the source, partition counts differ, creation refused); Err nil: solved.
type TopicTrouble struct {
	EventMeta
	Err error
}

func (e TopicTrouble) String() string {
	if e.Err == nil {
		return e.at() + ": ready"
	}
	return fmt.Sprintf("%s: %v", e.at(), e.Err)
}

// Level is Error while it lasts.
func (e TopicTrouble) Level() slog.Level {
	if e.Err == nil {
		return slog.LevelInfo
	}
	return slog.LevelError
}

// StoreTrouble: the state store did not take a write; it is tried again. Err nil: it works again.
type StoreTrouble struct {
	EventMeta
	Err error
}

func (e StoreTrouble) String() string {
	if e.Err == nil {
		return e.at() + ": state store works again"
	}
	return fmt.Sprintf("%s: state store: %v (trying again)", e.at(), e.Err)
}

// Level is Error while it lasts.
func (e StoreTrouble) Level() slog.Level {
	if e.Err == nil {
		return slog.LevelInfo
	}
	return slog.LevelError
}

// Fenced: another process has this mirror's owner name, or this partition. Nothing more is written here.
type Fenced struct {
	EventMeta
	Err error
}

func (e Fenced) String() string {
	return fmt.Sprintf("%s: fenced: %v; another process has it, this one has stopped serving it", e.at(), e.Err)
}

// Level is Error.
func (e Fenced) Level() slog.Level { return slog.LevelError }

// MirrorDeleted: the mirror was deleted, and this process has taken out its state records.
type MirrorDeleted struct {
	EventMeta
	At     time.Time // when somebody deleted it
	Purged bool      // the last mirror epochs too
}

func (e MirrorDeleted) String() string {
	s := fmt.Sprintf("%s: the mirror was deleted at %s; its state records are taken out, ", e.at(), stamp(e.At))
	if e.Purged {
		return s + "its last mirror epochs too: a failback copies everything again"
	}
	return s + "its last mirror epochs are kept for a failback"
}

// WishRecorded: the mirror itself has changed what is wanted of a topic, because of the patterns in its settings.
type WishRecorded struct {
	EventMeta
	Want   statemachine.Desired
	Reason string
}

func (e WishRecorded) String() string {
	return fmt.Sprintf("%s: wanted %s from now on: %s", e.at(), e.Want, e.Reason)
}
