package mirror

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestNotAnsweredSaysWhoIsHeardOf: which process that is, what hinders it, or that nobody can know.
func TestNotAnsweredSaysWhoIsHeardOf(t *testing.T) {
	q := FailbackQuestion{Mirror: "m", Number: 1, Asked: planTime.Add(-time.Minute)}
	for what, tc := range map[string]struct {
		nodes []NodeReport
		alive bool
		words string
	}{
		"none ever":        {nil, false, "NO PROCESS runs this mirror (none has ever reported)"},
		"another mirror's": {[]NodeReport{{Owner: "o", Mirror: "other", Seen: planTime}}, false, "none has ever reported"},
		"at work":          {[]NodeReport{{Owner: "o", Mirror: "m", Node: "mirror-1", Host: "h", Seen: planTime}}, true, "process mirror-1 on host h runs the mirror and is not done"},
		"of another version": {[]NodeReport{{Owner: "o", Mirror: "m", Node: "mirror-1", Host: "h", Seen: planTime, Version: "v0.9"}}, true,
			"process mirror-1 on host h runs the mirror and is not done. It runs version v0.9, this program is "},
		"without its source": {[]NodeReport{{Owner: "o", Mirror: "m", Host: "h", Seen: planTime, SourceError: "refused\n"}}, true, `process o on host h runs the mirror, and its source does not answer (refused\n); mend that`},
		"dead":               {[]NodeReport{{Owner: "o", Mirror: "m", Host: "h", Seen: planTime.Add(-time.Hour)}}, false, "NO PROCESS runs this mirror (last word 60m ago, of process o on host h); start it"},
		"one dead, one lives": {[]NodeReport{{Owner: "a", Mirror: "m", Host: "h", Seen: planTime.Add(-time.Second)}, {Owner: "b", Mirror: "m", Host: "i", Seen: planTime.Add(-time.Hour)}}, true,
			"process a on host h runs the mirror"},
		"a clock ahead": {[]NodeReport{{Owner: "o", Mirror: "m", Host: "h", Seen: planTime.Add(time.Hour)}}, false, "WHETHER A PROCESS RUNS this mirror is not known: the clock of h is ahead"},
	} {
		a := (&adminWorld{}).adminOver(t, NewMemoryControl(), nil)
		c := &call{Admin: a, reports: Reports{Nodes: tc.nodes}}
		err := c.unanswered(q, errDown, context.DeadlineExceeded)
		var none *NotAnsweredError
		if !errors.As(err, &none) || none.Alive != tc.alive || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errDown) || !strings.Contains(err.Error(), tc.words) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
