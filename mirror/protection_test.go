package mirror

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// watched is a mirror of one process that reported a second ago, with topics in these states: "t m MIRRORING MIRRORING".
func watched(t *testing.T, change func(node *NodeReport, p *PartitionReport), topics ...string) Description {
	t.Helper()
	w, c := &adminWorld{}, NewMemoryControl()
	now := planTime.Add(-time.Second)
	node := NodeReport{Owner: "o", Mirror: "m", Seen: now, Interval: reportInterval, Measured: now}
	var partitions []PartitionReport
	mustUpdate(t, c, func(s *ControlState) {
		s.SetMirror(MirrorEntry{Name: "m", Settings: Settings{topicSetPrefix + "billing": "b.*", topicSetPrefix + "rest": "[^b].*"}})
	})
	for _, line := range topics {
		words := strings.Fields(line)
		mustUpdate(t, c, func(s *ControlState) { s.Set(wishOf(words[0], words[1])) })
		var states []statemachine.State
		for i, word := range words[2:] {
			state, ok := statesByName[word]
			if !ok {
				t.Fatal(word)
			}
			states = append(states, state)
			p := PartitionReport{Mirror: "m", Topic: words[0], Partition: int32(i), TopicID: adminTopicID(words[0]), Owner: "o", State: state, SourceEnd: 5, SourceSeen: now.Add(-time.Hour), DestinationEnd: 5,
				At: now.Add(-time.Hour), Live: state == statemachine.Mirroring}
			if change != nil {
				change(&node, &p)
			}
			partitions = append(partitions, p)
		}
		w.has("m", words[0], states...)
	}
	w.topics = nil
	if len(partitions) == 0 && change != nil {
		change(&node, &PartitionReport{})
	}
	if node.Owner != "" {
		report(t, c, node, partitions...)
	}
	return describe(t, w, c)
}

