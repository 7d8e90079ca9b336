package mirror

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
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

// line makes the one line of an event. Names of groups, settings and rules are others' words, and so are errors; an error of several lines has them one behind the other.
func line(format string, args ...any) string {
	for i, a := range args {
		if err, ok := a.(error); ok {
			args[i] = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}
	return OneLine(fmt.Sprintf(format, args...))
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
	return OneLine(s)
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
	return line("%s: retry %d in %s: %s", e.at(), e.Attempt, e.After.Round(time.Millisecond), e.Reason)
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
	return line("%s: dropped [%d,%d), %d offsets: %s", e.at(), e.From, e.To, e.To-e.From, e.Reason)
}

// Level is Warn.
func (e RecordsDropped) Level() slog.Level { return slog.LevelWarn }

// CutMade: the copies of a failover were cut to where no transaction is torn, or could not be, and then are stopped as they are.
type CutMade struct {
	EventMeta
	Cut ConsistentCut
}

func (e CutMade) String() string {
	s := line("%s: consistent cut: %s", e.at(), e.Cut.words())
	if lines := e.Cut.lines(5); len(lines) > 0 {
		s += ": " + line("%s", strings.Join(lines, "; "))
	}
	return s
}

// Level is Warn.
func (e CutMade) Level() slog.Level { return slog.LevelWarn }

// RecordsLost: the source removed [From, To) before it was copied (F-19).
type RecordsLost struct {
	EventMeta
	From, To int64
	Reason   string
}

func (e RecordsLost) String() string {
	return line("%s: lost [%d,%d), %d offsets: %s", e.at(), e.From, e.To, e.To-e.From, e.Reason)
}

// Level is Error.
func (e RecordsLost) Level() slog.Level { return slog.LevelError }

// BatchRefetched: a damaged batch is fetched again.
type BatchRefetched struct {
	EventMeta
	Reason string
}

func (e BatchRefetched) String() string {
	return line("%s: fetched again: %s", e.at(), e.Reason)
}

// Level is Warn.
func (e BatchRefetched) Level() slog.Level { return slog.LevelWarn }

// EpochRaised: the destination's leader epoch was raised.
type EpochRaised struct {
	EventMeta
	Epoch int32
}

func (e EpochRaised) String() string {
	return line("%s: destination leader epoch raised to %d", e.at(), e.Epoch)
}

// StartRaised: the copy's log start followed the source's.
type StartRaised struct {
	EventMeta
	Offset int64
}

func (e StartRaised) String() string {
	return line("%s: log start raised to %d", e.at(), e.Offset)
}

// NothingLeft: the source's end lies above the copy's, but there is nothing to read in between (F-05).
type NothingLeft struct {
	EventMeta
	End       int64
	SourceEnd int64
}

func (e NothingLeft) String() string {
	return line("%s: nothing left to read; source end %d, mirror end %d", e.at(), e.SourceEnd, e.End)
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
		fmt.Fprintf(&b, "ABORT of producer %d (open since %s) at %d, ", a.ProducerID, KnownNumber(a.FirstOffset), a.Offset)
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
	return line("%s: recorded last mirror epoch %d, last mirror offset %d", e.at(), e.Epoch, e.Offset)
}

// LeaderMoved: another broker leads the partition at the source.
type LeaderMoved struct {
	EventMeta
	Leader int32
	Epoch  int32
}

func (e LeaderMoved) String() string {
	return line("%s: source leader is broker %d, leader epoch %d", e.at(), e.Leader, e.Epoch)
}

// LogDoubted: what a destination log says of itself (Recoverer) contradicts it, so it was read whole.
type LogDoubted struct {
	EventMeta
	Reason string
}

func (e LogDoubted) String() string {
	return line("%s: %s", e.at(), e.Reason)
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
		return line("%s: %s answers again", e.at(), where)
	}
	return line("%s: %s: %v", e.at(), where, e.Err)
}

