package mirror

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// withSettings is a Control with mirror "m" and these settings.
func withSettings(t *testing.T, settings Settings, wishes ...TopicWish) Control {
	c := controlWith(t, wishes...)
	mustUpdate(t, c, func(s *ControlState) { s.SetMirror(MirrorEntry{Name: "m", Settings: settings}) })
	return c
}

func outcomes(r Result) []string {
	var all []string
	for _, x := range r.Topics {
		s := x.Topic + " " + codeOf(x.Err).String()
		if x.Changed {
			s = x.Topic + " changed"
		}
		all = append(all, s)
	}
	return all
}

func TestSpec1_6StartMergesPatterns(t *testing.T) {
	for _, tc := range []struct {
		what             string
		settings         Settings
		topics           []string
		o                StartOptions
		include, exclude any // in the settings afterwards; nil: not set
		outcomes         []string
	}{
		{"a name and an empty include list", nil, []string{"orders"}, StartOptions{}, nil, nil, []string{"orders changed"}},
		{"a name that is not included joins", Settings{topicsIncludeSetting: "clicks"}, []string{"a.b"}, StartOptions{}, `clicks,a\.b`, nil, []string{"a.b changed"}},
		{"a name that is included", Settings{topicsIncludeSetting: "a.*"}, []string{"a.b"}, StartOptions{}, "a.*", nil, []string{"a.b changed"}},
		{"a name leaves the exclude list", Settings{topicsExcludeSetting: "__.*,orders"}, []string{"orders"}, StartOptions{}, nil, "__.*", []string{"orders changed"}},
		{"the last one leaves an empty list, not the default", Settings{topicsExcludeSetting: `a\.b`}, []string{"a.b"}, StartOptions{}, nil, "", []string{"a.b changed"}},
		{"a name that a pattern excludes", Settings{topicsExcludeSetting: "ord.*"}, []string{"orders", "clicks"}, StartOptions{}, nil, "ord.*",
			[]string{"orders INVALID_REQUEST", "clicks changed"}},
		{"a name and its own exclusion now", nil, []string{"orders"}, StartOptions{Exclude: []string{"ord.*"}}, nil, "__.*,ord.*", []string{"orders INVALID_REQUEST"}},
		{"include patterns", Settings{topicsExcludeSetting: "__.*,n.*"}, nil, StartOptions{Include: []string{"n.*"}}, "n.*", "__.*", nil},
		{"exclude patterns keep the default", Settings{topicsIncludeSetting: "n.*,o"}, nil, StartOptions{Exclude: []string{"n.*"}}, "o", "__.*,n.*", nil},
		{"aliases", Settings{"topics.include": "clicks"}, []string{"orders"}, StartOptions{}, "clicks,orders", nil, []string{"orders changed"}},
		{"a refused name joins nothing", Settings{topicsIncludeSetting: "clicks"}, []string{"__x", "taken"}, StartOptions{}, "clicks", nil,
			[]string{"__x INVALID_REQUEST", "taken TOPIC_ALREADY_IN_CLUSTER_MIRROR"}},
	} {
		w, c := &adminWorld{}, withSettings(t, tc.settings, wishOf("taken", "other"))
		r, err := w.admin(t, c).Start(bg, tc.topics, tc.o)
		if got := outcomes(r); !slices.Equal(got, tc.outcomes) {
			t.Errorf("%s: %v (%v), want %v", tc.what, got, err, tc.outcomes)
		}
		e, _ := entryOf(t, c)
		canonical, _ := e.Settings.Canonical()
		for name, want := range map[string]any{topicsIncludeSetting: tc.include, topicsExcludeSetting: tc.exclude} {
			got, set := canonical[name]
			if set != (want != nil) || set && got != want {
				t.Errorf("%s: %s is %q (set %v), want %v", tc.what, name, got, set, want)
			}
		}
	}
}

