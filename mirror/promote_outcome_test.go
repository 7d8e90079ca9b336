package mirror

import (
	"strings"
	"testing"
	"time"
)

// TestEachOutcomeOfAPromotionSaysWhatIsTrueAndWhatToDo: the verdict of a report, behind a fence and without one.
func TestEachOutcomeOfAPromotionSaysWhatIsTrueAndWhatToDo(t *testing.T) {
	result := []PromoteResult{{Topic: "t", FinalOffset: KnownNumber(1), SourceEnd: KnownNumber(1), SourceSeen: time.Unix(9, 0)}}
	for name, tc := range map[string]struct {
		r     PromoteReport
		words []string
		not   []string
	}{
		"refused":                 {PromoteReport{Outcome: PromoteRefused}, []string{"REFUSED: this has changed nothing"}, []string{"abort", "stays up"}},
		"given up":                {PromoteReport{Outcome: PromoteGivenUp, Fence: "f"}, []string{"GIVEN UP: nothing has changed at the destination", "the fence is down"}, []string{"MAY STILL BE UP", "the source is as it was"}},
		"given up, fence up":      {PromoteReport{Outcome: PromoteGivenUp, Fence: "f", FenceUp: true}, []string{"THE FENCE MAY STILL BE UP: abort the promotion, which lowers it"}, []string{"the fence is down"}},
		"given up, no fence":      {PromoteReport{Outcome: PromoteGivenUp}, []string{"GIVEN UP: nothing has changed", "the mirror goes on"}, []string{"the fence is down", "MAY STILL BE UP", "abort"}},
		"taken over":              {PromoteReport{Outcome: PromoteTakenOver, Fence: "f", FenceUp: true}, []string{"TAKEN OVER", "describe the mirror", "the fence is theirs"}, []string{"abort"}},
		"taken over, no fence":    {PromoteReport{Outcome: PromoteTakenOver}, []string{"TAKEN OVER", "describe the mirror"}, []string{"abort", "the fence is"}},
		"part stopped":            {PromoteReport{Outcome: PromotePartStopped, Fence: "f", FenceUp: true}, []string{"PART STOPPED BY SOMEBODY ELSE", "the fence stays up", "Promote again"}, []string{"abort"}},
		"part stopped, no fence":  {PromoteReport{Outcome: PromotePartStopped}, []string{"PART STOPPED BY SOMEBODY ELSE", "Promote again"}, []string{"abort", "the fence stays up"}},
		"unknown":                 {PromoteReport{Outcome: PromoteUnknown, Fence: "f", FenceUp: true}, []string{"NOT KNOWN whether the stop was recorded", "the fence may be up", "Promote again"}, nil},
		"unknown, no fence":       {PromoteReport{Outcome: PromoteUnknown}, []string{"NOT KNOWN whether the stop was recorded", "Promote again"}, []string{"the fence"}},
		"incomplete":              {PromoteReport{Outcome: PromoteIncomplete, Stopped: true, Fence: "f", FenceUp: true}, []string{"NOT COMPLETE", "promote again", "When the promotion has ended"}, []string{"abort"}},
		"not proved":              {PromoteReport{Outcome: PromoteNotProved, Stopped: true, Fence: "f", FenceUp: true, Why: []string{"why"}, Partitions: result}, []string{"NOT PROVED", "why", "The fence stays up", "LowerFence"}, []string{"abort"}},
		"proved":                  {PromoteReport{Outcome: PromoteProved, Stopped: true, Proved: true, Fence: "f", FenceUp: true, Partitions: result}, []string{"PROVED: nothing", "The fence stays up", "LowerFence"}, []string{"NOT PROVED", "abort"}},
		"proved, fence by a rule": {PromoteReport{Outcome: PromoteProved, Stopped: true, Proved: true, Fence: "f", FenceUp: true, TakeDown: []string{"by hand"}, Partitions: result}, []string{"LowerFence", "by hand"}, nil},
		"equal": {PromoteReport{Outcome: PromoteEqual, Stopped: true, OnlySlows: true, Fence: "f", FenceUp: true, LookedLast: time.Unix(9, 0), Why: []string{"slows"}, Partitions: result},
			[]string{"EQUAL at ", "not proved: this fence does not forbid writes", "LowerFence"}, []string{"abort"}},
	} {
		tc.r.Mirror = "m"
		said := tc.r.String()
		for _, w := range tc.words {
			if !strings.Contains(said, w) {
				t.Errorf("%s: no %q in\n%s", name, w, said)
			}
		}
		for _, w := range tc.not {
			if strings.Contains(said, w) {
				t.Errorf("%s: %q is not true, in\n%s", name, w, said)
			}
		}
	}
}
