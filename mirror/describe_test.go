package mirror

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// describeWorld is a mirror whose process has died fourteen minutes ago: one topic was in step, one lagged, one had failed, one is stopped, one was never taken up.
func describeWorld(t *testing.T, change ...func(s *ControlState)) (*adminWorld, Control) {
	t.Helper()
	c := NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) {
		s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "q1Sh-9_ISia_zwGINzRvyQ", Created: planTime.Add(-72 * time.Hour), Settings: Settings{bootstrapSetting: "kafka-1:9092",
			topicsIncludeSetting: "orders.*", "security.protocol": "SASL_SSL", "sasl.jaas.config": `o.a.k.PlainLoginModule required username="SECRET" password="${env:DR_PASSWORD}";`}})
		for _, w := range []TopicWish{wishOf("clicks", "m"), wishOf("done", "m.stopped"), wishOf("new", "m"), wishOf("orders", "m"), wishOf("held", "m.paused"), wishOf("foreign", "other")} {
			s.Set(w)
		}
		s.SetOrigin(TopicOrigin{Mirror: "m", Topic: "orders", SourceClusterID: "q1Sh-9_ISia_zwGINzRvyQ", Upstream: []string{"third", "fourth"}})
		for _, f := range change {
			f(s)
		}
	})
	seen := planTime.Add(-14 * time.Minute)
	w := &adminWorld{}
	w.has("m", "orders", statemachine.Mirroring, statemachine.Failed)
	w.has("m", "clicks", statemachine.Failed)
	w.has("m", "done", statemachine.Stopped)
	w.has("m", "held", statemachine.Paused)
	w.topics = map[string]Topic{} // the destination has lost them: what was reported has to do
	for i := range w.entries {
		e := &w.entries[i]
		switch {
		case e.Key.TopicID == adminTopicID("done"):
			e.LME = &statemachine.LastMirrorEpoch{Epoch: 5, Offset: 58, Episode: 1}
		case e.Key.TopicID == adminTopicID("clicks"):
			e.State.ErrorMessage, e.State.RetryAttempt = "the source's topic was deleted and created again", statemachine.NonRetryable
		case e.State.State == statemachine.Failed:
			e.State.ErrorMessage, e.State.RetryAttempt = "source unreachable: connection refused", 7
		}
	}
	part := func(topic string, partition int32, state statemachine.State, source, end int64) PartitionReport {
		return PartitionReport{Mirror: "m", Topic: topic, Partition: partition, TopicID: adminTopicID(topic), Owner: "node-1", State: state, SourceEnd: source, SourceSeen: seen.Add(-3 * time.Second),
			DestinationEnd: end, At: seen}
	}
	never := part("clicks", 0, statemachine.Preparing, Unknown, 40)
	never.SourceSeen = time.Time{}
	lost := part("orders", 1, statemachine.Mirroring, 1020, 900)
	lost.LostFrom, lost.LostTo = 100, 150
	// One report of another mirror with the same topic, and one of a topic of that name that was deleted since.
	other, old := part("orders", 0, statemachine.Stopped, 1, 1), part("orders", 0, statemachine.Stopped, 2, 2)
	other.Mirror, other.Owner = "other", "node-9"
	old.TopicID, old.Owner, old.At = TopicID{9}, "node-0", seen.Add(-time.Hour)
	report(t, c, NodeReport{Owner: "node-0", Mirror: "m", Host: "host-0", PID: 99, Opened: planTime.Add(-50 * time.Hour), Seen: seen.Add(-time.Hour), DestinationID: "here"}, old)
	report(t, c, NodeReport{Owner: "node-9", Mirror: "other", Host: "host-9", PID: 9, Opened: planTime, Seen: planTime}, other)
	report(t, c, NodeReport{Owner: "node-1", Mirror: "m", Host: "host-1", PID: 4711, Opened: planTime.Add(-26 * time.Hour), Seen: seen, DestinationID: "here",
		SourceError: "dial tcp 10.0.0.1:9092: connect: connection refused", Trouble: []string{"gone: unknown topic at the source"}},
		part("orders", 0, statemachine.Mirroring, 1000, 1000), lost, never, part("done", 0, statemachine.Stopped, 60, 61), part("held", 0, statemachine.Paused, 30, 20))
	return w, c
}

