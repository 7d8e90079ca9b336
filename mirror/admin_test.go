package mirror

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// adminWorld is a destination and a state store that only answer what Admin asks, and count it.
type adminWorld struct {
	topics  map[string]Topic
	broken  error // what the destination answers instead
	entries []statemachine.Entry
	loadErr error
	asked   int
}

func (w *adminWorld) Topic(_ context.Context, name string) (Topic, error) {
	w.asked++
	if w.broken != nil {
		return Topic{}, w.broken
	}
	t, ok := w.topics[name]
	if !ok {
		return Topic{}, fmt.Errorf("%w %q", ErrUnknownTopic, name)
	}
	return t, nil
}

func (w *adminWorld) ClusterID(context.Context) (string, error) {
	w.asked++
	return "here", w.broken
}

func (w *adminWorld) Load(_ context.Context, each func(statemachine.Entry) error) error {
	w.asked++
	for _, e := range w.entries {
		if err := each(e); err != nil {
			return err
		}
	}
	return w.loadErr
}

func adminTopicID(name string) (id TopicID) {
	copy(id[:], name)
	return id
}

// has adds a topic with partitions in these states in a mirror; statemachine.Unknown has no record.
func (w *adminWorld) has(mirror, topic string, states ...statemachine.State) {
	if w.topics == nil {
		w.topics = map[string]Topic{}
	}
	w.topics[topic] = Topic{Name: topic, ID: adminTopicID(topic), Partitions: int32(len(states))}
	for p, s := range states {
		if s == statemachine.Unknown {
			continue
		}
		r := statemachine.NewPartitionState()
		r.State = s
		w.entries = append(w.entries, statemachine.Entry{Key: statemachine.Key{Mirror: mirror, TopicID: adminTopicID(topic), Partition: int32(p)}, State: r})
	}
}

func (w *adminWorld) admin(t *testing.T, c Control) *Admin {
	t.Helper()
	a, err := NewAdmin(AdminConfig{Mirror: "m", Control: c, States: w, Destination: w})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func codeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	if err == nil {
		return OK
	}
	return -1
}

// controlWith has the mirrors "m" and "other", and these wishes.
func controlWith(t *testing.T, wishes ...TopicWish) Control {
	c := NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) {
		s.SetMirror(MirrorEntry{Name: "m"})
		s.SetMirror(MirrorEntry{Name: "other"})
		for _, w := range wishes {
			s.Set(w)
		}
	})
	return c
}

func nameOf(t *testing.T, c Control, topic string) string {
	s := mustRead(t, c)
	w, _ := s.Topic(topic)
	return w.MirrorName
}

var (
	bg         = context.Background()
	everyState = []statemachine.State{statemachine.Preparing, statemachine.EpochFencing, statemachine.Mirroring, statemachine.Pausing, statemachine.Paused,
		statemachine.Stopping, statemachine.Stopped, statemachine.Failed, statemachine.Unknown}
)

// one runs a verb for one topic and returns its result.
func one(t *testing.T, r Result, err error) TopicResult {
	t.Helper()
	if len(r.Topics) != 1 {
		t.Fatalf("%d results (%v)", len(r.Topics), err)
	}
	if r.Topics[0].Err != err {
		t.Fatalf("error %v, but the topic's is %v", err, r.Topics[0].Err)
	}
	return r.Topics[0]
}

func wantResult(t *testing.T, what string, r TopicResult, code Code, changed bool) {
	t.Helper()
	if codeOf(r.Err) != code || r.Changed != changed {
		t.Errorf("%s: %s, changed %v (%v); want %s, changed %v", what, codeOf(r.Err), r.Changed, r.Err, code, changed)
	}
}

func TestSpec1_6StartAcceptsATopicThatDoesNotExistYet(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t)
	results, err := w.admin(t, c).Start(bg, []string{"new"}, StartOptions{})
	wantResult(t, "start", one(t, results, err), OK, true)
	if got := nameOf(t, c, "new"); got != "m" {
		t.Errorf("mirror.name %q", got)
	}
}

func TestSpec1_6StartAcceptsAnExistingTopicInNoMirror(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t)
	w.has("", "old", statemachine.Unknown, statemachine.Unknown)
	results, err := w.admin(t, c).Start(bg, []string{"old"}, StartOptions{})
	wantResult(t, "start", one(t, results, err), OK, true)
}

