package partition

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// endsForGood says that an answer to a state write means that somebody else decides about this partition now, or has decided.
func endsForGood(err error) bool {
	var illegal *statemachine.IllegalMoveError
	return errors.Is(err, statemachine.ErrFenced) || errors.Is(err, statemachine.ErrNotOwner) || errors.Is(err, statemachine.ErrStateEpoch) || errors.Is(err, statemachine.ErrLMEWritten) || errors.As(err, &illegal)
}

func name(names []string, i int, kind string) string {
	if i >= 0 && i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}

// String is the policy's name: restart, fail, keep.
func (l LossPolicy) String() string {
	return name([]string{"restart", "fail", "keep"}, int(l), "LossPolicy")
}

// String is ours, open or foreign.
func (o Ownership) String() string {
	return name([]string{"ours", "open", "foreign"}, int(o), "Ownership")
}

// String is the effect's name as declared.
func (k EffectKind) String() string {
	return name([]string{
		Persist: "Persist", CheckSource: "CheckSource", AskEpoch: "AskEpoch", AskOwner: "AskOwner", CloseForWrites: "CloseForWrites", AwaitReplicated: "AwaitReplicated",
		Truncate: "Truncate", Reset: "Reset", AwaitTruncated: "AwaitTruncated", RaiseStart: "RaiseStart", RaiseEpoch: "RaiseEpoch", Rebuild: "Rebuild",
		AddFetcher: "AddFetcher", Continue: "Continue", RemoveFetcher: "RemoveFetcher", Append: "Append", QuiesceGroups: "QuiesceGroups",
		SettleProducerIDs: "SettleProducerIDs", ClampGroups: "ClampGroups", OpenLog: "OpenLog", ScheduleRetry: "ScheduleRetry", ConsentUsed: "ConsentUsed",
		Emit: "Emit", Halt: "Halt", AskRecovered: "AskRecovered", AskCut: "AskCut",
	}, int(k), "EffectKind")
}

// String is the event's name as declared.
func (k EventKind) String() string {
	return name([]string{
		Loaded: "Loaded", Wish: "Wish", Persisted: "Persisted", Done: "Done", SourceSeen: "SourceSeen", EpochAnswer: "EpochAnswer", Replayed: "Replayed",
		Fetched: "Fetched", RetryDue: "RetryDue", SourceChanged: "SourceChanged", ReplicatedMoved: "ReplicatedMoved", FailPartition: "FailPartition", Recover: "Recover", Tuned: "Tuned",
	}, int(k), "EventKind")
}

// String is the note's name as declared.
func (k NoteKind) String() string {
	return name([]string{
		StateChanged: "StateChanged", RecordsDropped: "RecordsDropped", RecordsLost: "RecordsLost", Retrying: "Retrying", Refetched: "Refetched",
		EpochRaised: "EpochRaised", StartRaised: "StartRaised", NothingLeft: "NothingLeft", MarkersWritten: "MarkersWritten", LMERecorded: "LMERecorded",
		LeaderMoved: "LeaderMoved", LogDoubted: "LogDoubted",
	}, int(k), "NoteKind")
}

// String is the code's name without Fetch.
func (k FetchCode) String() string {
	return name([]string{
		"OK", "Diverging", "OffsetOutOfRange", "FencedEpoch", "NotLeader", "Retry", "TopicID", "Denied", "Unsupported",
	}, int(k), "FetchCode")
}