// watching is an Admin with a clock that stands still, which has watched the reports that there are for long enough.
func watching(a *Admin) *Admin {
	if r, err := a.cfg.Control.Reports(bg); err == nil {
		a.pulses.take(a.processes(&r), planTime.Add(-secondLook-time.Second))
	}
	return a
}

func describe(t *testing.T, w *adminWorld, c Control, change ...func(*AdminConfig)) Description {
	t.Helper()
	d, err := watching(w.adminOver(t, c, nil, change...)).Describe(bg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func partOf(t *testing.T, d Description, topic string, partition int) DescribedPartition {
	t.Helper()
	for _, x := range d.Topics {
		if x.Topic == topic && partition < len(x.Partitions) {
			return x.Partitions[partition]
		}
	}
	t.Fatalf("%s-%d is missing in %+v", topic, partition, d.Topics)
	return DescribedPartition{}
}

func TestSpec1_3DescribeTexts(t *testing.T) {
	w, c := describeWorld(t)
	dead := describe(t, w, c, func(cfg *AdminConfig) { cfg.Destination = nil })
	golden(t, "../descriptions/dead.txt", []byte(dead.String()))

	// The same mirror alive.
	now := planTime.Add(-3 * time.Second)
	report(t, c, NodeReport{Owner: "node-1", Mirror: "m", Host: "host-1", PID: 4712, Opened: planTime.Add(-time.Minute), Seen: now, DestinationID: "here"},
		PartitionReport{Mirror: "m", Topic: "orders", Partition: 1, TopicID: adminTopicID("orders"), Owner: "node-1", State: statemachine.Preparing, Reason: "waits for replicas",
			SourceEnd: 1030, SourceSeen: now, DestinationEnd: 1025, At: now})
	w.entries = w.entries[:0]
	w.has("m", "orders", statemachine.Mirroring, statemachine.Mirroring)
	golden(t, "../descriptions/alive.txt", []byte(describe(t, w, c).String()))

	// The same, compared with its source while it is mirrored.
	wrong := WrongCopy{Topic: "orders", Partition: 1, TopicID: adminTopicID("orders").String(), Verdict: VerifiedDifferent, Offset: 640, Finding: "batch at offset 640 differs in byte 71 (records)", At: now.Add(-5 * time.Hour)}
	report(t, c, NodeReport{Owner: "node-1", Mirror: "m", Host: "host-1", PID: 4712, Opened: planTime.Add(-time.Minute), Seen: now, DestinationID: "here", Verification: &VerificationStatus{Rate: 1 << 20,
		Interval: 24 * time.Hour, Since: now.Add(-time.Hour), LastPass: now.Add(-2 * time.Hour), Oldest: now.Add(-30 * time.Hour), Identical: 3, Partly: 1, NotCompared: 1, Different: 1,
		Waits: "orders-0 is 45s behind its source, and copying comes first", Wrong: []WrongCopy{wrong}}})
	golden(t, "../descriptions/verified.txt", []byte(describe(t, w, c).String()))

	// Nothing but a name.
	c = NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) { s.SetMirror(MirrorEntry{Name: "m", Created: planTime}) })
	golden(t, "../descriptions/empty.txt", []byte(describe(t, &adminWorld{}, c).String()))
}

func TestSpec1_3DescribeKeepsSecretsToItself(t *testing.T) {
	w, c := describeWorld(t)
	d := describe(t, w, c)
	inJSON, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{d.String(), string(inJSON)} {
		if strings.Contains(text, "SECRET") || strings.Contains(text, "PlainLoginModule") || !strings.Contains(text, "hidden") {
			t.Errorf("a secret, or nothing in its place: %s", text)
		}
	}
	if e, _ := entryOf(t, c); !strings.Contains(e.Settings["sasl.jaas.config"], "SECRET") {
		t.Error("describing has changed the settings")
	}
}