func TestSpec1_6StartOfATopicThatAnotherMirrorHas(t *testing.T) {
	for name, code := range map[string]Code{"other": TopicAlreadyInClusterMirror, "other.paused": TopicAlreadyInClusterMirror, "other.stopped": OK} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", name))
		w.has("other", "t", statemachine.Stopped)
		results, err := w.admin(t, c).Start(bg, []string{"t"}, StartOptions{})
		wantResult(t, name, one(t, results, err), code, code == OK)
		if got := nameOf(t, c, "t"); code != OK && got != name {
			t.Errorf("%s: mirror.name %q after a refusal", name, got)
		}
	}
}

func TestDecision21AdoptedTopicNamesItsFormerMirror(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "other.stopped"))
	w.has("other", "t", statemachine.Stopped, statemachine.Unknown)
	results, err := w.admin(t, c).Start(bg, []string{"t"}, StartOptions{})
	wantResult(t, "start", one(t, results, err), OK, true)
	s := mustRead(t, c)
	if got, _ := s.Topic("t"); got.MirrorName != "m" || got.AdoptedFrom != "other" {
		t.Errorf("wish %+v", got)
	}
	// Stop and start again: who gave it away is not forgotten, because its records may still be there.
	if _, err := w.admin(t, c).Stop(bg, []string{"t"}, StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.admin(t, c).Start(bg, []string{"t"}, StartOptions{}); err != nil {
		t.Fatal(err)
	}
	s = mustRead(t, c)
	if got, _ := s.Topic("t"); got.MirrorName != "m" || got.AdoptedFrom != "other" {
		t.Errorf("after a stop and a start: wish %+v", got)
	}
}

func TestDecision21AdoptionWaitsForTheStopOfTheFormerMirror(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "other.stopped"))
	w.has("other", "t", statemachine.Stopped, statemachine.Stopping)
	results, err := w.admin(t, c).Start(bg, []string{"t"}, StartOptions{})
	wantResult(t, "start", one(t, results, err), InvalidClusterMirrorState, false)
}

func TestSpec1_6StartOfAMirroringTopicSucceedsAndWritesNothing(t *testing.T) {
	for _, state := range everyState {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"))
		w.has("m", "t", state)
		results, err := w.admin(t, c).Start(bg, []string{"t"}, StartOptions{})
		wantResult(t, state.String(), one(t, results, err), OK, false)
		if v := mustRead(t, c).Version; v != 1 {
			t.Errorf("%s: version %d", state, v)
		}
	}
}

func TestSpec1_6StartOfAPausedTopicIsMirrorTopicNotStopped(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "m.paused"))
	w.has("m", "t", statemachine.Paused)
	results, err := w.admin(t, c).Start(bg, []string{"t"}, StartOptions{})
	wantResult(t, "start", one(t, results, err), MirrorTopicNotStopped, false)
}

func TestSpec1_6StartOfAStoppedTopicNeedsEveryPartitionStoppedOrUnknown(t *testing.T) {
	for _, state := range everyState {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", "m.stopped"))
		w.has("m", "t", statemachine.Stopped, state)
		results, err := w.admin(t, c).Start(bg, []string{"t"}, StartOptions{})
		code := InvalidClusterMirrorState
		if state == statemachine.Stopped || state == statemachine.Unknown {
			code = OK
		}
		wantResult(t, state.String(), one(t, results, err), code, code == OK)
	}
}

func TestSpec1_6StartRefusesNamesOfTheDefaultExclude(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t)
	w.has("", "inner", statemachine.Unknown)
	inner := w.topics["inner"]
	inner.Internal = true
	w.topics["inner"] = inner
	for _, name := range []string{"__consumer_offsets", "__mirror_state", "__x", "inner"} {
		results, err := w.admin(t, c).Start(bg, []string{name}, StartOptions{})
		wantResult(t, name, one(t, results, err), InvalidRequest, false)
	}
	results, err := w.admin(t, c).Start(bg, []string{"_one"}, StartOptions{})
	wantResult(t, "_one", one(t, results, err), OK, true)
}

