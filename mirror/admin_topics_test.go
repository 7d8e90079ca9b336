package mirror

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestStopSaysThatNothingWillOpen: a stop is recorded whether or not a process lives that carries it out, and whoever stops has to know.
func TestStopSaysThatNothingWillOpen(t *testing.T) {
	now := time.Now()
	node := func(seen time.Time) *NodeReport { return &NodeReport{Owner: "o", Mirror: "m", Host: "h", Seen: seen} }
	const recorded = ": a stop is recorded, and nothing opens until one is started"
	for what, tc := range map[string]struct {
		node  *NodeReport
		warns string // "" if it must not
	}{
		"none ever":      {nil, "NO PROCESS runs this mirror (none has ever reported)" + recorded},
		"it died":        {node(now.Add(-4*time.Minute - time.Second)), "NO PROCESS is known to run this mirror (last word 4m ago by its own clock)" + recorded},
		"long ago":       {node(now.Add(-time.Hour - time.Second)), "NO PROCESS runs this mirror (last word 60m ago)" + recorded},
		"it lives":       {node(now.Add(-time.Minute)), ""},
		"a slow one":     {&NodeReport{Owner: "o", Mirror: "m", Seen: now.Add(-4 * time.Minute), Interval: 2 * time.Minute}, ""},
		"another mirror": {&NodeReport{Owner: "o", Mirror: "other", Seen: now}, "NO PROCESS runs this mirror (none has ever reported)" + recorded},
		"its clock":      {node(now.Add(time.Hour)), "WHETHER A PROCESS RUNS this mirror is not known (the clock of h is 59m ahead"},
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"), wishOf("gone", "m.stopped"))
		if tc.node != nil {
			report(t, c, *tc.node, PartitionReport{Mirror: tc.node.Mirror, Topic: "gone", TopicID: adminTopicID("gone"), Owner: "o", State: statemachine.Stopped, At: tc.node.Seen})
		}
		a := w.admin(t, c)
		for _, dry := range []bool{true, false} {
			r, err := a.Stop(bg, []string{"t"}, StopOptions{DryRun: dry})
			if warned := strings.Join(r.Warnings, "\n"); err != nil || !strings.HasPrefix(warned, tc.warns) || tc.warns == "" && warned != "" {
				t.Errorf("%s, dry run %v: %q %v, want %q", what, dry, warned, err, tc.warns)
			}
			if !strings.HasPrefix(r.String(), tc.warns) {
				t.Errorf("%s: what has to be known first is not first:\n%s", what, r)
			}
		}
		if tc.node == nil || tc.node.Mirror != "m" {
			continue
		}
		if r, err := a.Stop(bg, []string{"gone"}, StopOptions{}); err != nil || len(r.Warnings) > 0 {
			t.Errorf("%s: nothing is left to open, and %q %v", what, r.Warnings, err)
		}
	}
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"))
	if r, err := w.admin(t, unreadReports{c}).Stop(bg, []string{"t"}, StopOptions{}); err != nil || len(r.Warnings) > 0 {
		t.Errorf("that nobody could be heard is not known to be silence: %q %v", r.Warnings, err)
	}
	// What an exclusion stops waits for a process as much.
	for what, run := range map[string]func(a *Admin) (Result, error){
		"alter": func(a *Admin) (Result, error) {
			return a.AlterConfig(bg, Settings{topicsExcludeSetting: "t"}, nil, AlterConfigOptions{})
		},
		"start": func(a *Admin) (Result, error) { return a.Start(bg, nil, StartOptions{Exclude: []string{"t"}}) },
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"))
		r, err := run(w.admin(t, c))
		if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.String(), "t: excluded now: stop recorded, not open yet") {
			t.Errorf("%s: %v\n%s", what, err, r)
		}
	}
}

// TestOnlyAnExclusionIsCalledOne: whoever promotes, or gives a failback up, is not told that a filter has excluded a topic.
func TestOnlyAnExclusionIsCalledOne(t *testing.T) {
	for verb, plan := range map[string]func(a *Admin) (Result, error){
		verbPromote: func(a *Admin) (Result, error) {
			return a.PlanPromotion(bg, PromoteOptions{Topics: []string{"t"}, Unfenced: true})
		},
		verbStop: func(a *Admin) (Result, error) { return a.Stop(bg, []string{"t"}, StopOptions{DryRun: true}) },
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"))
		if r, err := plan(w.admin(t, c)); err != nil || r.Verb != verb || !strings.Contains(r.String(), "\nt: would be opened for clients\n") {
			t.Errorf("%s: %v\n%s", verb, err, r)
		}
	}
}

// TestStopRepeatedSaysWhetherItIsDone: that a stop was recorded before does not say that the topic is open.
func TestStopRepeatedSaysWhetherItIsDone(t *testing.T) {
	for what, tc := range map[string]struct {
		states []statemachine.State
		want   string
		stored []statemachine.State
	}{
		"done":           {[]statemachine.State{statemachine.Stopped, statemachine.Stopped}, "t: is so already\n", nil},
		"one is left":    {[]statemachine.State{statemachine.Stopped, statemachine.Stopping}, "t: wanted already, not open yet\n", nil},
		"store is newer": {[]statemachine.State{statemachine.Stopping}, "t: is so already\n", []statemachine.State{statemachine.Stopped}},
		"nobody said it": {nil, "t: wanted already, not known to be open\n", nil},
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", "m.stopped"))
		w.has("m", "t", tc.stored...)
		var parts []PartitionReport
		for p, state := range tc.states {
			parts = append(parts, PartitionReport{Mirror: "m", Topic: "t", TopicID: adminTopicID("t"), Partition: int32(p), Owner: "o", State: state, At: planTime})
		}
		report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: time.Now()}, parts...)
		r, err := w.admin(t, c).Stop(bg, []string{"t"}, StopOptions{})
		if err != nil || !strings.Contains(r.String(), tc.want) || len(r.Warnings) > 0 {
			t.Errorf("%s: %v\n%s", what, err, r)
		}
	}
}