// TestSpec1_3DescribeTrustsTheStateStore: what is recorded beats what was reported, and what was reported does when nothing is recorded.
func TestSpec1_3DescribeTrustsTheStateStore(t *testing.T) {
	w, c := describeWorld(t)
	d := describe(t, w, c)
	if p := partOf(t, d, "orders", 1); p.State != "FAILED" || p.RetryAttempt != 7 || !strings.Contains(p.Reason, "refused") {
		t.Errorf("%+v", p)
	}
	if p := partOf(t, d, "done", 0); p.LME != KnownNumber(5) || p.LMO != KnownNumber(58) || p.Lag != (Lag{}) {
		t.Errorf("%+v", p)
	}
	if p := partOf(t, d, "orders", 0); p.DestinationEnd != KnownNumber(1000) || p.Owner != "node-1" {
		t.Errorf("%+v: the report of another mirror, or of a topic that was deleted", p)
	}
	w.loadErr = errDown
	w.entries = nil
	d = describe(t, w, c)
	if p := partOf(t, d, "orders", 1); p.State != "MIRRORING" {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(strings.Join(d.Notes, "\n"), "down") {
		t.Errorf("notes %q do not say that the store is down", d.Notes)
	}
}

// TestSpec1_3DescribeNeverShowsALagThatNobodyKnows: a number of a process that is dead, or whose source does not answer, is no lag.
func TestSpec1_3DescribeNeverShowsALagThatNobodyKnows(t *testing.T) {
	const lost = "unknown, 30 when last seen"
	for what, tc := range map[string]struct {
		node  NodeReport
		state statemachine.State
		at    time.Duration // ago
		seen  time.Duration // before at
		lag   string
	}{
		"alive":                    {NodeReport{Seen: planTime.Add(-time.Minute)}, statemachine.Mirroring, 0, 0, "30"},
		"nothing was new for long": {NodeReport{Seen: planTime, Measured: planTime.Add(-5 * time.Second)}, statemachine.Mirroring, 5 * time.Hour, time.Minute, "30"},
		"dead":                     {NodeReport{Seen: planTime.Add(-(&NodeReport{}).patience() - 1)}, statemachine.Mirroring, 0, 0, lost},
		"told by an earlier process of that owner": {NodeReport{Seen: planTime, Opened: planTime.Add(-time.Second)}, statemachine.Mirroring, 2 * time.Second, 0, lost},
		"the source was not measured then":         {NodeReport{Seen: planTime}, statemachine.Mirroring, 0, (&NodeReport{}).patience() + 1, lost},
		"source is down":                           {NodeReport{Seen: planTime, SourceError: "refused"}, statemachine.Mirroring, 0, 0, lost},
		"its leader at the source is down":         {NodeReport{Seen: planTime, Refresh: time.Second}, statemachine.Mirroring, 3 * time.Second, 20 * time.Second, lost},
		"failed":                                   {NodeReport{Seen: planTime}, statemachine.Failed, 0, 0, lost},
		"paused":                                   {NodeReport{Seen: planTime}, statemachine.Paused, 0, 0, lost},
		"stopped":                                  {NodeReport{Seen: planTime}, statemachine.Stopped, 0, 0, "unknown"},
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"))
		w.has("m", "t", tc.state)
		tc.node.Owner, tc.node.Mirror = "o", "m"
		at := planTime.Add(-tc.at)
		report(t, c, tc.node, PartitionReport{Mirror: "m", Topic: "t", TopicID: adminTopicID("t"), Owner: "o", State: tc.state, SourceEnd: 100, SourceSeen: at.Add(-tc.seen), DestinationEnd: 70, At: at, Live: !tc.node.Measured.IsZero()})
		report(t, c, NodeReport{Owner: "another", Mirror: "m", Seen: planTime})
		if p := partOf(t, describe(t, w, c), "t", 0); p.Lag.String() != tc.lag {
			t.Errorf("%s: lag %q, want %q", what, p.Lag, tc.lag)
		}
	}
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"))
	w.has("m", "t", statemachine.Mirroring)
	if p := partOf(t, describe(t, w, c), "t", 0); p.Lag.String() != "unknown" || p.State != "MIRRORING" {
		t.Errorf("never reported: %+v", p)
	}
}

func TestAcceptance2_11HeadLineOfATornMirror(t *testing.T) {
	many := func(n int, value string) (wishes []TopicWish) {
		for i := range n {
			wishes = append(wishes, wishOf(value+string(rune('a'+i)), value))
		}
		return wishes
	}
	sets := Settings{topicSetPrefix + "billing": "b.*", topicSetPrefix + "shop": "s.*"}
	for what, tc := range map[string]struct {
		settings Settings
		wishes   []TopicWish
		head     string // its beginning
	}{
		"few of few":      {nil, []TopicWish{wishOf("a", "m.stopped"), wishOf("b", "m")}, "PARTIALLY FAILED OVER: 1 of 2 topics (STOPPED a; MIRRORING b)"},
		"many of many":    {nil, append(many(20, "m"), many(20, "m.stopped")...), "PARTIALLY FAILED OVER: 20 of 40 topics (STOPPED m.stoppeda, m.stoppedb, m.stoppedc …; MIRRORING ma, mb, mc …)"},
		"some are paused": {nil, []TopicWish{wishOf("a", "m.stopped"), wishOf("b", "m.paused"), wishOf("c", "m")}, "PARTIALLY FAILED OVER: 1 of 3 topics (STOPPED a; MIRRORING c; PAUSED b)"},
		"whole":           {nil, []TopicWish{wishOf("a", "m"), wishOf("b", "m.paused")}, "WANTED: 1 topic, 0 partitions mirrored, 1 TO BE PAUSED"},
		"all stopped":     {nil, []TopicWish{wishOf("a", "m.stopped"), wishOf("b", "m.stopped")}, "FAILED OVER: 2 topics"},
		"a set as a whole": {sets, []TopicWish{wishOf("b1", "m.stopped"), wishOf("b2", "m.stopped"), wishOf("s1", "m"), wishOf("x", "m")},
			"WANTED: 2 topics, 0 partitions mirrored, 2 STOPPED"},
		"two torn sets": {sets, []TopicWish{wishOf("b1", "m.stopped"), wishOf("b2", "m"), wishOf("s1", "m"), wishOf("s2", "m.stopped")},
			"PARTIALLY FAILED OVER: 1 of 2 topics of set billing (STOPPED b1; MIRRORING b2); PARTIALLY FAILED OVER: 1 of 2 topics of set shop (STOPPED s2; MIRRORING s1)"},
		"nothing": {nil, nil, "NO TOPICS"},
	} {
		w := &adminWorld{}
		for _, wish := range tc.wishes {
			if stopped(wish.MirrorName) {
				w.has("m", wish.Topic, statemachine.Stopped)
			}
		}
		d := describe(t, w, withSettings(t, tc.settings, tc.wishes...))
		if want := tc.head + "; no process has reported yet"; d.Head != want || d.Partial != strings.HasPrefix(tc.head, "PARTIALLY") {
			t.Errorf("%s: %q, partial %v; want %q", what, d.Head, d.Partial, want)
		}
		if first, _, _ := strings.Cut(d.String(), "\n"); first != d.Head {
			t.Errorf("%s: the text begins with %q", what, first)
		}
	}
}

func TestDescribeOfATopicThatNobodyHasReported(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"), wishOf("new", "m"))
	w.has("m", "t", statemachine.Mirroring, statemachine.Unknown)
	d := describe(t, w, c)
	if p := partOf(t, d, "t", 1); p.State != "UNKNOWN" {
		t.Errorf("%+v", p)
	}
	if notes := strings.Join(d.Notes, "\n"); !strings.Contains(notes, "new: not taken up by any process yet") || strings.Contains(notes, "t: not") {
		t.Errorf("notes %q", notes)
	}
	w.broken = errDown
	if d = describe(t, w, c); !strings.Contains(strings.Join(d.Notes, "\n"), "could not look up new, t: down") {
		t.Errorf("notes %q", d.Notes)
	}
}

func TestDescribeErrors(t *testing.T) {
	w := &adminWorld{}
	_, err := w.admin(t, NewMemoryControl()).Describe(bg)
	wantCode(t, "no mirror", err, UnknownClusterMirror)
	if _, err := w.admin(t, &deafControl{Control: controlWith(t), down: true}).Describe(bg); !errors.Is(err, errDown) {
		t.Errorf("control down: %v", err)
	}
	// A mirror between other clusters than those that are pinned is shown all the same, with a word on it.
	d := describe(t, w, controlWith(t), func(cfg *AdminConfig) { cfg.DestinationClusterID = "Y" })
	if len(d.Notes) == 0 || !strings.Contains(d.Notes[0], "Y") || d.Clusters.DestinationID != "here" {
		t.Errorf("%+v", d)
	}
}

// TestDescribeTellsTopicsOfOneNameApart: another mirror's report of the topic, and one of a topic of that name that was deleted since, say nothing of this one.
func TestDescribeTellsTopicsOfOneNameApart(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"))
	w.has("m", "t", statemachine.Mirroring, statemachine.Unknown)
	of := func(mirror string, partition int32, id TopicID, end int64, at time.Time) PartitionReport {
		return PartitionReport{Mirror: mirror, Topic: "t", Partition: partition, TopicID: id, Owner: "o", State: statemachine.Stopped, DestinationEnd: end, At: at}
	}
	report(t, c, NodeReport{Owner: "o", Mirror: "a", Seen: planTime}, of("a", 0, adminTopicID("t"), 1, planTime))
	report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: planTime}, of("m", 0, adminTopicID("t"), 2, planTime), of("m", 1, TopicID{9}, 3, planTime.Add(-time.Hour)))
	d := describe(t, w, c)
	if p := partOf(t, d, "t", 0); p.DestinationEnd != KnownNumber(2) || p.State != "MIRRORING" {
		t.Errorf("%+v", p)
	}
	if len(d.Nodes) != 1 || len(d.Topics[0].Partitions) != 1 {
		t.Errorf("%+v, %+v", d.Nodes, d.Topics)
	}
	w.has("m", "t", statemachine.Mirroring, statemachine.Mirroring)
	if p := partOf(t, describe(t, w, c), "t", 1); p.DestinationEnd != (Number{}) || p.State != "MIRRORING" || !p.Reported.IsZero() {
		t.Errorf("%+v", p)
	}
}