func TestSpec1_6StartRefusesPatternsAndRequestsThatAreNone(t *testing.T) {
	for what, tc := range map[string]struct {
		topics []string
		o      StartOptions
		code   Code
	}{
		"nothing":              {nil, StartOptions{}, InvalidRequest},
		"all and some":         {[]string{"t"}, StartOptions{AllTopics: true}, InvalidRequest},
		"all and a pattern":    {nil, StartOptions{AllTopics: true, Include: []string{"a"}}, InvalidRequest},
		"no expression":        {[]string{"t"}, StartOptions{Include: []string{"a("}}, InvalidRegularExpression},
		"two halves":           {[]string{"t"}, StartOptions{Exclude: []string{"a(", "b)"}}, InvalidRegularExpression},
		"lookahead is not RE2": {[]string{"t"}, StartOptions{Exclude: []string{"(?!x)a"}}, InvalidRegularExpression},
		"empty":                {[]string{"t"}, StartOptions{Exclude: []string{""}}, InvalidRegularExpression},
		"comma":                {[]string{"t"}, StartOptions{Include: []string{"a{1,2}"}}, InvalidRequest},
		"both":                 {[]string{"t"}, StartOptions{Include: []string{"a"}, Exclude: []string{"a"}}, InvalidRequest},
	} {
		w, c := &adminWorld{}, controlWith(t)
		r, err := w.admin(t, c).Start(bg, tc.topics, tc.o)
		wantCode(t, what, err, tc.code)
		if len(r.Topics) > 0 || mustRead(t, c).Version != 1 {
			t.Errorf("%s: %v", what, r)
		}
	}
	_, err := (&adminWorld{}).admin(t, NewMemoryControl()).Start(bg, []string{"t"}, StartOptions{Include: []string{"a("}})
	wantCode(t, "no mirror and a bad pattern", err, InvalidRegularExpression)
	_, err = (&adminWorld{}).admin(t, NewMemoryControl()).Start(bg, []string{"t"}, StartOptions{})
	wantCode(t, "no mirror", err, UnknownClusterMirror, "Create")
}

func TestSpec1_6StartStopsTopicsThatAreExcludedNow(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("n1", "m"), wishOf("n2", "m.paused"), wishOf("n3", "m.stopped"), wishOf("n4", "other"), wishOf("o", "m"))
	before := mustRead(t, c).Version
	r, err := w.admin(t, c).Start(bg, []string{"new"}, StartOptions{Exclude: []string{"n[0-9]"}})
	if want := []string{"new changed", "n1 changed", "n2 changed"}; err != nil || !slices.Equal(outcomes(r), want) {
		t.Errorf("%v %v", outcomes(r), err)
	}
	for topic, want := range map[string]string{"new": "m", "n1": "m.stopped", "n2": "m.stopped", "n3": "m.stopped", "n4": "other", "o": "m"} {
		if got := nameOf(t, c, topic); got != want {
			t.Errorf("%s: %q, want %q", topic, got, want)
		}
	}
	if v := mustRead(t, c).Version; v != before+1 {
		t.Errorf("%d writes", v-before)
	}
}

func TestSpec1_6StartFindsTopicsOfIncludePatternsAtTheSource(t *testing.T) {
	topics := []string{"orders", "orders-eu", "orders-old", "orders-gone", "clicks", "__orders", "named"}
	for what, tc := range map[string]struct {
		source   *fakeSource
		outcomes []string
		note     string
	}{
		"it answers": {&fakeSource{id: "there", topics: topics}, []string{"named changed", "orders changed", "orders-eu changed"}, ""},
		"it is down": {&fakeSource{id: "there", err: errDown}, []string{"named changed"}, "refresh"},
		"none":       {nil, []string{"named changed"}, "refresh"},
		"no match":   {&fakeSource{id: "there", topics: []string{"clicks"}}, []string{"named changed"}, "no topic"},
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("orders-gone", "m.stopped"))
		r, err := w.adminOver(t, c, tc.source).Start(bg, []string{"named"}, StartOptions{Include: []string{"orders.*"}, Exclude: []string{".*-old"}})
		if err != nil || !slices.Equal(outcomes(r), tc.outcomes) || !strings.Contains(strings.Join(r.Notes, "\n"), tc.note) || tc.note == "" && len(r.Notes) > 0 {
			t.Errorf("%s: %v %v %v", what, outcomes(r), r.Notes, err)
		}
		if nameOf(t, c, "orders-gone") != "m.stopped" {
			t.Errorf("%s: a topic that was stopped was found again", what)
		}
		if tc.source != nil && tc.source.closed != 1 {
			t.Errorf("%s: the source was closed %d times", what, tc.source.closed)
		}
		if e, _ := entryOf(t, c); e.Settings.Effective(topicsIncludeSetting) != "orders.*,named" || e.Settings.Effective(topicsExcludeSetting) != "__.*,.*-old" {
			t.Errorf("%s: settings %v", what, e.Settings)
		}
	}
}