// String is the note in one line for a person.
func (n Note) String() string {
	switch n.Kind {
	case StateChanged:
		s := fmt.Sprintf("%v → %v", n.From, n.To)
		if n.To == statemachine.Failed {
			s += ": " + n.Message
			if n.NonRetryable {
				s += " (not retried)"
			}
		}
		if n.To == statemachine.Stopped && n.Message != "" {
			s += ": " + n.Message
		}
		return s
	case RecordsDropped:
		return n.Truncated.String()
	case RecordsLost:
		return fmt.Sprintf("lost [%d, %d): %s", n.RangeFrom, n.RangeTo, n.Message)
	case Retrying:
		return fmt.Sprintf("try %d after %v: %s", n.Attempt, n.After.Round(time.Millisecond), n.Message)
	case Refetched:
		return fmt.Sprintf("fetched again from %d, try %d: %s", n.Offset, n.Attempt, n.Message)
	case EpochRaised:
		return fmt.Sprintf("destination leader epoch raised to %d", n.Epoch)
	case StartRaised:
		return fmt.Sprintf("log start raised to %d", n.Offset)
	case NothingLeft, LogDoubted:
		return n.Message
	case MarkersWritten:
		var b strings.Builder
		for _, a := range n.Aborts {
			fmt.Fprintf(&b, "ABORT at %d of producer %d epoch %d, open since %d; ", a.Offset, a.ProducerID, a.ProducerEpoch, a.FirstOffset)
		}
		if n.ResetAt < 0 {
			b.WriteString("no producer-id reset of this run")
		} else {
			fmt.Fprintf(&b, "producer-id reset at %d", n.ResetAt)
		}
		return b.String()
	case LMERecorded:
		return fmt.Sprintf("last mirror epoch %d, last mirror offset %d", n.Epoch, n.Offset)
	case LeaderMoved:
		return fmt.Sprintf("source leader is broker %d in epoch %d", n.LeaderID, n.Epoch)
	}
	return n.Kind.String()
}

// String is the range, the reason and the rounds that proved it.
func (t Truncation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "dropped [%d, %d): %s", t.From, t.To, t.Reason)
	for _, r := range t.Rounds {
		fmt.Fprintf(&b, "; asked epoch %d, answered (%d, %d), common below %d", r.Ask, r.Epoch, r.End, r.Boundary)
	}
	return b.String()
}

// String is the consent as a person would give it.
func (k Consent) String() string {
	return fmt.Sprintf("drop [%d, %d) of %v-%d in episode %d", k.From, k.To, k.TopicID, k.Partition, k.Episode)
}

// String is the status in a few lines for a person.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "state %v, wanted %v, episode %d", s.Record.State, s.Want, s.Record.Episode)
	if s.Step != "" {
		fmt.Fprintf(&b, ", step %s", s.Step)
	}
	if s.Record.RetryAttempt != 0 {
		fmt.Fprintf(&b, ", attempt %d", s.Record.RetryAttempt)
	}
	b.WriteByte('\n')
	for _, line := range [][2]string{{"reason", s.Record.ErrorMessage}, {"waiting", s.Waiting}} {
		if line[1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", line[0], line[1])
		}
	}
	fmt.Fprintf(&b, "copy [%d, %d), replicated %d, leader epoch %d, %v, last stable %d, epochs %v\n",
		s.Log.Start, s.Log.End, s.Log.Replicated, s.Log.LeaderEpoch, s.Log.Owner, s.LastStable, s.Epochs)
	fmt.Fprintf(&b, "source cluster %q, leader %d in epoch %d, log start %s, end %s", s.Source.ClusterID, s.Source.LeaderID, s.Source.LeaderEpoch, orUnknown(s.Source.LogStart), orUnknown(s.Source.HighWatermark))
	switch {
	case s.Denied:
		b.WriteString(", reading is denied, lag unknown")
	case s.SourceSeen.IsZero():
		b.WriteString(", never measured")
	case s.CaughtUp.IsZero():
		b.WriteString(", never caught up")
	default:
		fmt.Fprintf(&b, ", caught up %v before the last look", max(0, s.SourceSeen.Sub(s.CaughtUp)))
	}
	if s.NothingLeft {
		b.WriteString(", nothing left to read")
	}
	if s.NoEpochs {
		b.WriteString(", no divergence checks")
	}
	b.WriteByte('\n')
	for _, t := range s.InFlight {
		fmt.Fprintf(&b, "open transaction of producer %d epoch %d since %d\n", t.ProducerID, t.ProducerEpoch, t.FirstOffset)
	}
	if s.LostTo > 0 {
		fmt.Fprintf(&b, "lost [%d, %d)\n", s.LostFrom, s.LostTo)
	}
	if s.Needs != nil {
		fmt.Fprintf(&b, "needs consent: %v\n", *s.Needs)
	}
	if s.LME != nil {
		fmt.Fprintf(&b, "last mirror epoch %d, last mirror offset %d, episode %d\n", s.LME.Epoch, s.LME.Offset, s.LME.Episode)
	}
	if len(s.Aborts) > 0 || s.ResetAt >= 0 {
		fmt.Fprintf(&b, "%v\n", Note{Kind: MarkersWritten, Aborts: s.Aborts, ResetAt: s.ResetAt})
	}
	return b.String()
}

func orUnknown(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
}