// TestHeadClaimsOnlyWhatIsKnown: a wish is no state, and a partition whose topic nobody can name is one all the same.
func TestHeadClaimsOnlyWhatIsKnown(t *testing.T) {
	for what, tc := range map[string]struct {
		states  []statemachine.State
		nowhere bool // no process has reported the topic, and no destination can be asked
		wish    string
		head    string
	}{
		"open":                {[]statemachine.State{statemachine.Stopped}, false, "m.stopped", "FAILED OVER: 1 topic; no process"},
		"not open yet":        {[]statemachine.State{statemachine.Stopped, statemachine.Stopping}, false, "m.stopped", "STOP RECORDED, NOT DONE: 1 topic, 1 of 2 partitions open; no process"},
		"nothing known":       {nil, true, "m.stopped", "STOP RECORDED, NOT KNOWN TO BE DONE: 1 topic; 1 stopped topic not known to be open; no process"},
		"stopped, not known":  {[]statemachine.State{statemachine.Stopped}, true, "m.stopped", "STOP RECORDED, NOT KNOWN TO BE DONE: 1 topic; 1 stopped topic not known to be open; no process"},
		"failed, not known":   {[]statemachine.State{statemachine.Failed, statemachine.Stopping}, true, "m.stopped", "STOP RECORDED, NOT KNOWN TO BE DONE: 1 topic; 1 stopped topic not known to be open; 1 partition FAILED of topics not known here; 1 partition STOPPING of topics not known here; no process"},
		"mirrored":            {[]statemachine.State{statemachine.Mirroring, statemachine.Mirroring}, false, "m", "MIRRORING: 1 topic; no process"},
		"failed":              {[]statemachine.State{statemachine.Mirroring, statemachine.Failed}, false, "m", "WANTED: 1 topic, 1 of 2 partitions mirrored; 1 of 2 partitions FAILED; no process"},
		"begins":              {[]statemachine.State{statemachine.Unknown}, false, "m", "WANTED: 1 topic, 0 of 1 partition mirrored; no process"},
		"paused":              {[]statemachine.State{statemachine.Paused}, false, "m.paused", "PAUSED: 1 topic; no process"},
		"not paused yet":      {[]statemachine.State{statemachine.Pausing}, false, "m.paused", "TO BE PAUSED: 1 topic; no process"},
		"mirrored, not known": {[]statemachine.State{statemachine.Failed}, true, "m", "WANTED: 1 topic, 0 partitions mirrored; 1 partition FAILED of topics not known here; no process"},
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", tc.wish))
		w.has("m", "t", tc.states...)
		d := describe(t, w, c, func(cfg *AdminConfig) {
			if tc.nowhere {
				cfg.Destination = nil
			}
		})
		if !strings.HasPrefix(d.Head, tc.head) {
			t.Errorf("%s: %q, want %q", what, d.Head, tc.head)
		}
	}
}