// TestProtection has a case for each sentence of the rule.
func TestProtection(t *testing.T) {
	silent := func(node *NodeReport, _ *PartitionReport) { node.Seen = planTime.Add(-16 * time.Second) }
	for what, tc := range map[string]struct {
		change  func(*NodeReport, *PartitionReport)
		topics  []string
		verdict Verdict
		reasons string
	}{
		"all is mirrored":                    {nil, []string{"t m MIRRORING MIRRORING"}, Protected, ""},
		"far behind, and known to be":        {func(_ *NodeReport, p *PartitionReport) { p.SourceEnd = 1 << 40 }, []string{"t m MIRRORING"}, Protected, ""},
		"no topic":                           {nil, nil, NotProtected, "no topic is in the mirror"},
		"nobody runs it":                     {silent, []string{"t m MIRRORING"}, NotProtected, "NO PROCESS was heard of for 16s"},
		"nobody ever did":                    {func(node *NodeReport, _ *PartitionReport) { node.Owner = "" }, []string{"t m"}, NotProtected, "no process has reported yet\nno process has taken up t"},
		"who knows whether one does":         {func(node *NodeReport, _ *PartitionReport) { node.Seen = planTime.Add(time.Hour) }, []string{"t m MIRRORING"}, NotProtected, "WHETHER A PROCESS RUNS IS NOT KNOWN"},
		"nobody runs it, and all is open":    {silent, []string{"t m.stopped STOPPED"}, FailedOver, ""},
		"nobody runs it, and a stop waits":   {silent, []string{"t m.stopped MIRRORING"}, NotProtected, "NO PROCESS was heard of for 16s\nto be opened: t"},
		"a topic that nobody took up":        {nil, []string{"t m MIRRORING", "u m"}, NotProtected, "no process has taken up u"},
		"a partition has failed":             {nil, []string{"t m MIRRORING FAILED"}, NotProtected, "FAILED: t-1"},
		"one begins":                         {nil, []string{"t m PREPARING MIRRORING"}, NotProtected, "PREPARING: t-0"},
		"one is paused":                      {nil, []string{"t m.paused PAUSED"}, NotProtected, "PAUSED: t-0"},
		"many are not mirrored":              {nil, []string{"t m FAILED FAILED FAILED FAILED FAILED FAILED FAILED"}, NotProtected, "FAILED: t-0, t-1, t-2, t-3, t-4 and 2 more"},
		"the source is silent":               {func(node *NodeReport, _ *PartitionReport) { node.Measured = planTime.Add(-61 * time.Second) }, []string{"t m MIRRORING"}, NotProtected, "not seen at the source for 1m0s: t-0"},
		"the source was silent for a moment": {func(node *NodeReport, _ *PartitionReport) { node.Measured = planTime.Add(-59 * time.Second) }, []string{"t m MIRRORING"}, Protected, ""},
		"the source is not fetched from":     {func(_ *NodeReport, p *PartitionReport) { p.Live = false }, []string{"t m MIRRORING"}, NotProtected, "not seen at the source for 1m0s: t-0"},
		"it was never seen":                  {func(_ *NodeReport, p *PartitionReport) { p.Live, p.SourceSeen = false, time.Time{} }, []string{"t m MIRRORING"}, NotProtected, "not seen at the source for 1m0s: t-0"},
		"all is open":                        {nil, []string{"t m.stopped STOPPED STOPPED"}, FailedOver, ""},
		"a set is open, the other is not":    {nil, []string{"b1 m.stopped STOPPED", "b2 m.stopped STOPPED", "t m MIRRORING"}, Protected, ""},
		"a part of a set is open":            {nil, []string{"b1 m.stopped STOPPED", "b2 m MIRRORING", "t m MIRRORING"}, PartiallyFailedOver, "some of its topics are stopped and the others are not"},
		"a part of a set is to be opened":    {nil, []string{"b1 m.stopped MIRRORING", "b2 m MIRRORING"}, PartiallyFailedOver, "some of its topics are stopped and the others are not\nto be opened: b1"},
		"a stop of all is not done":          {nil, []string{"t m.stopped STOPPED STOPPING"}, PartiallyFailedOver, "to be opened: t"},
		"a part is open, the rest has failed": {nil, []string{"b1 m.stopped STOPPED", "b2 m FAILED"}, NotProtected,
			"FAILED: b2-0\nsome of its topics are stopped and the others are not"},
	} {
		d := watched(t, tc.change, tc.topics...)
		got := d.Protection()
		if reasons := strings.Join(got.Reasons, "\n"); got.Verdict != tc.verdict || !strings.HasPrefix(reasons, tc.reasons) || tc.reasons == "" && reasons != "" {
			t.Errorf("%s: %s %q; want %s %q\n%s", what, got.Verdict, reasons, tc.verdict, tc.reasons, d)
		}
	}
	// Reports cannot be read.
	w := &adminWorld{}
	w.has("m", "t", statemachine.Mirroring)
	d, err := w.admin(t, unreadReports{controlWith(t, wishOf("t", "m"))}).Describe(bg)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Protection(); got.Verdict != NotProtected || !slices.Contains(got.Reasons, "REPORTS CANNOT BE READ") {
		t.Errorf("%+v", got)
	}
}

// TestAcceptance2_11ATopicIsStoppedWhenItIsOpen: what is only to be stopped does not count as failed over.
func TestAcceptance2_11ATopicIsStoppedWhenItIsOpen(t *testing.T) {
	for what, tc := range map[string]struct {
		topics  []string
		head    string
		partial bool
	}{
		"some open, some to be opened, some mirrored": {[]string{"ba m.stopped STOPPED STOPPED", "bb m.stopped STOPPED STOPPING", "bc m MIRRORING", "bd m.paused PAUSED"},
			"PARTIALLY FAILED OVER: 1 of 4 topics of set billing (STOPPED ba; TO BE OPENED bb; MIRRORING bc; PAUSED bd); 1 partition still to be opened", true},
		"none open yet":                    {[]string{"ba m.stopped MIRRORING", "bb m MIRRORING"}, "PARTIALLY FAILED OVER: 0 of 2 topics of set billing (TO BE OPENED ba; MIRRORING bb); 1 partition still to be opened", true},
		"one is not known":                 {[]string{"ba m.stopped STOPPED", "bb m.stopped"}, "PARTIALLY FAILED OVER: 1 of 2 topics of set billing (STOPPED ba; TO BE OPENED bb); 1 stopped topic not known to be open", true},
		"a stop of all, half done":         {[]string{"ba m.stopped STOPPED", "bb m.stopped STOPPING"}, "PARTIALLY FAILED OVER: 1 of 2 topics of set billing (STOPPED ba; TO BE OPENED bb)", true},
		"a stop of all, no topic is open":  {[]string{"ba m.stopped STOPPED STOPPING", "bb m.stopped STOPPING"}, "STOP RECORDED, NOT DONE: 2 topics, 1 of 3 partitions open", false},
		"a whole set, the other is no set": {[]string{"ba m.stopped STOPPING", "t m MIRRORING"}, "MIRRORING: 1 topic, 1 TO BE OPENED; 1 partition still to be opened", false},
	} {
		d := watched(t, nil, tc.topics...)
		if d.Head != tc.head || d.Partial != tc.partial {
			t.Errorf("%s: partial %v, %q; want %v, %q", what, d.Partial, d.Head, tc.partial, tc.head)
		}
	}
}