func TestF70NamesThatContainOurSeparators(t *testing.T) {
	names := []string{"b-1", "b", "a.b", "x.stopped", "x.paused", strings.Repeat("n", 249)}
	w, c := &adminWorld{}, controlWith(t)
	for _, n := range names {
		w.has("m", n, statemachine.Unknown)
	}
	results, err := w.admin(t, c).Start(bg, names, StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results.Topics {
		if r.Topic != names[i] || nameOf(t, c, names[i]) != "m" {
			t.Errorf("%d: %+v, mirror.name %q", i, r, nameOf(t, c, names[i]))
		}
	}
	if _, err := w.admin(t, c).Stop(bg, []string{"x.stopped"}, StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if nameOf(t, c, "x.stopped") != "m.stopped" || nameOf(t, c, "x.paused") != "m" {
		t.Error("a stop of x.stopped touched something else")
	}
	for _, bad := range []string{"", ".", "..", "a/b", "ü", "a b", strings.Repeat("n", 250)} {
		results, err := w.admin(t, c).Start(bg, []string{bad}, StartOptions{})
		wantResult(t, fmt.Sprintf("topic %q", bad), one(t, results, err), InvalidRequest, false)
	}
	for _, bad := range []string{"", ".", "..", "a.stopped", "a.paused", "a.removed", "a/b", strings.Repeat("n", 250)} {
		if _, err := NewAdmin(AdminConfig{Mirror: bad, Control: c, States: w, Destination: w}); codeOf(err) != InvalidRequest {
			t.Errorf("mirror named %q: %v", bad, err)
		}
	}
	if _, err := NewAdmin(AdminConfig{Mirror: "a", States: w}); err == nil {
		t.Error("an Admin without a Control")
	}
}

func TestDecision7StartRecordsExactlyTheConsentsItWasGiven(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, TopicWish{Topic: "t", MirrorName: "m", Consents: []Consent{
		{TopicID: adminTopicID("t"), Partition: 0, From: 1, To: 2, Episode: 1}, {TopicID: adminTopicID("t"), Partition: 2, From: 7, To: 9, Episode: 1}}})
	w.has("m", "t", statemachine.Failed, statemachine.Failed, statemachine.Failed)
	w.has("m", "u", statemachine.Unknown)
	give := []Consent{{TopicID: adminTopicID("u"), From: 0, To: 5, Episode: 1}, {TopicID: adminTopicID("t"), Partition: 1, From: 880, To: 951, Episode: 2},
		{TopicID: adminTopicID("t"), Partition: 0, From: 3, To: 4, Episode: 2}, {TopicID: adminTopicID("t"), Partition: 0, From: 3, To: 4, Episode: 2}}
	results, err := w.admin(t, c).Start(bg, []string{"t", "u"}, StartOptions{Consents: give})
	if err != nil || !results.Topics[0].Changed || !results.Topics[1].Changed {
		t.Fatalf("%+v %v", results, err)
	}
	s := mustRead(t, c)
	got, _ := s.Topic("t")
	if want := []Consent{give[2], give[1], {TopicID: adminTopicID("t"), Partition: 2, From: 7, To: 9, Episode: 1}}; !reflect.DeepEqual(got.Consents, want) {
		t.Errorf("t: %v, want %v", got.Consents, want)
	}
	if got, _ := s.Topic("u"); !reflect.DeepEqual(got.Consents, give[:1]) {
		t.Errorf("u: %v", got.Consents)
	}
	// The same once more is no change.
	results, err = w.admin(t, c).Start(bg, []string{"t", "u"}, StartOptions{Consents: give})
	if err != nil || results.Topics[0].Changed || results.Topics[1].Changed || mustRead(t, c).Version != 2 {
		t.Errorf("again: %+v %v", results, err)
	}
}

func TestDecision7ConsentThatFitsNoTopicRefusesTheWholeRequest(t *testing.T) {
	id := adminTopicID("t")
	for what, tc := range map[string]struct {
		consents []Consent
		code     Code
	}{
		"topic recreated":      {[]Consent{{TopicID: TopicID{9}, From: 1, To: 2}}, InconsistentTopicID},
		"zero topic id":        {[]Consent{{From: 1, To: 2}}, InconsistentTopicID},
		"topic not named":      {[]Consent{{TopicID: adminTopicID("u"), From: 1, To: 2}}, InconsistentTopicID},
		"empty range":          {[]Consent{{TopicID: id, From: 2, To: 2}}, InvalidRequest},
		"negative":             {[]Consent{{TopicID: id, From: -1, To: 2}}, InvalidRequest},
		"no such partition":    {[]Consent{{TopicID: id, Partition: 1, From: 1, To: 2}}, InvalidRequest},
		"negative partition":   {[]Consent{{TopicID: id, Partition: -1, From: 1, To: 2}}, InvalidRequest},
		"two for one":          {[]Consent{{TopicID: id, From: 1, To: 2}, {TopicID: id, From: 1, To: 3}}, InvalidRequest},
		"good one and bad one": {[]Consent{{TopicID: id, From: 1, To: 2}, {TopicID: TopicID{9}, From: 1, To: 2}}, InconsistentTopicID},
	} {
		w, c := &adminWorld{}, controlWith(t)
		w.has("m", "t", statemachine.Unknown)
		w.has("m", "u", statemachine.Unknown)
		results, err := w.admin(t, c).Start(bg, []string{"missing", "t"}, StartOptions{Consents: tc.consents})
		if codeOf(err) != tc.code || len(results.Topics) > 0 || mustRead(t, c).Version != 1 {
			t.Errorf("%s: %v %v, version %d", what, results, err, mustRead(t, c).Version)
		}
	}
}

func TestSpec1_7StopAcceptedFromEveryState(t *testing.T) {
	for _, name := range []string{"m", "m.paused"} {
		for _, state := range everyState {
			w, c := &adminWorld{}, controlWith(t, wishOf("t", name))
			w.has("m", "t", statemachine.Mirroring, state)
			results, err := w.admin(t, c).Stop(bg, []string{"t"}, StopOptions{})
			wantResult(t, name+" "+state.String(), one(t, results, err), OK, true)
			if got := nameOf(t, c, "t"); got != "m.stopped" {
				t.Errorf("%s %s: mirror.name %q", name, state, got)
			}
		}
	}
}

func TestDecision4StopNeedsNobody(t *testing.T) {
	for _, reported := range []bool{false, true} {
		w, c := &adminWorld{broken: errors.New("destination is down"), loadErr: errors.New("store is down")}, controlWith(t, wishOf("t", "m"), wishOf("u", "m.stopped"), wishOf("v", "other"))
		if reported {
			report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: planTime, DestinationID: "here"})
		}
		results, err := w.admin(t, c).Stop(bg, []string{"t", "u", "v"}, StopOptions{})
		if len(results.Topics) != 3 {
			t.Fatalf("%v %v", results, err)
		}
		wantResult(t, "t", results.Topics[0], OK, true)
		wantResult(t, "u", results.Topics[1], OK, false)
		wantResult(t, "v", results.Topics[2], TopicNotInClusterMirror, false)
		// Which cluster it is about has to be said; a process of the mirror may have told it, where the destination does not.
		if w.asked != 1 || reported && results.Clusters.DestinationID != "here" {
			t.Errorf("reported %v: asked %d times, %s", reported, w.asked, results.Clusters)
		}
	}
}