// TestLivenessGoesByTheProcess: by how often it reports, and by no clock that is known to be wrong.
func TestLivenessGoesByTheProcess(t *testing.T) {
	for what, tc := range map[string]struct {
		ago, interval time.Duration
		alive         bool
		head, lag     string
	}{
		"in step, seldom":     {3 * time.Minute, 10 * time.Minute, true, "MIRRORING: 1 topic", "0"},
		"late, seldom":        {29 * time.Minute, 10 * time.Minute, true, "MIRRORING: 1 topic", "0"},
		"dead, seldom":        {31 * time.Minute, 10 * time.Minute, false, "MIRRORING: 1 topic; NO PROCESS was heard of for 31m", "unknown, 0 when last seen"},
		"alive, often":        {14 * time.Second, time.Second, true, "MIRRORING: 1 topic", "0"},
		"dead, often":         {16 * time.Second, time.Second, false, "MIRRORING: 1 topic; NO PROCESS was heard of for 16s", "unknown, 0 when last seen"},
		"an interval unknown": {3 * time.Minute, 0, false, "MIRRORING: 1 topic; NO PROCESS was heard of for 3m", "unknown, 0 when last seen"},
		"a little ahead":      {-3 * time.Second, 0, true, "MIRRORING: 1 topic", "0"},
		"two hours ahead": {-2*time.Hour + time.Minute, 0, false, "MIRRORING: 1 topic; WHETHER A PROCESS RUNS IS NOT KNOWN: the clock of host-1 is 119m ahead: its age is not known",
			"unknown, 0 when last seen"},
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"))
		w.has("m", "t", statemachine.Mirroring)
		at := planTime.Add(-tc.ago)
		report(t, c, NodeReport{Owner: "o", Mirror: "m", Host: "host-1", Seen: at, Interval: tc.interval}, PartitionReport{Mirror: "m", Topic: "t", TopicID: adminTopicID("t"), Owner: "o",
			State: statemachine.Mirroring, SourceEnd: 9, SourceSeen: at, DestinationEnd: 9, At: at})
		d := describe(t, w, c)
		if d.Head != tc.head || d.Alive != tc.alive {
			t.Errorf("%s: alive %v, %q; want %v, %q", what, d.Alive, d.Head, tc.alive, tc.head)
		}
		if lag := partOf(t, d, "t", 0).Lag.String(); lag != tc.lag {
			t.Errorf("%s: lag %q, want %q", what, lag, tc.lag)
		}
		if text := d.String(); strings.Contains(text, "answered") != tc.alive || tc.ago < -clockLeeway && strings.Contains(text, "<1s ago") {
			t.Errorf("%s:\n%s", what, text)
		}
	}
}