func TestDecision20AllTopicsLeavesTheFiltersAlone(t *testing.T) {
	settings := Settings{topicsIncludeSetting: "clicks", topicsExcludeSetting: "__.*,secret.*"}
	for what, tc := range map[string]struct {
		source   *fakeSource
		outcomes []string
		notes    []string
	}{
		"it answers": {&fakeSource{id: "there", topics: []string{"orders", "clicks", "__x", "secret-1", "gone", "held"}},
			[]string{"clicks NONE", "gone changed", "held MIRROR_TOPIC_NOT_STOPPED", "orders changed"}, []string{"secret-1"}},
		"it is down": {&fakeSource{id: "there", err: errDown}, []string{"clicks NONE", "gone changed", "held MIRROR_TOPIC_NOT_STOPPED"}, []string{"down", "secret-9"}},
		"none":       {nil, []string{"clicks NONE", "gone changed", "held MIRROR_TOPIC_NOT_STOPPED"}, []string{"no source", "secret-9"}},
	} {
		w, c := &adminWorld{}, withSettings(t, settings, wishOf("clicks", "m"), wishOf("gone", "m.stopped"), wishOf("held", "m.paused"), wishOf("secret-9", "m.stopped"))
		r, _ := w.adminOver(t, c, tc.source).Start(bg, nil, StartOptions{AllTopics: true})
		if !slices.Equal(outcomes(r), tc.outcomes) {
			t.Errorf("%s: %v", what, outcomes(r))
		}
		for _, word := range tc.notes {
			if !strings.Contains(strings.Join(r.Notes, "\n"), word) {
				t.Errorf("%s: notes %q lack %q", what, r.Notes, word)
			}
		}
		if e, _ := entryOf(t, c); !reflect.DeepEqual(e.Settings, settings) {
			t.Errorf("%s: settings %v", what, e.Settings)
		}
	}
	w, c := &adminWorld{}, withSettings(t, settings, wishOf("a", "m"), wishOf("b", "m.paused"), wishOf("c", "m.stopped"), wishOf("d", "other"))
	w.has("m", "a", statemachine.Mirroring)
	w.has("m", "b", statemachine.Paused)
	a := w.admin(t, c)
	for _, verb := range []struct {
		name     string
		run      func(dry bool) (Result, error)
		outcomes []string
	}{
		{"pause", func(dry bool) (Result, error) { return a.Pause(bg, nil, PauseOptions{AllTopics: true, DryRun: dry}) }, []string{"a changed"}},
		{"resume", func(dry bool) (Result, error) { return a.Resume(bg, nil, ResumeOptions{AllTopics: true, DryRun: dry}) }, []string{"b changed"}},
		{"recover", func(dry bool) (Result, error) {
			return a.Recover(bg, nil, RecoverOptions{AllTopics: true, DryRun: dry})
		},
			[]string{"a changed", "b changed", "c changed"}},
		{"stop", func(dry bool) (Result, error) { return a.Stop(bg, nil, StopOptions{AllTopics: true, DryRun: dry}) }, []string{"a changed", "b changed", "c NONE"}},
	} {
		r, err := verb.run(true)
		if err != nil || !slices.Equal(outcomes(r), verb.outcomes) {
			t.Errorf("%s of all: %v %v", verb.name, outcomes(r), err)
		}
	}
	if _, err := a.Stop(bg, nil, StopOptions{AllTopics: true}); err != nil {
		t.Fatal(err)
	}
	if e, _ := entryOf(t, c); !reflect.DeepEqual(e.Settings, settings) || nameOf(t, c, "d") != "other" {
		t.Errorf("stop of all: settings %v", e.Settings)
	}
	// Nothing left to pause is no error.
	if r, err := a.Pause(bg, nil, PauseOptions{AllTopics: true}); err != nil || len(r.Topics) != 0 || len(r.Notes) != 1 {
		t.Errorf("pause of all that are stopped: %v %v", r, err)
	}
	none := w.admin(t, NewMemoryControl())
	_, err := none.Stop(bg, nil, StopOptions{AllTopics: true})
	wantCode(t, "stop all of no mirror", err, UnknownClusterMirror)
	_, err = none.Pause(bg, nil, PauseOptions{AllTopics: true})
	wantCode(t, "pause all of no mirror", err, UnknownClusterMirror)
	_, err = none.Recover(bg, nil, RecoverOptions{AllTopics: true})
	wantCode(t, "recover all of no mirror", err, UnknownClusterMirror)
}