// report is what a process that runs a mirror has told.
func report(t *testing.T, c Control, node NodeReport, partitions ...PartitionReport) {
	t.Helper()
	r, err := c.OpenReporter(bg, node.Owner)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Report(bg, node, partitions); err != nil {
		t.Fatal(err)
	}
}

func TestDecision4StopOfNoMemberIsItsOwnError(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("elsewhere", "other.stopped"))
	w.has("", "free", statemachine.Unknown)
	for topic, code := range map[string]Code{"free": TopicNotInClusterMirror, "elsewhere": TopicNotInClusterMirror, "missing": UnknownTopicOrPartition, "": UnknownTopicOrPartition} {
		results, err := w.admin(t, c).Stop(bg, []string{topic}, StopOptions{})
		wantResult(t, topic, one(t, results, err), code, false)
	}
	w.broken = errors.New("destination is down")
	results, err := w.admin(t, c).Stop(bg, []string{"free"}, StopOptions{})
	wantResult(t, "destination down", one(t, results, err), TopicNotInClusterMirror, false)
	if !errors.Is(err, w.broken) {
		t.Errorf("the cause is missing in %v", err)
	}
}

func TestSpec1_7StopOfAStoppedTopicSucceedsAndChangesNothing(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "m.stopped"))
	for _, state := range everyState {
		w.has("m", "t", state)
		results, err := w.admin(t, c).Stop(bg, []string{"t"}, StopOptions{})
		wantResult(t, state.String(), one(t, results, err), OK, false)
	}
	if v := mustRead(t, c).Version; v != 1 {
		t.Errorf("version %d", v)
	}
}