// TestDescribeSaysHowSettingsAndRulesAreFollowed: a line for each part of each process that is heard of.
func TestDescribeSaysHowSettingsAndRulesAreFollowed(t *testing.T) {
	at := planTime.Add(-20 * time.Second)
	for want, change := range map[string]func(n *NodeReport){
		"topic settings: fine, looked at 20s ago\naccess rules: fine, looked at 20s ago\n": func(*NodeReport) {},
		"topic settings: HINDERED, looked at 20s ago: not\\nauthorized\n":                  func(n *NodeReport) { n.Settings.Error = "not\nauthorized" },
		"access rules: not followed: the source has no authorizer\n":                       func(n *NodeReport) { n.AccessRules.Off = "the source has no authorizer" },
		"access rules: looked at 20s ago, and some were left alone: x, y\n":                func(n *NodeReport) { n.AccessRules.Skipped = []string{"x", "y"} },
		"topic settings: " + notLookedYet + "\n":                                           func(n *NodeReport) { n.Settings.At = time.Time{} },
		"groups: HINDERED, never looked at: refused\n":                                     func(n *NodeReport) { n.Groups = &SyncReport{Error: "refused"} },
	} {
		d := watched(t, func(n *NodeReport, _ *PartitionReport) {
			n.Groups, n.Settings, n.AccessRules = &SyncReport{At: at}, &SyncReport{At: at}, &SyncReport{At: at}
			change(n)
		}, "t m MIRRORING")
		if text := d.String(); !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	d := watched(t, func(n *NodeReport, _ *PartitionReport) {
		n.Seen, n.Settings = planTime.Add(-time.Hour), &SyncReport{At: at}
	}, "t m MIRRORING")
	if text := d.String(); strings.Contains(text, "topic settings") {
		t.Errorf("what a dead process follows:\n%s", text)
	}
}

// TestDescribeNamesNodes: by the name that the process was given, and where two versions run it says so.
func TestDescribeNamesNodes(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t)
	report(t, c, NodeReport{Owner: "o", Mirror: "m", Node: "mirror-1", Version: "v1", Seen: planTime})
	if text := describe(t, w, c).String(); !strings.Contains(text, "mirror-1") || strings.Contains(text, "versions") {
		t.Errorf("%s", text)
	}
	report(t, c, NodeReport{Owner: "p", Mirror: "m", Seen: planTime})
	report(t, c, NodeReport{Owner: "q", Mirror: "m", Version: "v0", Seen: planTime.Add(-time.Hour)})
	if text := describe(t, w, c).String(); !strings.Contains(text, "versions: mirror-1 v1, p unknown\n") {
		t.Errorf("%s", text)
	}
}

func TestStatusOfAPartBecomesAReport(t *testing.T) {
	s := SyncStatus{Off: "o", At: firstTime, Err: fmt.Errorf("%s", strings.Repeat("e", 3*maxWords))}
	for i := range maxSkipped + 5 {
		s.Skipped = append(s.Skipped, fmt.Sprint(i))
	}
	r := s.report()
	if r.Off != "o" || !r.At.Equal(firstTime) || len(r.Error) > maxWords+10 || len(r.Skipped) != maxSkipped+1 || r.Skipped[maxSkipped] != "and 5 more" {
		t.Errorf("%+v", r)
	}
}