func TestF71AllTopicsAreNeverInternalOnes(t *testing.T) {
	w, c := &adminWorld{}, withSettings(t, Settings{topicsExcludeSetting: ""}) // not even with the default exclude taken away
	r, err := w.adminOver(t, c, &fakeSource{id: "there", topics: []string{"__consumer_offsets", "__mirror_state", "_x"}}).Start(bg, nil, StartOptions{AllTopics: true})
	if err != nil || !slices.Equal(outcomes(r), []string{"_x changed"}) {
		t.Errorf("%v %v", outcomes(r), err)
	}
	r, err = w.adminOver(t, c, &fakeSource{id: "there", topics: []string{"__consumer_offsets", "y"}}).Start(bg, nil, StartOptions{Include: []string{".*"}})
	if err != nil || !slices.Equal(outcomes(r), []string{"y changed"}) {
		t.Errorf("%v %v", outcomes(r), err)
	}
}

func TestSpec1_7StopPatterns(t *testing.T) {
	w, c := &adminWorld{}, withSettings(t, Settings{topicsIncludeSetting: "orders.*,clicks"}, wishOf("orders", "m"), wishOf("orders-eu", "m.paused"), wishOf("orders-old", "m.stopped"),
		wishOf("clicks", "m"), wishOf("orders-x", "other"))
	r, err := w.admin(t, c).Stop(bg, []string{"clicks"}, StopOptions{Patterns: []string{"orders.*"}})
	if err != nil || !slices.Equal(outcomes(r), []string{"clicks changed", "orders changed", "orders-eu changed"}) {
		t.Errorf("%v %v", outcomes(r), err)
	}
	if e, _ := entryOf(t, c); e.Settings.Effective(topicsIncludeSetting) != "clicks" || e.Settings.Effective(topicsExcludeSetting) != "__.*,orders.*" {
		t.Errorf("settings %v", e.Settings)
	}
	if nameOf(t, c, "orders-x") != "other" {
		t.Error("another mirror's topic was stopped")
	}
	// The pattern alone is a change too.
	r, err = w.admin(t, c).Stop(bg, nil, StopOptions{Patterns: []string{"future.*"}})
	history, _ := w.admin(t, c).History(bg)
	if err != nil || len(r.Topics) != 0 || len(history) != 2 || !strings.Contains(history[1].Detail, "future.*") {
		t.Errorf("%v %v, history %+v", r, err, history)
	}
	_, err = w.admin(t, c).Stop(bg, nil, StopOptions{Patterns: []string{"a("}})
	wantCode(t, "no expression", err, InvalidRegularExpression)
	_, err = w.admin(t, NewMemoryControl()).Stop(bg, nil, StopOptions{Patterns: []string{"a"}})
	wantCode(t, "no mirror", err, UnknownClusterMirror)
}

func TestSpec1_7VerbsOfTopicsOfNoMirror(t *testing.T) {
	// The order of the spec: an unknown topic, then an unknown mirror, then another mirror's topic.
	w := &adminWorld{}
	w.has("", "free", statemachine.Unknown)
	c := NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) { s.Set(wishOf("elsewhere", "other")) })
	a := w.admin(t, c)
	want := []string{"missing UNKNOWN_TOPIC_OR_PARTITION", "free UNKNOWN_CLUSTER_MIRROR", "elsewhere UNKNOWN_CLUSTER_MIRROR"}
	topics := []string{"missing", "free", "elsewhere"}
	for name, run := range map[string]func() (Result, error){
		"stop":    func() (Result, error) { return a.Stop(bg, topics, StopOptions{}) },
		"pause":   func() (Result, error) { return a.Pause(bg, topics, PauseOptions{}) },
		"resume":  func() (Result, error) { return a.Resume(bg, topics, ResumeOptions{}) },
		"recover": func() (Result, error) { return a.Recover(bg, topics, RecoverOptions{}) },
	} {
		r, err := run()
		if !slices.Equal(outcomes(r), want) || err != r.Topics[0].Err {
			t.Errorf("%s: %v %v", name, outcomes(r), err)
		}
	}
}