// A stop leaves the consents where they are: who may stop need not be allowed to write what gives consent. They mean nothing then, and the next start has only its own.
func TestDecision7ConsentsDoNotReachTheNextStart(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, TopicWish{Topic: "t", MirrorName: "m", Consents: []Consent{{From: 1, To: 2}}})
	w.has("m", "t", statemachine.Stopped)
	if _, err := w.admin(t, c).Stop(bg, []string{"t"}, StopOptions{}); err != nil {
		t.Fatal(err)
	}
	s := mustRead(t, c)
	stopped, _ := s.Topic("t")
	if ev := wishEvent(stopped); len(ev.Consents) != 0 || ev.Want != statemachine.WantStopped {
		t.Errorf("a stopped topic's partitions are told %+v", ev)
	}
	if _, err := w.admin(t, c).Start(bg, []string{"t"}, StartOptions{}); err != nil {
		t.Fatal(err)
	}
	s = mustRead(t, c)
	if got, _ := s.Topic("t"); len(got.Consents) != 0 {
		t.Errorf("consents outlive a stop and a start: %v", got.Consents)
	}
}

func TestF83StopOfFiftyTopicsWithTwoOddOnes(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t)
	w.has("", "not-mirrored", statemachine.Unknown)
	var names []string
	for i := range 48 {
		names = append(names, fmt.Sprintf("t%02d", i))
	}
	mustUpdate(t, c, func(s *ControlState) {
		for _, n := range names {
			s.Set(wishOf(n, "m"))
		}
		s.Set(wishOf("done", "m.stopped"))
	})
	names = append([]string{"not-mirrored", "done"}, names...)
	for round, changed := range []bool{true, false} {
		results, err := w.admin(t, c).Stop(bg, names, StopOptions{})
		if len(results.Topics) != 50 || codeOf(err) != TopicNotInClusterMirror {
			t.Fatalf("round %d: %d results, %v", round, len(results.Topics), err)
		}
		for i, r := range results.Topics {
			switch {
			case r.Topic != names[i]:
				t.Errorf("result %d is for %q, want %q", i, r.Topic, names[i])
			case i == 0:
				wantResult(t, r.Topic, r, TopicNotInClusterMirror, false)
			case i == 1:
				wantResult(t, r.Topic, r, OK, false)
			default:
				wantResult(t, r.Topic, r, OK, changed)
			}
		}
	}
}

func TestSpec1_8Pause(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state statemachine.State
		code  Code
		after string
	}{
		{"m", statemachine.Mirroring, OK, "m.paused"},
		{"m", statemachine.Preparing, InvalidClusterMirrorState, "m"},
		{"m", statemachine.EpochFencing, InvalidClusterMirrorState, "m"},
		{"m", statemachine.Failed, InvalidClusterMirrorState, "m"},
		{"m", statemachine.Unknown, InvalidClusterMirrorState, "m"},
		{"m.paused", statemachine.Paused, OK, "m.paused"},
		{"m.paused", statemachine.Failed, OK, "m.paused"},
		{"m.stopped", statemachine.Stopped, MirrorTopicAlreadyStopped, "m.stopped"},
		{"m.stopped", statemachine.Mirroring, MirrorTopicAlreadyStopped, "m.stopped"},
		{"other", statemachine.Mirroring, TopicNotInClusterMirror, "other"},
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", tc.name))
		w.has("m", "t", statemachine.Mirroring, tc.state)
		results, err := w.admin(t, c).Pause(bg, []string{"t"}, PauseOptions{})
		wantResult(t, tc.name+" "+tc.state.String(), one(t, results, err), tc.code, tc.code == OK && tc.name != tc.after)
		if got := nameOf(t, c, "t"); got != tc.after {
			t.Errorf("%s %s: mirror.name %q", tc.name, tc.state, got)
		}
	}
}