// TestHeadOfAMirrorWithAnotherClusterBehindItsAddress: the head says that, and not only that nobody answers (F-33).
func TestHeadOfAMirrorWithAnotherClusterBehindItsAddress(t *testing.T) {
	for _, tc := range []struct {
		wish, head string
		state      statemachine.State
	}{
		{"m", "WANTED: 1 topic, 0 of 1 partition mirrored; 1 of 1 partition FAILED; the source's address leads to another cluster", statemachine.Failed},
		{"m.stopped", "FAILED OVER: 1 topic", statemachine.Stopped},
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", tc.wish))
		w.has("m", "t", tc.state)
		report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: planTime, SourceError: "source: metadata: EOF"}, PartitionReport{Mirror: "m", Topic: "t", TopicID: adminTopicID("t"), Owner: "o",
			State: tc.state, Reason: (&ClusterChangedError{Want: "there", Got: "elsewhere"}).Error(), At: planTime})
		if d := describe(t, w, c); d.Head != tc.head {
			t.Errorf("%q, want %q", d.Head, tc.head)
		}
	}
}

// TestHeadOfAMirrorWithoutItsSource: processes run and get no answer, and what they say of a topic is said once.
func TestHeadOfAMirrorWithoutItsSource(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("oders", "m"), wishOf("new", "m"))
	node := NodeReport{Owner: "o", Mirror: "m", Seen: planTime, SourceError: "the password is refused", Trouble: []string{"oders: unknown topic at the source"}}
	report(t, c, node)
	d := describe(t, w, c)
	if want := "WANTED: 2 topics, 0 partitions mirrored; the source does not answer"; d.Head != want {
		t.Errorf("%q, want %q", d.Head, want)
	}
	if text := d.String(); strings.Contains(text, "oders: not taken up") || !strings.Contains(text, "new: not taken up") || !strings.Contains(text, "oders: unknown topic") {
		t.Errorf("%s", text)
	}
	for _, word := range []string{notAskedYet, ""} {
		node.SourceError = word
		report(t, c, node)
		if d = describe(t, w, c); strings.Contains(d.Head, "source") {
			t.Errorf("%q: %s", word, d.Head)
		}
	}
	if d = describe(t, w, c); strings.Contains(d.Head, "source") || !strings.Contains(d.String(), "no failure") {
		t.Errorf("%s", d)
	}
	if text := (Description{}).String(); text != "no mirror is described\n" {
		t.Errorf("nothing is %q", text)
	}
}