func TestSpec1_10RecoverCountsRequests(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "m"), wishOf("o", "other"))
	a := w.admin(t, c)
	for n := int64(1); n <= 2; n++ {
		r, err := a.Recover(bg, []string{"t", "o", "t"}, RecoverOptions{})
		wantCode(t, "recover", err, TopicNotInClusterMirror)
		if !slices.Equal(outcomes(r), []string{"t changed", "o TOPIC_NOT_IN_CLUSTER_MIRROR", "t NONE"}) {
			t.Errorf("%v", outcomes(r))
		}
		s := mustRead(t, c)
		if wish, _ := s.Topic("t"); wish.Recover != n || wish.MirrorName != "m" {
			t.Errorf("wish %+v, want %d", wish, n)
		}
	}
}

func TestAdminWithoutADestinationKnowsTopicsFromReports(t *testing.T) {
	c := controlWith(t, wishOf("t", "m"), wishOf("never", "m"))
	w := &adminWorld{}
	w.has("m", "t", statemachine.Mirroring, statemachine.Mirroring)
	report(t, c, NodeReport{Owner: "o", Mirror: "m", Seen: planTime, DestinationID: "here"},
		PartitionReport{Mirror: "m", Topic: "t", Partition: 0, TopicID: adminTopicID("t"), Owner: "o", At: planTime},
		PartitionReport{Mirror: "m", Topic: "t", Partition: 1, TopicID: adminTopicID("t"), Owner: "o", At: planTime})
	a := w.adminOver(t, c, nil, func(cfg *AdminConfig) { cfg.Destination = nil })
	r, err := a.Pause(bg, []string{"t", "never", "missing"}, PauseOptions{})
	if want := []string{"t changed", "never INVALID_CLUSTER_MIRROR_STATE", "missing TOPIC_NOT_IN_CLUSTER_MIRROR"}; !slices.Equal(outcomes(r), want) || r.Clusters.DestinationID != "here" {
		t.Errorf("%v %v, %s", outcomes(r), err, r.Clusters)
	}
	r, err = a.Start(bg, []string{"new"}, StartOptions{})
	if err != nil || !slices.Equal(outcomes(r), []string{"new changed"}) {
		t.Errorf("%v %v", outcomes(r), err)
	}
	r, err = a.Stop(bg, []string{"t", "nobody's"}, StopOptions{})
	if want := []string{"t changed", "nobody's TOPIC_NOT_IN_CLUSTER_MIRROR"}; !slices.Equal(outcomes(r), want) {
		t.Errorf("%v %v", outcomes(r), err)
	}
}

func TestEmbeddedAdminMakesItsMirrorUnlessItWasDeleted(t *testing.T) {
	w, c := &adminWorld{}, NewMemoryControl()
	a := w.admin(t, c)
	a.embedded = true
	if r, err := a.Stop(bg, []string{"missing"}, StopOptions{}); codeOf(err) != UnknownTopicOrPartition || mustRead(t, c).Version != 0 {
		t.Fatalf("a verb without any success writes: %v %v", r, err)
	}
	if _, err := a.Start(bg, []string{"t"}, StartOptions{}); err != nil {
		t.Fatal(err)
	}
	if e, ok := entryOf(t, c); !ok || len(e.Settings) != 0 || e.Created.IsZero() || mustRead(t, c).Version != 1 {
		t.Errorf("entry %+v %v, version %d: want it in the same write", e, ok, mustRead(t, c).Version)
	}
	mustUpdate(t, c, func(s *ControlState) {
		s.Remove("t")
		s.RemoveMirror(DeletedMirror{Name: "m", At: planTime})
	})
	for name, run := range map[string]func() (Result, error){
		"start": func() (Result, error) { return a.Start(bg, []string{"t"}, StartOptions{}) },
		"alter": func() (Result, error) {
			return a.AlterConfig(bg, Settings{"client.id": "x"}, nil, AlterConfigOptions{})
		},
		"delete": func() (Result, error) { return a.Delete(bg, DeleteOptions{}) },
	} {
		_, err := run()
		wantCode(t, name, err, UnknownClusterMirror, "deleted at "+stamp(planTime), "Create")
	}
	if _, err := a.Describe(bg); codeOf(err) != UnknownClusterMirror {
		t.Errorf("describe: %v", err)
	}
}