func TestSpec1_9Resume(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state statemachine.State
		code  Code
		after string
	}{
		{"m.paused", statemachine.Paused, OK, "m"},
		{"m.paused", statemachine.Pausing, InvalidClusterMirrorState, "m.paused"},
		{"m.paused", statemachine.Failed, InvalidClusterMirrorState, "m.paused"},
		{"m", statemachine.Paused, OK, "m"},
		{"m", statemachine.Failed, OK, "m"},
		{"m.stopped", statemachine.Stopped, MirrorTopicNotPaused, "m.stopped"},
		{"other.paused", statemachine.Paused, TopicNotInClusterMirror, "other.paused"},
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", tc.name))
		w.has("m", "t", statemachine.Paused, tc.state)
		results, err := w.admin(t, c).Resume(bg, []string{"t"}, ResumeOptions{})
		wantResult(t, tc.name+" "+tc.state.String(), one(t, results, err), tc.code, tc.code == OK && tc.name != tc.after)
		if got := nameOf(t, c, "t"); got != tc.after {
			t.Errorf("%s %s: mirror.name %q", tc.name, tc.state, got)
		}
	}
}

func TestSpec1_8PauseAndResumeOfNoMember(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t)
	w.has("", "free", statemachine.Unknown)
	a := w.admin(t, c)
	for topic, code := range map[string]Code{"free": TopicNotInClusterMirror, "missing": UnknownTopicOrPartition} {
		results, err := a.Pause(bg, []string{topic}, PauseOptions{})
		wantResult(t, "pause "+topic, one(t, results, err), code, false)
		results, err = a.Resume(bg, []string{topic}, ResumeOptions{})
		wantResult(t, "resume "+topic, one(t, results, err), code, false)
	}
}

// adminVerb is one of the four verbs with a dry-run switch.
type adminVerb struct {
	name string
	run  func(a *Admin, topics []string, dry bool) (Result, error)
}

var adminVerbs = []adminVerb{
	{"start", func(a *Admin, topics []string, dry bool) (Result, error) {
		return a.Start(bg, topics, StartOptions{DryRun: dry})
	}},
	{"stop", func(a *Admin, topics []string, dry bool) (Result, error) {
		return a.Stop(bg, topics, StopOptions{DryRun: dry})
	}},
	{"pause", func(a *Admin, topics []string, dry bool) (Result, error) {
		return a.Pause(bg, topics, PauseOptions{DryRun: dry})
	}},
	{"resume", func(a *Admin, topics []string, dry bool) (Result, error) {
		return a.Resume(bg, topics, ResumeOptions{DryRun: dry})
	}},
}

func TestAResultForEveryTopicInRequestOrder(t *testing.T) {
	for _, verb := range adminVerbs {
		w, c := &adminWorld{}, controlWith(t, wishOf("b", "m"), wishOf("a", "m.paused"), wishOf("o", "other"))
		w.has("m", "b", statemachine.Mirroring)
		w.has("m", "a", statemachine.Paused)
		topics := []string{"o", "missing", "b", "a", "b", "a"}
		results, err := verb.run(w.admin(t, c), topics, false)
		if len(results.Topics) != len(topics) {
			t.Fatalf("%s: %d results (%v)", verb.name, len(results.Topics), err)
		}
		var first error
		for i, r := range results.Topics {
			if r.Topic != topics[i] {
				t.Errorf("%s: result %d is for %q", verb.name, i, r.Topic)
			}
			if first == nil {
				first = r.Err
			}
			var e *Error
			if r.Err != nil && (!errors.As(r.Err, &e) || e.Topic != r.Topic || e.Mirror != "m" || e.Partition != -1 || e.Message == "") {
				t.Errorf("%s: error of %q does not say what and where: %#v", verb.name, r.Topic, r.Err)
			}
		}
		if first == nil || err != first {
			t.Errorf("%s: error %v, want the first topic's, %v", verb.name, err, first)
		}
		for i := 4; i < 6; i++ { // named a second time
			if results.Topics[i].Changed || codeOf(results.Topics[i].Err) != codeOf(results.Topics[i-2].Err) {
				t.Errorf("%s: second %q: %+v after %+v", verb.name, topics[i], results.Topics[i], results.Topics[i-2])
			}
		}
		if _, err := verb.run(w.admin(t, c), nil, false); codeOf(err) != InvalidRequest {
			t.Errorf("%s of nothing: %v", verb.name, err)
		}
	}
}