// Level is Warn while it lasts.
func (e SourceTrouble) Level() slog.Level {
	if e.Err == nil {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// SourceThrottled: a broker of the source holds the mirror back because of a quota there, or has not done so for a while (Pause 0). Copying goes on, slower; nothing failed.
type SourceThrottled struct {
	EventMeta
	Broker int32
	Pause  time.Duration // that it asked for first
}

func (e SourceThrottled) String() string {
	if e.Pause == 0 {
		return line("%s: source broker %d throttles no more", e.at(), e.Broker)
	}
	return line("%s: throttled by the source, %d ms: broker %d asks for pauses because of a quota there; copying goes on, slower", e.at(), e.Pause.Milliseconds(), e.Broker)
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
	return line("%s: %v", e.at(), e.Err)
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
	return line("%s: state store: %v (trying again)", e.at(), e.Err)
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
	return line("%s: fenced: %v; another process has it, this one has stopped serving it", e.at(), e.Err)
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
	return line("%s: wanted %s from now on: %s", e.at(), e.Want, e.Reason)
}

// SyncTrouble: one part of metadata sync (groups, topic settings, access rules) cannot be followed as a whole, or can be again (Err nil). The records are copied all the same. Where it comes and
// goes its beginning and its end are told at most once each in ten minutes, and so are other words for it, if they last.
type SyncTrouble struct {
	EventMeta
	Part string
	Err  error
}

func (e SyncTrouble) String() string {
	if e.Err == nil {
		return line("%s: %s are followed again", e.at(), e.Part)
	}
	return line("%s: %s are not followed: %v", e.at(), e.Part, e.Err)
}

// Level is Warn while it lasts.
func (e SyncTrouble) Level() slog.Level {
	if e.Err == nil {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// SyncSkipped: metadata sync left something alone, for a reason that is new. It is looked at again at every refresh, and not told of again until it was not left alone for ten minutes, or another
// reason lasts when ten minutes have gone by.
type SyncSkipped struct {
	EventMeta
	Part   string
	Reason string // who, and why
}

func (e SyncSkipped) String() string { return line("%s: %s: %s", e.at(), e.Part, e.Reason) }

// GroupMovedBack: a group that was moved back at the source was moved back at the destination (F-62), or a group that was taken over when mirroring began.
type GroupMovedBack struct {
	EventMeta
	Group    string
	From, To int64
}

func (e GroupMovedBack) String() string {
	return line("%s: group %s moved back from %d to %d, as at the source", e.at(), e.Group, e.From, e.To)
}

// GroupsNotSettled: a stop could not put groups of a partition to their last place in time, and went on. It is tried again behind it. Groups nil: it is not known of which.
type GroupsNotSettled struct {
	EventMeta
	Groups []string
	End    int64 // last mirror offset: a group beyond it would miss records that are written now
	Err    error
}

func (e GroupsNotSettled) String() string {
	who := "the groups that the mirror moved"
	if len(e.Groups) > 0 {
		who = "groups " + few(e.Groups)
	}
	return line("%s: %s could not be put to their last place, and the stop went on: %v. It is tried again while they are idle; before their consumers start at the destination, see that none is above %d "+
		"(kafka-consumer-groups.sh --describe --group …; --reset-offsets --to-offset %d --topic %s:%d moves one)", e.at(), who, e.Err, e.End, e.End, e.Topic, e.Partition)
}

// Level is Error: a person has to look.
func (e GroupsNotSettled) Level() slog.Level { return slog.LevelError }

// GroupLeft: at a stop a group was left where it is, because it is not the mirror's to move.
type GroupLeft struct {
	EventMeta
	Group      string
	Active     bool
	Partitions []string  // each with both offsets, in words
	Seen       time.Time // when the group was looked at last; zero: never
}

func (e GroupLeft) String() string {
	why := "somebody has moved it at the destination"
	if e.Active {
		why = "it has members at the destination"
	}
	seen := ""
	if !e.Seen.IsZero() {
		seen = "; seen last at " + stamp(e.Seen)
	}
	return line("%s: group %s is left where it is, %s: %s%s", e.at(), e.Group, why, few(e.Partitions), seen)
}

// Level is Warn.
func (e GroupLeft) Level() slog.Level { return slog.LevelWarn }

// SettingsFollowed: settings of a topic were changed as at the source.
type SettingsFollowed struct {
	EventMeta
	Set     map[string]string
	Deleted []string // put back to the default
}

func (e SettingsFollowed) String() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(e.Set)) {
		words = append(words, name+"="+e.Set[name])
	}
	for _, name := range e.Deleted {
		words = append(words, name+" back to the default")
	}
	return line("%s: settings follow the source: %s", e.at(), strings.Join(words, ", "))
}

// RulesFollowed: access rules were made or removed as at the source.
type RulesFollowed struct {
	EventMeta
	Made, Removed []string
}

func (e RulesFollowed) String() string {
	s := e.at() + ": access rules follow the source"
	if len(e.Made) > 0 {
		s += fmt.Sprintf("; made %d: %s", len(e.Made), few(e.Made))
	}
	if len(e.Removed) > 0 {
		s += fmt.Sprintf("; removed %d that the mirror had made: %s", len(e.Removed), few(e.Removed))
	}
	return OneLine(s)
}

// SourceReturned: the cluster that stopped topics were copied from answers again. Nothing is done about that: it is looked at, and not copied from.
type SourceReturned struct {
	EventMeta
	ClusterID string
	Silent    time.Time // since when it had not answered, as far as this process looked
	Topics    []string  // that are stopped
}

func (e SourceReturned) String() string {
	return line("%s: the old source, cluster %s, answers again after %s; topics %s are written here now: keep its clients from it (a fence, or no address) before they write there too, then plan the failback",
		e.at(), e.ClusterID, e.Time.Sub(e.Silent).Round(time.Second), few(e.Topics))
}

// Level is Warn: a person has to see that nobody writes there.
func (e SourceReturned) Level() slog.Level { return slog.LevelWarn }

// SplitBrainSeen: the source of a stopped partition has more than was known when it was stopped: somebody writes there while the copy is written to. Told again, at most every ten minutes, while it grows.
type SplitBrainSeen struct {
	EventMeta
	SplitBrain SplitBrain
}

func (e SplitBrainSeen) String() string {
	return line("%s: split brain: %s; stop these clients, or move them here. None of it is in the copy: a failback hands it to the sink at the old source", e.at(), e.SplitBrain.words())
}

// Level is Error.
func (e SplitBrainSeen) Level() slog.Level { return slog.LevelError }

// CopyDiffers: comparing a copy with its source again and again (Config.VerifyRate) has found a difference or a hole that was not told yet, or none any more. Nothing is changed by that.
type CopyDiffers struct {
	EventMeta
	Verified Verified
}

func (e CopyDiffers) String() string {
	if !e.Verified.Verdict.Wrong() {
		return line("%s: compared with the source again, [%d,%d): there is no difference any more", e.at(), e.Verified.From, e.Verified.To)
	}
	return line("%s: the copy is not as the source from offset %d on, %s: %s. Nothing was changed; look at it with kafka-mirror --verify --topics %s, and see ClusterMirrorCopyDiffers in docs/runbook/alarms.md",
		e.at(), e.Verified.FirstWrong, e.Verified.Verdict, e.Verified.finding(), e.Topic)
}

// Level is Error while there is one.
func (e CopyDiffers) Level() slog.Level {
	if !e.Verified.Verdict.Wrong() {
		return slog.LevelInfo
	}
	return slog.LevelError
}

// VerificationPassEnded: each copy was compared with its source once more (Config.VerifyRate), and this is what came of it.
type VerificationPassEnded struct {
	EventMeta
	Took  time.Duration
	Bytes int64 // that were read, on both sides together
	// How many copies had each result.
	Identical, Partly, NotCompared, Hole, Different int
}

func (e VerificationPassEnded) String() string {
	return line("%s: copies compared with their source in %s, %d bytes read: %d identical, %d without a difference where they could be compared, %d not compared, %d with a hole, %d different",
		e.at(), e.Took.Round(time.Millisecond), e.Bytes, e.Identical, e.Partly, e.NotCompared, e.Hole, e.Different)
}

// Level is Warn where a copy is not as its source.
func (e VerificationPassEnded) Level() slog.Level {
	if e.Hole+e.Different > 0 {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