// TestPartitionsOfSomeTopics: what describe shows of the partitions of a topic, and no others.
func TestPartitionsOfSomeTopics(t *testing.T) {
	w, c := describeWorld(t)
	d := describe(t, w, c)
	text, whole := d.Partitions("orders", "new"), d.String()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 4 || lines[3] != "no partition is known of new" || strings.Contains(text, "clicks") {
		t.Errorf("%s", text)
	}
	for _, line := range lines[:3] {
		if words := strings.Join(strings.Fields(line), " "); !strings.Contains(strings.Join(strings.Fields(whole), " "), words) {
			t.Errorf("%q is not in\n%s", words, whole)
		}
	}
	if text := d.Partitions(); text != "" {
		t.Errorf("no topics: %q", text)
	}
}

// TestDescribeShowsWhereSecretsAre: the references in a secret, and nothing else of it.
func TestDescribeShowsWhereSecretsAre(t *testing.T) {
	const jaas = "sasl.jaas.config"
	for value, want := range map[string]string{
		`x.PlainLoginModule required username="u" password="${file:/etc/dr.properties:password}";`: "[hidden] ${file:/etc/dr.properties:password}",
		`x.PlainLoginModule required username="${env:USER}" password="${directory:/run/keys:dr}";`: "[hidden] ${env:USER} ${directory:/run/keys:dr}",
		`x.PlainLoginModule required username="u" password="SECRET";`:                              "[hidden]",
		`x.PlainLoginModule required username="u" password="${env:SECRET" y="}";`:                  "[hidden]",
		`x.PlainLoginModule required username="u" password="${vault:SECRET}";`:                     "[hidden]",
	} {
		d := describe(t, &adminWorld{}, withSettings(t, Settings{jaas: value}))
		if got := d.Settings[jaas]; got != want {
			t.Errorf("%s is shown as %s", value, got)
		}
	}
}