// rewriteControl calls change twice, as a Control does that lost a race, the first time on an older state.
type rewriteControl struct {
	Control
	stale ControlState
	fail  error
}

func (r *rewriteControl) Update(ctx context.Context, change func(*ControlState) error) error {
	s := r.stale.Clone()
	if err := change(&s); err != nil {
		return err
	}
	if r.fail != nil {
		return r.fail
	}
	return r.Control.Update(ctx, change)
}

func TestVerbsDecideAnewWhenSomebodyElseWroteInBetween(t *testing.T) {
	inner := controlWith(t, wishOf("t", "m.stopped"))
	c := &rewriteControl{Control: inner}
	c.stale.SetMirror(MirrorEntry{Name: "m"})
	c.stale.Set(wishOf("t", "m"))
	w := &adminWorld{}
	w.has("m", "t", statemachine.Mirroring)
	results, err := w.admin(t, c).Pause(bg, []string{"t"}, PauseOptions{})
	wantResult(t, "pause", one(t, results, err), MirrorTopicAlreadyStopped, false)
	if got := nameOf(t, c, "t"); got != "m.stopped" {
		t.Errorf("a stop was undone: mirror.name %q", got)
	}
}

func TestVerbsReturnNoResultsWhenTheControlDoesNotTakeThem(t *testing.T) {
	for _, verb := range adminVerbs {
		c := &rewriteControl{Control: controlWith(t, wishOf("t", "m")), fail: errors.New("disk full")}
		c.stale.SetMirror(MirrorEntry{Name: "m"})
		w := &adminWorld{}
		w.has("m", "t", statemachine.Mirroring)
		results, err := verb.run(w.admin(t, c), []string{"t"}, false)
		if len(results.Topics) > 0 || !errors.Is(err, c.fail) {
			t.Errorf("%s: %v %v", verb.name, results, err)
		}
	}
}

func TestVerbsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(bg)
	cancel()
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"))
	w.has("m", "t", statemachine.Mirroring)
	a := w.admin(t, c)
	for name, verb := range map[string]func() (Result, error){
		"start":  func() (Result, error) { return a.Start(ctx, []string{"t"}, StartOptions{}) },
		"stop":   func() (Result, error) { return a.Stop(ctx, []string{"t"}, StopOptions{}) },
		"pause":  func() (Result, error) { return a.Pause(ctx, []string{"t"}, PauseOptions{}) },
		"resume": func() (Result, error) { return a.Resume(ctx, []string{"t"}, ResumeOptions{}) },
	} {
		if results, err := verb(); len(results.Topics) > 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v %v", name, results, err)
		}
	}
}

func TestAdminReadsARealStateStore(t *testing.T) {
	store := &statemachine.MemoryStore{}
	session, err := store.Open(bg, "mirror")
	if err != nil {
		t.Fatal(err)
	}
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"))
	w.has("", "t", statemachine.Unknown)
	a, err := NewAdmin(AdminConfig{Mirror: "m", Control: c, States: store, Destination: w})
	if err != nil {
		t.Fatal(err)
	}
	expected := int32(0)
	for _, state := range []statemachine.State{statemachine.Preparing, statemachine.Mirroring} {
		results, err := a.Pause(bg, []string{"t"}, PauseOptions{})
		wantResult(t, "before "+state.String(), one(t, results, err), InvalidClusterMirrorState, false)
		r := statemachine.NewPartitionState()
		r.State = state
		written, err := session.Write(bg, []statemachine.Write{{Key: statemachine.Key{Mirror: "m", TopicID: adminTopicID("t")}, ExpectedStateEpoch: expected, LeaderEpoch: -1, State: &r}})
		if err != nil || written[0].Err != nil {
			t.Fatal(err, written)
		}
		expected = written[0].StateEpoch
	}
	results, err := a.Pause(bg, []string{"t"}, PauseOptions{})
	wantResult(t, "MIRRORING", one(t, results, err), OK, true)
}