func TestHistorySaysWhatWasConsentedTo(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t)
	w.has("m", "t", statemachine.Unknown)
	x := Consent{TopicID: adminTopicID("t"), From: 3, To: 9, Episode: 1}
	r, err := w.admin(t, c).Start(bg, []string{"t"}, StartOptions{Consents: []Consent{x}, Intent: Intent{Reason: "failback"}})
	history, _ := w.admin(t, c).History(bg)
	if err != nil || len(history) != 1 {
		t.Fatalf("%v %v %+v", r, err, history)
	}
	h := history[0]
	if !strings.Contains(h.Detail, fmt.Sprintf("%s-0 [3,9)", x.TopicID)) || h.Reason != "failback" || h.Verb != "start" || !slices.Equal(h.Topics, []string{"t"}) {
		t.Errorf("%+v", h)
	}
	if all, _ := w.admin(t, c).History(bg); len(all) != 1 {
		t.Errorf("%+v", all)
	}
	other, err := NewAdmin(AdminConfig{Mirror: "other", Control: c, States: w})
	if err != nil {
		t.Fatal(err)
	}
	if all, _ := other.History(bg); len(all) != 0 {
		t.Errorf("another mirror's history: %+v", all)
	}
}

func TestF33StartFindsNoTopicsInAnotherCluster(t *testing.T) {
	for what, o := range map[string]StartOptions{"all": {AllTopics: true}, "patterns": {Include: []string{".*"}}} {
		w, c := &adminWorld{}, controlWith(t)
		mustUpdate(t, c, func(s *ControlState) { s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "there"}) })
		before := mustRead(t, c)
		_, err := w.adminOver(t, c, &fakeSource{id: "X", topics: []string{"t"}}).Start(bg, nil, o)
		wantCode(t, what, err, InvalidRequest, "X", "there")
		if !reflect.DeepEqual(mustRead(t, c), before) {
			t.Errorf("%s: something was written", what)
		}
	}
}

// TestStartOfAMirrorWithoutAnAddress: a mirror whose process has its source from Go need not say where that is; the note is short, and names the cure.
func TestStartOfAMirrorWithoutAnAddress(t *testing.T) {
	for what, settings := range map[string]Settings{"none": nil, "one": {bootstrapSetting: "a:9092"}} {
		w, c := &adminWorld{}, controlWith(t)
		mustUpdate(t, c, func(s *ControlState) { s.SetMirror(MirrorEntry{Name: "m", Settings: settings}) })
		a := w.adminOver(t, c, nil, func(cfg *AdminConfig) {
			cfg.OpenSource = func(context.Context, Settings) (Source, error) { return nil, errDown }
		})
		r, err := a.Start(bg, []string{"t"}, StartOptions{})
		if notes := strings.Join(r.Notes, "\n"); err != nil || strings.Contains(notes, "AlterConfig, as by the line bootstrap.servers=HOST:PORT") != (settings == nil) || strings.Contains(notes, "down") == (settings == nil) {
			t.Errorf("%s: %q %v", what, notes, err)
		}
	}
}

// TestStartNotesTopicsThatTheSourceDoesNotHave: a name that is spelt wrong is recorded, because the topic may come, and whoever started it is told.
func TestStartNotesTopicsThatTheSourceDoesNotHave(t *testing.T) {
	for what, tc := range map[string]struct {
		source          *fakeSource
		warnings, notes string
	}{
		"it answers": {&fakeSource{id: "there", topics: []string{"orders"}}, "the source has no topic oders: check the name; nothing is mirrored as long as it is not there", ""},
		"it is down": {&fakeSource{id: "there", err: errDown}, "", "whether the source has the topics was not seen: down"},
		"none":       {nil, "", ""},
	} {
		w, c := &adminWorld{}, controlWith(t)
		r, err := w.adminOver(t, c, tc.source).Start(bg, []string{"orders", "oders"}, StartOptions{})
		if notes := strings.Join(r.Notes, "\n"); err != nil || notes != tc.notes || strings.Join(r.Warnings, "\n") != tc.warnings || nameOf(t, c, "oders") != "m" {
			t.Errorf("%s: %q %q %v", what, r.Warnings, notes, err)
		}
		if !strings.HasPrefix(r.String(), tc.warnings) {
			t.Errorf("%s: what has to be known first is not first:\n%s", what, r)
		}
	}
}
