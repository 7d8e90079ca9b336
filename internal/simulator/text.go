package simulator

import (
	"fmt"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
)

// eventText is an event in a transcript.
func eventText(e *partition.Event) string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	switch e.Kind {
	case partition.Loaded:
		fmt.Fprintf(&b, " %v episode %d, log %s", e.Record.State, e.Record.Episode, viewText(&e.Log))
		if e.LME != nil {
			fmt.Fprintf(&b, ", LME %d LMO %d of episode %d", e.LME.Epoch, e.LME.Offset, e.LME.Episode)
		}
	case partition.Wish:
		fmt.Fprintf(&b, " %v", e.Want)
		for _, k := range e.Consents {
			fmt.Fprintf(&b, ", consent [%d, %d) in episode %d", k.From, k.To, k.Episode)
		}
	case partition.Persisted:
		fmt.Fprintf(&b, " %d", e.StateEpoch)
	case partition.Done, partition.ReplicatedMoved:
		if e.Err == nil {
			fmt.Fprintf(&b, " log %s", viewText(&e.Log))
		}
	case partition.SourceSeen, partition.SourceChanged:
		fmt.Fprintf(&b, " leader %d epoch %d [%d, %d) topic %v", e.Source.LeaderID, e.Source.LeaderEpoch, e.Source.LogStart, e.Source.HighWatermark, e.Source.TopicID)
		if e.Source.LME >= 0 {
			fmt.Fprintf(&b, " LME %d LMO %d", e.Source.LME, e.Source.LMO)
		}
		if e.Source.Refused != "" {
			fmt.Fprintf(&b, " refused: %s", e.Source.Refused)
		}
	case partition.EpochAnswer:
		fmt.Fprintf(&b, " epoch %d end %d", e.AnswerEpoch, e.AnswerEnd)
	case partition.Fetched:
		fmt.Fprintf(&b, " %v at %d under %d, high %d start %d: %s", e.Fetch.Code, e.Fetch.Offset, e.Fetch.LeaderEpoch, e.Fetch.HighWatermark, e.Fetch.LogStart, listOf(heldFrom(e.Fetch.Records)))
		if e.Fetch.Err != nil {
			fmt.Fprintf(&b, ": %v", e.Fetch.Err)
		}
	}
	if e.Err != nil {
		fmt.Fprintf(&b, " error: %v", e.Err)
	}
	return b.String()
}

func viewText(v *partition.LogView) string {
	return fmt.Sprintf("[%d, %d) replicated %d epoch %d %v", v.Start, v.End, v.Replicated, v.LeaderEpoch, v.Owner)
}

// effectText is an effect in a transcript.
func effectText(e *partition.Effect) string {
	switch e.Kind {
	case partition.Emit:
		return "* " + e.Note.String()
	case partition.Persist:
		s := fmt.Sprintf("Persist %v episode %d", e.Record.State, e.Record.Episode)
		if e.Record.FoundOpen {
			s += " found-open"
		}
		if e.LME != nil {
			s += fmt.Sprintf(", LME %d LMO %d of episode %d", e.LME.Epoch, e.LME.Offset, e.LME.Episode)
		}
		return s
	case partition.CheckSource:
		if e.Prepare {
			return "CheckSource prepare"
		}
	case partition.AskEpoch, partition.RaiseEpoch:
		return fmt.Sprintf("%v %d", e.Kind, e.Epoch)
	case partition.AwaitReplicated, partition.Truncate, partition.Reset, partition.RaiseStart, partition.SettleProducerIDs, partition.ClampGroups, partition.Rebuild:
		return fmt.Sprintf("%v %d", e.Kind, e.Offset)
	case partition.AddFetcher, partition.Continue:
		return fmt.Sprintf("%v at %d under epoch %d, last epoch %d, after %v", e.Kind, e.Offset, e.Epoch, e.LastEpoch, e.Bound.Round(time.Millisecond))
	case partition.Append:
		return fmt.Sprintf("Append under epoch %d: %s", e.Epoch, listOf(heldFrom(e.Bytes)))
	case partition.ScheduleRetry:
		return fmt.Sprintf("ScheduleRetry after %v", e.Bound.Round(time.Millisecond))
	}
	return e.Kind.String()
}
